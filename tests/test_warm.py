"""`treeward warm`: after it nothing is compiled any more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import run as cli

README = (Path(__file__).parent.parent / "README.md").read_text()
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

pytestmark = pytest.mark.skipif("NUMBA_DISABLE_JIT" in os.environ, reason="nothing is compiled here")


def test_warm_compiles_all_that_a_first_recommendation_needs(tmp_path):
    assert "Compiled in" in cli("warm")
    lines = README.split("```python\n")[1].split("```")[0]
    program = f"{COUNTED}\n{lines}\nprint(compiled)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.endswith("\n[]\n")


def test_warm_needs_a_place_for_kernels(monkeypatch):
    nowhere = {"folder": None, "writable": False, "compiled": False}
    monkeypatch.setattr("treeward.cli.checkup.kernels", lambda: nowhere)
    assert "set NUMBA_CACHE_DIR to a folder" in cli("warm", code=1)
