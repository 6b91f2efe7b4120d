"""The arrays that kernels read and write: a plan (the same for all users) and the state of users.

A plan is a policy made ready for a catalogue and its tree. Kernels take the parts of it that they need (`BeamArrays`,
`WalkArrays`, `Lesson`, `Paths`): numba compiles long tuples slowly, so each entry gets no more than it reads. In a
state, the first axis of every array is the seat: the index of one user's row. Copying a seat's entries copies the user.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.lazy_memory import lazy_zeros
from treeward.core.types import Floats, Integers, TreeArrays
from treeward.engine.explore import UCB, Candidates
from treeward.engine.history import History
from treeward.engine.posterior import Posterior, Start
from treeward.engine.ragged import LEAST, Lists


class Board(NamedTuple):
    """Means and squared widths of some arms, updated with every event instead of recomputed for every decision."""

    mean: Floats
    square: Floats


class Search(NamedTuple):
    """How a beam searches the tree. A policy that walks has an empty `width`.

    The beam estimates the best item under a node from the node's mean. Suppose that k of its m items are closed to the
    user, most likely the best ones. Then the next best lies about as far from the mean, in the direction of theta, as
    the (k + 1)-th largest of m normal draws lies from 0. It is about as popular as the (k + 1)-th most popular item.
    """

    width: NDArray[np.int64]
    """(levels + 1,): how many nodes are followed at each level."""
    reach: Floats
    """(nodes,): standard deviation of a node's items around its mean, per dimension."""
    ranks: Floats
    """(256,): by the share of items that are better, how many standard deviations the next one lies from the mean."""
    ladder: Floats
    """(levels + 1, items): at each level, the last feature of every node's items, sorted in descending order within the
    node's slice. (levels + 1, 0) if items have no such feature."""
    own: int
    """How many dimensions are the items' own. The others are features, the last of them popularity."""
    fresh: float
    """Probability of a uniform draw from the whole catalogue."""
    stretch: float
    """The factor between `reach` and the root mean square of the distances."""
    starts: Floats
    """(directions, d): where tangents touch the upper bound, to search along them. (0, d): by means only."""

    @classmethod
    def none(cls, dim: int) -> "Search":
        """Return the search of a policy that walks: none."""
        width, nothing = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32)
        starts = np.zeros((0, dim), dtype=np.float32)
        return cls(width, nothing, nothing, nothing.reshape(0, 0), dim, 0.0, 0.0, starts)


class CrowdArrays(NamedTuple):
    """One edition of the crowd. All arrays are empty if users are learned alone."""

    mean: Floats
    """(d,): mu, the taste that all users share. The rest of a user's theta is their own."""
    offset: Floats
    """(items,): by place, how much better an item is than its vector predicts."""
    node_offset: Floats
    """(nodes,): the mean of the highest offsets of the items under a node."""
    node_bonus: Floats
    """(nodes,): added to a node's score because the shared taste is uncertain; see `Plan.bonus`."""
    crest: Floats
    """(k, nodes): the highest sums of offset and bonus of the items under each node, in descending order. Mostly the
    first one is read, of all children of a node: so those lie side by side."""
    top: NDArray[np.int64]
    """(few,): the places that score best for a new user, best first. A beam always considers them."""
    liked: Floats
    """(few, d + 2): of each of them the vector, the offset and the bonus. Side by side they stay in the processor's
    cache, while the same rows among those of all items would be fetched from memory for every decision."""
    root: Floats
    """(d, d): M, for Thompson sampling. The shared taste varies as P^-1 M z in units of the noise, where z is normal
    and P is the precision of the prior. A user's theta then varies as A^-1 M z. (0, 0): the user's own posterior is
    sampled."""

    @classmethod
    def none(cls) -> "CrowdArrays":
        """Return the arrays of a plan whose users are learned alone."""
        nothing = np.zeros(0, dtype=np.float32)
        none = np.zeros(0, dtype=np.int64)
        table = nothing.reshape(0, 0)
        return cls(nothing, nothing, nothing, nothing, table, none, table, table)


