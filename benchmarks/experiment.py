"""Measure experiments: ``python benchmarks/experiment.py [FOLDER]``.

Two measurements: the rate of the six arms of `experiment rewards` that do not share state, compared in the same run
with a straightforward numpy version of each, one user at a time; and whether a run that is killed twenty times at
random ends like one left alone. With FOLDER (Amazon's sports, in the docs), also the time of all of `experiment
rewards` on it without HMAB and ICTR: 1,000 users, 2,000 rounds, 10 repeats.

Prints a table and writes bench-out/experiment.json; exits 1 if a target is missed.
"""

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from threadpoolctl import threadpool_limits

import treeward as tw
from treeward.experiment import load, run
from treeward.experiment.presets import REWARDS, rewards
from treeward.policy.baselines.conucb import questions_by

Row = tuple[str, str, str, bool]
DIM, ITEMS, USERS, ROUNDS = 64, 18_000, 400, 2_000
FAST = [arm for arm in REWARDS if arm.label not in ("HMAB", "ICTRUCB")]


class Linear:
    """One posterior, the clear way."""

    def __init__(self, dim: int) -> None:
        self.inverse, self.theta = np.eye(dim), np.zeros(dim)

    def best(self, x: np.ndarray) -> int:
        return int(np.argmax(x @ self.theta + 0.5 * np.sqrt(np.einsum("ij,ij->i", x @ self.inverse, x))))

    def learn(self, x: np.ndarray, reward: float) -> None:
        z = self.inverse @ x
        scale = 1 / (1 + x @ z)
        self.theta += z * (reward - x @ self.theta) * scale
        self.inverse -= np.outer(z, z) * scale


class Walk:
    """HCB on any tree, for one user."""

    def __init__(self, tree: tw.ItemTree, vectors: np.ndarray, budget: int, seed: int) -> None:
        self.tree, self.vectors, self.random = tree, vectors, np.random.default_rng(seed)
        levels = int(tree.level[-1])
        self.share, self.last = budget // levels, budget - (levels - 1) * (budget // levels)
        self.posteriors = [Linear(tree.dim) for _ in range(levels)]

    def some(self, arms: np.ndarray, most: int) -> np.ndarray:
        return arms if len(arms) <= most else self.random.choice(arms, most, replace=False)

    def step(self, reward_of: Callable[[int], float]) -> None:
        node, path = 0, []
        while len(children := self.tree.children_of(node)):
            arms = self.some(np.asarray(children), self.share)
            node = int(arms[self.posteriors[len(path)].best(self.tree.vectors[arms])])
            path.append(node)
        rows = self.some(self.tree.items_of(node), self.last)
        row = int(rows[self.posteriors[-1].best(self.vectors[rows])])
        reward = reward_of(row)
        for posterior, chosen in zip(self.posteriors, path, strict=False):
            posterior.learn(self.tree.vectors[chosen], reward)
        self.posteriors[-1].learn(self.vectors[row], reward)


class Field(Walk):
    """pHCB for one user."""

    def __init__(self, tree: tw.ItemTree, vectors: np.ndarray, budget: int, seed: int) -> None:
        super().__init__(tree, vectors, budget, seed)
        self.posteriors, self.visible, self.events = [Linear(tree.dim), Linear(tree.dim)], [0], []
        self.place_of = np.argsort(tree.items)

    def step(self, reward_of: Callable[[int], float]) -> None:
        arms = self.some(np.array(self.visible), 25)
        node = int(arms[self.posteriors[0].best(self.tree.vectors[arms])])
        rows = self.some(self.tree.items_of(node), 25)
        row = int(rows[self.posteriors[1].best(self.vectors[rows])])
        reward = reward_of(row)
        self.posteriors[0].learn(self.tree.vectors[node], reward)
        self.posteriors[1].learn(self.vectors[row], reward)
        self.events.append((int(self.place_of[row]), reward))
        first, last = self.tree.item_range[node]
        mine = [earned for place, earned in self.events if first <= place < last]
        level = np.log(int(self.tree.level[node]))
        children = self.tree.children_of(node)
        if len(children) and len(mine) >= np.floor(10 * level) and np.mean(mine) > 0.1 * level:
            self.visible.remove(node)
            self.visible += list(children)


class Asking:
    """ConUCB for one user."""

    def __init__(self, tree: tw.ItemTree, vectors: np.ndarray, budget: int, seed: int) -> None:
        self.vectors, self.random, self.budget, self.turn = vectors, np.random.default_rng(seed), budget, 0
        self.terms = tree.vectors[np.asarray(tree.children_of(0))]
        dim = vectors.shape[1]
        self.inverse, self.sums, self.key, self.key_sums = 2 * np.eye(dim), np.zeros(dim), np.eye(dim), np.zeros(dim)

    def step(self, reward_of: Callable[[int], float]) -> None:
        rows = self.random.choice(len(self.vectors), self.budget, replace=False)
        x = self.vectors[rows]
        for _ in range(questions_by(self.turn) - questions_by(self.turn - 1)):
            spread = self.terms @ self.key
            gain = ((x @ self.inverse @ spread.T) ** 2).sum(0) / (1 + np.einsum("ij,ij->i", self.terms, spread))
            term = self.terms[int(np.argmax(gain))]
            z = self.key @ term
            self.key -= np.outer(z, z) / (1 + term @ z)
            self.key_sums += 0.2 * term
        self.turn += 1
        theta = self.inverse @ (0.5 * self.sums + 0.5 * (self.key @ self.key_sums))
        z = x @ self.inverse
        width, key_width = np.einsum("ij,ij->i", x, z), np.einsum("ij,ij->i", z @ self.key, z)
        chosen = int(np.argmax(x @ theta + 0.125 * np.sqrt(width) + 0.125 * np.sqrt(key_width)))
        reward, one = reward_of(int(rows[chosen])), x[chosen]
        z = self.inverse @ one
        self.inverse -= np.outer(z, z) * 0.5 / (1 + 0.5 * (one @ z))
        self.sums += reward * one


