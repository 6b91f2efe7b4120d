"""K-Means for many clusters of many rows.

Up to a thousand clusters: Lloyd's iterations on a sample, then one assignment of every row. Beyond that, in two stages:
coarse cells first, then K-Means inside each cell, then polishing rounds in which every row may move to any cluster of
the cells around its own. How far "around" reaches is measured on a sample: far enough that `RECALL` of its rows see
their truly nearest cluster. In both, clusters that are wasted where they are move to where they are missing on the way
(`treeward.tree.rebalance`); that is worth more than any number of further iterations.

Work is cut by cell and by block of rows, never by thread, and BLAS runs on one thread inside each piece: the same seed
gives the same labels whatever the number of threads.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.parallel import Workers
from treeward.core.progress import Progress, Stage, silent
from treeward.core.types import Floats, Integers
from treeward.tree.rebalance import Offers, look, rebalance
from treeward.tree.row_groups import BLOCK_ROWS, Groups, Rows, group, mean_of
from treeward.tree.split import refill

ITERATIONS = 10
ROUNDS = 3
RECALL = 0.99
MOST_DIRECT = 1024
MOST_CANDIDATES = 6144
_REBALANCED_AFTER = (3, 5, 7)
SAMPLE_PER_CLUSTER = 256
PROBES = 2048
_BLOCK_ROWS = BLOCK_ROWS
_BLOCK_SCORES = 1 << 17


def cluster(
    rows: Rows, count: int, *, seed: int, workers: Workers, stage: str = "clusters", progress: Progress = silent
) -> Integers:
    """Return a label below `count` for every row; each label has at least one row."""
    if count == len(rows.matrix):
        return np.arange(count, dtype=np.int32)
    rows = rows.conditioned()
    labels = (_direct if count <= MOST_DIRECT else _two_stage)(rows, count, seed, workers, stage, progress)
    refill(labels, count, rows)
    return labels


def nearest(points: Floats, centres: Floats) -> NDArray[np.intp]:
    """Return the index of the nearest centre for each point (the highest x.c - |c|^2 / 2)."""
    offset = np.einsum("ij,ij->i", centres, centres) / 2
    transposed = np.ascontiguousarray(centres.T)
    block = max(16, min(4096, _BLOCK_SCORES // len(centres)))
    labels = np.empty(len(points), dtype=np.intp)
    for start in range(0, len(points), block):
        scores = points[start : start + block] @ transposed
        scores -= offset
        scores.argmax(axis=1, out=labels[start : start + block])
    return labels


def lloyd(points: Floats, count: int, seed: int, stream: int) -> Floats:
    """Return `count` centres after `ITERATIONS` rounds of Lloyd from a random start, rebalanced on the way."""
    centres = points[rng.sample(seed, stream, len(points), count)]
    rows, everyone = Rows(points, normalize=False), np.arange(count, dtype=np.int32)
    for turn in range(1, (ITERATIONS if count > 1 else 1) + 1):
        groups = group(nearest(points, centres).astype(np.int32), count)
        mean_of(rows, groups, 0, count, centres)
        if turn in _REBALANCED_AFTER:
            offers = Offers.blank(*centres.shape)
            look(rows, groups, everyone, everyone, centres, offers)
            rebalance(centres, everyone.copy(), groups.sizes, offers)
    return centres


def _direct(rows: Rows, count: int, seed: int, workers: Workers, stage: str, progress: Progress) -> Integers:
    centres = lloyd(sampled(rows, np.arange(len(rows.matrix)), count, seed, -1), count, seed, rng.stream("lloyd", -1))
    return _assign(rows, centres, workers, Stage(progress, stage, -(-len(rows.matrix) // _BLOCK_ROWS)))


def _assign(rows: Rows, centres: Floats, workers: Workers, stage: Stage) -> Integers:
    labels = np.empty(len(rows.matrix), dtype=np.int32)

    def assign(start: int) -> None:
        block = slice(start, start + _BLOCK_ROWS)
        labels[block] = nearest(rows.take(block), centres)

    workers.each(assign, range(0, len(labels), _BLOCK_ROWS), stage.step)
    return labels


def sampled(rows: Rows, members: NDArray[np.integer], count: int, seed: int, cell: int) -> Floats:
    """Return a sample of a cell's rows that is large enough for `count` clusters."""
    return rows.take(members[rng.subset(seed, rng.stream("sample", cell), len(members), SAMPLE_PER_CLUSTER * count)])


