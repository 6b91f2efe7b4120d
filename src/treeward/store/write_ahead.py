"""Whether a SQLite file and the write-ahead log next to it belong together.

SQLite applies any sound log that has the right name: after a crash, a backup copied over the file would be mixed with
the log of the file that was there before. So a file has a token, a new one each time it is opened and in every copy,
and its log starts with the same token. A file also knows whether it is in use: then its log must be there.
"""

import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from treeward.core.errors import StoreDamaged

SCHEMA = "CREATE TABLE identity (token BLOB NOT NULL, in_use INTEGER NOT NULL, generation INTEGER NOT NULL)"
MARK = "UPDATE identity SET generation = generation + 1"
"""Puts the token into the log. The number changes because SQLite does not write a page that stays the same."""
_HELP = "`treeward store restore` puts a backup in its place, `treeward store salvage` copies what the file holds"


class Identity(NamedTuple):
    """What a file, or a file with its log, says of itself."""

    token: bytes
    in_use: int


def log_of(path: Path) -> Path:
    """Return where the write-ahead log of a file is."""
    return path.with_name(path.name + "-wal")


def renew(file: sqlite3.Connection) -> None:
    """Give a file a new token, so that no log written before belongs to it; not in use."""
    file.execute("DELETE FROM identity")
    file.execute("INSERT INTO identity VALUES (?, 0, 0)", (secrets.token_bytes(16),))


def use(file: sqlite3.Connection, used: bool) -> None:
    """Write, into the log at first, whether the file is in use."""
    file.execute("UPDATE identity SET in_use = ?, generation = generation + 1", (int(used),))


def problem_of(path: Path) -> str | None:
    """Say what is wrong between a file and its log; None: nothing, or the file is too old or too damaged to tell.

    Neither of them is changed.
    """
    alone = _identity(path, "mode=ro&immutable=1")  # SQLite then ignores the log
    if alone is None:
        return None
    log = log_of(path)
    if not log.exists():
        if not alone.in_use:
            return None
        return f"it was not closed, and its write-ahead log {log.name} is missing, with what was acknowledged last"
    with without_traces(path):
        together = _identity(path, "mode=ro") if log.stat().st_size else alone
    if together is None or together.token == alone.token:
        return None
    return f"the write-ahead log {log.name} next to it belongs to another file, one that was here before"


def check(path: Path) -> None:
    """Refuse a file whose write-ahead log is missing or belongs to another one."""
    problem = problem_of(path)
    if problem is not None:
        raise StoreDamaged(f"{path}: {problem}; {_HELP}")


def _identity(path: Path, how: str) -> Identity | None:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, timeout=0.2)) as file:
            row = file.execute("SELECT token, in_use FROM identity").fetchone()
            return None if row is None else Identity(*row)
    except sqlite3.Error:
        return None  # locked, of an earlier version, or no database: opening it says which


@contextmanager
def without_traces(path: Path) -> Iterator[None]:
    """Remove the index of the log that SQLite makes to read it, if there was none before."""
    index = path.with_name(path.name + "-shm")
    there = index.exists()
    try:
        yield
    finally:
        if not there:
            index.unlink(missing_ok=True)
