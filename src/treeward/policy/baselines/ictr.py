"""ICTR: interactive collaborative topic regression with particles (Wang et al., TKDE 2018)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.bandit.rules import Rule
from treeward.core import rng
from treeward.core.checks import NotNegative, Whole
from treeward.core.compiled import kernel
from treeward.data.catalogue import Catalogue
from treeward.engine.explore import UCB
from treeward.engine.sampling import copy
from treeward.policy.baselines.base import ROUND, STEP, RoundPolicy, RoundSession, Setup, Slots
from treeward.policy.baselines.kernels import BatchDraws, Chosen, Drawn, gamma, learn_normal, scored, take_best
from treeward.policy.session import Decisions, Session
from treeward.tree.item_tree import ItemTree

_MOST_TOPICS = 32
_A_DRAW = 64


@dataclass(frozen=True)
class ICTR(RoundPolicy):
    """Users are mixtures of topics and items have a value in each topic. It uses no vectors, and users share items.

    Every particle is a complete model of its own: particle b of a user only ever meets particle b of an item. Particles
    are independent and count equally; none is resampled. With LinUCB the score is the posterior mean plus alpha
    posterior deviations, averaged over the particles. With Thompson sampling it is the mean of one draw per particle,
    with deviations scaled by v. Candidates come from all items.

    Parameters
    ----------
    topics
        K.
    particles
        How many models there are.
    spread
        Standard deviation of an item's values before its first reward: each particle draws its own, one per topic.
        With 0, all topics of an item start equal.
    """

    shared_state: ClassVar[bool] = True

    topics: Annotated[int, Whole(1, _MOST_TOPICS)] = 5
    particles: Annotated[int, Whole(1, 100)] = 10
    spread: NotNegative = 0.1

    def at_work(self, tree: ItemTree, catalogue: Catalogue, setup: Setup) -> Session:
        """Return its session."""
        return _Session(self, len(catalogue), self.bandit.rule(catalogue.dim), setup)


class Items(NamedTuple):
    """Particles of items that were shown before: q ~ N(mean, noise cover), noise ~ IG(shape, scale); topic counts."""

    mean: NDArray[np.float64]
    """(items, particles, topics)."""
    cover: NDArray[np.float64]
    """(items, particles, topics, topics)."""
    shape: NDArray[np.float64]
    """(items, particles)."""
    scale: NDArray[np.float64]
    topic: NDArray[np.float64]
    """(items, particles, topics): rewards per topic, in addition to the prior's 1."""

    @classmethod
    def empty(cls, items: int, particles: int, topics: int, ridge: float) -> "Items":
        """Return arrays for `items` items without a reward; `mean` is still to be filled."""
        cover = np.ascontiguousarray(np.broadcast_to(np.eye(topics) / ridge, (items, particles, topics, topics)))
        flat = np.ones((items, particles))
        zeros = np.zeros((items, particles, topics))
        return cls(zeros, cover, flat, flat.copy(), zeros.copy())


class Start(NamedTuple):
    """Where an item's means start: a draw that depends on the seed, the item, the particle and the topic only."""

    spread: float
    seed: int
    stream: int
    ridge: float


class _Session(RoundSession):
    def __init__(self, policy: ICTR, items: int, rule: Rule, setup: Setup) -> None:
        super().__init__(np.arange(items, dtype=np.int32), setup)
        self.rule, self.topics, self.particles = rule, policy.topics, policy.particles
        self.each = self.particles * self.topics * (self.topics + 1)
        self.start = Start(policy.spread, self.seed, rng.stream("ictr", "mean"), rule.ridge)
        self.mixture = np.ones((self.users, self.particles, self.topics))
        """lambda: parameters of the Dirichlet distribution of a user's mixture."""
        self.totals = np.full((self.particles, self.topics), float(items))
        """(particles, topics): the sum of the topic's item counts, prior included."""
        self.shown = self._items(64)
        self.slots = Slots(items)

    def _items(self, count: int) -> Items:
        return Items.empty(count, self.particles, self.topics, self.rule.ridge)

    def choose(self, step: int, who: NDArray[np.int64], drawn: Drawn, draws: BatchDraws, out: Chosen) -> None:
        """Choose an item."""
        _select(self.shown, self.slots.of, self.start, self.mixture, self.rule, who, drawn, draws, out)

    def learn(self, decisions: Decisions, rewards: NDArray[np.float64]) -> None:
        """Update every particle of the user and the item."""
        fresh = np.unique(decisions.place[self.slots.of[decisions.place] < 0])
        self.shown = self.slots.settle(decisions.place, self.shown, self._items)
        _begin(self.shown, self.slots.of[fresh], fresh, self.start)
        counters = decisions.nonce * ROUND + 8 * STEP
        _update(
            self.shown, self.slots.of, self.mixture, self.totals, decisions.user, decisions.place, rewards, self.seed,
            self.streams[decisions.user], counters,
        )  # fmt: skip


@kernel(allocates=False, inline=True)
def _start_mean(start: Start, place: int, b: int, particles: int, out: NDArray[np.float64]) -> None:
    """Write the mean of particle b of an item before the item's first reward."""
    for k in range(len(out)):
        counter = (place * particles + b) * len(out) + k
        out[k] = start.spread * rng.normal(start.seed, start.stream, counter) if start.spread > 0.0 else 0.0


@kernel
def _begin(items: Items, slots: NDArray[np.int64], places: NDArray[np.int64], start: Start) -> None:
    """Fill the means of items that were just given a slot."""
    for i in range(len(slots)):
        for b in range(items.mean.shape[1]):
            _start_mean(start, places[i], b, items.mean.shape[1], items.mean[slots[i], b])


