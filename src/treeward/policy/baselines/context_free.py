"""A group first, then one of its items, by mean rewards alone: how the paper's authors read HMAB and ICTRUCB."""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.bandit.rules import Rule
from treeward.core import rng
from treeward.core.compiled import kernel
from treeward.core.errors import InvalidArgument
from treeward.data.catalogue import Catalogue
from treeward.engine.explore import UCB
from treeward.policy.baselines.base import RoundPolicy, RoundSession, Setup
from treeward.policy.baselines.kernels import BatchDraws, Chosen, Drawn, scored, take_best
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
        """Whether the catalogue must have categories."""
        return self.groups == "categories"

    def at_work(self, tree: ItemTree, catalogue: Catalogue, setup: Setup) -> Session:
        """Return its session."""
        grouped = self._by_category(tree, catalogue) if self.groups == "categories" else tree.leaves_only()
        return _Session(self, grouped, self.bandit.rule(catalogue.dim), setup)


class Arms(NamedTuple):
    """Statistics of arms: (owners, arms). There is one owner if users share them."""

    visits: NDArray[np.int32]
    sums: NDArray[np.float64]

    @classmethod
    def empty(cls, arms: int, shared: bool, users: int) -> "Arms":
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

    def __init__(self, policy: ContextFree, tree: ItemTree, rule: Rule, setup: Setup) -> None:
        # Without levels below it, the root is the only group.
        super().__init__(tree.items, setup, tree.item_range[1:] if len(tree.parent) > 1 else tree.item_range)
        self.rule, self.shared = rule, (policy.shared_nodes, policy.shared_items)
        counts = len(self.ranges), len(tree.items)
        self.arms = tuple(Arms.empty(*sizes, self.users) for sizes in zip(counts, self.shared, strict=True))
        """Of groups, and of items."""

    def _owners(self, step: int, who: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of the users' statistics."""
        return np.zeros_like(who) if self.shared[step] else who

    def choose(self, step: int, who: NDArray[np.int64], drawn: Drawn, draws: BatchDraws, out: Chosen) -> None:
        """Choose a group, then an item."""
        _select(self.arms[step], self._owners(step, who), self.rule, drawn, draws, out)

    def learn(self, decisions: Decisions, rewards: NDArray[np.float64]) -> None:
        """Count rewards for the group and for the item."""
        for step, arms in enumerate((decisions.node, decisions.place)):
            self.arms[step].add(self._owners(step, decisions.user), arms, rewards)


@kernel
def _select(arms: Arms, owners: NDArray[np.int64], rule: Rule, drawn: Drawn, draws: BatchDraws, out: Chosen) -> None:
    here = scored(drawn.place.shape[1])
    for i in range(len(owners)):
        for j in range(drawn.taken[i]):
            arm = drawn.place[i, j]
            weight = arms.visits[owners[i], arm] + rule.ridge
            here.mean[j], here.width[j] = arms.sums[owners[i], arm] / weight, 1.0 / np.sqrt(weight)
            step = 1.0 if rule.kind == UCB else rng.normal(draws.seed, draws.streams[i], draws.counter + 1 + j)
            here.score[j] = here.mean[j] + rule.strength * here.width[j] * step
        if drawn.taken[i] > 0:
            take_best(here, drawn, i, draws, out)
