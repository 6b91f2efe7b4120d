"""Compare deciding and learning with plain numpy and batched torch, in one run: ``python benchmarks/decide.py``.

HCB on three levels of 25 arms each (25 nodes, 25 of their children, 25 of 100 items), 64 dimensions, with the state of
one user hot in the cache. The numpy baseline keeps A^-1, b and theta of each level and does the same work, one user at
a time. The torch baseline (only where torch is installed) does it for 1,000 users at once with batched products.
Also measured: the floating-point rate of the scoring compared with a large sgemm, how time grows with users and with
the catalogue, and how far float32 is from float64 after 100,000 updates on 25 arms.

Prints a table and writes bench-out/decide.json; exits 1 if a target is missed.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
from threadpoolctl import threadpool_limits

import treeward as tw
from treeward.bandit import Prior
from treeward.engine.explore import Belief, Candidates, Draws, best_of
from treeward.engine.layout import CrowdArrays
from treeward.engine.posterior import Posterior, learn, reset
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
    torch = torch_time(tree, world.catalogue.vectors)
    some = tw.simulate(policy, world, tree, ROUNDS, users=USERS // 8, threads=2).seconds / (USERS // 8 * ROUNDS) * 1e6
    return [
        ("decide + update, 1 core against numpy", f"{plain / alone:.1f}x ({alone:.1f} us / {plain:.0f} us)", "-", True),
        (
            "decide + update, 2 cores against numpy",
            f"{plain / both:.1f}x ({both:.1f} us)",
            ">= 10x",
            plain / both >= 10,
        ),
        (
            "decide + update, 2 cores against torch bmm",
            f"{torch / both:.1f}x ({torch:.0f} us)" if torch else "not measured: no torch here",
            ">= 6x",
            not torch or torch / both >= 6,
        ),
        ("user-rounds a second, 2 cores", f"{1e6 / both:,.0f}", ">= 150,000", 1e6 / both >= 150_000),
        (f"{USERS // 8} -> {USERS} users", f"{both / some:.2f}x the time a user", "<= 1.2x", both / some <= 1.2),
    ]


def size() -> list[Row]:
    """Time per round as the catalogue grows; scores cost the same, only memory accesses take longer."""
    policy = tw.HCB(tw.LinUCB(0.5), budget=75)
    times = {}
    for items in (10_000, 4_000_000):
        made = three_levels(items)
        times[items] = min(tw.simulate(policy, *made, ROUNDS, users=200, threads=2).seconds for _ in range(3))
    grown = times[4_000_000] / times[10_000]
    return [("10,000 -> 4,000,000 items", f"{grown:.2f}x the time", "<= 1.5x", grown <= 1.5)]


def scoring() -> list[Row]:
    """Floating-point operations per second: x A^-1 of 25 arms inside a decision, and a 2,048 x 2,048 product."""
    random = np.random.default_rng(0)
    made, arms = Posterior.empty(1, 1, DIM), random.standard_normal((25, DIM), dtype=np.float32)
    reset(made, 0, Prior().start(DIM, 1.0))
    candidates = Candidates.empty(25, DIM)
    candidates.vectors[:] = arms
    given = made.inverse[0, 0], made.theta[0, 0], CrowdArrays.none().root, candidates
    _score(*given, 1)
    big = random.standard_normal((2048, 2048), dtype=np.float32)
    with threadpool_limits(1):
        ours = min(clock(lambda: _score(*given, 20_000)) for _ in range(5))
        theirs = min(clock(lambda: big @ big) for _ in range(5))
    rate, peak = 20_000 * 2 * 25 * DIM * DIM / ours / 1e9, 2 * 2048**3 / theirs / 1e9
    return [
        ("scoring, against sgemm", f"{rate / peak:.2f} ({rate:.0f} / {peak:.0f} GFLOP/s)", ">= 0.5", rate >= peak / 2)
    ]


@numba.njit
def _score(inverse: np.ndarray, theta: np.ndarray, alone: np.ndarray, candidates: Candidates, times: int) -> None:
    for turn in range(times):
        best_of(0, 0.5, Belief(inverse, theta, alone), candidates.vectors, candidates, Draws(0, 0, turn))


def clock(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def torch_time(tree: tw.ItemTree, vectors: np.ndarray) -> float | None:
    """Microseconds per user-round of the same policy, 1,000 users at a time, with torch on all cores."""
    try:
        import torch
    except ImportError:
        return None
    users, rounds = 1_000, 12
    nodes, items = torch.from_numpy(tree.vectors.copy()), torch.from_numpy(vectors[tree.items].copy())
    first, ranges = torch.from_numpy(tree.first_child.copy()).long(), torch.from_numpy(tree.item_range.copy()).long()
    inverse = torch.eye(DIM).repeat(3, users, 1, 1)
    theta = torch.zeros(3, users, DIM)

    def best(slot: int, x: torch.Tensor) -> torch.Tensor:
        width = (torch.bmm(x, inverse[slot]) * x).sum(2).clamp_min(0).sqrt()
        return (torch.bmm(x, theta[slot].unsqueeze(2)).squeeze(2) + 0.5 * width).argmax(1)

    def once() -> None:
        node, taken = torch.zeros(users, dtype=torch.long), []
        for slot in range(2):
            arms = first[node].unsqueeze(1) + torch.arange(25)
            node = arms.gather(1, best(slot, nodes[arms]).unsqueeze(1)).squeeze(1)
            taken.append(nodes[node])
        arms = ranges[node, 0].unsqueeze(1) + torch.rand(users, 100).argsort(1)[:, :25]
        place = arms.gather(1, best(2, items[arms]).unsqueeze(1)).squeeze(1)
        taken.append(items[place])
        for slot, x in enumerate(taken):
            z = torch.bmm(inverse[slot], x.unsqueeze(2)).squeeze(2)
            scale = 1 / (1 + (x * z).sum(1, keepdim=True))
            theta[slot] += z * (0.3 - (x * theta[slot]).sum(1, keepdim=True)) * scale
            inverse[slot] -= torch.bmm((z * scale).unsqueeze(2), z.unsqueeze(1))

    with torch.inference_mode():
        once()
        return min(clock(once) for _ in range(rounds)) / users * 1e6


def drift() -> list[Row]:
    random = np.random.default_rng(0)
    arms = random.standard_normal((25, DIM)).astype(np.float32)
    arms /= np.linalg.norm(arms, axis=1, keepdims=True)
    made = Posterior.empty(1, 1, DIM)
    reset(made, 0, Prior().start(DIM, 1.0))
    z = np.empty(DIM, dtype=np.float32)
    pulled, rewards = random.integers(0, 25, 100_000), random.uniform(0, 1, 100_000)
    for arm, reward in zip(pulled, rewards, strict=True):
        learn(made, 0, 0, arms[arm], reward, z)
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
    rows = [*speed(), *scoring(), *size(), *drift()]
    for what, measured, target, reached in rows:
        print(f"{'ok  ' if reached else 'MISS'}  {what:42} {measured:28} target {target}")
    out = Path("bench-out")
    out.mkdir(exist_ok=True)
    keys = ("what", "measured", "target", "reached")
    (out / "decide.json").write_text(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=2))
    return 0 if all(ok for *_, ok in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
