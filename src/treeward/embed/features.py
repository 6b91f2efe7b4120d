"""Features of items and requests: z(item, context) = h(item) * g(context), elementwise.

Because theta' z = (theta * g)' h, a context scales theta and A^-1 when deciding and x when learning. One tree, over h,
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
"""The last dimension of all features, the same for every item: it stands for the user's level."""

Context = Mapping[str, str | int | float]
Contexts = dict[str, tuple[str, ...]]


class Features(ABC):
    """A map from items' own vectors to the features that a policy learns with, and a gate for a request's context.

    Give one to a policy: ``Beam(features=...)``. The policy transforms catalogue and tree by itself, before the prior
    adds its own features.
    """

    FORMAT: ClassVar[str]
    VERSION: ClassVar[int] = 1

    contexts: Contexts
    """Names of contexts, and their known values; a cyclic number has none."""
    provenance: dict[str, Any]

    @property
    @abstractmethod
    def dim_in(self) -> int:
        """Dimensions of the items' own vectors."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """Dimensions of the features."""

    @abstractmethod
    def mapped(self, vectors: Floats) -> Floats:
        """Return the features of items, (items, dim), from their own vectors."""

    @abstractmethod
    def gate(self, context: Context | None) -> Floats:
        """Return the gate of a context, (dim,): features are multiplied by it. An unknown value counts as no value."""

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
        """Return the same items with their features as vectors. Idempotent."""
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
        """Return the context if all of its names are known."""
        if context is None:
            return {}
        if not isinstance(context, Mapping):
            raise InvalidArgument(type(self).__name__, "context", "names and values", type(context).__name__)
        for name in context:
            if name not in self.contexts:
                rule = f"of {', '.join(self.contexts)}" if self.contexts else "empty: it was made without contexts"
                raise InvalidArgument(type(self).__name__, "context", rule, name)
        return context


def context_value(owner: str, value: object) -> str:
    """Return a context's value as text: 9, 9.0 and "9" are the same.

    Examples
    --------
    >>> [context_value("doc", value) for value in (9, 9.0, "phone")]
    ['9', '9', 'phone']
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float | np.integer | np.floating):
        raise InvalidArgument(owner, "context", "of texts and numbers", value)
    if isinstance(value, float | np.floating):
        if not np.isfinite(value):
            raise InvalidArgument(owner, "context", "of finite numbers", value)
        return str(int(value)) if float(value).is_integer() else str(float(value))
    return str(value)


def context_values(owner: str, values: Iterable[object]) -> tuple[str, ...]:
    """Return the distinct values of a context, sorted."""
    return tuple(sorted({context_value(owner, value) for value in values}))


def unit(vectors: Floats) -> Floats:
    """Return vectors scaled to length 1; zero vectors stay zero."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    made: Floats = (vectors / np.where(lengths > 0, lengths, 1.0)[:, None]).astype(np.float32)
    return made


def load_features(path: StrPath) -> Features:
    """Load features of any kind; the directory's manifest names the kind."""
    from treeward.embed.crossed import Crossed
    from treeward.embed.neural import NeuralLinear

    kinds: dict[str, type[Features]] = {kind.FORMAT: kind for kind in (NeuralLinear, Crossed)}
    found = artefact.format_of(path)
    if found not in kinds:
        raise ArtefactVersion(f"{path}: holds {found}, expected one of {', '.join(kinds)}")
    return kinds[found].load(path)
