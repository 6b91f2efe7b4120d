"""HMAB, ICTR and ConUCB against slow twins written from their papers' equations."""

import math

import numpy as np
import polars as pl
import pytest

import treeward as tw
from treeward.core import rng
from treeward.policy.conucb import questions_by
from treeward.policy.rounds import ROUND, STEP, gamma

ROUNDS, USERS = 40, 6


@pytest.fixture(scope="module")
def world():
    return tw.World.synthetic(items=300, users=USERS, dim=6, seed=7)


@pytest.fixture(scope="module")
def tree(world):
    return tw.ItemTree.build(world.catalogue.vectors, (5, 25), seed=0)


def unit_vectors(world):
    raw = world.catalogue.vectors.astype(np.float64)
    return raw / np.linalg.norm(raw, axis=1, keepdims=True)


def play(session, twin, world):
    """Both see the same candidates and the same rewards; every choice must be the same."""
    who = np.arange(USERS)
    for turn in range(ROUNDS):
        made = session.select(who, turn)
        expected = twin.select(turn)
        assert made.place.tolist() == expected, turn
        rewards = world.chances(who, made.item)
        session.update(made, rewards)
        twin.update(expected, rewards)


def pick(session, user, counter, scores):
    """The first of the best from a random place on, as sessions break ties."""
    tied = [at for at, score in enumerate(scores) if score >= max(scores) - 1e-6]
    first = rng.below(session.seed, int(session.streams[user]), counter, len(scores))
    return min(tied, key=lambda at: (at - first) % len(scores))


class ConTwin:
    def __init__(self, session, weight=0.5, alpha=0.25, key_alpha=0.25):
        self.session, self.weight, self.alpha, self.key_alpha = session, weight, alpha, key_alpha
        self.events = [[] for _ in range(USERS)]
        self.answers = [[] for _ in range(USERS)]

    def matrices(self, user):
        dim, x = self.session.vectors.shape[1], self.session.vectors
        m = (1 - self.weight) * np.eye(dim) + self.weight * sum(
            (np.outer(x[p], x[p]) for p, _ in self.events[user]), np.zeros((dim, dim))
        )
        key = np.eye(dim) + sum(
            (np.outer(self.session.terms[k], self.session.terms[k]) for k, _ in self.answers[user]),
            np.zeros((dim, dim)),
        )
        key_theta = np.linalg.solve(key, sum((r * self.session.terms[k] for k, r in self.answers[user]), np.zeros(dim)))
        b = sum((r * x[p] for p, r in self.events[user]), np.zeros(dim))
        theta = np.linalg.solve(m, self.weight * b + (1 - self.weight) * key_theta)
        return np.linalg.inv(m), np.linalg.inv(key), theta

    def candidates(self, turn):
        everything = np.tile([[0, len(self.session.items)]], (USERS, 1))
        drawn = self.session.draw(np.arange(USERS), turn, everything, self.session.budget, None, 0)
        return [row[:count].tolist() for row, count in zip(drawn.place, drawn.taken, strict=True)]

    def question(self, turn, user):
        m, key, _ = self.matrices(user)
        x = self.session.vectors[self.candidates(turn)[user]]
        gains = [np.sum((x @ m @ key @ t) ** 2) / (1 + t @ key @ t) for t in self.session.terms]
        return int(np.argmax(gains))

    def select(self, turn):
        chosen = []
        for user, places in enumerate(self.candidates(turn)):
            m, key, theta = self.matrices(user)
            x = self.session.vectors[places]
            width = np.sqrt(np.einsum("ij,jk,ik->i", x, m, x))
            key_width = np.sqrt(np.einsum("ij,jk,ik->i", x, m @ key @ m, x))
            scores = x @ theta + self.weight * self.alpha * width + (1 - self.weight) * self.key_alpha * key_width
            chosen.append(places[pick(self.session, user, turn * ROUND + STEP, scores)])
        return chosen

    def update(self, places, rewards):
        for user, (place, reward) in enumerate(zip(places, rewards, strict=True)):
            self.events[user].append((place, reward))


def test_conucb_is_its_equations(world, tree):
    session = tw.ConUCB(tw.LinUCB(alpha=0.25), budget=20).session(tree, world.catalogue, USERS, seed=3)
    twin = ConTwin(session)
    who = np.arange(USERS)
    for turn in range(ROUNDS):
        wanted = questions_by(turn) - questions_by(turn - 1)
        for _ in range(wanted):
            asked = session.ask(who, turn)
            assert asked.group.tolist() == [twin.question(turn, user) for user in range(USERS)]
            answers = world.opinions(who, session.groups)[asked.user, asked.group]
            session.hear(asked, answers)
            for user, (group, answer) in enumerate(zip(asked.group.tolist(), answers, strict=True)):
                twin.answers[user].append((group, answer))
        assert session.ask(who, turn) is None
        made = session.select(who, turn)
        assert made.place.tolist() == twin.select(turn)
        rewards = world.chances(who, made.item)
        session.update(made, rewards)
        twin.update(made.place.tolist(), rewards)
    assert session.asked == USERS * questions_by(ROUNDS - 1) == USERS * 15


