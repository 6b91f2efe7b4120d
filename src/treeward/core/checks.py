"""Checks of arguments: legal values are declared where a field or a parameter is, and one validator applies them.

A rule is written next to the type. `Literal`, `bool` and treeward's own classes need none; `X | None` and
`tuple[X, ...]` use the rule of `X`; a bare `int`, `float` or `str` is not checked::

    @dataclass(frozen=True)
    class LinUCB:
        alpha: Annotated[float, Number(low=0)] = 0.5
        estimate: Literal["linear", "mean"] = "linear"

        def rule(self, dim: int) -> Rule:
            own = checks.validate(self)      # InvalidArgument, or the same with its numbers as int and float

    @checks.checked()                        # the owner in messages is the function's qualified name
    def replay(catalogue: Catalogue, *, users: Count = 1_000, seed: Seed = 0) -> Result: ...

`rules_of(LinUCB)["alpha"].describe()` is "a finite number of at least 0", for help texts. A rule that depends on more
than the value (a budget on the depth of a tree) is checked in place by the functions below. Each of them raises
`InvalidArgument` in the same shape, or returns the value, made canonical.
"""

import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields
from functools import cache, wraps
from inspect import signature
from itertools import pairwise
from operator import is_
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, cast, get_args, get_origin

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from treeward.core.errors import InvalidArgument
from treeward.core.types import Floats

P = ParamSpec("P")
T = TypeVar("T")
_ROWS_AT_A_TIME = 1 << 16
_LARGEST_INTEGER = 2**63 - 1
MOST_ITEMS = 2**31 - 1
LONGEST_USER = 512
"""Characters of a user's name."""


class Check(ABC):
    """A rule for one value: what is legal, in words and as a check."""

    @abstractmethod
    def describe(self) -> str:
        """Return the rule in words, to be read after "must be"."""

    @abstractmethod
    def check(self, owner: str, parameter: str, value: Any) -> Any:
        """Return the value, made canonical, or raise `InvalidArgument`."""


@dataclass(frozen=True)
class Whole(Check):
    """An integer from `low` to `high`, both included."""

    low: int
    high: int = _LARGEST_INTEGER

    def describe(self) -> str:
        """Return the rule in words."""
        if self.high == _LARGEST_INTEGER:
            return f"an integer of at least {self.low}"
        return f"an integer from {self.low} to {self.high}"

    def check(self, owner: str, parameter: str, value: Any) -> int:
        """Return the value as an int, or raise `InvalidArgument`."""
        return integer(owner, parameter, value, low=self.low, high=self.high)


@dataclass(frozen=True)
class Number(Check):
    """A finite number within the bounds given: `low` and `high` are legal themselves, `above` and `below` are not."""

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None

    def describe(self) -> str:
        """Return the rule in words."""
        bounds = ((self.low, "of at least"), (self.above, "above"), (self.high, "of at most"), (self.below, "below"))
        rule = " and ".join(f"{word} {bound}" for bound, word in bounds if bound is not None)
        return f"a finite number {rule}".strip()

    def check(self, owner: str, parameter: str, value: Any) -> float:
        """Return the value as a float, or raise `InvalidArgument`."""
        if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
            raise InvalidArgument(owner, parameter, self.describe(), value)
        try:
            made = float(value)
        except OverflowError as error:
            raise InvalidArgument(owner, parameter, self.describe(), "one of very many digits") from error
        inside = (self.low is None or made >= self.low) and (self.high is None or made <= self.high)
        strictly = (self.above is None or made > self.above) and (self.below is None or made < self.below)
        if not (np.isfinite(made) and inside and strictly):
            raise InvalidArgument(owner, parameter, self.describe(), value)
        return made


@dataclass(frozen=True)
class OneOf(Check):
    """One of some words or integers, as a `Literal` declares. An empty one is legal, but not offered."""

    words: tuple[Any, ...]

    def describe(self) -> str:
        """Return the rule in words."""
        return f"one of {', '.join(str(word) for word in self.words if word != '')}"

    def check(self, owner: str, parameter: str, value: Any) -> Any:
        """Return the value, or raise `InvalidArgument` with the closest word."""
        if isinstance(value, np.ndarray) or value not in self.words:  # comparing an array with a word gives an array
            lower = {str(word).lower(): word for word in self.words}
            close = difflib.get_close_matches(str(value).lower(), lower, n=1)
            hint = f" (did you mean {lower[close[0]]!r}?)" if close else ""
            raise InvalidArgument(owner, parameter, f"{self.describe()}{hint}", value)
        return value


