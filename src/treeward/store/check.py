"""What can be said of a store's file without trusting it."""

import sqlite3
from pathlib import Path
from typing import NamedTuple

import numpy as np

from treeward.core.errors import StoreDamaged, StoreError
from treeward.core.progress import Progress, silent
from treeward.store.events import NOTED, REWARD
from treeward.store.journal import connect
from treeward.store.rows import add, read

_TABLES = ("meta", "users", "moves", "items", "snapshots")


class Report(NamedTuple):
    """What was found."""

    events: int
    """How many are whole, from the first on."""
    users: int
    last: str
    """Which is the last of them."""
    problems: tuple[str, ...]


def check(path: str | Path, progress: Progress = silent) -> Report:
    """Look at every row of a store: checksums, references, decisions that have two rewards, SQLite's own structure."""
    file = connect(Path(path), create=False)
    problems: list[str] = []
    try:
        try:
            problems += [f"SQLite: {row[0]}" for row in file.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
            names = dict(file.execute("SELECT number, name FROM users"))
        except sqlite3.DatabaseError as error:
            return Report(0, 0, "none", (f"SQLite: {error}",))
        seen: set[int] = set()
        count, last, twice = 0, "none", 0
        rewarded: set[tuple[int, int]] = set()
        try:
            for row in read(file, progress):
                if not row.whole:
                    problems.append(f"event {row.seq} is not what was written")
                    break
                held = row.records[row.records["user"] != 0]
                who, events = held["user"], held["event"]
                count += len(events)
                seen.update(np.unique(who).tolist())
                if len(events):
                    last = f"event {row.seq + len(row.records) - 1}, of {names.get(int(row.records['user'][-1]))!r}"
                of = np.isin(events["kind"], (REWARD, NOTED)) & (events["nonce"] != 0)
                pairs = list(zip(who[of].tolist(), events["nonce"][of].tolist(), strict=True))
                twice += len(pairs) - len(set(pairs) - rewarded)
                rewarded.update(pairs)
                if not np.isfinite(events["reward"]).all() or (events["kind"] > NOTED).any():
                    problems.append(f"from event {row.seq} on there are some that mean nothing")
        except sqlite3.DatabaseError as error:
            problems.append(f"after {last}: {error}")
        if twice:
            problems.append(f"{twice} decision(s) have more than one reward")
        strangers = seen - set(names)
        if strangers:
            problems.append(f"there are events of {len(strangers)} user(s) of whom nothing else is known")
        return Report(count, len(seen), last, tuple(problems))
    finally:
        file.close()


def salvage(path: str | Path, target: str | Path, progress: Progress = silent) -> Report:
    """Copy what can be read of a store to a new one, up to the first event that is not what was written."""
    if Path(target).exists():
        raise StoreError(f"{target}: exists already")
    source = sqlite3.connect(f"file:{Path(path).absolute()}?mode=ro&immutable=1", uri=True)
    made = connect(Path(target), create=True)
    problems: list[str] = []
    count, users, last = 0, set[int](), "none"
    try:
        made.execute("BEGIN")
        for name in _TABLES:
            try:
                rows = source.execute(f"SELECT * FROM {name}").fetchall()
            except sqlite3.DatabaseError as error:
                raise StoreDamaged(f"{path}: its table of {name} cannot be read ({error}): restore a backup") from error
            if rows:
                marks = ", ".join("?" * len(rows[0]))
                made.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
        try:
            for row in read(source, progress):
                if not row.whole:
                    problems.append(f"event {row.seq} is not what was written; it and all after it are left out")
                    break
                add(made, row.seq, row.records.tobytes())
                count, last = count + len(row.records), f"event {row.seq + len(row.records) - 1}"
                users.update(np.unique(row.records["user"]).tolist())
        except sqlite3.DatabaseError as error:
            problems.append(f"after {last}: {error}; all after it is left out")
        made.execute("COMMIT")
    except BaseException:
        made.close()
        Path(target).unlink(missing_ok=True)
        raise
    finally:
        source.close()
        made.close()
    return Report(count, len(users), last, tuple(problems))
