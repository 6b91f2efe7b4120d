"""Visits of users to a shop: a few users come very often, most of them only a few times."""

from collections.abc import Iterator
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core import checks, rng
from treeward.core.checks import Count, Number, Seed


class Visits(NamedTuple):
    """All visits in the order of time, as columns."""

    user: NDArray[np.int32]
    """Numbers from 0."""
    visit: NDArray[np.int32]
    """Which visit of the user it is, from 1."""
    day: NDArray[np.int16]
    """From 1."""
    luck: NDArray[np.float64]
    """Uniform in [0, 1), a function of seed, user and visit. The user clicks if it is below the chance of a click."""

    def batches(self, most: int) -> Iterator[slice]:
        """Yield runs of at most `most` consecutive visits of one day, in which no user comes twice."""
        users, days = self.user.tolist(), self.day.tolist()
        first, here = 0, set[int]()
        for at, user in enumerate(users):
            if user in here or len(here) == most or days[at] != days[first]:
                yield slice(first, at)
                first, here = at, set()
            here.add(user)
        if users:
            yield slice(first, len(users))


def counts_of(users: int, median: float, tail: float, most: int, seed: int) -> NDArray[np.int64]:
    """Draw how often each user comes: P(more than n times) = (1 + n / s)^-tail, where s gives the median.

    Examples
    --------
    >>> counts = counts_of(50_000, median=4, tail=3.5, most=1_000, seed=0)
    >>> int(np.median(counts)), round(float(counts.mean()), 1), int(counts.max()) > 100
    (4, 6.9, True)
    """
    drawn = rng.uniforms(seed, rng.stream("arrivals", "counts"), users)
    # Half a visit less, because counts are rounded up.
    scale = (median - 0.5) / (2 ** (1 / tail) - 1)
    counts = np.ceil(scale * ((1 - drawn) ** (-1 / tail) - 1))
    return np.clip(counts, 1, most).astype(np.int64)


@checks.checked()
def arrivals(
    users: Count,
    days: Count,
    *,
    median: Annotated[float, Number(low=1)] = 4.0,
    tail: Annotated[float, Number(above=1)] = 3.5,
    most: Count,
    seed: Seed = 0,
) -> Visits:
    """Draw the visits of users over days.

    A user's first visit is uniform over all days. The later ones are uniform over the time that is left.

    Parameters
    ----------
    users, days
        How many.
    median
        Visits of the median user.
    tail
        How fast the number of users falls with the number of visits; the smaller, the heavier the tail.
    most
        No user comes more often than this.
    seed
        Same seed: same visits.

    Examples
    --------
    >>> visits = arrivals(users=1_000, days=10, most=500, seed=0)
    >>> len(visits.user), int(visits.day.min()), int(visits.day.max())
    (6767, 1, 10)
    """
    counts = counts_of(users, median, tail, most, seed)
    who = np.repeat(np.arange(users, dtype=np.int32), counts)
    begins = np.concatenate([[0], np.cumsum(counts)[:-1]])
    first = np.repeat(rng.uniforms(seed, rng.stream("arrivals", "first"), users) * days, counts)
    later = rng.uniforms(seed, rng.stream("arrivals", "later"), len(who))
    later[begins] = 0  # the first visit itself
    time = first + later * (days - first)
    time = time[np.lexsort((time, who))]  # every user's visits in the order of time
    visit = np.arange(len(who)) - np.repeat(begins, counts) + 1
    # In the order of users and visits, so that all arms meet the same luck.
    luck = rng.uniforms(seed, rng.stream("arrivals", "luck"), len(who))
    order = np.argsort(time, kind="stable")
    day = np.minimum(time[order].astype(np.int64), days - 1) + 1
    return Visits(who[order], visit[order].astype(np.int32), day.astype(np.int16), luck[order])
