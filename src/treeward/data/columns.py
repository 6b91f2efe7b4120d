"""Columns from lists, arrays or polars series, all checked in the same way."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core.errors import InvalidArgument

Values = Iterable[Any] | pl.Series | NDArray[Any]


def column(owner: str, name: str, values: Values, count: int | None = None) -> pl.Series:
    """Return `values` as a series of one type, `count` long if that is given."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidArgument(owner, name, "a list of values", values)
    if not isinstance(values, pl.Series | np.ndarray):
        values = list(values)
        if {int, float} <= {type(value) for value in values} <= {int, float, type(None)}:
            values = [None if value is None else float(value) for value in values]
    try:
        series = pl.Series(name, values)
    except (TypeError, OverflowError, pl.exceptions.PolarsError) as error:
        raise InvalidArgument(owner, name, "values of one type", str(error).splitlines()[0]) from error
    if series.dtype == pl.Object:
        raise InvalidArgument(owner, name, "values of one type that Arrow knows", "objects")
    if count is not None and len(series) != count:
        raise InvalidArgument(owner, name, f"{count} values, one for each row", f"{len(series)} values")
    return series


def ids(owner: str, name: str, values: Values, count: int | None = None) -> pl.Series:
    """Return ids as strings, 64-bit integers, or an enumeration of strings, without nulls."""
    series = column(owner, name, values, count)
    if series.dtype.is_integer():
        try:
            series = series.cast(pl.Int64)
        except pl.exceptions.PolarsError as error:
            raise InvalidArgument(owner, name, "integers below 2**63", series.max()) from error
    elif series.dtype == pl.Null and not len(series):
        series = series.cast(pl.String)
    elif series.dtype != pl.String and not isinstance(series.dtype, pl.Enum):
        raise InvalidArgument(owner, name, "all strings or all integers", f"dtype {series.dtype}")
    if series.null_count():
        raise InvalidArgument(owner, name, "without nulls", f"{series.null_count()} nulls")
    return series
