"""Descend by upper bounds instead of means: `python benchmarks/widths.py`.

Beam descends by means, and searches along tangents of the upper bound where it has no prior. The other way to find
items of a high upper bound is to compute widths on the way down: a node counts for the bound of an item that it may
hide. While a user has few events, a width is cheap in its low-rank form: A^-1 = (I - L L') / ridge, so that
|x|^2 = (x'x - |L'x|^2) / ridge takes n d multiplications after n events, and d^2 after d of them.

Each is compared with exact LinUCB over 100,000 items, on the worlds of `benchmarks/frontier.py`. The descent is written
in numpy, with the widths and reaches of Beam's own search, so only its reward and its multiplications count, not its
time.
"""

import sys
from concurrent.futures import ProcessPoolExecutor

import numpy as np

import treeward as tw
from treeward.core import rng
from treeward.simulate.synthetic import vivid

ITEMS, USERS, ROUNDS, DIM, SEEDS = 100_000, 100, 200, 32, 3
ALPHA, RIDGE, FINALISTS = 0.5, 1.0, 16


class Descent:
    """A beam that follows the nodes with the highest upper bounds."""

    def __init__(self, tree, catalogue, means):
        plan = tw.Beam(directions=0, means=means).plan(tree, catalogue)
        self.tree, self.width = plan.tree, plan.search.width
        self.reach = plan.search.reach
        self.items = plan.items

    def choose(self, inverse, theta, events):
        """Return the row of the item with the highest bound that was found, and the multiplications it took."""
        bound_of = lambda x, more: x @ theta + ALPHA * np.sqrt(np.einsum("id,id->i", x @ inverse, x) + more)  # noqa: E731
        nodes, level, work = np.array([0]), 1, 0
        trace, length = np.trace(inverse), np.linalg.norm(theta)
        price = DIM + min(events, DIM) * DIM
        while (self.tree.first_child[nodes + 1] > self.tree.first_child[nodes]).any():
            level += 1
            spans = [np.arange(self.tree.first_child[node], self.tree.first_child[node + 1]) for node in nodes]
            children = np.concatenate(spans)
            reach = self.reach[children]
            rank = bound_of(self.tree.vectors[children], reach**2 * trace) + reach * length
            nodes = children[np.argsort(-rank, kind="stable")[: self.width[level]]]
            work += len(children) * price
        spans = [np.arange(*self.tree.item_range[node]) for node in nodes]
        places = np.concatenate(spans)
        bounds = bound_of(self.items[places], 0.0)
        return places[np.argmax(bounds)], work + len(places) * price


def earned(world, descent, user, seed):
    """Return the clicks and the multiplications per round of one user."""
    inverse, b = np.eye(DIM) / RIDGE, np.zeros(DIM)
    chances = world.probabilities(user)
    luck = rng.uniforms(seed, rng.stream("descent", user), ROUNDS + 1)
    clicks, work = 0, 0
    for turn in range(ROUNDS):
        if turn:
            place, spent = descent.choose(inverse, inverse @ b, turn)
        else:  # nothing is known: all bounds of items of length 1 are equal
            place, spent = int(luck[ROUNDS] * ITEMS), 0
        x = descent.items[place].astype(np.float64)
        reward = float(luck[turn] < chances[descent.tree.items[place]])
        slope = inverse @ x
        inverse -= np.outer(slope, slope) / (1 + x @ slope)
        b += reward * x
        clicks, work = clicks + reward, work + spent
    return clicks, work / ROUNDS


def of_seed(seed):
    """Return the clicks of every user, and the multiplications per round, of each way to choose."""
    world = tw.World(*vivid(items=ITEMS, users=USERS, dim=DIM, seed=seed))
    tree = tw.ItemTree.build(world.catalogue.vectors, seed=0)
    arms = {
        "exact": tw.Flat(tw.LinUCB(ALPHA), budget=None), "Beam, tangents": tw.Beam(tw.LinUCB(ALPHA)),
        "Beam, means": tw.Beam(tw.LinUCB(ALPHA), directions=0),
    }  # fmt: skip
    made = {}
    for name, arm in arms.items():
        result = tw.simulate(arm, world, tree, rounds=ROUNDS, seed=seed, reward="click", threads=1)
        made[name] = result.per_user, result.settings["multiplications"]
    for means in (200, 800):
        descent = Descent(tree, world.catalogue, means)
        found = np.array([earned(world, descent, user, seed) for user in range(USERS)])
        made[f"widths on the way down, {means} nodes and items"] = found[:, 0], found[:, 1].mean()
    return made


def main() -> int:
    with ProcessPoolExecutor(2) as pool:
        found = list(pool.map(of_seed, range(SEEDS)))
    exact = np.concatenate([one["exact"][0] for one in found])
    price = np.mean([one["exact"][1] for one in found])
    print(f"{ITEMS:,} items, {SEEDS} worlds, {USERS} users each, {ROUNDS} rounds, clicks, no prior")
    for name in found[0]:
        clicks = np.concatenate([one[name][0] for one in found])
        work = np.mean([one[name][1] for one in found])
        gap = clicks - exact
        half = 1.96 * gap.std(ddof=1) / len(gap) ** 0.5
        share = f"{clicks.mean() / exact.mean():.1%} of exact ({gap.mean():+.1f} ± {half:.1f})"
        print(f"{name:48} {clicks.mean():6.1f}  {share:34} {work:12,.0f} multiplications, {work / price:.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
