"""What a user's events do to their state: replay, and learning from one reward. Beams learn from items alone."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.compiled import apart, inner, inner_apart, inner_apart_summing, whole
from treeward.core.types import Floats, Integers
from treeward.engine.explore import dot
from treeward.engine.history import History, amend, record, tally
from treeward.engine.layout import Board, Lesson, Numbers, Paths, Plan, State
from treeward.engine.places import holder, leaf_of
from treeward.engine.posterior import (
    BLOCK,
    REFRESH,
    Posterior,
    Start,
    correct,
    fade,
    move,
    observe,
    refresh,
    reset,
    spread,
)
from treeward.engine.ragged import Lists, insert, push, widened
from treeward.store.events import CHANGE, REWARD, SHOWN


class Events(NamedTuple):
    """A user's events as a plan sees them."""

    kind: NDArray[np.uint8]
    """SHOWN, REWARD or CHANGE."""
    place: Integers
    """Of the item, in leaf order; -1 if the item is gone."""
    node: Integers
    """The node the item was taken from; -1: whichever would have been."""
    reward: NDArray[np.float64]
    gate: Integers = np.zeros(0, dtype=np.int32)
    """Which of the plan's gates was the request's; -1: none. Empty: none of them had one."""


class Desk(NamedTuple):
    """Room to learn in."""

    until: NDArray[np.int64]
    """(slots,): up to so many observations A^-1 and theta of a slot are not kept up; at so many they are made."""
    x: Floats
    """(d,): the vector learned from, as the request saw it."""
    z: Floats
    """(d,): A^-1 x."""

    @classmethod
    def empty(cls, plan: Plan) -> "Desk":
        """Return room for a plan; as it is, A^-1 and theta are always kept up."""
        x, z = np.zeros((2, plan.items.shape[1]), dtype=np.float32)
        return cls(np.zeros(plan.slots, dtype=np.int64), x, z)


def sit_all(plan: Plan, state: State, seats: NDArray[np.int64]) -> None:
    """Seat users nothing is known of."""
    reset(state.posterior, seats, plan.prior)
    state.board.mean[seats], state.board.square[seats] = plan.board.mean, plan.board.square
    for lists in (state.history.places, state.shown, state.short):
        lists.length[seats] = 0
    if plan.personal:
        state.visible.length[seats] = len(plan.start)
        at = state.visible.start[seats][:, np.newaxis] + np.arange(len(plan.start))
        state.visible.values[at] = plan.start


def sit(plan: Plan, state: State, seat: int) -> None:
    """Seat one user nothing is known of."""
    sit_all(plan, state, np.array([seat], dtype=np.int64))


def absorb(plan: Plan, state: State, seats: NDArray[np.int64], ends: NDArray[np.int64], events: Events) -> State:
    """Apply events ends[i]:ends[i + 1] to seat i, in order, and return the state, with more room where needed.

    The result is the same to the bit whether events come one by one or together, but together they come faster: what
    lies before the last refresh of a slot goes into A and b alone.
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
    """Return the state with room in a seat for so many events, and for the children of one more node."""
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


@apart
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
    """Replay one user's events after another's, from where each one's `done` is; return who lacks room, or -1."""
    numbers = lesson.numbers
    for user in range(len(seats)):
        seat, first, last = seats[user], done[user], ends[user + 1]
        desk.until[0] = 0
        for i in range(first, last if last - first > 1 else first):
            desk.until[0] += events.place[i] >= 0 and events.kind[i] == REWARD
        _round_down(numbers.keep, posterior, seat, desk.until)
        for i in range(first, last):
            place, kind, done[user] = whole(events.place[i]), whole(events.kind[i]), i + 1
            if place < 0:
                continue
            if not _fits(numbers, history, shown, seat):
                done[user] = i
                return user
            if numbers.once:
                _close(numbers.rest, shown, seat, place, kind)
            gate = whole(events.gate[i]) if len(events.gate) > 0 else -1
            if kind == REWARD:
                teach_item(lesson, posterior, history, short, seat, place, gate, events.reward[i], desk)
            elif kind == CHANGE:
                _through(lesson.items[place], lesson.gates, gate, desk.x)
                correct(posterior, seat, whole(0), desk.x, events.reward[i], desk.z)
                amend(history, seat, place, events.reward[i])
                if numbers.shortlist > 0:
                    _shortlist(numbers.shortlist, history, short, seat, place)
    return -1


