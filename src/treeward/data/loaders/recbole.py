"""RecBole's data sets: `NAME.inter`, and `NAME.item` and `NAME.user` next to it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from treeward.core import checks
from treeward.core.errors import DataError, InvalidArgument
from treeward.core.types import Floats
from treeward.data.atomic_files import FLOAT, FLOATS, TOKEN, TOKENS, AtomicFile
from treeward.data.catalogue import Catalogue
from treeward.data.column_roles import ITEM_ROLES, split_roles
from treeward.data.delimited import Piece, Reading
from treeward.data.interactions import Interactions, checked_weights
from treeward.data.loaders.base import Loaded, loader
from treeward.data.loaders.tabular import weighed
from treeward.data.tables import narrowed

SIGNS = ("*.inter",)

_LABEL, _RATING = "label", "rating"
_OF_LOG = {
    "user": ("user_id",), "item": ("item_id",), "reward": (_LABEL, _RATING), "action": ("action",),
    "time": ("timestamp",),
}  # fmt: skip
_OF_ITEMS = {
    "title": ("title", "movie_title", "name"), "category": ("category", "categories", "genre", "genres", "class"),
}  # fmt: skip
"""The usual fields of a role."""
_THRESHOLDS = ((1, 1.0), (5, 4.0), (10, 7.0))
"""The highest rating there may be, and from which one on the reward is then 1."""
_MOST_VALUES = 100
"""A token of users with more values than this, such as a postcode, is no feature."""
_WHOLE, _SPAN = 2.0**53, 9e12
"""Times that a float holds exactly; and those in seconds that can have fractions."""


@loader("recbole")
def load(
    path: Path,
    reading: Reading,
    *,
    positive: float | None = None,
    ratings: Sequence[float] | None = None,
    columns: Mapping[str, str] | None = None,
    actions: Mapping[str, float] | None = None,
    separator: str = " ",
) -> Loaded:
    """Read `NAME.inter`, and `NAME.item` and `NAME.user` if they are next to it.

    The reward is the field `label`, 0 or 1; without one, 1 from the rating `positive` on; without ratings, 1.

    Parameters
    ----------
    path
        `NAME.inter`, or a folder with one.
    positive
        From which rating on the reward is 1; by default 1 where the highest rating is 1, 4 where it is 5, 7 where it
        is 10. Otherwise it must be given.
    ratings
        The lowest and the highest legal rating. Others are left out, and counted in `Dataset.dropped`.
    columns
        Which field of `NAME.inter` is the `user`, `item`, `reward` (label or rating), `action` and `time`, and which
        of `NAME.item` is the `id`, `vector`, `title` and `category`; by default those with the usual names. The vector
        is the field of type float_seq. The category of an item is the first token of a token_seq.
    actions
        What each action is worth, such as ``{"click": 0.1, "buy": 1}``, instead of labels and ratings.
    separator
        What separates the parts of a sequence.
    """
    threshold = None if positive is None else checks.number("recbole", "positive", positive)
    legal = None if ratings is None else _bounds(ratings)
    checks.kinds("recbole", ("columns", columns or {}, Mapping), ("separator", separator, str))
    if not separator:
        raise InvalidArgument("recbole", "separator", "a text of at least one character", separator)
    weights = None if actions is None else checked_weights("recbole", actions)
    of_log, of_items = split_roles(columns or {})
    file = AtomicFile.of(_log_of(path))
    if _RATING in file.fields and (threshold is not None or legal is not None):
        of_log = {"reward": _RATING, **of_log}
    roles = file.roles(of_log, _OF_LOG, ("user", "item"))
    if roles.get("reward", _LABEL) == _LABEL and (threshold is not None or legal is not None):
        raise DataError(f"{file.path.name}, line 1: no field for ratings: leave positive and ratings out, or name it")
    events = pl.concat([_checked(piece, roles, legal) for piece in file.pieces(reading, {**roles})])
    if not events.height:
        faults = ", ".join(reading.found)
        raise DataError(f"{file.path}: holds no events" + (f"; its lines have: {faults}" if faults else ""))
    listed = _items(file.path.with_suffix(".item"), roles["item"], of_items, separator, reading)
    known = _ids(pl.concat([listed["id"], events["item"]]))  # of one type in both files
    listed = listed.with_columns(known[: listed.height].alias("id"))
    events = events.with_columns(_ids(events["user"]), known[listed.height :].alias("item"))
    rewards, source = _rewards(file, events, roles, threshold)
    log = Interactions(
        events["user"], events["item"], rewards=rewards, actions=events["action"] if "action" in roles else None,
        times=_times(events["time"]) if "time" in roles else None,
    )  # fmt: skip
    if weights is not None:
        log, other = weighed(log, weights, reading)
        source = {"rewards": "actions", "actions": weights, "other_actions": other}
    source |= {
        "file": file.path.name, "read": {"events": events.height},
        "not_used": [name for name in file.fields if name not in roles.values()],
    }  # fmt: skip
    people, unused = _people(file.path.with_suffix(".user"), roles["user"], log, reading)
    source["not_used_of_users"] = unused
    catalogue = _catalogue(listed, log, file.path.with_suffix(".item"), reading)
    return Loaded(file.path.stem, catalogue, log, source, user_features=people)


def _bounds(given: Sequence[float]) -> tuple[float, float]:
    rule = "the lowest and the highest rating, such as [1, 5]"
    if not isinstance(given, list | tuple) or len(given) != 2:
        raise InvalidArgument("recbole", "ratings", rule, given)
    low, high = (checks.number("recbole", "ratings", one) for one in given)
    if low >= high:
        raise InvalidArgument("recbole", "ratings", rule, given)
    return low, high


def _log_of(path: Path) -> Path:
    """Return the log of a folder: of several, the one that is named like the folder."""
    if not path.is_dir():
        return path
    found = sorted(path.glob(SIGNS[0]))
    named = path / f"{path.resolve().name}.inter"
    if not found:
        raise DataError(f"{path}: cannot be read: it holds no file NAME.inter")
    if len(found) > 1 and named not in found:
        raise DataError(f"{path}: holds several logs ({', '.join(one.name for one in found)}): name one of the files")
    return named if named in found else found[0]


def _checked(piece: Piece, roles: Mapping[str, str], legal: tuple[float, float] | None) -> pl.DataFrame:
    """Return the events of a piece that are complete and legal."""
    piece = piece.keep(pl.col("user").is_not_null() & pl.col("item").is_not_null(), "no user or item")
    if "time" in roles:
        time = pl.col("time")
        piece = piece.keep(time.abs() <= pl.when(time == time.floor()).then(_WHOLE).otherwise(_SPAN), "bad time")
    if "reward" in roles:
        piece = piece.keep(pl.col("reward").is_not_null(), f"no {roles['reward']}")
        if legal is not None:
            piece = piece.keep(pl.col("reward").is_between(*legal), f"rating outside {legal[0]:g} to {legal[1]:g}")
        elif roles["reward"] == _LABEL:
            piece = piece.keep(pl.col("reward").is_in([0.0, 1.0]), "label is neither 0 nor 1")
    return piece.rows.drop("line")


def _rewards(
    file: AtomicFile, events: pl.DataFrame, roles: Mapping[str, str], positive: float | None
) -> tuple[pl.Series | None, dict[str, Any]]:
    """Return the rewards, None where all are 1, and where they come from."""
    if "reward" not in roles:
        return None, {"rewards": "every event"}
    name, values = roles["reward"], events["reward"]
    if name == _LABEL:
        return values.cast(pl.Float32), {"rewards": name}
    low, high = values.to_numpy().min(), values.to_numpy().max()
    if positive is None:
        positive = next((threshold for most, threshold in _THRESHOLDS if high == most), None)
    if positive is None:
        fix = "say from which on the reward is 1: --loader-option positive=NUMBER (positive=NUMBER)"
        raise DataError(f"{file.path}: {name!r} goes from {low:g} to {high:g}; {fix}")
    return (values >= positive).cast(pl.Float32), {"rewards": name, "positive": positive}


def _ids(tokens: pl.Series) -> pl.Series:
    """Return tokens as integers if all of them are, and none begins with a zero."""
    made = narrowed(tokens)
    return made if made.dtype.is_integer() else tokens


def _times(seconds: pl.Series) -> pl.Series:
    """Return times as integers, or as datetimes if they have fractions."""
    whole = seconds.cast(pl.Int64)
    return whole if (whole == seconds).all() else (seconds * 1e6).cast(pl.Int64).cast(pl.Datetime("us"))


def _items(path: Path, item: str, given: Mapping[str, str], separator: str, reading: Reading) -> pl.DataFrame:
    """Return the items that are listed: `id`, perhaps `title`, `category` and `vector`, and other fields."""
    if not path.is_file():
        if given:
            raise DataError(f"{path}: cannot be read: there is no such file, and columns names fields of it")
        return pl.DataFrame(schema={"id": pl.String})
    file = AtomicFile.of(path)
    sequences = tuple(name for name, kind in file.fields.items() if kind == FLOATS)
    if len(sequences) > 1 and "vector" not in given:
        fix = "say which is the vector: --column vector=NAME (columns={'vector': 'NAME'})"
        raise DataError(f"{path.name}, line 1: {', '.join(sequences)} are of type {FLOATS}; {fix}")
    roles = file.roles(given, {"id": (item,), **_OF_ITEMS, "vector": sequences}, ("id",))
    taken = {*roles.values(), *sequences, *ITEM_ROLES}
    others = {f"field {name}": name for name in file.fields if name not in taken}
    parts, dim = [], 0
    for piece in file.pieces(reading, roles | others, separator=separator, latin=True):
        piece = piece.keep(pl.col("id").is_not_null(), "no id")
        if "vector" in roles:
            piece = piece.keep(pl.col("vector").list.len() > 0, "no vector")
            dim = dim or int(piece.rows.head(1)["vector"].list.len().sum())
            piece = piece.keep(pl.col("vector").list.len() == dim, "vector of another length than the first")
        parts.append(piece.rows)
    whole = Piece(pl.concat(parts), path, reading).keep(pl.col("id").is_first_distinct(), "item listed before").rows
    if not whole.height:
        faults = ", ".join(reading.found)
        raise DataError(f"{path}: holds no items" + (f"; its lines have: {faults}" if faults else ""))
    if "category" in roles and file.fields[roles["category"]] == TOKENS:
        tokens = pl.col("category").str.split(separator).list.first().str.strip_chars(" ,")
        whole = whole.with_columns(pl.col("category").alias(f"field {roles['category']}"), tokens)
        others[f"field {roles['category']}"] = roles["category"]
    others = {column: name for column, name in others.items() if name not in ITEM_ROLES}
    return whole.select(*roles, *others).rename(others)


def _catalogue(listed: pl.DataFrame, log: Interactions, path: Path, reading: Reading) -> Catalogue:
    """Return the items. Those that occur in the log only are added; where items have vectors, they are only counted."""
    if "vector" in listed.columns:
        unlisted = int((~log.items.is_in(listed["id"].implode())).sum())
        reading.note("item not in the catalogue", unlisted, path.name, fatal=False)
        vectors: Floats = listed["vector"].list.to_array(len(listed["vector"][0])).to_numpy()
        return Catalogue.of_table(listed.drop("vector"), vectors)
    found = log.items.unique().sort()
    missing = found.filter(~found.is_in(listed["id"].implode()))
    return Catalogue.of_table(pl.concat([listed, pl.DataFrame({"id": missing})], how="diagonal"))


def _people(path: Path, user: str, log: Interactions, reading: Reading) -> tuple[pl.DataFrame | None, list[str]]:
    """Return the features of the log's users, and the fields that give none.

    Numbers are taken as they are, and tokens one-hot. A missing number is the mean.
    """
    if not path.is_file():
        return None, []
    file = AtomicFile.of(path)
    file.roles({"user": user}, {}, ())
    kinds = {name: kind for name, kind in file.fields.items() if kind in (TOKEN, FLOAT) and name not in (user, "user")}
    columns = {"user": user} | {f"field {name}": name for name in kinds}
    parts = [piece.keep(pl.col("user").is_not_null(), "no user").rows for piece in file.pieces(reading, columns)]
    whole = Piece(pl.concat(parts), path, reading).keep(pl.col("user").is_first_distinct(), "user listed before").rows
    everybody = pl.DataFrame({"user": log.users.unique(maintain_order=True)})
    names = everybody.select(pl.col("user").cast(pl.String))
    unlisted = names.join(whole, on="user", how="anti").height
    reading.note("user not in the file of users", unlisted, path.name, fatal=False)
    rows = names.join(whole, on="user", how="left", maintain_order="left")
    made, used = {"user": everybody["user"]}, {user}
    for name, kind in kinds.items():
        values = rows[f"field {name}"]
        found = values.drop_nulls().unique().sort()
        if kind == FLOAT and len(found):
            made[name] = values.fill_null(values.mean())
        elif kind != FLOAT and 1 < len(found) <= _MOST_VALUES:
            made |= {f"{name}={one}": (values == one).fill_null(False).cast(pl.Float32) for one in found}
        else:
            continue
        used.add(name)
    return pl.DataFrame(made) if len(made) > 1 else None, [name for name in file.fields if name not in used]
