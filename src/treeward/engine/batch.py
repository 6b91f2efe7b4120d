"""Batches of decisions: the input, the output record, and the work before and after each decision."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.compiled import inner, whole
from treeward.core.types import AnyArray, Floats, Integers
from treeward.engine.available import Screen, begin_screen, shut, shut_all
from treeward.engine.crowd import offset_of
from treeward.engine.explore import GREEDY_MEAN, SAMPLE, Candidates, dot
from treeward.engine.history import tally
from treeward.engine.layout import CrowdArrays, Known, Numbers
from treeward.engine.places import leaf_at
from treeward.engine.posterior import row_of, spread
from treeward.engine.ragged import Lists
from treeward.engine.sampling import copy
from treeward.engine.trace import Trace

DECISION = np.dtype(
    [
        ("nonce", np.int64),
        ("item", np.int64),
        ("place", np.int64),
        ("node", np.int64),
        ("mean", np.float32),
        ("width", np.float32),
        ("propensity", np.float64),
        ("exact", np.bool_),
        ("scores", np.int64),
        ("work", np.int64),
        ("bold", np.bool_),
        ("own", np.float32),
    ],
    align=True,
)
"""A decision as kernels write it. One array of records is passed much faster than ten arrays."""


class Batch(NamedTuple):
    """The users to decide for. All arrays but the last two have one entry per user."""

    seat: NDArray[np.int64]
    stream: NDArray[np.int64]
    nonce: NDArray[np.int64]
    extra: Integers
    """Places that are closed to single users, user by user."""
    ends: NDArray[np.int64]
    """(users + 1,): those of user i are ``extra[ends[i] : ends[i + 1]]``."""


def nothing_closed(users: int) -> tuple[Integers, NDArray[np.int64]]:
    """Return `extra` and `ends` of a batch without such places."""
    return np.zeros(0, dtype=np.int32), np.zeros(users + 1, dtype=np.int64)


@inner
def close_unavailable(
    shown: Lists, numbers: Numbers, batch: Batch, i: int, screen: Screen, out: AnyArray, first: int, at: int
) -> None:
    """Close exactly the places that user i may not be shown, and those that the slots from `first` to `at` took."""
    start = shown.start[batch.seat[i]]
    end = start + shown.length[batch.seat[i]] if numbers.once else start
    begin_screen(screen)
    if numbers.rest == 0:  # the list is sorted
        shut_all(screen, shown.values, start, end)
    for j in range(start if numbers.rest > 0 else end, end):
        shut(screen, whole(shown.values[j]))
    for j in range(batch.ends[i], batch.ends[i + 1]):
        shut(screen, whole(batch.extra[j]))
    for j in range(first, at):
        if out[j]["place"] >= 0:  # a slot is empty if nothing was left
            shut(screen, out[j]["place"])


@inner
def close_taken(first_child: Integers, item_range: Integers, place: int, diverse: bool, screen: Screen) -> None:
    """Close a place that was taken; if `diverse`, close its whole leaf."""
    begin, end = place, place + 1
    if diverse:
        leaf = leaf_at(first_child, item_range, place)
        begin, end = whole(item_range[leaf, 0]), whole(item_range[leaf, 1])
    for other in range(begin, end):
        shut(screen, other)


@inner
def describe_choice(
    numbers: Numbers,
    crowd: CrowdArrays,
    known: Known,
    seat: int,
    vector: Floats,
    candidates: Candidates,
    trace: Trace,
    made: Any,
) -> None:
    """Write mean, width and propensity of the item that was chosen, whose vector is given."""
    items = known.theta.shape[1] - 1
    x, z = candidates.one[0], candidates.one[1]
    copy(vector, x)
    made["mean"] = dot(x, known.theta[seat, items]) + offset_of(crowd.offset, made["place"])
    made["own"] = dot(x, known.theta[seat, items]) - dot(x, crowd.mean) if len(crowd.mean) > 0 else 0.0
    made["width"] = np.sqrt(max(spread(known.inverse[row_of(known.packed, seat), items], x, z), np.float32(0.0)))
    if numbers.kind == GREEDY_MEAN:
        place = made["place"]
        visits, total = tally(known.history, seat, place, place + 1)
        made["mean"] = total / visits if visits > 0 else 0.0
    chance, plain, exact = 1.0, 1.0, numbers.kind != SAMPLE and numbers.shortlist == 0
    last = trace.steps[0] - 1
    for step in range(last if trace.aside[0] else 0, last + 1):
        share = 1.0 if trace.aside[0] else trace.seen[step] / trace.total[step]
        chance *= trace.chance[step] * share
        plain *= trace.plain[step] * share
        exact = exact and trace.seen[step] == trace.total[step]
    made["propensity"] = numbers.explore * chance + (1.0 - numbers.explore) * plain
    made["exact"] = exact
    made["bold"] = trace.bold[0]
