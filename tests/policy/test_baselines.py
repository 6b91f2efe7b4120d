"""HMAB, ICTR, ConUCB and ContextFree against slow twins written from their equations."""

import math

import numpy as np
import polars as pl
import pytest

import treeward as tw
from treeward.core import rng
from treeward.policy.baselines import context_free, ictr
from treeward.policy.baselines.base import ROUND, STEP
from treeward.policy.baselines.conucb import questions_by
from treeward.policy.baselines.kernels import gamma

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


def test_conucb_follows_its_equations(world, tree):
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
def test_conversation_does_not_depend_on_other_users(world, tree, options):
    policy = tw.ConUCB(tw.LinUCB(alpha=0.25), budget=20)
    together, *alone = (
        tw.simulate(policy, world, tree, rounds=30, users=users, seed=4, **options)
        for users in ([5, 1, 3], [5], [1], [3])
    )
    assert np.array_equal(np.concatenate([result.rewards for result in alone]), together.rewards)
    for result in (together, *alone):
        assert result.settings["questions"] == 15
        assert result.settings["most_scores"] == 20


def test_answers_come_from_the_mean_vector_of_a_group(world):
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
def test_hmab_follows_its_equations(world, tree, v):
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
    """ICTR in plain Python: one whole model per particle, posteriors computed from all observations at once."""

    def __init__(self, session, spread, strength=0.5, sampled=False):
        self.session, self.strength, self.sampled, self.turn = session, strength, sampled, -1
        self.models = [Lineage(session, b, spread) for b in range(session.particles)]

    def select(self, turn):
        self.turn, session = turn, self.session
        everything = np.tile([[0, len(session.items)]], (USERS, 1))
        drawn = session.draw(np.arange(USERS), turn, everything, session.budget, None, 0)
        chosen, counter = [], turn * ROUND + STEP
        for user in range(USERS):
            places = drawn.place[user].tolist()
            score = self.draw if self.sampled else self.bound
            chosen.append(places[pick(session, user, counter, score(user, places, counter + 1))])
        return chosen

    def bound(self, user, places, counter):
        """The upper bound of every item."""
        scores = []
        for place in places:
            total = 0.0
            for model in self.models:
                weights = model.users[user]
                p = weights / weights.sum()
                mean, cover, shape, scale = model.posterior(place)
                mixed = (np.diag(p) - np.outer(p, p)) / (weights.sum() + 1)
                total += p @ mean + self.strength * math.sqrt(scale / shape * (p @ cover @ p) + mean @ mixed @ mean)
            scores.append(total)
        return scores

    def draw(self, user, places, counter):
        """A draw for every item: each particle draws the user's mixture once, and noise and value per item."""
        k, count, seed = self.session.topics, self.session.particles, self.session.seed
        stream = int(self.session.streams[user])
        mixtures = [model.mixture(user, seed, stream, counter + b * k * 64) for b, model in enumerate(self.models)]
        at, scores = counter + count * k * 64, []
        for place in places:
            total = 0.0
            for p, model in zip(mixtures, self.models, strict=True):
                mean, cover, shape, scale = model.posterior(place)
                noise = scale / gamma(shape, seed, stream, at)
                step = rng.normal(seed, stream, at + 64)
                total += p @ mean + self.strength * math.sqrt(noise * (p @ cover @ p)) * step
                at += 65
            scores.append(total)
        return scores

    def update(self, places, rewards):
        for user, (place, reward) in enumerate(zip(places, rewards, strict=True)):
            for b, model in enumerate(self.models):
                first = self.turn * ROUND + 8 * STEP + 1 + b * (self.session.topics * 64 + 1)
                model.learn(user, place, reward, self.session.seed, int(self.session.streams[user]), first)


