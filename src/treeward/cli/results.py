"""Print the results of experiments, and write their reports."""

from pathlib import Path

from treeward.cli.console import say, show_table
from treeward.experiment import Outcome
from treeward.experiment.changing_catalogue import ChangingCatalogueResult
from treeward.experiment.changing_catalogue_report import way_summaries, write_changing_catalogue
from treeward.experiment.debias import CLICK, RATING, Debiased, write_debias
from treeward.experiment.presets import SENSITIVITY
from treeward.experiment.reference import Compared
from treeward.experiment.regret import Measured, Sizes, write_regret
from treeward.experiment.report import warnings, write_report
from treeward.experiment.stream import Streamed
from treeward.experiment.stream_report import row_of, size_of, write_stream
from treeward.experiment.stream_summary import arm_summaries
from treeward.experiment.summary import feature_gains, gaps, rounds_of, tidy, verdicts

_LEFT = ("arm", "policy", "way", "fit")


def show_outcome(outcome: Outcome, folder: Path, target: Path | None = None) -> None:
    """Print an experiment's tables, and write its report."""
    spec = outcome.spec
    table, rows = tidy(outcome), []
    for arm in spec.arms:
        mine = table.filter(arm=arm.label).rows(named=True)
        last = mine[-1]
        half = "" if last["half"] is None else f"± {last['half']:.1f}"
        means = (f"{row['mean']:.1f}" for row in mine)
        work = f"{last['scores']:.1f}", f"{last['coverage']:.1%}", f"{last['us_per_round']:.1f}"
        rows.append((arm.label, *means, half, *work))
    title = (
        f"Cumulative reward of {len(outcome.prepared['users']):,} {spec.split} users, "
        f"{outcome.prepared['items']:,} items, {spec.runs} repeats"
    )
    head = ("arm", *(f"{round:,}" for round in rounds_of(outcome)), "95 %", "scores", "shown", "us/round")
    show_table(title, head, rows, left=_LEFT)
    for warning in warnings(outcome):
        say(warning)
    if spec.judges:
        _show_verdicts(outcome)
    _show_feature_gains(outcome)
    for path in write_report(outcome, target or folder / "report.html"):
        say(f"Wrote {path}")
    if (results := folder / "results.parquet").exists():
        say(f"Results of every arm, repeat, user and round, cumulative: {results}")


def _show_verdicts(outcome: Outcome) -> None:
    for judge in [one for one in outcome.spec.judges if one not in SENSITIVITY]:
        rows = []
        for one in verdicts(outcome, judge.label):
            quality = one.found.log_loss, one.found.auc, one.found.auc_world
            seen = (one.clicks, "{:.1f}"), (one.categories, "{:.1f}"), (one.gini, "{:.3f}"), (one.coverage, "{:.1%}")
            means = (f"{part.mean:.3f} ± {part.deviation:.3f}" for part in quality)
            rows.append((one.arm, *means, *("" if value is None else form.format(value) for value, form in seen)))
        title = f"What can be learned of the users from what was collected; judge {judge.label}"
        head = ("arm", "LogLoss", "AUC", "AUC, world", "clicks", "categories", "Gini shown", "shown")
        show_table(title, head, rows, left=_LEFT)
    for claim in gaps(outcome, "auc"):
        say(f"{claim} by AUC: {claim.gap.answer_text('+.3f')}")


def _show_feature_gains(outcome: Outcome) -> None:
    rows = []
    for one in feature_gains(outcome, outcome.spec.rounds):
        half = "" if one.gap.half is None else f" ± {one.gap.half:.1f}"
        gap = f"{one.gap.mean:+.1f}{half}"
        rows.append((one.arm, f"{one.earned_plain:.1f}", f"{one.earned:.1f}", gap, f"{one.ratio:.3f}"))
    if rows:
        title = "Learned features against items' own vectors, paired by user"
        show_table(title, ("arm", "without", "with", "difference", "ratio"), rows, left=_LEFT)


