"""Running an experiment: one cell an arm and repeat, in processes, each written once and never computed again."""

import fcntl
import multiprocessing
import os
import re
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core import artefact, checks
from treeward.core.artefact import StrPath
from treeward.core.errors import ArtefactError, ArtefactExists, ArtefactWrite, InvalidArgument, TreewardError
from treeward.core.parallel import cores
from treeward.core.progress import Progress, silent
from treeward.core.version import __version__
from treeward.experiment.judge import Judging, Past, Trial, gini, grouped, judge, trial
from treeward.experiment.prepare import prepare, read_aids, read_prepared
from treeward.experiment.presets import TABLE_ROUNDS
from treeward.experiment.spec import Aids, Arm, Spec
from treeward.learn.torch import torch_for, usual_device
from treeward.simulate.result import Result
from treeward.simulate.run import simulate
from treeward.simulate.world import World
from treeward.tree.item_tree import ItemTree

FORMAT, VERSION = "treeward.cell", 3
_CHECKPOINTS = 40
JUDGED = ("log_loss", "auc", "gini", "log_loss_before", "auc_before")
"""Of a cell whose collection was judged; the last two only of the first arm's, being the same for all."""


class Cell(NamedTuple):
    """One arm, once."""

    arm: Arm
    repeat: int

    @property
    def name(self) -> str:
        """A folder's name."""
        slug = re.sub(r"[^a-z0-9]+", "-", self.arm.label.lower()).strip("-")
        return f"{slug}-{sha256(self.arm.label.encode()).hexdigest()[:6]}-{self.repeat}"


class Outcome(NamedTuple):
    """A finished experiment."""

    spec: Spec
    prepared: dict[str, Any]
    rewards: pl.DataFrame
    """Tidy: arm, repeat, user, round, reward and regret, both cumulative; categories reached, if it was judged."""
    cells: pl.DataFrame
    """Of every cell: arm, repeat, scores, multiplications, coverage, seconds, questions; `JUDGED`, if it was."""


def run(spec: Spec, folder: StrPath, *, processes: int | None = None, progress: Progress | None = None) -> Outcome:
    """Run an experiment in a folder, or what is left of it; the same spec gives the same results, however interrupted.

    Parameters
    ----------
    spec
        What to try.
    folder
        Where to: a new folder, or one where this very experiment was begun.
    processes
        By default one a core.
    progress
        Called with (stage, done, total).
    """
    spec.check()
    processes = cores() if processes is None else checks.integer("experiment", "processes", processes, low=1)
    report, place = progress or silent, Path(folder)
    _refuse_strangers(place)
    with _alone(place):
        _claim(spec, place)
        prepare(spec, place, report)
        cells = [Cell(arm, repeat) for repeat in range(spec.repeats) for arm in spec.arms]
        left = [cell for cell in cells if _held(place, cell, spec.digest) is None]
        for cell in left:  # also what is damaged, or was computed for another spec
            shutil.rmtree(place / "cells" / cell.name, ignore_errors=True)
        report("cells", len(cells) - len(left), len(cells))
        _work(place, left, min(processes, max(1, len(left))), len(cells), report)
        made = load(place)
        told = {"spec": spec.to_toml(), "prepared": msgspec.json.encode(made.prepared).decode()}
        made.rewards.write_parquet(place / "results.parquet.part", metadata=told)
        (place / "results.parquet.part").replace(place / "results.parquet")
        return made