class Lineage:
    """Particle b: its users, its items, its topics. Nothing ever comes from another particle."""

    def __init__(self, session, b, spread):
        k = session.topics
        self.topics, self.users = k, [np.ones(k) for _ in range(USERS)]
        self.counts, self.seen = np.ones((len(session.items), k)), {}
        stream, particles = rng.stream("ictr", "mean"), session.particles
        numbers = [[(place * particles + b) * k + j for j in range(k)] for place in range(len(session.items))]
        self.start = spread * np.array([[rng.normal(session.seed, stream, at) for at in row] for row in numbers])

    def posterior(self, place):
        start, seen = self.start[place], self.seen.get(place, [])
        a = np.eye(self.topics) + sum((np.outer(p, p) for p, _ in seen), np.zeros((self.topics, self.topics)))
        mean = np.linalg.solve(a, start + sum((r * p for p, r in seen), np.zeros(self.topics)))
        scale = 1 + 0.5 * (start @ start + sum(r * r for _, r in seen) - mean @ a @ mean)
        return mean, np.linalg.inv(a), 1 + len(seen) / 2, scale

    def mixture(self, user, seed, stream, counter):
        drawn = np.array([gamma(w, seed, stream, counter + 64 * j) for j, w in enumerate(self.users[user])])
        return drawn / drawn.sum()

    def learn(self, user, place, reward, seed, stream, counter):
        chances = self.users[user] * self.counts[place] / self.counts.sum(axis=0)
        ends = np.cumsum(chances / chances.sum())
        topic = min(int(np.searchsorted(ends, rng.uniform(seed, stream, counter), side="right")), self.topics - 1)
        p = self.mixture(user, seed, stream, counter + 1)
        self.seen.setdefault(place, []).append((p, reward))
        self.users[user][topic] += reward
        self.counts[place, topic] += reward


@pytest.mark.parametrize("spread", [0.0, 0.3])
@pytest.mark.parametrize("v", [None, 0.3])
def test_ictr_follows_its_equations(world, tree, v, spread):
    policy = tw.ICTR(tw.LinUCB() if v is None else tw.Thompson(v), budget=12, topics=3, particles=4, spread=spread)
    session = policy.session(tree, world.catalogue, USERS, seed=3)
    play(session, TopicTwin(session, spread, v or 0.5, v is not None), world)


def test_ictr_starts_an_item_from_the_same_mean_before_and_after_it_has_a_slot(world, tree):
    """An item that got a slot, but no reward yet, scores as one without a slot."""
    session = tw.ICTR(topics=3, particles=4, spread=0.5).session(tree, world.catalogue, USERS, seed=3)
    made = session.select(np.arange(USERS), 0)
    before = made.mean.copy()
    fresh = np.unique(made.place)
    session.shown = session.slots.settle(made.place, session.shown, session._items)
    ictr._begin(session.shown, session.slots.of[fresh], fresh, session.start)
    again = session.select(np.arange(USERS), 0)
    assert again.place.tolist() == made.place.tolist()
    np.testing.assert_allclose(again.mean, before, rtol=1e-6)
    assert np.ptp(before) > 0


def test_ictr_particles_never_exchange_state(world, tree):
    """With one particle fewer, the others live through the same rewards as before, bit for bit."""
    sessions = [
        tw.ICTR(topics=2, particles=count, spread=0.0).session(tree, world.catalogue, USERS, seed=3) for count in (3, 4)
    ]
    who = np.arange(USERS)
    for turn in range(10):
        made = sessions[0].select(who, turn)
        for session in sessions:
            session.update(made, world.chances(who, made.item))
    assert np.array_equal(sessions[0].mixture, sessions[1].mixture[:, :3])
    assert np.array_equal(sessions[0].totals, sessions[1].totals[:3])
    for few, many in zip(sessions[0].shown, sessions[1].shown, strict=True):
        assert np.array_equal(few, many[:, :3])


