"""Node vectors at the length of item vectors, as section 4.4 of the paper assumes of every arm."""

import numpy as np

from treeward.core.types import Floats
from treeward.tree.item_tree import ItemTree


def unit_nodes(tree: ItemTree, items: Floats, own: int) -> Floats:
    """Return the node vectors at length 1 in their first `own` dimensions; the others stay means.

    A mean of unit vectors is shorter than 1, and shorter the more items it represents. So of two nodes that a user
    likes equally, the coarser one would get the lower score. If items are not normalised, a node gets the root mean
    square length of its items. A mean of zero stays zero.

    Parameters
    ----------
    tree
        The tree, with plain means.
    items
        (items, d) in leaf order.
    own
        The features of a prior follow these dimensions; they are not directions, so they are not scaled.
    """
    made = tree.vectors.copy()
    lengths = np.linalg.norm(made[:, :own], axis=1)
    wanted = np.ones(len(made))
    if not tree.normalized:
        squares = np.einsum("ij,ij->i", items[:, :own], items[:, :own], dtype=np.float64)
        upto = np.concatenate([[0.0], np.cumsum(squares)])
        first, last = tree.item_range.T
        wanted = np.sqrt((upto[last] - upto[first]) / (last - first))
    known = lengths > 0
    made[known, :own] *= (wanted[known] / lengths[known])[:, None].astype(np.float32)
    made.flags.writeable = False  # like the tree's own vectors: kernels are compiled for one kind of array
    return made
