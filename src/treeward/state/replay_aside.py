"""`Replay`: computes the states of absent users in memory of its own, while others are decided for."""

from collections.abc import Sequence

import numpy as np

from treeward.engine.layout import Plan, State, empty_state
from treeward.engine.replay import Events, apply_events, reset_users
from treeward.state.user_states import Stamp, UserStates
from treeward.store.base import User, join

_ROOM = 128
"""Events of a user that need no second allocation."""


class Replay:
    """The replay of some users' events. Its steps are called in order; `begin` and `finish` hold the explorer's lock.

    Parameters
    ----------
    states
        Where the users will have a seat.
    users
        Users who have none.
    """

    def __init__(self, states: UserStates, users: Sequence[User]) -> None:
        self._states, self._users = states, list(users)[: states.most]
        self._epoch = states.store.identities.epoch
        self._read = states.store.read(self._users)
        self._stamp: Stamp | None = None
        self._plan: Plan | None = None
        self._events: Events | None = None
        self._state: State | None = None

    def begin(self) -> None:
        """Note by which plan and which items the events are replayed."""
        states = self._states
        self._stamp, self._plan = states.now(self._epoch), states.plan_with_gates()
        self._events = states.events_for_plan(join(self._read))

    def run(self) -> None:
        """Replay the events; needs no lock."""
        assert self._plan is not None
        assert self._events is not None
        count = len(self._users)
        state = empty_state(self._plan, count, _ROOM, compact=True)
        seats = np.arange(count, dtype=np.int64)
        reset_users(self._plan, state, seats)
        ends = np.concatenate([[0], np.cumsum([len(events) for events in self._read])])
        self._state = apply_events(self._plan, state, seats, ends, self._events)

    def finish(self) -> None:
        """Give the users their seats, unless anything has changed that the states depend on."""
        states = self._states
        assert self._state is not None
        assert self._stamp is not None
        if self._stamp == states.now(states.store.identities.epoch):
            states.adopt(self._users, [len(events) for events in self._read], self._state, self._stamp)
