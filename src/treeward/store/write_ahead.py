"""Check that a SQLite file and the write-ahead log next to it belong together.

SQLite applies any valid log that has the right name. After a crash, a backup copied over the file would be mixed with
the log of the former file. So every file, and every backup, has a token of its own, and a generation, which grows by
one each time the log is written from its start. The first commit in a log holds both. A log belongs to a file with the
same token whose generation is the log's own, or the one before. A file also records whether it is in use: then there
must be a log.
"""

import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from treeward.core.errors import StoreDamaged, StoreInUse

SCHEMA = "CREATE TABLE identity (token BLOB NOT NULL, in_use INTEGER NOT NULL, generation INTEGER NOT NULL)"
MARK = "UPDATE identity SET generation = generation + 1"
"""The first statement in a log."""
_SIGN = b"treeward identity "
"""The start of every token, by which it is found in a log without reading its pages."""
_HELP = (
    "`treeward store restore` puts a backup in its place, `treeward store salvage` copies what the file holds (that is "
    "everything, if a SQLite tool opened the file and removed the log)"
)
_ATTEMPTS = 5
_PAUSE = 0.2
_AT_ONCE = 1 << 20


class Identity(NamedTuple):
    """The identity that a file, or a file with its log, contains."""

    token: bytes
    in_use: int
    generation: int


def log_of(path: Path) -> Path:
    """Return the path of a file's write-ahead log: next to the file itself, even if the path is a link to it."""
    return _next_to(path, "-wal")


def _next_to(path: Path, suffix: str) -> Path:
    file = path.resolve()
    return file.with_name(file.name + suffix)


def renew(file: sqlite3.Connection) -> None:
    """Give a new file or a copy a token of its own, so that no other file's log belongs to it."""
    file.execute("DELETE FROM identity")
    file.execute("INSERT INTO identity VALUES (?, 0, 0)", (_SIGN + secrets.token_bytes(16),))


def use(file: sqlite3.Connection, used: bool) -> None:
    """Write whether the file is in use; like every write, this goes to the log first."""
    file.execute("UPDATE identity SET in_use = ?", (int(used),))


def close(file: sqlite3.Connection, path: Path) -> None:
    """Close a file that is no longer in use; it can be opened again, whatever goes wrong."""
    log, in_use = log_of(path), True
    there = log.exists()
    with suppress(sqlite3.Error):  # a file that failed may refuse this
        use(file, False)
        file.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # closing does not, if the file was moved
        in_use = False
    with suppress(sqlite3.Error):
        file.close()
    if in_use and there and path.exists() and not log.exists():
        # SQLite removed the log, because the file has everything, but the file still says that it is in use.
        with suppress(OSError):
            log.touch(mode=0o600)


def problem_of(path: Path) -> str | None:
    """Return what is wrong between a file and its log; None if nothing is, or if the file is too damaged to tell.

    Neither of them is changed.
    """
    alone, log = _identity(path, "mode=ro&immutable=1"), log_of(path)  # immutable: SQLite ignores the log
    size = _size(log)
    if size is None:
        missing = f"it was not closed, and its write-ahead log {log.name} is missing, perhaps with the last writes"
        return missing if alone is not None and alone.in_use else None
    if not size:
        return None
    with _without_traces(path):
        together = _identity(path, "mode=ro")
    foreign = f"the write-ahead log {log.name} next to it belongs to another file, one that was here before"
    if alone is None:  # of a version without tokens, or just being created: then the log begins with the first
        begins = together is not None and together.generation <= 1
        return foreign if not begins and _has_token(log) else None
    if together is None:
        return None
    belongs = together.token == alone.token and 0 <= together.generation - alone.generation <= 1
    return None if belongs else foreign


def check(path: Path) -> None:
    """Refuse a file whose write-ahead log is missing or belongs to another one."""
    if not _size(path):
        if _size(log_of(path)):
            rule = "put its file back, or move the log away to start with an empty store"
            raise StoreDamaged(f"{path}: there is a write-ahead log, {log_of(path).name}, but not its file; {rule}")
        return
    problem = problem_of(path)
    for _ in range(_ATTEMPTS):  # another process may be opening or closing it while we read file and log
        if problem is None:
            return
        refuse_if_used(path)
        time.sleep(_PAUSE)
        problem = problem_of(path)
    if problem is not None:
        raise StoreDamaged(f"{path}: {problem}; {_HELP}")


def refuse_if_used(path: Path) -> None:
    """Raise `StoreInUse` if another process has a file open."""
    if not log_of(path).exists():  # an open store has a log, and SQLite would create one to check
        return
    try:
        with _without_traces(path), closing(_opened(path, "mode=ro")) as file:
            file.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    except sqlite3.Error as error:
        if "locked" in str(error):
            raise StoreInUse(f"{path}: another process has it open; one store, one process") from error


def _opened(path: Path, how: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True, timeout=_PAUSE)


def _identity(path: Path, how: str) -> Identity | None:
    try:
        with closing(_opened(path, how)) as file:
            row = file.execute("SELECT token, in_use, generation FROM identity").fetchone()
            return None if row is None else Identity(*row)
    except sqlite3.Error:
        return None  # locked, of an earlier version, or no database: opening it tells which


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _has_token(log: Path) -> bool:
    """Return whether a log was written by a version whose files have tokens."""
    kept = b""
    with suppress(FileNotFoundError), log.open("rb") as file:
        while part := file.read(_AT_ONCE):
            if _SIGN in kept + part:
                return True
            kept = part[-len(_SIGN) :]
    return False


@contextmanager
def _without_traces(path: Path) -> Iterator[None]:
    """Remove the index that SQLite creates to read the log, if there was none before."""
    index = _next_to(path, "-shm")
    there = index.exists()
    try:
        yield
    finally:
        if not there:
            index.unlink(missing_ok=True)
