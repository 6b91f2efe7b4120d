"""`PostgresStore`: events in PostgreSQL, for any number of processes at once. Needs the extra `postgres`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from threading import RLock
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from treeward.core import checks
from treeward.core.checks import Count, Positive
from treeward.core.errors import InvalidArgument, StoreError
from treeward.core.types import AnyArray
from treeward.store import postgres_schema
from treeward.store.base import Status
from treeward.store.database import Connection, Database, Rollback
from treeward.store.events import EVENT, SHOWN
from treeward.store.identities import Identities, User, check_users, spelled, user_of

_USERS_AT_ONCE = 500
_LONGEST_NAME = 2_600
"""Bytes; longer names do not fit into an index."""
_SECONDS_A_COUNT = 60.0
_LAST_LETTER = "\U0010ffff"
"""Sorts after all others: it bounds a search in an index."""


class PostgresStore:
    """Events in PostgreSQL. Only `identities` is cached here: every process sees what all have written.

    What was acknowledged is committed there. Exposures that may be safe later are committed without waiting for the
    disk, and are on it within three times the server's `wal_writer_delay` (0.6 s by default).

    Parameters
    ----------
    url
        Where, as ``postgresql://user@host/database``.
    create
        Create the tables if they do not exist.
    connections
        At most this many at a time.
    timeout
        Seconds to wait for a connection before a call is refused.
    """

    shared = True

    @checks.checked("PostgresStore")
    def __init__(self, url: str, *, create: bool = True, connections: Count = 8, timeout: Positive = 5.0) -> None:
        self._lock = RLock()
        self._known: Identities | None = None
        self._users, self._counted = 0, -_SECONDS_A_COUNT
        self._base = Database(url, connections, timeout)
        self.metadata = _Metadata(self._base, self._forget_identities)
        try:
            self._base.do(lambda db: postgres_schema.prepare(db, str(self._base), create=create))
            self._follow(-1)
            self._count_users()
        except BaseException:
            self._base.close()
            raise

    def __repr__(self) -> str:
        return f"PostgresStore({self._base})"

    # --- events ------------------------------------------------------------------------------------------------------

    def append(
        self, users: Sequence[User], events: AnyArray, known: NDArray[np.int64] | None = None,
        *, within: float | None = None, epoch: int | None = None,
    ) -> NDArray[np.bool_]:  # fmt: skip
        """Add one event per user, all in one step, and return which were added."""
        if len(users) != len(events) or events.dtype != EVENT:
            raise InvalidArgument("PostgresStore.append", "events", f"{len(users)} of dtype EVENT", events.dtype)
        if not len(users):
            return np.zeros(0, dtype=np.bool_)
        names = _spelled("append", users)
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
        names = _spelled("extend", users)
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
                db.execute("SELECT value FROM treeward.metadata WHERE key = 'epoch' FOR SHARE")
                found = db.execute(
                    "INSERT INTO treeward.users (name) SELECT unnest(%s::bytea[]) ON CONFLICT (name) "
                    "DO UPDATE SET events = users.events RETURNING name, id, events",
                    (sorted(added),),
                ).fetchall()
                if expected is not None and any(have != expected[name] for name, _, have in found):
                    raise StoreError(f"{self}: another caller adds events at the same time")
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
        self._base.do(lambda db: db.execute("UPDATE treeward.version SET number = number"))

    def counts(self, users: Sequence[User]) -> list[int]:
        """Return how many events each user has."""
        rows = self._base.rows(
            "SELECT coalesce(events, 0) FROM unnest(%b::bytea[]) WITH ORDINALITY AS asked(name, place) "
            "LEFT JOIN treeward.users USING (name) ORDER BY place",
            ([spelled(user) for user in users],),
        )
        return [int(row[0]) for row in rows]

    def read(
        self, users: Sequence[User], after: Sequence[int] | None = None, nonces: Sequence[int] | None = None
    ) -> list[AnyArray]:
        """Return copies of each user's events, in order, as they all were at one moment."""
        found: list[AnyArray] = [np.zeros(0, dtype=EVENT)] * len(users)
        if not len(users):
            return found
        names = [spelled(user) for user in users]
        if nonces is not None:
            given = (names, list(nonces))
            rows = self._base.rows("SELECT * FROM treeward.rewards(%b::bytea[], %b::bigint[])", given)
        else:
            given = (names, [0] * len(names) if after is None else list(after))
            rows = self._base.rows("SELECT * FROM treeward.read(%b::bytea[], %b::integer[])", given)
        for place, records, _ in rows:
            if records is not None:
                found[place - 1] = np.frombuffer(bytearray(records), dtype=EVENT)
        self._follow(rows[0][2])
        return found

    def users(self) -> Iterator[list[User]]:
        """Return the users who have events, many at a time."""
        rows = self._base.rows("SELECT name FROM treeward.users WHERE events > 0 ORDER BY id")
        return (
            [user_of(name) for [name] in rows[first : first + _USERS_AT_ONCE]]
            for first in range(0, len(rows), _USERS_AT_ONCE)
        )

    # --- identities --------------------------------------------------------------------------------------------------

    @property
    def identities(self) -> Identities:
        """Which users were forgotten or merged, as far as this process knows; every answer brings it up to date."""
        known = self._known
        while known is None:
            self._follow(-1)
            known = self._known
        return known

    def _follow(self, epoch: int) -> None:
        """Read the identities again, unless they are of that epoch."""
        known = self._known
        if known is None or known.epoch != epoch:
            with self._lock:
                if self._known is None or self._known.epoch != epoch:
                    self._known = self._base.do(_identities)

    def _forget_identities(self) -> None:
        self._known = None

    def move(self, source: User, target: User | None) -> AnyArray:
        """Put one user's events behind another's, or erase them if there is no target; return these events."""
        old, *new = _spelled("move", [source] if target is None else [source, target])
        if source == target:
            raise InvalidArgument("PostgresStore.move", "target", "another user than the source", target)

        def moved(db: Connection) -> tuple[bytes, Identities]:
            # Set aside: if this attempt fails, what it changed in memory must not be taken for the truth.
            known, self._known = self._known, None
            with db.transaction():
                [[epoch]] = db.execute("SELECT value FROM treeward.metadata WHERE key = 'epoch' FOR UPDATE").fetchall()
                if known is None or known.epoch != int(epoch):
                    known = _identities(db)
                records = postgres_schema.move(db, old, new[0] if new else None)
                owned = [key for key, _ in _listed(db, known.owner_key(source))]
                postgres_schema.put_metadata(db, known.move(source, target, owned))
            return records, known

        with self._lock:
            records, self._known = self._base.do(moved)
        return np.frombuffer(bytearray(records), dtype=EVENT)

    # --- condition ---------------------------------------------------------------------------------------------------

    def status(self, *, probe: bool = False) -> Status:
        """Return the store's condition; with `probe`, find out whether the database can be reached again."""
        if probe:
            self._base.probe()
            if self._base.problem is None and monotonic() > self._counted + _SECONDS_A_COUNT:
                with suppress(StoreError):
                    self._count_users()
        return Status(self._users, self._base.problem)

    def _count_users(self) -> None:
        [[self._users]] = self._base.rows("SELECT count(*) FROM treeward.users WHERE events > 0")
        self._counted = monotonic()

    def close(self) -> None:
        """Release the connections."""
        self._base.close()


