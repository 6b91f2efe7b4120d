"""What tasks do to a piece of a sharded catalogue: functions of arrays, each of which fits into one worker.

A piece is a bundle of neighbouring coarse cells: their items' vectors, sorted by cell and number, as the clustering of
`treeward.tree.kmeans` would see them on one machine.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.types import AnyArray, Floats, Integers
from treeward.tree import shard_files
from treeward.tree.kmeans import hashed, lloyd, nearest, sampled, seen_by
from treeward.tree.rebalance import Offers, look
from treeward.tree.row_groups import BLOCK_ROWS, Rows, add, group
from treeward.tree.shard_files import Shard

Counts = NDArray[np.int64]


class Taking(NamedTuple):
    """How vectors are scaled when they are read, as in `Rows`."""

    normalize: bool
    shift: NDArray[np.float64] | None = None
    scale: float = 1.0

    def of(self, vectors: Floats) -> Floats:
        """Return a fresh copy of some vectors, scaled."""
        rows = Rows(vectors, self.normalize, self.shift, self.scale)
        made = np.empty(vectors.shape, dtype=np.float32)
        for start in range(0, len(made), BLOCK_ROWS):
            made[start : start + BLOCK_ROWS] = rows.take(slice(start, start + BLOCK_ROWS))
        return made


def survey(shard: Shard, places: Counts) -> tuple[Floats, AnyArray, AnyArray]:
    """Check a shard; return some of its rows, its digest, and (sums, least, greatest) of its numbers."""
    vectors, digest = shard_files.checked(shard)
    told = np.concatenate([vectors.sum(axis=0, dtype=np.float64), [vectors.min(), vectors.max()]])
    return vectors[places], np.array(digest), told


def scatter(shard: Shard, taking: Taking, coarse: Floats, bundle: Integers, bundles: int) -> tuple[AnyArray, ...]:
    """Send the rows of a shard to the bundles of cells they belong to, as records of number, cell and vector."""
    vectors = taking.of(shard_files.read(shard))
    cell = nearest(vectors, coarse).astype(np.int32)
    sent = group(bundle[cell], bundles)
    made = np.empty(len(cell), dtype=[("row", np.int32), ("cell", np.int32), ("vector", np.float32, shard.dim)])
    made["row"] = shard.first + sent.order
    made["cell"] = cell[sent.order]
    made["vector"] = vectors[sent.order]
    return tuple(made[sent.start[i] : sent.start[i + 1]] for i in range(bundles))


def gather(cells: Integers, *parts: AnyArray) -> tuple[Floats, Integers, Counts]:
    """Join what shards sent to a bundle: vectors, their numbers, and for every cell its size and its different rows."""
    joined = np.concatenate(parts)
    # Shards come in the order of their items, so that a stable sort by cell leaves items in order within each.
    place = np.searchsorted(cells, joined["cell"]).astype(np.int32)
    groups = group(place, len(cells))
    vectors = joined["vector"][groups.order]
    hashes = hashed(vectors)
    cuts = [hashes[groups.start[i] : groups.start[i + 1]] for i in range(len(cells))]
    distinct = np.array([len(np.unique(cut)) for cut in cuts], dtype=np.int64)
    return vectors, joined["row"][groups.order], np.stack([groups.sizes, distinct])


def fill(vectors: Floats, sizes: Counts, cells: Integers, wanted: Counts, seed: int) -> Floats:
    """Return the first centres of every cell's clusters, as many as are wanted there, cell by cell."""
    made, first = [np.empty((0, vectors.shape[1]), dtype=np.float32)], 0
    for cell, size, count in zip(cells.tolist(), sizes.tolist(), wanted.tolist(), strict=True):
        if count:
            rows = Rows(vectors[first : first + size], normalize=False)
            points = sampled(rows, np.arange(size), count, seed, cell)
            made.append(lloyd(points, count, seed, rng.stream("lloyd", cell)))
        first += size
    return np.concatenate(made)


def taken(vectors: Floats, places: Counts) -> Floats:
    """Return some rows."""
    return np.array(vectors[places])


def polish(
    vectors: Floats, sizes: Counts, cells: Integers, centres: Floats, owner: Integers, around: Counts
) -> tuple[Integers, Integers, NDArray[np.float64]]:
    """Label every row with the nearest cluster its cell sees; return labels, and what `summed` does."""
    seen = seen_by(owner, around)
    labels, first = np.empty(len(vectors), dtype=np.int32), 0
    for cell, size in zip(cells.tolist(), sizes.tolist(), strict=True):
        candidates = seen(cell)
        near = centres[candidates]
        for start in range(first, first + size, BLOCK_ROWS):
            rows = slice(start, min(start + BLOCK_ROWS, first + size))
            labels[rows] = candidates[nearest(np.array(vectors[rows]), near)]
        first += size
    return labels, *summed(vectors, labels)


def assign(shard: Shard, taking: Taking, centres: Floats) -> tuple[Floats, Integers, Integers, NDArray[np.float64]]:
    """Label every row of a shard with the nearest of few clusters; return rows, labels, and what `summed` does."""
    vectors = taking.of(shard_files.read(shard))
    labels = nearest(vectors, centres).astype(np.int32)
    return vectors, labels, *summed(vectors, labels)


def summed(vectors: Floats, labels: Integers) -> tuple[Integers, NDArray[np.float64]]:
    """Return the labels there are, and of each the sum of its rows, the sum of their squares, and their number."""
    there, own = np.unique(labels, return_inverse=True)
    sums, squares = np.zeros((len(there), vectors.shape[1])), np.empty(len(vectors))
    for start in range(0, len(vectors), BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        block = np.array(vectors[rows])
        squares[rows] = np.einsum("ij,ij->i", block, block, dtype=np.float64)
        add(block, own[rows], sums)
    return there, np.column_stack([sums, np.bincount(own, squares), np.bincount(own)])


def offers(
    vectors: Floats, labels: Integers, cells: Integers, centres: Floats, owner: Integers, around: Counts, sizes: Counts
) -> tuple[Integers, NDArray[np.float64], Floats, NDArray[np.float64], Counts]:
    """Return the clusters of this bundle's cells, and their `Offers`, judged by the rows of this bundle."""
    groups, own, seen = group(labels, len(centres)), group(owner, len(around)), seen_by(owner, around)
    made = Offers.blank(*centres.shape)
    rows = Rows(vectors, normalize=False)
    mine = [cell for cell in cells.tolist() if own.sizes[cell]]
    for cell in mine:
        look(rows, groups, own.members(cell), seen(cell), centres, made, sizes)
    which = np.concatenate([np.empty(0, dtype=np.int32), *(own.members(cell) for cell in mine)])
    return which, made.gain[which], made.halves[which], made.cost[which], made.neighbour[which]
