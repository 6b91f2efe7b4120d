import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from treeward.core import artefact
from treeward.core.artefact import Contents
from treeward.core.errors import (
    ArtefactCorrupt,
    ArtefactError,
    ArtefactExists,
    ArtefactMissing,
    ArtefactVersion,
    ArtefactWrite,
    InvalidArgument,
)

FORMAT = "treeward.test"


def contents(value=1):
    return Contents(
        {"numbers": np.arange(value, value + 1000, dtype=np.int32), "empty": np.zeros((0, 3), dtype=np.float32)},
        {"people": pl.DataFrame({"name": ["ada", "bob"], "age": [value, None]})},
        {"words": ["a", "b", "ü"]},
        {"seed": value, "rate": 0.1},
    )


def same(one, other):
    assert one.info == other.info
    assert one.documents == other.documents
    assert all(np.array_equal(one.arrays[name], other.arrays[name]) for name in one.arrays | other.arrays)
    assert all(one.tables[name].equals(other.tables[name]) for name in one.tables | other.tables)


@pytest.fixture
def saved(tmp_path):
    artefact.write(tmp_path / "thing", FORMAT, 1, contents())
    return tmp_path / "thing"


def snapshot(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else None


def test_read_returns_what_was_written(saved):
    read = artefact.read(saved, FORMAT, 1)
    same(read, contents())
    assert not read.arrays["numbers"].flags.writeable
    assert isinstance(read.arrays["numbers"].base, np.memmap)
    manifest = json.loads((saved / "manifest.json").read_text())
    assert manifest["files"]["numbers"]["shape"] == [1000]


def test_writing_twice_gives_the_same_bytes(saved, tmp_path):
    artefact.write(tmp_path / "again", FORMAT, 1, contents())
    assert snapshot(saved) == snapshot(tmp_path / "again")


def test_write_refuses_to_overwrite_by_default(saved):
    before = snapshot(saved)
    with pytest.raises(ArtefactExists, match="exists"):
        artefact.write(saved, FORMAT, 1, contents(2))
    assert snapshot(saved) == before


def test_overwriting_replaces_all_files(saved):
    old = artefact.read(saved, FORMAT, 1)
    (saved / "numbers.npy.part").write_bytes(b"left by a killed write")
    artefact.write(saved, FORMAT, 1, contents(2), overwrite=True)
    same(artefact.read(saved, FORMAT, 1), contents(2))
    assert len(list(saved.iterdir())) == 5
    assert old.arrays["numbers"][0] == 1  # a reader keeps what it opened


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["thesis.doc", "report-0123456789abcdef.json", "report.json.part"])
def test_a_folder_with_other_files_is_never_touched(tmp_path, overwrite, name):
    """Not even a file whose name looks like one of ours."""
    (tmp_path / name).write_text("years of work")
    with pytest.raises(ArtefactExists, match=rf"not treeward's \({name}\)"):
        artefact.check_free(tmp_path, FORMAT, contents().arrays, overwrite=overwrite)
    with pytest.raises(ArtefactExists, match=rf"not treeward's \({name}\)"):
        artefact.write(tmp_path, FORMAT, 1, contents(), overwrite=overwrite)
    assert snapshot(tmp_path) == {name: b"years of work"}


def test_files_that_the_new_version_lacks_are_removed(saved):
    fewer = contents(2)._replace(documents={})
    artefact.write(saved, FORMAT, 1, fewer, overwrite=True)
    assert len(list(saved.iterdir())) == 4
    artefact.write(saved, FORMAT, 1, contents(3), overwrite=True)
    same(artefact.read(saved, FORMAT, 1), contents(3))


def test_an_artefact_of_another_kind_is_never_overwritten(saved):
    before = snapshot(saved)
    for ask in (
        lambda: artefact.write(saved, "treeward.other", 1, contents(2), overwrite=True),
        lambda: artefact.check_free(saved, "treeward.other", [], overwrite=True),
    ):
        with pytest.raises(ArtefactExists, match=r"holds treeward.test, not treeward.other"):
            ask()
    assert snapshot(saved) == before


@pytest.mark.parametrize("error", [OSError(22, "cannot sync"), KeyboardInterrupt()])
def test_failure_after_the_commit_keeps_the_new_version(saved, monkeypatch, error):
    def fail(_):
        raise error

    monkeypatch.setattr(artefact, "sync_folder", fail)
    try:
        artefact.write(saved, FORMAT, 1, contents(2), overwrite=True)
    except KeyboardInterrupt:
        assert isinstance(error, KeyboardInterrupt)
    same(artefact.read(saved, FORMAT, 1), contents(2))
    assert len(list(saved.iterdir())) == 5


