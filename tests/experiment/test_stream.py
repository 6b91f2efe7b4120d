"""`treeward experiment stream`: a shop from its first day."""

import json
import re
import signal
import subprocess
import time
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.special import stdtrit

import treeward as tw
from tests.commands import TREEWARD
from tests.commands import run as cli
from treeward.core.errors import ArtefactExists, ExtraMissing, InvalidArgument
from treeward.experiment import stream
from treeward.experiment.stream import Stream, Streamed, load_stream, run_stream
from treeward.experiment.stream_arms import ARMS, BEAM, LIST, DailyALS, Explored, OnlinePopularity, StreamSetup
from treeward.experiment.stream_report import write_stream
from treeward.experiment.stream_summary import arm_summaries, by_day, by_visit, gap, tidy
from treeward.simulate.arrivals import arrivals


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    path = tmp_path_factory.mktemp("stream") / "world"
    tw.World.synthetic(items=120, users=60, dim=6, seed=0).save(path)
    return path


@pytest.fixture(scope="module")
def spec(world):
    return Stream(str(world), vectors="own", users=25, days=4, repeats=2, batch=5)


@pytest.fixture(scope="module")
def folder(spec, tmp_path_factory):
    place = tmp_path_factory.mktemp("stream") / "run"
    run_stream(spec, place, processes=1)
    return place


@pytest.fixture(scope="module")
def streamed(folder):
    return load_stream(folder)


# --- arrivals --------------------------------------------------------------------------------------------------------


# --- arms ------------------------------------------------------------------------------------------------------------


def test_online_popularity_draws_as_thompson_sampling_over_all_items():
    shows, clicks = [3, 3, 0, 0, 0, 12], [2, 2, 0, 0, 0, 5]
    arm = OnlinePopularity(6, 6_000, seed=0, strength=4.0)
    visitor = 0
    for row in range(6):
        for at in range(shows[row]):
            arm.learn(np.array([visitor]), np.array([row]), np.array([at < clicks[row]]))
            visitor += 1
    rate = (sum(clicks) + 1) / (sum(shows) + 10)
    a, b = 4 * rate + np.array(clicks), 4 * (1 - rate) + np.array(shows) - np.array(clicks)
    naive = np.bincount(np.random.default_rng(0).beta(a, b, (40_000, 6)).argmax(axis=1), minlength=6) / 40_000
    found = np.bincount(arm.choose(np.arange(100, 6_000)), minlength=6) / 5_900
    np.testing.assert_allclose(found, naive, atol=0.025)
    arm.learn(np.full(5, 99), np.array([0, 1, 2, 3, 5]), np.zeros(5, dtype=np.bool_))
    assert arm.choose(np.array([99])).tolist() == [4]  # all others were seen


