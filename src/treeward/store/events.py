"""What an event is, wherever it lives."""

import time

import numpy as np

from treeward.core.types import AnyArray

SHOWN, REWARD, CHANGE, NOTED, AMENDED = range(5)
"""The user was shown an item; what came of it; by how much that was changed later; the last two again, to be counted
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
1970 (0: not known). In place of a reward, what was shown has its propensity, negative where that is an estimate. `own`
is by how much the user's own taste was believed to raise the reward when the item was decided on: what everybody learns
is the rest. A change has there what the decision had earned before it, without that."""


NAMELESS = (1 << 16) - 1
"""The number of whatever came after all others were taken."""


def now() -> int:
    """Return the time as events have it."""
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
