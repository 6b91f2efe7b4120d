"""How kernels are compiled: private options of numba, kernels bound to types, what is shown, and what is shared."""

import os
import pty
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import numba
import numpy as np
import pytest

import treeward
from tests.cli.test_warm import COUNTED
from treeward.core import compiled, shared_cache

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled here")


def _sum(values):
    total = 0.0
    for i in range(len(values)):
        total += values[i]
    return total


def test_bound_kernel_refuses_other_types():
    add = compiled.bound(compiled.kernel(_sum), np.ones(3))
    assert add(np.ones(4)) == 4.0
    with pytest.raises(TypeError, match=r"_sum: argument 0 is array\(float32.* bound to array\(float64"):
        add(np.ones(4, dtype=np.float32))


def test_bound_kernel_is_not_slowed_down_outside_of_tests(monkeypatch):
    monkeypatch.delenv("PYTEST_VERSION")
    kernel = compiled.kernel(_sum)
    add = compiled.bound(kernel, np.ones(3))
    assert add is kernel.overloads[next(iter(kernel.overloads))].entry_point


def test_inner_kernel_compiles_an_entry_only_when_python_calls_it():
    made = compiled.inner(_sum)
    outer = compiled.kernel(lambda values: made(values) + 1.0)
    assert outer(np.ones(3)) == 4.0
    assert id(made) not in compiled._entries
    assert made(np.ones(3)) == 3.0
    assert id(made) in compiled._entries


@pytest.mark.parametrize("missing", ["_nrt", "forceinline", "no_cpython_wrapper", "no_cfunc_wrapper"])
def test_kernels_compile_without_private_options(monkeypatch, missing):
    """An option that a numba has not is left out: the same results, more slowly."""
    monkeypatch.setattr(compiled, "_KNOWN", compiled._KNOWN - {missing})
    inner = compiled.inner(_sum)
    outer = compiled.kernel(allocates=False, inline=True)(lambda values: inner(values) + 1.0)
    assert outer(np.ones(3)) == 4.0


SMALL = "from treeward.core import rng; rng.uniforms(0, 0, 1); import sys; print('rich' in sys.modules)"
LINE = "treeward compiles for this machine, once"


@pytest.fixture
def environment(tmp_path):
    """Return variables of a process that finds nothing compiled."""
    return {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "TERM": "xterm", "COLUMNS": "100"}


def _at_terminal(program, environment):
    """Run a program whose stderr is a terminal; return what it printed, and what the terminal got."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=theirs, text=True, env=environment
    ) as process:
        os.close(theirs)
        seen = b""
        try:
            while piece := os.read(ours, 4096):
                seen += piece
        except OSError:  # how Linux tells that nobody has the other end any more
            pass
        os.close(ours)
        printed = process.stdout.read()
    assert process.returncode == 0, seen.decode()
    assert b"Traceback" not in seen
    return printed.strip(), seen.decode()


def test_terminal_shows_what_was_compiled_so_far(environment):
    printed, seen = _at_terminal(SMALL, environment)
    assert printed == "True"
    assert re.search(re.escape(LINE) + r" \(0 done, \d+ s\)", seen)
    assert f"{LINE} (1 done, " in seen
    assert seen.rstrip().endswith("\x1b[2K")  # the line is gone
    assert _at_terminal(SMALL, environment) == ("False", "")  # everything is on disk


def test_pipe_gets_nothing_while_kernels_compile(environment):
    done = subprocess.run([sys.executable, "-c", SMALL], capture_output=True, text=True, env=environment, check=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_plain_terminal_gets_one_line(environment):
    assert _at_terminal(SMALL, {**environment, "TERM": "dumb"})[1].count(LINE) == 1


def test_compiling_does_not_disturb_another_progress_bar(environment):
    program = f"""
from treeward.cli.console import progress
with progress() as report:
    report("a bar", 1, 2)
    {SMALL}
    report("a bar", 2, 2)
"""
    _, seen = _at_terminal(program, environment)
    assert seen.count(LINE) == 1
    assert "2/2" in seen


def test_worker_processes_show_nothing(environment):
    program = f"import multiprocessing; multiprocessing.parent_process = multiprocessing.current_process; {SMALL}"
    assert _at_terminal(program, environment) == ("False", "")


def _counted(environment, together):
    """Return how many kernels processes compile that start together."""
    program = f"{COUNTED}\n{SMALL}\nprint(len(compiled))"
    processes = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(together)
    ]
    return [int(process.communicate()[0].split()[-1]) for process in processes]


def test_processes_that_start_together_compile_once(environment, tmp_path):
    [alone] = _counted(environment, 1)
    assert alone >= 5
    assert sum(_counted({**environment, "NUMBA_CACHE_DIR": str(tmp_path / "other")}, 3)) == alone
    assert _counted(environment, 1) == [0]


@contextmanager
def _holder(folder):
    """Have another process hold the lock of a kernel."""
    program = f"""
from treeward.core.shared_cache import turns
print(turns.take({str(folder)!r}, "mine"), flush=True)
input()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"True\n"
        yield process
        process.kill()


