"""`treeward experiment`: the paper's comparisons, and others, on any data."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from typing import Annotated, Any

import typer

from treeward.cli.console import progress, say, show_table, warn
from treeward.cli.inputs import LogAndItemFlags, LogFlags
from treeward.cli.options import Derived, expanded
from treeward.cli.results import (
    show_changing_catalogue,
    show_debias,
    show_outcome,
    show_reference,
    show_regret,
    show_stream,
)
from treeward.core import checks
from treeward.core.artefact import write_file
from treeward.core.errors import DataError, InvalidArgument, TreewardError
from treeward.experiment import Arm, Outcome, Spec, load
from treeward.experiment import run as run_spec
from treeward.experiment import stream as stream_experiment
from treeward.experiment.changing_catalogue import ChangingCatalogue, run_changing_catalogue
from treeward.experiment.debias import Debias, measure_debias
from treeward.experiment.prepare import is_world
from treeward.experiment.presets import PRESETS, tuned, tuning
from treeward.experiment.reference import compare
from treeward.experiment.regret import Sizes, measure_regret
from treeward.experiment.stream import Stream, run_stream
from treeward.experiment.stream_arms import ARMS
from treeward.experiment.summary import scores
from treeward.learn.torch import torch_for

app = typer.Typer()

Data = Annotated[Path, typer.Argument(help="Data as for `data inspect`, or a saved world.", show_default=False)]
WorldOrData = Annotated[
    Path, typer.Argument(help="Data as for `data inspect`, a saved world, or synthetic.", show_default=False)
]
Out = Annotated[
    Path, typer.Option("--out", "-o", help="Folder of the run: a new one, or one to continue.", show_default=False)
]
Without = Annotated[
    list[str] | None, typer.Option("--without", help="An arm to leave out; repeatable.", show_default=False)
]
_WORDS = {"widths": "Nodes per level of the tree, e.g. 100,1000. Default: by the size of the catalogue."}
_TREE = ("budget", "dim", "vectors", "nodes", "widths")
_ALL = ("users", "rounds", "repeats", "worlds", *_TREE, "reward", "once", "seed")


@contextmanager
def _removed_if_refused(out: Path) -> Iterator[None]:
    """Remove a new folder if the experiment fails before anything was computed: another one may then use it."""
    is_new = not out.exists()
    try:
        yield
    except TreewardError:
        if is_new and out.is_dir() and {path.name for path in out.iterdir()} <= {".lock", "spec.toml", "spec.json"}:
            rmtree(out)
        raise


@dataclass(frozen=True)
class Place:
    """Where cells are computed."""

    processes: Annotated[
        int | None, typer.Option(help="How many processes. Default: one per core.", min=1, show_default=False)
    ] = None
    on: Annotated[str, typer.Option(help="Where to compute: processes, ray, or ray://host:port.")] = "processes"

    def options(self) -> dict[str, Any]:
        """Return them as the library takes them."""
        return {"processes": self.processes, "on": self.on}


@dataclass(frozen=True)
class RunPlace(Place):
    """Where cells are computed, and from which run on."""

    prepared: Annotated[
        Path | None,
        typer.Option(help="Take vectors, worlds and tree from this run on the same data.", show_default=False),
    ] = None

    def run(self, spec: Spec, out: Path) -> Outcome:
        """Run an experiment."""
        with _removed_if_refused(out), progress() as report:
            return run_spec(spec, out, prepared=self.prepared, **self.options(), progress=report)


@dataclass(frozen=True)
class ArmFlags:
    """Fewer arms, or more."""

    without: Without = None
    policy: Annotated[
        list[str] | None,
        typer.Option(help="A policy to add: a name, or your own: FILE.py:CLASS; repeatable.", show_default=False),
    ] = None
    bandit: Annotated[str, typer.Option(help="Bandit of --policy: a name, or your own: FILE.py:CLASS.")] = "linucb"

    def apply(self, spec: Spec) -> Spec:
        """Return a spec with these arms. A new arm is named after its class, or by its path if two have that name."""
        spec, policies = _left_out(spec, self.without), self.policy or []
        also = "" if self.bandit == "linucb" else f" {self.bandit.rpartition(':')[2]}"
        short = [name.rpartition(":")[2] + also for name in policies]
        taken = [*(arm.label for arm in spec.arms), *short]
        labels = [
            label if taken.count(label) == 1 else name + also for label, name in zip(short, policies, strict=True)
        ]
        arms = (Arm(label, name, self.bandit) for label, name in zip(labels, policies, strict=True))
        return replace(spec, arms=(*spec.arms, *arms))


def _left_out(spec: Spec, labels: list[str] | None) -> Spec:
    known = [arm.label for arm in spec.arms]
    gone = {checks.one_of("experiment", "--without", label, known) for label in labels or []}
    return replace(spec, arms=tuple(arm for arm in spec.arms if arm.label not in gone))


def _preset(name: str, data: Path, log: LogAndItemFlags, given: dict[str, Any], **options: Any) -> Spec:
    return PRESETS[name](str(data), loader=log.loader or "", loader_options=log.options(), **given, **options)


@app.command()
@expanded
def rewards(
    data: Data,
    out: Out,
    log: LogAndItemFlags,
    spec: Annotated[dict[str, Any], Derived(Spec, *_ALL, words=_WORDS)],
    arms: ArmFlags,
    place: RunPlace,
    readings: Annotated[
        bool, typer.Option("--readings", help="Also the other reading where the authors' code differs from the paper.")
    ] = False,
) -> None:
    """Run table 3: LinUCB, HMAB, ICTRUCB, ConUCB, CB-Category, CB-Leaf, HUCB and pHUCB on the same users and budget."""
    made = arms.apply(_preset("rewards", data, log, spec, readings=readings))
    show_outcome(place.run(made, out), out)


@app.command()
@expanded
def bases(
    data: Data,
    out: Out,
    log: LogAndItemFlags,
    spec: Annotated[dict[str, Any], Derived(Spec, *_ALL, words=_WORDS)],
    arms: ArmFlags,
    place: RunPlace,
) -> None:
    """Run figure 3: LinUCB, Thompson sampling and epsilon-greedy, each with five ways to walk the tree."""
    show_outcome(place.run(arms.apply(_preset("bases", data, log, spec)), out), out)


@app.command()
@expanded
def sensitivity(
    data: Data,
    out: Out,
    log: LogAndItemFlags,
    spec: Annotated[dict[str, Any], Derived(Spec, *_ALL, words=_WORDS, rounds=1_000)],
    place: RunPlace,
) -> None:
    """Run figure 4: pHUCB over a grid of q and p."""
    show_outcome(place.run(_preset("sensitivity", data, log, spec), out), out)


@app.command()
@expanded
def frontier(
    data: Data,
    out: Out,
    log: LogAndItemFlags,
    spec: Annotated[dict[str, Any], Derived(Spec, "worlds", "dim", "vectors", "nodes", "seed", users=200, repeats=5)],
    arms: ArmFlags,
    place: RunPlace,
    once_rounds: Annotated[int, typer.Option(help="Rounds in which a user sees each item once.", min=1)] = 300,
    repeat_rounds: Annotated[
        int, typer.Option(help="Rounds in which items may repeat; 0: leave this out.", min=0)
    ] = 1_000,
) -> None:
    """Compare reward with work, in clicks: lists, ALS, the paper's policies, exact bandits and Beam.

    Run twice: each item once per user, and with repeats. DATA must be a log: a saved world has no training users.
    """
    for once, rounds in ((True, once_rounds), (False, repeat_rounds)):
        if rounds:
            folder = out / ("once" if once else "repeats")
            made = arms.apply(_preset("frontier", data, log, spec, rounds=rounds, once=once))
            show_outcome(place.run(made, folder), folder)


@app.command()
@expanded
def rivals(
    data: WorldOrData,
    out: Out,
    log: LogAndItemFlags,
    spec: Annotated[
        dict[str, Any],
        Derived(Spec, "worlds", *_TREE[1:-1], "seed", users=200, rounds=300, repeats=5, shown=100, once=True),
    ],
    arms: ArmFlags,
    place: RunPlace,
    tune: Annotated[
        bool, typer.Option("--tune", help="First choose how much each arm explores, on validation users.")
    ] = False,
) -> None:
    """Compare reward with work, in clicks: methods published since 2021, exact LinUCB, pHUCB and Beam.

    Each that can take the prior runs with it and without. DATA synthetic makes a world like those of public logs, with
    100,000 items; --loader-option items, users and dim change it. With --tune, the folder has two runs: validation,
    with one repeat of every setting, and test, with the best of each arm.
    """
    spec["shown"] = spec["shown"] if is_world(str(data)) else 0
    made = arms.apply(_preset("rivals", data, log, spec))
    if tune:
        chosen = _choose(replace(made, repeats=1), out / "validation", place)
        made = tuned(made, chosen)
        place, out = replace(place, prepared=out / "validation"), out / "test"
    show_outcome(place.run(made, out), out)


def _choose(spec: Spec, out: Path, place: RunPlace) -> list[Arm]:
    """Try every arm's settings on validation users, and return the best of each arm."""
    outcome = place.run(tuning(spec), out)
    earned = {one.arm: one.mean for one in scores(outcome, spec.rounds)}
    best = [max((arm for arm in outcome.spec.arms if arm.label.split(" | ")[0] == one.label),
                key=lambda arm: earned[arm.label]) for one in spec.arms]  # fmt: skip
    title = f"Best on {len(outcome.prepared['users'])} validation users"
    show_table(title, ("arm", "reward"), [(arm.label, f"{earned[arm.label]:.1f}") for arm in best], left=("arm",))
    return best


