"""The Gaussian linear posterior of one user: A = ridge I + sum x x', b = sum r x, theta = A^-1 b, one each per slot.

A slot is a kind of arm with a parameter vector of its own (a level of the tree, or the items). Scores need A^-1 in
float32; rank-1 updates of it alone drift, badly so when a few arms come again and again. So A and b are kept in float64
beside it, and every `REFRESH` updates A^-1 and theta are computed anew from them.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.compiled import kernel, summing_kernel
from treeward.core.types import Floats

REFRESH = 512


class Posterior(NamedTuple):
    """Posteriors of many users: the first axis is the seat a user sits in, the second the slot."""

    precision: NDArray[np.float64]
    """(seats, slots, d, d): A, of which only the lower triangle is kept up."""
    moment: NDArray[np.float64]
    """(seats, slots, d): b."""
    inverse: Floats
    """(seats, slots, d, d): A^-1."""
    theta: Floats
    """(seats, slots, d)."""
    pulls: NDArray[np.int64]
    """(seats, slots): how many updates."""

    @classmethod
    def empty(cls, seats: int, slots: int, dim: int) -> "Posterior":
        """Return room for `seats` users; `reset` a seat before it is used."""
        return cls(
            np.zeros((seats, slots, dim, dim)),
            np.zeros((seats, slots, dim)),
            np.zeros((seats, slots, dim, dim), dtype=np.float32),
            np.zeros((seats, slots, dim), dtype=np.float32),
            np.zeros((seats, slots), dtype=np.int64),
        )


@kernel
def reset(posterior: Posterior, seat: int, ridge: float) -> None:
    """Put the prior into a seat: A = ridge I, b = 0."""
    posterior.precision[seat] = 0.0
    posterior.inverse[seat] = 0.0
    posterior.moment[seat] = 0.0
    posterior.theta[seat] = 0.0
    posterior.pulls[seat] = 0
    for slot in range(posterior.pulls.shape[1]):
        for i in range(posterior.theta.shape[2]):
            posterior.precision[seat, slot, i, i] = ridge
            posterior.inverse[seat, slot, i, i] = 1.0 / ridge


@summing_kernel
def learn(posterior: Posterior, seat: int, slot: int, x: Floats, reward: float) -> None:
    """Add one observation: A += x x', b += r x; A^-1 and theta by Sherman and Morrison, exact again every `REFRESH`."""
    precision, inverse = posterior.precision[seat, slot], posterior.inverse[seat, slot]
    moment, theta = posterior.moment[seat, slot], posterior.theta[seat, slot]
    dim = len(x)
    z = np.zeros(dim, dtype=np.float32)
    along, guess = np.float32(0.0), np.float32(0.0)
    for i in range(dim):  # z = A^-1 x, row by row because A^-1 is symmetric: that runs in vector lanes
        weight, row = x[i], inverse[i]
        for j in range(dim):
            z[j] += weight * row[j]
    for i in range(dim):
        along += x[i] * z[i]
        guess += x[i] * theta[i]
        moment[i] += reward * x[i]
    for i in range(dim):
        wide, below = np.float64(x[i]), precision[i]
        for j in range(i + 1):
            below[j] += wide * x[j]
    scale = np.float32(1.0) / (np.float32(1.0) + along)
    surprise = (np.float32(reward) - guess) * scale
    for i in range(dim):
        theta[i] += z[i] * surprise
        shrink, row = z[i] * scale, inverse[i]
        for j in range(dim):
            row[j] -= shrink * z[j]
    posterior.pulls[seat, slot] += 1
    if posterior.pulls[seat, slot] % REFRESH == 0:
        refresh(posterior, seat, slot)


@kernel
def refresh(posterior: Posterior, seat: int, slot: int) -> None:
    """Compute A^-1 and theta from A and b in float64."""
    full = posterior.precision[seat, slot].copy()
    for i in range(len(full)):
        for j in range(i):
            full[j, i] = full[i, j]
    exact = np.linalg.inv(full)
    posterior.inverse[seat, slot] = exact.astype(np.float32)
    posterior.theta[seat, slot] = np.dot(exact, posterior.moment[seat, slot]).astype(np.float32)
