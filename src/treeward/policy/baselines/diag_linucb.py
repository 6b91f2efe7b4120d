"""Diag-LinUCB on a graph of clusters and items that all users share ("Online Matching", Yi et al., RecSys 2023)."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treeward.bandit.rules import Rule
from treeward.core import checks, rng
from treeward.core.checks import Count, Positive
from treeward.core.compiled import inner, kernel, whole
from treeward.core.types import Floats, Integers
from treeward.data.catalogue import Catalogue
from treeward.engine.available import is_open, left, nth
from treeward.engine.beam import offer
from treeward.engine.explore import UCB
from treeward.engine.ragged import first_at
from treeward.policy.baselines.base import ROUND, RoundPolicy, RoundSession, Setup, close_shown
from treeward.policy.baselines.inner_products import nodes_on
from treeward.policy.baselines.kernels import BatchDraws, best
from treeward.policy.baselines.ridge import Found, Request
from treeward.policy.session import Decisions, Session
from treeward.tree.item_tree import ItemTree
from treeward.tree.row_groups import Rows
from treeward.tree.tree_arrays import sums_by_node

_TRIES = 1 << 10


@dataclass(frozen=True)
class DiagLinUCB(RoundPolicy):
    """One mean and one variance per edge between a cluster and an item, shared by all users.

    A user belongs to the `nearest` clusters whose centres have the largest inner products with the user's vector, which
    is the mean of the vectors of the items that the user rewarded; with weights w that are a softmax of these products.
    A user without rewards belongs to random clusters. A cluster has edges to the `edges` items with the largest inner
    products with its centre. An edge keeps d = ridge + sum w^2 and b = sum w r. The score of an item is
    sum w b / d + alpha sqrt(sum w^2 / d), over the user's clusters that have an edge to it.

    It takes no prior: what it knows of users is in the edges.

    Parameters
    ----------
    budget
        At most this many items are scored, those of the nearest clusters first; None: all with an edge.
    clusters
        Clusters are the nodes of the deepest level of the tree that has at most this many.
    edges
        Items per cluster.
    nearest
        Clusters per user.
    temperature
        Of the softmax.

    Examples
    --------
    >>> from treeward.data.synthetic import synthetic_catalogue
    >>> shop = synthetic_catalogue(500, dim=8, seed=0)
    >>> session = DiagLinUCB(edges=50).session(ItemTree.build(shop.vectors, (5, 25), seed=0), shop, users=1)
    >>> decisions = session.select([0], nonce=0)
    >>> session.update(decisions, [1.0])
    >>> bool(session.select([0], nonce=1).scores[0] <= 4 * 50)
    True
    """

    shared_state: ClassVar[bool] = True
    families: ClassVar[tuple[int, ...]] = (UCB,)

    budget: int | None = None
    clusters: Count = 100
    edges: Count = 300
    nearest: Count = 4
    temperature: Positive = 0.1

    def at_work(self, tree: ItemTree, catalogue: Catalogue, setup: Setup) -> Session:
        """Return its session."""
        return _Session(self, tree, catalogue, setup)


class Graph(NamedTuple):
    """Clusters and their edges."""

    centres: Floats
    place: Integers
    """(clusters, edges), in the order of places."""
    weight: NDArray[np.float64]
    """(clusters, edges): d."""
    reward: NDArray[np.float64]
    """(clusters, edges): b."""


class _Members(NamedTuple):
    """Clusters of a user, with their weights."""

    cluster: NDArray[np.int64]
    value: Floats
    weight: NDArray[np.float64]


class _Settings(NamedTuple):
    temperature: float
    alpha: float
    nearest: int
    most: int
    items: int


class _Taught(NamedTuple):
    user: NDArray[np.int64]
    nonce: NDArray[np.int64]
    place: NDArray[np.int64]


class _Session(RoundSession):
    def __init__(self, policy: DiagLinUCB, tree: ItemTree, catalogue: Catalogue, setup: Setup) -> None:
        super().__init__(tree.items, setup)
        dim = catalogue.dim
        self.rule: Rule = policy.bandit.rule(dim)
        self.vectors = np.ascontiguousarray(Rows(catalogue.vectors, tree.normalized).take(tree.items))
        levels = [nodes_on(tree, level) for level in range(1, int(tree.level[-1]) + 1)]
        nodes = [some for some in levels if len(some) <= max(policy.clusters, len(levels[0]))][-1]
        centres = sums_by_node(tree.arrays, self.vectors)[nodes] / np.diff(tree.item_range[nodes])
        lengths = np.linalg.norm(centres, axis=1, keepdims=True)
        directions: Floats = np.ascontiguousarray(centres / np.where(lengths > 0, lengths, 1.0), dtype=np.float32)
        place = nearest_items(directions, self.vectors, min(policy.edges, len(self.vectors)))
        empty = np.zeros(place.shape)
        self.graph = Graph(directions, place, empty + self.rule.ridge, empty)
        nearest = min(policy.nearest, len(centres))
        most = policy.budget or place.shape[1] * nearest
        self.settings = _Settings(policy.temperature, self.rule.strength, nearest, most, len(self.vectors))
        self.liked = np.zeros((self.users, dim), dtype=np.float32)
        """The sum of the vectors of the items that each user rewarded, times the rewards."""
        self.earned = np.zeros(self.users)
        self.upkeep = 3 * nearest + len(centres) * dim  # the user's clusters are found again

    def select(self, users: ArrayLike, nonce: int, allow: ArrayLike | None = None) -> Decisions:
        """Decide once for each of the users."""
        who = self.who(users)
        counter = checks.integer("session", "nonce", nonce, low=0, high=2**43 - 1) * ROUND
        out = Found.empty(len(who))
        request = Request(
            self.open(allow), self._shown, self._counts, who, BatchDraws(self.seed, self.streams[who], counter)
        )
        _decide(self.graph, self.liked, self.earned, self.settings, request, out)
        self.record(who, out.place)
        items: NDArray[np.int64] = np.where(out.place >= 0, self.items[out.place], -1).astype(np.int64)
        mean, width = out.mean.astype(np.float32), out.width.astype(np.float32)
        nonces = np.full(len(who), nonce, dtype=np.int64)
        return Decisions(
            who, nonces, items, out.place, out.node, mean, width, out.chance, out.exact, out.scores, out.work
        )

    def learn(self, decisions: Decisions, rewards: NDArray[np.float64]) -> None:
        """Add rewards to the edges between the users' clusters and the items, and to the users' vectors."""
        draws = BatchDraws(self.seed, self.streams[decisions.user], 0)
        taught = _Taught(decisions.user, decisions.nonce, decisions.place)
        _learn(self.graph, self.liked, self.earned, self.vectors, self.settings, taught, rewards, draws)


def nearest_items(centres: Floats, items: Floats, count: int) -> Integers:
    """Return, per centre, the places of the items with the largest inner products, in the order of places."""
    made = np.empty((len(centres), count), dtype=np.int32)
    for number, centre in enumerate(centres):
        made[number] = np.sort(np.argsort(-(items @ centre), kind="stable")[:count])
    return made


@inner
def _belongs(
    centres: Floats,
    liked: Floats,
    earned: float,
    temperature: float,
    seed: int,
    stream: int,
    counter: int,
    members: _Members,
) -> int:
    """Write a user's clusters and their weights; return how many multiplications that took."""
    number, dim = centres.shape
    count = whole(0)
    if earned <= 0.0:
        for k in range(len(members.cluster)):  # a random cluster, other than those before it
            at = rng.below(seed, stream, counter + k, number)
            for _ in range(k + 1):  # each of the k clusters before can be met once
                again = False
                for j in range(k):
                    again = again or members.cluster[j] == at
                at = (at + again) % number
            members.cluster[k], members.weight[k] = at, 1.0 / len(members.cluster)
        return 0
    for cluster in range(number):
        value = np.float32(0.0)
        for j in range(dim):
            value += centres[cluster, j] * liked[j]
        count = offer(members.cluster, members.value, count, len(members.cluster), cluster, np.float32(value / earned))
    total = 0.0
    for k in range(count):
        members.weight[k] = np.exp((members.value[k] - members.value[0]) / temperature)
        total += members.weight[k]
    for k in range(count):
        members.weight[k] /= total
    return int(number * dim)


