"""Results as pictures: an offline page or a PNG of cumulative rewards."""

import io
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeward.core.artefact import StrPath, write_file
from treeward.core.errors import InvalidArgument
from treeward.core.page import COLOURS, page, plot, text
from treeward.simulate.result import Result

_MOST_POINTS = 400


def draw_curves(results: Sequence[Result], path: StrPath, heading: str = "Cumulative reward") -> Path:
    """Draw each result's cumulative reward, with its 95 % interval over users, to a .html page or a .png picture."""
    render = {".html": _page, ".png": _picture}[curve_kind("draw_curves", "path", path)]
    if not results:
        raise InvalidArgument("draw_curves", "results", "at least one", "none")
    return write_file(path, render(results, heading))


def curve_kind(owner: str, parameter: str, path: StrPath) -> str:
    """Return the ending of a path that curves can be drawn to."""
    kind = Path(path).suffix.lower()
    if kind not in (".html", ".png"):
        raise InvalidArgument(owner, parameter, "a file ending in .html or .png", str(path))
    return kind


def _curve(result: Result) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return rounds, the mean cumulative reward at them, and half its 95 % interval."""
    users, rounds = result.rewards.shape
    turns = np.unique(np.linspace(1, rounds, min(rounds, _MOST_POINTS)).astype(np.int64))
    totals = np.cumsum(result.rewards, axis=1, dtype=np.float64)[:, turns - 1]
    spread = totals.std(axis=0, ddof=1) / users**0.5 if users > 1 else np.zeros(len(turns))
    return turns, totals.mean(axis=0), 1.96 * spread


def _page(results: Sequence[Result], heading: str) -> bytes:
    return page("Cumulative reward", [text(heading), plot(curves_of(results), height=560)])


def curves_of(results: Sequence[Result]) -> Any:
    """Return a plotly figure of each result's cumulative reward, with its interval."""
    from plotly import graph_objects as go

    figure = go.Figure()
    for index, result in enumerate(results):
        colour = COLOURS[index % len(COLOURS)]
        turns, mean, half = _curve(result)
        band = {"line": {"width": 0}, "showlegend": False, "hoverinfo": "skip", "legendgroup": str(index)}
        around = np.concatenate([mean + half, (mean - half)[::-1]])
        figure.add_scatter(
            x=np.concatenate([turns, turns[::-1]]), y=around, fill="toself", fillcolor=colour, opacity=0.2, **band
        )
        figure.add_scatter(x=turns, y=mean, name=escape(result.policy), line={"color": colour}, legendgroup=str(index))
    figure.update_layout(
        xaxis_title="round", yaxis_title="cumulative reward of a user (band: 95 % interval)", hovermode="x unified"
    )
    return figure


def _picture(results: Sequence[Result], heading: str) -> bytes:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    for index, result in enumerate(results):
        colour = COLOURS[index % len(COLOURS)]
        turns, mean, half = _curve(result)
        axes.plot(turns, mean, color=colour, label=result.policy)
        axes.fill_between(turns, mean - half, mean + half, color=colour, alpha=0.2, linewidth=0)
    axes.set(xlabel="round", ylabel="cumulative reward of a user")
    axes.set_title(heading, parse_math=False)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
