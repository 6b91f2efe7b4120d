"""`treeward bench`: how fast this machine recommends and learns."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from treeward.cli.console import console, progress, say, timed
from treeward.cli.simulate import BANDIT_HELP
from treeward.core.version import __version__

_EVENTS = 1_000


def bench(
    items: Annotated[int, typer.Option(help="Items in the catalogue.", min=100)] = 100_000,
    dim: Annotated[int, typer.Option(help="Dimensions of the item vectors.", min=2)] = 64,
    users: Annotated[int, typer.Option(help="Users in a batch.", min=1)] = 100,
    policy: Annotated[str, typer.Option(help="beam, phcb, hcb, cb-leaf, cb-category or flat.")] = "beam",
    bandit: Annotated[str, typer.Option(help=BANDIT_HELP)] = "linucb",
    budget: Annotated[
        int | None, typer.Option(help="Score computations a decision. Default: the policy's own.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Everything random comes from here.", min=0)] = 0,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write the figures here, as JSON.")] = None,
) -> None:
    """Measure recommending, learning and rebuilding on a made-up catalogue of your size."""
    from treeward.bandit import BANDITS
    from treeward.core import artefact, checks
    from treeward.data.interactions import Interactions
    from treeward.data.synthetic import synthetic_catalogue
    from treeward.explorer import Explorer
    from treeward.policy import TREE_POLICIES
    from treeward.state.user_states import seat_bytes
    from treeward.tree.item_tree import ItemTree

    base = BANDITS[checks.one_of("bench", "--bandit", bandit, BANDITS)]()
    made = TREE_POLICIES[checks.one_of("bench", "--policy", policy, TREE_POLICIES)](base)
    made = made if budget is None else replace(made, budget=budget)
    with timed(f"A catalogue of {items:,} items"):
        shop = synthetic_catalogue(items, dim, seed)
    with progress() as report:
        tree = ItemTree.build(shop.vectors, seed=seed, progress=report)
    plan = made.plan(tree, shop)
    with timed("First decision (compiles, unless compiled before)"):
        explorer = Explorer(shop, tree, made, seed=seed, memory=max(1 << 30, (users + 2) * seat_bytes(plan)))
        explorer.feedback({explorer.recommend(["somebody"])[0].id: 1.0})
        explorer.recommend(["somebody"])
    names = [f"user {i}" for i in range(users)]
    figures: dict[str, tuple[float, float]] = {}
    with progress() as report:

        def measure(what: str, times: int, act: Callable[[], object], before: Callable[[], object] = int) -> None:
            took = []
            for turn in range(times):
                before()
                start = perf_counter()
                act()
                took.append(1e6 * (perf_counter() - start))
                report(what, turn + 1, times)
            took.sort()
            figures[what] = (took[times // 2], took[int(0.99 * (times - 1))])

        def rounds() -> None:
            explorer.feedback({d.id: float(d.slot == 0) for d in explorer.recommend(names)})

        measure(f"recommend {users} users and learn from each", 50, rounds)
        measure("recommend 1 user", 1_000, lambda: explorer.recommend(names[:1]))
        measure(f"recommend {users} users", 100, lambda: explorer.recommend(names))
        rows = [(i * 7919) % items for i in range(_EVENTS)]
        rewards = [float(i % 3 == 0) for i in range(_EVENTS)]
        log = Interactions(["old friend"] * _EVENTS, shop.ids[rows], rewards=rewards)
        other = Explorer(shop, tree, made, seed=seed, crowd=False)
        other.ingest(log)
        other.recommend(["old friend"])
        measure(
            f"recommend 1 user who was away, from {_EVENTS:,} events", 50,
            lambda: other.recommend(["old friend"]), lambda: other.release("old friend"),
        )  # fmt: skip
    title = f"{items:,} items x {dim}, {made.name}; {seat_bytes(plan):,} bytes a user at hand"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0)
    table.add_column("microseconds")
    table.add_column("median", justify="right")
    table.add_column("99 of 100 within", justify="right")
    for what, (median, most) in figures.items():
        table.add_row(what, f"{median:,.0f}", f"{most:,.0f}")
    console.print(table)
    if out is not None:
        told = {what: {"median_us": median, "p99_us": most} for what, (median, most) in figures.items()}
        settings = {"items": items, "dim": dim, "users": users, "policy": repr(made), "seed": seed}
        text = json.dumps({**settings, "treeward": __version__, "figures": told}, indent=2) + "\n"
        artefact.write_file(out, text.encode())
        say(f"Wrote {out}")
