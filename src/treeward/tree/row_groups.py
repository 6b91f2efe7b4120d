"""Item vectors as the tree sees them: read piece by piece, normalised on the way; and grouping of rows by label."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.compiled import kernel
from treeward.core.types import Floats, Integers

BLOCK_ROWS = 1 << 14


class Rows(NamedTuple):
    """A matrix, perhaps memory-mapped, whose rows are l2-normalised when they are taken (a zero row stays zero)."""

    matrix: Floats
    normalize: bool
    shift: NDArray[np.float64] | None = None
    """Subtracted from each row that is taken."""
    scale: float = 1.0
    """By which it is then divided."""

    def conditioned(self) -> "Rows":
        """Return the same rows moved to the origin and to size 1, where float32 is most exact; unit rows are fine."""
        if self.normalize:
            return self
        total, low, high = np.zeros(self.matrix.shape[1]), np.inf, -np.inf
        for start in range(0, len(self.matrix), BLOCK_ROWS):
            block = self.matrix[start : start + BLOCK_ROWS]
            total += block.sum(axis=0, dtype=np.float64)
            low, high = min(low, float(block.min())), max(high, float(block.max()))
        return self._replace(shift=total / len(self.matrix), scale=(high - low) or 1.0)

    def take(self, which: slice | NDArray[np.integer]) -> Floats:
        """Return a fresh copy of some rows."""
        taken = np.array(self.matrix[which])
        if self.shift is not None:
            return ((taken - self.shift) / self.scale).astype(np.float32)
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
def add(points: Floats, labels: NDArray[np.int64], sums: NDArray[np.float64]) -> None:
    """Add every point to the sum of its label."""
    for i in range(len(labels)):
        for j in range(points.shape[1]):
            sums[labels[i], j] += points[i, j]


def mean_of(rows: Rows, groups: Groups, first: int, last: int, out: Floats) -> None:
    """Write the mean vectors of the labels first:last to the same rows of `out`; an empty label's row is left alone."""
    sums, sizes = np.zeros((last - first, out.shape[1])), groups.sizes[first:last]
    order = groups.order[groups.start[first] : groups.start[last]]
    labels = np.repeat(np.arange(last - first), sizes)
    for start in range(0, len(order), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        add(rows.take(order[block]), labels[block], sums)
    filled = np.flatnonzero(sizes)
    out[first + filled] = sums[filled] / sizes[filled, None]
