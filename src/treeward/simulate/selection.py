"""Weights for answers to items that users chose themselves, and a base rate known from items shown at random."""

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.optimize import brentq

from treeward.core.errors import DataError, InvalidArgument
from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue
from treeward.learn.factorise import Factors
from treeward.learn.propensity import by_features, by_level

_OWNER = "World.fit"
_WIDEST = 30.0


class Answers(NamedTuple):
    """Pairs of a user and an item, and whether the user rewarded it."""

    user: NDArray[np.int64]
    """Numbers of users; -1 for one that the log does not have."""
    item: NDArray[np.int64]
    reward: Floats

    @property
    def rate(self) -> float:
        """The share that was rewarded."""
        return float((self.reward > 0).mean())


def check_answers(kind: str, log: Answers, random: Answers | None) -> None:
    """Refuse what propensities of this kind cannot be computed from."""
    if kind != "features" and random is None:
        rule = f"given for exposure={kind!r}: answers to items shown at random, without which it cannot be known"
        raise InvalidArgument(_OWNER, "random", rule, random)
    if not (log.reward <= 0).any():
        raise DataError("the log has no rows without a reward, so how a reward affects exposure cannot be known")


def answer_propensities(
    kind: str,
    log: Answers,
    learned: NDArray[np.bool_],
    random: Answers | None,
    catalogue: Catalogue,
    people: NDArray[np.float64] | None,
    seed: int,
) -> NDArray[np.float64]:
    """Return how likely each answer of the log was to be given, relative to their mean.

    Parameters
    ----------
    kind
        ``"rating"``: from the answer itself, by naive Bayes; ``"features"``: from those of the user and the item;
        ``"both"``: the product of the two, as if features and answer were independent.
    log, learned
        The answers, and which of them may be looked at: a weight must not reveal what is held out.
    random
        Answers to items shown at random.
    catalogue
        The items, with vectors for ``"features"`` and ``"both"``.
    people
        The users' features, by number, for ``"features"`` and ``"both"``.
    seed
        Of the folds that the penalty is chosen by.
    """
    made = np.ones(len(log.user))
    if kind != "features" and random is not None:
        level, drawn = ((part.reward > 0).astype(np.int64) for part in (log, random))
        made *= by_level(level[learned], drawn, 2)[level]
    if kind != "rating":
        if people is None:
            raise InvalidArgument(_OWNER, "user_features", f"given for exposure={kind!r}", None)
        if not catalogue.dim:
            raise InvalidArgument(_OWNER, "catalogue", f"one with vectors for exposure={kind!r}", catalogue)
        made *= by_features(people, catalogue.vectors, log.user, log.item, seed=seed)
    relative: NDArray[np.float64] = made / made.mean()
    return relative


def features_of(users: pl.Series, features: pl.DataFrame) -> NDArray[np.float64]:
    """Return the features of users, in their order."""
    rule = "a table with the column user, once for every user of the log, and numeric columns"
    if not isinstance(features, pl.DataFrame) or "user" not in features.columns or features.width < 2:
        raise InvalidArgument(_OWNER, "user_features", rule, getattr(features, "columns", type(features).__name__))
    if users.dtype.is_integer() != features["user"].dtype.is_integer() or features["user"].is_duplicated().any():
        raise InvalidArgument(_OWNER, "user_features", rule, f"users of type {features['user'].dtype}, or repeated")
    kind = users.dtype if users.dtype.is_integer() else pl.String
    named = features.with_columns(pl.col("user").cast(kind))
    held = pl.DataFrame({"user": users.cast(kind)}).join(named, on="user", how="left", maintain_order="left")
    values = held.drop("user")
    if not all(dtype.is_numeric() for dtype in values.dtypes) or sum(values.null_count().row(0)):
        raise InvalidArgument(_OWNER, "user_features", rule, "text, or users without features")
    made: NDArray[np.float64] = values.cast(pl.Float64).to_numpy()
    return made


def calibrated(factors: Factors, random: Answers) -> Factors:
    """Return the factors with all biases shifted so that the mean chance of the random answers is their mean reward."""
    known = random.user >= 0
    user, item, reward = (column[known] for column in random)
    if not len(user) or not 0 < reward.mean() < 1:
        return factors
    logits = (factors.users[user] * factors.items[item]).sum(axis=1, dtype=np.float64)
    logits = logits + factors.user_bias[user] + factors.item_bias[item]
    rate = float(reward.mean(dtype=np.float64))

    def off(shift: float) -> float:
        return float((1 / (1 + np.exp(-np.clip(logits + shift, -_WIDEST, _WIDEST)))).mean()) - rate

    shift = float(brentq(off, -_WIDEST, _WIDEST))
    return factors._replace(user_bias=(factors.user_bias + shift).astype(np.float32))