@pytest.mark.parametrize("options", [{}, {"reward": "click"}, {"repeats": False}])
def test_conversations_user_by_user_are_those_round_by_round(world, tree, options):
    policy = tw.ConUCB(tw.LinUCB(alpha=0.25), budget=20)
    alone, together = (
        tw.simulate(policy, world, tree, rounds=30, users=[5, 1, 3], seed=4, log=log, **options)
        for log in (False, True)
    )
    assert np.array_equal(alone.rewards, together.rewards)
    assert alone.settings["questions"] == together.settings["questions"] == 15
    assert alone.settings["most_scores"] == together.settings["most_scores"] == 20


def test_answers_are_those_of_the_mean_vector(world):
    rows = [np.array([0, 5, 9]), np.array([2])]
    told = world.opinions([1, 3], rows)[[0, 1], [0, 1]]
    people, things, user_bias, item_bias, _ = world.tastes
    logit = people[1] @ things[[0, 5, 9]].mean(axis=0) + user_bias[1] + item_bias[[0, 5, 9]].mean()
    assert told[0] == pytest.approx(1 / (1 + math.exp(-logit)), rel=1e-5)
    assert told[1] == pytest.approx(world.chances([3], [2])[0], rel=1e-5)
    table = tw.World.from_matrix(np.array([[0.2, 0.4, 0.9]]), tw.Catalogue(range(3)))
    assert table.opinions([0], [np.array([0, 1])])[0, 0] == pytest.approx(0.3)


class HTwin:
    """Every node's normal and inverse-gamma posterior from all its observations at once."""

    def __init__(self, session, alpha=0.5, v=None):
        self.session, self.alpha, self.v = session, alpha, v
        self.seen = {}
        self.context = [(0.0, np.zeros(session.vectors.shape[1])) for _ in range(USERS)]

    def judge(self, node, user, start):
        """`start`: where a draw takes its numbers from; an upper bound takes none."""
        x = self.x(user)
        dim, seen = len(x), self.seen.get(node, [])
        a = np.eye(dim) + sum((np.outer(z, z) for z, _ in seen), np.zeros((dim, dim)))
        b = sum((r * z for z, r in seen), np.zeros(dim))
        mean = np.linalg.solve(a, b)
        shape = 1 + len(seen) / 2
        scale = 1 + 0.5 * (sum(r * r for _, r in seen) - mean @ a @ mean)
        width = math.sqrt(x @ np.linalg.solve(a, x))
        if self.v is None:
            return x @ mean + self.alpha * math.sqrt(scale / shape) * width
        seed, stream = self.session.seed, int(self.session.streams[user])
        noise = math.sqrt(scale / gamma(shape, seed, stream, start))
        return x @ mean + self.v * noise * width * rng.normal(seed, stream, start + 64)

    def x(self, user):
        total, vector = self.context[user]
        return np.concatenate([[1.0], vector / total if total else vector])

    def select(self, turn):
        session, who = self.session, np.arange(USERS)
        ranges, chosen = session.ranges, []
        assert len(ranges) <= session.share[0]  # all categories are scored
        groups = []
        for user in range(USERS):
            first = turn * ROUND + 2 * STEP
            scores = [self.judge(("group", g), user, first + 1 + 128 * g) for g in range(len(ranges))]
            groups.append(pick(session, user, first, scores))
        drawn = session.draw(who, turn, ranges[groups], session.share[1], None, 1)
        for user in range(USERS):
            places = drawn.place[user, : drawn.taken[user]].tolist()
            first = turn * ROUND + 3 * STEP
            scores = [self.judge(place, user, first + 1 + 128 * at) for at, place in enumerate(places)]
            chosen.append(places[pick(session, user, first, scores)])
        self.groups = groups
        return chosen

    def update(self, places, rewards):
        for user, (place, reward) in enumerate(zip(places, rewards, strict=True)):
            x = self.x(user)
            for node in (("group", self.groups[user]), place):
                self.seen.setdefault(node, []).append((x, reward))
            total, vector = self.context[user]
            self.context[user] = (total + reward, vector + reward * self.session.vectors[place])


