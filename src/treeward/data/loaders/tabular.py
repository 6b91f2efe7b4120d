"""Any table of events: CSV, TSV or Parquet, by column mapping."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from treeward.core import checks
from treeward.core.errors import DataError, InvalidArgument
from treeward.data.catalogue import Catalogue
from treeward.data.column_roles import LOG_ROLES, split_roles
from treeward.data.delimited import Piece, Reading
from treeward.data.interactions import Interactions, checked_weights
from treeward.data.item_rows import describe_id_mismatch
from treeward.data.loaders.base import Loaded, loader
from treeward.data.tables import read_events

SIGNS: tuple[str, ...] = ()


@loader("tabular")
def load(
    path: Path,
    reading: Reading,
    *,
    columns: Mapping[str, str] | None = None,
    items: str | None = None,
    actions: Mapping[str, float] | None = None,
) -> Loaded:
    """Read any CSV, TSV or Parquet table of events.

    Parameters
    ----------
    path
        The file.
    columns
        Which of its columns is the `user`, `item`, `reward`, `action` and `time`, and which of the items' is the `id`,
        `vector`, `title` and `category`; by default those of that name.
    items
        A catalogue, in any form `Catalogue.load` reads, if there is more to say of the items than their ids; a table
        needs no vectors.
    actions
        What each action is worth, such as ``{"view": 0.1, "cart": 0.5, "buy": 1}``; 0: a skip. Events of other actions
        are left out, and counted in `Dataset.dropped`. By default the reward column, or 1 for every event.
    """
    owner = "load_dataset"
    checks.kinds(owner, ("columns", columns or {}, Mapping), ("items", items or "", str))
    weights = None if actions is None else checked_weights(owner, actions)
    of_log, of_items = split_roles(columns or {})
    if of_items and items is None:
        raise InvalidArgument(owner, "columns", "those of the log, unless there are items", dict(of_items))
    table = read_events(path, of_log)
    reading.digest.update(path.read_bytes())
    reading.progress(f"reading {path.name}", 1, 1)
    table = table.with_columns(pl.int_range(2, table.height + 2, dtype=pl.Int64).alias("line"))
    known = pl.col("user").is_not_null() & pl.col("item").is_not_null()
    table = Piece(table, path, reading).keep(known, "no user or item").rows.drop("line")
    log = Interactions.of_table(table)
    if not len(log):
        raise DataError(f"{path}: holds no events")
    source: dict[str, Any] = {
        "file": path.name, "read": {"events": len(log)},
        "rewards": "column" if "reward" in table.columns else "every event",
        "not_used": [name for name in table.columns if name not in LOG_ROLES],
    }  # fmt: skip
    if weights is not None:
        log, other = weighed(log, weights, reading)
        source |= {"rewards": "actions", "actions": weights, "other_actions": other}
    catalogue = Catalogue(log.items.unique().sort()) if items is None else _catalogue(items, of_items, log, reading)
    return Loaded(path.stem, catalogue, log, source)


def weighed(log: Interactions, weights: Mapping[str, float], reading: Reading) -> tuple[Interactions, dict[str, int]]:
    """Return the events of actions that have a weight, and how many there are of each other; those are counted too."""
    kept = log.weighed(weights)
    named = pl.col("action").cast(pl.String)
    left = log.table.filter(~named.is_in(list(weights)).fill_null(False))
    others = left.group_by(named.fill_null("")).len().sort("len", descending=True)
    found = {str(name): int(count) for name, count in others.iter_rows()}
    for name, count in found.items():
        reading.left_out(f"event of the action {name or '(none)'}, which has no weight", count)
    nobody = log.users.n_unique() - kept.users.n_unique()
    reading.left_out("user without an event that has a weight", nobody)
    return kept, found


def _catalogue(path: str, columns: Mapping[str, str], log: Interactions, reading: Reading) -> Catalogue:
    """Return the catalogue, and count events with items it does not list."""
    made = Catalogue.load(path, columns=columns, need_vectors=False)
    if made.ids_are_integers != log.items.dtype.is_integer():
        raise DataError(f"{path}: {describe_id_mismatch(log, made)}")
    unlisted = int((~log.items.is_in(made.ids.implode())).sum())
    reading.note("item not in the catalogue", unlisted, Path(path).name, fatal=False)
    return made
