"""Numbers for item ids: those that events have in place of them."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core.errors import InvalidArgument

Known = dict[int | str, int] | pl.Series


class Numbers:
    """Ids in the order they were first seen; an id's place is its number, for ever.

    Parameters
    ----------
    owner
        Who is told of in errors.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._known: Known = {}

    def __len__(self) -> int:
        return len(self._known)

    def ids(self) -> pl.Series:
        """Return all ids, in the order of their numbers."""
        known = self._known
        kind = _kind_of(known) if isinstance(known, dict) else None
        return known if isinstance(known, pl.Series) else pl.Series("id", list(known), dtype=kind or pl.String)

    def load(self, ids: pl.Series) -> None:
        """Begin with these."""
        self._known = ids

    def of(self, ids: pl.Series) -> NDArray[np.int32]:
        """Return the numbers of ids, giving new ones to those not seen before."""
        known_as = self._known.dtype if isinstance(self._known, pl.Series) else _kind_of(self._known)
        if known_as is not None and ids.dtype.is_integer() != known_as.is_integer():
            kinds = {True: "integers", False: "strings"}
            rule = f"with item ids that are {kinds[known_as.is_integer()]}, as in the store"
            raise InvalidArgument(self._owner, "catalogue", rule, kinds[ids.dtype.is_integer()])
        # The first catalogue's rows are the numbers: a table of its own would cost 100 bytes an item and more.
        if isinstance(self._known, dict) and not self._known:
            self._known = ids
        if isinstance(self._known, pl.Series):
            if ids is self._known or ids.equals(self._known):
                return np.arange(len(ids), dtype=np.int32)
            self._known = {id: number for number, id in enumerate(self._known)}
        known = self._known
        return np.fromiter((known.setdefault(id, len(known)) for id in ids), dtype=np.int32, count=len(ids))


def _kind_of(ids: dict[int | str, int]) -> pl.DataType | None:
    first = next(iter(ids), None)
    return None if first is None else (pl.String() if isinstance(first, str) else pl.Int64())
