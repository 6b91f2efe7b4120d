"""Off-policy estimates on the Open Bandit Dataset: each policy from the other's log, next to its own mean.

``python benchmarks/open_bandit.py [FOLDER] [--obp PYTHON] [--bootstraps 200]``

FOLDER holds ``random/men``, ``bts/men``, ``random/women`` and ``bts/women``, PYTHON is an interpreter that has obp (by
default ``.peers/obp/bin/python``, if ``make peers`` has made it).

Then the intervals are checked: the rows of a log are drawn again, with replacement, as often as `--bootstraps` says.
What the estimate makes of the whole log is then the truth, and 95 % of the intervals should cover it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

import treeward as tw

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / "shared" / "data" / "open-bandit"
PEER = ".peers/obp/bin/python"
ESTIMATORS = ("ips", "snips", "dr", "dm")


def shares(log: pl.DataFrame, items: int) -> NDArray[np.float64]:
    """Return how often every item was shown at every position: the log's policy, averaged over its time.

    Not the mean of the logged propensities: an item is logged when its propensity is high, so that mean is too high.
    """
    made = np.zeros((int(log["slot"].max()) + 1, items))
    np.add.at(made, (log["slot"].to_numpy(), log["row"].to_numpy()), 1)
    return made / made.sum(axis=1, keepdims=True)


def theirs(python: str, log: pl.DataFrame, target: NDArray[np.float64]) -> dict[str, float]:
    """Return obp's estimates of the same policy from the same log, with the same guess of every reward."""
    counts, sums = np.zeros(target.shape[1]), np.zeros(target.shape[1])
    np.add.at(counts, log["row"].to_numpy(), 1)
    np.add.at(sums, log["row"].to_numpy(), log["reward"].to_numpy())
    model = (sums + 10 * log["reward"].mean()) / (counts + 10)  # off_policy's default
    arrays = {name: log[name].to_numpy() for name in ("row", "propensity", "reward")}
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "log.npz", **arrays, position=log["slot"].to_numpy(), target=target, model=model)
        call = [python, str(HERE / "side" / "estimates.py"), "positions", folder, f"{folder}/out.json"]
        subprocess.run(call, check=True, capture_output=True)
        return json.loads((Path(folder) / "out.json").read_text())


def compare(folder: Path, python: str | None) -> bool:
    """Print every estimate; return whether the intervals from the random logs cover the means of bts."""
    print("| campaign | policy, from the log of | own mean | " + " | ".join(ESTIMATORS) + " | worth | obp differs by |")
    print("|---" * 9 + "|")
    covered = True
    for campaign in ("men", "women"):
        data = {policy: tw.load_dataset(folder / policy / campaign, "open-bandit") for policy in ("random", "bts")}
        for policy, other in (("bts", "random"), ("random", "bts")):
            log, items = data[other].decisions, len(data[other].catalogue)
            target = np.full((3, items), 1 / items) if policy == "random" else shares(data["bts"].decisions, items)
            told = tw.off_policy(log, lambda user, target=target: target)
            own = float(data[policy].decisions["reward"].mean())
            cells = []
            for name in ESTIMATORS:
                one = getattr(told, name)
                between = "" if np.isnan(one.low) else f" ({one.low:.4f} - {one.high:.4f})"
                cells.append(f"{one.value:.4f}{between}")
                covered &= policy == "random" or np.isnan(one.low) or one.low <= own <= one.high
            gap = "not run"
            if python:
                made = theirs(python, log, target)
                gap = f"{max(abs(made[name] - getattr(told, name).value) for name in ESTIMATORS):.1e}"
            worth = f"{told.effective:,.0f}"
            print(f"| {campaign} | {policy}, from {other} | {own:.4f} | {' | '.join(cells)} | {worth} | {gap} |")
    return covered


def coverage(folder: Path, bootstraps: int) -> None:
    """Print which share of the intervals from drawn logs cover the estimate from the whole log."""
    print(f"\n| campaign | policy, from the log of | ips | snips | dr | ({bootstraps} logs drawn with replacement)")
    print("|---" * 5 + "|")
    for campaign in ("men", "women"):
        data = {policy: tw.load_dataset(folder / policy / campaign, "open-bandit") for policy in ("random", "bts")}
        for policy, other in (("bts", "random"), ("random", "bts")):
            log, items = data[other].decisions, len(data[other].catalogue)
            target = np.full((3, items), 1 / items) if policy == "random" else shares(data["bts"].decisions, items)
            truth = tw.off_policy(log, lambda user, target=target: target, draws=2)
            draw, covered = np.random.default_rng(0), dict.fromkeys(ESTIMATORS[:3], 0)
            for seed in range(bootstraps):
                drawn = log[draw.integers(0, len(log), len(log))].with_columns(user=np.arange(len(log)))
                told = tw.off_policy(drawn, lambda user, target=target: target, draws=300, seed=seed)
                for name in covered:
                    covered[name] += getattr(told, name).low <= getattr(truth, name).value <= getattr(told, name).high
            cells = " | ".join(f"{count / bootstraps:.1%}" for count in covered.values())
            print(f"| {campaign} | {policy}, from {other} | {cells} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument(
        "--obp", default=PEER if Path(PEER).exists() else None, help="a Python interpreter that has obp"
    )
    parser.add_argument("--bootstraps", type=int, default=0, help="check the intervals on so many drawn logs")
    given = parser.parse_args()
    if not given.folder.is_dir():
        print(f"not run: {given.folder.name} is not here")
        return
    covered = compare(given.folder, given.obp)
    print(f"\nintervals from the random logs cover the means of bts: {'yes' if covered else 'NO'}")
    if given.bootstraps:
        coverage(given.folder, given.bootstraps)
    sys.exit(not covered)


if __name__ == "__main__":
    main()
