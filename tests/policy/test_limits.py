"""Numbers have limits: what lies on them or just inside is taken, what lies outside is refused, by name."""

import numpy as np
import pytest

import treeward as tw
from treeward.core.errors import InvalidArgument
from treeward.engine.sampling import MOST_SCORES
from treeward.policy.baselines.ictr import _MOST_TOPICS
from treeward.store import MemoryStore
from treeward.store.events import EVENT
from treeward.store.numbers import number_items

TINY, HUGE = 1e-9, 1e9


@pytest.fixture(scope="module")
def shop():
    vectors = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
    return tw.Catalogue(range(60), vectors, categories=[f"c{row % 5}" for row in range(60)])


@pytest.fixture(scope="module")
def tree(shop):
    return tw.ItemTree.build(shop.vectors, (4, 12), seed=0)


BANDITS = [
    (lambda x: tw.LinUCB(alpha=x), "alpha", [0, TINY, HUGE], [-TINY]),
    (lambda x: tw.LinUCB(ridge=x), "ridge", [TINY, HUGE], [0, -TINY]),
    (lambda x: tw.Thompson(v=x), "v", [0, TINY, HUGE], [-TINY]),
    (lambda x: tw.Thompson(ridge=x), "ridge", [TINY, HUGE], [0, -TINY]),
    (lambda x: tw.Thompson(v=None, R=x), "R", [0, TINY, HUGE], [-TINY]),
    (lambda x: tw.Thompson(v=None, delta=x), "delta", [TINY, 1 - TINY], [0, 1, -TINY, 1 + TINY]),
    (lambda x: tw.Thompson(v=None, epsilon=x), "epsilon", [TINY, 1 - TINY], [0, 1, -TINY, 1 + TINY]),
    (lambda x: tw.EpsilonGreedy(epsilon=x), "epsilon", [0, 1, TINY, 1 - TINY], [-TINY, 1 + TINY]),
    (lambda x: tw.EpsilonGreedy(ridge=x), "ridge", [TINY, HUGE], [0, -TINY]),
]


@pytest.mark.parametrize(("make", "name", "inside", "outside"), BANDITS)
def test_limits_of_bandits(make, name, inside, outside):
    for value in inside:
        rule = make(value).rule(4)
        assert value in rule or name in ("R", "delta", "epsilon")
    for value in (*outside, float("nan"), float("inf"), "1", None if name != "v" else "none", True):
        with pytest.raises(InvalidArgument, match=rf": {name} must be"):
            make(value).rule(4)


POLICIES = [
    (lambda x: tw.Flat(budget=x), "budget", [1, MOST_SCORES, None], [0, -1, MOST_SCORES + 1, 2.5]),
    (lambda x: tw.CBLeaf(budget=x), "budget", [2, MOST_SCORES], [1, 0, MOST_SCORES + 1]),
    (lambda x: tw.HCB(budget=x), "budget", [3, MOST_SCORES], [2, 0, MOST_SCORES + 1]),
    (lambda x: tw.PHCB(budget=x), "budget", [2, MOST_SCORES], [1, 0, MOST_SCORES + 1]),
    (lambda x: tw.Beam(budget=x), "budget", [1, MOST_SCORES], [0, -1, MOST_SCORES + 1]),
    (lambda x: tw.Beam(means=x), "means", [1, 10**9], [0, -1]),
    (lambda x: tw.Beam(reach=x), "reach", [0, TINY, HUGE], [-TINY]),
    (lambda x: tw.Beam(fresh=x), "fresh", [0, 1, TINY], [-TINY, 1 + TINY]),
    (lambda x: tw.Beam(shortlist=x), "shortlist", [0, 15], [-1, 16]),
    (lambda x: tw.PHCB(budget=20, shortlist=x), "shortlist", [0, 9], [-1, 10]),
    (lambda x: tw.HCB(forgetting=x), "forgetting", [TINY, 1], [0, -TINY, 1 + TINY]),
    (lambda x: tw.HCB(explore=x), "explore", [0, 1, TINY], [-TINY, 1 + TINY]),
    (lambda x: tw.PHCB(expansion=tw.LogThreshold(q=x)), "q", [0, TINY, HUGE], [-TINY]),
    (lambda x: tw.PHCB(expansion=tw.LogThreshold(p=x)), "p", [0, 1, TINY], [-TINY, 1 + TINY]),
]


