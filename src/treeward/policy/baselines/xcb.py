"""XCB: beam search over the item tree, then inverse gap weighting (Sen et al., ICML 2021)."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.checks import Count, NotNegative
from treeward.core.compiled import inner, kernel, whole
from treeward.core.types import Floats, Integers
from treeward.data.catalogue import Catalogue
from treeward.engine.available import Screen, is_open, left, nth
from treeward.engine.beam import offer
from treeward.engine.explore import dot
from treeward.engine.places import leaf_at
from treeward.policy.baselines.base import Setup, close_shown
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
from treeward.tree.tree_arrays import sums_by_node


@dataclass(frozen=True)
class XCB(RidgePolicy):
    """Beam search by means; what it leaves behind and the items it reaches are the arms of inverse gap weighting.

    On every level the best `width` nodes are followed. The effective arms are the nodes that were not followed, and
    the items of the leaves that were reached. A node's estimate is the mean estimate of its items. Of K arms with
    estimates y, arm a is drawn with probability 1 / (K + gamma (max y - y_a)), and the best gets the rest. A node that
    is drawn stands for a random item below it. gamma is `strength` * sqrt(K n) after n rewards of the user.

    The bandit's ridge is used, its alpha is not.

    Parameters
    ----------
    budget
        At most this many effective arms, those of the best estimates; None: all.
    width
        How many nodes to follow on each level.
    strength
        How fast exploration ends.

    Examples
    --------
    >>> from treeward.data.synthetic import synthetic_catalogue
    >>> shop = synthetic_catalogue(500, dim=8, seed=0)
    >>> session = XCB(width=2).session(ItemTree.build(shop.vectors, (5, 25), seed=0), shop, users=2)
    >>> decisions = session.select([0, 1], nonce=0)
    >>> session.update(decisions, [1.0, 0.0])
    >>> bool(session.select([0, 1], nonce=1).exact.all())
    True
    """

    width: Count = 10
    strength: NotNegative = 100.0

    def at_work(self, tree: ItemTree, catalogue: Catalogue, setup: Setup) -> Session:
        """Return its session."""
        return _Session(self, tree, catalogue, setup)


class Hierarchy(NamedTuple):
    """The tree, with the mean vector of every node's items."""

    first_child: Integers
    item_range: Integers
    means: Floats
    items: Floats


class _Rule(NamedTuple):
    width: int
    most: int
    strength: float
    informed: bool
    """Whether the prior tells items apart."""
    room: int
    """How many effective arms there can be."""


class _Session(RidgeSession):
    def __init__(self, policy: XCB, tree: ItemTree, catalogue: Catalogue, setup: Setup) -> None:
        super().__init__(policy, tree, catalogue, setup)
        sizes = np.diff(tree.item_range)
        means = (sums_by_node(tree.arrays, self.vectors) / sizes).astype(np.float32)
        self.hierarchy = Hierarchy(tree.first_child, tree.item_range, means, self.vectors)
        children, leaf = np.diff(tree.first_child), np.diff(tree.first_child) == 0
        width = min(policy.width, len(tree.parent))
        room = width * (int(tree.level[-1]) * (int(children.max()) + 1) + int(sizes[leaf].max()))
        informed = bool(self.state.theta.any())
        most = 0 if policy.budget is None else policy.budget
        self.igw = _Rule(width, most, policy.strength, informed, room)

    def decide(self, request: Request, out: Found) -> None:
        """Search, then draw."""
        _decide(self.hierarchy, self.igw, self.state, request, out)


class _Arms(NamedTuple):
    """Room for the effective arms of a user: nodes, and items as -1 - place; and for a level of the search."""

    arm: NDArray[np.int64]
    mean: Floats
    child: NDArray[np.int64]
    value: Floats
    kept: NDArray[np.int64]
    rank: Floats
    front: NDArray[np.int64]
    followed: NDArray[np.bool_]


