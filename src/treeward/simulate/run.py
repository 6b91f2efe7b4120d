"""The loop: every user through every round, one user at a time so that their state stays in the cache."""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.bandit.choose import Candidates
from treeward.core import artefact, checks, rng
from treeward.core.compiled import kernel
from treeward.core.errors import InvalidArgument
from treeward.core.parallel import workers
from treeward.core.progress import Progress, Stage, silent
from treeward.core.types import AnyArray, Floats, Integers
from treeward.core.version import __version__
from treeward.policy.base import Policy
from treeward.policy.conucb import ConUCB, Conversation, questions_by
from treeward.policy.learn import sit, teach
from treeward.policy.plan import Plan, State, room, scratch
from treeward.policy.rounds import Asks
from treeward.policy.screen import Screen, shut
from treeward.policy.session import Decisions, Session
from treeward.policy.steps import Trace
from treeward.policy.walk import decide
from treeward.simulate.converse import converse
from treeward.simulate.result import Result
from treeward.simulate.world import Tastes, World, chance
from treeward.tree.item_tree import ItemTree

_USERS_A_PIECE = 16


@kernel
def _live(
    plan: Plan,
    state: State,
    candidates: Candidates,
    screen: Screen,
    trace: Trace,
    tastes: Tastes,
    user: int,
    clicks: bool,
    seed: int,
    stream: int,
    coins: int,
    rewards: Floats,
    expected: Floats,
    scores: NDArray[np.int64],
    work: NDArray[np.int64],
    shown: Integers,
) -> None:
    """Run one user through all rounds, in seat 0; `shown` receives the places."""
    until = np.zeros(state.posterior.pulls.shape[1], dtype=np.int64)
    z = np.empty(plan.items.shape[1], dtype=np.float32)
    sit(plan, state, 0)
    screen.closed[0] = 0
    for turn in range(len(rewards)):
        if plan.rest > 0:
            screen.closed[0] = 0
            for i in range(max(0, turn - plan.rest), turn):
                shut(screen, shown[i])
        place, node, scores[turn], work[turn] = decide(plan, state, 0, screen, seed, stream, turn, candidates, trace)
        if plan.once:
            shut(screen, place)
        likely = chance(tastes, user, plan.tree.items[place])
        reward = likely
        if clicks:
            reward = 1.0 if rng.uniform(seed, coins, turn) < likely else 0.0
        teach(plan, state, 0, place, node, reward, until, z)
        rewards[turn] = reward
        expected[turn] = likely
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
    repeats: bool | int = True,
    regret: bool = False,
    log: bool = False,
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
        Whether an item may be shown to a user again (the paper) or only once (real life); a number: after so many
        others.
    regret
        Also find the best item of every round, which looks at every item for every user.
    log
        Also return every decision with its propensity, for `off_policy`; runs round by round, which is slower.
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
    once, rest = checks.repeats(owner, repeats)
    checks.integer(owner, "rounds", rounds, low=1, high=len(world.catalogue) if once and not rest else 2**31 - 1)
    if rest >= len(world.catalogue):
        raise InvalidArgument(owner, "repeats", f"fewer than the {len(world.catalogue)} items", repeats)
    checks.integer(owner, "seed", seed, low=0)
    checks.one_of(owner, "reward", reward, ("probability", "click"))
    who = _who(users, world.users)
    grown = policy.grow(world.catalogue, seed) if tree is None else tree
    run = _Run(policy, world, grown, who, seed, reward == "click", (once, rest), rounds)
    checks.flag(owner, "log", log)
    made = None
    if log or policy.shared_state or not (policy.replayable or isinstance(policy, ConUCB)):
        seconds, decisions = _by_rounds(run, log, progress or silent)
        made = _log(run, decisions) if log else None
    else:
        live = _talker(run) if isinstance(policy, ConUCB) else _walker(run)
        seconds = _by_users(run, live, threads, progress or silent)
    best = np.zeros((0, 0), dtype=np.float32)
    if regret:
        best = np.zeros_like(run.rewards)
        stage = Stage(progress or silent, f"{policy.name}: regret", len(who))
        with workers(threads) as pool:
            pool.each(
                lambda i: _find_best(world, who[i], run.rows[i], once, rest, best[i]), range(len(who)), stage.step
            )
    shown = np.zeros(len(world.catalogue), dtype=np.bool_)
    shown[run.rows] = True
    settings = {
        "policy": repr(policy),
        "rounds": rounds,
        "users": len(who) if who == list(range(len(who))) else who,
        "seed": seed,
        "reward": reward,
        "repeats": repeats,
        "questions": run.asked / len(who),
        "most_scores": int(run.scores.max()),
        "multiplications": float(run.work.mean()) + run.upkeep,
        "treeward": __version__,
        "vectors_sha256": artefact.digest(world.catalogue.vectors),
        "tree_sha256": artefact.digest(grown.items),
    }
    return Result(policy.name, run.rewards, best, run.expected, run.scores.mean(axis=0), shown, seconds, settings, made)


