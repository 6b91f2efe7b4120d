"""Compare node vectors of length 1 with plain means: `python benchmarks/nodes.py RUN...`.

RUN is the folder of an experiment on a log (`treeward experiment closed-loop` or `frontier`, for Beam's prior). Every
policy runs both ways on the run's world, tree and test users, over three seeds; the baseline of a ratio is the plain
mean. Beam always uses means. Here its search also gets scaled nodes, to see whether it should.
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import treeward as tw
from treeward.experiment.prepared import read_prepared
from treeward.experiment.summary import estimate
from treeward.policy.base import unit_nodes
from treeward.tree.row_groups import Rows

SEEDS = (0, 1, 2)
BANDITS = {"LinUCB": tw.LinUCB(), "Thompson": tw.Thompson(), "epsilon-greedy": tw.EpsilonGreedy(0.05)}


@dataclass(frozen=True)
class ScaledBeam(tw.Beam):
    """Beam whose nodes lie at length 1, and reach from there."""

    def fitted(self, tree, catalogue):
        walked, seen = super().fitted(tree, catalogue)
        items = Rows(seen.vectors, walked.normalized).take(walked.items)
        vectors = unit_nodes(walked, items, self._own(items.shape[1]))
        return tw.ItemTree(walked.arrays._replace(vectors=vectors), provenance=walked.provenance), seen


def earned(policy, world, tree, users, rounds, **options):
    """Return (users, seeds): cumulative reward."""
    runs = [tw.simulate(policy, world, tree, rounds=rounds, users=users, seed=seed, **options) for seed in SEEDS]
    return np.stack([run.per_user for run in runs], axis=1)


def compare(name, unit, mean):
    gap = estimate(unit - mean, False)
    both = f"{mean.mean():9.1f} {unit.mean():9.1f}  {unit.mean() / mean.mean():6.3f}"
    print(f"  {name:42} {both}  {gap.mean:+8.1f} ± {gap.half:.1f}")


def main(folders):
    for folder in folders:
        world, tree = tw.World.load(folder / "world"), tw.ItemTree.load(folder / "tree")
        users = read_prepared(folder)["users"]
        print(f"{folder.name}: {len(users)} users, {len(world.catalogue):,} items, {len(SEEDS)} seeds")
        print(f"  {'':42} {'mean':>9} {'unit':>9}  {'ratio':>6}  {'paired':>8}")
        for label, bandit in BANDITS.items():
            for kind in (tw.CBCategory, tw.CBLeaf, tw.HCB, tw.PHCB):
                if kind.needs_categories and world.catalogue.categories is None:
                    continue
                both = [earned(kind(bandit, node_vectors=way), world, tree, users, 1_000) for way in ("unit", "mean")]
                compare(f"{kind.__name__}, {label}, 1,000 rounds", *both)
        if (folder / "prior").exists():
            prior, grown = tw.Crowd.load(folder / "prior"), tw.ItemTree.load(folder / "tree-prior")
            options = {"reward": "click", "repeats": False}
            for walked, known in ((tree, None), (grown, prior)):
                for kind in (tw.HCB, tw.PHCB):
                    policy = kind(prior=known)
                    both = [
                        earned(replace(policy, node_vectors=way), world, walked, users, 300, **options)
                        for way in ("unit", "mean")
                    ]
                    compare(f"{kind.__name__}{', prior' * (known is not None)}, clicks, once, 300", *both)
                both = [
                    earned(kind(prior=known), world, walked, users, 300, **options) for kind in (ScaledBeam, tw.Beam)
                ]
                compare(f"Beam{', prior' * (known is not None)}, clicks, once, 300", *both)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        print("no run was given: nothing to compare (treeward experiment frontier DATA -o RUN makes one)")
    main([Path(one) for one in sys.argv[1:]])
