"""`GrowingCatalogue`: a catalogue to which items can be added while others read it; earlier rows never change."""

from bisect import bisect_right
from threading import Lock
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from treeward.core.artefact import StrPath
from treeward.core.types import AnyArray, Floats
from treeward.data.catalogue import Catalogue, Id


class GrowingCatalogue(Catalogue):
    """The rows of a catalogue, followed by rows that were added later; an id refers to the latest row that has it.

    Parameters
    ----------
    base
        The first rows.

    Examples
    --------
    >>> shop = GrowingCatalogue(Catalogue(["a", "b"], [[1, 0], [0, 1]]))
    >>> more = Catalogue(["c", "a"], [[1, 1], [1, 2]])
    >>> shop.append(more.table, more.vectors)
    >>> len(shop), shop.row("a"), shop.row("b"), shop.vectors[shop.row("c")].tolist()
    (4, 3, 1, [1.0, 1.0])
    >>> shop.some([3, 0])["id"].to_list()
    ['a', 'a']
    """

    def __init__(self, base: Catalogue) -> None:
        self.base, self.gone, self.pages, self.made_at = base, base.gone, base.pages, base.made_at
        self._table, self._vectors, self._text = base.table, base.vectors, base._text  # the first rows, not all
        self._ids = base.ids
        self._tables: list[pl.DataFrame] = []
        self._parts: list[Floats] = []
        self._starts: list[int] = []
        self._rows: dict[Id, int] = {}
        self._late_ids: list[Id] = []
        self._whole = 0, base.table
        self._lock = Lock()

    def append(self, table: pl.DataFrame, vectors: Floats) -> None:
        """Add rows with the same columns."""
        ids = table["id"].to_list()
        with self._lock:
            first = len(self)
            self._tables.append(table)
            self._parts.append(vectors)
            self._starts.append(first)
            self._rows.update(zip(ids, range(first, first + len(ids)), strict=True))
            self._late_ids += ids

    def __len__(self) -> int:
        return len(self.base) + len(self._late_ids)

    def latest(self) -> Catalogue:
        """Return every id's latest row, as a catalogue of its own."""
        rows = np.array(sorted({**{id: row for row, id in enumerate(self.base.ids)}, **self._rows}.values()))
        return Catalogue.of_table(self.some(rows), self.vectors[rows])

    def __reduce__(self) -> tuple[Any, ...]:
        return self.latest().__reduce__()

    def save(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Write every id's latest row to a directory; `Explorer.save` also writes which items were removed."""
        self.latest().save(path, overwrite=overwrite)

    def with_vectors(self, vectors: ArrayLike) -> Catalogue:
        """Return every id's latest row with these vectors."""
        return self.latest().with_vectors(vectors)

    @property
    def vectors(self) -> Floats:
        """(items, dimensions), in row order; concatenated at every call."""
        with self._lock:
            parts = list(self._parts)
        return np.concatenate([self.base.vectors, *parts])

    @property
    def table(self) -> pl.DataFrame:
        """One row per item, in row order."""
        with self._lock:
            known, table = self._whole
            if known < len(self._late_ids):
                table = pl.concat([self.base.table, self._late()], rechunk=True)
                self._whole = len(self._late_ids), table
            return table

    def _late(self) -> pl.DataFrame:
        """Return the rows that were added; the caller holds the lock."""
        if len(self._tables) > 1:
            self._tables = [pl.concat(self._tables, rechunk=True)]
        return self._tables[0]

    def some(self, rows: AnyArray | list[int]) -> pl.DataFrame:
        """Return some rows of the table, faster than by way of the whole table."""
        at, size = np.asarray(rows), len(self.base)
        early = at < size
        if early.all():
            return self.base.table[at]
        with self._lock:
            late = self._late()
        parts = pl.concat([self.base.table[at[early]], late[at[~early] - size]])
        order = np.empty(len(at), dtype=np.int64)
        order[np.concatenate([np.flatnonzero(early), np.flatnonzero(~early)])] = np.arange(len(at))
        return parts[order]

    def id_at(self, row: int) -> Id:
        """Return the id of a row, faster than by way of the whole column."""
        late = row - len(self._ids)
        found: Id = self._late_ids[late] if late >= 0 else self._ids[row]
        return found

    def vector_at(self, row: int) -> Floats:
        """Return the vector of a row."""
        if row < len(self.base):
            return self.base.vector_at(row)
        part = bisect_right(self._starts, row) - 1
        vector: Floats = self._parts[part][row - self._starts[part]]
        return vector

    def row(self, id: Id) -> int:
        """Return the latest row of an id; raise `UnknownId` if it is not there."""
        late = self._rows.get(id) if self._key(id) is not None else None
        return self.base.row(id) if late is None else late
