"""The loop of `run` for ConUCB, which asks before it decides: one user at a time, all rounds."""

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.compiled import kernel, whole
from treeward.core.types import Floats, Integers
from treeward.engine.available import Screen, left, nth, shut
from treeward.engine.sampling import sample
from treeward.policy.baselines.base import ROUND, STEP
from treeward.policy.baselines.conucb import Rule, State, choose, hear, learn, question, work
from treeward.simulate.world import Tastes, chance


@kernel
def converse(
    state: State,
    rule: Rule,
    vectors: NDArray[np.float64],
    items: Integers,
    terms: NDArray[np.float64],
    opinions: NDArray[np.float64],
    questions: NDArray[np.int64],
    budget: int,
    once: bool,
    screen: Screen,
    tastes: Tastes,
    user: int,
    clicks: bool,
    seed: int,
    stream: int,
    coins: int,
    answers: int,
    rewards: Floats,
    expected: Floats,
    scores: NDArray[np.int64],
    rows: Integers,
) -> None:
    """Run one user through all rounds, as a session of one would; `questions` says how many are asked in each."""
    here = work(budget, vectors.shape[1])
    drawn, asked = np.empty(budget, dtype=np.int64), whole(0)
    screen.closed[0] = 0
    for turn in range(len(rewards)):
        total = left(screen, whole(0), len(vectors))
        count = min(total, budget)
        sample(drawn, count, total, seed, stream, turn * ROUND)
        for j in range(count):
            drawn[j] = nth(screen, whole(0), len(vectors), drawn[j])
        for _ in range(questions[turn]):
            group = question(state, vectors, terms, 0, drawn[:count])
            told = opinions[group]
            if clicks:
                told = 1.0 if rng.uniform(seed, answers, asked) < told else 0.0
            hear(state, terms[group], 0, told, here.z)
            asked += 1
        chosen = choose(state, rule, vectors, 0, drawn[:count], seed, stream, turn * ROUND + STEP, here)
        place = drawn[chosen]
        if once:
            shut(screen, place)
        likely = chance(tastes, user, whole(items[place]))
        reward = likely
        if clicks:
            reward = 1.0 if rng.uniform(seed, coins, turn) < likely else 0.0
        learn(state, rule.weight, vectors[place], 0, reward, here.z)
        rewards[turn] = reward
        expected[turn] = likely
        scores[turn] = count if count > 1 else 0
        rows[turn] = items[place]
