"""Read the figures of a finished job: mean and half of the 95 % interval, by arm."""

import csv
from pathlib import Path
from typing import Any

from jobs import DEBIAS, JUDGED, LINES, PEERS, STREAM, Job

from treeward.experiment import load
from treeward.experiment.profile_quality import Verdict
from treeward.experiment.run import Outcome
from treeward.experiment.stream import load_stream
from treeward.experiment.stream_arms import CROWD
from treeward.experiment.stream_summary import arm_summaries, gap
from treeward.experiment.summary import (
    Estimate,
    gaps,
    paired,
    paper_claims,
    rounds_of,
    scores,
    tidy,
    verdicts,
)

Figures = dict[str, Any]
Pair = tuple[float, float | None]
"""A mean and half of its interval, or None where it cannot be estimated."""


def collect(job: Job, folder: Path, printed: str) -> Figures:
    """Return what a job found, ready for JSON."""
    place = Path(job.folder.replace("{out}", str(folder)))
    if job.kind == LINES:
        return {"lines": [line.rstrip() for line in printed.splitlines() if line.strip()]}
    if job.kind == PEERS:
        return {"arms": _printed_arms(printed)}
    if job.kind == DEBIAS:
        return _errors(place)
    if job.kind == STREAM:
        return _clicks(place)
    outcome = load(place)
    return _rewards(job, outcome) | (_judged(outcome) if job.kind == JUDGED else {})


def _pair(found: Estimate) -> Pair:
    return rounded(found.mean), None if found.half is None else rounded(found.half)


def rounded(value: float) -> float:
    """Return six significant digits: more would only show that BLAS adds up differently elsewhere."""
    return float(f"{value:.6g}")


def _rewards(job: Job, outcome: Outcome) -> Figures:
    """Return rewards by round, work, and differences paired by user."""
    last, table = outcome.spec.rounds, tidy(outcome)
    arms: dict[str, Any] = {}
    for arm in outcome.spec.arms:
        row = table.filter(arm=arm.label, round=last).row(0, named=True)
        work = {name: rounded(row[name]) for name in ("scores", "multiplications", "coverage", "us_per_round")}
        arms[arm.label] = {"reward": {}, **work}
    for turn in rounds_of(outcome):
        for one in scores(outcome, turn):
            arms[one.arm]["reward"][str(turn)] = _pair(Estimate(one.mean, one.half))
    labels = list(arms)
    pairs = [(one, other) for other in job.against for one in labels if other in labels and one != other]
    pairs += [pair for pair in paper_claims() if set(pair) <= set(labels)]
    told = {f"{one} - {other}": _pair(paired(outcome, one, other, last)) for one, other in dict.fromkeys(pairs)}
    world = outcome.prepared
    return {
        "users": len(world["users"]), "items": world["items"], "rounds": last, "repeats": outcome.spec.runs,
        "aucs": [[rounded(one) for one in both] for both in world["aucs"]],
        "ceiling": rounded(last * world["ceiling"]), "oracle": rounded(world["oracle"]),
        "own_best": rounded(world["own_best"]), "common_best": rounded(world["common_best"]),
        "random": rounded(world["random"]), "arms": arms, "gaps": told,
    }  # fmt: skip


def _judged(outcome: Outcome) -> Figures:
    """Return LogLoss and AUC by judge and arm, with standard deviations over repeats, and the paper's comparisons."""
    judges: dict[str, Any] = {}
    for judge in outcome.spec.judges:
        found = {
            one.arm: {
                **{name: [rounded(value) for value in getattr(one.found, name)] for name in Verdict._fields},
                "clicks": one.clicks and rounded(one.clicks), "categories": one.categories and rounded(one.categories),
            }
            for one in verdicts(outcome, judge.label)
        }  # fmt: skip
        claimed = {
            name: {f"{one.above} - {one.below}": _pair(one.gap) for one in gaps(outcome, name, judge.label)}
            for name in Verdict._fields
        }
        judges[judge.label] = {"arms": found, "gaps": claimed}
    return {"judges": judges}


def _clicks(place: Path) -> Figures:
    """Return clicks per visit, over all visits and in the last third."""
    streamed = load_stream(place)
    arms = {
        one.arm: {
            "clicks": _pair(one.clicks), "last": _pair(one.last),
            "over Beam": one.over_beam and _pair(one.over_beam),
            "over the list": one.over_list and _pair(one.over_list),
            "default minus it": _pair(gap(streamed, CROWD, one.arm)) if CROWD in streamed.spec.arms else None,
            "shown": rounded(one.shown), "microseconds": rounded(one.microseconds),
        }
        for one in arm_summaries(streamed)
    }  # fmt: skip
    visits = len(streamed.visits) // (len(arms) * streamed.spec.repeats)
    told = streamed.prepared
    return {
        "users": streamed.visits["user"].n_unique(), "items": int(told["items"]),
        "visits": visits, "repeats": streamed.spec.repeats, "arms": arms,
    }  # fmt: skip


def _printed_arms(printed: str) -> Figures:
    """Return the arms of a printed table: clicks per visit with half of the interval, and in the last third."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in printed.splitlines() if line[:1] == "|"]
    made = {}
    for name, clicks, last, less, each in rows[2:]:
        told = {"clicks": _read(clicks), "last": _read(last), "default minus it": _read(less), "each": each}
        made[name] = told
    return made


def _read(text: str) -> Pair | None:
    """Return a printed figure; None for an arm that was too slow or failed, and says so."""
    mean, _, half = text.partition(" ± ")
    try:
        return float(mean), float(half) if half else None
    except ValueError:
        return None


def _errors(place: Path) -> Figures:
    """Return every metric of every fit: value, and both ends of the interval."""
    made: dict[str, Any] = {}
    with (place / "report.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            task = made.setdefault(row["task"], {}).setdefault(row["fit"], {})
            task[row["metric"]] = [rounded(float(row[name])) for name in ("value", "low", "high")]
            if row["published"]:
                task[row["metric"]].append(float(row["published"]))
    return {"tasks": made}
