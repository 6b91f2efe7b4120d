"""`treeward warm`: after it nothing is compiled any more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import run as cli

README = (Path(__file__).parents[2] / "README.md").read_text()
COUNTED = """
import sys
from numba.core import event

compiled = []

class Listener(event.Listener):
    def on_start(self, event):
        compiled.append(event.data["dispatcher"].py_func.__qualname__)

    def on_end(self, event):
        pass

event.register("numba:compile", Listener())
"""

CROWD = """
import treeward as tw
from treeward.data.synthetic import synthetic_catalogue

for options in ({}, {"repeats": False, "spare": 0.2}):
    explorer = tw.Explorer(synthetic_catalogue(300, dim=8, seed=0), seed=0, memory=1 << 22, **options)
    for turn in range(60):  # a history that needs more room, and editions of the crowd
        [made] = explorer.recommend([f"u{turn % 4}"])
        explorer.feedback({made.id: float(turn % 3 == 0)})
    assert explorer.publish() > 2
    explorer.recommend(["u1", "new"], 3)
    explorer.explain(made)
    explorer.inspect.health(users=3)
"""

pytestmark = pytest.mark.skipif("NUMBA_DISABLE_JIT" in os.environ, reason="nothing is compiled here")


def test_warm_compiles_all_that_a_first_recommendation_and_the_crowd_need(tmp_path):
    assert "Compiled in" in cli("warm")
    lines = README.split("```python\n")[1].split("```")[0]
    program = f"{COUNTED}\n{lines}\n{CROWD}\nprint(compiled)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.endswith("\n[]\n")


def test_warm_needs_a_place_for_kernels(monkeypatch):
    nowhere = {"folder": None, "writable": False, "compiled": False}
    monkeypatch.setattr("treeward.cli.doctor.kernels", lambda: nowhere)
    assert "set NUMBA_CACHE_DIR to a folder" in cli("warm", code=2)
