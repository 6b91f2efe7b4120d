"""HCB and the policies that are HCB on another tree."""

from dataclasses import dataclass
from typing import ClassVar

from treeward.data.catalogue import Catalogue
from treeward.policy.base import Policy
from treeward.tree.item_tree import ItemTree


@dataclass(frozen=True)
class HCB(Policy):
    """Hierarchical contextual bandit (section 4.2): descend from the root to a leaf, one parameter vector per level."""


@dataclass(frozen=True)
class Flat(Policy):
    """The bandit over items alone (section 3.1): HCB on the root."""

    def tree_for(self, tree: ItemTree, catalogue: Catalogue) -> ItemTree:
        """Return the tree of the root alone."""
        return ItemTree.flat(catalogue.vectors, normalize=tree.normalized)


@dataclass(frozen=True)
class CBLeaf(Policy):
    """A leaf first, then an item: HCB on the root and the leaves."""

    def tree_for(self, tree: ItemTree, catalogue: Catalogue) -> ItemTree:
        """Return the tree without the levels between root and leaves."""
        return tree.leaves_only()


@dataclass(frozen=True)
class CBCategory(Policy):
    """A category first, then an item: HCB on the root and the categories."""

    needs_categories: ClassVar[bool] = True

    def tree_for(self, tree: ItemTree, catalogue: Catalogue) -> ItemTree:
        """Return the tree of the catalogue's categories."""
        return self._by_category(tree, catalogue)
