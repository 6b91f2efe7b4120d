"""`treeward tree health`: how well a tree still fits its items, and whether clustering them anew would pay."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from treeward.cli.console import console, progress, say, timed
from treeward.cli.remote import is_address, remote
from treeward.cli.store import copy_of
from treeward.cli.tables import ItemColumns, load_items, load_prior
from treeward.core.errors import InvalidArgument

if TYPE_CHECKING:
    from treeward.store.base import EventStore

_ROWS = (
    ("items that can be shown", "items", "{:,}"),
    ("  came or changed since the tree was laid out", "came", "{:,}"),
    ("  went since", "gone", "{:,}"),
    ("leaves", "leaves", "{:,}"),
    ("  items in the largest", "largest", "{:,}"),
    ("  imbalance (1: all alike)", "imbalance", "{:.2f}"),
    ("  without a free place", "full", "{:,}"),
    ("  to be split", "crowded", "{:,}"),
    ("  to join another", "starved", "{:,}"),
    ("  stale: a quarter of their items came or went", "stale", "{:,}"),
    ("distance of items from the middle of their leaf", "distance", "{:.4f}"),
    ("  of those that came", "distance_came", "{:.4f}"),
    ("  in a tree clustered anew", "distance_anew", "{:.4f}"),
    ("expected reward lost by the search", "lost", "{:.2%}"),
    ("  in a tree clustered anew", "lost_anew", "{:.2%}"),
)


def health(
    what: Annotated[
        str, typer.Argument(help="A service's admin address, or the items of one that is not running.", metavar="WHAT")
    ],
    column: ItemColumns = None,
    tree: Annotated[Path | None, typer.Option(help="Their tree; else one is grown.", show_default=False)] = None,
    store: Annotated[Path | None, typer.Option(help="The store with what became of them.", show_default=False)] = None,
    prior: Annotated[Path | None, typer.Option(help="The prior that is served with.", show_default=False)] = None,
    users: Annotated[int, typer.Option(help="Look for the best items of so many users.", min=1)] = 100,
    anew: Annotated[bool, typer.Option("--anew/--quick", help="Cluster the items anew, to compare with.")] = True,
    key: Annotated[
        str | None,
        typer.Option(envvar="TREEWARD_KEY", help="An admin key, where the service has keys.", show_default=False),
    ] = None,
) -> None:
    """Tell how well a tree fits its items: imbalance, stale leaves, distances, reward lost; say if a rebuild pays."""
    running = is_address(what)
    if running and (tree or store or prior or column):
        raise InvalidArgument("tree health", "--tree", "given with items, not with a service's address", what)
    told = _asked(what, users, anew, key) if running else _found(Path(what), column, tree, store, prior, users, anew)
    table = Table(box=SIMPLE_HEAD, padding=0, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for label, name, form in _ROWS:
        value = told[name]
        table.add_row(label, "-" if value is None or value != value else form.format(value))
    console.print(table)
    who = f"{told['users']:,} users asked for lately" if told["users"] else "users drawn from the prior"
    say(f"Reward lost: for {who}. {told['advice']}")


def _asked(address: str, users: int, anew: bool, key: str | None) -> dict[str, Any]:
    with remote("tree health", "admin", address, key) as client, timed("Looking at the tree"):
        return client.health(users=users, compare=anew)


def _found(
    items: Path,
    column: list[str] | None,
    tree: Path | None,
    store: Path | None,
    prior: Path | None,
    users: int,
    anew: bool,
) -> dict[str, Any]:
    from treeward.explorer.explorer import Explorer
    from treeward.policy.beam import Beam
    from treeward.store.base import everyone
    from treeward.tree.item_tree import ItemTree

    with _copied(store) as held:
        shop = load_items(items, column)
        with timed("Making it ready"):
            policy = Beam(prior=load_prior("tree health", prior, shop) if prior is not None else None)
            made = Explorer(shop, ItemTree.load(tree) if tree is not None else None, policy, held)
        for user in islice(everyone(held), users):
            made.preview(user)
        with progress() as report:
            found = made.inspect.health(users=users, anew=anew, progress=report)
    return {**found._asdict(), "advice": found.advice}


@contextmanager
def _copied(store: Path | None) -> "Iterator[EventStore]":
    """Return a copy of a store, so that looking changes nothing; an empty one if there is none."""
    from treeward.store.memory import MemoryStore
    from treeward.store.sqlite import SQLiteStore

    if store is None:
        yield MemoryStore()
        return
    with copy_of(store) as copy, closing(SQLiteStore(copy, create=False)) as held:
        yield held