class MeanTwin:
    """Visits and sums in dictionaries; the arms are drawn again from the session's own stream."""

    def __init__(self, session, shared_nodes, shared_items, alpha=0.5, v=None):
        self.session, self.alpha, self.v = session, alpha, v
        self.shared = shared_nodes, shared_items
        self.rewards = {}

    def score(self, stage, user, arm, counter):
        owner = "everybody" if self.shared[stage] else user
        seen = self.rewards.get((stage, owner, arm), [])
        mean, width = sum(seen) / (len(seen) + 1), 1 / math.sqrt(len(seen) + 1)
        if self.v is None:
            return mean + self.alpha * width
        return mean + self.v * width * rng.normal(self.session.seed, int(self.session.streams[user]), counter)

    def choose(self, stage, user, arms, counter):
        scores = [self.score(stage, user, arm, counter + 1 + at) for at, arm in enumerate(arms)]
        return arms[pick(self.session, user, counter, scores)]

    def select(self, turn):
        session, who = self.session, np.arange(USERS)
        drawn = session.draw_groups(who, turn, session.ranges, session.share[0], None)
        groups = [drawn.place[user, : drawn.taken[user]].tolist() for user in range(USERS)]
        self.groups = [self.choose(0, user, groups[user], turn * ROUND + 2 * STEP) for user in range(USERS)]
        drawn = session.draw(who, turn, session.ranges[self.groups], session.share[1], None, 1)
        places = [drawn.place[user, : drawn.taken[user]].tolist() for user in range(USERS)]
        return [self.choose(1, user, places[user], turn * ROUND + 3 * STEP) for user in range(USERS)]

    def update(self, places, rewards):
        for user, (place, reward) in enumerate(zip(places, rewards, strict=True)):
            for stage, arm in enumerate((self.groups[user], place)):
                owner = "everybody" if self.shared[stage] else user
                self.rewards.setdefault((stage, owner, arm), []).append(reward)


