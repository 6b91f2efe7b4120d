"""Deciding and learning against plain numpy, in one run: ``python benchmarks/decide.py``.

HCB on three levels of 25 arms each (25 nodes, 25 of theirs, 25 of 100 items), 64 dimensions, the state of one user hot
in the cache. The baseline keeps A^-1, b and theta of each level and does the same work with numpy, one user at a time.
Also: how the rate holds as the catalogue grows, and how far float32 is from float64 after 100,000 updates on 25 arms.

Prints a table and writes bench-out/decide.json; exits 1 if a target is missed.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import treeward as tw
from treeward.bandit.posterior import Posterior, learn, reset
from treeward.simulate import World

DIM, USERS, ROUNDS = 64, 400, 500
Row = tuple[str, str, str, bool]


class NumpyHCB:
    """The same policy, written the clear way."""

    def __init__(self, tree: tw.ItemTree, vectors: np.ndarray, alpha: float, items: int, seed: int) -> None:
        self.tree, self.vectors, self.alpha, self.items = tree, vectors, alpha, items
        self.random = np.random.default_rng(seed)
        levels = len(tree.widths) + 1
        self.inverse = [np.eye(tree.dim, dtype=np.float32) for _ in range(levels)]
        self.theta = [np.zeros(tree.dim, dtype=np.float32) for _ in range(levels)]

    def best(self, slot: int, x: np.ndarray) -> int:
        width = np.sqrt(np.einsum("ij,ij->i", x @ self.inverse[slot], x))
        return int(np.argmax(x @ self.theta[slot] + self.alpha * width))

    def decide(self) -> tuple[int, list[int]]:
        node, path = 0, []
        while self.tree.first_child[node] < self.tree.first_child[node + 1]:
            first, last = self.tree.first_child[node], self.tree.first_child[node + 1]
            node = int(first) + self.best(len(path), self.tree.vectors[first:last])
            path.append(node)
        rows = self.random.choice(self.tree.items_of(node), self.items, replace=False)
        return int(rows[self.best(len(path), self.vectors[rows])]), path

    def update(self, row: int, path: list[int], reward: float) -> None:
        for slot, x in enumerate([*self.tree.vectors[path], self.vectors[row]]):
            z = self.inverse[slot] @ x
            scale = 1 / (1 + x @ z)
            self.theta[slot] += z * (reward - x @ self.theta[slot]) * scale
            self.inverse[slot] -= np.outer(z, z) * scale


def three_levels(items: int) -> tuple[World, tw.ItemTree]:
    random = np.random.default_rng(0)
    vectors = random.standard_normal((items, DIM), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    a_leaf = items // 625
    paths = [(f"{row // (25 * a_leaf):02}", f"{row // a_leaf % 25:02}") for row in range(625 * a_leaf)]
    vectors = vectors[: len(paths)]
    shop = tw.Catalogue(np.arange(len(paths)), vectors)
    users = 0.2 * random.standard_normal((USERS, DIM))
    world = World(shop, users, vectors, np.full(USERS, -1.0), np.zeros(len(paths)))
    return world, tw.ItemTree.from_paths(vectors, paths)


def speed() -> list[Row]:
    world, tree = three_levels(62_500)
    policy, rounds = tw.HCB(tw.LinUCB(0.5), budget=75), 300
    ours = {threads: tw.simulate(policy, world, tree, ROUNDS, threads=threads) for threads in (1, 2)}
    assert ours[1].scores.mean() == 75
    with threadpool_limits(1):
        start = time.perf_counter()
        for user in range(4):
            slow = NumpyHCB(tree, world.catalogue.vectors, 0.5, 25, seed=user)
            chances = world.probabilities(user)
            for _ in range(rounds):
                row, path = slow.decide()
                slow.update(row, path, float(chances[row]))
        plain = (time.perf_counter() - start) / (4 * rounds) * 1e6
    alone, both = (ours[threads].seconds / (USERS * ROUNDS) * 1e6 for threads in (1, 2))
    large = tw.simulate(policy, *three_levels(1_000_000), ROUNDS, threads=2).seconds / (USERS * ROUNDS) * 1e6
    small = tw.simulate(policy, *three_levels(20_000), ROUNDS, threads=2).seconds / (USERS * ROUNDS) * 1e6
    return [
        ("decide + update, 1 core against numpy", f"{plain / alone:.1f}x ({alone:.1f} us / {plain:.0f} us)", "-", True),
        (
            "decide + update, 2 cores against numpy",
            f"{plain / both:.1f}x ({both:.1f} us)",
            ">= 10x",
            plain / both >= 10,
        ),
        ("user-rounds a second, 2 cores", f"{1e6 / both:,.0f}", ">= 150,000", 1e6 / both >= 150_000),
        ("20,000 -> 1,000,000 items", f"{large / small:.2f}x the time", "<= 1.5x", large / small <= 1.5),
    ]


def drift() -> list[Row]:
    random = np.random.default_rng(0)
    arms = random.standard_normal((25, DIM)).astype(np.float32)
    arms /= np.linalg.norm(arms, axis=1, keepdims=True)
    made = Posterior.empty(1, 1, DIM)
    reset(made, 0, 1.0)
    pulled, rewards = random.integers(0, 25, 100_000), random.uniform(0, 1, 100_000)
    for arm, reward in zip(pulled, rewards, strict=True):
        learn(made, 0, 0, arms[arm], reward)
    counts = np.bincount(pulled, minlength=25)
    wide = arms.astype(np.float64)
    precision = np.eye(DIM) + (wide.T * counts) @ wide
    moment = wide.T @ np.bincount(pulled, weights=rewards, minlength=25)
    scores = wide @ np.linalg.solve(precision, moment)
    scores += 0.5 * np.sqrt(np.einsum("ij,ij->i", wide @ np.linalg.inv(precision), wide))
    inverse, theta = made.inverse[0, 0].astype(np.float64), made.theta[0, 0].astype(np.float64)
    ours = wide @ theta + 0.5 * np.sqrt(np.einsum("ij,ij->i", wide @ inverse, wide))
    apart = float(np.max(np.abs(ours / scores - 1)))
    return [("scores after 100,000 updates, off float64", f"{apart:.1e}", "<= 1e-3", apart <= 1e-3)]


def main() -> int:
    rows = [*speed(), *drift()]
    for what, measured, target, reached in rows:
        print(f"{'ok  ' if reached else 'MISS'}  {what:42} {measured:28} target {target}")
    out = Path("bench-out")
    out.mkdir(exist_ok=True)
    keys = ("what", "measured", "target", "reached")
    (out / "decide.json").write_text(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=2))
    return 0 if all(ok for *_, ok in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
