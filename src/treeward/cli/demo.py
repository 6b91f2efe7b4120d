"""`treeward demo`: the whole thing on a made-up catalogue."""

from pathlib import Path
from typing import Annotated

import typer

from treeward.cli.console import progress, say, show, timed


def demo(
    items: Annotated[int, typer.Option(help="How many items to make up.", min=100)] = 100_000,
    dim: Annotated[int, typer.Option(help="Dimensions of their vectors.", min=2)] = 32,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for what it makes.")] = Path("demo-out"),
    seed: Annotated[int, typer.Option(help="Everything random comes from here.", min=0)] = 0,
) -> None:
    """Make up a catalogue, build its tree, describe it and draw it."""
    from treeward.data.synthetic import synthetic_catalogue
    from treeward.tree.item_tree import ItemTree

    with timed(f"Making up {items:,} items"):
        catalogue = synthetic_catalogue(items, dim, seed)
        catalogue.save(out / "items", overwrite=True)
    with progress() as report:
        tree = ItemTree.build(catalogue.vectors, seed=seed, progress=report)
    with timed("Naming nodes"):
        assert catalogue.titles is not None
        tree = tree.named(catalogue.titles)
    tree.save(out / "tree", overwrite=True)
    show(tree.describe(catalogue.vectors))
    with timed("Drawing"):
        page = tree.draw(out / "tree.html", titles=catalogue.titles, heading=f"A made-up catalogue, seed {seed}")
        picture = tree.draw(out / "tree.png", heading=f"A made-up catalogue, seed {seed}")
    say(f"Open {page} in a browser, or look at {picture}.")
    say(f"Try: treeward tree show {out / 'tree'} --items {out / 'items'} --node 1")
