"""Contexts of requests: device, hour, place."""

from contextlib import closing

import numpy as np
import polars as pl
import pytest

import treeward as tw
from tests.serving import serving
from treeward.client import Client, ServiceError
from treeward.state.user_states import state_bytes

DIM = 4
POLICIES = [
    tw.Beam(budget=8, means=100), tw.Beam(tw.Thompson(0.2), budget=8, means=100), tw.HCB(budget=24),
    tw.PHCB(tw.EpsilonGreedy(0.1), budget=24), tw.CBLeaf(budget=24), tw.Flat(budget=None),
]  # fmt: skip


@pytest.fixture(scope="module")
def shop():
    random = np.random.default_rng(0)
    here, there = np.array([3, 0, 0, 0]), np.array([0, 3, 0, 0])
    vectors = np.concatenate([here + random.standard_normal((80, DIM)), there + random.standard_normal((80, DIM))])
    return tw.Catalogue(range(160), vectors.astype(np.float32))


def with_features(policy, shop):
    from dataclasses import replace

    return replace(policy, features=tw.Crossed.over(shop, {"device": ["phone", "desk"], "hour": 24}, dims=2))


def taught(policy, shop, store=None, rounds=60):
    """Return an explorer whose user likes one kind of items on the phone, and the other at a desk."""
    explorer = tw.Explorer(shop, policy=policy, store=store, seed=0, memory=1 << 22, exposures="all")
    for turn in range(rounds):
        device = ("phone", "desk")[turn % 2]
        [made] = explorer.recommend(["ada"], context={"device": device})
        explorer.feedback({made.id: float((made.item < 80) == (device == "phone"))})
    return explorer


def share_of_first(explorer, **context):
    return np.mean([d.item < 80 for _ in range(40) for d in explorer.recommend(["ada"], context=context or None)])


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_every_policy_learns_tastes_by_context(policy, shop):
    explorer = taught(with_features(policy, shop), shop, rounds=120)
    assert share_of_first(explorer, device="phone") > 0.7
    assert share_of_first(explorer, device="desk") < 0.3


@pytest.mark.parametrize("policy", POLICIES[:4], ids=lambda policy: policy.name)
def test_a_state_with_contexts_is_rebuilt_from_its_events(policy, shop, tmp_path):
    store = tw.SQLiteStore(tmp_path / "events.db")
    explorer = taught(with_features(policy, shop), shop, store)
    decider = explorer._snapshot.decider
    [seat] = decider.states.seat(["ada"]).tolist()
    again = decider.state_after(decider.states.events_for_plan(store.read(["ada"])[0]))
    mine = state_bytes(decider.states.state, seat)
    assert mine == state_bytes(again, 0)
    [made] = explorer.recommend(["ada"], context={"device": "phone", "hour": 9})
    assert explorer.explain(made).reproduced
    log = explorer.log()
    assert log["context"].to_list()[:2] == ['{"device":"phone"}', '{"device":"desk"}']
    store.close()
    store = tw.SQLiteStore(tmp_path / "events.db")
    other = tw.Explorer(shop, explorer.tree, explorer.policy, store, seed=0, memory=1 << 22, exposures="all")
    [seat] = other._snapshot.decider.states.seat(["ada"]).tolist()
    theta = other._snapshot.decider.states.state.posterior.theta[seat]
    assert np.allclose(theta, decider.states.state.posterior.theta[decider.states.seat(["ada"])[0]], atol=1e-3)
    store.close()


def test_late_feedback_counts_in_the_context_of_its_decision(shop):
    policy = with_features(POLICIES[0], shop)
    one, other = (tw.Explorer(shop, policy=policy, seed=0, memory=1 << 22) for _ in range(2))
    [made] = one.recommend(["ada"], context={"device": "phone"})
    [same] = other.recommend(["ada"], context={"device": "phone"})
    assert made.item == same.item
    one.feedback({made.id: 1.0})
    other.recommend(["ada"], context={"device": "desk"})
    other.feedback({same.id: 1.0})
    seats = [each._snapshot.decider.states for each in (one, other)]
    states = [each.state.posterior.theta[each.seat(["ada"])[0]] for each in seats]
    assert (states[0] == states[1]).all()


def test_unknown_context_names_are_refused_and_unknown_values_ignored(shop):
    plain = tw.Explorer(shop, memory=1 << 22)
    assert plain.recommend(["ada"], context={})
    with pytest.raises(tw.InvalidArgument, match="context must be empty"):
        plain.recommend(["ada"], context={"device": "phone"})
    told = tw.Explorer(shop, policy=with_features(POLICIES[0], shop), memory=1 << 22)
    for context, why in (({"colour": "red"}, "device, hour"), ({"device": [1]}, "texts and numbers"), ("x", "names")):
        with pytest.raises(tw.InvalidArgument, match=why):
            told.recommend(["ada"], context=context)
    assert told.recommend(["ada"], context={"device": "a toaster"})
    log = tw.Interactions(["ada"], [3])
    assert told.ingest(log).events == 1


def test_items_can_be_added_and_removed_with_features(shop):
    explorer = taught(with_features(POLICIES[0], shop), shop)
    explorer.add(tw.Catalogue([900], [[3.0, 0, 0, 0]]))
    explorer.remove([5])
    shown = [d.item for d in explorer.recommend(["ada"], 60, context={"device": "phone"})]
    assert 900 in shown
    assert 5 not in shown
    explorer.rebuild()
    assert share_of_first(explorer, device="desk") < 0.4


def test_a_service_with_features_takes_contexts(shop, tmp_path):
    shop.save(tmp_path / "items")
    tw.Crossed.over(shop, {"device": ["phone", "desk"]}, dims=2).save(tmp_path / "features")
    with serving(tmp_path, tmp_path / "items", "--set", f"features={tmp_path / 'features'}") as running:
        with Client(running.url) as client:
            for turn in range(20):
                [made] = client.recommend("ada", context={"device": ("phone", "desk")[turn % 2]})
                client.feedback(made["decision_id"], 1.0)
            with pytest.raises(ServiceError, match="400 invalid"):
                client.recommend("ada", context={"colour": "red"})
            document = client._http.get("/openapi.json").json()
            asked = document["components"]["schemas"]["RecommendRequest"]["properties"]["context"]["anyOf"][0]
            assert list(asked["properties"]) == ["device"]
        with Client(running.admin, timeout=60) as admin:
            swapped = admin.swap(features=str(tmp_path / "features"))
        assert swapped["now"]["features"] == str(tmp_path / "features")
    with closing(tw.SQLiteStore(tmp_path / "events.db")) as store:
        told = {held for _, held in store.metadata.list("context/")}
        assert told == {b'{"device":"phone"}', b'{"device":"desk"}'}
        assert len(set(store.read(["ada"])[0]["snapshot"].tolist())) == 2


def test_the_log_contains_contexts(shop):
    explorer = taught(with_features(POLICIES[0], shop), shop, rounds=20)
    told = explorer.log().with_columns(
        pl.col("context").str.json_decode(pl.Struct({"device": pl.String})).struct.unnest()
    )
    assert set(told["device"].to_list()) == {"phone", "desk"}
