"""Parts of a tree small enough to draw: what lies around a node, and what a user's state says of it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.types import AnyArray, Floats, Integers
from treeward.engine.layout import Plan, State
from treeward.engine.replay import Events
from treeward.explorer.looks import estimates, offsets, slot_of
from treeward.store.events import NOTED, REWARD, SHOWN
from treeward.tree.item_tree import ItemTree

_RINGS, _LEAST_SHARE, _FIRST_RING, _MOST_VISITED = 3, 0.002, 100, 300


class Field(NamedTuple):
    """What a user's events say of some nodes; arrays of one length, parents before their children."""

    node: Integers
    visible: NDArray[np.bool_]
    """Whether it is one of the nodes that the next decision chooses among; all are, for a policy without a field."""
    mean: Floats
    width: Floats
    visits: NDArray[np.int64]
    """The user's rewards for items under it ..."""
    reward: NDArray[np.float64]
    """... and what they come to."""
    upto: int
    """After so many of the user's events ..."""
    events: int
    """... of so many."""
    opened: int
    """How many nodes the whole field has; 0: the policy has none."""
    last: AnyArray
    """The last event that counts, as the store has it; none if there is none."""


def around(tree: ItemTree, size: NDArray[np.int64], node: int) -> Integers:
    """Return a node and what is worth drawing of three levels below it; the first ring is never empty.

    `size` is how many items each node has.
    """
    least = _LEAST_SHARE * int(size[node])
    found, ring = [np.array([node])], np.array([node])
    for depth in range(_RINGS):
        below = _children(tree, ring)
        if depth == 0 and len(below):
            largest = np.argsort(-size[below], kind="stable")
            worth = size[below] >= least
            worth[largest[:_FIRST_RING]] = True
            below = below[worth]
        else:
            below = below[size[below] >= least]
        found.append(below)
        ring = below
    return np.concatenate(found).astype(np.int32)


def _children(tree: ItemTree, nodes: NDArray[np.integer]) -> NDArray[np.integer]:
    parts = [np.arange(tree.first_child[node], tree.first_child[node + 1]) for node in nodes.tolist()]
    return np.concatenate(parts) if parts else nodes[:0]


def field(
    plan: Plan, state: State, events: Events, tree: ItemTree, size: NDArray[np.int64], node: int, held: AnyArray
) -> Field:
    """Return what the state in seat 0 says of the nodes around one: down to where the user's field ends."""
    learned = (events.kind != SHOWN) & (events.place >= 0)
    place, reward = events.place[learned], events.reward[learned]
    counted = np.isin(events.kind[learned], (REWARD, NOTED))
    opened = state.visible.of(0).copy() if plan.personal else np.zeros(0, dtype=np.int32)
    nodes, ranges = around(tree, size, node), plan.tree.item_range
    if plan.personal:
        first, last = ranges[node]
        inside = opened[(ranges[opened, 0] >= first) & (ranges[opened, 1] <= last)]
        inside = inside[(inside != node) & (tree.level[inside] > tree.level[node])]
        if len(inside):
            nodes = _cut(tree, node, _most_telling(ranges, size, node, inside, place))
    order = np.argsort(place, kind="stable")
    place, upto_visits = place[order], np.concatenate([[0], np.cumsum(counted[order])])
    upto_reward = np.concatenate([[0.0], np.cumsum(reward[order])])
    begin, end = (np.searchsorted(place, ranges[nodes, side]) for side in (0, 1))
    mean, width = np.zeros(len(nodes), dtype=np.float32), np.zeros(len(nodes), dtype=np.float32)
    slots = np.array([slot_of(plan, tree, one) for one in nodes.tolist()])
    for slot in np.unique(slots).tolist():
        mine = slots == slot
        mean[mine], width[mine] = estimates(state.posterior, 0, slot, plan.nodes[nodes[mine]])
    mean += offsets(plan.crowd.node_offset, nodes)
    visible = np.isin(nodes, opened) if plan.personal else np.ones(len(nodes), dtype=np.bool_)
    return Field(
        nodes, visible, mean, width, upto_visits[end] - upto_visits[begin], upto_reward[end] - upto_reward[begin],
        len(events.kind), len(held), len(opened), held[: len(events.kind)][-1:],
    )  # fmt: skip


def _most_telling(ranges: Integers, size: NDArray[np.int64], node: int, inside: Integers, place: Integers) -> Integers:
    """Return of a field the nodes that are large enough to see, and those most visited."""
    worth = size[inside] >= _LEAST_SHARE * int(size[node])
    worth[np.argsort(-size[inside], kind="stable")[:_FIRST_RING]] = True
    sorted_ = np.sort(place)
    visits = np.searchsorted(sorted_, ranges[inside, 1]) - np.searchsorted(sorted_, ranges[inside, 0])
    busiest = np.argsort(-visits, kind="stable")[:_MOST_VISITED]
    worth[busiest[visits[busiest] > 0]] = True
    return inside[worth]


def _cut(tree: ItemTree, node: int, nodes: Integers) -> Integers:
    """Return nodes with all that lies between them and one above them."""
    found, ring = {node}, set(nodes.tolist())
    while ring:
        found |= ring
        ring = {int(tree.parent[one]) for one in ring} - found
    return np.array(sorted(found), dtype=np.int32)
