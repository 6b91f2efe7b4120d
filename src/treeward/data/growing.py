"""`Growing`: a catalogue that items are added to; rows that were there stay as they are."""

from bisect import bisect_right

import numpy as np
import polars as pl

from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue, Id


class Growing(Catalogue):
    """A catalogue's rows, and behind them those that came later; an id means the latest row that has it.

    Parameters
    ----------
    base
        The rows to begin with.

    Examples
    --------
    >>> shop = Growing(Catalogue(["a", "b"], [[1, 0], [0, 1]]))
    >>> shop.append(Catalogue(["c", "a"], [[1, 1], [1, 2]]))
    2
    >>> len(shop), shop.row("a"), shop.row("b"), shop.vectors[shop.row("c")].tolist()
    (4, 3, 1, [1.0, 1.0])
    """

    def __init__(self, base: Catalogue) -> None:
        self.base, self.gone, self.pages, self.made_at = base, base.gone, base.pages, base.made_at
        self._late: list[Catalogue] = []
        self._starts: list[int] = []
        self._rows: dict[Id, int] = {}
        self._late_ids: list[Id] = []
        self._whole: tuple[int, pl.DataFrame] = 0, base.table

    def append(self, more: Catalogue) -> int:
        """Add rows, whose columns are the catalogue's, and return the first one's number."""
        first = len(self)
        ids = more.ids.to_list()
        self._late.append(more)
        self._starts.append(first)
        self._late_ids += ids
        self._rows.update(zip(ids, range(first, first + len(ids)), strict=True))
        return first

    def __len__(self) -> int:
        return len(self.base) + len(self._late_ids)

    @property
    def dim(self) -> int:
        """The vectors' dimension."""
        return self.base.dim

    @property
    def vectors(self) -> Floats:
        """(items, dimensions), in row order; put together when asked for."""
        return np.concatenate([self.base.vectors, *(more.vectors for more in self._late)])

    @property
    def table(self) -> pl.DataFrame:
        """One row an item, in row order."""
        known, table = self._whole
        if known < len(self._late):
            table = pl.concat([table, *(more.table for more in self._late[known:])], rechunk=True)
            self._whole = len(self._late), table
        return table

    def id_at(self, row: int) -> Id:
        """Return the id of a row; quicker than to ask for the whole column."""
        late = row - len(self.base)
        found: Id = self._late_ids[late] if late >= 0 else self.base.ids[row]
        return found

    def vector_at(self, row: int) -> Floats:
        """Return the vector of a row."""
        if row < len(self.base):
            return self.base.vector_at(row)
        part = bisect_right(self._starts, row) - 1
        return self._late[part].vector_at(row - self._starts[part])

    def row(self, id: Id) -> int:
        """Return the latest row of an id; an id that is not there raises `UnknownId`."""
        late = self._rows.get(id) if self._key(id) is not None else None
        return self.base.row(id) if late is None else late

    def _key(self, id: Id) -> np.int64 | None:
        return self.base._key(id)
