"""`treeward tree`: build a tree from item vectors, look at it, draw it."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from treeward.cli.console import errors, line, progress, say, show, timed
from treeward.cli.tables import ItemColumns, columns_of, load_items, load_prior
from treeward.core.errors import InvalidArgument

if TYPE_CHECKING:
    from treeward.data.catalogue import Catalogue
    from treeward.tree.item_tree import ItemTree

app = typer.Typer(help="Build, show and draw trees of items.", no_args_is_help=True)

_ITEMS = "Item vectors: a .npy matrix, a .csv, .tsv or .parquet table, or a saved catalogue."
Items = Annotated[Path, typer.Argument(help=_ITEMS, show_default=False)]
ItemsOption = Annotated[Path | None, typer.Option("--items", help=_ITEMS, show_default=False)]
Tree = Annotated[Path, typer.Argument(help="A tree that `treeward tree build` wrote.", show_default=False)]
Vectors = Annotated[
    Path | None, typer.Option("--vectors", help="A .npy matrix with the table's vectors.", show_default=False)
]


@app.command()
def build(
    items: Items,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory to write the tree to.", show_default=False)],
    widths: Annotated[
        str | None,
        typer.Option(
            help="Nodes a level from below the root to the leaves, e.g. 100,10000. "
            "Default: about 16 items a leaf, at most about 100 children a node.",
            show_default=False,
        ),
    ] = None,
    by_category: Annotated[
        bool, typer.Option("--by-category", help="Use the category column as the tree instead of clustering.")
    ] = False,
    separator: Annotated[str, typer.Option(help="What separates the steps of a category path.")] = ">",
    max_leaf: Annotated[
        int | None, typer.Option(help="Split leaves of more items than this.", show_default=False)
    ] = None,
    normalize: Annotated[bool, typer.Option(help="Scale item vectors to length 1 first.")] = True,
    seed: Annotated[int, typer.Option(help="Same seed and vectors: same tree.")] = 0,
    threads: Annotated[
        int | None, typer.Option(help="Or processes, for shards. Default: all cores.", show_default=False)
    ] = None,
    on: Annotated[
        str | None,
        typer.Option("--on", help="Shards: processes (default), ray, or ray://host:port.", show_default=False),
    ] = None,
    scratch: Annotated[
        Path | None, typer.Option(help="Shards: where processes lay what they hand on.", show_default=False)
    ] = None,
    prior: Annotated[
        Path | None,
        typer.Option(help="What `treeward prior fit` wrote, if that is served too: near is what people like alike.",
                     show_default=False),
    ] = None,
    column: ItemColumns = None,
    vectors: Vectors = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing tree.")] = False,
) -> None:  # fmt: skip
    """Cluster items into a tree, bottom-up, and save it. Nodes are named from titles where there are any.

    ITEMS may be a folder of shards, .npy matrices or Parquet tables, that are never all in memory; see --on.
    """
    from treeward.core import artefact
    from treeward.tree.item_tree import FILES, FORMAT, ItemTree
    from treeward.tree.shard_files import is_sharded

    artefact.check_free(out, FORMAT, FILES, overwrite=force)
    if by_category and (widths or max_leaf):
        raise InvalidArgument("tree build", "--by-category", "used without --widths and --max-leaf", "both")
    if prior is not None and (by_category or not normalize or is_sharded(items)):
        rule = "used without --by-category, --no-normalize and shards"
        raise InvalidArgument("tree build", "--prior", rule, str(prior))
    counts = None if widths is None else parse_widths(widths)
    if is_sharded(items):
        if by_category or vectors is not None:
            raise InvalidArgument("tree build", "ITEMS", "a single table for --by-category or --vectors", str(items))
        with progress() as report:
            made = ItemTree.from_shards(
                items,
                counts,
                column=columns_of(column).get("vector", "vector"),
                seed=seed,
                normalize=normalize,
                max_leaf=max_leaf,
                on=on or "processes",
                processes=threads,
                scratch=scratch,
                progress=report,
            )
        made.save(out, overwrite=force)
        show(made.describe())
        return say(f"Saved to {out}. Next: treeward tree draw {shlex.quote(str(out))} -o tree.html")
    if on is not None or scratch is not None:
        raise InvalidArgument("tree build", "--on", "used with a folder of shards", str(items))
    catalogue = load_items(items, column, vectors)
    how = _Shape(counts, seed, normalize, max_leaf, threads)
    tree = _by_category(catalogue, separator, how) if by_category else _clustered(catalogue, prior, how)
    with timed("Saving"):
        tree.save(out, overwrite=force)
    show(tree.describe(catalogue.vectors if tree.dim == catalogue.dim else None))
    say(f"Saved to {out}. Next: treeward tree draw {shlex.quote(str(out))} -o tree.html")
    if vectors is None:  # a service has them in the table
        words = ["treeward", "serve", str(items), "--tree", str(out), *_with(prior)]
        say("Then: " + shlex.join([*words, *(word for one in column or [] for word in ("--column", one))]))


class _Shape(NamedTuple):
    widths: list[int] | None
    seed: int
    normalize: bool
    max_leaf: int | None
    threads: int | None


def _with(prior: Path | None) -> list[str]:
    return [] if prior is None else ["--prior", str(prior)]


def _by_category(catalogue: "Catalogue", separator: str, how: _Shape) -> "ItemTree":
    from treeward.tree.item_tree import ItemTree

    if catalogue.categories is None:
        raise InvalidArgument("tree build", "--by-category", "used with a category column", "none")
    with timed("Category tree"):
        return ItemTree.from_paths(
            catalogue.vectors, catalogue.categories, separator=separator, normalize=how.normalize
        )


def _clustered(catalogue: "Catalogue", prior: Path | None, how: _Shape) -> "ItemTree":
    """Return a tree over the items' vectors, or over what a prior makes of them, its nodes named."""
    from treeward.tree.item_tree import ItemTree

    with progress() as report:
        if prior is None:
            tree = ItemTree.build(
                catalogue.vectors,
                how.widths,
                seed=how.seed,
                normalize=how.normalize,
                max_leaf=how.max_leaf,
                threads=how.threads,
                progress=report,
            )
        else:
            from treeward.policy.beam import Beam

            tree = Beam(prior=load_prior("tree build", prior, catalogue)).grow(
                catalogue, how.seed, report, widths=how.widths, max_leaf=how.max_leaf, threads=how.threads
            )
    if catalogue.titles is None:
        return tree
    with timed("Naming nodes"):
        return tree.named(catalogue.titles)