@pytest.mark.parametrize(("make", "name", "inside", "outside"), POLICIES)
def test_limits_of_policies(shop, tree, make, name, inside, outside):
    for value in inside:
        make(value).plan(tree, shop)
    for value in (*outside, float("nan"), "1"):
        with pytest.raises(InvalidArgument, match=rf": {name} must be"):
            make(value).plan(tree, shop)


ROUNDS = [
    (lambda x: tw.HMAB(budget=x), "budget", [2, MOST_SCORES], [1, 0, MOST_SCORES + 1]),
    (lambda x: tw.HMAB(shape=x), "shape", [1, HUGE], [1 - TINY]),
    (lambda x: tw.HMAB(scale=x), "scale", [TINY, HUGE], [0, -TINY]),
    (lambda x: tw.ICTR(topics=x), "topics", [1, _MOST_TOPICS], [0, _MOST_TOPICS + 1]),
    (lambda x: tw.ICTR(particles=x), "particles", [1, 100], [0, 101]),
    (lambda x: tw.ICTR(spread=x), "spread", [0, HUGE], [-TINY]),
    (lambda x: tw.ConUCB(weight=x), "weight", [TINY, 1 - TINY], [0, 1, -TINY]),
    (lambda x: tw.ConUCB(key_ridge=x), "key_ridge", [TINY, HUGE], [0, -TINY]),
    (lambda x: tw.ConUCB(key_alpha=x), "key_alpha", [0, HUGE], [-TINY]),
]


@pytest.mark.parametrize(("make", "name", "inside", "outside"), ROUNDS)
def test_limits_of_baselines(shop, tree, make, name, inside, outside):
    for value in inside:
        make(value).session(tree, shop, 2)
    for value in (*outside, float("nan"), "1"):
        with pytest.raises(InvalidArgument, match=rf": {name} must be"):
            make(value).session(tree, shop, 2)


@pytest.mark.parametrize("policy", [tw.HCB(), tw.ICTR()], ids=lambda policy: policy.name)
def test_limits_of_sessions(shop, tree, policy):
    with pytest.raises(InvalidArgument, match="users must be"):
        policy.session(tree, shop, 0)
    with pytest.raises(InvalidArgument, match="seed must be"):
        policy.session(tree, shop, 1, seed=-1)
    session = policy.session(tree, shop, 1, seed=0)
    for nonce in (0, 2**43 - 1):
        assert session.select([0], nonce).item[0] >= 0
    for nonce in (-1, 2**43, 0.5):
        with pytest.raises(InvalidArgument, match="nonce must be"):
            session.select([0], nonce)


def test_bad_starts_of_phcb_are_refused(shop, tree):
    last = len(tree.parent) - 1
    for node in (-1, last + 1, 0.5):
        with pytest.raises(InvalidArgument, match="start must be"):
            tw.PHCB(start=(node,)).plan(tree, shop)
    assert tw.PHCB(start=(0,)).plan(tree, shop).start.tolist() == [0]
    assert tw.PHCB(start=(4, 1, 3, 2)).plan(tree, shop).start.tolist() == [1, 2, 3, 4]


def test_events_and_counts_must_match():
    events = np.zeros(3, dtype=EVENT)
    store = MemoryStore()
    number_items(store, tw.Catalogue(["a"], np.ones((1, 2))).ids)
    for users, counts in ((["ada"], [2]), (["ada"], [4]), (["ada", "bob"], [3]), (["ada"], [1, 2])):
        with pytest.raises(InvalidArgument):
            store.extend(users, np.array(counts), events)
    with pytest.raises(InvalidArgument):
        store.extend(["ada"], np.array([3]), np.zeros(3))
    assert store.counts(["ada"])[0] == 0
    store.extend(["ada", "bob"], np.array([1, 2]), events)
    assert (store.counts(["ada"])[0], store.counts(["bob"])[0]) == (1, 2)
