"""One decision for one user: walk to an item. The kernels behind every policy.

HCB descends from the root to a leaf, one decision a level, then takes an item of the leaf; pHCB takes one of the user's
visible nodes, then an item under it. Flat, CB-Category and CB-Leaf are HCB on other trees.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.bandit.choose import Candidates, best_of, best_scored, chance_of
from treeward.bandit.rules import GREEDY_MEAN
from treeward.core import rng
from treeward.core.compiled import tight
from treeward.core.types import Floats
from treeward.policy.history import tally
from treeward.policy.plan import Plan, State
from treeward.policy.screen import Screen, clear, left, nth

# A round owns 2**20 counters of the user's stream: 16 steps of 2**16, half to sample candidates and half for the rule.
_ROUND, _STEP, _HALF = 1 << 20, 1 << 16, 1 << 15
MOST_STEPS = 16
MOST_SCORES = _HALF


class Trace(NamedTuple):
    """How a decision was made, step by step, if it is to be told; the last step is the item's."""

    steps: NDArray[np.int64]
    """(1,): how many."""
    seen: NDArray[np.int64]
    """(steps,): arms that were considered ..."""
    total: NDArray[np.int64]
    """(steps,): ... of so many."""
    chosen: NDArray[np.int64]
    """(steps,): which of them was taken."""
    chance: NDArray[np.float64]
    """(steps,): the probability of the one taken, among the arms considered."""
    arm: NDArray[np.int64]
    """(steps, most): the nodes, or places at the last step, that were considered; there may be no room for them."""
    mean: Floats
    """(steps, most): their estimates, where more than one was considered."""

    @classmethod
    def empty(cls, steps: int = 0, most: int = 0) -> "Trace":
        """Return room for a trace: none, the steps alone, or the arms of every step as well."""
        numbers, arms = np.zeros((3, steps), dtype=np.int64), np.zeros((steps, most), dtype=np.int64)
        means = np.zeros((steps, most), dtype=np.float32)
        one = np.zeros(1, dtype=np.int64)
        return cls(one, numbers[0], numbers[1], numbers[2], np.zeros(steps), arms, means)


@tight
def decide(
    plan: Plan,
    state: State,
    seat: int,
    screen: Screen,
    seed: int,
    stream: int,
    nonce: int,
    candidates: Candidates,
    trace: Trace,
) -> tuple[int, int, int]:
    """Choose an item: return its place, the node it was taken from, and how many scores that took.

    The place is -1 if the screen lets nothing through.
    """
    first_child = plan.tree.first_child
    counter = nonce * _ROUND
    trace.steps[0] = 0
    if not clear(screen) and left(screen, 0, len(plan.items)) <= 0:
        return -1, -1, 0
    node, scores = 0, 0
    if plan.personal:
        node, spent = _choose_node(
            plan, state, seat, 0, state.visible.length[seat], screen, seed, stream, counter, candidates, trace
        )
        scores += spent
    else:
        while first_child[node] < first_child[node + 1]:
            first, last = first_child[node], first_child[node + 1]
            node, spent = _choose_node(plan, state, seat, first, last, screen, seed, stream, counter, candidates, trace)
            scores += spent
            counter += _STEP
    counter = nonce * _ROUND + (MOST_STEPS - 1) * _STEP
    place, spent = _choose_item(plan, state, seat, node, screen, seed, stream, counter, candidates, trace)
    return place, node, scores + spent


@tight
def _choose_node(
    plan: Plan,
    state: State,
    seat: int,
    first: int,
    last: int,
    screen: Screen,
    seed: int,
    stream: int,
    counter: int,
    candidates: Candidates,
    trace: Trace,
) -> tuple[int, int]:
    """Choose among the nodes first:last, or, in a personal plan, among the visible nodes of those numbers."""
    tree, arm = plan.tree, candidates.arm
    count, total = _gather_nodes(plan, state, seat, first, last, screen, seed, stream, counter, candidates)
    if count == 1:
        _tell(trace, candidates, 1, total, 0, 1.0)
        return arm[0], 0
    counter += _HALF
    if first == 1 and len(plan.board.mean) > 0:  # the root's children, whose scores are kept up
        for i in range(count):
            candidates.mean[i] = state.board.mean[seat, arm[i] - 1]
            candidates.width[i] = np.sqrt(max(state.board.square[seat, arm[i] - 1], np.float32(0.0)))
            candidates.factor[i] = np.float32(1.0)
        chosen = best_scored(plan.kind, plan.strength, count, candidates, seed, stream, counter)
        _weigh(plan, state.posterior.theta[seat, 0], candidates, chosen, count, total, seed, stream, counter, trace)
        return arm[chosen], count
    for i in range(count):
        node = arm[i]
        _copy(tree.vectors[node], candidates.vectors[i])
        candidates.factor[i] = tree.level[node] if plan.by_level else 1.0
        if plan.kind == GREEDY_MEAN:
            candidates.visits[i], candidates.rewards[i] = tally(
                state.history, seat, tree.item_range[node, 0], tree.item_range[node, 1]
            )
    slot = 0 if plan.personal else tree.level[first] - 2
    inverse, theta = state.posterior.inverse[seat, slot], state.posterior.theta[seat, slot]
    x = candidates.vectors[:count]
    chosen = best_of(plan.kind, plan.strength, inverse, theta, x, candidates, seed, stream, counter)
    _weigh(plan, theta, candidates, chosen, count, total, seed, stream, counter, trace)
    return arm[chosen], count


