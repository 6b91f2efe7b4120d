"""Cutting a cluster in two along its widest direction: how empty clusters are refilled and oversized ones divided."""

import heapq

import numpy as np
from numpy.typing import NDArray

from treeward.core.types import Floats, Integers
from treeward.tree.row_groups import Rows, group


def halves(points: Floats, first: int) -> NDArray[np.bool_]:
    """Mark all but `first` of the points, those at the far end of the line between two far-apart points."""
    centre = points.mean(axis=0)
    one = points[np.argmax(((points - centre) ** 2).sum(axis=1))]
    other = points[np.argmax(((points - one) ** 2).sum(axis=1))]
    # Identical points all project to the same place; the stable sort then cuts them by their order.
    order = np.argsort(points @ (other - one), kind="stable")
    marked = np.zeros(len(points), dtype=np.bool_)
    marked[order[first:]] = True
    return marked


def refill(labels: Integers, count: int, rows: Rows) -> None:
    """Give every label at least one row, in place, by halving the clusters of the largest error into the empty ones."""
    groups = group(labels, count)
    empty = np.flatnonzero(groups.sizes == 0)
    if not len(empty):
        return
    # By error first: halving a cluster of identical rows gains nothing, however large it is.
    heap = [_urgency(rows, groups.members(label), label) for label in np.flatnonzero(groups.sizes > 1).tolist()]
    members = {label: groups.members(label) for _, _, label in heap}
    heapq.heapify(heap)
    for label in empty.tolist():
        _, _, worst = heapq.heappop(heap)
        split = members[worst]
        marked = halves(rows.take(split), (len(split) + 1) // 2)
        labels[split[marked]] = label
        for part, owner in ((split[~marked], worst), (split[marked], label)):
            members[owner] = part
            if len(part) > 1:
                heapq.heappush(heap, _urgency(rows, part, owner))


def _urgency(rows: Rows, members: Integers, label: int) -> tuple[float, int, int]:
    points = rows.take(members)
    return -float(((points - points.mean(axis=0)) ** 2).sum()), -len(members), label


def divide(labels: Integers, count: int, rows: Rows, most: int) -> int:
    """Cut clusters of more than `most` rows into even parts, in place; return the new number of labels."""
    groups = group(labels, count)
    for label in np.flatnonzero(groups.sizes > most):
        waiting = [(groups.members(int(label)), int(label))]
        while waiting:
            members, own = waiting.pop()
            parts = -(-len(members) // most)
            if parts == 1:
                continue
            marked = halves(rows.take(members), len(members) * (parts // 2) // parts)
            labels[members[marked]] = count
            waiting += [(members[~marked], own), (members[marked], count)]
            count += 1
    return count
