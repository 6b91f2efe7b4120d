"""The workflows of .github run what the Makefile has, with few rights, on Pythons that the package names."""

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in FILES}
JOBS = {(name, job): found["jobs"][job] for name, found in WORKFLOWS.items() for job in found["jobs"]}


def matrix(job):
    found = job.get("strategy", {}).get("matrix", {})
    return found.get("include") or [{"python": version} for version in found.get("python", [])] or [{}]


def commands():
    for (name, title), job in JOBS.items():
        for step in job["steps"]:
            for line in step.get("run", "").splitlines():
                for values in matrix(job):
                    filled = re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda found, v=values: v[found[1]], line)
                    yield pytest.param(filled, id=f"{name}-{title}-{filled}")


@pytest.mark.parametrize("line", list(commands()))
def test_every_command_is_a_target_that_exists(line):
    words = shlex.split(line)
    assert words[0] == "make", line
    assert "PYTHON=python" in words
    done = subprocess.run([*words, "-n"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    sets = re.search(r"SETS=(\w+)", line)
    assert sets is None or f"tests/versions.py {sets[1]}\n" in done.stdout


def test_all_three_workflows_have_commands():
    assert {path.stem for path in FILES} == {"docs", "release", "tests"}
    found = {shlex.split(one.values[0])[1] for one in commands()}
    assert found == {"test", "versions", "ready", "package", "dist", "docs"}


def test_pythons_are_those_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = set(re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"])))
    used = {values["python"] for job in JOBS.values() for values in matrix(job) if values}
    assert used >= named
    systems = {job["runs-on"].partition("-")[0] for job in JOBS.values()}
    assert systems == {"ubuntu", "macos"}
    for job in ("linux", "macos"):
        assert len(matrix(JOBS["tests", job])) == 3


def test_actions_have_a_version():
    used = [step["uses"] for job in JOBS.values() for step in job["steps"] if "uses" in step]
    assert used
    assert [one for one in used if not re.fullmatch(r"[\w-]+/[\w-]+@v\d+(\.\d+\.\d+)?", one)] == []


def test_rights_are_given_to_the_jobs_that_need_them():
    assert all(found["permissions"] == {"contents": "read"} for found in WORKFLOWS.values())
    given = {title: job["permissions"] for title, job in JOBS.items() if "permissions" in job}
    assert given == {
        ("release", "publish"): {"id-token": "write"},
        ("docs", "deploy"): {"pages": "write", "id-token": "write"},
    }
    assert "secrets." not in "".join(path.read_text() for path in FILES)
    assert all(job["timeout-minutes"] <= 60 for job in JOBS.values())


def test_only_what_was_built_and_tried_is_published():
    steps = JOBS["release", "publish"]["steps"]
    assert [step["uses"].partition("@")[0] for step in steps] == [
        "actions/download-artifact",
        "pypa/gh-action-pypi-publish",
    ]
    assert JOBS["release", "publish"]["needs"] == "build"
    assert WORKFLOWS["release"][True] == {"push": {"tags": ["v*"]}}  # YAML reads "on" as true


def test_forms_ask_for_what_exists():
    for path in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")):
        form = yaml.safe_load(path.read_text())
        assert path.stem == "config" or {"name", "description", "body"} <= form.keys()
    for path in (ROOT / ".github").rglob("*.*"):
        for named in re.findall(r"`?((?:docs|tests)/[\w./-]+\.\w+|[A-Z]{5,}\.md)`?", path.read_text()):
            assert (ROOT / named).exists(), f"{path.name}: {named}"
