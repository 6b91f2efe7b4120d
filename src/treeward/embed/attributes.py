"""Item vectors from attributes: genres, brands, tags. They need neither clicks nor torch, so new shops can use them."""

from collections.abc import Sequence

import numpy as np
import polars as pl
import scipy.sparse

from treeward.core import checks
from treeward.core.checks import Count, Seed
from treeward.core.errors import DataError
from treeward.core.progress import Progress, Stage, silent
from treeward.data.catalogue import Catalogue
from treeward.embed.decompose import ROUNDS, columns_to_read, decompose_rows, fill_unknown

COLUMNS = ("attributes", "genres", "tags", "brand")
"""Columns that are read by default."""
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

    The matrix of items and attributes is weighted by the logarithm of an attribute's rarity. Every item is scaled to
    length 1, and the matrix is decomposed. An item without attributes gets the mean of its category, or of all items,
    with a little noise.

    Parameters
    ----------
    catalogue
        The items.
    dim
        Dimensions of the vectors; at most as many as there are attributes.
    columns
        Columns of the catalogue's table, each with one attribute per item, several separated by ``|``, or a list. By
        default those of ``attributes``, ``genres``, ``tags`` and ``brand`` that exist; without any, ``category``.
    seed
        The same seed and items give the same vectors.
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
    pairs = _pairs(catalogue, columns_to_read("attribute_vectors", catalogue, columns, COLUMNS))
    if not pairs.height:
        raise DataError(
            f"no item has an attribute (columns {', '.join(COLUMNS)} or category); make vectors from clicks instead"
        )
    rows = pairs["row"].to_numpy()
    attributes = pairs["attribute"].rank("dense").to_numpy().astype(np.int64) - 1
    weights = np.log(len(catalogue) / np.bincount(attributes)) + 1
    shape = (len(catalogue), len(weights))
    matrix = scipy.sparse.csr_matrix((weights[attributes].astype(np.float32), (rows, attributes)), shape=shape)
    stage = Stage(progress or silent, "attributes", ROUNDS + 1)
    vectors, known = decompose_rows(matrix, dim, seed, stage)
    return catalogue.with_vectors(fill_unknown(vectors, known, catalogue, seed))


def _pairs(catalogue: Catalogue, columns: Sequence[str]) -> pl.DataFrame:
    """Return each (row, attribute) once; the same word in two columns counts as two attributes."""
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
