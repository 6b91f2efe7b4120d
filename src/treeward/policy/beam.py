"""`Beam`: the best of the whole catalogue by a coarse-to-fine search, at a cost that hardly grows with it."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from treeward.core import checks
from treeward.core.checks import Count, Fraction, NotNegative
from treeward.core.types import Floats
from treeward.engine.layout import Search
from treeward.engine.sampling import MOST_SCORES
from treeward.policy.base import Policy
from treeward.tree.item_tree import ItemTree


@dataclass(frozen=True)
class Beam(Policy):
    """One posterior a user; a beam down the tree by means, and the bandit's whole score for the finalists alone.

    A mean takes d multiplications, a width d^2: so a thousand means find out where to look, and a dozen scores decide.
    Once something is known of a user, nothing is drawn at random but ties and a small share of all decisions, so
    propensities are exact (but for Thompson sampling, which searches by a theta it drew, and with a shortlist). Before,
    and without a prior, the finalists are a sample of all items.

    Parameters
    ----------
    budget
        The finalists: items that get a whole score; not None. `split` means nothing here.
    node_vectors
        Always ``"mean"``: a node's rank is the mean of its items plus its reach, and nothing is learned at nodes.
    means
        About so many means of nodes and items are computed on the way, evenly over the levels.
    reach
        How much further than its middle a node is taken to reach in the direction of theta, in standard deviations.
    fresh
        The share of decisions, of those that explore, that draw an item from the whole catalogue, so that each keeps a
        positive chance.

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

    budget: int | None = 16
    means: Count = 800
    reach: NotNegative = 0.5
    fresh: Fraction = 0.01
    node_vectors: Literal["mean"] = "mean"

    def _budgets(self, owner: str, levels: int) -> tuple[int, int]:
        items = checks.integer(owner, "budget", self.budget, low=1, high=MOST_SCORES)
        return items, items

    def _search(self, tree: ItemTree, items: Floats) -> Search:
        dim = items.shape[1]
        own = self._own(dim)
        return Search(
            _widths(tree, self.means),
            (self.reach * _spread(tree, items, own)).astype(np.float32),
            ndtri(1 - (np.arange(256) + 0.5) / 256).astype(np.float32),
            _ladder(tree, items[:, -1] if own < dim else items[:0, -1]),
            own,
            self.fresh,
            self.reach,
        )


def _widths(tree: ItemTree, means: int) -> NDArray[np.int64]:
    """Return how many nodes to follow on each level, so that every level costs about as many means."""
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
    """Return how far a node's items lie from its middle in any one direction, by the root of the mean square."""
    sizes = np.diff(tree.item_range).ravel()
    # The items' squares less the middle's: cumulative sums give every node's in one pass.
    squares = np.einsum("ij,ij->i", items[:, :own], items[:, :own], dtype=np.float64)
    upto = np.concatenate([[0.0], np.cumsum(squares)])
    sums = np.zeros((len(tree.parent), own))
    sums[tree.leaves] = np.add.reduceat(items[:, :own], tree.item_range[tree.leaves, 0], axis=0, dtype=np.float64)
    for level in range(int(tree.level[-1]), 1, -1):
        nodes = np.flatnonzero(tree.level == level)
        np.add.at(sums, tree.parent[nodes], sums[nodes])
    middle = tree.vectors[:, :own].astype(np.float64)
    total = upto[tree.item_range[:, 1]] - upto[tree.item_range[:, 0]]
    found = total / sizes - 2 * np.einsum("ij,ij->i", sums, middle) / sizes + np.einsum("ij,ij->i", middle, middle)
    spread: NDArray[np.float64] = np.sqrt(np.maximum(found, 0) / max(own, 1))
    return spread


def _ladder(tree: ItemTree, feature: Floats) -> Floats:
    """Return, by level, every node's share of a feature in falling order."""
    top = int(tree.level[-1])
    made = np.zeros((top + 1, len(feature)), dtype=np.float32)
    for level in range(1, top + 1 if len(feature) else 1):
        group = np.zeros(len(feature), dtype=np.int64)
        # A leaf above this level is not of it, but keeps its items together.
        starts = tree.item_range[(tree.level == level) | ((tree.level < level) & (np.diff(tree.first_child) == 0)), 0]
        group[starts] = 1
        made[level] = feature[np.lexsort((-feature, np.cumsum(group)))]
    return made
