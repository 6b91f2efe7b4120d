"""The entry for learning: apply events to the state of users. One reward and a whole log take the same way."""

import numpy as np
from numpy.typing import NDArray

from treeward.engine.history import History
from treeward.engine.layout import Plan, State
from treeward.engine.learn import Desk, Events, replay_items
from treeward.engine.learn_paths import replay_paths
from treeward.engine.posterior import reset
from treeward.engine.ragged import widened

__all__ = ["Events", "apply_events", "reset_user", "reset_users"]


def reset_users(plan: Plan, state: State, seats: NDArray[np.int64]) -> None:
    """Reset seats to new users."""
    reset(state.posterior, seats, plan.prior)
    state.board.mean[seats], state.board.square[seats] = plan.board.mean, plan.board.square
    for lists in (state.history.places, state.shown, state.short):
        lists.length[seats] = 0
    if plan.personal:
        state.visible.length[seats] = len(plan.start)
        at = state.visible.start[seats][:, np.newaxis] + np.arange(len(plan.start))
        state.visible.values[at] = plan.start


def reset_user(plan: Plan, state: State, seat: int) -> None:
    """Reset one seat to a new user."""
    reset_users(plan, state, np.array([seat], dtype=np.int64))


def apply_events(plan: Plan, state: State, seats: NDArray[np.int64], ends: NDArray[np.int64], events: Events) -> State:
    """Apply events ends[i]:ends[i + 1] to seat i, in order. Return the state, with more room where it was needed.

    The result is bit-identical whether events come one by one or together. Together they are faster: those before the
    last refresh of a slot only enter the sums A and b.
    """
    done, desk, lesson = ends[:-1].copy(), Desk.empty(plan), plan.lesson
    paths = None if plan.beams else plan.paths
    while True:
        what = state.posterior, state.history, state.shown, state.short
        if paths is None:
            stuck = replay_items(lesson, *what, seats, ends, events, done, desk)
        else:
            stuck = replay_paths(lesson, paths, *what, state.board, state.visible, seats, ends, events, done, desk)
        if stuck < 0:
            return state
        state = _widen(plan, state, int(seats[stuck]), int(ends[stuck + 1] - done[stuck]))


def _widen(plan: Plan, state: State, seat: int, events: int) -> State:
    """Return the state with room in a seat for more events, and for the children of one more node."""
    places, rewards, visible, shown = *state.history, state.visible, state.shown
    if plan.remembers:
        places, [rewards] = widened(places, seat, int(places.length[seat]) + events, rewards)
    if plan.personal:
        widest = int(np.diff(plan.tree.first_child).max())
        visible, _ = widened(visible, seat, int(visible.length[seat]) + widest, least=plan.least_field)
    if plan.once:
        need = int(shown.length[seat]) + events
        shown, _ = widened(shown, seat, min(need, plan.rest) if plan.rest else need)
    return state._replace(history=History(places, rewards), visible=visible, shown=shown)
