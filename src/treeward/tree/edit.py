"""Adapting a tree to changed items: leaves with too many items are split, those with too few join a sibling."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from treeward.core.types import Integers
from treeward.tree.row_groups import Rows, group, mean_of
from treeward.tree.split import divide
from treeward.tree.tree_arrays import assemble

if TYPE_CHECKING:
    from treeward.tree.item_tree import ItemTree

_CROWDED, _STARVED = 4.0, 8.0


def limits(tree: "ItemTree") -> tuple[int, float]:
    """Return above how many items a leaf is split, and below how many it joins a sibling."""
    each = _each(tree)
    return max(8, int(_CROWDED * each)), each / _STARVED


def _each(tree: "ItemTree") -> float:
    """Return how many items a leaf had on average when the tree was built."""
    return float(tree.provenance.get("items_per_leaf", len(tree) / len(tree.leaves)))


def edited(tree: "ItemTree", rows: Rows, leaf: Integers, counts: NDArray[np.bool_]) -> "ItemTree":
    """Return a tree over other items, given the leaf of each, with leaves split or joined by their sizes.

    Parameters
    ----------
    tree
        The tree before.
    rows
        The vectors of the new items.
    leaf
        (items,): the leaf of `tree` that each belongs to.
    counts
        (items,): whether an item counts for the size of its leaf.
    """
    from treeward.tree.item_tree import ItemTree

    nodes = len(tree.parent)
    most, least = limits(tree)
    labels = leaf.astype(np.int32)
    parent = np.concatenate([tree.parent, np.zeros(0, dtype=np.int32)])
    _join(labels, tree, counts, least)
    origin, total = labels.copy(), nodes
    if nodes > 1 and counts.any():  # what does not count stays in the first part
        counted = labels[counts]
        total = divide(counted, nodes, rows._replace(matrix=rows.matrix[counts]), most)
        labels[counts] = counted
    fresh = np.arange(nodes, total)
    # The first item of each label tells which leaf a new one was cut from: it gets that leaf's parent and name.
    first = np.zeros(total, dtype=np.int64)
    first[labels[::-1]] = np.arange(len(labels))[::-1]
    parent = np.concatenate([parent, tree.parent[origin[first[fresh]]]]).astype(np.int32)
    inner = np.diff(tree.first_child) > 0
    stays = np.concatenate([inner, np.zeros(len(fresh), dtype=np.bool_)])
    stays[labels] = True
    parent, labels, kept = _without(parent, labels, stays)
    vectors = np.zeros((len(parent), rows.matrix.shape[1]), dtype=np.float32)
    mean_of(rows, group(labels, len(parent)), 0, len(parent), vectors)
    arrays, old = assemble(parent, labels, vectors)
    names = None
    if tree.names is not None:
        source = np.concatenate([np.arange(nodes), origin[first[fresh]]])
        names = [tree.names[source[kept[node]]] for node in old.tolist()]
    return ItemTree(arrays, names=names, provenance={**tree.provenance, "items_per_leaf": _each(tree)})


def _join(labels: Integers, tree: "ItemTree", counts: NDArray[np.bool_], least: float) -> None:
    """Move the items of leaves that are too small to the nearest sibling, in place; the last leaf of a parent stays."""
    sizes = np.bincount(labels[counts], minlength=len(tree.parent))
    held = np.bincount(labels, minlength=len(tree.parent))
    leaf = np.diff(tree.first_child) == 0
    joined = np.arange(len(tree.parent), dtype=np.int32)
    for node in np.flatnonzero(leaf & (sizes < least)).tolist():
        above = int(tree.parent[node])
        if above < 0:
            continue
        siblings = np.arange(tree.first_child[above], tree.first_child[above + 1])
        others = siblings[leaf[siblings] & (held[siblings] > 0) & (siblings != node)]
        if not len(others):
            continue
        distance = ((tree.vectors[others] - tree.vectors[node]) ** 2).sum(axis=1)
        nearest = int(others[np.argmin(distance)])
        held[nearest] += held[node]
        held[node] = 0
        joined[node] = nearest
    for node in range(len(joined)):  # a leaf that others joined may have joined another
        end = node
        while joined[end] != end:
            end = int(joined[end])
        joined[node] = end
    labels[:] = joined[labels]


def _without(parent: Integers, labels: Integers, stays: NDArray[np.bool_]) -> tuple[Integers, Integers, Integers]:
    """Return parents and labels without empty nodes, and the old numbers of the others."""
    stays = stays.copy()
    while True:  # an inner node whose children are all gone goes too
        busy = np.zeros(len(parent), dtype=np.bool_)
        busy[labels] = True
        children = parent[stays & (parent >= 0)]
        busy[children] = True
        if (stays == (stays & busy)).all():
            break
        stays &= busy
    number = np.cumsum(stays) - 1
    kept = np.flatnonzero(stays).astype(np.int32)
    above = np.where(parent[kept] < 0, -1, number[parent[kept]]).astype(np.int32)
    return above, number[labels].astype(np.int32), kept
