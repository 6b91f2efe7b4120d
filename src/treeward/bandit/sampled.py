"""A few items with where they lay, kept with what was fitted to them: to tell whether other vectors came since."""

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
"""Directions that differ by more in any number are not the same; less is rounding."""
_SAME, _FAR = 0.9999, 0.5
"""Cosines: above the first a vector did not change; below the second it says something else of its item."""


def sample_of(catalogue: Catalogue) -> dict[str, Any]:
    """Return some items' ids and directions."""
    rows = np.unique(np.linspace(0, len(catalogue) - 1, _ITEMS).astype(np.int64))
    directions = np.round(_directions(catalogue.vectors[rows]), 5).tolist()
    return {"ids": catalogue.ids[rows].to_list(), "directions": directions}


def moved(sample: dict[str, Any], catalogue: Catalogue, dim: int) -> tuple[int, int]:
    """Return how many items of a sample point elsewhere in a catalogue, by their first `dim` numbers, of how many."""
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
    """Refuse a prior that was fitted to other vectors: what it expects of users would be about other things."""
    elsewhere, known = moved(prior.provenance.get("sample", {}), catalogue, prior.dim)
    if 2 * elsewhere > known:
        told = f"{elsewhere} of the {known} items compared have other vectors: {named}"
        raise InvalidArgument(owner, "prior", "fitted to these vectors (fit it again: treeward prior fit)", told)


def turned(before: NDArray[np.float64], after: NDArray[np.float64]) -> tuple[int, int]:
    """Return how many vectors point elsewhere than before, of how many that changed."""
    lengths = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    cosines = np.einsum("ij,ij->i", before, after) / np.where(lengths > 0, lengths, 1.0)
    return int((cosines < _FAR).sum()), int((cosines < _SAME).sum())


def _directions(vectors: Floats) -> NDArray[np.float64]:
    """Return the first numbers of vectors at length 1."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    made: NDArray[np.float64] = (vectors / np.where(lengths > 0, lengths, 1.0))[:, :_DIMENSIONS]
    return made
