"""Experiments: specs, cells that are never computed twice, reports."""

import os
import random
import re
import shutil
import signal
import subprocess
import time
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy import stats

import treeward as tw
from tests.commands import TREEWARD
from tests.commands import run as cli
from tests.simulate.test_run import REFERENCE
from treeward.core.errors import ArtefactCorrupt, ArtefactExists, DataError, InvalidArgument
from treeward.experiment import Arm, Outcome, Spec, load, run
from treeward.experiment.cells import checkpoints
from treeward.experiment.presets import PRESETS, REWARDS, RIVALS, TABLE_3, bases, rewards, sensitivity, tuned, tuning
from treeward.experiment.reference import compare
from treeward.experiment.report import render, warnings, write_report
from treeward.experiment.run_folder import cell_seed
from treeward.experiment.summary import (
    by_user,
    claims,
    curves,
    estimate,
    estimated,
    paired,
    ratios,
    rounds_of,
    scores,
    shares,
    tidy,
)


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
    assert [arm.label for arm in REWARDS if arm.baseline] == [
        "LinUCB", "CB-Category", "CB-Leaf", "ConUCB", "HMAB", "ICTRUCB",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ('once = "no"\n', "Expected `bool`, got `str` - at `.*once`"),
        ("widths = 5\n", "Expected `array`, got `int` - at `.*widths`"),
        ('exposure = "autoo"\n', "did you mean 'auto'"),
        ('loader = "movilens"\n', "did you mean 'movielens'"),
        ('rouds = 3\n', "one of .*rounds.*did you mean 'rounds'"),
        ("rounds = 0\n", "rounds must be an integer from 1 to 2147483647"),
        ('reward = "coins"\n', "reward must be one of probability, click"),
        ("arms = 3\n", "a list of tables"),
        ("seed = \n", "spec must be TOML"),
    ],
)  # fmt: skip
def test_typos_are_refused_before_any_work(change, why):
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
        (Arm("a", "conucb", "thompson"), "bandit must be LinUCB"),
        (Arm("a", "phcb", options={"q": -1.0}), "q must be"),
        (Arm("a", "phcb", options={"start": "foo"}), "start must be one of root, children"),
        (Arm("a", "hcb", baseline="no"), "Expected `bool`"),
        (Arm("a", "hcb", bandit_options={"alpha": np.float64(0.5)}), "of the types that are documented"),
        (Arm("", "hcb"), "labels that are all different and not empty"),
    ],
)
def test_bad_arms_are_refused(arm, why, tmp_path):
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
    assert len(outcome.rewards["data_sha256"][0]) == 64
    assert outcome.rewards["seed"].n_unique() == 2


def test_a_cell_equals_the_simulation_it_names(outcome, world):
    truth = tw.World.load(world)
    tree = tw.ItemTree.build(truth.catalogue.vectors, (5, 40), seed=0)
    users = outcome.prepared["users"]
    assert len(users) == 12
    for label, policy in (("HUCB", tw.HCB(budget=20)), ("HMAB", tw.HMAB(budget=20))):
        mine = tw.simulate(policy, truth, tree, rounds=40, users=users, seed=cell_seed(0, 1), regret=True)
        held = outcome.rewards.filter((pl.col("arm") == label) & (pl.col("repeat") == 1) & (pl.col("round") == 40))
        np.testing.assert_allclose(held["cumulative_reward"].to_numpy(), mine.per_user, rtol=1e-5)
        np.testing.assert_allclose(held["cumulative_regret"].to_numpy().mean(), mine.regret[-1], rtol=1e-5)