@dataclass(frozen=True)
class _Other(Check):
    """A rule that follows from a type: its words, and a function that checks."""

    words: str
    apply: Callable[[str, str, Any], Any]

    def describe(self) -> str:
        return self.words

    def check(self, owner: str, parameter: str, value: Any) -> Any:
        return self.apply(owner, parameter, value)


Count = Annotated[int, Whole(low=1)]
"""How many of something: at least one."""
Natural = Annotated[int, Whole(low=0)]
"""An integer that may be 0."""
Seed = Annotated[int, Whole(low=0)]
"""Where random numbers come from."""
Fraction = Annotated[float, Number(low=0, high=1)]
"""A part of a whole, both ends included."""
Positive = Annotated[float, Number(above=0)]
"""A number above 0."""
NotNegative = Annotated[float, Number(low=0)]
"""A number that may be 0."""


def rule_of(annotation: Any) -> Check | None:
    """Return the rule that a type annotation declares; None: it declares none.

    Examples
    --------
    >>> rule_of(Literal["a", "b"] | None).describe(), rule_of(tuple[Count, ...]).check("demo", "sizes", [1, 2])
    ('one of a, b', (1, 2))
    """
    origin, given = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return next((one for one in annotation.__metadata__ if isinstance(one, Check)), rule_of(given[0]))
    if origin is Literal:
        return OneOf(given)
    if origin in (Union, UnionType):
        rest = [one for one in given if one is not NoneType]
        return _or_none(rule_of(rest[0])) if len(rest) == 1 else None
    if (origin is tuple and given[1:] == (...,)) or origin in (list, Sequence):
        return _each(rule_of(given[0]))
    if annotation is bool:
        return _Other("True or False", flag)
    # Of classes only treeward's own: what comes from elsewhere is converted, or refused with a message that says how.
    own = isinstance(annotation, type) and origin is None and annotation.__module__.startswith("treeward")
    return _instance(annotation) if own and not getattr(annotation, "_is_protocol", False) else None


def _or_none(rule: Check | None) -> Check | None:
    if rule is None:
        return None
    return _Other(rule.describe(), lambda *given: None if given[-1] is None else rule.check(*given))


def _each(rule: Check | None) -> Check | None:
    if rule is None:
        return None
    words = f"a sequence, each element {rule.describe()}"

    def check(owner: str, parameter: str, value: Any) -> tuple[Any, ...]:
        text = isinstance(value, str | bytes | bytearray | memoryview)
        if text or not isinstance(value, Sequence | np.ndarray) or getattr(value, "ndim", 1) == 0:
            raise InvalidArgument(owner, parameter, words, value)
        made = tuple(rule.check(owner, parameter, one) for one in value)
        return value if isinstance(value, tuple) and all(map(is_, made, value)) else made

    return _Other(words, check)


def _instance(kind: type) -> Check:
    words = f"of type {kind.__name__}"

    def check(owner: str, parameter: str, value: Any) -> Any:
        if not isinstance(value, kind):
            raise InvalidArgument(owner, parameter, words, type(value).__name__)
        return value

    return _Other(words, check)


@cache
def rules_of(kind: Any) -> Mapping[str, Check]:
    """Return the rules of the fields of a dataclass or named tuple, by name."""
    types = kind.__annotations__ if issubclass(kind, tuple) else {one.name: one.type for one in fields(kind)}
    found = {name: rule_of(annotation) for name, annotation in types.items()}
    return {name: rule for name, rule in found.items() if rule is not None}


def validate(held: T, owner: str = "") -> T:
    """Return a dataclass or named tuple all of whose fields follow their rules; `owner` is by default its class.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class Demo:
    ...     seed: Seed = 0
    >>> validate(Demo(seed=-1))
    Traceback (most recent call last):
    treeward.core.errors.InvalidArgument: Demo: seed must be an integer of at least 0, got -1
    """
    kind: Any = type(held)
    changed = {}
    for name, rule in rules_of(kind).items():
        value = getattr(held, name)
        made = rule.check(owner or kind.__name__, name, value)
        if made is not value:
            changed[name] = made
    if not changed:
        return held
    if isinstance(held, tuple):
        return cast(T, held._replace(**changed))  # type: ignore[attr-defined]
    # Not `dataclasses.replace`: it calls `__init__`, whose parameters a subclass may have changed.
    other = copy(held)
    for name, made in changed.items():
        object.__setattr__(other, name, made)  # the class may be frozen
    return other


