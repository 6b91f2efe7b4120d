"""A policy made ready for compiled code: everything a decision needs that is the same for all users."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.bandit.choose import Candidates
from treeward.bandit.posterior import Posterior
from treeward.core.types import Floats, Integers, TreeArrays
from treeward.policy.history import History


class Plan(NamedTuple):
    """The tree, the items' vectors in leaf order, the rule and the budget."""

    tree: TreeArrays
    items: Floats
    """(items, d) in leaf order."""
    kind: int
    strength: float
    ridge: float
    node_budget: int
    """At most so many nodes are scored at a step."""
    item_budget: int
    """At most so many items are scored at the last step."""
    personal: bool
    """Choose among the user's visible nodes (pHCB) instead of descending from the root (HCB)."""
    start: Integers
    """The first visible nodes, in the order of their items."""
    need_visits: NDArray[np.float64]
    """(levels + 1,) by level: a visible node opens at so many visits ..."""
    need_mean: NDArray[np.float64]
    """... and a mean reward beyond this."""
    at_least: bool
    """A mean reward equal to the threshold is enough."""
    by_level: bool
    """Multiply a visible node's score by its level (the paper's authors' code does)."""
    once: bool
    """Show no item twice to a user."""

    @property
    def slots(self) -> int:
        """How many parameter vectors a user has."""
        return 2 if self.personal else int(self.tree.level[-1])


class State(NamedTuple):
    """What is known of the users in the seats; a cache of their events."""

    posterior: Posterior
    history: History
    visible: Integers
    """(seats, most) the user's visible nodes, in the order of their items; only for a personal plan."""
    open: NDArray[np.int64]
    """(seats,) how many of them."""


def room(plan: Plan, seats: int, events: int) -> State:
    """Return seats for users with up to `events` events each; `walk.sit` before use."""
    children = np.diff(plan.tree.first_child)
    # Each event opens one node at most, and the widest ones are the worst case.
    widest = int(np.sort(children)[::-1][:events].sum()) if events else 0
    most = min(len(plan.start) + widest, int((children == 0).sum())) if plan.personal else 1
    return State(
        Posterior.empty(seats, plan.slots, plan.items.shape[1]),
        History.empty(seats, events),
        np.zeros((seats, max(most, len(plan.start), 1)), dtype=np.int32),
        np.zeros(seats, dtype=np.int64),
    )


def scratch(plan: Plan, state: State) -> Candidates:
    """Return room for the candidates of any decision under `plan`."""
    widest = max(int(np.diff(plan.tree.first_child).max()), state.visible.shape[1])
    most = max(min(plan.node_budget, widest), min(plan.item_budget, len(plan.items)))
    return Candidates.empty(most, plan.items.shape[1])
