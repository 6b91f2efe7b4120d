"""`treeward experiment closed-loop`: models that exploit, bandits that explore, and what can be learned from either."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import treeward as tw
from treeward.cli.app import app
from treeward.core.errors import DataError, InvalidArgument
from treeward.experiment.baselines import Foreseen
from treeward.experiment.cells import _judged
from treeward.experiment.judge import (
    Judging,
    Past,
    auc,
    eligible,
    gini,
    grouped,
    judge,
    log_loss,
    most_diverse,
    past_of,
    trial,
)
from treeward.experiment.presets import TABLE_4, closed_loop, rewards
from treeward.experiment.run import load
from treeward.experiment.spec import Arm, Spec
from treeward.experiment.summary import BEFORE, gaps, verdicts
from treeward.learn.clicks import clicks_of
from treeward.learn.next_click import NextClick

GROUPS, EACH = 4, 15
OPTIONS = Judging(negatives=4, seed=0, device="cpu")


def tastes(users, seed=0):
    """Everybody likes one or two of four groups of items: what two users share, they share for a reason."""
    random = np.random.default_rng(seed)
    who, what = [], []
    for user in range(users):
        mine = [user % GROUPS, (user // GROUPS) % GROUPS]
        liked = np.concatenate([group * EACH + random.choice(EACH, 5, replace=False) for group in set(mine)])
        who += [f"u{user:03}"] * len(liked)
        what += [f"i{item:02}" for item in random.permutation(liked)]
    return tw.Interactions(who, what)


@pytest.fixture(scope="module")
def shop():
    names = [f"i{item:02}" for item in range(GROUPS * EACH)]
    return tw.Catalogue(names, categories=[f"g{item // EACH}" for item in range(GROUPS * EACH)])


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A folder with items and events, as tables have them."""
    path = tmp_path_factory.mktemp("log") / "events.csv"
    tastes(160).table.write_csv(path)
    return path


def test_gini_auc_and_log_loss():
    assert gini(np.array([1, 2, 3])) == pytest.approx(2 / 3)
    assert gini(np.array([1, -1, 2, -1])) == 0.5  # what has no category is left out
    assert gini(np.array([-1])) == 0
    random = np.random.default_rng(0)
    scores, truth = random.integers(0, 5, 60).astype(np.float32), random.random(60) < 0.4
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[truth] for b in scores[~truth]]
    assert auc(scores, truth) == pytest.approx(np.mean(pairs))
    chances = 1 / (1 + np.exp(-scores.astype(np.float64)))
    told = -np.log(np.where(truth, chances, 1 - chances)).mean()
    assert log_loss(scores, truth) == pytest.approx(told)
    assert np.isfinite(log_loss(np.array([1e4, -1e4]), np.array([False, True])))


