"""A plan with free places in every leaf, so that items can come and go without anything being laid out anew.

A free place is one that the screen keeps closed: nothing that decides knows the difference.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.compiled import kernel, tight
from treeward.core.types import AnyArray, Floats, Integers, TreeArrays
from treeward.policy.learn import leaf_at
from treeward.policy.plan import Plan, first_board
from treeward.policy.screen import Flags, flip
from treeward.tree import shape

LEAST = 4
"""Every leaf has room for so many more items."""
_WIDE, _WIDER = 4, 64
"""So many nodes of each level are followed to the leaves nearest to an item; more, if those have no free place."""


class Room(NamedTuple):
    """What of a roomy plan changes as items come and go; the plan sees the same arrays, but may not write to them."""

    tree: TreeArrays
    """Of which `items`, the rows by place (-1: free), and perhaps `vectors` change."""
    vectors: Floats
    """(places, d): the items' vectors; those of items that are gone stay, because events may be about them."""
    flags: Flags
    """Places that may be shown."""
    taken: NDArray[np.bool_]
    """(places,): whether something is there: an item, or one that is gone."""
    spare: NDArray[np.int64]
    """(nodes,): free places of each leaf."""
    cursor: NDArray[np.int64]
    """(nodes,): no place of the leaf before this one is free."""
    held: NDArray[np.int64]
    """(nodes,): items of each leaf that may be shown."""
    mean: NDArray[np.float64]
    """(nodes, d): true node vectors."""
    follow: bool
    """Whether the plan's node vectors follow: only where nobody learns from them, or else what is known of a user and
    what is asked of it would be about different vectors."""
    own: int
    """The first so many dimensions tell which leaf is nearest."""


def roomy(plan: Plan, spare: float) -> tuple[Plan, Room, Integers]:
    """Return a plan with free places, what of it may change, and where each place of the old plan is now."""
    tree, leaves = plan.tree, shape.leaves(plan.tree)
    begin, end = tree.item_range[leaves, 0], tree.item_range[leaves, 1]
    extra = np.maximum(LEAST, np.ceil((end - begin) * spare)).astype(np.int64)
    upto = np.concatenate([[0], np.cumsum(extra)])
    place = (np.arange(len(plan.items)) + np.repeat(upto[:-1], end - begin)).astype(np.int32)
    first, last = np.searchsorted(begin, tree.item_range[:, 0]), np.searchsorted(end, tree.item_range[:, 1])
    ranges = tree.item_range + np.stack([upto[first], upto[last + 1]], axis=1)
    places = len(plan.items) + int(upto[-1])
    vectors = np.zeros((places, plan.items.shape[1]), dtype=np.float32)
    vectors[place] = plan.items
    rows = np.full(places, -1, dtype=np.int32)
    rows[place] = tree.items
    taken = rows >= 0
    laid = tree._replace(
        vectors=np.array(tree.vectors), item_range=np.ascontiguousarray(ranges, dtype=np.int32), items=rows
    )
    held, free, cursor = (np.zeros(len(tree.parent), dtype=np.int64) for _ in range(3))
    held[leaves], free[leaves], cursor[leaves] = end - begin, extra, laid.item_range[leaves, 1] - extra
    searches = len(plan.search.width) > 0
    room = Room(
        laid, vectors, Flags.of(taken), taken, free, cursor, held, tree.vectors.astype(np.float64), searches,
        plan.search.own,
    )  # fmt: skip
    made = plan._replace(
        tree=TreeArrays(*map(_fixed, laid)),
        items=_fixed(vectors),
        search=plan.search._replace(ladder=_spread_out(tree, laid, plan.search.ladder)),
        bonus=np.zeros(places, dtype=np.float32),
    )
    if plan.exact:  # whose board would have to grow with every item
        made = made._replace(watched=plan.watched[:0], board=first_board(plan.watched[:0], plan.prior))
    return made, room, place


def _fixed(array: AnyArray) -> AnyArray:
    view = array.view()
    view.flags.writeable = False
    return view


def _spread_out(old: TreeArrays, new: TreeArrays, ladder: Floats) -> Floats:
    """Return the ladder with room behind every node's share, for newcomers that nobody knows yet."""
    if not ladder.shape[1]:
        return ladder
    made = np.full((len(ladder), len(new.items)), ladder[1:].min(), dtype=np.float32)
    for level in range(1, len(ladder)):
        nodes = shape.at_level(old, level)
        sizes = np.diff(old.item_range[nodes]).ravel()
        shift = np.repeat(new.item_range[nodes, 0] - old.item_range[nodes, 0], sizes)
        made[level, np.arange(len(shift)) + shift] = ladder[level]
    return made


