"""What XCB, MIPS and the spanners share: one ridge regression per user, over the items' vectors."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treeward.bandit import Prior
from treeward.core import checks
from treeward.core.compiled import inner, kernel
from treeward.core.types import Floats, Integers
from treeward.data.catalogue import Catalogue
from treeward.engine.available import Screen
from treeward.engine.explore import UCB
from treeward.policy.baselines.base import ROUND, RoundPolicy, RoundSession, Setup
from treeward.policy.baselines.kernels import BatchDraws, project
from treeward.policy.session import Decisions
from treeward.tree.item_tree import ItemTree
from treeward.tree.row_groups import Rows


@dataclass(frozen=True)
class RidgePolicy(RoundPolicy):
    """A policy whose estimates are those of LinUCB: theta = A^-1 b for every user, from a prior if there is one."""

    families: ClassVar[tuple[int, ...]] = (UCB,)
    takes_prior: ClassVar[bool] = True
    budget: int | None = None


class Regression(NamedTuple):
    """Per user: A^-1, theta, and the number of rewards."""

    inverse: NDArray[np.float64]
    theta: NDArray[np.float64]
    seen: NDArray[np.int64]


class Request(NamedTuple):
    """Users who wait for a decision, and which items they may be shown."""

    screen: Screen
    shown: Integers
    counts: NDArray[np.int64]
    who: NDArray[np.int64]
    draws: BatchDraws


class Found(NamedTuple):
    """One item per user, and what is known about it."""

    place: NDArray[np.int64]
    """-1: nothing is left."""
    node: NDArray[np.int64]
    mean: NDArray[np.float64]
    width: NDArray[np.float64]
    chance: NDArray[np.float64]
    exact: NDArray[np.bool_]
    scores: NDArray[np.int64]
    work: NDArray[np.int64]

    @classmethod
    def empty(cls, count: int) -> "Found":
        """Return `count` decisions that are still to be made."""
        none, zero = np.zeros(count, dtype=np.int64), np.zeros(count)
        exact = np.zeros(count, dtype=np.bool_)
        return cls(none - 1, none, zero, zero.copy(), zero + 1.0, exact, none.copy(), none.copy())


class RidgeSession(RoundSession):
    """Such a policy at work. It implements `decide`."""

    def __init__(self, policy: RidgePolicy, tree: ItemTree, catalogue: Catalogue, setup: Setup) -> None:
        super().__init__(tree.items, setup)
        dim, users = catalogue.dim, self.users
        self.rule = policy.bandit.rule(dim)
        start = (policy.prior or Prior()).start(dim, self.rule.ridge)
        first = np.linalg.inv(start.precision)
        self.vectors = np.ascontiguousarray(Rows(catalogue.vectors, tree.normalized).take(tree.items))
        inverse = np.repeat(first[np.newaxis], users, axis=0)
        theta = np.repeat((first @ start.moment)[np.newaxis], users, axis=0)
        self.state = Regression(inverse, theta, np.zeros(users, dtype=np.int64))
        self.upkeep = 2 * dim * dim  # A^-1 x, and the rank-1 update of A^-1

    def select(self, users: ArrayLike, nonce: int, allow: ArrayLike | None = None) -> Decisions:
        """Decide once for each of the users."""
        who = self.who(users)
        counter = checks.integer("session", "nonce", nonce, low=0, high=2**43 - 1) * ROUND
        draws = BatchDraws(self.seed, self.streams[who], counter)
        out = Found.empty(len(who))
        self.decide(Request(self.open(allow), self._shown, self._counts, who, draws), out)
        self.record(who, out.place)
        items: NDArray[np.int64] = np.where(out.place >= 0, self.items[out.place], -1).astype(np.int64)
        mean, width = out.mean.astype(np.float32), out.width.astype(np.float32)
        nonces = np.full(len(who), nonce, dtype=np.int64)
        return Decisions(
            who, nonces, items, out.place, out.node, mean, width, out.chance, out.exact, out.scores, out.work
        )

    def decide(self, request: Request, out: Found) -> None:
        """Write one decision per user to `out`."""
        raise NotImplementedError

    def learn(self, decisions: Decisions, rewards: NDArray[np.float64]) -> None:
        """Add rewards to the users' regressions."""
        _learn(self.state, self.vectors, decisions.user, decisions.place, rewards)


@kernel
def _learn(
    state: Regression,
    vectors: Floats,
    who: NDArray[np.int64],
    places: NDArray[np.int64],
    rewards: NDArray[np.float64],
) -> None:
    """Add rewards: A += x x', b += r x; A^-1 and theta follow by the Sherman-Morrison formula."""
    dim = vectors.shape[1]
    x, z = np.empty(dim), np.empty(dim)
    for i in range(len(who)):
        inverse, theta, surprise = state.inverse[who[i]], state.theta[who[i]], rewards[i]
        for j in range(dim):
            x[j] = vectors[places[i], j]
            surprise -= x[j] * theta[j]
        scale = 1.0 / (1.0 + project(inverse, x, z))
        for j in range(dim):
            theta[j] += z[j] * surprise * scale
            for k in range(dim):
                inverse[j, k] -= scale * z[j] * z[k]
        state.seen[who[i]] += 1


@inner
def describe(state: Regression, user: int, vector: Floats, x: NDArray[np.float64], z: NDArray[np.float64]) -> float:
    """Write a vector to `x` and A^-1 x to `z`; return its width, sqrt(x' A^-1 x)."""
    for i in range(len(x)):
        x[i] = vector[i]
    return float(np.sqrt(max(project(state.inverse[user], x, z), 0.0)))


@inner(sums=True)
def mean_of(theta: NDArray[np.float64], x: NDArray[np.float64]) -> float:
    """Return x' theta."""
    total = 0.0
    for i in range(len(x)):
        total += x[i] * theta[i]
    return total
