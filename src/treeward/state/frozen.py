"""One user's state as bytes, and back."""

import struct
from hashlib import blake2b

import numpy as np

from treeward.core.types import AnyArray, Integers
from treeward.engine.history import History
from treeward.engine.layout import Plan, State
from treeward.engine.posterior import BLOCK
from treeward.engine.ragged import Lists, widened

_VERSION = 3
_HEAD = struct.Struct("<B16sqqqq")
_SEAL = 16


def freeze(state: State, seat: int, digest: bytes) -> bytes:
    """Return a seat's state; `digest` names the plan it belongs to."""
    posterior, history = state.posterior, state.history
    lower = np.tril_indices(posterior.theta.shape[2])
    places = history.places.of(seat)
    visible, shown, short = state.visible.of(seat), state.shown.of(seat), state.short.of(seat)
    start = int(history.places.start[seat])
    waiting = np.arange(BLOCK) < (posterior.pulls[seat] % BLOCK)[:, None]
    parts: list[AnyArray] = [
        posterior.pulls[seat],
        posterior.products[seat][:, lower[0], lower[1]],
        posterior.rewards[seat],
        history.rewards[start : start + len(places)],
        np.where(waiting[:, :, None], posterior.pending[seat], np.float32(0)),  # the other rows are of before
        posterior.inverse[seat],
        posterior.theta[seat],
        state.board.mean[seat],
        state.board.square[seat],
        places,
        visible,
        shown,
        short,
    ]
    body = _HEAD.pack(_VERSION, digest, len(places), len(visible), len(shown), len(short)) + b"".join(
        np.ascontiguousarray(part).tobytes() for part in parts
    )
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
    state = _roomy(state, seat, counts, plan.least_field)
    reader = _Reader(body, _HEAD.size)
    posterior = state.posterior
    slots, dim = posterior.theta.shape[1:]
    posterior.pulls[seat] = reader.take(np.int64, slots)
    lower = np.tril_indices(dim)
    triangle = reader.take(np.float64, slots * len(lower[0])).reshape(slots, -1)
    posterior.products[seat][:, lower[0], lower[1]] = triangle
    posterior.products[seat][:, lower[1], lower[0]] = triangle
    posterior.rewards[seat] = reader.take(np.float64, slots * dim).reshape(slots, dim)
    rewards = reader.take(np.float64, counts[0])
    for array in (posterior.pending, posterior.inverse, posterior.theta, state.board.mean, state.board.square):
        array[seat] = reader.take(np.float32, array[seat].size).reshape(array[seat].shape)
    start = int(state.history.places.start[seat])
    state.history.rewards[start : start + counts[0]] = rewards
    for lists, count in zip((state.history.places, state.visible, state.shown, state.short), counts, strict=True):
        _fill(lists, seat, reader.take(np.int32, count))
    return state


def _roomy(state: State, seat: int, counts: list[int], least: int) -> State:
    places, [rewards] = widened(state.history.places, seat, counts[0], state.history.rewards)
    visible, _ = widened(state.visible, seat, counts[1], least=least)
    shown, _ = widened(state.shown, seat, counts[2])
    return state._replace(history=History(places, rewards), visible=visible, shown=shown)


def _fill(lists: Lists, seat: int, values: Integers) -> None:
    start = int(lists.start[seat])
    lists.values[start : start + len(values)] = values
    lists.length[seat] = len(values)


class _Reader:
    def __init__(self, body: bytes, at: int) -> None:
        self.body, self.at = body, at

    def take(self, dtype: type[np.generic], count: int) -> AnyArray:
        made: AnyArray = np.frombuffer(self.body, dtype=dtype, count=count, offset=self.at)
        self.at += made.nbytes
        return made
