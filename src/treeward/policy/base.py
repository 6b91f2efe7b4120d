"""`Policy`: what all policies share. It makes a plan from a bandit, a budget of scores and a tree."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.bandit import Bandit, LinUCB, Prior
from treeward.bandit.crowd import Crowd
from treeward.core import checks
from treeward.core.checks import Fraction, Number
from treeward.core.errors import InvalidArgument
from treeward.core.progress import Progress
from treeward.core.types import Floats, Integers
from treeward.data.catalogue import Catalogue
from treeward.embed.features import Features
from treeward.engine.explore import GREEDY_MEAN
from treeward.engine.layout import Plan, Rules, Search, first_board, worth_watching
from treeward.engine.posterior import BLOCK, Start
from treeward.engine.sampling import MOST_SCORES, MOST_STEPS
from treeward.policy.session import Session, TreeSession
from treeward.tree.item_tree import ItemTree
from treeward.tree.row_groups import Rows

PRIOR = "prior_sha256"
"""Key in a tree's provenance: the digest of the prior that it was built with."""
_UNLIMITED = 2**31 - 1
_LONGEST = 1000.0


class Thresholds(NamedTuple):
    """By level, from 0 (unused) to the deepest: what a visible node needs in order to open."""

    visits: NDArray[np.float64]
    mean: NDArray[np.float64]
    at_least: bool = False
    """Whether a mean reward equal to the threshold is enough."""


