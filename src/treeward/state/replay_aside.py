"""`Replay`: computes the states of absent users in memory of its own, while others are decided for."""

from collections.abc import Sequence

import numpy as np

from treeward.engine.layout import empty_state
from treeward.engine.replay import apply_events, reset_users
from treeward.state.user_states import UserStates
from treeward.store.base import User, join

_ROOM = 128
"""Events of a user that need no second allocation."""


class Replay:
    """The replay of some users' events, which needs no lock until it is finished.

    Parameters
    ----------
    states
        Where the users will have a seat.
    users
        Users who have none.
    """

    def __init__(self, states: UserStates, users: Sequence[User]) -> None:
        self._states, self._users = states, list(users)[: states.most]
        self._stamp = states.now(states.store.identities.epoch)  # before anything is read that may change
        plan = states.plan
        read = states.store.read(self._users)
        self._counts = [len(events) for events in read]
        events = join(read)
        seen = states.events_for_plan(events)
        self._unknown = events["item"][seen.place < 0]
        self._state = empty_state(plan, len(self._users), _ROOM, compact=True)
        seats = np.arange(len(self._users), dtype=np.int64)
        reset_users(plan, self._state, seats)
        self._state = apply_events(plan, self._state, seats, np.concatenate([[0], np.cumsum(self._counts)]), seen)

    def finish(self) -> None:
        """Give the users their seats, unless what the states depend on has changed; callers hold the lock."""
        states = self._states
        if self._stamp == states.now(states.store.identities.epoch) and not states.knows_any(self._unknown):
            states.adopt(self._users, self._counts, self._state, self._stamp)
