"""Files from strangers: arrays, artefacts, stores, links; and names that a terminal or a spreadsheet would obey."""

import json
import os
import re
import sqlite3
import struct
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rich.table import Table

import treeward as tw
from tests.browsing import browser, needs_browser, watched  # noqa: F401
from tests.commands import run as cli
from tests.pg import cluster, needs_postgres  # noqa: F401
from treeward.cli.console import _Console, line, plain
from treeward.core import artefact
from treeward.core.errors import ArtefactCorrupt, DataError, InvalidArgument, StoreError, StoreVersion
from treeward.experiment.spec import Arm, Spec
from treeward.store.base import everyone, forget, merge, read_rewards
from treeward.store.check import check
from treeward.store.events import event
from treeward.store.numbers import number_items
from treeward.store.opening import open_store
from treeward.store.parquet import export
from treeward.store.sqlite import SQLiteStore

SHOUT = "\x1b]0;owned\x07\x1b[2J[red]x[/red] [link=https://evil.example]y[/link] :bomb: \u202egpj.exe\r\x9b31m"


def npy(header, body=b"\0" * 64, version=1):
    text = header.encode() + b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(text)) + text + body


def shaped(shape, kind="'<f4'"):
    return npy(f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}")


RUNS = "cos\nsystem\n(S'touch pwned'\ntR."


