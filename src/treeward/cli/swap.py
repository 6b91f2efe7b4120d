"""`treeward swap`: let a running service serve other items, or another tree of them, without stopping."""

from pathlib import Path
from typing import Annotated

import typer

from treeward.cli.console import errors, say, timed
from treeward.cli.remote import Admin, remote
from treeward.core.errors import InvalidArgument


def swap(
    service: Admin,
    items: Annotated[
        Path | None, typer.Argument(help="Items to serve from now on; default: the same.", show_default=False)
    ] = None,
    tree: Annotated[Path | None, typer.Option(help="A tree of them; else one is grown.", show_default=False)] = None,
    prior: Annotated[Path | None, typer.Option(help="A prior that fits them.", show_default=False)] = None,
    features: Annotated[Path | None, typer.Option(help="Features to learn in.", show_default=False)] = None,
    back: Annotated[bool, typer.Option("--back", help="What was served before instead.")] = False,
    key: Annotated[
        str | None,
        typer.Option(envvar="TREEWARD_KEY", help="An admin key, where the service has keys.", show_default=False),
    ] = None,
) -> None:
    """Let a running service serve other items or another tree; users keep what they taught it.

    What is new is loaded and tried beside what is served, then written down in the store, then served: replicas follow
    within seconds, and a service that is killed on the way comes back with one or the other. Decisions made before
    still count. With neither ITEMS nor options, say what is served.
    """
    given = [str(one.resolve()) if one is not None else "" for one in (items, tree, prior, features)]
    if back and any(given):
        raise InvalidArgument("swap", "--back", "used alone", "items, a tree or a prior besides")
    with remote("swap", "admin", service, key) as client:
        if back or any(given):
            with timed("Loading it beside what is served"):
                told = client.swap(*given, back=back)
        else:
            told = client.snapshot()
    for name in ("now", "before"):
        parts = [f"{part} {path}" for part, path in told[name].items() if path]
        say(f"{name:>7}: {', '.join(parts)}")
    if told["before"]["prior"] and not told["now"]["prior"] and any(given):
        say("without the prior that was served before: --prior keeps one", errors)
