"""What a user did, by place: sorted places of their events in leaf order, with running sums of the rewards.

A node's items are a slice of places, so the visits and rewards of any node, or of any item, are two binary searches; a
node that becomes visible later has inherited what was learned about its items before.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.compiled import tight
from treeward.policy.lists import Lists, first_at


class History(NamedTuple):
    """Histories of many users."""

    places: Lists
    """Sorted."""
    sums: NDArray[np.float64]
    """Laid out like the places: rewards of the events up to and with each."""

    @classmethod
    def empty(cls, seats: int, events: int) -> "History":
        """Return room for `events` events in each of `seats` seats."""
        return cls(Lists.empty(seats, events), np.zeros(seats * events))


@tight
def tally(history: History, seat: int, first: int, last: int) -> tuple[int, float]:
    """Return the visits and the summed reward of the places first:last."""
    start, count = history.places.start[seat], history.places.length[seat]
    places, sums = history.places.values[start : start + count], history.sums[start : start + count]
    low, high = first_at(places, count, first), first_at(places, count, last)
    if high == low:
        return 0, 0.0
    return high - low, sums[high - 1] - (sums[low - 1] if low > 0 else 0.0)


@tight
def record(history: History, seat: int, place: int, reward: float) -> None:
    """Add an event; there must be room."""
    start, count = history.places.start[seat], history.places.length[seat]
    places, sums = history.places.values[start : start + count + 1], history.sums[start : start + count + 1]
    at = first_at(places, count, place + 1)
    for i in range(count, at, -1):
        places[i] = places[i - 1]
        sums[i] = sums[i - 1] + reward
    places[at] = place
    sums[at] = (sums[at - 1] if at > 0 else 0.0) + reward
    history.places.length[seat] = count + 1


@tight
def amend(history: History, seat: int, place: int, change: float) -> None:
    """Change the reward of an event on a place; nothing if there was none."""
    start, count = history.places.start[seat], history.places.length[seat]
    places, sums = history.places.values[start : start + count], history.sums[start : start + count]
    at = first_at(places, count, place)
    if at < count and places[at] == place:
        for i in range(at, count):
            sums[i] += change
