"""`CrowdSums`: the sums of all users' rewards, always up to date, and a sample of users."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from threading import Condition, Lock
from typing import NamedTuple
from weakref import WeakSet

from treeward.bandit.item_sums import ItemSums, of_decisions
from treeward.core.types import AnyArray
from treeward.explorer.runtime import Runtime
from treeward.store.base import EventStore, User, everyone, join, read_chunks, spelled

SAMPLE = 1_500
"""Users that the spread of tastes is fitted to, at most."""
_MOST_WAITING = 4_096
_live_lock = Lock()


class Taken(NamedTuple):
    """All that is known at one moment."""

    sums: ItemSums
    users: list[User]
    """A sample of the users who gave rewards."""
    epoch: int
    events: int
    """Rewards, and changes to them."""


class CrowdSums:
    """Adds up rewards as they are recorded. Two explorers over one store can share one, as a service does in a swap.

    Parameters
    ----------
    store
        Where the events are. If other processes write to it too, nothing is added here: `recount` reads everything.
    half_life
        Days after which a reward counts half as much; None: it always counts fully.
    runtime
        Makes the locks.
    """

    def __init__(self, store: EventStore, half_life: float | None, runtime: Runtime) -> None:
        self._store, self._half_life = store, half_life
        self._sums, self._events = ItemSums(half_life), 0
        self._waiting: deque[tuple[AnyArray, int]] = deque()
        self.waiting = 0
        """How many events were added since the last edition."""
        self.sample: dict[User, int] = {}
        self._below = 1 << 64
        key = blake2b(store.identities.secret, digest_size=16, person=b"crowd").digest()
        self._fresh = blake2b(digest_size=8, key=key)
        self._lock, self.publishing, self.moving = runtime.lock(), runtime.lock(), runtime.lock()
        self._recounting, self._idle, self._recordings = runtime.lock(), Condition(self._lock), 0
        self._epoch = self._recounted = store.identities.epoch
        with _live_lock:
            _live.add(self)
        self.number = 0
        """The number of the latest edition that was made of these sums, or that the store has."""

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Hold from before the store records events until they are added here: no recount reads them in between."""
        with self._recounting, self._lock:
            self._recordings += 1
        try:
            yield
        finally:
            with self._lock:
                self._recordings -= 1
                self._idle.notify_all()

    def recount(self) -> None:
        """Add up everything again, from the events in the store."""
        if self._store.shared:  # nothing is added here: no event can count twice
            self._recount()
            return
        with self._recounting:  # no recording begins
            with self._idle:
                self._idle.wait_for(lambda: not self._recordings)
            self._recount()

    def _recount(self) -> None:
        sums, count = ItemSums(self._half_life), 0
        with self._lock:
            self._waiting.clear()
            self.waiting, self._epoch = 0, self._store.identities.epoch
            self._recounted = self._epoch
        for events in read_chunks(self._store):
            sums.add(events)
            count += int(of_decisions(events).sum())
        with self._lock:
            self._sums, self._events, self.sample, self._below = sums, count, {}, 1 << 64
        for user in everyone(self._store):
            self._sample(user)

    def add(self, users: Sequence[User], events: AnyArray, epoch: int) -> None:
        """Add rewards and changes, one per user, that the store has recorded in an epoch.

        Those without a decision (a nonce of 0) do not count for the crowd.
        """
        counted = [nonce != 0 for nonce in events["nonce"].tolist()]
        if not any(counted):
            return
        for user, counts in zip(users, counted, strict=True):
            if counts:
                self._sample(user, epoch)
        self._add(events, 1, epoch)

    def forget(self, user: User, events: AnyArray) -> None:
        """Subtract a user's events; hold `moving` from before the store erases the user."""
        with self._lock:
            self.sample.pop(user, None)
        epoch = self._store.identities.epoch
        # If the events may not have been counted here, the epoch stays behind, and the next edition recounts.
        if epoch != self._epoch + 1 or not self._is_alone():
            with self._lock:
                self.waiting += len(events)
            return
        self._add(events, -1, self._recounted)
        items = events["item"][of_decisions(events)]
        if self._store.shared or self._sums.count[items].min(initial=0) >= 0:
            self._epoch = epoch

    def merged(self, source: User, target: User) -> None:
        """Note that one user's events are another's now; hold `moving` from before the store merges them."""
        with self._lock:
            self.sample.pop(source, None)
        self._sample(target)
        if self._store.identities.epoch == self._epoch + 1:  # otherwise the next edition recounts
            self._epoch += 1

    def _is_alone(self) -> bool:
        """Return whether no other sums in this process are of the same store."""
        with _live_lock:
            return all(one is self or one._store is not self._store for one in _live)

    def _add(self, events: AnyArray, sign: int, epoch: int) -> None:
        with self._lock:
            if epoch < self._recounted:  # the store had them before the last recount, which has read them
                return
            self.waiting += len(events)
            if self._store.shared:  # the next recount reads them: added here too they would count twice
                return
            self._waiting.append((events, sign))
            if len(self._waiting) >= _MOST_WAITING or sign < 0:
                self._add_waiting()

    def _add_waiting(self) -> None:
        while self._waiting:
            sign = self._waiting[0][1]
            pieces = []
            while self._waiting and self._waiting[0][1] == sign:
                pieces.append(self._waiting.popleft()[0])
            events = join(pieces)
            self._sums.add(events, sign)
            self._events += sign * int(of_decisions(events).sum())

    def _sample(self, user: User, epoch: int | None = None) -> None:
        """Add a user to the sample if their hash is among the lowest: the same users are chosen in any order.

        `epoch`: when the user had events; they may have been erased since.
        """
        if user in self.sample:
            return
        hasher = self._fresh.copy()
        hasher.update(spelled(user))
        drawn = int.from_bytes(hasher.digest(), "little")
        if drawn >= self._below:
            return
        with self._lock:
            if epoch not in (None, self._store.identities.epoch) and not self._store.counts([user])[0]:
                return
            self.sample[user] = drawn
            if len(self.sample) > 2 * SAMPLE:
                self._below = sorted(self.sample.values())[SAMPLE]
                self.sample = {user: drawn for user, drawn in self.sample.items() if drawn < self._below}

    @property
    def sums(self) -> ItemSums:
        """A copy of the sums; where other processes write too, as of the last edition."""
        with self._lock:
            self._add_waiting()
            return self._sums.copy()

    def take(self) -> Taken:
        """Return everything for an edition, and count no event as waiting any more."""
        with self.moving:  # no user is half erased
            if self._store.shared or self._store.identities.epoch != self._epoch:
                self.recount()  # other processes write too, or a user was erased elsewhere
            with self._lock:
                self._add_waiting()
                if not self._store.shared:  # otherwise events added during the recount may be missing in it
                    self.waiting = 0
                sample = sorted(self.sample.items(), key=lambda one: one[1])[:SAMPLE]
                return Taken(self._sums.copy(), [user for user, _ in sample], self._epoch, self._events)


_live: WeakSet[CrowdSums] = WeakSet()
"""All sums in this process."""
