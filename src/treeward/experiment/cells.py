"""The cells of an experiment: one arm, one repeat and some users each; computed in any process, on any machine."""

import re
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core import artefact
from treeward.core.tasks import Share
from treeward.core.version import __version__
from treeward.experiment.prepared import read_prepared, read_spec, read_trained, world_folder
from treeward.experiment.presets import TABLE_ROUNDS
from treeward.experiment.profile_quality import Past, Trial, category_numbers, draw_trial, gini, judge
from treeward.experiment.run_folder import Kind, cell_seed
from treeward.experiment.spec import Arm, Spec, TrainedParts
from treeward.learn.torch import torch_for, usual_device
from treeward.simulate.result import Result
from treeward.simulate.run import simulate
from treeward.simulate.world import World
from treeward.tree.item_tree import ItemTree

KIND = Kind("treeward.cell", 6)
SHARD = 250
"""Users per cell; fixed, so that results do not depend on the number of processes or machines."""
_CHECKPOINTS = 40


class Cell(NamedTuple):
    """One arm, once, for some of the users."""

    arm: Arm
    repeat: int
    """Counted over all worlds: the first world's repeats come first."""
    first: int
    last: int
    """The experiment's users from `first` to before `last`."""

    @property
    def name(self) -> str:
        """The name of its folder."""
        slug = re.sub(r"[^a-z0-9]+", "-", self.arm.label.lower()).strip("-")
        return f"{slug}-{sha256(self.arm.label.encode()).hexdigest()[:6]}-{self.repeat}-{self.first}"


def cells_of(spec: Spec, users: int) -> list[Cell]:
    """Return an experiment's cells; users who share a policy's state, or are judged together, stay together."""
    made = []
    for repeat in range(spec.runs):
        for arm in spec.arms:
            # Of code of the user nothing is known: its users may share a state.
            together = spec.judges or spec.start or arm.own or arm.kind.shared_state or not arm.kind.replayable
            step = users if together else SHARD
            made += [Cell(arm, repeat, first, min(first + step, users)) for first in range(0, users, step)]
    return made


def checkpoints(rounds: int) -> NDArray[np.int64]:
    """Return the rounds at which results are kept: dense at first, and those of the paper's table."""
    spaced = np.unique(np.geomspace(1, rounds, _CHECKPOINTS).round().astype(np.int64))
    even = np.linspace(0, rounds, 21)[1:].round().astype(np.int64)
    printed = np.array([one for one in TABLE_ROUNDS if one <= rounds], dtype=np.int64)
    made = np.unique(np.concatenate([spaced, even, printed]))
    return made[made > 0]


@lru_cache(1)
def _setup(place: str) -> tuple[Spec, list[int], TrainedParts]:
    folder = Path(place)
    prepared = read_prepared(folder)
    assert prepared is not None
    spec = read_spec(folder)
    if spec.judges:  # as many processes as cores already
        torch_for("experiment").set_num_threads(1)
    return spec, prepared["users"], read_trained(folder)


@lru_cache(1)
def _world(place: str, number: int) -> World:
    return World.load(Path(place) / world_folder(number), verify=False)


def run_cell(shared: Share, label: str, repeat: int, first: int, last: int) -> artefact.Contents:
    """Compute a cell from what the experiment prepared."""
    place = shared.folder()
    spec, everyone, trained = _setup(str(place))
    world, users = _world(str(place), repeat // spec.repeats), everyone[first:last]
    arm = next(arm for arm in spec.arms if arm.label == label)
    seed = cell_seed(spec.seed, repeat)
    past = Past.load(place / "past") if spec.start else None
    begun = None if past is None else draw_trial(past, spec.start, seed, world, users)
    result = simulate(
        spec.policy(arm, trained),
        world,
        ItemTree.load(place / arm.tree, verify=False),
        rounds=spec.rounds,
        users=users,
        seed=seed,
        reward=arm.reward or spec.reward,
        repeats=not spec.once,
        regret=True,
        log=bool(spec.judges),
        start=None if begun is None else begun.start,
        threads=1,
    )
    turns = checkpoints(spec.rounds)
    earned = np.cumsum(result.rewards, axis=1, dtype=np.float64)[:, turns - 1]
    lost = np.cumsum(result.best - result.expected, axis=1, dtype=np.float64)[:, turns - 1]
    table = pl.DataFrame(
        {
            "row": np.repeat(np.array(users, dtype=np.int32), len(turns)),
            "round": np.tile(turns.astype(np.int32), len(users)),
            "cumulative_reward": earned.ravel().astype(np.float32),
            "cumulative_regret": lost.ravel().astype(np.float32),
        }
    )
    tables = {"users": table}
    told: dict[str, Any] = {}
    if past is not None and begun is not None and spec.judges:
        shown = _shown(result)
        told["gini"], reached = _reached(world, shown, result)
        reached_by = pl.Series("reached", reached[:, turns - 1].ravel(), dtype=pl.Int32)
        tables["users"] = table.with_columns(reached_by)
        tables["verdicts"] = _verdicts(spec, past, begun, shown, result, seed, first=arm is spec.arms[0])
    told |= {
        "scores": float(result.scores.mean()),
        "most_scores": result.settings["most_scores"],
        "multiplications": result.settings["multiplications"],
        "seconds": result.seconds,
        "questions": result.settings["questions"],
        "seed": seed,
        "spec_sha256": spec.digest,
        "treeward": __version__,
        "policy": result.settings["policy"],
        "shared": arm.kind.shared_state,
        "code": arm.code,
    }
    return artefact.Contents({"shown": np.flatnonzero(result.shown).astype(np.int32)}, tables, {}, told)


def _shown(result: Result) -> NDArray[np.int64]:
    assert result.log is not None
    shown: NDArray[np.int64] = result.log["row"].to_numpy().reshape(result.rewards.shape)
    return shown


def _verdicts(
    spec: Spec, past: Past, begun: Trial, shown: NDArray[np.int64], result: Result, seed: int, first: bool
) -> pl.DataFrame:
    """Return what every judge learned from what an arm collected.

    `first`: also what it learns from the clicks that users began with alone, the same for all arms of a repeat.
    """
    rows: list[dict[str, Any]] = []
    for how in spec.judges:
        for kept in (True, False) if first else (True,):
            rounds = shown.shape[1] if kept else 0
            found = judge(past, begun, shown[:, :rounds], result.rewards[:, :rounds], how, seed, usual_device())
            rows.append({"judge": how.label, "collected": kept, **found._asdict()})
    return pl.DataFrame(rows)


def _reached(world: World, shown: NDArray[np.int64], result: Result) -> tuple[float, NDArray[np.int64]]:
    """Return the Gini impurity of what users were shown, and the number of categories each had clicked by round."""
    group = category_numbers(world.catalogue)
    users, rounds = shown.shape
    reached = np.zeros((users, rounds), dtype=np.int64)
    for user in range(users):
        clicked = np.flatnonzero((result.rewards[user] > 0) & (group[shown[user]] >= 0))
        _, at = np.unique(group[shown[user, clicked]], return_index=True)
        reached[user, clicked[at]] = 1
    return float(np.mean([gini(group[rows]) for rows in shown])), reached.cumsum(axis=1)
