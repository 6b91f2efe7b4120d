"""What every item was shown and earned: counts of the events, kept up as they come."""

from collections import deque
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from treeward.core.progress import Progress, Stage
from treeward.core.types import AnyArray, Integers
from treeward.store.base import EventStore, read_chunks
from treeward.store.events import EVENT, NOTED, REWARD, SHOWN

_TOGETHER = 4096
"""So many pieces are counted at a time, and wait at most."""


class Tally:
    """Counts by the store's item numbers. Adding is cheap; counting waits until somebody looks."""

    def __init__(self) -> None:
        self._shown = np.zeros(0, dtype=np.int64)
        self._earned = np.zeros(0, dtype=np.float64)
        self.rewards = 0
        """Rewards that were added since the store was counted ..."""
        self.gained = 0.0
        """... and what they and their changes come to; nothing is taken off when somebody is forgotten."""
        self._fresh: deque[tuple[AnyArray, int]] = deque()
        self._lock = Lock()

    def add(self, events: AnyArray, sign: int = 1) -> None:
        """Count events, or, with a sign of -1, count them no more."""
        self._fresh.append((events, sign))
        if len(self._fresh) >= _TOGETHER:
            self._fold()

    def add_all(self, store: EventStore, progress: Progress) -> None:
        """Count all that a store holds; nobody may add to it meanwhile."""
        stage = Stage(progress, "counting what was shown", 1)
        for events in read_chunks(store):
            self._count(events, 1)
        stage.step()
        self.rewards, self.gained = 0, 0.0

    def look(self, numbers: AnyArray) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return how often items were shown, and what they earned."""
        self._fold()
        with self._lock:
            self._widen(int(numbers.max(initial=-1)) + 1)
            return self._shown[numbers], self._earned[numbers]

    def ever(self) -> int:
        """Return how many items were ever shown."""
        self._fold()
        return int(np.count_nonzero(self._shown))

    def _widen(self, size: int) -> None:
        if size > len(self._shown):
            more = max(size, len(self._shown) + len(self._shown) // 8) - len(self._shown)
            self._shown, self._earned = np.pad(self._shown, (0, more)), np.pad(self._earned, (0, more))

    def _fold(self) -> None:
        with self._lock:
            pieces = [self._fresh.popleft() for _ in range(len(self._fresh))]
            for sign in (1, -1):
                packed = b"".join(events.tobytes() for events, its in pieces if its == sign)
                self._count(np.frombuffer(packed, dtype=EVENT), sign)

    def _count(self, events: AnyArray, sign: int) -> None:
        numbers, shown, reward = events["item"], events["kind"] == SHOWN, events["reward"]
        self._widen(int(numbers.max(initial=-1)) + 1)
        np.add.at(self._shown, numbers[shown], sign)
        np.add.at(self._earned, numbers[~shown], sign * reward[~shown])
        if sign > 0:
            self.rewards += int(np.isin(events["kind"], (REWARD, NOTED)).sum())
            self.gained += float(reward[~shown].sum())


def sums(values: NDArray[np.int64] | NDArray[np.float64], ranges: Integers) -> AnyArray:
    """Return the sums of slices first:last of values, one a row of `ranges`; no slice is empty."""
    upto = np.concatenate([np.zeros(1, dtype=values.dtype), np.cumsum(values)])
    found: AnyArray = upto[ranges[:, 1]] - upto[ranges[:, 0]]
    return found
