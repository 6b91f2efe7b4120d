"""`treeward experiment regret`: measured regret over catalogue sizes, next to the paper's bounds."""

from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from treeward.cli.console import console, progress, say
from treeward.cli.experiment import Dim, On, Out, Processes, Repeats, Rounds, Seed, Users
from treeward.core.errors import InvalidArgument


def regret(
    out: Out,
    items: Annotated[str, typer.Option(help="Catalogue sizes, each larger than the one before.")] = "1000,10000,100000",
    users: Users = 20,
    rounds: Rounds = 1_000,
    repeats: Repeats = 3,
    dim: Dim = 32,
    seed: Seed = 0,
    processes: Processes = None,
    on: On = "processes",
) -> None:
    """Measure the regret of HCB and of flat LinUCB over catalogue sizes, next to how the paper's bounds grow."""
    from treeward.experiment.regret import Sizes, measure_regret, write_regret

    try:
        counts = tuple(int(part) for part in items.split(","))
    except ValueError as error:
        raise InvalidArgument("experiment regret", "--items", "integers separated by commas", items) from error
    sizes = Sizes(counts, users, rounds, repeats, dim, seed)
    with progress() as report:
        measured = measure_regret(sizes, out, processes=processes, on=on, progress=report)
    title = f"Regret per user after {rounds:,} rounds, {users} users, {repeats} repeats"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0)
    for head in ("items", "arm", "regret", "95 %", "growth", "late, per round"):
        table.add_column(head, justify="left" if head == "arm" else "right")
    for row in measured.rows:
        half = "" if row.regret.half is None else f"± {row.regret.half:.1f}"
        table.add_row(f"{row.items:,}", row.arm, f"{row.regret.mean:.1f}", half, f"{row.growth:.2f}", f"{row.late:.4f}")
    console.print(table)
    for name, growth in measured.bounds().items():
        say(f"{name} grows by {', '.join(f'{one:.2f}' for one in growth)}")
    for path in write_regret(measured, out):
        say(f"Wrote {path}")