@kernel
def _select(
    items: Items,
    slot: NDArray[np.int64],
    start: Start,
    mixture: NDArray[np.float64],
    rule: Rule,
    who: NDArray[np.int64],
    drawn: Drawn,
    draws: BatchDraws,
    out: Chosen,
) -> None:
    particles, topics, here = mixture.shape[1], mixture.shape[2], scored(drawn.place.shape[1])
    p, q = np.empty((particles, topics)), np.empty(topics)
    for i in range(len(who)):
        user, count, stream = who[i], drawn.taken[i], draws.streams[i]
        if count == 0:
            continue
        for b in range(particles):
            if rule.kind == UCB:
                _shares(mixture[user, b], p[b])
            else:
                _dirichlet(mixture[user, b], p[b], draws.seed, stream, draws.counter + 1 + b * topics * _A_DRAW)
        drawing = draws.counter + 1 + particles * topics * _A_DRAW
        for j in range(count):
            at = slot[drawn.place[i, j]]
            here.score[j] = here.mean[j] = here.width[j] = 0.0
            for b in range(particles):
                if at < 0:
                    _start_mean(start, drawn.place[i, j], b, particles, q)
                else:
                    copy(items.mean[at, b], q)
                mean, square, shape, scale = _judge(items, at, b, p[b], q, start.ridge)
                if rule.kind == UCB:
                    square = square * scale / shape + _mixture_variance(q, mixture[user, b], p[b])
                    here.score[j] += mean + rule.strength * np.sqrt(square)
                else:
                    noise = scale / gamma(shape, draws.seed, stream, drawing)
                    step = rng.normal(draws.seed, stream, drawing + _A_DRAW)
                    here.score[j] += mean + rule.strength * np.sqrt(square * noise) * step
                    drawing += _A_DRAW + 1
                here.mean[j] += mean / particles
                here.width[j] += np.sqrt(square) / particles
        take_best(here, drawn, i, draws, out)


@kernel(allocates=False, inline=True)
def _shares(weights: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Write each weight's share of their sum."""
    total = 0.0
    for k in range(len(weights)):
        total += weights[k]
    for k in range(len(weights)):
        out[k] = weights[k] / total


@kernel(allocates=False, inline=True)
def _judge(
    items: Items, at: int, b: int, p: NDArray[np.float64], q: NDArray[np.float64], ridge: float
) -> tuple[float, float, float, float]:
    """Return p' q, p' cover p, and the noise's shape and scale, of one particle of an item; q is its mean."""
    mean, square = 0.0, 0.0
    for k in range(len(p)):
        mean += p[k] * q[k]
    if at < 0:
        for k in range(len(p)):
            square += p[k] * p[k] / ridge
        return mean, square, 1.0, 1.0
    for k in range(len(p)):
        for m in range(len(p)):
            square += p[k] * items.cover[at, b, k, m] * p[m]
    return mean, max(square, 0.0), items.shape[at, b], items.scale[at, b]


@kernel(allocates=False, inline=True)
def _mixture_variance(q: NDArray[np.float64], weights: NDArray[np.float64], p: NDArray[np.float64]) -> float:
    """Return the variance that the unknown mixture of the user adds: q' Cov(p) q for Dirichlet weights."""
    total, first, second = 0.0, 0.0, 0.0
    for k in range(len(p)):
        total += weights[k]
        first += p[k] * q[k]
        second += p[k] * q[k] * q[k]
    return max(second - first * first, 0.0) / (total + 1.0)


@kernel(allocates=False, inline=True)
def _dirichlet(weights: NDArray[np.float64], out: NDArray[np.float64], seed: int, stream: int, counter: int) -> None:
    total = 0.0
    for k in range(len(weights)):
        out[k] = gamma(weights[k], seed, stream, counter + k * _A_DRAW)
        total += out[k]
    for k in range(len(weights)):
        out[k] /= total


@kernel
def _update(
    items: Items,
    slot: NDArray[np.int64],
    mixture: NDArray[np.float64],
    totals: NDArray[np.float64],
    who: NDArray[np.int64],
    places: NDArray[np.int64],
    rewards: NDArray[np.float64],
    seed: int,
    streams: NDArray[np.int64],
    counters: NDArray[np.int64],
) -> None:
    """In every particle: draw the topic and the user's mixture, then update the sufficient statistics."""
    particles, topics = mixture.shape[1], mixture.shape[2]
    p, z = np.empty(topics), np.empty(topics)
    for i in range(len(who)):
        user, at, reward = who[i], slot[places[i]], rewards[i]
        for b in range(particles):
            start = counters[i] + 1 + b * (topics * _A_DRAW + 1)
            topic = _topic(items, mixture[user, b], totals[b], at, b, rng.uniform(seed, streams[i], start))
            _dirichlet(mixture[user, b], p, seed, streams[i], start + 1)
            items.shape[at, b] += 0.5
            items.scale[at, b] += learn_normal(items.cover[at, b], items.mean[at, b], p, reward, z)
            mixture[user, b, topic] += max(reward, 0.0)
            items.topic[at, b, topic] += max(reward, 0.0)
            totals[b, topic] += max(reward, 0.0)


@kernel(allocates=False, inline=True)
def _topic(
    items: Items, weights: NDArray[np.float64], totals: NDArray[np.float64], at: int, b: int, coin: float
) -> int:
    """Draw the topic the user was in: by the mixture, and by how often the topic led to the item."""
    total = 0.0
    for k in range(len(weights)):
        total += weights[k] * (1.0 + items.topic[at, b, k]) / totals[k]
    reached, topic = 0.0, len(weights) - 1
    for k in range(len(weights)):
        reached += weights[k] * (1.0 + items.topic[at, b, k]) / totals[k] / total
        if coin < reached:
            topic = k
            break
    return topic
