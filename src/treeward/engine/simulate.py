"""The entry for simulations: all rounds of one user in one call, so that the state stays in the processor's cache."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.compiled import inner, kernel, whole
from treeward.core.types import Floats, Integers
from treeward.engine import beam as beams
from treeward.engine import walk as walks
from treeward.engine.available import Screen, begin_screen, shut
from treeward.engine.explore import Candidates, Draws
from treeward.engine.layout import (
    BeamArrays,
    Known,
    Lesson,
    Numbers,
    Paths,
    Plan,
    WalkArrays,
    Walked,
    empty_state,
    scratch,
)
from treeward.engine.learn import Desk, learn_item
from treeward.engine.learn_paths import learn_path
from treeward.engine.places import holder
from treeward.engine.posterior import Posterior
from treeward.engine.replay import reset_user
from treeward.engine.sampling import ROUND
from treeward.engine.trace import Trace
from treeward.store.events import REWARD


class Tastes(NamedTuple):
    """The arrays of a world: P(reward) = sigmoid(user . item + user bias + item bias), or a table of probabilities."""

    users: Floats
    items: Floats
    user_bias: Floats
    item_bias: Floats
    table: Floats
    """(users, items): the probabilities, if they are given; otherwise (0, 0)."""


class Rounds(NamedTuple):
    """One user's rounds: who they are, where draws come from, and the outputs, one entry per round."""

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


class UserLoop:
    """Runs users through all rounds, one at a time, under a plan."""

    def __init__(self, plan: Plan, rounds: int) -> None:
        self.plan, self.state = plan, empty_state(plan, 1, rounds)
        self._scratch = scratch(plan), Trace.empty(), Screen.open(rounds if plan.once else 0), Desk.empty(plan)

    def run(self, rounds: Rounds) -> None:
        """Run one new user through all rounds."""
        plan, state = self.plan, self.state
        reset_user(plan, state, 0)
        if plan.beams:
            rounds_by_beam(plan.beam, plan.lesson, state.posterior, state.known, *self._scratch, rounds)
        else:
            rounds_by_walk(
                plan.walk, plan.lesson, plan.paths, state.posterior, state.known, state.walked, *self._scratch, rounds
            )


@kernel(allocates=False)
def rounds_by_beam(
    beam: BeamArrays,
    lesson: Lesson,
    posterior: Posterior,
    known: Known,
    candidates: Candidates,
    trace: Trace,
    screen: Screen,
    desk: Desk,
    rounds: Rounds,
) -> None:
    """Run the user in seat 0 through all rounds, by a beam."""
    seat, gate = whole(0), whole(-1)
    begin_screen(screen)
    for turn in range(len(rounds.rewards)):
        _open_rested(beam.numbers, screen, rounds.shown, turn)
        draws = Draws(rounds.seed, rounds.stream, turn * ROUND)
        place, _, rounds.scores[turn], rounds.work[turn] = beams.decide(
            beam, known, seat, screen, draws, candidates, trace
        )
        reward = _answer(beam.numbers, rounds, screen, turn, place, whole(beam.rows[place]))
        learn_item(lesson, posterior, known.history, known.short, seat, place, gate, reward, desk)


@kernel(allocates=False)
def rounds_by_walk(
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
    rounds: Rounds,
) -> None:
    """Run the user in seat 0 through all rounds, by a walk."""
    seat, gate = whole(0), whole(-1)
    begin_screen(screen)
    for turn in range(len(rounds.rewards)):
        _open_rested(walk.numbers, screen, rounds.shown, turn)
        draws = Draws(rounds.seed, rounds.stream, turn * ROUND)
        place, node, rounds.scores[turn], rounds.work[turn] = walks.decide(
            walk, known, walked, seat, screen, draws, candidates, trace
        )
        reward = _answer(walk.numbers, rounds, screen, turn, place, whole(walk.rows[place]))
        at = holder(walk.item_range, walked.visible, seat, place) if walk.numbers.personal else 0
        learn_path(
            lesson, paths, posterior, known.history, known.short, walked.board, walked.visible, seat, place, at, node,
            gate, whole(REWARD), reward, desk,
        )  # fmt: skip


@inner
def _open_rested(numbers: Numbers, screen: Screen, shown: Integers, turn: int) -> None:
    """Where items come back after a while, close only those that were shown lately."""
    if numbers.rest > 0:
        begin_screen(screen)
        for i in range(max(0, turn - numbers.rest), turn):
            shut(screen, whole(shown[i]))


@inner
def _answer(numbers: Numbers, rounds: Rounds, screen: Screen, turn: int, place: int, row: int) -> float:
    """Return the reward of an item, and record the round."""
    if numbers.once:
        shut(screen, place)
    likely = chance(rounds.tastes, rounds.user, row)
    reward = likely
    if rounds.clicks:
        reward = 1.0 if rng.uniform(rounds.seed, rounds.coins, turn) < likely else 0.0
    rounds.rewards[turn] = reward
    rounds.expected[turn] = likely
    rounds.shown[turn] = place
    return reward


@inner
def chance(tastes: Tastes, user: int, row: int) -> float:
    """Return the probability of a reward for one user and one item."""
    if len(tastes.table) > 0:
        return float(tastes.table[user, row])
    logit = tastes.user_bias[user] + tastes.item_bias[row]
    for j in range(tastes.users.shape[1]):
        logit += tastes.users[user, j] * tastes.items[row, j]
    return float(1.0 / (1.0 + np.exp(-np.float64(logit))))


@kernel(allocates=False)
def fill_chances(
    tastes: Tastes, users: NDArray[np.integer], rows: NDArray[np.integer], out: NDArray[np.float64]
) -> None:
    """Write the probability of a reward for pairs of users and items."""
    for i in range(len(out)):
        out[i] = chance(tastes, whole(users[i]), whole(rows[i]))
