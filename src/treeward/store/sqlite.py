"""`SQLiteStore`: events in one SQLite file; what is acknowledged is on disk."""

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock, local

import numpy as np

from treeward.core import checks
from treeward.core.errors import InvalidArgument, StoreDamaged
from treeward.core.progress import Progress, silent
from treeward.core.types import AnyArray
from treeward.store.base import Status
from treeward.store.events import EVENT
from treeward.store.identities import User, check_utf8
from treeward.store.journal import Journal, remove
from treeward.store.memory import Change, MemoryStore
from treeward.store.sqlite_rows import RECORD, erase, metadata_of, put_metadata, read, seal, unseal

_ROWS_A_SLICE = 1_000


class SQLiteStore(MemoryStore):
    """Events in a SQLite file, and in memory for reading: nothing is lost once a call has returned.

    Every call that changes something returns when it is on disk (write-ahead log, ``synchronous=FULL``); calls from
    several threads share commits. A row that was damaged is found when the store is opened, by its checksum. One
    process at a time may have the file open. If the disk fails or is full every further call raises `StoreFailed`;
    opening the store again recovers all that was acknowledged.

    Parameters
    ----------
    path
        The file. SQLite keeps ``-wal`` next to it, which belongs to it.
    create
        Create the file if it does not exist.
    progress
        Called with (stage, done, total) while the file is read.

    Examples
    --------
    >>> import tempfile
    >>> from treeward.store.events import event
    >>> path = Path(tempfile.mkdtemp()) / "events.db"
    >>> store = SQLiteStore(path)
    >>> store.append(["ada"], event(item=3, reward=1.0, nonce=77))
    array([ True])
    >>> store.close()
    >>> SQLiteStore(path).counts(["ada"])
    [1]
    """

    @checks.checked("SQLiteStore")
    def __init__(self, path: str | Path, *, create: bool = True, progress: Progress | None = None) -> None:
        self.path, self._progress = Path(path), progress or silent
        self._journal = Journal(self.path, create=create)
        self._numbers: dict[User, int] = {}
        """In the file users are numbers, so that an erased name is gone from one place."""
        self._next_user = 1
        self._retired: list[int] = []
        """Numbers of users who were erased or merged, whose events the next `flush` wipes."""
        self._erases = False
        """Whether a user was erased: then the write-ahead log must be emptied too."""
        self._purging = Lock()
        self._owing = local()
        """Has `purge`: whether this thread erased or merged a user since its last `flush`."""
        try:
            super().__init__()
        except BaseException:
            self._journal.close()
            raise
        self._purge()

    def __repr__(self) -> str:
        return f"SQLiteStore({str(self.path)!r}, {len(self._logs):,} users)"

    def _refuse(self) -> None:
        self._journal.refuse()

    def _wait(self, number: int) -> None:
        self._journal.wait(number)

    def _check_users(self, call: str, users: Sequence[User]) -> None:
        super()._check_users(call, users)
        unknown = [user for user in users if user not in self._numbers]  # the others were checked before
        if unknown:
            check_utf8(f"SQLiteStore.{call}", unknown)
            for user in unknown:
                if isinstance(user, int) and not -(1 << 63) <= user < 1 << 63:
                    raise InvalidArgument(f"SQLiteStore.{call}", "users", "strings or integers of 64 bits", user)

    def _write(self, change: Change, within: float | None) -> int:
        fresh: list[tuple[object, ...]] = []
        one_each = len(change.users) == len(change.events) and 0 not in change.counts
        owners = [self._numbers.get(user, 0) for user in change.users]
        if 0 in owners or not one_each:
            owners = [self._number(user, fresh) if count else 0
                      for user, count in zip(change.users, change.counts, strict=True)]  # fmt: skip
        records = np.empty(len(change.events), dtype=RECORD)
        records["user"] = owners if one_each else np.repeat(owners, change.counts)
        records["event"] = change.events
        if change.erased is not None:
            self._owing.purge = True
            self._erases |= not change.users  # also if they never had events: the metadata may have had their name
            retired = self._numbers.pop(change.erased, None)
            if retired is not None:
                self._retired.append(retired)
                fresh.append(seal(retired, None, 1))

        def write(file: sqlite3.Connection) -> None:
            file.executemany("INSERT OR REPLACE INTO users VALUES (?, ?, ?, ?)", fresh)
            put_metadata(file, change.metadata, change.removed)

        writes = fresh or change.metadata or change.removed
        return self._journal.put(write if writes else None, records.tobytes(), within=within)

    def _number(self, user: User, fresh: list[tuple[object, ...]]) -> int:
        number = self._numbers.get(user)
        if number is None:
            number = self._numbers[user] = self._next_user
            self._next_user += 1
            fresh.append(seal(number, user, 0))
        return number

    def flush(self) -> None:
        """Return when everything so far is on disk, and erased users are wiped from it."""
        self._journal.refuse()
        # A thread that erased a user waits for another thread's purge; one that recommends does not have to.
        owes = getattr(self._owing, "purge", False)
        if (owes or self._retired or self._erases) and self._purging.acquire(blocking=owes):
            try:
                self._purge()
            finally:
                self._purging.release()
            self._owing.purge = False
        else:
            self._journal.wait(self._journal.hurry())

    def _purge(self) -> None:
        """Wipe the rows of retired users, a slice at a time so that other writes need not wait."""
        with self._lock:
            # Together: the events of these users must be on disk before they are wiped from it.
            last_write = self._journal.hurry()
            retired, self._retired = self._retired, []
            erases, self._erases = self._erases, False
        self._journal.wait(last_write)
        after: int | None = 0 if retired else None
        while after is not None:
            last: list[int | None] = []
            at = after
            self._journal.wait(
                self._journal.put(lambda file, at=at, last=last: last.append(erase(file, retired, at, _ROWS_A_SLICE)))  # type: ignore[misc]
            )
            [after] = last
        if retired:
            numbers = [(number,) for number in retired]
            self._journal.wait(
                self._journal.put(lambda file: file.executemany("DELETE FROM users WHERE number = ?", numbers))
            )
        if erases:
            self._journal.wait(self._journal.checkpoint())

    def status(self, *, probe: bool = False) -> Status:
        """Return the store's condition; with `probe`, fail if the file is no longer where it was."""
        if probe:
            self._journal.probe()
        return Status(len(self._logs), self._journal.failed, self._journal.waiting, self._journal.commits)

    def backup(self, path: str | Path) -> None:
        """Write the store, as it is now, to a new file, which is a store in its own right; writes wait meanwhile."""
        if Path(path).exists():
            raise InvalidArgument("SQLiteStore.backup", "path", "a file that does not exist yet", str(path))
        self.flush()
        self._journal.backup(Path(path))

    def close(self) -> None:
        """Write what is waiting, and release the file."""
        self._journal.close()

    def abandon(self) -> None:
        """Close the store; remove its file if it was created by this object and has no events."""
        self.close()
        if self._journal.new and not self._logs:
            remove(self.path)

    def _load(self) -> Iterator[Change]:
        """Read everything, and then begin to write."""
        file = self._journal.connection
        try:
            yield Change(metadata=dict(metadata_of(self.path, row) for row in file.execute("SELECT * FROM metadata")))
            names: dict[int, User] = {}
            for row in file.execute("SELECT * FROM users"):
                number, name, gone = unseal(self.path, "the name of a user", row)
                self._next_user = max(self._next_user, number + 1)
                if gone:
                    self._retired.append(number)
                else:
                    names[number] = name
            self._numbers = {name: number for number, name in names.items()}
            self._erases = bool(self._retired)  # perhaps a purge was interrupted
            yield self._read_events(file, names)
        except sqlite3.DatabaseError as error:
            raise StoreDamaged(f"{self.path}: {error}; `treeward store salvage` saves what can be read") from error
        self._journal.start()

    def _read_events(self, file: sqlite3.Connection, names: dict[int, User]) -> Change:
        """Read every event, each user's together."""
        parts: list[AnyArray] = []
        for row in read(file, self._progress):
            if not row.whole:
                what = f"event {row.seq} is not what was written"
                raise StoreDamaged(f"{self.path}: {what}; `treeward store salvage` saves what can be read")
            parts.append(row.records)
            self._journal.next_seq = row.seq + len(row.records)
        records = np.frombuffer(b"".join(parts), dtype=RECORD)  # type: ignore[arg-type]
        owner = records["user"]
        order = np.argsort(owner, kind="stable")
        numbers, counts = np.unique(owner, return_counts=True)
        events = np.frombuffer(records["event"][order].tobytes(), dtype=EVENT)
        users, retired = list[User](), set(self._retired)
        mine = np.ones(len(numbers), dtype=np.bool_)
        for i, number in enumerate(numbers.tolist()):
            if number in names:
                users.append(names[number])
            elif number in retired or number == 0:
                mine[i] = False
            else:
                raise StoreDamaged(f"{self.path}: there are events of an unknown user number {number}")
        if not mine.all():
            events, counts = events[np.repeat(mine, counts)], counts[mine]
        return Change(users, counts.tolist(), events)