def test_second_writer_is_refused(saved, monkeypatch):
    real, seen = artefact._write_document, []

    def meddle(*args):
        with pytest.raises(ArtefactWrite, match="another process is writing it"):
            artefact.write(saved, FORMAT, 1, contents(3), overwrite=True)
        seen.append(1)
        return real(*args)

    monkeypatch.setattr(artefact, "_write_document", meddle)
    artefact.write(saved, FORMAT, 1, contents(2), overwrite=True)
    assert seen == [1]
    same(artefact.read(saved, FORMAT, 1), contents(2))


def test_reader_sees_the_old_or_the_new_version(saved):
    stop = threading.Event()
    wrong = []

    def read():
        while not stop.is_set():
            try:
                info = artefact.read(saved, FORMAT, 1)
                assert info.arrays["numbers"][0] == info.info["seed"]
            except Exception as error:
                wrong.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for value in range(2, 60):
        artefact.write(saved, FORMAT, 1, contents(value), overwrite=True)
    stop.set()
    reader.join()
    assert wrong == []


def test_missing_permission_is_found_before_the_work(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArtefactWrite, match="Not a directory"):
        artefact.check_free(tmp_path / "file" / "deep" / "thing", FORMAT, [])
    artefact.check_free(tmp_path / "some" / "where", FORMAT, [])
    assert not (tmp_path / "some").exists()
    with pytest.raises(InvalidArgument, match="without a null character"):
        artefact.write("a\0b", FORMAT, 1, contents())


def test_every_flipped_byte_is_noticed(saved):
    for path in sorted(saved.iterdir()):
        whole = path.read_bytes()
        for place in sorted({0, len(whole) // 3, len(whole) // 2, len(whole) - 1}):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(ArtefactError):
                artefact.read(saved, FORMAT, 1)
        path.write_bytes(whole)
    artefact.read(saved, FORMAT, 1)


def test_every_bit_of_the_manifest_counts(saved):
    path = saved / "manifest.json"
    whole = path.read_bytes()
    for place in range(len(whole)):
        for bit in range(8):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :])
            with pytest.raises(ArtefactError):
                artefact.read(saved, FORMAT, 1)


def test_truncated_lengthened_and_missing_files_are_refused(saved):
    for path in sorted(saved.iterdir()):
        whole = path.read_bytes()
        for wrong in (whole[:-1], whole + b"x", b""):
            path.write_bytes(wrong)
            with pytest.raises(ArtefactCorrupt):
                artefact.read(saved, FORMAT, 1, verify=False)
        path.unlink()
        with pytest.raises((ArtefactCorrupt, ArtefactMissing)):
            artefact.read(saved, FORMAT, 1)
        path.write_bytes(whole)


def test_another_kind_or_version_is_refused(saved):
    with pytest.raises(ArtefactVersion, match=r"holds treeward.test version 1, expected treeward.tree version 1"):
        artefact.read(saved, "treeward.tree", 1)
    with pytest.raises(ArtefactVersion, match="version 1, expected treeward.test version 2"):
        artefact.read(saved, FORMAT, 2)


def forge(folder, change):
    """Change the manifest and seal it again, as someone hostile would."""
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    manifest["checksum"] = artefact._checksum(manifest)
    (folder / "manifest.json").write_bytes(artefact._render(manifest))


@pytest.mark.parametrize(
    "name", ["../secret.npy", "/etc/passwd", "sub/numbers.npy", "numbers.npy", "manifest.json", ""]
)
def test_a_manifest_cannot_name_other_files(saved, name):
    (saved.parent / "secret.npy").write_bytes(b"x")
    forge(saved, lambda manifest: manifest["files"]["numbers"].update(name=name))
    with pytest.raises(ArtefactCorrupt, match="which treeward does not write"):
        artefact.read(saved, FORMAT, 1)


def test_symbolic_links_are_refused(saved):
    path = next(saved.glob("numbers-*.npy"))
    path.rename(saved.parent / "elsewhere.npy")
    path.symlink_to(saved.parent / "elsewhere.npy")
    with pytest.raises(ArtefactCorrupt, match="not a plain file"):
        artefact.read(saved, FORMAT, 1)
    manifest = saved / "manifest.json"
    manifest.rename(saved.parent / "elsewhere.json")
    manifest.symlink_to(saved.parent / "elsewhere.json")
    with pytest.raises(ArtefactCorrupt, match="symbolic link"):
        artefact.read(saved, FORMAT, 1)


