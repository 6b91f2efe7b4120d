"""The flat arrays of `TreeArrays`: made from every node's parent, read, and checked."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from treeward.core.types import AnyArray, Floats, Integers, TreeArrays, frozen
from treeward.tree.row_groups import group

_LEAVES_AT_ONCE = 256


def assemble(parent: Integers, leaf: Integers, vectors: Floats) -> tuple[TreeArrays, Integers]:
    """Return the tree with nodes numbered breadth-first and items in leaf order.

    Parameters
    ----------
    parent
        (nodes,) the parent of each node under any numbering; -1 for the root, the only one.
    leaf
        (items,) the node each item hangs on: a node without children, and every such node has items.
    vectors
        (nodes, d) with the rows of the leaves filled in.

    Returns
    -------
    tuple
        The arrays, and for every node of the result its number in the arguments.
    """
    levels = _breadth_first(parent)
    old = np.concatenate(levels)
    new = np.empty_like(old)
    new[old] = np.arange(len(old), dtype=np.int32)
    above = np.where(parent[old] < 0, -1, new[parent[old]]).astype(np.int32)
    level = np.repeat(np.arange(1, len(levels) + 1, dtype=np.int32), [len(nodes) for nodes in levels])
    children = np.bincount(above[1:], minlength=len(old))
    first_child = np.concatenate([[1], 1 + np.cumsum(children)]).astype(np.int32)

    bounds = np.searchsorted(level, np.arange(1, len(levels) + 2))
    # Sizes add up from the leaves to the root; then items get their places from the root down.
    size = np.bincount(new[leaf], minlength=len(old))
    for last, first in pairwise(bounds[:0:-1]):
        size += np.bincount(above[first:last], weights=size[first:last], minlength=len(old)).astype(size.dtype)
    start = np.zeros(len(old), dtype=np.int64)
    for first, last in pairwise(bounds[1:]):
        before = np.cumsum(size[first:last]) - size[first:last]
        eldest = first_child[above[first:last]] - first
        start[first:last] = start[above[first:last]] + before - before[eldest]
    item_range = np.stack([start, start + size], axis=1).astype(np.int32)

    leaves = np.flatnonzero(children == 0)
    rank = np.empty(len(old), dtype=np.int32)
    rank[leaves[np.argsort(start[leaves])]] = np.arange(len(leaves), dtype=np.int32)
    items = group(rank[new[leaf]], len(leaves)).order
    arrays = TreeArrays(np.ascontiguousarray(vectors[old]), above, level, first_child, item_range, items)
    _fill_inner(arrays)
    return frozen(arrays), old


def _breadth_first(parent: Integers) -> list[Integers]:
    """List the nodes of each level, siblings together, in the order of their parents."""
    by_parent = group(parent + np.int32(1), len(parent) + 1)
    levels = [by_parent.members(0)]
    while True:
        below = np.concatenate([by_parent.members(node + 1) for node in levels[-1]])
        if not len(below):
            return levels
        levels.append(below)


def _fill_inner(arrays: TreeArrays) -> None:
    """Give inner nodes the unweighted mean of their children's vectors, from the deepest level up."""
    children = np.diff(arrays.first_child)
    for level in range(int(arrays.level[-1]), 0, -1):
        first, last = np.searchsorted(arrays.level, [level, level + 1])
        inner = np.arange(first, last)[children[first:last] > 0]
        if len(inner):
            below = slice(arrays.first_child[inner[0]], arrays.first_child[inner[-1] + 1])
            starts = arrays.first_child[inner] - below.start
            sums = np.add.reduceat(arrays.vectors[below].astype(np.float64), starts, axis=0)
            arrays.vectors[inner] = sums / children[inner, None]


def sums_by_node(arrays: TreeArrays, items: Floats) -> NDArray[np.float64]:
    """Return the sum of every node's item vectors, in double precision; `items` are in leaf order."""
    below = leaves(arrays)
    begin, end = arrays.item_range[below, 0], arrays.item_range[below, 1]
    sums = np.zeros((len(arrays.parent), items.shape[1]))
    for first in range(0, len(below), _LEAVES_AT_ONCE):  # a copy of all items in double precision would be large
        block = slice(first, first + _LEAVES_AT_ONCE)
        some = items[begin[first] : end[block][-1]].astype(np.float64)
        sums[below[block]] = np.add.reduceat(some, begin[block] - begin[first], axis=0)
    for level in range(int(arrays.level[-1]), 1, -1):
        nodes = np.flatnonzero(arrays.level == level)
        np.add.at(sums, arrays.parent[nodes], sums[nodes])
    return sums