def test_summaries_equal_those_by_hand(outcome):
    earned = by_user(outcome, 40)
    assert earned["HUCB"].shape == (12, 2)
    held = outcome.rewards.filter(arm="HUCB", repeat=1, round=40)
    assert earned["HUCB"][:, 1].tolist() == pytest.approx(held["cumulative_reward"].to_list())
    told = {one.arm: one for one in scores(outcome, 40)}
    baselines = ("LinUCB", "CB-Category", "CB-Leaf", "ConUCB", "HMAB", "ICTRUCB")
    best = max(baselines, key=lambda name: earned[name].mean())
    assert told[best].gain is None
    against = next(arm for arm in outcome.spec.arms if arm.label == best)
    gain = estimate(earned["pHUCB"] - earned[best], shares(outcome, against))
    assert told["pHUCB"].gain == pytest.approx((earned["pHUCB"] - earned[best]).mean()) == pytest.approx(gain.mean)
    assert (told["pHUCB"].gain_half, told["pHUCB"].p_value) == (gain.half, gain.p_value)
    gap = earned["pHUCB"].mean(axis=1) - earned["LinUCB"].mean(axis=1)
    mine = paired(outcome, "pHUCB", "LinUCB", 40)
    assert mine.mean == pytest.approx(gap.mean())
    assert mine.half == pytest.approx(stats.t.ppf(0.975, 11) * gap.std(ddof=1) / 12**0.5)
    assert mine.p_value == pytest.approx(stats.ttest_1samp(gap, 0).pvalue)
    turns, mean, half = curves(outcome)["HUCB"]
    assert (turns[-1], mean[-1], half[-1]) == (40, pytest.approx(told["HUCB"].mean), pytest.approx(told["HUCB"].half))
    assert rounds_of(outcome) == [40]
    found = {str(claim): claim.gap for claim in claims(outcome, 40)}
    gap = earned["HUCB"].mean() - earned["HMAB"].mean()
    assert found["HUCB above HMAB"].mean == pytest.approx(gap)
    others = [f"{name} above LinUCB" for name in ("HMAB", "ICTRUCB", "ConUCB", "CB-Leaf", "CB-Category", "HUCB")]
    assert {*others, "pHUCB above HUCB", "pHUCB above ICTRUCB", "HUCB above CB-Leaf"} <= set(found)
    assert set(ratios(outcome, 40)) == {"here"}
    assert TABLE_3["MIND"]["pHUCB"][2] / TABLE_3["MIND"]["LinUCB"][2] == pytest.approx(2.42, abs=0.01)


def test_estimates_have_known_intervals():
    assert estimate(np.ones((9, 2)), False) == (1.0, 0.0, 0.0)
    mean, half, chance = estimate(np.tile([1.0, 3.0], 50)[:, None], False)
    assert (mean, chance) == (2.0, pytest.approx(0, abs=1e-9))
    assert half == pytest.approx(0.1994, abs=0.001)
    assert estimate(np.zeros((9, 2)), False) == (0.0, 0.0, 1.0)
    assert estimate(np.ones((1, 5)), False) == (1.0, None, None)
    assert estimate(np.ones((5, 1)), True) == (1.0, None, None)
    random = np.random.default_rng(0)
    inside = 0
    for _ in range(400):  # users differ, and repeats differ: the interval covers both
        values = 2 * random.normal(size=(30, 1)) + random.normal(size=(1, 4)) + 0.5 * random.normal(size=(30, 4))
        one = estimate(values, True)
        inside += abs(one.mean) <= one.half
    assert 370 <= inside <= 394  # 95 %, give or take
    rejected = {False: 0, True: 0}
    for _ in range(600):  # everybody in a repeat has the same luck: no effect, but users agree
        values = random.normal(size=(20, 4)) + random.normal(size=4)
        for shared in rejected:
            rejected[shared] += estimate(values, shared).p_value < 0.05
    assert rejected[False] > 180
    assert rejected[True] < 60


def test_a_claim_is_answered_by_its_interval():
    assert estimate(np.array([[1.0], [1.1], [0.9]]), False).answer == "yes"
    assert estimate(-np.array([[1.0], [1.1], [0.9]]), False).answer == "no"
    assert estimate(np.array([[1.0], [-1.1], [0.9]]), False).answer == "not distinguishable"
    assert estimate(np.ones((1, 3)), False).answer == "not distinguishable"  # no interval
    assert estimate(np.array([[1.0], [1.1], [0.9]]), False).answer_text("+.2f") == "yes: +1.00 ± 0.25"
    wide = estimate(np.array([[20.0], [12.0], [9.0]]), False)
    assert wide.answer_text() == "not distinguishable: +13.7 ± 14.1"  # as many digits on either side, and never a yes


