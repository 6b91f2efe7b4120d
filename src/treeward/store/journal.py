"""One SQLite file, and the threads that write to it, one at a time: the writes of many callers share a commit."""

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Callable
from math import inf
from pathlib import Path
from threading import Condition, Lock, Thread, get_ident, main_thread
from time import monotonic
from typing import NamedTuple

from treeward.core.errors import StoreDamaged, StoreError, StoreFailed, StoreInUse, StoreVersion
from treeward.store import write_ahead
from treeward.store.sqlite_rows import MOST_BYTES, SCHEMA, add

APPLICATION = 0x74726565
"""The application id in the header of our SQLite files."""
VERSION = 5
"""The version of the schema; a file of another version is refused."""
_STATISTICS = {("table", "sqlite_stat1"), ("table", "sqlite_stat4")}
"""The tables that ANALYZE adds."""
Write = Callable[[sqlite3.Connection], object]
_LOG_BYTES = 4 << 20
"""The size of the write-ahead log, estimated, at which a commit waits until it was moved into the file. From half of it
on, the log is moved as soon as nothing waits to be written."""
_BYTES_PER_COMMIT = 4 << 12
"""An estimate of what a commit adds to the log, besides its events."""


def connect(path: Path, *, create: bool) -> sqlite3.Connection:
    """Open a file for this process alone; refuse what is no store of this version."""
    if not create and not path.exists():
        raise StoreError(f"{path}: there is no such store")
    if not create and path.is_file() and not path.stat().st_size:
        raise StoreVersion(f"{path}: an empty file is no store")
    if path.is_dir():
        raise StoreError(f"{path}: a store is a file, and this is a folder")
    if path.is_symlink() and not path.exists():
        raise StoreError(f"{path}: a link to a file that does not exist; create the store at its target")
    write_ahead.check(path)
    try:
        new = create and not path.exists() and _create(path)
        made = sqlite3.connect(path, timeout=0.2, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{path}: cannot be opened ({error})") from error
    try:
        _prepare(made, path)
    except sqlite3.Error as error:
        problem = _problem(path, error)
        _give_up(made, path, problem, new)
        raise problem from error
    except BaseException as error:
        _give_up(made, path, error, new)
        raise
    return made


def _create(path: Path) -> bool:
    """Create a file that only its owner can read: it will hold the key of decision ids. Return if it is new."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_EXCL, 0o600))
    except FileExistsError:  # another process was faster
        return False
    return True


def _give_up(made: sqlite3.Connection, path: Path, error: BaseException, new: bool) -> None:
    """Close a file that could not be opened. Leave it as it is if another process has it, or if it is no store."""
    if isinstance(error, (StoreInUse, StoreVersion)):
        made.close()
        return
    write_ahead.close(made, path)
    if new:
        remove(path)


def remove(path: Path) -> None:
    """Remove a store's file, and its log."""
    for file in (path, write_ahead.log_of(path)):
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)


def _prepare(made: sqlite3.Connection, path: Path) -> None:
    made.execute("PRAGMA trusted_schema = OFF")  # the file may come from a stranger
    made.execute("PRAGMA locking_mode = EXCLUSIVE")
    made.execute("PRAGMA synchronous = FULL")
    made.execute("PRAGMA secure_delete = ON")
    made.execute("PRAGMA wal_autocheckpoint = 0")  # SQLite would ignore errors there
    [[application]] = made.execute("PRAGMA application_id").fetchall()
    [[version]] = made.execute("PRAGMA user_version").fetchall()
    there = set(made.execute("SELECT type, name FROM sqlite_schema WHERE sql IS NOT NULL")) - _STATISTICS
    if there and application != APPLICATION:
        raise StoreVersion(f"{path}: a database, but not one of treeward's")
    if there and version != VERSION:
        raise StoreVersion(f"{path}: of version {version}; this treeward reads only version {VERSION}")
    virtual = made.execute("SELECT type, name FROM sqlite_schema WHERE sql LIKE 'create virtual%'").fetchall()
    for kind, name in [*virtual, *(there - _schema())][:1]:
        # A trigger, for example, would run with every write, and could keep what must be erased.
        raise StoreVersion(f"{path}: has a {kind} {name!r:.80} that no store of treeward's has")
    [[mode]] = made.execute("PRAGMA journal_mode = WAL").fetchall()
    if mode != "wal":
        raise StoreError(f"{path}: its file system does not support a write-ahead log")
    made.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # so that the next commit is the first of a log
    made.execute("BEGIN EXCLUSIVE")  # the lock stays
    if not there:
        made.execute(f"PRAGMA application_id = {APPLICATION}")
        made.execute(f"PRAGMA user_version = {VERSION}")
        for statement in (*SCHEMA, write_ahead.SCHEMA):
            made.execute(statement)
    if made.execute("SELECT count(*) FROM identity").fetchone() == (0,):
        write_ahead.renew(made)
    made.execute(write_ahead.MARK)
    write_ahead.use(made, False)
    made.execute("COMMIT")


