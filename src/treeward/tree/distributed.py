"""The clustering of `treeward.tree.kmeans` over vectors that no single machine holds.

Tasks read the shards once, find every row's coarse cell and send it to the bundle of neighbouring cells it belongs to.
From then on each bundle is worked on by itself; only labels, centres and sums come back here. Coarse cells and first
centres are those of one machine to the bit; polishing adds up the same numbers in another order. Rebalancing judges a
cluster by those of its rows that lie in its own bundle, which are nearly all.

The cut into bundles follows from the vectors alone, so that results do not depend on where or by how many they are
computed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.parallel import workers
from treeward.core.progress import Progress, Stage
from treeward.core.tasks import Ref, Tasks
from treeward.core.types import AnyArray, Floats, Integers, TreeArrays
from treeward.tree import distributed_tasks as remote
from treeward.tree.build import rise, seed_of
from treeward.tree.distributed_tasks import Counts, Taking
from treeward.tree.kmeans import (
    MOST_DIRECT,
    ROUNDS,
    SAMPLE_PER_CLUSTER,
    cells_for,
    far_enough,
    lloyd,
    nearest,
    neighbours,
    probe_places,
    shares,
)
from treeward.tree.rebalance import Offers, rebalance
from treeward.tree.row_groups import Rows, group
from treeward.tree.shard_files import Shard
from treeward.tree.split import divide, halves, refill

_BUNDLE_BYTES = 1 << 25
_LEAST_BUNDLES = 8


class Bundle(NamedTuple):
    """Some cells and their rows; the tasks hold these."""

    cells: Integers
    sizes: Counts
    """Rows of each cell."""
    vectors: Ref
    rows: Ref
    """The items' numbers."""


class Leaves(NamedTuple):
    """The leaves of all rows, piece by piece, and the sums of every leaf as `distributed_tasks.summed` returns them."""

    vectors: list[Ref]
    rows: list[Ref]
    labels: list[Ref]
    sums: NDArray[np.float64]


def grow_sharded(
    shards: Sequence[Shard],
    tasks: Tasks,
    *,
    widths: Sequence[int],
    seed: int,
    normalize: bool,
    max_leaf: int | None,
    threads: int | None,
    progress: Progress,
) -> tuple[TreeArrays, str]:
    """Return the tree that `grow` makes of the same rows, nearly, and the digest of the shards."""
    builder = _Builder(shards, tasks, seed_of(seed, 0), progress)
    count = widths[-1] if widths else 1
    few = count <= MOST_DIRECT
    coarse, taking = builder.survey(count if few else cells_for(count), normalize)
    leaves = builder.direct(coarse, taking) if few else builder.two_stage(coarse, taking, count)
    label, layer = builder.finish(leaves, max_leaf, taking)
    with workers(threads) as pool:
        return rise(label, layer, widths, seed, pool, progress), builder.digest


