"""`treeward simulate`: compare policies on the users of a synthetic world."""

from pathlib import Path
from typing import Annotated, Any

import typer

from treeward.bandit import bandit_named
from treeward.cli.console import progress, say, show_table, timed
from treeward.cli.options import Derived, expanded
from treeward.core import checks
from treeward.core.registry import BANDITS, BASELINES, TREE_POLICIES, make
from treeward.policy import policy_named
from treeward.simulate import World, draw_curves
from treeward.simulate import simulate as run
from treeward.simulate.curves import curve_kind
from treeward.simulate.result import Result
from treeward.tree.item_tree import ItemTree

_POLICIES = ", ".join(TREE_POLICIES | BASELINES)
OWN = "or your own: FILE.py:CLASS"
Bandit = Annotated[str, typer.Option(help=f"{', '.join(BANDITS)}, {OWN}.")]
SIZES = {
    "items": "Items in the synthetic world.",
    "users": "Users in the synthetic world.",
    "dim": "Dimensions of the item vectors.",
    "seed": "Every random choice comes from this seed.",
}


@expanded
def simulate(
    size: Annotated[dict[str, Any], Derived(World.synthetic, *SIZES, words=SIZES, users=200)],
    running: Annotated[dict[str, Any], Derived(run, "reward", rounds=500)],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help=f"{_POLICIES}, {OWN}; repeatable. Default: the first {len(TREE_POLICIES)}.",
            show_default=False,
        ),
    ] = None,
    bandit: Bandit = "linucb",
    budget: Annotated[int, typer.Option(help="Score computations per round.", min=1)] = 50,
    once: Annotated[bool, typer.Option("--once", help="Show each item at most once to a user.")] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="Curves to write: .html or .png.")] = Path("curves.html"),
) -> None:
    """Try policies on the same synthetic users, under the same budget of scores, and draw what they earn."""
    curve_kind("simulate", "--out", out)
    check_sizes("simulate", size)
    names = policy or list(TREE_POLICIES)
    kinds = [policy_named("simulate", "--policy", name) for name in names]
    base = make("simulate", "--bandit", bandit, bandit_named("simulate", "--bandit", bandit))
    with timed(f"A world of {size['items']:,} items and {size['users']:,} users"):
        world = World.synthetic(**size)
    running |= {"seed": size["seed"], "repeats": not once}
    with progress() as report:
        tree = ItemTree.build(world.catalogue.vectors, seed=size["seed"], progress=report)
    given = zip(names, kinds, strict=True)
    policies = [make("simulate", "--policy", name, kind, base, budget=budget) for name, kind in given]
    for made in policies:
        made.session(tree, world.catalogue, 1)  # refuse a bad budget before the first long run, not between two
    with progress() as report:
        results = [run(made, world, tree, **running, progress=report) for made in policies]
    show_results(results, world.base_rate(size["users"]) * running["rounds"])
    sizes = f"{size['users']:,} users, {size['items']:,} items, {budget} scores per round, seed {size['seed']}"
    with timed("Drawing"):
        path = draw_curves(results, out, sizes)
    say(f"Wrote {path}")


def check_sizes(owner: str, size: dict[str, Any]) -> None:
    """Refuse a world that is too small for a tree and a prior."""
    checks.integer(owner, "--items", size["items"], low=100)
    checks.integer(owner, "--dim", size["dim"], low=2)


def show_results(results: list[Result], random: float) -> None:
    """Print what policies earned; `random` is the reward of random items."""
    rounds = results[0].rewards.shape[1]
    rows = [["random items", f"{random:.1f}", "", "", "", "", ""]]
    for result in results:
        total, half = result.cumulative[-1], 1.96 * result.error
        rows.append(
            [
                result.policy,
                f"{total:.1f}",
                f"{total - half:.1f} - {total + half:.1f}" if half == half else "",
                f"{result.scores.mean():.1f}",
                f"{result.settings['multiplications']:,.0f}",
                f"{result.coverage:.1%}",
                f"{result.seconds / result.rewards.size * 1e6:.1f}",
            ]
        )
    title = f"Mean reward per user in {rounds:,} rounds; scores, multiplications and time per user and round"
    head = ("policy", "reward", "95 % interval", "scores", "products", "items shown", "us/round")
    show_table(title, head, rows, left=("policy",))
