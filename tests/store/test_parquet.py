"""Events as Parquet files, to and from other tools."""

from datetime import datetime

import numpy as np
import polars as pl
import pytest

import treeward as tw
from tests.store.test_copy import contents, lived
from treeward.core.errors import DataError, InvalidArgument, StoreError
from treeward.store import parquet
from treeward.store.base import count_users
from treeward.store.events import EVENT
from treeward.store.numbers import item_ids, number_items


def test_events_survive_export_and_import(tmp_path):
    _, explorer, made = lived(str(tmp_path / "events.db"))
    assert parquet.export(explorer.store, tmp_path / "out") == (23, 4)
    table = pl.read_parquet(tmp_path / "out")
    assert table.columns == ["user", "user_is_number", "item", "kind", "reward", "propensity", "node", "tree",
                             "decision", "time", "own"]  # fmt: skip
    assert table.filter(kind="shown")["reward"].null_count() == table.filter(kind="shown").height == 15
    assert table.filter(pl.col("kind") != "shown")["propensity"].null_count() == 8
    assert table.filter(user="7")["user_is_number"].to_list().count(True) == 4
    assert (table["time"].dt.year() >= 2024).all()
    assert set(table.filter(user="zoë", kind="shown")["item"]) == {d.item for d in made if d.user == "zoë"}
    other = tw.MemoryStore()
    assert parquet.load(other, tmp_path / "out") == (23, 4)
    mine, theirs = explorer.store.read(["ada"])[0], other.read(["ada"])[0]
    for name in ("reward", "nonce", "kind", "node", "time"):
        assert mine[name].tolist() == theirs[name].tolist()
    ids = [item_ids(store)[events["item"].astype(np.int64)].to_list()
           for store, events in ((explorer.store, mine), (other, theirs))]  # fmt: skip
    assert ids[0] == ids[1]
    with pytest.raises(StoreError, match="are in the store already; nothing was added"):
        parquet.load(other, tmp_path / "out")
    explorer.close()


def test_many_events_are_exported_to_several_files(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_ROWS_PER_FILE", 100)
    monkeypatch.setattr(parquet, "_AT_ONCE", 4)
    store = tw.MemoryStore()
    number_items(store, pl.Series(range(9)))
    events = np.zeros(1_000, dtype=EVENT)
    events["item"], events["kind"] = np.arange(1_000) % 9, 1
    store.extend([f"u{i}" for i in range(100)], np.full(100, 10), events)
    assert parquet.export(store, tmp_path / "out") == (1_000, 100)
    assert len(list((tmp_path / "out").glob("*.parquet"))) > 5
    other = tw.MemoryStore()
    assert parquet.load(other, tmp_path / "out") == (1_000, 100)
    assert contents(other).keys() == contents(store).keys()
    assert item_ids(other).dtype.is_integer()


def test_a_table_of_users_and_items_can_be_imported(tmp_path):
    pl.DataFrame({"user": [1, 2, 1], "item": ["a", "b", "c"], "time": [10, 20, 5]}).write_parquet(
        tmp_path / "a.parquet"
    )
    store = tw.MemoryStore()
    assert parquet.load(store, tmp_path / "a.parquet") == (3, 2)
    assert store.read([1])[0]["reward"].tolist() == [1.0, 1.0]
    assert store.read([1])[0]["time"].tolist() == [10, 5]
    assert store.read([1])[0]["kind"].tolist() == [1, 1]
    holes = {"user": ["x", "y"], "item": ["a", "b"], "decision": [2**60 + 1, None], "node": [None, 3],
             "tree": [None, ""], "user_is_number": [None, False], "time": [None, 7]}  # fmt: skip
    pl.DataFrame(holes).write_parquet(tmp_path / "b.parquet")
    parquet.load(store, tmp_path / "b.parquet")
    assert store.read(["x"])[0][["nonce", "node", "time"]].tolist() == [(2**60 + 1, -1, 0)]
    assert store.read(["y"])[0][["nonce", "node", "time"]].tolist() == [(0, 3, 7)]


def test_an_empty_store_survives_export_and_import(tmp_path):
    assert parquet.export(tw.MemoryStore(), tmp_path / "out") == (0, 0)
    assert parquet.load(tw.MemoryStore(), tmp_path / "out") == (0, 0)


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"user": ["a"]}, "has no column 'item'; it has user"),
        ({"user": ["a", None], "item": ["x", "y"]}, "row 1 has no user"),
        ({"user": ["a"], "item": ["x"], "reward": [float("nan")]}, "row 0 has no finite reward"),
        ({"user": ["a"], "item": ["x"], "kind": ["bought"]}, "does not hold events"),
        ({"user": ["a"], "item": ["x"], "node": ["here"]}, "does not hold events"),
        (
            {"user": ["a"], "item": ["x"], "user_is_number": [True]},
            "user_is_number is true for a user that is not a number",
        ),
        ({"user": ["a", "b"], "item": ["x", "y"], "kind": ["reward", None]}, "row 1 has no kind"),
        ({"user": ["a", "a"], "item": ["x", "x"], "decision": [5, 5]}, "more than one reward"),
        ({"user": ["a"], "item": [["x", "y"]]}, r"'item' must hold texts or integers, not List\(String\)"),
        ({"user": [{"id": "a"}], "item": ["x"]}, "'user' must hold texts or integers, not Struct"),
        ({"user": [1.5], "item": ["x"]}, "'user' must hold texts or integers, not Float64"),
        ({"user": ["a"], "item": ["x"], "tree": [["t"]]}, "'tree' must hold one value per row, not List"),
        ({"user": ["a", "b"], "item": ["x", "y"], "time": [7, -1]}, "row 1 has the time -1, where it must be"),
        ({"user": ["a"], "item": ["x"], "time": [1_700_000_000_000]}, "Divide milliseconds by 1000"),
        ({"user": ["a"], "item": ["x"], "time": [datetime(1969, 1, 1)]}, "row 0 has the time 1969-01-01"),
    ],
)
def test_tables_without_valid_events_are_refused(tmp_path, table, told):
    pl.DataFrame(table).write_parquet(tmp_path / "a.parquet")
    store = tw.MemoryStore()
    with pytest.raises(DataError, match=told):
        parquet.load(store, tmp_path / "a.parquet")
    assert count_users(store) == 0


def test_files_that_are_not_parquet_are_refused(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"rubbish")
    with pytest.raises(DataError, match="cannot be read"):
        parquet.load(tw.MemoryStore(), tmp_path / "a.parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no .parquet file"):
        parquet.load(tw.MemoryStore(), tmp_path / "empty")
    with pytest.raises(InvalidArgument, match="new, or an empty folder"):
        parquet.export(tw.MemoryStore(), tmp_path / "a.parquet")
