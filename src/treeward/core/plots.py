"""Plots in the style of the reports: plotly figures for pages, matplotlib figures for PNG files."""

import io
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from treeward.core.report_html import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DASHES = {"solid": "-", "dash": "--", "dot": ":"}
"""Plotly's name of a dash, and matplotlib's."""
_SYMBOLS = ("circle", "diamond", "square")


class Line(NamedTuple):
    """One curve of a plot."""

    label: str
    x: Any
    y: Any
    half: Any = None
    """Half of the interval at every point, drawn as a band; None: no band."""
    dash: str = ""
    """By default solid for the first eight curves, then dashed, then dotted."""

    def style(self, number: int) -> tuple[str, str]:
        """Return colour and dash of the curve with this number in its plot."""
        return _colour(number), self.dash or list(_DASHES)[number // len(COLOURS) % len(_DASHES)]


class Point(NamedTuple):
    """One point of a plot, with a legend entry of its own."""

    label: str
    x: float
    y: float
    half: float = 0.0
    hollow: bool = False


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def line_plot(
    lines: Iterable[Line], x: str, y: str, *, from_zero: bool = False, log_x: bool = False, markers: bool = False
) -> Any:
    """Return a plotly figure of curves over the same x, with their intervals as bands."""
    from plotly import graph_objects as go

    figure = go.Figure()
    for number, (one, colour, dash) in enumerate((one, *one.style(at)) for at, one in enumerate(lines)):
        if one.half is not None:
            turns, mean = np.asarray(one.x), np.asarray(one.y)
            figure.add_scatter(
                x=np.concatenate([turns, turns[::-1]]), y=np.concatenate([mean + one.half, (mean - one.half)[::-1]]),
                fill="toself", fillcolor=colour, opacity=0.15, line={"width": 0}, showlegend=False, hoverinfo="skip",
                legendgroup=str(number),
            )  # fmt: skip
        figure.add_scatter(
            x=one.x, y=one.y, name=escape(one.label), line={"color": colour, "dash": dash}, legendgroup=str(number),
            mode="lines+markers" if markers else "lines",
        )  # fmt: skip
    figure.update_layout(xaxis_title=x, yaxis_title=y, hovermode="x unified")
    if from_zero:
        figure.update_yaxes(rangemode="tozero")
    if log_x:
        figure.update_xaxes(type="log")
    return figure


def point_plot(points: Sequence[Point], x: str, y: str) -> Any:
    """Return a plotly figure of single points with their intervals."""
    from plotly import graph_objects as go

    figure = go.Figure()
    for number, one in enumerate(points):
        symbol = _SYMBOLS[number // len(COLOURS) % len(_SYMBOLS)] + "-open" * one.hollow
        figure.add_scatter(
            x=[one.x], y=[one.y], name=escape(one.label), mode="markers",
            error_y={"type": "data", "array": [one.half], "thickness": 1},
            marker={"size": 11, "color": _colour(number), "symbol": symbol},
        )  # fmt: skip
    figure.update_layout(showlegend=True, xaxis_title=x, yaxis_title=y)
    return figure


def draw_lines(axes: "Axes", lines: Iterable[Line], x: str, y: str = "", **style: Any) -> None:
    """Draw curves, with their intervals as bands, on matplotlib axes without a frame."""
    for number, one in enumerate(lines):
        colour, dash = one.style(number)
        axes.plot(one.x, one.y, _DASHES[dash], color=colour, label=one.label, **style)
        if one.half is not None:
            axes.fill_between(one.x, one.y - one.half, one.y + one.half, color=colour, alpha=0.15, linewidth=0)
    axes.set(xlabel=x, ylabel=y)
    axes.spines[["top", "right"]].set_visible(False)


def line_picture(
    lines: Iterable[Line], x: str, y: str, title: str = "", *, from_zero: bool = False, log_x: bool = False
) -> bytes:
    """Return a PNG of curves with their legend."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.5), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    draw_lines(axes, lines, x, y)
    for label in axes.legend(frameon=False, fontsize="small").get_texts():
        label.set_parse_math(False)
    axes.set_title(title, parse_math=False)
    if log_x:
        axes.set_xscale("log")
    if from_zero:
        axes.set_ylim(bottom=0)
    return png(figure)


def png(figure: "Figure") -> bytes:
    """Return a matplotlib figure as a PNG that does not depend on matplotlib's version."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
