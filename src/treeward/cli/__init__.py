"""The command line: each command parses, calls one library function and prints."""

import atexit
import os
import signal
import sys
import threading
from types import FrameType

__all__ = ["main"]

INTERRUPTED = 128 + signal.SIGINT


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C while Python shuts down: the work is done, and its status is that of the command."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def main() -> None:
    """Run the command line; Ctrl-C at any time ends it with status 130 and one word."""
    seen: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        while frame is not None:
            # LLVM swallows what is raised in its callbacks and then fails for lack of a result: try again later.
            if f"{os.sep}llvmlite{os.sep}" in frame.f_code.co_filename:
                later = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
                later.daemon = True
                return later.start()
            frame = frame.f_back
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    try:
        if before is signal.default_int_handler:  # not where it is ignored, as in the background of a shell
            signal.signal(signal.SIGINT, interrupt)
            atexit.register(_ignore_interrupts)
        from treeward.cli.app import run  # which takes a while: Ctrl-C is handled before

        status = run()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except Exception as error:
        # A KeyboardInterrupt that C code met becomes the cause of another error, or is lost.
        if not seen and not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        status = INTERRUPTED
    finally:
        if before is signal.default_int_handler:
            signal.signal(signal.SIGINT, before)
    if status == INTERRUPTED:
        print("interrupted", file=sys.stderr)  # noqa: T201
    from treeward.core.compile_progress import exit_around_compiler

    exit_around_compiler(status)
    sys.exit(status)
