"""A user's whole life in one call: every round of a simulation, by a beam or by a walk."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.compiled import apart, inner, whole
from treeward.core.types import Floats, Integers
from treeward.engine import beam as beams
from treeward.engine import walk as walks
from treeward.engine.available import Screen, shut
from treeward.engine.explore import Candidates
from treeward.engine.layout import BeamArrays, Known, Lesson, Numbers, Paths, Plan, WalkArrays, Walked, room, scratch
from treeward.engine.learn import Desk, teach_item
from treeward.engine.learn_paths import teach_path
from treeward.engine.places import holder
from treeward.engine.posterior import Posterior
from treeward.engine.replay import sit
from treeward.engine.sampling import ROUND, Draws
from treeward.engine.trace import Trace
from treeward.simulate.world import Tastes, chance
from treeward.store.events import REWARD


class Life(NamedTuple):
    """Who lives, where their draws come from, and what is written down of every round."""

    tastes: Tastes
    user: int
    clicks: bool
    seed: int
    stream: int
    coins: int
    rewards: Floats
    expected: Floats
    scores: NDArray[np.int64]
    work: NDArray[np.int64]
    shown: Integers
    """Places."""


class Home:
    """Room for one user at a time under a plan."""

    def __init__(self, plan: Plan, rounds: int) -> None:
        self.plan, self.state = plan, room(plan, 1, rounds)
        self._room = scratch(plan), Trace.empty(), Screen.open(rounds if plan.once else 0), Desk.empty(plan)

    def live(self, life: Life) -> None:
        """Run one user who is not known yet through all rounds."""
        plan, state = self.plan, self.state
        sit(plan, state, 0)
        if plan.beams:
            live_by_beam(plan.beam, plan.lesson, state.posterior, state.known, *self._room, life)
        else:
            live_by_walk(
                plan.walk, plan.lesson, plan.paths, state.posterior, state.known, state.walked, *self._room, life
            )


@apart
def live_by_beam(
    beam: BeamArrays,
    lesson: Lesson,
    posterior: Posterior,
    known: Known,
    candidates: Candidates,
    trace: Trace,
    screen: Screen,
    desk: Desk,
    life: Life,
) -> None:
    """Run the user in seat 0 through all rounds, by a beam."""
    seat, gate = whole(0), whole(-1)
    screen.closed[0] = 0
    for turn in range(len(life.rewards)):
        _open_rested(beam.numbers, screen, life.shown, turn)
        draws = Draws(life.seed, life.stream, turn * ROUND)
        place, _, life.scores[turn], life.work[turn] = beams.decide(beam, known, seat, screen, draws, candidates, trace)
        reward = _answer(beam.numbers, life, screen, turn, place, whole(beam.rows[place]))
        teach_item(lesson, posterior, known.history, known.short, seat, place, gate, reward, desk)


@apart
def live_by_walk(
    walk: WalkArrays,
    lesson: Lesson,
    paths: Paths,
    posterior: Posterior,
    known: Known,
    walked: Walked,
    candidates: Candidates,
    trace: Trace,
    screen: Screen,
    desk: Desk,
    life: Life,
) -> None:
    """Run the user in seat 0 through all rounds, by a walk."""
    seat, gate = whole(0), whole(-1)
    screen.closed[0] = 0
    for turn in range(len(life.rewards)):
        _open_rested(walk.numbers, screen, life.shown, turn)
        draws = Draws(life.seed, life.stream, turn * ROUND)
        place, node, life.scores[turn], life.work[turn] = walks.decide(
            walk, known, walked, seat, screen, draws, candidates, trace
        )
        reward = _answer(walk.numbers, life, screen, turn, place, whole(walk.rows[place]))
        at = holder(walk.item_range, walked.visible, seat, place) if walk.numbers.personal else 0
        teach_path(
            lesson, paths, posterior, known.history, known.short, walked.board, walked.visible, seat, place, at, node,
            gate, whole(REWARD), reward, desk,
        )  # fmt: skip


@inner
def _open_rested(numbers: Numbers, screen: Screen, shown: Integers, turn: int) -> None:
    """Where items come back after a while, close those alone that were shown lately."""
    if numbers.rest > 0:
        screen.closed[0] = 0
        for i in range(max(0, turn - numbers.rest), turn):
            shut(screen, whole(shown[i]))


@inner
def _answer(numbers: Numbers, life: Life, screen: Screen, turn: int, place: int, row: int) -> float:
    """Return what the user answers to an item, and write the round down."""
    if numbers.once:
        shut(screen, place)
    likely = chance(life.tastes, life.user, row)
    reward = likely
    if life.clicks:
        reward = 1.0 if rng.uniform(life.seed, life.coins, turn) < likely else 0.0
    life.rewards[turn] = reward
    life.expected[turn] = likely
    life.shown[turn] = place
    return reward
