"""A plan with free places in every leaf, so that items can be added and removed without a new layout.

A free place is a closed place: kernels that decide do not know the difference.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.compiled import inner, kernel, whole
from treeward.core.types import AnyArray, Floats, Integers, TreeArrays
from treeward.engine.available import Flags, flip
from treeward.engine.layout import Plan, first_board
from treeward.engine.places import leaf_at
from treeward.tree import tree_arrays

LEAST = 4
"""The fewest free places of a leaf."""
_WIDE, _WIDER = 4, 64
"""Nodes per level that are followed to the leaves nearest to an item; the second if those have no free place."""


class Slack(NamedTuple):
    """The arrays that change as items come and go. The plan has read-only views of them."""

    tree: TreeArrays
    """Its `items` change (the row at each place; -1: free) and, if `follow`, its `vectors`."""
    vectors: Floats
    """(places, d): the items' vectors. Those of removed items stay: events may refer to them."""
    flags: Flags
    """Places that may be shown."""
    taken: NDArray[np.bool_]
    """(places,): whether the place holds an item, removed items included."""
    spare: NDArray[np.int64]
    """(nodes,): free places of each leaf."""
    cursor: NDArray[np.int64]
    """(nodes,): no place of the leaf before this one is free."""
    held: NDArray[np.int64]
    """(nodes,): how many items under each node may be shown ..."""
    sums: NDArray[np.float64]
    """(nodes, d): ... the sum of their vectors ..."""
    squares: NDArray[np.float64]
    """(nodes,): ... and of their squared lengths, in the items' own dimensions."""
    mean: NDArray[np.float64]
    """(nodes, d): the exact node vectors."""
    centre: Floats
    """(nodes, k): the nodes in the metric by which the leaf nearest to a new item is found."""
    reach: Floats
    """(nodes,): see `Search`. Empty for a policy that walks."""
    ladder: Floats
    """(levels + 1, places): see `Search`. (levels + 1, 0) if items have no popularity."""
    stretch: float
    follow: bool
    """Whether the plan's node vectors change too. Only if no user learns from them: otherwise a user's parameters would
    refer to other vectors than the scores."""
    own: int
    """How many dimensions are the items' own."""


def with_slack(plan: Plan, spare: float, metric: Floats) -> tuple[Plan, Slack, Integers]:
    """Return a plan with free places, its arrays that may change, and the new place of every old one.

    The nearest leaf of a vector x is found by x @ `metric`, a (d, k) matrix.
    """
    tree, leaves = plan.tree, tree_arrays.leaves(plan.tree)
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
    held, sums, squares = _totals(tree, plan.items, plan.search.own)
    free, cursor = np.zeros(len(tree.parent), dtype=np.int64), np.zeros(len(tree.parent), dtype=np.int64)
    free[leaves], cursor[leaves] = extra, laid.item_range[leaves, 1] - extra
    ladder = _spread_out(tree, laid, plan.search.ladder)
    slack = Slack(
        laid, vectors, Flags.of(taken), taken, free, cursor, held, sums, squares, tree.vectors.astype(np.float64),
        tree.vectors @ metric, plan.search.reach.copy(), ladder, plan.search.stretch, len(plan.search.width) > 0,
        plan.search.own,
    )  # fmt: skip
    fixed = TreeArrays(*map(_fixed, laid))
    made = plan._replace(
        tree=fixed,
        nodes=fixed.vectors if slack.follow else plan.nodes,
        items=_fixed(vectors),
        search=plan.search._replace(reach=slack.reach, ladder=ladder),
        bonus=np.zeros(places, dtype=np.float32),
    )
    if plan.exact:  # a board of all items would have to grow
        made = made._replace(watched=plan.watched[:0], board=first_board(plan.watched[:0], plan.prior))
    return made, slack, place


