"""Worlds and vectors learned from logs."""

import sys

import numpy as np
import pytest

import treeward as tw
from treeward.core.errors import DataError, InvalidArgument
from treeward.embed import svd_vectors
from treeward.learn.torch import TorchMissing, torch_for
from treeward.simulate import World, simulate
from treeward.simulate.fit import fit
from treeward.simulate.fit_evidence import auc, log_loss
from treeward.simulate.synthetic import vivid

FAST = {"dim": 8, "passes": 12}


@pytest.fixture(scope="module")
def truth():
    return World(*vivid(items=150, users=300, dim=8, seed=2))


def shown_to_everybody(truth, times=60, skips=True):
    """A log of random items: who clicked, and perhaps who did not."""
    random = np.random.default_rng(0)
    users = np.repeat(np.arange(truth.users), times)
    items = np.concatenate([random.permutation(150)[:times] for _ in range(truth.users)])
    clicked = random.uniform(size=len(users)) < truth.chances(users, items)
    kept = np.ones(len(users), dtype=bool) if skips else clicked
    return tw.Interactions(users[kept], items[kept], rewards=clicked[kept].astype(float))


def test_a_fitted_world_predicts_held_out_events(truth):
    world = World.fit(shown_to_everybody(truth), tw.Catalogue(range(150)), **FAST)
    told = world.provenance
    assert told["exposure"] == "impressions"
    assert told["auc"] > told["auc_popularity"] + 0.03 > 0.5
    assert told["log_loss"] < 0.6
    assert (world.users, len(world.catalogue)) == (300, 150)
    rows = {int(user): row for row, user in enumerate(world.user_ids)}
    pairs = [(user, item) for user in range(0, 300, 5) for item in range(0, 150, 3)]
    made = world.chances([rows[user] for user, _ in pairs], [item for _, item in pairs])
    assert np.corrcoef(made, truth.chances(*zip(*pairs, strict=True)))[0, 1] > 0.6


def test_clicks_alone_need_no_skips(truth):
    log = shown_to_everybody(truth, skips=False)
    made = fit(log, tw.Catalogue(range(150)), **FAST)
    assert made.settings["exposure"] == "popularity"
    share = made.train.reward.mean()
    assert 0.2 <= share < 0.3  # four negatives a positive, less those that were touched
    touched = set(zip(log.users.to_list(), log.items.to_list(), strict=True))
    ids = made.users.to_list()
    negative = made.train.reward == 0
    drawn = zip(made.train.user[negative].tolist(), made.train.item[negative].tolist(), strict=True)
    assert not {(ids[user], item) for user, item in drawn} & touched


def test_same_seed_same_world(truth):
    log, shop = shown_to_everybody(truth, times=20), tw.Catalogue(range(150))
    one, again, other = (World.fit(log, shop, seed=seed, **FAST) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.tastes.users, again.tastes.users)
    assert not np.array_equal(one.tastes.users, other.tastes.users)


def test_weights_are_inverse_propensities(truth):
    log, shop = shown_to_everybody(truth, times=20, skips=False), tw.Catalogue(range(150))
    plain = fit(log, shop, exposure="none", **FAST)
    assert set(plain.train.weight.tolist()) == {1.0}
    rare = np.where(np.arange(150) < 75, 1.0, 0.25).astype(np.float32)
    own = fit(log, shop, exposure=lambda shown, liked: rare, **FAST)
    positive = own.train.reward > 0
    assert set(own.train.weight[positive].tolist()) == {1.0}
    weight, item = own.train.weight[~positive], own.train.item[~positive]
    # A click counts as much more against its item's negatives as the item was less exposed.
    assert weight[item < 75].mean() == pytest.approx(4 * weight[item >= 75].mean(), rel=1e-5)
    both = np.concatenate([own.train.weight[own.train.reward == 0], own.held_out.weight[own.held_out.reward == 0]])
    assert both.mean() == pytest.approx(1, rel=1e-5)  # self-normalised
    skips = fit(shown_to_everybody(truth, times=20), shop, exposure=lambda shown, liked: rare, **FAST).train
    assert skips.weight[skips.item >= 75].mean() > 3 * skips.weight[skips.item < 75].mean()
    clipped = fit(log, shop, exposure=lambda shown, liked: rare, clip=1.0, **FAST)
    assert clipped.propensity.min() == 1.0


