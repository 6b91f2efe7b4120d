"""A SQLite store and its write-ahead log belong together; backups are restored without mixing the two."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.commands import run as cli
from treeward.core.errors import InvalidArgument, StoreDamaged, StoreError, StoreFailed, StoreInUse
from treeward.store.check import check, salvage
from treeward.store.events import event
from treeward.store.restore import restore
from treeward.store.sqlite import SQLiteStore


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.db"


def many(count, start=0):
    return np.concatenate([event(i, 0.5, nonce=i + 1) for i in range(start, start + count)])


KILLED = """
import os, sys
from treeward.store.events import event
from treeward.store.sqlite import SQLiteStore
store = SQLiteStore(sys.argv[1])
for i in range(int(sys.argv[2]), int(sys.argv[3])):
    store.append(["ada"], event(i, 0.5, nonce=i + 1))
os.kill(os.getpid(), 9)
"""


def killed(path, first, last):
    """Write events to a store, and leave it as kill -9 does: with a write-ahead log."""
    subprocess.run([sys.executable, "-c", KILLED, path, str(first), str(last)], check=False)
    assert log_of(path).stat().st_size


def log_of(path):
    return path.with_name(path.name + "-wal")


@pytest.mark.parametrize("kind", ["backup", "cold copy"])
def test_a_backup_copied_next_to_an_old_log_is_refused_not_mixed(path, tmp_path, kind):
    store = SQLiteStore(path)
    store.append(["ada"] * 3, many(3))
    backup = tmp_path / "backup.db"
    if kind == "backup":
        store.backup(backup)
    store.close()
    if kind == "cold copy":
        shutil.copy(path, backup)
    killed(path, 3, 10)
    shutil.copy(backup, path)
    before = path.read_bytes(), log_of(path).read_bytes()
    for look in (SQLiteStore, check):
        with pytest.raises(StoreDamaged, match="write-ahead log events.db-wal next to it belongs to another file"):
            look(path)
    assert (path.read_bytes(), log_of(path).read_bytes()) == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["backup.db", "events.db", "events.db-wal"]
    told = salvage(path, tmp_path / "saved.db")
    assert "belongs to another file" in told.problems[0]
    assert SQLiteStore(tmp_path / "saved.db").count("ada") == 3


def test_a_store_whose_log_is_missing_after_a_crash_is_refused(path, tmp_path):
    killed(path, 0, 5)
    half = tmp_path / "half.db"
    shutil.copy(path, half)  # as somebody does who knows nothing of the log
    with pytest.raises(StoreDamaged, match="was not closed, and its write-ahead log half.db-wal is missing"):
        SQLiteStore(half)
    with closing(SQLiteStore(path)) as store:
        assert store.count("ada") == 5
    shutil.copy(path, tmp_path / "whole.db")
    with closing(SQLiteStore(tmp_path / "whole.db")) as store:
        assert store.count("ada") == 5


def test_nothing_is_lost_when_the_log_is_deleted_under_a_running_store(path):
    store = SQLiteStore(path)
    for i in range(5):
        store.append(["ada"], many(1, start=i))
    log_of(path).unlink()
    with pytest.raises(StoreFailed, match="write-ahead log was removed.*restart to recover"):
        store.append(["ada"], many(1, start=5))
    assert store.failed is not None
    store.close()
    with closing(SQLiteStore(path)) as again:
        assert again.read("ada")["item"].tolist()[:5] == list(range(5))
    assert check(path).problems == ()


def test_a_deleted_log_is_noticed_when_nothing_is_written(path):
    store = SQLiteStore(path)
    store.append(["ada"] * 5, many(5))
    log_of(path).unlink()
    store.look()
    assert "write-ahead log was removed" in str(store.failed)
    store.close()
    with closing(SQLiteStore(path)) as again:
        assert again.count("ada") == 5


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_nothing_is_acknowledged_once_the_file_is_gone(path, tmp_path, how):
    store = SQLiteStore(path)
    store.append(["ada"], many(1))
    store.backup(tmp_path / "other.db")
    path.unlink()
    if how == "replaced":
        shutil.copy(tmp_path / "other.db", path)
    with pytest.raises(StoreFailed, match="the file was moved, removed or replaced; restart to recover"):
        store.append(["ada"], many(1, start=1))
    store.close()


def test_a_store_that_failed_opens_again(path):
    """Whether or not SQLite could empty the log when it was closed."""
    store = SQLiteStore(path)
    store.append(["ada"], many(1))
    store._journal.put(lambda file: file.execute("INSERT INTO events VALUES (1, x'', 0)"))  # the number is taken
    with pytest.raises(StoreFailed):
        store.append(["ada"], many(1, start=1))
    store.close()
    with closing(SQLiteStore(path)) as again:
        assert again.count("ada") == 1


def test_a_backup_is_restored_and_the_former_store_kept(path, tmp_path):
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
            assert store.count("ada") == count
    assert not list(tmp_path.glob(".*"))


def test_restoring_refuses_what_would_lose_something(path, tmp_path):
    backup = tmp_path / "backup.db"
    with closing(SQLiteStore(path)) as store:
        store.append(["ada"] * 3, many(3))
        store.backup(backup)
        with pytest.raises(StoreInUse, match="a service has it open"):
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
        assert store.count("ada") == 4
    assert sorted(one.name for one in tmp_path.iterdir()) == ["backup.db", "events.db"]


def test_restoring_where_no_store_is(path, tmp_path):
    with closing(SQLiteStore(tmp_path / "other.db")) as store:
        store.append(["ada"] * 3, many(3))
        store.backup(tmp_path / "backup.db")
    log_of(path).write_bytes(b"of a store that was deleted")
    assert restore(tmp_path / "backup.db", path).kept is None
    with closing(SQLiteStore(path)) as store:
        assert store.count("ada") == 3


@pytest.mark.parametrize("cut", ["link", "replace"])
def test_a_restore_that_is_cut_off_leaves_nothing_that_is_served_half(path, tmp_path, monkeypatch, cut):
    with closing(SQLiteStore(path)) as store:
        store.append(["ada"] * 3, many(3))
        store.backup(tmp_path / "backup.db")
    killed(path, 3, 10)

    def fail(*_):
        raise OSError("cut off")

    if cut == "link":
        monkeypatch.setattr(os, "link", fail)
    else:
        monkeypatch.setattr(Path, "replace", lambda self, target, replace=Path.replace: (
            fail() if self.name.endswith(".part") else replace(self, target)
        ))  # fmt: skip
    with pytest.raises(StoreError, match="cut off"):
        restore(tmp_path / "backup.db", path)
    monkeypatch.undo()
    with pytest.raises(StoreDamaged, match="is missing"):  # its log was moved away: so it is not taken for whole
        SQLiteStore(path)
    restore(tmp_path / "backup.db", path)
    with closing(SQLiteStore(path)) as store:
        assert store.count("ada") == 3
