"""Off-policy estimates against the truth, logs of decisions, and replay."""

import numpy as np
import polars as pl
import pytest

import treeward as tw
from treeward.core.errors import DataError, InvalidArgument
from treeward.simulate import World, off_policy, replay, simulate
from treeward.simulate.synthetic import vivid


@pytest.fixture(scope="module")
def world():
    return World(*vivid(items=40, users=300, dim=8, seed=4))


def logged(world, seed, rounds=20):
    policy = tw.Flat(tw.EpsilonGreedy(epsilon=0.5), budget=None)
    return simulate(policy, world, rounds=rounds, seed=seed, reward="click", log=True)


def liking(world):
    """A policy that leans to what is liked in general, and no more than leans."""
    appeal = np.mean([world.probabilities(user) for user in range(world.users)], axis=0)
    chances = appeal**1.5 / (appeal**1.5).sum()
    return lambda user: chances


def test_estimates_hold_the_truth(world):
    target = liking(world)
    truth = float(np.mean([target(user) @ world.probabilities(user) for user in range(world.users)]))
    told = [off_policy(logged(world, seed).log, target, world.chances_of, draws=200, seed=seed) for seed in range(25)]
    for name in ("ips", "snips", "dr"):
        estimates = [getattr(one, name) for one in told]
        inside = np.mean([one.low <= truth <= one.high for one in estimates])
        assert inside >= 0.84, name  # 25 intervals of 95 %
        values = np.array([one.value for one in estimates])
        assert abs(values.mean() - truth) < 3 * values.std() / 5 + 1e-4, name
    widths = {
        name: np.mean([getattr(one, name).high - getattr(one, name).low for one in told]) for name in ("ips", "dr")
    }
    assert widths["dr"] < widths["ips"]
    assert all(abs(one.logged.value - truth) > 0.005 for one in told)  # the log itself says something else
    assert 100 < told[0].effective < told[0].decisions == 6_000


def test_the_logging_policy_itself_is_worth_all_its_decisions():
    log = pl.DataFrame(
        {"user": ["a", "a", "b"], "row": [0, 1, 1], "slot": 0, "propensity": 0.5, "reward": [1.0, 0.0, None]}
    )
    told = off_policy(log, lambda user: [0.5, 0.5])
    assert told.ips.value == told.snips.value == told.logged.value == pytest.approx(1 / 3)
    assert told.dr.value == pytest.approx(1 / 3, abs=0.05)
    assert told.effective == pytest.approx(3)
    assert "doubly robust" in str(told)
    assert off_policy(log, lambda user: [0.0, 1.0], clip=1.0).ips.value == 0


def test_logs_that_could_not_have_done_it_are_told(world):
    target = liking(world)
    fair = off_policy(logged(world, 0).log, target, draws=100)
    assert fair.supported
    assert "believe none" not in str(fair)
    once = simulate(
        tw.Flat(tw.EpsilonGreedy(0.5), budget=None), world, rounds=30, reward="click", repeats=False, log=True
    )
    greedy = simulate(tw.Flat(tw.LinUCB(), budget=None), world, rounds=20, reward="click", log=True)
    for result in (once, greedy):
        told = off_policy(result.log, target, draws=100)
        assert not told.supported
        assert "believe none" in str(told)
    guessed = simulate(tw.HCB(tw.Thompson(), budget=10), world, rounds=5, log=True)
    assert "of the propensities are exact" in str(off_policy(guessed.log, target, draws=100))
    alone = off_policy(fair_log_of_one(world), target, draws=100)
    assert np.isnan(alone.ips.low)


def fair_log_of_one(world):
    return logged(world, 0).log.filter(pl.col("user") == 3)


def test_bad_logs_and_targets():
    log = pl.DataFrame({"user": [1, 2], "row": [0, 1], "slot": 0, "propensity": 0.5, "reward": 1.0})
    for bad, why in (
        (log.drop("propensity"), "a table with the columns user, row, slot, propensity, reward"),
        (log.with_columns(propensity=pl.lit(0.0)), "propensities above 0 and up to 1"),
        (log.with_columns(propensity=pl.lit(None)), "propensities above 0 and up to 1"),
        (log[:0], "of at least one decision"),
        ([1, 2], "a table with the columns"),
        (log.with_columns(reward=pl.lit(float("inf"))), "finite rewards"),
        (log.with_columns(reward=pl.lit("yes")), "rewards that are numbers"),
        (log.with_columns(row=pl.lit(-1)), "column 'row' holds integers from 0 on"),
        (log.with_columns(row=pl.lit(0.5)), "column 'row' holds integers from 0 on"),
        (log.with_columns(user=pl.lit(None)), "names the user of every decision"),
    ):
        with pytest.raises(InvalidArgument, match=why):
            off_policy(bad, lambda user: [0.5, 0.5])
    for target, why in (
        (lambda user: [1.0], "the probability of every item"),
        (lambda user: [0.5, 0.4], "sum to 1"),
        (lambda user: [1.5, -0.5], "sum to 1"),
        (lambda user: [np.nan, 1.0], "the probability of every item"),
    ):
        with pytest.raises(InvalidArgument, match=why):
            off_policy(log, target)
    with pytest.raises(InvalidArgument, match="a function of a user"):
        off_policy(log, [0.5, 0.5])
    with pytest.raises(InvalidArgument, match="gives 2 finite numbers"):
        off_policy(log, lambda user: [0.5, 0.5], lambda user: [1.0])


