"""Events as Parquet files, to and from other tools."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from treeward.core.errors import DataError, InvalidArgument, StoreError
from treeward.core.progress import Progress, Stage, silent
from treeward.core.types import AnyArray
from treeward.store.base import EventStore, User, count_users, join, read_all
from treeward.store.events import EVENT, NOTED, REWARD, SHOWN
from treeward.store.numbers import item_ids, number_items, number_snapshot, snapshot_digests

KINDS = ("shown", "reward", "change", "noted", "amended")
"""The names of the kinds of events in a file."""
_ROWS_PER_FILE = 1_000_000
_AT_ONCE = 1_000
_OPTIONAL = {
    "user_is_number": pl.lit(False),
    "kind": pl.lit("reward"),
    "reward": pl.lit(1.0),
    "propensity": pl.lit(None, dtype=pl.Float64),
    "node": pl.lit(-1),
    "tree": pl.lit(""),
    "decision": pl.lit(0),
    "time": pl.lit(0),
    "own": pl.lit(0.0),
}
_TEXTS = (pl.String, pl.Categorical, pl.Enum)
_FILLED = ("user_is_number", "node", "tree", "decision", "own")


class Moved(NamedTuple):
    """How much was written or read."""

    events: int
    users: int


def export(store: EventStore, folder: str | Path, progress: Progress = silent) -> Moved:
    """Write every event to a new folder of Parquet files; the events of a user are together and in order.

    Columns: user, user_is_number, item, kind, reward, propensity (of exposures; negative: estimated), node, tree (a
    digest), decision (0: none), time (null: unknown), own (what the user's own taste was estimated to add).

    Parameters
    ----------
    store
        The store to read.
    folder
        The folder to write; it must be new or empty.
    progress
        Called with (stage, done, total).
    """
    place = Path(folder)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise InvalidArgument("store export", "folder", "new, or an empty folder", str(folder))
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)  # only its owner may read who did what
        stage, events, users = Stage(progress, "writing users", count_users(store)), 0, 0
        for number, (names, parts) in enumerate(_bundles(store)):
            # Read after the events: everything that they refer to is known by now.
            table = _table(names, parts, item_ids(store), [*snapshot_digests(store), ""])
            part = place / f".{number:05}.part"
            table.write_parquet(part, metadata={"treeward": "events", "version": "1"})
            part.rename(place / f"{number:05}.parquet")
            events, users = events + table.height, users + len(names)
            stage.step(len(names))
        stage.finish()
    except OSError as error:
        raise StoreError(f"{place}: cannot be written ({error.strerror or error})") from error
    return Moved(events, users)


def _bundles(store: EventStore) -> Iterator[tuple[list[User], list[AnyArray]]]:
    """Return all users with their events, about a million events at a time."""
    names: list[User] = []
    parts: list[AnyArray] = []
    count = 0
    for user, events in read_all(store):
        names.append(user)
        parts.append(events)
        count += len(events)
        if count >= _ROWS_PER_FILE:
            yield names, parts
            names, parts, count = [], [], 0
    if names or not count_users(store):
        yield names, parts  # an empty store makes an empty table


def _table(names: list[User], parts: list[AnyArray], items: pl.Series, trees: list[str]) -> pl.DataFrame:
    events = join(parts)
    who = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    of_tree = np.minimum(events["snapshot"], len(trees) - 1).astype(np.int64)
    shown, known = pl.Series(events["kind"] == SHOWN), pl.Series(events["time"] > 0)
    return pl.DataFrame(
        {
            "user": pl.Series([_text(name) for name in names], dtype=pl.String)[who],
            "user_is_number": pl.Series([isinstance(name, int) for name in names], dtype=pl.Boolean)[who],
            "item": items[events["item"].astype(np.int64)],
            "kind": pl.Series(KINDS, dtype=pl.Enum(KINDS))[events["kind"].astype(np.int64)],
            "reward": events["reward"],
            "propensity": events["reward"],
            "node": events["node"],
            "tree": pl.Series(trees, dtype=pl.String)[of_tree],
            "decision": events["nonce"],
            "time": events["time"].astype(np.int64),
            "own": events["own"],
        }
    ).with_columns(
        pl.when(~shown).then("reward"),
        pl.when(shown).then("propensity"),
        pl.when(known).then(pl.from_epoch("time", "s")),
    )


def _text(name: User) -> str:
    """Return a name as text; characters that UTF-8 cannot encode become question marks."""
    return str(name).encode(errors="replace").decode()


def load(store: EventStore, path: str | Path, progress: Progress = silent) -> Moved:
    """Add the events of Parquet files to a store, all of them or none.

    Parameters
    ----------
    store
        The store to write.
    path
        A file, or a folder of files: what `export` wrote, or any table with the columns user and item, and optionally
        reward (default: 1) and time (seconds since 1970, or a date and time).
    progress
        Called with (stage, done, total).
    """
    stage = Stage(progress, "reading events", 3)
    found = _read(Path(path))
    stage.step()
    names, who = _users(found)
    events = _events(found, store)
    order = np.argsort(who, kind="stable")
    counts = np.bincount(who, minlength=len(names)).astype(np.int64)
    events = events[order]
    _refuse_known(store, names, counts, events, str(path))
    stage.step()
    store.extend(names, counts, events)
    stage.step()
    return Moved(len(events), len(names))


def _read(path: Path) -> pl.DataFrame:
    source = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not source:
        raise DataError(f"{path}: holds no .parquet file")
    try:
        table = pl.concat([pl.read_parquet(one) for one in source])
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{path}: cannot be read ({str(error).splitlines()[0]})") from error
    _check_columns(path, table)
    absent = [one.alias(name) for name, one in _OPTIONAL.items() if name not in table.columns]
    filled = [pl.col(name).fill_null(_OPTIONAL[name]) for name in _FILLED if name in table.columns]
    table = table.with_columns(absent).with_columns(filled)
    try:
        _check_times(path, table)
        return table.select(
            "user", "item", pl.col("user_is_number").cast(pl.Boolean),
            pl.col("kind").cast(pl.String).replace_strict(KINDS, range(len(KINDS)), return_dtype=pl.UInt8),
            pl.when(pl.col("kind").cast(pl.String) == "shown").then(pl.col("propensity").fill_null(1.0))
            .otherwise("reward").cast(pl.Float64).alias("reward"),
            pl.col("node").cast(pl.Int32), pl.col("tree").cast(pl.String), pl.col("decision").cast(pl.Int64),
            _seconds(table).fill_null(0).cast(pl.UInt32).alias("time"),
            pl.col("own").cast(pl.Float32),
        )  # fmt: skip
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path}: does not hold events ({str(error).splitlines()[0]})") from error


def _check_columns(path: Path, table: pl.DataFrame) -> None:
    """Refuse columns that are missing, have nulls, or are of a wrong type."""
    for name in ("user", "item"):
        if name not in table.columns:
            raise DataError(f"{path}: has no column {name!r}; it has {', '.join(table.columns)}")
        if table[name].null_count():
            raise DataError(f"{path}: row {table[name].is_null().arg_true()[0]} has no {name}")
        if not (table.schema[name].is_integer() or table.schema[name] in _TEXTS):
            raise DataError(f"{path}: {name!r} must hold texts or integers, not {table.schema[name]}")
    for name in _OPTIONAL:
        if name in table.columns and table.schema[name].is_nested():
            raise DataError(f"{path}: {name!r} must hold one value per row, not {table.schema[name]}")
    if "kind" in table.columns and table["kind"].null_count():
        raise DataError(f"{path}: row {table['kind'].is_null().arg_true()[0]} has no kind")


def _seconds(table: pl.DataFrame) -> pl.Expr:
    """Return the seconds since 1970; 0 and null: unknown."""
    time = pl.col("time")
    return time.dt.epoch("s") if table.schema["time"].is_temporal() else time.cast(pl.Int64)


def _check_times(path: Path, table: pl.DataFrame) -> None:
    """Refuse times that an event cannot hold: they would become unknown without notice."""
    wrong = table.select(~_seconds(table).is_between(0, 2**32 - 1).fill_null(True))["time"].arg_true()
    if len(wrong):
        found = table["time"][int(wrong[0])]
        rule = "a date and time, or seconds since 1970, up to the year 2106"
        much = isinstance(found, int | float) and found >= 2**32
        raise DataError(
            f"{path}: row {wrong[0]} has the time {found}, where it must be {rule}; 0 or empty: unknown"
            + (". Divide milliseconds by 1000" if much else "")
        )


def _users(table: pl.DataFrame) -> tuple[list[User], AnyArray]:
    """Return the users, in order of appearance, and for every row the position of its user among them."""
    keys = table.select("user", "user_is_number")
    each = keys.unique(maintain_order=True).with_row_index("place")
    who = keys.join(each, on=["user", "user_is_number"], how="left", maintain_order="left")["place"].to_numpy()
    numeric = table["user"].dtype.is_integer()
    try:
        names: list[User] = [int(name) if numeric or number else str(name) for _, name, number in each.iter_rows()]
    except ValueError as error:
        raise DataError(f"user_is_number is true for a user that is not a number: {error}") from error
    return names, who.astype(np.int64)


def _events(table: pl.DataFrame, store: EventStore) -> AnyArray:
    values = table["reward"]
    if values.null_count() or not values.is_finite().all():
        row = int((values.is_null() | ~values.is_finite().fill_null(True)).arg_true()[0])
        raise DataError(f"row {row} has no finite reward")
    items = table["item"] if table["item"].dtype.is_integer() else table["item"].cast(pl.String)
    ids = items.unique(maintain_order=True)
    trees = table["tree"].fill_null("").unique(maintain_order=True)
    made = np.zeros(table.height, dtype=EVENT)
    numbers = pl.Series(number_items(store, ids))
    made["item"] = items.replace_strict(ids, numbers).to_numpy()
    known = pl.Series([number_snapshot(store, one) if one else 0 for one in trees], dtype=pl.UInt16)
    made["snapshot"] = table["tree"].fill_null("").replace_strict(trees, known).to_numpy()
    made["nonce"] = table["decision"].to_numpy()
    for name in ("node", "reward", "kind", "time", "own"):
        made[name] = table[name].to_numpy()
    return made


def _refuse_known(store: EventStore, names: list[User], counts: AnyArray, events: AnyArray, path: str) -> None:
    """Refuse decisions that the store has already, or that the file has twice: they would count twice."""
    ends = np.cumsum(counts)
    first_time = np.isin(events["kind"], (REWARD, NOTED)) & (events["nonce"] != 0)
    pairs = np.stack([np.repeat(np.arange(len(names)), counts)[first_time], events["nonce"][first_time]], axis=1)
    if len(np.unique(pairs, axis=0)) != len(pairs):
        raise DataError(f"{path}: some decisions have more than one reward; nothing was added")
    for first in range(0, len(names), _AT_ONCE):
        some = names[first : first + _AT_ONCE]
        for i, held in enumerate(store.read(some), start=first):
            mine = events["nonce"][ends[i] - counts[i] : ends[i]]
            if len(held) and np.isin(mine[mine != 0], held["nonce"]).any():
                raise StoreError(f"{path}: decisions of {names[i]!r:.60} are in the store already; nothing was added")
