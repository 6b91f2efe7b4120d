"""What a service counts by group of users, in memory that several workers share: each adds to its own row."""

from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np

NAMES = ("decisions", "rewards", "earned")
"""What is counted of users who are explored for, and of those held out."""
_SINGLE = ("matched", "compared")
GROUPS = ("explored", "held_out")
_PLACES = [*((name, group) for name in NAMES for group in GROUPS), *((name, "") for name in _SINGLE)]
_AT = {place: i for i, place in enumerate(_PLACES)}
WIDTH = len(_PLACES)
"""Numbers of a worker."""


class Counts:
    """Counts of one worker, and their sums over all; a worker that is started again goes on where it stopped.

    Parameters
    ----------
    held
        Memory for `workers` rows of WIDTH doubles that all workers share; None: for this one alone.
    index, workers
        Which row is this worker's, and how many there are.
    """

    def __init__(self, held: Any = None, index: int = 0, workers: int = 1) -> None:
        array = np.zeros(workers * WIDTH) if held is None else np.frombuffer(held, dtype=np.float64)
        self._rows = array.reshape(workers, WIDTH)
        self._mine, self._lock = self._rows[index], Lock()

    def add(self, name: str, by: float, held_out: bool | None = None) -> None:
        """Add to one of the counts; `held_out`: of which group, where the groups are counted apart."""
        with self._lock:
            self._mine[_AT[name, "" if held_out is None else GROUPS[held_out]]] += by

    def rewards(self, held_out: Sequence[bool], amounts: Sequence[float], first: Sequence[bool]) -> None:
        """Add rewards and changes of rewards; `first`: which are a decision's first."""
        for out, amount, new in zip(held_out, amounts, first, strict=True):
            self.add("earned", amount, out)
            self.add("rewards", float(new), out)

    def total(self, name: str, group: str = "") -> float:
        """Return a count, summed over the workers."""
        return float(self._rows[:, _AT[name, group]].sum())