@pytest.mark.parametrize("v", [None, 0.3])
def test_hmab_is_its_equations(world, tree, v):
    bandit = tw.LinUCB() if v is None else tw.Thompson(v)
    session = tw.HMAB(bandit, budget=280).session(tree, world.catalogue, USERS, seed=3)
    play(session, HTwin(session, v=v), world)


def test_hmab_draws_other_categories_every_round(world, tree):
    session = tw.HMAB(tw.Thompson(), budget=4).session(tree, world.catalogue, USERS, seed=3)
    assert session.share[0] < len(session.ranges)
    looked = [session.select(np.arange(USERS), nonce).node for nonce in range(60)]
    assert len(np.unique(looked)) > 0.8 * len(session.ranges)
    assert min(len(np.unique(one)) for one in np.transpose(looked)) > 30


class TopicTwin:
    """Particle learning in plain Python: lists of particles, matrices inverted anew."""

    def __init__(self, session, gamma_=0.5):
        self.session, self.gamma = session, gamma_
        k, b = session.topics, session.particles
        self.users = [[np.ones(k) for _ in range(b)] for _ in range(USERS)]
        self.items = {}
        self.totals = np.full(k, float(len(session.items)))
        self.turn = -1

    def item(self, place):
        k, b = self.session.topics, self.session.particles
        return self.items.get(place) or [dict(seen=[], topics=np.zeros(k)) for _ in range(b)]

    def posterior(self, particle):
        k = self.session.topics
        a = np.eye(k) + sum((np.outer(p, p) for p, _ in particle["seen"]), np.zeros((k, k)))
        mean = np.linalg.solve(a, sum((r * p for p, r in particle["seen"]), np.zeros(k)))
        shape = 1 + len(particle["seen"]) / 2
        scale = 1 + 0.5 * (sum(r * r for _, r in particle["seen"]) - mean @ a @ mean)
        return mean, np.linalg.inv(a), shape, scale

    def select(self, turn):
        self.turn, session = turn, self.session
        drawn = session.draw(
            np.arange(USERS), turn, np.tile([[0, len(session.items)]], (USERS, 1)), session.budget, None, 0
        )
        chosen = []
        for user in range(USERS):
            scores = []
            for place in drawn.place[user]:
                total = 0.0
                for weights, particle in zip(self.users[user], self.item(int(place)), strict=True):
                    p = weights / weights.sum()
                    mean, cover, shape, scale = self.posterior(particle)
                    mixed = (np.diag(p) - np.outer(p, p)) / (weights.sum() + 1)
                    total += p @ mean + self.gamma * math.sqrt(scale / shape * (p @ cover @ p) + mean @ mixed @ mean)
                scores.append(total)
            chosen.append(int(drawn.place[user, pick(session, user, turn * ROUND + STEP, scores)]))
        return chosen

    def update(self, places, rewards):
        k, count, seed = self.session.topics, self.session.particles, self.session.seed
        for user, (place, reward) in enumerate(zip(places, rewards, strict=True)):
            stream, counter = int(self.session.streams[user]), self.turn * ROUND + 8 * STEP
            item, weights = self.item(place), []
            for mixture, particle in zip(self.users[user], item, strict=True):
                p = mixture / mixture.sum()
                mean, cover, shape, scale = self.posterior(particle)
                spread = scale / shape * (1 + p @ cover @ p)
                t = (1 + (reward - p @ mean) ** 2 / spread / (2 * shape)) ** -(shape + 0.5) / math.sqrt(spread)
                weights.append(t * float(p @ ((1 + particle["topics"]) / self.totals)))
            ends = np.cumsum(weights) / sum(weights)
            start = rng.uniform(seed, stream, counter)
            parents = [min(int(np.searchsorted(ends, (start + b) / count)), count - 1) for b in range(count)]
            self.users[user] = [self.users[user][parent].copy() for parent in parents]
            item = [dict(seen=list(item[p]["seen"]), topics=item[p]["topics"].copy()) for p in parents]
            for b in range(count):
                begin = counter + 1 + b * (k * 64 + 1)
                mixture = self.users[user][b]
                chances = mixture * (1 + item[b]["topics"]) / self.totals
                ends = np.cumsum(chances / chances.sum())
                topic = min(int(np.searchsorted(ends, rng.uniform(seed, stream, begin), side="right")), k - 1)
                drawn = np.array([gamma(mixture[j], seed, stream, begin + 1 + 64 * j) for j in range(k)])
                item[b]["seen"].append((drawn / drawn.sum(), reward))
                mixture[topic] += reward
                item[b]["topics"][topic] += reward
                self.totals[topic] += reward / count
            self.items[place] = item


def test_ictr_is_its_equations(world, tree):
    session = tw.ICTR(budget=12, topics=3, particles=4).session(tree, world.catalogue, USERS, seed=3)
    play(session, TopicTwin(session), world)


