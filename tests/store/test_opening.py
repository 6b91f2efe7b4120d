"""Opening a store by its place: what is created, and what a failure leaves behind."""

import sqlite3
from contextlib import closing

import polars as pl
import pytest

import treeward as tw
from tests.commands import run as cli
from treeward.core.errors import InvalidArgument, StoreError
from treeward.data.synthetic import synthetic_catalogue
from treeward.store import journal
from treeward.store.events import event
from treeward.store.opening import open_store, opened_store


def use(where, work):
    with opened_store(where) as store:
        work(store)
        raise RuntimeError("later")


def test_failed_commands_leave_no_empty_store(tmp_path):
    pl.DataFrame({"user": ["ada"], "price": [1.0]}).write_parquet(tmp_path / "wrong.parquet")
    for files in ("missing.parquet", "wrong.parquet"):
        cli("store", "import", tmp_path / "new.db", tmp_path / files, code=2)
    cli("store", "copy", tmp_path / "missing.db", tmp_path / "new.db", code=2)
    cli("serve", tmp_path / "missing", "--store", tmp_path / "new.db", code=2)
    assert [one.name for one in tmp_path.iterdir()] == ["wrong.parquet"]


def test_a_failure_after_items_were_numbered_leaves_no_empty_store(tmp_path):
    shop, where = synthetic_catalogue(50, dim=4, seed=0), str(tmp_path / "new.db")
    with pytest.raises(RuntimeError, match="later"):
        use(where, lambda store: tw.Explorer(shop, store=store))
    assert list(tmp_path.iterdir()) == []


def test_a_failed_command_keeps_events_and_older_stores(tmp_path):
    older, filled = tmp_path / "older.db", tmp_path / "filled.db"
    open_store(str(older)).close()
    with pytest.raises(RuntimeError, match="later"):
        use(str(older), lambda store: None)
    with pytest.raises(RuntimeError, match="later"):
        use(str(filled), lambda store: store.append(["ada"], event(1, 1.0)))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["filled.db", "older.db"]
    with closing(open_store(str(filled), create=False)) as store:
        assert store.counts(["ada"]) == [1]


def test_a_store_that_cannot_be_created_leaves_no_file(tmp_path, monkeypatch):
    def full(made, path):
        made.execute("CREATE TABLE half (x)")
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(journal, "_prepare", full)
    with pytest.raises(StoreError, match="disk is full"):
        open_store(str(tmp_path / "new.db"))
    assert list(tmp_path.iterdir()) == []


def test_addresses_of_unknown_databases_are_not_taken_for_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument, match="another address"):
        open_store("mysql://me:hush@host/shop")
    assert list(tmp_path.iterdir()) == []