def test_report_tables_have_no_empty_cells_and_no_raw_python(outcome):
    body = re.sub("<script.*?</script>", "", render(outcome).decode(), flags=re.DOTALL)
    tables = re.findall("<table>.*?</table>", body, flags=re.DOTALL)
    assert len(tables) > 5
    for one in tables:
        rows = [re.findall("<td.*?>(.*?)</td>", row) for row in one.split("<tr")]
        columns = list(zip(*filter(None, rows), strict=True))
        assert all(any(cells) for cells in columns), one
    results = next(one for one in tables if "against the best baseline" in one)
    assert re.search("<td>the best baseline</td><td>–</td>", results)  # noqa: RUF001
    assert "<td></td>" not in results
    assert not re.search(r"\{&#x27;|\d\.\d{7,}", body)
    assert "alpha 0.25" in body


def test_results_say_that_they_are_cumulative(outcome, world, tmp_path):
    spec = small(world, users=3, rounds=100, repeats=1)
    spec = replace(spec, arms=tuple(arm for arm in REWARDS if arm.label in ("LinUCB", "HUCB", "pHUCB")))
    (tmp_path / "spec.toml").write_text(spec.to_toml())
    told = cli("experiment", "run", tmp_path / "spec.toml", "-o", tmp_path / "run", "--processes", 1, width=200)
    assert str(tmp_path / "run" / "results.parquet") in told
    held = pl.read_parquet(tmp_path / "run" / "results.parquet")
    assert {"cumulative_reward", "cumulative_regret"} <= set(held.columns)
    assert "reward" not in held.columns
    assert "<th scope=col>MIND, 100</th>" in (tmp_path / "run" / "report.html").read_text()
    mine = held.filter(user=held["user"][0], arm="HUCB").sort("round")
    assert (mine["cumulative_reward"].diff().drop_nulls() >= 0).all()


def test_an_interval_over_worlds_is_wider_where_worlds_disagree():
    random = np.random.default_rng(1)
    users, shift = random.normal(size=(40, 1, 1)), np.array([-1.0, 0.0, 1.2])[None, :, None]
    values = (users + shift + 0.1 * random.normal(size=(40, 3, 2))).reshape(40, 6)
    spec = Spec("x", "d", (Arm("a", "flat"),), repeats=2, worlds=3)
    cells = pl.DataFrame({"arm": ["a"], "shared": [False]})
    many = estimated(Outcome(spec, {}, pl.DataFrame(), cells, pl.DataFrame()), values, spec.arms[0])
    alone = replace(spec, repeats=6, worlds=1)
    one = estimated(Outcome(alone, {}, pl.DataFrame(), cells, pl.DataFrame()), values, spec.arms[0])
    assert many.mean == pytest.approx(one.mean)
    assert many.half > 3 * one.half


def test_node_scaling_is_one_setting_of_the_spec(world):
    spec = small(world)
    for nodes in ("unit", "mean"):
        built = {arm.label: replace(spec, nodes=nodes).policy(arm) for arm in spec.arms}
        assert {built[name].node_vectors for name in ("HUCB", "pHUCB", "CB-Leaf", "CB-Category")} == {nodes}
        assert built["ConUCB"].node_vectors == "mean"
    assert spec.policy(Arm("b", "beam", options={"budget": 16})).node_vectors == "mean"
    assert spec.policy(Arm("h", "hcb", options={"node_vectors": "mean"})).node_vectors == "mean"
    with pytest.raises(InvalidArgument, match="nodes must be one of unit, mean"):
        replace(spec, nodes="long").check()