HOSTILE = {
    "larger than any machine": shaped("(1099511627776, 8)"),
    "larger than any number": shaped("(4611686018427387904, 4)"),
    "wraps to nothing": shaped("(1099511627776, 1099511627776)"),
    "more digits than a number has": shaped("(99999999999999999999999999, 8)"),
    "negative": shaped("(-4, 4)"),
    "a flag for a size": shaped("(True, 4)"),
    "objects": npy("{'descr': '|O', 'fortran_order': False, 'shape': (4, 4), }", RUNS.encode()),
    "objects inside": shaped("(4, 4)", "[('a', '|O')]"),
    "a call": shaped("(4, 4)", "__import__('os').system('touch pwned')"),
    "deep": shaped("(4, 4)", "(" * 4_000 + ")" * 4_000),
    "many signs": shaped("(4, 4)", "-" * 9_000 + "1"),
    "huge elements": shaped("(1, 1)", "'|V2147483647'"),
    "cut off": npy("{'descr': '<f4'"),
    "a pickle": RUNS.encode(),
    "a zip": b"PK\x03\x04" + b"\0" * 60,
    "of another version": npy("{}", version=9),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_hostile_arrays_are_refused(content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shards").mkdir()
    for path in (tmp_path / "x.npy", tmp_path / "shards" / "0.npy"):
        path.write_bytes(content)
    with pytest.raises(DataError, match="x.npy: cannot be read"):
        tw.Catalogue.load(tmp_path / "x.npy")
    with pytest.raises(DataError, match="0.npy: cannot be read"):
        tw.ItemTree.from_shards(tmp_path / "shards", [2])
    assert not (tmp_path / "pwned").exists()


def test_a_sealed_manifest_over_a_hostile_array_is_refused(tmp_path):
    folder = tmp_path / "tree"
    tw.ItemTree.flat(np.eye(4, dtype=np.float32)).save(folder)
    told = json.loads((folder / "manifest.json").read_text())
    file = told["files"]["vectors"]
    content = HOSTILE["larger than any machine"]
    (folder / file["name"]).write_bytes(content)
    file |= {"bytes": len(content), "shape": [1099511627776, 8], "sha256": artefact.hashlib.sha256(content).hexdigest()}
    told["checksum"] = artefact._checksum(told)
    (folder / "manifest.json").write_bytes(artefact._render(told))
    with pytest.raises(ArtefactCorrupt, match="cannot be read"):
        tw.ItemTree.load(folder)


def test_symbolic_links_are_not_followed_when_writing(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "tree").mkdir()
    for name in ("vectors.npy.part", "manifest.json.part"):
        (tmp_path / "tree" / name).symlink_to(victim)
    tw.ItemTree.flat(np.eye(4, dtype=np.float32)).save(tmp_path / "tree")
    assert tw.ItemTree.load(tmp_path / "tree").vectors.shape[1] == 4
    (tmp_path / "out.html").symlink_to(victim)
    artefact.write_file(tmp_path / "out.html", b"page")
    assert victim.read_text() == "precious"
    (tmp_path / "events.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="a link to a file that does not exist; create the store at its target"):
        SQLiteStore(tmp_path / "events.db")
    assert not (tmp_path / "elsewhere").exists()


def test_files_are_readable_by_their_owner_only(tmp_path):
    before = os.umask(0)
    try:
        store = SQLiteStore(tmp_path / "events.db")
        number_items(store, pl.Series([17]))
        store.append(["ada"], event(0, 1.0, nonce=7))
        store.backup(tmp_path / "copy.db")
        export(store, tmp_path / "out")
        found = {one.name: one.stat().st_mode & 0o777 for one in tmp_path.iterdir()}
        store.close()
    finally:
        os.umask(before)
    assert found.pop("out") == 0o700
    assert set(found) >= {"events.db", "events.db-wal", "copy.db"}
    assert set(found.values()) == {0o600}


@pytest.mark.parametrize(
    "trick",
    [
        "CREATE TRIGGER keep AFTER INSERT ON users BEGIN INSERT INTO metadata VALUES (new.name, new.name, 0); END",
        "CREATE VIEW more AS SELECT * FROM users",
        "CREATE TABLE more (name)",
        "CREATE INDEX more ON users (name)",
        "DROP TABLE metadata; CREATE VIEW metadata AS SELECT * FROM users",
        "DROP TABLE metadata; CREATE VIRTUAL TABLE metadata USING fts5(key, value, crc)",
    ],
)
def test_a_store_with_triggers_or_views_is_refused(trick, tmp_path):
    path = tmp_path / "events.db"
    SQLiteStore(path).close()
    with sqlite3.connect(path) as file:
        file.executescript(trick)
    file.close()
    with pytest.raises(StoreVersion, match="that no store of treeward's has"):
        SQLiteStore(path)
    with pytest.raises(StoreVersion):
        check(path)


def test_an_analysed_store_is_accepted(tmp_path):
    SQLiteStore(tmp_path / "events.db").close()
    with sqlite3.connect(tmp_path / "events.db") as file:
        file.execute("ANALYZE")
    file.close()
    SQLiteStore(tmp_path / "events.db").close()


NAMES = (
    "'; DROP TABLE events; --",
    '"; DELETE FROM users',
    "a' OR '1'='1",
    "%s %(x)s $1 {}",
    "\\'; x",
    "a\x01b",
    "ü\u202e",
)


def hold(store):
    for number, name in enumerate(NAMES):
        store.append([name], event(number, 0.5, nonce=number + 1))
    number_items(store, pl.Series(NAMES))
    store.metadata.put({NAMES[0]: b"note"})
    merge(store, NAMES[1], NAMES[2])
    assert forget(store, NAMES[0]) == 1
    assert set(everyone(store)) == set(NAMES[2:])
    assert (store.counts([NAMES[2]]), store.metadata.get(NAMES[0])) == ([2], b"note")
    assert read_rewards(store, [(NAMES[3], 4)]) == [[0.5]]


def test_names_are_never_run_as_sql(tmp_path):
    store = SQLiteStore(tmp_path / "events.db")
    hold(store)
    store.close()
    assert not check(tmp_path / "events.db").problems
    assert set(everyone(SQLiteStore(tmp_path / "events.db"))) == set(NAMES[2:])


@needs_postgres
def test_names_are_never_run_as_sql_in_postgresql(cluster):  # noqa: F811
    store = open_store(cluster.database("names"))
    hold(store)
    store.close()


def test_terminal_codes_in_names_are_escaped():
    held = Table(title=SHOUT)
    held.add_column(SHOUT)
    held.add_row(SHOUT)
    with (out := Path(os.devnull).open("w")):
        made = _Console(file=out, force_terminal=True, color_system=None, record=True, width=200)
        for what in (held, SHOUT, f"{SHOUT}\n"):
            made.print(what, highlight=False)
        shown = made.export_text()
    assert shown.count("[link=https://evil.example]y[/link] :bomb:") == 5
    for sign in "\x1b\x07\r\x9b\u202e":
        assert sign not in shown
    assert plain(SHOUT).startswith(r"\x1b]0;owned\x07\x1b[2J[red]x[/red]")
    assert line("a\nb\tc") == "a\\nb\tc"


def test_commands_escape_titles_and_file_names(tmp_path):
    shop = tw.Catalogue(
        ["a", SHOUT + "\nforged line"], np.eye(2, dtype=np.float32), titles=["plain", SHOUT + "\nforged"]
    )
    shop.save(tmp_path / "items")
    tw.ItemTree.flat(shop.vectors).named(shop.titles).save(tmp_path / "tree")
    told = cli("tree", "show", tmp_path / "tree", "--items", tmp_path / "items")
    assert "[link=https://evil.example]y[/link]" in told
    assert not re.search(r"^forged|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", told, re.MULTILINE)
    odd = tmp_path / "\x1b[2J[bold]x.npy"
    odd.write_bytes(b"rubbish")
    told = cli("tree", "build", odd, "-o", tmp_path / "t", code=2)
    assert "[bold]x.npy" in told
    assert "\x1b" not in told


def test_labels_that_are_formulas_are_refused():
    for label in ("=cmd()", "+1", "-1", "@x", "\tx"):
        with pytest.raises(InvalidArgument, match="do not begin with"):
            Spec(name="x", data="x", arms=(Arm(label, "hcb"),)).check()