def plain_seconds(world: tw.World, tree: tw.ItemTree, users: int, rounds: int) -> dict[str, float]:
    """Return seconds per user-round of every arm, in numpy."""
    vectors = world.catalogue.vectors / np.linalg.norm(world.catalogue.vectors, axis=1, keepdims=True)
    took = {}
    for arm in FAST:
        policy = arm.build(50)
        kind = {"conucb": Asking, "phcb": Field}.get(arm.policy, Walk)
        walked = tree
        if arm.policy == "conucb":
            walked = tw.ItemTree.from_categories(world.catalogue.vectors, world.catalogue.categories)
        elif arm.policy != "phcb":
            walked = policy.tree_for(tree, world.catalogue)
        start = time.perf_counter()
        for user in range(users):
            chances = world.probabilities(user)
            one = kind(walked, vectors, 50, user)
            for _ in range(rounds):
                one.step(lambda row, known=chances: float(known[row]))
        took[arm.label] = (time.perf_counter() - start) / (users * rounds)
    return took


def rate(folder: Path) -> list[Row]:
    world = tw.World.synthetic(items=ITEMS, users=USERS, dim=DIM, seed=0)
    world.save(folder / "world")
    tree = tw.ItemTree.build(world.catalogue.vectors, seed=0)
    without = rewards(str(folder / "world"), users=USERS, rounds=ROUNDS, repeats=2)
    spec = replace(without, arms=tuple(FAST))
    run(replace(spec, rounds=20, repeats=1), folder / "warm")  # compiles
    start = time.perf_counter()
    outcome = run(replace(spec, seed=9), folder / "timed")
    whole = time.perf_counter() - start
    with threadpool_limits(1):
        plain = plain_seconds(world, tree, 2, ROUNDS)
    ours = dict(outcome.cells.group_by("arm").agg(pl.col("seconds").mean()).iter_rows())
    rows: list[Row] = []
    for arm in FAST:
        mine = ours[arm.label] / (USERS * ROUNDS)
        said = f"{plain[arm.label] / mine:.0f}x ({mine * 1e6:.1f} us, numpy {plain[arm.label] * 1e6:.0f} us)"
        rows.append((f"{arm.label}: a round, one core each", said, "-", True))
    rounds = len(FAST) * 2 * USERS * ROUNDS
    mean = sum(plain.values()) / len(plain)
    ratio = rounds * mean / whole
    said = f"{ratio:.1f}x ({rounds / whole:,.0f} user-rounds/s, numpy {1 / mean:,.0f})"
    rows.append(("the whole run, everything included, 2 cores", said, ">= 25x", ratio >= 25))
    return rows


def kills(folder: Path) -> list[Row]:
    tw.World.synthetic(items=600, users=40, dim=8, seed=1).save(folder / "small")
    spec = replace(rewards(str(folder / "small"), users=40, rounds=2_000, repeats=20, budget=20), arms=tuple(FAST))
    alone = run(spec, folder / "alone")
    path, coin, done = folder / "spec.toml", random.Random(0), 0
    path.write_text(spec.to_toml())
    command = [str(Path(sys.executable).with_name("treeward")), "experiment", "run", str(path), "-o"]
    target = str(folder / "killed")
    for _ in range(20):
        process = subprocess.Popen([*command, target], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(coin.uniform(0.5, 6))
        done += process.poll() is None
        process.kill()
        process.wait()
        time.sleep(0.3)
    subprocess.run([*command, target], check=True, capture_output=True)
    same = load(target).rewards.equals(alone.rewards)
    said = f"{'identical' if same else 'different'}; {done} of 20 kills met it at work"
    return [("killed 20 times, against left alone", said, "identical", same)]


def whole(data: Path, folder: Path) -> list[Row]:
    spec = rewards(str(data))
    spec = replace(spec, arms=tuple(FAST))
    start = time.perf_counter()
    run(spec, folder / "whole")
    minutes = (time.perf_counter() - start) / 60
    return [(f"{data.name}: 1,000 users, 2,000 rounds, 10 repeats", f"{minutes:.1f} min", "< 30 min", minutes < 30)]


def main() -> int:
    folder = Path(tempfile.mkdtemp())
    try:
        rows = [*rate(folder), *kills(folder)]
        if len(sys.argv) > 1:
            rows += whole(Path(sys.argv[1]), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for what, measured, target, reached in rows:
        print(f"{'ok  ' if reached else 'MISS'}  {what:48} {measured:56} target {target}")
    out = Path("bench-out")
    out.mkdir(exist_ok=True)
    keys = ("what", "measured", "target", "reached")
    (out / "experiment.json").write_text(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=2))
    return 0 if all(ok for *_, ok in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
