"""`MemoryStore`: events in this process's memory, packed."""

import secrets
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from threading import RLock

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core import checks
from treeward.core.errors import InvalidArgument, StoreError
from treeward.core.types import AnyArray
from treeward.store.base import User
from treeward.store.events import EVENT, NAMELESS, NOTED, REWARD, SHOWN, Kept
from treeward.store.heads import Head
from treeward.store.moves import Moves
from treeward.store.numbers import Numbers

_NONE = b""
_NO_EVENTS = np.zeros(0, dtype=EVENT)
_TOGETHER = 4096
"""So many users' events are read at a time."""
_NO_NONCE = bytes(8)
_NONCE = slice(EVENT.fields["nonce"][1], EVENT.fields["nonce"][1] + 8)  # type: ignore[index]
_KIND = EVENT.fields["kind"][1]  # type: ignore[index]


def _has_reward(log: bytes | bytearray, nonce: bytes) -> bool:
    """Tell whether a decision has a reward: whether the last event with its nonce is anything but its exposure.

    Looked for from the end, where it nearly always is: a log may be long.
    """
    at = log.rfind(nonce)
    while at >= 0 and (at - _NONCE.start) % EVENT.itemsize:  # those bytes, but not as a nonce
        at = log.rfind(nonce, 0, at + 7)
    return at >= 0 and log[at + _KIND - _NONCE.start] != SHOWN


