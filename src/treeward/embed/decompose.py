"""Fewer dimensions: a truncated singular value decomposition, principal components; and stand-ins for what lacks."""

import numpy as np
import polars as pl
import scipy.sparse
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.progress import Stage
from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue

ROUNDS = 6
"""Of subspace iteration; a stage has one step more."""
_SPARE = 10


def decompose(matrix: scipy.sparse.csr_matrix, dim: int, seed: int, stage: Stage) -> Floats:
    """Return (columns, dim): the right singular vectors times the roots of their values.

    By randomised subspace iteration (Halko, Martinsson and Tropp, 2011). The sign of a direction is arbitrary: its
    largest entry is positive.
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


def reduced(vectors: Floats, dim: int) -> Floats:
    """Return the first principal components, of unit length as a whole vector; vectors no longer than that as they are.

    Examples
    --------
    >>> flat = np.array([[1, 0, 0], [0, 1, 0], [-1, 0, 0], [0, -1, 0]], dtype=np.float32)
    >>> np.abs(reduced(flat, 2)).sum(axis=1).round(3).tolist()
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


def filled(vectors: Floats, known: NDArray[np.bool_], catalogue: Catalogue, seed: int) -> Floats:
    """Give items of which nothing is known the mean of their category, or of all, with a little noise."""
    lacking = np.flatnonzero(~known)
    if not len(lacking):
        return vectors
    mean = vectors[known].mean(axis=0)
    stand_in = np.repeat(mean[None], len(lacking), axis=0)
    if catalogue.categories is not None:
        _, group = np.unique(catalogue.categories.cast(pl.String).fill_null("").to_numpy(), return_inverse=True)
        sums = np.zeros((group.max() + 1, vectors.shape[1]))
        np.add.at(sums, group[known], vectors[known])
        counts = np.bincount(group[known], minlength=len(sums))
        told = counts[group[lacking]] > 0
        stand_in[told] = (sums / np.maximum(counts, 1)[:, None])[group[lacking]][told]
    spread = 0.1 * float(np.linalg.norm(vectors[known], axis=1).mean()) / vectors.shape[1] ** 0.5
    noise = rng.normals(seed, rng.stream("svd", "unseen"), len(lacking) * vectors.shape[1])
    vectors[lacking] = stand_in + spread * noise.reshape(len(lacking), -1)
    return vectors
