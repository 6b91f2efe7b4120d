"""One round for one user: walk to an item, learn from its reward. The kernels behind every policy.

HCB descends from the root to a leaf, one decision a level, then takes an item of the leaf; pHCB takes one of the user's
visible nodes, then an item under it. Flat, CB-Category and CB-Leaf are HCB on other trees.
"""

import numpy as np

from treeward.bandit.choose import Candidates, best_of
from treeward.bandit.posterior import learn, reset
from treeward.bandit.rules import GREEDY_MEAN
from treeward.core import rng
from treeward.core.compiled import kernel
from treeward.core.types import Floats, Integers
from treeward.policy.history import first_at, open_place, record, tally
from treeward.policy.plan import Plan, State

# A round owns 2**20 counters of the user's stream: 16 steps of 2**16, half to sample candidates and half for the rule.
_ROUND, _STEP, _HALF = 1 << 20, 1 << 16, 1 << 15
MOST_STEPS = 16
MOST_SCORES = _HALF


@kernel
def sit(plan: Plan, state: State, seat: int) -> None:
    """Seat a user nothing is known of."""
    reset(state.posterior, seat, plan.ridge)
    state.history.length[seat] = 0
    state.open[seat] = len(plan.start)
    state.visible[seat, : len(plan.start)] = plan.start


@kernel
def decide(
    plan: Plan,
    state: State,
    seat: int,
    closed: Integers,
    shut: int,
    seed: int,
    stream: int,
    nonce: int,
    candidates: Candidates,
) -> tuple[int, int, int, int]:
    """Choose an item: return its place, the node it was taken from, how many scores that took, and its candidate.

    The candidate is -1 if there was only one, which is then not scored.
    The first `shut` of the sorted, distinct `closed` places are not to be shown. The place is -1 if nothing is left.
    """
    first_child, item_range = plan.tree.first_child, plan.tree.item_range
    counter = nonce * _ROUND
    if item_range[0, 1] - shut <= 0:
        return -1, -1, 0, -1
    node, scores = 0, 0
    if plan.personal:
        node, spent = _choose_node(
            plan, state, seat, 0, state.open[seat], closed, shut, seed, stream, counter, candidates
        )
        scores += spent
    else:
        while first_child[node] < first_child[node + 1]:
            first, last = first_child[node], first_child[node + 1]
            node, spent = _choose_node(plan, state, seat, first, last, closed, shut, seed, stream, counter, candidates)
            scores += spent
            counter += _STEP
    place, spent, chosen = _choose_item(
        plan, state, seat, node, closed, shut, seed, stream, nonce * _ROUND + (MOST_STEPS - 1) * _STEP, candidates
    )
    return place, node, scores + spent, chosen


@kernel
def _choose_node(
    plan: Plan,
    state: State,
    seat: int,
    first: int,
    last: int,
    closed: Integers,
    shut: int,
    seed: int,
    stream: int,
    counter: int,
    candidates: Candidates,
) -> tuple[int, int]:
    """Choose among the nodes first:last, or, in a personal plan, among the visible nodes of those numbers."""
    tree = plan.tree
    total = last - first
    usable = np.empty(0, dtype=np.int64)
    if shut > 0:
        usable = np.empty(total, dtype=np.int64)
        total = 0
        for i in range(first, last):
            node = state.visible[seat, i] if plan.personal else i
            begin, end = tree.item_range[node, 0], tree.item_range[node, 1]
            if shut < end - begin or first_at(closed, shut, end) - first_at(closed, shut, begin) < end - begin:
                usable[total] = i
                total += 1
    count = min(total, plan.node_budget)
    _sample(candidates.arm, count, total, seed, stream, counter)
    for i in range(count):
        at = usable[candidates.arm[i]] if shut > 0 else first + candidates.arm[i]
        candidates.arm[i] = state.visible[seat, at] if plan.personal else at
    if count == 1:
        return candidates.arm[0], 0
    whole = count == last - first and not plan.personal
    for i in range(count):
        node = candidates.arm[i]
        if not whole:
            _copy(tree.vectors, node, candidates.vectors, i)
        candidates.factor[i] = tree.level[node] if plan.by_level else 1.0
        if plan.kind == GREEDY_MEAN:
            candidates.visits[i], candidates.rewards[i] = tally(
                state.history, seat, tree.item_range[node, 0], tree.item_range[node, 1]
            )
    slot = 0 if plan.personal else tree.level[candidates.arm[0]] - 2
    inverse, theta = state.posterior.inverse[seat, slot], state.posterior.theta[seat, slot]
    if whole:  # all children, which lie side by side: no copy
        x = tree.vectors[first:last]
        chosen = best_of(plan.kind, plan.strength, inverse, theta, x, candidates, seed, stream, counter + _HALF)
    else:
        picked = candidates.vectors[:count]
        chosen = best_of(plan.kind, plan.strength, inverse, theta, picked, candidates, seed, stream, counter + _HALF)
    return candidates.arm[chosen], count


