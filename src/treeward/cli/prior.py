"""`treeward prior`: learn from the logs of earlier users what to expect of new ones."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from treeward.bandit.crowd import FORMAT, Crowd
from treeward.cli.console import progress, say, show_table, timed, warn
from treeward.cli.inputs import Data, LogFlags, fresh, load_items
from treeward.cli.options import Derived, Force, expanded
from treeward.core import artefact
from treeward.core.errors import DataError
from treeward.data.catalogue import Catalogue
from treeward.data.dataset import Dataset, Split
from treeward.simulate.prior_trial import PriorTrial, try_prior

app = typer.Typer()


@app.callback()
def _prior() -> None:
    pass


@app.command()
@expanded
def fit(
    data: Data,
    items: Annotated[Path, typer.Option(help="The items with their vectors.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory to write the prior to.", show_default=False)],
    log: LogFlags,
    fitting: Annotated[dict[str, Any], Derived(Crowd.fit, "users", "negatives", "seed")],
    compared: Annotated[
        bool,
        typer.Option(
            "--compare/--no-compare", help="Also estimate what it earns, on test users that it was not fitted to."
        ),
    ] = True,
    force: Force = False,
) -> None:
    """Fit theta ~ N(mean, covariance) to training users, with a bias and popularity next to the items' own dimensions.

    Then compare it, on users that it was not fitted to, with no prior and with a list of the most popular items.
    """
    artefact.check_free(out, FORMAT, ("mean", "covariance", "rates", "items"), overwrite=force)
    _, of_items = log.split()
    catalogue = load_items(items, of_items)
    dataset = log.of_log().read(data)
    with progress() as report:
        prior = Crowd.fit(dataset.part("train"), catalogue, **fitting, progress=report)
    trial = _try(prior, dataset, catalogue, fitting["seed"]) if compared else None
    with timed("Saving"):
        prior.save(out, overwrite=force)
    tried = prior.provenance["tried"]
    if tried:
        say("Tried on users held out: the noise of a click on what is popular, times a factor; what that earned")
        show_table(None, tried, [[f"{earned:.1f}" for earned in tried.values()]])
    if trial is not None:
        _show(trial, dataset)
    say(f"Saved {prior} to {out}.")
    if trial is None or not trial.worse:
        words = ["treeward", "tree", "build", str(items), "--prior", str(out), "-o", fresh("tree")]
        columns = [word for role, name in of_items.items() for word in ("--column", f"{role}={name}")]
        say("Next: " + shlex.join(words + columns))


def _try(prior: Crowd, data: Dataset, items: Catalogue, seed: int) -> PriorTrial | None:
    """Try the prior on test users, or on validation users if there are none, and keep the result in it."""
    split: Split = "test" if len(data.users("test")) else "validation"
    try:
        with progress() as report:
            trial = try_prior(prior, data.part(split), items, seed=seed, progress=report)
    except DataError as error:
        say(f"Not compared with no prior and a popularity list, on {split} users: {error}")
        return None
    prior.provenance["trial"] = trial.told()
    return trial


def _show(trial: PriorTrial, data: Dataset) -> None:
    users = f"{trial.users:,} users that it was not fitted to, {trial.rounds} items each"
    say(f"{users}; an item earns what the log has for that user, so all earn less than they will:")
    earned = (("this prior", trial.prior), ("popularity", trial.popularity.earned), ("no prior", trial.nothing.earned))
    show_table(None, ("", "reward per recommendation"), [(name, f"{reward:.4f}") for name, reward in earned])
    if not trial.worse:
        return say(trial.verdict)
    warn(trial.verdict)
    skips = [name for name, weight in data.source.get("actions", {}).items() if not weight]
    if skips:
        warn(f"{', '.join(skips)} counted as skips (weight 0): give them a small weight, or leave them out.")
    else:
        warn("Serve without it, or find out why: few events per user, vectors that say little, or wrong weights.")
