"""Recommending: decisions, propensities, replays and draws."""

import math

import msgspec
import numpy as np
import pytest

import treeward as tw
from tests.explorer.small_shop import bits, explorer, live_a_while, told
from treeward.core.errors import NothingLeft
from treeward.policy import TREE_POLICIES
from treeward.state.user_states import seat_bytes
from treeward.store import MemoryStore


@pytest.mark.parametrize("name", TREE_POLICIES)
def test_decisions_describe_the_choice(shop, tree, name):
    made = explorer(shop, tree, TREE_POLICIES[name]())
    live_a_while(made, rounds=5)
    decisions = made.recommend(["ada", 7, "bob"], n=4)
    assert [(d.user, d.slot) for d in decisions] == [(user, slot) for user in ("ada", 7, "bob") for slot in range(4)]
    for user in ("ada", 7, "bob"):
        assert len({d.item for d in decisions if d.user == user}) == 4
    for d in decisions:
        assert 0 < d.propensity <= 1
        assert d.width > 0
        assert 0 <= d.scores <= 50
        node = d.path[-1] if d.path else 0
        assert shop.row(d.item) in made.tree.items_of(node)
        assert all(made.tree.parent[below] == above for above, below in zip((0, *d.path), d.path, strict=False))
        told = msgspec.json.decode(msgspec.json.encode(d))
        assert told == {"decision_id": d.id, **{name: told[name] for name in told if name != "decision_id"}}
        assert msgspec.convert(told, tw.Decision) == d


def test_estimates_are_those_of_the_posterior(shop, tree):
    made = explorer(shop, tree, tw.HCB(tw.LinUCB()), crowd=False)
    given = live_a_while(made)
    assert given
    d = made.recommend(["ada"])[0]
    x = shop.vectors[shop.row(d.item)] / np.linalg.norm(shop.vectors[shop.row(d.item)])
    [seat] = made._snapshot.decider.states.seat(["ada"]).tolist()
    posterior = made._snapshot.decider.states.state.posterior
    assert d.mean == pytest.approx(x @ posterior.theta[seat, -1], rel=1e-4)
    assert d.width == pytest.approx(math.sqrt(x @ posterior.inverse[seat, -1] @ x), rel=1e-4)


@pytest.mark.parametrize("bandit", [tw.LinUCB(), tw.EpsilonGreedy(0.3)], ids=str)
def test_propensities_are_exact_without_a_budget(shop, tree, bandit):
    made = explorer(shop, tree, tw.HCB(bandit, budget=None))
    live_a_while(made, ["ada"], rounds=8)
    counts, told = {}, {}
    for d in [made.recommend(["ada"])[0] for _ in range(1501)]:
        assert d.exact
        counts[d.item] = counts.get(d.item, 0) + 1
        assert told.setdefault(d.item, d.propensity) == pytest.approx(d.propensity)
    for item, chance in told.items():
        assert counts[item] / 1501 == pytest.approx(chance, abs=4 * math.sqrt(chance / 1501) + 3 / 1501)


def test_propensities_are_estimates_under_a_budget(shop, tree):
    assert not explorer(shop, tree, tw.HCB(budget=9)).recommend(["ada"])[0].exact
    assert not explorer(shop, tree, tw.HCB(tw.Thompson(), budget=None)).recommend(["ada"])[0].exact


@pytest.mark.parametrize("repeats", [True, False])
def test_a_batch_decides_as_single_calls_do(shop, tree, repeats):
    together, apart = (explorer(shop, tree, repeats=repeats) for _ in range(2))
    users = [f"u{i}" for i in range(9)]
    for turn in range(25):
        batch = together.recommend(users, n=2)
        singles = [d for user in users for d in apart.recommend([user], n=2)]
        # Ids differ by the time of day, and by how often each explorer was asked before.
        assert [told(d) for d in batch[:2]] == [told(d) for d in singles[:2]]
        rewards = {d.item: (len(d.item) + turn) % 2 for d in batch}
        together.feedback({d.id: rewards[d.item] for d in batch})
        apart.feedback({d.id: (len(d.item) + turn) % 2 for d in singles})
    assert [told(d) for d in batch] == [told(d) for d in singles]
    for user in users:
        assert bits(together, user) == bits(apart, user)


def test_memory_for_one_user_decides_as_memory_for_many(shop, tree):
    """A user who gives up the seat after every call, and is rebuilt, lives as one who keeps it."""
    policy = tw.PHCB()
    plan = policy.plan(tree, shop)
    roomy, cramped = (explorer(shop, tree, policy, crowd=False, memory=most) for most in (1 << 30, seat_bytes(plan)))
    assert cramped._snapshot.decider.states.most == 1
    users = ["ada", "bob", "cyd"]
    for turn in range(200):
        one, other = roomy.recommend(users), cramped.recommend(users)
        assert [told(d) for d in one] == [told(d) for d in other], turn
        for made, decisions in ((roomy, one), (cramped, other)):
            made.feedback({d.id: float((len(d.item) + turn) % 3 == 0) for d in decisions})
    assert len(cramped._snapshot.decider.states) == 1
    for user in users:
        assert bits(roomy, user) == bits(cramped, user)


@pytest.mark.parametrize("name", TREE_POLICIES)
def test_replayed_states_equal_live_states_to_the_bit(shop, tree, name):
    live = explorer(shop, tree, TREE_POLICIES[name](), crowd=False, repeats=False, on_repeat="last")
    given = live_a_while(live, rounds=40)
    live.feedback({id: 1 - reward for id, reward in list(given.items())[::5]})
    rebuilt = explorer(shop, tree, TREE_POLICIES[name](), live.store, crowd=False, repeats=False)
    for user in ("ada", "bob", "nobody"):
        assert bits(live, user) == bits(rebuilt, user)


def test_draws_cannot_be_predicted_unless_seeded(shop, tree):
    first = [explorer(shop, tree, seed=None).recommend(["ada"], n=5) for _ in range(2)]
    assert [d.item for d in first[0]] != [d.item for d in first[1]]
    second = [explorer(shop, tree, seed=3).recommend(["ada"], n=5) for _ in range(2)]
    assert [d.item for d in second[0]] == [d.item for d in second[1]]
    store = MemoryStore()
    calls = [explorer(shop, tree, store=store).recommend(["ada"])[0] for _ in range(2)]
    assert len({d.id[:60] for d in calls}) == 2  # two explorers on one store do not repeat nonces


def test_one_call_can_recommend_every_item(shop, tree):
    made = explorer(shop, tree)
    every = made.recommend(["ada"], n=600)
    assert {d.item for d in every} == set(shop.ids)
    made.feedback({d.id: 0.5 for d in every})
    assert made.store.counts(["ada"])[0] == 600


def test_no_item_is_shown_twice_without_repeats(shop, tree):
    made = explorer(shop, tree, repeats=False)
    seen = []
    for _ in range(60):
        seen += [d.item for d in made.recommend(["ada"], n=10)]
    assert len(set(seen)) == 600
    with pytest.raises(NothingLeft, match="1 item.s. were asked for, but only 0 may be shown to 'ada'"):
        made.recommend(["bob", "ada"])
    assert made.store.counts(["bob"])[0] == 0
    assert made.store.counts(["ada"])[0] == 600