def load(folder: StrPath) -> Outcome:
    """Read a finished experiment."""
    place = Path(folder)
    spec = read_spec(place)
    prepared = read_prepared(place)
    cells = [Cell(arm, repeat) for arm in spec.arms for repeat in range(spec.repeats)]
    held = [_held(place, cell, spec.digest) for cell in cells]
    missing = sum(one is None for one in held)
    if prepared is None or missing:
        rule = "of a finished experiment; run it again to go on where it stopped"
        raise InvalidArgument("report", "folder", rule, f"{missing} of {len(cells)} cells are missing")
    names = pl.DataFrame({"row": prepared["users"], "user": prepared["user_ids"]}, schema_overrides={"row": pl.Int32})
    tables, rows = [], []
    for cell, one in zip(cells, held, strict=True):
        assert one is not None
        told = {"arm": cell.arm.label, "repeat": cell.repeat, "seed": one.info["seed"]}
        stamp = {
            "spec_sha256": spec.digest,
            "treeward": one.info["treeward"],
            "data_sha256": str(prepared["source"].get("sha256", "")),
        }
        reached = ["reached"] if "reached" in one.tables["users"].columns else []
        tables.append(
            one.tables["users"]
            .join(names, on="row", how="left", maintain_order="left")
            .select(
                *(pl.lit(value).alias(name) for name, value in told.items()),
                *("user", "round", "reward", "regret", *reached),
                *(pl.lit(value).alias(name) for name, value in stamp.items()),
            )
        )
        counts = ("scores", "most_scores", "multiplications", "coverage", "seconds", "questions", "treeward")
        judged = {name: one.info.get(name) for name in JUDGED if spec.judge}
        rows.append({**told, **{name: one.info[name] for name in counts}, **judged})
    return Outcome(spec, prepared, pl.concat(tables), pl.DataFrame(rows, infer_schema_length=None))


def read_spec(folder: Path) -> Spec:
    """Return the spec of an experiment's folder."""
    path = folder / "spec.toml"
    if not path.is_file():
        raise InvalidArgument("experiment", "folder", "one where an experiment was run", str(folder))
    return Spec.from_toml(path.read_text(encoding="utf-8"))


def checkpoints(rounds: int) -> NDArray[np.int64]:
    """Return the rounds at which results are kept: dense at first, and those of the paper's table."""
    spaced = np.unique(np.geomspace(1, rounds, _CHECKPOINTS).round().astype(np.int64))
    even = np.linspace(0, rounds, 21)[1:].round().astype(np.int64)
    printed = np.array([one for one in TABLE_ROUNDS if one <= rounds], dtype=np.int64)
    made = np.unique(np.concatenate([spaced, even, printed]))
    return made[made > 0]


def _claim(spec: Spec, place: Path) -> None:
    """Make the folder this experiment's, or refuse: it is another's once that one is prepared."""
    prepared = read_prepared(place)
    if prepared is not None and prepared["spec_sha256"] != spec.digest:
        raise ArtefactExists(f"{place}: holds another experiment (see prepared.json there); choose another folder")
    artefact.write_file(place / "spec.toml", spec.to_toml().encode())


def _refuse_strangers(place: Path) -> None:
    if place.exists() and not place.is_dir():
        raise ArtefactExists(f"{place}: is not a folder")
    if place.exists() and not (place / "spec.toml").exists() and any(one.name != ".lock" for one in place.iterdir()):
        raise ArtefactExists(f"{place}: is not empty, and holds no experiment")


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Keep other runs out of the folder; the lock goes with the process, however it ends."""
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtefactWrite(f"{place}: cannot be made ({error.strerror})") from error
    with (place / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ArtefactExists(f"{place}: another run is at work there") from error
        yield


def _held(place: Path, cell: Cell, digest: str) -> artefact.Contents | None:
    """Return what a finished cell holds; None if it is not there, not whole, or not this spec's."""
    try:
        found = artefact.read(place / "cells" / cell.name, FORMAT, VERSION)
    except ArtefactError:
        return None
    return found if found.info.get("spec_sha256") == digest else None


