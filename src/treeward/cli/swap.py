"""`treeward swap`: let a running service serve other items, or another tree of them, without stopping."""

from pathlib import Path
from typing import Annotated

import typer

from treeward.cli.console import errors, say, timed
from treeward.cli.remote import Admin, Key, remote
from treeward.core.errors import InvalidArgument


def swap(
    service: Admin,
    items: Annotated[
        Path | None, typer.Argument(help="Items to serve from now on. Default: the same.", show_default=False)
    ] = None,
    tree: Annotated[
        Path | None, typer.Option(help="A tree of the items. Default: one is built.", show_default=False)
    ] = None,
    prior: Annotated[Path | None, typer.Option(help="A prior that fits the items.", show_default=False)] = None,
    features: Annotated[Path | None, typer.Option(help="Features to learn in.", show_default=False)] = None,
    back: Annotated[bool, typer.Option("--back", help="Return to what was served before.")] = False,
    key: Key = None,
) -> None:
    """Let a running service serve other items or another tree; users keep what they taught it.

    The service loads and tries the new items while it serves the old ones, records the change in the store, and then
    serves the new ones. Replicas follow within seconds; a service that is killed meanwhile restarts with either.
    Earlier decisions still count. Without ITEMS and options, print what is served.
    """
    given = [str(one.resolve()) if one is not None else "" for one in (items, tree, prior, features)]
    if back and any(given):
        raise InvalidArgument("swap", "--back", "used alone", "items, a tree or a prior besides")
    with remote("swap", "admin", service, key) as client:
        if back or any(given):
            with timed("Loading the new items"):
                found = client.swap(*given, back=back)
        else:
            found = client.snapshot()
    for name in ("now", "before"):
        parts = [f"{part} {path}" for part, path in found[name].items() if path]
        say(f"{name:>7}: {', '.join(parts)}")
    if found["before"]["prior"] and not found["now"]["prior"] and any(given):
        say("without the prior that was served before: --prior keeps one", errors)
