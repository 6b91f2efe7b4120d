"""`Crowd`: what users have in common, and so what to expect of a user who has no events yet."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.bandit.changed_vectors import sample_of
from treeward.bandit.crowd_fit import counted, expectation_maximisation, noise_of_clicks
from treeward.bandit.prior import Prior
from treeward.core import artefact, checks, rng
from treeward.core.artefact import StrPath
from treeward.core.checks import Count, Seed, Whole
from treeward.core.errors import ArtefactCorrupt, DataError, InvalidArgument
from treeward.core.progress import Progress, silent
from treeward.core.types import Floats
from treeward.core.version import __version__
from treeward.data.catalogue import Catalogue
from treeward.data.interactions import Interactions

FORMAT, VERSION = "treeward.crowd", 1
FEATURES = ("bias", "popularity or length")
"""What is appended to an item's own dimensions: a constant, and how popular the item was in the log. Without a log, the
length of the vector stands for it: vectors learned from clicks are longer for popular items."""

_WEIGHT = 0.3
"""Weight of the last feature, next to directions of length 1."""
_HELD_OUT = 200
_FARTHEST = 3.0
"""Lengths are clipped at this many standard deviations."""
SPREAD = 0.3
"""Variance of tastes per dimension before the first reward, in units of the noise."""


@dataclass(frozen=True, eq=False)
class Crowd(Prior):
    """What users have in common: theta ~ N(mean, covariance / ridge), over items' own dimensions and two features.

    There are two ways to get one. `fit` learns it from an existing log. An `Explorer` learns it from the rewards of all
    users, starts with `empty` or with a fitted one, and publishes editions of it. A policy with a crowd sees items
    with the features. It shows a new user what most users like, and adapts from the first click on, fastest in the
    directions in which users differ.

    Parameters
    ----------
    noise
        Variance of a reward around x' theta; `covariance` is in units of it.
    ids
        Ids of the items in the log.
    rates
        How popular each of them is: the share of rewards among its events and non-events.
    provenance
        How it was made.
    lengths
        Mean and standard deviation of the logarithms of the vectors' lengths, if the last feature is the length;
        None: the last feature is the popularity in a log.
    users
        How many users the mean was estimated from; 0: it is a guess.
    times, earned
        How many rewards an explorer has seen for each of the ids, and their sums; both may be empty.
    """

    noise: float = 1.0
    ids: pl.Series = field(default_factory=lambda: pl.Series([], dtype=pl.String))
    rates: Floats = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    provenance: dict[str, Any] = field(default_factory=dict)
    lengths: tuple[float, float] | None = None
    users: int = 0
    times: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    earned: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    @property
    def fitted(self) -> bool:
        """Whether it was fitted to a log, so that it knows how popular items are."""
        return self.users > 0 and self.lengths is None

    @property
    def informed(self) -> bool:
        """As `fitted`: a crowd that an explorer learns from its first visitor on does not know yet."""
        return self.fitted

    @property
    def features(self) -> int:
        """How many dimensions follow the items' own."""
        return len(FEATURES)

    @property
    def dim(self) -> int:
        """How many dimensions the items' own vectors have."""
        return len(np.asarray(self.mean)) - self.features

    def __repr__(self) -> str:
        return f"Crowd({self.dim} + {self.features} dimensions, from {self.users:,} users)"

    @classmethod
    def empty(cls, catalogue: Catalogue) -> Self:
        """Return a crowd without any rewards: to every user, every item is as good as another.

        Examples
        --------
        >>> from treeward.data.synthetic import synthetic_catalogue
        >>> Crowd.empty(synthetic_catalogue(200, dim=4, seed=0))
        Crowd(4 + 2 dimensions, from 0 users)
        """
        if not catalogue.dim:
            raise InvalidArgument("Crowd.empty", "catalogue", "one with vectors", "none")
        logs = np.log(np.maximum(_lengths(catalogue.vectors), 1e-12))
        spread = float(logs.std())
        dim = catalogue.dim + len(FEATURES)
        provenance = {"vectors_sha256": artefact.digest(catalogue.vectors), "treeward": __version__}
        lengths = float(logs.mean()), spread if spread > 1e-3 else 0.0  # else they are all of one length
        return cls(np.zeros(dim), SPREAD * np.eye(dim), provenance=provenance, lengths=lengths)

    def knows(self, catalogue: Catalogue) -> bool:
        """Return whether a catalogue has the features already."""
        return catalogue.dim == self.dim + self.features and bool((catalogue.vectors[:, self.dim] == 1).all())

    def transform(self, catalogue: Catalogue) -> Catalogue:
        """Return the catalogue with its vectors at length 1, followed by the features. Idempotent."""
        if self.knows(catalogue):
            return catalogue
        if catalogue.dim != self.dim:
            rule = f"of {self.dim} dimensions, like the one it was fitted to"
            raise InvalidArgument("Crowd", "catalogue", rule, f"{catalogue.dim}")
        if len(self.ids) and self.ids.dtype.is_integer() != catalogue.ids.dtype.is_integer():
            rule = f"with ids that are {self.ids.dtype}, like those it was fitted to"
            raise InvalidArgument("Crowd", "catalogue", rule, catalogue.ids.dtype)
        if self.lengths is not None:
            mean, spread = self.lengths
            far = (np.log(np.maximum(_lengths(catalogue.vectors), 1e-12)) - mean) / (spread or 1.0)
            last = np.clip(far, -_FARTHEST, _FARTHEST) if spread else np.zeros(len(catalogue))
            return catalogue.with_vectors(_augmented(catalogue.vectors, last.astype(np.float32)))
        if catalogue.ids.equals(self.ids):
            return catalogue.with_vectors(_augmented(catalogue.vectors, self.rates))
        known = pl.DataFrame({"id": self.ids, "rate": self.rates})
        rates = catalogue.ids.to_frame("id").join(known, on="id", how="left", maintain_order="left")["rate"]
        # Nothing is known about an item that came later: assume the mean popularity.
        usual = float(self.rates.mean()) if len(self.rates) else 0.0
        return catalogue.with_vectors(_augmented(catalogue.vectors, rates.fill_null(usual).to_numpy()))

    def spaced(self, catalogue: Catalogue) -> Floats:
        """Return vectors whose distances say how differently users will like the items.

        The squared distance of two items is the mean square of the difference of their expected rewards, for a user
        drawn from the prior. So the items of a cluster are about equally good for any user, which a search needs.
        """
        spaced: Floats = self.transform(catalogue).vectors @ self.metric
        return spaced

    @property
    def metric(self) -> Floats:
        """(d, d): what `spaced` multiplies vectors with features by."""
        mean = np.asarray(self.mean, dtype=np.float64)
        if not mean.any():  # no rewards yet: the vectors' own metric
            return np.eye(len(mean), dtype=np.float32)
        second = np.asarray(self.covariance, dtype=np.float64) * self.noise + np.outer(mean, mean)
        values, directions = np.linalg.eigh(second)
        made: Floats = (directions * np.sqrt(np.maximum(values, 0.0))).astype(np.float32)
        return made

    @classmethod
    @checks.checked("Crowd.fit")
    def fit(
        cls,
        interactions: Interactions,
        catalogue: Catalogue,
        *,
        negatives: Count = 4,
        users: Annotated[int, Whole(low=2)] = 3_000,
        seed: Seed = 0,
        progress: Progress | None = None,
    ) -> Self:
        """Fit mean and covariance by empirical Bayes: those under which the log is most likely.

        The model is r = x' theta + noise for every user. The size of the noise matters: most non-events of a log are
        drawn at random and easy to tell from rewards, but a bandit shows good items only, where a single click says
        less. So the noise is that of clicks on the items that the prior prefers, times the factor that earns most on
        held-out users, whose clicks are simulated from their whole log.

        Parameters
        ----------
        interactions
            The log: rewards above 0 count, others are non-events. Pass training users only.
        catalogue
            The items, with vectors.
        negatives
            Non-events per reward; where the log has fewer, the rest is drawn from all items.
        users
            Learn from at most this many of the log's users.
        seed
            The same seed and log give the same prior.
        progress
            Called with (stage, done, total).

        Examples
        --------
        >>> from treeward.data.synthetic import synthetic_catalogue
        >>> shop = synthetic_catalogue(200, dim=4, seed=0)
        >>> log = Interactions([user for user in range(50) for _ in range(4)], [i % 20 for i in range(200)])
        >>> prior = Crowd.fit(log, shop)
        >>> prior, prior.transform(shop).dim
        (Crowd(4 + 2 dimensions, from 40 users), 6)
        """
        if not catalogue.dim:
            raise InvalidArgument("Crowd.fit", "catalogue", "one with vectors", "none")
        report = progress or silent
        if not len(interactions):
            raise DataError("the log is empty")
        log = counted(interactions, catalogue, negatives, seed)
        rates = log.popularity / np.maximum(log.popularity + negatives * log.popularity.mean(), 1e-12)
        x = _augmented(catalogue.vectors, rates.astype(np.float32))
        people = rng.sample(seed, rng.stream("prior", "users"), log.users, min(users, log.users))
        held = people[: min(_HELD_OUT, len(people) // 5)]
        scale = float(np.sqrt(np.mean(log.reward[log.reward > 0] ** 2)))  # its first guesses assume rewards near 1
        log = log._replace(reward=log.reward / scale)
        fitted = expectation_maximisation(x, log.of(np.sort(people[len(held) :])), report)
        noise, tried = noise_of_clicks(x, fitted, log.of(np.sort(held)), log.binary, seed, report)
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
            users=len(people) - len(held),
        )

    def save(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Write it to a directory, checksummed."""
        arrays = {"mean": np.asarray(self.mean), "covariance": np.asarray(self.covariance), "rates": self.rates,
                  "times": self.times, "earned": self.earned}  # fmt: skip
        info = {**self.provenance, "noise": self.noise, "lengths": self.lengths, "known_from": self.users}
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
                lengths=None if (lengths := info.pop("lengths")) is None else (float(lengths[0]), float(lengths[1])),
                users=int(info.pop("known_from")),
                provenance=info,
                times=np.array(held.arrays["times"]),
                earned=np.array(held.arrays["earned"]),
            )
            made.start(made.dim + made.features, 1.0)
        except (KeyError, InvalidArgument) as error:
            raise ArtefactCorrupt(f"{path}: does not hold a crowd: {error}") from error
        return made


def _lengths(vectors: Floats) -> Any:
    return np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))


def _augmented(vectors: Floats, last: Floats) -> Floats:
    """Return vectors at length 1, followed by a bias of 1 and a last feature."""
    made = np.empty((len(vectors), vectors.shape[1] + len(FEATURES)), dtype=np.float32)
    lengths = _lengths(vectors)
    # By `out`: a quotient of its own, in double precision, would be written to memory and read again.
    np.divide(vectors, np.where(lengths > 0, lengths, 1.0)[:, None], out=made[:, : -len(FEATURES)], casting="same_kind")
    made[:, -2], made[:, -1] = 1.0, _WEIGHT * last
    return made
