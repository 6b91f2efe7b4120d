"""Worlds: from a matrix, by id, and refused."""

import numpy as np
import polars as pl
import pytest

import treeward as tw
from treeward.core.errors import InvalidArgument
from treeward.simulate import World, simulate
from treeward.simulate.synthetic import vivid


@pytest.fixture(scope="module")
def world():
    return World(*vivid(items=600, users=12, dim=8, seed=3))


def test_a_world_of_a_matrix_is_exact(tmp_path):
    random = np.random.default_rng(1)
    rewards = random.uniform(size=(30, 200)).astype(np.float32)
    shop = tw.Catalogue(range(200), random.standard_normal((200, 6)).astype(np.float32))
    world = World.from_matrix(rewards, shop, user_ids=pl.Series([f"u{i}" for i in range(30)]))
    np.testing.assert_array_equal(world.probabilities(7), rewards[7])
    np.testing.assert_array_equal(world.chances([3, 4], [5, 6]), rewards[[3, 4], [5, 6]].astype(float))
    result = simulate(tw.Flat(), world, rounds=50, regret=True)
    assert set(result.best[3].tolist()) == {float(rewards[3].max())}
    assert result.expected.max() <= rewards.max()
    world.save(tmp_path / "world")
    again = World.load(tmp_path / "world")
    np.testing.assert_array_equal(again.tastes.table, rewards)
    assert again.user_ids.to_list()[:2] == ["u0", "u1"]
    assert simulate(tw.Flat(), again, rounds=50).rewards.tolist() == result.rewards.tolist()


def test_holes_in_a_matrix_are_filled_and_too_many_refused():
    rewards = np.full((20, 10), 0.5)
    rewards[:, 0] = 0.9
    rewards[3, 0] = np.nan
    world = World.from_matrix(rewards, tw.Catalogue(range(10)))
    assert world.chances([3], [0])[0] == pytest.approx(0.86, abs=0.01)
    assert world.provenance["unknown"] == pytest.approx(1 / 200)
    shop = tw.Catalogue(range(10))
    for bad, why in (
        (np.full((20, 10), np.nan), "known in 90% of the cells"),
        (np.full((20, 10), 2.0), "from 0 to 1, or NaN"),
        (np.zeros((20, 9)), r"of shape \(users, 10\)"),
        (np.zeros((0, 10)), r"of shape \(users, 10\)"),
        (np.zeros(10), r"of shape \(users, 10\)"),
        (np.ma.masked_greater(np.random.default_rng(0).uniform(size=(20, 10)), 0.5), "known in 90% of the cells"),
        ([["a"] * 10], "a matrix of numbers"),
    ):
        with pytest.raises(InvalidArgument, match=why):
            World.from_matrix(bad, shop)


def test_worlds_find_users_by_id():
    shop = tw.Catalogue(range(3))
    world = World.from_matrix(np.eye(3), shop, user_ids=pl.Series(["c", "a", "b"]))
    assert world.chances_of("a").tolist() == [0, 1, 0]
    with pytest.raises(InvalidArgument, match="one of the world's"):
        world.chances_of("z")
    assert World.from_matrix(np.eye(3), shop).chances_of(2).tolist() == [0, 0, 1]
    for call in (lambda: world.probabilities(-1), lambda: world.probabilities(3)):
        with pytest.raises(InvalidArgument, match="an integer from 0 to 2"):
            call()
    with pytest.raises(InvalidArgument, match="all different"):
        World.from_matrix(np.eye(3), shop, user_ids=pl.Series(["a", "a", "b"]))


def test_chances_of_pairs_equal_probabilities(world):
    users, items = [3, 0, 3], [5, 7, 9]
    expected = [world.probabilities(user)[item] for user, item in zip(users, items, strict=True)]
    assert world.chances(users, items) == pytest.approx(expected, rel=1e-5)
    for bad in (([0], [len(world.catalogue)]), ([-1], [0]), ([0.5], [0]), ([0, 1], [0]), (["x"], [0])):
        with pytest.raises(InvalidArgument, match="World.chances: (users|items) must be"):
            world.chances(*bad)


def test_bad_worlds_are_refused(world):
    shop, (users, items, user_bias, item_bias, _) = world.catalogue, world.tastes
    with pytest.raises(InvalidArgument, match=r"World: items must be of shape \(600, 16\)"):
        World(shop, users, items[:5], user_bias, item_bias)
    with pytest.raises(InvalidArgument, match="World: user_bias must be 12 finite numbers"):
        World(shop, users, items, user_bias[:3], item_bias)
    with pytest.raises(InvalidArgument, match="World: users must be finite"):
        World(shop, users * np.nan, items, user_bias, item_bias)
