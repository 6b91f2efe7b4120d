"""Who is where: items' rows in the catalogue, places in the plan, and numbers in the store."""

import numpy as np
from numpy.typing import NDArray

from treeward.core.types import AnyArray, Integers


class Roster:
    """Maps between rows, places and numbers that grow as items come.

    Parameters
    ----------
    rows
        The catalogue's rows in leaf order ...
    places
        ... and the place of each.
    numbers
        (rows,): the store's numbers.
    """

    def __init__(self, rows: Integers, places: Integers, numbers: NDArray[np.int32]) -> None:
        self._rows = len(rows)
        self._place_of, self._numbers = np.full(len(rows), -1, dtype=np.int32), numbers.copy()
        self._place_of[rows] = places
        self.row_of: NDArray[np.int64] = np.full(int(numbers.max()) + 1, -1, dtype=np.int64)
        """(item numbers,): the catalogue's row of every item number of the store; -1 where it has none."""
        self.row_of[numbers] = np.arange(len(rows))
        self.places: Integers = np.full(len(self.row_of), -1, dtype=np.int32)
        """(item numbers,): the place of every item number of the store; -1 where it has none."""
        self.places[numbers] = self._place_of

    @property
    def place_of(self) -> Integers:
        """(rows,): the place of every row; -1: the row's item is in another row now."""
        return self._place_of[: self._rows]

    @property
    def numbers(self) -> NDArray[np.int32]:
        """(rows,): the store's number of every row."""
        return self._numbers[: self._rows]

    def enter(self, numbers: NDArray[np.int32], places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add rows for items, which may have had others before, and return the rows."""
        first, last = self._rows, self._rows + len(numbers)
        self._place_of, self._numbers = _with_room(self._place_of, last), _with_room(self._numbers, last)
        most = int(numbers.max(initial=-1)) + 1
        if most > len(self.row_of):
            self.row_of, self.places = _grown(self.row_of, most), _grown(self.places, most)
        former = self.row_of[numbers]
        self._place_of[former[former >= 0]] = -1
        self._place_of[first:last], self._numbers[first:last] = places, numbers
        rows = np.arange(first, last)
        self.row_of[numbers], self.places[numbers] = rows, places
        self._rows = last
        return rows

    def place_at(self, number: int) -> int:
        """Return the place of an item number; -1 if it has none."""
        return int(self.places[number]) if number < len(self.places) else -1


def _with_room(array: AnyArray, size: int) -> AnyArray:
    """Return an array of at least this size; of twice that if it has to move."""
    if size <= len(array):
        return array
    made = np.zeros(2 * size, dtype=array.dtype)
    made[: len(array)] = array
    return made


def _grown(array: AnyArray, size: int) -> AnyArray:
    """Return the array with -1 up to a size at which it need not grow again soon."""
    made = np.full(max(size, len(array) + (len(array) >> 3)), -1, dtype=array.dtype)
    made[: len(array)] = array
    return made
