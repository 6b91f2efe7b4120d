"""ICTR: interactive collaborative topic regression with particle learning (Wang et al., TKDE 2018)."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treeward.bandit.rules import UCB, Rule
from treeward.core import checks, rng
from treeward.core.compiled import kernel, tight
from treeward.data.catalogue import Catalogue
from treeward.policy.rounds import ROUND, STEP, Drawn, RoundPolicy, RoundSession, Slots, best, gamma, learn_normal
from treeward.policy.session import Decisions, Session
from treeward.tree.item_tree import ItemTree

_MOST_TOPICS = 32
_A_DRAW = 64


@dataclass(frozen=True)
class ICTR(RoundPolicy):
    """Users are mixtures of topics, items have a value in each: no vectors are used, and users share what is learned.

    With LinUCB, the score is the posterior mean plus alpha posterior deviations, averaged over the particles; with
    Thompson sampling, the mean of one draw a particle, its deviation scaled by v. Candidates come from all items.

    Parameters
    ----------
    topics
        K.
    particles
        Of every user and item.
    """

    shared_state: ClassVar[bool] = True

    topics: int = 5
    particles: int = 10

    def session(
        self, tree: ItemTree, catalogue: Catalogue, users: int, *, once: bool = False, rest: int = 0, seed: int = 0
    ) -> Session:
        """Return the policy at work for users 0, 1, ... below `users`, all of them new."""
        self.check(tree, catalogue, rest)
        sizes = (
            checks.integer("ICTR", "topics", self.topics, low=1, high=_MOST_TOPICS),
            checks.integer("ICTR", "particles", self.particles, low=1, high=100),
        )
        rows = np.arange(len(catalogue), dtype=np.int32)
        return _Session(rows, self.bandit.rule(catalogue.dim), sizes, users, self.budget, once, seed)


class Items(NamedTuple):
    """Particles of items that were ever shown: q ~ N(mean, noise cover), noise ~ IG(shape, scale); topic counts."""

    mean: NDArray[np.float64]
    """(items, particles, topics)."""
    cover: NDArray[np.float64]
    """(items, particles, topics, topics)."""
    shape: NDArray[np.float64]
    """(items, particles)."""
    scale: NDArray[np.float64]
    topic: NDArray[np.float64]
    """(items, particles, topics): rewards by topic, beyond the prior's 1."""

    @classmethod
    def empty(cls, items: int, particles: int, topics: int, ridge: float) -> "Items":
        """Return so many items of which nothing is known."""
        cover = np.ascontiguousarray(np.broadcast_to(np.eye(topics) / ridge, (items, particles, topics, topics)))
        flat = np.ones((items, particles))
        zeros = np.zeros((items, particles, topics))
        return cls(zeros, cover, flat, flat.copy(), zeros.copy())


class _Session(RoundSession):
    def __init__(
        self,
        rows: NDArray[np.int32],
        rule: Rule,
        sizes: tuple[int, int],
        users: int,
        budget: int | None,
        once: bool,
        seed: int,
    ) -> None:
        super().__init__(rows, users, budget, once, seed)
        self.each = sizes[1] * sizes[0] * (sizes[0] + 1)
        self.rule, (self.topics, self.particles) = rule, sizes
        self.mixture = np.ones((users, self.particles, self.topics))
        """lambda: what Dirichlet a user's mixture is drawn from."""
        self.totals = np.full(self.topics, float(len(rows)))
        """Of every topic, the sum of its items' counts, averaged over particles, prior included."""
        self.shown = self._items(64)
        self.slots = Slots(len(rows))

    def _items(self, count: int) -> Items:
        return Items.empty(count, self.particles, self.topics, self.rule.ridge)

    def select(self, users: ArrayLike, nonce: int, allow: ArrayLike | None = None) -> Decisions:
        """Decide once for each of the users."""
        who = self.who(users)
        drawn = self.draw_any(who, nonce, allow)
        places, judged = np.full(len(who), -1), np.zeros((len(who), 2))
        _select(
            self.shown, self.slots.of, self.mixture, self.rule, who, drawn, self.seed, self.streams[who],
            nonce * ROUND + STEP, places, judged,
        )  # fmt: skip
        return self.decided(who, nonce, places, np.zeros(len(who), dtype=np.int64), judged, drawn)

    def update(self, decisions: Decisions, rewards: ArrayLike) -> None:
        """Learn what came of decisions, in the order given."""
        values = self.rewards(decisions, rewards)
        self.shown = self.slots.settle(decisions.place, self.shown, self._items)
        counters = decisions.nonce * ROUND + 8 * STEP
        _update(
            self.shown, self.slots.of, self.mixture, self.totals, decisions.user, decisions.place, values, self.seed,
            self.streams[decisions.user], counters,
        )  # fmt: skip


