"""A policy of your own: a cluster at a level of the tree that you choose, then an item in it.

`CBLeaf` jumps from the root to the leaves, `HCB` stops at every level between. With few scores per round it may pay to
decide only twice, among few and large clusters. A policy says which tree it walks; the rest is shared.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

import treeward as tw
from treeward.core.checks import Whole
from treeward.policy.base import Policy
from treeward.testing import check_policy


@dataclass(frozen=True)
class TwoStep(Policy):
    """A node of one level first, then an item under it.

    Parameters
    ----------
    depth
        Which level: 2 is that of the root's children. Leaves above it count as themselves.
    """

    depth: Annotated[int, Whole(low=2)] = 2

    def tree_for(self, tree: tw.ItemTree, catalogue: tw.Catalogue) -> tw.ItemTree:
        """Return the tree of the root and the nodes at that depth."""
        cluster = np.empty(len(tree), dtype=np.int64)
        for node in range(len(tree.parent)):  # from the root down, so that deeper nodes overwrite
            if tree.level[node] <= self.depth:
                cluster[tree.items_of(node)] = node
        labels = [f"node {node}" for node in cluster]
        return tw.ItemTree.from_categories(catalogue.vectors, labels, normalize=tree.normalized)


if __name__ == "__main__":
    check_policy(TwoStep())
    world = tw.World.synthetic(items=5_000, users=20, dim=16, seed=0)
    tree = tw.ItemTree.build(world.catalogue.vectors, widths=(10, 50, 250), seed=0)
    for policy in (TwoStep(budget=20), TwoStep(budget=20, depth=3), tw.HCB(budget=20), tw.CBLeaf(budget=20)):
        result = tw.simulate(policy, world, tree, rounds=200, seed=0)
        print(f"{policy.name}: reward {result.cumulative[-1]:.1f} in 200 rounds, {result.scores.max()} scores at most")
    explorer = tw.Explorer(world.catalogue, tree, TwoStep(), memory=1 << 22)
    [made] = explorer.recommend(["ada"])
    explorer.feedback({made.id: 1.0})
    print(explorer.explain(made))
