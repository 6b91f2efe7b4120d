"""Rivals published since 2021 against slow twins written from their equations."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import brentq

import treeward as tw
from tests import naive
from treeward.bandit import Crowd
from treeward.core import rng
from treeward.policy.baselines.base import ROUND
from treeward.policy.baselines.inner_products import lists_of, nodes_on
from treeward.policy.baselines.spanner import spanner_of

ROUNDS, USERS = 30, 5


@pytest.fixture(scope="module")
def world():
    return tw.World.synthetic(items=300, users=USERS, dim=6, seed=7)


@pytest.fixture(scope="module")
def tree(world):
    return tw.ItemTree.build(world.catalogue.vectors, (5, 25), seed=0)


@pytest.fixture(scope="module")
def prior(world):
    """A crowd from a log in which every user clicked what suits them."""
    users, items = [], []
    for user in range(USERS):
        liked = np.argsort(-world.probabilities(user))[:12]
        users += [user] * len(liked)
        items += liked.tolist()
    return Crowd.fit(tw.Interactions(users, items), world.catalogue)


class RidgeTwin:
    """theta and A^-1 of every user, from all the user's events at once."""

    def __init__(self, session, seen, prior=None, once=False):
        self.session, self.once = session, once
        self.x = np.array(session.vectors, dtype=np.float64)
        dim = self.x.shape[1]
        self.precision, self.first = np.eye(dim), np.zeros(dim)
        if prior is not None:
            self.precision = np.linalg.inv(np.asarray(prior.covariance, dtype=np.float64))
            self.first = np.asarray(prior.mean, dtype=np.float64)
        self.events = [[] for _ in range(USERS)]
        self.tree = seen

    def posterior(self, user):
        a, b = self.precision.copy(), self.precision @ self.first
        for place, reward in self.events[user]:
            a += np.outer(self.x[place], self.x[place])
            b += reward * self.x[place]
        return np.linalg.inv(a), np.linalg.solve(a, b)

    def open(self, user):
        gone = {place for place, _ in self.events[user]} if self.once else set()
        return [place for place in range(len(self.x)) if place not in gone]

    def uniform(self, user, turn, at):
        return rng.uniform(self.session.seed, int(self.session.streams[user]), turn * ROUND + at)

    def below(self, user, turn, at, limit):
        return int(self.uniform(user, turn, at) * limit)

    def play(self, world):
        who = np.arange(USERS)
        for turn in range(ROUNDS):
            made = self.session.select(who, turn)
            expected = [self.choose(user, turn) for user in range(USERS)]
            assert made.place.tolist() == [one["place"] for one in expected], turn
            for name in expected[0]:
                np.testing.assert_allclose(getattr(made, name), [one[name] for one in expected], rtol=2e-3, atol=1e-5)
            for user, place in enumerate(made.place):
                inverse, theta = self.posterior(user)
                assert made.mean[user] == pytest.approx(self.x[place] @ theta, abs=1e-4)
                assert made.width[user] == pytest.approx(math.sqrt(self.x[place] @ inverse @ self.x[place]), rel=1e-3)
            rewards = world.chances(who, made.item)
            self.session.update(made, rewards)
            for user in range(USERS):
                self.events[user].append((int(made.place[user]), float(rewards[user])))


def session_of(policy, tree, world, once):
    return policy.session(tree, world.catalogue, USERS, once=once, seed=3)


