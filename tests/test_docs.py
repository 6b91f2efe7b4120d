"""The words are true: examples run, commands and options exist and are documented, links lead somewhere."""

import importlib
import os
import re
import runpy
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
import typer.main

import treeward
from tests.commands import run
from treeward.cli.app import COMMANDS, app, load
from treeward.experiment.stream_arms import ARMS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


RUN = [page for page in PAGES[1:] if blocks(page, "python") or blocks(page, "console")]


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_python_and_commands_in_the_docs_run(page, tmp_path, monkeypatch):
    """Blocks of Python, and lines that start with `$ treeward`, run as they stand on the page, in one folder."""
    monkeypatch.chdir(tmp_path)
    space = {}
    found = re.findall(r"^```(python|console)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    with patch.dict(ARMS):  # a page adds one, which other tests must not meet
        for language, block in found:
            if language == "python":
                exec(compile(block, str(page), "exec"), space)
            else:
                for line in re.findall(r"^\$ treeward (.*)$", block, re.MULTILINE):
                    run(*shlex.split(line), cwd=tmp_path)


def test_everything_in_the_readme_runs(tmp_path, monkeypatch):
    """Its Python, then its commands as one shell would run them, on a port that is free."""
    monkeypatch.chdir(tmp_path)
    for block in blocks(ROOT / "README.md", "python"):
        exec(compile(block, "README.md", "exec"), {})
    lines = re.findall(r"^\$ (.*)$", "\n".join(blocks(ROOT / "README.md", "console")), re.MULTILINE)
    assert {line.split()[0] for line in lines} == {"treeward", "curl"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = "\n".join(lines).replace("treeward serve", f"treeward serve --port {port} --admin-port 0")
    done = subprocess.run(
        ["bash", "-euc", "trap 'kill $(jobs -p)' EXIT; curl() { command curl --fail \"$@\"; }\n"
         + script.replace(":8000", f":{port}")],
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count('"decision_id"') >= 3
    assert '"outcome":"recorded"' in done.stdout


def test_what_the_readme_says_to_make_is_there():
    """`make test` is what runs this; of the others it is known here that they exist and what they begin with."""
    told = set(re.findall(r"`?make ([a-z]+)", (ROOT / "README.md").read_text()))
    assert told >= {"demo", "test", "docs", "peers", "torture"}
    for target in told:
        subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_run(path, tmp_path):
    if path.name == "shop.py":  # waits for visitors: see test_the_shop
        return
    subprocess.run([sys.executable, path], cwd=tmp_path, check=True, capture_output=True)


def commands(command, name):
    yield name, command
    for part, sub in getattr(command, "commands", {}).items():
        yield from commands(sub, f"{name} {part}")


def test_every_command_and_option_is_documented():
    text = (ROOT / "docs" / "cli.md").read_text()
    every = [found for name in COMMANDS for found in commands(load(name), f"treeward {name}")]
    for name, command in [("treeward", typer.main.get_command(app)), *every]:
        if getattr(command, "commands", None) is None:
            assert f"## {name}\n" in text
        for parameter in command.params:
            for option in [*parameter.opts, *parameter.secondary_opts]:
                if option.startswith("--") and option != "--help":
                    assert f"`{option}`" in text, f"{name} {option}"


def test_every_option_has_a_help_text():
    for name in COMMANDS:
        for path, command in commands(load(name), f"treeward {name}"):
            bare = [one.name for one in command.params if len(getattr(one, "help", None) or "") < 8]
            assert not bare, f"{path}: {bare}"


def documented():
    """What docs/api.md lists: every path, with its members where only some are shown."""
    text = (ROOT / "docs" / "api.md").read_text()
    for path, options in re.findall(r"^::: (\S+)\n((?:    .*\n)*)", text, re.MULTILINE):
        members = re.search(r"members: \[(.*)\]", options)
        yield path, members and members[1].split(", ")


def public(module):
    if module is treeward:
        return treeward._HOME
    homes = {name: getattr(found, "__module__", "") for name, found in vars(module).items() if name[0] != "_"}
    return {name: home for name, home in homes.items() if home == module.__name__}


@pytest.mark.parametrize("module", ["treeward", "treeward.testing", "treeward.client"])
def test_every_public_name_is_in_the_api(module):
    listed = dict(documented())
    assert treeward._HOME.keys() == set(treeward.__all__)
    for name, home in public(importlib.import_module(module)).items():
        alone = {f"{module}.{name}", f"{home}.{name}"} & listed.keys()
        assert alone or (home in listed and name in (listed[home] or [name])), f"{module}.{name} is not in docs/api.md"


def test_every_api_entry_exists():
    for path, members in documented():
        try:
            found = importlib.import_module(path)
        except ModuleNotFoundError:
            found = getattr(importlib.import_module(path.rpartition(".")[0]), path.rpartition(".")[2])
        assert all(hasattr(found, member) for member in members or []), path


def test_figures_are_drawn_shown_and_small(tmp_path):
    script = runpy.run_path(str(ROOT / "docs" / "figures.py"))
    text = (ROOT / "docs" / "concepts.md").read_text()
    for name in script["FIGURES"]:
        assert f"](figures/{name}.svg)" in text
        assert 1_000 < (ROOT / "docs" / "figures" / f"{name}.svg").stat().st_size < 150_000
    drawn = script["save"]("tree", tmp_path).read_text()
    assert drawn == script["save"]("tree", tmp_path).read_text()  # no dates, no random ids
    assert all(f">{words}<" in drawn for words in ("root", "4 groups", "16 leaves"))


def test_every_page_has_a_place_in_the_site():
    nav = (ROOT / "mkdocs.yml").read_text()
    for page in PAGES[1:]:
        path = re.escape(str(page.relative_to(ROOT / "docs")))
        assert re.search(rf"^ +- (.+: )?{path}$", nav, re.MULTILINE), page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_local_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_source_files_named_in_the_docs_exist(page):
    for path in re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|sql))`", page.read_text()):
        assert any((folder / path).exists() for folder in (ROOT, ROOT / "src", ROOT / "src" / "treeward")), path


def test_readme_shows_the_two_commands():
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text
    assert "make test" in text
