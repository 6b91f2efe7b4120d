"""The entry for decisions: a batch of users in, one record per decision out."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.compiled import inner, kernel
from treeward.core.types import AnyArray, Floats, Integers, TreeArrays
from treeward.engine.available import Screen, left, shut
from treeward.engine.explore import GREEDY_MEAN, SAMPLE, Candidates, dot
from treeward.engine.history import tally
from treeward.engine.layout import Plan, State
from treeward.engine.posterior import spread
from treeward.engine.ragged import Lists
from treeward.engine.replay import leaf_at
from treeward.engine.trace import Trace
from treeward.engine.walk import decide

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
    ],
    align=True,
)
"""A decision as compiled code writes it: one array is handed over much faster than ten."""


class Batch(NamedTuple):
    """For whom to decide: arrays of one length, but for the last two."""

    seat: NDArray[np.int64]
    stream: NDArray[np.int64]
    nonce: NDArray[np.int64]
    extra: Integers
    """Places closed to single users, one user's after another's."""
    ends: NDArray[np.int64]
    """(users + 1,): user i's are extra[ends[i] : ends[i + 1]]."""


@kernel
def choose(
    plan: Plan,
    state: State,
    batch: Batch,
    slots: int,
    diverse: bool,
    screen: Screen,
    seed: int,
    candidates: Candidates,
    trace: Trace,
    out: AnyArray,
) -> None:
    """Decide `slots` times for each user of a batch, without repeating an item; a slot has the next nonce.

    `diverse`: nor taking two items from one leaf, before all other leaves had their turn.
    """
    z = np.empty(plan.items.shape[1], dtype=np.float32)
    for i in range(len(batch.seat)):
        seat, first = batch.seat[i], i * slots
        _close(plan.once, state.shown, seat, batch, i, screen)
        for at in range(first, first + slots):
            nonce = batch.nonce[i] + at - first
            if diverse and at > first and left(screen, 0, len(plan.items)) <= 0:  # every leaf had its turn
                _close(plan.once, state.shown, seat, batch, i, screen)
                for j in range(first, at):
                    if out[j]["place"] >= 0:  # there may be nothing left at all
                        shut(screen, out[j]["place"])
            place, node, scores, work = decide(
                plan, state, seat, screen, seed, batch.stream[i], nonce, candidates, trace
            )
            made = out[at]
            made["nonce"], made["place"], made["node"], made["scores"], made["work"] = nonce, place, node, scores, work
            made["item"] = plan.tree.items[place] if place >= 0 else -1
            if place >= 0:
                _appraise(plan, state, seat, place, trace, z, made)
                if slots > 1:
                    _close_behind(plan.tree, place, diverse, screen)


@inner
def _close(once: bool, shown: Lists, seat: int, batch: Batch, i: int, screen: Screen) -> None:
    """Close what a user may not be shown, and nothing else beside what the call closes to all."""
    screen.closed[0] = 0
    for j in range(batch.ends[i], batch.ends[i + 1]):
        shut(screen, batch.extra[j])
    if once:
        start = shown.start[seat]
        for j in range(start, start + shown.length[seat]):
            shut(screen, shown.values[j])


@inner
def _close_behind(tree: TreeArrays, place: int, diverse: bool, screen: Screen) -> None:
    """Close a place that was taken, or all of its leaf."""
    if not diverse:
        shut(screen, place)
        return
    leaf = leaf_at(tree, place)
    for other in range(tree.item_range[leaf, 0], tree.item_range[leaf, 1]):
        shut(screen, other)


@inner
def _appraise(plan: Plan, state: State, seat: int, place: int, trace: Trace, z: Floats, made: Any) -> None:
    """Say what is thought of the item chosen, and how likely it was."""
    items = state.posterior.theta.shape[1] - 1
    x = plan.items[place]
    made["mean"] = dot(x, state.posterior.theta[seat, items])
    made["width"] = np.sqrt(max(spread(state.posterior.inverse[seat, items], x, z), np.float32(0.0)))
    if plan.kind == GREEDY_MEAN:
        visits, total = tally(state.history, seat, place, place + 1)
        made["mean"] = total / visits if visits > 0 else 0.0
    chance, plain, exact = 1.0, 1.0, plan.kind != SAMPLE and plan.rules.shortlist == 0
    last = trace.steps[0] - 1
    for step in range(last if trace.aside[0] else 0, last + 1):
        share = 1.0 if trace.aside[0] else trace.seen[step] / trace.total[step]
        chance *= trace.chance[step] * share
        plain *= trace.plain[step] * share
        exact = exact and trace.seen[step] == trace.total[step]
    explore = plan.rules.explore
    made["propensity"] = explore * chance + (1.0 - explore) * plain
    made["exact"] = exact
    made["bold"] = trace.bold[0]


def nothing_closed(users: int) -> tuple[Integers, NDArray[np.int64]]:
    """Return a batch's `extra` and `ends` when no place is closed to anybody."""
    return np.zeros(0, dtype=np.int32), np.zeros(users + 1, dtype=np.int64)
