"""Results as pictures: an offline page or a PNG of cumulative rewards."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from treeward.core.artefact import StrPath, write_file
from treeward.core.errors import InvalidArgument
from treeward.core.plots import Line, line_picture, line_plot
from treeward.core.report_html import page, plot, text
from treeward.simulate.result import Result

_MOST_POINTS = 400
_REWARD = "cumulative reward per user"


def draw_curves(results: Sequence[Result], path: StrPath, heading: str = "Cumulative reward") -> Path:
    """Draw each result's cumulative reward, with its 95 % interval over users, to a .html page or a .png picture."""
    kind = curve_kind("draw_curves", "path", path)
    if not results:
        raise InvalidArgument("draw_curves", "results", "at least one", "none")
    lines = curves_of(results)
    if kind == ".png":
        return write_file(path, line_picture(lines, "round", _REWARD, heading))
    figure = plot(line_plot(lines, "round", f"{_REWARD} (band: 95 % interval)"), height=560)
    return write_file(path, page("Cumulative reward", [text(heading), figure]))


def curve_kind(owner: str, parameter: str, path: StrPath) -> str:
    """Return the ending of a path that curves can be drawn to."""
    kind = Path(path).suffix.lower()
    if kind not in (".html", ".png"):
        raise InvalidArgument(owner, parameter, "a file ending in .html or .png", str(path))
    return kind


def curves_of(results: Sequence[Result]) -> list[Line]:
    """Return each result's mean cumulative reward, at some rounds, with half its 95 % interval."""
    made = []
    for result in results:
        users, rounds = result.rewards.shape
        turns = np.unique(np.linspace(1, rounds, min(rounds, _MOST_POINTS)).astype(np.int64))
        totals = np.cumsum(result.rewards, axis=1, dtype=np.float64)[:, turns - 1]
        spread = totals.std(axis=0, ddof=1) / users**0.5 if users > 1 else np.zeros(len(turns))
        made.append(Line(result.policy, turns, totals.mean(axis=0), 1.96 * spread))
    return made
