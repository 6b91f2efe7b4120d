"""Find the node that holds a place. A place is the position of an item in leaf order."""

from treeward.core.compiled import inner, kernel, whole
from treeward.core.types import Integers
from treeward.engine.ragged import Lists


@kernel(allocates=False, inline=True)
def leaf_at(first_child: Integers, item_range: Integers, place: int) -> int:
    """Return the leaf that holds a place."""
    node = 0
    while first_child[node] < first_child[node + 1]:
        low, high = whole(first_child[node]), whole(first_child[node + 1]) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if item_range[middle, 0] <= place:
                low = middle
            else:
                high = middle - 1
        node = low
    return node


@inner
def leaf_of(first_child: Integers, item_range: Integers, place: int, node: int) -> int:
    """Return the leaf of a place: `node` if that is a leaf (pHCB may have taken the item from an inner node)."""
    if node >= 0 and first_child[node] == first_child[node + 1]:
        return node
    return leaf_at(first_child, item_range, place)


@inner
def holder(item_range: Integers, visible: Lists, seat: int, place: int) -> int:
    """Return the index of the visible node that holds a place. Visible nodes are in the order of their items."""
    start = visible.start[seat]
    low, high = 0, visible.length[seat] - 1
    while low < high:
        middle = (low + high + 1) // 2
        if item_range[visible.values[start + middle], 0] <= place:
            low = middle
        else:
            high = middle - 1
    return low
