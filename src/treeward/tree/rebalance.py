"""Moving clusters from where two serve one group of rows to where one serves two.

Lloyd's iterations only move centres a little; a cluster that began in the wrong neighbourhood stays there. So the
cluster whose union with a neighbour costs least is taken away, and given to the cluster whose cut gains most, as long
as that lowers the total squared error. Both are Ward's formula: joining (or cutting into) parts of m and n rows with
means u and v changes the error by m n / (m + n) |u - v|^2.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.compiled import inner, kernel, whole
from treeward.core.types import Floats, Integers
from treeward.tree.row_groups import Groups, Rows

_TURNS = 4


class Offers(NamedTuple):
    """Two possible changes of every cluster: a cut in two, or a join with its cheapest neighbour."""

    gain: NDArray[np.float64]
    """(clusters,) how much a cut would lower the error."""
    halves: Floats
    """(clusters, 2, d) the means of the two parts."""
    cost: NDArray[np.float64]
    """(clusters,) how much joining its cheapest neighbour would raise the error."""
    neighbour: NDArray[np.int64]
    """(clusters,) that neighbour."""

    @classmethod
    def blank(cls, count: int, dim: int) -> "Offers":
        """Return room for the offers of `count` clusters."""
        halves = np.empty((count, 2, dim), dtype=np.float32)
        return cls(np.zeros(count), halves, np.zeros(count), np.zeros(count, dtype=np.int64))


@inner
def _farthest(points: Floats, first: int, last: int, place: Floats) -> int:
    best, found = -1.0, first
    for i in range(first, last):
        distance = 0.0
        for j in range(points.shape[1]):
            distance += (points[i, j] - place[j]) ** 2
        if distance > best:
            best, found = distance, i
    return found


@inner
def _two_means(
    points: Floats, first: int, last: int, halves: Floats, sums: NDArray[np.float64], sizes: NDArray[np.int64]
) -> float:
    """Cut rows first:last in two from the centres in `halves`, which is left holding the means; return the gain.

    `sums` (2, d) and `sizes` (2,) are room to work in.
    """
    dim = points.shape[1]
    for _ in range(_TURNS):
        sizes[0] = sizes[1] = 0
        for j in range(dim):
            sums[0, j] = sums[1, j] = 0.0
        for i in range(first, last):
            nearer = 0.0
            for j in range(dim):
                nearer += (points[i, j] - halves[0, j]) ** 2 - (points[i, j] - halves[1, j]) ** 2
            side = 0 if nearer <= 0 else 1
            sizes[side] += 1
            for j in range(dim):
                sums[side, j] += points[i, j]
        if sizes[0] == 0 or sizes[1] == 0:
            return 0.0
        for j in range(dim):
            halves[0, j] = sums[0, j] / sizes[0]
            halves[1, j] = sums[1, j] / sizes[1]
    apart = 0.0
    for j in range(dim):
        apart += (sums[0, j] / sizes[0] - sums[1, j] / sizes[1]) ** 2
    return float(apart * sizes[0] * sizes[1] / (sizes[0] + sizes[1]))


def find_cuts(points: Floats, sizes: NDArray[np.int64]) -> tuple[NDArray[np.float64], Floats]:
    """Return the gain and the halves of a cut of each run of `sizes` consecutive points."""
    gain = np.zeros(len(sizes))
    halves = np.zeros((len(sizes), 2, points.shape[1]), dtype=np.float32)
    _cut_all(points, sizes, gain, halves, np.zeros((2, points.shape[1])), np.zeros(2, dtype=np.int64))
    return gain, halves


@kernel(allocates=False)
def _cut_all(
    points: Floats,
    sizes: NDArray[np.int64],
    gain: NDArray[np.float64],
    halves: Floats,
    sums: NDArray[np.float64],
    parts: NDArray[np.int64],
) -> None:
    first = whole(0)
    for cluster in range(len(sizes)):
        last = first + sizes[cluster]
        if last - first > 1:
            one = _farthest(points, first, last, points[first])
            other = _farthest(points, first, last, points[one])
            for j in range(points.shape[1]):
                halves[cluster, 0, j], halves[cluster, 1, j] = points[one, j], points[other, j]
            gain[cluster] = _two_means(points, first, last, halves[cluster], sums, parts)
        first = last


def look(
    rows: Rows,
    groups: Groups,
    own: Integers,
    candidates: Integers,
    centres: Floats,
    offers: Offers,
    sizes: NDArray[np.int64] | None = None,
) -> None:
    """Write the offers of the clusters `own`; they may join any of the candidates, themselves among them.

    `sizes`: of all clusters, where `groups` knows only some of their rows.
    """
    points = rows.take(np.concatenate([groups.members(cluster) for cluster in own]))
    offers.gain[own], offers.halves[own] = find_cuts(points, groups.sizes[own])
    sizes = groups.sizes if sizes is None else sizes
    mine, theirs = centres[own].astype(np.float64), centres[candidates].astype(np.float64)
    squares = (mine**2).sum(axis=1)[:, None] + (theirs**2).sum(axis=1) - 2 * mine @ theirs.T
    m, n = sizes[own][:, None], sizes[candidates]
    cost = np.maximum(squares, 0) * (m * n / np.maximum(m + n, 1))
    itself = candidates == own[:, None]
    # An empty cluster is free to go and no neighbour to join: only "joining" itself costs it nothing.
    cost[np.where(m > 0, itself | (n == 0), ~itself)] = np.inf
    best = cost.argmin(axis=1)
    offers.cost[own] = cost[np.arange(len(best)), best]
    offers.neighbour[own] = candidates[best]


def rebalance(centres: Floats, owner: Integers, sizes: NDArray[np.int64], offers: Offers) -> int:
    """Move clusters, and the cells that own them, from the cheapest joins to the best cuts while that pays.

    Changes `centres` and `owner` in place and returns how many clusters moved.
    """
    used = np.zeros(len(centres), dtype=np.bool_)
    sources = iter(np.argsort(offers.cost, kind="stable").tolist())
    moved = 0
    for cut in np.argsort(-offers.gain, kind="stable").tolist():
        if used[cut]:
            continue
        used[cut] = True
        # Each cluster takes part in one change at most, so that the offers stay true.
        source = next((s for s in sources if not used[s] and not used[offers.neighbour[s]]), None)
        if source is None or offers.cost[source] >= offers.gain[cut]:
            break
        kept = offers.neighbour[source]
        used[[source, kept]] = True
        share = sizes[source] / max(1, sizes[source] + sizes[kept])
        centres[kept] += np.float32(share) * (centres[source] - centres[kept])
        centres[cut], centres[source] = offers.halves[cut]
        owner[source] = owner[cut]
        moved += 1
    return moved
