"""A tree in numbers: sizes, balance and error, level by level."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.parallel import workers
from treeward.core.types import Integers, TreeArrays
from treeward.tree.row_groups import Rows
from treeward.tree.tree_arrays import at_level, owners

_PLACES = 1 << 16


class Spread(NamedTuple):
    """The smallest, middle and largest of some counts."""

    low: int
    median: int
    high: int

    @classmethod
    def of(cls, counts: NDArray[np.integer]) -> "Spread":
        """Summarise counts; of none, all zero."""
        return cls(int(counts.min()), int(np.median(counts)), int(counts.max())) if len(counts) else cls(0, 0, 0)

    def __str__(self) -> str:
        return f"{self.median:,} ({self.low:,}-{self.high:,})" if self.low < self.high else f"{self.median:,}"


class LevelDescription(NamedTuple):
    """One level of a tree, from the root (1) down."""

    level: int
    nodes: int
    leaves: int
    children: Spread
    """Children of an inner node of this level."""
    items: Spread
    """Items under a node of this level."""
    empty: int
    """Nodes without items."""
    balance: float
    """Entropy of the items over the nodes of this level, as a share of its maximum: 1 is perfectly even."""
    error: float | None
    """Mean squared distance of an item from its node here (from its leaf, if that is higher up)."""
    explained: float | None
    """Share of the items' variance around the root that this level explains."""


class TreeDescription(NamedTuple):
    """A tree in numbers; ``print`` it."""

    items: int
    dim: int
    nodes: int
    leaves: int
    levels: tuple[LevelDescription, ...]

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the headings and the cells of the table of levels, as text: counts are medians (lowest-highest)."""
        head = ["level", "nodes", "leaves", "children", "items", "balance"]
        if self.levels[0].error is not None:
            head += ["error", "explained"]
        cells = []
        for row in self.levels:
            children = str(row.children) if row.children.high else "-"
            cell = [str(row.level), f"{row.nodes:,}", f"{row.leaves:,}", children, str(row.items)]
            cell.append(f"{row.balance:.3f}")
            if row.error is not None and row.explained is not None:
                cell += [f"{row.error:.4f}", f"{row.explained:.1%}"]
            cells.append(cell)
        return head, cells

    def title(self) -> str:
        """Return the one-line summary."""
        empty = sum(level.empty for level in self.levels)
        return (
            f"{self.items:,} items x {self.dim} dimensions: {self.nodes:,} nodes, {self.leaves:,} leaves, {empty} empty"
        )

    def __repr__(self) -> str:
        head, cells = self.table()
        widths = [max(len(row[i]) for row in [head, *cells]) for i in range(len(head))]
        lines = [
            "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in [head, *cells]
        ]
        return "\n".join([self.title(), *lines])


def describe(tree: TreeArrays, rows: Rows | None = None) -> TreeDescription:
    """Summarise a tree; with the items' vectors, also how far items are from their nodes."""
    children = np.diff(tree.first_child)
    sizes = np.diff(tree.item_range).ravel()
    depth = int(tree.level[-1])
    errors = _errors(tree, rows, depth) if rows is not None else [None] * depth
    levels = []
    for level, error in enumerate(errors, start=1):
        first, last = np.searchsorted(tree.level, [level, level + 1])
        kids, held = children[first:last], sizes[first:last]
        explained = None
        if error is not None and errors[0] is not None:
            explained = 1 - error / errors[0] if errors[0] > 0 else 1.0
        levels.append(
            LevelDescription(
                level,
                len(held),
                int((kids == 0).sum()),
                Spread.of(kids[kids > 0]),
                Spread.of(held),
                int((held == 0).sum()),
                _balance(held),
                error,
                explained,
            )
        )
    return TreeDescription(
        len(tree.items), tree.vectors.shape[1], len(tree.parent), int((children == 0).sum()), tuple(levels)
    )


def _balance(sizes: NDArray[np.integer]) -> float:
    if len(sizes) == 1:
        return 1.0
    share = sizes[sizes > 0] / sizes.sum()
    return float(-(share * np.log(share)).sum() / np.log(len(sizes)))


def _errors(tree: TreeArrays, rows: Rows, depth: int) -> list[float]:
    holders: list[Integers] = [owners(tree, at_level(tree, level)) for level in range(1, depth + 1)]

    def squared(start: int) -> NDArray[np.float64]:
        places = slice(start, start + _PLACES)
        points = rows.take(tree.items[places]).astype(np.float64)
        return np.array([((points - tree.vectors[held[places]]) ** 2).sum() for held in holders])

    total = np.zeros(depth)
    with workers() as pool:
        for part in pool.map(squared, range(0, len(tree.items), _PLACES)):
            total += part
    return [float(value) for value in total / len(tree.items)]
