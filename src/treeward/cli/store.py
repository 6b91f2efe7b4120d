"""`treeward store`: check, back up, restore, copy, export and import a store of events."""

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from treeward.cli.console import errors, progress, say
from treeward.cli.options import Columns, given_flags
from treeward.core.errors import DataError, InvalidArgument, StoreError, StoreInUse
from treeward.core.progress import Progress
from treeward.explorer.crowd_check import check_with_crowd
from treeward.explorer.explorer import Explorer
from treeward.explorer.state_check import StateCheck
from treeward.serve.settings import Settings, read_settings
from treeward.store import parquet
from treeward.store.check import copy_at_rest
from treeward.store.check import salvage as rescue
from treeward.store.copy import copy
from treeward.store.opening import open_store, opened_store, without_password
from treeward.store.restore import restore as put_back
from treeward.store.sqlite import SQLiteStore

app = typer.Typer()

_MOST_NAMED = 20


def _file(path: Path) -> Path:
    """Refuse an address: an error message that quotes it as a file name would show its password."""
    if re.match(r"[a-z][a-z0-9+.-]+:/", str(path)):
        rule = "a file: a database has tools of its own, such as pg_dump and pg_amcheck"
        raise InvalidArgument("treeward", "STORE", rule, "an address")
    return path


File = Annotated[Path, typer.Argument(help="The file of the store.", show_default=False, callback=_file)]
Place = Annotated[str, typer.Argument(help="A file, or postgresql://user@host/database.", show_default=False)]
New = Annotated[Path, typer.Argument(help="A path where nothing exists yet.", show_default=False)]


@app.command()
def check(
    store: File,
    items: Annotated[
        Path | None,
        typer.Option(help="The catalogue. With it, also rebuild users and compare their states.", show_default=False),
    ] = None,
    column: Columns = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Settings of the service, for --items.", show_default=False)
    ] = None,
    sample: Annotated[int, typer.Option(help="Rebuild at most this many users, with --items.", min=1)] = 1_000,
) -> None:
    """Check every checksum and reference of a store, and the crowd's edition. Nothing is changed.

    The crowd's edition is compared with all rewards, added up again.

    With --items, a sample of users is rebuilt twice: event by event, as a service learns, and at once from the log. The
    two are compared bit by bit. Exits with 1 if anything is wrong.
    """
    with progress() as report:
        found, crowd = check_with_crowd(store, report)
    say(f"{found.events:,} events of {found.users:,} users; the last is {found.last}")
    if crowd:
        say(crowd)
    problems = list(found.problems)
    if items is not None and not problems:
        problems = _check_states(store, items, column, config, sample)
    for line in problems:
        say(line, errors)
    if problems:
        raise typer.Exit(1)
    say("clean")


def _check_states(store: Path, items: Path, column: list[str] | None, config: Path | None, sample: int) -> list[str]:
    """Compare users' states, print what was compared, and return the problems."""
    flags = given_flags(items=str(items), columns=column)
    with progress() as report, explorer_over_copy(store, config, flags, report) as (explorer, _):
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
    return _mismatches(found)


def _mismatches(found: StateCheck) -> list[str]:
    lines = [
        f"the state of {one.user!r}, {one.what}, is not what the log gives: they differ by {one.difference:g}"
        for one in found.mismatches[:_MOST_NAMED]
    ]
    more = len(found.mismatches) - len(lines)
    return [*lines, f"... and {more:,} more"] if more > 0 else lines


@contextmanager
def copy_of(store: Path) -> Iterator[Path]:
    """Yield a temporary copy of a store that no process has open, so that inspecting it changes nothing."""
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.db"
        copy_at_rest(store, copy)
        try:
            yield copy
        except StoreError as error:  # name the store that the user knows
            raise type(error)(str(error).replace(str(copy), str(store))) from error


@contextmanager
def explorer_over_copy(
    store: Path, config: Path | None, flags: dict[str, Any], report: Progress
) -> Iterator[tuple[Explorer, Settings]]:
    """Yield the explorer that a service with these settings would have, over a copy of the store; and the settings."""
    from treeward.serve.parts import open_explorer

    with copy_of(store) as copy:
        settings = read_settings(config, flags={**flags, "store": str(copy)}, secrets=False)
        explorer = open_explorer(settings, report)
        with closing(explorer.store):
            yield explorer, settings


@app.command()
def backup(store: File, target: New) -> None:
    """Copy a store that no service has open; a running one copies itself (POST /admin/backup)."""
    with progress() as report:
        held = SQLiteStore(store, create=False, progress=report)
    with closing(held):
        held.backup(target)
    say(f"Wrote {target}")


@app.command()
def restore(
    backup: Annotated[Path, typer.Argument(help="What `store backup` wrote.", show_default=False, callback=_file)],
    store: File,
) -> None:
    """Replace a store by a backup, after checking every row of the backup. Stop the service first.

    The former store is kept, with its write-ahead log, under a name that is printed.
    """
    with progress() as report:
        made = put_back(backup, store, report)
    say(f"Restored {store}: {made.report.events:,} events of {made.report.users:,} users")
    if made.kept is not None:
        say(f"The former store is now {made.kept}")


@app.command()
def salvage(store: File, target: New) -> None:
    """Copy what can be read of a damaged store, up to the first damaged event."""
    with progress() as report:
        made = rescue(store, target, report)
    say(f"Wrote {target}: {made.events:,} events of {made.users:,} users")
    for line in made.problems:
        say(line)


@app.command("copy")
def copy_(
    source: Annotated[str, typer.Argument(help="Where from: a file, or postgresql://...", show_default=False)],
    target: Annotated[str, typer.Argument(help="Where to: a file, or postgresql://...", show_default=False)],
) -> None:
    """Copy a store between SQLite and PostgreSQL: events, open decisions, who was erased; then compare every event.

    An interrupted copy continues where it stopped. A database may be in use meanwhile: copy once while it serves, stop
    the services, and copy again for what came since. A file that a service has open is copied by that service
    (POST /admin/copy), and then by this command for the rest. An incomplete copy is never served.
    """
    if source == target or "memory" in (source, target):
        rule = "another store than SOURCE, and neither of them memory"
        raise InvalidArgument("store copy", "TARGET", rule, "the same")
    with progress() as report:
        try:
            one = open_store(source, report, create=False)
        except StoreInUse as error:
            raise StoreError(f"{error}; ask the service that has it: POST /admin/copy") from error
        with closing(one), opened_store(target, report) as other:
            made = copy(one, other, report)
    say(f"{without_password(target)}: {made.events:,} events brought, {made.users:,} users in all")
    if not made.complete:
        raise StoreError(f"{without_password(source)} is still written to: stop what serves it, and run this again")
    say("Every event compared; complete.")


@app.command()
def export(store: Place, folder: New) -> None:
    """Write every event to Parquet files in a new folder."""
    with progress() as report, opened_store(store, report, create=False) as held:
        made = parquet.export(held, folder, report)
    say(f"Wrote {made.events:,} events of {made.users:,} users to {folder}")


@app.command("import")
def import_(
    store: Place,
    files: Annotated[
        Path,
        typer.Argument(help="What `store export` wrote, or a table with the columns user, item, reward and time."),
    ],
) -> None:
    """Add events from Parquet files, all of them or none. Creates the store if it does not exist."""
    with progress() as report, opened_store(store, report) as held:
        made = parquet.load(held, files, report)
    say(f"Added {made.events:,} events of {made.users:,} users")
