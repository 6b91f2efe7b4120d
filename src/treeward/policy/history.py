"""What a user did, by place: sorted places of their events in leaf order, with running sums of the rewards.

A node's items are a slice of places, so the visits and rewards of any node, or of any item, are two binary searches; a
node that becomes visible later has inherited what was learned about its items before.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.compiled import kernel
from treeward.core.types import Integers


class History(NamedTuple):
    """Histories of many users: the first axis is the seat."""

    places: Integers
    """(seats, events): sorted."""
    sums: NDArray[np.float64]
    """(seats, events + 1): rewards of the events before each."""
    length: NDArray[np.int64]
    """(seats,)."""

    @classmethod
    def empty(cls, seats: int, events: int) -> "History":
        """Return room for `events` events in each of `seats` seats."""
        return cls(
            np.zeros((seats, events), dtype=np.int32), np.zeros((seats, events + 1)), np.zeros(seats, dtype=np.int64)
        )


@kernel
def first_at(places: Integers, count: int, place: int) -> int:
    """Return how many of the first `count` sorted places are below `place`."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if places[middle] < place:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def tally(history: History, seat: int, first: int, last: int) -> tuple[int, float]:
    """Return the visits and the summed reward of the places first:last."""
    count = history.length[seat]
    low = first_at(history.places[seat], count, first)
    high = first_at(history.places[seat], count, last)
    return high - low, history.sums[seat, high] - history.sums[seat, low]


@kernel
def record(history: History, seat: int, place: int, reward: float) -> None:
    """Add an event."""
    count = history.length[seat]
    places, sums = history.places[seat], history.sums[seat]
    at = first_at(places, count, place + 1)
    for i in range(count, at, -1):
        places[i] = places[i - 1]
        sums[i + 1] = sums[i] + reward
    places[at] = place
    sums[at + 1] = sums[at] + reward
    history.length[seat] = count + 1


@kernel
def open_place(closed: Integers, count: int, first: int, rank: int) -> int:
    """Return the place of the `rank`-th one from `first` on that is not among the sorted, distinct `closed` places."""
    start = first_at(closed, count, first)
    # closed[start + k] - k never falls with k: count those that lie at or before the answer.
    low, high = 0, count - start
    while low < high:
        middle = (low + high) // 2
        if closed[start + middle] - middle <= first + rank:
            low = middle + 1
        else:
            high = middle
    return first + rank + low
