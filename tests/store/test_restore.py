"""Restoring a backup: nothing is lost, and no two stores are mixed."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.commands import run as cli
from tests.store.test_write_ahead import killed, log_of, many
from treeward.core.errors import InvalidArgument, StoreDamaged, StoreError, StoreInUse
from treeward.store.restore import restore
from treeward.store.sqlite import SQLiteStore


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.db"


def test_restoring_a_backup_keeps_the_former_store(path, tmp_path):
    with closing(SQLiteStore(path)) as store:
        store.append(["ada"] * 3, many(3))
        store.backup(tmp_path / "backup.db")
    killed(path, 3, 10)
    kept_bytes, backup_bytes = path.read_bytes(), (tmp_path / "backup.db").read_bytes()
    told = cli("store", "restore", tmp_path / "backup.db", path)
    assert "3 events of 1 users" in told
    [kept] = tmp_path.glob("events.db.before-restore-*[0-9a-f]")
    assert str(kept) in "".join(told.split())
    assert kept.read_bytes() == kept_bytes
    assert (tmp_path / "backup.db").read_bytes() == backup_bytes
    assert not log_of(path).exists()
    assert path.stat().st_mode & 0o777 == 0o600
    for one, count in ((path, 3), (kept, 10)):
        with closing(SQLiteStore(one)) as store:
            assert store.counts(["ada"])[0] == count
    assert not list(tmp_path.glob(".*"))


def test_restoring_refuses_damaged_backups_and_stores_in_use(path, tmp_path):
    backup = tmp_path / "backup.db"
    with closing(SQLiteStore(path)) as store:
        store.append(["ada"] * 3, many(3))
        store.backup(backup)
        with pytest.raises(StoreInUse, match="another process has it open"):
            restore(backup, path)
        store.append(["ada"], many(1, start=3))
    with pytest.raises(InvalidArgument, match="a file other than the backup"):
        restore(path, path)
    with pytest.raises(StoreError, match="no such backup"):
        restore(tmp_path / "nothing.db", path)
    with closing(sqlite3.connect(backup, isolation_level=None)) as file:
        file.execute("UPDATE events SET crc = crc + 1")
    with pytest.raises(StoreDamaged, match=r"backup.db: event 1 is not what was written; nothing was restored"):
        restore(backup, path)
    backup.write_bytes(b"rubbish" * 1000)
    with pytest.raises(StoreError, match="nothing was restored"):
        restore(backup, path)
    with closing(SQLiteStore(path)) as store:
        assert store.counts(["ada"])[0] == 4
    assert sorted(one.name for one in tmp_path.iterdir()) == ["backup.db", "events.db"]


def test_a_backup_is_restored_where_no_store_was(path, tmp_path):
    with closing(SQLiteStore(tmp_path / "other.db")) as store:
        store.append(["ada"] * 3, many(3))
        store.backup(tmp_path / "backup.db")
    log_of(path).write_bytes(b"of a store that was deleted")
    assert restore(tmp_path / "backup.db", path).kept is None
    with closing(SQLiteStore(path)) as store:
        assert store.counts(["ada"])[0] == 3


@pytest.mark.parametrize("cut", ["no links", "failed", "killed"])
def test_a_failed_restore_never_leaves_a_mixed_store(path, tmp_path, monkeypatch, cut):
    with closing(SQLiteStore(path)) as store:
        store.append(["ada"] * 3, many(3))
        store.backup(tmp_path / "backup.db")
    killed(path, 3, 10)
    error = KeyboardInterrupt if cut == "killed" else OSError

    def fail(*_):
        raise error("cut off")

    if cut == "no links":
        monkeypatch.setattr(os, "link", fail)
        kept = restore(tmp_path / "backup.db", path).kept
        assert kept.stat().st_mode & 0o777 == 0o600
        with closing(SQLiteStore(kept)) as store:
            assert store.counts(["ada"])[0] == 10
    else:
        monkeypatch.setattr(Path, "replace", lambda self, target, replace=Path.replace: (
            fail() if self.name.endswith(".part") else replace(self, target)
        ))  # fmt: skip
        with pytest.raises(StoreError if cut == "failed" else KeyboardInterrupt, match="cut off"):
            restore(tmp_path / "backup.db", path)
        monkeypatch.undo()
        if cut == "failed":  # as it was
            with closing(SQLiteStore(path)) as store:
                assert store.counts(["ada"])[0] == 10
        else:  # its log was moved away: so it is not taken for whole
            with pytest.raises(StoreDamaged, match="is missing"):
                SQLiteStore(path)
        restore(tmp_path / "backup.db", path)
    with closing(SQLiteStore(path)) as store:
        assert store.counts(["ada"])[0] == 3


def test_a_running_store_is_no_backup(path, tmp_path):
    with closing(SQLiteStore(path)), pytest.raises(StoreInUse, match="another process has it open"):
        restore(path, tmp_path / "other.db")
