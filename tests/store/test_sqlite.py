"""`SQLiteStore`: what is acknowledged is on disk, and what is read is what was written."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Event, Thread, current_thread

import numpy as np
import polars as pl
import pytest

import treeward as tw
from tests.waiting import wait_until
from treeward.core.errors import InvalidArgument, StoreDamaged, StoreError, StoreFailed, StoreInUse, StoreVersion
from treeward.data.synthetic import synthetic_catalogue
from treeward.store import journal
from treeward.store.base import everyone, forget, merge, read_all
from treeward.store.check import check, salvage
from treeward.store.events import EVENT, SHOWN, event
from treeward.store.metadata import begin
from treeward.store.numbers import number_items, number_snapshot
from treeward.store.sqlite import SQLiteStore
from treeward.testing import check_store


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.db"


@contextmanager
def opened(path):
    file = sqlite3.connect(path)
    with file:
        yield file
    file.close()


def many(count, start=0):
    return np.concatenate([event(i, 0.5, nonce=i + 1) for i in range(start, start + count)])


def contents(store):
    return {user: events.tobytes() for user, events in read_all(store)}


def test_the_store_keeps_its_contract(path):
    check_store(lambda: SQLiteStore(path))
    with_names = contents(SQLiteStore(path))
    assert {"a\x00b", "", "7", 7, -(2**63), 2**63 - 1} <= set(with_names)


def test_everything_is_there_after_reopening(path):
    store = SQLiteStore(path)
    store.append(["ada"] * 5, many(5))
    store.append([7], event(2, 1.0, nonce=9))
    store.extend(["bob", "nobody", "ada"], np.array([2, 0, 1]), many(3, start=10))
    numbers = number_items(store, pl.Series(["x", "y", "z"]))
    more = number_items(store, pl.Series(["z", "w"]))
    snapshot, secret, begun = number_snapshot(store, "digest"), store.identities.secret, begin(store.metadata)
    merge(store, "bob", "ada")
    epoch = store.identities.epoch
    store.append(["eve"], event(1, 1.0, nonce=5))
    before = contents(store)
    store.close()
    again = SQLiteStore(path)
    assert contents(again) == before
    assert again.read(["ada"])[0]["item"].tolist() == [0, 1, 2, 3, 4, 12, 10, 11]
    assert number_items(again, pl.Series(["x", "y", "z"])).tolist() == numbers.tolist()
    assert number_items(again, pl.Series(["w"])).tolist() == [more[1]]
    assert (number_snapshot(again, "digest"), again.identities.secret) == (snapshot, secret)
    assert begin(again.metadata) == begun + 1
    assert (again.identities.epoch, again.identities.resolve("bob", 0)) == (epoch, "ada")
    assert not again.append(["eve"], event(1, 1.0, nonce=5)).any()
    assert again.append(["new"], event(1, 1.0)).all()
    forget(again, "ada")
    again.close()
    last = SQLiteStore(path)
    assert (last.identities.resolve("bob", 0), last.counts(["ada"])) == (None, [0])
    assert sorted(map(str, everyone(last))) == ["7", "eve", "new"]


def test_a_forgotten_user_leaves_no_trace_in_the_files(path, monkeypatch):
    monkeypatch.setattr("treeward.store.sqlite._ROWS_A_SLICE", 2)
    store = SQLiteStore(path)
    marked = many(40)
    marked["reward"] = 0.123456789
    for i in range(0, 40, 4):
        store.append(["somebody-secret"] * 4 + ["eve"], np.concatenate([marked[i : i + 4], event(1, 1.0)]))
    store.append(["bob"] * 3, many(3, start=90))
    held = marked[0]["reward"].tobytes()

    def bytes_of():
        return b"".join(one.read_bytes() for one in path.parent.iterdir())

    store.append(["visitor-secret"], event(1, 1.0))
    assert merge(store, "visitor-secret", "somebody-secret") == 1
    assert b"somebody-secret" in bytes_of()
    assert held in bytes_of()
    assert forget(store, "somebody-secret") == 41
    assert b"visitor-secret" not in bytes_of()
    assert b"somebody-secret" not in bytes_of()
    assert held not in bytes_of()
    store.close()
    again = SQLiteStore(path)
    assert (again.counts(["bob"])[0], again.counts(["eve"])[0]) == (3, 10)


def test_an_interrupted_erasure_is_finished_when_reopened(path):
    store = SQLiteStore(path)
    store.append(["ada"] * 9, many(9))
    store._purge = lambda: False  # as if killed right after the name was struck out
    forget(store, "ada")
    store.close()
    again = SQLiteStore(path)
    assert list(everyone(again)) == []
    again.close()
    with opened(path) as file:
        assert file.execute("SELECT count(*) FROM events").fetchone() == (0,)
        assert file.execute("SELECT count(*) FROM users").fetchone() == (0,)


class Gate:
    """A write that keeps the writing thread busy from `entered` until `opened`."""

    def __init__(self, store):
        self.entered, self.opened = Event(), Event()
        store._journal.put(lambda _: self.entered.set() or self.opened.wait())
        self.entered.wait()


def test_events_that_are_queued_when_their_user_is_erased_are_wiped(path):
    store, waiting, go_on = SQLiteStore(path), Event(), Event()
    wait = store._journal.wait

    def held(number=None):
        wait(number)
        if current_thread() is flushing:
            waiting.set()
            go_on.wait()

    store.move("somebody", None)  # so that there is a purge to do
    store._journal.wait, flushing = held, Thread(target=store.flush)
    flushing.start()
    waiting.wait()  # everything so far is on disk
    gate = Gate(store)
    store.append(["ada"], event(2, 0.5, nonce=9, kind=SHOWN), within=0.0)
    store.move("ada", None)
    go_on.set()
    wait_until(lambda: store.status().waiting > 3 or not flushing.is_alive(), "the flush has queued its next write")
    gate.opened.set()
    flushing.join()
    store.flush()
    store.close()
    assert check(path).problems == ()
    assert list(everyone(SQLiteStore(path))) == []


def test_erased_users_leave_no_trace_though_another_thread_purges(path):
    store, entered, go_on = SQLiteStore(path), Event(), Event()
    store.append(["ada-secret"], event(1, 1.0, nonce=0x1122334455667788))
    store.move("ada-secret", None)
    put = store._journal.put

    def slow(*given, **named):
        if current_thread() is other:
            entered.set()
            go_on.wait()
        return put(*given, **named)

    store._journal.put, other = slow, Thread(target=store.flush)
    other.start()
    entered.wait()
    acquire = store._purging.acquire

    class Purging:
        def acquire(self, *, blocking):
            if blocking:  # this thread waits for the other
                go_on.set()
            return acquire(blocking=blocking)

        def release(self):
            store_purging.release()

    store_purging, store._purging = store._purging, Purging()
    store.flush()
    left = held_in(path)
    go_on.set()
    other.join()
    assert (0x1122334455667788).to_bytes(8, "little") not in left


def held_in(path):
    """Return all bytes of a store's files."""
    return b"".join(one.read_bytes() for one in path.parent.iterdir())


