"""`Catalogue`: the items with their ids, vectors, titles, categories and further columns."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from treeward.core import artefact, checks
from treeward.core.artefact import StrPath
from treeward.core.errors import ArtefactVersion, DataError, InvalidArgument, UnknownId
from treeward.core.types import AnyArray, Floats
from treeward.data import tables
from treeward.data.columns import Values, column
from treeward.data.columns import ids as as_ids

FORMAT, VERSION, CHANGED = "treeward.catalogue", 1, 2
"""Versions of the format; the second also records changes: items that are gone, and pages of changes."""
_RESERVED = ("id", "title", "category")

Id = int | str


class Catalogue:
    """Items: external ids, strings or integers, each with a dense row and a vector.

    Parameters
    ----------
    ids
        One unique id per item, all strings or all integers.
    vectors
        (items, dimensions) numbers; kept as float32, and as a memory map if they are one. None: no vectors yet.
    titles, categories
        Optional, one per item, nulls allowed. A category may be a path such as ``"Apparel > Dresses"``.
    columns
        Any further columns by name (stock, country, price, ...), kept for filters.

    Examples
    --------
    >>> shop = Catalogue(["a", "b", "c"], [[1, 0], [0, 1], [1, 1]], titles=["Ash", "Box", "Cup"])
    >>> len(shop), shop.dim
    (3, 2)
    >>> shop.rows(["c", "a"])
    array([2, 0])
    >>> shop.ids[2], shop.titles[2]
    ('c', 'Cup')
    """

    def __init__(
        self,
        ids: Values,
        vectors: ArrayLike | None = None,
        *,
        titles: Values | None = None,
        categories: Values | None = None,
        columns: Mapping[str, Any] | pl.DataFrame | None = None,
    ) -> None:
        if vectors is None or np.shape(vectors)[1:] == (0,):
            count = len(as_ids("Catalogue", "ids", ids)) if vectors is None else len(np.asarray(vectors))
            self._vectors: Floats = np.zeros((count, 0), dtype=np.float32)
        else:
            self._vectors = checks.vectors("Catalogue", vectors)
        extra = {} if columns is None else {name: columns[name] for name in _names(columns)}
        self._table = pl.DataFrame(
            [_unique(as_ids("Catalogue", "ids", ids, len(self._vectors)))]
            + [
                _text(name, column("Catalogue", name, values, len(self._vectors)))
                for name, values in {"title": titles, "category": categories, **extra}.items()
                if values is not None
            ]
        )
        self.gone: list[Id] = []
        """Ids of items that are not shown any more, but that users may have seen."""
        self.pages = 0
        """Pages of an explorer's changes that it includes; see `Explorer.add`."""
        self.made_at: int | None = None
        """When the file was written that it was read from, in seconds since 1970."""
        self.ids_are_row_numbers = False
        """Whether it was read from a table without a column of ids, so that items go by their row numbers."""
        self._text = self.ids.dtype == pl.String
        keys = _keys(self.ids)
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).of_table, (self.table, self.vectors)  # the keys are hashes of this process

    def __len__(self) -> int:
        return len(self._vectors)

    def __repr__(self) -> str:
        return f"Catalogue({len(self):,} items x {self.dim} dimensions, columns {self.table.columns})"

    @property
    def vectors(self) -> Floats:
        """(items, dimensions), in row order."""
        return self._vectors

    @property
    def table(self) -> pl.DataFrame:
        """One row per item: `id`, then `title` and `category` where given, then the further columns."""
        return self._table

    @property
    def schema(self) -> pl.Schema:
        """The table's columns and their types."""
        return self._table.schema

    @property
    def dim(self) -> int:
        """The vectors' dimension; 0 if there are none yet."""
        return int(self._vectors.shape[1])

    @property
    def ids(self) -> pl.Series:
        """The external ids, in row order."""
        return self.table["id"]

    @property
    def ids_are_integers(self) -> bool:
        """Whether ids are integers (otherwise strings)."""
        return self.schema["id"].is_integer()

    @property
    def titles(self) -> pl.Series | None:
        """The titles, in row order, if there are any."""
        return self.table["title"] if "title" in self.table.columns else None

    @property
    def categories(self) -> pl.Series | None:
        """The categories or category paths, in row order, if there are any."""
        return self.table["category"] if "category" in self.table.columns else None

    def some(self, rows: AnyArray | list[int]) -> pl.DataFrame:
        """Return some rows of the table."""
        return self._table[rows]

    def vector_at(self, row: int) -> Floats:
        """Return the vector of a row."""
        vector: Floats = self._vectors[row]
        return vector

    def rows(self, ids: Iterable[Id]) -> NDArray[np.int64]:
        """Return the dense row of each id; raise `UnknownId` for one that is not there."""
        return np.fromiter((self.row(id) for id in ids), dtype=np.int64)

    def row(self, id: Id) -> int:
        """Return the dense row of one id; raise `UnknownId` if it is not there."""
        # A sorted array of keys takes 16 bytes per item; a dict of strings takes well over 100.
        key = self._key(id)
        if key is not None:
            place = int(np.searchsorted(self._sorted, key))
            while place < len(self) and self._sorted[place] == key:
                row = int(self._order[place])
                if not self._text or self.ids[row] == id:  # integers are their own keys
                    return row
                place += 1
        raise UnknownId(f"no item has the id {id!r}")

    def _key(self, id: Id) -> np.int64 | None:
        if isinstance(id, str):
            return np.int64(hash(id)) if self._text else None
        whole = isinstance(id, int | np.integer) and not isinstance(id, bool)
        return np.int64(id) if whole and not self._text and -(2**63) <= id < 2**63 else None

    def with_vectors(self, vectors: ArrayLike) -> "Catalogue":
        """Return the same items with these vectors."""
        made = type(self).of_table(self.table, vectors)
        made.gone, made.pages, made.made_at = list(self.gone), self.pages, self.made_at
        return made

    def save(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Write the catalogue to a directory, checksummed."""
        contents, version = artefact.Contents({"vectors": self.vectors}, {"items": self.table}, {}, {}), VERSION
        if self.gone or self.pages:
            contents, version = contents._replace(documents={"gone": self.gone}, info={"pages": self.pages}), CHANGED
        artefact.write(path, FORMAT, version, contents, overwrite=overwrite)

    @classmethod
    def load(
        cls,
        path: StrPath,
        *,
        columns: Mapping[str, str] | None = None,
        vectors: StrPath | None = None,
        need_vectors: bool = True,
        verify: bool = True,
    ) -> Self:
        """Read a saved catalogue, a .npy matrix, or a CSV, TSV or Parquet table.

        Parameters
        ----------
        path
            A directory written by `save`; a .npy matrix (ids are then the row numbers; memory-mapped); or a table.
        columns
            For a table: which of its columns is the `id`, `vector`, `title` and `category`; by default those of that
            name. The vector may be a list column, text such as ``"[0.1, 0.2]"``, or the common prefix of numbered
            columns. The other columns are kept under their own names. Without an `id`, ids are the row numbers.
        vectors
            A .npy matrix with the vectors of the table's rows, if they are not in the table.
        need_vectors
            Refuse a table without vectors; if False, its items have none yet (`text_vectors` and `svd_vectors` make
            them).
        verify
            Check the hashes of a saved catalogue.
        """
        if columns and (artefact.is_artefact(path) or str(path).endswith(".npy")):
            raise InvalidArgument("Catalogue.load", "columns", "given for a table", f"{dict(columns)} for {path}")
        try:
            made = cls._read(path, columns or {}, vectors, need_vectors, verify)
        except InvalidArgument as error:  # about what the file holds
            raise DataError(f"{path}: {error}") from error
        found = Path(path) / artefact.MANIFEST if artefact.is_artefact(path) else Path(path)
        made.made_at = int(found.stat().st_mtime)
        return made

    @classmethod
    def _read(
        cls, path: StrPath, columns: Mapping[str, str], vectors: StrPath | None, need_vectors: bool, verify: bool
    ) -> Self:
        if artefact.is_artefact(path):
            try:
                contents = artefact.read(path, FORMAT, VERSION, verify=verify)
            except ArtefactVersion:
                contents = artefact.read(path, FORMAT, CHANGED, verify=verify)
            made = cls.of_table(contents.tables["items"], contents.arrays["vectors"])
            made.gone, made.pages = contents.documents.get("gone", []), contents.info.get("pages", 0)
            return made
        if str(path).endswith(".npy"):
            matrix = tables.read_matrix(path)
            return cls(np.arange(len(matrix)), matrix)
        table, held = tables.read_items(path, columns, vectors, need_vectors)
        made = cls.of_table(table, held)
        made.ids_are_row_numbers = "id" not in table.columns
        return made

    @classmethod
    def of_table(cls, table: pl.DataFrame, vectors: ArrayLike | None = None) -> Self:
        """Make a catalogue of a table with the columns `id`, `title`, `category` and any others."""
        known = {name: table[name] for name in ("title", "category") if name in table.columns}
        return cls(
            table["id"] if "id" in table.columns else np.arange(table.height),
            vectors,
            titles=known.get("title"),
            categories=known.get("category"),
            columns=table.select(pl.exclude(*_RESERVED)),
        )


def _names(columns: Mapping[str, Any] | pl.DataFrame) -> list[str]:
    names = list(columns.columns if isinstance(columns, pl.DataFrame) else columns)
    for name in names:
        if name in _RESERVED:
            raise InvalidArgument("Catalogue", "columns", f"named other than {', '.join(_RESERVED)}", name)
    return names


def _text(name: str, values: pl.Series) -> pl.Series:
    """Return titles and categories as text, also if all of them are null."""
    return values.cast(pl.String) if name in _RESERVED and values.dtype == pl.Null else values


def _unique(ids: pl.Series) -> pl.Series:
    if ids.n_unique() != len(ids):
        repeated = ids.filter(ids.is_duplicated()).unique(maintain_order=True).head(3).to_list()
        raise InvalidArgument("Catalogue", "ids", "unique", f"repeated {repeated}")
    return ids.rename("id")


def _keys(ids: pl.Series) -> NDArray[np.int64]:
    if ids.dtype == pl.String:
        return np.fromiter((hash(id) for id in ids), dtype=np.int64, count=len(ids))
    return ids.to_numpy()