def _schema() -> set[tuple[str, str]]:
    """Return the tables of a store, each as its kind and name."""
    with contextlib.closing(sqlite3.connect(":memory:")) as made:
        for statement in (*SCHEMA, write_ahead.SCHEMA):
            made.execute(statement)
        return set(made.execute("SELECT type, name FROM sqlite_schema"))


def _problem(path: Path, error: sqlite3.Error) -> StoreError:
    text = str(error)
    if "locked" in text:
        return StoreInUse(f"{path}: another process has it open; one store, one process")
    if "malformed" in text or "not a database" in text or "encrypted" in text:
        return StoreDamaged(f"{path}: {text}; `treeward store salvage` saves what can be read")
    return StoreError(f"{path}: {text}")


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what distinguishes a file from another one of the same name; None if there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _may_write() -> bool:
    """Return whether this thread may write what it waits for. Ctrl-C would end a commit of the main thread halfway."""
    return get_ident() != main_thread().ident


class _Entry(NamedTuple):
    number: int
    write: Write | None
    records: bytes
    """Events to add; those of one commit become one row."""
    alone: bool
    """Whether it runs outside the transaction that others share."""
    due: float
    """The latest time to begin with it."""


class Journal:
    """A queue of writes: commits all that are waiting at once, in order, and tells when one is on disk.

    A thread that waits for a write writes itself, unless another thread does at that moment: to hand work over and back
    takes longer than a fast disk. A thread of the journal does the writes without a waiting caller.

    After a failed commit nothing more is written: only opening the file again shows what the disk holds.

    Parameters
    ----------
    path
        The file.
    create
        Create it if it does not exist.
    """

    def __init__(self, path: Path, *, create: bool) -> None:
        self.path, self._logged = path, 0
        self.new = not path.exists()
        """Whether the file was created here."""
        self.connection = connect(path, create=create)
        self._log = write_ahead.log_of(path)
        self._files: tuple[tuple[int, int] | None, ...] = ()
        """The file and its write-ahead log: device and inode."""
        self._marked = True
        """Whether the log has the file's token."""
        self.failed: StoreFailed | None = None
        self.next_seq = 1
        """The number of the next event."""
        self.commits = 0
        """How many transactions were committed."""
        self._queue: list[_Entry] = []
        self._number = self._done = 0
        self.closed = False
        lock = Lock()
        self._changed, self._wanted = Condition(lock), Condition(lock)
        """For those who wait for a write, and for the journal's thread."""
        self._writing = False
        """Whether a thread writes at present."""
        self._wakes = inf
        """When the journal's thread looks at the queue next; -inf: as soon as nobody writes."""
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start the writing thread; until now, the caller may read from the connection."""
        write_ahead.use(self.connection, True)
        self._checkpoint()  # the log is on disk now, so the file may say that there is one
        self._files = self._identities()
        self._thread = Thread(target=self._run, name="treeward-writer", daemon=True)
        self._thread.start()

    def put(
        self, write: Write | None = None, records: bytes = b"", *, alone: bool = False, within: float | None = 0.0
    ) -> int:
        """Queue a write and events, and return the number to wait for.

        The write may be delayed by `within` seconds; None: the same thread waits for it next.
        """
        with self._changed:
            self.refuse()
            self._number += 1
            due = monotonic() + (within or 0.0)
            self._queue.append(_Entry(self._number, write, records, alone, due))
            if alone or (due < self._wakes and (within is not None or not _may_write())):
                self._wanted.notify()
            return self._number

    def wait(self, number: int | None = None) -> None:
        """Return when the write of that number, or everything so far, is on disk; raise `StoreFailed` if it is not."""
        upto = number
        while True:
            with self._changed:
                upto = self._number if upto is None else upto
                if self._done >= upto:
                    return
                if self.failed is not None:
                    self.refuse()
                if self._writing or not self._queue or self._queue[0].alone or not _may_write():
                    self._changed.wait()
                    continue
                batch = self._take()
            self._write(batch)

    def hurry(self) -> int:
        """Begin with all delayed writes now, and return the number of the last."""
        with self._changed:
            self._queue = [entry._replace(due=0.0) for entry in self._queue]
            self._wanted.notify()
            return self._number

    def probe(self) -> None:
        """Fail if the file or its log was removed or replaced: writes would go to a deleted file.

        This is also checked before a write is acknowledged; a probe detects it while nothing is written.
        """
        if self.failed is None and not self.closed and self._identities() != self._files:
            with contextlib.suppress(StoreFailed):
                self.wait(self.put(lambda _: None, alone=True))

    @property
    def waiting(self) -> int:
        """How many writes are not on disk yet."""
        return self._number - self._done

    def backup(self, target: Path) -> None:
        """Write the file, as it is now, to a new one; writes wait meanwhile."""
        part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
        problems: list[Exception] = []

        def copy(file: sqlite3.Connection) -> None:
            try:
                os.close(os.open(part, os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o600))
                made = sqlite3.connect(part, isolation_level=None)
                file.backup(made)
                made.execute("PRAGMA journal_mode = DELETE").fetchall()
                write_ahead.renew(made)
                made.close()
                with part.open("rb") as written:
                    os.fsync(written.fileno())
                part.replace(target)
            except (OSError, sqlite3.Error) as error:  # the copy failed, not the store
                problems.append(error)

        self.wait(self.put(copy, alone=True))
        if problems:
            part.unlink(missing_ok=True)
            raise StoreError(f"{target}: the backup could not be written ({problems[0]})")

    def close(self) -> None:
        """Write what is waiting, and release the file."""
        with self._changed:
            self.closed = True
            self._wanted.notify()
        if self._thread is not None:
            self._thread.join()
        write_ahead.close(self.connection, self.path)

    def refuse(self) -> None:
        """Raise `StoreFailed` if nothing more can be written."""
        if self.failed is not None:
            raise StoreFailed(*self.failed.args)
        if self.closed:
            raise StoreFailed(f"{self.path}: the store is closed")

    def _next(self) -> list[_Entry]:
        """Wait until a write is due, and return those of the next commit; none at the end."""
        with self._changed:
            while self.failed is None:
                now, due = monotonic(), min((entry.due for entry in self._queue), default=inf)
                if not self._writing:
                    if due <= now or (self.closed and self._queue):
                        return self._take()
                    if self.closed:
                        break
                    if self._logged > _LOG_BYTES // 2:  # a calm moment
                        self._writing = True
                        return [_Entry(self._done, lambda _: self._checkpoint(), b"", True, now)]
                self._wakes = -inf if self._writing else due
                self._wanted.wait(None if self._writing or due == inf else due - now)
        return []

    def _take(self) -> list[_Entry]:
        """Return the writes of the next commit, which the caller must write now."""
        count = next((i for i, entry in enumerate(self._queue) if entry.alone), len(self._queue)) or 1
        batch, self._queue = self._queue[:count], self._queue[count:]
        self._writing = True
        return batch

    def _run(self) -> None:
        while batch := self._next():
            self._write(batch)

    def _write(self, batch: list[_Entry]) -> None:
        """Write what was taken from the queue, and tell those who wait."""
        failed: BaseException | None = None
        try:
            self._logged += _BYTES_PER_COMMIT + sum([len(entry.records) for entry in batch])
            self._commit(batch)
            self._still_there()
            if self._logged > _LOG_BYTES:
                self._checkpoint()
        except BaseException as error:
            failed = error
        with self._changed:
            if failed is None:
                self._done = batch[-1].number
                self.commits += 1
            else:
                why = str(failed) if isinstance(failed, StoreFailed) else f"could not be written ({failed})"
                self.failed = StoreFailed(f"{self.path}: {why}; restart to recover")
            self._writing = False
            self._changed.notify_all()
            if self._wakes == -inf or failed is not None or self._logged > _LOG_BYTES // 2:
                self._wanted.notify()
        if failed is not None and not isinstance(failed, Exception):
            raise failed

    def _commit(self, batch: list[_Entry]) -> None:
        if batch[0].alone and batch[0].write is not None:
            batch[0].write(self.connection)
            return
        writes = [entry.write for entry in batch if entry.write is not None]
        # One row for all events: every statement releases the interpreter lock, and getting it back takes time.
        records = b"".join([entry.records for entry in batch])
        if not writes and not records:
            return
        single = self._marked and not writes and len(records) <= MOST_BYTES
        if not single:  # a single statement is a transaction of its own
            self.connection.execute("BEGIN IMMEDIATE")
            if not self._marked:
                self.connection.execute(write_ahead.MARK)
                self._marked = True
            for write in writes:
                write(self.connection)
        if records:
            self.next_seq = add(self.connection, self.next_seq, records)
        if not single:
            self.connection.execute("COMMIT")

    def checkpoint(self) -> int:
        """Move everything from the log into the file, so that the log can be emptied; return the write's number."""
        return self.put(lambda _: self._checkpoint("TRUNCATE"), alone=True)

    def _checkpoint(self, how: str = "PASSIVE") -> None:
        """Move everything from the log into the file; the next commit writes the log from its start."""
        self.connection.execute(f"PRAGMA wal_checkpoint({how})").fetchall()
        self._logged, self._marked = 0, False

    def _identities(self) -> tuple[tuple[int, int] | None, ...]:
        return _identity(self.path), _identity(self._log)

    def _still_there(self) -> None:
        """Raise if the file or its log was removed or replaced; first save what a deleted log holds."""
        file, log = self._identities()
        if (file, log) == self._files:
            return
        if file != self._files[0]:
            raise StoreFailed("the file was moved, removed or replaced")
        write_ahead.use(self.connection, False)
        self._checkpoint()
        raise StoreFailed(f"its write-ahead log was removed; what it held was saved to {self.path.name}")
