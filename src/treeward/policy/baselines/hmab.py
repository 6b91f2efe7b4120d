"""HMAB: a hierarchy of arms that all users share (Wang et al., SDM 2018)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treeward.bandit.rules import Rule
from treeward.core import rng
from treeward.core.checks import Number, Positive
from treeward.core.compiled import kernel
from treeward.data.catalogue import Catalogue
from treeward.engine.explore import UCB
from treeward.policy.baselines.base import (
    ROUND,
    STEP,
    Drawn,
    RoundPolicy,
    RoundSession,
    Slots,
    best,
    gamma,
    learn_normal,
)
from treeward.policy.session import Decisions, Session
from treeward.tree.item_tree import ItemTree
from treeward.tree.row_groups import Rows


@dataclass(frozen=True)
class HMAB(RoundPolicy):
    """A category first, then an item of it; every node has a parameter vector of its own, over the user's context.

    The context is 1 and the mean of the vectors the user rewarded, weighted by the rewards. A node's parameters and
    noise have a normal and inverse-gamma posterior; a reward goes to the category and the item. Users share all of it.

    Parameters
    ----------
    shape, scale
        The inverse-gamma prior of a node's noise.
    """

    shared_state: ClassVar[bool] = True
    needs_categories: ClassVar[bool] = True

    shape: Annotated[float, Number(low=1)] = 1.0
    scale: Positive = 1.0

    def session(
        self, tree: ItemTree, catalogue: Catalogue, users: int, *, once: bool = False, rest: int = 0, seed: int = 0
    ) -> Session:
        """Return the policy at work for users 0, 1, ... below `users`, all of them new."""
        own = self.check(tree, catalogue, rest)
        rule = self.bandit.rule(catalogue.dim)
        grouped = self.by_category(tree, catalogue)
        return _Session(grouped, catalogue, rule, (own.shape, own.scale), users, self.budget, once, seed)


class Nodes(NamedTuple):
    """Posteriors of nodes that were ever tried; the others' is the prior."""

    inverse: NDArray[np.float64]
    mean: NDArray[np.float64]
    shape: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def empty(cls, count: int, dim: int, ridge: float, shape: float, scale: float) -> "Nodes":
        """Return so many nodes that know nothing."""
        inverse = np.ascontiguousarray(np.broadcast_to(np.eye(dim) / ridge, (count, dim, dim)))
        return cls(inverse, np.zeros((count, dim)), np.full(count, shape), np.full(count, scale))


class _Prior(NamedTuple):
    kind: int
    strength: float
    ridge: float
    shape: float
    scale: float


