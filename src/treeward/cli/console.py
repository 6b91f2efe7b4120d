"""What commands print with: tables, progress bars with timings, and the two streams."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
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

from treeward.core.progress import Progress as Report

if TYPE_CHECKING:
    from treeward.tree.describe import TreeDescription

console = Console()
errors = Console(stderr=True)


@contextmanager
def progress() -> Iterator[Report]:
    """Show a bar for every stage that reports; bars go to stderr and stay when done, with their times."""
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
            tasks[stage] = bars.add_task(stage, total=total)
        bars.update(tasks[stage], completed=done, total=total)

    with bars:
        yield report


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Say what is being done, and how long it took."""
    start = perf_counter()
    with errors.status(f"{escape(what)} ..."):
        yield
    say(f"{what}: {perf_counter() - start:.1f} s", errors)


def say(text: str, where: Console = console) -> None:
    """Print a line as it is: no markup, no wrapping."""
    where.print(text, highlight=False, markup=False, soft_wrap=True)


def show(description: "TreeDescription") -> None:
    """Print a tree's description as a table."""
    head, cells = description.table()
    table = Table(title=description.title(), title_justify="left", box=SIMPLE_HEAD, padding=0)
    for name in head:
        table.add_column(name, justify="right")
    for row in cells:
        table.add_row(*row)
    console.print(table)
