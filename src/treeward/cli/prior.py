"""`treeward prior`: what other users' logs say of newcomers."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from treeward.cli.console import console, progress, say, timed, warn
from treeward.cli.data import Actions, As, Data, Options, read
from treeward.cli.tables import LogColumns, fresh, load_items, sides

if TYPE_CHECKING:
    from treeward.bandit.crowd import Crowd
    from treeward.data.catalogue import Catalogue
    from treeward.data.dataset import Dataset, Split
    from treeward.simulate.prior_trial import PriorTrial

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
    compared: Annotated[
        bool,
        typer.Option(
            "--compare/--no-compare", help="Also say what it is expected to earn, on test users it was not fitted to."
        ),
    ] = True,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
) -> None:
    """Fit theta ~ N(mean, covariance) to training users, with a bias and popularity next to the items' own dimensions.

    Then compare it, on users it was not fitted to, with no prior and with a list of the most popular items.
    """
    from treeward.bandit.crowd import FORMAT, Crowd
    from treeward.core import artefact

    artefact.check_free(out, FORMAT, ("mean", "covariance", "rates", "items"), overwrite=force)
    of_log, of_items = sides(column)
    shop = load_items(items, of_items)
    made = read(data, loader, options, of_log, action)
    with progress() as report:
        prior = Crowd.fit(made.part("train"), shop, users=users, negatives=negatives, seed=seed, progress=report)
    trial = _try(prior, made, shop, seed) if compared else None
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
    if trial is not None:
        _tell(trial, made)
    say(f"Saved {prior} to {out}.")
    if trial is None or not trial.worse:
        words = ["treeward", "tree", "build", str(items), "--prior", str(out), "-o", fresh("tree")]
        say("Next: " + shlex.join([*words, *(word for one in of_items for word in ("--column", one))]))


def _try(prior: "Crowd", data: "Dataset", items: "Catalogue", seed: int) -> "PriorTrial | None":
    """Try the prior on test users, or on validation users if there are none, and note in it what came out."""
    from treeward.core.errors import DataError
    from treeward.simulate.prior_trial import try_prior

    split: Split = "test" if len(data.users("test")) else "validation"
    try:
        with progress() as report:
            trial = try_prior(prior, data.part(split), items, seed=seed, progress=report)
    except DataError as error:
        say(f"Not compared with no prior and a popularity list, on {split} users: {error}")
        return None
    prior.provenance["trial"] = trial.told()
    return trial


def _tell(trial: "PriorTrial", data: "Dataset") -> None:
    who = f"{trial.users:,} users that it was not fitted to, {trial.rounds} items each"
    say(f"{who}; an item earns what the log has for that user, so all earn less than they will:")
    table = Table(box=SIMPLE_HEAD, padding=0)
    for name in ("", "reward per recommendation"):
        table.add_column(name, justify="right" if name else "left")
    others = ("popularity", trial.popularity.earned), ("no prior", trial.nothing.earned)
    for name, earned in (("this prior", trial.prior), *others):
        table.add_row(name, f"{earned:.4f}")
    console.print(table)
    if not trial.worse:
        return say(trial.verdict)
    warn(trial.verdict)
    skips = [name for name, weight in data.source.get("actions", {}).items() if not weight]
    if skips:
        warn(f"{', '.join(skips)} counted as skips (weight 0): give them a small weight, or leave them out.")
    else:
        warn("Serve without it, or find out why: few events per user, vectors that say little, or wrong weights.")
