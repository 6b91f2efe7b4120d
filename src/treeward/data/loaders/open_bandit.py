"""Open Bandit: items shown by a known policy, each with its true propensity, and whether it was clicked."""

from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core.errors import DataError
from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue
from treeward.data.delimited import Piece, Reading
from treeward.data.interactions import Interactions
from treeward.data.loaders.base import Loaded, loader

SIGNS = ("item_context.csv",)
_ITEMS = "item_context.csv"
_NEEDED = ("item_id", "position", "click", "propensity_score")


@loader("open-bandit")
def load(path: Path, reading: Reading) -> Loaded:
    """Read one campaign of one policy: a folder such as `random/men` with `item_context.csv` and `men.csv`.

    The data names no users. Rows whose `user_feature` columns agree count as one user. An item's vector holds its
    numeric features, and its other features one-hot.
    """
    path = path.parent if path.is_file() else path
    file = path / f"{path.resolve().name}.csv"
    shop = _items(path / _ITEMS, reading)
    names = _columns(file, _NEEDED)
    features = [name for name in names if name.startswith("user_feature_")]
    if not features:
        raise DataError(f"{file.name}, line 1: has no column user_feature_0")
    pieces = [_checked(piece, len(shop), features) for piece in reading.pieces(file, names)]
    log = pl.concat(pieces)
    if not log.height:
        raise DataError(f"{file}: holds no decisions")
    clicks = Interactions(log["user"], shop.ids[log["row"].to_numpy()], rewards=log["reward"])
    source = {"file": f"{path.resolve().parent.name}/{file.stem}", "read": {"events": log.height}}
    return Loaded("open-bandit", shop, clicks, source, decisions=log)


def _columns(path: Path, needed: tuple[str, ...]) -> list[str]:
    """Return the names of a file's columns; the first one, a row number, has none."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            first = file.readline().rstrip("\r\n")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: there is no such file") from error
    names = [name or f"column {at}" for at, name in enumerate(first.removeprefix("\ufeff").split(","))]
    missing = [name for name in needed if name not in names]
    if missing or len(set(names)) < len(names):
        raise DataError(f"{path.name}, line 1: {f'has no column {missing[0]}' if missing else 'repeats a column'}")
    return names


def _items(path: Path, reading: Reading) -> Catalogue:
    names = _columns(path, ("item_id",))
    found = [_body(piece).typed(pl.Int64, "item_id") for piece in reading.pieces(path, names)]
    for piece in found:
        _require(piece, pl.col("item_id").is_not_null(), "item_id", "an integer")
    rows = pl.concat([piece.rows for piece in found])
    if not rows.height:
        raise DataError(f"{path}: holds no items")
    if rows["item_id"].n_unique() < rows.height:
        raise DataError(f"{path}: has an item twice")
    rows = rows.sort("item_id")
    features = [name for name in names if name.startswith("item_feature_")]
    parts = [_numbers(rows[name]) for name in features]
    vectors = np.concatenate(parts, axis=1) if parts else None
    return Catalogue(rows["item_id"], vectors, columns={name: rows[name] for name in features})


def _numbers(column: pl.Series) -> Floats:
    """Return a numeric feature as it is, and another one-hot, in the order of first appearance."""
    made = column.cast(pl.Float32, strict=False)
    if made.null_count() == 0 and made.is_finite().all():
        return made.to_numpy()[:, None]
    # By first appearance: the names are hashes, which differ from folder to folder.
    names = column.unique(maintain_order=True)
    hot: NDArray[np.float32] = (column.to_numpy()[:, None] == names.to_numpy()[None, :]).astype(np.float32)
    return hot


def _checked(piece: Piece, items: int, features: list[str]) -> pl.DataFrame:
    """Return the decisions of a piece as `off_policy` reads them."""
    made = _body(piece).typed(pl.Int64, "item_id", "position").typed(pl.Float64, "click", "propensity_score")
    made = made.keep(pl.col("item_id").is_not_null() & pl.col("position").is_not_null(), "bad number")
    made = made.keep(pl.col("position") >= 1, "position below 1")
    made = made.keep(pl.col("click").is_in([0.0, 1.0]), "click is neither 0 nor 1")
    # Never left out: estimates from the rest of the log would be biased.
    _require(made, pl.col("item_id").is_between(0, items - 1), "item_id", f"an item of {_ITEMS}")
    chance = pl.col("propensity_score")
    _require(made, (chance > 0) & (chance <= 1), "propensity_score", "above 0 and up to 1")
    return made.rows.select(
        pl.concat_str(features, separator="|", ignore_nulls=True).alias("user"),
        pl.col("item_id").alias("row"),
        (pl.col("position") - 1).alias("slot"),
        chance.alias("propensity"),
        pl.col("click").alias("reward"),
    )


def _body(piece: Piece) -> Piece:
    return piece._replace(rows=piece.rows.filter(pl.col("line") > 1))


def _require(piece: Piece, good: pl.Expr, column: str, rule: str) -> None:
    bad = piece.rows.filter(~good.fill_null(False))
    if bad.height:
        raise DataError(f"{piece.path.name}, line {bad['line'][0]}: {column} must be {rule}, got {bad[column][0]}")