def test_a_prepared_run_is_reused(outcome, world, tmp_path):
    spec, first = small(world), tmp_path / "first"
    run(spec, first, processes=1)
    few = replace(spec, arms=spec.arms[:1], rounds=20, nodes="mean")
    made = run(few, tmp_path / "second", prepared=first, processes=1)
    again = run(few, tmp_path / "alone", processes=1)
    assert made.rewards.equals(again.rewards)
    assert made.prepared["source"]["prepared"] == spec.digest
    for changed, said in (
        ({"seed": 5}, r"seed \(0 there, 5 here\)"),
        ({"widths": (4, 30)}, r"widths \(\(5, 40\) there, \(4, 30\) here\)"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            run(replace(few, **changed), tmp_path / "no", prepared=first)
    tw.World.synthetic(items=600, users=40, dim=8, seed=9).save(tmp_path / "other")
    with pytest.raises(InvalidArgument, match="prepared must be a run on the same data"):
        run(replace(few, data=str(tmp_path / "other")), tmp_path / "no", prepared=first)
    told = (first / "prepared.json").read_text()
    (first / "prepared.json").write_text(told.replace(f'"treeward": "{tw.__version__}"', '"treeward": "0.0.9"'))
    with pytest.raises(InvalidArgument, match=r"prepared must be a run of this version.*of version 0\.0\.9"):
        run(few, tmp_path / "no", prepared=first)
    (first / "prepared.json").unlink()
    with pytest.raises(InvalidArgument, match="prepared to the end"):
        run(few, tmp_path / "no", prepared=first)
    with pytest.raises(InvalidArgument, match="prepared must be the folder of a run"):
        run(few, tmp_path / "no", prepared=tmp_path / "nowhere")


def test_a_world_is_not_refitted(world, tmp_path):
    with pytest.raises(InvalidArgument, match="worlds must be 1: there is one to try"):
        run(replace(small(world), worlds=2), tmp_path / "run")


def test_a_world_that_cannot_distinguish_policies_is_warned_about_first(outcome):
    assert warnings(outcome) == []
    poor = {**outcome.prepared, "aucs": [(0.474, 0.503)], "own_best": 0.202, "random": 0.201}
    told = warnings(outcome._replace(prepared=poor))
    assert [one.split(":")[0] for one in told] == ["Warning", "Warning"]
    assert "AUC 0.474 against 0.503" in told[0]
    [one] = warnings(outcome._replace(prepared={**outcome.prepared, "aucs": [(0.6, 0.5), (0.49, 0.51)]}))
    assert "1 of 2 worlds rank held-out events no better than popularity" in one
    page = render(outcome._replace(prepared=poor)).decode()
    assert page.split("<h1>")[1].index("no better than popularity") < page.split("<h1>")[1].index("</p>")


def test_reports_hold_tables_and_plots(outcome, world, tmp_path):
    page, picture, table = write_report(outcome, tmp_path / "report.html")
    text = page.read_text()
    for said in (
        "claim of the paper",
        "not distinguishable",
        "questions per user",
        "Cumulative regret",
        "Context-free ceiling",
        "8 dimensions",
        "scaled to length 1",
        "one fitted world, one tree and one set of item vectors",
    ):
        assert said in text
    assert "paper&#x27;s table 3" not in text  # which begins at round 100
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
    with pytest.raises(ArtefactExists, match=r"differs in seed \(0 there, 5 here\); choose another folder"):
        run(replace(spec, seed=5), folder)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(ArtefactExists, match="is not empty"):
        run(spec, tmp_path / "other")


def test_damaged_cells_and_cells_of_another_spec_are_ignored(outcome, world, tmp_path):
    folder, spec = tmp_path / "run", small(world)
    run(spec, folder, processes=1)
    cells = sorted((folder / "cells").iterdir())
    next(cells[0].glob("*.parquet")).write_bytes(b"PAR1")
    (cells[1] / "manifest.json").write_text("")
    (folder / "prepared.json").write_text('{"half')
    assert run(spec, folder, processes=1).rewards.equals(outcome.rewards)
    other = spec.to_toml().replace('policy = "hcb"', 'policy = "cb-leaf"')
    (folder / "spec.toml").write_text(other)
    with pytest.raises(InvalidArgument, match="16 of 16 cells are missing"):
        load(folder)
    with pytest.raises(ArtefactExists, match="holds another experiment"):
        run(Spec.from_toml(other), folder)
    users = next((folder / "world").glob("users-*.npy"))
    users.write_bytes(users.read_bytes()[:-64] + bytes(64))
    with pytest.raises(ArtefactCorrupt):
        run(spec, folder)


def test_a_failed_start_does_not_claim_the_folder(world, tmp_path):
    with pytest.raises(DataError):
        run(small(tmp_path / "nowhere"), tmp_path / "run")
    with pytest.raises(InvalidArgument, match="at most 600, the number of items"):
        run(small(world, once=True, rounds=601), tmp_path / "run")
    arms = tuple(arm for arm in REWARDS if arm.label == "LinUCB")
    run(replace(small(world), arms=arms), tmp_path / "run", processes=1)
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtefactExists, match="is not a folder"):
        run(small(world), tmp_path / "file")


def test_labels_with_special_characters_are_harmless(world, tmp_path):
    path = tmp_path / "spec.toml"
    arms = (Arm("x [/nope] [bold]y[/]", "hcb"), Arm("cost $x_1^{ and 5$", "flat"), Arm("</script>", "phcb"))
    spec = Spec("sensitivity", str(world), arms, users=1, rounds=5, repeats=1, budget=20, widths=(5, 40))
    path.write_text(spec.to_toml())
    told = cli("experiment", "run", path, "-o", tmp_path / "run")
    assert "x [/nope] [bold]y[/]" in told
    assert (tmp_path / "run" / "report.csv").exists()
    assert "<td></script>" not in (tmp_path / "run" / "report.html").read_text()


def test_clicks_are_compared_with_clicks(world, tmp_path):
    spec = small(world, readings=True, repeats=1)
    labels = ("LinUCB", "HUCB", "LinUCB, clicks", "HUCB, clicks")
    made = run(replace(spec, arms=tuple(a for a in spec.arms if a.label in labels)), tmp_path / "run", processes=1)
    told, earned = {one.arm: one for one in scores(made, 40)}, by_user(made, 40)
    assert told["LinUCB, clicks"].gain is None
    gap = earned["HUCB, clicks"].mean() - earned["LinUCB, clicks"].mean()
    assert told["HUCB, clicks"].gain == pytest.approx(gap)


def test_errors_come_back_from_workers():
    import multiprocessing

    with multiprocessing.get_context("spawn").Pool(1) as pool, pytest.raises(InvalidArgument, match="'hcb'"):
        pool.apply(Arm("a", "hbc").build, (50,))


def test_killed_runs_end_with_equal_results(outcome, world, tmp_path):
    folder, path = tmp_path / "run", tmp_path / "spec.toml"
    path.write_text(small(world).to_toml())
    coin = random.Random(0)
    for _ in range(8 if os.environ.get("TORTURE") else 2):
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


def test_a_spec_that_names_code_runs_none_of_it_when_checked(tmp_path):
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    Spec("x", "synthetic", (Arm("a", "flat"),), loader=f"{tmp_path}/evil.py:load").check()
    assert not (tmp_path / "ran").exists()


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
        "--budget", 20, "--items", tmp_path / "items.csv",
    )  # fmt: skip
    assert "LinUCB, clicks" in told
    assert "HMAB, authors' reading, per user" in told
    held = load(tmp_path / "run")
    assert not {"HMAB", "ICTRUCB"} & {arm.label for arm in held.spec.arms}
    assert len(held.prepared["users"]) == 5
    test = set(tw.load_dataset(tmp_path / "log.csv").users("test").to_list())
    ids = tw.World.load(tmp_path / "run" / "world").user_ids
    assert {ids[row] for row in held.prepared["users"]} <= test
    assert "Wrote" in cli("experiment", "report", tmp_path / "run", "-o", tmp_path / "page.html")
    assert "one where an experiment was run" in cli("experiment", "report", tmp_path, code=2)
    assert "did you mean 'pHUCB'" in cli(
        "experiment", "rewards", tmp_path / "log.csv", "-o", tmp_path / "no", "--without", "PHUCB", code=2
    )


