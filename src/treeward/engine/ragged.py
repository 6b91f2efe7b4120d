"""Ragged arrays: one list per seat, of different lengths, in one array that kernels can take."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.compiled import inner, kernel
from treeward.core.lazy_memory import lazy_zeros
from treeward.core.types import AnyArray, Integers

LEAST = 8


class Lists(NamedTuple):
    """The list of seat s is ``values[start[s] : start[s] + length[s]]``. It can grow to ``capacity[s]``."""

    values: Integers
    start: NDArray[np.int64]
    capacity: NDArray[np.int64]
    length: NDArray[np.int64]
    taken: NDArray[np.int64]
    """(2,): where the room of the last list ends, and how many lists never had any. Counting them would take long."""
    first: int
    """How much room a list gets when it is cleared for the first time."""

    @classmethod
    def empty(cls, seats: int, room: int) -> "Lists":
        """Return lists that get room for `room` values each in `clear`.

        Nothing is written before, so unused seats cost nothing.
        """
        start, capacity, length = (lazy_zeros((seats,), np.int64) for _ in range(3))
        return cls(lazy_zeros((seats * room,), np.int32), start, capacity, length, np.array([0, seats]), room)

    def clear(self, seats: NDArray[np.int64]) -> None:
        """Empty the lists of seats."""
        self.length[seats] = 0
        new = seats[self.capacity[seats] == 0]
        if len(new) and self.first:
            self.start[new] = self.taken[0] + self.first * np.arange(len(new))
            self.capacity[new] = self.first
            self.taken[:] += self.first * len(new), -len(new)

    def of(self, seat: int) -> Integers:
        """Return a seat's list, as a view."""
        return self.values[self.start[seat] : self.start[seat] + self.length[seat]]


def widened(
    lists: Lists, seat: int, need: int, *parallel: AnyArray, least: int = LEAST
) -> tuple[Lists, list[AnyArray]]:
    """Return the lists with room for `need` values in a seat. Arrays `parallel` to the values move with them.

    Every list keeps room for `least` values, which a new user may need. The seat's list moves to the end of the array;
    when that is full, all lists move to a new one, without gaps.
    """
    if lists.capacity[seat] >= need:
        return lists, list(parallel)
    room = max(least, 1 << (need - 1).bit_length())
    top, unused = lists.taken.tolist()
    unused -= int(lists.capacity[seat] == 0)
    if top + room + unused * lists.first <= len(lists.values):
        old, count = int(lists.start[seat]), int(lists.length[seat])
        for array in (lists.values, *parallel):
            array[top : top + count] = array[old : old + count]
        lists.start[seat], lists.capacity[seat], lists.taken[:] = top, room, (top + room, unused)
        return lists, list(parallel)
    # Lists shrink to what they need: otherwise one long list would, in time, cost every seat its length.
    # Nothing is written for seats beyond the last one that was ever used: there may be millions of them.
    used = max(seat, int(np.flatnonzero(lists.capacity)[-1:].sum())) + 1
    start, capacity, length = lists.start[:used], lists.capacity[:used], lists.length[:used]
    rooms = np.where(capacity > 0, np.maximum(least, np.minimum(capacity, 2 * length)), 0)
    rooms[seat] = room
    starts = np.cumsum(rooms) - rooms
    top = int(rooms.sum())
    moved: list[AnyArray] = []
    for array in (lists.values, *parallel):
        moved.append(lazy_zeros((top + top + unused * lists.first,), array.dtype))
        _move(array, start, length, moved[-1], starts)
    start[:], capacity[:], lists.taken[:] = starts, rooms, (top, unused)
    return lists._replace(values=moved[0]), moved[1:]


@kernel(allocates=False)
def _move(
    old: AnyArray, starts: NDArray[np.int64], lengths: NDArray[np.int64], new: AnyArray, places: NDArray[np.int64]
) -> None:
    for seat in range(len(starts)):
        for i in range(lengths[seat]):
            new[places[seat] + i] = old[starts[seat] + i]


@inner
def first_at(values: Integers, count: int, value: int) -> int:
    """Return how many of the first `count` sorted values are below `value`."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def insert(values: Integers, count: int, value: int) -> int:
    """Insert a value into the first `count` values, which are sorted and distinct. Return the new count."""
    at = first_at(values, count, value)
    if at < count and values[at] == value:
        return count
    for i in range(count, at, -1):
        values[i] = values[i - 1]
    values[at] = value
    return count + 1


@inner
def push(values: Integers, count: int, value: int) -> int:
    """Append a value to the first `count`, dropping the oldest if there is no room. Return the new count.

    A value that is among them already moves to the end.
    """
    at = 0
    while at < count and values[at] != value:
        at += 1
    if at == count:
        if count < len(values):
            values[count] = value
            return count + 1
        at = 0
    for i in range(at, count - 1):
        values[i] = values[i + 1]
    values[count - 1] = value
    return count
