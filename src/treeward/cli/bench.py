"""`treeward bench`: how fast this machine recommends and learns."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from treeward.bandit import BANDITS
from treeward.cli.console import progress, say, show_table, timed
from treeward.cli.options import Seed
from treeward.core import artefact, checks
from treeward.core.version import __version__
from treeward.data.interactions import Interactions
from treeward.data.synthetic import synthetic_catalogue
from treeward.explorer.explorer import Explorer
from treeward.policy import TREE_POLICIES
from treeward.state.user_states import seat_bytes
from treeward.tree.item_tree import ItemTree

_EVENTS = 1_000


def bench(
    items: Annotated[int, typer.Option(help="Items in the catalogue.", min=100)] = 100_000,
    dim: Annotated[int, typer.Option(help="Dimensions of the item vectors.", min=2)] = 64,
    users: Annotated[int, typer.Option(help="Users in a batch.", min=1)] = 100,
    policy: Annotated[str, typer.Option(help=f"One of {', '.join(TREE_POLICIES)}.")] = "beam",
    bandit: Annotated[str, typer.Option(help=f"One of {', '.join(BANDITS)}.")] = "linucb",
    budget: Annotated[
        int | None, typer.Option(help="Score computations per decision. Default: the policy's own.", min=1)
    ] = None,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write the figures here, as JSON.")] = None,
) -> None:
    """Measure how long recommending, learning and rebuilding a user take, on a synthetic catalogue of your size."""
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
        explorer.feedback({explorer.recommend(["first"])[0].id: 1.0})
        explorer.recommend(["first"])
    names = [f"user {i}" for i in range(users)]
    figures: dict[str, tuple[float, float]] = {}
    with progress() as report:

        def measure(what: str, times: int, act: Callable[[], object], before: Callable[[], object] = int) -> None:
            taken = []
            for turn in range(times):
                before()
                start = perf_counter()
                act()
                taken.append(1e6 * (perf_counter() - start))
                report(what, turn + 1, times)
            taken.sort()
            figures[what] = (taken[times // 2], taken[int(0.99 * (times - 1))])

        def rounds() -> None:
            explorer.feedback({d.id: float(d.slot == 0) for d in explorer.recommend(names)})

        measure(f"recommend {users} users and learn from each", 50, rounds)
        measure("recommend 1 user", 1_000, lambda: explorer.recommend(names[:1]))
        measure(f"recommend {users} users", 100, lambda: explorer.recommend(names))
        rows = [(i * 7919) % items for i in range(_EVENTS)]
        rewards = [float(i % 3 == 0) for i in range(_EVENTS)]
        log = Interactions(["absent"] * _EVENTS, shop.ids[rows], rewards=rewards)
        other = Explorer(shop, tree, made, seed=seed, crowd=False)
        other.ingest(log)
        other.recommend(["absent"])
        measure(
            f"recommend 1 user who was away, from {_EVENTS:,} events", 50,
            lambda: other.recommend(["absent"]), lambda: other.release("absent"),
        )  # fmt: skip
    title = f"{items:,} items x {dim}, {made.name}; {seat_bytes(plan):,} bytes per user in memory"
    timings = [(what, f"{median:,.0f}", f"{most:,.0f}") for what, (median, most) in figures.items()]
    show_table(title, ("microseconds", "median", "99 of 100 within"), timings, left=("microseconds",))
    if out is not None:
        written = {what: {"median_us": median, "p99_us": most} for what, (median, most) in figures.items()}
        settings = {"items": items, "dim": dim, "users": users, "policy": repr(made), "seed": seed}
        text = json.dumps({**settings, "treeward": __version__, "figures": written}, indent=2) + "\n"
        artefact.write_file(out, text.encode())
        say(f"Wrote {out}")
