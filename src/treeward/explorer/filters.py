"""`Filters`: turns ids and conditions on the catalogue's columns into places that a call may show."""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core.errors import InvalidArgument, UnknownId
from treeward.core.types import Integers
from treeward.data.catalogue import Catalogue, Id
from treeward.engine.available import Flags
from treeward.store.base import User

if TYPE_CHECKING:
    from treeward.explorer.snapshot import Snapshot

Where = Mapping[str, Any] | pl.Expr
Exclude = Iterable[Id] | Mapping[User, Iterable[Id]]

_MOST_CACHED = 64
_BOUNDS = ("min", "max")


class Filters:
    """Turns ids and conditions into places. Results of conditions are cached, because they look at every item.

    Parameters
    ----------
    snapshot
        The items; some may be added or removed.
    always
        A condition for every call.
    """

    def __init__(self, snapshot: "Snapshot", always: Where | None = None) -> None:
        self._snapshot, self._always = snapshot, _plain(always)
        self._always_key = "" if self._always is None else _key(self._always)
        self._masks: OrderedDict[str, NDArray[np.bool_]] = OrderedDict()
        self._bases: OrderedDict[str, tuple[int, Flags]] = OrderedDict()

    @property
    def _catalogue(self) -> Catalogue:
        return self._snapshot.catalogue

    @property
    def _place_of(self) -> Integers:
        return self._snapshot.decider.positions.place_of_row

    def base(self, allow: Iterable[Id] | None, where: Where | None) -> tuple[Integers, bool, Flags]:
        """Return sorted places, whether only those are open, and otherwise which are."""
        where = _plain(where)
        free = where is None and self._always is None
        if allow is None:
            return np.zeros(0, dtype=np.int32), False, self._snapshot.decider.flags if free else self._flags(where)
        rows = self._rows("allow", allow)
        if not free:
            rows = rows[self._both(where)[rows]]
        places = np.unique(self._place_of[rows])
        places = places[places >= 0]
        return places[self._snapshot.open_places[places]], True, self._snapshot.decider.flags

    def _both(self, where: Where | None) -> NDArray[np.bool_]:
        """Return which rows fulfil the condition of a call, and that of every call."""
        masks = [self._mask(key, one) for key, one in self._conditions(where)]
        return masks[0] if len(masks) == 1 else masks[0] & masks[1]

    def _conditions(self, where: Where | None) -> list[tuple[str, Where]]:
        always = [] if self._always is None else [(self._always_key, self._always)]
        return always if where is None else [*always, (_key(where), where)]

    def _flags(self, where: Where | None) -> Flags:
        key, version = "|".join(key for key, _ in self._conditions(where)), self._snapshot.version
        known = self._bases.get(key)
        if known is None or known[0] != version:
            rows = self._snapshot.rows
            open = self._snapshot.open_places & (rows >= 0)
            known = version, Flags.of(open & self._both(where)[np.maximum(rows, 0)])
            _cache(self._bases, key, known)
        return known[1]

    def extra(self, exclude: Exclude | None, users: Sequence[User]) -> tuple[Integers, NDArray[np.int64]]:
        """Return the places closed to each user, one user's after another's, and where each one's end."""
        ends = np.zeros(len(users) + 1, dtype=np.int64)
        if exclude is None:
            return np.zeros(0, dtype=np.int32), ends
        if isinstance(exclude, Mapping):
            each = [self._places_of(exclude.get(user, ())) for user in users]
        else:
            each = [self._places_of(exclude)] * len(users)
        np.cumsum([len(places) for places in each], out=ends[1:])
        return np.concatenate([*each, np.zeros(0, dtype=np.int32)]), ends

    def _places_of(self, ids: Iterable[Id]) -> Integers:
        places = self._place_of[self._rows("exclude", ids)]
        return places[places >= 0]

    def _rows(self, parameter: str, ids: Iterable[Id]) -> NDArray[np.int64]:
        """Return the rows of ids; unknown ids are ignored, ids of the wrong type are refused."""
        if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
            raise InvalidArgument("Explorer.recommend", parameter, "a list of item ids", ids)
        text = not self._catalogue.ids_are_integers
        rows = []
        for id in ids:
            if isinstance(id, str) != text or (
                not text and (isinstance(id, bool) or not isinstance(id, int | np.integer))
            ):
                kind = "strings" if text else "integers"
                raise InvalidArgument("Explorer.recommend", parameter, f"item ids, which are {kind} here", id)
            try:
                rows.append(self._catalogue.row(id))
            except UnknownId:
                continue
        return np.array(rows, dtype=np.int64)

    def _mask(self, key: str, where: Where) -> NDArray[np.bool_]:
        if key not in self._masks or len(self._masks[key]) != len(self._catalogue):
            _cache(self._masks, key, fulfilled(self._catalogue, where))
        return self._masks[key]


