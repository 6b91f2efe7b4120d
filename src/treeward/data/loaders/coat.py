"""Coat: ratings of coats that users chose themselves, and of coats drawn at random, with features of both."""

from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core import checks
from treeward.core.errors import DataError
from treeward.data.catalogue import Catalogue
from treeward.data.delimited import Reading
from treeward.data.interactions import Interactions
from treeward.data.loaders.base import Loaded, loader

SIGNS = ("train.ascii",)
LEVELS = tuple(str(rating) for rating in range(1, 6))
"""Ratings, as the column `action` of the two logs names them."""


@loader("coat")
def load(path: Path, reading: Reading, *, positive: float = 4) -> Loaded:
    """Read a folder with `train.ascii`, `test.ascii`, `user_features.ascii` and `item_features.ascii`.

    The column `action` of both logs holds the rating: ``log.weighed({"1": 1, "2": 2, ...})`` makes it the reward.

    Parameters
    ----------
    path
        The folder.
    positive
        From which rating on the reward is 1.
    """
    path = path.parent if path.is_file() else path
    threshold = checks.number("coat", "positive", positive)
    chosen = _matrix(path / "train.ascii", reading, len(LEVELS))
    users, items = chosen.shape
    drawn = _matrix(path / "test.ascii", reading, len(LEVELS), rows=users, columns=items)
    people = _matrix(path / "user_features.ascii", reading, 1, rows=users)
    things = _matrix(path / "item_features.ascii", reading, 1, rows=items)
    log, random = (_log(ratings, threshold) for ratings in (chosen, drawn))
    features = pl.DataFrame(
        {"user": np.arange(users)} | {f"feature{at}": people[:, at].astype(np.float32) for at in range(people.shape[1])}
    )
    source = {"read": {"events": len(log), "random": len(random)}, "positive": threshold}
    shop = Catalogue(np.arange(items), things.astype(np.float32))
    return Loaded("coat", shop, log, source, random=random, user_features=features)


def _log(ratings: NDArray[np.int64], positive: float) -> Interactions:
    user, item = np.nonzero(ratings)
    rating = ratings[user, item]
    named = pl.Series(rating).cast(pl.String)
    return Interactions(user, item, rewards=(rating >= positive).astype(np.float32), actions=named)


def _matrix(
    path: Path, reading: Reading, highest: int, *, rows: int | None = None, columns: int | None = None
) -> NDArray[np.int64]:
    """Return a matrix of integers from 0 to `highest`.

    A bad line always raises, strict or not: without it, every later line would be another user's.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: there is no such file") from error
    if not raw.strip():
        raise DataError(f"{path}: is empty")
    reading.digest.update(raw)
    made: list[list[int]] = []
    lines = raw.decode("utf-8", "replace").rstrip().split("\n")
    for number, line in enumerate(lines, 1):
        where = f"{path.name}, line {number}"
        values = _integers(where, line.split(), highest)
        columns = len(values) if columns is None else columns
        if len(values) != columns:
            raise DataError(f"{where}: has {len(values)} values, not {columns}")
        if rows is not None and number > rows:
            raise DataError(f"{where}: there should be only {rows} lines")
        made.append(values)
    if rows is not None and len(made) < rows:
        raise DataError(f"{path.name}, line {len(made) + 1}: is missing: there should be {rows} lines")
    reading.progress(f"reading {path.name}", len(raw), len(raw))
    return np.array(made, dtype=np.int64)


def _integers(where: str, words: list[str], highest: int) -> list[int]:
    legal = {str(value): value for value in range(highest + 1)}
    what = f"a rating from 1 to {highest}, or 0 where there is none" if highest > 1 else "0 or 1"
    for word in words:
        if word not in legal:
            raise DataError(f"{where}: {word!r} is not {what}")
    return [legal[word] for word in words]
