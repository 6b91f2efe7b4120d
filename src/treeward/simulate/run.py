"""The loop: every user through every round, one user at a time so that their state stays in the cache."""

from collections.abc import Sequence
from time import perf_counter
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from treeward.bandit.choose import Candidates
from treeward.core import artefact, checks, rng
from treeward.core.compiled import kernel
from treeward.core.errors import InvalidArgument
from treeward.core.parallel import workers
from treeward.core.progress import Progress, Stage, silent
from treeward.core.types import Floats, Integers
from treeward.core.version import __version__
from treeward.policy.base import Policy
from treeward.policy.plan import Plan, State, room, scratch
from treeward.policy.walk import decide, sit, update
from treeward.simulate.result import Result
from treeward.simulate.world import Tastes, World
from treeward.tree.item_tree import ItemTree

_USERS_A_PIECE = 16


@kernel
def _live(
    plan: Plan,
    state: State,
    candidates: Candidates,
    tastes: Tastes,
    user: int,
    clicks: bool,
    seed: int,
    stream: int,
    coins: int,
    rewards: Floats,
    expected: Floats,
    scores: NDArray[np.int64],
    shown: Integers,
) -> None:
    """Run one user through all rounds, in seat 0; `shown` receives the places."""
    sit(plan, state, 0)
    for turn in range(len(rewards)):
        closed = state.history.places[0]
        shut = state.history.length[0] if plan.once else 0
        place, node, spent, _ = decide(plan, state, 0, closed, shut, seed, stream, turn, candidates)
        row = plan.tree.items[place]
        logit = tastes.user_bias[user] + tastes.item_bias[row]
        for j in range(tastes.users.shape[1]):
            logit += tastes.users[user, j] * tastes.items[row, j]
        chance = 1.0 / (1.0 + np.exp(-np.float64(logit)))
        reward = chance
        if clicks:
            reward = 1.0 if rng.uniform(seed, coins, turn) < chance else 0.0
        update(plan, state, 0, place, node, reward)
        rewards[turn] = reward
        expected[turn] = chance
        scores[turn] = spent
        shown[turn] = place


def simulate(
    policy: Policy,
    world: World,
    tree: ItemTree | None = None,
    rounds: int = 1_000,
    users: int | Sequence[int] | None = None,
    seed: int = 0,
    *,
    reward: Literal["probability", "click"] = "probability",
    repeats: bool = True,
    regret: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Result:
    """Try a policy on the users of a world.

    Parameters
    ----------
    policy
        What decides.
    world
        What answers.
    tree
        The tree to walk; by default one is built from the catalogue's vectors.
    rounds
        Recommendations a user gets.
    users
        How many of the world's users, from the first, or which; by default all.
    seed
        Same seed: same run, whatever the number of threads.
    reward
        ``"probability"``: the expected reward itself, as in the paper's authors' code; ``"click"``: a coin flip.
    repeats
        Whether an item may be shown to a user again (the paper) or only once (real life).
    regret
        Also find the best item of every round, which looks at every item for every user.
    threads
        By default the cores this process may use.
    progress
        Called with (stage, done, total) as the work goes on.

    Examples
    --------
    >>> from treeward.bandit import LinUCB
    >>> from treeward.policy import HCB
    >>> world = World.synthetic(items=2_000, users=20, dim=8, seed=1)
    >>> result = simulate(HCB(LinUCB(), budget=50), world, rounds=100, seed=0)
    >>> bool(result.cumulative[-1] > 2 * 100 * world.base_rate())
    True
    """
    owner = "simulate"
    checks.integer(owner, "rounds", rounds, low=1, high=len(world.catalogue) if not repeats else 2**31 - 1)
    checks.integer(owner, "seed", seed, low=0)
    checks.one_of(owner, "reward", reward, ("probability", "click"))
    who = _who(users, world.users)
    grown = ItemTree.build(world.catalogue.vectors, seed=seed) if tree is None else tree
    plan = policy.plan(grown, world.catalogue, once=not repeats)
    rewards = np.zeros((len(who), rounds), dtype=np.float32)
    expected, scores = np.zeros_like(rewards), np.zeros((len(who), rounds), dtype=np.int64)
    best = np.zeros_like(rewards) if regret else np.zeros((0, 0), dtype=np.float32)
    shown = np.zeros(len(world.catalogue), dtype=np.bool_)

    def live(first: int, turns: int = rounds) -> None:
        state = room(plan, 1, rounds)
        candidates = scratch(plan, state)
        places = np.zeros(turns, dtype=np.int32)
        for i in range(first, min(first + _USERS_A_PIECE, len(who))):
            stream, coins = rng.stream("user", who[i]), rng.stream("coin", who[i])
            _live(
                plan, state, candidates, world.tastes, who[i], reward == "click", seed, stream, coins,
                rewards[i, :turns], expected[i, :turns], scores[i, :turns], places,
            )  # fmt: skip
            rows = plan.tree.items[places]
            shown[rows] = True
            if regret and turns:
                _find_best(world, who[i], rows, repeats, best[i])

    with workers(threads) as pool:
        live(0, 0)  # compiles, so that the time below is the run's own
        pieces = range(0, len(who), _USERS_A_PIECE)
        stage = Stage(progress or silent, policy.name, len(pieces))
        start = perf_counter()
        pool.each(live, pieces, stage.step)
        seconds = perf_counter() - start
    settings = {
        "policy": repr(policy),
        "rounds": rounds,
        "users": len(who) if who == list(range(len(who))) else who,
        "seed": seed,
        "reward": reward,
        "repeats": repeats,
        "treeward": __version__,
        "vectors_sha256": artefact.digest(world.catalogue.vectors),
        "tree_sha256": artefact.digest(plan.tree.items),
    }
    return Result(policy.name, rewards, best, expected, scores.mean(axis=0), shown, seconds, settings)


def _who(users: int | Sequence[int] | None, most: int) -> list[int]:
    if users is None:
        return list(range(most))
    if isinstance(users, int | np.integer):
        return list(range(checks.integer("simulate", "users", users, low=1, high=most)))
    chosen = [checks.integer("simulate", "users", user, low=0, high=most - 1) for user in users]
    if not chosen:
        raise InvalidArgument("simulate", "users", "at least one", users)
    return chosen


def _find_best(world: World, user: int, shown: Integers, repeats: bool, best: Floats) -> None:
    """Write the best expected reward there was at each round: of all items, or of those not shown before it."""
    chances = world.probabilities(user)
    if repeats:
        best[:] = chances.max()
        return
    ranked = np.argsort(-chances, kind="stable")[: len(shown)].tolist()
    gone: set[int] = set()
    at = 0
    for turn, row in enumerate(shown.tolist()):
        while ranked[at] in gone:
            at += 1
        best[turn] = chances[ranked[at]]
        gone.add(row)
