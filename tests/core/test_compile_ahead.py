"""A second process compiles what the first one needs later."""

import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from tests.waiting import wait_until
from treeward.core import compile_ahead
from treeward.data.synthetic import synthetic_catalogue
from treeward.engine.learn import replay_items
from treeward.engine.learn_paths import replay_paths
from treeward.explorer.explorer import Explorer
from treeward.policy import HCB
from treeward.policy.compile_learning import learn_from_items

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled here")

STARTED = """
from treeward.core.compile_ahead import compile_ahead
from treeward.engine.learn import replay_items
from treeward.policy.compile_learning import learn_from_items
print(compile_ahead(learn_from_items, replay_items))
"""


def _started(folder, **more):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder), "TREEWARD_COMPILE_AHEAD": "1", **more}
    words = [sys.executable, "-c", f"import treeward.core.compile_ahead as a; a.cores = lambda: 2{STARTED}"]
    return subprocess.run(words, env=environment, check=True, capture_output=True, text=True).stdout.strip()


def _kept(folder):
    return [path for path in Path(folder).rglob("learn.replay_items-*.nbc")]


def test_second_process_leaves_the_kernel_on_disk(tmp_path):
    assert _started(tmp_path) == "True"
    wait_until(lambda: _kept(tmp_path), "the kernel on disk")
    assert _started(tmp_path) == "False"  # nothing is left to compile


def test_explorer_compiles_ahead_what_its_policy_learns_with(monkeypatch):
    asked = []
    monkeypatch.setattr("treeward.policy.compile_learning.compile_ahead", lambda job, kernel: asked.append(kernel))
    shop = synthetic_catalogue(60, dim=4, seed=0)
    Explorer(shop)
    Explorer(shop, policy=HCB())
    assert asked == [replay_items, replay_paths]


def test_nothing_is_started_where_it_is_switched_off(tmp_path):
    assert _started(tmp_path, TREEWARD_COMPILE_AHEAD="0") == "False"


@pytest.mark.parametrize(
    ("target", "value"),
    [
        ("treeward.core.compile_ahead.cores", lambda: 1),
        ("multiprocessing.parent_process", lambda: object()),
        ("sys.executable", "/usr/bin/uwsgi"),
        ("sys.executable", None),
    ],
)
def test_nothing_is_started_where_it_cannot_help(target, value, monkeypatch):
    monkeypatch.setenv(compile_ahead.SWITCH, "1")
    monkeypatch.setattr(compile_ahead, "_is_missing", lambda kernel: True)
    monkeypatch.setattr(compile_ahead, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    monkeypatch.setattr("treeward.core.compile_ahead.cores", lambda: 2)
    monkeypatch.setattr(target, value)
    assert not compile_ahead.compile_ahead(learn_from_items, replay_items)


def test_failure_to_start_a_process_is_ignored(monkeypatch):
    def refuse(*_, **__):
        raise OSError("no more processes")

    monkeypatch.setenv(compile_ahead.SWITCH, "1")
    monkeypatch.setattr(compile_ahead, "_is_missing", lambda kernel: True)
    monkeypatch.setattr(compile_ahead, "cores", lambda: 2)
    monkeypatch.setattr(compile_ahead, "Popen", refuse)
    assert not compile_ahead.compile_ahead(learn_from_items, replay_items)
