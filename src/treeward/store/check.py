"""What can be said of a store's file without trusting it."""

import sqlite3
from pathlib import Path
from typing import NamedTuple

import numpy as np

from treeward.core.errors import StoreDamaged, StoreError
from treeward.core.progress import Progress, silent
from treeward.store.events import EVENT, NOTED, REWARD
from treeward.store.journal import connect
from treeward.store.rows import read_blocks

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
            for block in read_blocks(file, progress):
                events = np.frombuffer(block.packed, dtype=EVENT)
                count += len(events)
                seen.update(np.unique(block.user).tolist())
                if len(events):
                    last = f"event {int(block.seq[-1])}, of {names.get(int(block.user[-1]))!r}"
                of = np.isin(events["kind"], (REWARD, NOTED)) & (events["nonce"] != 0)
                pairs = set(zip(block.user[of].tolist(), events["nonce"][of].tolist(), strict=True))
                twice += int(of.sum()) - len(pairs) + len(pairs & rewarded)
                rewarded |= pairs
                if not np.isfinite(events["reward"]).all() or (events["kind"] > NOTED).any():
                    problems.append("there are events that mean nothing")
                if block.damaged is not None:
                    problems.append(f"event {block.damaged} is not what was written")
                    break
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
            for block in read_blocks(source, progress):
                whole = [int(one) for one in block.seq]
                if whole:
                    bounds = (whole[0], whole[-1])
                    held = source.execute("SELECT * FROM events WHERE seq BETWEEN ? AND ? ORDER BY seq", bounds)
                    made.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", held)
                    count, last = count + len(whole), f"event {whole[-1]}"
                    users.update(block.user.tolist())
                if block.damaged is not None:
                    problems.append(f"event {block.damaged} is not what was written; it and all after it are left out")
                    break
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
