"""`treeward experiment reference`: the paper's authors' own experiment, theirs and ours."""

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from treeward.cli.console import console, progress, say


def reference(
    folder: Annotated[Path, typer.Argument(help="Folder with world.npz and authors_results.json.", show_default=False)],
    repeats: Annotated[int, typer.Option(help="Seeds to average.", min=1)] = 10,
) -> None:
    """Rerun the paper's authors' own experiment with their options, and print theirs and ours, with the speed."""
    from treeward.experiment.reference import compare

    with progress() as report:
        rows = compare(folder, repeats, report)
    title = f"Mean cumulative reward of {rows[0].users} users, {repeats} repeats averaged; one core"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0)
    for name in ("policy", "round", "theirs", "ours", "errors apart", "us theirs", "us ours", "faster"):
        table.add_column(name, justify="left" if name == "policy" else "right")
    for row in rows:
        speed = (f"{row.their_us:.0f}", f"{row.our_us:.1f}", f"{row.their_us / row.our_us:.0f}x")
        table.add_row(row.policy, f"{row.round}", f"{row.theirs:.1f}", f"{row.ours:.1f}", f"{row.errors:+.1f}", *speed)
    console.print(table)
    say("errors apart: the difference, paired by user, in standard errors; their time is of the machine it was run on")
