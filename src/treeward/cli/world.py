"""`treeward world`: learn a world from a log."""

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from treeward.cli.console import console, progress, say, timed
from treeward.cli.data import As, Data, Options, read

app = typer.Typer(help="Learn worlds to try policies in.", no_args_is_help=True)


@app.command()
def fit(
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory to write the world to.", show_default=False)],
    loader: As = None,
    options: Options = None,
    dim: Annotated[int, typer.Option(help="Dimensions of the hidden vectors.", min=1)] = 32,
    exposure: Annotated[
        str, typer.Option(help="Where propensities come from: auto, impressions, popularity or none.")
    ] = "auto",
    negatives: Annotated[int, typer.Option(help="Negatives a positive: they set the base rate.", min=1)] = 4,
    seed: Annotated[int, typer.Option(help="Everything random comes from here.", min=0)] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
) -> None:
    """Learn a world from a log by inverse-propensity-weighted factorisation; say how well it tells held-out events."""
    from treeward.core import artefact
    from treeward.learn.torch import torch_for
    from treeward.simulate.world import FORMAT, Tastes, World

    torch_for("world fit")
    artefact.check_free(out, FORMAT, (*Tastes._fields, "vectors", "catalogue", "people"), overwrite=force)
    made = read(data, loader, options)
    with progress() as report:
        world = World.fit(
            made.interactions,
            made.catalogue,
            dim=dim,
            exposure=exposure,
            negatives=negatives,
            seed=seed,
            device=device,
            progress=report,
        )
    world.provenance["data"] = made.source
    with timed("Saving"):
        world.save(out, overwrite=force)
    table = Table(title=repr(world), title_justify="left", box=SIMPLE_HEAD, padding=0)
    table.add_column("on held-out events")
    table.add_column("", justify="right")
    for name, what in (("auc", "AUC"), ("auc_popularity", "AUC of popularity alone"), ("log_loss", "log-loss")):
        table.add_row(what, f"{world.provenance[name]:.4f}")
    table.add_row("mean reward of a random item", f"{world.base_rate():.4f}")
    console.print(table)
    say(f"Saved to {out}")
