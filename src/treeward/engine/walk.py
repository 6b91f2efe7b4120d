"""One decision for one user: walk to an item. The kernels behind every policy.

HCB descends from the root to a leaf, one decision a level, then takes an item of the leaf; pHCB takes one of the user's
visible nodes, then an item under it. Flat, CB-Category and CB-Leaf are HCB on other trees. `Beam` follows several nodes
at once (see `treeward.engine.beam`) and decides among the items it comes to.
"""

import numpy as np

from treeward.core import rng
from treeward.core.compiled import apart, inner, whole
from treeward.engine.available import Screen, clear, left, nth, opened
from treeward.engine.beam import choose_found
from treeward.engine.explore import GREEDY_LINEAR, GREEDY_MEAN, Candidates, best_of, best_scored
from treeward.engine.history import tally
from treeward.engine.layout import Plan, State
from treeward.engine.replay import holder, leaf_at
from treeward.engine.sampling import (
    EXPLORES,
    HALF,
    ITEM,
    ROUND,
    STEP,
    best_known,
    copy,
    cost,
    gather,
    sample,
    with_shortlist,
)
from treeward.engine.trace import Trace, tell, weigh


@apart
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
) -> tuple[int, int, int, int]:
    """Choose an item: return its place, the node it was taken from, how many scores and multiplications that took.

    The place is -1 if the screen lets nothing through.
    """
    first_child = plan.tree.first_child
    counter = nonce * ROUND
    trace.steps[0] = 0
    trace.aside[0] = trace.bold[0] = False
    total = len(plan.items) if clear(screen) else left(screen, 0, len(plan.items))
    if total <= 0:
        return -1, -1, 0, 0
    explores = plan.rules.explore >= 1.0 or rng.uniform(seed, stream, counter + EXPLORES) < plan.rules.explore
    if len(plan.search.width) > 0:
        return choose_found(plan, state, seat, total, screen, explores, seed, stream, counter, candidates, trace)
    node, scores, work = 0, 0, 0
    if plan.personal:
        first, last = whole(0), whole(state.visible.length[seat])
        node, scores, work = _choose_node(
            plan, state, seat, first, last, screen, explores, seed, stream, counter, candidates, trace
        )
    else:
        while first_child[node] < first_child[node + 1]:
            first, last = whole(first_child[node]), whole(first_child[node + 1])
            node, spent, more = _choose_node(
                plan, state, seat, first, last, screen, explores, seed, stream, counter, candidates, trace
            )
            scores += spent
            work += more
            counter += STEP
    counter = nonce * ROUND + ITEM
    place, node, spent, more = _choose_item(
        plan, state, seat, node, screen, explores, seed, stream, counter, candidates, trace
    )
    return place, node, scores + spent, work + more


@inner
def _choose_node(
    plan: Plan,
    state: State,
    seat: int,
    first: int,
    last: int,
    screen: Screen,
    explores: bool,
    seed: int,
    stream: int,
    counter: int,
    candidates: Candidates,
    trace: Trace,
) -> tuple[int, int, int]:
    """Choose among the nodes first:last, or, in a personal plan, among the visible nodes of those numbers."""
    tree, arm = plan.tree, candidates.arm
    count, total = _gather_nodes(plan, state, seat, first, last, screen, seed, stream, counter, candidates)
    if count == 1:
        tell(trace, candidates, 1, total, 0, 1.0, 1.0)
        return arm[0], 0, 0
    counter += HALF
    if first == 1 and not plan.personal and len(plan.watched) > 0:  # the root's children, whose scores are kept up
        for i in range(count):
            candidates.mean[i] = state.board.mean[seat, arm[i] - 1]
            candidates.width[i] = np.sqrt(max(state.board.square[seat, arm[i] - 1], np.float32(0.0)))
            candidates.factor[i], candidates.bonus[i] = np.float32(1.0), np.float32(0.0)
        chosen = best_known(plan, count, explores, candidates, seed, stream, counter)
        weigh(plan, state.posterior.theta[seat, 0], candidates, chosen, count, total, seed, stream, counter, trace)
        return arm[chosen], count, 0
    for i in range(count):
        node = arm[i]
        copy(plan.nodes[node], candidates.vectors[i])
        candidates.factor[i] = tree.level[node] if plan.by_level else 1.0
        candidates.bonus[i] = 0.0
        if plan.kind == GREEDY_MEAN:
            candidates.visits[i], candidates.rewards[i] = tally(
                state.history, seat, tree.item_range[node, 0], tree.item_range[node, 1]
            )
    slot = 0 if plan.personal else tree.level[first] - 2
    inverse, theta = state.posterior.inverse[seat, slot], state.posterior.theta[seat, slot]
    x = candidates.vectors[:count]
    chosen = best_of(plan.kind, plan.strength, inverse, theta, x, candidates, seed, stream, counter)
    if not explores:
        chosen = best_scored(GREEDY_LINEAR, 0.0, count, candidates, seed, stream, counter)
    weigh(plan, theta, candidates, chosen, count, total, seed, stream, counter, trace)
    return arm[chosen], count, cost(plan.kind, count, len(theta))


