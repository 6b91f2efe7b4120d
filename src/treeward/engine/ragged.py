"""Lists of different lengths, one a seat, side by side in one array so that they pass into compiled code."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.compiled import inner, kernel
from treeward.core.types import AnyArray, Integers

LEAST = 8


class Lists(NamedTuple):
    """The list of seat s is ``values[start[s] : start[s] + length[s]]``; it may grow to ``room[s]``."""

    values: Integers
    start: NDArray[np.int64]
    room: NDArray[np.int64]
    length: NDArray[np.int64]

    @classmethod
    def empty(cls, seats: int, room: int) -> "Lists":
        """Return empty lists with room for `room` values each."""
        starts = np.arange(seats, dtype=np.int64) * room
        rooms = np.full(seats, room, dtype=np.int64)
        return cls(np.zeros(seats * room, dtype=np.int32), starts, rooms, np.zeros(seats, dtype=np.int64))

    def of(self, seat: int) -> Integers:
        """Return a seat's list, as a view."""
        return self.values[self.start[seat] : self.start[seat] + self.length[seat]]


def widened(lists: Lists, seat: int, need: int, *beside: AnyArray, least: int = LEAST) -> tuple[Lists, list[AnyArray]]:
    """Return the lists with room for `need` values in a seat; arrays `beside`, laid out alike, move along.

    Every list keeps room for `least`, which is what a newcomer may begin with.
    The seat's list moves to the end; when the array is full, all of them move to a new one, without gaps.
    """
    if lists.room[seat] >= need:
        return lists, list(beside)
    room = max(least, 1 << (need - 1).bit_length())
    top = int((lists.start + lists.room).max())
    if top + room <= len(lists.values):
        old, length = int(lists.start[seat]), int(lists.length[seat])
        for array in (lists.values, *beside):
            array[top : top + length] = array[old : old + length]
        lists.start[seat], lists.room[seat] = top, room
        return lists, list(beside)
    # A list that became short keeps no more room than it needs, or else one long list would cost every seat its length.
    rooms = np.maximum(least, np.minimum(lists.room, 2 * lists.length))
    rooms[seat] = room
    starts = np.concatenate([[0], np.cumsum(rooms)[:-1]])
    size = int(1.5 * rooms.sum()) + room
    moved: list[AnyArray] = []
    for array in (lists.values, *beside):
        moved.append(np.zeros(size, dtype=array.dtype))
        _move(array, lists.start, lists.length, moved[-1], starts)
    return Lists(moved[0], starts, rooms, lists.length), moved[1:]


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
    """Put a value among the first `count` sorted, distinct ones; return how many there are now."""
    at = first_at(values, count, value)
    if at < count and values[at] == value:
        return count
    for i in range(count, at, -1):
        values[i] = values[i - 1]
    values[at] = value
    return count + 1


@inner
def push(values: Integers, count: int, value: int) -> int:
    """Put a value behind the first `count`, the first of which makes way if there is no room; return how many remain.

    One that is among them already moves to the end.
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