class BeamTwin(RidgeTwin):
    """XCB in plain Python."""

    def __init__(self, session, seen, width, strength, most=None, **options):
        super().__init__(session, seen, **options)
        self.width, self.strength, self.most = width, strength, most

    def value(self, node, theta):
        return float(self.x[slice(*self.tree.item_range[node])].mean(axis=0) @ theta)

    def choose(self, user, turn):
        _, theta = self.posterior(user)
        left, arms, means = self.open(user), [], 0
        inside = {n: [p for p in left if self.tree.item_range[n, 0] <= p < self.tree.item_range[n, 1]]
                  for n in range(len(self.tree.parent))}  # fmt: skip
        front, level = [0], 0
        while any(naive.children(self.tree, node) for node in front):
            level += 1
            found = []
            for node in front:
                below = naive.children(self.tree, node)
                if not below:
                    found.append(node)
                    continue
                shift = self.below(user, turn, 1 + level, len(below))
                for child in below[shift:] + below[:shift]:
                    if inside[child]:
                        found.append(child)
                        means += 1
            values = {node: np.float32(self.value(node, theta)) for node in found}
            front = sorted(found, key=lambda node: -values[node])[: self.width]
            arms += [(node, None, values[node]) for node in found if node not in front]
        for node in front:
            for place in inside[node]:
                arms.append((node, place, float(self.x[place] @ theta)))
                means += 1
        if self.most is not None:
            arms = sorted(arms, key=lambda arm: -arm[2])[: self.most]
        y = np.array([arm[2] for arm in arms])
        gamma = self.strength * math.sqrt(len(arms) * len(self.events[user]))
        p = 1 / (len(arms) + gamma * (y.max() - y))
        p[y.argmax()] += 1 - p.sum()
        ends, u = np.cumsum(np.delete(p, y.argmax())), self.uniform(user, turn, 0)
        at = int(np.searchsorted(ends, u, side="right"))
        at = int(y.argmax()) if at == len(ends) else at + (at >= y.argmax())
        node, place, _ = arms[at]
        chance = p[at]
        if place is None:
            chance /= len(inside[node])
            place = inside[node][self.below(user, turn, 1, len(inside[node]))]
        return {"place": place, "node": node, "propensity": chance, "scores": len(arms),
                "work": means * self.x.shape[1] + len(arms)}  # fmt: skip


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("options", [{"width": 2}, {"width": 3, "strength": 5.0}, {"width": 2, "budget": 9}])
def test_xcb_follows_its_equations(world, tree, options, once):
    session = session_of(tw.XCB(**options), tree, world, once)
    most = options.get("budget")
    BeamTwin(session, tree, options["width"], options.get("strength", 100.0), most, once=once).play(world)


def test_xcb_starts_from_a_prior(world, tree, prior):
    session = session_of(tw.XCB(prior=prior, width=2), tree, world, True)
    assert session.vectors.shape[1] == 8
    assert session.select(np.arange(USERS), 0).exact.all()
    session = session_of(tw.XCB(prior=prior, width=2), tree, world, True)
    BeamTwin(session, tree, 2, 100.0, prior=prior, once=True).play(world)


def test_xcb_propensities_are_frequencies(world, tree):
    session = session_of(tw.XCB(width=2, strength=20.0), tree, world, False)
    for turn in range(12):
        made = session.select(np.arange(USERS), turn)
        session.update(made, world.chances(made.user, made.item))
    counts, told, draws = np.zeros(300), np.zeros(300), 6_000
    for turn in range(12, 12 + draws):
        made = session.select([2], turn)
        counts[made.place[0]] += 1
        told[made.place[0]] = made.propensity[0]
    assert told.sum() == pytest.approx(1.0, abs=0.05)
    np.testing.assert_allclose(counts / draws, told, atol=0.02)


class SearchTwin(RidgeTwin):
    """MIPS with LinUCB in plain Python."""

    def __init__(self, session, seen, nodes, searches, probes, alpha=0.5, **options):
        super().__init__(session, seen, **options)
        self.nodes, self.searches, self.probes, self.alpha = nodes, searches, probes, alpha

    def search(self, query, left, shift):
        """The list by list search: the best centres first, of equal ones the first from `shift` on."""
        lists = [range(*self.tree.item_range[node]) for node in self.nodes]
        order = [(k + shift) % len(lists) for k in range(len(lists))]
        centres = {k: self.x[list(lists[k])].mean(axis=0) @ query for k in order if set(lists[k]) & left}
        near = sorted(centres, key=lambda k: -centres[k])[: self.probes]
        places = [place for k in near for place in lists[k] if place in left]
        return max(places, key=lambda place: self.x[place] @ query), len(lists) + sum(len(lists[k]) for k in near)

    def choose(self, user, turn):
        inverse, theta = self.posterior(user)
        left = self.open(user)
        place = left[self.below(user, turn, 0, len(left))]
        shift = self.below(user, turn, 1, len(self.nodes))
        met, products = [place], 0
        for _ in range(self.searches):
            z = inverse @ self.x[place]
            query = theta + self.alpha * z / math.sqrt(self.x[place] @ z)
            found, took = self.search(query, set(left), shift)
            products += took
            if found == place:
                break
            place = found
            met.append(place)
        scores = [self.x[p] @ theta + self.alpha * math.sqrt(self.x[p] @ inverse @ self.x[p]) for p in met]
        if self.probes >= len(self.nodes):
            assert all(later >= earlier - 1e-9 for earlier, later in pairwise(scores))
        dim = self.x.shape[1]
        return {"place": met[int(np.argmax(scores))], "scores": len(met),
                "work": products * dim + len(met) * (dim + dim * dim)}  # fmt: skip


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("options", [{"probes": 3}, {"searches": 1, "probes": 2}, {"probes": 1_000}, {"budget": 2}])
def test_mips_with_linucb_follows_its_equations(world, tree, options, once):
    session = session_of(tw.MIPS(**options), tree, world, once)
    nodes = nodes_on(tree, 3 if len(session.lists.ranges) == 25 else 2 if len(session.lists.ranges) == 5 else 1)
    searches = options.get("searches", 1 if "budget" in options else 3)
    SearchTwin(session, tree, nodes, searches, options.get("probes", 8), once=once).play(world)


