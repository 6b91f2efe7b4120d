"""Measure worlds learned from logs: ``python benchmarks/world.py [FOLDER]``.

- FOLDER holds `sequences.txt` (Amazon's sports, in the docs): the time of a fit, and how well it separates held-out
  events from items never touched, without weights and with them, compared with popularity alone.
- A synthetic world, whose truth is known, with clicks logged while some items are shown up to 300 times as often as
  others, independent of taste: the error of the weighted fit compared with the unweighted one, with propensities
  estimated from the clicks alone, and with known propensities.
- Off-policy estimates of a policy from another policy's log, compared with the truth.

Prints a table and writes bench-out/world.json; exits 1 if a target is missed.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

import treeward as tw
from treeward.data.loaders import load_dataset
from treeward.simulate.synthetic import vivid

Row = tuple[str, str, str, bool]


def sports(folder: Path) -> list[Row]:
    data = load_dataset(folder)
    rows: list[Row] = []
    start = time.perf_counter()
    for exposure in ("none", "popularity"):
        told = tw.World.fit(data.interactions, data.catalogue, exposure=exposure, twin=False).provenance
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


def truth(users: int, items: int, *, seed: int = 0) -> tw.World:
    """Make up tastes of three dimensions (0.8 in the logit), items a little better or worse (0.2), and users (0.3)."""
    random = np.random.default_rng(seed)
    people, things = (0.8**0.5 * 3**-0.25 * random.standard_normal((rows, 3)) for rows in (users, items))
    user_bias, item_bias = -2 + 0.3 * random.standard_normal(users), 0.2 * random.standard_normal(items)
    return tw.World(tw.Catalogue(range(items)), people, things, user_bias, item_bias)


def biased_log(world: tw.World, ratio: float, share: float = 0.15) -> tuple[tw.Interactions, np.ndarray]:
    """Show every user a share of the items, the most shown one `ratio` times as often as the least; return the clicks.

    Also return how likely an item was to be shown, which has nothing to do with how good it is.
    """
    random = np.random.default_rng(0)
    items = len(world.catalogue)
    shown = ratio ** (random.permutation(items) / (items - 1))
    shown = np.minimum(shown * share / shown.mean(), 1)
    clicks = [
        np.flatnonzero(random.uniform(size=items) < shown * world.probabilities(user)) for user in range(world.users)
    ]
    users = np.repeat(np.arange(world.users), [len(some) for some in clicks])
    return tw.Interactions(users, np.concatenate(clicks)), shown


def compare(fitted: tw.World, world: tw.World) -> tuple[float, float]:
    """Return how far probabilities are off, once their mean is the true one, and how logits correlate."""
    true = np.stack([world.probabilities(int(user)) for user in fitted.user_ids[::7]]).astype(np.float64)
    told = np.stack([fitted.probabilities(row) for row in range(0, fitted.users, 7)]).astype(np.float64)
    logits = np.log(told / (1 - told))
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if (1 / (1 + np.exp(-logits - middle))).mean() < true.mean() else (low, middle)
    error = float(np.sqrt(((1 / (1 + np.exp(-logits - low)) - true) ** 2).mean()))
    return error, float(np.corrcoef(logits.ravel(), np.log(true / (1 - true)).ravel())[0, 1])


def debiasing() -> list[Row]:
    world = truth(users=1_500, items=2_000)
    rows: list[Row] = []
    for ratio in (1, 10, 30, 100, 300):
        log, shown = biased_log(world, ratio)
        (plain, flat), (weighted, steep), (exact, true) = (
            compare(tw.World.fit(log, world.catalogue, dim=8, exposure=exposure, seed=1, twin=False), world)
            for exposure in ("none", "popularity", lambda count, liked, known=shown: known)
        )
        limit = {1: 1.05, 10: None}.get(ratio, 0.8)
        told = f"{weighted / plain:.3f}; logits correlate {steep:.2f}, without weights {flat:.2f}"
        wanted = "-" if limit is None else f"<= {limit}"
        rows.append((f"error with weights, {ratio}:1", told, wanted, limit is None or weighted / plain <= limit))
        told = f"{exact / plain:.3f}; logits correlate {true:.2f}"
        rows.append((f"the same, propensities known, {ratio}:1", told, wanted, limit is None or exact / plain <= limit))
    return rows


def off_policy() -> list[Row]:
    """Estimate, 40 times, what a policy would earn from another's log of 6,000 clicks and skips."""
    world = tw.World(*vivid(items=40, users=300, dim=8, seed=4))
    appeal = np.mean([world.probabilities(user) for user in range(world.users)], axis=0) ** 1.5
    target = appeal / appeal.sum()
    true = float(np.mean([target @ world.probabilities(user) for user in range(world.users)]))
    policy = tw.Flat(tw.EpsilonGreedy(epsilon=0.5), budget=None)
    told = []
    for seed in range(40):
        log = tw.simulate(policy, world, rounds=20, seed=seed, reward="click", log=True).log
        told.append(tw.off_policy(log, lambda user: target, world.probabilities, draws=400, seed=seed))
    logged = float(np.sqrt(np.mean([(one.logged.value - true) ** 2 for one in told])))
    rows: list[Row] = []
    for name in ("ips", "snips", "dr"):
        made = [getattr(one, name) for one in told]
        error = float(np.sqrt(np.mean([(one.value - true) ** 2 for one in made])))
        inside = float(np.mean([one.low <= true <= one.high for one in made]))
        said = f"{error / logged:.2f} of the log's own mean's error; {inside:.0%} of the intervals hold the truth"
        rows.append((f"off-policy, {made[0].name}", said, "< 1; >= 85%", error < logged and inside >= 0.85))
    return rows


def main() -> int:
    given = [row for folder in sys.argv[1:2] for row in sports(Path(folder))]
    rows = [*given, *debiasing(), *off_policy()]
    for what, measured, target, reached in rows:
        print(f"{'ok  ' if reached else 'MISS'}  {what:46} {measured:66} target {target}")
    out = Path("bench-out")
    out.mkdir(exist_ok=True)
    keys = ("what", "measured", "target", "reached")
    (out / "world.json").write_text(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=2))
    return 0 if all(ok for *_, ok in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
