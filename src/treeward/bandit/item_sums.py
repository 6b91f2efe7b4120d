"""`ItemSums`: how many rewards each item got from all users, and their sums.

What a user's own taste was expected to add is subtracted from every reward first. Otherwise an item that was shown to
users who love it would look better to all others, too.
"""

import numpy as np
from numpy.typing import NDArray

from treeward.core.types import AnyArray
from treeward.store.events import CHANGE, REWARD

_UNIT = float(1 << 24)
"""Rewards are summed in integer multiples of 1 / 2^24: sums are the same in any order, and subtracting is exact."""
_DAY = 86_400.0
_LATE = 20.0
"""New rewards weigh more instead of old ones less, which saves a pass over all sums. The sums are scaled down after
this many half-lives."""


def of_decisions(events: AnyArray) -> NDArray[np.bool_]:
    """Return which events are rewards of decisions, or changes of such rewards.

    Imported events do not count: in a log of clicks alone, everything is clicked. `Crowd.fit` learns from such a log.
    """
    kinds = events["kind"]
    found: NDArray[np.bool_] = ((kinds == REWARD) | (kinds == CHANGE)) & (events["nonce"] != 0)
    return found


class ItemSums:
    """Counts and sums of rewards by the store's item numbers. Additive: a user's events can be subtracted again.

    Parameters
    ----------
    half_life
        Days after which a reward counts half as much; None: rewards do not fade. With a half-life, sums are
        floating-point numbers and depend on the order of rewards by rounding.

    Examples
    --------
    >>> from treeward.store.events import event
    >>> sums = ItemSums()
    >>> sums.add(event(item=3, reward=1.0, nonce=77))
    >>> sums.count.tolist(), sums.mean_of(3), sums.rewards
    ([0, 0, 0, 1], 1.0, 1)
    """

    def __init__(self, half_life: float | None = None) -> None:
        self.half_life = half_life
        kind = np.int64 if half_life is None else np.float64
        self._count: AnyArray = np.zeros(0, dtype=kind)
        self._total: AnyArray = np.zeros(0, dtype=kind)
        self._squares: float = 0
        self._since: float | None = None
        self._latest = 0.0
        self.rewards = 0
        """How many rewards were added, minus those subtracted."""

    def __len__(self) -> int:
        """Return one more than the largest item number that there is room for."""
        return len(self._count)

    def add(self, events: AnyArray, sign: int = 1) -> None:
        """Add the rewards among some events, or, with a sign of -1, subtract them."""
        taught = events[of_decisions(events)]
        if not len(taught):
            return
        numbers, first = taught["item"].astype(np.int64), taught["kind"] == REWARD
        self._widen(int(numbers.max()) + 1)
        weights = sign * self._weights(taught["time"])
        # In a change, the field `own` holds what the decision had earned before, net of the user's own part.
        before = np.where(first, 0.0, taught["own"])
        net = taught["reward"] - np.where(first, taught["own"], 0.0)
        whole = np.rint(net * _UNIT).astype(np.int64)
        np.add.at(self._count, numbers[first], weights[first].astype(self._count.dtype))
        np.add.at(self._total, numbers, (weights * whole).astype(self._total.dtype))
        self._squares += _summed(weights, net * (net + 2.0 * before))
        self.rewards += sign * int(first.sum())

    def _weights(self, times: AnyArray) -> AnyArray:
        """Return the weights of rewards by their times; a reward at the time `_since` has weight 1."""
        if self.half_life is None:
            return np.ones(len(times), dtype=np.int64)
        known = np.where(times > 0, times.astype(np.float64), self._latest)
        self._latest = max(self._latest, float(known.max()))
        if self._since is None or self._latest - self._since > _LATE * self.half_life * _DAY:
            faded = self._faded()
            self._count, self._total, self._squares = self._count * faded, self._total * faded, self._squares * faded
            self._since = self._latest
        return np.exp2((known - self._since) / (self.half_life * _DAY))

    def _faded(self) -> float:
        """Return the factor that makes the latest reward count 1."""
        if self.half_life is None or self._since is None:
            return 1.0
        return float(np.exp2(-(self._latest - self._since) / (self.half_life * _DAY)))

    def _widen(self, size: int) -> None:
        if size > len(self._count):
            more = max(size, len(self._count) + len(self._count) // 8) - len(self._count)
            if size <= 64:
                more = size - len(self._count)
            self._count, self._total = np.pad(self._count, (0, more)), np.pad(self._total, (0, more))

    @property
    def count(self) -> AnyArray:
        """(item numbers,): how many rewards each item got; old ones count less if there is a half-life."""
        return self._count if self.half_life is None else self._count * self._faded()

    @property
    def total(self) -> NDArray[np.float64]:
        """(item numbers,): the sums of these rewards, without the users' own part."""
        made: NDArray[np.float64] = self._total * (self._faded() / _UNIT)
        return made

    @property
    def squares(self) -> float:
        """The sum of the squares of these rewards."""
        return self._squares * self._faded() / _UNIT

    def mean_of(self, number: int) -> float:
        """Return an item's mean reward; 0 if it got none."""
        count = float(self.count[number]) if number < len(self) else 0.0
        return float(self.total[number]) / count if count > 0 else 0.0

    def equals(self, other: "ItemSums") -> bool:
        """Return whether both have the same sums, to the bit."""
        size = max(len(self), len(other))
        for mine, theirs in ((self._count, other._count), (self._total, other._total)):
            if not np.array_equal(np.pad(mine, (0, size - len(mine))), np.pad(theirs, (0, size - len(theirs)))):
                return False
        return self.rewards == other.rewards

    def copy(self) -> "ItemSums":
        """Return a copy that later rewards do not change."""
        made = ItemSums(self.half_life)
        made._count, made._total = self._count.copy(), self._total.copy()
        made._squares, made._since, made._latest, made.rewards = self._squares, self._since, self._latest, self.rewards
        return made


def _summed(weights: AnyArray, values: NDArray[np.float64]) -> float:
    """Return the weighted sum of values, in units; an exact integer of any size if the weights are integers."""
    units = np.rint(values * _UNIT)
    if weights.dtype != np.int64:
        return float((weights * units).sum())
    high = np.floor(units / _UNIT)  # a square may not fit into 64 bits, nor the sum of many
    low = units - high * _UNIT
    return int((weights * high.astype(np.int64)).sum()) * int(_UNIT) + int((weights * low.astype(np.int64)).sum())
