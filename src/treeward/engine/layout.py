"""A policy made ready for compiled code: everything a decision needs that is the same for all users."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.types import Floats, Integers, TreeArrays
from treeward.engine.explore import UCB, Candidates
from treeward.engine.history import History
from treeward.engine.posterior import Posterior, Start
from treeward.engine.ragged import LEAST, Lists


class Board(NamedTuple):
    """Means and squared widths of what is watched, kept up with every event instead of being computed anew."""

    mean: Floats
    square: Floats


class Search(NamedTuple):
    """How a beam goes down the tree; without levels nothing does, and the policy walks instead.

    What a node may hide is guessed from what is left of it: of m items of which k are closed, most likely the best, the
    next best lies about as far from the node's middle, in the direction of theta, as the (k + 1)-th of m normal draws
    lies from 0; and it is about as popular as the (k + 1)-th most popular of them.
    """

    width: NDArray[np.int64]
    """(levels + 1,) by level: so many nodes are followed."""
    reach: Floats
    """(nodes,): how far items lie from the middle of a node, in any one direction."""
    ranks: Floats
    """(256,): by share of the items that are better, how many standard deviations the next lies from the middle."""
    ladder: Floats
    """(levels + 1, items) by level: the last feature of every node's items, which stand in a slice, in falling order;
    (levels + 1, 0) where items have none."""
    own: int
    """The first so many dimensions are the items' own, the others are features, the last of them popularity."""
    fresh: float
    """The chance that an item is drawn from all instead."""
    stretch: float
    """By how much `reach` is more than the root of the mean square."""

    @classmethod
    def none(cls, dim: int) -> "Search":
        """Return that of a policy that walks."""
        nothing = np.zeros(0, dtype=np.float32)
        return cls(np.zeros(0, dtype=np.int64), nothing, nothing, nothing.reshape(0, 0), dim, 0.0, 0.0)


class CrowdArrays(NamedTuple):
    """What everybody taught, as of one edition; without a crowd all arrays are empty."""

    mean: Floats
    """(d,): mu, the taste that users share; what a user's theta has beyond it is their own."""
    offset: Floats
    """(items,): how much better an item is than its vector says, by place."""
    node_offset: Floats
    """(nodes,): the same of what a node has to show: the mean of the highest offsets under it."""
    node_bonus: Floats
    """(nodes,): what the score of a node gains because the shared taste is uncertain; see `Plan.bonus`."""
    crest: Floats
    """(nodes, k): the highest sums of offset and bonus of the items under each node, in falling order."""
    top: NDArray[np.int64]
    """(few,): the places that score best for somebody nothing is known of, best first: a beam always looks at them."""
    root: Floats
    """(d, d): M, for Thompson sampling. The shared taste varies, in units of the noise, as P^-1 M z with normal z,
    where P is the precision of the prior. A user's theta then varies as A^-1 M z. (0, 0): a user's own posterior is
    drawn."""

    @classmethod
    def none(cls) -> "CrowdArrays":
        """Return that of a plan whose users learn alone."""
        nothing = np.zeros(0, dtype=np.float32)
        none = np.zeros(0, dtype=np.int64)
        return cls(nothing, nothing, nothing, nothing, nothing.reshape(0, 0), none, nothing.reshape(0, 0))


class Numbers(NamedTuple):
    """All single numbers of a plan that kernels read: one value instead of a dozen arguments."""

    kind: int
    strength: float
    explore: float
    node_budget: int
    item_budget: int
    shortlist: int
    keep: float
    personal: bool
    by_level: bool
    at_least: bool
    once: bool
    rest: int
    remembers: bool
    watches: bool
    """Whether a board is kept up."""


class BeamArrays(NamedTuple):
    """What a beam reads of a plan."""

    numbers: Numbers
    vectors: Floats
    """(nodes, d)"""
    first_child: Integers
    item_range: Integers
    rows: Integers
    """(items,): catalogue rows in leaf order."""
    items: Floats
    bonus: Floats
    search: Search
    crowd: CrowdArrays


