"""`Result`: what a simulation earned."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core.errors import InvalidArgument


class Result(NamedTuple):
    """One policy's run: every reward of every user, and the work it took."""

    policy: str
    rewards: NDArray[np.float32]
    """(users, rounds): expected reward of what was shown, or 0 and 1 for clicks."""
    best: NDArray[np.float32]
    """(users, rounds): expected reward of the best item that could have been shown, if regret was asked for."""
    expected: NDArray[np.float32]
    """(users, rounds): expected reward of what was shown."""
    scores: NDArray[np.float64]
    """(rounds,): score computations per user, on average."""
    shown: NDArray[np.bool_]
    """(items,): whether any user was shown the item."""
    seconds: float
    """Wall time of the run, without compiling."""
    settings: Mapping[str, Any]
    """Policy, users, seed, rounds, reward kind, version, and digests of the vectors and the tree."""
    log: pl.DataFrame | None = None
    """Every decision, if asked for: user, item, row, slot, round, propensity, exact, reward."""

    @property
    def cumulative(self) -> NDArray[np.float64]:
        """Mean cumulative reward of a user after every round."""
        total: NDArray[np.float64] = np.cumsum(self.rewards.mean(axis=0, dtype=np.float64))
        return total

    @property
    def regret(self) -> NDArray[np.float64]:
        """Mean cumulative regret of a user after every round: against the best item (the best left, if shown once)."""
        if not self.best.size:
            raise InvalidArgument("Result", "regret", "asked for: simulate(..., regret=True)", False)
        total: NDArray[np.float64] = np.cumsum((self.best - self.expected).mean(axis=0, dtype=np.float64))
        return total

    @property
    def per_user(self) -> NDArray[np.float64]:
        """Each user's total reward."""
        total: NDArray[np.float64] = self.rewards.sum(axis=1, dtype=np.float64)
        return total

    @property
    def error(self) -> float:
        """Standard error of the mean total reward over users."""
        return float(self.per_user.std(ddof=1) / len(self.per_user) ** 0.5) if len(self.per_user) > 1 else float("nan")

    @property
    def coverage(self) -> float:
        """Share of the catalogue that was shown to any user."""
        return float(self.shown.mean())

    def __repr__(self) -> str:
        return (
            f"{self.policy}: {self.cumulative[-1]:.2f} ± {self.error:.2f} in {self.rewards.shape[1]} rounds, "
            f"{self.scores.mean():.1f} scores per round, {self.coverage:.1%} of the catalogue"
        )
