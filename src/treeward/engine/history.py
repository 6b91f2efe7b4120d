"""A user's rewarded events by place: sorted places, with the rewards.

The items of a node are a slice of places, so two binary searches find the visits and rewards of any node or item. A
node that becomes visible later therefore inherits the history of its items.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.compiled import inner
from treeward.core.lazy_memory import lazy_zeros
from treeward.engine.ragged import Lists, first_at


class History(NamedTuple):
    """Histories of many users."""

    places: Lists
    """Sorted."""
    rewards: NDArray[np.float64]
    """Parallel to the places."""

    @classmethod
    def empty(cls, seats: int, events: int) -> "History":
        """Return histories with room for `events` events per seat."""
        return cls(Lists.empty(seats, events), lazy_zeros((seats * events,), np.float64))


@inner(sums=True)
def tally(history: History, seat: int, first: int, last: int) -> tuple[int, float]:
    """Return the visits and the total reward of the places first:last."""
    start, count = history.places.start[seat], history.places.length[seat]
    places, rewards = history.places.values[start : start + count], history.rewards[start : start + count]
    low, high = first_at(places, count, first), first_at(places, count, last)
    total = 0.0
    for i in range(low, high):
        total += rewards[i]
    return high - low, total


@inner
def record(history: History, seat: int, place: int, reward: float) -> None:
    """Add an event. There must be room."""
    start, count = history.places.start[seat], history.places.length[seat]
    places, rewards = history.places.values[start : start + count + 1], history.rewards[start : start + count + 1]
    at = first_at(places, count, place + 1)
    for i in range(count, at, -1):
        places[i] = places[i - 1]
    for i in range(count, at, -1):
        rewards[i] = rewards[i - 1]
    places[at] = place
    rewards[at] = reward
    history.places.length[seat] = count + 1


@inner
def amend(history: History, seat: int, place: int, change: float) -> None:
    """Change the reward of an event at a place; do nothing if there is none."""
    start, count = history.places.start[seat], history.places.length[seat]
    places, rewards = history.places.values[start : start + count], history.rewards[start : start + count]
    at = first_at(places, count, place)
    if at < count and places[at] == place:
        rewards[at] += change
