"""Argument checks. Each raises `InvalidArgument` in the one message shape, or returns the value, made canonical."""

import difflib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from treeward.core.errors import InvalidArgument
from treeward.core.types import Floats

T = TypeVar("T")
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
    if not isinstance(value, Sequence | np.ndarray) or np.ndim(value) != 1:
        raise InvalidArgument(owner, "widths", "a sequence of integers, from below the root to the leaves", value)
    counts = tuple(integer(owner, "widths", width, low=1) for width in value)
    if any(above >= below for above, below in pairwise(counts)):
        raise InvalidArgument(owner, "widths", "strictly increasing from below the root to the leaves", counts)
    if counts and counts[-1] > items:
        raise InvalidArgument(owner, "widths", f"at most the number of items ({items}) at the leaves", counts)
    return counts


def flag(owner: str, parameter: str, value: object) -> bool:
    """Return `value` as a bool; only True and False will do."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidArgument(owner, parameter, "True or False", value)
    return bool(value)


def vectors(owner: str, value: ArrayLike, parameter: str = "vectors") -> Floats:
    """Return `value` as a C-ordered float32 matrix (items, dimensions) of finite numbers; a memory map stays one."""
    try:
        array = np.asanyarray(value)
    except ValueError as error:
        raise InvalidArgument(owner, parameter, "a matrix whose rows have one length", type(value).__name__) from error
    if isinstance(array, np.ma.MaskedArray):
        raise InvalidArgument(owner, parameter, "a matrix without a mask", "a masked array")
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


def number(
    owner: str,
    parameter: str,
    value: object,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> float:
    """Return `value` as a finite float within the bounds given (`low` and `high` included, the other two not).

    Examples
    --------
    >>> number("demo", "rate", 1, low=0, below=2)
    1.0
    """
    bounds = ((low, "of at least"), (above, "above"), (high, "of at most"), (below, "below"))
    rule = " and ".join(f"{word} {bound}" for bound, word in bounds if bound is not None)
    rule = f"a finite number {rule}".strip()
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise InvalidArgument(owner, parameter, rule, value)
    try:
        made = float(value)
    except OverflowError as error:
        raise InvalidArgument(owner, parameter, rule, "one of very many digits") from error
    inside = (low is None or made >= low) and (high is None or made <= high)
    strictly = (above is None or made > above) and (below is None or made < below)
    if not (np.isfinite(made) and inside and strictly):
        raise InvalidArgument(owner, parameter, rule, value)
    return made


def typed(owner: str, parameter: str, value: object, kind: type[T]) -> T:
    """Return `value`, made of plain dicts, lists and numbers, as a dataclass of this kind, if all of it is of its type.

    Examples
    --------
    >>> typed("here", "count", 3, int)
    3
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InvalidArgument(owner, parameter, "of the types that are documented", str(error)) from error


def kinds(owner: str, *given: tuple[str, object, type]) -> None:
    """Refuse what is not of its type: (parameter, value, type) each."""
    for parameter, value, kind in given:
        if not isinstance(value, kind):
            raise InvalidArgument(owner, parameter, f"of type {kind.__name__}", type(value).__name__)


def one_of(owner: str, parameter: str, value: str, names: Iterable[str]) -> str:
    """Return `value` if it is one of `names`; otherwise say which of them it may have been."""
    known = list(names)
    if value not in known:
        small = {name.lower(): name for name in known}
        close = difflib.get_close_matches(str(value).lower(), small, n=1)
        hint = f" (did you mean {small[close[0]]!r}?)" if close else ""
        raise InvalidArgument(owner, parameter, f"one of {', '.join(known)}{hint}", value)
    return value


def repeats(owner: str, value: object) -> tuple[bool, int]:
    """Return whether an item rests once it was shown, and for how many others (0: for good).

    Examples
    --------
    >>> repeats("f", True), repeats("f", False), repeats("f", 20)
    ((False, 0), (True, 0), (True, 20))
    """
    if isinstance(value, bool):
        return not value, 0
    rule = "True, False, or a number of other items, from 1 to 1000"
    try:
        return True, integer(owner, "repeats", value, low=1, high=1_000)
    except InvalidArgument:
        raise InvalidArgument(owner, "repeats", rule, value) from None
