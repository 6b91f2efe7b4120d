"""Item vectors in many files, too many for one machine: listed, counted, and read one file at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from treeward.core.artefact import digest, is_artefact
from treeward.core.errors import DataError, InvalidArgument
from treeward.core.files import open_npy
from treeward.core.types import Floats

ENDINGS = (".npy", ".parquet")
_MOST_BYTES = 1 << 27


class Shard(NamedTuple):
    """A file, or a part of a large one: rows start:start + rows, whose items are numbered from `first` on."""

    path: str
    start: int
    rows: int
    first: int
    dim: int
    column: str
    """Of a table: where the vectors are."""


def is_sharded(path: Path) -> bool:
    """Return whether a path is a folder of vector files that is not an artefact."""
    return path.is_dir() and not is_artefact(path) and any(one.suffix in ENDINGS for one in path.iterdir())


def find(folder: Path, column: str = "vector") -> list[Shard]:
    """Return the shards of a folder, .npy matrices or Parquet tables with a column of vectors, by their names.

    Parameters
    ----------
    folder
        The folder, under a path that all machines can read.
    column
        The column of vectors in tables.
    """
    owner = "ItemTree.from_shards"
    paths = sorted(path for path in folder.iterdir() if path.suffix in ENDINGS) if folder.is_dir() else []
    if not paths:
        raise InvalidArgument(owner, "folder", f"a folder of {' or '.join(ENDINGS)} files", str(folder))
    found: list[Shard] = []
    first, widths = 0, dict[int, str]()
    for path in paths:
        count, width = _shape(path, column)
        if not count:
            continue
        step = max(1, _MOST_BYTES // (4 * width))
        found += [
            Shard(str(path), start, min(step, count - start), first + start, width, column)
            for start in range(0, count, step)
        ]
        first, widths[width] = first + count, path.name
    if len(widths) != 1:
        told = ", ".join(f"{width} in {name}" for width, name in widths.items()) or "no vector at all"
        raise InvalidArgument(owner, "folder", "one of vectors of the same dimension", told)
    if first >= 2**31:
        raise InvalidArgument(owner, "folder", "one of fewer than 2,147,483,648 vectors", first)
    return found


def _shape(path: Path, column: str) -> tuple[int, int]:
    """Return how many vectors a file has, and of how many dimensions."""
    with _told(path):
        if path.suffix == ".npy":
            found = open_npy(path)
            if found.ndim != 2 or not found.shape[1] or found.dtype.kind not in "fiu":
                raise ValueError(f"{found.dtype}{found.shape} is no matrix of numbers")
            return len(found), int(found.shape[1])
        table = pl.scan_parquet(path, glob=False)
        names = table.collect_schema().names()
        if column not in names:
            raise ValueError(f"there is no column {column!r}, only {', '.join(names)}")
        first = pl.col(column).first().cast(pl.List(pl.Float32)).list.len()
        count, width = table.select(pl.len(), first.alias("dim")).collect().row(0)
        if count and not width:
            raise ValueError("its first vector is missing, or empty")
        return count, width or 0


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, TypeError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{path}: cannot be read as vectors ({str(error).splitlines()[0]})") from error


def read(shard: Shard) -> Floats:
    """Return a shard's vectors, as they are."""
    with _told(Path(shard.path)):
        part = slice(shard.start, shard.start + shard.rows)
        if shard.path.endswith(".npy"):
            made = np.asarray(open_npy(shard.path)[part], dtype=np.float32)
        else:
            table = pl.scan_parquet(shard.path, glob=False).select(shard.column).slice(shard.start, shard.rows)
            lists = table.collect()[shard.column].cast(pl.List(pl.Float32))
            if lists.null_count() or (lists.list.len() != shard.dim).any() or lists.explode().null_count():
                raise ValueError(f"some vectors are missing, or not of {shard.dim} numbers")
            made = lists.explode().to_numpy().reshape(-1, shard.dim)
        if made.shape != (shard.rows, shard.dim):
            raise ValueError(f"its shape has changed to {made.shape}")
    return made


def checked(shard: Shard) -> tuple[Floats, str]:
    """Return a shard's vectors, which are finite, and their digest."""
    made = read(shard)
    sound = np.isfinite(made).all(axis=1)
    if not sound.all():
        raise DataError(f"{shard.path}: row {shard.start + int(np.argmin(sound))} is not finite")
    return made, digest(made)
