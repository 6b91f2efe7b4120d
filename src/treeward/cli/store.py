"""`treeward store` and `treeward fsck`: look after the file that events live in."""

from pathlib import Path
from typing import Annotated

import typer

from treeward.cli.console import errors, progress, say

app = typer.Typer(help="Copy or rescue a store of events.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(help="The store's file.", show_default=False)]
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
def salvage(store: File, target: New) -> None:
    """Copy what can be read of a damaged store, up to the first event that is not what was written."""
    from treeward.store.check import salvage as rescue

    with progress() as report:
        told = rescue(store, target, report)
    say(f"Wrote {target}: {told.events:,} events of {told.users:,} users")
    for line in told.problems:
        say(line)


def fsck(
    store: File,
    items: Annotated[
        Path | None,
        typer.Option(help="The catalogue: also recompute every remembered state and compare.", show_default=False),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Settings of the service, for --items.", show_default=False)
    ] = None,
) -> None:
    """Check a store: every checksum, every reference and, with its catalogue, every remembered state.

    Exits with 1 if anything is wrong.
    """
    from treeward.store.check import check

    with progress() as report:
        told = check(store, report)
    say(f"{told.events:,} events of {told.users:,} users; the last is {told.last}")
    problems = list(told.problems)
    if items is not None and not problems:
        from tempfile import TemporaryDirectory

        from treeward.serve.server import open_explorer
        from treeward.serve.settings import read_settings
        from treeward.store.sqlite import SQLiteStore

        with progress() as report, TemporaryDirectory() as folder:  # looking changes nothing
            copy = Path(folder) / "copy.db"
            held = SQLiteStore(store, create=False)
            held.backup(copy)
            held.close()
            explorer = open_explorer(read_settings(config, flags={"items": str(items), "store": str(copy)}), report)
            wrong, checked = explorer.verify(report)
            explorer.store.close()
        say(f"{checked:,} remembered states recomputed")
        problems += [f"the remembered state of {user!r} is not what the events say" for user in wrong]
    for line in problems:
        say(line, errors)
    if problems:
        raise typer.Exit(1)
    say("clean")
