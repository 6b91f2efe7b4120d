"""Worlds learned from answers that users selected themselves, corrected by answers to items shown at random."""

import numpy as np
import polars as pl
import pytest

import treeward as tw
from tests.commands import run
from tests.data.test_random_exposure import coat
from treeward.core.errors import DataError, InvalidArgument
from treeward.simulate import World
from treeward.simulate.fidelity_page import render
from treeward.simulate.fit import fit

FAST = {"dim": 4, "passes": 10, "rate": 0.02}
USERS, ITEMS = 150, 60


@pytest.fixture(scope="module")
def selected():
    """Answers with a base rate of 0.3, of which users gave the good ones five times as often; and random ones."""
    random = np.random.default_rng(0)
    liked = random.random((USERS, ITEMS)) < 0.1 + 0.4 * random.random(ITEMS)
    user, item = np.nonzero(random.random(liked.shape) < np.where(liked, 0.5, 0.1))
    log = tw.Interactions(user, item, rewards=liked[user, item].astype(float))
    user, item = np.nonzero(random.random(liked.shape) < 0.05)
    drawn = tw.Interactions(user, item, rewards=liked[user, item].astype(float))
    features = pl.DataFrame({"user": np.arange(USERS), "x": random.normal(size=USERS)})
    return liked, log, drawn, tw.Catalogue(range(ITEMS), random.normal(size=(ITEMS, 2))), features


def test_weights_by_rating_give_the_base_rate_of_random_items(selected):
    liked, log, drawn, shop, _ = selected
    plain = World.fit(log, shop, exposure="none", random=drawn, twin=False, **FAST)
    weighted = World.fit(log, shop, random=drawn, twin=False, **FAST)
    assert log.rewards.mean() > 0.6
    assert plain.base_rate(USERS) > 0.55
    assert weighted.base_rate(USERS) == pytest.approx(liked.mean(), abs=0.06)
    told = weighted.provenance
    assert (told["exposure"], told["random"]) == ("rating", len(drawn))
    assert told["rate_log"] > 2 * told["rate_random"]
    assert weighted.fidelity(50).notes == ()


def test_weights_of_answers_are_self_normalised_and_draw_no_negatives(selected):
    _, log, drawn, shop, _ = selected
    made = fit(log, shop, exposure="rating", random=drawn, **FAST)
    assert len(made.train.user) + len(made.held_out.user) == len(log)
    weight = np.concatenate([made.train.weight, made.held_out.weight])
    reward = np.concatenate([made.train.reward, made.held_out.reward])
    assert weight.mean() == pytest.approx(1, rel=1e-5)
    assert weight[reward > 0].max() < weight[reward == 0].min() / 3
    assert np.average(reward, weights=weight) == pytest.approx(drawn.rewards.mean(), abs=0.02)


@pytest.mark.parametrize("exposure", ["features", "both"])
def test_weights_by_features_need_features(selected, exposure):
    _, log, drawn, shop, features = selected
    world = World.fit(log, shop, exposure=exposure, random=drawn, user_features=features, twin=False, **FAST)
    assert world.base_rate(USERS) == pytest.approx(drawn.rewards.mean(), abs=0.06)
    with pytest.raises(InvalidArgument, match=f"user_features must be given for exposure='{exposure}'"):
        World.fit(log, shop, exposure=exposure, random=drawn)
    for bad in (features[:5], features.rename({"user": "who"}), pl.concat([features, features]),
                features.with_columns(pl.col("user").cast(pl.String))):  # fmt: skip
        with pytest.raises(InvalidArgument, match="user_features must be a table with the column user"):
            World.fit(log, shop, exposure=exposure, random=drawn, user_features=bad)
    bare = tw.Catalogue(range(ITEMS))
    with pytest.raises(InvalidArgument, match="catalogue must be one with vectors"):
        World.fit(log, bare, exposure=exposure, random=drawn, user_features=features)