def rows_together(places: NDArray[np.int64], items: Floats, offset: Floats, bonus: Floats) -> Floats:
    """Return `CrowdArrays.liked` of some places."""
    made = np.zeros((len(places), items.shape[1] + 2), dtype=np.float32)
    made[:, :-2], made[:, -2] = items[places], offset[places]
    if len(bonus):
        made[:, -1] = bonus[places]
    return made


class Numbers(NamedTuple):
    """All scalars of a plan that kernels read: one value instead of a dozen arguments."""

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
    """Whether a board is updated."""


class BeamArrays(NamedTuple):
    """The part of a plan that a beam reads."""

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
    """The part of a plan that a walk reads."""

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
    """The part of a plan that learning about items reads."""

    numbers: Numbers
    items: Floats
    gates: Floats
    offset: Floats


class Paths(NamedTuple):
    """The part of a plan that learning about the nodes above an item reads."""

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
    """Settings of every policy, however it finds an item."""

    shortlist: int = 0
    """How many of the user's best items so far are always considered."""
    keep: float = 1.0
    """The factor by which older observations count less after every block of new ones."""
    explore: float = 1.0
    """The share of decisions that may explore. The others take the best mean."""


class Plan(NamedTuple):
    """A policy made ready for a catalogue: the tree, the item vectors in leaf order, the rule and the budget."""

    tree: TreeArrays
    nodes: Floats
    """(nodes, d): the vectors by which nodes are scored and learned: the tree's means, or the means at length 1."""
    items: Floats
    """(items, d) in leaf order."""
    kind: int
    strength: float
    prior: Start
    node_budget: int
    """The most nodes that are scored at one step."""
    item_budget: int
    """The most items that are scored at the last step."""
    personal: bool
    """Choose among the user's visible nodes (pHCB) instead of descending from the root (HCB)."""
    start: Integers
    """The first visible nodes, in the order of their items."""
    need_visits: NDArray[np.float64]
    """(levels + 1,): at each level, the visits that a visible node needs to open."""
    need_mean: NDArray[np.float64]
    """(levels + 1,): ... and the mean reward that it has to exceed."""
    at_least: bool
    """Whether a mean reward equal to the threshold is enough."""
    by_level: bool
    """Multiply a visible node's score by its level (the paper's authors' code does)."""
    once: bool
    """Whether an item that was shown to a user rests."""
    rest: int
    """How many other items are shown before it may come back; 0: it never does."""
    board: Board
    """(watched,): the board before the first event."""
    watched: Floats
    """(watched, d): the root's children, or all items, if their means and widths are kept on the board. Empty where
    recomputing them is cheaper."""
    search: Search
    rules: Rules
    remembers: bool
    """Whether a user's history is needed."""
    gates: Floats
    """(contexts, d): factors of the vector's dimensions in each context of a request. May be empty."""
    bonus: Floats
    """(items,): added to the score of an item that few users have seen, or that the crowd knows little of. May be
    empty."""
    crowd: CrowdArrays = CrowdArrays.none()

    @property
    def beams(self) -> bool:
        """Whether a beam searches the tree. Otherwise the policy walks."""
        return len(self.search.width) > 0

    @property
    def numbers(self) -> Numbers:
        """The scalars."""
        rules = self.rules
        return Numbers(
            self.kind, self.strength, rules.explore, self.node_budget, self.item_budget, rules.shortlist, rules.keep,
            self.personal, self.by_level, self.at_least, self.once, self.rest, self.remembers, len(self.watched) > 0,
        )  # fmt: skip

    @property
    def beam(self) -> BeamArrays:
        """The part that a beam reads."""
        tree = self.tree
        return BeamArrays(
            self.numbers, tree.vectors, tree.first_child, tree.item_range, tree.items, self.items, self.bonus,
            self.search, self.crowd,
        )  # fmt: skip

    @property
    def walk(self) -> WalkArrays:
        """The part that a walk reads."""
        tree = self.tree
        return WalkArrays(
            self.numbers, self.nodes, tree.level, tree.first_child, tree.item_range, tree.items, self.items, self.bonus,
            self.crowd,
        )  # fmt: skip

    @property
    def lesson(self) -> Lesson:
        """The part that learning about items reads."""
        return Lesson(self.numbers, self.items, self.gates, self.crowd.offset)

    @property
    def paths(self) -> Paths:
        """The part that learning about nodes reads."""
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
        """Multiplications per reward."""
        dim = int(self.items.shape[1])
        # x' A^-1, the rank-1 update of A^-1, and one observation's share of the block product
        return self.slots * 3 * dim * dim + len(self.watched) * dim

    @property
    def least_field(self) -> int:
        """Visible nodes that every seat has room for: those of a new user."""
        return max(LEAST, len(self.start))


