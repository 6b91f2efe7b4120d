"""Locks between processes, and what is said on a system that has none."""

import os
import subprocess
import sys

import pytest

from treeward.core.locks import free_byte, lock_byte, lock_whole

ELSEWHERE = """
import sys
from treeward.core.locks import lock_byte, lock_whole
with open(sys.argv[1], "r+") as file:
    print(lock_byte(file.fileno(), int(sys.argv[2])), lock_whole(file))
"""


def elsewhere(path, at):
    """Return whether another process gets the lock of a byte, and of the whole file."""
    done = subprocess.run([sys.executable, "-c", ELSEWHERE, path, str(at)], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_other_processes_are_kept_out_until_a_lock_is_given_back(tmp_path):
    path = tmp_path / "lock"
    with path.open("w") as file:
        assert lock_byte(file.fileno(), 1 << 50)
        assert elsewhere(path, 1 << 50) == ["False", "True"]
        assert elsewhere(path, 7) == ["True", "True"]
        free_byte(file.fileno(), 1 << 50)
        assert lock_whole(file)
        assert elsewhere(path, 1 << 50) == ["True", "False"]
    assert elsewhere(path, 1 << 50) == ["True", "True"]


def test_a_folder_can_be_locked(tmp_path):
    first, second = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    assert lock_whole(first)
    assert not lock_whole(second)
    os.close(first)
    assert lock_whole(second)
    os.close(second)


# What Python does not have on Windows and treeward uses.
WINDOWS = """
import sys
sys.modules.update(dict.fromkeys(("fcntl", "termios", "resource")))
"""
LIBRARY = """
import treeward
from treeward.core.errors import TreewardError
refused = 0
for name in treeward.__all__:
    try:
        getattr(treeward, name)
    except TreewardError as error:
        assert str(error).startswith("treeward needs Linux or macOS"), (name, error)
        refused += 1
assert refused > 20, refused
import treeward.client
print(treeward.__version__)
"""
COMMANDS = """
import contextlib, io
from treeward.cli import app
for line in ("--help", "--version"):
    sys.argv = ["treeward", *line.split()]
    with contextlib.redirect_stdout(io.StringIO()):
        assert app.run() == 0, line
for name in app.COMMANDS:
    sys.argv = ["treeward", name, *{"serve": ["items.npy"], "simulate": []}.get(name, ["--help"])]
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        status = app.run()
    assert status == 0 or "treeward needs Linux or macOS" in said.getvalue(), (name, said.getvalue())
    print(name, status)
"""


@pytest.mark.parametrize("program", [LIBRARY, COMMANDS], ids=["library", "commands"])
def test_windows_is_refused_in_one_sentence(program, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WINDOWS + program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    if program is COMMANDS:
        assert {"serve 2", "simulate 2"} <= set(done.stdout.splitlines())
