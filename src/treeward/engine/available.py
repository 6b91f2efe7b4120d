"""Which items may be shown: those open to all users of a call, without those closed to one user."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.compiled import inner, whole
from treeward.core.types import Integers
from treeward.engine.ragged import first_at, insert

_BLOCK_BITS = 6
_IN_BLOCK = (1 << _BLOCK_BITS) - 1
_MARKS = 64
_LAST_MARK = (_MARKS << 6) - 1


class Flags(NamedTuple):
    """Which places are open, and how many before each block of 64, so that any slice is counted quickly."""

    open: NDArray[np.bool_]
    """(places,). Empty: every place is open."""
    before: NDArray[np.int64]
    """(blocks + 1,): open places before each block."""
    bits: NDArray[np.int64]
    """(blocks,): the flags of each block as bits, the first place in the lowest: a block is counted at once."""

    @classmethod
    def none(cls) -> "Flags":
        """Return flags under which every place is open."""
        return cls(np.zeros(0, dtype=np.bool_), np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64))

    @classmethod
    def of(cls, places: NDArray[np.bool_]) -> "Flags":
        """Return the flags of some places. Change them by `flip` only."""
        blocks = (len(places) >> _BLOCK_BITS) + 1
        padded = np.zeros(blocks << _BLOCK_BITS, dtype=np.bool_)
        padded[: len(places)] = places
        counts = np.count_nonzero(padded.reshape(blocks, -1), axis=1)
        before = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return cls(padded[: len(places)], before, np.packbits(padded, bitorder="little").view("<i8").astype(np.int64))


@inner
def flip(flags: Flags, place: int, value: bool) -> None:
    """Open or close a place."""
    if flags.open[place] != value:
        flags.open[place] = value
        flags.bits[place >> _BLOCK_BITS] ^= 1 << (place & _IN_BLOCK)
        more = 1 if value else -1
        for block in range((place >> _BLOCK_BITS) + 1, len(flags.before)):
            flags.before[block] += more


@inner
def _upto(flags: Flags, place: int) -> int:
    """Return how many places before `place` are open."""
    block = place >> _BLOCK_BITS
    count: int = flags.before[block] + _ones(flags.bits[block] & ~(-1 << (place & _IN_BLOCK)))
    return count


@inner
def _ones(bits: int) -> int:
    """Return how many bits of 64 are set, by sums of neighbours: a processor does it in one step."""
    bits -= (bits >> 1) & 0x5555555555555555
    bits = (bits & 0x3333333333333333) + ((bits >> 2) & 0x3333333333333333)
    bits = (bits + (bits >> 4)) & 0x0F0F0F0F0F0F0F0F
    bits += bits >> 8
    bits += bits >> 16
    return (bits + (bits >> 32)) & 0x7F


@inner
def flagged(flags: Flags, place: int) -> bool:
    """Return whether a place is open, where not every place is."""
    bits: int = flags.bits[place >> _BLOCK_BITS] >> (place & _IN_BLOCK)
    return bits & 1 != 0


class Screen(NamedTuple):
    """The places that one user may be shown. Lists of places are sorted and distinct."""

    named: Integers
    """If `only`: the places that are open to all users of the call."""
    only: bool
    flags: Flags
    """Otherwise: the places that are open to all."""
    mine: Integers
    """Places that are open to all and closed to this user; there is room for more."""
    closed: NDArray[np.int64]
    """(1,): how many of them there are."""
    marks: NDArray[np.int64]
    """A bit for each of them, by its lowest digits. Most places have an unset bit, and so need not be looked for."""

    @classmethod
    def open(cls, room: int = 0) -> "Screen":
        """Return a screen under which everything is open, with room for `room` places to close."""
        return cls.of(np.zeros(0, dtype=np.int32), False, Flags.none(), room)

    @classmethod
    def of(cls, named: Integers, only: bool, flags: Flags, room: int) -> "Screen":
        """Return a screen on which nothing is closed to the user yet, with room for `room` places to close."""
        marks = np.zeros(_MARKS, dtype=np.int64)
        return cls(named, only, flags, np.zeros(room, dtype=np.int32), np.zeros(1, dtype=np.int64), marks)


@inner
def clear(screen: Screen) -> bool:
    """Return whether everything is open."""
    return not screen.only and len(screen.flags.open) == 0 and screen.closed[0] == 0


@inner
def _offered(screen: Screen, place: int) -> bool:
    """Return whether a place is open to all users of the call."""
    if screen.only:
        at = first_at(screen.named, len(screen.named), place)
        return at < len(screen.named) and screen.named[at] == place
    return len(screen.flags.open) == 0 or flagged(screen.flags, place)


@inner
def begin_screen(screen: Screen) -> None:
    """Close nothing to the user any more, so that the screen can serve the next user."""
    screen.closed[0] = 0
    for word in range(len(screen.marks)):
        screen.marks[word] = 0


@inner
def _mark(screen: Screen, place: int) -> None:
    screen.marks[(place & _LAST_MARK) >> 6] |= whole(1) << (place & 63)


@inner
def shut(screen: Screen, place: int) -> None:
    """Close a place to the user."""
    if _offered(screen, place):
        screen.closed[0] = insert(screen.mine, screen.closed[0], place)
        _mark(screen, place)


@inner
def shut_all(screen: Screen, places: Integers, first: int, last: int) -> None:
    """Close the places first:last of a sorted list to a user who has no closed place yet."""
    count = whole(0)
    for j in range(first, last):
        screen.mine[count] = places[j]
        _mark(screen, whole(places[j]))
        count += _offered(screen, places[j])
    screen.closed[0] = count


@inner
def is_open(screen: Screen, place: int) -> bool:
    """Return whether a place is open to the user."""
    if (screen.marks[(place & _LAST_MARK) >> 6] >> (place & 63)) & 1 != 0:
        at = first_at(screen.mine, screen.closed[0], place)
        if at < screen.closed[0] and screen.mine[at] == place:
            return False
    return _offered(screen, place)


@inner
def offered(screen: Screen, begin: int, end: int) -> int:
    """Return how many of the places begin:end are open to all users of the call."""
    if screen.only:
        size = len(screen.named)
        return first_at(screen.named, size, end) - first_at(screen.named, size, begin)
    if len(screen.flags.open) == 0:
        return end - begin
    return _upto(screen.flags, end) - _upto(screen.flags, begin)


@inner
def closed_between(screen: Screen, begin: int, end: int) -> tuple[int, int]:
    """Return where in `Screen.mine` the places begin:end start and stop."""
    count = screen.closed[0]
    return first_at(screen.mine, count, begin), first_at(screen.mine, count, end)


@inner
def left(screen: Screen, begin: int, end: int) -> int:
    """Return how many of the places begin:end are open."""
    first, last = closed_between(screen, begin, end)
    return offered(screen, begin, end) - (last - first)


@inner
def opened(screen: Screen, begin: int, end: int, out: NDArray[np.int64]) -> int:
    """Write all open places of begin:end, in order, and return how many."""
    at, mine = first_at(screen.named, len(screen.named), begin), first_at(screen.mine, screen.closed[0], begin)
    count, flagged = 0, len(screen.flags.open) > 0
    for place in range(begin, end):
        named = at < len(screen.named) and screen.named[at] == place
        shut_off = mine < screen.closed[0] and screen.mine[mine] == place
        at, mine = at + named, mine + shut_off
        if (named if screen.only else not flagged or screen.flags.open[place]) and not shut_off:
            out[count] = place
            count += 1
    return count


@inner
def nth(screen: Screen, begin: int, end: int, rank: int) -> int:
    """Return the `rank`-th open place of begin:end, counted from 0; there must be so many."""
    if screen.only:  # the first named place up to which rank + 1 are open
        size = len(screen.named)
        low, high = first_at(screen.named, size, begin), first_at(screen.named, size, end) - 1
        while low < high:
            middle = (low + high) // 2
            if left(screen, begin, screen.named[middle] + 1) > rank:
                high = middle
            else:
                low = middle + 1
        return int(screen.named[low])
    if len(screen.flags.open) == 0:
        return _skip(screen.mine, screen.closed[0], begin, rank)
    low, high = begin, end - 1
    while low < high:
        middle = (low + high) // 2
        if left(screen, begin, middle + 1) > rank:
            high = middle
        else:
            low = middle + 1
    return low


@inner
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
