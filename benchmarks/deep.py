"""Linear and learned features: `python benchmarks/deep.py [DATA...] [--seeds 1,2,3] [--users 200] [--repeats 2]`.

First come synthetic worlds whose rewards are not linear, one per seed, without a prior: the reward of four policies
with learned features, over all worlds, compared with the same policies at the same budget with the items' own vectors.
Then comes DATA, as `treeward data inspect` reads it. All of it is `treeward experiment deep`; finished cells are not
run again.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from treeward.core.progress import silent
from treeward.experiment.presets import deep
from treeward.experiment.report import write_report
from treeward.experiment.run import run
from treeward.experiment.spec import SYNTHETIC
from treeward.experiment.summary import FeatureGain, feature_gains

TARGET = 1.15
OPTIONS = {"movielens-small": {"positive": 0.5}}
Row = tuple[str, str, str, bool]


def told(one: FeatureGain) -> str:
    within = "" if one.within is None else f", {one.within[0]:.3f} to {one.within[1]:.3f}"
    return f"{one.ratio:.3f}x{within} ({one.earned_plain:.1f} -> {one.earned:.1f})"


def made_up(seeds: list[int], out: Path, users: int, repeats: int) -> list[Row]:
    rows: list[Row] = []
    found: dict[str, list[FeatureGain]] = {}
    for seed in seeds:
        spec = deep(SYNTHETIC, users=users, repeats=repeats, seed=seed)
        spec = replace(spec, arms=tuple(arm for arm in spec.arms if not arm.prior))
        outcome = run(spec, out / f"synthetic-{seed}", progress=silent)
        for one in feature_gains(outcome, spec.rounds):
            found.setdefault(one.arm, []).append(one)
            rows.append((f"world {seed}: {one.arm}", told(one), "told as it is", True))
            print(*rows[-1][:2], sep="  ", flush=True)
    for arm, each in found.items():
        ratio = sum(one.earned for one in each) / sum(one.earned_plain for one in each)
        rows.append((f"{len(each)} worlds: {arm}", f"{ratio:.3f}x", f">= {TARGET:g}x", ratio >= TARGET))
    return rows


def of_data(path: str, out: Path, users: int, repeats: int) -> list[Row]:
    name = Path(path).name
    options = {"loader_options": OPTIONS[name]} if name in OPTIONS else {}
    outcome = run(deep(path, users=users, repeats=repeats, **options), out / name, progress=silent)
    write_report(outcome, out / name / "report.html")
    return [
        (f"{name}: {one.arm}", told(one), "told as it is", True) for one in feature_gains(outcome, outcome.spec.rounds)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="*")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--out", type=Path, default=Path("bench-out/deep"))
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args()
    rows = made_up([int(seed) for seed in given.seeds.split(",")], given.out, given.users, given.repeats)
    for path in given.data:
        rows += of_data(path, given.out, given.users, given.repeats)
    for what, measured, target, reached in rows:
        print(f"{'ok  ' if reached else 'MISS'}  {what:48} {measured:44} target {target}", flush=True)
    keys = ("what", "measured", "target", "reached")
    Path("bench-out").mkdir(exist_ok=True)
    Path("bench-out/deep.json").write_text(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=2))
    return 0 if all(ok for *_, ok in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
