"""Kernels that the baselines share: candidates of a batch, the best of them, and updates of posteriors."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.compiled import kernel

TIE = 1e-6
"""Scores no further apart are equal."""


class Drawn(NamedTuple):
    """Candidates of a batch: places, as many as `taken` says, out of `total`."""

    place: NDArray[np.int64]
    taken: NDArray[np.int64]
    total: NDArray[np.int64]


class BatchDraws(NamedTuple):
    """Where the random numbers of one step come from: a stream per user of the batch, from `counter` on."""

    seed: int
    streams: NDArray[np.int64]
    counter: int


class Chosen(NamedTuple):
    """One arm per user of a batch, with what was believed of it; -1: none is left."""

    arm: NDArray[np.int64]
    mean: NDArray[np.float64]
    width: NDArray[np.float64]


class Scored(NamedTuple):
    """Room for the candidates of one user: their scores, and the means and widths that these are made of."""

    score: NDArray[np.float64]
    mean: NDArray[np.float64]
    width: NDArray[np.float64]


@kernel
def scored(most: int) -> Scored:
    """Return room for `most` candidates."""
    return Scored(np.empty(most), np.empty(most), np.empty(most))


@kernel(allocates=False, inline=True)
def take_best(scored: Scored, drawn: Drawn, i: int, draws: BatchDraws, out: Chosen) -> None:
    """Write down the best candidate of user `i` of a batch."""
    at = best(scored.score, drawn.taken[i], draws.seed, draws.streams[i], draws.counter)
    out.arm[i], out.mean[i], out.width[i] = drawn.place[i, at], scored.mean[at], scored.width[at]


@kernel(allocates=False, inline=True)
def best(scores: NDArray[np.float64], count: int, seed: int, stream: int, counter: int) -> int:
    """Return the position of the largest of the first `count` scores; of almost equal ones, any."""
    most = scores[0]
    for i in range(1, count):
        most = max(most, scores[i])
    first = rng.below(seed, stream, counter, count)
    for i in range(count):
        at = (first + i) % count
        if scores[at] >= most - TIE:
            return at
    return first


@kernel(allocates=False, inline=True, sums=True)
def project(inverse: NDArray[np.float64], x: NDArray[np.float64], z: NDArray[np.float64]) -> float:
    """Write A^-1 x to `z` and return x' A^-1 x: every rank-1 update of A^-1 starts with these."""
    along = 0.0
    for i in range(len(x)):
        total = 0.0
        for j in range(len(x)):
            total += inverse[i, j] * x[j]
        z[i] = total
        along += total * x[i]
    return along


@kernel(allocates=False, inline=True)
def learn_normal(
    inverse: NDArray[np.float64],
    mean: NDArray[np.float64],
    x: NDArray[np.float64],
    reward: float,
    z: NDArray[np.float64],
) -> float:
    """Add one observation to a normal-inverse-gamma posterior; return how much its scale grows (its shape: by 1/2)."""
    scale = 1.0 / (1.0 + project(inverse, x, z))
    surprise = reward
    for i in range(len(x)):
        surprise -= mean[i] * x[i]
    for i in range(len(x)):
        mean[i] += z[i] * surprise * scale
        for j in range(len(x)):
            inverse[i, j] -= z[i] * z[j] * scale
    return 0.5 * surprise * surprise * scale


@kernel(allocates=False, inline=True)
def gamma(shape: float, seed: int, stream: int, counter: int) -> float:
    """Return a draw from Gamma(shape, 1), for a shape of at least 1 (Marsaglia and Tsang, 2000); takes 64 counters."""
    d = shape - 1.0 / 3.0
    c = 1.0 / np.sqrt(9.0 * d)
    value = d
    for attempt in range(32):
        x = rng.normal(seed, stream, counter + 2 * attempt)
        v = (1.0 + c * x) ** 3
        if v > 0.0:
            u = 1.0 - rng.uniform(seed, stream, counter + 2 * attempt + 1)
            if np.log(u) < 0.5 * x * x + d - d * v + d * np.log(v):
                value = d * v
                break
    return value
