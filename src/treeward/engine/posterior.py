"""The Gaussian linear posterior of a user: A = prior + sum x x', b = prior + sum r x, theta = A^-1 b, for every slot.

A slot is a kind of arm with its own parameter vector: a level of the tree, or the items. The sums of a user do not
contain the prior: sum x x', added in blocks of `BLOCK` observations, and sum r x, both in float64. Scores need A^-1 and
theta in float32, which are derived from the sums. Rank-1 updates of A^-1 drift, badly so when the same few arms repeat.
Therefore A^-1 and theta are recomputed every `REFRESH` updates. Changing the prior needs no events: see `rebase`.

Observations before a refresh only matter through A and b. So a long log is replayed quickly and to the same bits:
`observe` up to the last refresh, `learn` from there on. For the same reason users whose events can be read again need
no sums of their own: all seats share one row of sums, which a replay uses up to its last refresh. Such a compact
posterior also keeps only the lower triangles of A^-1, and unpacks a user's into the row that all seats share.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.compiled import gram, inner
from treeward.core.lazy_memory import lazy_zeros
from treeward.core.types import AnyArray, Floats

BLOCK = 32
REFRESH = 256


class Start(NamedTuple):
    """A posterior before the first observation, the same in every slot."""

    precision: NDArray[np.float64]
    """(d, d): A."""
    moment: NDArray[np.float64]
    """(d,): b."""
    inverse: Floats
    """(d, d): A^-1."""
    theta: Floats
    """(d,): the prior mean."""


class Posterior(NamedTuple):
    """Posteriors of many users. The first axis is the user's seat, the second the slot."""

    products: NDArray[np.float64]
    """(seats, slots, d, d): sum x x', without the pending observations. (1, ...) if the posterior is compact."""
    pending: Floats
    """(seats, slots, BLOCK, d): the observations since the last full block. Or (1, ...)."""
    rewards: NDArray[np.float64]
    """(seats, slots, d): sum r x. Or (1, ...)."""
    inverse: Floats
    """(seats, slots, d, d): A^-1, symmetric to the bit. (1, ...) if the posterior is compact: that of the user who was
    unpacked last."""
    packed: Floats
    """(seats, slots, d (d + 1) / 2): the lower triangles of A^-1, row by row. (0, ...) unless compact."""
    theta: Floats
    """(seats, slots, d)."""
    pulls: NDArray[np.int64]
    """(seats, slots): the number of observations."""
    prior_precision: NDArray[np.float64]
    """(d, d): A before the first observation, the same in all seats and slots."""
    prior_moment: NDArray[np.float64]
    """(d,): b before the first observation."""
    work: NDArray[np.float64]
    """(2, d, d): working memory, so only one thread may use this object at a time."""
    wide: NDArray[np.float64]
    """(BLOCK, d): working memory."""
    step: Floats
    """(d,): working memory."""

    @classmethod
    def empty(cls, seats: int, slots: int, dim: int, *, compact: bool = False) -> "Posterior":
        """Return posteriors of `seats` users. `reset` a seat before its use."""
        rows = 1 if compact else seats
        return cls(
            np.zeros((rows, slots, dim, dim)),
            np.zeros((rows, slots, BLOCK, dim), dtype=np.float32),
            np.zeros((rows, slots, dim)),
            np.zeros((rows, slots, dim, dim), dtype=np.float32),
            lazy_zeros((seats if compact else 0, slots, dim * (dim + 1) // 2), np.float32),
            lazy_zeros((seats, slots, dim), np.float32),
            lazy_zeros((seats, slots), np.int64),
            np.zeros((dim, dim)),
            np.zeros(dim),
            np.zeros((2, dim, dim)),
            np.zeros((BLOCK, dim)),
            np.zeros(dim, dtype=np.float32),
        )

    @property
    def compact(self) -> bool:
        """Whether there is one row of sums and of A^-1 for all seats."""
        return len(self.packed) > 0

    def inverse_of(self, seat: int, slot: int) -> Floats:
        """Return (d, d): A^-1 of a seat, for readers in Python."""
        made: Floats = self.inverse[0 if self.compact else seat, slot].copy()
        if self.compact:
            made[np.tril_indices(len(made))] = self.packed[seat, slot]
            made[:] = np.tril(made) + np.tril(made, -1).T
        return made

    @property
    def precision(self) -> NDArray[np.float64]:
        """(seats, slots, d, d): A without the pending observations."""
        return self.products + self.prior_precision

    @property
    def moment(self) -> NDArray[np.float64]:
        """(seats, slots, d): b."""
        return self.rewards + self.prior_moment


def rebase(posterior: Posterior, start: Start) -> None:
    """Change the prior of all seats. A^-1 and theta are recomputed from the sums; no event is read."""
    posterior.prior_precision[:], posterior.prior_moment[:] = start.precision, start.moment
    waiting = np.arange(BLOCK) < (posterior.pulls % BLOCK)[..., np.newaxis]
    pending = np.where(waiting[..., np.newaxis], posterior.pending, 0.0)
    precision = posterior.precision + np.swapaxes(pending, -1, -2) @ pending
    inverse = np.linalg.inv(precision)
    posterior.inverse[:] = (inverse + np.swapaxes(inverse, -1, -2)) / 2
    posterior.theta[:] = (inverse @ posterior.moment[..., np.newaxis])[..., 0]


def reset(posterior: Posterior, seats: int | NDArray[np.int64], start: Start) -> None:
    """Reset seats to new users. The prior applies to all seats."""
    posterior.prior_precision[:], posterior.prior_moment[:] = start.precision, start.moment
    if posterior.compact:
        posterior.packed[seats] = start.inverse[np.tril_indices(len(start.inverse))]
    else:
        posterior.products[seats] = posterior.rewards[seats] = 0.0
        posterior.inverse[seats] = start.inverse
    posterior.theta[seats] = start.theta
    posterior.pulls[seats] = 0


@inner
def row_of(packed: Floats, seat: int) -> int:
    """Return the row of the sums and of A^-1 that belongs to a seat: its own, or the one that all seats share."""
    return seat if len(packed) == 0 else 0


@inner(inline=False)
def begin(posterior: Posterior, seat: int, until: NDArray[np.int64], first: bool, teaches: bool) -> None:
    """Prepare the rows that all seats share for a user's events.

    `first`: these are the first of the replay. `teaches`: there are rewards among them.
    """
    if len(posterior.packed) == 0 or not teaches:
        return
    unpack(posterior.packed, posterior.inverse, seat)
    for slot in range(len(until)):
        products, rewards = posterior.products[0, slot], posterior.rewards[0, slot]
        for i in range(len(rewards) if first and until[slot] > 0 else 0):
            rewards[i] = 0.0
            for j in range(len(rewards)):
                products[i, j] = 0.0


@inner(inline=False)
def unpack(packed: Floats, inverse: Floats, seat: int) -> None:
    """Write A^-1 of a seat into the row that all seats share; nothing to do if each has its own."""
    for slot in range(packed.shape[1] if len(packed) > 0 else 0):
        whole, triangle, at = inverse[0, slot], packed[seat, slot], 0
        for i in range(len(whole)):
            row = whole[i]
            for j in range(i + 1):
                row[j] = whole[j, i] = triangle[at + j]
            at += i + 1


@inner(inline=False)
def pack(posterior: Posterior, seat: int, teaches: bool) -> None:
    """Keep A^-1 of the row that all seats share as that of a seat; nothing to do if each has its own."""
    for slot in range(posterior.packed.shape[1] if len(posterior.packed) > 0 and teaches else 0):
        whole, triangle, at = posterior.inverse[0, slot], posterior.packed[seat, slot], 0
        for i in range(len(whole)):
            row = whole[i]
            for j in range(i + 1):
                triangle[at + j] = row[j]
            at += i + 1


@inner
def observe(posterior: Posterior, seat: int, slot: int, x: Floats, reward: float) -> None:
    """Add one observation to A and b, but leave A^-1 and theta to `refresh`."""
    row = row_of(posterior.packed, seat)
    rewards, pending = posterior.rewards[row, slot], posterior.pending[row, slot]
    at = posterior.pulls[seat, slot] % BLOCK
    for i in range(len(x)):
        rewards[i] += reward * x[i]
        pending[at, i] = x[i]
    posterior.pulls[seat, slot] += 1
    if at == BLOCK - 1:
        products, wide, product = posterior.products[row, slot], posterior.wide, posterior.work[0]
        for k in range(BLOCK):
            for i in range(len(x)):
                wide[k, i] = pending[k, i]
        gram(wide, product)
        for i in range(len(x)):
            for j in range(len(x)):
                products[i, j] += product[i, j]


@inner
def learn(
    posterior: Posterior, seat: int, slot: int, x: Floats, reward: float, z: Floats
) -> tuple[np.float32, np.float32]:
    """Add one observation by `move`, and recompute every `REFRESH` observations."""
    scale, surprise = move(posterior, seat, slot, x, reward, z)
    if posterior.pulls[seat, slot] % REFRESH == 0:
        refresh(posterior, seat, slot)
    return scale, surprise


@inner(sums=True)
def move(
    posterior: Posterior, seat: int, slot: int, x: Floats, reward: float, z: Floats
) -> tuple[np.float32, np.float32]:
    """Add one observation: A += x x', b += r x. A^-1 and theta follow by the Sherman-Morrison formula.

    `z` receives A^-1 x from before. Return scale and surprise, by which the values of any other arm `a` change:
    mean += surprise * (a . z), width^2 -= scale * (a . z)^2.
    """
    inverse, theta = posterior.inverse[row_of(posterior.packed, seat), slot], posterior.theta[seat, slot]
    dim, step = len(x), posterior.step
    along = spread(inverse, x, z)
    guess = np.float32(0.0)
    for i in range(dim):
        guess += x[i] * theta[i]
    scale = np.float32(1.0) / (np.float32(1.0) + along)
    surprise = (np.float32(reward) - guess) * scale
    root = np.sqrt(scale)
    for i in range(dim):
        theta[i] += z[i] * surprise
        step[i] = z[i] * root
    for i in range(dim):  # as a product of two equal vectors it stays symmetric to the bit, so a triangle is enough
        shrink, row = step[i], inverse[i]
        for j in range(dim):
            row[j] -= shrink * step[j]
    if len(posterior.packed) == 0:
        observe(posterior, seat, slot, x, reward)
    else:  # at the next refresh the whole log is replayed
        posterior.pulls[seat, slot] += 1
    return scale, surprise


@inner(inline=False)
def fade(posterior: Posterior, seat: int, slot: int, keep: float) -> None:
    """Multiply the weight of all observations by `keep`. There must be no pending observation."""
    row = row_of(posterior.packed, seat)
    products, rewards = posterior.products[row, slot], posterior.rewards[row, slot]
    for i in range(len(rewards)):
        rewards[i] *= keep
        for j in range(len(rewards)):
            products[i, j] *= keep


@inner(sums=True)
def correct(posterior: Posterior, seat: int, slot: int, x: Floats, change: float, z: Floats) -> None:
    """Change the reward of an earlier observation: b += change * x, and theta with it. `z` receives A^-1 x."""
    rewards, theta = posterior.rewards[row_of(posterior.packed, seat), slot], posterior.theta[seat, slot]
    spread(posterior.inverse[row_of(posterior.packed, seat), slot], x, z)
    for i in range(len(x)):
        rewards[i] += change * x[i]
        theta[i] += np.float32(change) * z[i]


@inner(sums=True)
def spread(inverse: Floats, x: Floats, z: Floats) -> np.float32:
    """Write A^-1 x into `z`, row by row (A^-1 is symmetric, and rows run in vector lanes). Return x' A^-1 x."""
    dim = len(x)
    for j in range(dim):
        z[j] = np.float32(0.0)
    whole = dim - dim % 4
    for i in range(0, whole, 4):  # four rows at a time: z is read and written once for them
        first, second, third, fourth = x[i], x[i + 1], x[i + 2], x[i + 3]
        for j in range(dim):
            z[j] += (
                first * inverse[i, j]
                + second * inverse[i + 1, j]
                + third * inverse[i + 2, j]
                + fourth * inverse[i + 3, j]
            )
    for i in range(whole, dim):
        for j in range(dim):
            z[j] += x[i] * inverse[i, j]
    along = np.float32(0.0)
    for i in range(dim):
        along += x[i] * z[i]
    return along


@inner(sums=True, inline=False)
def refresh(posterior: Posterior, seat: int, slot: int) -> None:
    """Compute A^-1 and theta from A and b in float64. There must be no pending observation."""
    row = row_of(posterior.packed, seat)
    products, root, exact = posterior.products[row, slot], posterior.work[0], posterior.work[1]
    for i in range(len(products)):
        for j in range(len(products)):
            exact[i, j] = products[i, j] + posterior.prior_precision[i, j]
    factorise(exact, root)
    _invert(root)  # A = L L', so that A^-1 = M' M with M = L^-1
    gram(root, exact)
    inverse, theta, rewards = posterior.inverse[row, slot], posterior.theta[seat, slot], posterior.rewards[row, slot]
    for i in range(len(theta)):
        total = 0.0
        for j in range(len(theta)):
            inverse[i, j] = exact[i, j]
            total += exact[i, j] * (rewards[j] + posterior.prior_moment[j])
        theta[i] = total


@inner(sums=True, inline=False)
def factorise(matrix: AnyArray, root: NDArray[np.float64]) -> None:
    """Write L into `root`, zeros above it, where L L' is the positive definite `matrix` (Cholesky, in float64)."""
    for i in range(len(matrix)):
        mine = root[i]
        for j in range(i):
            other, total = root[j], 0.0
            for k in range(j):
                total += mine[k] * other[k]
            mine[j] = (matrix[i, j] - total) / other[j] if other[j] > 0 else 0.0
        total = 0.0
        for k in range(i):
            total += mine[k] * mine[k]
        mine[i] = np.sqrt(max(matrix[i, i] - total, 0.0))
        for j in range(i + 1, len(matrix)):
            mine[j] = 0.0


@inner(sums=True)
def _invert(root: NDArray[np.float64]) -> None:
    """Replace a lower triangle by its inverse, row by row."""
    for i in range(len(root)):
        mine = root[i]
        pivot = 1.0 / mine[i]
        mine[i] = 0.0
        for k in range(i):  # the rows above are inverted already
            weight, above = -mine[k] * pivot, root[k]
            mine[k] = 0.0
            for j in range(k + 1):
                mine[j] += weight * above[j]
        mine[i] = pivot
