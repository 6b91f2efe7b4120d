"""HR@k and NDCG@k: how far up a ranking puts what users liked.

HR@k (hit rate) is the share of users with something they liked among the first k. NDCG@k sums 1 / log2(place + 1) over
what they liked among the first k, divided by the largest sum that is possible. Both are means over users who liked
something. Items of equal score count as in the mean over all their orders, so that a ranking gains nothing by chance.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LIST = 10
"""The usual k."""


class Places(NamedTuple):
    """Where a ranking puts items that users liked: one entry for each."""

    user: NDArray[np.int64]
    """Numbers from 0."""
    above: NDArray[np.int64]
    """How many candidates score higher ..."""
    equal: NDArray[np.int64]
    """... and how many the same, the item itself included."""


class ListQuality(NamedTuple):
    """HR@k and NDCG@k of every user; nan for those who liked nothing."""

    hit_rate: NDArray[np.float64]
    ndcg: NDArray[np.float64]

    def mean(self) -> tuple[float, float]:
        """Return both means over users who liked something."""
        counted = ~np.isnan(self.ndcg)
        if not counted.any():
            return float("nan"), float("nan")
        return float(self.hit_rate[counted].mean()), float(self.ndcg[counted].mean())


def places_in_lists(user: NDArray[np.int64], score: NDArray[np.floating], liked: NDArray[np.bool_]) -> Places:
    """Return the places of what was liked, where every user has a list of candidates of their own.

    Parameters
    ----------
    user, score, liked
        Of every candidate.
    """
    order = np.lexsort((-score, user))
    who, value, mine = user[order], score[order], liked[order]
    is_first, is_lower = np.ones((2, len(order)), dtype=np.bool_)
    is_first[1:] = who[1:] != who[:-1]
    is_lower[1:] = is_first[1:] | (value[1:] != value[:-1])
    begins = np.flatnonzero(is_lower)
    tie = np.cumsum(is_lower) - 1
    above = begins[tie] - np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))
    equal = np.diff(begins, append=len(order))[tie]
    return Places(who[mine], above[mine], equal[mine])


def places_among_all(
    scores: NDArray[np.floating], user: NDArray[np.int64], item: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many items score higher than each liked one, and how many the same.

    Parameters
    ----------
    scores
        (users, items); -inf for items that are no candidates.
    user, item
        Rows and columns of what was liked.
    """
    rows, own = scores[user], scores[user, item][:, None]
    return (rows > own).sum(axis=1, dtype=np.int64), (rows == own).sum(axis=1, dtype=np.int64)


def list_quality(places: Places, users: int, count: int = LIST) -> ListQuality:
    """Return HR@k and NDCG@k, with k = `count`, of users numbered from 0.

    Examples
    --------
    >>> found = list_quality(Places(np.array([0, 1]), np.array([0, 2]), np.array([1, 1])), users=3)
    >>> found.hit_rate.tolist(), found.ndcg.round(3).tolist()
    ([1.0, 1.0, nan], [1.0, 0.5, nan])
    """
    user, above, equal = places
    sums = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(count) + 2))])
    gain = (sums[np.minimum(above + equal, count)] - sums[np.minimum(above, count)]) / equal
    wanted = np.bincount(user, minlength=users)
    ndcg = np.full(users, np.nan)
    np.divide(np.bincount(user, gain, minlength=users), sums[np.minimum(wanted, count)], out=ndcg, where=wanted > 0)
    return ListQuality(np.where(wanted > 0, _hits(places, users, count), np.nan), ndcg)


def _hits(places: Places, users: int, count: int) -> NDArray[np.float64]:
    """Return the chance that one of a user's items is among the first `count`, if ties are in random order."""
    user, above, equal = places
    first = np.full(users, np.iinfo(np.int64).max)
    np.minimum.at(first, user, above)
    best = above == first[user]  # only the first tie with a liked item counts: later ones come after it
    size = np.ones(users, dtype=np.int64)
    size[user[best]] = equal[best]
    mine = np.bincount(user[best], minlength=users)
    seats = np.clip(count - first, 0, size)
    missed = np.ones(users)
    for drawn in range(int(mine.max(initial=0))):  # the chance that none of `mine` has one of the seats
        left = np.clip(size - seats - drawn, 0, None) / np.maximum(size - drawn, 1)
        missed *= np.where(drawn < mine, left, 1.0)
    return 1 - missed
