"""`benchmarks/peers.py`: what needs none of the peers."""

import json
from pathlib import Path

import numpy as np
import pytest

SIDE = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def peers():
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(SIDE / "side"))
    patch.syspath_prepend(str(SIDE))
    import peers

    yield peers
    patch.undo()


@pytest.fixture(scope="module")
def task(peers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    peers.export(300, 3, 12, seed=0).save(folder)
    return peers.Task.load(folder)


def test_a_task_is_what_was_exported(peers, task):
    again = peers.export(300, 3, 12, seed=0)
    for one, other in zip(task, again, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (task.users, task.items, task.rounds, task.vectors.shape[1]) == (3, 300, 12, 32)
    assert task.log[:, 0].min() == 3  # earlier users are others
    assert len(task.log) == peers.EARLIER * peers.SHOWN
    assert set(task.log[:, 2].tolist()) == {0, 1}


@pytest.mark.parametrize("kind", ["Chance", "Oracle", "Treeward", "Exact"])
def test_arms_play(peers, task, kind, monkeypatch):
    import ours
    import play

    monkeypatch.setattr(ours.Treeward, "memory", 1 << 22)
    made = play.play(getattr(ours, kind)(task), task, limit=1e9)
    assert made["decisions"] == 36
    least, most = task.chances.min(axis=1) * 12, task.chances.max(axis=1) * 12
    assert (np.array(made["earned"]) >= least - 1e-6).all()
    assert (np.array(made["earned"]) <= most + 1e-6).all()
    if kind == "Oracle":
        np.testing.assert_allclose(made["earned"], most, rtol=1e-6)


def test_who_is_too_slow_gives_up(task, peers, monkeypatch):
    import ours
    import play

    monkeypatch.setattr(play, "PATIENCE", 0.0)
    made = play.play(ours.Chance(task), task, limit=0.0)
    assert made["decisions"] == 1
    assert "earned" not in made


def test_recipes(peers):
    text = (SIDE / "peers.txt").read_text()
    made = peers.recipes(text)
    assert {side.environment for side in peers.SIDES} - {""} == set(made)
    assert len(made["obp"]) == 2  # what comes without its own needs, then those that install
    assert all("==" in word or word.startswith("--") for steps in made.values() for step in steps for word in step)


def test_a_table_tells_everything(peers):
    told = {
        "a, quick": {"10": {"each": 25e-6, "earned": [1.0, 3.0]}, "20": {"each": 0.0012, "earned": [2.0, 2.0]}},
        "b, slow": {"10": {"each": 12.0, "gave_up": 99.0}, "20": {"failed": "too slow on fewer items already"}},
        "c, broken": {"10": {"failed": "ImportError: no c"}, "20": {"failed": "ImportError: no c"}},
    }
    lines = peers.table(told, [10, 20]).splitlines()
    assert lines[0] == "|  | 10 items | 20 items |"
    assert lines[2] == "| a, quick | 2.0 ± 2.0, 25 µs | 2.0 ± 0.0, 1.2 ms |"
    assert lines[3] == "| b, slow | too slow, 12 s | - |"
    assert "not run: c, broken: ImportError: no c" in lines
    assert sum(line.startswith("not run") for line in lines) == 1 + len(peers.NOT_RUN)


def test_pages_are_filled(peers):
    page = (SIDE.parent / "docs" / "compare.md").read_text()
    for name in ("measured", "estimates"):
        made = peers.fill(page, name, "| new |")
        assert f"<!-- {name} -->\n| new |\n<!-- /{name} -->" in made
        assert peers.fill(made, name, "| new |") == made
        assert len(made) < len(page)
    with pytest.raises(ValueError, match="without the marks"):
        peers.fill("nothing", "measured", "")


def test_estimates_agree_or_say_why(peers):
    same = {"ips": 0.5, "snips": 0.4, "dr": 0.3, "seconds": 0.01}
    assert peers.estimates({"ours": same, "theirs": same}).endswith("largest difference: 0.0e+00")
    assert "no obp" in peers.estimates({"ours": same, "theirs": {"failed": "no obp"}})


def test_estimates_of_a_log(peers, tmp_path):
    import estimates

    peers.export_log(tmp_path, seed=0, decisions=400, items=20, users=10)
    out = tmp_path / "out.json"
    estimates.main("ours", str(tmp_path), str(out))
    log, told = np.load(tmp_path / "log.npz"), json.loads(out.read_text())
    weights = log["target"][log["user"], log["row"]] / log["propensity"]
    assert told["ips"] == pytest.approx(float((weights * log["reward"]).mean()))
    assert told["snips"] == pytest.approx(float((weights * log["reward"]).sum() / weights.sum()))


def test_whatever_breaks_is_told(peers, monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "OUT", tmp_path)
    made = peers.run("", "play.py", ["nowhere:Nothing", str(tmp_path), str(tmp_path / "x"), "1"], tmp_path / "x", 60)
    assert "Error" in made["failed"]
    assert peers.run("absent", "play.py", [], tmp_path / "x", 60)["failed"]


@pytest.fixture(scope="module")
def visited(peers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stream")
    peers.make_stream(folder / "run", 0, 120, 20)
    streamed = peers.export_stream(folder / "run", folder / "visits")
    return streamed, folder / "visits"


def test_peers_meet_the_same_visits_with_the_same_luck(peers, visited):
    import stream
    import task as tasks

    streamed, folder = visited
    task, visits = peers.Task.load(folder), np.load(folder / "visits.npy")

    class Popular(tasks.Once):
        def choose(self, user):
            best = np.argsort(-task.chances.mean(axis=0), kind="stable")
            return next(int(row) for row in best if row not in self.seen[user])

        def learn(self, user, row, reward):
            self.seen[user].add(row)

    made = stream.play(Popular(task), task, visits, limit=1e9)
    ours = streamed.visits.filter(arm="popularity list")
    assert made["visits"] == ours.height
    assert made["clicks"] == pytest.approx(ours["click"].mean())
    arm = tasks.Once(task)
    arm.seen[3] = set(range(100))
    assert min(arm.unseen(3)) >= 100
    assert "gave_up" in stream.play(Popular(task), task, visits, limit=0.0)


def test_a_stream_is_told_with_its_peers(peers, visited):
    streamed, _ = visited
    told = {
        "a, quick": {"clicks": 0.5, "half": 0.01, "last": 0.25, "each": 0.0012, "gap": [0.02, None], "visits": 9},
        "b, slow": {"gave_up": 99.0, "each": 2.0, "visits": 1},
        "c, broken": {"failed": "no c"},
    }
    lines = peers.stream_table(streamed, told).splitlines()
    assert lines[0] == "|  | clicks per visit | last third | the default minus it | time per visit |"
    assert "| a, quick | 0.500 ± 0.010 | 0.250 | +0.020 | 1.2 ms |" in lines
    assert "| b, slow | too slow, 2 s |  |  |  |" in lines
    assert lines[-1] == "not run: c, broken: no c"
    assert any(line.startswith("| Beam, offline prior | 0.") for line in lines)


def test_figures_of_several_seeds_are_averaged(peers):
    seeds = [{"clicks": c, "last": 0.1, "each": 1e-3, "less": 0.5 - c, "visits": 9} for c in (0.2, 0.4)]
    made = peers.average(seeds)
    assert made["clicks"] == pytest.approx(0.3)
    assert made["half"] == made["gap"][1] == pytest.approx(12.7062 * 0.1, rel=1e-4)  # t with one degree of freedom
    assert made["gap"][0] == pytest.approx(0.2)
    slow = {"gave_up": 99.0, "each": 2.0, "visits": 1, "less": None}
    assert peers.average([seeds[0], slow]) == slow
    assert peers.average(seeds[:1])["half"] is None


def test_peers_that_are_not_there_are_passed_over(peers):
    told = peers.stream_peers(None, 1.0, {"vw": "not installed"}, {"vw"})
    assert [one["failed"] for one in told.values()] == ["not installed"] * 2
