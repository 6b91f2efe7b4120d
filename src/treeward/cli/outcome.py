"""What came of an experiment, printed; and its report."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from treeward.cli.console import console, say

if TYPE_CHECKING:
    from treeward.experiment import Outcome


def finish(outcome: "Outcome", folder: Path, target: Path | None = None) -> None:
    """Print an experiment's table, and write its report."""
    from treeward.experiment.report import warnings, write_report
    from treeward.experiment.summary import rounds_of, tidy

    spec = outcome.spec
    told, rounds = tidy(outcome), rounds_of(outcome)
    title = (
        f"Cumulative reward of {len(outcome.prepared['users']):,} {spec.split} users, "
        f"{outcome.prepared['items']:,} items, {spec.runs} repeats"
    )
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0)
    for name in ("arm", *(f"{round:,}" for round in rounds), "95 %", "scores", "shown", "us/round"):
        table.add_column(name, justify="left" if name == "arm" else "right")
    for arm in spec.arms:
        mine = told.filter(arm=arm.label).rows(named=True)
        last = mine[-1]
        table.add_row(
            arm.label,
            *(f"{row['mean']:.1f}" for row in mine),
            "" if last["half"] is None else f"± {last['half']:.1f}",
            f"{last['scores']:.1f}",
            f"{last['coverage']:.1%}",
            f"{last['us_a_round']:.1f}",
        )
    console.print(table)
    for warning in warnings(outcome):
        say(warning)
    if spec.judges:
        _verdicts(outcome)
    _feature_gains(outcome)
    for path in write_report(outcome, target or folder / "report.html"):
        say(f"Wrote {path}")
    if (results := folder / "results.parquet").exists():
        say(f"Results of every arm, repeat, user and round, cumulative: {results}")


def _verdicts(outcome: "Outcome") -> None:
    from treeward.experiment.presets import SENSITIVITY
    from treeward.experiment.summary import gaps, verdicts

    for judge in [one for one in outcome.spec.judges if one not in SENSITIVITY]:
        title = f"What can be learned of the users from what was collected; judge {judge.label}"
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0)
        for name in ("arm", "LogLoss", "AUC", "AUC, world", "clicks", "categories", "Gini shown", "shown"):
            table.add_column(name, justify="left" if name == "arm" else "right")
        for one in verdicts(outcome, judge.label):
            quality = one.found.log_loss, one.found.auc, one.found.auc_world
            seen = (one.clicks, "{:.1f}"), (one.categories, "{:.1f}"), (one.gini, "{:.3f}"), (one.coverage, "{:.1%}")
            table.add_row(
                one.arm,
                *(f"{part.mean:.3f} ± {part.deviation:.3f}" for part in quality),
                *("" if value is None else form.format(value) for value, form in seen),
            )
        console.print(table)
    for claim in gaps(outcome, "auc"):
        say(f"{claim} by AUC: {claim.gap.answer_text('+.3f')}")


def _feature_gains(outcome: "Outcome") -> None:
    from treeward.experiment.summary import feature_gains

    found = feature_gains(outcome, outcome.spec.rounds)
    if not found:
        return
    table = Table(title="Learned features against items' own vectors, paired by user", title_justify="left",
                  box=SIMPLE_HEAD, padding=0)  # fmt: skip
    for name in ("arm", "without", "with", "difference", "ratio"):
        table.add_column(name, justify="left" if name == "arm" else "right")
    for one in found:
        half = "" if one.gap.half is None else f" ± {one.gap.half:.1f}"
        table.add_row(one.arm, f"{one.earned_plain:.1f}", f"{one.earned:.1f}", f"{one.gap.mean:+.1f}{half}",
                      f"{one.ratio:.3f}")  # fmt: skip
    console.print(table)