def test_what_cannot_be_known_is_refused(selected):
    _, log, drawn, shop, _ = selected
    with pytest.raises(InvalidArgument, match="random must be given for exposure='rating'"):
        World.fit(log, shop, exposure="rating")
    clicks = tw.Interactions.of_table(log.table.filter(pl.col("reward") > 0))
    with pytest.raises(DataError, match="no rows without a reward, so how a reward affects exposure cannot be known"):
        World.fit(clicks, shop, random=drawn)
    with pytest.raises(InvalidArgument, match="random must be with users of type Int64"):
        World.fit(log, shop, random=tw.Interactions(["ada"], [1]))
    with pytest.raises(DataError, match="random events are of no item of the catalogue"):
        World.fit(log, shop, random=tw.Interactions([1], [ITEMS + 1]))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"exposure": "popularity"}, "popularity, which is merit as well as exposure"),
        ({"exposure": "impressions"}, "assume that a system showed the items"),
        ({"exposure": "features"}, "depend on features, not on the answer"),
    ],
)
def test_fidelity_says_that_a_log_cannot_be_debiased_without_random_exposure(selected, options, words):
    _, log, _, shop, features = selected
    world = World.fit(log, shop, twin=False, user_features=features, **options, **FAST)
    told = world.fidelity(20)
    [note] = told.notes
    assert words in note
    assert "this log cannot be debiased without random exposure" in note
    assert note.encode() in render(told)
    assert note in told.json().decode()


def test_fidelity_says_that_random_answers_are_few(selected):
    _, log, drawn, shop, _ = selected
    world = World.fit(log, shop, random=tw.Interactions.of_table(drawn.table[:40]), twin=False, **FAST)
    assert world.fidelity(20).notes[0].startswith("Propensities come from only 40 random answers")


def test_impressions_of_a_system_need_no_warning(selected):
    _, log, _, shop, _ = selected
    did = np.where(log.rewards.to_numpy() > 0, "click", "skip")
    shown = tw.Interactions(log.users, log.items, rewards=log.rewards, actions=did)
    assert World.fit(shown, shop, exposure="impressions", twin=False, **FAST).fidelity(20).notes == ()


def test_the_command_uses_random_ratings(tmp_path):
    coat(tmp_path / "coat", users=60, items=30)
    told = run("world", "fit", "coat", "-o", "world", "--no-twin", "--dim", "4", cwd=tmp_path)
    assert "note:" not in told
    assert World.load(tmp_path / "world").provenance["exposure"] == "rating"
    told = run("world", "fit", "coat", "-o", "other", "--no-twin", "--exposure", "popularity", cwd=tmp_path)
    assert "note: Propensities come from popularity" in told


def test_a_target_may_depend_on_the_slot():
    random = np.random.default_rng(0)
    log = pl.DataFrame({
        "user": np.arange(300) % 50, "row": random.integers(0, 3, 300), "slot": np.arange(300) % 2,
        "propensity": np.full(300, 1 / 3), "reward": random.random(300),
    })  # fmt: skip
    by_slot = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    told = tw.off_policy(log, lambda user: by_slot)
    weight = by_slot[log["slot"].to_numpy(), log["row"].to_numpy()] * 3
    assert told.ips.value == pytest.approx((weight * log["reward"].to_numpy()).mean())
    assert told.weight.value == pytest.approx(weight.mean())
    counts, sums = np.bincount(log["row"]), np.bincount(log["row"], log["reward"])
    model = (sums + 10 * log["reward"].mean()) / (counts + 10)
    assert told.dm.value == pytest.approx((by_slot @ model).mean())
    assert np.isnan(told.dm.low)
    same = tw.off_policy(log, lambda user: np.tile(by_slot[1], (2, 1)))
    assert same.ips == tw.off_policy(log, lambda user: by_slot[1]).ips
    with pytest.raises(InvalidArgument, match="one row of probabilities, or 2, one per slot"):
        tw.off_policy(log, lambda user: by_slot[:1])
    with pytest.raises(InvalidArgument, match="sum to 1"):
        tw.off_policy(log, lambda user: by_slot / np.array([[1], [2]]))
