"""`treeward world`: learn a world from a log, and report how far to trust it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from treeward.cli.console import progress, say, show_table, timed
from treeward.cli.inputs import Data, LogAndItemFlags
from treeward.cli.options import Derived, Force, expanded
from treeward.core import artefact, checks
from treeward.core.errors import InvalidArgument
from treeward.engine.simulate import Tastes
from treeward.learn.torch import torch_for
from treeward.simulate.fidelity import Fidelity
from treeward.simulate.fit import fit as fit_factors
from treeward.simulate.fit_evidence import Evidence
from treeward.simulate.world import FORMAT, World

app = typer.Typer()
_WORDS = {
    "dim": "Dimensions of the hidden vectors.",
    "exposure": "Where propensities come from: auto, impressions, popularity, rating, features, both or none.",
    "negatives": "Negatives per positive: they set the base rate.",
    "seed": "Every random choice comes from this seed.",
    "device": "cpu or cuda.",
}


@app.command()
@expanded
def fit(
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory to write the world to.", show_default=False)],
    log: LogAndItemFlags,
    fitting: Annotated[dict[str, Any], Derived(fit_factors, *_WORDS, words=_WORDS)],
    twin: Annotated[
        bool, typer.Option(help="Also fit a world without weights, to compare with: twice the time.")
    ] = True,
    force: Force = False,
) -> None:
    """Learn a world from a log by inverse-propensity-weighted factorisation; print how well it predicts events.

    Events are held out to measure that.
    """
    names = (*Tastes._fields, *Evidence._fields, "vectors", "catalogue", "people")
    artefact.check_free(out, FORMAT, names, overwrite=force)
    dataset = log.read(data)
    torch_for("world fit")
    selected = dataset.random is not None or fitting["exposure"] in ("features", "both")
    # With features alone, only the log's own skips would be negatives, and most logs have none.
    fitting |= {"random": dataset.random, "user_features": dataset.user_features if selected else None}
    with progress() as report:
        world = World.fit(dataset.interactions, dataset.catalogue, **fitting, twin=twin, progress=report)
    world.provenance["data"] = dataset.source
    with timed("Saving"):
        world.save(out, overwrite=force)
    _show(world.fidelity())
    say(f"Saved to {out}; treeward world report {out} draws it")


@app.command()
@expanded
def report(
    world: Annotated[Path, typer.Argument(help="A saved world.", show_default=False)],
    looking: Annotated[dict[str, Any], Derived(World.fidelity, "users", "seed")],
    out: Annotated[
        list[Path],
        typer.Option("--out", "-o", help="Page (.html) or figures (.json) to write; repeatable.", show_default=False),
    ] = [Path("world.html"), Path("world.json")],  # noqa: B006
) -> None:
    """Report how far to trust a world: held-out events, calibration, popularity, and how much there is to personalise.

    By default writes world.html and world.json.
    """
    for path in out:
        checks.one_of("world report", "--out", path.suffix.lower(), (".html", ".json"))
        if artefact.is_artefact(path.parent):
            raise InvalidArgument("world report", "--out", "outside of what treeward saved", str(path))
    made = World.load(world)
    with timed("Looking at the world"):
        found = made.fidelity(**looking)
    _show(found)
    for path in out:
        found.save(path)
        say(f"Wrote {path}")


def _show(found: Fidelity) -> None:
    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.4f}"

    if found.accounts:
        title = "held-out events (off: calibration error; popularity: rank correlation with it)"
        columns = ("auc", "log_loss", "calibration_error", "hit_rate", "ndcg", "popularity")
        rows = [(one.name, *(number(getattr(one, name)) for name in columns)) for one in found.accounts]
        lists = f"HR@{found.count}", f"NDCG@{found.count}"
        show_table(title, ("", "AUC", "log-loss", "off", *lists, "popularity"), rows)
    for note in found.notes:
        say(f"note: {note}")
    title = f"mean reward of a list, {found.users:,} users, {found.items:,} items"
    rows = [(f"{one.size:,}", number(one.own), number(one.common), number(one.random)) for one in found.spread]
    show_table(title, ("items", "own best", "best for all", "random"), rows)