@tight
def _gather_nodes(
    plan: Plan,
    state: State,
    seat: int,
    first: int,
    last: int,
    screen: Screen,
    seed: int,
    stream: int,
    counter: int,
    candidates: Candidates,
) -> tuple[int, int]:
    """Draw the candidates among nodes that have something to show: return how many, and of how many."""
    arm, usable = candidates.arm, candidates.usable
    total, offset, visible = last - first, first, state.visible.values
    if plan.personal:
        offset = state.visible.start[seat]
    plain = clear(screen)
    if not plain:
        total = 0
        for i in range(offset, offset + last - first):
            node = visible[i] if plan.personal else i
            if left(screen, plan.tree.item_range[node, 0], plan.tree.item_range[node, 1]) > 0:
                usable[total] = i
                total += 1
    count = min(total, plan.node_budget)
    sample(arm, count, total, seed, stream, counter)
    for i in range(count):
        at = offset + arm[i] if plain else usable[arm[i]]
        arm[i] = visible[at] if plan.personal else at
    return count, total


@tight
def _choose_item(
    plan: Plan,
    state: State,
    seat: int,
    node: int,
    screen: Screen,
    seed: int,
    stream: int,
    counter: int,
    candidates: Candidates,
    trace: Trace,
) -> tuple[int, int]:
    arm = candidates.arm
    begin, end = plan.tree.item_range[node, 0], plan.tree.item_range[node, 1]
    plain = clear(screen)
    total = end - begin if plain else left(screen, begin, end)
    count = min(total, plan.item_budget)
    sample(arm, count, total, seed, stream, counter)
    for i in range(count):
        arm[i] = begin + arm[i] if plain else nth(screen, begin, end, arm[i])
    if count == 1:
        _tell(trace, candidates, 1, total, 0, 1.0)
        return arm[0], 0
    for i in range(count):
        _copy(plan.items[arm[i]], candidates.vectors[i])
        candidates.factor[i] = 1.0
        if plan.kind == GREEDY_MEAN:
            candidates.visits[i], candidates.rewards[i] = tally(state.history, seat, arm[i], arm[i] + 1)
    slot = state.posterior.theta.shape[1] - 1
    inverse, theta = state.posterior.inverse[seat, slot], state.posterior.theta[seat, slot]
    counter += _HALF
    x = candidates.vectors[:count]
    chosen = best_of(plan.kind, plan.strength, inverse, theta, x, candidates, seed, stream, counter)
    _weigh(plan, theta, candidates, chosen, count, total, seed, stream, counter, trace)
    return arm[chosen], count


@tight
def _weigh(
    plan: Plan,
    theta: Floats,
    candidates: Candidates,
    chosen: int,
    count: int,
    total: int,
    seed: int,
    stream: int,
    counter: int,
    trace: Trace,
) -> None:
    """Tell a step, with the probability of what it chose, if it is to be told."""
    if len(trace.seen) > 0:
        x = candidates.vectors[:count]
        chance = chance_of(chosen, plan.kind, plan.strength, theta, x, candidates, seed, stream, counter)
        _tell(trace, candidates, count, total, chosen, chance)


@tight
def _tell(trace: Trace, candidates: Candidates, count: int, total: int, chosen: int, chance: float) -> None:
    step = trace.steps[0]
    if step >= len(trace.seen):
        return
    trace.steps[0] = step + 1
    trace.seen[step], trace.total[step], trace.chosen[step], trace.chance[step] = count, total, chosen, chance
    for i in range(min(count, trace.arm.shape[1])):
        trace.arm[step, i] = candidates.arm[i]
        trace.mean[step, i] = candidates.mean[i]


@tight
def _copy(source: Floats, target: Floats) -> None:
    for j in range(len(source)):
        target[j] = source[j]


@tight
def sample(out: NDArray[np.int64], count: int, total: int, seed: int, stream: int, counter: int) -> None:
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
