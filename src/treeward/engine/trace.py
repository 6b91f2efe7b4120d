"""The steps of a decision, and the probability of each. Needed for propensities and explanations."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.compiled import inner
from treeward.core.types import Floats
from treeward.engine.explore import GREEDY_LINEAR, Belief, Candidates, Draws, chance_of
from treeward.engine.layout import Numbers


class Trace(NamedTuple):
    """The steps of one decision; the last one chooses the item. Steps without room are not recorded."""

    steps: NDArray[np.int64]
    """(1,): the number of steps."""
    seen: NDArray[np.int64]
    """(steps,): how many arms were considered ..."""
    total: NDArray[np.int64]
    """(steps,): ... out of how many."""
    chosen: NDArray[np.int64]
    """(steps,): the index of the one that was taken."""
    chance: NDArray[np.float64]
    """(steps,): its probability among the arms considered ..."""
    plain: NDArray[np.float64]
    """(steps,): ... and its probability for a decision that does not explore."""
    aside: NDArray[np.bool_]
    """(1,): whether the item came from the shortlist, so that its node does not matter."""
    bold: NDArray[np.bool_]
    """(1,): whether some step took an arm although another had a higher mean."""
    arm: NDArray[np.int64]
    """(steps, most): the nodes, or places at the last step, that were considered. May be empty."""
    mean: Floats
    """(steps, most): their means, if more than one was considered."""

    @classmethod
    def empty(cls, steps: int = 0, most: int = 0) -> "Trace":
        """Return a trace with room for nothing, for the steps, or also for the arms of every step."""
        numbers, arms = np.zeros((3, steps), dtype=np.int64), np.zeros((steps, most), dtype=np.int64)
        means = np.zeros((steps, most), dtype=np.float32)
        one = np.zeros(1, dtype=np.int64)
        chances = np.zeros((2, steps))
        return cls(
            one, numbers[0], numbers[1], numbers[2], chances[0], chances[1], np.zeros(1, dtype=np.bool_),
            np.zeros(1, dtype=np.bool_), arms, means,
        )  # fmt: skip


@inner
def record_choice(
    numbers: Numbers,
    belief: Belief,
    candidates: Candidates,
    chosen: int,
    count: int,
    total: int,
    draws: Draws,
    trace: Trace,
) -> None:
    """Record a step with the probability of its choice, if there is room."""
    if len(trace.seen) > 0:
        chance, plain = chances(numbers, belief, count, chosen, candidates, draws)
        record_step(trace, candidates, count, total, chosen, chance, plain)


@inner(inline=False)
def chances(
    numbers: Numbers, belief: Belief, count: int, chosen: int, candidates: Candidates, draws: Draws
) -> tuple[float, float]:
    """Return the probability of one of the candidates, and, if not every decision explores, that by mean alone."""
    x = candidates.vectors[: min(count, len(candidates.vectors))]
    plain = 0.0
    for turn in range(1 if numbers.explore < 1.0 else 0, -1, -1):
        how, much = (GREEDY_LINEAR, 0.0) if turn == 1 else (numbers.kind, numbers.strength)
        chance = chance_of(chosen, how, much, belief, count, x, candidates, draws)
        plain = chance if turn == 1 else plain
    return chance, plain


@inner
def begin_trace(trace: Trace) -> None:
    """Start recording a decision."""
    trace.steps[0] = 0
    trace.aside[0] = trace.bold[0] = False


@inner
def record_step(
    trace: Trace, candidates: Candidates, count: int, total: int, chosen: int, chance: float, plain: float
) -> None:
    """Record a step, if there is room."""
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
