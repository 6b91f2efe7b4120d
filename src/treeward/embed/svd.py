"""Item vectors from who interacted with what: a truncated singular value decomposition, without torch."""

import numpy as np
import polars as pl
import scipy.sparse
from numpy.typing import NDArray

from treeward.core import checks, rng
from treeward.core.errors import DataError, InvalidArgument
from treeward.core.progress import Progress, Stage, silent
from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue
from treeward.data.interactions import Interactions

_ROUNDS = 6
_SPARE = 10


def svd_vectors(
    interactions: Interactions, catalogue: Catalogue, dim: int = 64, *, seed: int = 0, progress: Progress | None = None
) -> Catalogue:
    """Return the catalogue with vectors: items are close if the same people like them.

    The matrix of users and items they rewarded is decomposed by randomised subspace iteration (Halko, Martinsson and
    Tropp, 2011), each entry divided by the fourth roots of how many events its user and its item have, so that neither
    the busy nor the popular drown the rest. An item nobody touched gets the mean of its category, or of all, with a
    little noise.

    Parameters
    ----------
    interactions
        The log; only rewards above 0 count. Give it training users only: ``dataset.part("train")``.
    catalogue
        The items.
    dim
        Dimensions of the vectors.
    seed
        Same seed and log: same vectors.
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
    owner = "svd_vectors"
    for parameter, given, kind in (("interactions", interactions, Interactions), ("catalogue", catalogue, Catalogue)):
        if not isinstance(given, kind):
            raise InvalidArgument(owner, parameter, f"of type {kind.__name__}", type(given).__name__)
    matrix = _matrix(interactions, catalogue)
    checks.integer(owner, "dim", dim, low=1, high=min(matrix.shape))
    checks.integer(owner, "seed", seed, low=0)
    width = min(dim + _SPARE, *matrix.shape)
    stage = Stage(progress or silent, "svd", _ROUNDS + 1)
    start = rng.normals(seed, rng.stream("svd"), matrix.shape[1] * width).reshape(matrix.shape[1], width)
    basis: NDArray[np.float32] = start.astype(np.float32)
    for _ in range(_ROUNDS):
        basis, _ = np.linalg.qr(matrix.T @ (matrix @ basis))
        stage.step()
    _, values, right = np.linalg.svd(matrix @ basis, full_matrices=False)
    stage.step()
    vectors = (basis @ right[:dim].T) * np.sqrt(values[:dim])
    # The sign of a direction is arbitrary: the largest entry is positive.
    vectors *= np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(dim)])
    return catalogue.with_vectors(_filled(vectors.astype(np.float32), matrix, catalogue, seed))


def _matrix(interactions: Interactions, catalogue: Catalogue) -> scipy.sparse.csr_matrix:
    if interactions.items.dtype.is_integer() != catalogue.ids.dtype.is_integer():
        raise DataError(f"the log's items are {interactions.items.dtype}, the catalogue's ids {catalogue.ids.dtype}")
    known = pl.DataFrame({"item": catalogue.ids, "row": np.arange(len(catalogue))})
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


def _filled(vectors: Floats, matrix: scipy.sparse.csr_matrix, catalogue: Catalogue, seed: int) -> Floats:
    touched = np.bincount(matrix.indices, minlength=len(catalogue)) > 0
    lacking = np.flatnonzero(~touched)
    if not len(lacking):
        return vectors
    mean = vectors[touched].mean(axis=0)
    stand_in = np.repeat(mean[None], len(lacking), axis=0)
    if catalogue.categories is not None:
        _, group = np.unique(catalogue.categories.fill_null("").to_numpy(), return_inverse=True)
        sums = np.zeros((group.max() + 1, vectors.shape[1]))
        np.add.at(sums, group[touched], vectors[touched])
        counts = np.bincount(group[touched], minlength=len(sums))
        known = counts[group[lacking]] > 0
        stand_in[known] = (sums / np.maximum(counts, 1)[:, None])[group[lacking]][known]
    spread = 0.1 * float(np.linalg.norm(vectors[touched], axis=1).mean()) / vectors.shape[1] ** 0.5
    noise = rng.normals(seed, rng.stream("svd", "unseen"), len(lacking) * vectors.shape[1])
    vectors[lacking] = stand_in + spread * noise.reshape(len(lacking), -1)
    return vectors
