"""Adding a bandit, policy, loader or store to treeward takes one file and one line; tried in a copy of the package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import treeward

EXTEND = Path(__file__).parents[2] / "examples" / "extend"
SMALL = "--items 300 --users 3 --rounds 5 --dim 4 --budget 20 --policy hcb"
CASES = {
    "bandit": (
        "BANDITS",
        '"confident": "treeward.bandit.confident:Confident",',
        "from treeward.bandit import BANDITS\ntreeward.testing.check_bandit(BANDITS['confident']())",
        {f"simulate {SMALL} --bandit confident": "HCB(Confident)", "simulate --help": "confident"},
    ),
    "policy": (
        "TREE_POLICIES",
        '"two-step": "treeward.policy.two_step:TwoStep",',
        "from treeward.policy import POLICIES\ntreeward.testing.check_policy(POLICIES['two-step']())",
        {f"simulate {SMALL} --policy two-step": "TwoStep(LinUCB)", "simulate --help": "two-step"},
    ),
    "loader": (
        "LOADERS",
        '"clicks": "treeward.data.loaders.clicks:load",',
        "from treeward.data.loaders import LOADERS\n"
        "treeward.testing.check_loader(LOADERS['clicks'], '.', 'clicks.jsonl')",
        {
            "data inspect clicks.jsonl --loader clicks": "share of clicks                33.5%",
            "data inspect .": "share of clicks                33.5%",  # recognised by the name of its file
            "data inspect --help": "clicks",
        },
    ),
    "store": (
        "STORES",
        '"jsonl": "treeward.store.json_lines:JsonLinesStore",',
        "from treeward.store.opening import open_store\n"
        "treeward.testing.check_store(lambda: open_store('jsonl:events.jsonl'), durable=True)",
        {
            "store import jsonl:shop.jsonl log.parquet": "Added 3 events of 2 users",
            "store export jsonl:shop.jsonl exported": "3 events",
            "serve items --check --store jsonl:shop.jsonl": "events in jsonl:shop.jsonl",
        },
    ),
}


@pytest.mark.parametrize("kind", CASES)
def test_one_file_and_one_line_are_enough(kind, tmp_path):
    table, line, check, commands = CASES[kind]
    package = shutil.copytree(Path(treeward.__file__).parent, tmp_path / "treeward")  # with its compiled kernels
    module = line.split('"')[3].partition(":")[0]
    shutil.copyfile(EXTEND / f"{kind}.py", tmp_path / f"{module.replace('.', '/')}.py")
    registry = package / "core" / "registry.py"
    told = registry.read_text()
    assert told.count(f"\n{table} = {{\n") == 1
    registry.write_text(told.replace(f"\n{table} = {{\n", f"\n{table} = {{\n    {line}\n"))
    clicks = (f'{{"user": "u{n % 12}", "item": "i{n % 7}", "click": {int(n % 3 == 0)}, "ts": {n}}}' for n in range(200))
    (tmp_path / "clicks.jsonl").write_text("\n".join(clicks))
    log = {"user": ["ada", "bob", "ada"], "item": [0, 1, 2], "reward": [1.0, 0.0, 1.0], "time": [1.0, 2.0, 3.0]}
    pl.DataFrame(log).write_parquet(tmp_path / "log.parquet")
    treeward.Catalogue(range(4), np.eye(4)).save(tmp_path / "items")
    run(tmp_path, f"import treeward.testing\n{check}")
    for command, expected in commands.items():
        words = ["treeward", *command.split()]
        assert expected in run(tmp_path, f"import sys\nfrom treeward.cli import main\nsys.argv = {words}\nmain()")


def run(folder, code):
    """Run code with the copy in `folder`, there, and return what it prints."""
    environment = os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