class MemoryStore:
    """Events in memory: 35 bytes an event and some 200 a user. Everything is gone when the process ends.

    Parameters
    ----------
    kept_bytes
        How much of memory the remembered states of users with long histories may take.

    Examples
    --------
    >>> from treeward.store.events import event
    >>> store = MemoryStore()
    >>> store.append(["ada"], event(item=3, reward=1.0, nonce=77))
    array([ True])
    >>> store.append(["ada"], event(item=3, reward=1.0, nonce=77))
    array([False])
    >>> store.count("ada"), store.read("ada")["item"].tolist()
    (1, [3])
    """

    remote = False

    def __init__(self, *, kept_bytes: int = 256 << 20) -> None:
        self._most = checks.integer("MemoryStore", "kept_bytes", kept_bytes, low=0)
        self._logs: dict[User, bytearray] = {}
        self._moves = Moves(secrets.token_bytes(32))
        self._items = Numbers(type(self).__name__)
        self._snapshots: list[str] = []
        self._kept: OrderedDict[User, Kept] = OrderedDict()
        self._kept_bytes = 0
        self._begun, self._unfinished = 0, False
        self._notes: dict[str, bytes] = {}
        self._lock = RLock()

    def __repr__(self) -> str:
        return f"MemoryStore({len(self._logs):,} users)"

    @property
    def unfinished(self) -> bool:
        """Whether it is a copy that lacks events."""
        return self._unfinished

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
            raise InvalidArgument("MemoryStore.append", "events", f"{len(users)} of dtype EVENT", events.dtype)
        if not all(isinstance(user, str | int) for user in users):
            raise InvalidArgument("MemoryStore.append", "users", "strings or integers", users)
        size, packed = EVENT.itemsize, np.ascontiguousarray(events).tobytes()
        pieces = [packed[at : at + size] for at in range(0, len(packed), size)]
        kinds, logs = events["kind"].tolist(), self._logs
        new = [True] * len(users)
        with self._lock:
            if epoch is not None and epoch != self._moves.epoch:
                return np.zeros(len(users), dtype=np.bool_)
            for i, (user, event, kind) in enumerate(zip(users, pieces, kinds, strict=True)):
                log = logs.get(user)
                if kind != SHOWN and not self._is_news(user, log or _NONE, event, kind, known, i):
                    new[i] = False
                elif log is None:
                    logs[user] = bytearray(event)
                else:
                    log += event
        return np.array(new, dtype=np.bool_)

    def _is_news(
        self, user: User, log: bytes | bytearray, event: bytes, kind: int, known: NDArray[np.int64] | None, i: int
    ) -> bool:
        """Tell whether a reward is the decision's first, or a change one to what is `known` of it."""
        nonce = event[_NONCE]
        if kind in (REWARD, NOTED):
            return nonce == _NO_NONCE or not _has_reward(log, nonce)
        return known is None or len(self.rewards_of(user, int.from_bytes(nonce, "little", signed=True))) == known[i]

    def extend(
        self, users: Sequence[User], counts: NDArray[np.int64], events: AnyArray, after: Sequence[int] | None = None
    ) -> None:
        """Add many events: the first counts[0] are for the first user, and so on."""
        if len(users) != len(counts) or int(np.sum(counts)) != len(events) or events.dtype != EVENT:
            raise InvalidArgument("MemoryStore.extend", "counts", f"{len(users)} that sum to {len(events)}", counts)
        ends = (np.cumsum(counts) * EVENT.itemsize).tolist()
        packed = memoryview(np.ascontiguousarray(events).tobytes())
        with self._lock:
            start = 0
            if after is not None and self.counts(users) != list(after):
                raise StoreError(f"{self}: somebody else adds events meanwhile")
            for user, end in zip(users, ends, strict=True):
                if user in self._logs:
                    self._logs[user].extend(packed[start:end])
                elif end > start:
                    self._logs[user] = bytearray(packed[start:end])
                start = end

    def count(self, user: User) -> int:
        """Return how many events a user has."""
        return len(self._logs.get(user, _NONE)) // EVENT.itemsize

    def counts(self, users: Sequence[User]) -> list[int]:
        """Return how many events each user has."""
        return [self.count(user) for user in users]

    def read(self, user: User, after: int = 0) -> AnyArray:
        """Return a copy of a user's events, in order, without the first `after`."""
        with self._lock:
            packed = bytes(self._logs.get(user, _NONE)[after * EVENT.itemsize :])
        return np.frombuffer(packed, dtype=EVENT).copy()

    def newer(self, users: Sequence[User], after: Sequence[int]) -> list[AnyArray]:
        """Return each user's events, without the first so many."""
        return [
            self.read(user, seen) if self.count(user) != seen else _NO_EVENTS
            for user, seen in zip(users, after, strict=True)
        ]

    def rewards_of(self, user: User, nonce: int) -> list[float]:
        """Return the reward of a user's decision and the changes made to it since."""
        with self._lock:
            if not _has_reward(self._logs.get(user, _NONE), nonce.to_bytes(8, "little", signed=True)):
                return []
            # Copied, here as above: a view that outlives the lock would forbid the log to grow.
            events = np.frombuffer(bytes(self._logs.get(user, _NONE)), dtype=EVENT)
            values: list[float] = events["reward"][(events["nonce"] == nonce) & (events["kind"] != SHOWN)].tolist()
            return values

    def rewards_of_each(self, decisions: Sequence[tuple[User, int]]) -> list[list[float]]:
        """Return the rewards of decisions, and the changes made to them since."""
        return [self.rewards_of(user, nonce) for user, nonce in decisions]

    def size(self) -> int:
        """Return how many users have events."""
        return len(self._logs)

    def look(self) -> None:
        """There is nothing to notice."""

    def users(self) -> Iterator[User]:
        """Return everybody who has events."""
        return iter(list(self._logs))

    def chunks(self) -> Iterator[AnyArray]:
        """Return everybody's events, many users' at a time."""
        users = list(self._logs)
        for first in range(0, len(users), _TOGETHER):
            with self._lock:
                packed = b"".join([self._logs.get(user, _NONE) for user in users[first : first + _TOGETHER]])
            yield np.frombuffer(packed, dtype=EVENT)

    def read_all(self) -> Iterator[tuple[User, AnyArray]]:
        """Return everybody's events."""
        return ((user, self.read(user)) for user in self.users())

    def alone(self) -> AbstractContextManager[object]:
        """Keep other threads from adding events for a moment."""
        return self._lock

    def forget(self, user: User, *, wait: bool = True) -> int:
        """Remove all there is of a user and return how many events that were."""
        with self._lock:
            gone = len(self._logs.pop(user, _NONE)) // EVENT.itemsize
            self._drop_kept(user)
            self._moves.add(user, None)
            return gone

    def merge(self, source: User, target: User, *, wait: bool = True) -> int:
        """Put one user's events behind another's and return how many."""
        if source == target:
            raise InvalidArgument("MemoryStore.merge", "target", "another user than the source", target)
        with self._lock:
            log = self._logs.pop(source, None)
            if log:
                self._logs.setdefault(target, bytearray()).extend(log)
            self._drop_kept(source)
            self._moves.add(source, target)
            return len(log or _NONE) // EVENT.itemsize

    @property
    def epoch(self) -> int:
        """How many users were forgotten or merged so far."""
        return self._moves.epoch

    def resolve(self, user: User, epoch: int) -> User | None:
        """Return who a user of that epoch is now."""
        if not len(self._moves):
            return user
        with self._lock:
            return self._moves.resolve(user, epoch)

    def number_items(self, ids: pl.Series) -> NDArray[np.int32]:
        """Return the numbers that events have for items, giving new ones to items not seen before."""
        with self._lock:
            return self._items.of(ids)

    def number_snapshot(self, digest: str) -> int:
        """Return the number that events have for a tree, giving a new one to a tree not seen before."""
        with self._lock:
            if digest not in self._snapshots:
                if len(self._snapshots) >= NAMELESS:
                    raise StoreError(f"{self}: holds as many trees and contexts as there are numbers for")
                self._snapshots.append(digest)
            return self._snapshots.index(digest)

    def keep(self, user: User, kept: Kept) -> None:
        """Remember a user's state, if there is room; what was kept longest makes way."""
        with self._lock:
            self._drop_kept(user)
            if len(kept.state) > self._most or self.resolve(user, kept.epoch) != user:
                return
            self._kept[user] = kept
            self._kept_bytes += len(kept.state)
            while self._kept_bytes > self._most:
                self._drop_kept(next(iter(self._kept)))

    def kept(self, user: User) -> Kept | None:
        """Return what `keep` remembered last."""
        return self._kept.get(user)

    def kept_each(self, users: Sequence[User]) -> list[Kept | None]:
        """Return what `keep` remembered of each."""
        return [self._kept.get(user) for user in users]

    def _drop_kept(self, user: User) -> None:
        kept = self._kept.pop(user, None)
        self._kept_bytes -= len(kept.state) if kept is not None else 0

    def secret(self) -> bytes:
        """Return the key that decision ids are sealed with."""
        return self._moves.secret

    def head(self) -> Head:
        """Return all there is but events and remembered states."""
        with self._lock:
            moves = self._moves
            items, snapshots = self._items.ids(), list(self._snapshots)
            told = (moves.secret, moves.epoch, moves.listed(), items, snapshots, self._begun, dict(self._notes))
            return Head(*told, self._unfinished)

    def adopt(self, head: Head) -> None:
        """Take over another store's head, to hold its events."""
        with self._lock:
            if self._logs and head.secret != self._moves.secret:
                raise StoreError(f"{self}: holds events of its own; only a new store can become a copy")
            self._moves = Moves(head.secret)
            for sealed, move in head.moves:
                self._moves.load(sealed, move)
            self._moves.epoch, self._begun = head.epoch, max(self._begun, head.begun)
            self._items, self._snapshots = Numbers(type(self).__name__), list(head.snapshots)
            if len(head.items):
                self._items.load(head.items)
            self._unfinished, self._notes = head.unfinished, dict(head.notes)

    def note(self, name: str) -> bytes | None:
        """Return what was kept under a name."""
        return self._notes.get(name)

    def take_note(self, name: str, content: bytes, *, new: bool = False) -> bool:
        """Keep something under a name; with `new`, only if nothing was there."""
        with self._lock:
            if new and name in self._notes:
                return False
            self._notes[name] = content
            return True

    def notes(self, begin: str, after: str = "") -> list[tuple[str, bytes]]:
        """Return the notes whose names begin so and come after `after`."""
        with self._lock:
            return sorted((name, held) for name, held in self._notes.items() if name.startswith(begin) and name > after)

    def begin(self) -> int:
        """Return how many times this was called before."""
        with self._lock:
            self._begun += 1
            return self._begun - 1

    def flush(self) -> None:
        """Nothing is ever on its way."""

    def close(self) -> None:
        """Nothing to let go of."""