def show_stream(streamed: Streamed, out: Path) -> None:
    """Print a stream's table, and write its report."""
    rows = []
    for line in arm_summaries(streamed):  # what fits into 80 columns; the report has the rest
        label, clicks, _, *differences, shown, _, _, time = (cell.replace("± 0.", "± .") for cell in row_of(line))
        rows.append((label, clicks, f"{line.last.mean:.3f}", *differences, shown, time))
    head = ("arm", "clicks\nper visit", "last\nthird", "over\nBeam", "over\nlist", "items\nshown", "µs")
    show_table(f"Clicks per visit: {size_of(streamed)}", head, rows, left=_LEFT, wrap=False)
    for path in write_stream(streamed, out):
        say(f"Wrote {path}")


def show_changing_catalogue(result: ChangingCatalogueResult, out: Path) -> None:
    """Print the table of a catalogue that changes, and write its report."""
    rows = [
        (f"{one.churn:.0%}", one.way, f"{one.reward:.2f}", f"{one.share:.1%} ± {one.half:.1%}", f"{one.last:.1%}",
         f"{one.within_1:.1%}", f"{one.within_3:.1%}")
        for one in way_summaries(result)
    ]  # fmt: skip
    head = ("per day", "way", "reward", "of rebuilt every day", "last quarter", "seen at once", "in 3 days")
    show_table(f"Reward of {result.spec.users:,} users in {result.spec.days} days", head, rows, left=_LEFT)
    for path in write_changing_catalogue(result, out):
        say(f"Wrote {path}")


def show_regret(measured: Measured, sizes: Sizes, out: Path) -> None:
    """Print measured regret, and write its report."""
    rows = []
    for row in measured.rows:
        half = "" if row.regret.half is None else f"± {row.regret.half:.1f}"
        figures = f"{row.regret.mean:.1f}", half, f"{row.growth:.2f}", f"{row.late:.4f}"
        rows.append((f"{row.items:,}", row.arm, *figures))
    title = f"Regret per user after {sizes.rounds:,} rounds, {sizes.users} users, {sizes.repeats} repeats"
    show_table(title, ("items", "arm", "regret", "95 %", "growth", "late, per round"), rows, left=_LEFT)
    for name, growth in measured.bounds().items():
        say(f"{name} grows by {', '.join(f'{one:.2f}' for one in growth)}")
    for path in write_regret(measured, out):
        say(f"Wrote {path}")


def show_debias(measured: Debiased, out: Path) -> None:
    """Print how well self-selected ratings predict those of items shown at random, and write it."""
    for task in (RATING, CLICK):
        title = f"Predicting the {task} of {measured.tested:,} items shown at random, from {measured.chosen:,} chosen"
        rows, last = [], ""
        for row in measured.rows:
            if row.task == task:
                between = f"{row.figure.low:.3f} - {row.figure.high:.3f}"
                told = "" if row.published is None else f"{row.published:.3f}"
                name = "" if row.arm == last else row.arm
                rows.append((name, row.metric, f"{row.figure.value:.3f}", between, told))
                last = row.arm
        show_table(title, ("fit", "metric", "value", "95 % interval", "published"), rows, left=(*_LEFT, "metric"))
    if any(row.published is not None for row in measured.rows):
        say("published: Schnabel et al., Recommendations as Treatments (ICML 2016), from memory, not checked")
    for path in write_debias(measured, out):
        say(f"Wrote {path}")


def show_reference(rows: list[Compared], repeats: int) -> None:
    """Print the authors' results and ours."""
    cells = [
        (row.policy, f"{row.round}", f"{row.theirs:.1f}", f"{row.ours:.1f}", f"{row.errors:+.1f}",
         f"{row.their_us:.0f}", f"{row.our_us:.1f}", f"{row.their_us / row.our_us:.0f}x")
        for row in rows
    ]  # fmt: skip
    title = f"Mean cumulative reward of {rows[0].users} users, {repeats} repeats averaged; one core"
    head = ("policy", "round", "theirs", "ours", "errors apart", "us theirs", "us ours", "faster")
    show_table(title, head, cells, left=_LEFT)
    say("errors apart: the difference, paired by user, in standard errors; their time is of the machine it was run on")