class _Builder:
    """The leaves of one tree, step by step."""

    def __init__(self, shards: Sequence[Shard], tasks: Tasks, seed: int, progress: Progress) -> None:
        self.shards, self.tasks, self.seed, self.progress = shards, tasks, seed, progress
        self.total = shards[-1].first + shards[-1].rows
        self.dim, self.digest = shards[0].dim, ""

    def stage(self, name: str, total: int) -> Stage:
        return Stage(self.progress, f"leaves: {name}", total)

    def collect(self, started: Iterable[list[Ref]], stage: Stage | None = None) -> Iterator[list[AnyArray]]:
        """Yield what tasks return, in their order, and free it; they all run meanwhile."""
        for refs in list(started):
            yield [np.array(self.tasks.get(one)) for one in refs]
            self.tasks.free(refs)
            if stage is not None:
                stage.step()

    def survey(self, count: int, normalize: bool) -> tuple[Floats, Taking]:
        """Read every shard once: return the centres that a sample has, and how rows are to be scaled."""
        chosen = rng.subset(self.seed, rng.stream("sample", -1), self.total, SAMPLE_PER_CLUSTER * count)
        cuts = np.searchsorted(chosen, [shard.first for shard in self.shards[1:]])
        asked = [
            self.tasks.start(remote.survey, shard, part - shard.first, parts=3)
            for shard, part in zip(self.shards, np.split(chosen, cuts), strict=True)
        ]
        found, digests, told = zip(*self.collect(asked, self.stage("sample", len(asked))), strict=True)
        self.digest = sha256("".join(map(str, digests)).encode()).hexdigest()
        numbers = np.stack(told)
        taking = Taking(normalize)
        if not normalize:
            low, high = float(numbers[:, -2].min()), float(numbers[:, -1].max())
            taking = Taking(False, numbers[:, :-2].sum(axis=0) / self.total, (high - low) or 1.0)
        points = taking.of(np.concatenate(found))
        return lloyd(points, count, self.seed, rng.stream("lloyd", -1)), taking

    def direct(self, centres: Floats, taking: Taking) -> Leaves:
        """Assign every row to the nearest of few centres."""
        held = self.tasks.put(centres)
        asked = [self.tasks.start(remote.assign, shard, taking, held, parts=4) for shard in self.shards]
        stage, sums = self.stage("cells", len(asked)), np.zeros((len(centres), self.dim + 2))
        for one in asked:
            sums[self.tasks.get(one[2])] += self.tasks.get(one[3])
            stage.step()
        numbers = [np.arange(shard.first, shard.first + shard.rows, dtype=np.int32) for shard in self.shards]
        rows = [self.tasks.put(one) for one in numbers]
        return Leaves([one[0] for one in asked], rows, [one[1] for one in asked], sums)

    def two_stage(self, coarse: Floats, taking: Taking, count: int) -> Leaves:
        """Cluster inside coarse cells, then let rows move to clusters of the cells around."""
        bundles, distinct = self.bundle(coarse, taking)
        sizes = np.zeros(len(coarse), dtype=np.int64)
        for one in bundles:
            sizes[one.cells] = one.sizes
        wanted = shares(sizes, distinct, count)
        owner = np.repeat(np.arange(len(coarse), dtype=np.int32), wanted)
        own = group(owner, len(coarse))
        centres = np.empty((count, self.dim), dtype=np.float32)
        asked = [
            self.tasks.start(remote.fill, one.vectors, one.sizes, one.cells, wanted[one.cells], self.seed)
            for one in bundles
        ]
        filled = self.collect(asked, self.stage("inside cells", len(bundles)))
        for one, (made,) in zip(bundles, filled, strict=True):
            centres[np.concatenate([own.members(cell) for cell in one.cells.tolist()])] = made
        around = neighbours(coarse, own)
        around = np.ascontiguousarray(around[:, : self.reach(bundles, sizes, centres, owner, around)])
        for turn in range(ROUNDS):
            labels, sums = self.polish(bundles, centres, owner, around, turn)
            if turn < ROUNDS - 1:
                self.rebalance(bundles, labels, centres, owner, around, sums[:, -1].astype(np.int64))
                self.tasks.free(labels)
        return Leaves([one.vectors for one in bundles], [one.rows for one in bundles], labels, sums)

    def bundle(self, coarse: Floats, taking: Taking) -> tuple[list[Bundle], Counts]:
        """Send every row to the bundle of its cell; return the bundles, and how many different rows a cell has."""
        # Neighbouring cells share a bundle: most clusters that a row may move to are then in its own bundle.
        count = max(_LEAST_BUNDLES, -(-self.total * self.dim * 4 // _BUNDLE_BYTES))
        groups = _neighbourhoods(coarse, count)
        bundle = np.empty(len(coarse), dtype=np.int32)
        for number, cells in enumerate(groups):
            bundle[cells] = number
        stage = self.stage("cells", len(self.shards) + len(groups))
        held = self.tasks.put(coarse)
        given = (taking, held, bundle, len(groups))
        sent = [self.tasks.start(remote.scatter, shard, *given, parts=len(groups)) for shard in self.shards]
        for parts in sent:
            self.tasks.wait(parts[0])
            stage.step()
        made, distinct = [], np.zeros(len(coarse), dtype=np.int64)
        asked = [
            self.tasks.start(remote.gather, cells, *(parts[number] for parts in sent), parts=3)
            for number, cells in enumerate(groups)
        ]
        for number, (cells, (vectors, rows, counts)) in enumerate(zip(groups, asked, strict=True)):
            sizes, distinct[cells] = np.array(self.tasks.get(counts))
            made.append(Bundle(cells, sizes, vectors, rows))
            self.tasks.free([parts[number] for parts in sent])  # or all vectors would be there twice
            for parts in sent:
                parts[number] = None
            stage.step()
        return made, distinct

    def reach(
        self, bundles: list[Bundle], sizes: Counts, centres: Floats, owner: Integers, around: NDArray[np.int64]
    ) -> int:
        """Return how many cells around its own a row must see, measured on the same rows as on one machine."""
        places = probe_places(self.total, self.seed)
        start = np.concatenate([[0], np.cumsum(sizes)])
        cell = np.searchsorted(start, places, side="right") - 1
        probes = np.empty((len(places), self.dim), dtype=np.float32)
        for one in bundles:
            mine = np.flatnonzero(np.isin(cell, one.cells))
            which = np.searchsorted(one.cells, cell[mine])
            first = np.concatenate([[0], np.cumsum(one.sizes)])
            probes[mine] = self.tasks.get(
                self.tasks.start(remote.taken, one.vectors, first[which] + places[mine] - start[cell[mine]])[0]
            )
        held = self.tasks.put(centres)
        asked = [self.tasks.start(nearest, probes[at : at + 128], held)[0] for at in range(0, len(probes), 128)]
        best = np.concatenate([self.tasks.get(one) for one in asked])
        self.tasks.free([held, *asked])
        return far_enough(best, cell, owner, around)

    def polish(
        self, bundles: list[Bundle], centres: Floats, owner: Integers, around: NDArray[np.int64], turn: int
    ) -> tuple[list[Ref], NDArray[np.float64]]:
        """Move every row to the nearest cluster that its cell sees, then every centre to the mean of its rows."""
        stage = self.stage(f"polish {turn + 1} of {ROUNDS}", len(bundles))
        held = [self.tasks.put(one) for one in (centres, owner, around)]
        asked = [self.tasks.start(remote.polish, one.vectors, one.sizes, one.cells, *held, parts=3) for one in bundles]
        sums = np.zeros((len(centres), self.dim + 2))
        for there, part in self.collect((one[1:] for one in asked), stage):
            sums[there] += part
        filled = np.flatnonzero(sums[:, -1])
        centres[filled] = sums[filled, :-2] / sums[filled, -1:]
        self.tasks.free(held)
        return [one[0] for one in asked], sums

    def rebalance(
        self,
        bundles: list[Bundle],
        labels: list[Ref],
        centres: Floats,
        owner: Integers,
        around: NDArray[np.int64],
        sizes: Counts,
    ) -> None:
        """Move clusters from where two serve one group of rows to where one serves two."""
        held = [self.tasks.put(one) for one in (centres, owner, around, sizes)]
        asked = [
            self.tasks.start(remote.offers, one.vectors, label, one.cells, *held, parts=5)
            for one, label in zip(bundles, labels, strict=True)
        ]
        made = Offers.blank(*centres.shape)
        columns: tuple[AnyArray, ...] = made
        for which, *offers in self.collect(asked):
            for column, found in zip(columns, offers, strict=True):
                column[which] = found
        self.tasks.free(held)
        rebalance(centres, owner, sizes, made)

    def finish(self, leaves: Leaves, max_leaf: int | None, taking: Taking) -> tuple[Integers, Floats]:
        """Return every item's leaf and the leaves' vectors; none is empty, and none too large."""
        label = np.empty(self.total, dtype=np.int32)
        for rows, own in zip(leaves.rows, leaves.labels, strict=True):
            label[self.tasks.get(rows)] = self.tasks.get(own)
        sums = leaves.sums
        sums = self.refill(leaves, label, sums)
        if max_leaf is not None:
            sums = self.divide(leaves, label, sums, max_leaf)
        layer = sums[:, :-2] / sums[:, -1:]
        if taking.shift is not None:
            layer = layer * taking.scale + taking.shift
        return label, layer.astype(np.float32)

    def refill(self, leaves: Leaves, label: Integers, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Give every leaf a row, by halving those of the largest error into the empty ones."""
        sizes = sums[:, -1]
        empty = np.flatnonzero(sizes == 0).astype(np.int32)
        if not len(empty):
            return sums
        # There are more rows than leaves, so that those of two rows and more can fill all that are empty.
        several = np.flatnonzero(sizes > 1)
        error = sums[several, -2] - (sums[several, :-2] ** 2).sum(axis=1) / sizes[several]
        worst = np.sort(several[np.lexsort((-sizes[several], -error))[: len(empty)]]).astype(np.int32)
        names = np.concatenate([worst, empty])
        return self.cut(leaves, label, sums, names, lambda own, rows: refill(own, len(names), rows))

    def divide(self, leaves: Leaves, label: Integers, sums: NDArray[np.float64], most: int) -> NDArray[np.float64]:
        """Cut leaves of more than `most` rows into even parts."""
        sizes = np.bincount(label, minlength=len(sums))
        large = np.flatnonzero(sizes > most).astype(np.int32)
        if not len(large):
            return sums
        new = np.arange(len(sums), len(sums) + int((2 * sizes[large] // most).sum()), dtype=np.int32)
        sums = np.concatenate([sums, np.zeros((len(new), sums.shape[1]))])
        names = np.concatenate([large, new])
        sums = self.cut(leaves, label, sums, names, lambda own, rows: divide(own, len(large), rows, most))
        return sums[: int(label.max()) + 1]

    def cut(
        self,
        leaves: Leaves,
        label: Integers,
        sums: NDArray[np.float64],
        names: Integers,
        change: Callable[[Integers, Rows], object],
    ) -> NDArray[np.float64]:
        """Fetch the rows of some leaves, relabel them with `change`, and update labels and sums here."""
        place = np.full(len(sums), -1, dtype=np.int32)
        place[names] = np.arange(len(names), dtype=np.int32)
        asked: list[tuple[Integers, Ref]] = []
        for vectors, rows in zip(leaves.vectors, leaves.rows, strict=True):
            numbers = self.tasks.get(rows)
            which = np.flatnonzero(place[label[numbers]] >= 0)
            if len(which):
                asked.append((numbers[which], self.tasks.start(remote.taken, vectors, which)[0]))
        numbers = np.concatenate([one for one, _ in asked])
        points = np.concatenate([self.tasks.get(ref) for _, ref in asked])
        self.tasks.free([ref for _, ref in asked])
        order = np.argsort(numbers)  # as one machine has them
        numbers, points = numbers[order], points[order]
        own = place[label[numbers]]
        change(own, Rows(points, normalize=False))
        label[numbers] = names[own]
        there, part = remote.summed(points, own)
        sums[names] = 0.0
        sums[names[there]] = part
        return sums


def _neighbourhoods(coarse: Floats, count: int) -> list[Integers]:
    """Cut cells into about `count` even groups of neighbours."""
    waiting, made = [np.arange(len(coarse), dtype=np.int32)], list[Integers]()
    most = max(1, -(-len(coarse) // count))
    while waiting:
        cells = waiting.pop()
        if len(cells) <= most:
            made.append(cells)
            continue
        marked = halves(coarse[cells], len(cells) // 2)
        waiting += [cells[marked], cells[~marked]]
    return made
