"""`ItemPositions`: where each item is: its row in the catalogue, its place in leaf order, its number in the store."""

import numpy as np
from numpy.typing import NDArray

from treeward.core.types import AnyArray, Integers


class ItemPositions:
    """Maps between rows, places and numbers; grows as items are added.

    Parameters
    ----------
    rows
        The catalogue's rows in leaf order ...
    places
        ... and the place of each.
    numbers
        (rows,): the store's number of each row.
    """

    def __init__(self, rows: Integers, places: Integers, numbers: NDArray[np.int32]) -> None:
        self._rows = len(rows)
        self._places, self._numbers = np.full(len(rows), -1, dtype=np.int32), numbers.copy()
        self._places[rows] = places
        self.row_of_number: NDArray[np.int64] = np.full(int(numbers.max()) + 1, -1, dtype=np.int64)
        """(item numbers,): the catalogue's row of every number; -1 where it has none."""
        self.row_of_number[numbers] = np.arange(len(rows))
        self.place_of_number: Integers = np.full(len(self.row_of_number), -1, dtype=np.int32)
        """(item numbers,): the place of every number; -1 where it has none."""
        self.place_of_number[numbers] = self._places

    def __len__(self) -> int:
        """Return how many rows there are."""
        return self._rows

    @property
    def place_of_row(self) -> Integers:
        """(rows,): the place of every row; -1: the item has a newer row."""
        return self._places[: self._rows]

    @property
    def number_of_row(self) -> NDArray[np.int32]:
        """(rows,): the store's number of every row."""
        return self._numbers[: self._rows]

    def add(self, numbers: NDArray[np.int32], places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add rows for items, which may have had other rows before, and return the rows."""
        first, last = self._rows, self._rows + len(numbers)
        if last > len(self._places):  # twice the size, so that most additions need no copy
            self._places, self._numbers = _grown(self._places, 2 * last), _grown(self._numbers, 2 * last)
        most = int(numbers.max(initial=-1)) + 1
        if most > len(self.row_of_number):
            size = max(most, len(self.row_of_number) + (len(self.row_of_number) >> 3))
            self.row_of_number = _grown(self.row_of_number, size)
            self.place_of_number = _grown(self.place_of_number, size)
        former = self.row_of_number[numbers]
        self._places[former[former >= 0]] = -1
        self._places[first:last], self._numbers[first:last] = places, numbers
        rows = np.arange(first, last)
        self.row_of_number[numbers], self.place_of_number[numbers] = rows, places
        self._rows = last
        return rows

    def rows(self, numbers: AnyArray) -> NDArray[np.int64]:
        """Return the rows of item numbers; -1 for numbers that the catalogue does not have."""
        return _at(self.row_of_number, numbers)

    def places(self, numbers: AnyArray) -> Integers:
        """Return the places of item numbers; -1 for numbers that the catalogue does not have."""
        return _at(self.place_of_number, numbers)


def _at(known: AnyArray, numbers: AnyArray) -> AnyArray:
    # Another catalogue on the same store may have numbered items that are unknown here.
    return np.where(numbers < len(known), known[np.minimum(numbers, len(known) - 1)], known.dtype.type(-1))


def _grown(array: AnyArray, size: int) -> AnyArray:
    """Return an array of this size that begins with another, followed by -1."""
    made = np.full(size, -1, dtype=array.dtype)
    made[: len(array)] = array
    return made
