"""Detect changed item vectors: a prior keeps the directions of a few items that it was fitted to."""

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core.errors import InvalidArgument
from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue

if TYPE_CHECKING:
    from treeward.bandit.crowd import Crowd

_ITEMS, _DIMENSIONS = 64, 8
_CLOSE = 0.01
"""Directions that differ by more than this in any number have changed; less is rounding."""
_SAME, _FAR = 0.9999, 0.5
"""Cosines: above the first a vector has not changed; below the second it means something else."""


def sample_of(catalogue: Catalogue) -> dict[str, Any]:
    """Return the ids and directions of some items."""
    rows = np.unique(np.linspace(0, len(catalogue) - 1, _ITEMS).astype(np.int64))
    directions = np.round(_directions(catalogue.vectors[rows]), 5).tolist()
    return {"ids": catalogue.ids[rows].to_list(), "directions": directions}


def count_moved(sample: dict[str, Any], catalogue: Catalogue, dim: int) -> tuple[int, int]:
    """Return how many items of a sample have another direction in a catalogue, and how many were compared.

    Only the first `dim` numbers of a vector count.
    """
    known = pl.DataFrame({"id": sample.get("ids", [])}).with_row_index("at")
    if not len(known) or known["id"].dtype.is_integer() != catalogue.ids.dtype.is_integer():
        return 0, 0
    rows = catalogue.ids.to_frame("id").with_row_index("row").join(known, on="id")
    if not len(rows):
        return 0, 0
    then = np.array(sample["directions"])[rows["at"].to_numpy()]
    now = _directions(catalogue.vectors[rows["row"].to_numpy(), :dim])
    return int((np.abs(then - now).max(axis=1) > _CLOSE).sum()), len(rows)


def check_vectors(owner: str, prior: "Crowd", catalogue: Catalogue, named: object) -> None:
    """Refuse a prior that was fitted to other vectors: its numbers would have another meaning."""
    elsewhere, known = count_moved(prior.provenance.get("sample", {}), catalogue, prior.dim)
    if 2 * elsewhere > known:
        found = f"{elsewhere} of the {known} items compared have other vectors: {named}"
        raise InvalidArgument(owner, "prior", "fitted to these vectors (fit it again: treeward prior fit)", found)


def count_turned(before: NDArray[np.float64], after: NDArray[np.float64]) -> tuple[int, int]:
    """Return how many vectors point elsewhere than before, and how many have changed at all."""
    lengths = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    cosines = np.einsum("ij,ij->i", before, after) / np.where(lengths > 0, lengths, 1.0)
    return int((cosines < _FAR).sum()), int((cosines < _SAME).sum())


def _directions(vectors: Floats) -> NDArray[np.float64]:
    """Return the first numbers of vectors, scaled to length 1."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    made: NDArray[np.float64] = (vectors / np.where(lengths > 0, lengths, 1.0))[:, :_DIMENSIONS]
    return made