def checked(owner: str = "") -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Check the arguments that a function is called with, by its annotations; it gets them made canonical.

    `owner` is the function's qualified name, unless another is given.

    Examples
    --------
    >>> @checked("demo")
    ... def double(count: Count) -> int:
    ...     return 2 * count
    >>> double(2)
    4
    >>> double(0)
    Traceback (most recent call last):
    treeward.core.errors.InvalidArgument: demo: count must be an integer of at least 1, got 0
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        names = list(signature(function).parameters)
        found = {name: rule_of(kind) for name, kind in function.__annotations__.items() if name != "return"}
        rules = {name: rule for name, rule in found.items() if rule is not None}
        place = owner or function.__qualname__

        def made(name: str, value: Any) -> Any:
            rule = rules.get(name)
            return value if rule is None else rule.check(place, name, value)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            # Too many or unknown arguments go through, for Python's own complaint.
            first: Any = [*map(made, names, args), *args[len(names) :]]
            return function(*first, **cast(Any, {name: made(name, value) for name, value in kwargs.items()}))

        return call

    return decorate


def integer(owner: str, parameter: str, value: object, *, low: int, high: int = _LARGEST_INTEGER) -> int:
    """Return `value` as an int between `low` and `high`, both included.

    Examples
    --------
    >>> integer("demo", "seed", 3, low=0)
    3
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise InvalidArgument(owner, parameter, Whole(low, high).describe(), value)
    return int(value)


def widths(owner: str, value: Sequence[int], items: int) -> tuple[int, ...]:
    """Return node counts per level, from below the root to the leaves: increasing, at most one leaf per item."""
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


def number(owner: str, parameter: str, value: object, **bounds: float | None) -> float:
    """Return `value` as a finite float within bounds, as `Number` has them.

    Examples
    --------
    >>> number("demo", "rate", 1, low=0, below=2)
    1.0
    """
    return Number(**bounds).check(owner, parameter, value)


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


def choices(owner: str, given: Mapping[str, Any], kind: type) -> None:
    """Refuse words that are not among the choices of a field of `kind`, with a better message than that of `typed`."""
    for name, rule in rules_of(kind).items():
        if isinstance(rule, OneOf) and name in given:
            rule.check(owner, name, given[name])


def kinds(owner: str, *given: tuple[str, object, type]) -> None:
    """Refuse what is not of its type: (parameter, value, type) each."""
    for parameter, value, kind in given:
        if not isinstance(value, kind):
            raise InvalidArgument(owner, parameter, f"of type {kind.__name__}", type(value).__name__)


def one_of(owner: str, parameter: str, value: str, names: Iterable[str]) -> str:
    """Return `value` if it is one of `names`; otherwise name the closest one in the error."""
    return cast(str, OneOf(tuple(names)).check(owner, parameter, value))


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


def users(owner: str, value: Sequence[int | str]) -> list[int | str]:
    """Return users as plain strings and integers: all legal, and no two the same."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidArgument(owner, "users", "a list of users", value)
    made: list[int | str] = []
    for user in value:
        if type(user) is str and len(user) <= LONGEST_USER and user.isascii():  # the usual case, without a call
            made.append(user)
            continue
        whole = isinstance(user, int | np.integer) and not isinstance(user, bool)
        if not (whole and -(2**63) <= int(user) < 2**63) and not (isinstance(user, str) and _is_name(user)):
            rule = f"strings of at most {LONGEST_USER} characters, or 64-bit integers"
            raise InvalidArgument(owner, "users", rule, user)
        made.append(int(user) if whole else str(user))
    if len(set(made)) != len(made):
        raise InvalidArgument(owner, "users", "all different (ask for n items instead)", value)
    return made


def _is_name(user: str) -> bool:
    try:
        user.encode()
    except UnicodeEncodeError:  # half of a character
        return False
    return len(user) <= LONGEST_USER
