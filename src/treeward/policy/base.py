"""What every policy shares: a bandit, a budget of scores, a tree to walk, and the plan made of them."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from treeward.bandit import Bandit, LinUCB, Prior
from treeward.bandit.posterior import Start
from treeward.core import checks
from treeward.core.errors import InvalidArgument
from treeward.core.types import Floats, Integers
from treeward.data.catalogue import Catalogue
from treeward.policy.expansion import Thresholds
from treeward.policy.plan import Plan, first_board
from treeward.policy.session import Session, TreeSession
from treeward.policy.walk import MOST_SCORES, MOST_STEPS
from treeward.tree.item_tree import ItemTree
from treeward.tree.rows import Rows

_UNLIMITED = 2**31 - 1
_LONGEST = 1000.0


@dataclass(frozen=True)
class Policy:
    """A way to walk a tree.

    Parameters
    ----------
    bandit
        How candidates are scored: `LinUCB`, `Thompson` or `EpsilonGreedy`.
    budget
        Score computations a round; None: score everything.
    split
        ``"paper"``: the budget is shared evenly by the decisions of a round, the remainder goes to the item; what a
        decision does not use is lost. ``"authors"``: as in the paper's authors' code, the nodes share one budget and
        the item has another of the same size, and pHCB multiplies a node's score by its level.
    prior
        What is believed of a user before the first event; by default theta ~ N(0, I / ridge).
    """

    shared_state: ClassVar[bool] = False
    """Whether users share parameters. Such a policy overrides `session`, runs round by round, and cannot be replayed
    user by user, so `Explorer` refuses it."""

    replayable: ClassVar[bool] = True
    """Whether a user's state follows from the user's events by walking a tree. One that is not runs round by round too,
    in a session of its own, and `Explorer` refuses it."""

    needs_categories: ClassVar[bool] = False
    """Whether it works with catalogues that have categories only."""

    bandit: Bandit = field(default_factory=LinUCB)
    budget: int | None = 50
    split: Literal["paper", "authors"] = "paper"
    prior: Prior | None = None

    @property
    def name(self) -> str:
        """The policy's name with its bandit's."""
        return f"{type(self).__name__}({type(self.bandit).__name__})"

    def tree_for(self, tree: ItemTree, catalogue: Catalogue) -> ItemTree:
        """Return the tree this policy walks, given the catalogue's."""
        return tree

    def session(
        self, tree: ItemTree, catalogue: Catalogue, users: int, *, once: bool = False, seed: int = 0
    ) -> Session:
        """Return the policy at work for users 0, 1, ... below `users`, all of them new."""
        return TreeSession(self.plan(tree, catalogue, once=once), users, seed)

    def plan(self, tree: ItemTree, catalogue: Catalogue, *, once: bool = False) -> Plan:
        """Return the policy made ready for a catalogue and its tree."""
        self.check_tree(tree, catalogue)
        return self.plan_on(self.tree_for(tree, catalogue), catalogue, once=once)

    def plan_on(self, walked: ItemTree, catalogue: Catalogue, *, once: bool = False) -> Plan:
        """Return the policy made ready for a tree that is already the one it walks (see `tree_for`)."""
        self.check_tree(walked, catalogue)
        owner = type(self).__name__
        levels = int(walked.level[-1])
        if levels >= MOST_STEPS:
            raise InvalidArgument(owner, "tree", f"of at most {MOST_STEPS - 1} levels", levels)
        nodes, items = self._budgets(owner, levels)
        rule = self.bandit.rule(catalogue.dim)
        thresholds = self._thresholds(levels)
        ordered = _in_leaf_order(walked, catalogue)
        prior = (self.prior or Prior()).start(catalogue.dim, rule.ridge)
        _check_lengths(type(self.bandit).__name__, ordered, prior, rule.ridge)
        return Plan(
            tree=walked.arrays,
            items=ordered,
            kind=rule.kind,
            strength=rule.strength,
            prior=prior,
            node_budget=nodes,
            item_budget=items,
            personal=self._personal(),
            start=self._start(walked),
            need_visits=thresholds.visits,
            need_mean=thresholds.mean,
            at_least=thresholds.at_least,
            by_level=self._personal() and self.split == "authors",
            once=once,
            board=first_board(walked.arrays, prior, rule.kind, nodes, self._personal()),
        )

    def check_tree(self, tree: ItemTree, catalogue: Catalogue) -> None:
        """Refuse a tree that is not the catalogue's."""
        if len(tree) != len(catalogue) or tree.dim != catalogue.dim:
            raise InvalidArgument(
                type(self).__name__,
                "tree",
                f"over {len(catalogue)} items of {catalogue.dim} dimensions",
                f"{len(tree)} x {tree.dim}",
            )

    def _decisions(self, levels: int) -> int:
        return levels

    def _budgets(self, owner: str, levels: int) -> tuple[int, int]:
        decisions = self._decisions(levels)
        checks.one_of(owner, "split", self.split, ("paper", "authors"))
        if self.budget is None:
            return _UNLIMITED, _UNLIMITED
        if self.split == "authors":
            budget = checks.integer(owner, "budget", self.budget, low=max(1, decisions - 1), high=MOST_SCORES)
            return budget // max(1, decisions - 1), budget
        budget = checks.integer(owner, "budget", self.budget, low=decisions, high=MOST_SCORES)
        return budget // decisions, budget - (decisions - 1) * (budget // decisions)

    def _personal(self) -> bool:
        return False

    def _start(self, tree: ItemTree) -> Integers:
        return np.zeros(1, dtype=np.int32)

    def _thresholds(self, levels: int) -> Thresholds:
        never = np.full(levels + 1, np.inf)
        return Thresholds(never, never)


def _check_lengths(owner: str, vectors: Floats, prior: Start, ridge: float) -> None:
    """Refuse vectors so long against the prior that A^-1 in float32 would lose the widths."""
    blocks = np.array_split(vectors, 1 + len(vectors) // 65536)
    widest = max(float(np.einsum("ij,ij->i", block @ prior.inverse, block).max()) for block in blocks)
    if not widest <= _LONGEST:
        rule = f"at least {ridge * widest / _LONGEST:.3g} for vectors of squared width {widest:.3g} (or normalise them)"
        raise InvalidArgument(owner, "ridge", rule, ridge)


def _in_leaf_order(tree: ItemTree, catalogue: Catalogue) -> Floats:
    ordered = Rows(catalogue.vectors, tree.normalized).take(tree.items)
    ordered.flags.writeable = False
    return ordered
