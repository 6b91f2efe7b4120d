"""The entry for learning: apply events to the state of users. One reward and a whole log take the same way."""

import numpy as np
from numpy.typing import NDArray

from treeward.core.types import AnyArray, Integers
from treeward.engine.history import History
from treeward.engine.layout import Plan, State
from treeward.engine.learn import Desk, Events, close_shown, replay_items
from treeward.engine.learn_paths import replay_paths
from treeward.engine.posterior import BLOCK, REFRESH, Posterior, reset
from treeward.engine.ragged import Lists, widened

__all__ = ["Events", "add_shown", "apply_events", "copy_users", "need_replay", "reset_user", "reset_users"]


def reset_users(plan: Plan, state: State, seats: NDArray[np.int64]) -> None:
    """Reset seats to new users."""
    reset(state.posterior, seats, plan.prior)
    state.board.mean[seats], state.board.square[seats] = plan.board.mean, plan.board.square
    for lists in (state.history.places, state.shown, state.short, state.visible):
        lists.clear(seats)
    if plan.personal:
        state.visible.length[seats] = len(plan.start)
        at = state.visible.start[seats][:, np.newaxis] + np.arange(len(plan.start))
        state.visible.values[at] = plan.start


def reset_user(plan: Plan, state: State, seat: int) -> None:
    """Reset one seat to a new user."""
    reset_users(plan, state, np.array([seat], dtype=np.int64))


def need_replay(
    plan: Plan, posterior: Posterior, seats: NDArray[np.int64], coming: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return of which seats all events must be replayed: they are compact, and `coming` events may need their sums."""
    pulls, every = posterior.pulls[seats], BLOCK if plan.rules.keep < 1.0 else REFRESH
    needs = (pulls > 0) & (pulls % every + coming[:, np.newaxis] >= every)
    return np.asarray(needs.any(axis=1) & posterior.compact)


def apply_events(plan: Plan, state: State, seats: NDArray[np.int64], ends: NDArray[np.int64], events: Events) -> State:
    """Apply events ends[i]:ends[i + 1] to seat i, in order. Return the state, with more room where it was needed.

    The result is bit-identical whether events come one by one or together. Together they are faster: those before the
    last refresh of a slot only enter the sums A and b.
    """
    done, desk, lesson = ends[:-1].copy(), Desk.empty(plan), plan.lesson
    paths = None if plan.beams else plan.paths
    for user in _too_narrow(plan, state, seats, np.diff(ends)):  # before, as a stuck replay begins again
        state = _widen(plan, state, int(seats[user]), int(ends[user + 1] - ends[user]))
    while True:
        what = state.posterior, state.history, state.shown, state.short
        if paths is None:
            stuck = replay_items(lesson, *what, seats, ends, events, done, desk)
        else:
            stuck = replay_paths(lesson, paths, *what, state.board, state.visible, seats, ends, events, done, desk)
        if stuck < 0:
            return state
        state = _widen(plan, state, int(seats[stuck]), int(ends[stuck + 1] - done[stuck]))


def add_shown(plan: Plan, state: State, seats: NDArray[np.int64], places: Integers) -> State:
    """Apply exposures of items at `places`, (seats, n), where items rest. It is `apply_events`, but faster."""
    coming = np.full(len(seats), places.shape[1])
    for user in _too_narrow(plan, state, seats, coming):
        state = _widen(plan, state, int(seats[user]), places.shape[1])
    close_shown(plan.rest, state.shown, seats, places)
    return state


def copy_users(plan: Plan, source: State, target: State, seats: NDArray[np.int64]) -> State:
    """Copy the users in the first seats of a compact state to these seats of another one, which were reset.

    Return the other state, with more room where it was needed.
    """
    count = len(seats)
    for name in ("packed", "theta", "pulls"):
        getattr(target.posterior, name)[seats] = getattr(source.posterior, name)[:count]
    target.board.mean[seats], target.board.square[seats] = source.board.mean[:count], source.board.square[:count]
    places, rewards = target.history
    visible, shown, short = target.visible, target.shown, target.short
    for i, seat in enumerate(seats.tolist()):
        if plan.remembers:
            places, [rewards] = _copied(source.history.places, i, places, seat, (source.history.rewards, rewards))
        if plan.personal:
            visible, _ = _copied(source.visible, i, visible, seat)
        if plan.once:
            shown, _ = _copied(source.shown, i, shown, seat)
        if plan.rules.shortlist:
            short, _ = _copied(source.short, i, short, seat)
    return target._replace(history=History(places, rewards), visible=visible, shown=shown, short=short)


def _copied(
    source: Lists, at: int, target: Lists, seat: int, *parallel: tuple[AnyArray, AnyArray]
) -> tuple[Lists, list[AnyArray]]:
    """Copy a list to a seat of other lists; `parallel`: arrays parallel to the values of both."""
    first, length = int(source.start[at]), int(source.length[at])
    target, others = widened(target, seat, length, *(array for _, array in parallel))
    start = int(target.start[seat])
    arrays = [(source.values, target.values), *((mine, its) for (mine, _), its in zip(parallel, others, strict=True))]
    for mine, its in arrays:
        its[start : start + length] = mine[first : first + length]
    target.length[seat] = length
    return target, others


def _too_narrow(plan: Plan, state: State, seats: NDArray[np.int64], coming: NDArray[np.int64]) -> list[int]:
    """Return which seats may lack room for their coming events."""
    narrow = np.zeros(len(seats), dtype=np.bool_)
    for wanted, lists in ((plan.remembers, state.history.places), (plan.once, state.shown)):
        if wanted:
            narrow |= lists.length[seats] + coming > lists.capacity[seats]
    found: list[int] = np.flatnonzero(narrow).tolist()
    return found


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
