"""`SQLiteStore`: events in one SQLite file; what is acknowledged is on disk."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core import checks
from treeward.core.errors import InvalidArgument, StoreDamaged
from treeward.core.progress import Progress, silent
from treeward.core.types import AnyArray
from treeward.store.events import EVENT, Kept
from treeward.store.heads import Head
from treeward.store.journal import Journal, Write
from treeward.store.memory import MemoryStore
from treeward.store.moves import Move, Moves
from treeward.store.rows import (
    ADD_MOVE,
    RECORD,
    SET,
    erase,
    pack_items,
    read,
    read_items,
    seal,
    unseal,
    write_head,
    write_kept,
)
from treeward.store.users import User, check_names

_ROWS_A_SLICE = 1_000
_ADD_USER = "INSERT OR REPLACE INTO users VALUES (?, ?, ?, ?)"


class SQLiteStore(MemoryStore):
    """Events in a SQLite file, and in memory to be read: nothing is lost that a call has returned for.

    Every call that changes something returns when it is on disk (write-ahead log, ``synchronous=FULL``); calls from
    several threads share commits. A row that was damaged is found when the store is opened, by its checksum. One
    process at a time may have the file open. If the disk fails or is full every further call raises `StoreFailed`;
    opening the store again recovers all that was acknowledged.

    Parameters
    ----------
    path
        The file. Beside it, SQLite keeps ``-wal``, which belongs to it.
    create
        Make the file if it is not there.
    kept_bytes
        How much of memory the remembered states of users with long histories may take.
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
    >>> SQLiteStore(path).count("ada")
    1
    """

    def __init__(
        self,
        path: str | Path,
        *,
        create: bool = True,
        kept_bytes: int = 256 << 20,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(kept_bytes=kept_bytes)
        self.path = Path(path)
        self._journal = Journal(self.path, create=checks.flag("SQLiteStore", "create", create))
        self._numbers: dict[User, int] = {}
        self._next_user = 1
        self._retired: list[int] = []
        self._wipes = False
        try:
            retired = self._load(progress or silent)
        except BaseException:
            self._journal.close()
            raise
        self._journal.start()
        self._purge(retired)

    def __repr__(self) -> str:
        return f"SQLiteStore({str(self.path)!r}, {len(self._logs):,} users)"

    @property
    def failed(self) -> Exception | None:
        """What went wrong with the disk, if anything did."""
        return self._journal.failed

    def look(self) -> None:
        """Notice if the file is no longer where it was; then nothing more is taken."""
        self._journal.look()

    @property
    def waiting(self) -> int:
        """How many writes are not on disk yet."""
        return self._journal.waiting

    @property
    def commits(self) -> int:
        """How many transactions were committed since the store was opened."""
        return self._journal.commits

    def append(
        self,
        users: Sequence[User],
        events: AnyArray,
        known: NDArray[np.int64] | None = None,
        *,
        within: float | None = None,
        epoch: int | None = None,
    ) -> NDArray[np.bool_]:
        """Add one event a user, all in one step, and return which were added.

        With `within`, return at once: the events can be read, and are on disk after so many seconds and a commit.
        """
        # Whoever is known was checked before, and this is called for every decision.
        check_names(
            "SQLiteStore.append", [user for user in users if isinstance(user, str) and user not in self._numbers]
        )
        with self._lock:
            self._journal.refuse()
            new = super().append(users, events, known, epoch=epoch)
            if not new.all():
                users = [user for user, fresh in zip(users, new.tolist(), strict=True) if fresh]
                events = events[new]
            number = self._journal.put(*self._adding(users, events), within=within or 0.0)
        if within is None:
            # Also if nothing is new: what is here already may still be on its way to the disk.
            self._journal.wait(number)
        return new

    def extend(
        self, users: Sequence[User], counts: NDArray[np.int64], events: AnyArray, after: Sequence[int] | None = None
    ) -> None:
        """Add many events: the first counts[0] are for the first user, and so on; all of them, or none."""
        check_names("SQLiteStore.extend", users)
        with self._lock:
            self._journal.refuse()
            super().extend(users, counts, events, after)
            owners = [user for user, count in zip(users, counts.tolist(), strict=True) if count]
            many = [count for count in counts.tolist() if count]
            number = self._journal.put(*self._adding(owners, events, many))
        self._journal.wait(number)

    def forget(self, user: User, *, wait: bool = True) -> int:
        """Remove all there is of a user, from the disk too, and return how many events that were."""
        with self._lock:
            self._journal.refuse()
            known = user in self._numbers
            gone = super().forget(user)
            self._journal.put(self._moving(user))
            self._wipes |= known
        if wait:
            self.flush()
        return gone

    def merge(self, source: User, target: User, *, wait: bool = True) -> int:
        """Put one user's events behind another's and return how many."""
        check_names("SQLiteStore.merge", [source, target])
        with self._lock:
            self._journal.refuse()
            events = self.read(source)
            moved = super().merge(source, target)
            name, records = self._adding([target] if len(events) else [], events, [len(events)] if len(events) else [])
            move = self._moving(source)
            self._journal.put(lambda file: (name and name(file), move(file)), records)
        if wait:
            self.flush()
        return moved

    def number_items(self, ids: pl.Series) -> NDArray[np.int32]:
        """Return the numbers that events have for items, giving new ones to items not seen before."""
        with self._lock:
            self._journal.refuse()
            before = len(self._items)
            numbers = super().number_items(ids)
            fresh = ids.filter(pl.Series(numbers >= before))
            if len(fresh) == 0:
                return numbers
            row = pack_items(before, fresh)
            number = self._journal.put(lambda file: file.execute("INSERT INTO items VALUES (?, ?, ?)", row))
        self._journal.wait(number)
        return numbers

    def number_snapshot(self, digest: str) -> int:
        """Return the number that events have for a tree, giving a new one to a tree not seen before."""
        with self._lock:
            self._journal.refuse()
            before = len(self._snapshots)
            number = super().number_snapshot(digest)
            if number < before:
                return number
            written = self._journal.put(
                lambda file: file.execute("INSERT INTO snapshots VALUES (?, ?, ?)", seal(number, digest))
            )
        self._journal.wait(written)
        return number

    def adopt(self, head: Head) -> None:
        """Take over another store's head, to hold its events."""
        with self._lock:
            self._journal.refuse()
            super().adopt(head)
            mine = self.head()
            number = self._journal.put(lambda file: write_head(file, mine))
        self._journal.wait(number)

    def take_note(self, name: str, content: bytes, *, new: bool = False) -> bool:
        """Keep something under a name; on disk when this returns."""
        with self._lock:
            self._journal.refuse()
            if not super().take_note(name, content, new=new):
                return False
            number = self._journal.put(lambda file: file.execute(SET, seal(f"note/{name}", content)))
        self._journal.wait(number)
        return True

    def begin(self) -> int:
        """Return how many times this was called before, ever."""
        with self._lock:
            self._journal.refuse()
            begun = super().begin()
            number = self._journal.put(lambda file: file.execute(SET, seal("begun", begun + 1)))
        self._journal.wait(number)
        return begun

    def flush(self) -> None:
        """Return when everything so far is on disk, and what was forgotten is wiped from it."""
        with self._lock:
            self._journal.refuse()
            retired, self._retired = self._retired, []
            wipes, self._wipes = self._wipes, False
        self._journal.wait(self._journal.hurry())
        self._purge(retired)
        if wipes:
            self._journal.wait(self._journal.checkpoint())

    def backup(self, path: str | Path) -> None:
        """Write the store, as it is now, to a new file, which is a store in its own right; writes wait meanwhile."""
        if Path(path).exists():
            raise InvalidArgument("SQLiteStore.backup", "path", "a file that does not exist yet", str(path))
        self.flush()
        self._journal.backup(Path(path))

    def close(self) -> None:
        """Write down remembered states, and let go of the file."""
        with self._lock:
            kept = [(self._numbers[user], *kept) for user, kept in self._kept.items() if user in self._numbers]
            if self.failed is None and not self._journal.closed:
                self._journal.put(lambda file: write_kept(file, kept))
        self._journal.close()

    def _number(self, user: User, fresh: list[tuple[int, User]]) -> int:
        number = self._numbers.get(user)
        if number is None:
            number = self._numbers[user] = self._next_user
            self._next_user += 1
            fresh.append((number, user))
        return number

    def _adding(
        self, users: Sequence[User], events: AnyArray, counts: list[int] | None = None
    ) -> tuple[Write | None, bytes]:
        """Return what writes the names of new users, and the records of events: one a user, or as `counts` says."""
        fresh: list[tuple[int, User]] = []
        owners = [self._number(user, fresh) for user in users]
        records = np.empty(len(events), dtype=RECORD)
        records["user"] = owners if counts is None else np.repeat(owners, counts)
        records["event"] = events
        rows = [seal(number, name, 0) for number, name in fresh]
        return (lambda file: file.executemany(_ADD_USER, rows)) if rows else None, records.tobytes()

    def _moving(self, user: User) -> Write:
        """Return what writes that somebody is gone, with their name; `flush` wipes their events."""
        retired = self._numbers.pop(user, None)
        moves = [seal(name, *move) for name, move in self._moves.latest]
        epoch = self._moves.epoch
        self._retired += [] if retired is None else [retired]

        def write(file: sqlite3.Connection) -> None:
            file.executemany(ADD_MOVE, moves)
            file.execute(SET, seal("epoch", epoch))
            if retired is not None:
                file.execute(_ADD_USER, seal(retired, None, 1))
                file.execute("DELETE FROM kept WHERE user = ?", (retired,))

        return write

    def _purge(self, retired: list[int]) -> None:
        """Wipe the rows of users who are gone, a slice at a time so that others are not kept waiting."""
        if not retired:
            return
        after: int | None = 0
        while after is not None:
            last: list[int | None] = []
            at = after
            self._journal.wait(
                self._journal.put(lambda file, at=at, last=last: last.append(erase(file, retired, at, _ROWS_A_SLICE)))  # type: ignore[misc]
            )
            [after] = last
        numbers = [(number,) for number in retired]
        self._journal.wait(
            self._journal.put(lambda file: file.executemany("DELETE FROM users WHERE number = ?", numbers))
        )

    def _load(self, progress: Progress) -> list[int]:
        """Read everything; return the numbers of users who are gone but whose rows may be there."""
        file = self._journal.connection
        try:
            return self._read(file, progress)
        except sqlite3.DatabaseError as error:
            raise StoreDamaged(f"{self.path}: {error}; `treeward store salvage` saves what can be read") from error

    def _read(self, file: sqlite3.Connection, progress: Progress) -> list[int]:
        meta = dict(unseal(self.path, "its head", row) for row in file.execute("SELECT * FROM meta"))
        if "secret" not in meta:
            meta["secret"] = self._moves.secret
            file.execute(SET, seal("secret", meta["secret"]))
        self._moves = Moves(meta["secret"])
        self._moves.epoch, self._begun = meta.get("epoch", 0), meta.get("begun", 0)
        self._unfinished = bool(meta.get("unfinished", 0))
        self._notes = {name[5:]: value for name, value in meta.items() if name.startswith("note/")}
        for row in file.execute("SELECT * FROM moves ORDER BY sealed, at"):
            sealed, at, target, since = unseal(self.path, "a merge or an erasure", row)
            self._moves.load(sealed, Move(at, target, since))
        for row in file.execute("SELECT * FROM snapshots ORDER BY number"):
            self._snapshots.append(unseal(self.path, "the name of a tree", row)[1])
        parts = [read_items(self.path, *row) for row in file.execute("SELECT * FROM items ORDER BY first")]
        if parts:
            self._items.load(pl.concat(parts))
        names: dict[int, User] = {}
        retired = []
        for row in file.execute("SELECT * FROM users"):
            number, name, gone = unseal(self.path, "the name of a user", row)
            self._next_user = max(self._next_user, number + 1)
            if gone:
                retired.append(number)
            else:
                names[number] = name
        self._numbers = {name: number for number, name in names.items()}
        self._fill(file, names, set(retired), progress)
        for number, *kept in file.execute("SELECT * FROM kept"):
            if number in names:
                self.keep(names[number], Kept(*kept))
        return retired

    def _fill(self, file: sqlite3.Connection, names: dict[int, User], retired: set[int], progress: Progress) -> None:
        """Read every event, and hand each user theirs."""
        parts = [np.zeros(0, dtype=RECORD)]
        for row in read(file, progress):
            if not row.whole:
                what = f"event {row.seq} is not what was written"
                raise StoreDamaged(f"{self.path}: {what}; `treeward store salvage` saves what can be read")
            parts.append(row.records)
            self._journal.next_seq = row.seq + len(row.records)
        records = np.frombuffer(b"".join([part.tobytes() for part in parts]), dtype=RECORD)
        owner, events = records["user"], records["event"]
        order = np.argsort(owner, kind="stable")
        numbers, counts = np.unique(owner, return_counts=True)
        events = np.frombuffer(events[order].tobytes(), dtype=EVENT)
        users: list[User] = []
        mine = np.ones(len(numbers), dtype=np.bool_)
        for i, number in enumerate(numbers.tolist()):
            if number in names:
                users.append(names[number])
            elif number in retired or number == 0:
                mine[i] = False
            else:
                raise StoreDamaged(f"{self.path}: there are events of a user {number} of whom nothing else is known")
        if not mine.all():
            events, counts = events[np.repeat(mine, counts)], counts[mine]
        super().extend(users, counts, events)