def faults(arrays: TreeArrays) -> str | None:
    """Return why `arrays` is not a tree that partitions its items, or None if it is one."""
    wrong = _wrong_types(arrays)
    if wrong:
        return wrong
    vectors, parent, level, first_child, item_range, items = arrays
    nodes, children = len(parent), np.diff(first_child)
    # Each rule may rely on the ones before it.
    if first_child[0] != 1 or first_child[-1] != nodes or (children < 0).any():
        return "children are not slices"
    if not np.array_equal(parent, np.concatenate([[-1], np.repeat(np.arange(nodes), children)])):
        return "parents and children disagree"
    if (parent[1:] >= np.arange(1, nodes)).any():
        return "a node comes before its parent"
    if level[0] != 1 or not np.array_equal(level[1:], level[parent[1:]] + 1):
        return "levels do not follow the parents"
    first, last = item_range[:, 0], item_range[:, 1]
    if first[0] != 0 or last[0] != len(items) or (first >= last).any():
        return "a node has no items"
    inner = np.flatnonzero(children)
    begin, end = first[first_child[inner]], last[first_child[inner + 1] - 1]
    if not (np.array_equal(begin, first[inner]) and np.array_equal(end, last[inner])):
        return "children do not partition their parent's items"
    if not _siblings_touch(first, last, parent):
        return "children do not partition their parent's items"
    if not _is_permutation(items):
        return "items are not a permutation"
    return None if np.isfinite(vectors).all() else "node vectors are not finite"


def _siblings_touch(first: AnyArray, last: AnyArray, parent: AnyArray) -> bool:
    """Return whether the items of each sibling begin where those of the one before it end."""
    siblings = parent[1:] == parent[:-1]
    return bool((first[1:][siblings] == last[:-1][siblings]).all())


def _wrong_types(arrays: TreeArrays) -> str | None:
    if arrays.vectors.ndim != 2 or arrays.parent.ndim != 1 or arrays.items.ndim != 1:
        return "arrays have the wrong number of dimensions"
    nodes = len(arrays.parent)
    shapes: dict[str, tuple[type, tuple[int, ...]]] = {
        "vectors": (np.float32, (nodes, arrays.vectors.shape[-1])),
        "parent": (np.int32, (nodes,)),
        "level": (np.int32, (nodes,)),
        "first_child": (np.int32, (nodes + 1,)),
        "item_range": (np.int32, (nodes, 2)),
        "items": (np.int32, (arrays.items.size,)),
    }
    for name, (dtype, shape) in shapes.items():
        array: NDArray[np.generic] = getattr(arrays, name)
        if array.dtype != dtype or array.shape != shape:
            return f"{name} is {array.dtype}{array.shape}"
    return None if nodes and arrays.items.size and arrays.vectors.size else "it is empty"


def _is_permutation(items: Integers) -> bool:
    if items.min() < 0 or items.max() >= len(items):
        return False
    seen = np.zeros(len(items), dtype=np.bool_)
    seen[items] = True
    return bool(seen.all())


def leaves(tree: TreeArrays) -> Integers:
    """Return the nodes without children, in the order of their items."""
    nodes = np.flatnonzero(np.diff(tree.first_child) == 0).astype(np.int32)
    return nodes[np.argsort(tree.item_range[nodes, 0])]


def at_level(tree: TreeArrays, level: int) -> Integers:
    """Return the nodes that partition the items at `level`, in their order: its own, and the leaves above it."""
    ended = (np.diff(tree.first_child) == 0) & (tree.level < level)
    nodes = np.flatnonzero(ended | (tree.level == level)).astype(np.int32)
    return nodes[np.argsort(tree.item_range[nodes, 0])]


def owners(tree: TreeArrays, nodes: Integers) -> Integers:
    """Return, for every place in leaf order, the node that holds it; `nodes` partition the items, in order."""
    return np.repeat(nodes, np.diff(tree.item_range[nodes]).ravel())
