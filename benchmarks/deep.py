"""Linear against neural-linear: `python benchmarks/deep.py [DATA...] [--out FOLDER] [--users 200] [--repeats 5]`.

First a made-up world whose rewards are not linear, then DATA, as `treeward data inspect` reads them; each is run with
`treeward experiment deep` (finished cells are not run again). The baseline is the same policy at the same budget, in
items' own vectors. Only the world without a prior has a target; the rest is told as it is.
"""

import argparse
import json
import sys
from pathlib import Path

from treeward.core.progress import silent
from treeward.experiment.presets import deep
from treeward.experiment.report import write_report
from treeward.experiment.run import run
from treeward.experiment.spec import SYNTHETIC
from treeward.experiment.summary import deepened

TARGET = 1.15
OPTIONS = {"movielens-small": {"positive": 0.5}}
JUDGED = ("LinUCB, exact, deep", "HUCB, deep", "pHUCB, deep")
"""What the paper has: LinUCB, over everything and over a tree. Beam is meant to have a prior."""

Row = tuple[str, str, str, bool]


def of_data(path: str, out: Path, users: int, repeats: int) -> list[Row]:
    name = Path(path).name
    options = {"loader_options": OPTIONS[name]} if name in OPTIONS else {}
    outcome = run(deep(path, users=users, repeats=repeats, **options), out / name, progress=silent)
    write_report(outcome, out / name / "report.html")
    rows = []
    for one in deepened(outcome, outcome.spec.rounds):
        judged = path == SYNTHETIC and one.arm in JUDGED
        within = "" if one.within is None else f", {one.within[0]:.3f} to {one.within[1]:.3f}"
        measured = f"{one.ratio:.3f}x{within} ({one.earned_plain:.1f} -> {one.earned:.1f})"
        target = f">= {TARGET:g}x" if judged else "told as it is"
        rows.append((f"{name}: {one.arm}", measured, target, one.ratio >= TARGET or not judged))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="*")
    parser.add_argument("--out", type=Path, default=Path("bench-out/deep"))
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    rows: list[Row] = []
    for path in [SYNTHETIC, *given.data]:
        more = of_data(path, given.out, given.users, given.repeats)
        for what, measured, target, reached in more:
            print(f"{'ok  ' if reached else 'MISS'}  {what:48} {measured:44} target {target}", flush=True)
        rows += more
    keys = ("what", "measured", "target", "reached")
    Path("bench-out").mkdir(exist_ok=True)
    Path("bench-out/deep.json").write_text(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=2))
    return 0 if all(ok for *_, ok in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
