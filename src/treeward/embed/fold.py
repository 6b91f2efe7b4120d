"""Vectors of new items in the space of existing ones, predicted from their text and category."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core import checks, rng
from treeward.core.artefact import StrPath
from treeward.core.checks import Seed
from treeward.core.errors import DataError, InvalidArgument
from treeward.core.progress import Progress
from treeward.data.catalogue import Catalogue
from treeward.embed.sentences import PACKAGE
from treeward.embed.text import STATIC, TEXT_COLUMNS, text_vectors

_WORDS = 256
"""Dimensions of the static model's texts."""
_GRID = (0.01, 0.1, 1.0, 10.0, 100.0)
_HELD = 0.2


class FoldedIn(NamedTuple):
    """Items with vectors in the space of others."""

    catalogue: Catalogue
    known: int
    """How many items are in the other catalogue; they keep their vectors."""
    new: int
    """How many items got a vector."""
    likeness: float
    """Mean cosine between the vectors of items held out and those predicted from their texts; nan: too few items."""
    likeness_of_mean: float
    """Mean cosine between the vectors of items held out and the mean of all, for comparison."""


@checks.checked()
def fold_in(
    catalogue: Catalogue,
    like: Catalogue,
    *,
    columns: Sequence[str] | None = None,
    model: str = PACKAGE,
    fill: bool = False,
    cache: StrPath | None = None,
    seed: Seed = 0,
    device: str = "auto",
    progress: Progress | None = None,
) -> FoldedIn:
    """Return the catalogue with vectors in the space of another one, whatever its vectors were made from.

    A linear map from texts to vectors is learned from the items that have both, by ridge regression. Its ridge is the
    one that predicts a fifth of them, held out, best. Items that are in the other catalogue keep their vectors.

    Parameters
    ----------
    catalogue
        The items: all, or only the new ones.
    like
        Items with vectors, and with the same columns of text.
    columns
        Columns to read; by default those of title, abstract, description and category that both have.
    model, fill, cache, seed, device, progress
        As for `text_vectors`.

    Examples
    --------
    >>> old = Catalogue([1, 2, 3, 4], np.eye(4)[[0, 0, 1, 1]], titles=["tea cup", "tea pot", "red hat", "red cap"])
    >>> new = Catalogue([1, 5], titles=["tea cup", "tea pot and cup"])
    >>> made = fold_in(new, old, model="static")
    >>> made.known, made.new, bool(made.catalogue.vectors[1, 0] > made.catalogue.vectors[1, 1])
    (1, 1, True)
    """
    owner = "fold_in"
    if not like.dim:
        raise InvalidArgument(owner, "like", "items with vectors", "none")
    if catalogue.ids_are_integers != like.ids_are_integers:
        raise DataError(f"ids are {catalogue.ids.dtype}, those of `like` are {like.ids.dtype}")
    columns = _common_columns(owner, catalogue, like, columns)
    before = catalogue.ids.is_in(like.ids.implode()).to_numpy()
    vectors = np.zeros((len(catalogue), like.dim), dtype=np.float32)
    vectors[before] = like.vectors[like.rows(catalogue.ids.filter(before))]
    if before.all():
        return FoldedIn(catalogue.with_vectors(vectors), len(catalogue), 0, np.nan, np.nan)
    texts = pl.concat([one.table.select("id", *(pl.col(name).cast(pl.String) for name in columns)) for one in (
        like, Catalogue.of_table(catalogue.table.filter(~before)))])  # fmt: skip
    read = text_vectors(
        Catalogue.of_table(texts), _WORDS if model == STATIC else None, columns=columns, model=model, fill=fill,
        cache=cache, seed=seed, device=device, progress=progress,
    ).vectors.astype(np.float64)  # fmt: skip
    old, new, there = read[: len(like)], read[len(like) :], like.vectors.astype(np.float64)
    ridge, likeness, of_mean = _chosen(old, there, seed)
    predicted = _Map.of(old, there, ridge).of_texts(new)
    lengths = np.linalg.norm(predicted, axis=1, keepdims=True)
    usual = float(np.linalg.norm(there, axis=1).mean())  # a predicted vector is too short, as any mean is
    vectors[~before] = predicted * usual / np.maximum(lengths, 1e-12)
    return FoldedIn(catalogue.with_vectors(vectors), int(before.sum()), int((~before).sum()), likeness, of_mean)


def _common_columns(owner: str, catalogue: Catalogue, like: Catalogue, columns: Sequence[str] | None) -> list[str]:
    """Return the columns to read, which both catalogues must have."""
    both = [name for name in catalogue.table.columns if name in like.table.columns and name != "id"]
    wanted = [name for name in (*TEXT_COLUMNS, "category") if name in both] if columns is None else list(columns)
    missing = [name for name in wanted if name not in both]
    if missing or not wanted:
        rule = f"columns of text that both have ({', '.join(both) or 'there are none'})"
        raise InvalidArgument(owner, "columns", rule, missing or "none of title, abstract, description, category")
    return wanted


class _Map(NamedTuple):
    """A linear map from vectors of texts to item vectors, around their means."""

    text: NDArray[np.float64]
    vector: NDArray[np.float64]
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, texts: NDArray[np.float64], vectors: NDArray[np.float64], ridge: float) -> "_Map":
        text, vector = texts.mean(axis=0), vectors.mean(axis=0)
        centred = texts - text
        square = centred.T @ centred + ridge * np.eye(texts.shape[1])
        return cls(text, vector, np.linalg.solve(square, centred.T @ (vectors - vector)))

    def of_texts(self, texts: NDArray[np.float64]) -> NDArray[np.float64]:
        made: NDArray[np.float64] = self.vector + (texts - self.text) @ self.weights
        return made


def _chosen(texts: NDArray[np.float64], vectors: NDArray[np.float64], seed: int) -> tuple[float, float, float]:
    """Return the best ridge, its mean cosine on items held out, and that of the mean vector."""
    count = len(texts)
    held = max(1, int(_HELD * count))
    if count < 10:
        return 1.0, np.nan, np.nan
    order = rng.sample(seed, rng.stream("fold in"), count, count)
    out, rest = order[:held], order[held:]
    found = {
        ridge: _alike(_Map.of(texts[rest], vectors[rest], ridge).of_texts(texts[out]), vectors[out]) for ridge in _GRID
    }
    best = max(found, key=lambda ridge: found[ridge])
    return best, found[best], _alike(np.repeat(vectors[rest].mean(axis=0)[None], held, axis=0), vectors[out])


def _alike(these: NDArray[np.float64], those: NDArray[np.float64]) -> float:
    lengths = np.linalg.norm(these, axis=1) * np.linalg.norm(those, axis=1)
    return float((np.einsum("ij,ij->i", these, those) / np.maximum(lengths, 1e-12)).mean())