def test_saved_is_loaded(truth, tmp_path):
    world = World.fit(shown_to_everybody(truth, times=20), tw.Catalogue(range(150)), **FAST)
    world.save(tmp_path / "world")
    again = World.load(tmp_path / "world")
    for one, other in zip(world.tastes, again.tastes, strict=True):
        np.testing.assert_array_equal(one, other)
    assert again.provenance == world.provenance
    assert again.user_ids.equals(world.user_ids)
    truth.save(tmp_path / "truth")
    same = World.load(tmp_path / "truth")
    assert same.user_ids is None
    assert simulate(tw.Flat(), same, rounds=5).rewards.tolist() == simulate(tw.Flat(), truth, rounds=5).rewards.tolist()


def test_bad_options_of_a_fit_are_refused(truth):
    log, shop = shown_to_everybody(truth, times=5), tw.Catalogue(range(150))
    for options, why in (
        ({"dim": 0}, "World.fit: dim"),
        ({"exposure": "magic"}, "exposure must be one of auto, impressions, popularity, rating, features, both, none"),
        ({"exposure": lambda shown, liked: np.zeros(3)}, "a function that gives 150 propensities"),
        ({"clip": 0}, "World.fit: clip"),
        ({"negatives": 0}, "World.fit: negatives"),
        ({"power": 2}, "World.fit: power"),
    ):
        with pytest.raises(InvalidArgument, match=why):
            World.fit(log, shop, **options)
    with pytest.raises(DataError, match="the log rewards no item of the catalogue"):
        World.fit(tw.Interactions([1], [1], rewards=[0.0]), shop)
    with pytest.raises(InvalidArgument, match="interactions must be with items of type Int64, got String"):
        World.fit(tw.Interactions([1], ["x"]), shop)


def test_without_torch_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(TorchMissing, match="World.fit needs torch: pip install 'treeward.train.'"):
        torch_for("World.fit")


def test_auc_and_log_loss_have_known_values():
    assert auc(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 0, 1, 1])) == 1.0
    assert auc(np.zeros(4), np.array([0, 1, 0, 1])) == 0.5
    assert np.isnan(auc(np.zeros(2), np.ones(2)))
    assert log_loss(np.array([0.5, 0.5]), np.array([0, 1])) == pytest.approx(np.log(2))


def test_svd_groups_items_that_the_same_users_like(truth):
    log, shop = shown_to_everybody(truth, skips=False), tw.Catalogue(range(160))
    one, again = (svd_vectors(log, shop, dim=8, seed=0) for _ in range(2))
    np.testing.assert_array_equal(one.vectors, again.vectors)
    assert one.vectors.shape == (160, 8)
    lengths = np.linalg.norm(one.vectors[150:], axis=1)
    assert (lengths > 0).all()  # nobody touched them, yet they can be found
    made, true = one.vectors[:150], truth.tastes.items
    made, true = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (made, true))
    upper = np.triu_indices(150, 1)
    assert np.corrcoef((made @ made.T)[upper], (true @ true.T)[upper])[0, 1] > 0.2
    with pytest.raises(InvalidArgument, match="dim must be an integer from 1 to 160"):
        svd_vectors(log, shop, dim=500)
    with pytest.raises(DataError, match="rewards no item of the catalogue"):
        svd_vectors(tw.Interactions([1], [999]), shop)
    with pytest.raises(DataError, match="the log's items are String"):
        svd_vectors(tw.Interactions([1], ["x"]), shop)


def test_logs_that_cannot_be_fitted_are_refused(truth):
    full = tw.Interactions(np.repeat(np.arange(9), 3), np.tile(np.arange(3), 9))
    with pytest.raises(DataError, match="no negatives, to learn from: the log is too short or too full"):
        World.fit(full, tw.Catalogue(range(3)), **FAST)
    with pytest.raises(InvalidArgument, match="device must be one that torch has here, such as cpu, got 'zz'"):
        World.fit(shown_to_everybody(truth, times=5), tw.Catalogue(range(150)), device="zz", **FAST)


def test_history_clicks_are_not_compared_with_skips(truth):
    log = shown_to_everybody(truth, times=20)
    past = [0, 1, 2, 3] * 50
    actions = ["shown"] * len(log) + ["history"] * 200
    more = tw.Interactions(
        [*log.users, *past], [*log.items, *range(200)], rewards=[*log.rewards, *[1.0] * 200], actions=actions
    )
    one, other = (fit(made, tw.Catalogue(range(200)), **FAST) for made in (log, more))
    np.testing.assert_array_equal(one.train.item, other.train.item)
    np.testing.assert_array_equal(one.factors.items, other.factors.items)
