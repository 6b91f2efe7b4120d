"""One decision: the best of a few candidate arms under a rule."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.bandit.rules import GREEDY_MEAN, SAMPLE, UCB
from treeward.core import rng
from treeward.core.compiled import kernel, summing_kernel
from treeward.core.types import Floats

_TIES = 1 << 14


class Candidates(NamedTuple):
    """Room for the candidates of one decision, filled by whoever gathers them; reused from decision to decision."""

    arm: NDArray[np.int64]
    """(most,) what the caller calls each candidate."""
    vectors: Floats
    """(most, d)."""
    visits: NDArray[np.float64]
    """(most,) how often this user tried the arm: filled only where the rule asks for the arm's own mean."""
    rewards: NDArray[np.float64]
    """(most,) what that earned in all."""
    factor: Floats
    """(most,) by which the score is multiplied; 1 in the paper."""
    spread: Floats
    """(most, d) room for x A^-1."""
    mean: Floats
    """(most,) out: estimated reward."""
    width: Floats
    """(most,) out: sqrt(x' A^-1 x), where the rule needs it."""

    @classmethod
    def empty(cls, most: int, dim: int) -> "Candidates":
        """Return room for `most` candidates."""
        return cls(
            np.zeros(most, dtype=np.int64),
            np.zeros((most, dim), dtype=np.float32),
            np.zeros(most),
            np.zeros(most),
            np.ones(most, dtype=np.float32),
            np.zeros((most, dim), dtype=np.float32),
            np.zeros(most, dtype=np.float32),
            np.zeros(most, dtype=np.float32),
        )


@kernel
def best_of(
    kind: int,
    strength: float,
    inverse: Floats,
    theta: Floats,
    x: Floats,
    candidates: Candidates,
    seed: int,
    stream: int,
    counter: int,
) -> int:
    """Return which of the candidates, whose vectors are `x`, to take.

    `counter` and the numbers after it are free to draw from. Ties go to the first from a random start, or else users
    nothing is known of would all meet the same arms.
    """
    count = len(x)
    start = rng.below(seed, stream, counter + _TIES, count)
    mean = candidates.mean[:count]
    if kind == GREEDY_MEAN:
        for i in range(count):
            mean[i] = candidates.rewards[i] / candidates.visits[i] if candidates.visits[i] > 0 else 0.0
    else:
        for i in range(count):
            mean[i] = _dot(x[i], theta)
    if kind == UCB:
        spread = candidates.spread[:count]
        np.dot(x, inverse, spread)
        for i in range(count):
            candidates.width[i] = np.sqrt(max(_dot(spread[i], x[i]), np.float32(0.0)))
        return _highest(mean, candidates.width, np.float32(strength), candidates.factor, start)
    if kind == SAMPLE:
        drawn = _draw(inverse, theta, strength, seed, stream, counter)
        sampled = np.empty_like(mean)
        for i in range(count):
            sampled[i] = _dot(x[i], drawn)
        return _highest(sampled, candidates.width, np.float32(0.0), candidates.factor, start)
    if rng.uniform(seed, stream, counter) < strength:
        return rng.below(seed, stream, counter + 1, count)
    return _highest(mean, candidates.width, np.float32(0.0), candidates.factor, start)


@kernel
def _highest(mean: Floats, width: Floats, weight: np.float32, factor: Floats, start: int) -> int:
    found, best = start, np.float32(-np.inf)
    for turn in range(len(mean)):
        i = start + turn if start + turn < len(mean) else start + turn - len(mean)
        score = factor[i] * (mean[i] + weight * width[i] if weight != 0 else mean[i])
        if score > best:
            found, best = i, score
    return found


@summing_kernel
def _dot(a: Floats, b: Floats) -> np.float32:
    total = np.float32(0.0)
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@summing_kernel
def _draw(inverse: Floats, theta: Floats, v: float, seed: int, stream: int, counter: int) -> Floats:
    """Return a draw from N(theta, v^2 A^-1): theta + v L z with L L' = A^-1."""
    dim = len(theta)
    # Cholesky on a float64 copy: A^-1 in float32 may be a rounding away from symmetric.
    root = inverse.astype(np.float64)
    drawn, z = theta.copy(), np.empty(dim)
    for i in range(dim):
        mine = root[i]
        for j in range(i):
            other, total = root[j], 0.0
            for k in range(j):
                total += mine[k] * other[k]
            mine[j] = (mine[j] - total) / other[j] if other[j] > 0 else 0.0
        total = 0.0
        for k in range(i):
            total += mine[k] * mine[k]
        mine[i] = np.sqrt(max(mine[i] - total, 0.0))
        z[i] = rng.normal(seed, stream, counter + i)
        total = 0.0
        for k in range(i + 1):
            total += mine[k] * z[k]
        drawn[i] += np.float32(v * total)
    return drawn
