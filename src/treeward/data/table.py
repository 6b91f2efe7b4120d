"""Any table of events: CSV, TSV or Parquet, by column mapping."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from treeward.core import artefact, checks
from treeward.core.errors import DataError
from treeward.core.progress import Progress, silent
from treeward.data.catalogue import Catalogue
from treeward.data.dataset import Dataset, Sizes, split_users
from treeward.data.interactions import Interactions
from treeward.data.lines import Piece, Problems
from treeward.data.tabular import read_events, read_table

SIGNS: tuple[str, ...] = ()


def load(
    path: Path,
    *,
    columns: Mapping[str, str] | None = None,
    items: str | None = None,
    positive: Sequence[str] = (),
    test: int | float = 0.2,
    validation: int | float = 0.1,
    seed: int = 0,
    strict: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Read any CSV, TSV or Parquet table of events.

    Parameters
    ----------
    path
        The file.
    columns
        Which of its columns is the `user`, `item`, `reward`, `action` and `time`; by default those of that name.
    items
        A catalogue, in any form `Catalogue.load` reads, if there is more to say of the items than their ids; a table
        needs no vectors.
    positive
        Behaviours whose reward is 1, all others 0; by default the reward column, or 1 for every event.
    test, validation
        Users for test and validation: numbers, or shares.
    seed
        Who is for what.
    strict
        Raise if a row lacks a user or an item.
    progress
        Called with (stage, done, total).
    """
    checks.kinds("load_dataset", ("columns", columns or {}, Mapping), ("items", items or "", str))
    checks.kinds("load_dataset", ("positive", positive, Sequence))
    positive = (positive,) if isinstance(positive, str) else tuple(positive)
    table, problems = read_events(path, columns or {}), Problems(strict)
    (progress or silent)(f"reading {path.name}", 1, 1)
    table = table.with_columns(pl.int_range(2, table.height + 2, dtype=pl.Int64).alias("line"))
    known = pl.col("user").is_not_null() & pl.col("item").is_not_null()
    table = problems.keep(Piece(path, table), known, "no user or item").rows.drop("line")
    if positive:
        if "action" not in table.columns:
            raise DataError(f"{path}: no action column to find {', '.join(positive)} in")
        liked = pl.col("action").cast(pl.String).is_in([str(name) for name in positive])
        table = table.with_columns(liked.cast(pl.Float64).fill_null(0.0).alias("reward"))
    log = Interactions.of_table(table)
    if not len(log):
        raise DataError(f"{path}: holds no events")
    source = {
        "loader": "tabular", "file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "read": {"events": len(log)}, "positive": list(positive), "test": test, "validation": validation, "seed": seed,
    }  # fmt: skip
    splits = split_users(log.users, Sizes(test, validation), seed)
    catalogue = Catalogue(log.items.unique().sort()) if items is None else _catalogue(items, log, problems)
    return Dataset(path.stem, catalogue, log, splits, dropped=problems.found, source=source)


def _catalogue(path: str, log: Interactions, problems: Problems) -> Catalogue:
    """Return the catalogue, and count events with items it does not list."""
    if artefact.is_artefact(path) or path.endswith(".npy") or "vector" in ",".join(read_table(path).columns):
        made = Catalogue.load(path)
    else:
        made = Catalogue.of_table(read_table(path))
    if made.ids.dtype.is_integer() != log.items.dtype.is_integer():
        raise DataError(f"{path}: its ids are {made.ids.dtype}, and those of the log's items {log.items.dtype}")
    unlisted = int((~log.items.is_in(made.ids.implode())).sum())
    problems.note("item not in the catalogue", unlisted, Path(path).name, fatal=False)
    return made
