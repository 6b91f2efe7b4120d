"""The line that somebody at a terminal sees while kernels compile. Imported by `compiled` when there is one to show."""

import sys
from collections.abc import Callable
from contextlib import suppress

from rich.console import Console
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.spinner import Spinner


class _Line(Live):
    """A display that rather shows nothing than fail: a terminal may go away."""

    def refresh(self) -> None:
        """Draw it."""
        with suppress(Exception):
            super().refresh()


class CompileStatus:
    """A line on stderr that is drawn again and again, and goes away.

    While another display is active (rich allows one at a time), or where a terminal cannot go back to the beginning of
    a line, `instead` is written once.
    """

    def __init__(self, text: Callable[[], str], instead: str) -> None:
        self._instead, self._written = instead, False
        self._console = Console(stderr=True)
        spinner = Spinner("line")

        def drawn() -> Spinner:
            spinner.update(text=text())
            return spinner

        self._line = _Line(
            console=self._console,
            get_renderable=drawn,
            transient=True,
            refresh_per_second=8,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def show(self) -> None:
        """Begin to draw."""
        if isinstance(sys.stderr, FileProxy) or not self._console.is_interactive:  # a proxy: a display is active
            if not self._written:
                self._written = True
                sys.stderr.write(self._instead + "\n")
                sys.stderr.flush()
        else:
            self._line.start(refresh=True)

    def hide(self) -> None:
        """Remove the line."""
        self._line.stop()
