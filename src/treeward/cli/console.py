"""What commands print with: tables, progress bars with timings, and the two streams.

Titles, names and file names are not trusted: they are shown as they are, never interpreted as markup or as control
characters of the terminal.
"""

import re
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from treeward.core.progress import Progress as Report

if TYPE_CHECKING:
    from treeward.tree.describe import TreeDescription

_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters, and those that change the direction of writing; but not tabs and line ends."""


def plain(text: str) -> str:
    r"""Return a text with its control characters escaped.

    Examples
    --------
    >>> plain("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return _COMMANDS.sub(lambda found: ascii(found[0])[1:-1], text)


def line(text: object) -> str:
    r"""Return a text as one line, where a second line could be mistaken for a message of treeward.

    Examples
    --------
    >>> line("a\nb")
    'a\\nb'
    """
    return plain(str(text)).replace("\n", "\\n")


class _Console(Console):
    """Prints strings as they are: no markup, no emoji, no control characters."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(plain(text), **options)


console = _Console()
errors = _Console(stderr=True)


@contextmanager
def progress() -> Iterator[Report]:
    """Yield a function that shows a bar for every stage that reports. Bars go to stderr and stay, with their times."""
    bars = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=errors,
        speed_estimate_period=600,
    )
    tasks: dict[str, TaskID] = {}

    def report(stage: str, done: int, total: int) -> None:
        if stage not in tasks:
            tasks[stage] = bars.add_task(plain(stage), total=total)
        bars.update(tasks[stage], completed=done, total=total)

    with bars:
        yield report


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print what is being done, then how long it took."""
    start = perf_counter()
    with errors.status(Text(f"{plain(what)} ...")):
        yield
    say(f"{what}: {perf_counter() - start:.1f} s", errors)


def say(text: str, where: Console = console) -> None:
    """Print a line as it is, without markup or wrapping."""
    where.print(text, highlight=False, soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning."""
    console.print(Text.assemble(("warning:", "bold yellow"), " ", plain(text)), soft_wrap=True)


def complain(text: str) -> None:
    """Print an error."""
    errors.print(Text.assemble(("error:", "bold red"), " ", plain(text)), soft_wrap=True)


def show_table(
    title: str | None,
    head: Iterable[str],
    rows: Iterable[Iterable[str]],
    *,
    left: Container[str] = ("",),
    wrap: bool = True,
    **style: Any,
) -> None:
    """Print a table. Columns are aligned to the right, but for those whose head is in `left`."""
    table = Table(title=title, title_justify="left", **{"box": SIMPLE_HEAD, "padding": 0, **style})
    for name in head:
        table.add_column(name, justify="left" if name in left else "right", no_wrap=not wrap)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def show_tree(description: "TreeDescription") -> None:
    """Print a tree's description as a table."""
    head, rows = description.table()
    show_table(description.title(), head, rows)
