"""`treeward experiment frontier`, `treeward prior fit`, and what people use instead."""

import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

import treeward as tw
from treeward.cli.app import app
from treeward.core.errors import InvalidArgument
from treeward.experiment.baselines import Factors, FoldedIn, Listed
from treeward.experiment.presets import RIVALS, frontier
from treeward.experiment.run import load
from treeward.experiment.spec import Arm, Spec
from treeward.experiment.summary import scores


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A table of events in which half of the users like the first half of the items."""
    random = np.random.default_rng(0)
    lines = ["user,item,reward"]
    for user in range(120):
        liked = random.choice(60, 12, replace=False) + 60 * (user % 2)
        lines += [f"u{user},i{item},1" for item in liked]
    path = tmp_path_factory.mktemp("log") / "events.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_lists_and_folded_in_factors_show_the_best():
    shop = tw.Catalogue(range(40), np.eye(40, 6, dtype=np.float32) + 0.01)
    tree = tw.ItemTree.flat(shop.vectors)
    listed = Listed(scores=np.arange(40.0)).session(tree, shop, 2, once=True)
    assert [listed.select([0, 1], turn).item.tolist() for turn in range(3)] == [[39, 39], [38, 38], [37, 37]]
    assert listed.select([1], 3, allow=[2, 5, 38]).item.tolist() == [5]
    again = Listed(scores=np.arange(40.0)).session(tree, shop, 1)
    assert [again.select([0], turn).item[0] for turn in range(3)] == [39, 39, 39]
    random = np.random.default_rng(0)
    groups = np.repeat(np.eye(2), 20, axis=0) + random.random((40, 2)) / 10
    factors = Factors(groups.astype(np.float32), np.array([0.1, 0.2], dtype=np.float32))
    session = FoldedIn(factors=factors).session(tree, shop, 2, once=True)
    first = session.select([0, 1], 0)
    assert (first.item >= 20).all()  # the mean user's
    session.update(first, [0.0, 1.0])
    session.update(session.select([0], 1, allow=[3]), [1.0])  # a click on the other half
    assert session.select([0], 2).item[0] < 20
    assert session.select([1], 2).item[0] >= 20
    with pytest.raises(InvalidArgument, match="repeats"):
        Listed().session(tree, shop, 1, rest=3)


def test_factors_separate_two_groups(log, tmp_path):
    data = tw.load_dataset(str(log))
    factors = Factors.fit(data.interactions, data.catalogue, 4, seed=0)
    same = factors.items @ factors.items.T
    first = np.array([int(str(item)[1:]) < 60 for item in data.catalogue.ids])
    assert same[np.ix_(first, first)].mean() > same[np.ix_(first, ~first)].mean() + 0.1
    factors.save(tmp_path / "factors")
    np.testing.assert_array_equal(Factors.load(tmp_path / "factors").items, factors.items)


def test_the_frontier_command_runs_both_regimes(log, tmp_path):
    told = CliRunner().invoke(
        app,
        [
            "experiment", "frontier", str(log), "-o", str(tmp_path / "run"), "--users", "6", "--repeats", "2",
            "--once-rounds", "12", "--repeat-rounds", "8", "--dim", "8", "--processes", "1",
        ],
    )  # fmt: skip
    assert told.exit_code == 0, told.output
    for regime, rounds in (("once", 12), ("repeats", 8)):
        outcome = load(tmp_path / "run" / regime)
        assert outcome.spec.rounds == rounds
        assert {arm.label for arm in outcome.spec.arms} == set(outcome.cells["arm"])
        work = dict(outcome.cells.group_by("arm").agg(pl_mean()).iter_rows())
        assert work["popularity"] == 0 < work["Beam, small"] < work["Beam"]
        assert outcome.prepared["oracle"] <= rounds
        page = (tmp_path / "run" / regime / "report.html").read_text()
        assert "Reward against work" in page
        assert "multiplications per round" in page


def test_the_rivals_command_compares_work(log, tmp_path):
    told = CliRunner().invoke(
        app,
        [
            "experiment", "rivals", str(log), "-o", str(tmp_path / "run"), "--users", "6", "--repeats", "2",
            "--rounds", "12", "--dim", "8", "--processes", "1",
        ],
    )  # fmt: skip
    assert told.exit_code == 0, told.output
    outcome = load(tmp_path / "run")
    assert (outcome.spec.once, outcome.spec.reward) == (True, "click")
    assert {arm.label for arm in RIVALS} == set(outcome.cells["arm"])
    work = dict(outcome.cells.group_by("arm").agg(pl_mean()).iter_rows())
    assert min(work[arm.label] for arm in RIVALS if arm.label != "popularity") > 0
    assert work["SpannerGreedy + prior"] < work["SpannerIGW + prior"]
    shared = dict(outcome.cells.select("arm", "shared").iter_rows())
    assert [label for label, one in shared.items() if one] == ["Diag-LinUCB", "ENR"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Reward against work" in page
    assert "microseconds per decision and update" in page


def test_rivals_are_tuned_on_validation_users_of_a_synthetic_catalogue(tmp_path):
    words = [
        "experiment", "rivals", "synthetic", "-o", str(tmp_path / "run"), "--loader-option", "items=300",
        "--loader-option", "users=60", "--loader-option", "dim=4", "--users", "8", "--repeats", "2", "--rounds", "10",
        "--shown", "20", "--processes", "1", "--tune",
    ]  # fmt: skip
    for label in ("LinUCB, exact", "pHUCB", "MIPS-LinUCB", "MIPS-TS", "SpannerGreedy", "SpannerIGW"):
        words += ["--without", label, "--without", f"{label} + prior"]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 0, told.output
    tried, tested = load(tmp_path / "run" / "validation"), load(tmp_path / "run" / "test")
    assert (tried.spec.split, tested.spec.split) == ("validation", "test")
    assert (tried.spec.repeats, tested.spec.repeats) == (1, 2)
    assert not set(tried.prepared["users"]) & set(tested.prepared["users"])
    earned = {one.arm: one.mean for one in scores(tried, 10)}
    for arm in tested.spec.arms:
        mine = {label: mean for label, mean in earned.items() if label.split(" | ")[0] == arm.label}
        best = next(one for one in tried.spec.arms if one.label == max(mine, key=mine.get))
        assert (arm.options, arm.bandit_options) == (best.options, best.bandit_options)
    assert tested.prepared["source"]["training_users"] == 60 - len(tested.prepared["users"])


def pl_mean():
    import polars as pl

    return pl.col("multiplications").mean()


def test_a_prior_needs_a_log(tmp_path):
    world = tw.World.synthetic(items=200, users=30, dim=4, seed=0)
    world.save(tmp_path / "world")
    from treeward.experiment.run import run

    spec = Spec("mine", str(tmp_path / "world"), (Arm("Beam", "beam", prior=True),), rounds=5, repeats=1)
    with pytest.raises(InvalidArgument, match="a log, which Beam need"):
        run(spec, tmp_path / "out")
    with pytest.raises(InvalidArgument, match="policy"):
        Arm("x", "nothing").build(50)
    assert Arm("x", "flat", options={"budget": 0}).build(50).budget is None
    assert Spec.from_toml(frontier("d").to_toml()) == frontier("d")


def test_trained_parts_that_are_gone_are_made_again(log, tmp_path):
    from treeward.experiment.run import run

    arms = (Arm("popular", "popularity"), Arm("Beam", "beam", prior=True, options={"budget": 4}))
    spec = Spec("mine", str(log), arms, users=4, rounds=5, repeats=1, dim=6)
    first = run(spec, tmp_path / "run", processes=1)
    shutil.rmtree(tmp_path / "run" / "prior")
    shutil.rmtree(tmp_path / "run" / "cells")
    again = run(spec, tmp_path / "run", processes=1)
    assert again.rewards.equals(first.rewards)
    for bad in ({"prior": True}, {"bandit_options": {"alpha": 1.0}}, {"options": {"shortlist": 3}}):
        with pytest.raises(InvalidArgument, match="arm 'x'"):
            Arm("x", "popularity", **bad).build(50)


def test_the_prior_command_fits_and_saves(log, tmp_path):
    run = CliRunner().invoke
    made = run(app, ["embed", "svd", str(log), "-o", str(tmp_path / "items"), "--dim", "8"])
    assert made.exit_code == 0, made.output
    arguments = ["prior", "fit", str(log), "--items", str(tmp_path / "items"), "-o", str(tmp_path / "prior")]
    told = run(app, arguments)
    assert told.exit_code == 0, told.output
    assert "treeward tree build" in told.output
    assert "--prior" in told.output
    prior = tw.Crowd.load(tmp_path / "prior")
    assert prior.dim == 8
    assert isinstance(run(app, arguments).exception, tw.TreewardError)  # it is there already
    assert run(app, [*arguments, "--force"]).exit_code == 0
    assert run(app, ["serve", str(tmp_path / "items"), "--prior", str(tmp_path / "prior"), "--check"]).exit_code == 0
    bad = run(app, ["serve", str(tmp_path / "items"), "--prior", str(tmp_path / "nowhere"), "--check"])
    assert "prior must be a saved prior that exists" in str(bad.exception)
