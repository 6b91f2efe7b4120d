"""A policy made ready for compiled code: everything a decision needs that is the same for all users."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.bandit.choose import Candidates
from treeward.bandit.posterior import Posterior, Start
from treeward.bandit.rules import GREEDY_MEAN, UCB
from treeward.core.types import Floats, Integers, TreeArrays
from treeward.policy.history import History
from treeward.policy.lists import LEAST, Lists


class Board(NamedTuple):
    """Means and squared widths of the root's children, kept up with every event instead of being computed anew."""

    mean: Floats
    square: Floats


class Plan(NamedTuple):
    """The tree, the items' vectors in leaf order, the rule and the budget."""

    tree: TreeArrays
    items: Floats
    """(items, d) in leaf order."""
    kind: int
    strength: float
    prior: Start
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
    board: Board
    """(root's children,) before the first event; empty where computing anew is cheaper."""

    @property
    def slots(self) -> int:
        """How many parameter vectors a user has."""
        return 2 if self.personal else int(self.tree.level[-1])

    @property
    def least_field(self) -> int:
        """Room for visible nodes that every seat keeps: a newcomer's."""
        return max(LEAST, len(self.start))


class State(NamedTuple):
    """What is known of the users in the seats; a cache of their events."""

    posterior: Posterior
    board: Board
    """(seats, root's children)."""
    history: History
    """Only for a personal plan, or one that scores arms by their own means."""
    visible: Lists
    """The user's visible nodes, in the order of their items; only for a personal plan."""
    shown: Lists
    """Sorted places of what the user was shown; only for a plan that shows an item once."""


def first_board(tree: TreeArrays, prior: Start, kind: int, node_budget: int, personal: bool) -> Board:
    """Return the board before the first event, or an empty one.

    Keeping up costs d multiplications a child and event, computing anew d^2 a child scored and round.
    """
    children = tree.vectors[tree.first_child[0] : tree.first_child[1]]
    scored = min(len(children), node_budget)
    if personal or kind != UCB or scored < 2 or 4 * len(children) > scored * children.shape[1]:
        children = children[:0]
    return Board(children @ prior.theta, np.einsum("ij,ij->i", children @ prior.inverse, children))


def room(plan: Plan, seats: int, events: int) -> State:
    """Return seats for users with up to `events` events each; `walk.sit` before use."""
    children = np.diff(plan.tree.first_child)
    # Each event opens one node at most, and the widest ones are the worst case.
    widest = int(np.sort(children)[::-1][:events].sum()) if events else 0
    most = min(len(plan.start) + widest, int((children == 0).sum())) if plan.personal else 0
    board = len(plan.board.mean)
    return State(
        Posterior.empty(seats, plan.slots, plan.items.shape[1]),
        Board(np.zeros((seats, board), dtype=np.float32), np.zeros((seats, board), dtype=np.float32)),
        History.empty(seats, events if plan.personal or plan.kind == GREEDY_MEAN else 0),
        Lists.empty(seats, max(most, len(plan.start)) if plan.personal else 0),
        Lists.empty(seats, events if plan.once else 0),
    )


def scratch(plan: Plan) -> Candidates:
    """Return room for the candidates of any decision under `plan`."""
    children = np.diff(plan.tree.first_child)
    widest = int((children == 0).sum()) if plan.personal else int(children.max())
    most = max(min(plan.node_budget, widest), min(plan.item_budget, len(plan.items)))
    return Candidates.empty(most, plan.items.shape[1], widest)
