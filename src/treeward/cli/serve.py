"""`treeward serve`: a catalogue as a service."""

from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treeward.cli.console import console, errors, progress, say, warn
from treeward.cli.tables import ItemColumns

if TYPE_CHECKING:
    from treeward.serve.settings import Settings


def serve(
    items: Annotated[
        Path | None, typer.Argument(help="Catalogue: a saved one, .csv, .tsv, .parquet or .npy.", show_default=False)
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="Settings in TOML.", show_default=False)] = None,
    column: ItemColumns = None,
    tree: Annotated[str | None, typer.Option(help="A saved tree. Default: one is built.", show_default=False)] = None,
    prior: Annotated[
        str | None, typer.Option(help="What `treeward prior fit` wrote. Default: none.", show_default=False)
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(help="File of events, `memory` or `postgresql://...`. Default: treeward.db.", show_default=False),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Default: 127.0.0.1.", show_default=False)] = None,
    port: Annotated[int | None, typer.Option(help="Default: 8000.", show_default=False)] = None,
    admin_port: Annotated[
        int | None, typer.Option(help="Metrics and admin, on loopback. Default: 8001.", show_default=False)
    ] = None,
    mode: Annotated[
        str | None, typer.Option(help="online, frozen or apprentice. Default: online.", show_default=False)
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="beam, phcb, hcb, ..., or your own: FILE.py:CLASS. Default: beam.", show_default=False),
    ] = None,
    reports: Annotated[
        str | None, typer.Option(help="Folder of experiments for the page to list. Default: none.", show_default=False)
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes, over a database. Default: 1.", show_default=False)
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other setting, as name=value; repeatable.", show_default=False),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Say whether the settings are sound, and stop.")] = False,
    from_settings: Annotated[
        bool,
        typer.Option("--from-settings", help="Serve what the settings name; forget what a swap or a rebuild chose."),
    ] = False,
) -> None:
    """Serve a catalogue: recommend, take feedback, lose nothing.

    Settings come from --config, then the environment (TREEWARD_PORT=...), then flags.
    """
    from treeward.core.errors import ExtraMissing
    from treeward.serve.settings import read_settings

    flags: dict[str, Any] = {
        "items": None if items is None else str(items), "tree": tree, "prior": prior, "store": store,
        "host": host, "port": port, "admin_port": admin_port, "mode": mode, "policy": policy, "reports": reports,
        "workers": workers, "columns": column,
    }  # fmt: skip
    flags |= _given(set_)
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


def _check(asked: "Settings", from_settings: bool) -> None:
    """Say whether what would be served is sound."""
    from treeward.core.errors import InvalidArgument, TreewardError
    from treeward.serve.server import parts, unservable, warnings_about
    from treeward.store.opening import without_password

    if not Path(asked.items).exists():
        raise InvalidArgument("serve", "items", "a file or folder that exists", asked.items)
    settings, why = (asked, "") if from_settings else _chosen(asked)
    try:
        made = parts(settings, accepted=settings is not asked)
    except TreewardError as error:
        if settings is asked:
            raise
        raise unservable(settings.items, error) from error
    for warning in warnings_about(settings, *made):
        warn(warning)
    where = without_password(settings.store)
    say(f"sound: {settings.policy} with {settings.bandit} over {settings.items}, events in {where}{why}")
    if settings.where:
        say(f"{settings.fulfilling(made[0]).sum():,} of {len(made[0]):,} items fulfil {settings.where}")


def _chosen(settings: "Settings") -> tuple["Settings", str]:
    """Return settings that name what would be served, which a swap may have chosen, and why if that is not theirs."""
    from treeward.core.errors import StoreError, StoreInUse
    from treeward.serve.snapshots import choice_of
    from treeward.store.opening import file_of, is_database, open_store

    file = file_of(settings.store)
    if settings.store == "memory" or (file is not None and not file.exists()):
        return settings, ""
    try:
        with progress() as report, closing(open_store(settings.store, report, create=False)) as store:
            choice = choice_of(store, settings)
    except StoreInUse:
        return settings, " (in use now: `treeward swap ADMIN_ADDRESS` says what the running service serves)"
    except StoreError as error:
        if not is_database(settings.store):
            raise
        return settings, f" (not looked into, so a swap may have chosen other items: {error})"
    if choice.now == choice.settings:
        return settings, ""
    why = f"; `treeward swap` or a rebuild chose these items, the settings name {settings.items}"
    return choice.now.into(settings), why


def _forget_choice(settings: "Settings") -> None:
    """Note in the store that what the settings name is served."""
    from treeward.serve.snapshots import Choice, Snapshot
    from treeward.store.opening import open_store

    if settings.store == "memory":
        return
    asked = Snapshot.of(settings)
    with progress() as report, closing(open_store(settings.store, report)) as store:
        Choice(asked, asked, asked).keep(store)


def _given(pairs: list[str] | None) -> dict[str, Any]:
    """Return settings given as name=value, read like those of the environment."""
    from treeward.core.errors import InvalidArgument
    from treeward.serve.settings import parsed

    told = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidArgument("serve", "--set", "name=value", pair)
        told[name] = parsed(name, value, f"--set {name}")
    return told