def _work(place: Path, left: list[Cell], processes: int, total: int, report: Progress) -> None:
    done = total - len(left)
    if not left:
        return
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=fresh, initializer=_follow_parent) as pool:
        try:
            waiting = {pool.submit(run_cell, str(place), cell.arm.label, cell.repeat) for cell in left}
            while waiting:
                finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for one in finished:
                    try:
                        one.result()
                    except BrokenProcessPool as error:
                        why = "a worker process ended before it was done (out of memory?)"
                        raise TreewardError(f"{place}: {why}; run it again to go on where it stopped") from error
                    done += 1
                    report("cells", done, total)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _follow_parent() -> None:
    """End this process when the one that started it is gone, however that went."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@lru_cache(1)
def _stage(place: str) -> tuple[Spec, World, list[int], Aids]:
    folder = Path(place)
    prepared = read_prepared(folder)
    assert prepared is not None
    spec = read_spec(folder)
    if spec.judge:  # as many processes as cores already
        torch_for("experiment").set_num_threads(1)
    return spec, World.load(folder / "world", verify=False), prepared["users"], read_aids(folder)


def cell_seed(seed: int, repeat: int) -> int:
    """Return the seed of a repeat; experiments with neighbouring seeds share none."""
    return int.from_bytes(sha256(f"{seed}/{repeat}".encode()).digest()[:6], "little")


def run_cell(place: str, label: str, repeat: int) -> None:
    """Run one cell and write it down."""
    spec, world, users, aids = _stage(place)
    arm = next(arm for arm in spec.arms if arm.label == label)
    seed = cell_seed(spec.seed, repeat)
    past = Past.load(Path(place) / "past") if spec.start else None
    begun = None if past is None else trial(past, spec.start, seed)
    result = simulate(
        arm.build(spec.budget, aids),
        world,
        ItemTree.load(Path(place) / ("tree-prior" if arm.prior else "tree"), verify=False),
        rounds=spec.rounds,
        users=users,
        seed=seed,
        reward=arm.reward or spec.reward,
        repeats=not spec.once,
        regret=True,
        log=spec.judge,
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
            "reward": earned.ravel().astype(np.float32),
            "regret": lost.ravel().astype(np.float32),
        }
    )
    more: dict[str, Any] = {}
    if past is not None and begun is not None and spec.judge:
        more, reached = _judged(spec, past, begun, world, result, seed, first=arm is spec.arms[0])
        table = table.with_columns(pl.Series("reached", reached[:, turns - 1].ravel(), dtype=pl.Int32))
    told = {
        **more,
        "scores": float(result.scores.mean()),
        "most_scores": result.settings["most_scores"],
        "multiplications": result.settings["multiplications"],
        "coverage": result.coverage,
        "seconds": result.seconds,
        "questions": result.settings["questions"],
        "seed": seed,
        "spec_sha256": spec.digest,
        "treeward": __version__,
        "policy": result.settings["policy"],
    }
    artefact.write(
        Path(place) / "cells" / Cell(arm, repeat).name,
        FORMAT,
        VERSION,
        artefact.Contents({}, {"users": table}, {}, told),
        overwrite=True,
    )


def _judged(
    spec: Spec, past: Past, begun: Trial, world: World, result: Result, seed: int, first: bool
) -> tuple[dict[str, Any], NDArray[np.int64]]:
    """Return what can be learned from what was collected, what users saw, and the categories each had clicked by when.

    `first`: also what can be learned from the clicks they began with alone, the same for all arms of a repeat.
    """
    assert result.log is not None
    users, rounds = result.rewards.shape
    shown = result.log["row"].to_numpy().reshape(users, rounds)
    options = Judging(spec.negatives, seed, usual_device())
    told = judge(past, begun, shown, result.rewards, options)._asdict()
    if first:
        alone = judge(past, begun, shown[:, :0], result.rewards[:, :0], options)
        told |= {f"{name}_before": value for name, value in alone._asdict().items()}
    group = grouped(world.catalogue)
    reached = np.zeros((users, rounds), dtype=np.int64)
    for user in range(users):
        clicked = np.flatnonzero((result.rewards[user] > 0) & (group[shown[user]] >= 0))
        _, at = np.unique(group[shown[user, clicked]], return_index=True)
        reached[user, clicked[at]] = 1
    told["gini"] = float(np.mean([gini(group[rows]) for rows in shown]))
    return told, reached.cumsum(axis=1)
