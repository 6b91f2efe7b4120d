"""`treeward fsck`: check a store's file and, with its catalogue, what is learned from its events."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treeward.cli.console import errors, progress, say
from treeward.cli.looking import looking
from treeward.cli.store import File
from treeward.cli.tables import ItemColumns
from treeward.core.errors import DataError

if TYPE_CHECKING:
    from treeward.explorer.rebuilt import StateCheck

_MOST_NAMED = 20


def fsck(
    store: File,
    items: Annotated[
        Path | None,
        typer.Option(help="The catalogue: also rebuild users twice and compare their states.", show_default=False),
    ] = None,
    column: ItemColumns = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Settings of the service, for --items.", show_default=False)
    ] = None,
    sample: Annotated[int, typer.Option(help="At most so many users are rebuilt, with --items.", min=1)] = 1_000,
) -> None:
    """Check a store: every checksum and reference, and the crowd; with its catalogue, also what users' events teach.

    The crowd's edition is compared with everybody's rewards, added up again.

    With --items, a sample of users is rebuilt twice: event by event, as a service learns, and at once from the log.
    Every remembered state is compared with the log. Exits with 1 if anything is wrong.
    """
    from treeward.explorer.crowd_check import check_with_crowd

    with progress() as report:
        told, crowd = check_with_crowd(store, report)
    say(f"{told.events:,} events of {told.users:,} users; the last is {told.last}")
    if crowd:
        say(crowd)
    problems = list(told.problems)
    if items is not None and not problems:
        problems = _states(store, items, column, config, sample)
    for line in problems:
        say(line, errors)
    if problems:
        raise typer.Exit(1)
    say("clean")


def _states(store: Path, items: Path, column: list[str] | None, config: Path | None, sample: int) -> list[str]:
    """Check users' states, say what was compared, and return what is wrong."""
    flags = {"items": str(items), "columns": column}
    with progress() as report, looking(store, config, flags, report) as (explorer, _):
        found = explorer.inspect.check_states(sample, report)
    if found.unknown and found.unknown == found.events:
        hint = "If a column of the items holds their ids: --column id=NAME"
        raise DataError(f"none of {found.events:,} events is about an item of {items}. {hint}")
    say(
        f"{found.users:,} of {found.of_users:,} users rebuilt twice, event by event and from the log: "
        f"{found.events:,} events, largest difference {found.difference:g}"
    )
    if found.unknown:
        say(f"{found.unknown:,} of these events are about items that {items} does not have; they teach nothing")
    also = f"; {found.foreign:,} not compared: made with other items, another tree or other settings"
    say(f"{found.remembered:,} remembered states compared with the log{also if found.foreign else ''}")
    return _told(found)


def _told(found: "StateCheck") -> list[str]:
    lines = [
        f"the state of {one.user!r}, {one.what}, is not what the log gives: they differ by {one.difference:g}"
        for one in found.mismatches[:_MOST_NAMED]
    ]
    more = len(found.mismatches) - len(lines)
    return [*lines, f"... and {more:,} more"] if more > 0 else lines
