"""`ItemCounts`: how often every item was shown and what it earned, updated with every event."""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from treeward.core.progress import Progress, Stage
from treeward.core.types import AnyArray
from treeward.explorer.runtime import Runtime
from treeward.store.base import EventStore, join, read_chunks
from treeward.store.events import NOTED, REWARD, SHOWN

_MOST_WAITING = 4096


class ItemCounts:
    """Counts by the store's item numbers. Adding is cheap: events are counted when the counts are read."""

    def __init__(self, runtime: Runtime) -> None:
        self._shown = np.zeros(0, dtype=np.int64)
        self._earned = np.zeros(0, dtype=np.float64)
        self.rewards = 0
        """Rewards that were added since the store was counted ..."""
        self.earned = 0.0
        """... and their sum, with changes to earlier rewards; forgetting a user subtracts nothing."""
        self._covered = 0
        self._waiting: deque[tuple[AnyArray, int]] = deque()
        self._lock = runtime.lock()

    def add(self, events: AnyArray, sign: int = 1) -> None:
        """Count events or, with a sign of -1, subtract them."""
        self._waiting.append((events, sign))
        if len(self._waiting) >= _MOST_WAITING:
            self._count_waiting()

    def add_all(self, store: EventStore, progress: Progress) -> None:
        """Count all events of a store, while no others are added."""
        stage = Stage(progress, "counting events", 1)
        for events in read_chunks(store):
            self._count(events, 1)
        stage.step()
        self.rewards, self.earned = 0, 0.0

    def read(self, numbers: AnyArray) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return how often items were shown, and the sum of their rewards."""
        self._count_waiting()
        with self._lock:
            self._grow(int(numbers.max(initial=-1)) + 1)
            return self._shown[numbers], self._earned[numbers]

    def covered(self) -> int:
        """Return how many different items were shown, without looking at all of them."""
        self._count_waiting()
        return self._covered

    def reaching(self, amount: float) -> int:
        """Return how many items have rewards that add up to an amount."""
        self._count_waiting()
        with self._lock:
            return int(np.count_nonzero(self._earned >= amount))

    def _grow(self, size: int) -> None:
        if size > len(self._shown):
            more = max(size, len(self._shown) + len(self._shown) // 8) - len(self._shown)
            self._shown, self._earned = np.pad(self._shown, (0, more)), np.pad(self._earned, (0, more))

    def _count_waiting(self) -> None:
        with self._lock:
            waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
            for sign in (1, -1):
                self._count(join([events for events, its in waiting if its == sign]), sign)

    def _count(self, events: AnyArray, sign: int) -> None:
        numbers, shown, reward = events["item"], events["kind"] == SHOWN, events["reward"]
        self._grow(int(numbers.max(initial=-1)) + 1)
        items = np.unique(numbers[shown])
        before = np.count_nonzero(self._shown[items] > 0)
        np.add.at(self._shown, numbers[shown], sign)
        self._covered += int(np.count_nonzero(self._shown[items] > 0) - before)
        np.add.at(self._earned, numbers[~shown], sign * reward[~shown])
        if sign > 0:
            self.rewards += int(np.isin(events["kind"], (REWARD, NOTED)).sum())
            self.earned += float(reward[~shown].sum())
