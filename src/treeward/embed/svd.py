"""Item vectors from clicks: a truncated singular value decomposition, without torch."""

import numpy as np
import polars as pl
import scipy.sparse

from treeward.core import checks
from treeward.core.checks import Seed
from treeward.core.errors import DataError
from treeward.core.progress import Progress, Stage, silent
from treeward.data.catalogue import Catalogue
from treeward.data.interactions import Interactions
from treeward.embed.decompose import ROUNDS, decompose, fill_unknown


@checks.checked()
def svd_vectors(
    interactions: Interactions, catalogue: Catalogue, dim: int = 64, *, seed: Seed = 0, progress: Progress | None = None
) -> Catalogue:
    """Return the catalogue with vectors: items are close if the same people like them.

    The matrix of users and the items they rewarded is decomposed by randomised subspace iteration (Halko, Martinsson
    and Tropp, 2011). Each entry is divided by the fourth roots of the numbers of events of its user and its item, so
    that neither busy users nor popular items dominate. An item without events gets the mean of its category, or of all
    items, with a little noise.

    Parameters
    ----------
    interactions
        The log; only rewards above 0 count. Give it training users only: ``dataset.part("train")``.
    catalogue
        The items.
    dim
        Dimensions of the vectors.
    seed
        The same seed and log give the same vectors.
    progress
        Called with (stage, done, total).

    Examples
    --------
    >>> log = Interactions(["a", "a", "b", "b", "c", "c"], [1, 2, 1, 2, 3, 4])
    >>> shop = svd_vectors(log, Catalogue([1, 2, 3, 4]), dim=2)
    >>> near = shop.vectors @ shop.vectors.T
    >>> bool(near[0, 1] > 10 * abs(near[0, 2]))
    True
    """
    matrix = _matrix(interactions, catalogue)
    checks.integer("svd_vectors", "dim", dim, low=1, high=min(matrix.shape))
    vectors = decompose(matrix, dim, seed, Stage(progress or silent, "svd", ROUNDS + 1))
    touched = np.bincount(matrix.indices, minlength=len(catalogue)) > 0
    return catalogue.with_vectors(fill_unknown(vectors, touched, catalogue, seed))


def _matrix(interactions: Interactions, catalogue: Catalogue) -> scipy.sparse.csr_matrix:
    if interactions.items.dtype.is_integer() != catalogue.ids.dtype.is_integer():
        raise DataError(f"the log's items are {interactions.items.dtype}, the catalogue's ids {catalogue.ids.dtype}")
    ids = catalogue.ids if catalogue.ids.dtype.is_integer() else catalogue.ids.cast(pl.String)
    known = pl.DataFrame({"item": ids, "row": np.arange(len(catalogue))})
    liked = interactions.table.lazy().filter(pl.col("reward") > 0).select("user", "item").unique()
    if not interactions.items.dtype.is_integer():
        liked = liked.with_columns(pl.col("item").cast(pl.String))
    pairs = liked.join(known.lazy(), on="item").with_columns(pl.col("user").rank("dense").alias("at")).collect()
    if not pairs.height:
        raise DataError("the log rewards no item of the catalogue")
    users, rows = pairs["at"].to_numpy().astype(np.int64) - 1, pairs["row"].to_numpy()
    busy, popular = np.bincount(users), np.bincount(rows, minlength=len(catalogue))
    weights = (busy[users] * popular[rows]).astype(np.float32) ** np.float32(-0.25)
    shape = (len(busy), len(catalogue))
    made: scipy.sparse.csr_matrix = scipy.sparse.coo_matrix((weights, (users, rows)), shape=shape).tocsr()
    return made