def test_the_most_diverse_are_chosen(shop):
    clicks = clicks_of("test", tastes(40), shop)
    chosen = most_diverse(clicks, eligible(clicks, 3), shop, 8)
    spread = {user: gini(clicks.of(user) // EACH) for user in range(len(clicks))}
    assert min(spread[user] for user in chosen) >= sorted(spread.values())[-8]
    assert eligible(clicks, 5) == [user for user in range(40) if len(clicks.of(user)) > 5]
    with pytest.raises(InvalidArgument, match=r"Gini impurity.*--pick random"):
        most_diverse(clicks, [0, 1], tw.Catalogue(shop.ids), 1)


@pytest.fixture(scope="module")
def past(shop):
    new = clicks_of("test", tastes(30, seed=1), shop)
    return past_of(tastes(120), new, eligible(new, 3), shop)


def test_a_trial_is_fair(past, tmp_path):
    one, again, other = trial(past, 3, seed=5), trial(past, 3, seed=5), trial(past, 3, seed=6)
    np.testing.assert_array_equal(one.start, again.start)
    assert (one.start != other.start).any()
    for user in range(past.users):
        mine, asked = set(past.clicked(user).tolist()), one.user == user
        clicked, others = (set(one.item[asked & (one.clicked == which)].tolist()) for which in (True, False))
        assert clicked | set(one.start[user].tolist()) == mine
        assert not clicked & set(one.start[user].tolist())
        assert len(others) == len(clicked)
        assert not others & mine
    past.save(tmp_path / "past")
    for mine, read in zip(past, Past.load(tmp_path / "past"), strict=True):
        np.testing.assert_array_equal(mine, read)


def test_what_tells_tastes_is_told_from_what_does_not(past):
    """Collected clicks on the users' own groups teach a factorisation; coin flips do not."""
    tried, options = trial(past, 3, seed=0), OPTIONS
    shown = np.tile(np.arange(GROUPS * EACH), (past.users, 1))
    own = np.array([np.isin(shown[0] // EACH, past.clicked(user) // EACH) for user in range(past.users)])
    coins = np.random.default_rng(0).random(shown.shape) < own.mean()
    nothing = judge(past, tried, shown[:, :0], own[:, :0].astype(np.float32), options)
    truth = judge(past, tried, shown, own.astype(np.float32), options)
    noise = judge(past, tried, shown, coins.astype(np.float32), options)
    assert truth.auc > nothing.auc > noise.auc
    assert truth.log_loss < noise.log_loss
    assert truth == judge(past, tried, shown, own.astype(np.float32), options)


def test_nobody_is_told_what_they_will_be_asked(past):
    tried = trial(past, 3, seed=0)
    shown = np.stack([tried.item[tried.user == user][:4] for user in range(past.users)])
    answers = np.random.default_rng(0).random(shown.shape) < 0.5
    nothing = judge(past, tried, shown[:, :0], answers[:, :0].astype(np.float32), OPTIONS)
    assert judge(past, tried, shown, answers.astype(np.float32), OPTIONS) == nothing


def test_what_has_no_category_is_in_none(past, shop):
    some = tw.Catalogue(["a", "b", "c"], categories=["x", None, "y"])
    assert grouped(some).tolist()[1] == -1 < min(grouped(some)[[0, 2]])
    world = tw.World(tw.Catalogue(shop.ids), np.zeros((1, 1)), np.zeros((len(shop), 1)), [0.0], np.zeros(len(shop)))
    shown = np.tile(np.arange(4), (past.users, 1))
    result = SimpleNamespace(rewards=np.ones_like(shown, dtype=np.float32), log=pl.DataFrame({"row": shown.ravel()}))
    tried = trial(past, 3, seed=0)
    told, reached = _judged(closed_loop("data"), past, tried, world, result, 0, first=False)
    assert told["gini"] == 0
    assert not reached.any()


def test_users_may_begin_with_clicks(shop):
    world = tw.World.synthetic(items=300, users=6, dim=8, seed=1)
    start = np.array([[1, 2], [5, 9], [0, 299], [7, 8], [3, 4], [11, 10]])
    for policy in (tw.HCB(), tw.PHCB(), tw.Flat(), tw.Beam()):
        began = tw.simulate(policy, world, rounds=40, reward="click", repeats=False, log=True, start=start)
        fresh = tw.simulate(policy, world, rounds=40, reward="click", repeats=False, log=True)
        rows = began.log["row"].to_numpy().reshape(6, 40)
        assert not any(np.isin(mine, known).any() for mine, known in zip(rows, start, strict=True))
        assert (rows != fresh.log["row"].to_numpy().reshape(6, 40)).any()  # they were taught
    session = tw.HCB().session(tw.ItemTree.build(world.catalogue.vectors, (4, 16)), world.catalogue, 2)
    before = session.state.posterior.theta[0].copy()
    session.update(session.met([0], [17]), [1.0])
    assert (session.state.posterior.theta[0] != before).any()
    assert (session.state.posterior.theta[1] == before).all()
    for wrong in ([[1, 2]], [1, 2, 3, 4, 5, 6], [[300]] * 6, [[0.5]] * 6):
        with pytest.raises(InvalidArgument, match="start must be 6 lists of equal length"):
            tw.simulate(tw.HCB(), world, rounds=2, start=wrong)
    with pytest.raises(InvalidArgument, match="rounds must be"):
        tw.simulate(tw.HCB(), world, rounds=299, repeats=False, start=start)
    rested = tw.simulate(tw.HCB(), world, rounds=30, repeats=5, regret=True, start=start)
    assert (rested.best >= rested.expected - 1e-6).all()
    with pytest.raises(InvalidArgument, match="start must be left out: the policy knows only what it showed itself"):
        tw.simulate(tw.ConUCB(tw.LinUCB()), tw.World.synthetic(items=300, users=6, dim=8), rounds=2, start=start)


def test_a_model_of_the_next_click_is_led_on_by_clicks(shop):
    train = tastes(200)
    model = NextClick.fit("linear", train, tastes(40, 2), shop, 8, start=tw.svd_vectors(train, shop, 8).vectors)
    items = shop.with_vectors(model.vectors)
    session = Foreseen(model=model).session(tw.ItemTree.flat(items.vectors), items, 3, once=True)
    first = session.select([0, 1, 2], 0)
    assert len(set(first.item.tolist())) == 1  # nobody is known: what is most likely of all
    session.update(session.met([0, 1], [2 * EACH, 3 * EACH]), [1.0, 1.0])
    for turn in range(1, 6):
        made = session.select([0, 1, 2], turn)
        assert (made.item[:2] // EACH == [2, 3]).all()
        assert made.item[0] != 2 * EACH
        assert made.item[1] != 3 * EACH
        session.update(made, [1.0, 1.0, 0.0])
    assert session.select([2], 6).item[0] not in first.item  # shown once
    assert made.work[0] > made.work[2] == 0  # only clicks give work


ARMS = ("popularity", "random", "LinTS", "LinEG", "HTS", "HEG", "pHTS", "pHEG", "Transformer")


@pytest.fixture(scope="module")
def outcome(log, tmp_path_factory):
    """A whole run, with few arms."""
    events = pl.read_csv(log)
    folder = tmp_path_factory.mktemp("loop")
    items = pl.DataFrame({"item": events["item"].unique().sort()}).with_columns(
        ("g" + (pl.col("item").str.slice(1).cast(pl.Int64) // EACH).cast(pl.String)).alias("category")
    )
    data = tw.load_dataset(str(log))
    shop = tw.Catalogue(items["item"], categories=items["category"])
    type(data)(data.name, shop, data.interactions, data.splits, source=data.source).save(folder / "data")
    call = ["experiment", "closed-loop", str(folder / "data"), "-o", str(folder / "run"), "--users", "12"]
    call += ["--rounds", "20", "--repeats", "2", "--dim", "8", "--processes", "2"]
    done = CliRunner().invoke(app, call + [word for arm in ARMS for word in ("--without", arm)])
    assert done.exit_code == 0, done.output
    return folder / "run", done.output


def test_the_closed_loop_runs_and_reports(outcome):
    folder, said = outcome
    made = load(folder)
    told = verdicts(made)
    assert [one.arm for one in told] == [BEFORE, "Linear", "GRU", "LinUCB", "HUCB", "pHUCB", "Beam"]
    for one in told[1:]:
        assert 0 < one.auc.mean < 1
        assert one.log_loss.mean > 0
        assert 0 < one.clicks <= 20
        assert 1 <= one.categories <= GROUPS
        assert 0 <= one.gini <= 0.75
        assert 0 < one.coverage <= 1
    assert [(ours, theirs) for ours, theirs, *_ in gaps(made, "auc")] == [
        (ours, theirs) for ours in ("HUCB", "pHUCB", "Beam") for theirs in ("Linear", "GRU")
    ]
    assert "LogLoss" in said
    page = (folder / "report.html").read_text()
    for words in (
        "nothing collected",
        "What happened to the users",
        "HUCB above GRU",
        "recall@20",
        "MIND, AUC",
        "0.723",
    ):
        assert words in page
    table = pl.read_csv(folder / "report.csv")
    assert {"auc", "log_loss", "gini"} <= set(table.columns)
    reached = made.rewards.filter(pl.col("arm") == "HUCB").sort("repeat", "user", "round")["reached"].to_numpy()
    assert (np.diff(reached.reshape(24, -1), axis=1) >= 0).all()
    assert TABLE_4["MIND"]["pHUCB"] == (0.680, 0.723)


def test_a_damaged_or_missing_part_is_made_again(outcome):
    folder, _ = outcome
    before = load(folder)
    (folder / "next-gru" / "manifest.json").unlink()
    (folder / "past" / "manifest.json").write_text("rubbish")
    gone = sorted((folder / "cells").iterdir())[0]
    (gone / "manifest.json").unlink()
    done = CliRunner().invoke(app, ["experiment", "run", str(folder / "spec.toml"), "-o", str(folder)])
    assert done.exit_code == 0, done.output
    after = load(folder)
    same = [name for name in before.cells.columns if name != "seconds"]
    assert before.cells.select(same).equals(after.cells.select(same))
    assert before.rewards.equals(after.rewards)


def test_bad_input_is_told(log, tmp_path):
    def said(*more):
        done = CliRunner().invoke(app, ["experiment", "closed-loop", str(log), "-o", str(tmp_path / "x"), *more])
        assert done.exit_code != 0
        return done

    assert "--pick random" in str(said("--rounds", "20").exception)  # the table has no categories
    assert "has more than 30 clicks: begin with fewer (--start 29)" in str(
        said("--pick", "random", "--start", "30", "--rounds", "9").exception
    )
    tw.World.synthetic(items=50, users=10, dim=4).save(tmp_path / "world")
    done = CliRunner().invoke(app, ["experiment", "closed-loop", str(tmp_path / "world"), "-o", str(tmp_path / "y")])
    assert "data must be a log" in str(done.exception)
    with pytest.raises(InvalidArgument, match="start must be"):
        closed_loop(str(log), start=0).check()
    with pytest.raises(InvalidArgument, match="start must be 0: it knows only what it showed itself"):
        Spec("mine", str(log), (Arm("HMAB", "hmab"),), start=2).check()
    assert "at most 57, the number of items less the 3" in str(said("--pick", "random", "--rounds", "58").exception)
    done = CliRunner().invoke(
        app, ["experiment", "rewards", str(tmp_path / "world"), "-o", str(tmp_path / "z"), "--vectors", "svd"]
    )
    assert done.exit_code == 1
    with pytest.raises(DataError, match="clicked every item"):
        trial(Past(np.zeros(1, int), np.zeros(1, int), np.arange(5), np.array([0, 5]), 5), 3, 0)


def test_specs_from_before_are_the_same_experiments():
    plain = rewards("data")
    for name in ("vectors", "start", "pick", "judge"):
        assert f"\n{name} = " not in plain.to_toml()
    made = closed_loop("data", vectors="gru")
    assert Spec.from_toml(made.to_toml()) == made
    with pytest.raises(InvalidArgument, match="vectors must be"):
        Spec.from_toml(made.to_toml().replace('"gru"', '"bert"'))
