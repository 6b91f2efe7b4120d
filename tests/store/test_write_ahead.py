"""A SQLite store and its write-ahead log belong together, also after crashes and copies."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import numpy as np
import pytest

from treeward.core.errors import StoreDamaged, StoreFailed, StoreInUse, StoreVersion
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
    file = path.resolve()
    return file.with_name(file.name + "-wal")


@pytest.mark.parametrize("kind", ["backup", "cold copy"])
def test_a_backup_copied_next_to_another_log_is_refused(path, tmp_path, kind):
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
    assert SQLiteStore(tmp_path / "saved.db").counts(["ada"]) == [3]


def test_a_store_whose_log_is_missing_after_a_crash_is_refused(path, tmp_path):
    killed(path, 0, 5)
    half = tmp_path / "half.db"
    shutil.copy(path, half)  # as somebody does who knows nothing of the log
    with pytest.raises(StoreDamaged, match="was not closed, and its write-ahead log half.db-wal is missing"):
        SQLiteStore(half)
    with closing(SQLiteStore(path)) as store:
        assert store.counts(["ada"])[0] == 5
    shutil.copy(path, tmp_path / "whole.db")
    with closing(SQLiteStore(tmp_path / "whole.db")) as store:
        assert store.counts(["ada"])[0] == 5


def test_deleting_the_log_of_a_running_store_loses_nothing(path):
    store = SQLiteStore(path)
    for i in range(5):
        store.append(["ada"], many(1, start=i))
    log_of(path).unlink()
    with pytest.raises(StoreFailed, match="write-ahead log was removed.*restart to recover"):
        store.append(["ada"], many(1, start=5))
    assert store.status().problem is not None
    store.close()
    with closing(SQLiteStore(path)) as again:
        assert again.read(["ada"])[0]["item"].tolist()[:5] == list(range(5))
    assert check(path).problems == ()


def test_a_probe_detects_a_deleted_log(path):
    store = SQLiteStore(path)
    store.append(["ada"] * 5, many(5))
    log_of(path).unlink()
    store.status(probe=True)
    assert "write-ahead log was removed" in str(store.status().problem)
    store.close()
    with closing(SQLiteStore(path)) as again:
        assert again.counts(["ada"])[0] == 5


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
        assert again.counts(["ada"])[0] == 1


def test_a_store_behind_a_link_is_protected_too(path, tmp_path):
    (tmp_path / "data").mkdir()
    real = tmp_path / "data" / "real.db"
    with closing(SQLiteStore(real)) as store:
        store.append(["ada"] * 3, many(3))
        store.backup(tmp_path / "backup.db")
    path.symlink_to(real)
    killed(path, 3, 10)
    store = SQLiteStore(path)
    assert store.counts(["ada"])[0] == 10
    log_of(real).unlink()
    with pytest.raises(StoreFailed, match="write-ahead log was removed"):
        store.append(["ada"], many(1, start=10))
    store.close()
    restore(tmp_path / "backup.db", path)
    assert path.is_symlink()
    with closing(SQLiteStore(path)) as store:
        assert store.counts(["ada"])[0] == 3


def test_a_log_without_its_file_is_kept(path):
    killed(path, 0, 5)
    path.rename(path.with_name("elsewhere.db"))
    with pytest.raises(StoreDamaged, match="there is a write-ahead log, events.db-wal, but not its file"):
        SQLiteStore(path)
    path.with_name("elsewhere.db").rename(path)
    with closing(SQLiteStore(path)) as store:
        assert store.counts(["ada"])[0] == 5


def test_a_file_moved_while_open_is_complete(path, tmp_path):
    store = SQLiteStore(path)
    store.append(["ada"] * 5, many(5))
    path.rename(tmp_path / "moved.db")
    store.status(probe=True)
    assert store.status().problem is not None
    store.close()
    with closing(SQLiteStore(tmp_path / "moved.db")) as again:
        assert again.counts(["ada"])[0] == 5


def test_a_backup_from_before_tokens_is_not_mixed_with_a_newer_log(path, tmp_path):
    with closing(SQLiteStore(path)) as store:
        store.append(["ada"] * 30, many(30))
    shutil.copy(path, tmp_path / "old.db")
    with closing(sqlite3.connect(tmp_path / "old.db", isolation_level=None)) as file:
        file.execute("DROP TABLE identity")
        file.execute("PRAGMA user_version = 2")
    killed(path, 30, 60)
    shutil.copy(tmp_path / "old.db", path)
    with pytest.raises(StoreDamaged, match="belongs to another file"):
        SQLiteStore(path)
    with pytest.raises(StoreVersion, match="of version 2; this treeward reads only"):
        restore(tmp_path / "old.db", path)


STEPS = """
import sqlite3, os, sys
from treeward.store import journal
left = [int(sys.argv[2])]

def stop():
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), 9)

connect = sqlite3.connect

class Watched(sqlite3.Connection):
    def execute(self, *given):
        stop()
        made = super().execute(*given)
        stop()
        return made

    def close(self):
        stop()
        super().close()
        stop()

journal.sqlite3.connect = lambda *given, **named: connect(*given, **{"factory": Watched, **named})
from treeward.store.sqlite import SQLiteStore
store = SQLiteStore(sys.argv[1])
store.close()
print("done")
"""


def test_killed_at_any_statement_of_opening_it_opens_again(path):
    """From a store that was killed before, as from one that was closed; nothing sound is refused."""
    killed(path, 0, 5)
    before, log = path.read_bytes(), log_of(path).read_bytes()
    for step in range(0, 200, 1 if os.environ.get("TORTURE") else 7):
        path.write_bytes(before)
        log_of(path).write_bytes(log)
        words = [sys.executable, "-c", STEPS, path, str(step)]
        ended = subprocess.run(words, capture_output=True, text=True, check=False)
        with closing(SQLiteStore(path)) as store:
            assert store.counts(["ada"])[0] == 5, step
        if "done" in ended.stdout:
            break
    assert "done" in ended.stdout, ended.stderr


LOOKS = """
import sys
from treeward.core.errors import StoreInUse
from treeward.store import write_ahead
from pathlib import Path
print("ready", flush=True)
while not Path(sys.argv[2]).exists():
    try:
        write_ahead.check(Path(sys.argv[1]))
    except StoreInUse:
        pass
"""


def test_checking_while_others_open_and_close_gives_no_false_alarm(path, tmp_path):
    SQLiteStore(path).close()
    words = [sys.executable, "-c", LOOKS, path, tmp_path / "over"]
    looking = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    looking.stdout.readline()
    opened = 0
    while opened < 60:
        try:
            store = SQLiteStore(path)
        except StoreInUse:  # the other one is looking
            continue
        store.append(["ada"], many(1, start=opened))
        store.close()
        opened += 1
    (tmp_path / "over").touch()
    _, error = looking.communicate()
    assert (looking.returncode, error) == (0, "")
