"""`NamedEvents`: decisions under names that callers chose, so that feedback may come by such a name.

A record is a value of the store's metadata: it survives restarts, and all replicas over one database share it. A name
is kept as a keyed hash only. A record has its user as of an epoch of the store, as a decision id has. It is written
only if that epoch is still the present one, so no record is left of a user who is forgotten at the same moment.
"""

from collections.abc import Callable
from hashlib import blake2b
from math import ceil
from time import time
from typing import NamedTuple

import msgspec
from msgspec import Struct

from treeward.core.errors import UnknownDecision
from treeward.store.base import EventStore, User, spelled
from treeward.store.identities import user_of

_RECORD, _DUE = "event/", "event-due/"
_EVERYTHING = 1 << 30
_AT_ONCE = 256


class NamedEvent(NamedTuple):
    """What is known of an event."""

    user: User | None
    """Who the user is now; None: they were forgotten, and the name cannot be used again."""
    epoch: int
    """The store's epoch in which the user has this name."""
    content: bytes


class _Record(Struct, array_like=True):
    user: bytes
    epoch: int
    due: int
    """The second since 1970 from which on it may be removed; 0: never."""
    content: bytes


class NamedEvents:
    """The records of a store. Safe to call from several threads and processes.

    Parameters
    ----------
    store
        Where they are kept.
    keep
        Seconds after which a record may be removed; 0: it stays.
    clock
        Returns the seconds since 1970.

    Examples
    --------
    >>> from treeward.store.base import forget
    >>> from treeward.store.memory import MemoryStore
    >>> store = MemoryStore()
    >>> events = NamedEvents(store)
    >>> events.add("order-7", "ada", 0, b"shown"), events.add("order-7", "bob", 0, b"other")
    (True, False)
    >>> events.get("order-7"), events.get("order-8")
    (NamedEvent(user='ada', epoch=0, content=b'shown'), None)
    >>> forget(store, "ada"), events.get("order-7").user
    (0, None)
    """

    def __init__(self, store: EventStore, keep: float = 0.0, clock: Callable[[], float] = time) -> None:
        self._store, self._keep, self._clock = store, keep, clock
        self._write, self._read = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(_Record)

    def epoch(self, user: User) -> int:
        """Return the present epoch of the store, to be given to `add` with what is decided for a user from now on."""
        self._store.read([user], [_EVERYTHING])  # `identities` is at least as new as an answer
        return self._store.identities.epoch

    def get(self, name: str) -> NamedEvent | None:
        """Return what is known of an event; None if nothing is."""
        value, identities = self._store.metadata.get(self._key(name)), self._store.identities
        at = identities.epoch
        if value is None:
            return None
        if not value:
            return NamedEvent(None, at, b"")
        record = self._read.decode(value)
        return NamedEvent(identities.resolve(user_of(record.user), record.epoch), at, record.content)

    def add(self, name: str, user: User, epoch: int, content: bytes) -> bool:
        """Write a new record, and return whether the name had none yet; it is safe when this returns.

        `epoch` is that in which the user had this name. Raise `UnknownDecision` if they were forgotten since.
        """
        while True:
            at = self._store.identities.epoch
            now = self._store.identities.resolve(user, epoch)
            if now is None:
                raise UnknownDecision(f"the user of the event {name[:80]} was forgotten meanwhile")
            if self._store.metadata.put(self._values(self._key(name), now, at, content), new=True, epoch=at):
                return True
            if at == self._store.identities.epoch:
                return False

    def replace(self, name: str, content: bytes) -> bool:
        """Write a record in place of the one there is; False if there is none, or its user was forgotten."""
        while True:
            at, known = self._store.identities.epoch, self.get(name)
            if known is None or known.user is None:
                return False
            # The user of `known` is that of an epoch which is at least as new as `at`.
            if self._store.metadata.put(self._values(self._key(name), known.user, at, content), epoch=at):
                return True

    def exist_of(self, user: User) -> bool:
        """Return whether there are records of a user."""
        return bool(self._store.metadata.list(self._store.identities.owner_key(user), most=1))

    def remove_due(self) -> int:
        """Remove records that were kept for long enough; return how many."""
        removed, metadata, now = 0, self._store.metadata, self._clock()
        while True:
            identities = self._store.identities
            at = identities.epoch
            due = [key for key, _ in metadata.list(_DUE, most=_AT_ONCE) if int(key.split("/")[1]) <= now]
            if not due:
                return removed
            values, gone = dict[str, bytes | None](), 0
            for mark in due:
                values[mark] = None
                key = mark.split("/", 2)[2]
                value = metadata.get(key)
                if value is None:
                    continue
                if value:
                    record = self._read.decode(value)
                    user = identities.resolve(user_of(record.user), record.epoch)
                    if record.due > now:  # it was replaced meanwhile
                        continue
                    if user is not None:
                        values[identities.owner_key(user, key)] = None
                values[key] = None
                gone += 1
            if metadata.put(values, epoch=at):
                removed += gone

    def _values(self, key: str, user: User, epoch: int, content: bytes) -> dict[str, bytes | None]:
        """Return a record, and the keys that lead to it from its user and from the time when it is due."""
        due = ceil(self._clock() + self._keep) if self._keep else 0
        record = self._write.encode(_Record(spelled(user), epoch, due, content))
        values: dict[str, bytes | None] = {key: record, self._store.identities.owner_key(user, key): b""}
        return values | {f"{_DUE}{due:012d}/{key}": b""} if due else values

    def _key(self, name: str) -> str:
        secret = self._store.identities.secret
        return _RECORD + blake2b(name.encode(), key=secret, person=b"event", digest_size=16).hexdigest()