@kernel
def _decide(
    graph: Graph, liked: Floats, earned: NDArray[np.float64], settings: _Settings, request: Request, out: Found
) -> None:
    draws, items = request.draws, settings.items
    members, at = _room(settings.nearest), np.full(items, -1, dtype=np.int64)
    place, score = np.empty(settings.most, dtype=np.int64), np.empty(settings.most)
    mean, spread = np.empty(settings.most), np.empty(settings.most)
    for i in range(len(request.who)):
        user, stream = request.who[i], draws.streams[i]
        close_shown(request.screen, request.shown, request.counts, user)
        total = left(request.screen, whole(0), items)
        if total <= 0:
            continue
        out.work[i] = _belongs(
            graph.centres, liked[user], earned[user], settings.temperature, draws.seed, stream, draws.counter, members
        )
        count = whole(0)
        for k in range(settings.nearest):
            cluster, w = members.cluster[k], members.weight[k]
            for edge in range(graph.place.shape[1]):
                item = whole(graph.place[cluster, edge])
                if at[item] < 0:
                    if count == settings.most or not is_open(request.screen, item):
                        continue
                    at[item], place[count], mean[count], spread[count] = count, item, 0.0, 0.0
                    count += 1
                d = graph.weight[cluster, edge]
                mean[at[item]] += w * graph.reward[cluster, edge] / d
                spread[at[item]] += w * w / d
                out.work[i] += 3
        for j in range(count):
            score[j] = mean[j] + settings.alpha * np.sqrt(spread[j])
            at[place[j]] = -1
        if count == 0:  # the user's clusters have no edge to an open item
            rank = rng.below(draws.seed, stream, draws.counter + _TRIES, total)
            out.place[i], out.chance[i] = nth(request.screen, whole(0), items, rank), 1.0 / total
            continue
        chosen = best(score, count, draws.seed, stream, draws.counter + _TRIES)
        out.place[i], out.mean[i], out.width[i] = place[chosen], mean[chosen], np.sqrt(spread[chosen])
        out.scores[i] = count if count > 1 else 0