@inner
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


@inner
def _choose_item(
    plan: Plan,
    state: State,
    seat: int,
    node: int,
    screen: Screen,
    explores: bool,
    seed: int,
    stream: int,
    counter: int,
    candidates: Candidates,
    trace: Trace,
) -> tuple[int, int, int, int]:
    """Choose among items under a node, and the user's shortlist; return also the node that the item is then of."""
    arm = candidates.arm
    begin, end = plan.tree.item_range[node, 0], plan.tree.item_range[node, 1]
    plain = clear(screen)
    total = end - begin if plain else left(screen, begin, end)
    drawn = min(total, plan.item_budget)
    if drawn == total:
        opened(screen, begin, end, arm)
    else:
        sample(arm, drawn, total, seed, stream, counter)
        for i in range(drawn):
            arm[i] = begin + arm[i] if plain else nth(screen, begin, end, arm[i])
    count = with_shortlist(state.short, seat, screen, candidates, drawn)
    if count == 1:
        tell(trace, candidates, 1, total, 0, 1.0, 1.0)
        return arm[0], node, 0, 0
    counter += HALF
    chosen, work = _best_item(plan, state, seat, count, explores, candidates, seed, stream, counter)
    theta = state.posterior.theta[seat, state.posterior.theta.shape[1] - 1]
    weigh(plan, theta, candidates, chosen, count, total + count - drawn, seed, stream, counter, trace)
    if chosen >= drawn:  # from the shortlist: it is taken from wherever it lies
        trace.aside[0] = True
        node = leaf_at(plan.tree, arm[chosen])
        if plan.personal:
            node = state.visible.values[state.visible.start[seat] + holder(plan, state, seat, arm[chosen])]
    return arm[chosen], node, count, work


@inner
def _best_item(
    plan: Plan,
    state: State,
    seat: int,
    count: int,
    explores: bool,
    candidates: Candidates,
    seed: int,
    stream: int,
    counter: int,
) -> tuple[int, int]:
    """Return which of the candidates, all of them items, to take, and the multiplications that took."""
    arm, slot = candidates.arm, state.posterior.theta.shape[1] - 1
    if slot == 0 and len(plan.watched) > 0:
        for i in range(count):
            candidates.mean[i] = state.board.mean[seat, arm[i]]
            candidates.width[i] = np.sqrt(max(state.board.square[seat, arm[i]], np.float32(0.0)))
            candidates.factor[i], candidates.bonus[i] = np.float32(1.0), np.float32(0.0)
        return best_known(plan, count, explores, candidates, seed, stream, counter), 0
    inverse, theta = state.posterior.inverse[seat, slot], state.posterior.theta[seat, slot]
    gather(plan, state, seat, count, candidates)
    x = candidates.vectors[:count]
    chosen = best_of(plan.kind, plan.strength, inverse, theta, x, candidates, seed, stream, counter)
    if not explores:
        chosen = best_scored(GREEDY_LINEAR, 0.0, count, candidates, seed, stream, counter)
    return chosen, cost(plan.kind, count, len(theta))
