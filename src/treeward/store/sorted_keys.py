"""`SortedKeys`: texts in order, of which millions may be added one at a time."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

_LONGEST = 1_000


class SortedKeys:
    """A sorted list in short parts: adding and removing move the keys of one part, whatever the number of keys.

    Examples
    --------
    >>> keys = SortedKeys(["b", "d"])
    >>> keys.add("c")
    >>> keys.remove("d")
    >>> list(keys.since("b")), list(keys.since("bb"))
    (['b', 'c'], ['c'])
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        every, half = sorted(keys), _LONGEST // 2
        self._parts = [every[first : first + half] for first in range(0, len(every), half)]
        self._firsts = [part[0] for part in self._parts]

    def add(self, key: str) -> None:
        """Add a key that is not there yet."""
        if not self._parts:
            self._parts, self._firsts = [[key]], [key]
            return
        at = max(0, bisect_right(self._firsts, key) - 1)
        part = self._parts[at]
        insort(part, key)
        self._firsts[at] = part[0]
        if len(part) > _LONGEST:
            half = len(part) // 2
            self._parts[at : at + 1] = part[:half], part[half:]
            self._firsts[at : at + 1] = part[0], part[half]

    def remove(self, key: str) -> None:
        """Remove a key that is there."""
        at = bisect_right(self._firsts, key) - 1
        part = self._parts[at]
        del part[bisect_left(part, key)]
        if part:
            self._firsts[at] = part[0]
        else:
            del self._parts[at], self._firsts[at]

    def since(self, key: str) -> Iterator[str]:
        """Return the keys from this one on."""
        at = max(0, bisect_right(self._firsts, key) - 1)
        for number in range(at, len(self._parts)):
            part = self._parts[number]
            yield from part[bisect_left(part, key) :] if number == at else part
