"""What all kinds of item vectors share: columns to read, decomposition to few dimensions, vectors for unknown items."""

from collections.abc import Sequence

import numpy as np
import polars as pl
import scipy.sparse
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.errors import InvalidArgument
from treeward.core.progress import Stage
from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue

ROUNDS = 6
"""Rounds of subspace iteration; a stage has one step more."""
_SPARE = 10


def columns_to_read(owner: str, catalogue: Catalogue, columns: Sequence[str] | None, usual: Sequence[str]) -> list[str]:
    """Return the given columns, which must exist; by default the usual ones that exist, or else the category."""
    have = catalogue.table.columns
    if columns is None:
        return [name for name in usual if name in have] or [name for name in ("category",) if name in have]
    named = [columns] if isinstance(columns, str) else list(columns)
    missing = [name for name in named if name not in have]
    if missing or not named:
        raise InvalidArgument(owner, "columns", f"columns of the items ({', '.join(have)})", missing or named)
    return named


def decompose(matrix: scipy.sparse.csr_matrix, dim: int, seed: int, stage: Stage) -> Floats:
    """Return (columns, dim): the right singular vectors times the square roots of their singular values.

    By randomised subspace iteration (Halko, Martinsson and Tropp, 2011). The sign of a direction is arbitrary, so its
    largest entry is made positive.
    """
    width = min(dim + _SPARE, *matrix.shape)
    start = rng.normals(seed, rng.stream("svd"), matrix.shape[1] * width).reshape(matrix.shape[1], width)
    basis: NDArray[np.float32] = start.astype(np.float32)
    for _ in range(ROUNDS):
        basis, _ = np.linalg.qr(matrix.T @ (matrix @ basis))
        stage.step()
    _, values, right = np.linalg.svd(matrix @ basis, full_matrices=False)
    stage.step()
    return _signed((basis @ right[:dim].T) * np.sqrt(values[:dim]))


def decompose_rows(
    matrix: scipy.sparse.csr_matrix, dim: int, seed: int, stage: Stage
) -> tuple[Floats, NDArray[np.bool_]]:
    """Scale every row to length 1 and decompose; return (rows, at most dim), and which rows are not empty."""
    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    scaled = (scipy.sparse.diags_array(1 / np.maximum(lengths, 1e-12)) @ matrix).astype(np.float32)
    return decompose(scaled.T.tocsr(), min(dim, *matrix.shape), seed, stage), lengths > 0


def principal_components(vectors: Floats, dim: int) -> Floats:
    """Return the first `dim` principal components, scaled to length 1; vectors that are no longer stay unchanged.

    Examples
    --------
    >>> flat = np.array([[1, 0, 0], [0, 1, 0], [-1, 0, 0], [0, -1, 0]], dtype=np.float32)
    >>> np.abs(principal_components(flat, 2)).sum(axis=1).round(3).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    if vectors.shape[1] <= dim:
        return vectors
    centred = vectors - vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
    _, directions = np.linalg.eigh((centred.T @ centred).astype(np.float64))
    made = _signed(centred @ directions[:, ::-1][:, :dim].astype(np.float32))
    made /= np.maximum(np.linalg.norm(made, axis=1, keepdims=True), np.float32(1e-12))
    return made


def _signed(vectors: Floats) -> Floats:
    made: Floats = vectors.astype(np.float32)
    made *= np.sign(made[np.abs(made).argmax(axis=0), np.arange(made.shape[1])])
    return made


def fill_unknown(vectors: Floats, known: NDArray[np.bool_], catalogue: Catalogue, seed: int) -> Floats:
    """Give unknown items the mean vector of their category, or of all items, with a little noise. Changes `vectors`."""
    unknown = np.flatnonzero(~known)
    if not len(unknown):
        return vectors
    mean = vectors[known].mean(axis=0)
    made = np.repeat(mean[None], len(unknown), axis=0)
    if catalogue.categories is not None:
        _, group = np.unique(catalogue.categories.cast(pl.String).fill_null("").to_numpy(), return_inverse=True)
        sums = np.zeros((group.max() + 1, vectors.shape[1]))
        np.add.at(sums, group[known], vectors[known])
        counts = np.bincount(group[known], minlength=len(sums))
        has_mean = counts[group[unknown]] > 0
        made[has_mean] = (sums / np.maximum(counts, 1)[:, None])[group[unknown]][has_mean]
    spread = 0.1 * float(np.linalg.norm(vectors[known], axis=1).mean()) / vectors.shape[1] ** 0.5
    noise = rng.normals(seed, rng.stream("svd", "unseen"), len(unknown) * vectors.shape[1])
    vectors[unknown] = made + spread * noise.reshape(len(unknown), -1)
    return vectors
