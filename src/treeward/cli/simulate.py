"""`treeward simulate`: try policies on the users of a synthetic world."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from treeward.cli.console import console, progress, say, timed
from treeward.core.registry import BANDITS, BASELINES, TREE_POLICIES

if TYPE_CHECKING:
    from treeward.simulate.result import Result

POLICY_HELP = (
    f"{', '.join(TREE_POLICIES | BASELINES)}, or your own: FILE.py:CLASS; repeatable. "
    f"Default: the first {len(TREE_POLICIES)}."
)
BANDIT_HELP = f"{', '.join(BANDITS)}, or your own: FILE.py:CLASS."


def simulate(
    items: Annotated[int, typer.Option(help="Items in the world.", min=100)] = 100_000,
    users: Annotated[int, typer.Option(help="Users in the world.", min=1)] = 200,
    dim: Annotated[int, typer.Option(help="Dimensions of the item vectors.", min=2)] = 32,
    rounds: Annotated[int, typer.Option(help="Recommendations a user gets.", min=1)] = 500,
    policy: Annotated[list[str] | None, typer.Option(help=POLICY_HELP, show_default=False)] = None,
    bandit: Annotated[str, typer.Option(help=BANDIT_HELP)] = "linucb",
    budget: Annotated[int, typer.Option(help="Score computations a round.", min=1)] = 50,
    click: Annotated[bool, typer.Option("--click", help="Rewards are clicks, not probabilities.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Show no item twice to a user.")] = False,
    seed: Annotated[int, typer.Option(help="Everything random comes from here.", min=0)] = 0,
    out: Annotated[Path, typer.Option("--out", "-o", help="Curves to write: .html or .png.")] = Path("curves.html"),
) -> None:
    """Try policies on the same synthetic users, under the same budget of scores, and draw what they earn."""
    from treeward.bandit import bandit_named
    from treeward.core.registry import make
    from treeward.policy import TREE_POLICIES, policy_named
    from treeward.simulate import World, draw_curves
    from treeward.simulate import simulate as run
    from treeward.simulate.curves import curve_kind
    from treeward.tree.item_tree import ItemTree

    curve_kind("simulate", "--out", out)
    kinds = [policy_named("simulate", "--policy", name) for name in policy or TREE_POLICIES]
    base = make("simulate", "--bandit", bandit, bandit_named("simulate", "--bandit", bandit))
    with timed(f"A world of {items:,} items and {users:,} users"):
        world = World.synthetic(items, users, dim, seed)
    with progress() as report:
        tree = ItemTree.build(world.catalogue.vectors, seed=seed, progress=report)
    given = zip(policy or TREE_POLICIES, kinds, strict=True)
    policies = [make("simulate", "--policy", name, kind, base, budget=budget) for name, kind in given]
    for made in policies:
        made.session(tree, world.catalogue, 1)  # a bad budget is told before the first long run, not between two
    with progress() as report:
        results = [
            run(
                made,
                world,
                tree,
                rounds=rounds,
                seed=seed,
                reward="click" if click else "probability",
                repeats=not once,
                progress=report,
            )
            for made in policies
        ]
    show_results(results, world.base_rate(users) * rounds)
    with timed("Drawing"):
        path = draw_curves(results, out, f"{users:,} users, {items:,} items, {budget} scores a round, seed {seed}")
    say(f"Wrote {path}")


def show_results(results: "list[Result]", random: float) -> None:
    """Print a table of what policies earned; `random` is what random items would have."""
    rounds = results[0].rewards.shape[1]
    title = f"Mean reward per user in {rounds:,} rounds; scores, multiplications and time per user and round"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0)
    for name in ("policy", "reward", "95 % interval", "scores", "products", "items shown", "us/round"):
        table.add_column(name, justify="left" if name == "policy" else "right")
    table.add_row("random items", f"{random:.1f}", "", "", "", "", "")
    for result in results:
        total, half = result.cumulative[-1], 1.96 * result.error
        table.add_row(
            result.policy,
            f"{total:.1f}",
            f"{total - half:.1f} - {total + half:.1f}" if half == half else "",
            f"{result.scores.mean():.1f}",
            f"{result.settings['multiplications']:,.0f}",
            f"{result.coverage:.1%}",
            f"{result.seconds / result.rewards.size * 1e6:.1f}",
        )
    console.print(table)