@kernel
def _decide(tree: Hierarchy, rule: _Rule, state: Regression, request: Request, out: Found) -> None:
    dim, draws = tree.items.shape[1], request.draws
    whole_arms, single = np.empty(rule.room, dtype=np.int64), np.float32
    arms = _Arms(
        whole_arms, np.empty(rule.room, dtype=single), np.empty_like(whole_arms), np.empty(rule.room, dtype=single),
        np.empty(rule.width, dtype=np.int64), np.empty(rule.width, dtype=single), np.empty(rule.width, dtype=np.int64),
        np.empty(rule.room, dtype=np.bool_),
    )  # fmt: skip
    best, best_mean = np.empty(rule.most, dtype=np.int64), np.empty(rule.most, dtype=single)
    theta, x, z = np.empty(dim, dtype=single), np.empty(dim), np.empty(dim)
    for i in range(len(request.who)):
        user, stream = request.who[i], draws.streams[i]
        close_shown(request.screen, request.shown, request.counts, user)
        if left(request.screen, whole(0), len(tree.items)) <= 0:
            continue
        for j in range(dim):
            theta[j] = state.theta[user, j]
        count, means = _effective(tree, theta, request.screen, draws.seed, stream, draws.counter, arms)
        arm, mean = arms.arm, arms.mean
        if 0 < rule.most < count:
            kept = whole(0)
            for j in range(count):
                kept = offer(best, best_mean, kept, len(best), arm[j], mean[j])
            arm, mean, count = best, best_mean, kept
        gamma = rule.strength * np.sqrt(float(count) * state.seen[user])
        u = rng.uniform(draws.seed, stream, draws.counter)
        chosen, chance = _by_gap(mean, count, gamma, u)
        place, node = -1 - arm[chosen], arm[chosen]
        if place < 0:
            begin, end = whole(tree.item_range[node, 0]), whole(tree.item_range[node, 1])
            open_here = left(request.screen, begin, end)
            rank = rng.below(draws.seed, stream, draws.counter + 1, open_here)
            place = nth(request.screen, begin, end, rank)
            chance /= open_here
        else:
            node = leaf_at(tree.first_child, tree.item_range, place)
        out.place[i], out.node[i], out.chance[i] = place, node, chance
        out.exact[i] = rule.informed or state.seen[user] > 0  # before, ties are broken at random
        out.width[i] = describe(state, user, tree.items[place], x, z)
        out.mean[i] = mean_of(state.theta[user], x)
        out.scores[i] = count if count > 1 else 0
        out.work[i] = means * dim + count  # an arm's probability takes one more


@inner
def _by_gap(mean: Floats, count: int, gamma: float, u: float) -> tuple[int, float]:
    """Return the arm that `u` in [0, 1) draws by inverse gap weighting, and its probability."""
    best = 0
    for j in range(1, count):
        if mean[j] > mean[best]:
            best = j
    chosen, chance, total = best, 0.0, 0.0
    for j in range(count):
        if j != best:
            p = 1.0 / (count + gamma * (float(mean[best]) - float(mean[j])))
            if total <= u < total + p:
                chosen, chance = j, p
            total += p
    return (chosen, 1.0 - total) if chosen == best else (chosen, chance)


@inner
def _effective(
    tree: Hierarchy, theta: Floats, screen: Screen, seed: int, stream: int, counter: int, arms: _Arms
) -> tuple[int, int]:
    """Write the effective arms with an open item to `arms`; return how many, and how many means it took."""
    count, means, size, level = whole(0), whole(0), whole(1), whole(0)
    arms.front[0], arms.rank[0] = 0, np.float32(0.0)
    while _has_children(tree.first_child, arms.front, size):
        level += 1
        many, took = _below(tree, theta, screen, size, seed, stream, counter + 1 + level, arms)
        means += took
        size = whole(0)
        for j in range(many):
            size = offer(arms.kept, arms.rank, size, len(arms.kept), j, arms.value[j])
            arms.followed[j] = False
        for k in range(size):
            arms.followed[arms.kept[k]] = True
            arms.front[k] = arms.child[arms.kept[k]]
        for j in range(many):
            if not arms.followed[j]:
                arms.arm[count], arms.mean[count] = arms.child[j], arms.value[j]
                count += 1
    for k in range(size):
        node = arms.front[k]
        for place in range(whole(tree.item_range[node, 0]), whole(tree.item_range[node, 1])):
            if is_open(screen, place):
                arms.arm[count], arms.mean[count] = -1 - place, dot(tree.items[place], theta)
                count += 1
                means += 1
    return count, means


@inner
def _below(
    tree: Hierarchy, theta: Floats, screen: Screen, size: int, seed: int, stream: int, counter: int, arms: _Arms
) -> tuple[int, int]:
    """Write the children of the nodes followed, if they have an open item; return how many, and the new means."""
    many, means = whole(0), whole(0)
    for k in range(size):
        node = arms.front[k]
        first, last = whole(tree.first_child[node]), whole(tree.first_child[node + 1])
        if first == last:  # a leaf among inner nodes waits for them
            arms.child[many], arms.value[many] = node, arms.rank[k]
            many += 1
            continue
        shift = rng.below(seed, stream, counter, last - first)  # ties fall to any child
        for j in range(last - first):
            child = first + (j + shift) % (last - first)
            if left(screen, whole(tree.item_range[child, 0]), whole(tree.item_range[child, 1])) > 0:
                arms.child[many], arms.value[many] = child, dot(tree.means[child], theta)
                many += 1
                means += 1
    return many, means


@inner
def _has_children(first_child: Integers, nodes: NDArray[np.int64], count: int) -> bool:
    found = False
    for k in range(count):
        found = found or first_child[nodes[k]] < first_child[nodes[k] + 1]
    return found