def _totals(
    tree: TreeArrays, items: Floats, own: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the number of items of every node, and the sums of their vectors and squared lengths."""
    count = np.diff(tree.item_range).ravel().astype(np.int64)
    sums = tree_arrays.sums_by_node(tree, items)
    square = np.einsum("ij,ij->i", items[:, :own], items[:, :own], dtype=np.float64)
    upto = np.concatenate([[0.0], np.cumsum(square)])
    return count, sums, upto[tree.item_range[:, 1]] - upto[tree.item_range[:, 0]]


def _fixed(array: AnyArray) -> AnyArray:
    view = array.view()
    view.flags.writeable = False
    return view


def _spread_out(old: TreeArrays, new: TreeArrays, ladder: Floats) -> Floats:
    """Return the ladder with room for new items, whose popularity is unknown, after every node's share."""
    if not ladder.shape[1]:
        return ladder
    made = np.full((len(ladder), len(new.items)), ladder[1:].min(), dtype=np.float32)
    for level in range(1, len(ladder)):
        nodes = tree_arrays.at_level(old, level)
        sizes = np.diff(old.item_range[nodes]).ravel()
        shift = np.repeat(new.item_range[nodes, 0] - old.item_range[nodes, 0], sizes)
        made[level, np.arange(len(shift)) + shift] = ladder[level]
    return made


@kernel
def settle(slack: Slack, vectors: Floats, metric: Floats, out: NDArray[np.int64]) -> int:
    """Put new items on free places in the nearest leaves, in order, until one finds none. Return how many were placed.

    `metric`: their vectors in the metric of `Slack.centre`.
    """
    near, far = np.empty(_WIDER, dtype=np.int64), np.empty(_WIDER)
    next_near, next_far = np.empty(_WIDER, dtype=np.int64), np.empty(_WIDER)
    for i in range(len(vectors)):
        leaf, wide = whole(-1), _WIDE
        while leaf < 0 and wide <= _WIDER:
            found = _nearest(slack, metric[i], near[:wide], far[:wide], next_near[:wide], next_far[:wide])
            for j in range(found):
                if leaf < 0 and slack.spare[near[j]] > 0:
                    leaf = near[j]
            wide *= _WIDER // _WIDE
        if leaf < 0:
            return i
        out[i] = _take(slack, leaf, vectors[i])
    return len(vectors)


@inner
def _nearest(
    slack: Slack,
    x: Floats,
    near: NDArray[np.int64],
    far: NDArray[np.float64],
    next_near: NDArray[np.int64],
    next_far: NDArray[np.float64],
) -> int:
    """Write the leaves nearest to a vector, found by beam search. Return how many."""
    first_child = slack.tree.first_child
    near[0], far[0], count, inside = 0, 0.0, whole(1), first_child[0] < first_child[1]
    while inside:
        kept, inside = whole(0), False
        for i in range(count):
            first, last = whole(first_child[near[i]]), whole(first_child[near[i] + 1])
            if first == last:
                kept = _keep(next_near, next_far, kept, near[i], far[i])
            for child in range(first, last):
                kept = _keep(next_near, next_far, kept, child, np.float64(_gap(x, slack.centre[child])))
        for i in range(kept):
            near[i], far[i] = next_near[i], next_far[i]
            inside = inside or first_child[near[i]] < first_child[near[i] + 1]
        count = kept
    return count


@inner(sums=True)
def _gap(x: Floats, y: Floats) -> np.float32:
    """Return a squared distance."""
    total = np.float32(0.0)
    for j in range(len(x)):
        total += (x[j] - y[j]) * (x[j] - y[j])
    return total


@inner
def _keep(nodes: NDArray[np.int64], far: NDArray[np.float64], count: int, node: int, distance: float) -> int:
    """Insert a node into the nearest ones, in order. Return the new count."""
    at = count if count < len(nodes) else len(nodes) - 1
    if count == len(nodes) and distance >= far[at]:
        return count
    while at > 0 and far[at - 1] > distance:
        nodes[at], far[at] = nodes[at - 1], far[at - 1]
        at -= 1
    nodes[at], far[at] = node, distance
    return min(count + 1, len(nodes))


@inner
def _take(slack: Slack, leaf: int, x: Floats) -> int:
    """Put a vector on a free place of a leaf and open it. Return the place."""
    place: int = slack.cursor[leaf]
    while slack.taken[place]:
        place += 1
    slack.cursor[leaf] = place + 1
    slack.spare[leaf] -= 1
    slack.taken[place] = True
    for j in range(len(x)):
        slack.vectors[place, j] = x[j]
    _count(slack, leaf, place, whole(1))
    return place


@inner
def _count(slack: Slack, leaf: int, place: int, sign: int) -> None:
    """Open or close a place, and update the nodes above it."""
    flip(slack.flags, place, sign > 0)
    tree, x, square = slack.tree, slack.vectors[place], 0.0
    for j in range(slack.own):
        square += x[j] * x[j]
    node = leaf
    while node >= 0:
        if slack.ladder.shape[1] > 0:
            _climb(slack.ladder[tree.level[node]], tree.item_range[node, 0], slack.held[node], x[len(x) - 1], sign)
        slack.held[node] += sign
        slack.squares[node] += sign * square
        for j in range(len(x)):
            slack.sums[node, j] += sign * x[j]
        node = tree.parent[node]
    if slack.held[leaf] > 0:  # an empty leaf stays where it was
        _move(slack, leaf)
    node = leaf
    while node >= 0 and len(slack.reach) > 0:
        _stretch(slack, node)
        node = tree.parent[node]


@inner
def _move(slack: Slack, leaf: int) -> None:
    """Move a leaf's vector to the mean of its items, and each node above it to the mean of its children."""
    tree = slack.tree
    for j in range(slack.mean.shape[1]):
        change = slack.sums[leaf, j] / slack.held[leaf] - slack.mean[leaf, j]
        node = leaf
        while node >= 0:
            slack.mean[node, j] += change
            if slack.follow:
                tree.vectors[node, j] = slack.mean[node, j]
            above = tree.parent[node]
            if above >= 0:
                change /= tree.first_child[above + 1] - tree.first_child[above]
            node = above


@inner
def _stretch(slack: Slack, node: int) -> None:
    """Recompute how far a node's items lie from its mean."""
    count, total = slack.held[node], slack.squares[node]
    if count == 0:
        return
    for j in range(slack.own):
        total += slack.mean[node, j] * (count * slack.mean[node, j] - 2.0 * slack.sums[node, j])
    slack.reach[node] = slack.stretch * np.sqrt(max(total / count, 0.0) / max(slack.own, 1))


@inner
def _climb(ladder: Floats, begin: int, count: int, value: np.float32, sign: int) -> None:
    """Insert a value into the `count` values from `begin` on, in descending order, or remove it."""
    low, high = begin, begin + count
    while low < high:
        middle = (low + high) // 2
        if ladder[middle] > value:
            low = middle + 1
        else:
            high = middle
    if sign > 0:
        for i in range(begin + count, low, -1):
            ladder[i] = ladder[i - 1]
        ladder[low] = value
    else:
        for i in range(low, begin + count - 1):
            ladder[i] = ladder[i + 1]


@kernel
def reopen(slack: Slack, places: NDArray[np.int64]) -> None:
    """Open places of removed items again."""
    for i in range(len(places)):
        if not slack.flags.open[places[i]]:
            _count(slack, leaf_at(slack.tree.first_child, slack.tree.item_range, places[i]), places[i], whole(1))


@kernel
def leave(slack: Slack, places: NDArray[np.int64], free: bool) -> int:
    """Close places. Return how many were open.

    If `free`, nothing refers to their vectors either, and other items may take the places.
    """
    count = 0
    for i in range(len(places)):
        place = places[i]
        leaf = leaf_at(slack.tree.first_child, slack.tree.item_range, place)
        if slack.flags.open[place]:
            _count(slack, leaf, place, whole(-1))
            count += 1
        if free and slack.taken[place]:
            slack.taken[place] = False
            slack.tree.items[place] = -1
            slack.spare[leaf] += 1
            slack.cursor[leaf] = min(slack.cursor[leaf], place)
    return count
