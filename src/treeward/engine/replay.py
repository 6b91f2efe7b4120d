"""What a user's events do to their state. The kernels behind every policy."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.compiled import apart, inner, inner_apart, inner_apart_summing, kernel, tight, whole
from treeward.core.types import Floats, Integers, TreeArrays
from treeward.engine.explore import dot
from treeward.engine.history import History, amend, record, tally
from treeward.engine.layout import Board, Plan, State
from treeward.engine.posterior import BLOCK, REFRESH, correct, fade, learn, observe, refresh, reset, spread
from treeward.engine.ragged import insert, push, widened
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


@kernel
def sit(plan: Plan, state: State, seat: int) -> None:
    """Seat a user nothing is known of."""
    reset(state.posterior, seat, plan.prior)
    for i in range(len(plan.board.mean)):
        state.board.mean[seat, i] = plan.board.mean[i]
        state.board.square[seat, i] = plan.board.square[i]
    state.history.places.length[seat] = 0
    state.shown.length[seat] = 0
    state.short.length[seat] = 0
    if plan.personal:
        start = state.visible.start[seat]
        state.visible.length[seat] = len(plan.start)
        for i in range(len(plan.start)):
            state.visible.values[start + i] = plan.start[i]


@kernel
def sit_all(plan: Plan, state: State, seats: NDArray[np.int64]) -> None:
    """Seat several users nothing is known of."""
    for i in range(len(seats)):
        sit(plan, state, seats[i])


def absorb(plan: Plan, state: State, seats: NDArray[np.int64], ends: NDArray[np.int64], events: Events) -> State:
    """Apply events ends[i]:ends[i + 1] to seat i, in order, and return the state, with more room where needed."""
    done, until = ends[:-1].copy(), np.zeros(state.posterior.pulls.shape[1], dtype=np.int64)
    z = np.empty(2 * plan.items.shape[1], dtype=np.float32)
    while (stuck := _replay_all(plan, state, seats, ends, events, done, until, z)) >= 0:
        state = _widen(plan, state, int(seats[stuck]), int(ends[stuck + 1] - done[stuck]))
    return state


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
def _replay_all(
    plan: Plan,
    state: State,
    seats: NDArray[np.int64],
    ends: NDArray[np.int64],
    events: Events,
    done: NDArray[np.int64],
    until: NDArray[np.int64],
    z: Floats,
) -> int:
    """Replay one user's events after another's, from where each one's `done` is; return who lacks room, or -1.

    The result is the same to the bit whether events come one by one or together, but together they come faster: what
    lies before the last refresh of a slot goes into A and b alone. `until` and `z` are room to work in.
    """
    for user in range(len(seats)):
        seat = seats[user]
        _count(plan, state, seat, events, done[user], ends[user + 1], until)
        for i in range(done[user], ends[user + 1]):
            place, node, done[user] = whole(events.place[i]), whole(events.node[i]), i + 1
            if place < 0:
                continue
            at = holder(plan, state, seat, place)
            if not _fits(plan, state, seat, at):
                done[user] = i
                return user
            if plan.once:
                _close(plan, state, seat, place, events.kind[i])
            gate = whole(events.gate[i]) if len(events.gate) > 0 else -1
            if events.kind[i] == REWARD:
                teach(plan, state, seat, place, at, node, gate, events.reward[i], until, z)
            elif events.kind[i] == CHANGE:
                _mend(plan, state, seat, place, at, node, gate, events.reward[i], z)
    return -1


@inner
def _count(
    plan: Plan, state: State, seat: int, events: Events, first: int, last: int, until: NDArray[np.int64]
) -> None:
    """Find out up to how many observations each slot need not be kept up: to its last refresh among these events."""
    until[:] = 0
    if last - first <= 1:
        return
    for i in range(first, last):
        if events.place[i] >= 0 and events.kind[i] == REWARD:
            until[len(until) - 1] += 1
            if plan.personal:
                until[0] += 1
            elif len(plan.search.width) == 0:
                node = leaf_of(plan.tree, events.place[i], events.node[i])
                for slot in range(plan.tree.level[node] - 1):
                    until[slot] += 1
    every = BLOCK if plan.rules.keep < 1.0 else REFRESH
    for slot in range(len(until)):
        until[slot] += state.posterior.pulls[seat, slot]
        until[slot] -= until[slot] % every


@inner
def _fits(plan: Plan, state: State, seat: int, at: int) -> bool:
    """Tell whether an event on an item under the visible node `at` is sure to find room."""
    places, shown, visible = state.history.places, state.shown, state.visible
    if plan.remembers and places.length[seat] >= places.room[seat]:
        return False
    if plan.once and shown.length[seat] >= shown.room[seat] and not 0 < plan.rest <= shown.room[seat]:
        return False
    if plan.personal:
        node = visible.values[visible.start[seat] + at]
        children = plan.tree.first_child[node + 1] - plan.tree.first_child[node]
        return bool(visible.length[seat] + children <= visible.room[seat] + 1)
    return True


@inner
def teach(
    plan: Plan,
    state: State,
    seat: int,
    place: int,
    at: int,
    node: int,
    gate: int,
    reward: float,
    until: NDArray[np.int64],
    z: Floats,
) -> None:
    """Learn a reward for the item at `place`, taken from `node`: it goes to the item and every node on its path.

    `at` is the item's `holder`, `gate` the request's; `until` says up to how many observations a slot is not kept up
    (see `_replay_all`); `z` is room to work in, twice d.
    """
    items, dim = state.posterior.theta.shape[1] - 1, plan.items.shape[1]
    x, z = z[dim:], z[:dim]
    node = _taken_from(plan, state, seat, place, at, node)
    if plan.personal:
        _through(plan.nodes[node], plan.gates, gate, x)
        _add(plan, state, seat, whole(0), x, reward, until, z)
    elif len(plan.search.width) == 0:
        while node > 0:
            _through(plan.nodes[node], plan.gates, gate, x)
            _add(plan, state, seat, whole(plan.tree.level[node]) - 2, x, reward, until, z)
            node = whole(plan.tree.parent[node])
    _through(plan.items[place], plan.gates, gate, x)
    _add(plan, state, seat, items, x, reward, until, z)
    if plan.remembers:
        record(state.history, seat, place, reward)
    if plan.rules.shortlist > 0:
        _shortlist(plan, state, seat, place)
    if plan.personal:
        _expand(plan, state, seat, at)


@inner
def _through(vector: Floats, gates: Floats, gate: int, x: Floats) -> None:
    """Write a vector as a request saw it."""
    for j in range(len(x)):
        x[j] = vector[j] * gates[gate, j] if gate >= 0 else vector[j]


@inner_apart
def _shortlist(plan: Plan, state: State, seat: int, place: int) -> None:
    """Keep the items that earned most when shown, one more reward of 1 and one of 0 granted to each."""
    start, count = state.short.start[seat], state.short.length[seat]
    worst, lowest = -1, _served(state, seat, place)
    for i in range(start, start + count):
        if state.short.values[i] == place:
            return
        served = _served(state, seat, state.short.values[i])
        if served < lowest:
            worst, lowest = i, served
    if count < plan.rules.shortlist:
        worst, state.short.length[seat] = start + count, count + 1
    if worst >= 0:
        state.short.values[worst] = place


@inner
def _served(state: State, seat: int, place: int) -> float:
    visits, total = tally(state.history, seat, place, place + 1)
    return (total + 1.0) / (visits + 2.0)


@inner
def _close(plan: Plan, state: State, seat: int, place: int, kind: int) -> None:
    """Count a place among those shown; where they come back after a while, feedback does not make it the last."""
    start, count = state.shown.start[seat], state.shown.length[seat]
    if plan.rest > 0:
        most = min(plan.rest, state.shown.room[seat])
        if kind == SHOWN:
            state.shown.length[seat] = push(state.shown.values[start : start + most], count, place)
    else:
        state.shown.length[seat] = insert(state.shown.values[start : start + count + 1], count, place)


@inner_apart
def _mend(
    plan: Plan, state: State, seat: int, place: int, at: int, node: int, gate: int, change: float, z: Floats
) -> None:
    """Change the reward of an earlier event by so much."""
    items, dim = state.posterior.theta.shape[1] - 1, plan.items.shape[1]
    x, z = z[dim:], z[:dim]
    node = _taken_from(plan, state, seat, place, at, node)
    if plan.personal:
        _through(plan.nodes[node], plan.gates, gate, x)
        correct(state.posterior, seat, 0, x, change, z)
    elif len(plan.search.width) == 0:
        while node > 0:
            slot = plan.tree.level[node] - 2
            _through(plan.nodes[node], plan.gates, gate, x)
            correct(state.posterior, seat, slot, x, change, z)
            if slot == 0 and len(plan.watched) > 0:
                _shift_board(plan.watched, state.board, seat, z, np.float32(0.0), np.float32(change))
            node = plan.tree.parent[node]
    _through(plan.items[place], plan.gates, gate, x)
    correct(state.posterior, seat, items, x, change, z)
    if items == 0 and len(plan.watched) > 0:
        _shift_board(plan.watched, state.board, seat, z, np.float32(0.0), np.float32(change))
    amend(state.history, seat, place, change)
    if plan.rules.shortlist > 0:
        _shortlist(plan, state, seat, place)
    if plan.personal:
        _expand(plan, state, seat, at)


@inner
def _taken_from(plan: Plan, state: State, seat: int, place: int, at: int, node: int) -> int:
    if plan.personal:
        return node if node >= 0 else int(state.visible.values[state.visible.start[seat] + at])
    return leaf_of(plan.tree, place, node)


@inner
def _add(
    plan: Plan, state: State, seat: int, slot: int, x: Floats, reward: float, until: NDArray[np.int64], z: Floats
) -> None:
    """Add one observation to a slot; before `until` its A^-1 and theta are not kept up, at `until` they are made."""
    posterior, keep = state.posterior, plan.rules.keep
    board = slot == 0 and len(plan.watched) > 0
    if posterior.pulls[seat, slot] < until[slot]:
        observe(posterior, seat, slot, x, reward)
        if keep < 1.0 and posterior.pulls[seat, slot] % BLOCK == 0:
            fade(posterior, seat, slot, plan.prior, keep)
        if posterior.pulls[seat, slot] == until[slot]:
            refresh(posterior, seat, slot)
            if board:
                _count_board(plan.watched, state.board, seat, posterior.inverse[seat, 0], posterior.theta[seat, 0], z)
        return
    scale, surprise = learn(posterior, seat, slot, x, reward, z)
    anew = posterior.pulls[seat, slot] % REFRESH == 0
    if keep < 1.0 and posterior.pulls[seat, slot] % BLOCK == 0:
        fade(posterior, seat, slot, plan.prior, keep)
        refresh(posterior, seat, slot)
        anew = True
    if board:
        if anew:
            _count_board(plan.watched, state.board, seat, posterior.inverse[seat, 0], posterior.theta[seat, 0], z)
        else:
            _shift_board(plan.watched, state.board, seat, z, scale, surprise)


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


@tight
def leaf_at(tree: TreeArrays, place: int) -> int:
    """Return the leaf that holds a place."""
    node = 0
    while tree.first_child[node] < tree.first_child[node + 1]:
        low, high = tree.first_child[node], tree.first_child[node + 1] - 1
        while low < high:
            middle = (low + high + 1) // 2
            if tree.item_range[middle, 0] <= place:
                low = middle
            else:
                high = middle - 1
        node = low
    return node


@inner
def leaf_of(tree: TreeArrays, place: int, node: int) -> int:
    """Return the leaf a place was reached through: `node`, unless that is none, or an inner node of pHCB's."""
    if node >= 0 and tree.first_child[node] == tree.first_child[node + 1]:
        return node
    return leaf_at(tree, place)


