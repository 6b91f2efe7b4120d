"""Drawing a tree to a file: which kind."""

from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from treeward.core.artefact import write_file
from treeward.core.errors import InvalidArgument
from treeward.core.types import TreeArrays
from treeward.tree import page, picture

Titles = Sequence[str | None] | pl.Series
Names = Sequence[str] | None

KINDS: dict[str, Callable[[TreeArrays, Names, Titles | None, str], bytes]] = {
    ".html": page.render,
    ".png": picture.render,
}


def draw(tree: TreeArrays, names: Names, titles: Titles | None, path: Path, heading: str) -> Path:
    """Draw `tree` to `path`, in the kind its ending names, and return the path."""
    render = KINDS.get(path.suffix.lower())
    if render is None:
        raise InvalidArgument("ItemTree.draw", "path", f"a file ending in {' or '.join(KINDS)}", str(path))
    return write_file(path, render(tree, names, titles, heading))
