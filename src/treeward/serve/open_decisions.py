"""Decisions that still wait for feedback: when their window ends without any, they earn the default reward."""

from collections import deque
from collections.abc import Iterable
from itertools import takewhile
from threading import Lock
from time import monotonic

from treeward.explorer.explorer import Explorer
from treeward.explorer.rewards import Row
from treeward.store.base import User
from treeward.store.events import now

Decided = tuple[User, Row, int]
"""The user of a decision, the event of a reward of 0 for it, and the store's epoch when it was made."""


class OpenDecisions:
    """Decisions in the order in which their windows end."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._open: deque[tuple[float, Decided]] = deque()
        self._lock = Lock()

    def reopen(self, explorer: Explorer) -> None:
        """Add the decisions of earlier runs that have no reward.

        Events have their time by the clock of then. A time that is ahead of the present clock counts as now, since
        decisions that are made later must not wait for it.
        """
        begun, second, epoch = monotonic(), now(), explorer.store.identities.epoch
        found = [
            (begun + self._window - (max(0, second - when) if when else 0), (user, row, epoch))
            for user, row, when in explorer.rewards.open_events()
        ]
        with self._lock:
            self._open.extend(sorted(found, key=lambda one: one[0]))

    def add(self, decided: Iterable[Decided]) -> None:
        """Add decisions that were just made."""
        with self._lock:
            deadline = monotonic() + self._window
            self._open.extend((deadline, one) for one in decided)

    def expire(self, explorer: Explorer, reward: float) -> int:
        """Give this reward to the decisions whose window has ended, and return how many had none.

        A decision is removed only after its reward is written: if the store takes no writes now, the next call tries
        again. Trying twice does no harm, since a decision that has a reward gets no second one.
        """
        over = monotonic()
        with self._lock:
            due = [one for _, one in takewhile(lambda waiting: waiting[0] <= over, self._open)]
        if not due:
            return 0
        count = explorer.rewards.expire(due, reward)
        with self._lock:
            while self._open and self._open[0][0] <= over:
                self._open.popleft()
        return count

    def forget(self, user: User) -> None:
        """Remove a user's decisions."""
        with self._lock:
            kept = [one for one in self._open if one[1][0] != user]
            self._open.clear()
            self._open.extend(kept)
