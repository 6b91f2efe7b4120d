"""`treeward experiment changing-catalogue`: a catalogue of which part comes and goes every day."""

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from treeward.cli.console import console, progress, say
from treeward.cli.experiment import On, Out, Processes, Repeats, Seed, Users
from treeward.core.errors import InvalidArgument


def changing_catalogue(
    out: Out,
    world: Annotated[
        Path | None, typer.Argument(help="A saved world; default: one is made up.", show_default=False)
    ] = None,
    items: Annotated[int, typer.Option(help="Items of a world that is made up; half are there at a time.")] = 20_000,
    users: Users = 200,
    days: Annotated[int, typer.Option(help="How long it goes on.", min=1)] = 20,
    rounds: Annotated[int, typer.Option(help="Recommendations a user gets every day.", min=1)] = 10,
    churn: Annotated[str, typer.Option(help="Shares of the catalogue that come and go every day.")] = "0.01,0.05,0.2",
    repeats: Repeats = 3,
    seed: Seed = 0,
    processes: Processes = None,
    on: On = "processes",
) -> None:
    """Let a catalogue change every day: a static tree, an overlay, a tree clustered anew now and then, or every day."""
    from treeward.experiment.changing_catalogue import ChangingCatalogue, run_changing_catalogue
    from treeward.experiment.changing_catalogue_report import way_summaries, write_changing_catalogue

    try:
        shares = tuple(float(part) for part in churn.split(","))
    except ValueError as error:
        raise InvalidArgument(
            "experiment changing-catalogue", "--churn", "numbers separated by commas", churn
        ) from error
    name = "" if world is None else str(world.resolve())
    spec = ChangingCatalogue(name, items, users, days, rounds, shares, repeats, seed)
    with progress() as report:
        lived = run_changing_catalogue(spec, out, processes=processes, on=on, progress=report)
    table = Table(title=f"Reward of {users:,} users in {days} days", title_justify="left", box=SIMPLE_HEAD, padding=0)
    for head in ("a day", "way", "reward", "of rebuilt every day", "last quarter", "seen at once", "in 3 days"):
        table.add_column(head, justify="left" if head == "way" else "right")
    for one in way_summaries(lived):
        table.add_row(
            f"{one.churn:.0%}", one.way, f"{one.reward:.2f}", f"{one.share:.1%} ± {one.half:.1%}", f"{one.last:.1%}",
            f"{one.within_1:.1%}", f"{one.within_3:.1%}",
        )  # fmt: skip
    console.print(table)
    for path in write_changing_catalogue(lived, out):
        say(f"Wrote {path}")
