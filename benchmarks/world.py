"""Worlds learned from logs: ``python benchmarks/world.py [FOLDER]``.

FOLDER holds `sequences.txt` (../shared/data/sports by default): how long the fit takes and how well it tells held-out
events from items never touched, beside popularity alone, without weights and with them. And on a made-up world, whose
truth is known, with clicks logged under four strengths of popularity bias: the error of the weighted fit against that
of the unweighted one.

Prints a table and writes bench-out/world.json; exits 1 if a target is missed.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

import treeward as tw
from treeward.data.loaders import load_dataset

Row = tuple[str, str, str, bool]


def sports(folder: Path) -> list[Row]:
    if not folder.is_dir():
        return [(f"{folder}", "not measured: not here", "-", True)]
    data = load_dataset(folder)
    rows: list[Row] = []
    start = time.perf_counter()
    for exposure in ("none", "popularity"):
        told = tw.World.fit(data.interactions, data.catalogue, exposure=exposure).provenance
        gain = told["auc"] - told["auc_popularity"]
        made = f"{told['auc']:.3f} (popularity {told['auc_popularity']:.3f}), log-loss {told['log_loss']:.3f}"
        wanted = exposure == "none"
        name = f"held-out AUC, {'no weights' if wanted else 'inverse propensities'}"
        rows.append((name, made, ">= popularity + 0.05" if wanted else "-", not wanted or gain >= 0.05))
    seconds = time.perf_counter() - start
    rows.append(
        (f"time of both fits, {len(data.interactions):,} events", f"{seconds:.0f} s", "< 180 s each", seconds < 360)
    )
    return rows


def biased_log(world: tw.World, strength: float, shown: int) -> tuple[tw.Interactions, np.ndarray]:
    """Show every user items drawn by a popularity that has nothing to do with taste; return the clicks and that."""
    random = np.random.default_rng(0)
    items = len(world.catalogue)
    popular = np.exp(strength * random.standard_normal(items))
    users = np.repeat(np.arange(world.users), shown)
    drawn = np.concatenate(
        [random.choice(items, shown, replace=False, p=popular / popular.sum()) for _ in range(world.users)]
    )
    clicked = random.uniform(size=len(users)) < world.chances(users, drawn)
    return tw.Interactions(users[clicked], drawn[clicked]), popular


def compare(fitted: tw.World, world: tw.World) -> tuple[float, float]:
    """Return how far probabilities are off, once their mean is the true one, and how logits correlate."""
    true = np.stack([world.probabilities(int(user)) for user in fitted.user_ids[::7]])
    with np.errstate(over="ignore"):
        logits = np.stack([fitted.probabilities(row) for row in range(0, fitted.users, 7)]).astype(np.float64)
    logits = np.log(logits / (1 - logits))
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if (1 / (1 + np.exp(-logits - middle))).mean() < true.mean() else (low, middle)
    error = float(np.sqrt(((1 / (1 + np.exp(-logits - low)) - true) ** 2).mean()))
    return error, float(np.corrcoef(logits.ravel(), np.log(true / (1 - true)).ravel())[0, 1])


def debiasing() -> list[Row]:
    world = tw.World.synthetic(items=500, users=1_500, dim=16, seed=0)
    rows: list[Row] = []
    for strength in (0.0, 0.5, 1.0, 1.5):
        log, popular = biased_log(world, strength, shown=200)
        (plain, flat), (weighted, steep), (exact, true) = (
            compare(tw.World.fit(log, tw.Catalogue(range(500)), dim=16, exposure=exposure, seed=1), world)
            for exposure in ("none", "popularity", lambda shown, liked, known=popular: known)
        )
        ratio = weighted / plain
        limit = 1.05 if strength == 0 else 0.8
        told = f"{ratio:.3f}; logits correlate {steep:.2f}, without weights {flat:.2f}"
        rows.append((f"error with weights, bias {strength}", told, f"<= {limit}", ratio <= limit))
        told = f"{exact / plain:.3f}; logits correlate {true:.2f}"
        rows.append((f"the same, propensities known, bias {strength}", told, "-", True))
    return rows


def main() -> int:
    rows = [*sports(Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/data/sports")), *debiasing()]
    for what, measured, target, reached in rows:
        print(f"{'ok  ' if reached else 'MISS'}  {what:46} {measured:66} target {target}")
    out = Path("bench-out")
    out.mkdir(exist_ok=True)
    keys = ("what", "measured", "target", "reached")
    (out / "world.json").write_text(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=2))
    return 0 if all(ok for *_, ok in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
