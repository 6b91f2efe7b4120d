"""The tables of README and docs are made of the results in docs/results, and runs that were killed can go on."""

import importlib
import json
import re
import shutil
import sys
from pathlib import Path

import pytest

import treeward as tw
from treeward.cli.app import load

ROOT = Path(__file__).parents[1]
REPRODUCE = ROOT / "benchmarks" / "reproduce"
RESULTS = ROOT / "docs" / "results"
NAMES = ("jobs", "collect", "cells", "paper", "practice", "tables", "__main__")


@pytest.fixture(scope="module")
def modules():
    """The modules of benchmarks/reproduce, which is no package, under their names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(REPRODUCE))
        for name in NAMES[:-1]:
            patch.delitem(sys.modules, name, raising=False)
        yield {name: importlib.import_module(name) for name in NAMES[:-1]} | {"main": load_main()}
        for name in NAMES[:-1]:
            sys.modules.pop(name, None)


def load_main():
    spec = importlib.util.spec_from_file_location("reproduce_main", REPRODUCE / "__main__.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def shop(tmp_path):
    """A data folder: a small world, under the name of a log."""
    tw.World.synthetic(items=300, users=12, dim=8, seed=0).save(tmp_path / "data" / "sports")
    return tmp_path


@pytest.fixture
def small(modules):
    words = ("treeward", "experiment", "rewards", "{sports}", "-o", "{out}", "--users", "8", "--rounds", "40")
    words += ("--repeats", "1", "--processes", "1")
    for arm in ("CB-Category", "CB-Leaf", "ConUCB", "HMAB", "ICTRUCB", "pHUCB"):
        words += ("--without", arm)
    return modules["jobs"].Job("rewards-sports", words, 1.0, against=("LinUCB",))


def test_tables_in_the_docs_are_those_of_the_results(modules):
    results = modules["tables"].read_results(RESULTS)
    found = set()
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        found |= set(re.findall(r"<!-- results: ([\w-]+) -->", text))
        assert modules["tables"].rendered(text, results) == text, f"{page}: run make reproduce"
    assert found <= set(modules["tables"].TABLES)


def test_every_result_says_where_it_comes_from(modules):
    jobs = modules["jobs"].JOBS
    for path in RESULTS.glob("*.json"):
        found = json.loads(path.read_text(encoding="utf-8"))
        job = jobs[found["job"]]
        assert found["job"] == path.stem
        assert found["command"] == job.shown
        assert set(found["data_sha256"]) == set(job.reads)
        assert all(re.fullmatch("[0-9a-f]{64}", one) for one in found["data_sha256"].values())
        assert isinstance(found["seed"], int)
        assert found["version"]
        assert found["figures"]


def test_a_run_that_was_killed_goes_on_and_finds_the_same(modules, small, shop, monkeypatch):
    main, out = modules["main"], [shop / "whole", shop / "cut"]
    monkeypatch.setitem(modules["jobs"].JOBS, small.name, small)
    data = main.found_data(None, [str(shop / "data")])
    assert main.run_all([small], data, out[0]) == []
    whole = json.loads((out[0] / "results" / f"{small.name}.json").read_text())
    shutil.copytree(out[0] / "runs", out[1] / "runs")
    cells = sorted((out[1] / "runs" / small.name / "cells").iterdir())
    for cell in cells[len(cells) // 2 :]:  # as if it had been killed half-way
        shutil.rmtree(cell)
    kept = {cell: cell.stat().st_mtime_ns for cell in cells[: len(cells) // 2]}
    assert main.run_all([small], data, out[1]) == []
    assert kept == {cell: cell.stat().st_mtime_ns for cell in kept}
    resumed = json.loads((out[1] / "results" / f"{small.name}.json").read_text())
    assert rewards(resumed) == rewards(whole)
    assert resumed["figures"]["gaps"] == whole["figures"]["gaps"]
    assert resumed["data_sha256"] == whole["data_sha256"]


def rewards(result):
    return {arm: found["reward"] for arm, found in result["figures"]["arms"].items()}


def test_a_finished_job_is_not_run_again_unless_the_data_changed(modules, small, shop, monkeypatch, capsys):
    main, out = modules["main"], shop / "out"
    monkeypatch.setitem(modules["jobs"].JOBS, small.name, small)
    data = main.found_data(None, [str(shop / "data")])
    main.run_all([small], data, out)
    first = json.loads((out / "results" / f"{small.name}.json").read_text())
    capsys.readouterr()
    main.run_all([small], data, out)
    assert "rewards-sports: treeward" not in capsys.readouterr().out
    monkeypatch.setattr(main, "version", lambda: "0.1.0, source 0123456789")
    main.run_all([small], data, out, keep=True)
    assert json.loads((out / "results" / f"{small.name}.json").read_text()) == first
    shutil.rmtree(shop / "data" / "sports")
    tw.World.synthetic(items=300, users=12, dim=8, seed=1).save(shop / "data" / "sports")
    main.run_all([small], data, out)
    second = json.loads((out / "results" / f"{small.name}.json").read_text())
    assert rewards(second) != rewards(first)
    assert second["version"] == "0.1.0, source 0123456789"
    assert second["data_sha256"] != first["data_sha256"]


def test_a_job_that_fails_is_reported_and_those_after_it_are_left_out(modules, shop, monkeypatch, capsys):
    main = modules["main"]
    jobs = modules["jobs"]
    bad = jobs.Job("bad", ("treeward", "experiment", "rewards", "{sports}", "-o", "{out}", "--users", "0"), 1.0)
    after = jobs.Job(
        "after", ("treeward", "experiment", "rewards", "{sports}", "-o", "{out}", "--prepared", "{run:bad}"), 1.0
    )
    for job in (bad, after):
        monkeypatch.setitem(jobs.JOBS, job.name, job)
    assert main.run_all([bad, after], main.found_data(None, [str(shop / "data")]), shop / "out") == ["bad", "after"]
    told = capsys.readouterr().out
    assert "bad: failed with exit status 2" in told
    assert "after: left out, bad failed" in told
    assert not (shop / "out" / "results" / "bad.json").exists()


def test_a_crash_is_no_missed_target(modules, tmp_path, monkeypatch):
    """A benchmark that misses a target exits with 1, as one that crashes does."""
    jobs, main = modules["jobs"], modules["main"]
    for name, last, counts in (("missed", "sys.exit(1)", True), ("crashed", "raise OSError('no disk')", False)):
        (tmp_path / f"{name}.py").write_text(f"import sys\nprint('half a table')\n{last}\n")
        job = jobs.Job(name, ("python", str(tmp_path / f"{name}.py")), 1.0, jobs.LINES, timed=True)
        monkeypatch.setitem(jobs.JOBS, name, job)
        assert main.run_all([job], {}, tmp_path / "out") == ([] if counts else [name])


def test_results_that_cannot_be_read_do_not_stop_other_jobs(modules, tmp_path, monkeypatch, capsys):
    jobs, main = modules["jobs"], modules["main"]
    made = []
    for name, kind in (("odd", jobs.PEERS), ("fine", jobs.LINES)):
        (tmp_path / f"{name}.py").write_text("print('| one | cell |\\n|---|---|\\n| only | two |')\n")
        made.append(jobs.Job(name, ("python", str(tmp_path / f"{name}.py")), 1.0, kind))
        monkeypatch.setitem(jobs.JOBS, name, made[-1])
    assert main.run_all(made, {}, tmp_path / "out") == ["odd"]
    assert "odd: its results cannot be read" in capsys.readouterr().out


def test_jobs_are_left_out_with_those_whose_folders_they_use(modules, monkeypatch, capsys):
    jobs, main = modules["jobs"], modules["main"]
    base = jobs.Job("base", ("treeward", "{sports}"), 1.0)
    user = jobs.Job("user", ("treeward", "{run:base}"), 1.0)
    for job in (base, user):
        monkeypatch.setitem(jobs.JOBS, job.name, job)
    assert user.reads == ("sports",)
    assert not main.left_out(user, {"sports": ROOT}, {"base"})
    assert main.left_out(user, {}, set())
    assert "user: left out, the job base is not here" in capsys.readouterr().out


def test_files_behind_links_count_for_a_checksum(modules, tmp_path):
    sums = set()
    for content in ("a", "b"):
        (tmp_path / content).mkdir()
        (tmp_path / content / "log.csv").write_text(content)
        (tmp_path / f"data-{content}").mkdir()
        (tmp_path / f"data-{content}" / "linked").symlink_to(tmp_path / content)
        sums.add(modules["main"].checksum(tmp_path / f"data-{content}"))
    assert len(sums) == 2


def test_figures_that_are_words_are_none(modules):
    told = (
        "| | c | l | d | t |\n|---|---|---|---|---|\n| a | 0.5 ± 0.1 | 0.4 | +0.1 | 1 ms |\n| b | too slow, 2 s | | | |"
    )
    made = modules["collect"]._printed_arms(told)
    assert made["a"]["clicks"] == (0.5, 0.1)
    assert made["b"]["clicks"] is None


def test_a_table_without_its_closing_mark_is_reported(modules):
    with pytest.raises(ValueError, match="closing mark"):
        modules["tables"].rendered("<!-- results: stream -->\n", {})


@pytest.mark.parametrize(
    ("given", "said"),
    [([], "name a folder"), (["nowhere"], "nowhere is not there"), (["sport=."], "sport is none of sports")],
)  # fmt: skip
def test_data_that_is_not_there_is_refused(modules, tmp_path, monkeypatch, capsys, given, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["reproduce", *(word for one in given for word in ("--data", one))])
    with pytest.raises(SystemExit) as stopped:
        modules["main"].main()
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


def test_the_time_left_follows_the_jobs_that_are_done(modules, monkeypatch):
    jobs, main = modules["jobs"], modules["main"]
    one, two = (jobs.Job(name, (), minutes) for name, minutes in (("one", 10.0), ("two", 30.0)))
    for job in (one, two):
        monkeypatch.setitem(jobs.JOBS, job.name, job)
    assert main.left([one, two], {}) == "about 40 min"
    assert main.left([two], {"one": {"minutes": 20.0}}) == "about 60 min"
    assert main.left([two], {"one": {"minutes": 40.0}}) == "about 2.0 h"


def test_every_job_is_a_command_that_exists(modules):
    """Parse each command as the shell would, without running it."""
    for job in modules["jobs"].JOBS.values():
        program, *words = job.command
        if program == "python":
            assert (ROOT / words[0]).exists(), job.name
        else:
            assert program == "treeward"
            group, name, *rest = words
            load(group).commands[name].make_context(name, rest)  # raises a usage error


def test_jobs_come_with_those_whose_folders_they_use(modules, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["reproduce", "--list", "--only", "rivals-sports"])
    assert modules["main"].main() == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == ["rewards-sports", "frontier-sports", "rivals-sports", "all"]


def test_a_job_runs_after_those_whose_folders_it_uses(modules):
    names = list(modules["jobs"].JOBS)
    for job in modules["jobs"].JOBS.values():
        assert all(names.index(one) < names.index(job.name) for one in job.after)
    assert modules["jobs"].JOBS["rivals-sports"].after == ("frontier-sports",)


def test_a_table_without_results_keeps_its_earlier_figures(modules):
    text = "<!-- results: stream -->\n\n| | sports |\n|---|---|\n| random | 0.2 |\n\n<!-- /results -->"
    assert modules["tables"].rendered(text, {}) == text
    empty = text.replace("0.2", "not run")
    assert "online popularity" in modules["tables"].rendered(empty, {})


def test_the_readme_has_no_missing_figures():
    assert "not run" not in (ROOT / "README.md").read_text()
