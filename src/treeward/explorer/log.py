"""Decisions and their rewards as one table."""

from collections.abc import Callable

import numpy as np
import polars as pl

from treeward.data.catalogue import Catalogue
from treeward.explorer.decider import SLOT_BITS
from treeward.state.item_positions import ItemPositions
from treeward.store.base import EventStore, join, read_all
from treeward.store.events import SHOWN


def decision_log(
    store: EventStore, catalogue: Catalogue, positions: ItemPositions, context_of: Callable[[int], str | None]
) -> pl.DataFrame:
    """Return the decisions in a store by user, in the order they were made.

    `context_of` returns the context, as JSON, of a snapshot number.
    """
    parts = list(read_all(store))
    users = [user for user, _ in parts]
    counts = [len(events) for _, events in parts]
    events = join([part for _, part in parts])
    who = np.repeat(np.arange(len(parts)), counts)
    table = pl.DataFrame(
        {"who": who, **{name: events[name] for name in ("item", "node", "reward", "nonce", "kind", "snapshot")}}
    )
    shown = table.filter(pl.col("kind") == SHOWN).rename({"reward": "propensity"})
    earned = table.filter(pl.col("kind") != SHOWN).group_by("who", "nonce").agg(pl.col("reward").sum())
    joined = shown.join(earned, on=["who", "nonce"], how="left", maintain_order="left")
    rows = positions.rows(joined["item"].to_numpy())
    joined = joined.with_columns(
        pl.Series("row", rows), (pl.col("nonce") % (1 << SLOT_BITS)).alias("slot").cast(pl.Int64)
    ).filter(pl.col("row") >= 0)
    contexts = {number: context_of(number) for number in joined["snapshot"].unique().to_list()}
    text = any(isinstance(user, str) for user in users)
    written = [user if isinstance(user, str) else f"int:{user}" for user in users] if text else users
    people = pl.Series("user", written, pl.String if text else pl.Int64)
    return joined.select(
        people[joined["who"].to_numpy()].alias("user"),
        catalogue.ids[joined["row"].to_numpy()].alias("item"),
        "row",
        "slot",
        pl.col("propensity").abs(),
        (pl.col("propensity") > 0).alias("exact"),
        (pl.col("node") < 0).alias("adopted"),  # a decision of the policy has a node
        "reward",
        joined["snapshot"].replace_strict(contexts, return_dtype=pl.String).alias("context"),
    )
