"""A walk to an item, one choice per level: HCB, pHCB and the policies that are HCB on other trees.

HCB descends from the root to a leaf, then takes an item of the leaf; pHCB takes one of the user's visible nodes, then
an item under it. Flat, CB-Category and CB-Leaf are HCB on other trees.
"""

import numpy as np

from treeward.core.compiled import inner, kernel, whole
from treeward.core.types import AnyArray, Floats
from treeward.engine.available import Screen, clear, left, nth, opened
from treeward.engine.batch import Batch, close_taken, close_unavailable, describe_choice
from treeward.engine.crowd import offset_of
from treeward.engine.explore import GREEDY_MEAN, Belief, Candidates, Draws
from treeward.engine.history import tally
from treeward.engine.layout import Board, Known, WalkArrays, Walked
from treeward.engine.places import holder, leaf_at
from treeward.engine.posterior import row_of, unpack
from treeward.engine.sampling import (
    HALF,
    ITEM,
    ROUND,
    STEP,
    best_gathered,
    best_known,
    copy,
    cost,
    gather,
    later,
    may_explore,
    sample,
    with_shortlist,
)
from treeward.engine.trace import Trace, begin_trace, record_choice, record_step


@kernel(allocates=False)
def choose_by_walk(
    walk: WalkArrays,
    known: Known,
    walked: Walked,
    batch: Batch,
    slots: int,
    diverse: bool,
    screen: Screen,
    seed: int,
    candidates: Candidates,
    trace: Trace,
    out: AnyArray,
) -> None:
    """Decide `slots` times for each user of a batch, like `choose_by_beam`."""
    for i in range(len(batch.seat)):
        seat, first = batch.seat[i], i * slots
        unpack(known.packed, known.inverse, seat)
        for at in range(first, first + slots):
            if at == first or (diverse and left(screen, whole(0), len(walk.items)) <= 0):
                close_unavailable(known.shown, walk.numbers, batch, i, screen, out, first, at)
            made, nonce = out[at], batch.nonce[i] + at - first
            draws = Draws(seed, batch.stream[i], nonce * ROUND)
            place, node, scores, work = decide(walk, known, walked, seat, screen, draws, candidates, trace)
            made["nonce"], made["place"], made["node"], made["scores"], made["work"] = nonce, place, node, scores, work
            made["item"] = walk.rows[place] if place >= 0 else -1
            if place >= 0:
                describe_choice(walk.numbers, walk.crowd, known, seat, walk.items[place], candidates, trace, made)
                if slots > 1:
                    close_taken(walk.first_child, walk.item_range, place, diverse, screen)


@inner(inline=False)
def decide(
    walk: WalkArrays,
    known: Known,
    walked: Walked,
    seat: int,
    screen: Screen,
    draws: Draws,
    candidates: Candidates,
    trace: Trace,
) -> tuple[int, int, int, int]:
    """Choose an item. Return its place, the node it was taken from, and the scores and multiplications that it took.

    The place is -1 if nothing is open.
    """
    begin_trace(trace)
    total = len(walk.items) if clear(screen) else left(screen, whole(0), len(walk.items))
    if total <= 0:
        return -1, -1, 0, 0
    explores, personal = may_explore(walk.numbers, draws), walk.numbers.personal
    node, scores, work, step = whole(0), 0, 0, draws
    inside = personal or walk.first_child[0] < walk.first_child[1]
    while inside:
        node, spent, more = _choose_node(walk, known, walked, seat, node, screen, explores, step, candidates, trace)
        scores += spent
        work += more
        step = later(step, STEP)
        inside = not personal and walk.first_child[node] < walk.first_child[node + 1]
    step = later(draws, ITEM)
    place, node, spent, more = _choose_item(walk, known, walked, seat, node, screen, explores, step, candidates, trace)
    return place, node, scores + spent, work + more


@inner
def _choose_node(
    walk: WalkArrays,
    known: Known,
    walked: Walked,
    seat: int,
    above: int,
    screen: Screen,
    explores: bool,
    draws: Draws,
    candidates: Candidates,
    trace: Trace,
) -> tuple[int, int, int]:
    """Choose among the children of a node; in a personal plan, among the visible nodes."""
    arm, numbers = candidates.arm, walk.numbers
    count, total = _gather_nodes(walk, walked, seat, above, screen, draws, candidates)
    if count == 1:
        record_step(trace, candidates, count, total, whole(0), 1.0, 1.0)
        return arm[0], 0, 0
    draws = later(draws, HALF)
    slot = 0 if numbers.personal else walk.level[arm[0]] - 2
    belief, work = Belief(known.inverse[row_of(known.packed, seat), slot], known.theta[seat, slot], walk.crowd.root), 0
    if above == 0 and numbers.watches:  # the root's children are on the board
        _read_board(walked.board, seat, count, whole(1), walk.crowd.node_offset, walk.crowd.node_bonus, candidates)
        chosen = best_known(numbers, count, explores, candidates, draws)
    else:
        for i in range(count):
            node = arm[i]
            copy(walk.nodes[node], candidates.vectors[i])
            candidates.factor[i] = walk.level[node] if numbers.by_level else 1.0
            candidates.bonus[i] = offset_of(walk.crowd.node_bonus, node)
            candidates.offset[i] = offset_of(walk.crowd.node_offset, node)
            if numbers.kind == GREEDY_MEAN:
                first, last = whole(walk.item_range[node, 0]), whole(walk.item_range[node, 1])
                candidates.visits[i], candidates.rewards[i] = tally(known.history, seat, first, last)
        chosen = best_gathered(numbers, belief, count, explores, candidates, draws)
        work = cost(numbers.kind, count, len(belief.theta))
    record_choice(numbers, belief, candidates, chosen, count, total, draws, trace)
    return arm[chosen], count, work


