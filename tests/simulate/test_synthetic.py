"""The synthetic world: what it has in common with worlds fitted to public logs, and what policies see of it."""

import numpy as np
import pytest

import treeward as tw
from treeward.data.synthetic import synthetic_catalogue
from treeward.simulate.synthetic import like_logs, vivid


@pytest.fixture(scope="module")
def world():
    return tw.World.synthetic(items=12_000, users=200, dim=32, seed=0)


@pytest.fixture(scope="module")
def parts(world):
    """The logits, and their means by item, by user, and what is left."""
    people, things, user_bias, item_bias, _ = world.tastes
    logits = people @ things.T + item_bias + user_bias[:, None]
    by_item, by_user = logits.mean(axis=0), logits.mean(axis=1)
    return logits, by_item, by_user, logits - by_item - by_user[:, None] + logits.mean()


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def explained(x, y):
    """The share of variance on odd rows that a regression on even ones explains."""
    x = np.column_stack([x, np.ones(len(x))])
    weights = np.linalg.lstsq(x[::2], y[::2], rcond=None)[0]
    return 1 - ((y[1::2] - x[1::2] @ weights) ** 2).sum() / ((y[1::2] - y[1::2].mean(axis=0)) ** 2).sum()


def test_the_same_seed_gives_the_same_world():
    one, again, other = (tw.World.synthetic(items=600, users=12, dim=8, seed=seed) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(one.tastes, again.tastes, strict=True))
    assert not np.array_equal(one.tastes.items, other.tastes.items)
    assert repr(one) == "World(12 users, 600 items)"
    assert one.provenance == {"kind": "synthetic", "nonlinear": 0.0, "seed": 3}


@pytest.mark.parametrize("size", [{"items": 1}, {"users": 1}, {"dim": 1}])
def test_worlds_of_one_item_user_or_dimension_are_finite(size):
    made = tw.World.synthetic(**{"items": 30, "users": 4, "dim": 3, **size})
    chances = made.probabilities(0)
    assert np.isfinite(chances).all()
    assert (chances > 0).all()


def test_rewards_are_as_likely_and_as_unequal_as_in_public_logs(world, parts):
    logits, by_item, by_user, personal = parts
    shares = np.array([by_item.var(), by_user.var(), personal.var()]) / logits.var()
    assert 0.116 <= world.base_rate(200) <= 0.194
    assert 0.24 <= logits.std() <= 0.79
    assert 0.13 <= shares[0] <= 0.56
    assert 0.039 <= shares[1] <= 0.132
    assert 0.31 <= shares[2] <= 0.83
    assert 1.0 <= ((by_item - by_item.mean()) ** 3).mean() / by_item.std() ** 3 <= 4.0  # few items are popular
    [best, *_] = world.fidelity(200).spread
    assert 0.44 <= best.own <= 0.94
    assert 0.33 <= best.common <= 0.75


def test_tastes_are_as_visible_as_in_public_logs(world, parts):
    _, by_item, _, personal = parts
    seen = unit(world.catalogue.vectors)
    assert 0.127 <= explained(seen, personal.T) <= 0.637
    assert 0.047 <= explained(seen, by_item[:, None]) <= 0.481


def test_items_cluster_as_in_public_logs(world):
    tree = tw.ItemTree.build(world.catalogue.vectors, seed=0)
    top, leaves = (level.explained for level in tree.describe(world.catalogue.vectors).levels[1:])
    assert 0.10 <= top <= 0.29
    assert 0.52 <= leaves <= 0.76
    size, long = np.diff(tree.item_range)[:, 0], np.linalg.norm(tree.vectors, axis=1)
    assert 0.35 <= np.average(long[tree.level == 2], weights=size[tree.level == 2]) <= 0.56
    assert 0.73 <= np.average(long[tree.leaves], weights=size[tree.leaves]) <= 0.88


def test_policies_do_not_see_hidden_directions_or_popularity(world):
    catalogue, _, things, _, popular = like_logs(12_000, 200, 32, 0)
    np.testing.assert_array_equal(catalogue.vectors, synthetic_catalogue(12_000, 32, 0, loose=True).vectors)
    assert things.shape == (12_000, 32 + 8)
    assert explained(unit(catalogue.vectors), things[:, 32:]) < 0.01
    assert explained(unit(catalogue.vectors), popular[:, None]) < 0.01


def test_trees_earn_more_than_a_random_sample_of_items(world):
    tree = tw.ItemTree.build(world.catalogue.vectors, seed=0)
    flat, hcb, phcb = (
        tw.simulate(policy, world, tree, rounds=300, users=60, seed=0).cumulative[-1]
        for policy in (tw.Flat(), tw.HCB(), tw.PHCB())
    )
    assert hcb > 1.15 * flat  # on five public logs: 1.34 to 1.65 times as much
    assert phcb > 1.15 * flat


def test_vivid_tastes_are_found_within_few_rounds():
    made = tw.World(*vivid(items=600, users=12, dim=8, seed=3))
    best = np.mean([made.probabilities(user).max() for user in range(12)])
    assert best > 4 * made.base_rate()
    assert tw.simulate(tw.HCB(), made, rounds=100, seed=0).cumulative[-1] > 2 * 100 * made.base_rate()


def test_a_loose_catalogue_has_the_same_kinds_of_titles_as_a_tight_one():
    tight, loose = (synthetic_catalogue(3_000, 8, seed=1, loose=one) for one in (False, True))
    assert set(loose.categories) <= {*synthetic_catalogue(30_000, 8, seed=1).categories}
    assert len(set(loose.titles)) > 1_000
    inside = [
        tw.ItemTree.build(one.vectors, seed=0).describe(one.vectors).levels[-1].explained for one in (tight, loose)
    ]
    assert inside[0] > inside[1] + 0.1
    with pytest.raises(tw.InvalidArgument, match="loose must be"):
        synthetic_catalogue(100, loose=1)
