"""What an event is, in every store."""

import time

import numpy as np

from treeward.core.types import AnyArray

SHOWN, REWARD, CHANGE, NOTED, AMENDED = range(5)
"""Kinds of events: an item was shown; its reward; a later change of the reward; the last two when rewards are counted
but not learned from."""

EVENT = np.dtype(
    [
        ("item", "<i4"),
        ("node", "<i4"),
        ("reward", "<f8"),
        ("nonce", "<i8"),
        ("snapshot", "<u2"),
        ("kind", "u1"),
        ("time", "<u4"),
        ("own", "<f4"),
    ]
)
"""One event, packed: `item` is the store's number of the item, `node` the node it was taken from in the tree of that
`snapshot` (-1: none), `nonce` the decision it belongs to (0: none, as for imported events), `time` the second since
1970 (0: unknown). An exposure has its propensity in place of a reward, negative if that is an estimate. `own` is how
much the user's own taste was estimated to add to the reward at the decision; the crowd learns from the rest. A change
has there what the decision had earned before it, minus that estimate."""

NAMELESS = (1 << 16) - 1
"""The number of all trees and contexts after the other numbers were used up."""


def now() -> int:
    """Return the time, in seconds since 1970."""
    return int(time.time())


def event(
    item: int,
    reward: float,
    *,
    kind: int = REWARD,
    node: int = -1,
    nonce: int = 0,
    snapshot: int = 0,
    time: int = 0,
    own: float = 0.0,
) -> AnyArray:
    """Return one event, as an array of one."""
    made = np.zeros(1, dtype=EVENT)
    made[0] = (item, node, reward, nonce, snapshot, kind, time, own)
    return made
