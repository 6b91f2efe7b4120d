"""What a user's state says about nodes and items: the estimates behind explanations, interests and fields."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.types import AnyArray, Floats, Integers
from treeward.data.catalogue import Catalogue, Id
from treeward.engine.layout import Plan, State
from treeward.engine.posterior import Posterior
from treeward.engine.replay import Events
from treeward.engine.trace import Trace
from treeward.explorer.records import Interest, Option, Step
from treeward.store.events import NOTED, REWARD, SHOWN
from treeward.tree.item_tree import ItemTree

LONGEST_NAME = 80
_RINGS, _LEAST_SHARE, _FIRST_RING, _MOST_VISITED = 3, 0.002, 100, 300


def node_name(tree: ItemTree, node: int) -> str:
    """Return the name of a node."""
    return tree.names[node] if tree.names is not None else ("root" if node == 0 else f"node {node}")


def item_name(catalogue: Catalogue, row: int) -> str:
    """Return the title of an item, or its id if it has none."""
    title = catalogue.titles[row] if catalogue.titles is not None else None
    return str(title) if title is not None else str(catalogue.ids[row])


def estimates(posterior: Posterior, seat: int, slot: int, vectors: Floats) -> tuple[Floats, Floats]:
    """Return means and widths of arms."""
    means = vectors @ posterior.theta[seat, slot]
    squares = np.einsum("ij,ij->i", vectors @ posterior.inverse_of(seat, slot), vectors)
    return means, np.sqrt(np.maximum(squares, 0))


def _node_estimates(
    plan: Plan, state: State, seat: int, tree: ItemTree, nodes: NDArray[np.integer]
) -> tuple[Floats, Floats]:
    """Return means and widths of nodes; each is judged by the posterior of its level."""
    mean, width = np.zeros(len(nodes), dtype=np.float32), np.zeros(len(nodes), dtype=np.float32)
    slots = np.array([_slot_of(plan, tree, node) for node in nodes.tolist()], dtype=np.int64)
    for slot in np.unique(slots).tolist():
        mine = slots == slot
        mean[mine], width[mine] = estimates(state.posterior, seat, slot, plan.nodes[nodes[mine]])
    return mean + _offsets(plan.crowd.node_offset, nodes), width


def _offsets(held: Floats, at: AnyArray) -> AnyArray | float:
    """Return what the crowd adds to the means of places or nodes."""
    return held[at] if len(held) else 0.0


def _slot_of(plan: Plan, tree: ItemTree, node: int) -> int:
    """Return which of a user's posteriors judges a node: the only one, the field's, or that of its level."""
    if plan.slots == 1:
        return -1
    return 0 if plan.personal else min(max(int(tree.level[node]) - 2, 0), plan.slots - 2)


def steps_of(plan: Plan, state: State, trace: Trace, tree: ItemTree, catalogue: Catalogue) -> list[Step]:
    """Return the steps of a trace, as the state in seat 0 saw them."""
    made: list[Step] = []
    last = int(trace.steps[0]) - 1
    for at in range(last + 1):
        arms = trace.arm[at, : trace.seen[at]]
        if at == last:
            slot, vectors, rows = plan.slots - 1, plan.items[arms], plan.tree.items[arms]
            ids: list[Id] = catalogue.ids[rows].to_list()
            names = [item_name(catalogue, int(row)) for row in rows]
        else:
            slot = 0 if plan.personal else int(plan.tree.level[arms[0]]) - 2
            vectors, ids = plan.nodes[arms], [int(arm) for arm in arms]
            names = [node_name(tree, int(arm)) for arm in arms]
        means, widths = estimates(state.posterior, 0, slot, vectors)
        means = means + _offsets(plan.crowd.offset if at == last else plan.crowd.node_offset, arms)
        if len(arms) > 1:
            means = trace.mean[at, : len(arms)]
        order, chosen = np.argsort(-means, kind="stable").tolist(), int(trace.chosen[at])
        options = [
            Option(ids[i], names[i][:LONGEST_NAME], float(means[i]), float(widths[i]), i == chosen) for i in order
        ]
        kind = "item" if at == last else "node"
        made.append(Step(kind, options, int(trace.total[at]), float(trace.chance[at])))
    return made


def way_to(plan: Plan, state: State, tree: ItemTree, path: tuple[int, ...]) -> list[Option]:
    """Return what the state in seat 0 says about the nodes of a path."""
    means, widths = _node_estimates(plan, state, 0, tree, np.array(path, dtype=np.int64))
    return [
        Option(node, node_name(tree, node)[:LONGEST_NAME], mean, width, True)
        for node, mean, width in zip(path, means.tolist(), widths.tolist(), strict=True)
    ]


def interests_of(
    plan: Plan, state: State, seat: int, events: Events, tree: ItemTree, level: int, sizes: NDArray[np.int64]
) -> list[Interest]:
    """Return a user's interests, best mean first: visible nodes, or the nodes of a level (and leaves above it)."""
    if plan.personal:
        nodes = state.visible.of(seat).copy()
    else:
        here = (tree.level == level) | ((tree.level < level) & (np.diff(tree.first_child) == 0))
        nodes = np.flatnonzero(here).astype(np.int32)
    means, widths = _node_estimates(plan, state, seat, tree, nodes)
    visits, rewards = _earned_under(plan, events, nodes)
    found = [
        Interest(node, node_name(tree, node), *told)
        for node, *told in zip(
            nodes.tolist(), sizes[nodes].tolist(), means.tolist(), widths.tolist(), visits.tolist(), rewards.tolist(),
            strict=True,
        )
    ]  # fmt: skip
    return sorted(found, key=lambda interest: -interest.mean)


