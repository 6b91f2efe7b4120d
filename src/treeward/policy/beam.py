"""`Beam`: a coarse-to-fine search for the best item of the whole catalogue; its cost hardly grows with the size."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from treeward.core import checks
from treeward.core.checks import Count, Fraction, Natural, NotNegative
from treeward.core.parallel import workers
from treeward.core.types import Floats
from treeward.engine.layout import Search
from treeward.engine.sampling import MOST_SCORES
from treeward.policy.base import Policy, sums_of_squares
from treeward.tree.item_tree import ItemTree
from treeward.tree.tree_arrays import sums_by_node

_DIRECTIONS = 8
_FINALISTS, _FRESH = 16, 0.01
_FINALISTS_INFORMED, _FRESH_INFORMED = 4, 0.001


@dataclass(frozen=True)
class Beam(Policy):
    """One posterior per user: a beam search down the tree by means, then full scores for the finalists.

    A mean takes d multiplications, a width d^2. So about a thousand means find the finalists, and a few full scores
    decide. Once a user has events, only ties and a small share of all decisions are random, so propensities are exact
    (not with Thompson sampling, which searches by a theta that it drew, nor with a shortlist). Before the first event,
    and without a prior, the finalists are a sample of all items.

    Parameters
    ----------
    budget
        How many finalists get a full score. By default 16, and 4 with a prior that was fitted to a log: its means say
        more, and to choose among more finalists is only to explore more. `split` is ignored.
    node_vectors
        Always ``"mean"``: a node's rank is the mean of its items plus its reach, and nothing is learned at nodes.
    means
        About how many means of nodes and items are computed, evenly over the levels.
    reach
        How far beyond its centre a node is assumed to reach in the direction of theta, in standard deviations.
    fresh
        The share of exploring decisions that draw an item from the whole catalogue, so that every item keeps a positive
        probability. By default 0.01, and 0.001 with a prior that was fitted to a log.
    directions
        With LinUCB, in how many directions to search for items of a high upper bound, whose means may be low. Each
        search takes `means` more means, and what they find is at most half of the finalists. By default 8 without a
        prior, and 0 with one, which says where to look.

    Examples
    --------
    >>> from treeward.data.synthetic import synthetic_catalogue
    >>> shop = synthetic_catalogue(2_000, dim=8, seed=0)
    >>> session = Beam().session(ItemTree.build(shop.vectors), shop, users=1)
    >>> decisions = session.select([0], nonce=0)
    >>> session.update(decisions, [1.0])
    >>> int(session.select([0], nonce=1).scores[0])
    16
    """

    budget: int | None = None
    means: Count = 800
    reach: NotNegative = 0.5
    fresh: Fraction | None = None
    directions: Natural | None = None
    node_vectors: Literal["mean"] = "mean"

    @property
    def _informed(self) -> bool:
        """Whether the prior knows what people like. A crowd that starts from nothing has to find out."""
        return self.prior is not None and self.prior.informed

    def _budgets(self, owner: str, levels: int) -> tuple[int, int]:
        usual = _FINALISTS_INFORMED if self._informed else _FINALISTS
        items = usual if self.budget is None else checks.integer(owner, "budget", self.budget, low=1, high=MOST_SCORES)
        return items, items

    def _directions(self) -> int:
        if self.directions is not None:
            return self.directions
        return _DIRECTIONS if self.prior is None else 0

    def _search(self, tree: ItemTree, items: Floats) -> Search:
        dim = items.shape[1]
        own = self._own(dim)
        usual = _FRESH_INFORMED if self._informed else _FRESH
        return Search(
            _widths(tree, self.means),
            (self.reach * _spread(tree, items, own)).astype(np.float32),
            ndtri(1 - (np.arange(256) + 0.5) / 256).astype(np.float32),
            _ladder(tree, items[:, -1] if own < dim else items[:0, -1]),
            own,
            usual if self.fresh is None else self.fresh,
            self.reach,
            _starts(items, self._directions()),
        )


def _starts(items: Floats, count: int) -> Floats:
    """Return directions in which items lie: the first principal axes, each both ways."""
    if not count:
        return np.zeros((0, items.shape[1]), dtype=np.float32)
    with workers(1):  # BLAS adds up in another order where it has more threads
        _, axes = np.linalg.eigh((items.T @ items).astype(np.float64))
    axes = axes.T[::-1][: (count + 1) // 2]
    axes = axes * np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])[:, np.newaxis]
    both = np.stack([axes, -axes], axis=1).reshape(-1, items.shape[1])
    return np.ascontiguousarray(both[:count], dtype=np.float32)


def _widths(tree: ItemTree, means: int) -> NDArray[np.int64]:
    """Return how many nodes to follow on each level, so that every level costs about the same number of means."""
    children = np.diff(tree.first_child)
    leaf = children == 0
    inside = np.where(leaf, np.diff(tree.item_range).ravel(), children)
    top = int(tree.level[-1])
    share = means / max(1, top)
    widths = np.ones(top + 1, dtype=np.int64)
    for level in range(2, top + 1):
        here = (tree.level == level) | (leaf & (tree.level < level))  # leaves wait for the levels below them
        widths[level] = max(1, min(int(here.sum()), round(share / float(inside[here].mean()))))
    return widths


def _spread(tree: ItemTree, items: Floats, own: int) -> NDArray[np.float64]:
    """Return the root mean square distance of a node's items from its centre, per direction."""
    sizes = np.diff(tree.item_range).ravel()
    sums = sums_by_node(tree.arrays, items[:, :own])
    middle = tree.vectors[:, :own].astype(np.float64)
    total = sums_of_squares(tree, items[:, :own])
    found = total / sizes - 2 * np.einsum("ij,ij->i", sums, middle) / sizes + np.einsum("ij,ij->i", middle, middle)
    spread: NDArray[np.float64] = np.sqrt(np.maximum(found, 0) / max(own, 1))
    return spread


def _ladder(tree: ItemTree, feature: Floats) -> Floats:
    """Return, per level, the values of a feature in falling order within each node."""
    top = int(tree.level[-1])
    made = np.zeros((top + 1, len(feature)), dtype=np.float32)
    for level in range(1, top + 1 if len(feature) else 1):
        group = np.zeros(len(feature), dtype=np.int64)
        # A leaf above this level keeps its items together, too.
        starts = tree.item_range[(tree.level == level) | ((tree.level < level) & (np.diff(tree.first_child) == 0)), 0]
        group[starts] = 1
        made[level] = feature[np.lexsort((-feature, np.cumsum(group)))]
    return made
