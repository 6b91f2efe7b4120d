"""What can be looked at: a decision, how it came about, and what interests a user."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.types import AnyArray, Floats
from treeward.data.catalogue import Catalogue, Id
from treeward.engine.layout import Plan, State
from treeward.engine.posterior import Posterior
from treeward.engine.replay import Events
from treeward.engine.trace import Trace
from treeward.store.base import User
from treeward.store.events import NOTED, REWARD, SHOWN
from treeward.tree.item_tree import ItemTree


class Decision(NamedTuple):
    """An item for a user."""

    id: str
    """What feedback is given to; opaque, sealed."""
    user: User
    item: Id
    slot: int
    """Which of the n of the call, from 0."""
    mean: float
    """Estimated reward of the item."""
    width: float
    """How uncertain that is: sqrt(x' A^-1 x)."""
    propensity: float
    """How probable this item was, given the slots before it; an estimate unless `exact`."""
    exact: bool
    """Under LinUCB or epsilon-greedy: every step considered all its arms, or all that `Beam` comes to by itself."""
    path: tuple[int, ...]
    """The nodes from below the root to where the item was taken from."""
    scores: int
    """How many scores were computed."""
    bold: bool = False
    """Whether something of a higher mean was passed over on the way, for the sake of what may be learned."""
    edition: int = 0
    """The edition of the crowd that it was decided by; 0: the user is learned alone, or nothing was published yet."""


class Option(NamedTuple):
    """An arm that was considered at a step."""

    id: Id
    """Number of a node, or id of an item."""
    name: str
    mean: float
    width: float
    chosen: bool


class Step(NamedTuple):
    """One choice on the way to an item."""

    kind: str
    """``"node"`` or ``"item"``."""
    considered: list[Option]
    """Best mean first."""
    total: int
    """Out of how many they were drawn."""
    chance: float
    """Probability of the chosen one among those considered."""


class Explanation(NamedTuple):
    """How a decision came about."""

    user: User
    item: Id
    title: str
    steps: list[Step]
    reproduced: bool
    """Whether deciding again gave the same item. It does, unless the call had filters that `explain` was not given, or
    the items, the tree, the policy or the seed have changed since."""
    way: list[Option]
    """The nodes from below the root to where the item was taken from, as they were thought of then."""

    def __repr__(self) -> str:
        lines = [f"{self.title} for {self.user}"]
        for step in self.steps:
            chosen = next((option for option in step.considered if option.chosen), None)
            name = chosen.name if chosen else "?"
            seen = f"{len(step.considered)} of {step.total}"
            estimate = f"mean {chosen.mean:.3f}, width {chosen.width:.3f}" if chosen else ""
            lines.append(f"  {step.kind:4}  {name}: {estimate}; {seen} considered, chance {step.chance:.3g}")
        return "\n".join(lines)


class Counts(NamedTuple):
    """How often items, or those under nodes, were shown, and what that earned."""

    shown: NDArray[np.int64]
    earned: NDArray[np.float64]


class Interest(NamedTuple):
    """What is known of a user's interest in the items under a node."""

    node: int
    name: str
    items: int
    mean: float
    width: float
    visits: int
    """Events of the user on these items ..."""
    reward: float
    """... and what they earned in all."""


def node_name(tree: ItemTree, node: int) -> str:
    """Return what to call a node."""
    return tree.names[node] if tree.names is not None else ("root" if node == 0 else f"node {node}")


def item_name(catalogue: Catalogue, row: int) -> str:
    """Return what to call an item."""
    title = catalogue.titles[row] if catalogue.titles is not None else None
    return str(title) if title is not None else str(catalogue.ids[row])


def estimates(posterior: Posterior, seat: int, slot: int, vectors: Floats) -> tuple[Floats, Floats]:
    """Return means and widths of arms."""
    means = vectors @ posterior.theta[seat, slot]
    squares = np.einsum("ij,ij->i", vectors @ posterior.inverse[seat, slot], vectors)
    return means, np.sqrt(np.maximum(squares, 0))


def offsets(held: Floats, at: AnyArray | int) -> AnyArray:
    """Return what the crowd adds to the means of some places or nodes."""
    return held[at] if len(held) else np.float32(0.0)  # type: ignore[return-value]


def steps_of(plan: Plan, state: State, seat: int, trace: Trace, tree: ItemTree, catalogue: Catalogue) -> list[Step]:
    """Return a trace in words."""
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
        means, widths = estimates(state.posterior, seat, slot, vectors)
        means = means + offsets(plan.crowd.offset if at == last else plan.crowd.node_offset, arms)
        if len(arms) > 1:
            means = trace.mean[at, : len(arms)]
        options = _options(ids, names, means, widths, int(trace.chosen[at]))
        kind = "item" if at == last else "node"
        made.append(Step(kind, options, int(trace.total[at]), float(trace.chance[at])))
    return made


def way_to(plan: Plan, state: State, tree: ItemTree, path: tuple[int, ...]) -> list[Option]:
    """Return what the state in seat 0 says of the nodes of a path."""
    found = []
    for node in path:
        [mean], [width] = estimates(state.posterior, 0, slot_of(plan, tree, node), plan.nodes[node : node + 1])
        mean += offsets(plan.crowd.node_offset, node)
        found.append(Option(node, node_name(tree, node), float(mean), float(width), True))
    return found


def slot_of(plan: Plan, tree: ItemTree, node: int) -> int:
    """Return which of a user's posteriors judges a node: the only one, the field's, or that of its level."""
    if plan.slots == 1:
        return -1
    return 0 if plan.personal else min(max(int(tree.level[node]) - 2, 0), plan.slots - 2)


def _options(ids: list[Id], names: list[str], means: Floats, widths: Floats, chosen: int) -> list[Option]:
    order: AnyArray = np.argsort(-means, kind="stable")
    return [Option(ids[i], names[i], float(means[i]), float(widths[i]), i == chosen) for i in order.tolist()]


def survey(
    plan: Plan, state: State, seat: int, events: Events, tree: ItemTree, level: int, sizes: NDArray[np.int64]
) -> list[Interest]:
    """Return a user's interests, best mean first: visible nodes, or the nodes of a level (and leaves above it)."""
    if plan.personal:
        nodes = state.visible.of(seat).copy()
    else:
        here = (tree.level == level) | ((tree.level < level) & (np.diff(tree.first_child) == 0))
        nodes = np.flatnonzero(here).astype(np.int32)
    found = []
    learned = (events.kind != SHOWN) & (events.place >= 0)
    for node in nodes.tolist():
        [mean], [width] = estimates(state.posterior, seat, slot_of(plan, tree, node), plan.nodes[node : node + 1])
        mean += offsets(plan.crowd.node_offset, node)
        first, last = plan.tree.item_range[node].tolist()
        mine = learned & (events.place >= first) & (events.place < last)
        visits, reward = int(np.isin(events.kind[mine], (REWARD, NOTED)).sum()), float(events.reward[mine].sum())
        found.append(Interest(node, node_name(tree, node), int(sizes[node]), float(mean), float(width), visits, reward))
    return sorted(found, key=lambda interest: -interest.mean)
