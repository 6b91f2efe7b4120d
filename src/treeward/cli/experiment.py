"""`treeward experiment`: the paper's comparisons on any data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from treeward.cli.arms import with_policies, without_arms
from treeward.cli.console import console, progress, say
from treeward.cli.data import Actions, As, LogItems, Options, loader_options
from treeward.cli.outcome import finish
from treeward.cli.tables import LogColumns

if TYPE_CHECKING:
    from treeward.experiment import Outcome, Spec

app = typer.Typer(help="Run the paper's comparisons on your data; killed runs go on where they stopped.",
                  no_args_is_help=True)  # fmt: skip

Data = Annotated[Path, typer.Argument(help="Data as for `data inspect`, or a saved world.", show_default=False)]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of the run, new or to go on with.", show_default=False)]
Users = Annotated[int, typer.Option(help="At most so many users.", min=1)]
Rounds = Annotated[int, typer.Option(help="Recommendations per user.", min=1)]
Repeats = Annotated[int, typer.Option(help="Repeats per world, each with its own seed.", min=1)]
Budget = Annotated[int, typer.Option(help="Score computations per round.", min=1)]
Dim = Annotated[int, typer.Option(help="Dimensions of item vectors that are made.", min=1)]
Widths = Annotated[str, typer.Option(help="Nodes per level of the tree, e.g. 100,1000.", show_default=False)]
Vectors = Annotated[
    str,
    typer.Option(
        help="Item vectors: auto (the data's own, else SVD), svd, gru, text, text-gru, or a path to saved items.",
    ),
]
Nodes = Annotated[
    Literal["unit", "mean"],
    typer.Option(help="Node vectors: scaled to length 1 (the paper), or plain means (the authors' code)."),
]
Worlds = Annotated[int, typer.Option(help="Fit so many worlds; intervals then cover the fit too.", min=1)]
Prepared = Annotated[
    Path | None,
    typer.Option(help="Take vectors, worlds and tree from this run on the same data.", show_default=False),
]
Click = Annotated[bool, typer.Option("--click", help="Rewards are clicks, not probabilities.")]
Once = Annotated[bool, typer.Option("--once", help="Show no item twice to a user.")]
Seed = Annotated[int, typer.Option(help="Everything random comes from here.", min=0)]
Processes = Annotated[int | None, typer.Option(help="Default: one per core.", min=1, show_default=False)]
On = Annotated[str, typer.Option("--on", help="Where to compute: processes, ray, or ray://host:port.")]
Leave = Annotated[list[str] | None, typer.Option("--without", help="An arm to leave out; repeatable.")]
Also = Annotated[
    list[str] | None,
    typer.Option("--policy", help="A policy to try as well: a name, or your own: FILE.py:CLASS; repeatable."),
]
AlsoBandit = Annotated[str, typer.Option("--bandit", help="Bandit of --policy: a name, or your own: FILE.py:CLASS.")]


@app.command()
def rewards(
    data: Data,
    out: Out,
    loader: As = None,
    options: Options = None,
    column: LogColumns = None,
    action: Actions = None,
    items: LogItems = None,
    users: Users = 1_000,
    rounds: Rounds = 2_000,
    repeats: Repeats = 10,
    worlds: Worlds = 1,
    budget: Budget = 50,
    dim: Dim = 64,
    vectors: Vectors = "auto",
    nodes: Nodes = "unit",
    widths: Widths = "",
    click: Click = False,
    once: Once = False,
    seed: Seed = 0,
    without: Leave = None,
    policy: Also = None,
    bandit: AlsoBandit = "linucb",
    readings: Annotated[
        bool, typer.Option("--readings", help="Also the other reading where the authors' code differs from the paper.")
    ] = False,
    prepared: Prepared = None,
    processes: Processes = None,
    on: On = "processes",
) -> None:
    """Run table 3: LinUCB, HMAB, ICTRUCB, ConUCB, CB-Category, CB-Leaf, HUCB and pHUCB on the same users and budget."""
    _go("rewards", locals(), readings=readings)


@app.command()
def bases(
    data: Data,
    out: Out,
    loader: As = None,
    options: Options = None,
    column: LogColumns = None,
    action: Actions = None,
    items: LogItems = None,
    users: Users = 1_000,
    rounds: Rounds = 2_000,
    repeats: Repeats = 10,
    worlds: Worlds = 1,
    budget: Budget = 50,
    dim: Dim = 64,
    vectors: Vectors = "auto",
    nodes: Nodes = "unit",
    widths: Widths = "",
    click: Click = False,
    once: Once = False,
    seed: Seed = 0,
    without: Leave = None,
    policy: Also = None,
    bandit: AlsoBandit = "linucb",
    prepared: Prepared = None,
    processes: Processes = None,
    on: On = "processes",
) -> None:
    """Run figure 3: LinUCB, Thompson sampling and epsilon-greedy, each with the five ways to walk."""
    _go("bases", locals())


@app.command()
def sensitivity(
    data: Data,
    out: Out,
    loader: As = None,
    options: Options = None,
    column: LogColumns = None,
    action: Actions = None,
    items: LogItems = None,
    users: Users = 1_000,
    rounds: Rounds = 1_000,
    repeats: Repeats = 10,
    worlds: Worlds = 1,
    budget: Budget = 50,
    dim: Dim = 64,
    vectors: Vectors = "auto",
    nodes: Nodes = "unit",
    widths: Widths = "",
    click: Click = False,
    once: Once = False,
    seed: Seed = 0,
    prepared: Prepared = None,
    processes: Processes = None,
    on: On = "processes",
) -> None:
    """Run figure 4: pHUCB over a grid of q and p."""
    _go("sensitivity", locals())


@app.command()
def frontier(
    data: Data,
    out: Out,
    loader: As = None,
    options: Options = None,
    column: LogColumns = None,
    action: Actions = None,
    items: LogItems = None,
    users: Users = 200,
    repeats: Repeats = 5,
    worlds: Worlds = 1,
    once_rounds: Annotated[int, typer.Option(help="Rounds where an item is shown once.", min=1)] = 300,
    repeat_rounds: Annotated[
        int, typer.Option(help="Rounds where items may repeat; 0: leave that out.", min=0)
    ] = 1_000,
    dim: Dim = 64,
    vectors: Vectors = "auto",
    nodes: Nodes = "unit",
    seed: Seed = 0,
    without: Leave = None,
    policy: Also = None,
    bandit: AlsoBandit = "linucb",
    prepared: Prepared = None,
    processes: Processes = None,
    on: On = "processes",
) -> None:
    """Run reward against work, in clicks: lists, ALS, the paper's policies, exact bandits and Beam; in two regimes.

    DATA must be a log: a saved world has no training users.
    """
    given = locals()
    for once, rounds in ((True, once_rounds), (False, repeat_rounds)):
        if rounds:
            place = out / ("once" if once else "repeats")
            _go("frontier", {**given, "rounds": rounds, "once": once, "click": True, "out": place})


@app.command()
def deep(
    data: Annotated[
        Path, typer.Argument(help="Data as for `data inspect`, a saved world, or synthetic.", show_default=False)
    ],
    out: Out,
    loader: As = None,
    options: Options = None,
    column: LogColumns = None,
    action: Actions = None,
    items: LogItems = None,
    users: Users = 200,
    rounds: Rounds = 300,
    repeats: Repeats = 5,
    worlds: Worlds = 1,
    shown: Annotated[
        int, typer.Option(help="In a world: items shown at random to each training user, whose log it is.", min=1)
    ] = 100,
    again: Annotated[bool, typer.Option("--again", help="Items may be shown again.")] = False,
    budget: Budget = 50,
    dim: Dim = 64,
    vectors: Vectors = "auto",
    nodes: Nodes = "unit",
    seed: Seed = 0,
    without: Leave = None,
    policy: Also = None,
    bandit: AlsoBandit = "linucb",
    prepared: Prepared = None,
    processes: Processes = None,
    on: On = "processes",
) -> None:
    """Run linear against neural-linear, in clicks: the same policies and budgets, with the prior and without.

    The network learns from training users alone. DATA synthetic makes up a world whose rewards are not linear; --set
    items, users, dim and nonlinear change it. Needs torch.
    """
    from treeward.experiment.prepare import is_world

    given = {**locals(), "click": True, "once": not again}
    _go("deep", given, shown=shown if is_world(str(data)) else 0)


@app.command("closed-loop")
def closed_loop(
    data: Data,
    out: Out,
    loader: As = None,
    options: Options = None,
    column: LogColumns = None,
    action: Actions = None,
    items: LogItems = None,
    users: Users = 200,
    rounds: Rounds = 200,
    repeats: Repeats = 5,
    worlds: Worlds = 1,
    start: Annotated[int, typer.Option(help="Real clicks every user begins with.", min=1)] = 3,
    pick: Annotated[
        Literal["diverse", "random"], typer.Option(help="Users whose clicks have the highest Gini impurity, or any.")
    ] = "diverse",
    samples: Annotated[
        Literal["auto", "impressions", "drawn"],
        typer.Option(help="Test on logged impressions with their skips, or on clicks against drawn items."),
    ] = "auto",
    judge_sensitivity: Annotated[
        bool, typer.Option("--judge-sensitivity", help="Also judge with other numbers of negatives and decays.")
    ] = False,
    budget: Budget = 50,
    dim: Dim = 64,
    vectors: Vectors = "auto",
    nodes: Nodes = "unit",
    widths: Widths = "",
    seed: Seed = 0,
    without: Leave = None,
    policy: Also = None,
    bandit: AlsoBandit = "linucb",
    prepared: Prepared = None,
    processes: Processes = None,
    on: On = "processes",
) -> None:
    """Run table 4: whether logs that explorers collect make better profiles than those of models that exploit.

    Next-click models (linear, GRU, transformer) and bandits recommend from a few clicks; a factorisation is trained on
    old logs and what each collected, and tested on the users' other clicks. DATA must be a log; needs torch.
    """
    given = {**locals(), "click": True, "once": True}
    _go("closed-loop", given, start=start, pick=pick, samples=samples, judge_sensitivity=judge_sensitivity)


@app.command()
def tune(
    data: Data,
    out: Out,
    loader: As = None,
    options: Options = None,
    column: LogColumns = None,
    action: Actions = None,
    items: LogItems = None,
    users: Users = 200,
    rounds: Rounds = 1_000,
    repeats: Repeats = 2,
    worlds: Worlds = 1,
    budget: Budget = 50,
    dim: Dim = 64,
    vectors: Vectors = "auto",
    nodes: Nodes = "unit",
    widths: Widths = "",
    click: Click = False,
    once: Once = False,
    seed: Seed = 0,
    without: Leave = None,
    arms: Annotated[str, typer.Option(help="Whose: those of `rewards`, or of `bases`.")] = "rewards",
    prepared: Prepared = None,
    processes: Processes = None,
    on: On = "processes",
) -> None:
    """Choose every arm's alpha, v or epsilon, and pHCB's q and p, on validation users; write tuned.toml to run."""
    given = locals()
    from dataclasses import replace

    from treeward.core import checks
    from treeward.core.artefact import write_file
    from treeward.experiment.presets import PRESETS, tuned, tuning
    from treeward.experiment.summary import scores

    preset = PRESETS[checks.one_of("experiment tune", "--arms", arms, ("rewards", "bases"))]
    plain = without_arms(preset(str(data), **_shared(given)), without)
    spec = tuning(plain)
    outcome = _run(spec, out, given)
    earned = {one.arm: one.mean for one in scores(outcome, spec.rounds)}
    best = [max((arm for arm in spec.arms if arm.label.split(" | ")[0] == one.label), key=lambda arm: earned[arm.label])
            for one in plain.arms]  # fmt: skip
    table = Table(title=f"Best on {len(outcome.prepared['users'])} validation users", title_justify="left",
                  box=SIMPLE_HEAD, padding=0)  # fmt: skip
    table.add_column("arm")
    table.add_column("reward", justify="right")
    for arm in best:
        table.add_row(arm.label, f"{earned[arm.label]:.1f}")
    console.print(table)
    final = replace(tuned(plain, best), users=1_000, rounds=2_000, repeats=10)
    path = write_file(out / "tuned.toml", final.to_toml().encode())
    say(f"Wrote {path}; treeward experiment run {path} -o FOLDER tries it on test users")


@app.command()
def run(
    spec: Annotated[Path, typer.Argument(help="A spec in TOML.", show_default=False)],
    out: Out,
    prepared: Prepared = None,
    processes: Processes = None,
    on: On = "processes",
) -> None:
    """Run a spec of your own; every run's folder holds one to start from (spec.toml)."""
    from treeward.core.errors import InvalidArgument
    from treeward.experiment import Spec

    try:
        text = spec.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument("experiment run", "SPEC", "a file that can be read", f"{spec}: {error}") from error
    finish(_run(Spec.from_toml(text), out, {"prepared": prepared, "processes": processes, "on": on}), out)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished run.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Page to write. Default: report.html in the folder.", show_default=False),
    ] = None,
) -> None:
    """Write the report of a finished run again: an offline page, with its curves as PNG and its table as CSV."""
    from treeward.core import checks
    from treeward.experiment import load

    target = folder / "report.html" if out is None else out
    checks.one_of("experiment report", "--out", target.suffix.lower(), (".html",))
    finish(load(folder), folder, target)


def _shared(given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a spec that many commands have, from a command's arguments (its `locals()`)."""
    from treeward.cli.tree import parse_widths

    names = ("users", "rounds", "repeats", "worlds", "budget", "dim", "vectors", "nodes", "once", "seed")
    made = {name: given[name] for name in names if name in given}
    return made | {
        "loader": given["loader"] or "",
        "loader_options": loader_options(given["options"], given["column"], given["action"], given["items"]),
        "widths": tuple(parse_widths(given["widths"])) if given.get("widths") else (),
        "reward": "click" if given.get("click") else "probability",
    }


def _go(preset: str, given: dict[str, Any], **options: Any) -> None:
    """Run a preset with a command's arguments (its `locals()`) and options of its own, and report."""
    from treeward.experiment.presets import PRESETS

    spec = without_arms(PRESETS[preset](str(given["data"]), **_shared(given), **options), given.get("without"))
    finish(_run(with_policies(spec, given["policy"], given["bandit"]), given["out"], given), given["out"])


def _run(spec: "Spec", out: Path, given: dict[str, Any]) -> "Outcome":
    from treeward.experiment import run as go

    with progress() as report:
        return go(spec, out, prepared=given["prepared"], processes=given["processes"], on=given["on"], progress=report)