@dataclass(frozen=True)
class Policy:
    """A way to walk a tree.

    Parameters
    ----------
    bandit
        How candidates are scored: `LinUCB`, `Thompson` or `EpsilonGreedy`.
    budget
        Score computations per round; None: score everything.
    split
        ``"paper"``: the decisions of a round share the budget evenly, and the remainder goes to the item; what a
        decision does not use is lost. ``"authors"``: as in the code of the paper's authors, the nodes share one budget,
        the item has another of the same size, and pHCB multiplies a node's score by its level.
    prior
        The distribution of a user's theta before the first event; by default N(0, I / ridge). A `Crowd` also adds
        features to the items: the catalogue and the tree get them if they lack them.
    shortlist
        So many of the scores for items go to those with the best rewards from this user so far; useful if items may
        repeat.
    forgetting
        What remains of earlier events after each new one: a little below 1 if interests drift. It is applied after
        every 32 events. A node that pHCB has opened stays open.
    explore
        The share of decisions that may explore; in the others only means count.
    node_vectors
        ``"unit"``: nodes are scored and learned by vectors of length 1, as section 4.4 of the paper assumes for every
        arm (if items are not normalised: of the root mean square length of the items below). ``"mean"``: by the plain
        means in the tree, as in the authors' code.
    features
        What replaces the items' own vectors (`NeuralLinear`, `Crossed`): the catalogue and the tree get them if they
        lack them. A prior is then about these features.
    """

    shared_state: ClassVar[bool] = False
    """Whether users share parameters. Such a policy overrides `session` and runs round by round. `Explorer` refuses it,
    because it cannot be replayed user by user."""

    replayable: ClassVar[bool] = True
    """Whether a user's state follows from the user's events by walking a tree. If not, the policy runs round by round,
    in a session of its own, and `Explorer` refuses it."""

    needs_categories: ClassVar[bool] = False
    """Whether the catalogue must have categories."""

    bandit: Bandit = field(default_factory=LinUCB)
    budget: int | None = 50
    split: Literal["paper", "authors"] = "paper"
    prior: Prior | None = None
    shortlist: int = 0
    forgetting: Annotated[float, Number(above=0, high=1)] = 1.0
    explore: Fraction = 1.0
    node_vectors: Literal["unit", "mean"] = "unit"
    features: Features | None = None

    @property
    def name(self) -> str:
        """The policy's name with its bandit's."""
        return f"{type(self).__name__}({type(self.bandit).__name__})"

    def catalogue_for(self, catalogue: Catalogue) -> Catalogue:
        """Return the catalogue as this policy sees it: with its features, and those of its prior."""
        prior = self.prior if isinstance(self.prior, Crowd) else None
        if self.features is not None and not (prior is not None and prior.knows(catalogue)):
            catalogue = self.features.transform(catalogue)
        return catalogue if prior is None else prior.transform(catalogue)

    def grow(
        self,
        catalogue: Catalogue,
        seed: int = 0,
        progress: Progress | None = None,
        *,
        widths: Sequence[int] | None = None,
        max_leaf: int | None = None,
        threads: int | None = None,
    ) -> ItemTree:
        """Return a tree for a catalogue, over its vectors, or over vectors spaced by this policy's prior."""
        seen, prior = self.catalogue_for(catalogue), self.prior if isinstance(self.prior, Crowd) else None
        tree = ItemTree.build(
            seen.vectors if prior is None else prior.spaced(seen),
            widths,
            seed=seed,
            normalize=prior is None and self.features is None,
            max_leaf=max_leaf,
            threads=threads,
            progress=progress,
        )
        if prior is None:
            return tree
        tree = tree.over(seen.vectors)
        return ItemTree(tree.arrays, provenance={**tree.provenance, PRIOR: prior.digest})

    def metric(self, dim: int) -> Floats:
        """Return (dim, dim): what vectors are multiplied by before they are clustered."""
        return self.prior.metric if isinstance(self.prior, Crowd) else np.eye(dim, dtype=np.float32)

    def tree_for(self, tree: ItemTree, catalogue: Catalogue) -> ItemTree:
        """Return the tree this policy walks, given the catalogue's."""
        return tree

    def _by_category(self, tree: ItemTree, catalogue: Catalogue) -> ItemTree:
        """Return the tree of the catalogue's categories."""
        if catalogue.categories is None:
            raise InvalidArgument(type(self).__name__, "catalogue", "one with categories", "none")
        return ItemTree.from_categories(catalogue.vectors, catalogue.categories, normalize=tree.normalized)

    def session(
        self, tree: ItemTree, catalogue: Catalogue, users: int, *, once: bool = False, rest: int = 0, seed: int = 0
    ) -> Session:
        """Return the policy at work for users 0, 1, ... below `users`, all of them new; see `plan`."""
        return TreeSession(self.plan(tree, catalogue, once=once, rest=rest), users, seed)

    def plan(self, tree: ItemTree, catalogue: Catalogue, *, once: bool = False, rest: int = 0) -> Plan:
        """Return the policy made ready for a catalogue and its tree.

        `once`: an item is shown to a user only once, or, if `rest` is not 0, again after `rest` other items.
        """
        return self.plan_on(*self.fitted(tree, catalogue), once=once, rest=rest)

    def fitted(self, tree: ItemTree, catalogue: Catalogue) -> tuple[ItemTree, Catalogue]:
        """Return the tree this policy walks and the catalogue as it sees it."""
        self = checks.validate(self)
        seen = self.catalogue_for(catalogue)
        special = self.features is not None or isinstance(self.prior, Crowd)
        if special and len(tree) == len(seen):
            if self.features is None and tree.dim != seen.dim:
                self.check_tree(tree, catalogue)
            tree = tree.over(seen.vectors)  # it may be from an earlier prior, or over vectors without features
        self.check_tree(tree, seen)
        return self.tree_for(tree, seen), seen

    def plan_on(self, walked: ItemTree, catalogue: Catalogue, *, once: bool = False, rest: int = 0) -> Plan:
        """Return the policy made ready for what `fitted` returned."""
        self = checks.validate(self)
        self.check_tree(walked, catalogue)
        owner = type(self).__name__
        levels = int(walked.level[-1])
        if levels >= MOST_STEPS:
            raise InvalidArgument(owner, "tree", f"of at most {MOST_STEPS - 1} levels", levels)
        node_budget, item_budget = self._budgets(owner, levels)
        rule = self.bandit.rule(catalogue.dim)
        thresholds = self._thresholds(levels)
        ordered = _in_leaf_order(walked, catalogue)
        nodes = self._node_vectors(walked, ordered)
        prior = (self.prior or Prior()).start(catalogue.dim, rule.ridge)
        check_lengths(type(self.bandit).__name__, ordered, prior, rule.ridge)
        rules, search = self._rules(owner, item_budget), self._search(walked, ordered)
        personal = self._personal()
        watched = ordered[:0]
        contextual = self.features is not None and bool(self.features.contexts)  # means then depend on the request
        if not (personal or len(search.width) or rules.shortlist or contextual):
            watched = worth_watching(walked.arrays, nodes, ordered, rule.kind, (node_budget, item_budget))
        return Plan(
            tree=walked.arrays,
            nodes=nodes,
            items=ordered,
            kind=rule.kind,
            strength=rule.strength,
            prior=prior,
            node_budget=node_budget,
            item_budget=item_budget - rules.shortlist,
            personal=personal,
            start=self._start(walked),
            need_visits=thresholds.visits,
            need_mean=thresholds.mean,
            at_least=thresholds.at_least,
            by_level=personal and self.split == "authors",
            once=once,
            rest=rest,
            board=first_board(watched, prior),
            watched=watched,
            search=search,
            rules=rules,
            remembers=personal or rule.kind == GREEDY_MEAN or rules.shortlist > 0,
            gates=np.zeros((0, catalogue.dim), dtype=np.float32),
            bonus=np.zeros(0, dtype=np.float32),
        )

    def _rules(self, owner: str, items: int) -> Rules:
        shortlist = checks.integer(owner, "shortlist", self.shortlist, low=0, high=min(MOST_SCORES, items) - 1)
        return Rules(shortlist, self.forgetting**BLOCK, self.explore)

    def _search(self, tree: ItemTree, items: Floats) -> Search:
        return Search.none(items.shape[1])

    def _own(self, dim: int) -> int:
        """Return how many of `dim` dimensions are the items' own, not features of the prior."""
        return dim - self.prior.features if isinstance(self.prior, Crowd) else dim

    def _node_vectors(self, tree: ItemTree, items: Floats) -> Floats:
        """Return the vectors that nodes are scored and learned by."""
        if self.node_vectors == "mean":
            return tree.vectors
        return unit_nodes(tree, items, self._own(items.shape[1]))

    def check_tree(self, tree: ItemTree, catalogue: Catalogue) -> None:
        """Refuse a tree that does not fit the catalogue."""
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