@app.command("show")
def show_(
    tree: Tree,
    items: ItemsOption = None,
    column: ItemColumns = None,
    vectors: Vectors = None,
    node: Annotated[int, typer.Option(help="List the children of this node.")] = 0,
    most: Annotated[int, typer.Option(help="How many children to list.", min=0)] = 10,
) -> None:
    """Print a tree's levels and a node's largest children; with --items also the error within nodes and some titles."""
    from treeward.core import checks
    from treeward.tree.item_tree import ItemTree

    loaded = ItemTree.load(tree)
    checks.integer("tree show", "--node", node, low=0, high=len(loaded.parent) - 1)
    catalogue = load_items(items, column, vectors) if items is not None else None
    fits = catalogue is not None and loaded.dim == catalogue.dim  # not one that was built with a prior
    show(loaded.describe(catalogue.vectors if catalogue is not None and fits else None))
    _list_node(loaded, node, most, catalogue)


@app.command()
def draw(
    tree: Tree,
    out: Annotated[Path, typer.Option("--out", "-o", help="A .html page or a .png picture.")] = Path("tree.html"),
    items: ItemsOption = None,
    column: ItemColumns = None,
    vectors: Vectors = None,
    heading: Annotated[str | None, typer.Option(help="Default: the tree's name.", show_default=False)] = None,
) -> None:
    """Draw a tree: a page to click through that needs no network, or a picture. With --items the page shows titles."""
    from treeward.tree.item_tree import ItemTree

    loaded = ItemTree.load(tree)
    titles = None if items is None else load_items(items, column, vectors).titles
    with timed("Drawing"):
        path = loaded.draw(out, titles=titles, heading=heading or tree.resolve().name)
    say(f"Wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")


def parse_widths(text: str) -> list[int]:
    """Return the widths in a list such as 100,10000."""
    try:
        return [int(part.replace("_", "")) for part in text.split(",")]
    except ValueError as error:
        raise InvalidArgument("treeward", "--widths", "integers separated by commas, e.g. 100,10000", text) from error


def _list_node(tree: "ItemTree", node: int, most: int, catalogue: "Catalogue | None") -> None:
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
