"""Approximate maximum inner product search: an inverted file whose lists are nodes of the item tree."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.compiled import inner, whole
from treeward.core.types import Floats, Integers
from treeward.engine.available import Screen, is_open, left
from treeward.engine.beam import offer
from treeward.engine.explore import dot
from treeward.tree.item_tree import ItemTree
from treeward.tree.tree_arrays import sums_by_node


class Lists(NamedTuple):
    """Lists that partition the items, and their centres."""

    centres: Floats
    ranges: Integers
    """(lists, 2): places."""
    items: Floats


def nodes_on(tree: ItemTree, level: int) -> NDArray[np.int64]:
    """Return the nodes of a level and the leaves above it, in the order of their items: they partition the items.

    Examples
    --------
    >>> tree = ItemTree.build([[1, 0], [9, 1], [0, 1], [1, 8]], widths=(2,), seed=0)
    >>> nodes_on(tree, 1), nodes_on(tree, 2)
    (array([0]), array([1, 2]))
    """
    leaf = np.diff(tree.first_child) == 0
    nodes = np.flatnonzero((tree.level == level) | (leaf & (tree.level < level)))
    return nodes[np.argsort(tree.item_range[nodes, 0])]


def lists_of(tree: ItemTree, items: Floats, probes: int) -> Lists:
    """Return the lists of the level on which a search that opens `probes` of them takes the fewest inner products."""
    levels = [nodes_on(tree, level) for level in range(1, int(tree.level[-1]) + 1)]
    nodes = min(levels, key=lambda some: len(some) + min(probes, len(some)) * len(tree) / len(some))
    ranges = np.ascontiguousarray(tree.item_range[nodes])
    centres = sums_by_node(tree.arrays, items)[nodes] / np.diff(ranges)
    return Lists(np.ascontiguousarray(centres, dtype=np.float32), ranges, items)


class Near(NamedTuple):
    """Room for the lists that a search opens."""

    number: NDArray[np.int64]
    value: Floats


@inner
def search(lists: Lists, query: Floats, screen: Screen, shift: int, near: Near) -> tuple[int, int]:
    """Return an open place whose inner product with `query` is large, and how many inner products that took.

    Only items of the lists with the best centres are looked at; lists without an open item do not count. There must be
    an open item. `shift` says where to begin, which decides ties.
    """
    count, products, number = whole(0), whole(0), len(lists.centres)
    for j in range(number):
        at = (j + shift) % number
        value = dot(lists.centres[at], query)
        products += 1
        better = count < len(near.number) or value > near.value[count - 1]
        if better and left(screen, whole(lists.ranges[at, 0]), whole(lists.ranges[at, 1])) > 0:
            count = offer(near.number, near.value, count, len(near.number), at, value)
    best, most = -1, np.float32(0.0)
    for k in range(count):
        begin, end = whole(lists.ranges[near.number[k], 0]), whole(lists.ranges[near.number[k], 1])
        for place in range(begin, end):
            value = dot(lists.items[place], query)
            products += 1
            if (best < 0 or value > most) and is_open(screen, place):
                best, most = place, value
    return best, products
