"""Argument checks. Each raises `InvalidArgument` in the one message shape, or returns the value, made canonical."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from treeward.core.errors import InvalidArgument
from treeward.core.types import Floats

_ROWS_AT_A_TIME = 1 << 16
MOST_ITEMS = 2**31 - 1


def integer(owner: str, parameter: str, value: object, *, low: int, high: int = 2**63 - 1) -> int:
    """Return `value` as an int between `low` and `high`, both included.

    Examples
    --------
    >>> integer("demo", "seed", 3, low=0)
    3
    """
    rule = f"an integer of at least {low}" if high == 2**63 - 1 else f"an integer from {low} to {high}"
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise InvalidArgument(owner, parameter, rule, value)
    return int(value)


def widths(owner: str, value: Sequence[int], items: int) -> tuple[int, ...]:
    """Return node counts a level, from below the root to the leaves: positive, increasing, at most one leaf an item."""
    if not isinstance(value, Sequence | np.ndarray):
        raise InvalidArgument(owner, "widths", "a sequence of integers, from below the root to the leaves", value)
    counts = tuple(integer(owner, "widths", width, low=1) for width in value)
    if any(above >= below for above, below in pairwise(counts)):
        raise InvalidArgument(owner, "widths", "strictly increasing from below the root to the leaves", counts)
    if counts and counts[-1] > items:
        raise InvalidArgument(owner, "widths", f"at most the number of items ({items}) at the leaves", counts)
    return counts


def vectors(owner: str, value: ArrayLike, parameter: str = "vectors") -> Floats:
    """Return `value` as a C-ordered float32 matrix (items, dimensions) of finite numbers; a memory map stays one."""
    try:
        array = np.asanyarray(value)
    except ValueError as error:
        raise InvalidArgument(owner, parameter, "a matrix whose rows have one length", type(value).__name__) from error
    if array.dtype.kind not in "fiu":
        raise InvalidArgument(owner, parameter, "a matrix of numbers", f"dtype {array.dtype}")
    if array.ndim != 2:
        raise InvalidArgument(owner, parameter, "a matrix of shape (items, dimensions)", f"shape {array.shape}")
    if array.shape[0] == 0 or array.shape[1] == 0:
        raise InvalidArgument(owner, parameter, "a matrix with at least one row and one column", f"shape {array.shape}")
    if array.shape[0] > MOST_ITEMS:
        raise InvalidArgument(owner, parameter, f"a matrix of at most {MOST_ITEMS} rows", f"shape {array.shape}")
    with np.errstate(over="ignore"):
        matrix = np.ascontiguousarray(array, dtype=np.float32)
    for start in range(0, len(matrix), _ROWS_AT_A_TIME):
        finite = np.isfinite(matrix[start : start + _ROWS_AT_A_TIME]).all(axis=1)
        if not finite.all():
            row = start + int(np.argmin(finite))
            raise InvalidArgument(owner, parameter, "finite in float32", f"{array[row]} in row {row}")
    return matrix
