"""The report of `experiment stream`: a page, a picture and tables."""

import io
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from treeward.core.artefact import StrPath, write_file
from treeward.core.page import COLOURS, facts, heading, page, plot, table, text
from treeward.core.version import __version__
from treeward.experiment.stream import Streamed
from treeward.experiment.stream_arms import ARMS, BEAM, LIST
from treeward.experiment.stream_summary import BINS, OFTEN, Line, Rate, by_day, by_visit, lines_of, tidy

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


def cells_of(line: Line) -> tuple[str, ...]:
    """Return a line of the table as text, in the order of `HEAD`."""
    return (
        line.arm, line.clicks.said(), line.last.said(), _gap(line.over_beam), _gap(line.over_list),
        f"{line.shown:.1%}", f"{line.often:.1%}", "" if line.scores is None else f"{line.scores:.1f}",
        f"{line.microseconds:.0f}" if line.microseconds >= 10 else f"{line.microseconds:.1f}",
    )  # fmt: skip


def _gap(rate: Rate | None) -> str:
    return "" if rate is None else rate.said("+.3f")


def size_of(streamed: Streamed) -> str:
    """Say how large the stream is."""
    spec, told = streamed.spec, streamed.prepared
    visits = streamed.visits.height // (len(spec.arms) * spec.repeats)
    seeds = "1 seed" if spec.repeats == 1 else f"{spec.repeats} seeds"
    each = "" if spec.repeats == 1 else " per seed"
    return f"{told['users']:,} users, {visits:,} visits{each}, {spec.days} days, {told['items']:,} items, {seeds}"


def _page(streamed: Streamed) -> bytes:
    spec, told = streamed.spec, streamed.prepared
    lines = lines_of(streamed)
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
        table(HEAD, [cells_of(one) for one in lines]),
        text(
            interval,
            f"Differences from {BEAM} and from the {LIST} are paired visit by visit. Last third: of the visits.",
            f"Items shown: share of the catalogue shown at least once, and at least {OFTEN} times. Scores: computed",
            "per visit, where they are counted. µs: time per visit on one core, for deciding and learning.",
            soft=True,
        ),
        heading("By day"),
        _by_day(streamed),
        heading("By visit of the user"),
        _by_visit(streamed),
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


def _dashes(arms: Sequence[str], names: tuple[str, str, str]) -> list[tuple[str, str, str]]:
    """Return label, colour and dash of every arm."""
    count = len(COLOURS)
    return [(arm, COLOURS[at % count], names[at // count % 3]) for at, arm in enumerate(arms)]


def _by_day(streamed: Streamed) -> str:
    from plotly import graph_objects as go

    figure, found = go.Figure(), by_day(streamed)
    for arm, colour, dash in _dashes(streamed.spec.arms, ("solid", "dash", "dot")):
        mine = found.filter(arm=arm)
        figure.add_scatter(x=mine[_DAY].to_numpy(), y=mine["clicks"].to_numpy(), name=arm,
                           line={"color": colour, "dash": dash})  # fmt: skip
    figure.update_layout(xaxis_title=_DAY, yaxis_title=_CLICKS, hovermode="x unified")
    figure.update_yaxes(rangemode="tozero")
    return plot(figure, "Clicks per visit on each day, mean over seeds.", 460)


def _by_visit(streamed: Streamed) -> str:
    from plotly import graph_objects as go

    figure, found = go.Figure(), by_visit(streamed)
    for arm, colour, dash in _dashes(streamed.spec.arms, ("solid", "dash", "dot")):
        mine = found.filter(arm=arm)
        figure.add_scatter(x=mine["visit"].cast(pl.String).to_list(), y=mine["clicks"].to_numpy(), name=arm,
                           line={"color": colour, "dash": dash}, mode="lines+markers")  # fmt: skip
    figure.update_layout(xaxis_title=_VISIT, yaxis_title=_CLICKS, hovermode="x unified")
    figure.update_xaxes(type="category")
    figure.update_yaxes(rangemode="tozero")
    return plot(figure, "Clicks per visit by how often the user has come, mean over seeds.", 460)


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
    daily, numbered = by_day(streamed), by_visit(streamed)
    ticks = [name for name in BINS if name in numbered["visit"].cast(pl.String).to_list()]
    for arm, colour, dash in _dashes(streamed.spec.arms, ("-", "--", ":")):
        mine = daily.filter(arm=arm)
        days.plot(mine[_DAY].to_numpy(), mine["clicks"].to_numpy(), dash, color=colour, label=arm)
        mine = numbered.filter(arm=arm)
        visits.plot([ticks.index(str(one)) for one in mine["visit"]], mine["clicks"].to_numpy(), dash, marker="o",
                    markersize=4, color=colour)  # fmt: skip
    days.set(xlabel=_DAY, ylabel=_CLICKS)
    days.xaxis.get_major_locator().set_params(integer=True)
    visits.set(xlabel=_VISIT, xticks=range(len(ticks)), xticklabels=ticks)
    for axes in (days, visits):
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
    for name in figure.legend(loc="outside right upper", frameon=False, fontsize="small").get_texts():
        name.set_parse_math(False)
    figure.suptitle(f"{Path(streamed.spec.data).name}: {size_of(streamed)}", parse_math=False, fontsize="medium")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