def _two_stage(rows: Rows, count: int, seed: int, workers: Workers, stage: str, progress: Progress) -> Integers:
    # Comparing every row with every cluster would be too slow: rows meet only the clusters of the cells around them.
    cells = cells_for(count)
    coarse = lloyd(sampled(rows, np.arange(len(rows.matrix)), cells, seed, -1), cells, seed, rng.stream("lloyd", -1))
    blocks = -(-len(rows.matrix) // _BLOCK_ROWS)
    home = group(_assign(rows, coarse, workers, Stage(progress, f"{stage}: cells", blocks)), cells)
    owner = np.repeat(np.arange(cells, dtype=np.int32), shares(home.sizes, distinct_rows(rows, home, workers), count))
    own = group(owner, cells)
    centres = np.empty((count, rows.matrix.shape[1]), dtype=np.float32)

    def fill(cell: int) -> None:
        mine = own.members(cell)
        if len(mine):
            points = sampled(rows, home.members(cell), len(mine), seed, cell)
            centres[mine] = lloyd(points, len(mine), seed, rng.stream("lloyd", cell))

    workers.each(fill, range(cells), Stage(progress, f"{stage}: inside cells", cells).step)
    around = neighbours(coarse, own)
    around = around[:, : _reach(rows, centres, home, owner, around, seed, workers)]
    labels = np.empty(len(rows.matrix), dtype=np.int32)
    pieces = [(cell, start) for cell in range(cells) for start in range(0, int(home.sizes[cell]), _BLOCK_ROWS)]
    for turn in range(ROUNDS):
        told = Stage(progress, f"{stage}: polish {turn + 1} of {ROUNDS}", len(pieces))
        _polish(rows, centres, home, pieces, owner, around, workers, told, labels)
        if turn < ROUNDS - 1:  # after the last round nothing would move rows to clusters that moved
            _rebalance(rows, centres, labels, owner, around, workers)
    return labels


def cells_for(count: int) -> int:
    """Return how many coarse cells are made for `count` clusters."""
    made: int = round(2 * count**0.5)
    return made


def distinct_rows(rows: Rows, home: Groups, workers: Workers) -> NDArray[np.int64]:
    """Count the different rows of each cell (by a hash: a collision is harmless)."""
    hashes = np.empty(len(home.order), dtype=np.uint64)

    def hash_block(start: int) -> None:
        hashes[start : start + _BLOCK_ROWS] = hashed(np.array(rows.matrix[start : start + _BLOCK_ROWS]))

    workers.each(hash_block, range(0, len(hashes), _BLOCK_ROWS))
    counts = workers.map(lambda cell: len(np.unique(hashes[home.members(cell)])), range(len(home.sizes)))
    return np.array(list(counts), dtype=np.int64)


def hashed(points: Floats) -> NDArray[np.uint64]:
    """Return a hash of every row."""
    bits = points.view(np.uint32).astype(np.uint64)
    odd = 2 * np.arange(bits.shape[1], dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    made: NDArray[np.uint64] = (bits * odd * odd).sum(axis=1)
    return made


def shares(sizes: NDArray[np.int64], distinct: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Share `count` clusters among cells by the number of their distinct rows; if these run out, the rest by size."""
    if distinct.sum() < count:
        return distinct + _proportional(sizes - distinct, count - int(distinct.sum()))
    return _proportional(distinct, count)


def _proportional(weights: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Share `count` things by weight (largest remainder); no share exceeds its weight."""
    quota = weights * count / weights.sum()
    shares: NDArray[np.int64] = np.floor(quota).astype(np.int64)
    shares[np.argsort(shares - quota, kind="stable")[: count - shares.sum()]] += 1
    return shares


def neighbours(coarse: Floats, own: Groups) -> NDArray[np.int64]:
    """List the cells that own clusters, for each cell by distance."""
    owners = np.flatnonzero(own.sizes)
    kept = coarse[owners]
    distance = np.einsum("ij,ij->i", kept, kept) / 2 - coarse @ kept.T  # up to a term that is the same for all
    nearest_first: NDArray[np.int64] = owners[np.argsort(distance, axis=1, kind="stable")]
    return nearest_first


def _reach(
    rows: Rows, centres: Floats, home: Groups, owner: Integers, around: NDArray[np.int64], seed: int, workers: Workers
) -> int:
    """Return how many cells around its own a row must see to meet its nearest cluster with probability `RECALL`."""
    places = probe_places(len(home.order), seed)
    probes = rows.take(home.order[places])
    blocks = [slice(start, start + 128) for start in range(0, len(probes), 128)]
    best = np.concatenate(list(workers.map(lambda block: nearest(probes[block], centres), blocks)))
    return far_enough(best, np.searchsorted(home.start, places, side="right") - 1, owner, around)


def probe_places(rows: int, seed: int) -> NDArray[np.int64]:
    """Return the rows, in the order of their cells, on which the reach is measured."""
    return rng.subset(seed, rng.stream("reach"), rows, PROBES)


def far_enough(best: NDArray[np.intp], cell: NDArray[np.int64], owner: Integers, around: NDArray[np.int64]) -> int:
    """Return how many cells around its own a row must see, given the cells and nearest clusters of a sample."""
    rank = np.argmax(around[cell] == owner[best][:, None], axis=1)
    wanted = int(np.quantile(rank, RECALL, method="higher")) + 1
    most: int = MOST_CANDIDATES * around.shape[1] // len(owner)
    return min(wanted, max(1, most))


def seen_by(owner: Integers, around: NDArray[np.int64]) -> Callable[[int], Integers]:
    """Return which clusters the rows of a cell may move to: those of the cells around it."""
    own = group(owner, len(around))
    return lambda cell: np.concatenate([own.members(near) for near in np.sort(around[cell])])


def _polish(
    rows: Rows,
    centres: Floats,
    home: Groups,
    pieces: list[tuple[int, int]],
    owner: Integers,
    around: NDArray[np.int64],
    workers: Workers,
    stage: Stage,
    labels: Integers,
) -> None:
    """Move every row to the nearest cluster that its cell sees, then every centre to the mean of its rows."""
    seen = seen_by(owner, around)

    def move(piece: tuple[int, int]) -> None:
        cell, start = piece
        members, candidates = home.members(cell)[start : start + _BLOCK_ROWS], seen(cell)
        labels[members] = candidates[nearest(rows.take(members), centres[candidates])]

    workers.each(move, pieces, stage.step)
    means(rows, group(labels, len(centres)), centres, workers)


def _rebalance(
    rows: Rows, centres: Floats, labels: Integers, owner: Integers, around: NDArray[np.int64], workers: Workers
) -> None:
    """Move clusters from where two serve one group of rows to where one serves two."""
    groups, own, seen = group(labels, len(centres)), group(owner, len(around)), seen_by(owner, around)
    offers = Offers.blank(*centres.shape)

    def ask(cell: int) -> None:
        look(rows, groups, own.members(cell), seen(cell), centres, offers)

    workers.each(ask, np.flatnonzero(own.sizes).tolist())
    rebalance(centres, owner, groups.sizes, offers)


def means(rows: Rows, groups: Groups, out: Floats, workers: Workers) -> None:
    """Write the mean vector of every label to `out`; an empty label keeps its row."""
    blocks = max(1, len(groups.order) // _BLOCK_ROWS)
    marks = np.linspace(0, len(out), blocks + 1).astype(np.int64)
    workers.each(lambda cut: mean_of(rows, groups, cut[0], cut[1], out), list(pairwise(marks)))