@app.command()
@expanded
def deep(
    data: WorldOrData,
    out: Out,
    log: LogAndItemFlags,
    spec: Annotated[
        dict[str, Any],
        Derived(Spec, "worlds", *_TREE[:-1], "seed", users=200, rounds=300, repeats=5, shown=100, once=True),
    ],
    arms: ArmFlags,
    place: RunPlace,
) -> None:
    """Compare linear with neural-linear policies, in clicks, under the same budgets, with and without the prior.

    Needs torch. The network learns from training users alone. DATA synthetic makes a world whose rewards are not
    linear; --loader-option items, users, dim and nonlinear change it.
    """
    spec["shown"] = spec["shown"] if is_world(str(data)) else 0
    show_outcome(place.run(arms.apply(_preset("deep", data, log, spec)), out), out)


@app.command("closed-loop")
@expanded
def closed_loop(
    data: Data,
    out: Out,
    log: LogAndItemFlags,
    spec: Annotated[
        dict[str, Any],
        Derived(Spec, "worlds", *_TREE, "seed", "samples", words=_WORDS, users=200, rounds=200, repeats=5, start=3,
                pick="diverse"),
    ],
    arms: ArmFlags,
    place: RunPlace,
    judge_sensitivity: Annotated[
        bool, typer.Option("--judge-sensitivity", help="Also judge with other numbers of negatives and decays.")
    ] = False,
) -> None:  # fmt: skip
    """Run table 4: whether logs that explorers collect make better profiles than those of models that exploit.

    Next-click models (linear, GRU, transformer) and bandits recommend from a few clicks. A factorisation is trained on
    old logs and on what each collected, and tested on the users' other clicks. DATA must be a log; needs torch.
    """
    made = arms.apply(_preset("closed-loop", data, log, spec, judge_sensitivity=judge_sensitivity))
    show_outcome(place.run(made, out), out)


