"""`MemoryStore`: events in this process's memory, packed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, repeat, takewhile
from threading import RLock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.errors import InvalidArgument, StoreError
from treeward.core.types import AnyArray
from treeward.store.base import Status
from treeward.store.events import EVENT, NOTED, REWARD, SHOWN
from treeward.store.identities import Identities, User, check_users
from treeward.store.sorted_keys import SortedKeys

_NONE = b""
_NO_EVENTS = np.zeros(0, dtype=EVENT)
_USERS_AT_ONCE = 2048
_SIZE = EVENT.itemsize
_KINDS = {str, int}
_NO_NONCE = bytes(8)
_NONCE_AT: int = EVENT.fields["nonce"][1]  # type: ignore[index]
_NONCE = slice(_NONCE_AT, _NONCE_AT + 8)
_KIND_AFTER_NONCE: int = EVENT.fields["kind"][1] - _NONCE_AT  # type: ignore[index]


class Change(NamedTuple):
    """One step of a store, to be written whole or not at all."""

    users: Sequence[User] = ()
    """The users who get events."""
    counts: Sequence[int] = ()
    """How many each of them gets."""
    events: AnyArray = _NO_EVENTS
    """One user's after another's."""
    metadata: Mapping[str, bytes] = {}
    """Values to put in place of older ones."""
    erased: User | None = None
    """The user whose data must all be deleted; events that moved to another user are among `events`."""
    removed: Sequence[str] = ()
    """Keys of metadata to remove."""


class MemoryStore:
    """Events in memory: 35 bytes per event and some 200 per user. Everything is gone when the process ends.

    A durable store is this one with a few hooks: see `WriteThroughStore`, and `SQLiteStore`.

    Examples
    --------
    >>> from treeward.store.events import event
    >>> store = MemoryStore()
    >>> store.append(["ada"], event(item=3, reward=1.0, nonce=77))
    array([ True])
    >>> store.append(["ada"], event(item=3, reward=1.0, nonce=77))
    array([False])
    >>> store.counts(["ada"]), store.read(["ada"])[0]["item"].tolist()
    ([1], [3])
    """

    shared = False
    identities: Identities

    def __init__(self) -> None:
        self._logs: dict[User, bytearray] = {}
        self._values: dict[str, bytes] = {}
        self._keys = SortedKeys()
        """The keys of `_values`."""
        self._lock = RLock()
        for change in self._load():
            self._add_events(change.users, change.counts, change.events)
            self._set_values({**change.metadata, **dict.fromkeys(change.removed)})
        if "secret" in self._values:
            self.identities = Identities(self._values)
        else:
            self.metadata.put(Identities.first())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self._logs):,} users)"

    # --- what a durable store adds -----------------------------------------------------------------------------------

    def _load(self) -> Iterable[Change]:
        """Return what was written before."""
        return ()

    def _refuse(self) -> None:
        """Raise if nothing can be written any more; called before memory changes."""

    def _write(self, change: Change, within: float | None) -> int:
        """Begin to write a change that memory has, and return a number to wait for; called with the lock held."""
        return 0

    def _wait(self, number: int) -> None:
        """Return when a change is safe; called without the lock."""

    def _check_users(self, call: str, users: Sequence[User]) -> None:
        """Refuse users that this store cannot hold."""
        if not _KINDS.issuperset(map(type, users)):  # quick, because this is called for every decision
            check_users(f"{type(self).__name__}.{call}", users)

    # --- events ------------------------------------------------------------------------------------------------------

    def append(
        self, users: Sequence[User], events: AnyArray, known: NDArray[np.int64] | None = None,
        *, within: float | None = None, epoch: int | None = None,
    ) -> NDArray[np.bool_]:  # fmt: skip
        """Add one event per user, all in one step, and return which were added."""
        if len(users) != len(events) or events.dtype != EVENT:
            owner = f"{type(self).__name__}.append"
            raise InvalidArgument(owner, "events", f"{len(users)} of dtype EVENT", events.dtype)
        self._check_users("append", users)
        packed = np.ascontiguousarray(events).tobytes()
        pieces = [packed[at : at + _SIZE] for at in range(0, len(packed), _SIZE)]
        kinds, logs = events["kind"].tolist(), self._logs
        new = [True] * len(users)
        with self._lock:
            self._refuse()
            outdated = epoch is not None and epoch != self.identities.epoch
            if outdated:
                new, pieces = [False] * len(users), []
            for i, (user, event, kind) in enumerate(zip(users, pieces, kinds, strict=False)):
                log = logs.get(user)
                if kind != SHOWN and not _is_news(log or _NONE, event, kind, known, i):
                    new[i] = False
                elif log is None:
                    logs[user] = bytearray(event)
                else:
                    log += event
            added = np.array(new, dtype=np.bool_)
            if False in new:
                users = [user for user, fresh in zip(users, new, strict=True) if fresh]
                events = events[added]
            # Also if nothing is new: what is here already may still be on its way to the disk.
            number = self._write(Change(users, [1] * len(users), events), within)
        if within is None:
            self._wait(number)
        return added

    def extend(
        self, users: Sequence[User], counts: NDArray[np.int64], events: AnyArray, after: Sequence[int] | None = None
    ) -> None:
        """Add many events: the first counts[0] are for the first user, and so on; all of them, or none."""
        if len(users) != len(counts) or int(np.sum(counts)) != len(events) or events.dtype != EVENT:
            owner = f"{type(self).__name__}.extend"
            raise InvalidArgument(owner, "counts", f"{len(users)} that sum to {len(events)}", counts)
        self._check_users("extend", users)
        with self._lock:
            self._refuse()
            if after is not None and self.counts(users) != list(after):
                raise StoreError(f"{self}: another caller adds events at the same time")
            if not len(events):  # nothing may be written, not even the users' names
                return
            self._add_events(users, counts.tolist(), events)
            number = self._write(Change(users, counts.tolist(), events), None)
        self._wait(number)

    def _add_events(self, users: Sequence[User], counts: Sequence[int], events: AnyArray) -> None:
        packed, start = memoryview(np.ascontiguousarray(events).tobytes()), 0
        for user, count in zip(users, counts, strict=True):
            end = start + count * _SIZE
            if user in self._logs:
                self._logs[user].extend(packed[start:end])
            elif count:
                self._logs[user] = bytearray(packed[start:end])
            start = end

    def counts(self, users: Sequence[User]) -> list[int]:
        """Return how many events each user has."""
        logs = self._logs
        return [len(logs.get(user, _NONE)) // _SIZE for user in users]

    def read(
        self, users: Sequence[User], after: Sequence[int] | None = None, nonces: Sequence[int] | None = None
    ) -> list[AnyArray]:
        """Return copies of each user's events, in order, as they all were at one moment."""
        logs = self._logs
        with self._lock:
            if nonces is not None:
                return [_rewards(logs.get(user, _NONE), nonce) for user, nonce in zip(users, nonces, strict=True)]
            starts = repeat(0, len(users)) if after is None else after
            return [_cut(logs.get(user, _NONE), first * _SIZE) for user, first in zip(users, starts, strict=True)]

    def users(self) -> Iterator[list[User]]:
        """Return the users who have events, many at a time."""
        with self._lock:
            users = list(self._logs)
        return (users[first : first + _USERS_AT_ONCE] for first in range(0, len(users), _USERS_AT_ONCE))

    def move(self, source: User, target: User | None) -> AnyArray:
        """Put one user's events behind another's, or erase them if there is no target; return these events."""
        self._check_users("move", [source] if target is None else [source, target])
        if source == target:
            raise InvalidArgument(f"{type(self).__name__}.move", "target", "another user than the source", target)
        with self._lock:
            self._refuse()
            log = self._logs.pop(source, bytearray())
            events = np.frombuffer(log, dtype=EVENT)
            owned = [key for key, _ in self.metadata.list(self.identities.owner_key(source))]
            written, removed = self._set_values(self.identities.move(source, target, owned))
            if target is None or not log:
                self._write(Change(metadata=written, erased=source, removed=removed), 0.0)
            else:
                self._logs.setdefault(target, bytearray()).extend(log)
                self._write(Change([target], [len(events)], events, written, source, removed), 0.0)
        return events

    # --- everything else ---------------------------------------------------------------------------------------------

    @property
    def metadata(self) -> "_Metadata":
        """Keys and values: everything in a store but events."""
        return _Metadata(self)

    def _set_values(self, values: Mapping[str, bytes | None]) -> tuple[dict[str, bytes], list[str]]:
        """Set or remove values in memory; return those that were set, and the keys that were removed."""
        held = self._values
        written = {key: value for key, value in values.items() if value is not None}
        removed = [key for key, value in values.items() if value is None and key in held]
        new = [key for key in written if key not in held]
        held.update(written)
        for key in removed:
            del held[key]
        if len(new) + len(removed) > len(held) // 8:
            self._keys = SortedKeys(held)
        else:
            for key in new:
                self._keys.add(key)
            for key in removed:
                self._keys.remove(key)
        return written, removed

    def flush(self) -> None:
        """Nothing is ever on its way."""

    def status(self, *, probe: bool = False) -> Status:
        """Return the store's condition: memory has no problems."""
        return Status(len(self._logs))

    def close(self) -> None:
        """Nothing to release."""