@inner
def teach_item(
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
    """Learn a reward for the item at `place`, in a request that told `gate`."""
    numbers = lesson.numbers
    _through(lesson.items[place], lesson.gates, gate, desk.x)
    _add(lesson.prior, numbers.keep, posterior, seat, posterior.theta.shape[1] - 1, reward, desk)
    if numbers.remembers:
        record(history, seat, place, reward)
    if numbers.shortlist > 0:
        _shortlist(numbers.shortlist, history, short, seat, place)


@apart
def replay_paths(
    lesson: Lesson,
    paths: Paths,
    posterior: Posterior,
    history: History,
    shown: Lists,
    short: Lists,
    board: Board,
    visible: Lists,
    seats: NDArray[np.int64],
    ends: NDArray[np.int64],
    events: Events,
    done: NDArray[np.int64],
    desk: Desk,
) -> int:
    """Do as `replay_items` does where rewards also teach nodes."""
    numbers = lesson.numbers
    for user in range(len(seats)):
        seat = seats[user]
        _count(numbers.personal, paths, events, done[user], ends[user + 1], desk.until)
        _round_down(numbers.keep, posterior, seat, desk.until)
        for i in range(done[user], ends[user + 1]):
            place, kind, done[user] = whole(events.place[i]), whole(events.kind[i]), i + 1
            if place < 0:
                continue
            at = holder(paths.item_range, visible, seat, place) if numbers.personal else 0
            if not _fits(numbers, history, shown, seat) or (
                numbers.personal and not _expandable(paths.first_child, visible, seat, at)
            ):
                done[user] = i
                return user
            if numbers.once:
                _close(numbers.rest, shown, seat, place, kind)
            gate = whole(events.gate[i]) if len(events.gate) > 0 else -1
            if REWARD <= kind <= CHANGE:
                teach_path(
                    lesson, paths, posterior, history, short, board, visible, seat, place, at, whole(events.node[i]),
                    gate, kind, events.reward[i], desk,
                )  # fmt: skip
    return -1


@inner
def teach_path(
    lesson: Lesson,
    paths: Paths,
    posterior: Posterior,
    history: History,
    short: Lists,
    board: Board,
    visible: Lists,
    seat: int,
    place: int,
    at: int,
    node: int,
    gate: int,
    kind: int,
    reward: float,
    desk: Desk,
) -> None:
    """Learn a reward for the item at `place`, taken from `node`: it goes to the item and every node on its path.

    `at` is the item's `holder`, `gate` what the request told. `kind`: REWARD, or CHANGE, where the reward of an
    earlier event changes by so much.
    """
    numbers, slot = lesson.numbers, posterior.theta.shape[1] - 1
    node = _taken_from(numbers.personal, paths, visible, seat, place, at, node)
    _through(lesson.items[place], lesson.gates, gate, desk.x)
    while slot >= 0:  # the item, then the nodes from below
        if kind == CHANGE:
            correct(posterior, seat, slot, desk.x, reward, desk.z)
            how, scale, surprise = MOVED, np.float32(0.0), np.float32(reward)
        else:
            how, scale, surprise = _add(lesson.prior, numbers.keep, posterior, seat, slot, reward, desk)
        if slot == 0 and numbers.watches:
            _keep_board(paths.watched, board, posterior, seat, how, scale, surprise, desk.z)
        slot = -1
        if node >= 0:
            slot = 0 if numbers.personal else paths.level[node] - 2
            _through(paths.nodes[node], lesson.gates, gate, desk.x)
            node = -1 if numbers.personal or paths.parent[node] == 0 else paths.parent[node]
    if kind == CHANGE:
        amend(history, seat, place, reward)
    elif numbers.remembers:
        record(history, seat, place, reward)
    if numbers.shortlist > 0:
        _shortlist(numbers.shortlist, history, short, seat, place)
    if numbers.personal:
        _expand(numbers.at_least, paths, history, visible, seat, at)


@inner
def _taken_from(personal: bool, paths: Paths, visible: Lists, seat: int, place: int, at: int, node: int) -> int:
    """Return the first node that learns of an item; -1: none does."""
    if personal:
        return node if node >= 0 else whole(visible.values[visible.start[seat] + at])
    leaf = leaf_of(paths.first_child, paths.item_range, place, node)
    return leaf if leaf > 0 else -1  # nothing is learned at the root


@inner
def _count(personal: bool, paths: Paths, events: Events, first: int, last: int, until: NDArray[np.int64]) -> None:
    """Count the observations that these events bring to each slot."""
    for slot in range(len(until)):
        until[slot] = 0
    for i in range(first, last if last - first > 1 else first):
        if events.place[i] >= 0 and events.kind[i] == REWARD:
            until[len(until) - 1] += 1
            if personal:
                until[0] += 1
            else:
                place, node = whole(events.place[i]), whole(events.node[i])
                node = leaf_of(paths.first_child, paths.item_range, place, node)
                for slot in range(paths.level[node] - 1):
                    until[slot] += 1


@inner
def _round_down(keep: float, posterior: Posterior, seat: int, until: NDArray[np.int64]) -> None:
    """Make of what comes the number up to which a slot need not be kept up: its last refresh, or 0."""
    every = BLOCK if keep < 1.0 else REFRESH
    for slot in range(len(until)):
        if until[slot] > 0:
            until[slot] += posterior.pulls[seat, slot]
            until[slot] -= until[slot] % every


@inner
def _fits(numbers: Numbers, history: History, shown: Lists, seat: int) -> bool:
    """Tell whether one more event is sure to find room."""
    if numbers.remembers and history.places.length[seat] >= history.places.room[seat]:
        return False
    full = shown.length[seat] >= shown.room[seat]
    return not (numbers.once and full and not 0 < numbers.rest <= shown.room[seat])


@inner
def _expandable(first_child: Integers, visible: Lists, seat: int, at: int) -> bool:
    """Tell whether the children of the visible node `at` are sure to find room."""
    node = visible.values[visible.start[seat] + at]
    children = first_child[node + 1] - first_child[node]
    return bool(visible.length[seat] + children <= visible.room[seat] + 1)


@inner
def _through(vector: Floats, gates: Floats, gate: int, x: Floats) -> None:
    """Write a vector as a request saw it."""
    for j in range(len(x)):
        x[j] = vector[j] * gates[gate, j] if gate >= 0 else vector[j]


@inner_apart
def _shortlist(most: int, history: History, short: Lists, seat: int, place: int) -> None:
    """Keep the items that earned most when shown, one more reward of 1 and one of 0 granted to each."""
    start, count = short.start[seat], short.length[seat]
    worst, lowest = -1, _served(history, seat, place)
    for i in range(start, start + count):
        other = whole(short.values[i])
        if other == place:
            return
        served = _served(history, seat, other)
        if served < lowest:
            worst, lowest = i, served
    if count < most:
        worst, short.length[seat] = start + count, count + 1
    if worst >= 0:
        short.values[worst] = place


@inner
def _served(history: History, seat: int, place: int) -> float:
    visits, total = tally(history, seat, place, place + 1)
    return (total + 1.0) / (visits + 2.0)


@inner
def _close(rest: int, shown: Lists, seat: int, place: int, kind: int) -> None:
    """Count a place among those shown; where they come back after a while, feedback does not make it the last."""
    start, count = shown.start[seat], shown.length[seat]
    if rest > 0:
        most = min(rest, shown.room[seat])
        if kind == SHOWN:
            shown.length[seat] = push(shown.values[start : start + most], count, place)
    else:
        shown.length[seat] = insert(shown.values[start : start + count + 1], count, place)


WAITS, MADE, MOVED = range(3)
"""What becomes of A^-1 and theta of a slot with one more observation: nothing yet, computed from A and b, or moved."""


@inner_apart
def _add(
    prior: Start, keep: float, posterior: Posterior, seat: int, slot: int, reward: float, desk: Desk
) -> tuple[int, np.float32, np.float32]:
    """Add the observation on the desk to a slot: return what became of A^-1, and, if it was moved, by how much."""
    scale, surprise, how = np.float32(0.0), np.float32(0.0), MOVED
    if posterior.pulls[seat, slot] < desk.until[slot]:
        observe(posterior, seat, slot, desk.x, reward)
        how = MADE if posterior.pulls[seat, slot] == desk.until[slot] else WAITS
    else:
        scale, surprise = move(posterior, seat, slot, desk.x, reward, desk.z)
        how = MADE if posterior.pulls[seat, slot] % REFRESH == 0 else MOVED
    if keep < 1.0 and posterior.pulls[seat, slot] % BLOCK == 0:
        fade(posterior, seat, slot, prior, keep)
        how = MADE if how == MOVED else how
    if how == MADE:
        refresh(posterior, seat, slot)
    return how, scale, surprise


@inner_apart
def _keep_board(
    watched: Floats,
    board: Board,
    posterior: Posterior,
    seat: int,
    how: int,
    scale: np.float32,
    surprise: np.float32,
    z: Floats,
) -> None:
    """Keep up the means and widths of what is watched, after slot 0 has learned."""
    if how == MADE:
        _count_board(watched, board, seat, posterior.inverse[seat, 0], posterior.theta[seat, 0], z)
    elif how == MOVED:
        _shift_board(watched, board, seat, z, scale, surprise)


@inner_apart_summing
def _shift_board(watched: Floats, board: Board, seat: int, z: Floats, scale: np.float32, surprise: np.float32) -> None:
    for arm in range(len(watched)):
        x, along = watched[arm], np.float32(0.0)
        for i in range(len(z)):
            along += x[i] * z[i]
        board.mean[seat, arm] += along * surprise
        board.square[seat, arm] -= along * along * scale


@inner_apart
def _count_board(watched: Floats, board: Board, seat: int, inverse: Floats, theta: Floats, z: Floats) -> None:
    for arm in range(len(watched)):
        board.mean[seat, arm] = dot(watched[arm], theta)
        board.square[seat, arm] = spread(inverse, watched[arm], z)


@inner_apart
def _expand(at_least: bool, paths: Paths, history: History, lists: Lists, seat: int, at: int) -> None:
    """Replace the visible node `at` by its children, if it has earned it."""
    start = lists.start[seat]
    visible = lists.values[start : start + lists.room[seat]]
    node = visible[at]
    first, last = paths.first_child[node], paths.first_child[node + 1]
    if first == last:
        return
    begin, end = whole(paths.item_range[node, 0]), whole(paths.item_range[node, 1])
    visits, total = tally(history, seat, begin, end)
    level = paths.level[node]
    mean = total / visits
    enough = mean > paths.need_mean[level] or (at_least and mean == paths.need_mean[level])
    if visits < paths.need_visits[level] or not enough:
        return
    more = last - first - 1
    count = lists.length[seat]
    for i in range(count - 1, at, -1):
        visible[i + more] = visible[i]
    for i in range(last - first):
        visible[at + i] = first + i
    lists.length[seat] = count + more