@app.command()
@expanded
def tune(
    data: Data,
    out: Out,
    log: LogAndItemFlags,
    spec: Annotated[dict[str, Any], Derived(Spec, *_ALL, words=_WORDS, users=200, rounds=1_000, repeats=2)],
    place: RunPlace,
    without: Without = None,
    preset: Annotated[str, typer.Option(help="Tune the arms of this experiment: rewards or bases.")] = "rewards",
) -> None:
    """Choose every arm's alpha, v or epsilon, and pHCB's q and p, on validation users.

    Writes tuned.toml, the experiment with the best of each, for `experiment run` on test users.
    """
    checks.one_of("experiment tune", "--preset", preset, ("rewards", "bases"))
    plain = _left_out(_preset(preset, data, log, spec), without)
    final = replace(tuned(plain, _choose(plain, out, place)), users=1_000, rounds=2_000, repeats=10)
    path = write_file(out / "tuned.toml", final.to_toml().encode())
    say(f"Wrote {path}; treeward experiment run {path} -o FOLDER tries it on test users")


@app.command()
@expanded
def run(
    spec: Annotated[Path, typer.Argument(help="A spec in TOML.", show_default=False)], out: Out, place: RunPlace
) -> None:
    """Run a spec of your own. The folder of every run holds one to start from (spec.toml)."""
    try:
        text = spec.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument("experiment run", "SPEC", "a file that can be read", f"{spec}: {error}") from error
    try:
        made = Spec.from_toml(text)
    except InvalidArgument as error:
        raise DataError(f"{spec}: {error}") from error
    show_outcome(place.run(made, out), out)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished run.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Page to write. Default: report.html in the folder.", show_default=False),
    ] = None,
) -> None:
    """Write the report of a finished run again: an offline page, with its curves as PNG and its table as CSV."""
    target = folder / "report.html" if out is None else out
    checks.one_of("experiment report", "--out", target.suffix.lower(), (".html",))
    show_outcome(load(folder), folder, target)


