"""The tree as a picture: a sunburst whose rings are its levels."""

import io
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core.types import TreeArrays

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_WEDGES = 20_000
_MOST_INLINE = 2_000
_LABEL_SHARE = 0.012
_LONGEST_LABEL = 26


def inline(tree: TreeArrays, names: Sequence[str] | None) -> bytes:
    """Return a PNG that takes well under a second, for notebooks."""
    return render(tree, names, None, "Item tree", _MOST_INLINE)


def render(
    tree: TreeArrays,
    names: Sequence[str] | None,
    titles: Sequence[str | None] | pl.Series | None,
    heading: str,
    most: int = _MOST_WEDGES,
) -> bytes:
    """Return a PNG of the levels that together have few enough nodes to tell apart."""
    from matplotlib.collections import PatchCollection
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle, Wedge

    counts = np.bincount(tree.level)[1:]
    rings = max(1, int((np.cumsum(counts) <= most).sum()) - 1) if len(counts) > 1 else 0
    thickness = 1 / (rings + 0.6)
    inner = 0.6 * thickness
    figure = Figure(figsize=(9, 9.7), dpi=110)
    axes = figure.add_axes((0.02, 0.01, 0.96, 0.9))
    axes.add_patch(Circle((0, 0), inner * 0.97, color="#ece7db"))
    axes.text(0, 0, f"{len(tree.items):,}\nitems", ha="center", va="center", fontsize=11, color="#333333")
    drawn = np.flatnonzero((tree.level > 1) & (tree.level <= rings + 1))
    turns = 90 - 360 * tree.item_range[drawn] / len(tree.items)
    outer = inner + thickness * (tree.level[drawn] - 1)
    wedges = [
        Wedge((0, 0), reach, turn[1], turn[0], width=0.985 * thickness)
        for reach, turn in zip(outer, turns, strict=True)
    ]
    wide = np.diff(tree.item_range[drawn]).ravel() / len(tree.items) > _LABEL_SHARE / 8
    axes.add_collection(
        PatchCollection(
            wedges, facecolors=_colours(tree)[drawn], edgecolors="white", linewidths=np.where(wide, 0.7, 0.0)
        )
    )
    if names is not None:
        for node, turn, reach in zip(drawn.tolist(), turns, outer, strict=True):
            if (turn[0] - turn[1]) / 360 * (reach - thickness / 2) >= _LABEL_SHARE * 0.6:
                _label(axes, names[node], float(turn.mean()), reach - thickness / 2)
    axes.set(xlim=(-1.01, 1.01), ylim=(-1.01, 1.01), aspect="equal")
    axes.axis("off")
    levels = " / ".join(f"{count:,}" for count in counts)
    folded = "" if rings + 1 >= len(counts) else f" (the first {rings + 1} drawn)"
    figure.suptitle(
        f"{heading}\n{len(tree.items):,} items; nodes per level: {levels}{folded}", fontsize=13, parse_math=False
    )
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a script the font lacks is drawn as boxes
        figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _label(axes: "Axes", name: str, angle: float, radius: float) -> None:
    upside_down = 90 < angle % 360 < 270
    axes.text(
        radius * np.cos(np.radians(angle)),
        radius * np.sin(np.radians(angle)),
        name if len(name) <= _LONGEST_LABEL else name[: _LONGEST_LABEL - 1] + "…",
        rotation=angle - 180 if upside_down else angle,
        fontsize=6.5,
        ha="center",
        va="center",
        color="#222222",
        parse_math=False,
    )


def _colours(tree: TreeArrays) -> NDArray[np.float64]:
    """Return a hue for each branch below the root, paler with depth, neighbours a shade apart."""
    from matplotlib import colormaps

    branch = tree.item_range.mean(axis=1) / len(tree.items)
    for level in range(3, int(tree.level[-1]) + 1):
        at = tree.level == level
        branch[at] = branch[tree.parent[at]]
    colour = colormaps["Spectral"](branch)[:, :3]
    shade = np.where(np.arange(len(branch)) % 2 == 0, 0.0, 0.12)
    paler = np.clip((tree.level - 2) * 0.2 + shade, 0.1, 0.6)[:, None]
    return np.asarray(colour * (1 - paler) + paler)
