"""`treeward demo`: the whole thing on a made-up world."""

from pathlib import Path
from typing import Annotated

import typer

from treeward.cli.console import progress, say, show, timed
from treeward.cli.simulate import show_results


def demo(
    items: Annotated[int, typer.Option(help="How many items to make up.", min=100)] = 100_000,
    users: Annotated[int, typer.Option(help="How many users to make up.", min=2)] = 200,
    rounds: Annotated[int, typer.Option(help="Recommendations a user gets.", min=1)] = 500,
    dim: Annotated[int, typer.Option(help="Dimensions of the item vectors.", min=2)] = 32,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for what it makes.")] = Path("demo-out"),
    seed: Annotated[int, typer.Option(help="Everything random comes from here.", min=0)] = 0,
) -> None:
    """Make up a world, build and draw its item tree, and try six policies on its users."""
    from treeward.policy import TREE_POLICIES
    from treeward.simulate import World, draw_curves, simulate
    from treeward.tree.item_tree import ItemTree

    with timed(f"Making up {items:,} items and {users:,} users"):
        world = World.synthetic(items, users, dim, seed)
        world.catalogue.save(out / "items", overwrite=True)
    with progress() as report:
        tree = ItemTree.build(world.catalogue.vectors, seed=seed, progress=report)
    titles = world.catalogue.titles
    assert titles is not None
    with timed("Naming nodes"):
        tree = tree.named(titles)
    tree.save(out / "tree", overwrite=True)
    show(tree.describe(world.catalogue.vectors))
    heading = f"A made-up catalogue, seed {seed}"
    with timed("Drawing the tree"):
        tree.draw(out / "tree.html", titles=titles, heading=heading)
        tree.draw(out / "tree.png", heading=heading)
    with timed("Compiling (the first time takes about a minute)"):
        for kind in TREE_POLICIES.values():
            simulate(kind(), world, tree, rounds=1, users=1, seed=seed)
    with progress() as report:
        results = [
            simulate(kind(), world, tree, rounds=rounds, seed=seed, progress=report) for kind in TREE_POLICIES.values()
        ]
    show_results(results, world.base_rate(users) * rounds)
    with timed("Drawing the curves"):
        subtitle = f"{users:,} users, {items:,} items, at most 50 scores a round, seed {seed}"
        draw_curves(results, out / "curves.html", subtitle)
        draw_curves(results, out / "curves.png", subtitle)
    say(f"Open {out / 'tree.html'} and {out / 'curves.html'} in a browser, or look at the .png beside them.")
    say(f"Try: treeward tree show {out / 'tree'} --items {out / 'items'} --node 1")