@inner
def _read_board(
    board: Board, seat: int, count: int, first: int, offset: Floats, bonus: Floats, candidates: Candidates
) -> None:
    """Read means and widths of the candidates from the board, whose first arm is `first`."""
    for i in range(count):
        at = candidates.arm[i] - first
        candidates.mean[i] = board.mean[seat, at] + offset_of(offset, candidates.arm[i])
        candidates.width[i] = np.sqrt(max(board.square[seat, at], np.float32(0.0)))
        candidates.factor[i], candidates.bonus[i] = np.float32(1.0), offset_of(bonus, candidates.arm[i])


@inner
def _gather_nodes(
    walk: WalkArrays,
    walked: Walked,
    seat: int,
    above: int,
    screen: Screen,
    draws: Draws,
    candidates: Candidates,
) -> tuple[int, int]:
    """Sample candidates among the nodes with open items. Return how many, and out of how many."""
    arm, usable, visible, personal = candidates.arm, candidates.usable, walked.visible, walk.numbers.personal
    offset = visible.start[seat] if personal else whole(walk.first_child[above])
    total = visible.length[seat] if personal else walk.first_child[above + 1] - offset
    plain = clear(screen)
    if not plain:
        last, total = offset + total, whole(0)
        for i in range(offset, last):
            node = visible.values[i] if personal else i
            if left(screen, whole(walk.item_range[node, 0]), whole(walk.item_range[node, 1])) > 0:
                usable[total] = i
                total += 1
    count = min(total, walk.numbers.node_budget)
    sample(arm, count, total, draws)
    for i in range(count):
        at = offset + arm[i] if plain else usable[arm[i]]
        arm[i] = visible.values[at] if personal else at
    return count, total


@inner
def _choose_item(
    walk: WalkArrays,
    known: Known,
    walked: Walked,
    seat: int,
    node: int,
    screen: Screen,
    explores: bool,
    draws: Draws,
    candidates: Candidates,
    trace: Trace,
) -> tuple[int, int, int, int]:
    """Choose among items under a node and the user's shortlist. Also return the node that holds the item."""
    arm, numbers, plain, work = candidates.arm, walk.numbers, clear(screen), 0
    first, last = whole(walk.item_range[node, 0]), whole(walk.item_range[node, 1])
    total = last - first if plain else left(screen, first, last)
    drawn = min(total, numbers.item_budget)
    if drawn == total:
        opened(screen, first, last, arm)
    else:
        sample(arm, drawn, total, draws)
        for i in range(drawn):
            arm[i] = first + arm[i] if plain else nth(screen, first, last, arm[i])
    count = with_shortlist(known.short, seat, screen, candidates, drawn)
    if count == 1:
        record_step(trace, candidates, count, total, whole(0), 1.0, 1.0)
        return arm[0], node, 0, 0
    draws, slot = later(draws, HALF), known.theta.shape[1] - 1
    belief = Belief(known.inverse[row_of(known.packed, seat), slot], known.theta[seat, slot], walk.crowd.root)
    if slot == 0 and numbers.watches:  # all items are on the board
        _read_board(walked.board, seat, count, whole(0), walk.crowd.offset, walk.bonus, candidates)
        chosen = best_known(numbers, count, explores, candidates, draws)
    else:
        gather(numbers.kind, walk.items, walk.bonus, walk.crowd.offset, known.history, seat, count, candidates)
        chosen = best_gathered(numbers, belief, count, explores, candidates, draws)
        work = cost(numbers.kind, count, len(belief.theta))
    record_choice(numbers, belief, candidates, chosen, count, total + count - drawn, draws, trace)
    if chosen >= drawn:  # an item of the shortlist may lie under another node
        trace.aside[0] = True
        if numbers.personal:
            at = holder(walk.item_range, walked.visible, seat, arm[chosen])
            node = whole(walked.visible.values[walked.visible.start[seat] + at])
        else:
            node = leaf_at(walk.first_child, walk.item_range, arm[chosen])
    return arm[chosen], node, count, work