@tight
def holder(plan: Plan, state: State, seat: int, place: int) -> int:
    """Return which of the visible nodes, which stand in the order of their items, holds a place; else 0."""
    if not plan.personal:
        return 0
    start = state.visible.start[seat]
    low, high = 0, state.visible.length[seat] - 1
    while low < high:
        middle = (low + high + 1) // 2
        if plan.tree.item_range[state.visible.values[start + middle], 0] <= place:
            low = middle
        else:
            high = middle - 1
    return low


@inner_apart
def _expand(plan: Plan, state: State, seat: int, at: int) -> None:
    """Replace the visible node `at` by its children, if it has earned it."""
    start = state.visible.start[seat]
    visible = state.visible.values[start : start + state.visible.room[seat]]
    node = visible[at]
    first, last = plan.tree.first_child[node], plan.tree.first_child[node + 1]
    if first == last:
        return
    visits, total = tally(state.history, seat, plan.tree.item_range[node, 0], plan.tree.item_range[node, 1])
    level = plan.tree.level[node]
    mean = total / visits
    enough = mean > plan.need_mean[level] or (plan.at_least and mean == plan.need_mean[level])
    if visits < plan.need_visits[level] or not enough:
        return
    more = last - first - 1
    count = state.visible.length[seat]
    for i in range(count - 1, at, -1):
        visible[i + more] = visible[i]
    for i in range(last - first):
        visible[at + i] = first + i
    state.visible.length[seat] = count + more
