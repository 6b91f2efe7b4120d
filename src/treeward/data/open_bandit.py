"""A log of decisions, checked, and written in the layout of the Open Bandit data set."""

from pathlib import Path

import numpy as np
import polars as pl

from treeward.core.artefact import StrPath, write_file
from treeward.core.errors import InvalidArgument
from treeward.data.catalogue import Catalogue

COLUMNS = ("user", "row", "slot", "propensity", "reward")
"""Columns that every log of decisions has."""


def checked_log(owner: str, log: object) -> tuple[pl.DataFrame, int]:
    """Return a log of decisions whose propensities are probabilities, and how many were left out.

    Adopted decisions are left out: no policy drew them, so their propensity means nothing. A missing reward is 0.
    """
    if not isinstance(log, pl.DataFrame) or not set(COLUMNS) <= set(log.columns):
        found = log.columns if isinstance(log, pl.DataFrame) else type(log).__name__
        raise InvalidArgument(owner, "log", f"a table with the columns {', '.join(COLUMNS)}", found)
    given = log.height
    log = _drawn(owner, log)
    chances = log["propensity"].cast(pl.Float64, strict=False)
    if not log.height or chances.null_count() or not ((chances > 0) & (chances <= 1)).all():
        raise InvalidArgument(owner, "log", "of at least one decision, with propensities above 0 and up to 1", log)
    if not (log["reward"].dtype.is_numeric() or log["reward"].dtype in (pl.Boolean, pl.Null)):
        raise InvalidArgument(owner, "log", "one with rewards that are numbers", f"dtype {log['reward'].dtype}")
    rewards = log["reward"].cast(pl.Float64).fill_null(0.0)
    if not rewards.is_finite().all():
        raise InvalidArgument(owner, "log", "one with finite rewards", "others")
    for name in ("row", "slot"):
        column = log[name]
        if not column.dtype.is_integer() or column.null_count() or (column < 0).any():
            raise InvalidArgument(owner, "log", f"one whose column {name!r} holds integers from 0 on", column.dtype)
    if log["user"].null_count():
        raise InvalidArgument(owner, "log", "one that names the user of every decision", "null")
    return log.with_columns(chances, rewards), given - log.height


def _drawn(owner: str, log: pl.DataFrame) -> pl.DataFrame:
    """Return the decisions that a policy drew, which are not marked as adopted."""
    if "adopted" not in log.columns:
        return log
    if log["adopted"].dtype != pl.Boolean or log["adopted"].null_count():
        raise InvalidArgument(owner, "log", "one whose column 'adopted' holds booleans", log["adopted"].dtype)
    made = log.filter(~pl.col("adopted"))
    if log.height and not made.height:
        rule = "of decisions that a policy drew; users held out and callers' own items (a fallback) do not count"
        raise InvalidArgument(owner, "log", rule, f"{log.height} that were all adopted")
    return made


def write_open_bandit(
    log: pl.DataFrame, catalogue: Catalogue, folder: StrPath, *, behaviour: str = "bts", campaign: str = "all"
) -> Path:
    """Write a log of decisions as ``FOLDER/<behaviour>/<campaign>/<campaign>.csv`` and ``item_context.csv``.

    Parameters
    ----------
    log
        What `Explorer.log` or ``simulate(..., log=True).log`` returned. Missing rewards are written as 0; adopted
        decisions are left out.
    catalogue
        The items. They are named by their row, because readers of this layout number them from 0.
    folder
        The folder to write to.
    behaviour, campaign
        Names of the two folders. Some readers only accept names of the original data set: ``random`` or ``bts``, and
        ``all``, ``men`` or ``women``.

    Returns
    -------
    Path
        The folder of the two files. There are no times in a log of decisions: `timestamp` counts them.
    """
    owner = "write_open_bandit"
    made, _ = checked_log(owner, log)
    if int(made["row"].max()) >= len(catalogue):  # type: ignore[arg-type]
        raise InvalidArgument(owner, "log", f"of rows below {len(catalogue)}", made["row"].max())
    for name, value in (("behaviour", behaviour), ("campaign", campaign)):
        if not value or Path(value).name != value:
            raise InvalidArgument(owner, name, "a name for a folder", value)
    numbers = np.arange(made.height)
    people = made["user"].rank("dense").cast(pl.Int64) - 1
    events = pl.DataFrame(
        {
            "": numbers,
            "timestamp": numbers,
            "item_id": made["row"],
            "position": made["slot"] + 1,
            "click": made["reward"],
            "propensity_score": made["propensity"],
            "user_feature_0": people,
        }
    )
    items: dict[str, object] = {"": np.arange(len(catalogue)), "item_id": np.arange(len(catalogue))}
    for index, column in enumerate(catalogue.vectors.T):
        items[f"item_feature_{index}"] = column
    place = Path(folder) / behaviour / campaign
    place.mkdir(parents=True, exist_ok=True)
    write_file(place / "item_context.csv", pl.DataFrame(items).write_csv().encode())
    write_file(place / f"{campaign}.csv", events.write_csv().encode())
    return place
