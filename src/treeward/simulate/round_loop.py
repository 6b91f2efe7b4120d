"""The loop round by round: for the baselines, which have sessions of their own, for logs, and for users with a past."""

from time import perf_counter

import numpy as np
import polars as pl

from treeward.core import rng
from treeward.core.errors import InvalidArgument
from treeward.core.parallel import workers
from treeward.core.progress import Progress, Stage
from treeward.core.types import AnyArray
from treeward.policy.base import Policy
from treeward.policy.baselines.base import Asks
from treeward.policy.session import Begins, Decisions, Session
from treeward.simulate.world import World
from treeward.tree.item_tree import ItemTree


class Run:
    """The inputs of a simulation, and arrays (users, rounds) for its results."""

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
        self.start = np.zeros((len(who), 0), dtype=np.int64)
        self.upkeep = 0
        """Multiplications that learning from one reward takes, where known."""

    def session(self, users: int) -> Session:
        """Return the policy at work."""
        resting = {"rest": self.rest} if self.rest else {}
        return self.policy.session(self.tree, self.world.catalogue, users, once=self.once, seed=self.seed, **resting)


def by_rounds(run: Run, log: bool, progress: Progress) -> tuple[float, list[Decisions]]:
    """Run all users through one round after the other, on one thread; return the seconds it took.

    Policies whose users learn from each other, or that ask questions, need this loop. Also return the decisions, if
    they are to be logged.
    """
    kept: list[Decisions] = []
    stage = Stage(progress, run.policy.name, run.rounds)
    with workers(1):  # for BLAS, which would start threads for tiny products
        _warm(run)
        start = perf_counter()
        _play(run, kept if log else None, stage)
        return perf_counter() - start, kept


def _play(run: Run, kept: list[Decisions] | None, stage: Stage) -> None:
    who = np.array(run.who)
    seats = np.arange(len(who))
    session = run.session(len(who))
    run.upkeep = getattr(session, "upkeep", 0)
    if hasattr(session, "streams"):  # draws depend on the user, not on the user's place in the session
        session.streams = np.array([rng.stream("user", user) for user in who.tolist()], dtype=np.int64)
    coins, answers = (
        np.array([rng.stream(name, user) for user in who.tolist()], dtype=np.int64) for name in ("coin", "answer")
    )
    _begin(run, session)
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


def _begin(run: Run, session: Session) -> None:
    """Teach the session what users liked before."""
    if not run.start.size:
        return
    if not isinstance(session, Begins):
        raise InvalidArgument("simulate", "start", "left out: the policy knows only what it showed itself", "some")
    seats = np.arange(len(run.who))
    for rows in run.start.T:
        session.update(session.met(seats, rows), np.ones(len(seats)))


def _warm(run: Run) -> None:
    """Compile everything, so that the measured time is that of the run."""
    session = run.session(1)
    for turn in range(3):  # policies that ask questions ask the first one in the third round
        if isinstance(session, Asks) and (asked := session.ask([0], turn)) is not None:
            session.hear(asked, [0.5])
        made = session.select([0], turn)
        session.update(made, [0.5])


def logged(run: Run, decisions: list[Decisions]) -> pl.DataFrame:
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