def test_tuning_chooses_on_validation_users(world, tmp_path):
    plain = small(world)
    plain = replace(plain, arms=tuple(arm for arm in plain.arms if arm.label in ("LinUCB", "pHUCB")))
    spec = tuning(plain)
    assert spec.split == "validation"
    assert len(spec.arms) == 4 + 36
    made = tuned(plain, [spec.arms[2], spec.arms[8]])
    assert [arm.label for arm in made.arms] == ["LinUCB", "pHUCB"]
    assert made.arms[0].bandit_options == {"alpha": 0.5}
    assert made.arms[1].options == {"q": 10.0, "p": 0.1}
    made.check()


def test_tuning_rivals_tries_their_own_strengths(world):
    spec = tuning(replace(small(world), arms=tuple(arm for arm in RIVALS if not arm.prior)))
    tried = {}
    for arm in spec.arms:
        label, _, said = arm.label.partition(" | ")
        tried.setdefault(label, []).append(said)
    assert tried["popularity"] == [""]
    assert tried["XCB"] == ["strength 30", "strength 100", "strength 1000"]
    assert tried["SpannerGreedy"] == ["epsilon 0", "epsilon 0.02", "epsilon 0.05"]
    assert tried["MIPS-LinUCB"] == tried["Beam, no prior"] == [f"alpha {alpha:g}" for alpha in (0.1, 0.25, 0.5, 1)]
    assert tried["ENR"] == ["strength 0.1", "strength 0.3", "strength 1"]
    assert tried["MIPS-TS"] == ["v 0.05", "v 0.1", "v 0.2", "v 0.5"]
    plain = replace(spec, arms=tuple(arm for arm in RIVALS if arm.label == "XCB"))
    best = [arm for arm in spec.arms if arm.label == "XCB | strength 30"]
    assert tuned(plain, best).arms[0].options["strength"] == 30