class _Metadata:
    """The metadata of a store in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def get(self, key: str) -> bytes | None:
        """Return a value; None if there is none."""
        return self._store._values.get(key)

    def put(self, values: Mapping[str, bytes | None], *, new: bool = False, epoch: int | None = None) -> bool:
        """Write values in place of older ones, and remove those that are None; return whether that was done."""
        store = self._store
        with store._lock:
            store._refuse()
            if new and not store._values.keys().isdisjoint(values):
                return False
            if epoch is not None and epoch != store.identities.epoch:
                return False
            written, removed = store._set_values(values)
            if "epoch" in values:
                store.identities = Identities(store._values)
            number = store._write(Change(metadata=written, removed=removed), None)
        store._wait(number)
        return True

    def list(self, prefix: str = "", after: str = "", most: int | None = None) -> list[tuple[str, bytes]]:
        """Return the keys that begin with `prefix` and sort after `after`, with their values, by key."""
        with self._store._lock:
            values = self._store._values
            keys = self._store._keys.since(max(prefix, after))
            found = takewhile(lambda key: key.startswith(prefix), (key for key in keys if key != after))
            return [(key, values[key]) for key in islice(found, most)]


def _cut(log: bytes | bytearray, start: int) -> AnyArray:
    # The slice is a copy: a view that outlives the lock would forbid the log to grow.
    return np.frombuffer(log[start:], dtype=EVENT) if len(log) > start else _NO_EVENTS


def _is_news(log: bytes | bytearray, event: bytes, kind: int, known: NDArray[np.int64] | None, i: int) -> bool:
    """Return whether a reward is the decision's first, or a change follows the `known` number of them."""
    nonce = event[_NONCE]
    if kind in (REWARD, NOTED):
        return nonce == _NO_NONCE or not _has_reward(log, nonce)
    return known is None or len(_rewards(log, int.from_bytes(nonce, "little", signed=True))) == known[i]


def _has_reward(log: bytes | bytearray, nonce: bytes) -> bool:
    """Return whether a decision has a reward: whether the last event with its nonce is anything but its exposure.

    The search begins at the end, where it nearly always is: a log may be long.
    """
    at = log.rfind(nonce)
    while at >= 0 and at % _SIZE != _NONCE_AT:  # those bytes, but not as a nonce
        at = log.rfind(nonce, 0, at + 7)
    return at >= 0 and log[at + _KIND_AFTER_NONCE] != SHOWN


def _rewards(log: bytes | bytearray, nonce: int) -> AnyArray:
    """Return the reward of a decision and its changes."""
    if not _has_reward(log, nonce.to_bytes(8, "little", signed=True)):
        return _NO_EVENTS
    events = np.frombuffer(bytes(log), dtype=EVENT)
    found: AnyArray = events[(events["nonce"] == nonce) & (events["kind"] != SHOWN)]
    return found
