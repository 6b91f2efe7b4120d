"""Checking a store's file without trusting it, and saving what can be read of a damaged one."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from treeward.core.errors import StoreDamaged, StoreError
from treeward.core.progress import Progress, silent
from treeward.core.types import AnyArray
from treeward.store import write_ahead
from treeward.store.events import AMENDED, NOTED, REWARD
from treeward.store.journal import connect
from treeward.store.numbers import ITEMS, SNAPSHOTS, unpack_ids
from treeward.store.sqlite_rows import RECORD, Row, add, metadata_of, read, unseal

_TABLES = ("metadata", "users")


class Report(NamedTuple):
    """The result of a check."""

    events: int
    """How many can be read, up to the first that is damaged."""
    users: int
    last: str
    """The last of them."""
    problems: tuple[str, ...]
    metadata: Mapping[str, bytes] = MappingProxyType({})


class _Tally:
    """Counts events and problems."""

    def __init__(self, names: dict[int, object], items: int, snapshots: int) -> None:
        self._names, self._items, self._snapshots = names, items, snapshots
        self._seen: set[int] = set()
        self._rewarded: set[tuple[int, int]] = set()
        self.count, self.last, self.twice = 0, "none", 0
        self.problems: list[str] = []

    def add(self, row: Row) -> None:
        held = row.records[row.records["user"] != 0]
        who, events = held["user"], held["event"]
        self.count += len(events)
        self._seen.update(np.unique(who).tolist())
        if len(events):
            user = self._names.get(int(row.records["user"][-1]))
            self.last = f"event {row.seq + len(row.records) - 1}, of {user!r}"
        of = np.isin(events["kind"], (REWARD, NOTED)) & (events["nonce"] != 0)
        pairs = list(zip(who[of].tolist(), events["nonce"][of].tolist(), strict=True))
        self.twice += len(pairs) - len(set(pairs) - self._rewarded)
        self._rewarded.update(pairs)
        if not np.isfinite(events["reward"]).all() or (events["kind"] > AMENDED).any():
            self.problems.append(f"from event {row.seq} on some have no finite reward or no known kind")
        if self._items and ((events["item"] >= self._items) | (events["snapshot"] >= max(1, self._snapshots))).any():
            self.problems.append(f"from event {row.seq} on some are of unknown items or trees")

    def report(self) -> Report:
        problems = list(self.problems)
        if self.twice:
            problems.append(f"{self.twice} decision(s) have more than one reward")
        strangers = self._seen - set(self._names)
        if strangers:
            problems.append(f"there are events of {len(strangers)} unknown user(s)")
        return Report(self.count, len(self._seen), self.last, tuple(problems))


def check(
    path: str | Path, progress: Progress = silent, each: Callable[[AnyArray], None] = lambda events: None
) -> Report:
    """Check every row of a store: checksums, references, decisions that have two rewards, SQLite's own structure.

    `each` is called with the events of every intact row, without those of users who were erased.
    """
    file = connect(Path(path), create=False)
    try:
        problems = [f"SQLite: {row[0]}" for row in file.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
        held = {name: file.execute(f"SELECT * FROM {name}").fetchall() for name in _TABLES}
        metadata = dict[str, bytes]()
        for name, rows in held.items():
            for row in rows:
                try:
                    metadata.update(_checked(path, name, row))
                except StoreDamaged as error:
                    problems.append(str(error))
        items = _items(path, metadata) if not problems else 0
        snapshots = sum(key.startswith(SNAPSHOTS) for key in metadata)
        tally = _Tally({row[0]: row[1] for row in held["users"]}, items, snapshots)
        try:
            for row in read(file, progress):
                if not row.whole:
                    problems.append(f"event {row.seq} is not what was written")
                    break
                tally.add(row)
                each(row.records["event"][row.records["user"] != 0])
        except sqlite3.DatabaseError as error:
            problems.append(f"after {tally.last}: {error}")
        report = tally.report()
        return report._replace(problems=(*problems, *report.problems), metadata=metadata)
    except sqlite3.DatabaseError as error:
        return Report(0, 0, "none", (f"SQLite: {error}",))
    finally:
        file.close()


def _checked(path: object, table: str, row: tuple[Any, ...]) -> dict[str, bytes]:
    """Return a row of metadata, nothing for other tables; raise `StoreDamaged` if it is not what was written."""
    if table == "metadata":
        return dict([metadata_of(path, row)])
    unseal(path, "the name of a user", row)
    return {}


def _items(path: object, metadata: Mapping[str, bytes]) -> int:
    pages = [value for key, value in metadata.items() if key.startswith(ITEMS)]
    return sum(len(unpack_ids(value, f"{path}: the ids of items")) for value in pages)


def copy_at_rest(source: Path, target: Path) -> None:
    """Copy a store that no process has open, file and log, without opening it: not a bit of it changes."""
    if not source.is_file():
        raise StoreError(f"{source}: there is no such store")
    write_ahead.refuse_if_used(source)
    write_ahead.check(source)
    for one, other in ((source, target), (write_ahead.log_of(source), write_ahead.log_of(target))):
        if one.exists():
            copy_private(one, other)


def copy_private(source: Path, target: Path) -> None:
    """Copy a file to a new one that only its owner can read."""
    os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600))
    shutil.copyfile(source, target)


def salvage(path: str | Path, target: str | Path, progress: Progress = silent) -> Report:
    """Copy what can be read of a store to a new one, up to the first event that is not what was written."""
    source, made = Path(path), Path(target)
    if not source.is_file():
        raise StoreError(f"{source}: there is no such store")
    if made.exists():
        raise StoreError(f"{made}: exists already")
    with tempfile.TemporaryDirectory(dir=made.absolute().parent) as folder:  # reading a log changes the files
        problem = write_ahead.problem_of(source)
        shutil.copy(source, Path(folder) / "store")
        if problem is None and write_ahead.log_of(source).exists():
            shutil.copy(write_ahead.log_of(source), Path(folder) / "store-wal")
        part = Path(folder) / "saved"
        report = _rescue(Path(folder) / "store", part, progress)
        part.replace(made)
    return report if problem is None else report._replace(problems=(problem, *report.problems))


def _rescue(source: Path, target: Path, progress: Progress) -> Report:
    file, made = sqlite3.connect(source), connect(target, create=True)
    file.execute("PRAGMA trusted_schema = OFF")
    problems: list[str] = []
    count, users, last, strangers = 0, set[int](), "none", 0
    known = set[int]()
    try:
        made.execute("BEGIN")
        for name in _TABLES:
            try:
                rows = file.execute(f"SELECT * FROM {name}").fetchall()
                for row in rows:
                    _checked("the store", name, row)
            except sqlite3.DatabaseError as error:
                raise StoreDamaged(f"its table of {name} cannot be read ({error}): restore a backup") from error
            known = {0, *(row[0] for row in rows)}  # the last table's: users; 0: an erased event
            if rows:
                made.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        try:
            for row in read(file, progress):
                if not row.whole:
                    problems.append(f"event {row.seq} is not what was written; it and all after it are left out")
                    break
                records, there = row.records.copy(), set(np.unique(row.records["user"]).tolist())
                strange = np.isin(records["user"], list(there - known))
                records[strange] = np.zeros(1, dtype=RECORD)
                add(made, row.seq, records.tobytes())
                strangers += int(strange.sum())
                count, last = count + int((~strange).sum()), f"event {row.seq + len(records) - 1}"
                users |= there & known
        except sqlite3.DatabaseError as error:
            problems.append(f"after {last}: {error}; all after it is left out")
        if strangers:
            problems.append(f"{strangers} event(s) of unknown users are left out")
        made.execute("COMMIT")
        made.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        file.close()
        made.close()
    return Report(count, len(users - {0}), last, tuple(problems))
