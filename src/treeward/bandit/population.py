"""`PopulationPrior`: what other users' logs say of somebody nothing is known of yet."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.bandit.prior import Prior
from treeward.bandit.sampled import sample_of
from treeward.core import artefact, checks, rng
from treeward.core.artefact import StrPath
from treeward.core.errors import ArtefactCorrupt, DataError, InvalidArgument
from treeward.core.progress import Progress, Stage, silent
from treeward.core.types import Floats
from treeward.core.version import __version__
from treeward.data.catalogue import Catalogue
from treeward.data.interactions import Interactions
from treeward.data.numbered import numbered

FORMAT, VERSION = "treeward.prior", 1
FEATURES = ("bias", "popularity")
"""What is appended to items' own dimensions."""

_WEIGHT = 0.3
"""Of popularity beside directions of length 1: it matters to the tree alone, the prior is fitted to whatever it is."""
_ROUNDS = 20
_SETTLED = 2e-3
_AT_ONCE = 250
_GRID = (4.0, 2.0, 1.0, 0.5, 0.25)
_HELD_OUT, _POOL, _TRIED_ROUNDS = 200, 4_000, 100


@dataclass(frozen=True, eq=False)
class PopulationPrior(Prior):
    """theta ~ N(mean, covariance / ridge) over items' own dimensions, a bias, and popularity, fitted to other users.

    Make one with `fit`. A policy that has it sees items with the two features, and gives a newcomer what is popular,
    leaning from the first click on in the directions in which people differ.

    Parameters
    ----------
    noise
        Variance of a reward around x' theta; `covariance` is in units of it.
    ids
        Of the items that were in the log.
    rates
        How popular each of them is: the share of rewards among the events and non-events that were counted for it.
    provenance
        How it was made.
    """

    noise: float = 1.0
    ids: pl.Series = field(default_factory=lambda: pl.Series([], dtype=pl.String))
    rates: Floats = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def features(self) -> int:
        """How many dimensions come behind the items' own."""
        return len(FEATURES)

    @property
    def dim(self) -> int:
        """How many dimensions items have of their own."""
        return len(np.asarray(self.mean)) - self.features

    def __repr__(self) -> str:
        users = self.provenance.get("users", 0)
        return f"PopulationPrior({self.dim} + {self.features} dimensions, from {users:,} users)"

    def knows(self, catalogue: Catalogue) -> bool:
        """Tell whether a catalogue has the features already."""
        return catalogue.dim == self.dim + self.features and bool((catalogue.vectors[:, self.dim] == 1).all())

    def transform(self, catalogue: Catalogue) -> Catalogue:
        """Return the catalogue with its vectors at length 1 and the features behind them; done once, it stays so."""
        if self.knows(catalogue):
            return catalogue
        if catalogue.dim != self.dim:
            rule = f"of {self.dim} dimensions, as that it was fitted to"
            raise InvalidArgument("PopulationPrior", "catalogue", rule, f"{catalogue.dim}")
        if len(self.ids) and self.ids.dtype.is_integer() != catalogue.ids.dtype.is_integer():
            rule = f"with ids that are {self.ids.dtype}, as those it was fitted to"
            raise InvalidArgument("PopulationPrior", "catalogue", rule, catalogue.ids.dtype)
        if catalogue.ids.equals(self.ids):
            return catalogue.with_vectors(_augmented(catalogue.vectors, self.rates))
        known = pl.DataFrame({"id": self.ids, "rate": self.rates})
        rates = catalogue.ids.to_frame("id").join(known, on="id", how="left", maintain_order="left")["rate"]
        # Of an item that came later nothing is known: it is taken to be as popular as the others are on average.
        usual = float(self.rates.mean()) if len(self.rates) else 0.0
        return catalogue.with_vectors(_augmented(catalogue.vectors, rates.fill_null(usual).to_numpy()))

    def spaced(self, catalogue: Catalogue) -> Floats:
        """Return vectors that lie as far apart as the prior expects users to tell the items apart.

        The squared distance of two is the mean square of the difference between what somebody drawn from the prior
        would think of the items: clusters of them are of one worth to anybody, which is what a search needs.
        """
        spaced: Floats = self.transform(catalogue).vectors @ self.metric
        return spaced

    @property
    def metric(self) -> Floats:
        """What vectors with features are multiplied by to lie so far apart."""
        mean = np.asarray(self.mean, dtype=np.float64)
        second = np.asarray(self.covariance, dtype=np.float64) * self.noise + np.outer(mean, mean)
        values, directions = np.linalg.eigh(second)
        made: Floats = (directions * np.sqrt(np.maximum(values, 0.0))).astype(np.float32)
        return made

    @classmethod
    def fit(
        cls,
        interactions: Interactions,
        catalogue: Catalogue,
        *,
        negatives: int = 4,
        users: int = 3_000,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Self:
        """Fit mean and covariance by empirical Bayes: the ones under which what these users did is most likely.

        Every user's rewards are taken for r = x' theta + noise. What the noise comes to matters more than it seems: a
        log tells rewards from drawn non-events, most of which are easy to tell, but a bandit sees what it shows, which
        is about as likely to be clicked as not, and a click says less there. So the noise is that of clicks on the
        items the prior itself prefers, times a factor that earns most on users held out, whose clicks are drawn from
        what their whole log says of them.

        Parameters
        ----------
        interactions
            The log: rewards above 0 count, others are non-events. Give it training users only.
        catalogue
            The items, with vectors.
        negatives
            Non-events a reward: those that the log does not have are drawn from all items.
        users
            At most so many of the log's users are looked at.
        seed
            Same seed and log: same prior.
        progress
            Called with (stage, done, total).

        Examples
        --------
        >>> from treeward.data.synthetic import synthetic_catalogue
        >>> shop = synthetic_catalogue(200, dim=4, seed=0)
        >>> log = Interactions([user for user in range(50) for _ in range(4)], [i % 20 for i in range(200)])
        >>> prior = PopulationPrior.fit(log, shop)
        >>> prior, prior.transform(shop).dim
        (PopulationPrior(4 + 2 dimensions, from 50 users), 6)
        """
        owner = "PopulationPrior.fit"
        checks.kinds(owner, ("interactions", interactions, Interactions), ("catalogue", catalogue, Catalogue))
        if not catalogue.dim:
            raise InvalidArgument(owner, "catalogue", "one with vectors", "none")
        checks.integer(owner, "negatives", negatives, low=1)
        checks.integer(owner, "users", users, low=2)
        checks.integer(owner, "seed", seed, low=0)
        told = progress or silent
        if not len(interactions):
            raise DataError("the log is empty")
        log = _counted(interactions, catalogue, negatives, seed)
        rates = log.popularity / np.maximum(log.popularity + negatives * log.popularity.mean(), 1e-12)
        x = _augmented(catalogue.vectors, rates.astype(np.float32))
        people = rng.sample(seed, rng.stream("prior", "users"), log.users, min(users, log.users))
        held = people[: min(_HELD_OUT, len(people) // 5)]
        scale = float(np.sqrt(np.mean(log.reward[log.reward > 0] ** 2)))  # it begins from guesses about rewards near 1
        log = log._replace(reward=log.reward / scale)
        fitted = _expectation_maximisation(x, log.of(np.sort(people[len(held) :])), told)
        noise, tried = _noise_of_clicks(x, fitted, log.of(np.sort(held)), log.binary, seed, told)
        provenance = {
            "users": log.users,
            "users_fitted": len(people) - len(held),
            "users_held_out": len(held),
            "negatives": negatives,
            "seed": seed,
            "noise_of_the_log": fitted.noise * scale**2,
            "tried": tried,
            "treeward": __version__,
            "vectors_sha256": artefact.digest(catalogue.vectors),
            "sample": sample_of(catalogue),
        }
        return cls(
            fitted.mean * scale,
            fitted.covariance / noise,
            noise * scale**2,
            catalogue.ids,
            rates.astype(np.float32),
            provenance,
        )

    def save(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Write the prior to a directory, checksummed."""
        arrays = {"mean": np.asarray(self.mean), "covariance": np.asarray(self.covariance), "rates": self.rates}
        info = {**self.provenance, "noise": self.noise}
        contents = artefact.Contents(arrays, {"items": pl.DataFrame({"id": self.ids})}, {}, info)
        artefact.write(path, FORMAT, VERSION, contents, overwrite=overwrite)

    @classmethod
    def load(cls, path: StrPath) -> Self:
        """Read what `save` wrote."""
        held = artefact.read(path, FORMAT, VERSION)
        info = dict(held.info)
        try:
            made = cls(
                np.array(held.arrays["mean"]),
                np.array(held.arrays["covariance"]),
                float(info.pop("noise")),
                held.tables["items"]["id"],
                np.array(held.arrays["rates"]),
                info,
            )
            made.start(made.dim + made.features, 1.0)
        except (KeyError, InvalidArgument) as error:
            raise ArtefactCorrupt(f"{path}: does not hold a prior: {error}") from error
        return made


def _augmented(vectors: Floats, rates: Floats) -> Floats:
    made = np.empty((len(vectors), vectors.shape[1] + len(FEATURES)), dtype=np.float32)
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    made[:, : -len(FEATURES)] = vectors / np.where(lengths > 0, lengths, 1.0)[:, None]
    made[:, -2], made[:, -1] = 1.0, _WEIGHT * rates
    return made


class _Log(NamedTuple):
    """Rewards and non-events, user by user."""

    ends: NDArray[np.int64]
    """(users + 1,): user i's are [ends[i] : ends[i + 1]]."""
    row: NDArray[np.int64]
    reward: NDArray[np.float64]
    popularity: NDArray[np.float64]
    """(items,): how many users rewarded each."""
    binary: bool
    """Whether rewards are 1 and nothing else."""

    @property
    def users(self) -> int:
        return len(self.ends) - 1

    def of(self, users: NDArray[np.int64]) -> "_Log":
        """Return some users' part."""
        parts = [np.arange(self.ends[user], self.ends[user + 1]) for user in users.tolist()]
        at = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        ends = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
        return self._replace(ends=ends, row=self.row[at], reward=self.reward[at])


def _counted(interactions: Interactions, catalogue: Catalogue, negatives: int, seed: int) -> _Log:
    """Return the log in numbers, one row a user and item, with non-events drawn where it has too few."""
    found = numbered("PopulationPrior.fit", interactions, catalogue)
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
    return _Log(ends, row[order], reward[order], popularity, bool((liked["reward"] == 1).all()))


class _Fitted(NamedTuple):
    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]
    noise: float


class _Sums(NamedTuple):
    """What is left of users' events: X'X, X'r, r'r and how many."""

    products: Floats
    moments: NDArray[np.float64]
    squares: NDArray[np.float64]
    events: NDArray[np.int64]

    @classmethod
    def of(cls, x: Floats, log: _Log) -> "_Sums":
        """Sum up."""
        products = np.empty((log.users, x.shape[1], x.shape[1]), dtype=np.float32)
        moments, squares = np.empty((log.users, x.shape[1])), np.empty(log.users)
        for user in range(log.users):
            mine = slice(log.ends[user], log.ends[user + 1])
            seen, reward = x[log.row[mine]], log.reward[mine]
            products[user], moments[user], squares[user] = seen.T @ seen, seen.T @ reward, reward @ reward
        return cls(products, moments, squares, np.diff(log.ends))

    def posteriors(
        self, fitted: _Fitted, first: int, last: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return X'X, and the mean and covariance of some users' theta."""
        inverse = np.linalg.inv(fitted.covariance)
        products = self.products[first:last].astype(np.float64)
        covariance = np.linalg.inv(inverse + products / fitted.noise).astype(np.float64, copy=False)
        pulled = self.moments[first:last] / fitted.noise + inverse @ fitted.mean
        means: NDArray[np.float64] = np.einsum("uij,uj->ui", covariance, pulled)
        return products, means, covariance


def _expectation_maximisation(x: Floats, log: _Log, progress: Progress) -> _Fitted:
    sums, dim = _Sums.of(x, log), x.shape[1]
    total = sums.products.sum(axis=0, dtype=np.float64)
    ridge = 1e-6 * np.trace(total) * np.eye(dim)
    mean = np.linalg.solve(total + ridge, sums.moments.sum(axis=0))
    fitted = _Fitted(mean, np.eye(dim) * 0.5 / dim, 0.15 * float(np.mean(log.reward[log.reward > 0] ** 2)))
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
        # A direction in which nobody differs must not become one in which nobody may.
        covariance = (spread + away.T @ away) / log.users + 1e-9 * np.eye(dim)
        settled = abs(noise / fitted.noise - 1) < _SETTLED
        fitted = _Fitted(means.mean(axis=0), (covariance + covariance.T) / 2, noise)
        stage.step()
        if settled:
            break
    stage.finish()
    return fitted


def _noise_of_clicks(
    x: Floats, fitted: _Fitted, held: _Log, binary: bool, seed: int, progress: Progress
) -> tuple[float, dict[str, float]]:
    """Return the noise to count with, and what each factor of the grid earned on users held out."""
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
    """Return the clicks that the best mean of those not shown yet earns a user of these chances."""
    users, everybody = len(chances), np.arange(len(chances))
    inverse = np.repeat(spread.astype(np.float32)[None], users, axis=0)
    theta = np.repeat(mean.astype(np.float32)[None], users, axis=0)
    scores = theta @ x.T
    total = 0.0
    for turn in range(rounds):
        at = scores.argmax(axis=1)
        drawn = rng.uniforms(seed, rng.stream("prior", "clicks", turn), users)
        clicks = (drawn < chances[everybody, at]).astype(np.float32)
        total += float(chances[everybody, at].mean())
        shown = x[at]
        along = np.einsum("uij,uj->ui", inverse, shown)
        scale = 1 / (1 + np.einsum("ui,ui->u", shown, along))
        surprise = (clicks - np.einsum("ui,ui->u", shown, theta)) * scale
        theta += along * surprise[:, None]
        inverse -= along[:, :, None] * (along * scale[:, None])[:, None, :]
        scores += (along @ x.T) * surprise[:, None]
        scores[everybody, at] = -np.inf
    return total