def test_a_user_without_events_leaves_no_trace(path):
    store = SQLiteStore(path)
    merge(store, "visitor", "ada-secret")
    assert b"ada-secret" in held_in(path)
    forget(store, "ada-secret")
    assert b"ada-secret" not in held_in(path)


def test_a_user_whose_erasure_was_interrupted_leaves_no_trace_after_reopening(path):
    code = f"""
from treeward.store.sqlite import SQLiteStore
from treeward.store.events import event
import os
store = SQLiteStore({str(path)!r})
store.append(["ada-secret"], event(1, 1.0, nonce=0x1122334455667788))
store._journal.wait(store._journal.checkpoint())
store.move("ada-secret", None)
store._journal.wait(store._journal.hurry())
os._exit(9)
"""
    subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parents[2])
    nonce = (0x1122334455667788).to_bytes(8, "little")
    assert nonce in held_in(path)
    store = SQLiteStore(path)
    store.flush()
    assert nonce not in held_in(path)
    assert b"ada-secret" not in held_in(path)


def test_salvage_leaves_out_events_of_unknown_users(path, tmp_path):
    store = SQLiteStore(path)
    store.append(["ada", "bob", "ada"], many(3))
    store.close()
    with opened(path) as file:
        file.execute("DELETE FROM users WHERE name = 'bob'")
    with pytest.raises(StoreDamaged, match="unknown user"):
        SQLiteStore(path)
    saved = salvage(path, tmp_path / "saved.db")
    assert (saved.events, saved.users, saved.problems) == (2, 1, ("1 event(s) of unknown users are left out",))
    assert SQLiteStore(tmp_path / "saved.db").read(["ada"])[0]["item"].tolist() == [0, 2]


