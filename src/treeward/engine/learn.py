"""Learning about items: what one reward changes in a user's state, and the replay of many events."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.compiled import inner, kernel, whole
from treeward.core.types import Floats, Integers
from treeward.engine.crowd import offset_of
from treeward.engine.history import History, amend, record, tally
from treeward.engine.layout import Lesson, Numbers, Plan
from treeward.engine.posterior import BLOCK, REFRESH, Posterior, begin, correct, fade, move, observe, pack, refresh
from treeward.engine.ragged import Lists, insert, push
from treeward.store.events import CHANGE, REWARD, SHOWN


class Events(NamedTuple):
    """Events of users, in terms of a plan: places instead of items."""

    kind: NDArray[np.uint8]
    """SHOWN, REWARD or CHANGE."""
    place: Integers
    """Of the item; -1: the catalogue no longer has it."""
    node: Integers
    """The node that the item was taken from; -1: the node that holds it now."""
    reward: NDArray[np.float64]
    gate: Integers = np.zeros(0, dtype=np.int32)
    """Index of the request's context in the plan's `gates`; -1: none. Empty: no event has a context."""


class Desk(NamedTuple):
    """Working memory for learning."""

    until: NDArray[np.int64]
    """(slots,): A^-1 and theta of a slot are left alone until it has this many observations, then computed."""
    x: Floats
    """(d,): the vector of the observation, in the request's context."""
    z: Floats
    """(d,): A^-1 x."""

    @classmethod
    def empty(cls, plan: Plan) -> "Desk":
        """Return working memory for a plan, set to update A^-1 and theta with every observation."""
        x, z = np.zeros((2, plan.items.shape[1]), dtype=np.float32)
        return cls(np.zeros(plan.slots, dtype=np.int64), x, z)


@kernel(allocates=False)
def replay_items(
    lesson: Lesson,
    posterior: Posterior,
    history: History,
    shown: Lists,
    short: Lists,
    seats: NDArray[np.int64],
    ends: NDArray[np.int64],
    events: Events,
    done: NDArray[np.int64],
    desk: Desk,
) -> int:
    """Replay events user by user, from `done` on. Return the index of a user whose seat needs more room, or -1."""
    for user in range(len(seats)):
        seat, first, last = seats[user], done[user], ends[user + 1]
        desk.until[0], teaches = 0, False
        for i in range(first, last):
            desk.until[0] += events.place[i] >= 0 and events.kind[i] == REWARD
            teaches = teaches or events.kind[i] != SHOWN
        round_down(lesson.numbers.keep, posterior, seat, desk.until)
        begin(posterior, seat, desk.until, first == ends[user], teaches)
        done[user] = _replay_user(lesson, posterior, history, shown, short, seat, first, last, events, desk)
        pack(posterior, seat, teaches)
        if done[user] < last:
            return user
    return -1


@inner(inline=False)
def _replay_user(
    lesson: Lesson,
    posterior: Posterior,
    history: History,
    shown: Lists,
    short: Lists,
    seat: int,
    first: int,
    last: int,
    events: Events,
    desk: Desk,
) -> int:
    """Replay events of one user. Return the first that there is no room for, or `last`."""
    numbers = lesson.numbers
    for i in range(first, last):
        place, kind = whole(events.place[i]), whole(events.kind[i])
        if place < 0:
            continue
        if not has_room(numbers, history, shown, seat):
            return i
        if numbers.once:
            close(numbers.rest, shown, seat, place, kind)
        gate = whole(events.gate[i]) if len(events.gate) > 0 else -1
        if kind == REWARD:
            learn_item(lesson, posterior, history, short, seat, place, gate, events.reward[i], desk)
        elif kind == CHANGE:
            apply_gate(lesson.items[place], lesson.gates, gate, desk.x)
            correct(posterior, seat, whole(0), desk.x, events.reward[i], desk.z)
            amend(history, seat, place, events.reward[i])
            if numbers.shortlist > 0:
                shortlist(numbers.shortlist, history, short, seat, place)
    return last


@kernel(allocates=False)
def close_shown(rest: int, shown: Lists, seats: NDArray[np.int64], places: Integers) -> None:
    """Close the places that were just shown, as a replay of exposures would; there must be room."""
    for i in range(len(seats)):
        for j in range(places.shape[1]):
            if places[i, j] >= 0:
                close(rest, shown, seats[i], whole(places[i, j]), whole(SHOWN))