def test_mips_with_linucb_starts_from_a_prior(world, tree, prior):
    session = session_of(tw.MIPS(prior=prior), tree, world, True)
    SearchTwin(session, tree, nodes_on(tree, 3), 3, 8, prior=prior, once=True).play(world)


class DrawTwin(SearchTwin):
    """MIPS with Thompson sampling in plain Python."""

    def __init__(self, session, seen, nodes, v, probes, **options):
        super().__init__(session, seen, nodes, 1, probes, **options)
        self.v = v

    def choose(self, user, turn):
        inverse, theta = self.posterior(user)
        dim = len(theta)
        stream = int(self.session.streams[user])
        z = [rng.normal(self.session.seed, stream, turn * ROUND + 16 + k) for k in range(dim)]
        query = (theta + self.v * np.linalg.cholesky(inverse) @ z).astype(np.float32)
        place, products = self.search(query, set(self.open(user)), self.below(user, turn, 1, len(self.nodes)))
        factor = sum(j for i in range(dim) for j in range(i + 1))  # entry (i, j) takes j products
        return {"place": place, "scores": 0, "propensity": 1.0,
                "work": products * dim + factor + dim * (dim + 1) // 2 + dim}  # fmt: skip


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize(("v", "probes"), [(0.2, 3), (1.0, 8), (0.5, 1_000)])
def test_mips_with_thompson_follows_its_equations(world, tree, v, probes, once):
    session = session_of(tw.MIPS(tw.Thompson(v=v), probes=probes), tree, world, once)
    nodes = nodes_on(tree, 1 if probes == 1_000 else 3)
    assert len(session.lists.ranges) == len(nodes)
    DrawTwin(session, tree, nodes, v, probes, once=once).play(world)


def test_mips_with_thompson_starts_from_a_prior(world, tree, prior):
    session = session_of(tw.MIPS(tw.Thompson(), prior=prior), tree, world, True)
    DrawTwin(session, tree, nodes_on(tree, 3), 0.2, 8, prior=prior, once=True).play(world)


def test_mips_draws_theta_once_per_decision_from_the_posterior(world, tree):
    """With all lists scanned, an item is shown as often as it is best under a draw from N(theta, v^2 A^-1)."""
    session = session_of(tw.MIPS(tw.Thompson(v=0.5), probes=1_000), tree, world, False)
    for turn in range(20):
        made = session.select(np.arange(USERS), turn)
        session.update(made, world.chances(made.user, made.item))
    draws, random = 4_000, np.random.default_rng(0)
    shown = np.bincount([session.select([1], 20 + turn).place[0] for turn in range(draws)], minlength=300)
    theta, inverse = session.state.theta[1], session.state.inverse[1]
    best = (random.multivariate_normal(theta, 0.25 * inverse, 20_000) @ session.vectors.T).argmax(axis=1)
    np.testing.assert_allclose(shown / draws, np.bincount(best, minlength=300) / 20_000, atol=0.03)


def test_lists_are_those_of_the_cheapest_level(world, tree):
    vectors = session_of(tw.MIPS(), tree, world, False).vectors
    sizes = {probes: len(lists_of(tree, vectors, probes).ranges) for probes in (1, 3, 8, 25)}
    assert sizes == {1: 25, 3: 25, 8: 25, 25: 1}
    for level in range(1, 5):
        ranges = tree.item_range[nodes_on(tree, level)]
        assert ranges[0, 0] == 0
        assert ranges[-1, 1] == 300
        assert (ranges[1:, 0] == ranges[:-1, 1]).all()


def test_searches_reach_most_of_the_best_score():
    world = tw.World.synthetic(items=2_000, users=20, dim=8, seed=3)
    tree = tw.ItemTree.build(world.catalogue.vectors, seed=0)
    session = tw.MIPS().session(tree, world.catalogue, 20, seed=1)
    reached = []
    for turn in range(40):
        made = session.select(np.arange(20), turn)
        for user in range(20):
            inverse, theta = session.state.inverse[user], session.state.theta[user]
            scores = session.vectors @ theta + 0.5 * np.sqrt(
                np.einsum("ij,ij->i", session.vectors @ inverse, session.vectors)
            )
            reached.append((made.mean[user] + 0.5 * made.width[user]) / scores.max())
        session.update(made, world.chances(made.user, made.item))
    assert np.mean(reached) > 0.85


class GraphTwin:
    """Diag-LinUCB in plain Python: the edges in dictionaries."""

    def __init__(self, session, centres, edges, nearest, temperature, once, most=None):
        self.session, self.nearest, self.temperature, self.once, self.most = session, nearest, temperature, once, most
        self.x = np.array(session.vectors, dtype=np.float64)
        self.centres = centres / np.linalg.norm(centres, axis=1, keepdims=True)
        count = min(edges, len(self.x))
        self.edges = {
            (c, place): [1.0, 0.0]
            for c, centre in enumerate(self.centres)
            for place in np.argsort(-(self.x @ centre), kind="stable")[:count].tolist()
        }
        self.events = [[] for _ in range(USERS)]

    def uniform(self, user, turn, at):
        return rng.uniform(self.session.seed, int(self.session.streams[user]), turn * ROUND + at)

    def members(self, user, turn):
        liked = sum((reward * self.x[place] for place, reward in self.events[user]), np.zeros(self.x.shape[1]))
        earned = sum(reward for _, reward in self.events[user])
        if not earned:
            chosen = []
            for k in range(self.nearest):
                at = int(self.uniform(user, turn, k) * len(self.centres))
                while at in chosen:
                    at = (at + 1) % len(self.centres)
                chosen.append(at)
            return dict.fromkeys(chosen, 1 / self.nearest)
        values = self.centres @ (liked / earned)
        chosen = np.argsort(-values, kind="stable")[: self.nearest].tolist()
        weights = np.exp((values[chosen] - values.max()) / self.temperature)
        return dict(zip(chosen, weights / weights.sum(), strict=True))

    def choose(self, user, turn):
        weights, scored = self.members(user, turn), {}
        gone = {place for place, _ in self.events[user]} if self.once else set()
        for c in weights:
            for place in sorted(p for e, p in self.edges if e == c):
                if place not in gone and (self.most is None or len(scored) < self.most):
                    mine = {e: self.edges[e, place] for e in weights if (e, place) in self.edges}
                    mean = sum(weights[e] * b / d for e, (d, b) in mine.items())
                    width = math.sqrt(sum(weights[e] ** 2 / d for e, (d, b) in mine.items()))
                    scored[place] = mean, width
        left = [place for place in range(len(self.x)) if place not in gone]
        if not scored:
            return left[int(self.uniform(user, turn, 1 << 10) * len(left))], 0
        places, scores = list(scored), [mean + 0.5 * width for mean, width in scored.values()]
        tied = [at for at, score in enumerate(scores) if score >= max(scores) - 1e-6]
        first = int(self.uniform(user, turn, 1 << 10) * len(scores))
        return places[min(tied, key=lambda at: (at - first) % len(scores))], len(scored) if len(scored) > 1 else 0

    def play(self, world):
        who = np.arange(USERS)
        for turn in range(ROUNDS):
            made = self.session.select(who, turn)
            expected = [self.choose(user, turn) for user in range(USERS)]
            assert list(zip(made.place.tolist(), made.scores.tolist(), strict=True)) == expected, turn
            rewards = world.chances(who, made.item) * (made.item % 3 > 0)
            self.session.update(made, rewards)
            known = [self.members(user, turn) for user in range(USERS)]
            for user, place in enumerate(made.place.tolist()):
                for c, w in known[user].items():
                    if (c, place) in self.edges:
                        self.edges[c, place][0] += w * w
                        self.edges[c, place][1] += w * rewards[user]
                self.events[user].append((place, float(rewards[user])))


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("options", [{"edges": 40}, {"edges": 5, "nearest": 2}, {"clusters": 5, "budget": 30}])
def test_diag_linucb_follows_its_equations(world, tree, options, once):
    session = session_of(tw.DiagLinUCB(**options), tree, world, once)
    nodes = nodes_on(tree, 2 if "clusters" in options else 3)
    centres = np.array([session.vectors[slice(*tree.item_range[node])].mean(axis=0) for node in nodes])
    edges, nearest, most = options.get("edges", 300), options.get("nearest", 4), options.get("budget")
    GraphTwin(session, centres, edges, nearest, 0.1, once, most).play(world)


def test_diag_linucb_counts_its_work(world, tree):
    session = session_of(tw.DiagLinUCB(edges=7, nearest=2), tree, world, False)
    made = session.select([0], 0)
    assert made.work.tolist() == [3 * 2 * 7]
    session.update(made, [1.0])
    assert session.select([0], 1).work.tolist() == [25 * 6 + 3 * 2 * 7]
    assert session.upkeep == 3 * 2 + 25 * 6


def test_diag_linucb_takes_no_prior(world, tree, prior):
    with pytest.raises(tw.InvalidArgument, match="prior must be None: it has no such thing"):
        session_of(tw.DiagLinUCB(prior=prior), tree, world, False)


def spanner_by_volumes(items, ratio):
    """A barycentric spanner by trying every swap and computing the volume."""
    dim = items.shape[1]
    basis, chosen = np.eye(dim), [-1] * dim

    def swapped(axis, row):
        made = basis.copy()
        made[axis] = items[row]
        return abs(np.linalg.det(made))

    for axis in range(dim):
        chosen[axis] = max(range(len(items)), key=lambda row: swapped(axis, row))
        basis[axis] = items[chosen[axis]]
    while True:
        volume = abs(np.linalg.det(basis))
        better = {(row, axis): swapped(axis, row) for row in range(len(items)) for axis in range(dim)}
        row, axis = max(better, key=better.get)
        if better[row, axis] <= ratio * volume:
            return sorted(chosen)
        basis[axis], chosen[axis] = items[row], row


@pytest.mark.parametrize("ratio", [1.05, 2.0])
def test_spanner_is_that_of_the_volumes_and_spans_every_item(ratio):
    items = np.random.default_rng(4).standard_normal((80, 4)).astype(np.float32)
    found = spanner_of(items, ratio)
    assert found.tolist() == spanner_by_volumes(items, ratio)
    shares = np.linalg.lstsq(items[found].T.astype(float), items.T.astype(float), rcond=None)[0]
    np.testing.assert_allclose(items[found].T @ shares, items.T, atol=1e-5)
    assert np.abs(shares).max() <= ratio + 1e-6


def test_spanner_of_items_that_do_not_fill_the_space():
    flat = np.zeros((30, 5), dtype=np.float32)
    flat[:, :2] = np.random.default_rng(0).standard_normal((30, 2))
    assert len(spanner_of(flat)) == 2
    assert len(spanner_of(np.zeros((4, 3), dtype=np.float32))) == 0


class SpannerTwin(SearchTwin):
    """Both spanner policies in plain Python."""

    def __init__(self, session, seen, nodes, epsilon=None, strength=None, **options):
        super().__init__(session, seen, nodes, 1, 8, **options)
        self.epsilon, self.strength = epsilon, strength

    def choose(self, user, turn):
        _, theta = self.posterior(user)
        left = set(self.open(user))
        best, products = self.search(theta, left, self.below(user, turn, 1, len(self.nodes)))
        inside = [place for place in self.session.spanner.tolist() if place in left]
        arms, dim = [best, *inside], self.x.shape[1]
        if self.epsilon is not None:
            share = self.epsilon if inside else 0.0
            chance = np.array([1 - share] + [share / len(inside) for _ in inside])
            work = products * dim
        else:
            y = self.x[arms] @ theta
            gaps = self.strength * math.sqrt(len(self.session.spanner) * len(self.events[user])) * (y.max() - y)
            q = np.array([0.5] + [0.5 / len(inside) for _ in inside]) if inside else np.ones(1)
            scale = brentq(lambda scale: (q / (scale + gaps)).sum() - 1, 1e-9, 1 + 1e-9)
            chance = q / (scale + gaps)
            work = (products + len(inside)) * dim + len(arms)
        at = min(int(np.searchsorted(np.cumsum(chance), self.uniform(user, turn, 0), side="right")), len(arms) - 1)
        told = sum(p for arm, p in zip(arms, chance, strict=True) if arm == arms[at])
        return {"place": arms[at], "propensity": told, "work": work}


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_spanner_greedy_follows_its_equations(world, tree, epsilon, once):
    session = session_of(tw.SpannerGreedy(epsilon=epsilon), tree, world, once)
    assert session.spanner.tolist() == spanner_by_volumes(session.vectors, 2.0)
    SpannerTwin(session, tree, nodes_on(tree, 3), epsilon, once=once).play(world)


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("strength", [0.0, 1.0, 30.0])
def test_spanner_igw_follows_its_equations(world, tree, strength, once):
    session = session_of(tw.SpannerIGW(strength=strength), tree, world, once)
    SpannerTwin(session, tree, nodes_on(tree, 3), strength=strength, once=once).play(world)


@pytest.mark.parametrize("policy", [tw.SpannerGreedy, tw.SpannerIGW])
def test_spanners_start_from_a_prior(world, tree, prior, policy):
    session = session_of(policy(prior=prior), tree, world, True)
    assert session.select(np.arange(USERS), 0).exact.all()
    session = session_of(policy(prior=prior), tree, world, True)
    told = {"epsilon": 0.05} if policy is tw.SpannerGreedy else {"strength": 10.0}
    SpannerTwin(session, tree, nodes_on(tree, 3), prior=prior, once=True, **told).play(world)


LIMITS = [
    (lambda x: tw.XCB(width=x), "width", [1, 10**9], [0, -1, 0.5]),
    (lambda x: tw.XCB(strength=x), "strength", [0, 1e9], [-1e-9, float("nan")]),
    (lambda x: tw.XCB(budget=x), "budget", [2, None], [1, 2.5]),
    (lambda x: tw.MIPS(searches=x), "searches", [1, 10**9], [0]),
    (lambda x: tw.MIPS(probes=x), "probes", [1, 10**9], [0]),
    (lambda x: tw.MIPS(tw.Thompson(v=x)), "v", [0, 1e3], [-0.1]),
    (lambda x: tw.MIPS(budget=x), "budget", [2, None], [1]),
    (lambda x: tw.DiagLinUCB(clusters=x), "clusters", [1, 10**9], [0]),
    (lambda x: tw.DiagLinUCB(edges=x), "edges", [1, 10**9], [0]),
    (lambda x: tw.DiagLinUCB(nearest=x), "nearest", [1, 10**9], [0]),
    (lambda x: tw.DiagLinUCB(temperature=x), "temperature", [1e-6, 1e9], [0]),
    (lambda x: tw.SpannerGreedy(epsilon=x), "epsilon", [0, 1], [-0.1, 1.1]),
    (lambda x: tw.SpannerGreedy(probes=x), "probes", [1, 10**9], [0]),
    (lambda x: tw.SpannerIGW(strength=x), "strength", [0, 1e9], [-1]),
]


@pytest.mark.parametrize(("make", "name", "inside", "outside"), LIMITS)
def test_limits_of_rivals(world, tree, make, name, inside, outside):
    for value in inside:
        assert make(value).session(tree, world.catalogue, 2).select([0, 1], 0).item.min() >= 0
    for value in (*outside, "1"):
        with pytest.raises(tw.InvalidArgument, match=rf": {name} must be"):
            make(value).session(tree, world.catalogue, 2)


RIVALS = [tw.XCB(), tw.MIPS(), tw.MIPS(tw.Thompson()), tw.DiagLinUCB(), tw.ENR(), tw.SpannerGreedy(), tw.SpannerIGW()]


@pytest.mark.parametrize("policy", RIVALS, ids=lambda policy: policy.name)
def test_rivals_decide_until_nothing_is_left(policy, world):
    shop = tw.Catalogue(range(12), world.catalogue.vectors[:12])
    for tree in (tw.ItemTree.build(shop.vectors, (3,), seed=0), tw.ItemTree.flat(shop.vectors)):
        session = policy.session(tree, shop, 2, once=True, seed=1)
        seen = []
        for turn in range(12):
            made = session.select([0, 1], turn)
            seen.append(made.item)
            session.update(made, [1.0, 0.0])
        assert (np.sort(np.transpose(seen)) == np.arange(12)).all()
        assert session.select([0, 1], 12).item.tolist() == [-1, -1]
    session = policy.session(tree, shop, 2, seed=1)
    assert set(session.select([0, 1], 0, allow=[5, 7]).item.tolist()) <= {5, 7}
