"""Users' sequences of clicks: the training data of models of the next click."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core.errors import DataError
from treeward.data.catalogue import Catalogue
from treeward.data.interactions import Interactions
from treeward.data.item_rows import with_item_rows


class Clicks(NamedTuple):
    """Sequences of catalogue rows, one user after another."""

    rows: NDArray[np.int64]
    ends: NDArray[np.int64]
    """(users + 1,): the clicks of user i are rows[ends[i] : ends[i + 1]], in order of time."""
    users: pl.Series
    """The users' ids, in the order of `ends`."""

    def __len__(self) -> int:
        return len(self.ends) - 1

    def of(self, user: int) -> NDArray[np.int64]:
        """Return the clicks of one user."""
        return self.rows[self.ends[user] : self.ends[user + 1]]

    def each(self) -> Iterator[NDArray[np.int64]]:
        """Yield the clicks of every user."""
        for user in range(len(self)):
            yield self.of(user)

    def counts(self, items: int) -> NDArray[np.int64]:
        """Return how often every item was clicked."""
        return np.bincount(self.rows, minlength=items)


def clicks_of(owner: str, log: Interactions, catalogue: Catalogue) -> Clicks:
    """Return the rewarded events of a log by user, in order of time; without times, in the order of the log.

    Events without a time (a history from before the log) come first. Events with items that the catalogue lacks are
    left out.
    """
    order = ["user", "time"] if "time" in log.table.columns else ["user"]
    found = with_item_rows(owner, log, catalogue, keep_history=True).filter(pl.col("reward") > 0)
    table = found.sort(order, maintain_order=True, nulls_last=False).select("user", "row").collect()
    if not table.height:
        raise DataError(f"{owner}: the log rewards no item of the catalogue")
    runs = table["user"].rle().struct.unnest()
    ends = np.concatenate([[0], np.cumsum(runs["len"].to_numpy().astype(np.int64))])
    return Clicks(table["row"].to_numpy().astype(np.int64), ends, runs["value"])


class HeldOut(NamedTuple):
    """Histories, and the click that followed each."""

    histories: list[NDArray[np.int64]]
    following: NDArray[np.int64]


def last_clicks(clicks: Clicks) -> HeldOut:
    """Hold out every user's last click. Users with one click, or whose last click repeats an item, are left out.

    Examples
    --------
    >>> log = Interactions(["a", "a", "a", "b"], [1, 2, 3, 1])
    >>> held = last_clicks(clicks_of("doc", log, Catalogue([1, 2, 3])))
    >>> [one.tolist() for one in held.histories], held.following.tolist()
    ([[0, 1]], [2])
    """
    pairs = [(mine[:-1], int(mine[-1])) for mine in clicks.each() if len(mine) > 1 and mine[-1] not in mine[:-1]]
    return HeldOut([past for past, _ in pairs], np.array([last for _, last in pairs], dtype=np.int64))


def padded(
    histories: Sequence[NDArray[np.int64]], window: int, filler: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the last `window` clicks of each history as one matrix, padded at the end, and their lengths."""
    kept = [mine[-window:] for mine in histories]
    lengths = np.array([len(mine) for mine in kept], dtype=np.int64)
    made = np.full((len(kept), max(1, int(lengths.max(initial=1)))), filler, dtype=np.int64)
    for i, mine in enumerate(kept):
        made[i, : len(mine)] = mine
    return made, lengths
