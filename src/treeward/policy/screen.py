"""Which items may be shown now: a filter shared by a call, less what is closed to one user."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.compiled import tight
from treeward.core.types import Integers
from treeward.policy.lists import first_at, insert


class Screen(NamedTuple):
    """Places in leaf order that are open or closed; lists are sorted and distinct."""

    base: Integers
    """Places the filter names."""
    only: bool
    """Only the places in `base` are open; otherwise they are closed."""
    mine: Integers
    """Room for places closed besides, all of which `base` leaves open ..."""
    closed: NDArray[np.int64]
    """... and, in its one element, how many there are."""

    @classmethod
    def open(cls, room: int = 0) -> "Screen":
        """Return a screen that lets everything through, with room for `room` places to close."""
        return cls(np.zeros(0, dtype=np.int32), False, np.zeros(room, dtype=np.int32), np.zeros(1, dtype=np.int64))


@tight
def clear(screen: Screen) -> bool:
    """Tell whether everything is open."""
    return not screen.only and len(screen.base) == 0 and screen.closed[0] == 0


@tight
def shut(screen: Screen, place: int) -> None:
    """Close one more place."""
    at = first_at(screen.base, len(screen.base), place)
    named = at < len(screen.base) and screen.base[at] == place
    if named == screen.only:
        screen.closed[0] = insert(screen.mine, screen.closed[0], place)


@tight
def is_open(screen: Screen, place: int) -> bool:
    """Tell whether a place is open."""
    at = first_at(screen.mine, screen.closed[0], place)
    if at < screen.closed[0] and screen.mine[at] == place:
        return False
    at = first_at(screen.base, len(screen.base), place)
    return (at < len(screen.base) and screen.base[at] == place) == screen.only


@tight
def left(screen: Screen, begin: int, end: int) -> int:
    """Return how many of the places begin:end are open."""
    size, count = len(screen.base), screen.closed[0]
    named = first_at(screen.base, size, end) - first_at(screen.base, size, begin)
    mine = first_at(screen.mine, count, end) - first_at(screen.mine, count, begin)
    return (named if screen.only else end - begin - named) - mine


@tight
def opened(screen: Screen, begin: int, end: int, out: NDArray[np.int64]) -> int:
    """Write all open places of begin:end, in order, and return how many."""
    at, mine = first_at(screen.base, len(screen.base), begin), first_at(screen.mine, screen.closed[0], begin)
    count = 0
    for place in range(begin, end):
        named = at < len(screen.base) and screen.base[at] == place
        shut_off = mine < screen.closed[0] and screen.mine[mine] == place
        at, mine = at + named, mine + shut_off
        if named == screen.only and not shut_off:
            out[count] = place
            count += 1
    return count


@tight
def nth(screen: Screen, begin: int, end: int, rank: int) -> int:
    """Return the `rank`-th open place of begin:end, counted from 0; there must be so many."""
    if screen.only:  # the first named place up to which rank + 1 are open
        size = len(screen.base)
        low, high = first_at(screen.base, size, begin), first_at(screen.base, size, end) - 1
        while low < high:
            middle = (low + high) // 2
            if left(screen, begin, screen.base[middle] + 1) > rank:
                high = middle
            else:
                low = middle + 1
        return int(screen.base[low])
    if screen.closed[0] == 0:
        return _skip(screen.base, len(screen.base), begin, rank)
    if len(screen.base) == 0:
        return _skip(screen.mine, screen.closed[0], begin, rank)
    low, high = begin, end - 1
    while low < high:
        middle = (low + high) // 2
        if left(screen, begin, middle + 1) > rank:
            high = middle
        else:
            low = middle + 1
    return low


@tight
def _skip(closed: Integers, count: int, first: int, rank: int) -> int:
    """Return the place of the `rank`-th one from `first` on that is not among the closed ones."""
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