@inner
def learn_item(
    lesson: Lesson,
    posterior: Posterior,
    history: History,
    short: Lists,
    seat: int,
    place: int,
    gate: int,
    reward: float,
    desk: Desk,
) -> None:
    """Learn a reward for the item at `place`, in the context `gate`."""
    numbers = lesson.numbers
    apply_gate(lesson.items[place], lesson.gates, gate, desk.x)
    own = reward - offset_of(lesson.offset, place)
    add(numbers.keep, posterior, seat, posterior.theta.shape[1] - 1, own, desk)
    if numbers.remembers:
        record(history, seat, place, reward)
    if numbers.shortlist > 0:
        shortlist(numbers.shortlist, history, short, seat, place)


@inner
def round_down(keep: float, posterior: Posterior, seat: int, until: NDArray[np.int64]) -> None:
    """Turn the number of coming observations into the count at a slot's last refresh; 0: there is none."""
    every = BLOCK if keep < 1.0 else REFRESH
    for slot in range(len(until)):
        if until[slot] > 0:
            until[slot] += posterior.pulls[seat, slot]
            until[slot] -= until[slot] % every


@inner
def has_room(numbers: Numbers, history: History, shown: Lists, seat: int) -> bool:
    """Return whether there is room for one more event."""
    if numbers.remembers and history.places.length[seat] >= history.places.capacity[seat]:
        return False
    full = shown.length[seat] >= shown.capacity[seat]
    return not (numbers.once and full and not 0 < numbers.rest <= shown.capacity[seat])


@inner
def apply_gate(vector: Floats, gates: Floats, gate: int, x: Floats) -> None:
    """Write a vector in the context `gate` into `x`."""
    for j in range(len(x)):
        x[j] = vector[j] * gates[gate, j] if gate >= 0 else vector[j]


@inner(inline=False)
def shortlist(most: int, history: History, short: Lists, seat: int, place: int) -> None:
    """Keep the items with the highest mean reward, with one reward of 1 and one of 0 added to each."""
    start, count = short.start[seat], short.length[seat]
    worst, lowest = -1, _smoothed_mean(history, seat, place)
    for i in range(start, start + count):
        other = whole(short.values[i])
        if other == place:
            return
        served = _smoothed_mean(history, seat, other)
        if served < lowest:
            worst, lowest = i, served
    if count < most:
        worst, short.length[seat] = start + count, count + 1
    if worst >= 0:
        short.values[worst] = place


@inner
def _smoothed_mean(history: History, seat: int, place: int) -> float:
    visits, total = tally(history, seat, place, place + 1)
    return (total + 1.0) / (visits + 2.0)


@inner
def close(rest: int, shown: Lists, seat: int, place: int, kind: int) -> None:
    """Add a place to those shown. Where items come back after a while, only exposures move it to the end."""
    start, count = shown.start[seat], shown.length[seat]
    if rest > 0:
        most = min(rest, shown.capacity[seat])
        if kind == SHOWN:
            shown.length[seat] = push(shown.values[start : start + most], count, place)
    else:
        shown.length[seat] = insert(shown.values[start : start + count + 1], count, place)


WAITS, MADE, MOVED = range(3)
"""What one more observation does to A^-1 and theta: nothing yet, recomputed from A and b, or a rank-1 move."""


@inner(inline=False)
def add(
    keep: float, posterior: Posterior, seat: int, slot: int, reward: float, desk: Desk
) -> tuple[int, np.float32, np.float32]:
    """Add the observation on the desk to a slot. Return what happened to A^-1; for a move, its scale and surprise."""
    scale, surprise, how = np.float32(0.0), np.float32(0.0), MOVED
    if posterior.pulls[seat, slot] < desk.until[slot]:
        observe(posterior, seat, slot, desk.x, reward)
        how = MADE if posterior.pulls[seat, slot] == desk.until[slot] else WAITS
    else:
        scale, surprise = move(posterior, seat, slot, desk.x, reward, desk.z)
        how = MADE if posterior.pulls[seat, slot] % REFRESH == 0 else MOVED
    if keep < 1.0 and posterior.pulls[seat, slot] % BLOCK == 0:
        fade(posterior, seat, slot, keep)
        how = MADE if how == MOVED else how
    if how == MADE:
        refresh(posterior, seat, slot)
    return how, scale, surprise
