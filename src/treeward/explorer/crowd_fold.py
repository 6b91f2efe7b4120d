"""`CrowdFold`: everybody's rewards as sums that are always up to date, and a sample of users; may be shared."""

from collections import deque
from collections.abc import Sequence
from hashlib import blake2b
from threading import Lock, RLock
from typing import NamedTuple

import numpy as np

from treeward.bandit.item_sums import ItemSums, of_decisions
from treeward.core.types import AnyArray
from treeward.store.base import EventStore, User, everyone, read_chunks, spelled
from treeward.store.events import EVENT

SAMPLE = 1_500
"""Users that the spread of tastes is fitted to, at most."""
_WAITING = 4_096


class Folded(NamedTuple):
    """What came so far, as of one moment."""

    sums: ItemSums
    users: list[User]
    """A sample of those who gave rewards."""
    epoch: int
    events: int
    """Rewards, and changes to them."""


class CrowdFold:
    """Folds rewards into sums as they come. Two explorers over one store can share one, as a service does in a swap.

    Parameters
    ----------
    store
        Where the events are. If others write to it too, nothing is folded here: `refold` reads everything.
    half_life
        Days after which a reward counts half as much; None: it counts for ever.
    """

    def __init__(self, store: EventStore, half_life: float | None) -> None:
        self._store, self._half_life = store, half_life
        self._sums, self._events = ItemSums(half_life), 0
        self._fresh: deque[tuple[AnyArray, int]] = deque()
        self.waiting = 0
        """How many events came since the last edition."""
        self.sample: dict[User, int] = {}
        self._below = 1 << 64
        self._key = blake2b(store.identities.secret, digest_size=16, person=b"crowd").digest()
        self._lock, self.publishing, self.moving = Lock(), RLock(), RLock()
        self._epoch = store.identities.epoch
        self.number = 0
        """Of the latest edition that was made of these sums, or that the store has."""

    def refold(self) -> None:
        """Add up everything once more, from the events in the store."""
        sums, count = ItemSums(self._half_life), 0
        with self._lock:
            self._fresh.clear()
            self.waiting, self._epoch = 0, self._store.identities.epoch
        for events in read_chunks(self._store):
            sums.add(events)
            count += int(of_decisions(events).sum())
        with self._lock:
            self._sums, self._events, self.sample, self._below = sums, count, {}, 1 << 64
        for user in everyone(self._store):
            self._notice(user)

    def fold(self, users: Sequence[User], events: AnyArray) -> None:
        """Take in rewards that were recorded, each a user's."""
        taught = of_decisions(events)
        if not taught.any():
            return
        for user, counts in zip(users, taught.tolist(), strict=True):
            if counts:
                self._notice(user)
        self._add(events, 1)

    def forget(self, user: User, events: AnyArray) -> None:
        """Subtract all that a user taught; hold `moving` from before they are erased."""
        with self._lock:
            self.sample.pop(user, None)
        self._add(events, -1)
        self._epoch = self._store.identities.epoch

    def merged(self, source: User, target: User) -> None:
        """Take note that one user's events are another's now; hold `moving` from before they are."""
        with self._lock:
            self.sample.pop(source, None)
        self._notice(target)
        self._epoch = self._store.identities.epoch

    def _add(self, events: AnyArray, sign: int) -> None:
        with self._lock:
            self.waiting += len(events)
            if self._store.shared:  # the next scan finds them: folded here as well they would count twice
                return
            self._fresh.append((events, sign))
            if len(self._fresh) >= _WAITING or sign < 0:
                self._fold_fresh()

    def _fold_fresh(self) -> None:
        while self._fresh:
            sign = self._fresh[0][1]
            pieces = []
            while self._fresh and self._fresh[0][1] == sign:
                pieces.append(self._fresh.popleft()[0].tobytes())
            events = np.frombuffer(b"".join(pieces), dtype=EVENT)
            self._sums.add(events, sign)
            self._events += sign * int(of_decisions(events).sum())

    def _notice(self, user: User) -> None:
        """Let a user be one of the sample if their hash is among the lowest: the same users, in whatever order."""
        drawn = int.from_bytes(blake2b(spelled(user), key=self._key, digest_size=8).digest(), "little")
        if drawn >= self._below or user in self.sample:
            return
        with self._lock:
            self.sample[user] = drawn
            if len(self.sample) > 2 * SAMPLE:
                self._below = sorted(self.sample.values())[SAMPLE]
                self.sample = {user: drawn for user, drawn in self.sample.items() if drawn < self._below}

    @property
    def sums(self) -> ItemSums:
        """A copy of the sums."""
        with self._lock:
            self._fold_fresh()
            return self._sums.copy()

    def take(self) -> Folded:
        """Return all that came so far, for an edition: nothing waits any more."""
        with self.moving:  # nobody is half erased
            if self._store.shared or self._store.identities.epoch != self._epoch:
                self.refold()  # others write too, or erased somebody
            with self._lock:
                self._fold_fresh()
                if not self._store.shared:  # else what came during the scan may have come too late for it
                    self.waiting = 0
                sample = sorted(self.sample.items(), key=lambda one: one[1])[:SAMPLE]
                return Folded(self._sums.copy(), [user for user, _ in sample], self._epoch, self._events)
