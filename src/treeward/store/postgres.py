"""`PostgresStore`: events in PostgreSQL, for any number of processes at once. Needs the extra `postgres`."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from threading import RLock

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core import checks
from treeward.core.errors import InvalidArgument, StoreError
from treeward.core.types import AnyArray
from treeward.store import tables
from treeward.store.database import Connection, Database
from treeward.store.events import EVENT, SHOWN, Kept
from treeward.store.heads import Head
from treeward.store.moves import Move, Moves
from treeward.store.users import User, spelled, spelled_names, user_of

_AT_ONCE, _LONGEST_NAME = 500, 2_600
"""So many users' events are read at a time; longer names, in bytes, do not fit into an index."""


class PostgresStore:
    """Events in PostgreSQL. Nothing of it is held here but who became whom: every process sees what all have written.

    What was acknowledged is committed there. Exposures that may be safe later are committed without waiting for the
    disk, and are on it within three times the server's `wal_writer_delay` (0.6 s by default).

    Parameters
    ----------
    url
        Where, as ``postgresql://user@host/database``.
    create
        Make the tables if they are not there.
    connections
        At most so many at a time.
    timeout
        Seconds to wait for a connection before a call is refused.
    """

    remote = True

    def __init__(self, url: str, *, create: bool = True, connections: int = 8, timeout: float = 5.0) -> None:
        owner = "PostgresStore"
        most = checks.integer(owner, "connections", connections, low=1)
        self._lock, self._items = RLock(), tables.Items()
        self._base = Database(url, most, checks.number(owner, "timeout", timeout, above=0))
        try:
            secret, self._unfinished = self._base.do(lambda db: tables.prepare(db, str(self._base), create=create))
            self._moves = Moves(secret)
            self._moves.epoch = -1
            self._follow(0)
        except BaseException:
            self._base.close()
            raise

    def __repr__(self) -> str:
        return f"PostgresStore({self._base})"

    @property
    def failed(self) -> Exception | None:
        """Why the last call did not reach the database, if it did not."""
        return self._base.problem

    @property
    def unfinished(self) -> bool:
        """Whether it is a copy that lacks events."""
        return self._unfinished

    def look(self) -> None:
        """Find out whether the database is there."""
        self._base.look()

    # --- events ------------------------------------------------------------------------------------------------------

    def append(
        self,
        users: Sequence[User],
        events: AnyArray,
        known: NDArray[np.int64] | None = None,
        *,
        within: float | None = None,
        epoch: int | None = None,
    ) -> NDArray[np.bool_]:
        """Add one event a user, all in one step, and return which were added."""
        if len(users) != len(events) or events.dtype != EVENT:
            raise InvalidArgument("PostgresStore.append", "events", f"{len(users)} of dtype EVENT", events.dtype)
        if not len(users):
            return np.zeros(0, dtype=np.bool_)
        names = spelled_names("PostgresStore.append", users, _LONGEST_NAME)
        order = sorted(range(len(names)), key=names.__getitem__)
        kinds, nonces = events["kind"].tolist(), events["nonce"].tolist()
        packed, size = events.tobytes(), EVENT.itemsize
        given = (
            [names[i] for i in order], [kinds[i] for i in order], [nonces[i] for i in order],
            [packed[i * size : (i + 1) * size] for i in order],
            None if known is None else [int(known[i]) for i in order], epoch, within is not None,
        )  # fmt: skip

        [(found, now)] = self._base.rows(
            "SELECT * FROM treeward.append(%b::bytea[], %b::smallint[], %b::bigint[], %b::bytea[], %b::integer[], "
            "%b::bigint, %b)", given,
        )  # fmt: skip
        self._follow(now)
        added = np.zeros(len(users), dtype=np.bool_)
        added[order] = found
        return added

    def extend(
        self, users: Sequence[User], counts: NDArray[np.int64], events: AnyArray, after: Sequence[int] | None = None
    ) -> None:
        """Add many events: the first counts[0] are for the first user, and so on; all of them, or none."""
        if len(users) != len(counts) or int(np.sum(counts)) != len(events) or events.dtype != EVENT:
            raise InvalidArgument("PostgresStore.extend", "counts", f"{len(users)} that sum to {len(events)}", counts)
        names = spelled_names("PostgresStore.extend", users, _LONGEST_NAME)
        added: dict[bytes, int] = {}
        for name, count in zip(names, counts.tolist(), strict=True):
            if count:
                added[name] = added.get(name, 0) + count
        packed, size = events.tobytes(), EVENT.itemsize
        kinds, nonces = events["kind"].tolist(), events["nonce"].tolist()
        expected = None if after is None else dict(zip(names, after, strict=True))

        def write(db: Connection) -> None:
            with db.transaction():
                # As `append` does it: the epoch first, then users in the order of their names.
                db.execute("SELECT number FROM treeward.meta WHERE name = 'epoch' FOR SHARE")
                found = db.execute(
                    "INSERT INTO treeward.users (name) SELECT unnest(%s::bytea[]) ON CONFLICT (name) "
                    "DO UPDATE SET events = users.events RETURNING name, id, events",
                    (sorted(added),),
                ).fetchall()
                if expected is not None and any(have != expected[name] for name, _, have in found):
                    raise StoreError(f"{self}: somebody else adds events meanwhile")
                last = {name: [id, have] for name, id, have in found}
                at = 0
                with db.cursor().copy("COPY treeward.events FROM STDIN (FORMAT BINARY)") as out:
                    out.set_types(["int8", "int4", "int2", "int8", "bytea"])
                    for name, count in zip(names, counts.tolist(), strict=True):
                        for i in range(at, at + count):
                            last[name][1] += 1
                            out.write_row((*last[name], kinds[i], nonces[i], packed[i * size : (i + 1) * size]))
                        at += count
                db.execute(
                    "UPDATE treeward.users SET events = new.events FROM unnest(%s::bigint[], %s::integer[]) "
                    "AS new(id, events) WHERE users.id = new.id",
                    ([id for id, _ in last.values()], [have for _, have in last.values()]),
                )

        if added:
            self._base.do(write)

    def flush(self) -> None:
        """Return when everything added so far is safe: a commit that waits for the disk, after all before it."""
        self._base.do(lambda db: db.execute("UPDATE treeward.meta SET number = number WHERE name = 'begun'"))

    def count(self, user: User) -> int:
        """Return how many events a user has."""
        [row] = self._base.rows("SELECT coalesce(max(events), 0) FROM treeward.users WHERE name = %b", (spelled(user),))
        return int(row[0])

    def counts(self, users: Sequence[User]) -> list[int]:
        """Return how many events each user has."""
        rows = self._base.rows(
            "SELECT coalesce(events, 0) FROM unnest(%b::bytea[]) WITH ORDINALITY AS asked(name, place) "
            "LEFT JOIN treeward.users USING (name) ORDER BY place",
            ([spelled(user) for user in users],),
        )
        return [int(row[0]) for row in rows]

    def read(self, user: User, after: int = 0) -> AnyArray:
        """Return a copy of a user's events, in order, without the first `after`."""
        return self.newer([user], [after])[0]

    def newer(self, users: Sequence[User], after: Sequence[int]) -> list[AnyArray]:
        """Return each user's events, without the first so many, as they all were at one moment."""
        found: list[AnyArray] = [np.zeros(0, dtype=EVENT)] * len(users)
        if not len(users):
            return found
        given = ([spelled(user) for user in users], list(after))
        rows = self._base.rows("SELECT * FROM treeward.newer(%b::bytea[], %b::integer[])", given)
        for place, records, _ in rows:
            if records is not None:
                found[place - 1] = np.frombuffer(records, dtype=EVENT).copy()
        self._follow(rows[0][2])
        return found

    def rewards_of(self, user: User, nonce: int) -> list[float]:
        """Return the reward of a user's decision and the changes made to it since."""
        return self.rewards_of_each([(user, nonce)])[0]

    def rewards_of_each(self, decisions: Sequence[tuple[User, int]]) -> list[list[float]]:
        """Return the rewards of decisions, and the changes made to them since."""
        found: list[list[float]] = [[] for _ in decisions]
        given = ([spelled(user) for user, _ in decisions], [nonce for _, nonce in decisions])
        for place, records in self._base.rows("SELECT * FROM treeward.rewards(%b::bytea[], %b::bigint[])", given):
            if records is not None:
                found[place - 1] = np.frombuffer(records, dtype=EVENT)["reward"].tolist()
        return found

    def size(self) -> int:
        """Return how many users have events."""
        [row] = self._base.rows("SELECT count(*) FROM treeward.users WHERE events > 0")
        return int(row[0])

    def users(self) -> Iterator[User]:
        """Return everybody who has events."""
        return (
            user_of(row[0]) for row in self._base.rows("SELECT name FROM treeward.users WHERE events > 0 ORDER BY id")
        )

    def read_all(self) -> Iterator[tuple[User, AnyArray]]:
        """Return everybody's events."""
        return (pair for some, held in self._batches() for pair in zip(some, held, strict=True))

    def chunks(self) -> Iterator[AnyArray]:
        """Return everybody's events, many users' at a time."""
        for _, held in self._batches():
            yield np.frombuffer(b"".join(events.tobytes() for events in held), dtype=EVENT)

    def _batches(self) -> Iterator[tuple[list[User], list[AnyArray]]]:
        who = list(self.users())
        for first in range(0, len(who), _AT_ONCE):
            some = who[first : first + _AT_ONCE]
            yield some, self.newer(some, [0] * len(some))

    # --- who is who --------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """How many users were forgotten or merged, as far as this process has heard; every answer brings it up."""
        return self._moves.epoch

    def resolve(self, user: User, epoch: int) -> User | None:
        """Return who a user of that epoch is now."""
        with self._lock:
            if self._moves.epoch < 0:
                self._follow(0)
            return self._moves.resolve(user, epoch)

    def alone(self) -> AbstractContextManager[object]:
        """Keep nobody from anything: other processes add events all the time."""
        return nullcontext()

    def forget(self, user: User, *, wait: bool = True) -> int:
        """Remove all there is of a user and return how many events that were."""

        def write(db: Connection) -> int:
            row = db.execute(
                "SELECT id, events FROM treeward.users WHERE name = %b FOR UPDATE", (spelled(user),)
            ).fetchone()
            if row is None:
                return 0
            tables.remove(db, row[0])
            return int(row[1])

        return self._move(user, None, write)

    def merge(self, source: User, target: User, *, wait: bool = True) -> int:
        """Put one user's events behind another's and return how many."""
        if source == target:
            raise InvalidArgument("PostgresStore.merge", "target", "another user than the source", target)
        old, new = spelled_names("PostgresStore.merge", [source, target], _LONGEST_NAME)
        return self._move(source, target, lambda db: tables.merge(db, old, new))

    def _move(self, user: User, target: User | None, write: Callable[[Connection], int]) -> int:
        """Do something in an epoch of its own, from which on somebody is somebody else."""

        def moved(db: Connection) -> int:
            with db.transaction():
                [[now]] = db.execute("SELECT number FROM treeward.meta WHERE name = 'epoch' FOR UPDATE").fetchall()
                self._load(db, now)
                count = write(db)
                self._moves.add(user, target)
                db.execute("UPDATE treeward.meta SET number = %b WHERE name = 'epoch'", (self._moves.epoch,))
                for sealed, move in self._moves.latest:
                    whom = None if move.target is None else spelled(move.target)
                    db.execute(
                        "INSERT INTO treeward.moves VALUES (%b, %b, %b, %b) ON CONFLICT (sealed, at) "
                        "DO UPDATE SET target = excluded.target, since = excluded.since",
                        (sealed, move.at, whom, move.since),
                    )
                return count

        with self._lock:
            try:
                return self._base.do(moved)
            except BaseException:
                self._moves = Moves(self._moves.secret)  # what was begun was not done: ask anew
                self._moves.epoch = -1
                with suppress(StoreError):
                    self._follow(0)
                raise

    def _follow(self, now: int) -> None:
        """Learn who became whom, if that is not what is known here."""
        if now != self._moves.epoch:
            with self._lock:
                self._base.do(lambda db: self._load(db, now))

    def _load(self, db: Connection, now: int) -> None:
        if now == self._moves.epoch:
            return
        # One statement, one moment.
        rows = db.execute(
            "SELECT number, sealed, at, target, since FROM treeward.meta LEFT JOIN treeward.moves ON true "
            "WHERE name = 'epoch' ORDER BY sealed, at"
        ).fetchall()
        made = Moves(self._moves.secret)
        for _, sealed, at, target, since in rows:
            if sealed is not None:
                made.load(sealed, Move(at, None if target is None else user_of(target), since))
        made.epoch = rows[0][0]
        self._moves = made

    # --- numbers, states, secrets ------------------------------------------------------------------------------------

    def number_items(self, ids: pl.Series) -> NDArray[np.int32]:
        """Return the numbers that events have for items, giving new ones to items not seen before."""
        with self._lock:
            return self._base.do(lambda db: self._items.number(db, ids))

    def number_snapshot(self, digest: str) -> int:
        """Return the number that events have for a tree, giving a new one to a tree not seen before."""
        return self._base.do(lambda db: tables.number_snapshot(db, digest))

    def keep(self, user: User, kept: Kept) -> None:
        """Remember a user's state, unless the user was forgotten or merged since."""
        if self.resolve(user, kept.epoch) == user:
            self._base.do(lambda db: tables.keep(db, spelled(user), self._moves.epoch, kept))

    def kept(self, user: User) -> Kept | None:
        """Return what `keep` remembered last."""
        return self.kept_each([user])[0]

    def kept_each(self, users: Sequence[User]) -> list[Kept | None]:
        """Return what `keep` remembered of each."""
        rows = self._base.rows(
            "SELECT place, kept.events, epoch, state FROM unnest(%b::bytea[]) WITH ORDINALITY AS asked(name, place) "
            "JOIN treeward.users USING (name) JOIN treeward.kept ON id = user_id",
            ([spelled(user) for user in users],),
        )
        found = {place: Kept(*kept) for place, *kept in rows}
        return [found.get(i + 1) for i in range(len(users))]

    def secret(self) -> bytes:
        """Return the key that decision ids are sealed with."""
        return self._moves.secret

    def head(self) -> Head:
        """Return all there is but events and remembered states."""
        self.newer([""], [0])  # to hear of moves
        with self._lock:
            return self._base.do(lambda db: tables.head(db, self._moves.listed(), self._moves.epoch))

    def adopt(self, head: Head) -> None:
        """Take over another store's head, to hold its events."""
        with self._lock:
            self._base.do(lambda db: tables.adopt(db, str(self._base), head))
            self._moves, self._unfinished, self._items = Moves(head.secret), head.unfinished, tables.Items()
            self._moves.epoch = -1
        self._follow(head.epoch)

    def note(self, name: str) -> bytes | None:
        """Return what was kept under a name."""
        rows = self._base.rows("SELECT bytes FROM treeward.meta WHERE name = %s", (f"note/{name}",))
        return bytes(rows[0][0]) if rows else None

    def take_note(self, name: str, content: bytes, *, new: bool = False) -> bool:
        """Keep something under a name; with `new`, only if nothing was there."""
        there = "NOTHING" if new else "UPDATE SET bytes = excluded.bytes"
        rows = self._base.rows(
            f"INSERT INTO treeward.meta VALUES (%s, NULL, %b) ON CONFLICT (name) DO {there} RETURNING name",
            (f"note/{name}", content),
        )
        return bool(rows)

    def notes(self, begin: str, after: str = "") -> list[tuple[str, bytes]]:
        """Return the notes whose names begin so and come after `after`."""
        rows = self._base.rows(
            'SELECT name, bytes FROM treeward.meta WHERE starts_with(name, %s) AND name COLLATE "C" > %s '
            'ORDER BY name COLLATE "C"',
            (f"note/{begin}", f"note/{after}"),
        )
        return [(name[5:], bytes(content)) for name, content in rows]

    def begin(self) -> int:
        """Return how many times this was called before, by anybody."""
        [row] = self._base.rows("UPDATE treeward.meta SET number = number + 1 WHERE name = 'begun' RETURNING number")
        return int(row[0]) - 1

    def close(self) -> None:
        """Let go of the connections."""
        self._base.close()


assert SHOWN == 0  # treeward.append and the indices count on what kinds are numbered