class WalkArrays(NamedTuple):
    """What a walk reads of a plan."""

    numbers: Numbers
    nodes: Floats
    level: Integers
    first_child: Integers
    item_range: Integers
    rows: Integers
    items: Floats
    bonus: Floats
    crowd: CrowdArrays


class Lesson(NamedTuple):
    """What learning reads of every plan ..."""

    numbers: Numbers
    items: Floats
    gates: Floats
    offset: Floats


class Paths(NamedTuple):
    """... and, where rewards also teach the nodes above an item, of the tree."""

    nodes: Floats
    parent: Integers
    level: Integers
    first_child: Integers
    item_range: Integers
    watched: Floats
    need_visits: NDArray[np.float64]
    need_mean: NDArray[np.float64]
    offset: Floats


class Rules(NamedTuple):
    """What holds whichever way an item is found."""

    shortlist: int = 0
    """So many of the items that served the user best are always considered."""
    keep: float = 1.0
    """By how much what was learned counts less after every block of observations."""
    explore: float = 1.0
    """The share of decisions that may explore; the others take the best mean."""


class Plan(NamedTuple):
    """The tree, the items' vectors in leaf order, the rule and the budget."""

    tree: TreeArrays
    nodes: Floats
    """(nodes, d): what nodes are scored and learned by: the tree's means, or those at length 1."""
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
    """Show no item twice to a user ..."""
    rest: int
    """... until so many others were shown; 0: never."""
    board: Board
    """(watched,) before the first event."""
    watched: Floats
    """(watched, d): the root's children, or all items, whose means and widths are kept up; none where computing them
    anew is cheaper."""
    search: Search
    rules: Rules
    remembers: bool
    """Whether a user's history is needed."""
    gates: Floats
    """(contexts, d): by which vectors are multiplied, elementwise, in a request's context; there may be none."""
    bonus: Floats
    """(items,): what the score of an item gains: one that few have seen, or that the crowd knows little of. There may
    be none."""
    crowd: CrowdArrays = CrowdArrays.none()

    @property
    def beams(self) -> bool:
        """Whether a beam searches the tree, instead of a walk."""
        return len(self.search.width) > 0

    @property
    def numbers(self) -> Numbers:
        """Its single numbers."""
        rules = self.rules
        return Numbers(
            self.kind, self.strength, rules.explore, self.node_budget, self.item_budget, rules.shortlist, rules.keep,
            self.personal, self.by_level, self.at_least, self.once, self.rest, self.remembers, len(self.watched) > 0,
        )  # fmt: skip

    @property
    def beam(self) -> BeamArrays:
        """What a beam reads of it."""
        tree = self.tree
        return BeamArrays(
            self.numbers, tree.vectors, tree.first_child, tree.item_range, tree.items, self.items, self.bonus,
            self.search, self.crowd,
        )  # fmt: skip

    @property
    def walk(self) -> WalkArrays:
        """What a walk reads of it."""
        tree = self.tree
        return WalkArrays(
            self.numbers, self.nodes, tree.level, tree.first_child, tree.item_range, tree.items, self.items, self.bonus,
            self.crowd,
        )  # fmt: skip

    @property
    def lesson(self) -> Lesson:
        """What learning reads of it ..."""
        return Lesson(self.numbers, self.items, self.gates, self.crowd.offset)

    @property
    def paths(self) -> Paths:
        """... and, where rewards also teach nodes, of its tree."""
        tree = self.tree
        return Paths(
            self.nodes, tree.parent, tree.level, tree.first_child, tree.item_range, self.watched, self.need_visits,
            self.need_mean, self.crowd.node_offset,
        )  # fmt: skip

    @property
    def slots(self) -> int:
        """How many parameter vectors a user has."""
        if self.beams:
            return 1
        return 2 if self.personal else int(self.tree.level[-1])

    @property
    def exact(self) -> bool:
        """Whether all items are watched."""
        return len(self.watched) == len(self.items) and len(self.tree.parent) == 1

    @property
    def upkeep(self) -> int:
        """How many multiplications a reward takes."""
        dim = int(self.items.shape[1])
        # x' A^-1, the rank-1 change of A^-1, and the block's share of A
        return self.slots * 3 * dim * dim + len(self.watched) * dim

    @property
    def least_field(self) -> int:
        """Room for visible nodes that every seat keeps: a newcomer's."""
        return max(LEAST, len(self.start))