class FieldArrays(NamedTuple):
    """A user's field as arrays, one entry per node."""

    node: Integers
    visible: NDArray[np.bool_]
    mean: Floats
    width: Floats
    visits: NDArray[np.int64]
    reward: NDArray[np.float64]
    opened: int
    """Number of visible nodes in the whole tree; 0: the policy has no field."""


def field_of(
    plan: Plan, state: State, events: Events, tree: ItemTree, sizes: NDArray[np.int64], node: int
) -> FieldArrays:
    """Return what the state in seat 0 says about the nodes around one: down to where the user's field ends."""
    opened = state.visible.of(0).copy() if plan.personal else np.zeros(0, dtype=np.int32)
    nodes, ranges = around(tree, sizes, node), plan.tree.item_range
    if plan.personal:
        first, last = ranges[node]
        inside = opened[(ranges[opened, 0] >= first) & (ranges[opened, 1] <= last)]
        inside = inside[(inside != node) & (tree.level[inside] > tree.level[node])]
        if len(inside):
            visits, _ = _earned_under(plan, events, inside, changes=True)
            nodes = _with_ancestors(tree, node, _most_telling(sizes, node, inside, visits))
    visible = np.isin(nodes, opened) if plan.personal else np.ones(len(nodes), dtype=np.bool_)
    means, widths = _node_estimates(plan, state, 0, tree, nodes)
    return FieldArrays(nodes, visible, means, widths, *_earned_under(plan, events, nodes), len(opened))


def _earned_under(
    plan: Plan, events: Events, nodes: NDArray[np.integer], *, changes: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return a user's rewards for items under each node: how many (and changes to them), and their sum."""
    learned = (events.kind != SHOWN) & (events.place >= 0)
    order = np.argsort(events.place[learned], kind="stable")
    place, kind = events.place[learned][order], events.kind[learned][order]
    counted = np.concatenate([[0], np.cumsum(np.isin(kind, (REWARD, NOTED)) | changes)])
    earned = np.concatenate([[0.0], np.cumsum(events.reward[learned][order])])
    begin, end = (np.searchsorted(place, plan.tree.item_range[nodes, side]) for side in (0, 1))
    return counted[end] - counted[begin], earned[end] - earned[begin]


def around(tree: ItemTree, sizes: NDArray[np.int64], node: int) -> Integers:
    """Return a node and what is worth drawing of three levels below it; the first ring is never empty."""
    least = _LEAST_SHARE * int(sizes[node])
    found, ring = [np.array([node])], np.array([node])
    for depth in range(_RINGS):
        parts = [np.arange(tree.first_child[one], tree.first_child[one + 1]) for one in ring.tolist()]
        below = np.concatenate(parts) if parts else ring[:0]
        worth = sizes[below] >= least
        if depth == 0:
            worth[np.argsort(-sizes[below], kind="stable")[:_FIRST_RING]] = True
        ring = below[worth]
        found.append(ring)
    return np.concatenate(found).astype(np.int32)


def _most_telling(sizes: NDArray[np.int64], node: int, inside: Integers, visits: NDArray[np.int64]) -> Integers:
    """Return the nodes of a field that are large enough to see, and those visited most."""
    worth = sizes[inside] >= _LEAST_SHARE * int(sizes[node])
    worth[np.argsort(-sizes[inside], kind="stable")[:_FIRST_RING]] = True
    busiest = np.argsort(-visits, kind="stable")[:_MOST_VISITED]
    worth[busiest[visits[busiest] > 0]] = True
    return inside[worth]


def _with_ancestors(tree: ItemTree, node: int, nodes: Integers) -> Integers:
    """Return nodes with all their ancestors below a node, and that node."""
    found, ring = {node}, set(nodes.tolist())
    while ring:
        found |= ring
        ring = {int(tree.parent[one]) for one in ring} - found
    return np.array(sorted(found), dtype=np.int32)