@app.command()
@expanded
def stream(
    data: Data,
    out: Out,
    log: LogAndItemFlags,
    spec: Annotated[
        dict[str, Any],
        Derived(Stream, "vectors", "dim", "users", "training", "days", "visits", "tail", "batch", "repeats", "seed"),
    ],
    place: Place,
    arm: Annotated[
        list[str] | None, typer.Option("--arm", help="An arm to run; repeatable. Default: all.", show_default=False)
    ] = None,
    without: Without = None,
) -> None:
    """Run a shop from its first day: users arrive over days, and the clicks per visit of every arm are counted.

    A finished run may be repeated with other arms or more repeats: only what is new is computed.
    """
    left_out = {checks.one_of("experiment stream", "--without", one, ARMS) for one in without or ()}
    if arm is None and not stream_experiment.able_als():
        missing = {label for label, one in ARMS.items() if "als" in one.needs} - left_out
        for label in sorted(missing):
            warn(f"{label} is left out: it needs the extra als (pip install 'treeward[als]')")
        left_out |= missing
    arms = tuple(one for one in arm or ARMS if one not in left_out)
    made = Stream(str(data), loader=log.loader or "", loader_options=log.options(), arms=arms, **spec)
    with _removed_if_refused(out), progress() as report:
        streamed = run_stream(made, out, **place.options(), progress=report)
    show_stream(streamed, out)


@app.command("changing-catalogue")
@expanded
def changing_catalogue(
    out: Out,
    spec: Annotated[
        dict[str, Any], Derived(ChangingCatalogue, "items", "users", "days", "rounds", "churn", "repeats", "seed")
    ],
    place: Place,
    world: Annotated[
        Path | None, typer.Argument(help="A saved world. Default: a synthetic one.", show_default=False)
    ] = None,
) -> None:
    """Run a catalogue that changes every day, with a static tree, an edited one, or one rebuilt now and then."""
    made = ChangingCatalogue(world="" if world is None else str(world.resolve()), **spec)
    with _removed_if_refused(out), progress() as report:
        result = run_changing_catalogue(made, out, **place.options(), progress=report)
    show_changing_catalogue(result, out)


@app.command()
@expanded
def regret(
    out: Out,
    spec: Annotated[dict[str, Any], Derived(Sizes, "items", "users", "rounds", "repeats", "dim", "seed")],
    place: Place,
) -> None:
    """Measure the regret of HCB and of flat LinUCB over catalogue sizes, next to how the paper's bounds grow."""
    with _removed_if_refused(out), progress() as report:
        measured = measure_regret(Sizes(**spec), out, **place.options(), progress=report)
    show_regret(measured, Sizes(**spec), out)


@app.command()
@expanded
def debias(
    data: Annotated[
        Path, typer.Argument(help="Data with ratings of items shown at random, such as Coat.", show_default=False)
    ],
    out: Out,
    log: LogFlags,
    how: Annotated[dict[str, Any], Derived(Debias, "sample", "folds", "draws", "seed")],
) -> None:
    """Fit self-selected ratings with and without inverse-propensity weights; test on items that were shown at random.

    Ratings are predicted by factorisation, and rewards by `World.fit`; needs torch.
    """
    torch_for("experiment debias")
    dataset = log.read(data)
    with _removed_if_refused(out), progress() as report:
        measured = measure_debias(dataset, Debias(**how), progress=report)
    show_debias(measured, out)


@app.command()
def reference(
    folder: Annotated[Path, typer.Argument(help="Folder with world.npz and authors_results.json.", show_default=False)],
    repeats: Annotated[int, typer.Option(help="Seeds to average.", min=1)] = 10,
) -> None:
    """Rerun the paper's authors' own experiment with their options; print their results and ours, with the speed."""
    with progress() as report:
        rows = compare(folder, repeats, report)
    show_reference(rows, repeats)
