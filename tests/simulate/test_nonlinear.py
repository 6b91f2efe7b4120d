"""Worlds whose rewards are not linear in the vectors, and random logs of them."""

import numpy as np
import pytest

import treeward as tw
from treeward.core.errors import InvalidArgument
from treeward.embed.features import unit
from treeward.simulate.synthetic import vivid


@pytest.fixture(scope="module")
def world():
    return tw.World.synthetic(items=3_000, users=1_540, dim=16, seed=0, nonlinear=2.0)


@pytest.fixture(scope="module")
def log(world):
    return tw.random_log(world, range(40, 1_540), 100, seed=0)


def test_a_nonlinear_world_shows_policies_the_same_vectors():
    plain, same = (tw.World.synthetic(items=300, users=5, dim=4, seed=3, **more) for more in ({}, {"nonlinear": 0}))
    bent = tw.World.synthetic(items=300, users=5, dim=4, seed=3, nonlinear=2.0)
    for one, other in zip(plain.tastes, same.tastes, strict=True):
        np.testing.assert_array_equal(one, other)
    assert plain.tastes.items.shape[1] == 4 + 8
    assert bent.tastes.items.shape[1] == 64 + 8
    straight = tw.World(*vivid(items=300, users=5, dim=4, seed=3))  # the nonlinear world without its waves
    np.testing.assert_array_equal(straight.catalogue.vectors, bent.catalogue.vectors)  # what policies see is the same
    assert float(straight.probabilities(0).sum()) == pytest.approx(46.0931, abs=1e-3)
    assert np.abs(plain.probabilities(0) - bent.probabilities(0)).max() > 0.05
    with pytest.raises(InvalidArgument, match="nonlinear"):
        tw.World.synthetic(items=300, nonlinear=-1)


def test_similarity_in_a_nonlinear_world_falls_with_distance(world):
    seen, true = unit(world.catalogue.vectors), world.tastes.items[:, :64].astype(np.float64)
    pairs = np.random.default_rng(0).integers(0, len(seen), (4_000, 2))
    apart = np.linalg.norm(seen[pairs[:, 0]] - seen[pairs[:, 1]], axis=1)
    alike = (true[pairs[:, 0]] * true[pairs[:, 1]]).sum(axis=1)
    for low, high in ((0.01, 0.6), (0.6, 1.0), (1.0, 1.4), (1.4, 2.0)):  # besides the blur; 64 waves for all of them
        mine = (apart > low) & (apart <= high)
        assert alike[mine].mean() == pytest.approx(np.exp(-((2 * apart[mine]) ** 2) / 2).mean(), abs=0.12)
    x = np.column_stack([seen, np.ones(len(seen))])
    left = true - x @ np.linalg.lstsq(x, true, rcond=None)[0]
    assert 0.1 < 1 - left.var() / (true - true.mean(axis=0)).var() < 0.5  # linear in what is seen: a part of it


def test_a_random_log_has_clicks_on_drawn_items(world, log):
    assert (len(log), log.users.n_unique()) == (1_500 * 100, 1_500)
    assert set(log.rewards.unique()) == {0.0, 1.0}
    assert log.rewards.mean() == pytest.approx(world.base_rate(1_540), rel=0.1)
    assert tw.random_log(world, [3, 5], 7, seed=1).table.equals(tw.random_log(world, [3, 5], 7, seed=1).table)
    with pytest.raises(InvalidArgument, match="users"):
        tw.random_log(world, [])
