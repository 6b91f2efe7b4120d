"""Experiments: specs, cells that are never computed twice, reports."""

import random
import shutil
import signal
import subprocess
import time
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import treeward as tw
from tests.test_cli import TREEWARD
from tests.test_cli import run as cli
from tests.test_simulate import REFERENCE
from treeward.core.errors import ArtefactExists, DataError, InvalidArgument
from treeward.experiment import Arm, Spec, load, run
from treeward.experiment.presets import PRESETS, REWARDS, TABLE_3, bases, rewards, sensitivity, tuned, tuning
from treeward.experiment.reference import compare
from treeward.experiment.report import render, write_report
from treeward.experiment.run import checkpoints
from treeward.experiment.summary import by_user, curves, order_kept, paired, ratios, rounds_of, scores, tidy


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    path = tmp_path_factory.mktemp("world") / "world"
    tw.World.synthetic(items=600, users=40, dim=8, seed=1).save(path)
    return path


def small(world, **options):
    return rewards(str(world), **{"users": 12, "rounds": 40, "repeats": 2, "budget": 20, "widths": (5, 40), **options})


@pytest.fixture(scope="module")
def outcome(world, tmp_path_factory):
    return run(small(world), tmp_path_factory.mktemp("run") / "here", processes=1)


def test_specs_go_to_toml_and_back(world):
    for make in PRESETS.values():
        spec = make(str(world), loader_options={"least": 3, "strict": True, "name": 'a "b" \\ ü\n'}, widths=(3, 9))
        assert Spec.from_toml(spec.to_toml()) == spec
        spec.check()
    assert small(world).digest != small(world, seed=1).digest
    assert len(bases("x").arms) == 15
    assert len(sensitivity("x").arms) == 36
    assert sensitivity("x").rounds == 1_000
    assert (rewards("x").rounds, rewards("x").repeats, rewards("x").budget) == (2_000, 10, 50)
    assert [arm.label for arm in REWARDS if arm.baseline] == ["LinUCB", "ConUCB", "HMAB", "ICTRUCB"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ('rouds = 3\n', "one of .*rounds.*did you mean 'rounds'"),
        ("rounds = 0\n", "rounds must be an integer of at least 1"),
        ('reward = "coins"\n', "reward must be one of probability, click"),
        ("arms = 3\n", "a list of tables"),
        ("seed = \n", "spec must be TOML"),
    ],
)  # fmt: skip
def test_typos_are_told_before_any_work(change, why):
    head = 'name = "x"\ndata = "nowhere"\n'
    with pytest.raises(InvalidArgument, match=why):
        Spec.from_toml(
            head + change + ('[[arms]]\nlabel = "a"\npolicy = "hcb"\n' if "arms" not in change else "")
        ).check()


