"""What the ways to an item share: the steps of a decision, how they are told, and what they draw from."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.bandit.choose import Candidates, best_scored, chance_of
from treeward.bandit.rules import GREEDY_LINEAR, GREEDY_MEAN, SAMPLE, UCB
from treeward.core import rng
from treeward.core.compiled import apart, tight
from treeward.core.types import Floats
from treeward.policy.history import tally
from treeward.policy.lists import Lists
from treeward.policy.plan import Plan, State
from treeward.policy.screen import Screen, is_open

# A round owns 2**20 counters of the user's stream: 16 steps of 2**16, half to sample candidates and half for the rule.
ROUND, STEP, HALF = 1 << 20, 1 << 16, 1 << 15
MOST_STEPS = 16
MOST_SCORES = HALF
ITEM = (MOST_STEPS - 1) * STEP
# The last counters of a round: whether to explore, whether to draw from all items, and which.
EXPLORES, FRESH, WHICH = ROUND - 1, ROUND - 2, ROUND - 3


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
    """(steps,): the probability of the one taken, among the arms considered ..."""
    plain: NDArray[np.float64]
    """(steps,): ... and if only means count."""
    aside: NDArray[np.bool_]
    """(1,): whether the item was considered whatever node was taken."""
    bold: NDArray[np.bool_]
    """(1,): whether at some step an arm of a higher mean was passed over."""
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
        chances = np.zeros((2, steps))
        return cls(
            one, numbers[0], numbers[1], numbers[2], chances[0], chances[1], np.zeros(1, dtype=np.bool_),
            np.zeros(1, dtype=np.bool_), arms, means,
        )  # fmt: skip


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
def weigh(
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
        rule = plan.kind, plan.strength, plan.rules.explore
        chance, plain = chances(*rule, theta, count, chosen, candidates, seed, stream, counter)
        tell(trace, candidates, count, total, chosen, chance, plain)


@apart
def chances(
    kind: int,
    strength: float,
    explore: float,
    theta: Floats,
    count: int,
    chosen: int,
    candidates: Candidates,
    seed: int,
    stream: int,
    counter: int,
) -> tuple[float, float]:
    """Return how likely one of the candidates was, and, where that matters, if only means counted."""
    x = candidates.vectors[: min(count, len(candidates.vectors))]
    plain = 0.0
    for turn in range(1 if explore < 1.0 else 0, -1, -1):
        how, much = (GREEDY_LINEAR, 0.0) if turn == 1 else (kind, strength)
        chance = chance_of(chosen, how, much, theta, count, x, candidates, seed, stream, counter)
        plain = chance if turn == 1 else plain
    return chance, plain


@tight
def tell(
    trace: Trace, candidates: Candidates, count: int, total: int, chosen: int, chance: float, plain: float
) -> None:
    """Tell a step, if there is room for it."""
    step = trace.steps[0]
    if step >= len(trace.seen):
        return
    trace.steps[0] = step + 1
    trace.seen[step], trace.total[step], trace.chosen[step] = count, total, chosen
    trace.chance[step], trace.plain[step] = chance, plain
    for i in range(count if count > 1 else 0):
        trace.bold[0] = trace.bold[0] or candidates.mean[i] > candidates.mean[chosen]
    for i in range(min(count, trace.arm.shape[1])):
        trace.arm[step, i] = candidates.arm[i]
        trace.mean[step, i] = candidates.mean[i]


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
