"""Fitting a crowd to an existing log: mean and covariance of tastes by empirical Bayes."""

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.errors import DataError
from treeward.core.progress import Progress, Stage
from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue
from treeward.data.interactions import Interactions
from treeward.data.item_rows import with_item_rows

_ROUNDS = 20
_SETTLED = 2e-3
_AT_ONCE = 250
_GRID = (4.0, 2.0, 1.0, 0.5, 0.25)
_POOL, _TRIED_ROUNDS = 4_000, 100


class Log(NamedTuple):
    """Rewards and non-events, user by user."""

    ends: NDArray[np.int64]
    """(users + 1,): user i's are [ends[i] : ends[i + 1]]."""
    row: NDArray[np.int64]
    reward: NDArray[np.float64]
    popularity: NDArray[np.float64]
    """(items,): how many users rewarded each item."""
    binary: bool
    """Whether all rewards are 1."""

    @property
    def users(self) -> int:
        """How many users there are."""
        return len(self.ends) - 1

    def of(self, users: NDArray[np.int64]) -> "Log":
        """Return the part of some users."""
        parts = [np.arange(self.ends[user], self.ends[user + 1]) for user in users.tolist()]
        at = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        ends = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
        return self._replace(ends=ends, row=self.row[at], reward=self.reward[at])


def counted(interactions: Interactions, catalogue: Catalogue, negatives: int, seed: int) -> Log:
    """Return the log in numbers, one row per user and item, with non-events drawn where there are too few."""
    found = with_item_rows("Crowd.fit", interactions, catalogue)
    pairs = found.group_by("user", "row").agg(pl.max("reward")).collect()
    liked = pairs.filter(pl.col("reward") > 0).sort("user", "row")
    if not liked.height:
        raise DataError("the log rewards no item of the catalogue")
    who = pl.DataFrame({"user": liked["user"].unique(maintain_order=True)}).with_row_index("at")
    liked = liked.join(who, on="user", maintain_order="left")
    skipped = pairs.filter(pl.col("reward") <= 0).join(who, on="user").sort("at", "row")
    count = len(who)
    wanted = negatives * np.bincount(liked["at"].to_numpy(), minlength=count)
    lacking = np.maximum(0, wanted - np.bincount(skipped["at"].to_numpy(), minlength=count))
    drawn_for = np.repeat(np.arange(count), lacking)
    drawn = (rng.uniforms(seed, rng.stream("prior", "negatives"), len(drawn_for)) * len(catalogue)).astype(np.int64)
    known = np.unique(liked["at"].to_numpy().astype(np.int64) * len(catalogue) + liked["row"].to_numpy())
    fresh = ~np.isin(drawn_for * len(catalogue) + drawn, known)
    at = np.concatenate([liked["at"].to_numpy(), skipped["at"].to_numpy(), drawn_for[fresh]]).astype(np.int64)
    row = np.concatenate([liked["row"].to_numpy(), skipped["row"].to_numpy(), drawn[fresh]])
    reward = np.zeros(len(at))
    reward[: liked.height] = liked["reward"].to_numpy()
    order = np.argsort(at, kind="stable")
    ends = np.searchsorted(at[order], np.arange(count + 1))
    popularity = np.bincount(liked["row"].to_numpy(), minlength=len(catalogue)).astype(np.float64)
    return Log(ends, row[order], reward[order], popularity, bool((liked["reward"] == 1).all()))


class Fitted(NamedTuple):
    """theta ~ N(mean, covariance), and the variance of a reward around x' theta."""

    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]
    noise: float


