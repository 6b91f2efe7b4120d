"""MIPS: what LinUCB or Thompson sampling chooses, as a maximum inner product search (after Yang et al., ICML 2022)."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.checks import Count
from treeward.core.compiled import kernel, whole
from treeward.data.catalogue import Catalogue
from treeward.engine.available import left, nth
from treeward.engine.explore import SAMPLE, UCB
from treeward.engine.posterior import factorise
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

_NORMAL = 16
"""The first counter of a decision's normal draws."""


@dataclass(frozen=True)
class MIPS(RidgePolicy):
    """LinUCB or Thompson sampling over the whole catalogue, by approximate inner product searches.

    Thompson sampling draws a theta from N(A^-1 b, v^2 A^-1), and one search finds the item with the largest inner
    product with it.

    LinUCB's score of an item x is the largest inner product of x with a parameter vector of the confidence ellipsoid:
    x' theta + alpha |x| = max of x' w, with |x| = sqrt(x' A^-1 x), reached by w = theta + alpha A^-1 x / |x|. So it
    alternates between the two maxima: from a random item it takes the w of that item, searches for the item with the
    largest x' w, and repeats. Without approximation, no step makes the score worse. The best item met is chosen.

    The search is an inverted file: the lists are the nodes of one level of the tree, and those with the best centres
    are scanned.

    Parameters
    ----------
    budget
        At most this many full scores, for LinUCB; None: as many as the searches find. Thompson sampling needs none.
    searches
        How many searches LinUCB makes per decision; they end sooner if one finds the same item again.
    probes
        How many lists a search scans.

    Examples
    --------
    >>> from treeward.data.synthetic import synthetic_catalogue
    >>> shop = synthetic_catalogue(500, dim=8, seed=0)
    >>> session = MIPS().session(ItemTree.build(shop.vectors, (5, 25), seed=0), shop, users=1)
    >>> decisions = session.select([0], nonce=0)
    >>> session.update(decisions, [1.0])
    >>> int(session.select([0], nonce=1).scores[0]) <= 4
    True
    """

    families: ClassVar[tuple[int, ...]] = (UCB, SAMPLE)

    searches: Count = 3
    probes: Count = 8

    def at_work(self, tree: ItemTree, catalogue: Catalogue, setup: Setup) -> Session:
        """Return its session."""
        return _Session(self, tree, catalogue, setup)


class _Rule(NamedTuple):
    strength: float
    """alpha or v."""
    searches: int
    probes: int


class _Session(RidgeSession):
    def __init__(self, policy: MIPS, tree: ItemTree, catalogue: Catalogue, setup: Setup) -> None:
        super().__init__(policy, tree, catalogue, setup)
        self.lists = lists_of(tree, self.vectors, policy.probes)
        searches = policy.searches if policy.budget is None else min(policy.searches, policy.budget - 1)
        self.steps = _Rule(self.rule.strength, searches, min(policy.probes, len(self.lists.centres)))

    def decide(self, request: Request, out: Found) -> None:
        """Search a few times for LinUCB, once for Thompson sampling."""
        (_sample if self.rule.kind == SAMPLE else _alternate)(self.lists, self.steps, self.state, request, out)


@kernel
def _alternate(lists: Lists, rule: _Rule, state: Regression, request: Request, out: Found) -> None:
    dim, draws = lists.items.shape[1], request.draws
    near = Near(np.empty(rule.probes, dtype=np.int64), np.empty(rule.probes, dtype=np.float32))
    query, x, z = np.empty(dim, dtype=np.float32), np.empty(dim), np.empty(dim)
    for i in range(len(request.who)):
        user, stream = request.who[i], draws.streams[i]
        close_shown(request.screen, request.shown, request.counts, user)
        total = left(request.screen, whole(0), len(lists.items))
        if total <= 0:
            continue
        place = nth(request.screen, whole(0), len(lists.items), rng.below(draws.seed, stream, draws.counter, total))
        shift = rng.below(draws.seed, stream, draws.counter + 1, len(lists.centres))
        best, products, scores = -np.inf, whole(0), whole(0)
        for turn in range(rule.searches + 1):
            width = describe(state, user, lists.items[place], x, z)
            mean = mean_of(state.theta[user], x)
            scores += 1
            if mean + rule.strength * width > best:
                best = mean + rule.strength * width
                out.place[i], out.mean[i], out.width[i] = place, mean, width
            if turn == rule.searches:
                break
            _optimistic(state.theta[user], z, rule.strength / max(width, 1e-12), query)
            found, took = search(lists, query, request.screen, shift, near)
            products += took
            if found == place:
                break
            place = found
        out.scores[i] = scores
        out.work[i] = products * dim + scores * (dim + dim * dim)


@kernel(allocates=False, inline=True)
def _optimistic(
    theta: NDArray[np.float64], z: NDArray[np.float64], strength: float, query: NDArray[np.float32]
) -> None:
    """Write the parameter vector of the ellipsoid that is best for the item whose A^-1 x is `z`."""
    for j in range(len(query)):
        query[j] = theta[j] + strength * z[j]


@kernel
def _sample(lists: Lists, rule: _Rule, state: Regression, request: Request, out: Found) -> None:
    dim, draws = lists.items.shape[1], request.draws
    near = Near(np.empty(rule.probes, dtype=np.int64), np.empty(rule.probes, dtype=np.float32))
    root, normal = np.empty((dim, dim)), np.empty(dim)
    query, x, z = np.empty(dim, dtype=np.float32), np.empty(dim), np.empty(dim)
    for i in range(len(request.who)):
        user, stream = request.who[i], draws.streams[i]
        close_shown(request.screen, request.shown, request.counts, user)
        if left(request.screen, whole(0), len(lists.items)) <= 0:
            continue
        factorise(state.inverse[user], root)
        for j in range(dim):
            normal[j] = rng.normal(draws.seed, stream, draws.counter + _NORMAL + j)
        for j in range(dim):
            moved = 0.0
            for k in range(j + 1):
                moved += root[j, k] * normal[k]
            query[j] = state.theta[user, j] + rule.strength * moved
        shift = rng.below(draws.seed, stream, draws.counter + 1, len(lists.centres))
        place, products = search(lists, query, request.screen, shift, near)
        out.place[i], out.width[i] = place, describe(state, user, lists.items[place], x, z)
        out.mean[i] = mean_of(state.theta[user], x)
        out.work[i] = products * dim + _drawing(dim)


@kernel(allocates=False, inline=True)
def _drawing(dim: int) -> int:
    """Return how many multiplications a draw takes: the Cholesky factor of A^-1, times normal draws, times v."""
    return (dim**3 - dim) // 6 + dim * (dim + 1) // 2 + dim
