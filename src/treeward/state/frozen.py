"""One user's state as bytes, and back: a copy of the user's row of every array, and of the user's lists."""

import struct
from collections.abc import Iterator
from hashlib import blake2b

import numpy as np

from treeward.core.types import AnyArray
from treeward.engine.history import History
from treeward.engine.layout import Plan, State
from treeward.engine.posterior import BLOCK
from treeward.engine.ragged import LEAST, Lists, widened

_VERSION = 4
_HEAD = struct.Struct("<B16sqqqq")
_SEAL = 16
_OF_ALL = {"prior_precision", "prior_moment", "work", "wide"}
"""Arrays without a row per seat: the prior follows from the plan, the others are room to work in."""


def freeze(state: State, seat: int, digest: bytes) -> bytes:
    """Return a seat's state; `digest` names the plan it belongs to."""
    posterior = state.posterior
    waiting = np.arange(BLOCK) < (posterior.pulls[seat] % BLOCK)[:, None]
    posterior.pending[seat][~waiting] = 0  # nobody reads these again: equal states are equal bytes
    head = _HEAD.pack(_VERSION, digest, *(lists.length[seat] for lists in _ragged(state)))
    body = head + b"".join(row.tobytes() for row in _rows(state, seat))
    return body + blake2b(body, digest_size=_SEAL).digest()


def belongs(frozen: bytes, digest: bytes) -> bool:
    """Tell whether a frozen state says it is of the plan of this digest."""
    return frozen[:17] == bytes([_VERSION]) + digest


def thaw(plan: Plan, state: State, seat: int, digest: bytes, frozen: bytes) -> State | None:
    """Put a frozen state into a seat and return the state, or None if it is another plan's, or damaged."""
    body, seal = frozen[:-_SEAL], frozen[-_SEAL:]
    if len(frozen) < _HEAD.size + _SEAL or blake2b(body, digest_size=_SEAL).digest() != seal:
        return None
    version, made_for, *counts = _HEAD.unpack_from(body)
    if version != _VERSION or made_for != digest:
        return None
    state = _with_room(state, seat, counts, plan.least_field)
    for lists, count in zip(_ragged(state), counts, strict=True):
        lists.length[seat] = count
    at = _HEAD.size
    for row in _rows(state, seat):
        row[...] = np.frombuffer(body, row.dtype, row.size, at).reshape(row.shape)
        at += row.nbytes
    return state


def _ragged(state: State) -> list[Lists]:
    """Return the lists of a state."""
    return [part.places if isinstance(part, History) else part for part in state if isinstance(part, History | Lists)]


def _rows(state: State, seat: int) -> Iterator[AnyArray]:
    """Yield all that is known of a seat's user, as views."""
    for part in state:
        if isinstance(part, Lists):
            yield part.of(seat)
        elif isinstance(part, History):
            yield part.places.of(seat)
            yield part.places._replace(values=part.rewards).of(seat)  # type: ignore[arg-type]  # laid out alike
        else:
            yield from (array[seat] for name, array in part._asdict().items() if name not in _OF_ALL)


def _with_room(state: State, seat: int, counts: list[int], least: int) -> State:
    """Return the state with room for lists of these lengths in a seat."""
    history, *others = zip(_ragged(state), counts, (LEAST, least, LEAST, LEAST), strict=True)
    places, [rewards] = widened(history[0], seat, history[1], state.history.rewards)
    visible, shown, short = (widened(lists, seat, count, least=room)[0] for lists, count, room in others)
    return state._replace(history=History(places, rewards), visible=visible, shown=shown, short=short)
