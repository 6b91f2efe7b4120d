"""Users' states computed twice: step by step as a service does, and at once from the log. They must be the same."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.progress import Progress, Stage
from treeward.core.types import AnyArray
from treeward.engine.layout import State, room
from treeward.engine.replay import Events, absorb, sit_all
from treeward.explorer.decider import Decider
from treeward.state.frozen import belongs, freeze, thaw
from treeward.store.base import EventStore, User

_STORED_EVERY = 64
"""After so many events the live state is written out and read back, as if others had needed the room."""
_SEAT = np.zeros(1, dtype=np.int64)


class Mismatch(NamedTuple):
    """A user whose state depends on how it was computed."""

    user: User
    what: str
    """Which computation differs from the replay of the log."""
    difference: float
    """The largest difference of a number; infinite where not even the sizes agree."""


class StateCheck(NamedTuple):
    """What came out of computing users' states twice."""

    users: int
    """How many were rebuilt twice ..."""
    of_users: int
    """... out of so many with events."""
    events: int
    """Events of those users."""
    unknown: int
    """Events among them about items that the catalogue does not have: they teach nothing."""
    remembered: int
    """How many states that the store remembers were compared as well ..."""
    foreign: int
    """... and how many were not, because they were made with other items, another tree or other settings."""
    difference: float
    """The largest difference found; 0: everything is the same to the bit."""
    mismatches: tuple[Mismatch, ...]


def check_states(decider: Decider, store: EventStore, most: int, progress: Progress) -> StateCheck:
    """Rebuild a sample of at most `most` users twice, and compare every state that the store remembers."""
    everybody = sorted((user for user in store.users() if store.count(user)), key=lambda user: (str(user), repr(user)))
    step = max(1, -(-len(everybody) // most))
    sample = set(everybody[::step])
    stage = Stage(progress, "rebuilding users twice", len(everybody))
    found: list[Mismatch] = []
    events = unknown = remembered = foreign = 0
    for user in everybody:
        kept = store.kept(user)
        ours = kept is not None and belongs(kept.state, decider.seats.digest)
        foreign += kept is not None and not ours
        if user in sample or ours:
            held = store.read(user)
            seen = decider.seats.seen_by_plan(held)
            if user in sample:
                events, unknown = events + len(held), unknown + int((seen.place < 0).sum())
                replayed, lived = decider.state_after(seen), _lived(decider, user, seen)
                found += _compared(decider, user, "step by step", lived, replayed)
            if ours and kept is not None:
                remembered += 1
                replayed = decider.state_after(_first(seen, kept.events))
                plan = decider.seats.up_to_date()
                thawed = thaw(plan, room(plan, 1, 0), 0, decider.seats.digest, kept.state)
                found += _compared(decider, user, "remembered", thawed, replayed)
        stage.step()
    worst = max((one.difference for one in found), default=0.0)
    return StateCheck(len(sample), len(everybody), events, unknown, remembered, foreign, worst, tuple(found))


def _first(events: Events, count: int) -> Events:
    return Events._make(part[:count] for part in events)


def _lived(decider: Decider, user: User, events: Events) -> State:
    """Return the state after events that came one by one, with a decision after each, as in a service."""
    plan = decider.seats.up_to_date()
    state = room(plan, 1, 0)
    sit_all(plan, state, _SEAT)
    for at in range(len(events.kind)):
        one = Events._make(part[at : at + 1] for part in events)
        state = absorb(plan, state, _SEAT, np.array([0, 1]), one)
        decider.rehearse(user, state, at)  # deciding must not change what is known
        if (at + 1) % _STORED_EVERY == 0:
            frozen, empty = freeze(state, 0, decider.seats.digest), room(plan, 1, 0)
            sit_all(plan, empty, _SEAT)
            again = thaw(plan, empty, 0, decider.seats.digest, frozen)
            assert again is not None
            state = again
    return state


def _compared(decider: Decider, user: User, what: str, one: State | None, other: State) -> list[Mismatch]:
    """Return what differs; nothing if the two are the same to the bit."""
    if one is None:
        return [Mismatch(user, what, float("inf"))]
    digest = decider.seats.digest
    if freeze(one, 0, digest) == freeze(other, 0, digest):
        return []
    return [Mismatch(user, what, max(map(_apart, _numbers(one), _numbers(other))))]


def _numbers(state: State) -> list[AnyArray]:
    """Return all that is known of the user in seat 0."""
    posterior, places = state.posterior, state.history.places
    start = int(places.start[0])
    return [
        posterior.pulls[0], posterior.precision[0], posterior.moment[0], posterior.inverse[0], posterior.theta[0],
        state.board.mean[0], state.board.square[0], places.of(0),
        state.history.rewards[start : start + int(places.length[0])],
        state.visible.of(0), state.shown.of(0), state.short.of(0),
    ]  # fmt: skip


def _apart(one: AnyArray, other: AnyArray) -> float:
    if one.shape != other.shape:
        return float("inf")
    gap: NDArray[np.float64] = np.abs(one.astype(np.float64) - other.astype(np.float64))
    return float(np.nan_to_num(gap, nan=np.inf).max(initial=0.0))
