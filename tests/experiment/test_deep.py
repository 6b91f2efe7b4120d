"""`treeward experiment deep`: learned features compared with the items' own vectors."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import treeward as tw
from treeward.cli.app import app
from treeward.core.errors import InvalidArgument
from treeward.experiment.prepare import is_world
from treeward.experiment.presets import deep
from treeward.experiment.run import load, run
from treeward.experiment.spec import Arm, Spec
from treeward.experiment.summary import feature_gains


@pytest.fixture(scope="module")
def world():
    return tw.World.synthetic(items=3_000, users=1_540, dim=16, seed=0, nonlinear=2.0)


def test_the_deep_experiment_compares_each_arm_with_its_twin(tmp_path):
    told = CliRunner().invoke(
        app,
        [
            "experiment", "deep", "synthetic", "-o", str(tmp_path / "run"), "--loader-option", "items=300",
            "--loader-option", "users=80", "--loader-option", "dim=4", "--users", "6", "--repeats", "2",
            "--rounds", "12", "--shown", "20", "--processes", "1",
            "--without", "pHUCB + prior", "--without", "pHUCB, deep + prior",
        ],
    )  # fmt: skip
    assert told.exit_code == 0, told.output
    outcome = load(tmp_path / "run")
    assert outcome.prepared["source"]["training_users"] == 74
    found = feature_gains(outcome, 12)
    assert [(one.arm, one.plain) for one in found][:2] == [
        ("LinUCB, exact, deep", "LinUCB, exact"),
        ("HUCB, deep", "HUCB"),
    ]
    assert len(found) == 7
    for one in found:
        assert one.ratio == pytest.approx(one.earned / one.earned_plain)
        assert one.gap.mean == pytest.approx(one.earned - one.earned_plain)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Learned features against items' own vectors" in page or "Learned features against items&#x27; own" in page
    assert "74 other users, each shown 20 items" in page


def test_specs_name_features_and_priors(world, tmp_path):
    assert Spec.from_toml(deep("synthetic").to_toml()) == deep("synthetic")
    assert deep("synthetic", loader_options={"dim": 8}).loader_options["dim"] == 8
    assert [Arm("a", "hcb", prior=p, features=f).tree for p in (False, True) for f in (False, True)] == [
        "tree", "tree-features", "tree-prior", "tree-features-prior"
    ]  # fmt: skip
    with pytest.raises(InvalidArgument, match="no posterior"):
        Arm("a", "popularity", features=True).build(50)
    world.save(tmp_path / "world")
    assert is_world(str(tmp_path / "world"))
    assert not is_world(str(tmp_path))
    arms = (Arm("deep", "hcb", features=True), Arm("plain", "hcb"))
    with pytest.raises(InvalidArgument, match="a log, which deep need"):
        run(Spec("mine", str(tmp_path / "world"), arms, rounds=5, repeats=1), tmp_path / "out")
    with pytest.raises(InvalidArgument, match="loader_options"):
        run(Spec("mine", "synthetic", arms, shown=5, loader_options={"colour": 1}), tmp_path / "other")


def test_a_prepared_run_gets_the_prior_it_lacks(tmp_path):
    random = np.random.default_rng(0)
    rows = [(f"u{user:03}", f"i{item:02}") for user in range(80) for item in random.choice(40, 8, replace=False)]
    pl.DataFrame(rows, schema=["user", "item"], orient="row").write_csv(tmp_path / "log.csv")
    plain, prior = Arm("a", "hcb", features=True), Arm("b", "hcb", features=True, prior=True)
    spec = Spec(
        "x", str(tmp_path / "log.csv"), (plain,), users=3, rounds=4, repeats=1, dim=4, reward="click", once=True
    )
    run(spec, tmp_path / "first", processes=1)
    assert not (tmp_path / "first" / "deep-prior").exists()
    made = run(replace(spec, arms=(plain, prior)), tmp_path / "second", prepared=tmp_path / "first", processes=1)
    assert made.rewards["arm"].unique(maintain_order=True).to_list() == ["a", "b"]
    same = [(tmp_path / name / "features" / "manifest.json").read_bytes() for name in ("first", "second")]
    assert same[0] == same[1]  # the network was taken over, not trained again
