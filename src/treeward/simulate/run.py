"""The loop: every user through every round, one user at a time so that their state stays in the cache."""

from collections.abc import Sequence
from time import perf_counter
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treeward.core import artefact, checks, rng
from treeward.core.checks import Seed
from treeward.core.errors import InvalidArgument
from treeward.core.parallel import workers
from treeward.core.progress import Progress, Stage, silent
from treeward.core.types import Floats
from treeward.core.version import __version__
from treeward.engine.simulate import Rounds, UserLoop
from treeward.policy.base import Policy
from treeward.simulate.result import Result
from treeward.simulate.round_loop import Run, by_rounds, logged
from treeward.simulate.world import World
from treeward.tree.item_tree import ItemTree

_USERS_PER_PIECE = 16


@checks.checked()
def simulate(
    policy: Policy,
    world: World,
    tree: ItemTree | None = None,
    rounds: int = 1_000,
    users: int | Sequence[int] | None = None,
    seed: Seed = 0,
    *,
    reward: Literal["probability", "click"] = "probability",
    repeats: bool | int = True,
    regret: bool = False,
    log: bool = False,
    start: ArrayLike | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Result:
    """Try a policy on the users of a world.

    Parameters
    ----------
    policy
        The policy.
    world
        The world that answers.
    tree
        The tree to walk; by default one is built from the catalogue's vectors.
    rounds
        Recommendations per user.
    users
        How many of the world's users, from the first, or which; by default all.
    seed
        Same seed: same run, whatever the number of threads.
    reward
        ``"probability"``: the expected reward itself, as in the paper's authors' code; ``"click"``: a coin flip.
    repeats
        Whether an item may be shown to a user again (the paper) or only once (real life); a number: after that many
        others.
    regret
        Also find the best item of every round, which looks at every item for every user.
    log
        Also return every decision with its propensity, for `off_policy`; runs round by round, which is slower.
    start
        (users, k): rows of items that each user is known to have liked before. They are taught with reward 1, and not
        shown again where items are shown once. Runs round by round.
    threads
        By default the cores this process may use. What runs round by round uses one: the baselines (HMAB, ICTR, ConUCB,
        ContextFree), the rivals (XCB, ...), logs, and users with a past.
    progress
        Called with (stage, done, total) as the work goes on.

    Examples
    --------
    >>> from treeward.bandit import LinUCB
    >>> from treeward.policy import HCB
    >>> world = World.synthetic(items=2_000, users=20, dim=8, seed=1)
    >>> result = simulate(HCB(LinUCB(), budget=50), world, rounds=100, seed=0)
    >>> bool(result.cumulative[-1] > 1.5 * 100 * world.base_rate())
    True
    """
    owner = "simulate"
    once, rest = checks.repeats(owner, repeats)
    if rest >= len(world.catalogue):
        raise InvalidArgument(owner, "repeats", f"fewer than the {len(world.catalogue)} items", repeats)
    who = _who(users, world.users)
    begun = _start(start, len(who), len(world.catalogue))
    most = len(world.catalogue) - begun.shape[1] if once and not rest else 2**31 - 1
    checks.integer(owner, "rounds", rounds, low=1, high=most)
    grown = policy.grow(world.catalogue, seed) if tree is None else tree
    run = Run(policy, world, grown, who, seed, reward == "click", (once, rest), rounds)
    run.start = begun
    made = None
    if log or run.start.size or policy.shared_state or not policy.replayable:
        seconds, decisions = by_rounds(run, log, progress or silent)
        made = logged(run, decisions) if log else None
    else:
        seconds = _by_users(run, threads, progress or silent)
    best = np.zeros((0, 0), dtype=np.float32)
    if regret:
        best = np.zeros_like(run.rewards)
        stage = Stage(progress or silent, f"{policy.name}: regret", len(who))
        with workers(threads) as pool:
            pool.each(lambda i: _find_best(run, i, best[i]), range(len(who)), stage.step)
    shown = np.zeros(len(world.catalogue), dtype=np.bool_)
    shown[run.rows] = True
    settings = {
        "policy": repr(policy), "rounds": rounds, "users": len(who) if who == list(range(len(who))) else who,
        "seed": seed, "reward": reward, "repeats": repeats, "questions": run.asked / len(who),
        "most_scores": int(run.scores.max()), "multiplications": float(run.work.mean()) + run.upkeep,
        "treeward": __version__, "vectors_sha256": artefact.digest(world.catalogue.vectors),
        "tree_sha256": artefact.digest(grown.items),
    }  # fmt: skip
    return Result(policy.name, run.rewards, best, run.expected, run.scores.mean(axis=0), shown, seconds, settings, made)


def _by_users(run: Run, threads: int | None, progress: Progress) -> float:
    """Run a policy that walks a tree user by user, on several threads; return the seconds it took, without compiling.

    One user at a time, so that their state stays in the processor's cache.
    """
    plan = run.policy.plan(run.tree, run.world.catalogue, once=run.once, rest=run.rest)
    run.upkeep = plan.upkeep

    def piece(first: int, turns: int = run.rounds) -> None:
        loop, places = UserLoop(plan, run.rounds), np.zeros(turns, dtype=np.int32)
        for i in range(first, min(first + _USERS_PER_PIECE, len(run.who))):
            stream, coins = rng.stream("user", run.who[i]), rng.stream("coin", run.who[i])
            loop.run(
                Rounds(
                    run.world.tastes, run.who[i], run.clicks, run.seed, stream, coins, run.rewards[i, :turns],
                    run.expected[i, :turns], run.scores[i, :turns], run.work[i, :turns], places,
                )
            )  # fmt: skip
            run.rows[i, :turns] = plan.tree.items[places]

    with workers(threads) as pool:
        piece(0, 0)  # compiles, so that the time below is the run's own
        pieces = range(0, len(run.who), _USERS_PER_PIECE)
        stage = Stage(progress, run.policy.name, len(pieces))
        start = perf_counter()
        pool.each(piece, pieces, stage.step)
        return perf_counter() - start


def _who(users: int | Sequence[int] | None, most: int) -> list[int]:
    if users is None:
        return list(range(most))
    if isinstance(users, int | np.integer):
        return list(range(checks.integer("simulate", "users", users, low=1, high=most)))
    chosen = [checks.integer("simulate", "users", user, low=0, high=most - 1) for user in users]
    if not chosen or len(set(chosen)) != len(chosen):
        raise InvalidArgument("simulate", "users", "at least one, and all different", users)
    return chosen


def _start(start: ArrayLike | None, users: int, items: int) -> NDArray[np.int64]:
    rows = np.zeros((users, 0), dtype=np.int64) if start is None else np.asarray(start)
    if rows.ndim != 2 or len(rows) != users or rows.dtype.kind not in "iu" or ((rows < 0) | (rows >= items)).any():
        rule = f"{users} lists of equal length, of integers from 0 to {items - 1}"
        raise InvalidArgument("simulate", "start", rule, f"shape {rows.shape}")
    return rows.astype(np.int64)


def _find_best(run: Run, at: int, best: Floats) -> None:
    """Write the best expected reward of each round: of all items, or of those that could be shown."""
    chances, rows = run.world.probabilities(run.who[at]), run.rows[at].tolist()
    if not run.once:
        best[:] = chances.max()
        return
    # At most as many items as rounds can be gone, so that the best ones suffice.
    gone: set[int] = set() if run.rest else set(run.start[at].tolist())
    ranked = np.argsort(-chances, kind="stable")[: len(rows) + len(gone)].tolist()
    first = 0
    for turn, row in enumerate(rows):
        first = 0 if run.rest else first
        while ranked[first] in gone:
            first += 1
        best[turn] = chances[ranked[first]]
        gone.add(row)
        if run.rest and turn >= run.rest:
            gone.discard(rows[turn - run.rest])
