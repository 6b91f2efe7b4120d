"""Reading the shape of a tree off its arrays."""

import numpy as np

from treeward.core.types import Integers, TreeArrays


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
    """Return, for every place in leaf order, which of `nodes` holds it; they partition the items and stand in order."""
    return np.repeat(nodes, np.diff(tree.item_range[nodes]).ravel())