class _Sums(NamedTuple):
    """Sums over each user's events: X'X, X'r, r'r and how many events."""

    products: Floats
    moments: NDArray[np.float64]
    squares: NDArray[np.float64]
    events: NDArray[np.int64]

    @classmethod
    def of(cls, x: Floats, log: Log) -> "_Sums":
        """Return the sums of a log."""
        products = np.empty((log.users, x.shape[1], x.shape[1]), dtype=np.float32)
        moments, squares = np.empty((log.users, x.shape[1])), np.empty(log.users)
        for user in range(log.users):
            mine = slice(log.ends[user], log.ends[user + 1])
            seen, reward = x[log.row[mine]], log.reward[mine]
            products[user], moments[user], squares[user] = seen.T @ seen, seen.T @ reward, reward @ reward
        return cls(products, moments, squares, np.diff(log.ends))

    def posteriors(
        self, fitted: Fitted, first: int, last: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return X'X, and the mean and covariance of some users' theta."""
        inverse = np.linalg.inv(fitted.covariance)
        products = self.products[first:last].astype(np.float64)
        covariance = np.linalg.inv(inverse + products / fitted.noise).astype(np.float64, copy=False)
        pulled = self.moments[first:last] / fitted.noise + inverse @ fitted.mean
        means: NDArray[np.float64] = np.einsum("uij,uj->ui", covariance, pulled)
        return products, means, covariance


def expectation_maximisation(x: Floats, log: Log, progress: Progress) -> Fitted:
    """Return the mean and covariance under which the log is most likely."""
    sums, dim = _Sums.of(x, log), x.shape[1]
    total = sums.products.sum(axis=0, dtype=np.float64)
    ridge = 1e-6 * np.trace(total) * np.eye(dim)
    mean = np.linalg.solve(total + ridge, sums.moments.sum(axis=0))
    fitted = Fitted(mean, np.eye(dim) * 0.5 / dim, 0.15 * float(np.mean(log.reward[log.reward > 0] ** 2)))
    stage = Stage(progress, "fitting the prior", _ROUNDS)
    for _ in range(_ROUNDS):
        means, spread, error = np.empty_like(sums.moments), np.zeros((dim, dim)), 0.0
        for first in range(0, log.users, _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            products, mine, covariance = sums.posteriors(fitted, part.start, part.stop)
            means[part] = mine
            spread += covariance.sum(axis=0)
            error += float(
                (sums.squares[part] - 2 * (mine * sums.moments[part]).sum(axis=1)).sum()
                + np.einsum("ui,uij,uj->", mine, products, mine)
                + np.einsum("uij,uij->", covariance, products)
            )
        away = means - means.mean(axis=0)
        noise = max(error / max(1, int(sums.events.sum())), 1e-6)
        # A direction without variance so far must not get a variance of exactly 0: it could never grow again.
        covariance = (spread + away.T @ away) / log.users + 1e-9 * np.eye(dim)
        settled = abs(noise / fitted.noise - 1) < _SETTLED
        fitted = Fitted(means.mean(axis=0), (covariance + covariance.T) / 2, noise)
        stage.step()
        if settled:
            break
    stage.finish()
    return fitted


def noise_of_clicks(
    x: Floats, fitted: Fitted, held: Log, binary: bool, seed: int, progress: Progress
) -> tuple[float, dict[str, float]]:
    """Return the noise to use, and what each factor of the grid earned on held-out users."""
    prior = np.clip(x @ fitted.mean.astype(np.float32), 0.0, 1.0)
    best = np.sort(prior)[-max(1, min(len(prior) // 10, 300)) :]
    noise = max(fitted.noise, float((best * (1 - best)).mean())) if binary else fitted.noise
    if not binary or held.users < 10:
        return noise, {}
    _, tastes, _ = _Sums.of(x, held).posteriors(fitted, 0, held.users)
    count = min(len(x), _POOL)
    pool = x[np.sort(rng.sample(seed, rng.stream("prior", "pool"), len(x), count))]
    chances = np.clip(tastes @ pool.T, 0.01, 0.99)
    stage = Stage(progress, "choosing the shrinkage", len(_GRID))
    earned: dict[str, float] = {}
    for factor in _GRID:
        spread = fitted.covariance / (noise * factor)
        earned[f"{factor:g}"] = _earned(pool, fitted.mean, spread, chances, min(_TRIED_ROUNDS, count), seed)
        stage.step()
    return noise * float(max(earned, key=lambda factor: earned[factor])), earned


def _earned(
    x: Floats,
    mean: NDArray[np.float64],
    spread: NDArray[np.float64],
    chances: NDArray[np.float64],
    rounds: int,
    seed: int,
) -> float:
    """Return the clicks per user if the item with the best mean, of those not shown yet, is shown in every round."""
    users, every = len(chances), np.arange(len(chances))
    inverse = np.repeat(spread.astype(np.float32)[None], users, axis=0)
    theta = np.repeat(mean.astype(np.float32)[None], users, axis=0)
    scores = theta @ x.T
    total = 0.0
    for turn in range(rounds):
        at = scores.argmax(axis=1)
        drawn = rng.uniforms(seed, rng.stream("prior", "clicks", turn), users)
        clicks = (drawn < chances[every, at]).astype(np.float32)
        total += float(chances[every, at].mean())
        shown = x[at]
        along = np.einsum("uij,uj->ui", inverse, shown)
        scale = 1 / (1 + np.einsum("ui,ui->u", shown, along))
        surprise = (clicks - np.einsum("ui,ui->u", shown, theta)) * scale
        theta += along * surprise[:, None]
        inverse -= along[:, :, None] * (along * scale[:, None])[:, None, :]
        scores += (along @ x.T) * surprise[:, None]
        scores[every, at] = -np.inf
    return total