@pytest.mark.parametrize(
    ("arm", "why"),
    [
        (Arm("a", "hbc"), "one of flat, .* \\(did you mean 'hcb'\\?\\)"),
        (Arm("a", "hcb", "linucbb"), "did you mean 'linucb'"),
        (Arm("a", "hcb", bandit_options={"alhpa": 1.0}), "did you mean 'alpha'"),
        (Arm("a", "hcb", options={"q": 3.0}), "without q and p"),
        (Arm("a", "hcb", bandit_options={"alpha": -1.0}), "alpha"),
        (Arm("", "hcb"), "labels that are all different and not empty"),
    ],
)
def test_arms_are_checked(arm, why, tmp_path):
    with pytest.raises(InvalidArgument, match=why):
        run(Spec("x", "nowhere", (arm,)), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_every_arm_runs_under_the_same_budget(outcome):
    told = tidy(outcome)
    assert told["arm"].unique(maintain_order=True).to_list() == [arm.label for arm in REWARDS]
    assert told["most_scores"].max() <= 20
    assert (told.filter(arm="ConUCB")["questions"] == 15).all()
    assert (told.filter(pl.col("arm") != "ConUCB")["questions"] == 0).all()
    assert told["mean"].min() > 40 * outcome.prepared["random"] * 0.8
    assert outcome.rewards.height == 8 * 2 * 12 * len(checkpoints(40))
    for name in ("spec_sha256", "treeward", "data_sha256"):
        assert outcome.rewards[name].n_unique() == 1


def test_a_cell_is_the_simulation_it_names(outcome, world):
    truth = tw.World.load(world)
    tree = tw.ItemTree.build(truth.catalogue.vectors, (5, 40), seed=0)
    users = outcome.prepared["users"]
    assert len(users) == 12
    for label, policy in (("HUCB", tw.HCB(budget=20)), ("HMAB", tw.HMAB(budget=20))):
        mine = tw.simulate(policy, truth, tree, rounds=40, users=users, seed=1, regret=True)
        held = outcome.rewards.filter((pl.col("arm") == label) & (pl.col("repeat") == 1) & (pl.col("round") == 40))
        np.testing.assert_allclose(held["reward"].to_numpy(), mine.per_user, rtol=1e-5)
        np.testing.assert_allclose(held["regret"].to_numpy().mean(), mine.regret[-1], rtol=1e-5)


def test_summaries_by_hand(outcome):
    earned = by_user(outcome, 40)
    told = {one.arm: one for one in scores(outcome, 40)}
    best = max(("LinUCB", "ConUCB", "HMAB", "ICTRUCB"), key=lambda name: earned[name].mean())
    assert told[best].gain is None
    gap = earned["pHUCB"] - earned[best]
    assert told["pHUCB"].gain == pytest.approx(gap.mean())
    assert told["pHUCB"].gain_half == pytest.approx(1.96 * gap.std(ddof=1) / 12**0.5)
    assert paired(np.ones(9), np.ones(9)) == (0.0, 0.0, 1.0)
    mean, half, chance = paired(np.arange(100) + 0.0, np.arange(100) - np.tile([1.0, 3.0], 50))
    assert (mean, chance) == (2.0, pytest.approx(0, abs=1e-9))
    assert half == pytest.approx(0.197, abs=0.001)
    last = curves(outcome).filter((pl.col("arm") == "HUCB") & (pl.col("round") == 40))
    assert last["mean"].item() == pytest.approx(earned["HUCB"].mean(), rel=1e-5)
    assert rounds_of(outcome) == [40]
    assert dict(order_kept(outcome, 40))["HUCB above HMAB"] == (earned["HUCB"].mean() > earned["HMAB"].mean())
    assert set(ratios(outcome, 40)) == {"here"}
    assert TABLE_3["MIND"]["pHUCB"][2] / TABLE_3["MIND"]["LinUCB"][2] == pytest.approx(2.42, abs=0.01)


def test_reports(outcome, world, tmp_path):
    page, picture, table = write_report(outcome, tmp_path / "report.html")
    text = page.read_text()
    for said in ("Beside the paper&#x27;s table 3", "holds here", "questions a user", "Cumulative regret", "pHUCB"):
        assert said in text
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert pl.read_csv(table).height == 8
    grid = run(
        replace(sensitivity(str(world), users=4, rounds=20, repeats=1, budget=20, widths=(5, 40))), tmp_path / "grid",
        processes=2,
    )  # fmt: skip
    assert b"q 25" in render(grid)
    assert write_report(grid, tmp_path / "grid.html")[1].read_bytes().startswith(b"\x89PNG")


def test_finished_cells_are_never_computed_again(outcome, world, tmp_path):
    folder = tmp_path / "run"
    spec = small(world)
    run(spec, folder, processes=2)
    before = {path: path.stat().st_mtime_ns for path in (folder / "cells").rglob("*.parquet")}
    gone = sorted((folder / "cells").iterdir())[3]
    shutil.rmtree(gone)
    with pytest.raises(InvalidArgument, match="1 of 16 cells are missing"):
        load(folder)
    again = run(spec, folder, processes=1)
    for path, when in before.items():
        assert (path.stat().st_mtime_ns == when) == (gone not in path.parents)
    assert again.rewards.equals(outcome.rewards)
    with pytest.raises(ArtefactExists, match="holds another experiment"):
        run(replace(spec, seed=5), folder)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(ArtefactExists, match="is not empty"):
        run(spec, tmp_path / "other")


def test_killed_runs_end_as_undisturbed_ones(outcome, world, tmp_path):
    folder, path = tmp_path / "run", tmp_path / "spec.toml"
    path.write_text(small(world).to_toml())
    coin = random.Random(0)
    for _ in range(4):
        process = subprocess.Popen(
            [TREEWARD, "experiment", "run", path, "-o", folder], start_new_session=True, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(coin.uniform(1.5, 6))
        process.send_signal(signal.SIGKILL)
        process.wait()
        time.sleep(0.5)  # its workers notice, and end
    cli("experiment", "run", path, "-o", folder)
    assert load(folder).rewards.equals(outcome.rewards)
    assert (folder / "report.html").exists()
    assert pl.read_parquet(folder / "results.parquet").equals(outcome.rewards)


def test_two_runs_do_not_share_a_folder(world, tmp_path):
    import fcntl

    folder = tmp_path / "run"
    folder.mkdir()
    with (folder / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ArtefactExists, match="another run is at work"):
            run(small(world), folder)


def test_data_without_categories_are_refused_at_once(tmp_path):
    path = tmp_path / "sequences.txt"
    path.write_text("\n".join(f"{u} " + " ".join(str((u * 7 + i) % 50) for i in range(6)) for u in range(40)))
    with pytest.raises(InvalidArgument, match="with categories, which CB-Category, ConUCB, HMAB need"):
        run(rewards(str(path)), tmp_path / "run")


def test_from_a_log_to_a_report(tmp_path):
    random = np.random.default_rng(0)
    rows = [(u, int(i)) for u in range(60) for i in random.choice(80, 12, replace=False)]
    pl.DataFrame(rows, schema=["user", "item"], orient="row").write_csv(tmp_path / "log.csv")
    shop = pl.DataFrame({"id": range(80), "category": [f"c{i % 4}" for i in range(80)]})
    shop.write_csv(tmp_path / "items.csv")
    told = cli(
        "experiment", "rewards", tmp_path / "log.csv", "-o", tmp_path / "run", "--users", 5, "--rounds", 30,
        "--repeats", 1, "--dim", 4, "--widths", "4,10", "--without", "HMAB", "--without", "ICTRUCB", "--readings",
        "--budget", 20, "--set", f"items={tmp_path / 'items.csv'}",
    )  # fmt: skip
    assert "LinUCB, clicks" in told
    assert "HMAB" not in told
    held = load(tmp_path / "run")
    assert len(held.prepared["users"]) == 5
    test = set(tw.load_dataset(tmp_path / "log.csv").users("test").to_list())
    ids = tw.World.load(tmp_path / "run" / "world").user_ids
    assert {ids[row] for row in held.prepared["users"]} <= test
    assert "Wrote" in cli("report", tmp_path / "run", "-o", tmp_path / "page.html")
    assert "one where an experiment was run" in cli("report", tmp_path, code=1)
    assert "did you mean 'pHUCB'" in cli(
        "experiment", "rewards", tmp_path / "log.csv", "-o", tmp_path / "no", "--without", "PHUCB", code=1
    )


def test_tuning_chooses_on_validation_users(world, tmp_path):
    plain = small(world)
    plain = replace(plain, arms=tuple(arm for arm in plain.arms if arm.label in ("LinUCB", "pHUCB")))
    spec = tuning(plain)
    assert spec.split == "validation"
    assert len(spec.arms) == 4 + 16
    made = tuned(plain, [spec.arms[2], spec.arms[7]])
    assert [arm.label for arm in made.arms] == ["LinUCB", "pHUCB"]
    assert made.arms[0].bandit_options == {"alpha": 0.5}
    assert made.arms[1].options == {"q": 10.0, "p": 0.1}
    made.check()


@pytest.mark.skipif(not REFERENCE.exists(), reason="the reference run of the authors' code is not beside the project")
def test_reference(tmp_path):
    told = cli("experiment", "reference", REFERENCE, "--repeats", 1)
    assert told.count("PHCB") == 3
    assert "ConUCB" in told
    with pytest.raises(DataError, match="holds no world.npz"):
        compare(tmp_path, 1, lambda *_: None)
