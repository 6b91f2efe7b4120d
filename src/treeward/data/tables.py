"""Tables on disk (CSV, TSV, Parquet) and .npy matrices, read with a mapping of columns to roles."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import polars as pl

from treeward.core.artefact import StrPath
from treeward.core.errors import DataError
from treeward.core.files import open_npy
from treeward.core.types import AnyArray
from treeward.data.column_roles import ITEM_ROLES, LOG_ROLES, check_roles

_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"


def _read_text(path: Path, separator: str) -> pl.DataFrame:
    """Read everything as text first: a column is numeric only if all its rows are, and "007" is an id."""
    table = pl.read_csv(path, separator=separator, infer_schema=False, glob=False)
    return table.select(narrowed(column) for column in table)


def narrowed(column: pl.Series) -> pl.Series:
    """Return texts as numbers if all of them are; "007" is none."""
    filled = column.drop_nulls()
    if filled.str.contains(_INTEGER).all():
        return column.cast(pl.Int64) if len(filled) else column
    numbers = column.cast(pl.Float64, strict=False)
    padded = filled.str.contains(r"^[+-]?0[0-9]").any()
    return column if padded or numbers.null_count() > column.null_count() else numbers


READERS: dict[str, Callable[[Path], pl.DataFrame]] = {
    ".csv": lambda path: _read_text(path, ","),
    ".parquet": lambda path: pl.read_parquet(path, glob=False),
    ".tsv": lambda path: _read_text(path, "\t"),
}


def read_matrix(path: StrPath) -> AnyArray:
    """Open a .npy matrix as a read-only memory map."""
    try:
        matrix = open_npy(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as a .npy matrix: {error}") from error
    if matrix.ndim != 2:
        raise DataError(f"{path}: does not hold one matrix of shape (items, dimensions)")
    return matrix


def read_table(path: StrPath) -> pl.DataFrame:
    """Read a CSV, TSV or Parquet file, chosen by its ending."""
    if not Path(path).is_file():
        folder = "it is a folder, and holds nothing that treeward saved"
        what = folder if Path(path).is_dir() else "there is no such file"
        raise DataError(f"{path}: cannot be read: {what}")
    reader = READERS.get(Path(path).suffix.lower())
    if reader is None:
        raise DataError(f"{path}: unknown ending; treeward reads {', '.join(sorted(READERS))} tables and .npy matrices")
    try:
        return reader(Path(path))
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from error


def read_items(
    path: StrPath, columns: Mapping[str, str], vectors: StrPath | None = None, need_vectors: bool = True
) -> tuple[pl.DataFrame, AnyArray | None]:
    """Read a table of items: its columns, renamed, without the vectors; and the vectors, None if it has none."""
    table = read_table(path)
    check_roles(columns, ITEM_ROLES if vectors is None else _without_vector(ITEM_ROLES))
    if vectors is not None:
        matrix = read_matrix(vectors)
        if len(matrix) != table.height:
            raise DataError(
                f"{vectors} has {len(matrix)} rows, {path} has {table.height}: one vector per item is needed"
            )
        return _with_ids(path, _rename(path, table, columns)), matrix
    named = columns.get("vector", "vector")
    table, found = _take_vectors(path, table, named)
    if found is None and (need_vectors or "vector" in columns):
        raise DataError(
            f"{path}: no column {named!r} for the vector, nor numbered ones ({named}0, {named}1, ...); it has "
            f"{', '.join(table.columns)}. If one holds them: --column vector=NAME (columns={{'vector': 'NAME'}}). "
            f"If there are none: treeward embed text {path} -o items makes them from texts, "
            f"treeward embed svd LOG --items {path} -o items from a log"
        )
    return _with_ids(path, _rename(path, table, {role: columns[role] for role in _without_vector(columns)})), found


def _with_ids(path: StrPath, table: pl.DataFrame) -> pl.DataFrame:
    """Refuse a table in which an item has no id, or that of an earlier one; name the first one's line."""
    if "id" in table.columns:
        ids = table["id"]
        for bad, why in ((ids.is_null(), "no id"), (~ids.is_first_distinct(), "an id that an earlier item has")):
            if bad.any():
                row = bad.arg_true()[0]
                raise DataError(f"{place_of(path, table, row)}: {why}{'' if ids[row] is None else f', {ids[row]!r}'}")
    return table


def _without_vector(roles: Iterable[str]) -> list[str]:
    return [role for role in roles if role != "vector"]


