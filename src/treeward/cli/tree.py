"""`treeward tree`: build a tree from item vectors, look at it, draw it, and check how well it still fits."""

import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from treeward.cli.console import errors, line, progress, say, show_table, show_tree, timed
from treeward.cli.inputs import Items, columns_of, load_items, load_prior
from treeward.cli.options import ITEMS, Columns, Derived, Force, expanded
from treeward.cli.remote import Key, is_address, remote
from treeward.cli.store import copy_of
from treeward.core import artefact, checks
from treeward.core.errors import InvalidArgument
from treeward.data.catalogue import Catalogue
from treeward.explorer.explorer import Explorer
from treeward.policy.beam import Beam
from treeward.store.base import EventStore, everyone
from treeward.store.memory import MemoryStore
from treeward.store.sqlite import SQLiteStore
from treeward.tree.item_tree import FILES, FORMAT, ItemTree
from treeward.tree.shard_files import is_sharded

app = typer.Typer()

ItemsOption = Annotated[Path | None, typer.Option("--items", help=ITEMS, show_default=False)]
_WORDS = {
    "widths": "Nodes per level, from below the root to the leaves, e.g. 100,10000. Default: about 16 items per leaf, "
    "at most about 100 children per node.",
    "max_leaf": "Split leaves of more items than this.",
    "threads": "How many threads, or processes for shards. Default: all cores.",
}
Tree = Annotated[Path, typer.Argument(help="A tree that `treeward tree build` wrote.", show_default=False)]


@dataclass(frozen=True)
class ItemFlags:
    """How to read a table of items."""

    column: Columns = None
    vectors_file: Annotated[
        Path | None, typer.Option(help="A .npy matrix with the vectors, if the table has none.", show_default=False)
    ] = None

    def load(self, items: Path) -> Catalogue:
        """Read the items."""
        return load_items(items, columns_of(self.column), self.vectors_file)


