"""The tree as one self-contained HTML page: a sunburst or treemap that draws a few rings at a time.

All nodes travel in the page as flat arrays, but only the current node's surroundings are ever drawn, so that a tree of
50,000 leaves opens at once. Beyond `MOST_NODES` the deepest nodes are left out and counted.
"""

import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files

import msgspec
import numpy as np
import polars as pl

from treeward.core.types import TreeArrays

MOST_NODES = 100_000
_EXAMPLES = 5
_MOST_EXAMPLES = 150_000
_LONGEST_TITLE = 80


def render(
    tree: TreeArrays, names: Sequence[str] | None, titles: Sequence[str | None] | pl.Series | None, heading: str
) -> bytes:
    """Return the page."""
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


def _examples(tree: TreeArrays, titles: Sequence[str | None] | pl.Series, kept: int) -> dict[str, list[str]]:
    """Return a few titles from each leaf, within a budget that keeps the page small."""
    leaves = np.flatnonzero(np.diff(tree.first_child)[:kept] == 0)
    each = max(1, min(_EXAMPLES, _MOST_EXAMPLES // len(leaves))) if len(leaves) else 0
    chosen = {}
    for leaf in leaves[:_MOST_EXAMPLES]:
        first, last = tree.item_range[leaf]
        rows = tree.items[first : min(last, first + each)].tolist()
        chosen[str(leaf)] = [str(title)[:_LONGEST_TITLE] for row in rows if (title := titles[row]) is not None]
    return chosen
