"""Candidates of a step: how they are sampled, gathered and counted, and which counters their draws come from."""

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.compiled import tight
from treeward.core.types import Floats
from treeward.engine.available import Screen, is_open
from treeward.engine.explore import GREEDY_LINEAR, GREEDY_MEAN, SAMPLE, UCB, Candidates, best_scored
from treeward.engine.history import tally
from treeward.engine.layout import Plan, State
from treeward.engine.ragged import Lists

# A round owns 2**20 counters of the user's stream: 16 steps of 2**16, half to sample candidates and half for the rule.
ROUND, STEP, HALF = 1 << 20, 1 << 16, 1 << 15
MOST_STEPS = 16
MOST_SCORES = HALF
ITEM = (MOST_STEPS - 1) * STEP
# The last counters of a round: whether to explore, whether to draw from all items, and which.
EXPLORES, FRESH, WHICH = ROUND - 1, ROUND - 2, ROUND - 3


@tight
def cost(kind: int, count: int, dim: int) -> int:
    """Return the multiplications that scoring so many arms takes."""
    if kind == UCB:
        return count * (dim + dim * dim)
    if kind == SAMPLE:
        return count * dim + dim * dim + dim * dim * dim // 6
    return count * dim if kind == GREEDY_LINEAR else count


@tight
def gather(plan: Plan, state: State, seat: int, count: int, candidates: Candidates) -> None:
    """Write down all that the rule needs to know of candidates that are items."""
    for i in range(count):
        place = candidates.arm[i]
        copy(plan.items[place], candidates.vectors[i])
        candidates.factor[i] = np.float32(1.0)
        candidates.bonus[i] = plan.bonus[place] if len(plan.bonus) > 0 else np.float32(0.0)
        if plan.kind == GREEDY_MEAN:
            candidates.visits[i], candidates.rewards[i] = tally(state.history, seat, place, place + 1)


@tight
def with_shortlist(short: Lists, seat: int, screen: Screen, candidates: Candidates, count: int) -> int:
    """Add the user's shortlist to the candidates, and return how many there are."""
    found, arm, start = count, candidates.arm, short.start[seat]
    for i in range(start, start + short.length[seat]):
        place, known = short.values[i], False
        for j in range(found):
            known = known or arm[j] == place
        if not known and is_open(screen, place):
            arm[count] = place
            count += 1
    return count


@tight
def best_known(
    plan: Plan, count: int, explores: bool, candidates: Candidates, seed: int, stream: int, counter: int
) -> int:
    """Return the best of candidates whose means and widths are known."""
    if explores:
        return best_scored(plan.kind, plan.strength, count, candidates, seed, stream, counter)
    return best_scored(GREEDY_LINEAR, 0.0, count, candidates, seed, stream, counter)


@tight
def copy(source: Floats, target: Floats) -> None:
    """Copy a vector: a loop, where assigning a slice would take ten times as long."""
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
