"""Running an experiment: its cells in processes or on a cluster, and its results as tables."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl

from treeward.core import artefact
from treeward.core.artefact import StrPath
from treeward.core.errors import ArtefactError, ArtefactExists
from treeward.core.progress import Progress, silent
from treeward.core.tasks import check_place
from treeward.experiment import run_folder
from treeward.experiment.cells import KIND, Cell, cells_of, run_cell
from treeward.experiment.prepare import prepare
from treeward.experiment.prepared import PREPARED, SPEC, check_reusable, read_prepared, read_spec, world_folder
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
        The experiment.
    folder
        A new folder, or one where this experiment was begun.
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
    run_folder.refuse_strangers(place, SPEC)
    reused = None if prepared is None else check_reusable(spec, Path(prepared))
    with run_folder.locked(place):
        _claim(spec, place)
        cells = cells_of(spec, len(prepare(spec, place, report, reused)["users"]))
        run_folder.run_cells(
            place, {cell.name: (cell.arm.label, *cell[1:]) for cell in cells}, KIND, spec.digest, run_cell,
            [SPEC, *map(world_folder, range(spec.worlds)), *PREPARED], processes=processes, on=on, report=report,
            codes={cell.name: cell.arm.code for cell in cells},
        )  # fmt: skip
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
    contents = run_folder.finished(place, [cell.name for cell in cells], KIND, spec.digest)
    if prepared is None:
        raise ArtefactError(f"{place / 'prepared.json'}: cannot be read; run the experiment again")
    found = list(zip(cells, contents, strict=True))
    names = pl.DataFrame({"row": prepared["users"], "user": prepared["user_ids"]}, schema_overrides={"row": pl.Int32})
    order = {arm.label: number for number, arm in enumerate(spec.arms)}
    found.sort(key=lambda one: (order[one[0].arm.label], one[0].repeat, one[0].first))
    tables, rows, verdicts = [], [], []
    for (label, repeat), shards in groupby(found, key=lambda one: (one[0].arm.label, one[0].repeat)):
        parts = list(shards)
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
    """Return the work of the cells of one arm and repeat, as if they were one."""
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
    """Make the folder this experiment's; refuse one in which another experiment was prepared."""
    prepared = read_prepared(place)
    if prepared is not None and prepared["spec_sha256"] != spec.digest:
        differs = ", ".join(spec.differences(read_spec(place))) or "what it was prepared for"
        raise ArtefactExists(f"{place}: holds another experiment, which differs in {differs}; choose another folder")
    artefact.write_file(place / SPEC, spec.to_toml().encode())
