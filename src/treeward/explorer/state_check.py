"""Computes users' states twice, event by event as a service does and at once from the log, and compares them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.progress import Progress, Stage
from treeward.core.types import AnyArray
from treeward.engine.layout import State, empty_state
from treeward.engine.replay import Events, apply_events, reset_users
from treeward.explorer.decider import Decider
from treeward.state.user_states import state_bytes, state_rows
from treeward.store.base import EventStore, User, everyone

_SEAT = np.zeros(1, dtype=np.int64)


class Mismatch(NamedTuple):
    """A user whose state depends on how it was computed."""

    user: User
    what: str
    """Which computation differs from the replay of the log."""
    difference: float
    """The largest difference of a number; infinite if the sizes differ."""


class StateCheck(NamedTuple):
    """The result of computing users' states twice."""

    users: int
    """How many users were rebuilt twice ..."""
    of_users: int
    """... of how many users with events."""
    events: int
    """Events of those users."""
    unknown: int
    """Events among them about items that the catalogue does not have: nothing is learned from them."""
    difference: float
    """The largest difference found; 0: everything is the same to the bit."""
    mismatches: tuple[Mismatch, ...]


def check_states(decider: Decider, store: EventStore, most: int, progress: Progress) -> StateCheck:
    """Rebuild a sample of at most `most` users twice, and compare their states."""
    everybody = sorted(everyone(store), key=lambda user: (str(user), repr(user)))
    sample = everybody[:: max(1, -(-len(everybody) // most))]
    stage = Stage(progress, "rebuilding users twice", len(sample))
    found: list[Mismatch] = []
    events = unknown = 0
    for user in sample:
        [held] = store.read([user])
        seen = decider.states.events_for_plan(held)
        events, unknown = events + len(held), unknown + int((seen.place < 0).sum())
        found += _compared(user, "step by step", _lived(decider, user, seen), decider.state_after(seen))
        stage.step()
    worst = max((one.difference for one in found), default=0.0)
    return StateCheck(len(sample), len(everybody), events, unknown, worst, tuple(found))


def _lived(decider: Decider, user: User, events: Events) -> State:
    """Return the state after events that came one by one, with a decision after each, as in a service."""
    plan = decider.states.plan_with_gates()
    state = empty_state(plan, 1, 0)
    reset_users(plan, state, _SEAT)
    for at in range(len(events.kind)):
        one = Events._make(part[at : at + 1] for part in events)
        state = apply_events(plan, state, _SEAT, np.array([0, 1]), one)
        decider.rehearse(user, state, at)  # deciding must not change what is known
    return state


def _compared(user: User, what: str, one: State, other: State) -> list[Mismatch]:
    """Return what differs; nothing if the two are the same to the bit."""
    if state_bytes(one, 0) == state_bytes(other, 0):
        return []
    return [Mismatch(user, what, max(map(_apart, state_rows(one, 0), state_rows(other, 0))))]


def _apart(one: AnyArray, other: AnyArray) -> float:
    if one.shape != other.shape:
        return float("inf")
    gap: NDArray[np.float64] = np.abs(one.astype(np.float64) - other.astype(np.float64))
    return float(np.nan_to_num(gap, nan=np.inf).max(initial=0.0))