def check_lengths(owner: str, vectors: Floats, prior: Start, ridge: float) -> None:
    """Refuse vectors that are too long for the prior: A^-1 in float32 would lose the widths."""
    blocks = np.array_split(vectors, 1 + len(vectors) // 65536)
    widest = max(float(np.einsum("ij,ij->i", block @ prior.inverse, block).max()) for block in blocks)
    if not widest <= _LONGEST:
        rule = f"at least {ridge * widest / _LONGEST:.3g} for vectors of squared width {widest:.3g} (or normalise them)"
        raise InvalidArgument(owner, "ridge", rule, ridge)


def _in_leaf_order(tree: ItemTree, catalogue: Catalogue) -> Floats:
    ordered = Rows(catalogue.vectors, tree.normalized).take(tree.items)
    ordered.flags.writeable = False
    return ordered


def unit_nodes(tree: ItemTree, items: Floats, own: int) -> Floats:
    """Return the node vectors at length 1 in their first `own` dimensions; the others stay means.

    A mean of unit vectors is shorter than 1, and shorter the more items it represents. So of two nodes that a user
    likes equally, the coarser one would get the lower score. If items are not normalised, a node gets the root mean
    square length of its items. A mean of zero stays zero.

    Parameters
    ----------
    tree
        The tree, with plain means.
    items
        (items, d) in leaf order.
    own
        The features of a prior follow these dimensions; they are not directions, so they are not scaled.
    """
    made = tree.vectors.copy()
    lengths = np.linalg.norm(made[:, :own], axis=1)
    wanted = np.ones(len(made))
    if not tree.normalized:
        wanted = np.sqrt(sums_of_squares(tree, items[:, :own]) / np.diff(tree.item_range).ravel())
    known = lengths > 0
    made[known, :own] *= (wanted[known] / lengths[known])[:, None].astype(np.float32)
    made.flags.writeable = False  # like the tree's own vectors: kernels are compiled for one kind of array
    return made


def sums_of_squares(tree: ItemTree, items: Floats) -> NDArray[np.float64]:
    """Return, for every node, the sum of the squared lengths of its items, which are in leaf order."""
    squares = np.einsum("ij,ij->i", items, items, dtype=np.float64)
    upto = np.concatenate([[0.0], np.cumsum(squares)])  # cumulative sums give it for all nodes in one pass
    found: NDArray[np.float64] = upto[tree.item_range[:, 1]] - upto[tree.item_range[:, 0]]
    return found