def test_delayed_exposures_are_readable_at_once_and_on_disk_soon(path):
    store = SQLiteStore(path)
    commits = store.status().commits
    store.append(["ada"], event(3, 0.2, nonce=4, kind=SHOWN), within=0.05)
    assert store.counts(["ada"])[0] == 1
    assert store.status().waiting == 1
    assert store.status().commits == commits
    wait_until(lambda: not store.status().waiting, "the exposure is on disk")
    assert store.status().commits == commits + 1
    store.append(["ada"], event(3, 0.2, nonce=8, kind=SHOWN), within=60)
    store.append(["ada"], event(3, 1.0, nonce=4))  # takes the one before it along
    assert store.status().waiting == 0
    store.append(["ada"], event(3, 0.2, nonce=9, kind=SHOWN), within=60)
    store.flush()
    assert store.status().waiting == 0


def test_concurrent_callers_share_commits(path):
    store = SQLiteStore(path)
    before, gate = store.status().commits, Barrier(16)

    def give(thread):
        gate.wait()
        for i in range(25):
            assert store.append([f"u{thread}"], event(i, 1.0, nonce=i + 1)).all()

    threads = [Thread(target=give, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.status().commits - before < 300
    store.close()
    assert sum(len(events) for _, events in read_all(SQLiteStore(path))) == 400


def test_duplicate_feedback_from_many_threads_counts_once(path):
    store, gate, ids = SQLiteStore(path), Barrier(8), 10_000
    fresh = np.zeros(8, dtype=np.int64)

    def give(thread):
        gate.wait()
        for first in range(0, ids, 500):
            new = store.append([f"u{i % 50}" for i in range(first, first + 500)], many(500, start=first))
            fresh[thread] += new.sum()

    threads = [Thread(target=give, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fresh.sum() == ids
    before = contents(store)
    store.close()
    again = SQLiteStore(path)
    assert contents(again) == before
    assert sum(map(len, before.values())) == ids * EVENT.itemsize


def test_a_backup_is_a_store(path, tmp_path):
    store = SQLiteStore(path)
    store.append(["ada"] * 5, many(5))
    store.append(["ada"], event(3, 0.2, nonce=99, kind=SHOWN), within=60)
    store.backup(tmp_path / "copy.db")
    store.append(["ada"], event(4, 0.2, nonce=100))
    copy = SQLiteStore(tmp_path / "copy.db")
    assert copy.counts(["ada"])[0] == 6
    assert copy.identities.secret == store.identities.secret
    assert oct((tmp_path / "copy.db").stat().st_mode)[-3:] == "600"
    with pytest.raises(InvalidArgument, match="does not exist yet"):
        store.backup(tmp_path / "copy.db")
    with pytest.raises(StoreError, match="could not be written"):
        store.backup(tmp_path / "no" / "copy.db")
    assert store.append(["ada"], event(5, 0.2, nonce=101)).all()


def test_a_store_is_open_in_one_process_at_a_time(path):
    store = SQLiteStore(path)
    code = f"from treeward.store.sqlite import SQLiteStore; SQLiteStore({str(path)!r})"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "StoreInUse" in told.stderr
    assert "another process has it open" in told.stderr
    with pytest.raises(StoreInUse):
        SQLiteStore(path)
    store.close()
    SQLiteStore(path).close()


def test_files_that_are_not_stores_are_refused(tmp_path):
    with pytest.raises(StoreError, match="no such store"):
        SQLiteStore(tmp_path / "no.db", create=False)
    with pytest.raises(StoreError, match="folder"):
        SQLiteStore(tmp_path)
    with pytest.raises(StoreError, match="cannot be opened"):
        SQLiteStore(tmp_path / "no" / "events.db")
    (tmp_path / "text.db").write_text("hello " * 1000)
    with pytest.raises(StoreDamaged, match="not a database"):
        SQLiteStore(tmp_path / "text.db")
    with opened(tmp_path / "other.db") as file:
        file.execute("CREATE TABLE theirs (x)")
    with pytest.raises(StoreVersion, match="not one of treeward's"):
        SQLiteStore(tmp_path / "other.db")
    with pytest.raises(InvalidArgument, match="UTF-8"):
        SQLiteStore(tmp_path / "new.db").append(["\ud800"], event(1, 1.0))


def test_a_file_of_another_version_is_refused_and_left_as_it_is(path, monkeypatch):
    store = SQLiteStore(path)
    store.append(["ada"] * 3, many(3))
    store.close()
    monkeypatch.setattr(journal, "VERSION", journal.VERSION + 1)
    with pytest.raises(StoreVersion, match=f"of version {journal.VERSION - 1}; this treeward reads only version"):
        SQLiteStore(path)
    monkeypatch.undo()
    assert SQLiteStore(path).counts(["ada"]) == [3]


@pytest.mark.parametrize("column", ["records", "crc", "seq"])
def test_a_changed_row_is_detected(path, column):
    store = SQLiteStore(path)
    for i in range(20):
        store.append(["ada"], many(1, start=i))
    store.close()
    with opened(path) as file:
        if column == "records":
            [[held]] = file.execute("SELECT records FROM events WHERE seq = 7").fetchall()
            file.execute("UPDATE events SET records = ? WHERE seq = 7", (bytes([held[0] ^ 4]) + held[1:],))
        elif column == "seq":
            file.execute("UPDATE events SET seq = 700 WHERE seq = 7")
        else:
            file.execute("UPDATE events SET crc = crc + 1 WHERE seq = 7")
    with pytest.raises(StoreDamaged, match=f"event {700 if column == 'seq' else 7} is not what was written"):
        SQLiteStore(path)


def test_a_truncated_file_yields_a_prefix_or_is_refused(path):
    """Cut at every byte of the last 4 KB: what opens holds the first n commits, whole."""
    store = SQLiteStore(path)
    for i in range(60):
        store.append(["ada", "bob"], many(2, start=2 * i))
    store._journal.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    for i in range(60, 90):
        store.append(["ada", "bob"], many(2, start=2 * i))
    wal = path.with_name(path.name + "-wal")
    whole = path.read_bytes(), wal.read_bytes()
    store._journal.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    flat = path.read_bytes()
    store.close()
    seen = {True: set(), False: set()}
    for on_wal in (True, False):
        data = whole[1] if on_wal else flat
        for cut in [*range(1, 4097, 1 if os.environ.get("TORTURE") else 97), 4095, 4096]:
            path.write_bytes(whole[0] if on_wal else data[:-cut])
            wal.write_bytes(data[:-cut] if on_wal else b"")
            try:
                torn = SQLiteStore(path)
            except StoreDamaged:
                seen[on_wal].add("refused")
                continue
            counts = torn.counts(["ada", "bob"])
            assert counts[0] == counts[1], "a commit is whole"
            assert torn.read(["ada"])[0]["item"].tolist() == list(range(0, 2 * counts[0], 2)), "a prefix"
            assert torn.append(["ada"], event(1, 1.0)).all(), "and it goes on"
            seen[on_wal].add(counts[0])
            torn.close()
    assert seen[True] == {89}, "the last commit's frame is torn, all before it is there"
    assert seen[False] <= {"refused", 90}


WRITER = """
import sys
from treeward.store.events import event
from treeward.store.sqlite import SQLiteStore
store = SQLiteStore(sys.argv[1])
i = store.counts(["ada"])[0]
while True:
    store.append(["ada"], event(i, 0.5, nonce=i + 1))
    print(i, flush=True)
    i += 1
"""


def test_a_killed_store_has_all_acknowledged_events(path):
    acknowledged = -1
    for wait in (0.05, 0.3, 0.11):
        process = subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True)
        first = process.stdout.readline()
        assert int(first) >= acknowledged + 1
        time.sleep(wait)
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read().split()
        acknowledged = int(rest[-1]) if rest else int(first)
        process.wait()
        process.stdout.close()
        store = SQLiteStore(path)
        assert store.read(["ada"])[0]["item"].tolist() == list(range(store.counts(["ada"])[0]))
        assert store.counts(["ada"])[0] in (acknowledged + 1, acknowledged + 2)
        store.close()


def test_after_a_failed_write_no_writes_are_accepted(path):
    store = SQLiteStore(path)
    store.append(["ada"], event(1, 1.0, nonce=1))
    store._journal.put(lambda file: file.execute("INSERT INTO events VALUES (1, x'', 0)"))  # the number is taken
    with pytest.raises(StoreFailed, match="restart to recover"):
        store.append(["ada"], event(2, 1.0, nonce=2))
    for change in (
        lambda: store.append(["ada"], event(1, 1.0, nonce=1)),
        lambda: forget(store, "ada"),
        lambda: merge(store, "ada", "bob"),
        lambda: begin(store.metadata),
        store.flush,
    ):
        with pytest.raises(StoreFailed):
            change()
    assert store.status().problem is not None
    store.close()
    again = SQLiteStore(path)
    assert again.read(["ada"])[0]["item"].tolist() == [1]
    again.close()
    with pytest.raises(StoreFailed, match="closed"):
        again.append(["ada"], event(2, 1.0, nonce=2))


def test_an_explorer_continues_after_reopening(path):
    shop = synthetic_catalogue(500, dim=6, seed=0)
    live = tw.Explorer(shop, store=tw.SQLiteStore(path), seed=0)
    for turn in range(30):
        [made] = live.recommend(["ada"])
        live.feedback({made.id: float(turn % 3 == 0)})
    [late] = live.recommend(["ada"])
    live.publish()  # which the next one does at its start
    before = live.inspect.interests("ada")
    live.close()
    again = tw.Explorer(shop, store=tw.SQLiteStore(path), seed=0)
    assert again.inspect.interests("ada") == before
    assert again.feedback({late.id: 1.0}) == {late.id: "recorded"}
    assert again.feedback({late.id: 1.0}) == {late.id: "duplicate"}


def test_item_ids_of_another_kind_are_refused(path):
    store = SQLiteStore(path)
    number_items(store, pl.Series([1, 2, 3]))
    with pytest.raises(InvalidArgument, match="item ids that are integers, as in the store"):
        number_items(store, pl.Series(["a"]))
    store.close()
    again = SQLiteStore(path)
    assert number_items(again, pl.Series([3, 4])).tolist() == [2, 3]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE users SET name = 'eve' WHERE name = 'ada'",
        "UPDATE metadata SET crc = crc + 1 WHERE key LIKE 'items/%'",
        "UPDATE metadata SET value = x'39' WHERE key = 'epoch'",
        "UPDATE metadata SET value = x'61' WHERE key LIKE 'snapshot/%'",
        "UPDATE metadata SET value = replace(value, 'ada', 'eve') WHERE key LIKE 'identity/%'",
        "UPDATE metadata SET key = 'items/000000000009' WHERE key LIKE 'items/%'",
    ],
)
def test_damage_in_any_table_is_detected(path, change):
    store = SQLiteStore(path)
    number_items(store, pl.Series(["x", "y"]))
    number_snapshot(store, "digest")
    store.append(["ada", "bob"], many(2))
    merge(store, "bob", "ada")
    store.close()
    assert check(path).problems == ()
    with opened(path) as file:
        assert file.execute(change).rowcount > 0
    assert len(check(path).problems) > 0
    with pytest.raises(StoreDamaged, match="is not what was written"):
        SQLiteStore(path)


def test_store_check_and_salvage_see_the_write_ahead_log(path, tmp_path):
    code = f"""
from treeward.store.sqlite import SQLiteStore
from tests.store.test_sqlite import many
import os
store = SQLiteStore({str(path)!r})
for i in range(50):
    store.append(["ada"], many(1, start=i))
os._exit(9)
"""
    subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parents[2])
    assert path.with_name(path.name + "-wal").stat().st_size > 0
    saved = salvage(path, tmp_path / "saved.db")
    assert (saved.events, saved.problems) == (50, ())
    assert SQLiteStore(tmp_path / "saved.db").counts(["ada"]) == [50]
    assert check(path).events == 50
    for wrong in (tmp_path / "no.db", tmp_path):
        with pytest.raises(StoreError):
            salvage(wrong, tmp_path / "new.db")
    (tmp_path / "empty.db").touch()
    with pytest.raises(StoreVersion, match="empty file"):
        check(tmp_path / "empty.db")
    assert (tmp_path / "empty.db").stat().st_size == 0