def test_daily_als_shows_popular_items_to_new_users():
    pytest.importorskip("implicit")
    arm = DailyALS(30, 12, 2, seed=0)
    arm.morning(1)
    random = arm.choose(np.arange(12))
    assert len(set(random.tolist())) > 3  # nothing is known on the first day
    for user in range(8):  # two circles, each with its own five items
        mine = np.arange(5) + 5 * (user % 2)
        rows = mine[mine != mine[user % 5]]
        arm.learn(np.full(4, user), rows, np.ones(4, dtype=np.bool_))
    arm.learn(np.array([8, 9, 10]), np.array([0, 0, 0]), np.ones(3, dtype=np.bool_))
    arm.learn(np.full(10, 10), np.arange(10, 20), np.zeros(10, dtype=np.bool_))
    arm.morning(2)
    assert arm.choose(np.array([11])).tolist() == [0]  # the most clicks, and row 0 is an item as any other
    assert [int(row) // 5 for row in arm.choose(np.array([2, 3]))] == [0, 1]


@pytest.mark.parametrize("crowd", [True, False])
def test_an_explorer_plays_as_it_would_serve(folder, crowd):
    """With the crowd, editions come by themselves, as rewards come."""
    _, stage = stream.open_setup(str(folder))
    player = Explored(stage._replace(longest=9), 0, tw.Beam(), crowd=crowd)
    visits = arrivals(len(stage.users), 3, most=9, seed=0)
    rows, clicks, _ = stream.play(player, visits, stage, 5)
    assert len(rows) == len(clicks) == len(visits.user) > 100
    assert player.scores > 0
    made = player.choose(np.array([0]))
    assert 0 <= made[0] < stage.items
    learned = player._explorer.crowd
    assert learned is None if not crowd else learned.provenance["edition"] > 1 and learned.times.sum() > 50


# --- runs ------------------------------------------------------------------------------------------------------------


def test_every_arm_serves_the_same_visits_and_repeats_nothing(streamed, spec):
    assert streamed.visits.columns == ["arm", "repeat", "day", "user", "visit", "row", "click"]
    shown = streamed.visits.select("arm", "repeat", "user", "row")
    assert shown.n_unique() == shown.height
    assert set(streamed.visits["arm"]) == set(ARMS)
    for repeat in range(2):
        mine = [streamed.visits.filter(arm=arm, repeat=repeat).select("day", "user", "visit") for arm in ARMS]
        assert all(one.equals(mine[0]) for one in mine)
    assert streamed.cells["seconds"].min() >= 0
    counted = streamed.cells.filter(pl.col("scores").is_not_null())["arm"].unique().to_list()
    alone = {"HCB", "pHCB", BEAM, "Beam, offline prior"}
    assert set(counted) == alone | {"HCB, crowd", "pHCB, crowd", "Beam, crowd", "Beam, prior and crowd"}


def test_lists_and_clicks_follow_the_world(streamed, folder, spec):
    _, stage = stream.open_setup(str(folder))
    visits = spec.arrivals(len(stage.users), stage.items, 1)
    listed = streamed.visits.filter(arm=LIST, repeat=1)
    chances = np.stack([stage.world.probabilities(int(user)) for user in stage.users])
    best = np.argsort(-chances.mean(axis=0))
    assert listed.filter(visit=1)["row"].unique().to_list() == [best[0]]
    own = streamed.visits.filter(arm="own best", repeat=1)
    order = np.argsort(-chances, axis=1, kind="stable")
    np.testing.assert_array_equal(own["row"], order[own["user"], own["visit"] - 1])
    for one in (listed, own):
        np.testing.assert_array_equal(one["click"], visits.luck < chances[one["user"], one["row"]])
    assert own["click"].mean() > listed["click"].mean() > streamed.visits.filter(arm="random")["click"].mean()


def test_the_same_spec_gives_the_same_table(spec, streamed, tmp_path):
    again = run_stream(spec, tmp_path / "again", processes=1)
    assert again.visits.equals(streamed.visits)
    other = run_stream(replace(spec, seed=1, arms=("random",)), tmp_path / "other", processes=1)
    mine = streamed.visits.filter(arm="random")
    assert mine.height != other.visits.height or not mine.equals(other.visits)


def test_a_killed_run_goes_on_where_it_stopped(spec, world, streamed, tmp_path):
    folder = tmp_path / "run"
    words = [TREEWARD, "experiment", "stream", world, "-o", folder, "--vectors", "own", "--users", "25", "--days", "4",
             "--repeats", "2", "--batch", "5", "--processes", "1"]  # fmt: skip
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while len(list(folder.glob("cells/*/manifest.json"))) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = {one: one.stat().st_mtime_ns for one in folder.glob("cells/*/manifest.json")}
    assert 3 <= len(kept) < 18
    with pytest.raises(InvalidArgument, match="cells are missing"):
        load_stream(folder)
    damaged = sorted(kept)[0]
    damaged.write_text("{}")
    assert run_stream(spec, folder, processes=1).visits.equals(streamed.visits)
    assert all(path.stat().st_mtime_ns == at for path, at in kept.items() if path != damaged)


def test_a_finished_run_takes_more_arms_and_repeats(spec, streamed, tmp_path):
    folder = tmp_path / "run"
    run_stream(replace(spec, arms=("random", BEAM), repeats=1), folder, processes=1)
    assert not (folder / "prior").exists()
    kept = {one: one.stat().st_mtime_ns for one in folder.glob("cells/*/manifest.json")}
    assert len(kept) == 2
    more = run_stream(replace(spec, arms=("random", BEAM, "Beam, offline prior")), folder, processes=1)
    assert all(path.stat().st_mtime_ns == at for path, at in kept.items())
    for arm in more.spec.arms:
        assert more.visits.filter(arm=arm).equals(streamed.visits.filter(arm=arm))


def test_a_folder_of_something_else_is_refused(spec, folder, tmp_path):
    with pytest.raises(ArtefactExists, match="differs in days"):
        run_stream(replace(spec, days=5), folder)
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ArtefactExists, match="is not empty"):
        run_stream(spec, tmp_path)
    with pytest.raises(InvalidArgument, match="one where an experiment was run"):
        load_stream(tmp_path)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"days": -1}, "days"),
        ({"days": 40_000}, "days"),
        ({"users": 1}, "users"),
        ({"visits": 0.2}, "visits"),
        ({"tail": 1}, "tail"),
        ({"training": 1.0}, "training"),
        ({"batch": 0}, "batch"),
        ({"repeats": 0}, "repeats"),
        ({"seed": -1}, "seed"),
        ({"dim": 0}, "dim"),
        ({"arms": ()}, "at least one"),
        ({"arms": ("Beam", "Beam")}, "none of them twice"),
        ({"arms": ("beam",)}, "did you mean 'Beam'"),
        ({"vectors": "click"}, "did you mean 'clicks'"),
        ({"vectors": "clicks"}, "own: a world brings its vectors"),
        ({"loader": "movilens"}, "did you mean 'movielens'"),
        ({"training": 0.001}, "leaves some of the world's 60 users for training"),
        ({"training": 0.98}, "at least 2 users"),
    ],
)
def test_what_cannot_be_run_is_refused(spec, tmp_path, bad, why):
    with pytest.raises(InvalidArgument, match=why):
        run_stream(replace(spec, **bad), tmp_path / "run", processes=1)
    assert not (tmp_path / "run" / "cells").exists()


