"""The report of `experiment stream`: a page, a picture and tables."""

import io
from pathlib import Path

import polars as pl

from treeward.core.artefact import StrPath, write_file
from treeward.core.plots import Line, draw_lines, line_plot, png
from treeward.core.report_html import facts, heading, page, plot, table, text
from treeward.core.version import __version__
from treeward.experiment.stream import Streamed
from treeward.experiment.stream_arms import ARMS, BEAM, LIST
from treeward.experiment.stream_summary import BINS, OFTEN, ArmSummary, arm_summaries, by_day, by_visit, tidy
from treeward.experiment.summary import Estimate

_MADE_OF = {
    "clicks": "an SVD of training users' clicks",
    "attributes": "item attributes alone",
    "text": "titles and descriptions alone",
    "own": "the data's own",
}
_DAY, _VISIT, _CLICKS = "day", "visit of the user", "clicks per visit"


def write_stream(streamed: Streamed, folder: StrPath) -> list[Path]:
    """Write the page, the picture, the tables and all visits; return the paths."""
    place = Path(folder)
    made = [
        write_file(place / "report.html", _page(streamed)),
        write_file(place / "report.png", _picture(streamed)),
        write_file(place / "report.csv", tidy(streamed).write_csv().encode()),
        write_file(place / "days.csv", by_day(streamed).write_csv().encode()),
        write_file(place / "visit-numbers.csv", by_visit(streamed).write_csv().encode()),
    ]
    buffer = io.BytesIO()
    streamed.visits.with_columns(pl.col("arm").cast(pl.Categorical)).write_parquet(buffer)
    return [*made, write_file(place / "visits.parquet", buffer.getvalue())]


HEAD = (
    "arm", _CLICKS, "last third", "over Beam", "over the list", "items shown", f"{OFTEN}+ times", "scores", "µs",
)  # fmt: skip


def row_of(line: ArmSummary) -> tuple[str, ...]:
    """Return a line of the table as text, in the order of `HEAD`."""
    return (
        line.arm, line.clicks.text(), line.last.text(), _gap(line.over_beam), _gap(line.over_list),
        f"{line.shown:.1%}", f"{line.often:.1%}", "" if line.scores is None else f"{line.scores:.1f}",
        f"{line.microseconds:.0f}" if line.microseconds >= 10 else f"{line.microseconds:.1f}",
    )  # fmt: skip


def _gap(rate: Estimate | None) -> str:
    return "" if rate is None else rate.text("+.3f")


def size_of(streamed: Streamed) -> str:
    """Say how large the stream is."""
    spec, told = streamed.spec, streamed.prepared
    visits = streamed.visits.height // (len(spec.arms) * spec.repeats)
    seeds = "1 seed" if spec.repeats == 1 else f"{spec.repeats} seeds"
    each = "" if spec.repeats == 1 else " per seed"
    return f"{told['users']:,} users, {visits:,} visits{each}, {spec.days} days, {told['items']:,} items, {seeds}"


def _page(streamed: Streamed) -> bytes:
    spec, told = streamed.spec, streamed.prepared
    lines = arm_summaries(streamed)
    interval = (
        f"± is half of a 95 % interval over {spec.repeats} seeds, each with other visits and other luck. From few "
        "seeds it may come out much too narrow or too wide by chance."
        if spec.repeats > 1
        else "± is half of a 95 % interval from a bootstrap over users of one seed. It leaves out that users of arms "
        "that learn from everybody depend on each other; run more seeds for that."
    )
    parts = [
        text(
            f"{Path(spec.data).name}: {size_of(streamed)}. The shop starts empty: nobody has clicked on anything.",
            "Every visit shows one item that the user has not seen, and draws a click from a world fitted to the",
            "log. All arms meet the same visits with the same luck.",
        ),
        text(
            f"Item vectors: {_MADE_OF[spec.vectors]}, {told['dim']} dimensions. {told['training_users']:,} training",
            "users never visit; the offline prior comes from their events.",
        ),
        *([_few(streamed)] if told["users"] < spec.users else []),
        heading("Clicks per visit"),
        table(HEAD, [row_of(one) for one in lines]),
        text(
            interval,
            f"Differences from {BEAM} and from the {LIST} are paired visit by visit. Last third: of the visits.",
            f"Items shown: share of the catalogue shown at least once, and at least {OFTEN} times. Scores: computed",
            "per visit, where they are counted. µs: time per visit on one core, for deciding and learning.",
            soft=True,
        ),
        heading("By day"),
        plot(
            line_plot(_lines(streamed, "day"), _DAY, _CLICKS, from_zero=True),
            "Clicks per visit on each day, mean over seeds.",
            460,
        ),
        heading("By visit of the user"),
        plot(
            line_plot(_lines(streamed, "visit"), _VISIT, _CLICKS, from_zero=True, markers=True).update_xaxes(
                type="category"
            ),
            "Clicks per visit by how often the user has come, mean over seeds.",
            460,
        ),
        _numbers(streamed),
        heading("The arms"),
        facts((arm, ARMS[arm].what) for arm in spec.arms),
        heading("How this was made"),
        facts(
            [(name, getattr(spec, name)) for name in spec.__dataclass_fields__ if name != "arms"]
            + [("data", told["source"]), ("treeward", __version__)]
        ),
    ]
    return page("A shop from its first day", parts)


def _few(streamed: Streamed) -> str:
    asked, there = streamed.spec.users, streamed.prepared["users"]
    return text(f"{asked:,} users were asked for; the data has {there:,} besides those for training.", soft=True)


def _lines(streamed: Streamed, by: str) -> list[Line]:
    """Return the clicks per visit of every arm, by ``"day"`` or by ``"visit"`` of the user."""
    found, made = by_day(streamed) if by == "day" else by_visit(streamed), []
    for arm in streamed.spec.arms:
        mine = found.filter(arm=arm)
        x = mine["day"].to_numpy() if by == "day" else mine["visit"].cast(pl.String).to_list()
        made.append(Line(arm, x, mine["clicks"].to_numpy()))
    return made


def _numbers(streamed: Streamed) -> str:
    found = by_visit(streamed)
    names = [name for name in BINS if name in found["visit"].cast(pl.String).to_list()]
    rows = []
    for arm in streamed.spec.arms:
        mine = dict(found.filter(arm=arm).select(pl.col("visit").cast(pl.String), "clicks").iter_rows())
        rows.append((arm, *(f"{mine[name]:.3f}" for name in names)))
    first = found.filter(arm=streamed.spec.arms[0])
    counts = dict(first.select(pl.col("visit").cast(pl.String), "visits").iter_rows())
    rows.append(("visits per seed", *(f"{counts[name]:,.0f}" for name in names)))
    return table((_VISIT, *names), rows, caption=_CLICKS)


def _picture(streamed: Streamed) -> bytes:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5.2), dpi=110, layout="constrained")
    days, visits = figure.subplots(1, 2, sharey=True)
    draw_lines(days, _lines(streamed, "day"), _DAY, _CLICKS)
    draw_lines(visits, _lines(streamed, "visit"), _VISIT, marker="o", markersize=4)
    days.xaxis.get_major_locator().set_params(integer=True)
    for axes in (days, visits):
        axes.set_ylim(bottom=0)
    for name in figure.legend(*days.get_legend_handles_labels(), loc="outside right upper", frameon=False,
                              fontsize="small").get_texts():  # fmt: skip
        name.set_parse_math(False)
    figure.suptitle(f"{Path(streamed.spec.data).name}: {size_of(streamed)}", parse_math=False, fontsize="medium")
    return png(figure)
