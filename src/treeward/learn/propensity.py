"""Propensities of self-selected ratings: how likely a rating was to be given at all.

They follow Schnabel et al., "Recommendations as Treatments: Debiasing Learning and Evaluation" (ICML 2016).
"""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from treeward.core import rng
from treeward.core.types import AnyArray

_PENALTIES = (1.0, 10.0, 100.0, 1_000.0)
_FOLDS = 3
_MOST_PAIRS = 4_000_000
_SMOOTHING = 1.0


def by_level(chosen: NDArray[np.int64], random: NDArray[np.int64], levels: int) -> NDArray[np.float64]:
    """Return how likely each level of rating was to be given, relative to the mean over all pairs (naive Bayes).

    P(given | rating) = P(rating | given) P(given) / P(rating). The last factor needs ratings of items that were drawn
    at random: self-selected ratings alone do not have it. P(given) is the same for all, so it is left out.

    Parameters
    ----------
    chosen, random
        Levels, from 0, of self-selected ratings, and of ratings of items drawn at random.
    levels
        How many there are.

    Examples
    --------
    >>> by_level(np.array([0, 1, 1, 1]), np.array([0, 0, 0, 1]), 2)
    array([0.5, 2. ])
    """
    shares = [
        (np.bincount(part, minlength=levels) + _SMOOTHING) / (len(part) + _SMOOTHING * levels)
        for part in (chosen, random)
    ]
    made: NDArray[np.float64] = shares[0] / shares[1]
    return made


def by_features(
    users: AnyArray, items: AnyArray, who: NDArray[np.int64], what: NDArray[np.int64], *, seed: int
) -> NDArray[np.float64]:
    """Return how likely each observed pair was to be observed, by logistic regression on features.

    The features of a pair are those of its user, those of its item, and the product of each two. The penalty is chosen
    by the likelihood of pairs that were held out. No rating is looked at, so it cannot know that users rate what they
    like.

    Parameters
    ----------
    users, items
        (users, features) and (items, features).
    who, what
        The observed pairs: rows of `users` and of `items`.
    seed
        Draws the pairs that are held out, and some of the users where there are very many pairs.
    """
    people, things = _standard(users), _standard(items)
    some = rng.subset(seed, rng.stream("propensity users"), len(people), max(1, _MOST_PAIRS // len(things)))
    place = np.full(len(people), -1)
    place[some] = np.arange(len(some))
    seen = np.zeros((len(some), len(things)))
    kept = place[who] >= 0
    seen[place[who[kept]], what[kept]] = 1
    draws = rng.uniforms(seed, rng.stream("propensity folds"), seen.size).reshape(seen.shape)
    fold = (draws * _FOLDS).astype(np.int8)
    lost = [
        sum(_loss(people[some], things, seen, fold == one, _weights(people[some], things, seen, fold != one, penalty))
            for one in range(_FOLDS))
        for penalty in _PENALTIES
    ]  # fmt: skip
    best = _PENALTIES[int(np.argmin(lost))]
    weights = _weights(people[some], things, seen, np.ones_like(fold, dtype=np.bool_), best)
    logits = ((people @ weights)[who] * things[what]).sum(axis=1)
    made: NDArray[np.float64] = 1 / (1 + np.exp(-logits))
    return made


def _standard(features: AnyArray) -> NDArray[np.float64]:
    """Return a column of ones, and the features with mean 0 and deviation 1; constant ones are 0."""
    made = np.asarray(features, dtype=np.float64)
    spread = made.std(axis=0)
    made = (made - made.mean(axis=0)) / np.where(spread > 0, spread, 1)
    return np.concatenate([np.ones((len(made), 1)), made], axis=1)


def _loss(
    people: NDArray[np.float64],
    things: NDArray[np.float64],
    seen: NDArray[np.float64],
    mask: NDArray[np.bool_],
    weights: NDArray[np.float64],
) -> float:
    logits = people @ weights @ things.T
    return float(((np.logaddexp(0, logits) - seen * logits) * mask).sum())


def _weights(
    people: NDArray[np.float64],
    things: NDArray[np.float64],
    seen: NDArray[np.float64],
    mask: NDArray[np.bool_],
    penalty: float,
) -> NDArray[np.float64]:
    """Return the weights of all products of features; the first is the intercept, which is not penalised."""
    shape = people.shape[1], things.shape[1]
    pull = np.full(shape, penalty)
    pull[0, 0] = 0

    def objective(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights = flat.reshape(shape)
        logits = people @ weights @ things.T
        chance = 1 / (1 + np.exp(-np.clip(logits, -30, 30)))
        gradient = people.T @ ((chance - seen) * mask) @ things + pull * weights
        value = ((np.logaddexp(0, logits) - seen * logits) * mask).sum() + (pull * weights**2).sum() / 2
        return float(value), gradient.ravel()

    rate = np.clip(seen[mask].mean(), 1e-6, 1 - 1e-6)
    first = np.zeros(shape)
    first[0, 0] = np.log(rate / (1 - rate))
    found = minimize(objective, first.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 200})
    made: NDArray[np.float64] = found.x.reshape(shape)
    return made
