"""`treeward` commands for tests: what they print, and how they end."""

import io
import os
import subprocess
import sys
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

from treeward.cli import main

TREEWARD = Path(sys.executable).with_name("treeward")
LISTENS = {"demo", "serve"}  # they handle signals, so they get a process of their own, unless they only check


def run(*arguments, cwd=None, code=0, width=100):
    """Run a command, check how it ends, and return what it printed: the output, or the errors of one that fails.

    It runs in this process where it can: another one would need a second to import what is here already.
    """
    words = [str(word) for word in arguments]
    ended, out, err = (_apart if LISTENS & set(words) and "--check" not in words else _here)(
        words, cwd, {"COLUMNS": str(width)}
    )
    assert ended == code, out + err
    assert "Traceback" not in err
    return out if code == 0 else err


def _here(words, cwd, changed):
    out, err, ended = io.StringIO(), io.StringIO(), 0
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(sys, "argv", ["treeward", *words]))
        stack.enter_context(mock.patch.dict(os.environ, changed))
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(err))
        if cwd is not None:
            stack.enter_context(chdir(cwd))
        try:
            main()
        except SystemExit as end:
            ended = end.code or 0
    return ended, out.getvalue(), err.getvalue()


def _apart(words, cwd, changed):
    done = subprocess.run(
        [TREEWARD, *words], capture_output=True, text=True, check=False, cwd=cwd, env=os.environ | changed
    )
    return done.returncode, done.stdout, done.stderr
