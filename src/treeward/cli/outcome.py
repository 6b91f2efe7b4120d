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
    from treeward.experiment.report import write_report
    from treeward.experiment.summary import rounds_of, tidy

    spec = outcome.spec
    told, rounds = tidy(outcome), rounds_of(outcome)
    title = (
        f"Cumulative reward of {len(outcome.prepared['users']):,} {spec.split} users, "
        f"{outcome.prepared['items']:,} items, {spec.repeats} repeats"
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
    if spec.judge:
        _verdicts(outcome)
    _deepened(outcome)
    for path in write_report(outcome, target or folder / "report.html"):
        say(f"Wrote {path}")


def _verdicts(outcome: "Outcome") -> None:
    from treeward.experiment.summary import verdicts

    table = Table(title="What can be learned of the users from what was collected", title_justify="left",
                  box=SIMPLE_HEAD, padding=0)  # fmt: skip
    for name in ("arm", "LogLoss", "AUC", "clicks", "categories", "Gini shown", "shown"):
        table.add_column(name, justify="left" if name == "arm" else "right")
    for one in verdicts(outcome):
        table.add_row(
            one.arm, f"{one.log_loss.mean:.3f} ± {one.log_loss.deviation:.3f}",
            f"{one.auc.mean:.3f} ± {one.auc.deviation:.3f}", *(
                "" if value is None else form.format(value)
                for value, form in ((one.clicks, "{:.1f}"), (one.categories, "{:.1f}"), (one.gini, "{:.3f}"),
                                    (one.coverage, "{:.1%}"))
            ),
        )  # fmt: skip
    console.print(table)


def _deepened(outcome: "Outcome") -> None:
    from treeward.experiment.summary import deepened

    found = deepened(outcome, outcome.spec.rounds)
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
