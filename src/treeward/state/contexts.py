"""`Contexts`: each context of requests has a number, which events carry, and a gate that multiplies item vectors."""

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeward.core.errors import InvalidArgument, StoreVersion
from treeward.core.types import AnyArray, Floats, Integers
from treeward.embed.features import Context, Features, context_value
from treeward.store.base import EventStore
from treeward.store.numbers import number_snapshot

_BEGIN = "context/"
_MOST = 4_096
_LARGEST = 2**53
_OWNER = "Explorer.recommend"

Plain = dict[str, str | int | float]


class Contexts:
    """Numbers of contexts, the same in every process, and their gates.

    An event in a context carries the context's number in place of the tree's. The node of such an event is not
    recorded: a replay uses the leaf where the item is now.

    Parameters
    ----------
    store
        Where the numbers live.
    tree
        The store's number of the tree, for decisions without a context.
    features
        Makes gates of contexts; None: contexts are refused.
    dim
        Dimensions of the vectors; a gate is 1 in dimensions that are not the features' own.
    """

    def __init__(self, store: EventStore, tree: int, features: Features | None, dim: int) -> None:
        self._store, self._tree, self._dim = store, tree, dim
        self._features = features if features is not None and features.contexts else None
        self.gates: Floats = np.zeros((0, dim), dtype=np.float32)
        """(contexts, d); the first is that of events without a context."""
        self.any = self._features is not None
        """Whether requests may have a context; if not, nothing below is asked for."""
        self._number_of: dict[str, int] = {}
        self._gate: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._told: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._sure: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        if self._features is not None:
            self.gates = self._whole(self._features.gate(None))[None]

    def of(self, context: Context | None) -> tuple[int, Floats | None]:
        """Return the number that decisions in a context have, and their gate; None: there is none."""
        if self._features is None:
            if context:
                rule = "empty: the policy's features use none (see Crossed and NeuralLinear)"
                raise InvalidArgument(_OWNER, "context", rule, context)
            return self._tree, None
        gate = self._features.gate(context)  # refuses unknown names
        plain = self._plain(context or {})
        if not plain:
            return self._tree, self.gates[0]
        key = msgspec.json.encode(plain).decode()
        if key not in self._number_of:
            if len(self._number_of) >= _MOST:
                rule = f"of at most {_MOST} different contexts: round numbers to a few values"
                raise InvalidArgument(_OWNER, "context", rule, context)
            number = number_snapshot(self._store, f"?{key}")
            self._store.metadata.put({_name(number): key.encode()}, new=True)
            self._learn(number, plain)
            self._number_of[key] = number
        return self._number_of[key], self._whole(gate)

    def _plain(self, context: Context) -> Plain:
        """Return a context as it is recorded; values that the features do not know are left out."""
        assert self._features is not None
        made: Plain = {}
        for name in sorted(context):
            value, known = context[name], self._features.contexts[name]
            if known:
                if context_value(_OWNER, value) in known:
                    made[name] = context_value(_OWNER, value)
            elif not isinstance(value, str) and abs(value) <= _LARGEST:
                made[name] = int(value) if float(value).is_integer() else float(value)
            else:
                raise InvalidArgument(_OWNER, "context", f"with a number of usual size for {name}", str(value)[:40])
        return made

    def gate_at(self, number: int) -> Floats | None:
        """Return the gate of decisions with a number."""
        if self._features is None:
            return None
        gate: Floats = self.gates[self.gates_of(np.array([number]))[0]]
        return gate

    def told(self, number: int) -> str | None:
        """Return the context that a number stands for, as JSON; None if it is the number of a tree."""
        held = self._store.metadata.get(_name(number))
        return None if held is None else held.decode()

    def trees_of(self, numbers: AnyArray) -> AnyArray:
        """Return the numbers of the trees that events were decided on; -1 for events with a context."""
        self._know(numbers)
        return np.where(self._told[numbers], -1, numbers.astype(np.int64))

    def gates_of(self, numbers: AnyArray) -> Integers:
        """Return the gate of each event, as a row of `gates`."""
        self._know(numbers)
        return self._gate[numbers]

    def _know(self, numbers: AnyArray) -> None:
        """Look up what numbers stand for; the store has it since before the first decision with that number."""
        if len(numbers):
            self._grow(int(numbers.max()))
        for number in np.unique(numbers[~self._sure[numbers]]).tolist():
            held = self._store.metadata.get(_name(number))
            if held is not None:
                try:
                    self._learn(number, msgspec.json.decode(held, type=Plain))
                except msgspec.DecodeError as error:
                    raise StoreVersion(f"a context in the store is of another version ({error})") from error
            self._sure[number] = True

    def _learn(self, number: int, context: Plain) -> None:
        assert self._features is not None
        self._grow(number)
        known = {name: value for name, value in context.items() if name in self._features.contexts}
        try:
            gate = self._features.gate(known)
        except InvalidArgument:  # recorded with other features
            gate = self._features.gate(None)
        self.gates = np.concatenate([self.gates, self._whole(gate)[None]])
        self._gate[number], self._told[number], self._sure[number] = len(self.gates) - 1, True, True

    def _grow(self, number: int) -> None:
        more = number + 1 - len(self._sure)
        if more > 0:
            self._gate = np.concatenate([self._gate, np.zeros(more, dtype=np.int32)])
            self._told = np.concatenate([self._told, np.zeros(more, dtype=np.bool_)])
            self._sure = np.concatenate([self._sure, np.zeros(more, dtype=np.bool_)])

    def _whole(self, gate: Floats) -> Floats:
        return np.concatenate([gate, np.ones(self._dim - len(gate), dtype=np.float32)])


def _name(number: int) -> str:
    return f"{_BEGIN}{number:08d}"