def test_a_logged_run_is_the_run(world):
    policy = tw.HCB(tw.LinUCB(), budget=20)
    plain, told = (simulate(policy, world, rounds=30, seed=3, repeats=False, log=log) for log in (False, True))
    np.testing.assert_array_equal(plain.rewards, told.rewards)
    assert plain.log is None
    assert told.log.height == world.users * 30
    mine = told.log.filter(pl.col("user") == 5)
    np.testing.assert_allclose(mine["reward"].to_numpy(), told.rewards[5], rtol=1e-6)
    assert mine["item"].n_unique() == 30


def test_explorers_log_what_they_showed(world):
    explorer = tw.Explorer(world.catalogue, policy=tw.Flat(tw.EpsilonGreedy(0.3), budget=None), exposures="all", seed=0)
    made = explorer.recommend(["ada", "bob"], n=2) + explorer.recommend(["ada"])
    explorer.feedback({made[0].id: 1.0, made[4].id: 0.5})
    log = explorer.log()
    assert log.columns == ["user", "item", "row", "slot", "propensity", "exact", "reward", "context"]
    assert log["exact"].all()
    told = log.sort("user", maintain_order=True).rows()
    wanted = [made[0], made[1], made[4], made[2], made[3]]
    assert [row[:2] for row in told] == [(one.user, one.item) for one in wanted]
    assert [row[3] for row in told] == [0, 1, 0, 0, 1]
    assert [row[4] for row in told] == pytest.approx([one.propensity for one in wanted])
    assert [row[6] for row in told] == [1.0, None, 0.5, None, None]
    again = tw.Explorer(world.catalogue, policy=explorer.policy, store=explorer.store, exposures="all", seed=0)
    assert again.interests("ada") == explorer.interests("ada")  # what was shown teaches nothing
    explorer.forget("ada")
    assert explorer.log()["user"].to_list() == ["bob", "bob"]
    silent = tw.Explorer(world.catalogue, seed=0)
    silent.recommend([1])
    assert silent.log().height == 0
    numbers = tw.Explorer(world.catalogue, repeats=False, seed=0)
    numbers.recommend([1, 2])
    assert numbers.log()["user"].dtype == pl.Int64
    with pytest.raises(InvalidArgument, match="exposures must be one of needed, all"):
        tw.Explorer(world.catalogue, exposures="none")


def test_open_bandit_layout(world, tmp_path):
    log = logged(world, 0, rounds=3).log
    folder = tw.write_open_bandit(log, world.catalogue, tmp_path)
    assert folder == tmp_path / "bts" / "all"
    events, items = pl.read_csv(folder / "all.csv"), pl.read_csv(folder / "item_context.csv")
    assert events.columns[1:] == [
        "timestamp", "item_id", "position", "click", "propensity_score", "user_feature_0"
    ]  # fmt: skip
    assert events.height == 900
    assert events["item_id"].to_list() == log["row"].to_list()
    assert events["position"].unique().to_list() == [1]
    assert events["propensity_score"].to_list() == pytest.approx(log["propensity"].to_list())
    assert items["item_id"].to_list() == list(range(40))
    assert [name for name in items.columns if name.startswith("item_feature")] == [
        f"item_feature_{i}" for i in range(8)
    ]
    with pytest.raises(InvalidArgument, match="campaign must be a name for a folder"):
        tw.write_open_bandit(log, world.catalogue, tmp_path, campaign="../up")
    with pytest.raises(InvalidArgument, match="of rows below 2"):
        tw.write_open_bandit(log, tw.Catalogue(range(2)), tmp_path)


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
    assert other.random == pytest.approx(told.random, abs=2e-3)  # the same whoever chooses, but for used-up slates
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


def test_replay_needs_something_to_choose(world):
    with pytest.raises(DataError, match="nothing to choose"):
        replay(tw.HCB(), tw.Interactions([1, 1], [2, 3]), world.catalogue)
    with pytest.raises(InvalidArgument, match="interactions must be of type Interactions"):
        replay(tw.HCB(), [1], world.catalogue)
    with pytest.raises(InvalidArgument, match="users"):
        replay(tw.HCB(), impressions(world), world.catalogue, users=0)
