"""What exploring is worth: the users who are explored for, compared with those held out."""

import math
from collections.abc import Callable
from time import time

import numpy as np
from scipy.special import stdtrit

from treeward.serve import wire
from treeward.store.base import EventStore, User, read_all
from treeward.store.events import SHOWN


def lift_of(store: EventStore, held_out: Callable[[User], bool], matched: int, compared: int) -> wire.Lift:
    """Return the lift by all events of a store; `matched` and `compared` are an apprentice's counts."""
    as_of = time()
    means: dict[bool, list[float]] = {False: [], True: []}
    counts: dict[bool, int] = {False: 0, True: 0}
    earned: dict[bool, float] = {False: 0.0, True: 0.0}
    for user, events in read_all(store):
        shown = int((events["kind"] == SHOWN).sum())
        if shown:
            out = held_out(user)
            reward = float(events["reward"][(events["kind"] != SHOWN) & (events["nonce"] != 0)].sum())
            means[out].append(reward / shown)
            counts[out] += shown
            earned[out] += reward
    groups = [
        wire.Group(len(means[out]), counts[out], earned[out] / counts[out] if counts[out] else 0.0)
        for out in (False, True)
    ]
    gap = low = high = None
    one, other = (np.array(means[out]) for out in (False, True))
    if len(one) > 1 and len(other) > 1:
        gap = float(one.mean() - other.mean())
        parts = np.array([group.var(ddof=1) / len(group) for group in (one, other)])
        freedom = parts.sum() ** 2 / max((parts**2 / [len(one) - 1, len(other) - 1]).sum(), 1e-300)
        half = float(stdtrit(max(freedom, 1.0), 0.975)) * math.sqrt(parts.sum())
        low, high = gap - half, gap + half
    return wire.Lift(round(as_of, 3), groups[0], groups[1], gap, low, high, matched, compared)
