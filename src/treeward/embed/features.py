"""What a policy sees of items, and of a request: z(item, context) = h(item) * g(context), elementwise.

Then theta' z = (theta * g)' h: a context rescales theta and A^-1 when deciding and x when learning, and the tree over h
serves every context.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from treeward.core import artefact, checks
from treeward.core.artefact import StrPath
from treeward.core.errors import ArtefactVersion, InvalidArgument
from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue

LEVEL = np.float32(0.3)
"""The last dimension of what is made, the same for every item: what a user thinks of anything."""

Context = Mapping[str, str | int | float]
Contexts = dict[str, tuple[str, ...]]


class Features(ABC):
    """A map from items' own vectors to those in which a policy learns, and what a request's context does to them.

    Give one to a policy: ``Beam(features=...)``. The catalogue and the tree get the new vectors when the policy meets
    them, before the prior adds its own.
    """

    FORMAT: ClassVar[str]
    VERSION: ClassVar[int] = 1

    contexts: Contexts
    """What a request may tell: names, and the values that are known; of a number that goes round, none."""
    provenance: dict[str, Any]

    @property
    @abstractmethod
    def dim_in(self) -> int:
        """How many dimensions items have of their own."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """How many they have afterwards."""

    @abstractmethod
    def mapped(self, vectors: Floats) -> Floats:
        """Return (items, dim) for items' own vectors."""

    @abstractmethod
    def gate(self, context: Context | None) -> Floats:
        """Return (dim,), by which vectors are multiplied in a context; a value that is not known counts as none."""

    @abstractmethod
    def save(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Write it to a directory, checksummed."""

    @classmethod
    @abstractmethod
    def load(cls, path: StrPath) -> Self:
        """Read what `save` wrote."""

    def __repr__(self) -> str:
        asks = f", contexts {', '.join(self.contexts)}" if self.contexts else ""
        return f"{type(self).__name__}({self.dim_in} -> {self.dim} dimensions{asks})"

    def transform(self, catalogue: Catalogue) -> Catalogue:
        """Return the same items with the new vectors; done once, it stays so."""
        checks.kinds(type(self).__name__, ("catalogue", catalogue, Catalogue))
        if catalogue.dim == self.dim and (catalogue.vectors[:, -1] == LEVEL).all():
            return catalogue
        self._check_dim("catalogue", catalogue.dim)
        return catalogue.with_vectors(self.mapped(catalogue.vectors))

    def _check_dim(self, parameter: str, dim: int) -> None:
        if dim != self.dim_in:
            raise InvalidArgument(
                type(self).__name__, parameter, f"of {self.dim_in} dimensions, as it was made for", dim
            )

    def _known(self, context: Context | None) -> Context:
        """Return the context, if all of its names have a meaning."""
        if context is None:
            return {}
        if not isinstance(context, Mapping):
            raise InvalidArgument(type(self).__name__, "context", "names and values", type(context).__name__)
        for name in context:
            if name not in self.contexts:
                rule = f"of {', '.join(self.contexts)}" if self.contexts else "empty: it was made without contexts"
                raise InvalidArgument(type(self).__name__, "context", rule, name)
        return context


def word(owner: str, value: object) -> str:
    """Return a context's value as it is kept: 9, 9.0 and "9" are the same.

    Examples
    --------
    >>> word("here", 9), word("here", 9.0), word("here", "phone")
    ('9', '9', 'phone')
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float | np.integer | np.floating):
        raise InvalidArgument(owner, "context", "of texts and numbers", value)
    if isinstance(value, float | np.floating):
        if not np.isfinite(value):
            raise InvalidArgument(owner, "context", "of finite numbers", value)
        return str(int(value)) if float(value).is_integer() else str(float(value))
    return str(value)


def words(owner: str, values: Iterable[object]) -> tuple[str, ...]:
    """Return a context's values, each once, in order."""
    return tuple(sorted({word(owner, value) for value in values}))


def unit(vectors: Floats) -> Floats:
    """Return vectors at length 1; those of length 0 stay."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    made: Floats = (vectors / np.where(lengths > 0, lengths, 1.0)[:, None]).astype(np.float32)
    return made


def load_features(path: StrPath) -> Features:
    """Read what any features' `save` wrote; which they are, the directory tells."""
    from treeward.embed.crossed import Crossed
    from treeward.embed.neural import NeuralLinear

    kinds: dict[str, type[Features]] = {kind.FORMAT: kind for kind in (NeuralLinear, Crossed)}
    found = artefact.format_of(path)
    if found not in kinds:
        raise ArtefactVersion(f"{path}: holds {found}, expected one of {', '.join(kinds)}")
    return kinds[found].load(path)