@kernel
def settle(room: Room, vectors: Floats, out: NDArray[np.int64]) -> int:
    """Give newcomers free places in the nearest leaves that have some; return how many got one, until one did not."""
    near, far = np.empty(_WIDER, dtype=np.int64), np.empty(_WIDER)
    next_near, next_far = np.empty(_WIDER, dtype=np.int64), np.empty(_WIDER)
    for i in range(len(vectors)):
        leaf, wide = -1, _WIDE
        while leaf < 0 and wide <= _WIDER:
            found = _nearest(room, vectors[i], near[:wide], far[:wide], next_near[:wide], next_far[:wide])
            for j in range(found):
                if leaf < 0 and room.spare[near[j]] > 0:
                    leaf = near[j]
            wide *= _WIDER // _WIDE
        if leaf < 0:
            return i
        out[i] = _take(room, leaf, vectors[i])
    return len(vectors)


@tight
def _nearest(
    room: Room,
    x: Floats,
    near: NDArray[np.int64],
    far: NDArray[np.float64],
    next_near: NDArray[np.int64],
    next_far: NDArray[np.float64],
) -> int:
    """Write the leaves nearest to a vector, found by following the nearest nodes of each level; return how many."""
    tree = room.tree
    near[0], far[0], count, inside = 0, 0.0, 1, tree.first_child[0] < tree.first_child[1]
    while inside:
        kept, inside = 0, False
        for i in range(count):
            first, last = tree.first_child[near[i]], tree.first_child[near[i] + 1]
            if first == last:
                kept = _keep(next_near, next_far, kept, near[i], far[i])
            for child in range(first, last):
                distance = 0.0
                for j in range(room.own):
                    distance += (x[j] - tree.vectors[child, j]) ** 2
                kept = _keep(next_near, next_far, kept, child, distance)
        for i in range(kept):
            near[i], far[i] = next_near[i], next_far[i]
            inside = inside or tree.first_child[near[i]] < tree.first_child[near[i] + 1]
        count = kept
    return count


@tight
def _keep(nodes: NDArray[np.int64], far: NDArray[np.float64], count: int, node: int, distance: float) -> int:
    """Put a node among the nearest, in order, and return how many there are."""
    at = count if count < len(nodes) else len(nodes) - 1
    if count == len(nodes) and distance >= far[at]:
        return count
    while at > 0 and far[at - 1] > distance:
        nodes[at], far[at] = nodes[at - 1], far[at - 1]
        at -= 1
    nodes[at], far[at] = node, distance
    return min(count + 1, len(nodes))


@tight
def _take(room: Room, leaf: int, x: Floats) -> int:
    """Put a vector on a free place of a leaf, open, and return the place."""
    place: int = room.cursor[leaf]
    while room.taken[place]:
        place += 1
    room.cursor[leaf] = place + 1
    room.spare[leaf] -= 1
    room.taken[place] = True
    for j in range(len(x)):
        room.vectors[place, j] = x[j]
    _enter(room, leaf, place)
    return place


@tight
def _enter(room: Room, leaf: int, place: int) -> None:
    flip(room.flags, place, True)
    room.held[leaf] += 1
    _shift(room, leaf, place, 1.0 / room.held[leaf])


@tight
def _shift(room: Room, leaf: int, place: int, share: float) -> None:
    """Move a leaf's mean towards an item, or away from it, and the means above accordingly."""
    tree, node = room.tree, leaf
    for j in range(room.mean.shape[1]):
        change = share * (room.vectors[place, j] - room.mean[leaf, j])
        node = leaf
        while node >= 0:
            room.mean[node, j] += change
            if room.follow:
                tree.vectors[node, j] = room.mean[node, j]
            above = tree.parent[node]
            if above >= 0:
                change /= tree.first_child[above + 1] - tree.first_child[above]
            node = above


@kernel
def reopen(room: Room, place: int) -> None:
    """Let an item that is gone be shown again."""
    if not room.flags.open[place]:
        _enter(room, leaf_at(room.tree, place), place)


@kernel
def leave(room: Room, place: int, free: bool) -> None:
    """Let a place be shown no more; `free`: nor does anything need its vector, so another item may have it."""
    leaf = leaf_at(room.tree, place)
    if room.flags.open[place]:
        flip(room.flags, place, False)
        room.held[leaf] -= 1
        if room.held[leaf] > 0:
            _shift(room, leaf, place, -1.0 / room.held[leaf])
    if free and room.taken[place]:
        room.taken[place] = False
        room.tree.items[place] = -1
        room.spare[leaf] += 1
        room.cursor[leaf] = min(room.cursor[leaf], place)
