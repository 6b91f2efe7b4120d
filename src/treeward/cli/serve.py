"""`treeward serve`: a catalogue as a service."""

from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated, Any

import typer

from treeward.cli.console import console, errors, progress, say, warn
from treeward.cli.options import ITEMS, Columns, Derived, expanded, given_flags
from treeward.core.errors import ExtraMissing, InvalidArgument, StoreError, StoreInUse, TreewardError
from treeward.serve.settings import Settings, parsed, read_settings
from treeward.store.opening import file_of, is_database, open_store, without_password

_OWN_FLAGS = ("tree", "prior", "store", "host", "port", "admin_port", "mode", "policy", "reports", "workers")
"""The settings that are most often given on the command line; the others are given by --set."""


@expanded
def serve(
    flags: Annotated[dict[str, Any], Derived(Settings, *_OWN_FLAGS, optional=True)],
    items: Annotated[Path | None, typer.Argument(help=ITEMS, show_default=False)] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="Settings in TOML.", show_default=False)] = None,
    column: Columns = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other setting; repeatable.", metavar="NAME=VALUE", show_default=False),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Check the settings and what they name, and stop.")] = False,
    from_settings: Annotated[
        bool,
        typer.Option("--from-settings", help="Serve what the settings name, not what a swap or a rebuild chose."),
    ] = False,
) -> None:
    """Serve a catalogue over HTTP: recommend, take feedback, and keep every event.

    Settings come from --config, then the environment (TREEWARD_PORT=...), then flags; later ones override earlier ones.
    """
    flags = given_flags(**flags, items=None if items is None else str(items), columns=column)
    for pair in set_ or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidArgument("serve", "--set", "of the form NAME=VALUE", pair)
        flags[name] = parsed(name, value, f"--set {name}")
    settings = read_settings(config, flags=flags)
    try:
        from treeward.serve.server import serve as run
    except ImportError as error:
        raise ExtraMissing.of("treeward serve", error.name, "serve") from error
    if check:
        return _check(settings, from_settings)
    if from_settings:
        _forget_choice(settings)
    bars = ExitStack()

    def ready(public: str, admin: str, served: str) -> None:
        bars.close()
        if served and Path(served) != Path(settings.items).resolve():
            say(f"Items: {served}, as `treeward swap` or a rebuild chose; the settings name {settings.items}")
        where = f"; metrics at {admin}/metrics" if admin else ""
        say(f"Serving at {public} : open it in a browser (the API: {public}/docs){where}")
        console.file.flush()

    with bars:
        report = bars.enter_context(progress())
        if settings.workers > 1:
            from treeward.serve.workers import serve_many

            say(f"starting {settings.workers} workers ...", errors)
            serve_many(settings, ready=ready)
        else:
            run(settings, progress=report, ready=ready)
    say("stopped; everything is on disk" if settings.store != "memory" else "stopped", errors)


def _check(given: Settings, from_settings: bool) -> None:
    """Check what would be served, and print warnings about it."""
    from treeward.serve.parts import fulfilling, parts, unservable, warnings_about
    from treeward.serve.tls import tls_of

    tls_of(given)
    if not Path(given.items).exists():
        raise InvalidArgument("serve", "items", "a file or folder that exists", given.items)
    settings, why = (given, "") if from_settings else _chosen(given)
    try:
        made = parts(settings, accepted=settings is not given)
    except TreewardError as error:
        if settings is given:
            raise
        raise unservable(settings.items, error) from error
    for warning in warnings_about(settings, *made):
        warn(warning)
    where = without_password(settings.store)
    say(f"sound: {settings.policy} with {settings.bandit} over {settings.items}, events in {where}{why}")
    if settings.where:
        say(f"{fulfilling(settings, made[0]).sum():,} of {len(made[0]):,} items fulfil {settings.where}")


def _chosen(settings: Settings) -> tuple[Settings, str]:
    """Return settings that name what would be served, and why if a swap or a rebuild chose it."""
    from treeward.serve.snapshots import choice_of

    file = file_of(settings.store)
    if settings.store == "memory" or (file is not None and not file.exists()):
        return settings, ""
    try:
        with progress() as report, closing(open_store(settings.store, report, create=False)) as store:
            choice = choice_of(store, settings)
    except StoreInUse:
        return settings, " (in use now: `treeward swap ADMIN_ADDRESS` prints what the running service serves)"
    except StoreError as error:
        if not is_database(settings.store):
            raise
        return settings, f" (the store was not read, so a swap may have chosen other items: {error})"
    if choice.now == choice.settings:
        return settings, ""
    why = f"; `treeward swap` or a rebuild chose these items, the settings name {settings.items}"
    return choice.now.into(settings), why


def _forget_choice(settings: Settings) -> None:
    """Record in the store that what the settings name is served."""
    from treeward.serve.snapshots import Choice, Snapshot

    if settings.store == "memory":
        return
    asked = Snapshot.of(settings)
    with progress() as report, closing(open_store(settings.store, report)) as store:
        Choice(asked, asked, asked).keep(store)
