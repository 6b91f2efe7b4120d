"""The entry for decisions: a batch of users in, one `DECISION` record per decision out."""

from collections.abc import Callable

from treeward.core.compiled import bound
from treeward.core.types import AnyArray
from treeward.engine.available import Screen
from treeward.engine.batch import Batch
from treeward.engine.beam import choose_by_beam
from treeward.engine.explore import Candidates
from treeward.engine.layout import Plan, State
from treeward.engine.trace import Trace
from treeward.engine.walk import choose_by_walk

Chooser = Callable[[State, Batch, int, bool, Screen, int, Candidates, Trace, AnyArray], None]
"""Decides for a batch: state, batch, slots, diverse, screen, seed, working memory (two), and the output."""


def chooser(plan: Plan) -> Chooser:
    """Return the function that decides under a plan. Only the one that is called is compiled."""
    if plan.beams:
        beam = plan.beam
        return lambda state, *rest: choose_by_beam(beam, state.known, *rest)
    walk = plan.walk
    return lambda state, *rest: choose_by_walk(walk, state.known, state.walked, *rest)


def bound_chooser(plan: Plan, state: State, batch: Batch, room: tuple[Candidates, Trace], out: AnyArray) -> Chooser:
    """Return the same, compiled and fixed to the types of these arguments."""
    rest = batch, 1, False, Screen.open(), 0, *room, out
    if plan.beams:
        beam, by_beam = plan.beam, bound(choose_by_beam, plan.beam, state.known, *rest)
        return lambda state, *rest: by_beam(beam, state.known, *rest)
    walk, by_walk = plan.walk, bound(choose_by_walk, plan.walk, state.known, state.walked, *rest)
    return lambda state, *rest: by_walk(walk, state.known, state.walked, *rest)
