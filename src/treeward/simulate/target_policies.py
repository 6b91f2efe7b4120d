"""Fixed policies by name, to be evaluated from a log: popular items, uniform, a table, or your own."""

from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from treeward.core.errors import DataError, InvalidArgument
from treeward.core.registry import find, is_own, make
from treeward.data.catalogue import Catalogue
from treeward.data.tables import READERS, read_table

NAMES = ("uniform", "popular")
_TOP, _SHARE, _PRIOR_EVENTS = 10, 0.8, 10


class Candidate(NamedTuple):
    """A policy that does not learn."""

    name: str
    words: str
    target: Callable[[Any], ArrayLike]
    """For a user, the probability of every row of the catalogue."""


def check_name(owner: str, name: str) -> None:
    """Refuse an unknown name before anything is read."""
    if name in NAMES or is_own(name) or (Path(name).suffix.lower() in READERS and Path(name).is_file()):
        return
    rule = f"one of {', '.join(NAMES)}, a table of items and probabilities (.csv, .parquet), or FILE.py:FUNCTION"
    raise InvalidArgument(owner, "target", rule, name)


def candidate(owner: str, name: str, catalogue: Catalogue, may: NDArray[np.bool_], log: pl.DataFrame) -> Candidate:
    """Return a policy by its name: one of `NAMES`, a table of items and probabilities, or ``file.py:function``.

    Parameters
    ----------
    owner, name
        The caller, and the policy's name. A function of your own gets the catalogue and returns a function of a user.
    catalogue
        The items, by row.
    may
        The rows that ``uniform`` and ``popular`` choose from.
    log
        The decisions. Popular for a user is what earned most in the half of the users that they are not in.
    """
    if name == "uniform":
        chances = may / may.sum()
        return Candidate(name, f"any of {int(may.sum()):,} items, all as likely", lambda user: chances)
    if name == "popular":
        top = min(_TOP, int(may.sum()))
        words = f"{_SHARE:.0%} of the time one of the {top} items that earned most with other users, else any"
        return Candidate(name, words, _popular(may, log, top))
    if is_own(name):
        made = find(owner, "target", name, "a function of the catalogue")
        target = make(owner, "target", name, made, catalogue)
        if not callable(target):
            raise InvalidArgument(owner, "target", "a function that returns a function of a user", name)
        return Candidate(name, f"what {name} says", target)
    check_name(owner, name)
    return Candidate(name, f"the probabilities of {name}", _of_table(name, catalogue))


def _popular(may: NDArray[np.bool_], log: pl.DataFrame, top: int) -> Callable[[Any], ArrayLike]:
    half = np.array([_half(user) for user in log["user"].to_list()], dtype=np.bool_)
    rows, rewards = log["row"].to_numpy(), log["reward"].fill_null(0.0).cast(pl.Float64).to_numpy()
    chances = {}
    for mine in (False, True):
        others = half != mine
        counts = np.bincount(rows[others], minlength=len(may))[: len(may)]
        sums = np.bincount(rows[others], rewards[others], minlength=len(may))[: len(may)]
        mean = rewards[others].mean() if others.any() else 0.0
        means = np.where(may, (sums + _PRIOR_EVENTS * mean) / (counts + _PRIOR_EVENTS), -np.inf)
        made = (1 - _SHARE) * may / may.sum()
        made[np.argsort(-means, kind="stable")[:top]] += _SHARE / top
        chances[mine] = made
    return lambda user: chances[_half(user)]


def _half(user: object) -> bool:
    """Return which half of all users a user is in; it never changes."""
    return bool(blake2b(repr(user).encode(), digest_size=1).digest()[0] & 1)


def _of_table(path: str, catalogue: Catalogue) -> Callable[[Any], ArrayLike]:
    table = read_table(path)
    if not {"item", "probability"} <= set(table.columns):
        raise DataError(f"{path}: must have the columns item and probability, and user if they differ by user")
    try:
        chances = table["probability"].cast(pl.Float64)
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path}: its column probability must hold numbers") from error
    row_of = {item: row for row, item in enumerate(catalogue.ids.to_list())}
    rows = [row_of.get(item, -1) for item in table["item"].to_list()]
    if -1 in rows:
        raise DataError(f"{path}: has the item {table['item'][rows.index(-1)]!r}, which the catalogue lacks")
    users = table["user"].to_list() if "user" in table.columns else [None] * len(rows)
    held: dict[object, NDArray[np.float64]] = {}
    for user, row, chance in zip(users, rows, chances.to_list(), strict=True):
        held.setdefault(user, np.zeros(len(catalogue)))[row] += chance if chance is not None else np.nan
    for user, made in held.items():
        if not abs(made.sum() - 1) <= 1e-3 or (made < 0).any():
            whose = "" if user is None else f" of the user {user!r}"
            raise DataError(f"{path}: the probabilities{whose} must be at least 0 and sum to 1, not {made.sum():g}")

    def target(user: object) -> ArrayLike:
        found = held.get(None if "user" not in table.columns else user)
        if found is None:
            raise DataError(f"{path}: has no probabilities for the user {user!r} of the log")
        return found

    return target