def test_validation_users_of_a_world_are_not_its_test_users(world, tmp_path):
    plain = replace(small(world, users=40, rounds=5), arms=(Arm("LinUCB", "flat"),))
    seen = {split: run(replace(plain, split=split), tmp_path / split, processes=1).prepared["users"]
            for split in ("validation", "test")}  # fmt: skip
    assert len(seen["validation"]) == 8
    assert sorted(seen["validation"] + seen["test"]) == list(range(40))


def test_tune_writes_a_spec_that_runs(world, tmp_path):
    walks = ("{}", "CB-Category {}", "CB-Leaf {}", "H{}", "pH{}")
    gone = {walk.format(base) for walk in walks for base in ("UCB", "TS", "EG")} - {"TS", "HTS"}
    some = [word for label in sorted(gone) for word in ("--without", label)]
    told = cli("experiment", "tune", world, "-o", tmp_path / "tune", "--users", 4, "--rounds", 5, "--repeats", 1,
               "--preset", "bases", "--budget", 20, "--widths", "5,40", *some)  # fmt: skip
    assert "Best on 4 validation" in told
    assert "TS | v " in told
    made = Spec.from_toml((tmp_path / "tune" / "tuned.toml").read_text())
    assert [arm.label for arm in made.arms] == ["TS", "HTS"]
    assert (made.split, made.rounds) == ("test", 2_000)
    made.check()


@pytest.mark.skipif(not REFERENCE.exists(), reason="the reference run of the authors' code is not beside the project")
def test_reference_compares_with_the_authors_results(tmp_path):
    told = cli("experiment", "reference", REFERENCE, "--repeats", 1)
    assert told.count("PHCB") == 3
    assert "ConUCB" in told
    with pytest.raises(DataError, match="holds no world.npz"):
        compare(tmp_path, 1, lambda *_: None)