class _Metadata:
    """The metadata of a store in PostgreSQL."""

    def __init__(self, base: Database, moved: Callable[[], None]) -> None:
        self._base, self._moved = base, moved

    def get(self, key: str) -> bytes | None:
        """Return a value; None if there is none."""
        rows = self._base.rows("SELECT value FROM treeward.metadata WHERE key = %s", (key,))
        return bytes(rows[0][0]) if rows else None

    def put(self, values: Mapping[str, bytes | None], *, new: bool = False, epoch: int | None = None) -> bool:
        """Write values in place of older ones, and remove those that are None; return whether that was done."""
        count = sum(value is not None for value in values.values())

        def write(db: Connection) -> tuple[bool, bool]:
            whole = outdated = False
            with db.transaction():
                if epoch is not None:  # as `append` does it: the epoch first, and no move until this is done
                    found = db.execute("SELECT value FROM treeward.metadata WHERE key = 'epoch' FOR SHARE").fetchall()
                    outdated = int(found[0][0]) != epoch
                whole = not outdated and postgres_schema.put_metadata(db, values, new=new) == count
                if not whole:
                    raise Rollback
            return whole, outdated

        written, outdated = self._base.do(write)
        if "epoch" in values or outdated:
            self._moved()
        return written

    def list(self, prefix: str = "", after: str = "", most: int | None = None) -> list[tuple[str, bytes]]:
        """Return the keys that begin with `prefix` and sort after `after`, with their values, by key."""
        return self._base.do(lambda db: _listed(db, prefix, after, most))


def _listed(db: Connection, prefix: str, after: str = "", most: int | None = None) -> list[tuple[str, bytes]]:
    rows = db.execute(
        "SELECT key, value FROM treeward.metadata WHERE key >= %s AND key > %s AND key < %s AND starts_with(key, %s) "
        "ORDER BY key LIMIT %s",
        (prefix, after, prefix + _LAST_LETTER, prefix, most),
    ).fetchall()
    return [(key, bytes(value)) for key, value in rows]


def _identities(db: Connection) -> Identities:
    # One statement, one moment.
    return Identities(
        dict(
            db.execute(
                "SELECT key, value FROM treeward.metadata "
                "WHERE key IN ('secret', 'epoch') OR (key >= 'identity/' AND key < 'identity0')"
            ).fetchall()
        )
    )


def _spelled(call: str, users: Sequence[User]) -> list[bytes]:
    """Return users as bytes; refuse names that are too long."""
    check_users(f"PostgresStore.{call}", users)
    names = [spelled(user) for user in users]
    for user, name in zip(users, names, strict=True):
        if len(name) > _LONGEST_NAME:
            rule = f"names of at most {_LONGEST_NAME:,} bytes"
            raise InvalidArgument(f"PostgresStore.{call}", "users", rule, f"{str(user)[:40]}... ({len(name):,} bytes)")
    return names


assert SHOWN == 0  # treeward.append and the indices count on how kinds are numbered