class _Run:
    """What a simulation is given, and room for what comes of it: (users, rounds)."""

    def __init__(
        self,
        policy: Policy,
        world: World,
        tree: ItemTree,
        who: list[int],
        seed: int,
        clicks: bool,
        again: tuple[bool, int],
        rounds: int,
    ) -> None:
        self.policy, self.world, self.tree, self.who, self.seed = policy, world, tree, who, seed
        self.clicks, (self.once, self.rest), self.rounds = clicks, again, rounds
        self.rewards = np.zeros((len(who), rounds), dtype=np.float32)
        self.expected = np.zeros_like(self.rewards)
        self.scores = np.zeros((len(who), rounds), dtype=np.int64)
        self.work = np.zeros((len(who), rounds), dtype=np.int64)
        self.rows = np.zeros((len(who), rounds), dtype=np.int32)
        self.asked = 0
        self.upkeep = 0
        """Multiplications a reward takes, where known."""

    def session(self, users: int) -> Session:
        """Return the policy at work."""
        resting = {"rest": self.rest} if self.rest else {}
        return self.policy.session(self.tree, self.world.catalogue, users, once=self.once, seed=self.seed, **resting)


_Live = Callable[[int, int], None]
"""Runs somebody (the i-th of the run) through so many rounds, with room of its own."""


def _walker(run: _Run) -> Callable[[], _Live]:
    """Return what makes a `_Live` for a policy that walks a tree."""
    plan = run.policy.plan(run.tree, run.world.catalogue, once=run.once, rest=run.rest)
    run.upkeep = plan.upkeep

    def make() -> _Live:
        state = room(plan, 1, run.rounds)
        candidates, screen, trace = scratch(plan), Screen.open(run.rounds if plan.once else 0), Trace.empty()
        places = np.zeros(run.rounds, dtype=np.int32)

        def live(i: int, turns: int) -> None:
            stream, coins = rng.stream("user", run.who[i]), rng.stream("coin", run.who[i])
            _live(
                plan, state, candidates, screen, trace, run.world.tastes, run.who[i], run.clicks, run.seed, stream,
                coins, run.rewards[i, :turns], run.expected[i, :turns], run.scores[i, :turns], run.work[i, :turns],
                places[:turns],
            )  # fmt: skip
            run.rows[i, :turns] = plan.tree.items[places[:turns]]

        return live

    return make


def _talker(run: _Run) -> Callable[[], _Live]:
    """Return what makes a `_Live` for ConUCB."""

    def begin() -> Conversation:
        made = run.session(1)
        assert isinstance(made, Conversation)
        return made

    first = begin()
    empty, shared = first.state, (first.rule, first.vectors, first.items, first.terms)
    opinions = run.world.opinions(run.who, first.groups)
    run.work[:] = first.budget * first.each
    each = np.diff([0, *(questions_by(turn) for turn in range(run.rounds))]) * (len(first.terms) > 0)
    run.asked = int(each.sum()) * len(run.who)

    def make() -> _Live:
        screen = Screen.open(run.rounds if run.once else 0)

        def live(i: int, turns: int) -> None:
            state = type(empty)(*(array.copy() for array in empty))
            stream, coins, answers = (rng.stream(name, run.who[i]) for name in ("user", "coin", "answer"))
            converse(
                state, *shared, opinions[i], each, first.budget, run.once, screen, run.world.tastes, run.who[i],
                run.clicks, run.seed, stream, coins, answers, run.rewards[i, :turns], run.expected[i, :turns],
                run.scores[i, :turns], run.rows[i, :turns],
            )  # fmt: skip

        return live

    return make


def _by_users(run: _Run, make: Callable[[], _Live], threads: int | None, progress: Progress) -> float:
    """Run user by user, on several threads; return the seconds it took, without compiling."""

    def piece(first: int) -> None:
        live = make()
        for i in range(first, min(first + _USERS_A_PIECE, len(run.who))):
            live(i, run.rounds)

    with workers(threads) as pool:
        make()(0, 0)  # compiles, so that the time below is the run's own
        pieces = range(0, len(run.who), _USERS_A_PIECE)
        stage = Stage(progress, run.policy.name, len(pieces))
        start = perf_counter()
        pool.each(piece, pieces, stage.step)
        return perf_counter() - start