def read_events(path: StrPath, columns: Mapping[str, str]) -> pl.DataFrame:
    """Read a table of events, its columns renamed to user, item, reward, action and time."""
    check_roles(columns, LOG_ROLES)
    table = _rename(path, read_table(path), columns)
    _require_all(path, table, {role: role for role in ("user", "item")})
    made = []
    if "reward" in table.columns and (table["reward"].dtype == pl.String or table["reward"].dtype.is_numeric()):
        made.append(table["reward"].cast(pl.Float64, strict=False))
        _require_sound(path, table, "reward", made[0].is_finite(), "a finite number")
    if "time" in table.columns and table["time"].dtype == pl.String:
        made.append(_times(table["time"]))
        missing = table["time"].is_null()
        _require_sound(path, table, "time", made[-1].is_not_null() | missing, "an integer or like 2026-01-31T12:00:00")
    return table.with_columns(made)


def _times(texts: pl.Series) -> pl.Series:
    """Return texts as the kind of time that most of them are, integers or datetimes; null where one is not."""
    numbers = texts.cast(pl.Int64, strict=False)
    try:
        moments = texts.str.to_datetime(strict=False)
    except pl.exceptions.PolarsError:  # not one of them is
        return numbers
    return numbers if numbers.null_count() < moments.null_count() else moments


def _require_sound(path: StrPath, table: pl.DataFrame, name: str, sound: pl.Series, rule: str) -> None:
    """Refuse a table with a value of a column that is not sound; name the first one's line."""
    bad = (~sound.fill_null(False)).arg_true()
    if len(bad):
        raise DataError(f"{place_of(path, table, bad[0])}: the {name} must be {rule}, not {table[name][bad[0]]!r}")


def place_of(path: StrPath, table: pl.DataFrame, row: int) -> str:
    """Return the file and the line of a table's row (in a Parquet file, which has no lines, the row itself)."""
    if Path(path).suffix.lower() == ".parquet":
        return f"{path}, row {row + 1}"
    texts = table[:row].select(pl.col(pl.String).str.count_matches("\n").sum())  # quoted fields may span lines
    return f"{path}, line {row + 2 + sum(texts.row(0)) if texts.width and row else row + 2}"


def _rename(path: StrPath, table: pl.DataFrame, columns: Mapping[str, str]) -> pl.DataFrame:
    _require_all(path, table, columns)
    if len(set(columns.values())) != len(columns):
        raise DataError(f"a column may have one role only, not {dict(columns)}")
    # A column with the name of a role, but without the role, is dropped in favour of the column that has it.
    others = [name for name in table.columns if name not in columns and name not in columns.values()]
    return table.select(*(pl.col(column).alias(role) for role, column in columns.items()), *others)


def _require_all(path: StrPath, table: pl.DataFrame, columns: Mapping[str, str]) -> None:
    """Refuse a table that lacks columns; name all that it lacks, and all that it has."""
    missing = {role: column for role, column in columns.items() if column not in table.columns}
    if missing:
        lacks = ", ".join(f"no column {column!r} for the {role}" for role, column in missing.items())
        fix = " ".join(f"--column {role}=NAME" for role in missing)
        told = ", ".join(f"{role!r}: 'NAME'" for role in missing)
        raise DataError(f"{path}: {lacks}; it has {', '.join(table.columns)}. Name them: {fix} (columns={{{told}}})")


def _take_vectors(path: StrPath, table: pl.DataFrame, named: str) -> tuple[pl.DataFrame, AnyArray | None]:
    if named in table.columns:
        return table.drop(named), _stack(path, table[named])
    pattern = re.compile(re.escape(named) + r"_?(\d+)")
    numbered = sorted((int(match[1]), name) for name in table.columns if (match := pattern.fullmatch(name)))
    if not numbered:
        return table, None
    names = [name for _, name in numbered]
    if not all(table[name].dtype.is_numeric() for name in names):
        raise DataError(f"{path}: the vector columns {names[0]} to {names[-1]} are not all numbers")
    return table.drop(names), table.select(pl.col(names).cast(pl.Float32)).to_numpy(order="c")


def _stack(path: StrPath, column: pl.Series) -> AnyArray:
    if column.dtype == pl.String:
        try:
            column = column.str.strip_chars("[]() ").str.extract_all(r"[^\s,;]+").cast(pl.List(pl.Float32))
        except pl.exceptions.PolarsError as error:
            raise DataError(f"{path}: column {column.name!r} holds text that is not a list of numbers") from error
    if isinstance(column.dtype, pl.Array):
        column = column.arr.to_list()
    if not isinstance(column.dtype, pl.List):
        raise DataError(f"{path}: column {column.name!r} must hold a list of numbers in each row, not {column.dtype}")
    lengths = column.list.len()
    if column.null_count() or lengths.n_unique() != 1:
        raise DataError(
            f"{path}: the vectors in column {column.name!r} must all have one length, "
            f"not {lengths.min()!r} to {lengths.max()!r} with {column.null_count()} missing"
        )
    flat = column.explode()
    if not flat.dtype.is_numeric():
        raise DataError(f"{path}: column {column.name!r} must hold lists of numbers, not of {flat.dtype}")
    return flat.cast(pl.Float32).to_numpy().reshape(column.len(), -1)
