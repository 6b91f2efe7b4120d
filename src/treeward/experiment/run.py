"""Running an experiment: its cells in processes or on a cluster, each written once and never computed again."""

import fcntl
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl

from treeward.core import artefact
from treeward.core.artefact import StrPath
from treeward.core.errors import ArtefactExists, ArtefactWrite, InvalidArgument
from treeward.core.progress import Progress, silent
from treeward.core.tasks import Tasks, check_place, tasks
from treeward.experiment.cells import Cell, cells_of, held, keep, run_cell
from treeward.experiment.folder import PREPARED, read_prepared, read_spec, world_folder
from treeward.experiment.prepare import prepare
from treeward.experiment.reuse import check_reusable
from treeward.experiment.spec import Spec


class Outcome(NamedTuple):
    """A finished experiment."""

    spec: Spec
    prepared: dict[str, Any]
    rewards: pl.DataFrame
    """Tidy: arm, repeat, seed, user, round, cumulative_reward, cumulative_regret; categories reached, if it was judged.

    With several worlds, repeats are counted over all of them: the first world's come first."""
    cells: pl.DataFrame
    """Of every arm and repeat: scores, multiplications, coverage, seconds, questions, the policy with its settings;
    Gini impurity, if judged."""
    verdicts: pl.DataFrame
    """Of every arm, repeat and judge: LogLoss and AUC, with what was collected and (for the first arm) without; empty
    if there is no judge."""

    def __repr__(self) -> str:
        users, arms = len(self.prepared["users"]), len(self.spec.arms)
        size = f"{arms} arms x {self.spec.runs} repeats, {users:,} users, {self.spec.rounds:,} rounds"
        return f"Outcome({self.spec.name}: {size})"


def run(
    spec: Spec,
    folder: StrPath,
    *,
    prepared: StrPath | None = None,
    processes: int | None = None,
    on: str = "processes",
    progress: Progress | None = None,
) -> Outcome:
    """Run an experiment in a folder, or what is left of it; the same spec gives the same results, however interrupted.

    Parameters
    ----------
    spec
        What to try.
    folder
        Where to: a new folder, or one where this very experiment was begun.
    prepared
        The folder of another run on the same data: its vectors, world and tree are taken instead of made.
    processes
        By default one per core.
    on
        Where cells are computed: ``"processes"``, ``"ray"`` or ``"ray://host:port"``; the results are the same.
    progress
        Called with (stage, done, total).
    """
    check_place(on)
    spec.check()
    report, place = progress or silent, Path(folder)
    _refuse_strangers(place)
    source = None if prepared is None else check_reusable(spec, Path(prepared))
    with alone(place):
        _claim(spec, place)
        cells = cells_of(spec, len(prepare(spec, place, report, source)["users"]))
        found = [(cell, held(place, cell, spec.digest)) for cell in cells]
        left = [cell for cell, one in found if one is None or one.info.get("code") != cell.arm.code]
        for cell in left:  # also what is damaged, or was computed for another spec
            shutil.rmtree(place / "cells" / cell.name, ignore_errors=True)
        report("cells", len(cells) - len(left), len(cells))
        if left:
            with tasks(on, processes) as workers:
                _work(place, left, len(cells), workers, report)
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
    cells = cells_of(spec, spec.users if prepared is None else len(prepared["users"]))
    found = [(cell, held(place, cell, spec.digest)) for cell in cells]
    missing = sum(one is None for _, one in found)
    if prepared is None or missing:
        rule = "of a finished experiment; run it again to go on where it stopped"
        raise InvalidArgument("report", "folder", rule, f"{missing} of {len(cells)} cells are missing")
    names = pl.DataFrame({"row": prepared["users"], "user": prepared["user_ids"]}, schema_overrides={"row": pl.Int32})
    order = {arm.label: number for number, arm in enumerate(spec.arms)}
    found.sort(key=lambda one: (order[one[0].arm.label], one[0].repeat, one[0].first))
    tables, rows, verdicts = [], [], []
    for (label, repeat), shards in groupby(found, key=lambda one: (one[0].arm.label, one[0].repeat)):
        parts = [(cell, one) for cell, one in shards if one is not None]
        one = parts[0][1]
        told = {"arm": label, "repeat": repeat, "seed": one.info["seed"]}
        stamp = {
            "spec_sha256": spec.digest,
            "treeward": one.info["treeward"],
            "data_sha256": str(prepared["source"].get("sha256", "")),
        }
        reached = ["reached"] if "reached" in one.tables["users"].columns else []
        tables.append(
            pl.concat([part.tables["users"] for _, part in parts])
            .join(names, on="row", how="left", maintain_order="left")
            .select(
                *(pl.lit(value).alias(name) for name, value in told.items()),
                *("user", "round", "cumulative_reward", "cumulative_regret", *reached),
                *(pl.lit(value).alias(name) for name, value in stamp.items()),
            )
        )
        kept = {name: one.info[name] for name in ("treeward", "policy", "shared", "code")}
        judged = {"gini": one.info["gini"]} if spec.judges else {}
        rows.append({**told, **_together(parts, prepared["items"]), **kept, **judged})
        if spec.judges:
            told_names = [pl.lit(value).alias(name) for name, value in told.items()]
            verdicts.append(one.tables["verdicts"].select(*told_names, pl.all()))
    judged_by = pl.concat(verdicts) if verdicts else pl.DataFrame()
    return Outcome(spec, prepared, pl.concat(tables), pl.DataFrame(rows, infer_schema_length=None), judged_by)


