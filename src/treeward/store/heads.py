"""What a store holds besides events: what it takes for them to mean the same in another."""

from typing import NamedTuple

import polars as pl

from treeward.store.moves import Move


class Head(NamedTuple):
    """The keys and numbers of a store."""

    secret: bytes
    epoch: int
    moves: list[tuple[bytes, Move]]
    """Who became whom, by sealed name."""
    items: pl.Series
    """Item ids, in the order of their numbers."""
    snapshots: list[str]
    """Digests of trees, in the order of their numbers."""
    begun: int
    """How often the store was begun with."""
    notes: dict[str, bytes]
    unfinished: bool = False
    """Whether events are still to come from the store this is a copy of; nobody is served from it then."""