class _Session(RoundSession):
    def __init__(
        self,
        tree: ItemTree,
        catalogue: Catalogue,
        rule: Rule,
        noise: tuple[float, float],
        users: int,
        budget: int | None,
        once: bool,
        seed: int,
    ) -> None:
        super().__init__(tree.items, users, budget, once, seed)
        self.each = (catalogue.dim + 2) * (catalogue.dim + 1)
        first, last = int(tree.first_child[0]), int(tree.first_child[1])
        self.ranges = tree.item_range[first:last].astype(np.int64)
        self.vectors = Rows(catalogue.vectors, tree.normalized).take(tree.items).astype(np.float64)
        self.prior = _Prior(rule.kind, rule.strength, rule.ridge, *noise)
        self.dim = catalogue.dim + 1
        self.share = (self.budget // 2, self.budget - self.budget // 2)
        self.categories = self._nodes(last - first)
        self.tried = self._nodes(64)
        self.slots = Slots(len(tree.items))
        self.context = np.zeros((users, self.dim))
        self.context[:, 0] = 1.0
        self._liked = np.zeros(users)

    def _nodes(self, count: int) -> Nodes:
        return Nodes.empty(count, self.dim, self.prior.ridge, self.prior.shape, self.prior.scale)

    def select(self, users: ArrayLike, nonce: int, allow: ArrayLike | None = None) -> Decisions:
        """Decide once for each of the users."""
        who = self.who(users)
        arms = self.draw_groups(who, nonce, self.ranges, self.share[0], allow)
        nodes, judged = np.zeros(len(who), dtype=np.int64), np.zeros((len(who), 2))
        known = np.arange(len(self.ranges))
        streams, counter = self.streams[who], nonce * ROUND
        _select(self.categories, known, self.prior, self.context, who, arms, self.seed, streams, counter + 2 * STEP,
                nodes, judged)  # fmt: skip
        drawn = self.draw(who, nonce, self.ranges[nodes], self.share[1], allow, 1)
        places = np.full(len(who), -1)
        _select(self.tried, self.slots.of, self.prior, self.context, who, drawn, self.seed, streams, counter + 3 * STEP,
                places, judged)  # fmt: skip
        return self.decided(who, nonce, places, nodes, judged, arms, drawn)

    def update(self, decisions: Decisions, rewards: ArrayLike) -> None:
        """Learn what came of decisions, in the order given."""
        values = self.rewards(decisions, rewards)
        self.tried = self.slots.settle(decisions.place, self.tried, self._nodes)
        _update(
            self.categories, self.tried, self.slots.of, self.context, self._liked, self.vectors, decisions.user,
            decisions.node, decisions.place, values,
        )  # fmt: skip


@kernel
def _select(
    nodes: Nodes,
    slot: NDArray[np.int64],
    prior: _Prior,
    contexts: NDArray[np.float64],
    who: NDArray[np.int64],
    drawn: Drawn,
    seed: int,
    streams: NDArray[np.int64],
    counter: int,
    chosen: NDArray[np.int64],
    judged: NDArray[np.float64],
) -> None:
    most = drawn.place.shape[1]
    scores, means, widths = np.empty(most), np.empty(most), np.empty(most)
    for i in range(len(who)):
        x, count = contexts[who[i]], drawn.taken[i]
        if count == 0:
            continue
        for j in range(count):
            at = slot[drawn.place[i, j]]
            shape, scale = prior.shape, prior.scale
            if at < 0:
                means[j], square = 0.0, np.dot(x, x) / prior.ridge
            else:
                shape, scale = nodes.shape[at], nodes.scale[at]
                means[j], square = np.dot(x, nodes.mean[at]), np.dot(x, np.dot(nodes.inverse[at], x))
            widths[j] = np.sqrt(max(square, 0.0))
            if prior.kind == UCB:
                scores[j] = means[j] + prior.strength * np.sqrt(scale / shape) * widths[j]
            else:  # a node's own draw of noise and parameters, of which one number matters
                start = counter + 1 + 128 * j
                noise = np.sqrt(scale / gamma(shape, seed, streams[i], start))
                draw = rng.normal(seed, streams[i], start + 64)
                scores[j] = means[j] + prior.strength * noise * widths[j] * draw
        at = best(scores, count, seed, streams[i], counter)
        chosen[i], judged[i, 0], judged[i, 1] = drawn.place[i, at], means[at], widths[at]


@kernel
def _update(
    categories: Nodes,
    tried: Nodes,
    slot: NDArray[np.int64],
    contexts: NDArray[np.float64],
    liked: NDArray[np.float64],
    vectors: NDArray[np.float64],
    who: NDArray[np.int64],
    groups: NDArray[np.int64],
    places: NDArray[np.int64],
    rewards: NDArray[np.float64],
) -> None:
    z = np.empty(contexts.shape[1])
    for i in range(len(who)):
        x = contexts[who[i]]
        _learn(categories, groups[i], x, rewards[i], z)
        _learn(tried, slot[places[i]], x, rewards[i], z)
        if rewards[i] > 0.0:
            liked[who[i]] += rewards[i]
            share = rewards[i] / liked[who[i]]
            for j in range(vectors.shape[1]):
                contexts[who[i], 1 + j] += share * (vectors[places[i], j] - contexts[who[i], 1 + j])


@kernel(allocates=False, inline=True)
def _learn(nodes: Nodes, at: int, x: NDArray[np.float64], reward: float, z: NDArray[np.float64]) -> None:
    """Add one observation to a node's posterior."""
    nodes.shape[at] += 0.5
    nodes.scale[at] += learn_normal(nodes.inverse[at], nodes.mean[at], x, reward, z)
