"""`treeward prior`: what other users' logs say of newcomers."""

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from treeward.cli.console import console, progress, say, timed
from treeward.cli.data import Actions, As, Data, Options, read
from treeward.cli.tables import LogColumns, load_items, sides

app = typer.Typer(help="Learn from users whose logs you have what to expect of new ones.", no_args_is_help=True)


@app.callback()
def _prior() -> None:
    pass


@app.command()
def fit(
    data: Data,
    items: Annotated[Path, typer.Option(help="The items with their vectors.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory to write the prior to.", show_default=False)],
    loader: As = None,
    options: Options = None,
    column: LogColumns = None,
    action: Actions = None,
    users: Annotated[int, typer.Option(help="At most so many training users are looked at.", min=2)] = 3_000,
    negatives: Annotated[int, typer.Option(help="Non-events a reward; drawn where the log has too few.", min=1)] = 4,
    seed: Annotated[int, typer.Option(help="Everything random comes from here.", min=0)] = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
) -> None:
    """Fit theta ~ N(mean, covariance) to training users, with bias and popularity beside the items' own dimensions."""
    from treeward.bandit.population import FORMAT, PopulationPrior
    from treeward.core import artefact

    artefact.check_free(out, FORMAT, ("mean", "covariance", "rates", "items"), overwrite=force)
    of_log, of_items = sides(column)
    shop = load_items(items, of_items)
    made = read(data, loader, options, of_log, action)
    with progress() as report:
        prior = PopulationPrior.fit(
            made.part("train"), shop, users=users, negatives=negatives, seed=seed, progress=report
        )
    with timed("Saving"):
        prior.save(out, overwrite=force)
    tried = prior.provenance["tried"]
    if tried:
        say("Tried on users held out: the noise of a click on what is popular, times a factor; what that earned")
        table = Table(box=SIMPLE_HEAD, padding=0)
        for factor in tried:
            table.add_column(factor, justify="right")
        table.add_row(*(f"{earned:.1f}" for earned in tried.values()))
        console.print(table)
    say(f"Saved {prior} to {out}. Next: treeward serve {items} --prior {out}")
