"""What the crowd adds to a user's own posterior: offsets of items, and the best of them under each node."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeward.core.compiled import inner, kernel
from treeward.core.types import Floats, Integers

CREST = 16
"""How many of the highest offsets are kept per node: more than a user is likely to have seen of one leaf."""


@inner
def offset_of(offset: Floats, at: int) -> Any:
    """Return the offset of a place or node; 0 if there is no crowd."""
    return offset[at] if len(offset) > 0 else np.float32(0.0)


@kernel
def crests(
    worth: Floats,
    open: NDArray[np.bool_],
    first_child: Integers,
    item_range: Integers,
    crest: Floats,
    mean: Floats,
) -> None:
    """Write the highest worths of the open items under each node, and their mean; zeros for a node without any.

    Nodes are numbered from the root down: in reverse order, children come before their parents.
    """
    wide = crest.shape[1]
    for node in range(len(item_range) - 1, -1, -1):
        first, last, count = first_child[node], first_child[node + 1], 0
        if first == last:
            for place in range(item_range[node, 0], item_range[node, 1]):
                if len(open) == 0 or open[place]:
                    count = _insert(crest[node], count, wide, worth[place])
        for child in range(first, last):
            for k in range(wide):
                count = _insert(crest[node], count, wide, crest[child, k])
        for k in range(count, wide):
            crest[node, k] = -np.inf
    for node in range(len(item_range)):
        mean[node] = _level(crest[node])


@inner
def _level(row: Floats) -> np.float32:
    """Fill the end of a row with its smallest value. Return the mean of what was there."""
    total, count = np.float32(0.0), 0
    while count < len(row) and row[count] > -np.inf:
        total += row[count]
        count += 1
    for k in range(count, len(row)):
        row[k] = row[count - 1] if count > 0 else np.float32(0.0)
    return total / max(count, 1)


@inner
def _insert(row: Floats, count: int, most: int, value: np.float32) -> int:
    """Insert a value into the first `count`, in descending order; at most `most` stay. Return the new count."""
    if value == -np.inf or (count == most and value <= row[most - 1]):
        return count
    at = count if count < most else most - 1
    while at > 0 and row[at - 1] < value:
        row[at] = row[at - 1]
        at -= 1
    row[at] = value
    return min(count + 1, most)
