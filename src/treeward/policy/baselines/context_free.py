"""A group first, then an item of it, by their mean rewards alone: how the paper's authors read HMAB and ICTRUCB."""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treeward.bandit.rules import Rule
from treeward.core import rng
from treeward.core.compiled import kernel
from treeward.core.errors import InvalidArgument
from treeward.data.catalogue import Catalogue
from treeward.engine.explore import UCB
from treeward.policy.baselines.base import ROUND, STEP, Drawn, RoundPolicy, RoundSession, best
from treeward.policy.session import Decisions, Session
from treeward.tree.item_tree import ItemTree

_MOST_CELLS = 100_000_000


@dataclass(frozen=True)
class ContextFree(RoundPolicy):
    """A two-stage bandit without vectors: choose a group of items, then an item of the group.

    An arm with n visits and rewards of sum s has the mean s / (n + ridge) and the width 1 / sqrt(n + ridge). That is
    LinUCB with a unit vector per arm. With LinUCB the score is mean + alpha * width; with Thompson sampling it is a
    draw from N(mean, (v * width)^2). A reward goes to the group and to the item. Half of the budget is for groups, half
    for items; where there are more arms, a uniform sample is scored.

    It declares `shared_state` whatever its options, because that is declared per class: users are independent when
    nothing is shared, but they run together, and their intervals are the wider ones of users who share.

    Parameters
    ----------
    groups
        ``"categories"``: those of the catalogue. ``"leaves"``: those of the tree.
    shared_nodes, shared_items
        Whether the statistics of groups, and of items, are shared by all users. If not, there is a dense table per
        user, of at most 100,000,000 cells (users x arms) in all.
    """

    shared_state: ClassVar[bool] = True

    groups: Literal["categories", "leaves"] = "categories"
    shared_nodes: bool = False
    shared_items: bool = False

    @property
    def needs_categories(self) -> bool:  # type: ignore[override]
        """Whether it works with catalogues that have categories only."""
        return self.groups == "categories"

    def session(
        self, tree: ItemTree, catalogue: Catalogue, users: int, *, once: bool = False, rest: int = 0, seed: int = 0
    ) -> Session:
        """Return the policy at work for users 0, 1, ... below `users`, all of them new."""
        own = self.check(tree, catalogue, rest)
        shared = (own.shared_nodes, own.shared_items)
        grouped = self.by_category(tree, catalogue) if self.groups == "categories" else tree.leaves_only()
        return _Session(grouped, self.bandit.rule(catalogue.dim), shared, users, self.budget, once, seed)


class Arms(NamedTuple):
    """Statistics of arms: (owners, arms). There is one owner if users share them."""

    visits: NDArray[np.int32]
    sums: NDArray[np.float64]

    @classmethod
    def empty(cls, arms: int, users: int, shared: bool) -> "Arms":
        """Return arms that were never tried."""
        owners = 1 if shared else users
        if owners * arms > _MOST_CELLS:
            rule = f"at most {_MOST_CELLS // arms:,} for {arms:,} arms with statistics per user"
            raise InvalidArgument("ContextFree", "users", rule, users)
        return cls(np.zeros((owners, arms), dtype=np.int32), np.zeros((owners, arms)))

    def add(self, owners: NDArray[np.int64], arms: NDArray[np.int64], rewards: NDArray[np.float64]) -> None:
        """Count visits and rewards; an arm may occur several times."""
        np.add.at(self.visits, (owners, arms), 1)
        np.add.at(self.sums, (owners, arms), rewards)


class _Session(RoundSession):
    each = 2

    def __init__(
        self,
        tree: ItemTree,
        rule: Rule,
        shared: tuple[bool, bool],
        users: int,
        budget: int | None,
        once: bool,
        seed: int,
    ) -> None:
        super().__init__(tree.items, users, budget, once, seed)
        first, last = int(tree.first_child[0]), int(tree.first_child[1])
        if first == last:  # a tree without levels: the root is the only leaf
            first, last = 0, 1
        self.ranges = tree.item_range[first:last].astype(np.int64)
        self.rule, self.shared = rule, shared
        self.share = (self.budget // 2, self.budget - self.budget // 2)
        self.group_arms = Arms.empty(len(self.ranges), users, shared[0])
        self.item_arms = Arms.empty(len(tree.items), users, shared[1])

    def _owners(self, who: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows of the users' statistics: of groups and of items."""
        nobody = np.zeros_like(who)
        return nobody if self.shared[0] else who, nobody if self.shared[1] else who

    def select(self, users: ArrayLike, nonce: int, allow: ArrayLike | None = None) -> Decisions:
        """Decide once for each of the users."""
        who = self.who(users)
        of_nodes, of_items = self._owners(who)
        arms = self.draw_groups(who, nonce, self.ranges, self.share[0], allow)
        nodes, places, judged = np.zeros(len(who), dtype=np.int64), np.full(len(who), -1), np.zeros((len(who), 2))
        streams, counter = self.streams[who], nonce * ROUND
        _select(self.group_arms, of_nodes, self.rule, arms, self.seed, streams, counter + 2 * STEP, nodes, judged)
        drawn = self.draw(who, nonce, self.ranges[nodes], self.share[1], allow, 1)
        _select(self.item_arms, of_items, self.rule, drawn, self.seed, streams, counter + 3 * STEP, places, judged)
        return self.decided(who, nonce, places, nodes, judged, arms, drawn)

    def update(self, decisions: Decisions, rewards: ArrayLike) -> None:
        """Learn from the rewards of decisions."""
        values = self.rewards(decisions, rewards)
        of_nodes, of_items = self._owners(decisions.user)
        self.group_arms.add(of_nodes, decisions.node, values)
        self.item_arms.add(of_items, decisions.place, values)


@kernel
def _select(
    arms: Arms,
    owners: NDArray[np.int64],
    rule: Rule,
    drawn: Drawn,
    seed: int,
    streams: NDArray[np.int64],
    counter: int,
    chosen: NDArray[np.int64],
    judged: NDArray[np.float64],
) -> None:
    most = drawn.place.shape[1]
    scores, means, widths = np.empty(most), np.empty(most), np.empty(most)
    for i in range(len(owners)):
        count = drawn.taken[i]
        if count == 0:
            continue
        for j in range(count):
            arm = drawn.place[i, j]
            weight = arms.visits[owners[i], arm] + rule.ridge
            means[j], widths[j] = arms.sums[owners[i], arm] / weight, 1.0 / np.sqrt(weight)
            step = 1.0 if rule.kind == UCB else rng.normal(seed, streams[i], counter + 1 + j)
            scores[j] = means[j] + rule.strength * widths[j] * step
        at = best(scores, count, seed, streams[i], counter)
        chosen[i], judged[i, 0], judged[i, 1] = drawn.place[i, at], means[at], widths[at]
