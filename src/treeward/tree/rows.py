"""Item vectors as the tree sees them: read piece by piece, normalised on the way; and grouping of rows by label."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.compiled import kernel
from treeward.core.types import Floats, Integers


class Rows(NamedTuple):
    """A matrix, perhaps memory-mapped, whose rows are l2-normalised when they are taken (a zero row stays zero)."""

    matrix: Floats
    normalize: bool

    def take(self, which: slice | NDArray[np.integer]) -> Floats:
        """Return a fresh copy of some rows."""
        taken = np.array(self.matrix[which])
        if self.normalize:
            # float64 so that squares of small or large numbers neither vanish nor overflow
            lengths = np.sqrt(np.einsum("ij,ij->i", taken, taken, dtype=np.float64))
            taken /= np.where(lengths > 0, lengths, 1.0)[:, None]
        return taken


class Groups(NamedTuple):
    """Rows by label: the members of label g are order[start[g]:start[g + 1]], in ascending order."""

    order: Integers
    start: NDArray[np.int64]

    def members(self, label: int) -> Integers:
        """Return the rows that carry `label`."""
        return self.order[self.start[label] : self.start[label + 1]]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of rows of each label."""
        return np.diff(self.start)


@kernel
def _place(labels: Integers, cursor: NDArray[np.int64], order: Integers) -> None:
    for row in range(len(labels)):
        label = labels[row]
        order[cursor[label]] = row
        cursor[label] += 1


def group(labels: Integers, count: int) -> Groups:
    """Sort rows by label in one counting pass.

    Examples
    --------
    >>> groups = group(np.array([1, 0, 1], dtype=np.int32), 2)
    >>> groups.members(1)
    array([0, 2], dtype=int32)
    """
    start = np.concatenate([[0], np.cumsum(np.bincount(labels, minlength=count))]).astype(np.int64)
    order = np.empty(len(labels), dtype=np.int32)
    _place(labels, start[:-1].copy(), order)
    return Groups(order, start)


@kernel
def _mean(points: Floats, sizes: NDArray[np.int64], out: Floats) -> None:
    """Write the mean of each run of `sizes` consecutive points, summed in float64 in the order given."""
    total = np.empty(points.shape[1])
    place = 0
    for i in range(len(sizes)):
        total[:] = 0.0
        for _ in range(sizes[i]):
            for j in range(points.shape[1]):
                total[j] += points[place, j]
            place += 1
        if sizes[i] > 0:
            for j in range(points.shape[1]):
                out[i, j] = total[j] / sizes[i]


def mean_of(rows: Rows, groups: Groups, first: int, last: int, out: Floats) -> None:
    """Write the mean vectors of the labels first:last to the same rows of `out`; an empty label's row is left alone."""
    points = rows.take(groups.order[groups.start[first] : groups.start[last]])
    _mean(points, groups.sizes[first:last], out[first:last])