@kernel
def _copy(source: Floats, row: int, target: Floats, at: int) -> None:
    for j in range(source.shape[1]):
        target[at, j] = source[row, j]


@kernel
def _choose_item(
    plan: Plan,
    state: State,
    seat: int,
    node: int,
    closed: Integers,
    shut: int,
    seed: int,
    stream: int,
    counter: int,
    candidates: Candidates,
) -> tuple[int, int, int]:
    begin, end = plan.tree.item_range[node, 0], plan.tree.item_range[node, 1]
    total = end - begin
    if shut > 0:
        total -= first_at(closed, shut, end) - first_at(closed, shut, begin)
    count = min(total, plan.item_budget)
    _sample(candidates.arm, count, total, seed, stream, counter)
    for i in range(count):
        rank = candidates.arm[i]
        candidates.arm[i] = open_place(closed, shut, begin, rank) if shut > 0 else begin + rank
    if count == 1:
        return candidates.arm[0], 0, -1
    for i in range(count):
        place = candidates.arm[i]
        _copy(plan.items, place, candidates.vectors, i)
        candidates.factor[i] = 1.0
        if plan.kind == GREEDY_MEAN:
            candidates.visits[i], candidates.rewards[i] = tally(state.history, seat, place, place + 1)
    slot = state.posterior.theta.shape[1] - 1
    chosen = best_of(
        plan.kind,
        plan.strength,
        state.posterior.inverse[seat, slot],
        state.posterior.theta[seat, slot],
        candidates.vectors[:count],
        candidates,
        seed,
        stream,
        counter + _HALF,
    )
    return candidates.arm[chosen], count, chosen


@kernel
def _sample(out: np.ndarray, count: int, total: int, seed: int, stream: int, counter: int) -> None:
    """Write `count` of the numbers below `total`: all of them in order, or a uniform sample (Floyd's)."""
    if count == total:
        for i in range(count):
            out[i] = i
        return
    for i in range(count):
        last = total - count + i
        drawn = rng.below(seed, stream, counter + i, last + 1)
        for j in range(i):
            if out[j] == drawn:
                drawn = last
                break
        out[i] = drawn


@kernel
def update(plan: Plan, state: State, seat: int, place: int, node: int, reward: float) -> None:
    """Learn a reward for the item at `place`, taken from `node`: it goes to the item and every node on its path."""
    items = state.posterior.theta.shape[1] - 1
    if plan.personal:
        learn(state.posterior, seat, 0, plan.tree.vectors[node], reward)
    else:
        while node > 0:
            learn(state.posterior, seat, plan.tree.level[node] - 2, plan.tree.vectors[node], reward)
            node = plan.tree.parent[node]
    learn(state.posterior, seat, items, plan.items[place], reward)
    if plan.personal or plan.once or plan.kind == GREEDY_MEAN:
        record(state.history, seat, place, reward)
    if plan.personal:
        _expand(plan, state, seat, place)


@kernel
def holder(plan: Plan, state: State, seat: int, place: int) -> int:
    """Return which of the visible nodes, which stand in the order of their items, holds a place."""
    low, high = 0, state.open[seat] - 1
    while low < high:
        middle = (low + high + 1) // 2
        if plan.tree.item_range[state.visible[seat, middle], 0] <= place:
            low = middle
        else:
            high = middle - 1
    return low


@kernel
def _expand(plan: Plan, state: State, seat: int, place: int) -> None:
    """Replace the visible node that holds `place` by its children, if it has earned it."""
    visible = state.visible[seat]
    at = holder(plan, state, seat, place)
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
    count = state.open[seat]
    for i in range(count - 1, at, -1):
        visible[i + more] = visible[i]
    for i in range(last - first):
        visible[at + i] = first + i
    state.open[seat] = count + more
