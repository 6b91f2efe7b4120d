"""Drawing a tree to a file: which kind, and writing it whole or not at all."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import polars as pl

from treeward.core.errors import ArtefactWrite, InvalidArgument
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
    data = render(tree, names, titles, heading)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise ArtefactWrite(f"cannot write {path}: {error.strerror or error}") from error
    return path