class Known(NamedTuple):
    """What deciding reads of the users in the seats ..."""

    inverse: Floats
    theta: Floats
    history: History
    shown: Lists
    short: Lists


class Walked(NamedTuple):
    """... and, where a walk decides, this too."""

    board: Board
    visible: Lists


class State(NamedTuple):
    """What is known of the users in the seats; a cache of their events."""

    posterior: Posterior
    board: Board
    """(seats, watched)."""
    history: History
    """Only for a plan that remembers."""
    visible: Lists
    """The user's visible nodes, in the order of their items; only for a personal plan."""
    shown: Lists
    """Places of what the user was shown: sorted, or, where they come back after a while, the last ones in order; only
    for a plan that shows an item once."""
    short: Lists
    """Places of the items that served the user best; only for a plan with a shortlist."""

    @property
    def known(self) -> Known:
        """What deciding reads of it ..."""
        return Known(self.posterior.inverse, self.posterior.theta, self.history, self.shown, self.short)

    @property
    def walked(self) -> Walked:
        """... and a walk."""
        return Walked(self.board, self.visible)


def worth_watching(tree: TreeArrays, nodes: Floats, items: Floats, kind: int, budgets: tuple[int, int]) -> Floats:
    """Return the vectors whose means and widths are kept up: the root's children, all items, or nothing.

    Keeping up costs d multiplications an arm and event, computing anew d^2 an arm scored and round.
    """
    arms, budget = nodes[tree.first_child[0] : tree.first_child[1]], budgets[0]
    if len(tree.parent) == 1:
        arms, budget = items, budgets[1]
    scored = min(len(arms), budget)
    if kind != UCB or scored < 2 or 4 * len(arms) > scored * arms.shape[1] or (arms is items and scored < len(items)):
        return arms[:0]
    return arms


def first_board(watched: Floats, prior: Start) -> Board:
    """Return the board before the first event."""
    return Board(watched @ prior.theta, np.einsum("ij,ij->i", watched @ prior.inverse, watched))


def room(plan: Plan, seats: int, events: int) -> State:
    """Return seats for users with up to `events` events each; `walk.sit` before use."""
    children = np.diff(plan.tree.first_child)
    # Each event opens one node at most, and the widest ones are the worst case.
    widest = int(np.sort(children)[::-1][:events].sum()) if events else 0
    most = min(len(plan.start) + widest, int((children == 0).sum())) if plan.personal else 0
    board = len(plan.board.mean)
    posterior = Posterior.empty(seats, plan.slots, plan.items.shape[1])
    posterior.prior_precision[:], posterior.prior_moment[:] = plan.prior.precision, plan.prior.moment
    return State(
        posterior,
        Board(np.zeros((seats, board), dtype=np.float32), np.zeros((seats, board), dtype=np.float32)),
        History.empty(seats, events if plan.remembers else 0),
        Lists.empty(seats, max(most, len(plan.start)) if plan.personal else 0),
        Lists.empty(seats, min(events, plan.rest or events) if plan.once else 0),
        Lists.empty(seats, plan.rules.shortlist),
    )


def scratch(plan: Plan) -> Candidates:
    """Return room for the candidates of any decision under `plan`."""
    dim = plan.items.shape[1]
    if plan.beams:
        most = plan.item_budget + plan.rules.shortlist + 1  # one may be drawn from all items
        return Candidates.empty(most, dim, 2 * int(plan.search.width.max()))
    children = np.diff(plan.tree.first_child)
    widest = int((children == 0).sum()) if plan.personal else int(children.max())
    items = min(plan.item_budget + plan.rules.shortlist, len(plan.items))
    return Candidates.empty(max(min(plan.node_budget, widest), items), dim, widest, known=plan.exact)
