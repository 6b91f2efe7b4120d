"""Drawing a tree: a self-contained HTML page (sunburst or treemap), or a PNG sunburst whose rings are the levels.

All nodes travel in the page as flat arrays, but only the current node's surroundings are ever drawn, so that a tree of
50,000 leaves opens at once. Beyond `MOST_NODES` the deepest nodes are left out and counted.
"""

import re
import warnings
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core.artefact import write_file
from treeward.core.errors import InvalidArgument
from treeward.core.plots import png
from treeward.core.types import TreeArrays

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NODES = 100_000
_EXAMPLES, _MOST_EXAMPLES, _LONGEST_TITLE = 5, 150_000, 80
"""Example titles per leaf and in the whole page, and characters of each."""
_MOST_WEDGES, _MOST_INLINE = 20_000, 2_000
"""Nodes that a picture draws: in a file, and in a notebook, where it must take well under a second."""
_LABEL_SHARE, _LONGEST_LABEL = 0.012, 26

Titles = Sequence[str | None] | pl.Series
Names = Sequence[str] | None


def draw(tree: TreeArrays, names: Names, titles: Titles | None, path: Path, heading: str) -> Path:
    """Draw `tree` to `path`, as a page or a picture by its ending, and return the path."""
    kind = path.suffix.lower()
    if kind not in (".html", ".png"):
        raise InvalidArgument("ItemTree.draw", "path", "a file ending in .html or .png", str(path))
    return write_file(path, _page(tree, names, titles, heading) if kind == ".html" else picture(tree, names, heading))


def inline(tree: TreeArrays, names: Names) -> bytes:
    """Return a small PNG, for notebooks."""
    return picture(tree, names, "Item tree", _MOST_INLINE)


def _page(tree: TreeArrays, names: Names, titles: Titles | None, heading: str) -> bytes:
    from plotly.offline import get_plotlyjs

    # Breadth-first numbering makes "the upper part of the tree" a prefix of every array.
    kept = min(MOST_NODES, len(tree.parent))
    data = {
        "name": [f"node {node}" for node in range(kept)] if names is None else names[:kept],
        "parent": tree.parent[:kept].tolist(),
        "level": tree.level[:kept].tolist(),
        "first": tree.first_child[: kept + 1].tolist(),
        "size": np.diff(tree.item_range[:kept]).ravel().tolist(),
        "nodes": len(tree.parent),
        "depth": int(tree.level[-1]),
        "examples": {} if titles is None else _examples(tree, titles, kept),
    }
    # "<" never appears inside a script, so no title can end it or open a comment in it.
    json = msgspec.json.encode(data).decode().replace("<", "\\u003c")
    template = (files("treeward.tree") / "page.html").read_text(encoding="utf-8")
    parts = {"%heading%": escape(heading), "%data%": json, "%plotly%": get_plotlyjs()}
    pieces: list[str] = re.split("(%heading%|%data%|%plotly%)", template)
    return "".join(parts.get(piece, piece) for piece in pieces).encode(errors="replace")


def _examples(tree: TreeArrays, titles: Titles, kept: int) -> dict[str, list[str]]:
    """Return a few titles from each leaf, within a budget that keeps the page small."""
    leaves = np.flatnonzero(np.diff(tree.first_child)[:kept] == 0)
    each = max(1, min(_EXAMPLES, _MOST_EXAMPLES // len(leaves))) if len(leaves) else 0
    chosen = {}
    for leaf in leaves[:_MOST_EXAMPLES]:
        first, last = tree.item_range[leaf]
        rows = tree.items[first : min(last, first + each)].tolist()
        chosen[str(leaf)] = [str(title)[:_LONGEST_TITLE] for row in rows if (title := titles[row]) is not None]
    return chosen


def picture(tree: TreeArrays, names: Names, heading: str, most: int = _MOST_WEDGES) -> bytes:
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
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a script the font lacks is drawn as boxes
        return png(figure)


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