def test_als_is_left_out_without_its_extra(spec, world, tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "able_als", lambda: False)
    with pytest.raises(ExtraMissing, match="als"):
        run_stream(spec, tmp_path / "run")
    told = cli("experiment", "stream", world, "-o", tmp_path / "run", "--vectors", "own", "--users", 5, "--days", 2,
               "--repeats", 1, "--without", "HCB", "--without", "pHCB", width=160)  # fmt: skip
    assert "ALS, daily is left out" in told
    assert load_stream(tmp_path / "run").spec.arms == tuple(
        arm for arm in ARMS if arm not in ("ALS, daily", "HCB", "pHCB")
    )


# --- logs ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Sequences in which half of the users like the first half of the items, and attributes that say which half."""
    random = np.random.default_rng(0)
    place = tmp_path_factory.mktemp("log")
    lines = [
        f"{user} " + " ".join(map(str, random.choice(40, 8, replace=False) + 40 * (user % 2))) for user in range(90)
    ]
    (place / "sequences.txt").write_text("\n".join(lines) + "\n")
    attributes = {item: [int(item // 40), 100 + item % 7] for item in range(80)}
    (place / "item2attributes.json").write_text(json.dumps(attributes))
    return place


def test_the_command_runs_on_a_log_and_writes_a_report(log, tmp_path):
    pytest.importorskip("torch")
    out = tmp_path / "run"
    words = ("experiment", "stream", log, "-o", out, "--users", 20, "--days", 3, "--dim", 6, "--repeats", 1, "--visits",
             6, "--arm", "random", "--arm", "Beam", "--arm", "popularity list")  # fmt: skip
    told = cli(*words, "--vectors", "attributes", width=160)
    assert "Clicks per visit: 20 users" in told
    assert re.search(r"^ popularity list +0\.\d{3} ± \.\d{3} +0\.\d{3} +[+-]0\.\d{3} ± \.\d{3} ", told, re.MULTILINE)
    page = (out / "report.html").read_text()
    for word in ("A shop from its first day", "item attributes alone", "over Beam", "visit of the user", "17+"):
        assert word in page
    assert (out / "report.png").read_bytes().startswith(b"\x89PNG")
    assert pl.read_csv(out / "report.csv")["arm"].to_list() == ["random", "Beam", "popularity list"]
    assert pl.read_csv(out / "days.csv").height == 9
    assert pl.read_parquet(out / "visits.parquet").height == load_stream(out).visits.height
    stage = load_stream(out).prepared
    assert (stage["users"], stage["training_users"], stage["items"]) == (20, 45, 80)
    assert "differs in vectors" in cli(*words, "--vectors", "clicks", code=2)


def test_training_users_do_not_visit(log, tmp_path):
    pytest.importorskip("torch")
    spec = Stream(str(log), users=1_000, days=2, dim=6, repeats=1, arms=("random",))
    made = run_stream(spec, tmp_path / "run", processes=1)
    _, stage = stream.open_setup(str(tmp_path / "run"))
    train = tw.Interactions.load(tmp_path / "run" / "training")
    visitors = set(stage.world.user_ids[stage.users].to_list())
    assert len(visitors) == made.prepared["users"] == 45
    assert visitors.isdisjoint(train.users.to_list())
    # Vectors know nothing of the visitors' events.
    shop = tw.svd_vectors(train, tw.load_dataset(log).catalogue, 6, seed=0)
    np.testing.assert_array_equal(stage.world.catalogue.vectors, shop.vectors)


@pytest.mark.parametrize(
    ("vectors", "why"), [("attributes", "no attributes"), ("text", "no titles"), ("own", "no vec")]
)
def test_vectors_without_their_source_are_refused(tmp_path, vectors, why):
    pytest.importorskip("torch")
    (tmp_path / "sequences.txt").write_text("\n".join(f"{user} {user % 7} {user % 5 + 10}" for user in range(20)))
    with pytest.raises(InvalidArgument, match=why):
        run_stream(Stream(str(tmp_path), vectors=vectors, arms=("random",)), tmp_path / "run", processes=1)


# --- summaries -------------------------------------------------------------------------------------------------------


def made_up(repeats, arms=(BEAM, LIST)):
    """Six visits of three users; Beam clicks on the first two, the list on all but the last (in even repeats)."""
    rows = []
    for repeat in range(repeats):
        for arm in arms:
            for at in range(6):
                click = at < 2 if arm == BEAM else at < 5 + repeat % 2
                row = at % 3 if arm == BEAM else 0
                rows.append((arm, repeat, at // 3 + 1, at % 3, at // 3 + 1, row, click))
    names = ["arm", "repeat", "day", "user", "visit", "row", "click"]
    visits = pl.DataFrame(rows, schema=names, orient="row", schema_overrides={"day": pl.Int16})
    scores = [None, 2.0] * repeats if len(arms) > 1 else [None]
    cells = pl.DataFrame(
        {"arm": list(arms) * repeats, "scores": scores, "seconds": [6e-6] * len(arms) * repeats},
        schema_overrides={"scores": pl.Float64},
    )
    return Streamed(Stream("x", arms=arms, repeats=repeats), {"items": 10}, visits, cells)


def test_several_repeats_have_t_intervals():
    beam, listed = arm_summaries(made_up(2))
    assert beam.clicks[:2] == pytest.approx((2 / 6, 0.0))
    assert listed.clicks.mean == pytest.approx(5.5 / 6)
    half = stdtrit(1, 0.975) * np.std([5 / 6, 1], ddof=1) / 2**0.5
    assert listed.clicks.half == listed.over_beam.half == pytest.approx(half)
    assert listed.over_beam.mean == pytest.approx(3.5 / 6)
    assert (beam.over_beam, listed.over_list) == (None, None)
    assert gap(made_up(2), LIST, BEAM)[:2] == listed.over_beam[:2]
    assert beam.over_list.mean == pytest.approx(-3.5 / 6)
    assert (beam.last.mean, listed.last.mean) == (0.0, pytest.approx(0.75))
    assert (beam.shown, beam.often, listed.shown) == pytest.approx((0.3, 0.0, 0.1))
    assert (beam.scores, listed.scores) == (None, 2.0)
    assert beam.microseconds == pytest.approx(1.0)


def test_one_repeat_has_a_bootstrap_over_users():
    beam, listed = arm_summaries(made_up(1))
    assert beam.clicks.mean == pytest.approx(2 / 6)
    # Of three users two click once in two visits: a resampled rate is the mean of three of (0.5, 0.5, 0).
    assert 0.1 < beam.clicks.half < 0.3
    assert listed.over_beam.mean == pytest.approx(0.5)
    alone = made_up(1)
    one = alone._replace(visits=alone.visits.filter(user=0))
    assert arm_summaries(one)[0].clicks == (0.5, None, None)
    assert arm_summaries(made_up(1, (BEAM,)))[0].over_list is None


def test_means_by_day_and_by_visit(streamed):
    days = by_day(made_up(2))
    assert days.filter(arm=BEAM)["clicks"].to_list() == pytest.approx([2 / 3, 0])
    assert days["visits"].to_list() == [3.0] * 4
    found = by_visit(streamed)
    assert found["arm"].unique(maintain_order=True).to_list() == list(ARMS)
    mine = streamed.visits.filter((pl.col("arm") == "random") & pl.col("visit").is_between(3, 4))
    means = mine.group_by("repeat").agg(pl.mean("click"))["click"].to_numpy()
    assert found.filter(arm="random", visit="3-4")["clicks"].to_list() == pytest.approx([means.mean()])
    assert tidy(streamed)["arm"].to_list() == list(ARMS)


def test_a_report_of_several_repeats_names_its_seeds(streamed, tmp_path):
    paths = write_stream(streamed, tmp_path)
    page = paths[0].read_text()
    assert "95 % interval over 2 seeds" in page
    assert all(arm in page and ARMS[arm].what.split("'")[0] in page for arm in ARMS)
    assert all(path.stat().st_size > 100 for path in paths)


def test_every_arm_has_one_row(spec, tmp_path, monkeypatch):
    from treeward.experiment.stream_arms import Arm, Listed

    def make(stage: StreamSetup, seed: int):
        return Listed(-stage.popular, len(stage.users))

    monkeypatch.setitem(ARMS, "worst", Arm("worst", "the least popular items", make))
    made = run_stream(replace(spec, arms=("worst", "random"), repeats=1), tmp_path / "run", processes=1)
    worst, random = arm_summaries(made)
    assert worst.clicks.mean < random.clicks.mean