def _together(parts: Sequence[tuple[Cell, artefact.Contents]], items: int) -> dict[str, float]:
    """Return what the cells of one arm and repeat took, as if they were one."""
    shares = np.array([cell.last - cell.first for cell, _ in parts]) / parts[-1][0].last
    told = {name: [part.info[name] for _, part in parts] for name in ("scores", "multiplications", "questions")}
    shown = np.unique(np.concatenate([part.arrays["shown"] for _, part in parts]))
    return {
        "scores": float(shares @ told["scores"]),
        "most_scores": max(part.info["most_scores"] for _, part in parts),
        "multiplications": float(shares @ told["multiplications"]),
        "coverage": len(shown) / items,
        "seconds": sum(part.info["seconds"] for _, part in parts),
        "questions": float(shares @ told["questions"]),
    }


def _claim(spec: Spec, place: Path) -> None:
    """Make the folder this experiment's, or refuse: it is another's once that one is prepared."""
    prepared = read_prepared(place)
    if prepared is not None and prepared["spec_sha256"] != spec.digest:
        differs = ", ".join(spec.differences(read_spec(place))) or "what it was prepared for"
        raise ArtefactExists(f"{place}: holds another experiment, which differs in {differs}; choose another folder")
    artefact.write_file(place / "spec.toml", spec.to_toml().encode())


def _refuse_strangers(place: Path) -> None:
    if place.exists() and not place.is_dir():
        raise ArtefactExists(f"{place}: is not a folder")
    if place.exists() and not (place / "spec.toml").exists() and any(one.name != ".lock" for one in place.iterdir()):
        raise ArtefactExists(f"{place}: is not empty, and holds no experiment; choose another folder")


@contextmanager
def alone(place: Path) -> Iterator[None]:
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


def _work(place: Path, left: list[Cell], total: int, workers: Tasks, report: Progress) -> None:
    worlds = [world_folder(number) for number in range(read_spec(place).worlds)]
    shared = workers.share(place, ["spec.toml", *worlds, *PREPARED])
    pieces = [(shared, cell.arm.label, cell.repeat, cell.first, cell.last) for cell in left]
    for done, (number, made) in enumerate(workers.each(run_cell, pieces), start=total - len(left) + 1):
        keep(place, left[number], made)
        report("cells", done, total)
