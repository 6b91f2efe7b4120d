"""Turns a log of interactions into events."""

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core.errors import InvalidArgument, UnknownId
from treeward.core.types import AnyArray
from treeward.data.interactions import Interactions
from treeward.store.base import User
from treeward.store.events import EVENT, REWARD


class LogEvents(NamedTuple):
    """Events ready for `EventStore.extend`."""

    users: list[User]
    counts: NDArray[np.int64]
    events: AnyArray
    skipped: int
    """Interactions with items that the catalogue does not have."""


def events_of_log(
    log: Interactions, ids: pl.Series, numbers: NDArray[np.int32], limits: tuple[float, float], skip: bool
) -> LogEvents:
    """Return the events of a log by user, ordered by time if the log has times.

    `ids` and `numbers` are those of all items, each once.
    """
    owner = "Explorer.ingest"
    if log.items.dtype.is_integer() != ids.dtype.is_integer():
        rule = f"with item ids of type {ids.dtype}, as in the catalogue"
        raise InvalidArgument(owner, "interactions", rule, str(log.items.dtype).partition("(")[0])
    outside = log.rewards.filter(~log.rewards.is_between(*limits))
    if len(outside):
        rule = f"with rewards from {limits[0]:g} to {limits[1]:g} (the explorer's reward_range)"
        raise InvalidArgument(owner, "interactions", rule, outside.head(3).to_list())
    known = pl.DataFrame({"item": ids, "number": numbers})
    table = log.table.lazy()
    if "time" in log.table.columns:
        table = table.sort("time", maintain_order=True)
    table = table.select("user", "item", "reward", _second(log.table).alias("second")).with_columns(
        pl.col(name).cast(pl.String) for name in ("user", "item") if not log.table[name].dtype.is_integer()
    )
    table = table.join(known.lazy(), on="item", how="left", maintain_order="left")
    found = table.sort("user", maintain_order=True).collect()
    missing = found.filter(pl.col("number").is_null())
    if missing.height and not skip:
        some = missing["item"].unique(maintain_order=True)
        found_none = f"{len(some)} item(s) of the log are not in the catalogue, such as {some[0]!r}"
        raise UnknownId(f"{found_none}; unknown='skip' ignores them")
    found = found.filter(pl.col("number").is_not_null())
    events = np.zeros(found.height, dtype=EVENT)
    events["item"], events["reward"] = found["number"].to_numpy(), found["reward"].to_numpy()
    events["node"], events["kind"], events["time"] = -1, REWARD, found["second"].to_numpy()
    runs = found["user"].rle().struct.unnest()
    return LogEvents(runs["value"].to_list(), runs["len"].to_numpy().astype(np.int64), events, missing.height)


def _second(table: pl.DataFrame) -> pl.Expr:
    """Return the time of each interaction in seconds since 1970; 0 where it is unknown or impossible."""
    if "time" not in table.columns:
        return pl.lit(0, dtype=pl.Int64)
    kind, time = table.schema["time"], pl.col("time")
    seconds = time.dt.epoch("s") if kind.is_temporal() else time.cast(pl.Int64, strict=False)
    return pl.when(seconds.is_between(1, 2**32 - 1)).then(seconds).otherwise(0)
