"""The journal: any thread may write, one at a time, and nothing that was queued is left behind."""

import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Event, Thread, current_thread

import numpy as np
import pytest

from tests.waiting import wait_until
from treeward.core.errors import StoreFailed
from treeward.store import journal
from treeward.store.base import forget, read_all
from treeward.store.check import check
from treeward.store.events import SHOWN, event
from treeward.store.sqlite import SQLiteStore


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.db"


def in_a_thread(call, *given):
    """Call from another thread than the main one, as a service does; return the result or raise the exception."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call, *given).result()


class Traced:
    """A connection that notes which threads execute what, and fails when told to."""

    def __init__(self, store):
        self.file, self.threads, self.fails = store._journal.connection, [], False
        store._journal.connection = self

    def __getattr__(self, name):
        return getattr(self.file, name)

    def execute(self, statement, *values):
        self.threads.append((statement.split()[0], current_thread().name))
        if self.fails and statement.startswith("INSERT"):
            raise sqlite3.OperationalError("disk I/O error")
        return self.file.execute(statement, *values)


def test_a_thread_writes_what_it_waits_for_and_the_main_thread_does_not(path):
    with closing(SQLiteStore(path)) as store:
        store.append(["ada"], event(1, 1.0, nonce=1))
        traced = Traced(store)
        store.append(["ada"], event(2, 1.0, nonce=2))
        assert {name for _, name in traced.threads} == {"treeward-writer"}
        traced.threads.clear()
        mine = in_a_thread(lambda: store.append(["ada"], event(3, 1.0, nonce=3)).all() and current_thread().name)
        assert traced.threads == [("INSERT", mine)], "one statement, which is a transaction of its own"
        traced.threads.clear()
        assert not in_a_thread(store.append, ["ada"], event(3, 1.0, nonce=3)).any()
        assert traced.threads == [], "a duplicate writes nothing"
    with closing(SQLiteStore(path)) as again:
        assert again.read(["ada"])[0]["item"].tolist() == [1, 2, 3]


def test_more_events_than_a_row_holds_are_one_transaction(path, monkeypatch):
    monkeypatch.setattr("treeward.store.sqlite_rows.MOST_BYTES", 43 * 10)
    monkeypatch.setattr(journal, "MOST_BYTES", 43 * 10)
    many = np.concatenate([event(i, 0.5, nonce=i + 1) for i in range(25)])
    with closing(SQLiteStore(path)) as store:
        in_a_thread(store.append, ["ada"], event(90, 1.0, nonce=90))
        traced = Traced(store)
        in_a_thread(store.append, ["ada"] * 25, many)
        assert [word for word, _ in traced.threads] == ["BEGIN", "INSERT", "INSERT", "INSERT", "COMMIT"]
    with closing(SQLiteStore(path)) as again:
        assert again.read(["ada"])[0]["item"].tolist() == [90, *range(25)]


def test_what_is_delayed_while_a_thread_writes_is_written_in_time(path):
    store, entered, opened = SQLiteStore(path), Event(), Event()
    slow = Thread(target=lambda: store._journal.wait(store._journal.put(gate, within=None)))

    def gate(_):
        entered.set()
        opened.wait()

    slow.start()
    entered.wait()
    store.append(["ada"], event(3, 0.2, nonce=4, kind=SHOWN), within=0.01)
    store.append(["ada"], event(4, 0.2, nonce=5, kind=SHOWN), within=0.02)
    wait_until(lambda: store._journal._wakes < 0, "the journal's thread waits for its turn")
    assert store.status().waiting == 3
    opened.set()
    slow.join()
    wait_until(lambda: not store.status().waiting, "the exposures are on disk")
    store.append(["ada"], event(5, 0.2, nonce=6, kind=SHOWN), within=60.0)
    store.append(["ada"], event(6, 0.2, nonce=7, kind=SHOWN), within=0.01)  # earlier than the one before it
    wait_until(lambda: not store.status().waiting, "both are on disk")
    store.close()


@pytest.mark.parametrize("waiting", ["a thread", "the main thread"])
def test_a_failure_in_one_thread_is_told_to_all(path, waiting):
    store, entered, opened = SQLiteStore(path), Event(), Event()
    store.append(["ada"], event(1, 1.0, nonce=1))

    def fail(_):
        entered.set()
        opened.wait()
        raise sqlite3.OperationalError("disk I/O error")

    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(lambda: store._journal.wait(store._journal.put(fail, within=None)))
        entered.wait()

        def append():
            Thread(target=lambda: wait_until(lambda: store.status().waiting > 1, "queued") and opened.set()).start()
            store.append(["ada"], event(2, 1.0, nonce=2))

        with pytest.raises(StoreFailed, match="disk I/O error"):
            pool.submit(append).result() if waiting == "a thread" else append()
        with pytest.raises(StoreFailed, match="disk I/O error"):
            slow.result()
    assert store.status().problem is not None
    store.close()
    with closing(SQLiteStore(path)) as again:
        assert again.read(["ada"])[0]["item"].tolist() == [1]


def test_after_a_failed_single_statement_no_writes_are_accepted(path):
    store = SQLiteStore(path)
    in_a_thread(store.append, ["ada"], event(1, 1.0, nonce=1))
    traced = Traced(store)
    traced.fails = True
    for nonce in (2, 3):
        with pytest.raises(StoreFailed, match="restart to recover"):
            in_a_thread(store.append, ["ada"], event(2, 1.0, nonce=nonce))
    store.close()
    assert check(path).problems == ()
    with closing(SQLiteStore(path)) as again:
        assert again.read(["ada"])[0]["item"].tolist() == [1]


def test_an_exception_that_ends_a_thread_fails_the_store(path):
    """Nobody must wait for ever for a thread that is gone."""
    store = SQLiteStore(path)

    def leave(_):
        raise SystemExit

    with pytest.raises(SystemExit):
        in_a_thread(lambda: store._journal.wait(store._journal.put(leave, within=None)))
    with pytest.raises(StoreFailed):
        store.append(["ada"], event(1, 1.0))
    store.close()


def test_the_log_is_moved_when_nothing_waits(path, monkeypatch):
    monkeypatch.setattr(journal, "_LOG_BYTES", 400_000)
    store = SQLiteStore(path)
    for i in range(20):  # more than half of the limit, and less than all of it
        in_a_thread(store.append, ["ada"], event(i, 1.0, nonce=i + 1))
    wait_until(lambda: store._journal._logged < 200_000, "the log was moved")
    assert in_a_thread(store.append, ["ada"], event(20, 1.0, nonce=21)).all()
    assert in_a_thread(forget, store, "ada") == 21
    store.close()
    assert check(path).problems == ()


def test_a_store_that_is_closed_while_threads_write_has_all_that_they_were_told(path):
    store, told = SQLiteStore(path), list[int]()

    def give(thread):
        for i in range(10_000):
            nonce = thread * 10_000 + i + 1
            try:
                store.append([f"u{thread}"], event(i, 1.0, nonce=nonce))
            except StoreFailed:
                return
            told.append(nonce)

    threads = [Thread(target=give, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(told) > 200, "some events are on disk")
    store.close()
    for thread in threads:
        thread.join()
    with closing(SQLiteStore(path)) as again:
        assert set(told) <= {nonce for _, events in read_all(again) for nonce in events["nonce"].tolist()}


KILLED = """
import sys
from threading import Thread
from treeward.store.events import event
from treeward.store.sqlite import SQLiteStore
store = SQLiteStore(sys.argv[1])
def write(user):
    for i in range(1_000_000):
        store.append([user], event(i, 0.5, nonce=i + 1))
        print(user, i, flush=True)
for user in ("ada", "bob", "eve"):
    Thread(target=write, args=(user,)).start()
"""


def test_a_store_killed_while_threads_write_has_all_acknowledged_events(path):
    process = subprocess.Popen([sys.executable, "-c", KILLED, path], stdout=subprocess.PIPE, text=True)
    for _ in range(500):
        process.stdout.readline()
    os.kill(process.pid, 9)
    rest = [line.split() for line in process.stdout.read().splitlines()]
    process.wait()
    process.stdout.close()
    with closing(SQLiteStore(path)) as store:
        for user in ("ada", "bob", "eve"):
            items = store.read([user])[0]["item"].tolist()
            assert items == list(range(len(items)))
            last = max((int(line[1]) for line in rest if len(line) == 2 and line[0] == user), default=-1)
            assert len(items) > last