def test_unknown_fields_and_wrong_shapes_are_refused(saved):
    forge(saved, lambda manifest: manifest["files"]["numbers"].update(shape=[999]))
    with pytest.raises(ArtefactCorrupt, match="the manifest says"):
        artefact.read(saved, FORMAT, 1)
    forge(saved, lambda manifest: manifest.update(surprise=1))
    with pytest.raises(ArtefactCorrupt, match="surprise"):
        artefact.read(saved, FORMAT, 1)


def test_pickles_are_refused(saved):
    path = next(saved.glob("numbers-*.npy"))
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    sha256, size = artefact._hash_file(path)
    forge(saved, lambda manifest: manifest["files"]["numbers"].update(sha256=sha256, bytes=size))
    with pytest.raises(ArtefactCorrupt, match="cannot be read"):
        artefact.read(saved, FORMAT, 1)


def test_missing_artefact_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "absent", tmp_path / "file", tmp_path):
        with pytest.raises(ArtefactMissing, match="nothing that treeward saved"):
            artefact.read(path, FORMAT, 1)


def test_unwritable_path_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file" / "thing", tmp_path / "file"):
        with pytest.raises(ArtefactWrite, match="cannot write"):
            artefact.write(path, FORMAT, 1, contents(), overwrite=True)
    assert (tmp_path / "file").read_text() == "x"


IN_A_CHILD = """
import os, resource, signal, sys
import numpy as np
from treeward.core import artefact
from treeward.core.errors import ArtefactWrite
from tests.core.test_artefact import contents
folder, how = sys.argv[1:]
if how == "full":  # files may not grow beyond 2 kB: the array is cut off half-way, as on a full disk
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))
elif how == "rights" and os.getuid() == 0:
    os.setuid(65534)
elif how.startswith("kill"):  # die at the nth rename
    left, real = [int(how[4:])], artefact.Path.replace
    def replace(self, target):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, target)
    artefact.Path.replace = replace
try:
    artefact.write(folder, "treeward.test", 1, contents(2), overwrite=True)
except ArtefactWrite as error:
    print(error)
    sys.exit(7)
"""


def in_a_child(folder, how):
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-c", IN_A_CHILD, str(folder), how], capture_output=True, text=True, check=False, cwd=root
    )


@pytest.mark.parametrize(("how", "why"), [("full", "cannot write"), ("rights", "Permission denied")])
@pytest.mark.parametrize("fresh", [True, False])
def test_a_failed_write_changes_nothing(saved, tmp_path, how, why, fresh):
    folder = tmp_path / "new" if fresh else saved
    os.chmod(tmp_path, 0o755)
    if how == "rights":
        os.chmod(folder.parent if fresh else folder, 0o555)
    before = snapshot(folder)
    child = in_a_child(folder, how)
    os.chmod(folder.parent if fresh else folder, 0o755)
    assert (child.returncode, why in child.stdout) == (7, True), child.stderr
    assert snapshot(folder) == before


@pytest.mark.parametrize("moment", range(1, 6))
def test_killed_at_any_moment_leaves_the_old_or_the_new(saved, moment):
    assert in_a_child(saved, f"kill{moment}").returncode == -signal.SIGKILL
    same(artefact.read(saved, FORMAT, 1), contents(1))
    artefact.write(saved, FORMAT, 1, contents(3), overwrite=True)
    same(artefact.read(saved, FORMAT, 1), contents(3))
    assert len(list(saved.iterdir())) == 5


def test_killed_during_a_first_write_leaves_a_path_that_can_be_written(tmp_path):
    folder = tmp_path / "new"
    assert in_a_child(folder, "kill3").returncode == -signal.SIGKILL
    with pytest.raises(ArtefactMissing):
        artefact.read(folder, FORMAT, 1)
    artefact.write(folder, FORMAT, 1, contents())
    same(artefact.read(folder, FORMAT, 1), contents())


def test_an_interrupt_cleans_up(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(artefact, "_write_document", interrupt)
    with pytest.raises(KeyboardInterrupt):
        artefact.write(tmp_path / "deep" / "new", FORMAT, 1, contents())
    assert not (tmp_path / "deep").exists()


def test_digest_tells_type_shape_and_values_apart():
    base = np.arange(6, dtype=np.float32)
    others = [base.astype(np.float64), base.reshape(2, 3), base + 1]
    assert len({artefact.digest(array) for array in [base, *others]}) == 4
    assert artefact.digest(base) == artefact.digest(base.copy())


def test_pipe_is_written_to_and_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit((tmp_path / "pipe").read_bytes)
        artefact.write_file(tmp_path / "pipe", b"page")
        assert read.result(10) == b"page"
    assert (tmp_path / "pipe").is_fifo()
