"""`treeward store`: look after the file that events live in."""

import re
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treeward.cli.console import progress, say
from treeward.core.errors import InvalidArgument

if TYPE_CHECKING:
    from treeward.core.progress import Progress
    from treeward.store.base import EventStore

app = typer.Typer(help="Back up, restore, copy, export or rescue a store of events.", no_args_is_help=True)


def _file(path: Path) -> Path:
    """Refuse an address: as a file's name it would be told, password and all."""
    if re.match(r"[a-z][a-z0-9+.-]+:/", str(path)):
        rule = "a file: a database has tools of its own, such as pg_dump and pg_amcheck"
        raise InvalidArgument("treeward", "STORE", rule, "an address")
    return path


File = Annotated[Path, typer.Argument(help="The store's file.", show_default=False, callback=_file)]
Place = Annotated[str, typer.Argument(help="A file, or postgresql://user@host/database.", show_default=False)]
New = Annotated[Path, typer.Argument(help="A file that does not exist yet.", show_default=False)]


@app.command()
def backup(store: File, target: New) -> None:
    """Copy a store that no service has open; a running one copies itself (POST /admin/backup)."""
    from treeward.store.sqlite import SQLiteStore

    with progress() as report:
        held = SQLiteStore(store, create=False, progress=report)
    held.backup(target)
    held.close()
    say(f"Wrote {target}")


@app.command()
def restore(
    backup: Annotated[Path, typer.Argument(help="What `backup` wrote.", show_default=False, callback=_file)],
    store: File,
) -> None:
    """Put a backup in the place of a store, after checking all of it. Stop the service first.

    The former store is kept, with its write-ahead log, under a name that is printed.
    """
    from treeward.store.restore import restore as put_back

    with progress() as report:
        told = put_back(backup, store, report)
    say(f"Restored {store}: {told.report.events:,} events of {told.report.users:,} users")
    if told.kept is not None:
        say(f"The former store is now {told.kept}")


@app.command()
def salvage(store: File, target: New) -> None:
    """Copy what can be read of a damaged store, up to the first event that is not what was written."""
    from treeward.store.check import salvage as rescue

    with progress() as report:
        told = rescue(store, target, report)
    say(f"Wrote {target}: {told.events:,} events of {told.users:,} users")
    for line in told.problems:
        say(line)


@app.command("copy")
def copy_(
    source: Annotated[str, typer.Argument(help="Where from: a file, or postgresql://...", show_default=False)],
    target: Annotated[str, typer.Argument(help="Where to: a file, or postgresql://...", show_default=False)],
) -> None:
    """Move a store between SQLite and PostgreSQL: events, open decisions, who was erased; then compare every event.

    Cut off, it goes on where it stopped. A database may be in use meanwhile: run this once while it serves, stop the
    services, and run it again for what came since. A file that a service has open is copied by that service
    (POST /admin/copy), and then by this for the rest. Nothing serves from a copy that is not whole.
    """
    from treeward.core.errors import InvalidArgument, StoreError, StoreInUse
    from treeward.store.copying import copy
    from treeward.store.opening import without_password

    if source == target or "memory" in (source, target):
        raise InvalidArgument(
            "store copy", "TARGET", "another store than SOURCE, and neither of them memory", "the same"
        )
    with progress() as report:
        try:
            one = _open(source, create=False, report=report)
        except StoreInUse as error:
            raise StoreError(f"{error}; ask the service that has it: POST /admin/copy") from error
        with closing(one), closing(_open(target, create=True, report=report)) as other:
            told = copy(one, other, report)
    say(f"{without_password(target)}: {told.events:,} events brought, {told.users:,} users in all")
    if not told.complete:
        raise StoreError(f"{without_password(source)} is still written to: stop what serves it, and run this again")
    say("Every event compared; complete.")


@app.command()
def export(store: Place, folder: New) -> None:
    """Write every event to Parquet files in a new folder."""
    from treeward.store import parquet

    with progress() as report, closing(_open(store, create=False, report=report)) as held:
        told = parquet.export(held, folder, report)
    say(f"Wrote {told.events:,} events of {told.users:,} users to {folder}")


@app.command("import")
def import_(
    store: Place,
    files: Annotated[
        Path, typer.Argument(help="What `export` wrote, or a table with the columns user, item, reward and time.")
    ],
) -> None:
    """Add events from Parquet files, all of them or none; the store is made if it is not there."""
    from treeward.store import parquet

    with progress() as report, closing(_open(store, create=True, report=report)) as held:
        told = parquet.load(held, files, report)
    say(f"Added {told.events:,} events of {told.users:,} users")


def _open(where: str, *, create: bool, report: "Progress") -> "EventStore":
    from treeward.store.opening import open_store

    return open_store(where, report, create=create)
