"""Compile kernels in a second process, while this one compiles others.

numba compiles on one core. The first program on a machine needs kernels that decide and kernels that learn: a second
process compiles the latter meanwhile and leaves them on disk. The locks of `shared_cache` see to it that no kernel is
compiled twice. ``TREEWARD_COMPILE_AHEAD=0`` in the environment switches it off.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import DEVNULL, Popen
from threading import Thread
from typing import Any

from treeward.core.parallel import cores

SWITCH = "TREEWARD_COMPILE_AHEAD"


def compile_ahead(job: Callable[[], None], kernel: Callable[..., Any]) -> bool:
    """Run `job`, a function of a module, in a second process if `kernel` is not on disk. Return whether it was started.

    The process is Python itself, with nothing of the caller's. If it fails, this process compiles the kernel later.
    """
    if not _is_missing(kernel) or not _may_start():
        return False
    program = f"from {job.__module__} import {job.__name__} as job; job()"
    try:
        # -P: a file in the current folder is never imported in place of a library.
        process = Popen(
            [sys.executable, "-P", "-c", program],
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=DEVNULL,
            env={**os.environ, SWITCH: "0"},
        )
    except OSError:
        return False
    Thread(target=process.wait, name="treeward-compile-ahead", daemon=True).start()  # leaves no zombie
    return True


def _is_missing(kernel: Any) -> bool:
    """Return whether a kernel would be kept on disk, and is not there."""
    folder = kernel.stats.cache_path if hasattr(kernel, "stats") else None  # none where kernels are interpreted
    if folder is None or not os.access(folder, os.W_OK):
        return False
    module, name = kernel.py_func.__module__.rpartition(".")[2], kernel.py_func.__name__
    return not any(Path(folder).glob(f"{module}.{name}-*.nbi"))


def _may_start() -> bool:
    """Return whether a second process can help: not from a worker, on one core, or inside another program."""
    return (
        os.environ.get(SWITCH) != "0"
        and multiprocessing.parent_process() is None
        and cores() > 1
        and Path(sys.executable or "").name.startswith("python")
    )
