"""How far the compiling of kernels is in this process. It imports little: a service must be able to tell at once."""

import os
import sys
from contextlib import suppress
from threading import enumerate as threads

LOADER = "treeward-load"
"""The name of a thread that may be compiling when the process is told to end."""
_USUALLY = 80
"""How many kernels a service with the default policy compiles in this process if the cache is empty."""


class CompileProgress:
    """Counts kernels; `compiled` updates it."""

    def __init__(self) -> None:
        self.depth = 0
        """How many are being compiled at present, each one called by the one before."""
        self.done = 0
        self.waits = False
        """Whether another process compiles what this one needs."""

    @property
    def share(self) -> float | None:
        """An estimate of the share that is compiled; None: nothing is being compiled."""
        return min(0.99, self.done / _USUALLY) if self.depth or self.waits else None


compile_progress = CompileProgress()


def exit_around_compiler(status: int) -> None:
    """End the process at once if a thread may be compiling: Python's usual way would take LLVM apart under it."""
    if any(thread.name == LOADER for thread in threads()):
        for output in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                output.flush()
        os._exit(status)
