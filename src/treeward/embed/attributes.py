"""Item vectors from attributes: genres, brands, tags. They need no clicks, so a new shop has them, and no torch."""

from collections.abc import Sequence

import numpy as np
import polars as pl
import scipy.sparse

from treeward.core import checks
from treeward.core.checks import Count, Seed
from treeward.core.errors import DataError, InvalidArgument
from treeward.core.progress import Progress, Stage, silent
from treeward.data.catalogue import Catalogue
from treeward.embed.decompose import ROUNDS, decompose, filled

COLUMNS = ("attributes", "genres", "tags", "brand")
"""Columns that hold attributes, where a catalogue has them."""
SEPARATOR = "|"


@checks.checked()
def attribute_vectors(
    catalogue: Catalogue,
    dim: Count = 64,
    *,
    columns: Sequence[str] | None = None,
    seed: Seed = 0,
    progress: Progress | None = None,
) -> Catalogue:
    """Return the catalogue with vectors: items are close if they share attributes, and closer if these are rare.

    The matrix of items and attributes is weighted by the logarithm of how rare an attribute is, every item is scaled to
    length 1, and the matrix is decomposed. An item without attributes gets the mean of its category, or of all, with a
    little noise.

    Parameters
    ----------
    catalogue
        The items.
    dim
        Dimensions of the vectors; at most as many as there are attributes.
    columns
        Columns of the catalogue's table, each with one attribute per item, several separated by ``|``, or a list. None:
        ``attributes``, ``genres``, ``tags`` and ``brand``, those that there are; without any of them, ``category``.
    seed
        Same seed and items: same vectors.
    progress
        Called with (stage, done, total).

    Examples
    --------
    >>> genres = ["Drama|War", "Drama|War", "Comedy", "Comedy|Romance"]
    >>> shop = attribute_vectors(Catalogue([1, 2, 3, 4], columns={"genres": genres}), dim=2)
    >>> near = shop.vectors @ shop.vectors.T
    >>> bool(near[0, 1] > near[0, 2])
    True
    """
    pairs = _pairs(catalogue, _columns(catalogue, columns))
    if not pairs.height:
        raise DataError(
            f"no item has an attribute (columns {', '.join(COLUMNS)} or category); make vectors of clicks instead"
        )
    rows = pairs["row"].to_numpy()
    attributes = pairs["attribute"].rank("dense").to_numpy().astype(np.int64) - 1
    weights = np.log(len(catalogue) / np.bincount(attributes)) + 1
    shape = (len(catalogue), len(weights))
    matrix = scipy.sparse.csr_matrix((weights[attributes].astype(np.float32), (rows, attributes)), shape=shape)
    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    matrix = (scipy.sparse.diags_array(1 / np.maximum(lengths, 1e-12)) @ matrix).astype(np.float32)
    stage = Stage(progress or silent, "attributes", ROUNDS + 1)
    vectors = decompose(matrix.T.tocsr(), min(dim, *shape), seed, stage)
    return catalogue.with_vectors(filled(vectors, lengths > 0, catalogue, seed))


def _columns(catalogue: Catalogue, columns: Sequence[str] | None) -> list[str]:
    """Return the columns to read: those given, which must be there, or else the usual ones."""
    have = catalogue.table.columns
    if columns is None:
        return [name for name in COLUMNS if name in have] or [name for name in ("category",) if name in have]
    named = [columns] if isinstance(columns, str) else list(columns)
    missing = [name for name in named if name not in have]
    if missing or not named:
        rule = f"columns of the items ({', '.join(have)})"
        raise InvalidArgument("attribute_vectors", "columns", rule, missing or named)
    return named


def _pairs(catalogue: Catalogue, columns: Sequence[str]) -> pl.DataFrame:
    """Return (row, attribute) once per pair; the same word in two columns is two attributes."""
    found = [pl.DataFrame(schema={"row": pl.UInt32, "attribute": pl.String})]
    for name in columns:
        values = catalogue.table[name]
        if isinstance(values.dtype, pl.List):
            lists = values.cast(pl.List(pl.String))
        else:
            lists = values.cast(pl.String).str.split(SEPARATOR)
        long = pl.DataFrame({"row": np.arange(len(values), dtype=np.uint32), "attribute": lists}).explode("attribute")
        words = pl.col("attribute").str.strip_chars()
        long = long.with_columns(words).filter(words.is_not_null() & (words != ""))
        found.append(long.with_columns(pl.lit(f"{name}:").add(pl.col("attribute")).alias("attribute")))
    return pl.concat(found).unique().sort("row", "attribute")
