"""pHCB: every user has visible nodes, which are replaced by their children where the user's interests are."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from treeward.core import checks
from treeward.core.checks import Fraction, NotNegative
from treeward.core.errors import InvalidArgument
from treeward.core.types import Integers
from treeward.policy.base import Policy, Thresholds
from treeward.tree.item_tree import ItemTree


class Expansion(Protocol):
    """Anything that says, level by level, when a node opens. You can pass your own."""

    def thresholds(self, levels: int) -> Thresholds:
        """Return the thresholds for a tree of `levels` levels; the root is on level 1."""
        ...


@dataclass(frozen=True)
class LogThreshold:
    """The paper's rule: at least floor(q ln l) visits and a mean reward above p ln l on level l.

    Parameters
    ----------
    q, p
        10 and 0.1 in the paper.
    authors
        As in the paper's authors' code: visits not rounded down, and a mean equal to the threshold is enough.
    """

    q: NotNegative = 10
    p: Fraction = 0.1
    authors: bool = False

    def thresholds(self, levels: int) -> Thresholds:
        """Return the thresholds for a tree of `levels` levels."""
        own = checks.validate(self)
        logs = np.array([0.0] + [math.log(level) for level in range(1, levels + 1)])
        visits = own.q * logs if own.authors else np.floor(own.q * logs)
        return Thresholds(visits, own.p * logs, own.authors)


@dataclass(frozen=True)
class PHCB(Policy):
    """Progressive hierarchical contextual bandit (section 4.3): a visible node, then an item under it.

    Parameters
    ----------
    expansion
        When a visible node is replaced by its children; `LogThreshold(q=10, p=0.1)` is the paper's rule.
    start
        The first visible nodes: ``"root"`` (the paper), ``"children"`` of the root (its authors' code), or the numbers
        of nodes that partition the items.
    """

    expansion: Expansion = field(default_factory=LogThreshold)
    start: Literal["root", "children"] | Sequence[int] = "root"

    def _decisions(self, levels: int) -> int:
        return 2

    def _personal(self) -> bool:
        return True

    def _thresholds(self, levels: int) -> Thresholds:
        made = self.expansion.thresholds(levels)
        for name in ("visits", "mean"):
            values = getattr(made, name)
            if np.shape(values) != (levels + 1,) or np.isnan(values).any():
                raise InvalidArgument("PHCB", "expansion", f"{levels + 1} numbers for {name}, by level", values)
        return Thresholds(
            np.asarray(made.visits, dtype=np.float64), np.asarray(made.mean, dtype=np.float64), bool(made.at_least)
        )

    def _start(self, tree: ItemTree) -> Integers:
        if isinstance(self.start, str):
            kind = checks.one_of("PHCB", "start", self.start, ("root", "children"))
            children = tree.children_of(0)
            return np.array([0] if kind == "root" or not children else children, dtype=np.int32)
        nodes = [checks.integer("PHCB", "start", node, low=0, high=len(tree.parent) - 1) for node in self.start]
        ranges = tree.item_range[sorted(nodes, key=lambda node: int(tree.item_range[node, 0]))]
        whole = len(ranges) > 0 and ranges[0, 0] == 0 and ranges[-1, 1] == len(tree)
        if not whole or (ranges[1:, 0] != ranges[:-1, 1]).any():
            raise InvalidArgument("PHCB", "start", "nodes that partition the items", nodes)
        return np.array(sorted(nodes, key=lambda node: int(tree.item_range[node, 0])), dtype=np.int32)
