"""`treeward world`: learn a world from a log, and tell how far to trust it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from treeward.cli.console import console, progress, say, timed
from treeward.cli.data import Actions, As, Data, LogItems, Options, read
from treeward.cli.tables import LogColumns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from treeward.simulate.fidelity import Fidelity

app = typer.Typer(help="Learn worlds to try policies in, and tell how far to trust them.", no_args_is_help=True)


@app.command()
def fit(
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory to write the world to.", show_default=False)],
    loader: As = None,
    options: Options = None,
    column: LogColumns = None,
    action: Actions = None,
    items: LogItems = None,
    dim: Annotated[int, typer.Option(help="Dimensions of the hidden vectors.", min=1)] = 32,
    exposure: Annotated[
        str, typer.Option(help="Where propensities come from: auto, impressions, popularity or none.")
    ] = "auto",
    negatives: Annotated[int, typer.Option(help="Negatives a positive: they set the base rate.", min=1)] = 4,
    seed: Annotated[int, typer.Option(help="Everything random comes from here.", min=0)] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    twin: Annotated[
        bool, typer.Option("--twin/--no-twin", help="Also fit without weights, for the report; as long again.")
    ] = True,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
) -> None:
    """Learn a world from a log by inverse-propensity-weighted factorisation; say how well it tells held-out events."""
    from treeward.core import artefact
    from treeward.engine.simulate import Tastes
    from treeward.learn.torch import torch_for
    from treeward.simulate.fit_evidence import Evidence
    from treeward.simulate.world import FORMAT, World

    torch_for("world fit")
    artefact.check_free(
        out, FORMAT, (*Tastes._fields, *Evidence._fields, "vectors", "catalogue", "people"), overwrite=force
    )
    made = read(data, loader, options, column, action, items)
    with progress() as report:
        world = World.fit(
            made.interactions,
            made.catalogue,
            dim=dim,
            exposure=exposure,
            negatives=negatives,
            seed=seed,
            device=device,
            twin=twin,
            progress=report,
        )
    world.provenance["data"] = made.source
    with timed("Saving"):
        world.save(out, overwrite=force)
    show(world.fidelity())
    say(f"Saved to {out}; treeward world report {out} draws it")


@app.command()
def report(
    world: Annotated[Path, typer.Argument(help="A world that was saved.", show_default=False)],
    out: Annotated[
        list[Path],
        typer.Option("--out", "-o", help="Page (.html) or figures (.json) to write; repeatable.", show_default=False),
    ] = [Path("world.html"), Path("world.json")],  # noqa: B006
    users: Annotated[int, typer.Option(help="Users to look at every item for.", min=1)] = 500,
    seed: Annotated[int, typer.Option(help="Which users.", min=0)] = 0,
) -> None:
    """Tell how far to trust a world: held-out events, calibration, popularity, and how much there is to personalise.

    By default writes world.html and world.json.
    """
    from treeward.core import artefact, checks
    from treeward.core.errors import InvalidArgument
    from treeward.simulate.world import World

    for path in out:
        checks.one_of("world report", "--out", path.suffix.lower(), (".html", ".json"))
        if artefact.is_artefact(path.parent):
            raise InvalidArgument("world report", "--out", "outside of what treeward saved", str(path))
    made = World.load(world)
    with timed("Looking at the world"):
        told = made.fidelity(users, seed)
    show(told)
    for path in out:
        told.save(path)
        say(f"Wrote {path}")


def show(told: "Fidelity") -> None:
    """Print a world's fidelity."""

    def table(title: str, head: tuple[str, ...], rows: "Iterable[tuple[str, ...]]") -> None:
        made = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0)
        for name in head:
            made.add_column(name, justify="right" if name else "left")
        for row in rows:
            made.add_row(*row)
        console.print(made)

    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.4f}"

    if told.accounts:
        tried = ("", "AUC", "log-loss", "off", "popularity")
        rows = (
            (one.name, *map(number, (one.auc, one.log_loss, one.calibration_error, one.popularity)))
            for one in told.accounts
        )
        table("held-out events (off: calibration error; popularity: rank correlation with it)", tried, rows)
    lists = ((f"{one.size:,}", number(one.own), number(one.common), number(one.random)) for one in told.spread)
    head = ("items", "own best", "best for all", "random")
    table(f"mean reward of a list, {told.users:,} users, {told.items:,} items", head, lists)