@kernel
def _select(
    items: Items,
    slot: NDArray[np.int64],
    mixture: NDArray[np.float64],
    rule: Rule,
    who: NDArray[np.int64],
    drawn: Drawn,
    seed: int,
    streams: NDArray[np.int64],
    counter: int,
    places: NDArray[np.int64],
    judged: NDArray[np.float64],
) -> None:
    most, particles, topics = drawn.place.shape[1], mixture.shape[1], mixture.shape[2]
    scores, means, widths = np.empty(most), np.empty(most), np.empty(most)
    p = np.empty((particles, topics))
    for i in range(len(who)):
        user, count = who[i], drawn.taken[i]
        if count == 0:
            continue
        for b in range(particles):
            if rule.kind == UCB:
                p[b] = mixture[user, b] / mixture[user, b].sum()
            else:
                _dirichlet(mixture[user, b], p[b], seed, streams[i], counter + 1 + b * topics * _A_DRAW)
        drawing = counter + 1 + particles * topics * _A_DRAW
        for j in range(count):
            at = slot[drawn.place[i, j]]
            scores[j] = means[j] = widths[j] = 0.0
            for b in range(particles):
                mean, square, shape, scale = _judge(items, at, b, p[b], rule.ridge)
                if rule.kind == UCB:
                    square = square * scale / shape + _mixture_variance(items, at, b, mixture[user, b], p[b])
                    scores[j] += mean + rule.strength * np.sqrt(square)
                else:
                    noise = scale / gamma(shape, seed, streams[i], drawing)
                    step = rng.normal(seed, streams[i], drawing + _A_DRAW)
                    scores[j] += mean + rule.strength * np.sqrt(square * noise) * step
                    drawing += _A_DRAW + 1
                means[j] += mean / particles
                widths[j] += np.sqrt(square) / particles
        chosen = best(scores, count, seed, streams[i], counter)
        places[i], judged[i, 0], judged[i, 1] = drawn.place[i, chosen], means[chosen], widths[chosen]


@tight
def _judge(items: Items, at: int, b: int, p: NDArray[np.float64], ridge: float) -> tuple[float, float, float, float]:
    """Return p' mean, p' cover p, and the noise's shape and scale, of one particle of an item."""
    mean, square = 0.0, 0.0
    if at < 0:
        for k in range(len(p)):
            square += p[k] * p[k] / ridge
        return mean, square, 1.0, 1.0
    for k in range(len(p)):
        mean += p[k] * items.mean[at, b, k]
        for m in range(len(p)):
            square += p[k] * items.cover[at, b, k, m] * p[m]
    return mean, max(square, 0.0), items.shape[at, b], items.scale[at, b]


@tight
def _mixture_variance(items: Items, at: int, b: int, weights: NDArray[np.float64], p: NDArray[np.float64]) -> float:
    """Return what not knowing the user's mixture adds: q' Cov(p) q for Dirichlet weights."""
    if at < 0:
        return 0.0
    total, first, second = 0.0, 0.0, 0.0
    for k in range(len(p)):
        q = items.mean[at, b, k]
        total += weights[k]
        first += p[k] * q
        second += p[k] * q * q
    return max(second - first * first, 0.0) / (total + 1.0)


@tight
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
    """Particle learning: resample by how well each foretold the reward, draw a topic, update what is sufficient."""
    particles, topics = mixture.shape[1], mixture.shape[2]
    weight, p, z = np.empty(particles), np.empty(topics), np.empty(topics)
    for i in range(len(who)):
        user, at, reward, counter = who[i], slot[places[i]], rewards[i], counters[i]
        for b in range(particles):
            weight[b] = _likelihood(items, mixture[user, b], totals, at, b, reward)
        parents = _resampled(weight, rng.uniform(seed, streams[i], counter))
        _keep(items, mixture, at, user, parents)
        for b in range(particles):
            start = counter + 1 + b * (topics * _A_DRAW + 1)
            topic = _topic(items, mixture[user, b], totals, at, b, rng.uniform(seed, streams[i], start))
            _dirichlet(mixture[user, b], p, seed, streams[i], start + 1)
            items.shape[at, b] += 0.5
            items.scale[at, b] += learn_normal(items.cover[at, b], items.mean[at, b], p, reward, z)
            mixture[user, b, topic] += max(reward, 0.0)
            items.topic[at, b, topic] += max(reward, 0.0)
            totals[topic] += max(reward, 0.0) / particles


@tight
def _likelihood(
    items: Items, weights: NDArray[np.float64], totals: NDArray[np.float64], at: int, b: int, reward: float
) -> float:
    """Return how likely a particle held the item (by its topics) and the reward (Student's t) to be."""
    total, chance, mean, square = 0.0, 0.0, 0.0, 0.0
    for k in range(len(weights)):
        total += weights[k]
    for k in range(len(weights)):
        share = weights[k] / total
        chance += share * (1.0 + items.topic[at, b, k]) / totals[k]
        mean += share * items.mean[at, b, k]
        for m in range(len(weights)):
            square += share * items.cover[at, b, k, m] * weights[m] / total
    shape, scale = items.shape[at, b], items.scale[at, b]
    spread = scale / shape * (1.0 + square)
    off = (reward - mean) * (reward - mean) / spread
    return float(chance * np.exp(-(shape + 0.5) * np.log1p(off / (2.0 * shape))) / np.sqrt(spread))


@kernel
def _resampled(weight: NDArray[np.float64], start: float) -> NDArray[np.int64]:
    """Return which particles live on, as many as there were (systematic resampling)."""
    count, total = len(weight), weight.sum()
    out, at, reached = np.zeros(count, dtype=np.int64), 0, weight[0] / total
    for b in range(count):
        while reached < (start + b) / count and at < count - 1:
            at += 1
            reached += weight[at] / total
        out[b] = at
    return out


@kernel
def _keep(items: Items, mixture: NDArray[np.float64], at: int, user: int, parents: NDArray[np.int64]) -> None:
    mixture[user] = mixture[user][parents]
    items.mean[at] = items.mean[at][parents]
    items.cover[at] = items.cover[at][parents]
    items.shape[at] = items.shape[at][parents]
    items.scale[at] = items.scale[at][parents]
    items.topic[at] = items.topic[at][parents]


@tight
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
