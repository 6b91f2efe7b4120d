"""The words are true: examples run, commands and options exist and are documented, links lead somewhere."""

import importlib
import os
import re
import runpy
import shlex
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from unittest.mock import patch

import pytest
import typer.main

import treeward
from tests.commands import run
from treeward.cli.app import COMMANDS, app, load
from treeward.experiment.stream_arms import ARMS

ROOT = Path(__file__).parents[1]
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


WALKED = (ROOT / "README.md", ROOT / "docs" / "tutorial.md")
"""Pages that start a service."""
RUN = [page for page in PAGES if page not in WALKED and (blocks(page, "python") or blocks(page, "console"))]


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


class Shell:
    """What a reader's terminal does with the blocks of a page: one interpreter, and jobs in the background."""

    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.space, self.jobs, self.said = {}, [], ""
        self.env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    def run(self, language, block):
        block = block.replace(":8000", f":{self.port}")
        if language == "python":
            exec(compile(block, "page", "exec"), self.space)
            return
        for line in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
            if kill := re.fullmatch(r"kill (-9 )?%(\d)", line):
                running = [job for job in self.jobs if job.poll() is None]  # bash gives free numbers again
                job = running[int(kill[2]) - 1]
                os.killpg(job.pid, signal.SIGKILL if kill[1] else signal.SIGTERM)
                assert job.wait(60) == (-signal.SIGKILL if kill[1] else 0)
                continue
            line = line.replace("treeward serve", f"treeward serve --port {self.port} --admin-port 0")
            if line.endswith(" &"):
                words = shlex.split(line.removesuffix(" &"))
                self.jobs.append(subprocess.Popen(words, env=self.env, start_new_session=True))
                continue
            command = ["bash", "-euc", 'curl() { command curl --fail "$@"; }\n' + line]
            done = subprocess.run(command, env=self.env, capture_output=True, text=True, check=False)
            assert done.returncode == 0, (line, done.stdout, done.stderr)
            self.said += done.stdout

    def close(self):
        for job in self.jobs:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()


def walk(page, folder, monkeypatch):
    """Run the blocks of a page in their order, background services included; return what its commands printed."""
    monkeypatch.chdir(folder)
    shell = Shell()
    try:
        for language, block in re.findall(
            r"^```(python|console)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL
        ):
            shell.run(language, block)
    finally:
        shell.close()
    return shell.said


def test_everything_in_the_readme_runs(tmp_path, monkeypatch, capsys):
    said = walk(ROOT / "README.md", tmp_path, monkeypatch)
    assert said.count('"decision_id"') >= 3
    assert '"outcome":"recorded"' in said
    [shown] = blocks(ROOT / "README.md", "text")
    assert capsys.readouterr().out == shown


def test_the_readme_takes_a_minute_to_read():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_tutorial_can_be_walked(tmp_path, monkeypatch, capsys):
    said = walk(ROOT / "docs" / "tutorial.md", tmp_path, monkeypatch)
    printed = capsys.readouterr().out
    rates = [float(rate) for rate in re.findall(r"([\d.]+) clicks per visitor", printed)]
    assert len(rates) == 4
    assert rates[-1] > 1.5 * rates[0], rates  # the page says that it learns
    assert '"user":"visitor 7"' in said


def shell_lines(page):
    """Return the commands of `sh` blocks, which are shown and not run: one line each, without comments."""
    for block in blocks(page, "sh"):
        block = re.sub(r"<<'END'\n.*?\nEND\n", "\n", block, flags=re.DOTALL)
        for line in block.replace("\\\n", " ").splitlines():
            command = []
            for word in [*shlex.split(line, comments=True), ";"]:
                if word not in ("&", "&&", "|", "||", ";"):
                    command.append(word)
                    continue
                while command and re.fullmatch(r"[A-Za-z_]+=.*", command[0]):  # of the environment
                    command = command[1:]
                if command:
                    yield command
                command = []


KNOWN = {
    "docker",
    "python3",
    "install",
    "systemctl",
    "kubectl",
    "journalctl",
    "helm",
    "head",
    "git",
    "cp",
    "chmod",
    "cat",
}
KNOWN |= {"for", "done", "do", "runuser", "psql", "sudo", "tonight=$(date", "+%F)", "base64", "tr", "cd", "", "pip"}
"""Programs of the system, of which nothing is checked."""
SHOWN = [page for page in PAGES if blocks(page, "sh")]


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.name)
def test_commands_that_are_shown_but_not_run_are_accepted(page):
    """`treeward ...` is parsed as the shell would; a make target, an extra and a route exist."""
    for words in shell_lines(page):
        if words[0] == "treeward":
            accept(words[1:])
        elif words[0] == "make":
            targets = [word for word in words[1:] if "=" not in word]
            subprocess.run(["make", "-n", *targets], cwd=ROOT, check=True, capture_output=True)
        elif words[0] == "pip":
            for extras in re.findall(r"\[([\w,]+)\]", " ".join(words)):
                assert set(extras.split(",")) <= EXTRAS, words
        elif words[0] == "curl":
            source = "".join(path.read_text() for path in (ROOT / "src" / "treeward" / "serve").glob("*.py"))
            routes = re.findall(r'"(?:GET|POST|PUT|DELETE)", "([^"{]+)', source)
            [path] = {re.sub(r"https?://[^/]+|localhost:\d+|\?.*", "", word) for word in words if ":80" in word}
            assert any(path == route or (route[-1] == "/" != route and path.startswith(route)) for route in routes), (
                words
            )
        elif words[0] == "python":
            assert (ROOT / words[1]).exists() or words[1][0] == "-", words
        else:
            assert Path(words[0]).name in KNOWN | {"treeward"}, words


def accept(words):
    """Parse a command line without running it; a usage error is raised."""
    name, *rest = words
    command = load(name)
    while hasattr(command, "commands") and getattr(command, "commands", None):
        name, *rest = rest
        command = command.commands[name]
    command.make_context(name, rest)


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
