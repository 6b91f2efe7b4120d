"""The rows of a catalogue that a log's items have."""

import numpy as np
import polars as pl

from treeward.core.errors import DataError, InvalidArgument
from treeward.data.catalogue import Catalogue
from treeward.data.interactions import HISTORY, Interactions


def describe_id_mismatch(log: Interactions, catalogue: Catalogue) -> str:
    """Return how the ids of a log and of a catalogue differ in type and, where they are row numbers, what to do."""
    why = f"its ids are {catalogue.ids.dtype}, and those of the log's items {log.items.dtype}"
    if not catalogue.ids_are_row_numbers:
        return why
    others = ", ".join(catalogue.table.columns[1:]) or "no others"
    return f"{why}; no column is called id, so they are row numbers: --column id=NAME (it has {others})"


def with_item_rows(owner: str, log: Interactions, catalogue: Catalogue, *, keep_history: bool = False) -> pl.LazyFrame:
    """Return a log, in order, with the catalogue's `row` of each item; events with items it does not have are left out.

    Ids are returned as integers or strings, however they were stored. Where the log has skips, history clicks (the
    action `history`) are left out unless `keep_history`: a history has no skips, so it would only separate old items
    from new ones.
    """
    if log.items.dtype.is_integer() != catalogue.ids.dtype.is_integer():
        if catalogue.ids_are_row_numbers:
            raise DataError(f"the catalogue: {describe_id_mismatch(log, catalogue)}")
        raise InvalidArgument(owner, "interactions", f"with items of type {catalogue.ids.dtype}", log.items.dtype)
    table = log.table.lazy()
    if not keep_history and "action" in log.table.columns and bool((log.rewards <= 0).any()):
        table = table.filter((pl.col("action").cast(pl.String) != HISTORY).fill_null(True))
    ids = catalogue.ids if catalogue.ids.dtype.is_integer() else catalogue.ids.cast(pl.String)
    known = pl.LazyFrame({"item": ids, "row": np.arange(len(catalogue))})
    text = [name for name in ("user", "item") if not log.table[name].dtype.is_integer()]
    return table.with_columns(pl.col(text).cast(pl.String)).join(known, on="item", maintain_order="left")
