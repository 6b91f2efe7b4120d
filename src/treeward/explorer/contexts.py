"""The contexts of requests: each has a number beside its tree's, which events carry, and a gate that vectors pass."""

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeward.core.errors import InvalidArgument, StoreVersion
from treeward.core.types import AnyArray, Floats, Integers
from treeward.embed.features import Context, Features
from treeward.store.base import EventStore

_BEGIN = "context/"
_MOST = 4_096


class Told(msgspec.Struct, frozen=True):
    """What a number of the store's stands for, if it is not a tree's own."""

    tree: int
    """The number of the tree alone."""
    context: dict[str, str | int | float]


class Contexts:
    """Numbers for what requests tell, the same in every process, and their gates.

    Parameters
    ----------
    store
        Where the numbers live.
    tree
        The store's number of the tree, and ...
    name
        ... what it is numbered by.
    features
        What makes gates of contexts; None: nothing may be told.
    dim
        Of the vectors that pass the gates; those behind the features' own pass as they are.
    """

    def __init__(self, store: EventStore, tree: int, name: str, features: Features | None, dim: int) -> None:
        self._store, self._tree, self._name, self._dim = store, tree, name, dim
        self._features = features if features is not None and features.contexts else None
        self.gates: Floats = np.zeros((0, dim), dtype=np.float32)
        """(contexts, d)"""
        self._row_of: dict[str, int] = {}
        self._number_of: dict[str, int] = {}
        self._last = ""
        self._gate: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._trees: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        if self._features is not None:
            self.gates = self._whole(self._features.gate(None))[None]  # of events that nothing was told of
            self._row_of["{}"] = 0
            self._read()

    @property
    def used(self) -> bool:
        """Whether requests may tell anything."""
        return self._features is not None

    def of(self, context: Context | None) -> tuple[int, Floats | None]:
        """Return the number that decisions in a context have, and their gate; None: there is none."""
        if self._features is None:
            if context:
                rule = "empty: the policy's features know of none (see Crossed and NeuralLinear)"
                raise InvalidArgument("Explorer.recommend", "context", rule, context)
            return self._tree, None
        gate = self._features.gate(context)  # which refuses names that it does not know
        plain = {name: _plain(value) for name, value in sorted((context or {}).items())}
        key = msgspec.json.encode(plain).decode()
        if key not in self._number_of:
            if len(self._number_of) >= _MOST:
                rule = f"of at most {_MOST} different contexts: round numbers to a few values"
                raise InvalidArgument("Explorer.recommend", "context", rule, context)
            number = self._store.number_snapshot(f"{self._name}?{key}")
            told = msgspec.json.encode(Told(self._tree, plain))
            self._store.take_note(f"{_BEGIN}{number:08d}", told, new=True)
            self._learn(number, Told(self._tree, plain))
            self._number_of[key] = number
        return self._number_of[key], self._whole(gate)

    def context_of(self, number: int) -> Context | None:
        """Return the context that a number stands for."""
        held = self._store.note(f"{_BEGIN}{number:08d}")
        return None if held is None else _read(held).context

    def told(self, number: int) -> str | None:
        """Return the context that a number stands for, as JSON."""
        context = self.context_of(number)
        return None if not context else msgspec.json.encode(context).decode()

    def trees_of(self, numbers: AnyArray) -> AnyArray:
        """Return the numbers of the trees alone."""
        if self._features is None:
            return numbers
        self._know(numbers)
        return self._trees[numbers]

    def gates_of(self, numbers: AnyArray) -> Integers:
        """Return which gate each of some events passes."""
        if self._features is None:
            return np.zeros(0, dtype=np.int32)
        self._know(numbers)
        return self._gate[numbers]

    def _know(self, numbers: AnyArray) -> None:
        most = int(numbers.max()) if len(numbers) else -1
        if most >= len(self._trees):
            self._read()
            self._grow(most)

    def _read(self) -> None:
        """Read what other processes have numbered."""
        for name, held in self._store.notes(_BEGIN, self._last):
            self._learn(int(name.removeprefix(_BEGIN)), _read(held))
            self._last = name

    def _learn(self, number: int, told: Told) -> None:
        assert self._features is not None
        self._grow(number)
        key = msgspec.json.encode(told.context).decode()
        if key not in self._row_of:
            known = {name: value for name, value in told.context.items() if name in self._features.contexts}
            self._row_of[key] = len(self.gates)
            self.gates = np.concatenate([self.gates, self._whole(self._features.gate(known))[None]])
        self._gate[number], self._trees[number] = self._row_of[key], told.tree
        if told.tree == self._tree:
            self._number_of.setdefault(key, number)

    def _grow(self, number: int) -> None:
        more = number + 1 - len(self._trees)
        if more > 0:
            self._gate = np.concatenate([self._gate, np.zeros(more, dtype=np.int32)])
            self._trees = np.concatenate([self._trees, np.arange(len(self._trees), number + 1)])

    def _whole(self, gate: Floats) -> Floats:
        return np.concatenate([gate, np.ones(self._dim - len(gate), dtype=np.float32)])


def _plain(value: str | int | float) -> str | int | float:
    """Return a value as it is written down: 9 and 9.0 are the same."""
    if isinstance(value, str):
        return value
    return int(value) if float(value).is_integer() else float(value)


def _read(held: bytes) -> Told:
    try:
        return msgspec.json.decode(held, type=Told)
    except msgspec.DecodeError as error:
        raise StoreVersion(f"a context in the store is of another version ({error})") from error
