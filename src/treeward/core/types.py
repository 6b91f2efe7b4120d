"""Types that several layers share."""

from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Integers = NDArray[np.int32]
AnyArray = NDArray[Any]
Arrays = TypeVar("Arrays", bound=tuple[AnyArray, ...])


class TreeArrays(NamedTuple):
    """A tree as flat arrays, so that it passes straight into compiled code.

    Nodes are numbered breadth-first (the root is 0), the children of a node are contiguous, and items are stored in
    leaf order, so that a node's children and a node's items are slices. Leaves have no children.
    """

    vectors: Floats
    """(nodes, d): a leaf's is the mean of its items, an inner node's the unweighted mean of its children's."""
    parent: Integers
    """(nodes,): -1 for the root."""
    level: Integers
    """(nodes,): the root is on level 1."""
    first_child: Integers
    """(nodes + 1,): the children of n are first_child[n]:first_child[n + 1]."""
    item_range: Integers
    """(nodes, 2): the items of n are items[item_range[n, 0]:item_range[n, 1]]."""
    items: Integers
    """(items,): catalogue rows in leaf order."""


def frozen(arrays: Arrays) -> Arrays:
    """Return a named tuple of arrays as read-only views, like loaded arrays, so that kernels are compiled only once."""
    views = [array.view() for array in arrays]
    for view in views:
        view.flags.writeable = False
    return type(arrays)(*views)
