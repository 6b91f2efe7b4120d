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
from treeward.embed.features import LEVEL, Context, Contexts, Features, context_value, context_values, unit

_OWNER = "Crossed.over"
_CHUNK = 4_096


@dataclass(frozen=True, eq=False, repr=False)
class Crossed(Features):
    """An item's vector and, for every value of a context, some of its directions again, active in that context only.

    A user's taste is then what they always like plus what they like in the context. A cyclic number, such as the hour,
    has two such parts, weighted by its cosine and sine. Without a context only the first part is active, so the gate is
    not all ones. Make one with `over`.

    Parameters
    ----------
    middle, directions
        (in,) and (in, dims): the mean of the item vectors at length 1, and their principal directions.
    contexts
        Names of contexts and their known values; none for those in `periods`.
    periods
        Periods of cyclic numbers, by name.
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
        """Dimensions of the items' own vectors."""
        return len(self.middle)

    @property
    def dim(self) -> int:
        """Dimensions of the features; the last is the same for all items."""
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
            By name: the possible values, or the period of a cyclic number:
            ``{"place": ["home", "work"], "hour": 24}``.
        dims
            How many of the principal directions a context may change, in addition to the level.
        """
        checks.kinds(_OWNER, ("catalogue", catalogue, Catalogue), ("contexts", contexts, Mapping))
        if not catalogue.dim:
            raise InvalidArgument(_OWNER, "catalogue", "one with vectors", "none")
        dims = min(checks.integer(_OWNER, "dims", dims, low=0), catalogue.dim)
        known: Contexts = {}
        periods: dict[str, float] = {}
        for name, given in contexts.items():
            if isinstance(given, int | float):
                periods[name], known[name] = checks.number(_OWNER, "contexts", given, above=0), ()
                continue
            known[name] = context_values(_OWNER, given)
            if not known[name] or isinstance(given, str):
                raise InvalidArgument(_OWNER, "contexts", "lists of values, or periods", given)
        total, squares = np.zeros(catalogue.dim), np.zeros((catalogue.dim, catalogue.dim))
        for first in range(0, len(catalogue), _CHUNK):
            piece = unit(catalogue.vectors[first : first + _CHUNK]).astype(np.float64)
            total, squares = total + piece.sum(axis=0), squares + piece.T @ piece
        middle = total / len(catalogue)
        _, found = np.linalg.eigh(squares / len(catalogue) - np.outer(middle, middle))
        directions = found[:, ::-1][:, :dims]
        if dims:
            directions = directions * np.sign(directions[np.abs(directions).argmax(axis=0), np.arange(dims)])
        made = {"treeward": __version__, "vectors_sha256": artefact.digest(catalogue.vectors)}
        return cls(middle.astype(np.float32), directions.astype(np.float32), known, periods, made)

    def mapped(self, vectors: Floats) -> Floats:
        """Return the features of items, (items, dim), from their own vectors."""
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
        """Return the gate of a context, (dim,): features are multiplied by it. Parts without a value are 0."""
        given, parts = self._known(context), list[float]()
        for name, values in self.contexts.items():
            if name in self.periods:
                parts += self._cycle(name, given.get(name))
                continue
            now = context_value("Crossed", given[name]) if name in given else None
            parts += [float(value == now) for value in values]
        each = np.repeat(np.array(parts, dtype=np.float32), self.directions.shape[1] + 1)
        ones = np.ones(self.dim_in, dtype=np.float32)
        return np.concatenate([ones, each, ones[:1]])

    def _cycle(self, name: str, value: str | int | float | None) -> list[float]:
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
            saved = held.documents["contexts"]
            known = {str(name): tuple(map(str, values)) for name, values, _ in saved}
            periods = {str(name): float(period) for name, _, period in saved if period is not None}
            middle, directions = np.array(held.arrays["middle"]), np.array(held.arrays["directions"])
        except (KeyError, TypeError, ValueError) as error:
            raise ArtefactCorrupt(f"{path}: does not hold crossed features: {error}") from error
        if middle.ndim != 1 or directions.ndim != 2 or len(directions) != len(middle):
            raise ArtefactCorrupt(f"{path}: does not hold crossed features: their shapes do not fit")
        return cls(middle, directions, known, periods, dict(held.info))