def test_killed_process_blocks_nobody(tmp_path):
    turns, waited = shared_cache.Turns(), []

    @contextmanager
    def waiting():
        waited.append(True)
        yield

    turns.waiting = waiting
    with _holder(tmp_path) as process:
        assert turns.take(str(tmp_path), "another")
        assert not waited
        Timer(0.3, process.kill).start()
        assert turns.take(str(tmp_path), "mine")
        assert waited
    assert not turns.take(str(tmp_path), "mine")  # this process has it
    turns.leave(0)
    assert turns.take(str(tmp_path), "mine")
    turns.leave(0)


def test_patience_with_another_process_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_cache, "PATIENCE", 0.1)
    turns = shared_cache.Turns()
    with _holder(tmp_path):
        assert not turns.take(str(tmp_path), "mine")
    assert not turns.take(str(tmp_path / "missing"), "mine")


def test_kernel_that_does_not_compile_gives_its_lock_back():
    with pytest.raises(numba.TypingError):
        compiled.kernel(_sum)("text")
    assert shared_cache.turns.held == []


def test_kernels_compile_without_shared_cache(monkeypatch):
    monkeypatch.setattr(compiled, "shared_cache", None)
    kernel = compiled.kernel(_sum)
    assert not isinstance(kernel, shared_cache.SharedKernel)
    assert kernel(np.ones(3)) == 3.0


def test_read_only_installation_keeps_kernels_in_the_users_cache(environment, tmp_path):
    installed = tmp_path / "installed"
    shutil.copytree(
        Path(treeward.__file__).parent, installed / "treeward", ignore=shutil.ignore_patterns("__pycache__")
    )
    for folder in [path for path in (installed / "treeward").rglob("*") if path.is_dir()]:
        (folder / "__pycache__").touch()  # a file where a folder should be: nothing can be written, not even by root
    del environment["NUMBA_CACHE_DIR"]
    environment |= {"PYTHONPATH": str(installed), "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "user")}
    first, again = _counted(environment, 1), _counted(environment, 1)
    assert first[0] > 0
    assert again == [0]
    assert list((tmp_path / "user" / "numba").rglob("rng._fill_uniform-*.nbc"))


READ_ONLY = """
import os, sys

def refuse(event, details):
    writes = event == "os.mkdir" or (event == "open" and details[2] & (os.O_WRONLY | os.O_RDWR))
    if writes and details[0] != os.devnull:
        raise OSError(30, "Read-only file system")

sys.addaudithook(refuse)
from treeward.core import rng
print(rng._fill_uniform._cache.cache_path)
"""


def test_kernels_are_loaded_from_a_folder_that_cannot_be_written_to(environment, tmp_path):
    """A read-only container loads what was compiled while its image was built."""
    environment |= {"HOME": str(tmp_path / "none"), "XDG_CACHE_HOME": str(tmp_path / "none")}
    words = [sys.executable, "-B", "-c", COUNTED + READ_ONLY + "rng.uniforms(0, 0, 1)\nprint(compiled)"]

    def use():
        return subprocess.run(words, env=environment, check=True, capture_output=True, text=True).stdout.splitlines()

    use()
    assert not (tmp_path / "cache").exists()
    assert _counted(environment, 1)[0] > 0
    kept = sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "cache").rglob("*"))
    folder, compiled = use()
    assert folder.startswith(str(tmp_path / "cache"))
    assert compiled == "[]"
    assert sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "cache").rglob("*")) == kept


UNREADABLE = """
def deny(event, details):
    if event == "open" and str(details[0]).endswith((".nbi", ".nbc")):
        raise PermissionError(13, "Permission denied")

sys.addaudithook(deny)
"""


@pytest.mark.parametrize("harm", ["unreadable", "index", "code", "cut short"])
def test_kernels_on_disk_that_cannot_be_read_are_compiled(environment, tmp_path, harm):
    environment |= {"HOME": str(tmp_path / "none"), "XDG_CACHE_HOME": str(tmp_path / "none")}
    assert _counted(environment, 1)[0] > 0
    ends = {"index": ["*.nbi"], "code": ["*.nbc"]}.get(harm, ["*.nbi", "*.nbc"])
    for path in (path for end in ends for path in (tmp_path / "cache").rglob(end)):
        whole = path.read_bytes()
        harmed = {"unreadable": whole, "cut short": whole[: len(whole) * 2 // 3]}
        path.write_bytes(harmed.get(harm, b"\x80\x04" + b"\xff" * len(whole)))
    words = COUNTED + READ_ONLY + (UNREADABLE if harm == "unreadable" else "")
    done = subprocess.run(
        [sys.executable, "-B", "-c", words + "rng.uniforms(0, 0, 1)\nprint(compiled)"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "_fill_uniform" in done.stdout.splitlines()[-1]


def test_kernels_of_a_version_with_other_classes_are_compiled_again(environment, tmp_path):
    """After an upgrade, kernels on disk may name a class that is gone."""
    program = """
from typing import NamedTuple
from treeward.core.compiled import kernel
class {name}(NamedTuple):
    value: float
@kernel
def double(held):
    return 2.0 * held.value
made = {name}(1.5)
"""
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *sys.path])
    for name in ("Former", "Present"):
        (tmp_path / "upgraded.py").write_text(program.format(name=name))
        words = [sys.executable, "-B", "-c", "import upgraded; print(upgraded.double(upgraded.made))"]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert done.stdout == "3.0\n", done.stderr