def test_a_failed_checkpoint_fails_the_store(path, monkeypatch):
    store = SQLiteStore(path)

    class Failing:
        def __init__(self, file):
            self.file = file

        def __getattr__(self, name):
            return getattr(self.file, name)

        def execute(self, statement, *values):
            if "wal_checkpoint" in statement:
                raise sqlite3.OperationalError("disk I/O error")
            return self.file.execute(statement, *values)

    store._journal.connection = Failing(store._journal.connection)
    store.append(["ada"], event(1, 1.0, nonce=1))
    monkeypatch.setattr(journal, "_LOG_BYTES", 0)
    with pytest.raises(StoreFailed, match="disk I/O error"):
        store.append(["ada"], event(1, 1.0, nonce=2))
    assert store.status().problem is not None
    store.close()


def test_the_write_ahead_log_stays_small(path, monkeypatch):
    monkeypatch.setattr(journal, "_LOG_BYTES", 50_000)
    store = SQLiteStore(path)
    for i in range(100):
        store.append(["ada"], event(i, 1.0, nonce=i + 1))
    assert path.with_name(path.name + "-wal").stat().st_size < 100_000
    assert path.stat().st_size > 10_000


def test_nothing_is_added_for_users_of_another_epoch(path):
    store = SQLiteStore(path)
    epoch = store.identities.epoch
    assert store.append(["ada"], event(1, 1.0, nonce=1), epoch=epoch).all()
    forget(store, "bob")
    assert not store.append(["ada"], event(1, 1.0, nonce=2), epoch=epoch).any()
    store.close()
    assert SQLiteStore(path).counts(["ada"])[0] == 1
