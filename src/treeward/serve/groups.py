"""The two groups of users, explored and held out: who belongs to which, what each earned, and the lift."""

import math
from collections.abc import Sequence
from hashlib import blake2b
from threading import Lock
from time import monotonic, time
from typing import Any

import numpy as np
from scipy.special import stdtrit

from treeward.serve import wire
from treeward.store.base import EventStore, User, read_all, spelled
from treeward.store.events import SHOWN

GROUPS = ("explored", "held_out")
GROUPED = ("decisions", "rewards", "earned")
"""Counted for each group; `matched` and `compared`, of the mode `apprentice`, for all users together."""
_PLACES = [*((name, group) for name in GROUPED for group in GROUPS), ("matched", ""), ("compared", "")]
_AT = {place: i for i, place in enumerate(_PLACES)}
_SECONDS_LIFT_HOLDS, _LIFT_SHARE = 60.0, 20.0
"""A comparison holds for a minute, and so long that comparing takes at most one in this many seconds."""


class GroupCounts:
    """Counts by group in memory that all workers share; each worker adds to its own row, also after a restart.

    Parameters
    ----------
    shared
        Memory for `workers` rows of WIDTH doubles; None: of this process alone.
    index, workers
        The row of this worker, and how many there are.
    """

    WIDTH = len(_PLACES)

    def __init__(self, shared: Any = None, index: int = 0, workers: int = 1) -> None:
        array = np.zeros(workers * self.WIDTH) if shared is None else np.frombuffer(shared, dtype=np.float64)
        self._rows = array.reshape(workers, self.WIDTH)
        self._mine, self._lock = self._rows[index], Lock()

    def add(self, name: str, by: float, held_out: bool | None = None) -> None:
        """Add to a count; `held_out` names the group, where groups are counted apart."""
        with self._lock:
            self._mine[_AT[name, "" if held_out is None else GROUPS[held_out]]] += by

    def total(self, name: str, group: str = "") -> float:
        """Return a count, summed over the workers."""
        return float(self._rows[:, _AT[name, group]].sum())


class Groups:
    """Assigns users to a group, by the store's secret and the share that is held out, and compares the groups."""

    def __init__(self, store: EventStore, holdout: float, counts: GroupCounts | None = None) -> None:
        self._store, self._holdout = store, holdout
        self._salt = blake2b(store.identities.secret, digest_size=16, person=b"holdout").digest()
        self.counts = GroupCounts() if counts is None else counts
        self._lift: wire.Lift | None = None
        self._lift_until = 0.0

    def held_out(self, user: User) -> bool:
        """Return whether a user is held out; the answer never changes."""
        if not self._holdout:
            return False
        drawn = int.from_bytes(blake2b(spelled(user), key=self._salt, digest_size=8).digest(), "little")
        return drawn < self._holdout * 2**64

    def add_rewards(self, users: Sequence[User], amounts: Sequence[float], first: Sequence[bool]) -> None:
        """Count rewards and changes of rewards; `first`: which are the first of their decision."""
        earned, rewards = [0.0, 0.0], [0, 0]
        for user, amount, new in zip(users, amounts, first, strict=True):
            out = self.held_out(user)
            earned[out] += amount
            rewards[out] += new
        for out in (False, True):
            if earned[out] or rewards[out]:
                self.counts.add("earned", earned[out], out)
                self.counts.add("rewards", rewards[out], out)

    def lift(self) -> wire.Lift:
        """Compare the groups by all events of the store: at most once a minute, and less often if it takes long."""
        begun = monotonic()
        if self._lift is None or begun > self._lift_until:
            self._lift = self._compared()
            self._lift_until = begun + max(_SECONDS_LIFT_HOLDS, _LIFT_SHARE * (monotonic() - begun))
        return self._lift

    def _compared(self) -> wire.Lift:
        as_of = time()
        means: dict[bool, list[float]] = {False: [], True: []}
        counts: dict[bool, int] = {False: 0, True: 0}
        earned: dict[bool, float] = {False: 0.0, True: 0.0}
        for user, events in read_all(self._store):
            shown = int((events["kind"] == SHOWN).sum())
            if shown:
                out = self.held_out(user)
                reward = float(events["reward"][(events["kind"] != SHOWN) & (events["nonce"] != 0)].sum())
                means[out].append(reward / shown)
                counts[out] += shown
                earned[out] += reward
        explored, held_out = (
            wire.Group(len(means[out]), counts[out], earned[out] / counts[out] if counts[out] else 0.0)
            for out in (False, True)
        )
        difference = low = high = None
        one, other = (np.array(means[out]) for out in (False, True))
        if len(one) > 1 and len(other) > 1:  # Welch's interval, by user
            difference = float(one.mean() - other.mean())
            parts = np.array([group.var(ddof=1) / len(group) for group in (one, other)])
            freedom = parts.sum() ** 2 / max((parts**2 / [len(one) - 1, len(other) - 1]).sum(), 1e-300)
            half = float(stdtrit(max(freedom, 1.0), 0.975)) * math.sqrt(parts.sum())
            low, high = difference - half, difference + half
        matched, compared = (int(self.counts.total(name)) for name in ("matched", "compared"))
        return wire.Lift(round(as_of, 3), explored, held_out, difference, low, high, matched, compared)
