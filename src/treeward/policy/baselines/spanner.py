"""SpannerGreedy and SpannerIGW: explore a few items that span all others (Zhu et al., ICML 2022)."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.checks import Count, Fraction, NotNegative
from treeward.core.compiled import inner, kernel, whole
from treeward.core.types import AnyArray, Floats
from treeward.data.catalogue import Catalogue
from treeward.engine.available import is_open, left
from treeward.engine.explore import dot
from treeward.policy.baselines.base import Setup, close_shown
from treeward.policy.baselines.inner_products import Lists, Near, lists_of, search
from treeward.policy.baselines.ridge import (
    Found,
    Regression,
    Request,
    RidgePolicy,
    RidgeSession,
    describe,
    mean_of,
)
from treeward.policy.session import Session
from treeward.tree.item_tree import ItemTree
from treeward.tree.row_groups import BLOCK_ROWS

RATIO = 2.0
"""C of the spanner: every item is a sum of spanner items with coefficients from -C to C."""
_FLAT = 1e-4
_HALVINGS = 40


@dataclass(frozen=True)
class SpannerGreedy(RidgePolicy):
    """Show an item of the spanner with probability `epsilon`, otherwise the item with the best estimate.

    The spanner is a barycentric spanner of the item vectors: at most as many items as dimensions, such that every item
    is a sum of them with coefficients from -2 to 2. It is computed once. The best estimate is found by approximate
    search, as in `MIPS`. The bandit's ridge is used, its alpha is not; `budget` is not used, since no arm costs
    more than an inner product.

    Parameters
    ----------
    epsilon
        The share of decisions that explore.
    probes
        How many lists the search for the best estimate scans.

    Examples
    --------
    >>> from treeward.data.synthetic import synthetic_catalogue
    >>> shop = synthetic_catalogue(500, dim=8, seed=0)
    >>> session = SpannerGreedy().session(ItemTree.build(shop.vectors, (5, 25), seed=0), shop, users=1)
    >>> len(session.spanner)
    8
    """

    epsilon: Fraction = 0.05
    probes: Count = 8

    def at_work(self, tree: ItemTree, catalogue: Catalogue, setup: Setup) -> Session:
        """Return its session."""
        return _Session(self, tree, catalogue, setup, self.probes, _Rule(False, self.epsilon))


@dataclass(frozen=True)
class SpannerIGW(RidgePolicy):
    """Inverse gap weighting over a spanner: the worse its estimate, the less likely an item of it is shown.

    The item with the best estimate y* has weight q = 1/2, and the items of the spanner share the other half. Item a is
    shown with probability q_a / (lambda + eta (y* - y_a)), where lambda is such that the probabilities sum to 1, and
    eta is `strength` * sqrt(d n) after n rewards of the user, with d items in the spanner. Spanner and search as in
    `SpannerGreedy`.

    Parameters
    ----------
    strength
        How fast exploration ends.
    probes
        How many lists the search for the best estimate scans.

    Examples
    --------
    >>> from treeward.data.synthetic import synthetic_catalogue
    >>> shop = synthetic_catalogue(500, dim=8, seed=0)
    >>> session = SpannerIGW().session(ItemTree.build(shop.vectors, (5, 25), seed=0), shop, users=1)
    >>> decisions = session.select([0], nonce=0)
    >>> session.update(decisions, [1.0])
    >>> bool(session.select([0], nonce=1).exact[0])
    True
    """

    strength: NotNegative = 10.0
    probes: Count = 8

    def at_work(self, tree: ItemTree, catalogue: Catalogue, setup: Setup) -> Session:
        """Return its session."""
        return _Session(self, tree, catalogue, setup, self.probes, _Rule(True, self.strength))


def spanner_of(items: Floats, ratio: float = RATIO) -> NDArray[np.int64]:
    """Return the rows of a barycentric spanner: swap items into a basis while that multiplies its volume by `ratio`.

    Directions that no item reaches are left out.

    Examples
    --------
    >>> spanner_of(np.array([[1, 0], [0, 0.1], [0.6, 0.6], [0, 1]], dtype=np.float32))
    array([0, 3])
    """
    dim = items.shape[1]
    basis, chosen = np.eye(dim), np.full(dim, -1)
    for axis in range(dim):
        row, _, share = _largest(items, np.linalg.inv(basis)[:, [axis]])
        if share > _FLAT:
            basis[axis], chosen[axis] = items[row], row
    reached = np.flatnonzero(chosen >= 0)
    while len(reached):
        row, column, share = _largest(items, np.linalg.inv(basis)[:, reached])
        if share <= ratio:
            break
        basis[reached[column]], chosen[reached[column]] = items[row], row
    return np.sort(chosen[reached])


def _largest(items: Floats, inverse: AnyArray) -> tuple[int, int, float]:
    """Return row, column and size of the largest coefficient: by how much that swap multiplies the volume."""
    found = 0, 0, -1.0
    for first in range(0, len(items), BLOCK_ROWS):  # coefficients of all items at once would need a lot of memory
        shares = np.abs(items[first : first + BLOCK_ROWS] @ inverse)
        row, column = divmod(int(shares.argmax()), shares.shape[1])
        if shares[row, column] > found[2]:
            found = first + row, column, float(shares[row, column])
    return found


class _Rule(NamedTuple):
    by_gap: bool
    strength: float
    """epsilon, or what multiplies the gaps."""


class _Session(RidgeSession):
    def __init__(
        self,
        policy: RidgePolicy,
        tree: ItemTree,
        catalogue: Catalogue,
        setup: Setup,
        probes: int,
        exploration: _Rule,
    ) -> None:
        super().__init__(policy, tree, catalogue, setup)
        self.exploration, self.spanner = exploration, spanner_of(self.vectors)
        self.lists = lists_of(tree, self.vectors, probes)
        self.probes = min(probes, len(self.lists.centres))
        self.informed = bool(self.state.theta.any())

    def decide(self, request: Request, out: Found) -> None:
        """Search, then draw."""
        _decide(self.lists, self.spanner, self.exploration, self.probes, self.informed, self.state, request, out)


@kernel
def _decide(
    lists: Lists,
    spanner: NDArray[np.int64],
    rule: _Rule,
    probes: int,
    informed: bool,
    state: Regression,
    request: Request,
    out: Found,
) -> None:
    dim, draws, size = lists.items.shape[1], request.draws, len(spanner)
    near = Near(np.empty(probes, dtype=np.int64), np.empty(probes, dtype=np.float32))
    theta, x, z = np.empty(dim, dtype=np.float32), np.empty(dim), np.empty(dim)
    arm, mean, chance = np.empty(size + 1, dtype=np.int64), np.empty(size + 1), np.empty(size + 1)
    for i in range(len(request.who)):
        user, stream = request.who[i], draws.streams[i]
        close_shown(request.screen, request.shown, request.counts, user)
        if left(request.screen, whole(0), len(lists.items)) <= 0:
            continue
        for j in range(dim):
            theta[j] = state.theta[user, j]
        shift = rng.below(draws.seed, stream, draws.counter + 1, len(lists.centres))
        best, products = search(lists, theta, request.screen, shift, near)
        arm[0], mean[0], count = best, dot(lists.items[best], theta), whole(1)
        for j in range(size):
            if is_open(request.screen, spanner[j]):
                arm[count] = spanner[j]
                count += 1
        if rule.by_gap:
            for j in range(1, count):
                mean[j] = dot(lists.items[arm[j]], theta)
            products += count - 1
            _by_gap(mean, count, rule.strength * np.sqrt(float(size) * state.seen[user]), chance)
        else:
            share = rule.strength if count > 1 else 0.0
            chance[0] = 1.0 - share
            for j in range(1, count):
                chance[j] = share / (count - 1)
        chosen = _drawn(chance, count, rng.uniform(draws.seed, stream, draws.counter))
        out.place[i], total = arm[chosen], 0.0
        for j in range(count):  # the best item may be in the spanner, too
            total += chance[j] if arm[j] == arm[chosen] else 0.0
        out.chance[i] = total
        out.exact[i] = informed or state.seen[user] > 0  # before, ties are broken at random
        out.width[i] = describe(state, user, lists.items[out.place[i]], x, z)
        out.mean[i] = mean_of(state.theta[user], x)
        out.work[i] = products * dim + (count if rule.by_gap else 0)


@inner
def _by_gap(mean: NDArray[np.float64], count: int, eta: float, chance: NDArray[np.float64]) -> None:
    """Write the probabilities of the arms: the first is the best one found, the others are the spanner."""
    top = mean[0]
    for j in range(1, count):
        top = max(top, mean[j])
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):  # the sum falls with lambda, and is at most 1 at lambda = 1
        middle, total = 0.5 * (low + high), 0.0
        for j in range(count):
            q = 1.0 if count == 1 else 0.5 if j == 0 else 0.5 / (count - 1)
            chance[j] = q / (middle + eta * (top - mean[j]))
            total += chance[j]
        if total > 1.0:
            low = middle
        else:
            high = middle
    total = 0.0
    for j in range(count):
        total += chance[j]
    for j in range(count):
        chance[j] /= total


@inner
def _drawn(chance: NDArray[np.float64], count: int, u: float) -> int:
    """Return the arm that `u` in [0, 1) draws."""
    total = 0.0
    for j in range(count - 1):
        total += chance[j]
        if u < total:
            return j
    return count - 1