@kernel
def _learn(
    graph: Graph,
    liked: Floats,
    earned: NDArray[np.float64],
    vectors: Floats,
    settings: _Settings,
    decisions: _Taught,
    rewards: NDArray[np.float64],
    draws: BatchDraws,
) -> None:
    members = _room(settings.nearest)
    for i in range(len(rewards)):
        user, place, first = decisions.user[i], decisions.place[i], decisions.nonce[i] * ROUND
        _belongs(
            graph.centres, liked[user], earned[user], settings.temperature, draws.seed, draws.streams[i], first, members
        )
        for k in range(settings.nearest):
            cluster, w = members.cluster[k], members.weight[k]
            edge = first_at(graph.place[cluster], graph.place.shape[1], place)
            if edge < graph.place.shape[1] and graph.place[cluster, edge] == place:
                graph.weight[cluster, edge] += w * w
                graph.reward[cluster, edge] += w * rewards[i]
        if rewards[i] > 0.0:
            earned[user] += rewards[i]
            for j in range(vectors.shape[1]):
                liked[user, j] += rewards[i] * vectors[place, j]


@kernel(inline=True)
def _room(count: int) -> _Members:
    return _Members(np.empty(count, dtype=np.int64), np.empty(count, dtype=np.float32), np.empty(count))
