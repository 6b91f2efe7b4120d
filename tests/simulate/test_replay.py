"""Policies replayed on a log."""

import numpy as np
import polars as pl
import pytest

import treeward as tw
from treeward.core.errors import DataError, InvalidArgument
from treeward.simulate import World, replay
from treeward.simulate.synthetic import vivid


@pytest.fixture(scope="module")
def world():
    return World(*vivid(items=40, users=300, dim=8, seed=4))


def impressions(world, users=60, slates=25, size=8, times=True):
    random = np.random.default_rng(0)
    who = np.repeat(np.arange(users), slates * size)
    rows = np.concatenate([random.permutation(40)[:size] for _ in range(users * slates)])
    rewards = (world.chances(who, rows) > np.quantile(world.probabilities(0), 0.8)).astype(float)
    when = np.tile(np.repeat(np.arange(slates), size), users) if times else None
    return tw.Interactions(who, rows, rewards=rewards, times=when)


def test_replay_learns_what_the_log_rewards(world):
    log = impressions(world)
    told = replay(tw.Flat(tw.LinUCB(alpha=0.1), budget=None), log, world.catalogue, seed=0)
    assert told.mean > told.random + 3 * told.error
    assert told.best >= told.mean
    assert told.log.group_by("user").len()["len"].max() <= 25
    assert told.log.select(pl.struct("user", "row").n_unique()).item() == told.log.height  # nothing twice
    slate = {(user, time): set() for user in range(60) for time in range(25)}
    for user, item, time in log.table.select("user", "item", "time").rows():
        slate[user, int(time)].add(item)
    for user, turn, item in told.log.select("user", "round", "item").rows():
        assert item in slate[user, turn]
    assert "beyond random" in str(told)
    other = replay(tw.Flat(tw.EpsilonGreedy(1.0), budget=None), log, world.catalogue, seed=0)
    assert other.random == pytest.approx(told.random, abs=2e-3)  # the same for every policy, except for used-up slates
    assert abs(other.mean - other.random) < 4 * other.error
    again = replay(tw.Flat(tw.LinUCB(alpha=0.1), budget=None), log, world.catalogue, seed=0)
    assert again.log.equals(told.log)
    few = replay(tw.HCB(), log, world.catalogue, users=7, seed=1)
    assert few.log["user"].n_unique() == 7


def test_replay_without_times_takes_half(world):
    log = impressions(world, users=10, slates=1, size=20, times=False)
    told = replay(tw.PHCB(), log, world.catalogue, seed=0)
    assert set(told.log.group_by("user").len()["len"]) == {10}
    allowed = {(user, item) for user, item in log.table.select("user", "item").rows()}
    assert set(told.log.select("user", "item").rows()) <= allowed


def test_replay_refuses_logs_without_a_choice(world):
    with pytest.raises(DataError, match="nothing to choose"):
        replay(tw.HCB(), tw.Interactions([1, 1], [2, 3]), world.catalogue)
    with pytest.raises(InvalidArgument, match="interactions must be of type Interactions"):
        replay(tw.HCB(), [1], world.catalogue)
    with pytest.raises(InvalidArgument, match="users"):
        replay(tw.HCB(), impressions(world), world.catalogue, users=0)
