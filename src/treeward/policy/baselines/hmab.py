"""HMAB: a hierarchy of arms that all users share (Wang et al., SDM 2018)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.checks import Number, Positive
from treeward.core.compiled import kernel
from treeward.data.catalogue import Catalogue
from treeward.engine.explore import UCB
from treeward.policy.baselines.base import RoundPolicy, RoundSession, Setup, Slots
from treeward.policy.baselines.kernels import BatchDraws, Chosen, Drawn, gamma, learn_normal, scored, take_best
from treeward.policy.session import Decisions, Session
from treeward.tree.item_tree import ItemTree
from treeward.tree.row_groups import Rows


@dataclass(frozen=True)
class HMAB(RoundPolicy):
    """A category first, then one of its items; every node has its own parameter vector over the user's context.

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

    def at_work(self, tree: ItemTree, catalogue: Catalogue, setup: Setup) -> Session:
        """Return its session."""
        return _Session(self, self._by_category(tree, catalogue), catalogue, setup)


class Nodes(NamedTuple):
    """Posteriors of the nodes that were tried; all others have the prior."""

    inverse: NDArray[np.float64]
    mean: NDArray[np.float64]
    shape: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def empty(cls, count: int, dim: int, ridge: float, shape: float, scale: float) -> "Nodes":
        """Return `count` nodes without observations."""
        inverse = np.ascontiguousarray(np.broadcast_to(np.eye(dim) / ridge, (count, dim, dim)))
        return cls(inverse, np.zeros((count, dim)), np.full(count, shape), np.full(count, scale))


class _Prior(NamedTuple):
    kind: int
    strength: float
    ridge: float
    shape: float
    scale: float


class _Session(RoundSession):
    def __init__(self, policy: HMAB, tree: ItemTree, catalogue: Catalogue, setup: Setup) -> None:
        super().__init__(tree.items, setup, tree.item_range[1:])  # below the root there are the categories alone
        self.each = (catalogue.dim + 2) * (catalogue.dim + 1)
        self.vectors = Rows(catalogue.vectors, tree.normalized).take(tree.items).astype(np.float64)
        self.prior = _Prior(*policy.bandit.rule(catalogue.dim), policy.shape, policy.scale)
        self.dim = catalogue.dim + 1
        self.categories = self._nodes(len(self.ranges))
        self.tried = self._nodes(64)
        self.slots = Slots(len(tree.items))
        self.context = np.zeros((self.users, self.dim))
        self.context[:, 0] = 1.0
        self._liked = np.zeros(self.users)

    def _nodes(self, count: int) -> Nodes:
        return Nodes.empty(count, self.dim, self.prior.ridge, self.prior.shape, self.prior.scale)

    def choose(self, step: int, who: NDArray[np.int64], drawn: Drawn, draws: BatchDraws, out: Chosen) -> None:
        """Choose a category, then an item."""
        if step == 0:
            _select(self.categories, np.arange(len(self.ranges)), self.prior, self.context, who, drawn, draws, out)
        else:
            _select(self.tried, self.slots.of, self.prior, self.context, who, drawn, draws, out)

    def learn(self, decisions: Decisions, rewards: NDArray[np.float64]) -> None:
        """Add rewards to the category, the item and the user's context."""
        self.tried = self.slots.settle(decisions.place, self.tried, self._nodes)
        _update(
            self.categories, self.tried, self.slots.of, self.context, self._liked, self.vectors, decisions.user,
            decisions.node, decisions.place, rewards,
        )  # fmt: skip


@kernel
def _select(
    nodes: Nodes,
    slot: NDArray[np.int64],
    prior: _Prior,
    contexts: NDArray[np.float64],
    who: NDArray[np.int64],
    drawn: Drawn,
    draws: BatchDraws,
    out: Chosen,
) -> None:
    here = scored(drawn.place.shape[1])
    for i in range(len(who)):
        x, count, stream = contexts[who[i]], drawn.taken[i], draws.streams[i]
        for j in range(count):
            at = slot[drawn.place[i, j]]
            shape, scale = prior.shape, prior.scale
            if at < 0:
                here.mean[j], square = 0.0, np.dot(x, x) / prior.ridge
            else:
                shape, scale = nodes.shape[at], nodes.scale[at]
                here.mean[j], square = np.dot(x, nodes.mean[at]), np.dot(x, np.dot(nodes.inverse[at], x))
            here.width[j] = np.sqrt(max(square, 0.0))
            if prior.kind == UCB:
                here.score[j] = here.mean[j] + prior.strength * np.sqrt(scale / shape) * here.width[j]
            else:  # a node's own draw of noise and parameters, of which one number matters
                start = draws.counter + 1 + 128 * j
                noise = np.sqrt(scale / gamma(shape, draws.seed, stream, start))
                draw = rng.normal(draws.seed, stream, start + 64)
                here.score[j] = here.mean[j] + prior.strength * noise * here.width[j] * draw
        if count > 0:
            take_best(here, drawn, i, draws, out)


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
