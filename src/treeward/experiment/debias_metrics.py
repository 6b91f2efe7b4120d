"""How well predictions match ratings of items shown at random, with intervals from a bootstrap over users."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.ranking import list_quality, places_in_lists

_BINS = 10
_LIST = 5
METRICS = ("MSE", "MAE", "AUC", "NDCG@5", "calibration error")


class Predicted(NamedTuple):
    """Predictions of some ratings."""

    user: NDArray[np.int64]
    """Numbers from 0 without a gap."""
    rating: NDArray[np.float64]
    positive: NDArray[np.bool_]
    predicted: NDArray[np.float64]


class Interval(NamedTuple):
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} - {self.high:.3f})"


def figures(tested: Predicted, times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the metrics of every row of `times`: how often each user counts.

    The AUC is over all pairs of a positive and another rating. NDCG@5 ranks what each user was tested on, because only
    that has ratings, and is the mean over users who have a positive. The calibration error is the mean distance of
    predicted and actual rating over ten bins of equally many predictions.

    Parameters
    ----------
    tested
        The predictions.
    times
        (draws, users).

    Examples
    --------
    >>> right = np.array([True, False, True, False])
    >>> tested = Predicted(np.array([0, 0, 1, 1]), right * 1.0, right, np.array([0.9, 0.1, 0.8, 0.2]))
    >>> figures(tested, np.ones((1, 2))).round(3).tolist()
    [[0.025, 0.15, 1.0, 1.0, 0.15]]
    """
    error = tested.predicted - tested.rating
    _, level = np.unique(tested.predicted, return_inverse=True)
    place = np.empty(len(error), dtype=np.int64)
    place[np.argsort(tested.predicted, kind="stable")] = np.arange(len(error))
    bins = place * min(_BINS, len(error)) // len(error)
    places = places_in_lists(tested.user, tested.predicted, tested.positive)
    gains = list_quality(places, times.shape[1], _LIST).ndcg
    has_gain = ~np.isnan(gains)
    made = []
    for count in times:
        weight = count[tested.user]
        off = np.bincount(bins, weight * error)
        ranked = _auc(level, weight * tested.positive, weight * ~tested.positive)
        listed = np.average(gains[has_gain], weights=count[has_gain]) if count[has_gain].sum() else np.nan
        means = [np.average(values, weights=weight) for values in (error**2, abs(error))]
        made.append([*means, ranked, listed, abs(off).sum() / weight.sum()])
    return np.array(made)


def _auc(level: NDArray[np.int64], up: NDArray[np.float64], down: NDArray[np.float64]) -> float:
    others = np.bincount(level, down)
    below = np.cumsum(others) - others / 2
    total = up.sum() * down.sum()
    return float((up * below[level]).sum() / total) if total > 0 else float("nan")


def resampled(users: int, draws: int, seed: int) -> NDArray[np.float64]:
    """Return how often each user counts: once in the first row, and in `draws` samples with replacement."""
    drawn = (rng.uniforms(seed, rng.stream("debias bootstrap"), draws * users) * users).astype(np.int64)
    times = [np.bincount(one, minlength=users) for one in drawn.reshape(draws, users)]
    return np.array([np.ones(users), *times], dtype=np.float64)


def interval(values: NDArray[np.float64]) -> Interval:
    """Return the first value, with the interval of the others."""
    low, high = np.nanquantile(values[1:], [0.025, 0.975])
    return Interval(float(values[0]), float(low), float(high))