def slow_gamma(shape, seed, stream, counter):
    """Marsaglia and Tsang's method, with a normal and a uniform number for every attempt."""
    d = shape - 1 / 3
    for attempt in range(32):
        x, u = rng.normal(seed, stream, counter + 2 * attempt), rng.uniform(seed, stream, counter + 2 * attempt + 1)
        v = (1 + x / math.sqrt(9 * d)) ** 3
        if v > 0 and math.log(1 - u) < 0.5 * x**2 + d * (1 - v + math.log(v)):
            return d * v
    return d


def test_gamma_draws_are_those_of_the_method():
    for case in range(300):
        shape = 1 + case % 7 / 3
        assert gamma(shape, 5, 9, 64 * case) == pytest.approx(slow_gamma(shape, 5, 9, 64 * case))


def test_gamma_draws_have_their_moments():
    for shape in (1.0, 2.5, 40.0):
        drawn = np.array([gamma(shape, 1, 2, 64 * i) for i in range(4_000)])
        assert drawn.mean() == pytest.approx(shape, rel=0.06)
        assert drawn.var() == pytest.approx(shape, rel=0.15)


@pytest.mark.parametrize("policy", [tw.HMAB(tw.Thompson()), tw.ICTR(tw.Thompson()), tw.HMAB(), tw.ICTR(), tw.ConUCB()])
def test_they_learn_and_keep_their_hands_off_explorers(policy, world, tree):
    result = tw.simulate(policy, world, tree, rounds=300, seed=0)
    assert result.rewards[:, 200:].mean() > 1.3 * world.base_rate()
    assert result.scores.max() <= 50
    with pytest.raises(tw.InvalidArgument, match="follows from that user's events"):
        tw.Explorer(world.catalogue, tree, policy)
    once = tw.simulate(policy, world, tree, rounds=60, seed=0, repeats=False, log=True)
    assert once.log.group_by("user").agg(pl.col("row").n_unique())["row"].to_list() == [60] * USERS


def test_bad_baselines(world, tree):
    plain = tw.Catalogue(world.catalogue.ids, world.catalogue.vectors)
    for policy, shop, why in (
        (tw.HMAB(), plain, "HMAB: catalogue must be one with categories"),
        (tw.ConUCB(), plain, "ConUCB: catalogue must be one with categories"),
        (tw.ConUCB(tw.Thompson()), world.catalogue, "bandit must be LinUCB, got"),
        (tw.HMAB(tw.EpsilonGreedy()), world.catalogue, "bandit must be LinUCB or Thompson"),
        (tw.HMAB(shape=0.5), world.catalogue, "shape"),
        (tw.ICTR(topics=0), world.catalogue, "topics"),
        (tw.ConUCB(weight=1.0), world.catalogue, "weight"),
        (tw.ICTR(budget=1), world.catalogue, "budget"),
        (tw.ICTR(prior=tw.Prior()), world.catalogue, "prior must be None"),
    ):
        with pytest.raises(tw.InvalidArgument, match=why):
            policy.session(tree, shop, 2)


@pytest.mark.parametrize("policy", [tw.HMAB(), tw.ICTR(), tw.ConUCB()], ids=lambda policy: policy.name)
def test_their_sessions_refuse_what_is_not_theirs(policy, world, tree):
    session = policy.session(tree, world.catalogue, USERS)
    for allow in ([-1], [300], [0.5], [[1]], [3, 300], [-1, 3]):
        with pytest.raises(tw.InvalidArgument, match="allow must be a list of integers from 0 to 299"):
            session.select([0], 0, allow)
    for users in ([-1], [USERS], [0.5], [[1]], [0, USERS], [-1, 0]):
        with pytest.raises(tw.InvalidArgument, match="users must be a list of integers from 0 to 5"):
            session.select(users, 0)
    made = session.select([0, 1], 0, [4, 7])
    assert set(made.item.tolist()) <= {4, 7}
    for rewards in ([1.0], [1.0, 2e6], [1.0, float("nan")], [[1.0, 1.0]], [-2e6, 1.0]):
        with pytest.raises(tw.InvalidArgument, match="rewards must be 2 numbers from"):
            session.update(made, rewards)
    for place in (-1, 300):
        with pytest.raises(tw.InvalidArgument, match="with places below 300"):
            session.update(made._replace(place=np.array([3, place])), [1.0, 1.0])
    session.update(made, [1e6, -1e6])
    with pytest.raises(tw.InvalidArgument, match="repeats must be True or False"):
        policy.check(tree, world.catalogue, 3)
    with pytest.raises(tw.InvalidArgument, match="policy must be one that walks a tree"):
        policy.plan(tree, world.catalogue)
