"""Candidates of a step: sampling, gathering their vectors, and the counters that random draws come from."""

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.compiled import inner, whole
from treeward.core.types import AnyArray, Floats
from treeward.engine.available import Screen, is_open
from treeward.engine.explore import (
    GREEDY_LINEAR,
    GREEDY_MEAN,
    SAMPLE,
    UCB,
    Belief,
    Candidates,
    Draws,
    best_of,
    best_scored,
)
from treeward.engine.history import History, tally
from treeward.engine.layout import Numbers
from treeward.engine.ragged import Lists

# A round owns 2**20 counters of the user's stream: 16 steps of 2**16, half to sample candidates and half for the rule.
ROUND, STEP, HALF = 1 << 20, 1 << 16, 1 << 15
MOST_STEPS = 16
MOST_SCORES = HALF
ITEM = (MOST_STEPS - 1) * STEP
# The last counters of a round: whether to explore, whether to draw from the whole catalogue, and which item.
EXPLORES, FRESH, WHICH = ROUND - 1, ROUND - 2, ROUND - 3


@inner
def later(draws: Draws, by: int) -> Draws:
    """Return the source `by` counters later."""
    return Draws(draws.seed, draws.stream, draws.counter + by)


@inner
def may_explore(numbers: Numbers, draws: Draws) -> bool:
    """Return whether the decision whose round begins here may explore."""
    if numbers.explore >= 1.0:
        return True
    return rng.uniform(draws.seed, draws.stream, draws.counter + EXPLORES) < numbers.explore


@inner
def cost(kind: int, count: int, dim: int) -> int:
    """Return the multiplications for scoring `count` arms."""
    if kind == UCB:
        return count * (dim + dim * dim)
    if kind == SAMPLE:
        return count * dim + dim * dim + dim * dim * dim // 6
    return count * dim if kind == GREEDY_LINEAR else count


@inner
def gather(
    kind: int,
    items: Floats,
    bonus: Floats,
    offset: Floats,
    history: History,
    seat: int,
    count: int,
    candidates: Candidates,
) -> None:
    """Write all that the rule reads of candidates that are items."""
    for i in range(count):
        place = candidates.arm[i]
        copy(items[place], candidates.vectors[i])
        candidates.factor[i] = np.float32(1.0)
        candidates.bonus[i] = bonus[place] if len(bonus) > 0 else np.float32(0.0)
        candidates.offset[i] = offset[place] if len(offset) > 0 else np.float32(0.0)
        if kind == GREEDY_MEAN:
            candidates.visits[i], candidates.rewards[i] = tally(history, seat, place, place + 1)


@inner
def with_shortlist(short: Lists, seat: int, screen: Screen, candidates: Candidates, count: int) -> int:
    """Add the user's shortlist to the candidates. Return the new count."""
    found, arm, start = count, candidates.arm, short.start[seat]
    for i in range(start, start + short.length[seat]):
        place, known = whole(short.values[i]), False
        for j in range(found):
            known = known or arm[j] == place
        if not known and is_open(screen, place):
            arm[count] = place
            count += 1
    return count


@inner
def best_known(numbers: Numbers, count: int, explores: bool, candidates: Candidates, draws: Draws) -> int:
    """Return the best of the candidates, whose means and widths are known."""
    kind, strength = (numbers.kind, numbers.strength) if explores else (GREEDY_LINEAR, 0.0)
    return best_scored(kind, strength, count, candidates, draws)


@inner
def best_gathered(
    numbers: Numbers, belief: Belief, count: int, explores: bool, candidates: Candidates, draws: Draws
) -> int:
    """Return the best of the candidates, whose vectors were gathered; by mean alone unless the decision explores."""
    chosen = best_of(numbers.kind, numbers.strength, belief, candidates.vectors[:count], candidates, draws)
    if not explores:
        chosen = best_scored(whole(GREEDY_LINEAR), 0.0, count, candidates, draws)
    return chosen


@inner
def copy(source: AnyArray, target: AnyArray) -> None:
    """Copy a vector. In numba a loop is ten times as fast as a slice assignment."""
    for j in range(len(source)):
        target[j] = source[j]


@inner
def sample(out: NDArray[np.int64], count: int, total: int, draws: Draws) -> None:
    """Write `count` of the numbers below `total`: all of them in order, or a uniform sample (Floyd's algorithm)."""
    if count == total:
        for i in range(count):
            out[i] = i
        return
    for i in range(count):
        last = total - count + i
        drawn = rng.below(draws.seed, draws.stream, draws.counter + i, last + 1)
        for j in range(i):
            if out[j] == drawn:
                drawn = last
                break
        out[i] = drawn
