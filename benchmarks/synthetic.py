"""Compare the synthetic world with real ones: ``python benchmarks/synthetic.py [WORLD | RUN ...]``.

Each argument is a saved world, or the folder of an experiment's run, which holds one in `world`. They are compared with
`World.synthetic()` (100,000 items, and 12,000, about as many as the logs have) in one table: how likely rewards are,
how unequal items are, how much of a taste is personal, how much of that is linear in the vectors that policies see, how
items cluster, and the rewards of HCB, pHCB and flat LinUCB with 50 scores per round, on the default tree and on one of
at most 20 children per node, of which 50 scores see more.

Worlds fitted to public logs come from, for example,
``treeward experiment rewards ../shared/data/sports -o run --users 50 --rounds 50 --repeats 1``.

Prints the table and writes bench-out/synthetic.json; exits 1 if a statistic of `World.synthetic()` is outside the range
of the worlds given. The rewards of policies are reported, not a target.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import treeward as tw
from treeward.core import rng
from treeward.policy.base import Policy
from treeward.simulate.fit_evidence import some_users
from treeward.tree.build import default_widths
from treeward.tree.row_groups import Rows

USERS, ITEMS = 200, 20_000
ROUNDS = (300, 1_000)

Table = dict[str, float]


def saved(path: Path) -> tw.World:
    return tw.World.load(path / "world" if (path / "world").is_dir() else path)


def logits_of(world: tw.World, users: list[int], rows: np.ndarray) -> np.ndarray:
    """Return (users, rows): the logits of the probabilities of a reward."""
    chances = np.stack([world.probabilities(user)[rows] for user in users]).astype(np.float64)
    chances = np.clip(chances, 1e-6, 1 - 1e-6)
    return np.log(chances / (1 - chances))


def gini(values: np.ndarray) -> float:
    """Return how unequal values are: 0, all the same; 1, one has everything."""
    ranked = np.sort(values)
    ranks = np.arange(1, len(ranked) + 1)
    return float(2 * (ranks * ranked).sum() / (len(ranked) * ranked.sum()) - (len(ranked) + 1) / len(ranked))


def explained(seen: np.ndarray, wanted: np.ndarray) -> float:
    """Return the share of variance, on the second half of the rows, that a ridge regression on the first explains."""
    half = len(seen) // 2
    middle, level = seen[:half].mean(axis=0), wanted[:half].mean(axis=0)
    x = seen[:half] - middle
    weights = np.linalg.solve(x.T @ x + 1e-3 * half / x.shape[1] * np.eye(x.shape[1]), x.T @ (wanted[:half] - level))
    error = (wanted[half:] - level - (seen[half:] - middle) @ weights) ** 2
    return float(1 - error.sum() / ((wanted[half:] - wanted[half:].mean(axis=0)) ** 2).sum())


def between(groups: np.ndarray, values: np.ndarray) -> float:
    """Return the share of the columns' variance that lies between groups of rows.

    Groups of a few rows differ by chance alone: each group's mean counts less the error it has.
    """
    count = np.bincount(groups)
    sums = np.zeros((len(count), values.shape[1]))
    np.add.at(sums, groups, values)
    kept = count > 1
    means = sums[kept] / count[kept, None]
    inside = ((values - sums[groups] / count[groups, None]) ** 2)[kept[groups]].sum(axis=1)
    noise = inside.sum() / (count[kept] - 1).sum()
    centred = means - (count[kept, None] * means).sum(axis=0) / count[kept].sum()
    spread = ((centred**2).sum(axis=1) * count[kept]).sum() / count[kept].sum() - noise * kept.sum() / count[kept].sum()
    return float(spread / (spread + noise))


def ratio(covariance: np.ndarray) -> float:
    """Return the participation ratio: how many directions of equal variance would spread as much."""
    return float(np.trace(covariance) ** 2 / (covariance**2).sum())


def tastes(world: tw.World, tree: tw.ItemTree) -> Table:
    """Return the statistics of rewards: how likely, how unequal, how personal, how visible."""
    users = some_users(world.users, USERS, 0).tolist()
    rows = rng.sample(0, rng.stream("rows"), len(world.catalogue), min(ITEMS, len(world.catalogue)))
    logits = logits_of(world, users, rows)
    appeal = (1 / (1 + np.exp(-logits))).mean(axis=0)
    total, by_item, by_user = logits.mean(), logits.mean(axis=0), logits.mean(axis=1)
    personal = (logits - by_item - by_user[:, None] + total).T
    parts = np.array([by_item.var(), by_user.var(), (personal**2).mean()])
    seen = Rows(world.catalogue.vectors, normalize=True).take(slice(None))[rows].astype(np.float64)
    leaf_of, top_of = np.zeros((2, len(world.catalogue)), dtype=np.int64)
    for node in tree.leaves.tolist():
        leaf_of[tree.items_of(node)] = node
    for node in np.flatnonzero(tree.level == 2).tolist():
        top_of[tree.items_of(node)] = node
    best = {one.size: one for one in world.fidelity(USERS).spread}
    return {
        "mean probability of a random item": best[1].random,
        "items' mean probability, Gini": gini(appeal),
        "logits, standard deviation": float(parts.sum() ** 0.5),
        "logits, share of item": parts[0] / parts.sum(),
        "logits, share of user": parts[1] / parts.sum(),
        "logits, share of personal taste": parts[2] / parts.sum(),
        "R^2 of personal taste in the vectors": explained(seen, personal),
        "R^2 of item appeal in the vectors": explained(seen, by_item[:, None]),
        "personal taste between nodes below the root": between(top_of[rows], personal),
        "personal taste between leaves": between(leaf_of[rows], personal),
        "item appeal between leaves": between(leaf_of[rows], by_item[:, None]),
        "item appeal, skewness": float(((by_item - total) ** 3).mean() / parts[0] ** 1.5),
        "personal taste, dimensions (participation ratio)": ratio(np.cov(personal.T)),
        "personal taste, log-spread over items": float(np.log(personal.std(axis=1)).std()),
        "personal taste, log-spread over users": float(np.log(personal.std(axis=0)).std()),
        "own best item": best[1].own,
        "commonly best item": best[1].common,
        "own best 100 items": best[100].own,
        "commonly best 100 items": best[100].common,
    }


def shape(world: tw.World, tree: tw.ItemTree) -> Table:
    """Return the statistics of what policies see: how item vectors spread and cluster."""
    seen = Rows(world.catalogue.vectors, normalize=True).take(slice(None)).astype(np.float64)
    long = np.linalg.norm(tree.vectors, axis=1)
    size = np.diff(tree.item_range, axis=1)[:, 0]
    levels = tree.describe(world.catalogue.vectors).levels
    top, leaves = tree.level == 2, tree.leaves
    return {
        "length of the mean item vector": float(np.linalg.norm(seen.mean(axis=0))),
        "length of nodes' means below the root": float(np.average(long[top], weights=size[top])),
        "length of leaves' means": float(np.average(long[leaves], weights=size[leaves])),
        "vectors' variance between nodes below the root": float(levels[1].explained or 0),
        "vectors' variance between leaves": float(levels[-1].explained or 0),
        "vectors' dimensions (participation ratio), of all": ratio(np.cov(seen.T)) / seen.shape[1],
        "nodes below the root, Gini of sizes": gini(size[top].astype(np.float64)),
        "leaves, Gini of sizes": gini(size[leaves].astype(np.float64)),
    }


def rewards(world: tw.World, tree: tw.ItemTree) -> Table:
    """Return what policies earn with 50 scores per round, relative to flat LinUCB."""
    vectors = world.catalogue.vectors
    deep = tw.ItemTree.build(vectors, default_widths(len(vectors), children=20), seed=0)

    def curve(policy: Policy, tree: tw.ItemTree) -> np.ndarray:
        users = some_users(world.users, USERS, 0).tolist()
        return tw.simulate(policy, world, tree, rounds=max(ROUNDS), users=users, seed=0).cumulative

    flat = curve(tw.Flat(), tree)
    made: Table = {f"Flat LinUCB, {rounds:,} rounds": float(flat[rounds - 1]) for rounds in ROUNDS}
    for kind, one in (("", tree), (", at most 20 children", deep)):
        for name, policy in (("HCB", tw.HCB()), ("pHCB", tw.PHCB())):
            gain = curve(policy, one) / flat
            made |= {f"{name} / Flat, {rounds:,} rounds{kind}": float(gain[rounds - 1]) for rounds in ROUNDS}
    return made


def describe(world: tw.World) -> tuple[Table, Table]:
    """Return a world's statistics, and what policies earn in it."""
    tree = tw.ItemTree.build(world.catalogue.vectors, seed=0)
    return {**tastes(world, tree), **shape(world, tree)}, rewards(world, tree)


def main() -> int:
    worlds: dict[str, Callable[[], tw.World]] = {
        Path(path).resolve().name: lambda path=path: saved(Path(path)) for path in sys.argv[1:]
    }
    ours = {"12,000 items": lambda: tw.World.synthetic(items=12_000), "synthetic": tw.World.synthetic}
    tables = {name: describe(make()) for name, make in {**worlds, **ours}.items()}
    print(" " * 58 + "".join(f"{name[:15]:>16}" for name in tables))
    inside = True
    for part in (0, 1):
        for what in tables["synthetic"][part]:
            values = [table[part][what] for table in tables.values()]
            given, last, note = values[: len(worlds)], values[-1], "    "
            if part == 0 and given:
                reached = min(given) <= last <= max(given)
                inside, note = inside and reached, "ok  " if reached else "MISS"
            print(f"{note}  {what:52}" + "".join(f"{value:16.3f}" for value in values))
    out = Path("bench-out")
    out.mkdir(exist_ok=True)
    told = {name: {**one, **other} for name, (one, other) in tables.items()}
    (out / "synthetic.json").write_text(json.dumps(told, indent=2))
    return 0 if inside else 1


if __name__ == "__main__":
    sys.exit(main())