@pytest.mark.parametrize("v", [None, 0.3])
@pytest.mark.parametrize("shared", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("groups", ["categories", "leaves"])
def test_context_free_follows_its_equations(world, tree, groups, shared, v):
    bandit = tw.LinUCB() if v is None else tw.Thompson(v)
    policy = tw.ContextFree(bandit, budget=20, groups=groups, shared_nodes=shared[0], shared_items=shared[1])
    session = policy.session(tree, world.catalogue, USERS, seed=3)
    assert len(session.ranges) > session.share[0] == session.share[1] == 10  # groups are sampled
    play(session, MeanTwin(session, *shared, v=v), world)


def test_context_free_groups_are_the_categories_or_the_leaves(world, tree):
    shop = world.catalogue
    for groups, wanted in (("categories", len(set(shop.categories))), ("leaves", 25)):
        session = tw.ContextFree(groups=groups).session(tree, shop, 1)
        sizes = np.diff(session.ranges).ravel()
        assert (len(sizes), sizes.sum()) == (wanted, len(shop))
    flat = tw.ContextFree(groups="leaves").session(tw.ItemTree.flat(shop.vectors), shop, 1)
    assert flat.ranges.tolist() == [[0, len(shop)]]
    assert flat.select([0], 0).scores.tolist() == [25]


def test_context_free_users_are_independent_when_nothing_is_shared(world, tree):
    def rewards(users, **options):
        policy = tw.ContextFree(budget=20, groups="leaves", **options)
        return tw.simulate(policy, world, tree, rounds=60, users=users, seed=4).rewards

    assert np.array_equal(rewards([5, 1, 3])[1:2], rewards([1]))
    for options in ({"shared_nodes": True}, {"shared_items": True}):
        assert not np.array_equal(rewards([5, 1, 3], **options)[1:2], rewards([1], **options))


def test_context_free_refuses_tables_that_are_too_large(world, tree, monkeypatch):
    monkeypatch.setattr(context_free, "_MOST_CELLS", 3_000)
    tw.ContextFree().session(tree, world.catalogue, 10)
    with pytest.raises(tw.InvalidArgument, match="users must be at most 10 for 300 arms with statistics per user"):
        tw.ContextFree().session(tree, world.catalogue, 11)
    tw.ContextFree(groups="leaves", shared_items=True).session(tree, world.catalogue, 120)
    with pytest.raises(tw.InvalidArgument, match="users must be at most 120 for 25 arms"):
        tw.ContextFree(groups="leaves", shared_items=True).session(tree, world.catalogue, 121)
    tw.ContextFree(shared_nodes=True, shared_items=True).session(tree, world.catalogue, 10_000)


def slow_gamma(shape, seed, stream, counter):
    """Marsaglia and Tsang's method, with a normal and a uniform number for every attempt."""
    d = shape - 1 / 3
    for attempt in range(32):
        x, u = rng.normal(seed, stream, counter + 2 * attempt), rng.uniform(seed, stream, counter + 2 * attempt + 1)
        v = (1 + x / math.sqrt(9 * d)) ** 3
        if v > 0 and math.log(1 - u) < 0.5 * x**2 + d * (1 - v + math.log(v)):
            return d * v
    return d


def test_gamma_equals_its_slow_twin():
    for case in range(300):
        shape = 1 + case % 7 / 3
        assert gamma(shape, 5, 9, 64 * case) == pytest.approx(slow_gamma(shape, 5, 9, 64 * case))


def test_gamma_draws_have_their_moments():
    for shape in (1.0, 2.5, 40.0):
        drawn = np.array([gamma(shape, 1, 2, 64 * i) for i in range(4_000)])
        assert drawn.mean() == pytest.approx(shape, rel=0.06)
        assert drawn.var() == pytest.approx(shape, rel=0.15)


LEARNERS = [
    tw.HMAB(tw.Thompson()),
    tw.ICTR(tw.Thompson()),
    tw.ContextFree(tw.Thompson(), shared_nodes=True, shared_items=True),
    tw.HMAB(),
    tw.ICTR(),
    tw.ContextFree(groups="leaves"),
    tw.ConUCB(),
]


@pytest.mark.parametrize("policy", LEARNERS)
def test_baselines_learn_and_explorers_refuse_them(policy, world, tree):
    result = tw.simulate(policy, world, tree, rounds=300, seed=0)
    assert result.rewards[:, 200:].mean() > 1.3 * world.base_rate()
    assert result.scores.max() <= 50
    with pytest.raises(tw.InvalidArgument, match="follows from that user's events"):
        tw.Explorer(world.catalogue, tree, policy)
    once = tw.simulate(policy, world, tree, rounds=60, seed=0, repeats=False, log=True)
    assert once.log.group_by("user").agg(pl.col("row").n_unique())["row"].to_list() == [60] * USERS


def test_bad_options_of_baselines_are_refused(world, tree):
    plain = tw.Catalogue(world.catalogue.ids, world.catalogue.vectors)
    for policy, shop, why in (
        (tw.HMAB(), plain, "HMAB: catalogue must be one with categories"),
        (tw.ConUCB(), plain, "ConUCB: catalogue must be one with categories"),
        (tw.ContextFree(), plain, "ContextFree: catalogue must be one with categories"),
        (tw.ContextFree(tw.EpsilonGreedy()), world.catalogue, "bandit must be LinUCB or Thompson"),
        (tw.ContextFree(groups="nodes"), world.catalogue, "groups must be one of"),
        (tw.ContextFree(shared_items=1), world.catalogue, "shared_items"),
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
    tw.ContextFree(groups="leaves").session(tree, plain, 2)
    assert tw.ContextFree().needs_categories
    assert not tw.ContextFree(groups="leaves").needs_categories


@pytest.mark.parametrize(
    "policy", [tw.HMAB(), tw.ICTR(), tw.ConUCB(), tw.ContextFree()], ids=lambda policy: policy.name
)
def test_baseline_sessions_refuse_bad_arguments(policy, world, tree):
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