class Known(NamedTuple):
    """The part of a state that deciding reads."""

    inverse: Floats
    packed: Floats
    theta: Floats
    history: History
    shown: Lists
    short: Lists


class Walked(NamedTuple):
    """The part of a state that only a walk reads."""

    board: Board
    visible: Lists


class State(NamedTuple):
    """What is known of the users in the seats: a cache of their events."""

    posterior: Posterior
    board: Board
    """(seats, watched)."""
    history: History
    """Empty unless the plan remembers."""
    visible: Lists
    """Visible nodes, in the order of their items. Empty unless the plan is personal."""
    shown: Lists
    """Places of the items that were shown: sorted, or the latest in order if they come back after a while. Empty
    unless items rest."""
    short: Lists
    """Places of the user's best items so far. Empty unless the plan has a shortlist."""

    @property
    def known(self) -> Known:
        """The part that deciding reads."""
        posterior = self.posterior
        return Known(posterior.inverse, posterior.packed, posterior.theta, self.history, self.shown, self.short)

    @property
    def walked(self) -> Walked:
        """The part that only a walk reads."""
        return Walked(self.board, self.visible)


def worth_watching(tree: TreeArrays, nodes: Floats, items: Floats, kind: int, budgets: tuple[int, int]) -> Floats:
    """Return the vectors whose means and widths are kept on the board: the root's children, all items, or none.

    An update costs d multiplications per arm and event, recomputing d^2 per arm scored and round.
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


def empty_state(plan: Plan, seats: int, events: int, *, compact: bool = False) -> State:
    """Return a state for users with up to `events` events each. Call `reset_users` before a seat is used.

    A `compact` one is much smaller, but a user's events have to be replayed at every refresh: see `need_replay`.
    """
    children = np.diff(plan.tree.first_child)
    # Each event opens at most one node. In the worst case these are the widest ones.
    widest = int(np.sort(children)[::-1][:events].sum()) if events else 0
    most = min(len(plan.start) + widest, int((children == 0).sum())) if plan.personal else 0
    board = len(plan.board.mean)
    posterior = Posterior.empty(seats, plan.slots, plan.items.shape[1], compact=compact)
    posterior.prior_precision[:], posterior.prior_moment[:] = plan.prior.precision, plan.prior.moment
    return State(
        posterior,
        Board(lazy_zeros((seats, board), np.float32), lazy_zeros((seats, board), np.float32)),
        History.empty(seats, events if plan.remembers else 0),
        Lists.empty(seats, max(most, len(plan.start)) if plan.personal else 0),
        Lists.empty(seats, min(events, plan.rest or events) if plan.once else 0),
        Lists.empty(seats, plan.rules.shortlist),
    )


def scratch(plan: Plan) -> Candidates:
    """Return working memory for the candidates of any decision under `plan`."""
    dim = plan.items.shape[1]
    if plan.beams:
        most = plan.item_budget + plan.rules.shortlist + 1  # one more may be drawn from the whole catalogue
        return Candidates.empty(most, dim, 2 * int(plan.search.width.max()), len(plan.search.starts))
    children = np.diff(plan.tree.first_child)
    widest = int((children == 0).sum()) if plan.personal else int(children.max())
    items = min(plan.item_budget + plan.rules.shortlist, len(plan.items))
    return Candidates.empty(max(min(plan.node_budget, widest), items), dim, widest, known=plan.exact)
