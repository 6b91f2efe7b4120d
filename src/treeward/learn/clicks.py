"""Who clicked what, one thing after another: what models of the next click learn from."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core.errors import DataError, InvalidArgument
from treeward.data.catalogue import Catalogue
from treeward.data.interactions import Interactions


class Clicks(NamedTuple):
    """Sequences of catalogue rows, one user's after another's."""

    rows: NDArray[np.int64]
    ends: NDArray[np.int64]
    """(users + 1,): user i's are rows[ends[i] : ends[i + 1]], in order of time."""
    users: pl.Series
    """Who they are, in the order of `ends`."""

    def __len__(self) -> int:
        return len(self.ends) - 1

    def of(self, user: int) -> NDArray[np.int64]:
        """Return somebody's clicks."""
        return self.rows[self.ends[user] : self.ends[user + 1]]

    def each(self) -> Iterator[NDArray[np.int64]]:
        """Yield everybody's clicks."""
        for user in range(len(self)):
            yield self.of(user)

    def counts(self, items: int) -> NDArray[np.int64]:
        """Return how often every item was clicked."""
        return np.bincount(self.rows, minlength=items)


def clicks_of(owner: str, log: Interactions, catalogue: Catalogue) -> Clicks:
    """Return the rewarded events of a log, by user, in order of time where there are times, else of the log.

    What has no time (a history that came before) is first. Events with items the catalogue lacks are left out.
    """
    if log.items.dtype.is_integer() != catalogue.ids.dtype.is_integer():
        raise InvalidArgument(owner, "interactions", f"with items of type {catalogue.ids.dtype}", log.items.dtype)
    ids = catalogue.ids if catalogue.ids.dtype.is_integer() else catalogue.ids.cast(pl.String)
    known = pl.LazyFrame({"item": ids, "row": np.arange(len(catalogue))})
    text = [name for name in ("user", "item") if not log.table[name].dtype.is_integer()]
    liked = log.table.lazy().filter(pl.col("reward") > 0).with_columns(pl.col(text).cast(pl.String))
    order = ["user", "time"] if "time" in log.table.columns else ["user"]
    found = liked.join(known, on="item", maintain_order="left").sort(order, maintain_order=True, nulls_last=False)
    table = found.select("user", "row").collect()
    if not table.height:
        raise DataError(f"{owner}: the log rewards no item of the catalogue")
    runs = table["user"].rle().struct.unnest()
    ends = np.concatenate([[0], np.cumsum(runs["len"].to_numpy().astype(np.int64))])
    return Clicks(table["row"].to_numpy().astype(np.int64), ends, runs["value"])


class Held(NamedTuple):
    """Histories and the click that came next."""

    histories: list[NDArray[np.int64]]
    following: NDArray[np.int64]


def last_clicks(clicks: Clicks) -> Held:
    """Hold out everybody's last click; who clicked only once is left out, and so is a click on what was clicked before.

    Examples
    --------
    >>> log = Interactions(["a", "a", "a", "b"], [1, 2, 3, 1])
    >>> held = last_clicks(clicks_of("doc", log, Catalogue([1, 2, 3])))
    >>> [one.tolist() for one in held.histories], held.following.tolist()
    ([[0, 1]], [2])
    """
    pairs = [(mine[:-1], int(mine[-1])) for mine in clicks.each() if len(mine) > 1 and mine[-1] not in mine[:-1]]
    return Held([past for past, _ in pairs], np.array([last for _, last in pairs], dtype=np.int64))


def padded(
    histories: Sequence[NDArray[np.int64]], window: int, filler: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the last `window` clicks of each as one matrix, filled up at the end, and how many each has."""
    kept = [mine[-window:] for mine in histories]
    lengths = np.array([len(mine) for mine in kept], dtype=np.int64)
    made = np.full((len(kept), max(1, int(lengths.max(initial=1)))), filler, dtype=np.int64)
    for i, mine in enumerate(kept):
        made[i, : len(mine)] = mine
    return made, lengths
