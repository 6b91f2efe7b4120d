"""Building a tree bottom-up: items to leaves, leaves to parents, parents to the root."""

from collections.abc import Sequence

import numpy as np

from treeward.core import rng
from treeward.core.parallel import Workers, workers
from treeward.core.progress import Progress
from treeward.core.types import Floats, Integers, TreeArrays
from treeward.tree.kmeans import cluster, means
from treeward.tree.row_groups import Rows, group
from treeward.tree.split import divide
from treeward.tree.tree_arrays import assemble

ITEMS_PER_LEAF = 16
CHILDREN_PER_NODE = 100


def default_widths(items: int, children: int = CHILDREN_PER_NODE) -> tuple[int, ...]:
    """Return widths of about 16 items per leaf and at most about `children` per node, in as few levels as possible.

    Examples
    --------
    >>> default_widths(10), default_widths(1_000), default_widths(100_000), default_widths(4_000_000)
    ((), (62,), (79, 6250), (63, 3969, 250000))
    >>> default_widths(100_000, children=20)
    (18, 339, 6250)
    """
    leaves = items // ITEMS_PER_LEAF
    if leaves < 2:
        return ()
    # the smallest number of levels below the root whose even branching stays within the limit
    levels = next(levels for levels in range(1, 64) if children**levels >= leaves)
    return tuple(round(leaves ** (level / levels)) for level in range(1, levels + 1))


def grow(
    vectors: Floats,
    widths: Sequence[int],
    *,
    seed: int,
    normalize: bool,
    max_leaf: int | None,
    threads: int | None,
    progress: Progress,
) -> TreeArrays:
    """Cluster rows into ``widths[-1]`` leaves, those into ``widths[-2]`` parents, and so on up to the root."""
    rows = Rows(vectors, normalize)
    with workers(threads) as pool:
        width = widths[-1] if widths else 1
        label = np.zeros(len(vectors), dtype=np.int32)
        if widths:
            label = cluster(rows, width, seed=seed_of(seed, 0), workers=pool, stage="leaves", progress=progress)
        if max_leaf is not None:
            width = divide(label, width, rows, max_leaf)
        layer = np.empty((width, vectors.shape[1]), dtype=np.float32)
        means(rows, group(label, width), layer, pool)
        return rise(label, layer, widths, seed, pool, progress)


def seed_of(seed: int, depth: int) -> int:
    """Return the seed of a level, counted from the leaves."""
    return seed ^ rng.stream("tree", depth)


def rise(
    label: Integers, layer: Floats, widths: Sequence[int], seed: int, pool: Workers, progress: Progress
) -> TreeArrays:
    """Cluster leaves into the levels above them; `label` is every item's leaf, `layer` holds the leaves' vectors."""
    items, labels, layers = len(label), [label], [layer]
    for depth, width in list(enumerate(reversed(widths)))[1:]:
        rows = Rows(layer, normalize=False)
        name = f"level {len(widths) + 1 - depth}"
        label = cluster(rows, width, seed=seed_of(seed, depth), workers=pool, stage=name, progress=progress)
        layer = np.empty((width, layer.shape[1]), dtype=np.float32)
        means(rows, group(label, width), layer, pool)
        labels.append(label)
        layers.append(layer)
    return _stack(labels if len(layers[0]) > 1 or widths else [], layers, items)


def _stack(labels: list[Integers], layers: list[Floats], items: int) -> TreeArrays:
    """Put the root and the layers, top first, into one numbering."""
    if not labels:
        return assemble(np.array([-1], dtype=np.int32), np.zeros(items, dtype=np.int32), layers[0])[0]
    sizes = [1] + [len(layer) for layer in reversed(layers)]
    first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    parents = [np.array([-1], dtype=np.int32), np.zeros(sizes[1], dtype=np.int32)]
    for depth, label in enumerate(reversed(labels[1:]), start=1):
        parents.append(first[depth] + label)
    vectors = np.zeros((int(first[-1]), layers[0].shape[1]), dtype=np.float32)
    vectors[first[-2] :] = layers[0]
    return assemble(np.concatenate(parents).astype(np.int32), first[-2] + labels[0], vectors)[0]
