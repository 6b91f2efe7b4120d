"""The paper's authors' own experiment, rerun with their options on their world."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from treeward.bandit import LinUCB
from treeward.core.errors import DataError
from treeward.core.progress import Progress, Stage
from treeward.core.types import TreeArrays
from treeward.data.catalogue import Catalogue
from treeward.policy import HCB, PHCB, CBCategory, CBLeaf, ConUCB, Flat, LogThreshold, Policy
from treeward.simulate.run import simulate
from treeward.simulate.world import World
from treeward.tree.item_tree import ItemTree

AS_THE_AUTHORS: dict[str, Policy] = {
    "Flat": Flat(split="authors"),
    "CBCategory": CBCategory(split="authors", node_vectors="mean"),
    "CBLeaf": CBLeaf(split="authors", node_vectors="mean"),
    "HCB": HCB(split="authors", node_vectors="mean"),
    "PHCB": PHCB(split="authors", node_vectors="mean", start="children", expansion=LogThreshold(authors=True)),
    "ConUCB": ConUCB(LinUCB(alpha=0.25)),
}
"""Our policies with the options of the authors' code; ConUCB's are those of its own authors."""


class Compared(NamedTuple):
    """One policy at one round."""

    policy: str
    round: int
    users: int
    theirs: float
    ours: float
    errors: float
    """The difference in standard errors, paired by user."""
    their_us: float
    our_us: float


def reference_world(folder: Path) -> tuple[World, ItemTree]:
    """Read the world and the tree of a reference folder."""
    try:
        held = np.load(folder / "world.npz")
        shop = Catalogue(
            range(len(held["item_features"])), held["item_features"], categories=held["category"].astype(str)
        )
        inner = held["level"] < held["level"].max()
        children = np.where(inner, held["child_end"] - held["first_child"][:-1], 0)
        parent = np.concatenate([[-1], np.repeat(np.arange(len(children)), children)])
        ranges = np.stack([held["item_start"], held["item_end"]], axis=1)
        first = np.concatenate([[1], 1 + np.cumsum(children)])
        parts = (parent, held["level"], first, ranges, held["items"])
        integers = [np.ascontiguousarray(array, dtype=np.int32) for array in parts]
        tree = ItemTree(TreeArrays(held["node_vectors"], *integers), provenance={"normalize": False})
        world = World(shop, held["user_simulator"], held["item_simulator"], held["user_bias"], held["item_bias"])
    except (OSError, KeyError, ValueError) as error:
        raise DataError(f"{folder}: holds no world.npz of a reference run: {error}") from error
    return world, tree


def compare(folder: Path, repeats: int, progress: Progress) -> list[Compared]:
    """Run every policy the folder has results of, on one thread, and compare."""
    world, tree = reference_world(folder)
    try:
        told = json.loads((folder / "authors_results.json").read_text(encoding="utf-8"))
        rounds, theirs, times = told["rounds"], told["cumulative"], told["microseconds_per_user_round"]
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{folder}: holds no authors_results.json of a reference run: {error}") from error
    known = [name for name in AS_THE_AUTHORS if name in theirs]
    stage, rows = Stage(progress, "policies x seeds", len(known) * repeats), []
    for name in known:
        earned, seconds = np.zeros((world.users, len(rounds))), 0.0
        for seed in range(repeats):
            result = simulate(AS_THE_AUTHORS[name], world, tree, rounds=max(rounds), seed=seed, threads=1)
            earned += np.cumsum(result.rewards, axis=1, dtype=np.float64)[:, np.array(rounds) - 1] / repeats
            seconds += result.seconds
            stage.step()
        gap = earned - np.array(theirs[name])
        errors = gap.mean(axis=0) / (gap.std(axis=0, ddof=1) / len(gap) ** 0.5)
        ours_us = seconds / repeats / (world.users * max(rounds)) * 1e6
        means = np.array(theirs[name]).mean(axis=0)
        for at, round in enumerate(rounds):
            rows.append(
                Compared(name, round, world.users, float(means[at]), float(earned[:, at].mean()), float(errors[at]),
                         float(times[name]), ours_us)
            )  # fmt: skip
    return rows