def _by_rounds(run: _Run, log: bool, progress: Progress) -> tuple[float, list[Decisions]]:
    """Run round by round, for a policy whose users learn from each other; return the seconds it took.

    Also return the decisions, if they are to be logged.
    """
    kept: list[Decisions] = []
    stage = Stage(progress, run.policy.name, run.rounds)
    with workers(1):  # for BLAS, which would start threads for tiny products
        _warm(run)
        start = perf_counter()
        _play(run, kept if log else None, stage)
        return perf_counter() - start, kept


def _play(run: _Run, kept: list[Decisions] | None, stage: Stage) -> None:
    who = np.array(run.who)
    seats = np.arange(len(who))
    session = run.session(len(who))
    if hasattr(session, "streams"):  # draws go by who somebody is, not by their place in the session
        session.streams = np.array([rng.stream("user", user) for user in who.tolist()], dtype=np.int64)
    coins, answers = (
        np.array([rng.stream(name, user) for user in who.tolist()], dtype=np.int64) for name in ("coin", "answer")
    )
    asking = session if isinstance(session, Asks) else None
    opinions = run.world.opinions(who.tolist(), asking.groups) if asking is not None else np.zeros((0, 0))
    for turn in range(run.rounds):
        if asking is not None:
            while (asked := asking.ask(seats, turn)) is not None:
                told = opinions[asked.user, asked.group]
                if run.clicks:
                    told = (rng.uniforms_of(run.seed, answers, run.asked // len(who)) < told).astype(np.float64)
                asking.hear(asked, told)
                run.asked += len(who)
        made = session.select(seats, turn)
        chances = run.world.chances(who, made.item)
        rewards = (rng.uniforms_of(run.seed, coins, turn) < chances).astype(np.float64) if run.clicks else chances
        session.update(made, rewards)
        run.rewards[:, turn], run.expected[:, turn] = rewards, chances
        run.scores[:, turn], run.rows[:, turn] = made.scores, made.item
        run.work[:, turn] = made.work if len(made.work) else 0
        if kept is not None:
            kept.append(made)
        stage.step()


def _warm(run: _Run) -> None:
    """Have everything compiled, so that the time of the run is its own."""
    session = run.session(1)
    for turn in range(3):  # the third round has a first question, for whoever asks
        if isinstance(session, Asks) and (asked := session.ask([0], turn)) is not None:
            session.hear(asked, [0.5])
        made = session.select([0], turn)
        session.update(made, [0.5])


def _log(run: _Run, decisions: list[Decisions]) -> pl.DataFrame:
    """Return the decisions of a run, user by user."""
    users, rounds = run.rewards.shape
    row = run.rows.ravel().astype(np.int64)
    names = np.array(run.who) if run.world.user_ids is None else run.world.user_ids[run.who]

    def flat(name: str) -> AnyArray:
        return np.stack([getattr(made, name) for made in decisions], axis=1).ravel()

    return pl.DataFrame(
        {
            "user": np.repeat(names, rounds) if isinstance(names, np.ndarray) else names.repeat_by(rounds).explode(),
            "item": run.world.catalogue.ids[row],
            "row": row,
            "slot": np.zeros_like(row),
            "round": np.tile(np.arange(rounds), users),
            "propensity": flat("propensity"),
            "exact": flat("exact"),
            "reward": run.rewards.ravel().astype(np.float64),
        }
    )


def _who(users: int | Sequence[int] | None, most: int) -> list[int]:
    if users is None:
        return list(range(most))
    if isinstance(users, int | np.integer):
        return list(range(checks.integer("simulate", "users", users, low=1, high=most)))
    chosen = [checks.integer("simulate", "users", user, low=0, high=most - 1) for user in users]
    if not chosen or len(set(chosen)) != len(chosen):
        raise InvalidArgument("simulate", "users", "at least one, and all different", users)
    return chosen


def _find_best(world: World, user: int, shown: Integers, once: bool, rest: int, best: Floats) -> None:
    """Write the best expected reward there was at each round: of all items, or of those that were not resting."""
    chances = world.probabilities(user)
    if not once:
        best[:] = chances.max()
        return
    ranked = np.argsort(-chances, kind="stable")[: len(shown)].tolist()
    gone: set[int] = set()
    at, rows = 0, shown.tolist()
    for turn, row in enumerate(rows):
        at = 0 if rest else at
        while ranked[at] in gone:
            at += 1
        best[turn] = chances[ranked[at]]
        gone.add(row)
        if rest and turn >= rest:
            gone.discard(rows[turn - rest])
