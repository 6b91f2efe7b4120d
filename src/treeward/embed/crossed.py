"""`Crossed`: context features for any policy, without a network."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from treeward.core import artefact, checks
from treeward.core.artefact import StrPath
from treeward.core.errors import ArtefactCorrupt, InvalidArgument
from treeward.core.types import Floats
from treeward.core.version import __version__
from treeward.data.catalogue import Catalogue
from treeward.embed.features import LEVEL, Context, Contexts, Features, unit, word, words

_OWNER = "Crossed.over"
_BEGIN = 4_096


@dataclass(frozen=True, eq=False, repr=False)
class Crossed(Features):
    """An item's vector, and for every value a context may have a few of its directions again, on in that context alone.

    What a user likes is then what they always like plus what they like there. A number that goes round, such as the
    hour, has two such parts, weighted by its cosine and sine. Make one with `over`. Where nothing is told of a
    request, only the first part counts: its gate is not all ones.

    Parameters
    ----------
    middle, directions
        (in,) and (in, dims): what is taken from an item's vector of length 1, and along which directions it is cut.
    contexts
        Names, and the values that are known; none for those of `periods`.
    periods
        Of numbers that go round: after how much they are where they were.
    provenance
        How it was made.

    Examples
    --------
    >>> shop = Catalogue([1, 2, 3], [[1, 0], [0, 1], [1, 1]])
    >>> seen = Crossed.over(shop, {"device": ["phone", "desk"], "hour": 24}, dims=1)
    >>> seen, seen.transform(shop).dim
    (Crossed(2 -> 11 dimensions, contexts device, hour), 11)
    >>> seen.gate({"device": "desk", "hour": 6}).round(2).tolist()
    [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    """

    FORMAT: ClassVar[str] = "treeward.crossed"

    middle: Floats
    directions: Floats
    contexts: Contexts = field(default_factory=dict)
    periods: dict[str, float] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def dim_in(self) -> int:
        """How many dimensions items have of their own."""
        return len(self.middle)

    @property
    def dim(self) -> int:
        """How many they have afterwards; the last is the same for all."""
        return self.dim_in + self._parts * (int(self.directions.shape[1]) + 1) + 1

    @property
    def _parts(self) -> int:
        return sum(2 if name in self.periods else len(values) for name, values in self.contexts.items())

    @classmethod
    def over(
        cls, catalogue: Catalogue, contexts: Mapping[str, Iterable[str | int | float] | float], dims: int = 4
    ) -> Self:
        """Cross a catalogue's vectors with contexts.

        Parameters
        ----------
        catalogue
            The items, with vectors.
        contexts
            By name: the values there are, or the period of a number that goes round: ``{"place": ["home", "work"],
            "hour": 24}``.
        dims
            How many of the vectors' principal directions a context may change, besides the level; at most all.
        """
        checks.kinds(_OWNER, ("catalogue", catalogue, Catalogue), ("contexts", contexts, Mapping))
        if not catalogue.dim:
            raise InvalidArgument(_OWNER, "catalogue", "one with vectors", "none")
        dims = min(checks.integer(_OWNER, "dims", dims, low=0), catalogue.dim)
        known: Contexts = {}
        periods: dict[str, float] = {}
        for name, told in contexts.items():
            if isinstance(told, int | float):
                periods[name], known[name] = checks.number(_OWNER, "contexts", told, above=0), ()
                continue
            known[name] = words(_OWNER, told)
            if not known[name] or isinstance(told, str):
                raise InvalidArgument(_OWNER, "contexts", "lists of values, or periods", told)
        total, squares = np.zeros(catalogue.dim), np.zeros((catalogue.dim, catalogue.dim))
        for first in range(0, len(catalogue), _BEGIN):
            piece = unit(catalogue.vectors[first : first + _BEGIN]).astype(np.float64)
            total, squares = total + piece.sum(axis=0), squares + piece.T @ piece
        middle = total / len(catalogue)
        _, found = np.linalg.eigh(squares / len(catalogue) - np.outer(middle, middle))
        directions = found[:, ::-1][:, :dims]
        if dims:
            directions = directions * np.sign(directions[np.abs(directions).argmax(axis=0), np.arange(dims)])
        made = {"treeward": __version__, "vectors_sha256": artefact.digest(catalogue.vectors)}
        return cls(middle.astype(np.float32), directions.astype(np.float32), known, periods, made)

    def mapped(self, vectors: Floats) -> Floats:
        """Return (items, dim) for items' own vectors."""
        given = checks.vectors("Crossed", vectors)
        self._check_dim("vectors", given.shape[1])
        own = unit(given)
        made = np.full((len(own), self.dim), LEVEL, dtype=np.float32)
        made[:, : self.dim_in] = own
        dims = self.directions.shape[1]
        along = (own - self.middle) @ self.directions
        for part in range(self._parts):
            first = self.dim_in + part * (dims + 1)
            made[:, first : first + dims] = along
        return made

    def gate(self, context: Context | None) -> Floats:
        """Return (dim,), by which vectors are multiplied in a context; what is not told is off."""
        given, parts = self._known(context), list[float]()
        for name, values in self.contexts.items():
            if name in self.periods:
                parts += self._round(name, given.get(name))
                continue
            told = word("Crossed", given[name]) if name in given else None
            parts += [float(value == told) for value in values]
        each = np.repeat(np.array(parts, dtype=np.float32), self.directions.shape[1] + 1)
        ones = np.ones(self.dim_in, dtype=np.float32)
        return np.concatenate([ones, each, ones[:1]])

    def _round(self, name: str, value: str | int | float | None) -> list[float]:
        if value is None:
            return [0.0, 0.0]
        if isinstance(value, str):
            raise InvalidArgument("Crossed", "context", f"with a number for {name}", value)
        angle = 2 * np.pi * checks.number("Crossed", name, value) / self.periods[name]
        return [float(np.cos(angle)), float(np.sin(angle))]

    def save(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Write it to a directory, checksummed."""
        arrays: dict[str, Any] = {"middle": self.middle, "directions": self.directions}
        known = [[name, list(values), self.periods.get(name)] for name, values in self.contexts.items()]
        contents = artefact.Contents(arrays, {}, {"contexts": known}, self.provenance)
        artefact.write(path, self.FORMAT, self.VERSION, contents, overwrite=overwrite)

    @classmethod
    def load(cls, path: StrPath) -> Self:
        """Read what `save` wrote."""
        held = artefact.read(path, cls.FORMAT, cls.VERSION)
        try:
            told = held.documents["contexts"]
            known = {str(name): tuple(map(str, values)) for name, values, _ in told}
            periods = {str(name): float(period) for name, _, period in told if period is not None}
            middle, directions = np.array(held.arrays["middle"]), np.array(held.arrays["directions"])
        except (KeyError, TypeError, ValueError) as error:
            raise ArtefactCorrupt(f"{path}: does not hold crossed features: {error}") from error
        if middle.ndim != 1 or directions.ndim != 2 or len(directions) != len(middle):
            raise ArtefactCorrupt(f"{path}: does not hold crossed features: of shapes that do not fit")
        return cls(middle, directions, known, periods, dict(held.info))