@app.command()
@expanded
def build(
    items: Items,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory to write the tree to.", show_default=False)],
    shape: Annotated[
        dict[str, Any], Derived(ItemTree.build, "widths", "max_leaf", "normalize", "seed", "threads", words=_WORDS)
    ],
    flags: ItemFlags,
    _by_category: Annotated[
        bool, typer.Option("--by-category", help="Use the category column as the tree instead of clustering.")
    ] = False,
    separator: Annotated[str, typer.Option(help="What separates the steps of a category path.")] = ">",
    on: Annotated[
        str | None,
        typer.Option(help="For shards: processes (default), ray, or ray://host:port.", show_default=False),
    ] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(help="For shards: folder for intermediate files. Default: temporary files.", show_default=False),
    ] = None,
    prior: Annotated[
        Path | None,
        typer.Option(
            help="What `treeward prior fit` wrote, if you serve with it: items that the same users like are then near.",
            show_default=False,
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Cluster items into a tree, bottom-up, and save it. Nodes are named from titles where there are any.

    ITEMS may also be a folder of shards (.npy matrices or Parquet tables), which are never all in memory; see --on.
    """
    artefact.check_free(out, FORMAT, FILES, overwrite=force)
    shards = is_sharded(items)
    if _by_category and (shape["widths"] or shape["max_leaf"]):
        raise InvalidArgument("tree build", "--by-category", "used without --widths and --max-leaf", "both")
    if prior is not None and (_by_category or not shape["normalize"] or shards):
        rule = "used without --by-category, --no-normalize and shards"
        raise InvalidArgument("tree build", "--prior", rule, str(prior))
    if shards and (_by_category or flags.vectors_file is not None):
        rule = "a single table for --by-category or --vectors-file"
        raise InvalidArgument("tree build", "ITEMS", rule, str(items))
    if not shards and (on is not None or scratch is not None):
        raise InvalidArgument("tree build", "--on", "used with a folder of shards", str(items))
    if shards:
        catalogue, column = None, columns_of(flags.column).get("vector", "vector")
        shape["processes"] = shape.pop("threads")
        with progress() as report:
            tree = ItemTree.from_shards(
                items, column=column, **shape, on=on or "processes", scratch=scratch, progress=report
            )
    else:
        catalogue = flags.load(items)
        tree = _category_tree(catalogue, separator, shape) if _by_category else _clustered(catalogue, prior, shape)
    with timed("Saving"):
        tree.save(out, overwrite=force)
    show_tree(tree.describe(catalogue.vectors if catalogue is not None and tree.dim == catalogue.dim else None))
    say(f"Saved to {out}. Next: treeward tree draw {shlex.quote(str(out))} -o tree.html")
    if catalogue is not None and flags.vectors_file is None:  # a service reads vectors from the table
        words = ["treeward", "serve", str(items), "--tree", str(out)]
        words += [] if prior is None else ["--prior", str(prior)]
        say("Then: " + shlex.join([*words, *(word for one in flags.column or [] for word in ("--column", one))]))


def _category_tree(catalogue: Catalogue, separator: str, shape: dict[str, Any]) -> ItemTree:
    labels = catalogue.categories
    if labels is None:
        raise InvalidArgument("tree build", "--by-category", "used with a category column", "none")
    with timed("Category tree"):
        return ItemTree.from_paths(catalogue.vectors, labels, separator=separator, normalize=shape["normalize"])


def _clustered(catalogue: Catalogue, prior: Path | None, shape: dict[str, Any]) -> ItemTree:
    """Return a tree over the items' vectors, or over the features of a prior, with names where items have titles."""
    with progress() as report:
        if prior is None:
            tree = ItemTree.build(catalogue.vectors, **shape, progress=report)
        else:  # the prior scales the vectors itself
            del shape["normalize"]
            tree = Beam(prior=load_prior("tree build", prior, catalogue)).grow(catalogue, progress=report, **shape)
    if catalogue.titles is None:
        return tree
    with timed("Naming nodes"):
        return tree.named(catalogue.titles)


@app.command("show")
@expanded
def show_(
    tree: Tree,
    flags: ItemFlags,
    items: ItemsOption = None,
    node: Annotated[int, typer.Option(help="List the children of this node; 0 is the root.")] = 0,
    most: Annotated[int, typer.Option(help="List at most this many children.", min=0)] = 10,
) -> None:
    """Print a tree's levels and a node's largest children; with --items also the error within nodes and some titles."""
    loaded = ItemTree.load(tree)
    checks.integer("tree show", "--node", node, low=0, high=len(loaded.parent) - 1)
    catalogue = None if items is None else flags.load(items)
    # A tree that was built with a prior has other dimensions than the items.
    fits = catalogue is not None and loaded.dim == catalogue.dim
    show_tree(loaded.describe(catalogue.vectors if catalogue is not None and fits else None))
    _list_node(loaded, node, most, catalogue)


@app.command()
@expanded
def draw(
    tree: Tree,
    flags: ItemFlags,
    out: Annotated[Path, typer.Option("--out", "-o", help="A .html page or a .png picture.")] = Path("tree.html"),
    items: ItemsOption = None,
    heading: Annotated[
        str | None, typer.Option(help="Heading of the page. Default: the tree's name.", show_default=False)
    ] = None,
) -> None:
    """Draw a tree: an interactive page that needs no network, or a picture. With --items the page shows titles."""
    loaded = ItemTree.load(tree)
    titles = None if items is None else flags.load(items).titles
    with timed("Drawing"):
        path = loaded.draw(out, titles=titles, heading=heading or tree.resolve().name)
    say(f"Wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")


def _list_node(tree: ItemTree, node: int, most: int, catalogue: Catalogue | None) -> None:
    def named(number: int) -> str:
        return f"{line(tree.names[number])} (node {number})" if tree.names is not None else f"node {number}"

    def size(number: int) -> int:
        return int(tree.item_range[number, 1] - tree.item_range[number, 0])

    children = sorted(tree.children_of(node), key=size, reverse=True)
    kind = f"{len(children):,} children" if children else "a leaf"
    say(f"{named(node)}: level {tree.level[node]}, {size(node):,} items, {kind}")
    for child in children[:most]:
        say(f"  {size(child):>10,}  {named(child)}")
    if len(children) > most:
        say(f"  and {len(children) - most:,} more")
    if catalogue is not None and not children:
        for row in tree.items_of(node)[:most].tolist():
            title = "" if catalogue.titles is None else f"  {line(catalogue.titles[row])}"
            say(f"  {line(catalogue.ids[row])}{title}")
    if catalogue is None and not children:
        say("give --items to list the items of a leaf", errors)


_HEALTH = (
    ("items that can be shown", "items", "{:,}"),
    ("  added or changed since the tree was built", "added", "{:,}"),
    ("  removed since", "removed", "{:,}"),
    ("leaves", "leaves", "{:,}"),
    ("  items in the largest", "largest", "{:,}"),
    ("  imbalance (1: all of one size)", "imbalance", "{:.2f}"),
    ("  without a free place", "full", "{:,}"),
    ("  to be split", "crowded", "{:,}"),
    ("  to be merged", "starved", "{:,}"),
    ("  stale: a quarter of their items added or removed", "stale", "{:,}"),
    ("distance of items from the mean of their leaf", "distance", "{:.4f}"),
    ("  of items added since", "distance_added", "{:.4f}"),
    ("  in a rebuilt tree", "distance_rebuilt", "{:.4f}"),
    ("expected reward lost by the search", "lost", "{:.2%}"),
    ("  in a rebuilt tree", "lost_rebuilt", "{:.2%}"),
)


@app.command()
def health(
    what: Annotated[
        str,
        typer.Argument(
            help="Admin address of a running service, e.g. localhost:8001, or the items of one that is not running.",
            metavar="WHAT",
        ),
    ],
    column: Columns = None,
    tree: Annotated[
        Path | None, typer.Option(help="The tree of the items. Default: one is built.", show_default=False)
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="The store of the service's events. Default: none.", show_default=False)
    ] = None,
    prior: Annotated[Path | None, typer.Option(help="The prior of the service, if any.", show_default=False)] = None,
    users: Annotated[int, typer.Option(help="Find the best items for this many users.", min=1)] = 100,
    compare: Annotated[bool, typer.Option(help="Also build a new tree, to compare with.")] = True,
    key: Key = None,
) -> None:
    """Measure how well a tree fits its items: imbalance, stale leaves, distances, reward lost; advise on a rebuild."""
    if is_address(what):
        if tree or store or prior or column:
            raise InvalidArgument("tree health", "--tree", "given with items, not with a service's address", what)
        with remote("tree health", "admin", what, key) as client, timed("Measuring the tree"):
            found = client.health(users=users, compare=compare)
    else:
        found = _measured(Path(what), column, tree, store, prior, users, compare)
    values = ((label, found[name], form) for label, name, form in _HEALTH)
    rows = [(label, "-" if value is None or value != value else form.format(value)) for label, value, form in values]
    show_table(None, ("", "value"), rows, show_header=False)
    asked = f"{found['users']:,} users who asked lately" if found["users"] else "users drawn from the prior"
    say(f"Reward lost: for {asked}. {found['advice']}")


def _measured(
    items: Path, column: list[str] | None, tree: Path | None, store: Path | None, prior: Path | None, users: int,
    compare: bool,
) -> dict[str, Any]:  # fmt: skip
    """Measure the tree of a service that is not running."""
    with _copied(store) as held:
        shop = load_items(items, columns_of(column))
        with timed("Preparing"):
            policy = Beam(prior=load_prior("tree health", prior, shop) if prior is not None else None)
            made = Explorer(shop, ItemTree.load(tree) if tree is not None else None, policy, held)
        for user in islice(everyone(held), users):
            made.preview(user)
        with progress() as report:
            found = made.inspect.health(users=users, compare=compare, progress=report)
    return {**found._asdict(), "advice": found.advice}


@contextmanager
def _copied(store: Path | None) -> Iterator[EventStore]:
    """Yield a copy of a store, so that nothing is changed; an empty store if there is none."""
    if store is None:
        yield MemoryStore()
        return
    with copy_of(store) as copy, closing(SQLiteStore(copy, create=False)) as held:
        yield held
