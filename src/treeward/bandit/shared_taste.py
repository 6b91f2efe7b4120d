"""The crowd, kept up online: shared taste, item effects and the spread of tastes, from sums over everybody's rewards.

r = x'(mu + delta_u) + gamma_i + noise. With n_i rewards of item i that come to S_i, and gamma_i ~ N(0, noise / K)
integrated out, the posterior of the shared taste mu follows from these sums alone:

    w_i = n_i / (1 + n_i / K),   A = A_0 + sum w_i x_i x_i',   mu = A^-1 (b_0 + sum w_i (S_i / n_i) x_i),
    gamma_i = (S_i - n_i x_i' mu) / (n_i + K).

All of it is in units of the noise, which is estimated too: rewards may be of any scale.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.bandit.crowd import SPREAD, Crowd
from treeward.bandit.prior import Prior
from treeward.core.types import AnyArray, Floats
from treeward.engine.posterior import Start

ITEM_SHRINKAGE = 5.0
"""K: an item's effect is believed half once so many rewards came."""
RIDGE = 4.0
"""A_0 before anybody has come: so many rewards' worth of doubt about the shared taste, per direction."""
_FITTED_USERS = 100
"""A mean that was fitted to a log counts at most as if so many users had been asked: this shop may differ."""
_PULL = 20.0
"""The spread of tastes is pulled towards where it began as if by so many users: from few rewards each, likelihood alone
finds too little."""
_STEPS = 3
_POOLED = 100.0
"""The noise within items is pooled with the variance of all rewards, which counts as so many."""
_LEAST_NOISE = 0.01
"""Rewards that are all alike, at first, do not say that there is no noise: a fitted crowd's falls at most to this."""
_ROWS = 8_192


class Sums(NamedTuple):
    """What everybody taught about items that have vectors: arrays of one length, and two numbers."""

    place: NDArray[np.int64]
    """Rows of the vectors."""
    times: NDArray[np.float64]
    """How many rewards each item got, above 0 ..."""
    earned: NDArray[np.float64]
    """... and what they come to."""
    squares: float
    """The sum of the squares of all rewards."""


class SharedTaste(NamedTuple):
    """The posterior of what users have in common, in units of the noise."""

    mean: NDArray[np.float64]
    """(d,): mu."""
    precision: NDArray[np.float64]
    """(d, d): A."""
    spread: NDArray[np.float64]
    """(d, d): the covariance of users' own tastes around mu."""
    noise: float

    def start(self, ridge: float) -> Start:
        """Return what is believed of a user before their first event."""
        return Prior(self.mean, self.spread).start(len(self.mean), ridge)

    def root(self, ridge: float) -> Floats:
        """Return M, see `CrowdArrays`: P chol(A^-1), with P the precision of a user's prior."""
        half = np.linalg.inv(np.linalg.cholesky(self.precision)).T
        made: Floats = np.ascontiguousarray(ridge * np.linalg.solve(self.spread, half), dtype=np.float32)
        return made


def noise_of(sums: Sums, usual: float) -> float:
    """Return the variance of rewards within items; `usual` as long as hardly any came."""
    rewards = float(sums.times.sum())
    if rewards < 2:
        return usual
    overall = max(sums.squares / rewards - (sums.earned.sum() / rewards) ** 2, 1e-12)
    within = max(sums.squares - float((sums.earned**2 / sums.times).sum()), 0.0)
    return float((within + _POOLED * overall) / (max(rewards - len(sums.times), 0.0) + _POOLED))


def shared_taste(base: Crowd, vectors: Floats, sums: Sums, spread: NDArray[np.float64] | None = None) -> SharedTaste:
    """Return the posterior of what users have in common, given sums over all of them.

    Parameters
    ----------
    base
        What was believed before.
    vectors
        (places, d): the items' vectors, with the features of `base`.
    sums
        What came since.
    spread
        The spread of tastes found by an earlier `spread_of`; by default that of `base`.
    """
    mean, noise = np.array(base.mean, dtype=np.float64), noise_of(sums, base.noise)
    if base.users:
        noise = max(noise, _LEAST_NOISE * base.noise)
    given: NDArray[np.float64] = np.asarray(base.covariance, dtype=np.float64) * (
        base.noise / noise if base.users else 1.0
    )
    if base.users:
        precision = min(base.users, _FITTED_USERS) * np.linalg.inv(given).astype(np.float64, copy=False)
    else:
        precision = RIDGE * np.eye(len(mean))
    moment = precision @ mean
    weight = sums.times / (1.0 + sums.times / ITEM_SHRINKAGE)
    for first in range(0, len(sums.place), _ROWS):
        part = slice(first, first + _ROWS)
        x = vectors[sums.place[part]].astype(np.float64)
        weighed = x * weight[part, None]
        precision += weighed.T @ x
        moment += weighed.T @ (sums.earned[part] / sums.times[part])
    precision = (precision + precision.T) / 2
    found = np.linalg.solve(precision, moment).astype(np.float64, copy=False)
    return SharedTaste(found, precision, given if spread is None else spread, noise)


def item_effects(taste: SharedTaste, vectors: Floats, sums: Sums) -> NDArray[np.float64]:
    """Return gamma of the items that rewards came for: how much better each is than its vector says."""
    made = np.empty(len(sums.place))
    mean = taste.mean.astype(np.float32)
    for first in range(0, len(made), _ROWS):
        part = slice(first, first + _ROWS)
        expected = vectors[sums.place[part]] @ mean
        made[part] = (sums.earned[part] - sums.times[part] * expected) / (sums.times[part] + ITEM_SHRINKAGE)
    return made


def doubt(taste: SharedTaste, vectors: Floats, count: AnyArray) -> Floats:
    """Return the standard deviation of what everybody thinks of each row: of x' mu and, given counts, of gamma.

    `count`: rewards of each row; nothing at all: only x' mu is meant, as for nodes.
    """
    half = np.linalg.inv(np.linalg.cholesky(taste.precision)).T.astype(np.float32)
    made = np.empty(len(vectors), dtype=np.float32)
    for first in range(0, len(vectors), _ROWS):
        part = slice(first, first + _ROWS)
        along = vectors[part] @ half
        made[part] = np.einsum("ij,ij->i", along, along)
    if len(count):
        made += 1.0 / (count + ITEM_SHRINKAGE)
    made *= taste.noise
    return np.sqrt(made, out=made)


def spread_of(taste: SharedTaste, users: Iterable[tuple[Floats, NDArray[np.float64]]]) -> NDArray[np.float64]:
    """Return the spread of tastes by a few steps of expectation and maximisation, from that of `taste` on.

    `users`: for each of some users, the vectors of the items that they gave rewards for, and by how much each reward
    was more than x' mu + gamma.
    """
    dim = len(taste.mean)
    wide = [(x.astype(np.float64), more / np.sqrt(taste.noise)) for x, more in users]
    target, made = SPREAD * np.eye(dim), taste.spread
    for _ in range(_STEPS if wide else 0):
        total = _PULL * target
        for x, more in wide:
            # The posterior of one user's deviation; with few rewards, their matrix is smaller than the taste's.
            across = x @ made
            gain = np.linalg.solve(across @ x.T + np.eye(len(x)), across)
            own = more @ gain
            total += made - across.T @ gain + np.outer(own, own)
        made = total / (len(wide) + _PULL)
        made = (made + made.T) / 2
    return made
