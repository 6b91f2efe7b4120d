"""Learning about paths: a reward also teaches the nodes above its item, and may open a visible node of pHCB."""

import numpy as np
from numpy.typing import NDArray

from treeward.core.compiled import inner, kernel, whole
from treeward.core.types import Floats, Integers
from treeward.engine.crowd import offset_of
from treeward.engine.explore import dot
from treeward.engine.history import History, amend, record, tally
from treeward.engine.layout import Board, Lesson, Paths
from treeward.engine.learn import MADE, MOVED, Desk, Events, add, apply_gate, close, has_room, round_down, shortlist
from treeward.engine.places import holder, leaf_of
from treeward.engine.posterior import Posterior, begin, correct, pack, row_of, spread
from treeward.engine.ragged import Lists
from treeward.store.events import CHANGE, REWARD, SHOWN


@kernel(allocates=False)
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
    """Replay events like `replay_items`, for policies whose rewards also teach nodes."""
    for user in range(len(seats)):
        seat, first, last = seats[user], done[user], ends[user + 1]
        teaches = _count(lesson.numbers.personal, paths, events, first, last, desk.until)
        round_down(lesson.numbers.keep, posterior, seat, desk.until)
        begin(posterior, seat, desk.until, first == ends[user], teaches)
        done[user] = _replay_user(
            lesson, paths, posterior, history, shown, short, board, visible, seat, first, last, events, desk
        )
        pack(posterior, seat, teaches)
        if done[user] < last:
            return user
    return -1


@inner(inline=False)
def _replay_user(
    lesson: Lesson,
    paths: Paths,
    posterior: Posterior,
    history: History,
    shown: Lists,
    short: Lists,
    board: Board,
    visible: Lists,
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
        at = holder(paths.item_range, visible, seat, place) if numbers.personal else 0
        if not has_room(numbers, history, shown, seat) or (
            numbers.personal and not _expandable(paths.first_child, visible, seat, at)
        ):
            return i
        if numbers.once:
            close(numbers.rest, shown, seat, place, kind)
        gate = whole(events.gate[i]) if len(events.gate) > 0 else -1
        if REWARD <= kind <= CHANGE:
            learn_path(
                lesson, paths, posterior, history, short, board, visible, seat, place, at, whole(events.node[i]),
                gate, kind, events.reward[i], desk,
            )  # fmt: skip
    return last


@inner
def learn_path(
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
    """Learn a reward for the item at `place`, taken from `node`, at the item and at every node on its path.

    `at` is the item's `holder`, `gate` the request's context. If `kind` is CHANGE, `reward` is the change of an earlier
    event's reward.
    """
    numbers, slot = lesson.numbers, posterior.theta.shape[1] - 1
    node = _taken_from(numbers.personal, paths, visible, seat, place, at, node)
    apply_gate(lesson.items[place], lesson.gates, gate, desk.x)
    known = offset_of(lesson.offset, place)
    while slot >= 0:  # the item first, then the nodes from the leaf up
        if kind == CHANGE:
            correct(posterior, seat, slot, desk.x, reward, desk.z)
            how, scale, surprise = MOVED, np.float32(0.0), np.float32(reward)
        else:
            how, scale, surprise = add(numbers.keep, posterior, seat, slot, reward - known, desk)
        if slot == 0 and numbers.watches:
            _keep_board(paths.watched, board, posterior, seat, how, scale, surprise, desk.z)
        slot = -1
        if node >= 0:
            slot = 0 if numbers.personal else paths.level[node] - 2
            apply_gate(paths.nodes[node], lesson.gates, gate, desk.x)
            known = offset_of(paths.offset, node)
            node = -1 if numbers.personal or paths.parent[node] == 0 else paths.parent[node]
    if kind == CHANGE:
        amend(history, seat, place, reward)
    elif numbers.remembers:
        record(history, seat, place, reward)
    if numbers.shortlist > 0:
        shortlist(numbers.shortlist, history, short, seat, place)
    if numbers.personal:
        _expand(numbers.at_least, paths, history, visible, seat, at)


@inner
def _taken_from(personal: bool, paths: Paths, visible: Lists, seat: int, place: int, at: int, node: int) -> int:
    """Return the lowest node that learns from a reward; -1: none."""
    if personal:
        return node if node >= 0 else whole(visible.values[visible.start[seat] + at])
    leaf = leaf_of(paths.first_child, paths.item_range, place, node)
    return leaf if leaf > 0 else -1  # the root has no parameters


@inner
def _count(personal: bool, paths: Paths, events: Events, first: int, last: int, until: NDArray[np.int64]) -> bool:
    """Write how many observations these events add to each slot. Return whether there are rewards among them."""
    teaches = False
    for slot in range(len(until)):
        until[slot] = 0
    for i in range(first, last):
        teaches = teaches or events.kind[i] != SHOWN
        if events.place[i] >= 0 and events.kind[i] == REWARD:
            until[len(until) - 1] += 1
            if personal:
                until[0] += 1
            else:
                place, node = whole(events.place[i]), whole(events.node[i])
                node = leaf_of(paths.first_child, paths.item_range, place, node)
                for slot in range(paths.level[node] - 1):
                    until[slot] += 1
    return teaches


@inner
def _expandable(first_child: Integers, visible: Lists, seat: int, at: int) -> bool:
    """Return whether there is room for the children of the visible node `at`."""
    node = visible.values[visible.start[seat] + at]
    children = first_child[node + 1] - first_child[node]
    return bool(visible.length[seat] + children <= visible.capacity[seat] + 1)


@inner(inline=False)
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
    """Update the board after slot 0 has learned."""
    if how == MADE:
        inverse = posterior.inverse[row_of(posterior.packed, seat), 0]
        _count_board(watched, board, seat, inverse, posterior.theta[seat, 0], z)
    elif how == MOVED:
        _shift_board(watched, board, seat, z, scale, surprise)


@inner(sums=True, inline=False)
def _shift_board(watched: Floats, board: Board, seat: int, z: Floats, scale: np.float32, surprise: np.float32) -> None:
    for arm in range(len(watched)):
        x, along = watched[arm], np.float32(0.0)
        for i in range(len(z)):
            along += x[i] * z[i]
        board.mean[seat, arm] += along * surprise
        board.square[seat, arm] -= along * along * scale


@inner(inline=False)
def _count_board(watched: Floats, board: Board, seat: int, inverse: Floats, theta: Floats, z: Floats) -> None:
    for arm in range(len(watched)):
        board.mean[seat, arm] = dot(watched[arm], theta)
        board.square[seat, arm] = spread(inverse, watched[arm], z)


@inner(inline=False)
def _expand(at_least: bool, paths: Paths, history: History, lists: Lists, seat: int, at: int) -> None:
    """Replace the visible node `at` by its children if its visits and mean reward suffice."""
    start = lists.start[seat]
    visible = lists.values[start : start + lists.capacity[seat]]
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