def fulfilled(catalogue: Catalogue, where: Where) -> NDArray[np.bool_]:
    """Return which rows of a catalogue fulfil a condition; a row with null in one of its columns does not."""
    try:
        condition = where if isinstance(where, pl.Expr) else _condition(where, catalogue.table)
        found = catalogue.table.select(condition.alias("open"))["open"]
    except (TypeError, OverflowError, pl.exceptions.PolarsError) as error:
        raise _bad(str(error).splitlines()[0]) from error
    if found.dtype != pl.Boolean or len(found) != len(catalogue):
        raise _bad(f"{len(found)} values of {found.dtype}")
    return found.fill_null(False).to_numpy()


def _cache(cache: "OrderedDict[str, Any]", key: str, value: object) -> None:
    cache[key] = value
    if len(cache) > _MOST_CACHED:
        cache.popitem(last=False)


def _plain(where: Where | None) -> Where | None:
    """Return a condition in plain Python values, so that equal conditions have equal keys."""
    if where is None or isinstance(where, pl.Expr):
        return where
    if not isinstance(where, Mapping):
        raise _bad(where)
    made: dict[str, Any] = {}
    for name, wanted in where.items():
        values = wanted.tolist() if isinstance(wanted, np.ndarray | np.generic) else wanted
        if isinstance(values, Mapping):
            made[name] = dict(values)
        elif isinstance(values, Collection | pl.Series) and not isinstance(values, str):
            made[name] = list(values)
        else:
            made[name] = values
    return made or None


def _key(where: Where) -> str:
    if isinstance(where, pl.Expr):
        try:
            return str(where.meta.serialize(format="json"))
        except pl.exceptions.PolarsError as error:
            raise _bad(f"one that cannot be serialized: {str(error).splitlines()[0]}") from error
    return repr(sorted((str(name), repr(wanted)) for name, wanted in where.items()))


def _bad(value: object) -> InvalidArgument:
    rule = "a condition on catalogue columns: {column: value, [values] or {'min': ..., 'max': ...}}, or an expression"
    return InvalidArgument("Explorer.recommend", "where", rule, value)


def _condition(where: Mapping[str, Any], table: pl.DataFrame) -> pl.Expr:
    condition = pl.lit(True)
    for name, wanted in where.items():
        if name not in table.columns:
            raise _bad(f"{name!r}, which is none of {table.columns}")
        column = pl.col(name)
        if isinstance(wanted, Mapping):
            if not wanted or not set(wanted) <= set(_BOUNDS):
                raise _bad(wanted)
            if "min" in wanted:
                condition = condition & (column >= wanted["min"])
            if "max" in wanted:
                condition = condition & (column <= wanted["max"])
        elif isinstance(wanted, Collection) and not isinstance(wanted, str):
            condition = condition & column.is_in(list(wanted))
        else:
            condition = condition & (column.is_null() if wanted is None else column == wanted)
    return condition
