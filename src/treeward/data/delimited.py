"""Delimited text of any size, a piece at a time; what is wrong with a line is counted, never passed over in silence."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import polars as pl

from treeward.core.errors import DataError
from treeward.core.progress import Progress, silent

PolarsType = pl.DataType | type[pl.DataType]

_PIECE = 32 << 20
_JOINED = b"\x1f"
_BOM = b"\xef\xbb\xbf"
_MARK = "�"


class Digest(Protocol):
    """What takes bytes in, as those of hashlib do."""

    def update(self, data: bytes, /) -> None:
        """Take more bytes in."""
        ...


class Problem(NamedTuple):
    """One kind of fault."""

    times: int
    where: str
    """The first of them: file and line."""


class Problems:
    """What was wrong with the lines of some files, by kind.

    Parameters
    ----------
    strict
        Raise `DataError` at the first one instead.
    """

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict
        self.found: dict[str, Problem] = {}

    def note(self, reason: str, count: int, where: str, *, fatal: bool = True) -> None:
        """Count faults of a kind; one that is not fatal is counted even if strict."""
        if count:
            if self.strict and fatal:
                raise DataError(f"{where}: {reason}")
            before = self.found.get(reason, Problem(0, where))
            self.found[reason] = Problem(before.times + count, before.where)

    def keep(self, piece: "Piece", good: pl.Expr, reason: str) -> "Piece":
        """Return the rows for which `good` holds, and count the others."""
        told = piece.rows.select(good.fill_null(False).alias("good"))["good"]
        if told.all():
            return piece
        lines = piece.rows.filter(~told)["line"]
        self.note(reason, len(lines), f"{piece.path.name}, line {lines[0]}")
        return Piece(piece.path, piece.rows.filter(told))


class Piece(NamedTuple):
    """Some lines of a file, as text, with their numbers in the column `line`."""

    path: Path
    rows: pl.DataFrame


def read_pieces(
    path: Path,
    names: Sequence[str],
    problems: Problems,
    *,
    separator: str = ",",
    header: bool = False,
    quoted: bool = False,
    least: int | None = None,
    types: Mapping[str, PolarsType] | None = None,
    kept_marks: Sequence[str] = (),
    progress: Progress | None = None,
    digest: Digest | None = None,
) -> Iterator[Piece]:
    """Yield the rows of a file that have all the columns, as text; an empty field is null.

    Parameters
    ----------
    names
        The columns, in order.
    separator
        Of any length.
    header
        The first line is a header; so is any later one that repeats it.
    quoted
        Fields may be in double quotes.
    least
        How many columns a line must have; the rest may be missing. By default all.
    types
        What columns will be made of (see `typed`): a piece without a fault is then parsed as that at once, far faster.
    kept_marks
        Columns in which bytes that are not UTF-8 do not make a line bad: such a line is taken for Latin-1.
    digest
        Receives every byte.
    """
    line, first = 1, None
    exact = [name for name in names if name not in kept_marks]
    for piece in _whole_lines(path, progress or silent, digest):
        if kept_marks:
            piece = _readable(piece)
        rows = _parse(path, piece, names, separator, quoted, types)
        rows = rows.with_columns(pl.int_range(line, line + rows.height, dtype=pl.Int64).alias("line"))
        line += rows.height
        if header:
            first = _header(path, rows[names[0]]) if first is None else first
            rows = _without_header(path, rows, names[0], first, problems)
        yield _shaped(Piece(path, rows), names, exact, least or len(names), problems)


def _whole_lines(path: Path, report: Progress, digest: Digest | None) -> Iterator[bytes]:
    """Yield a file in pieces that end where lines end."""
    if not path.is_file():
        raise DataError(f"{path}: cannot be read: there is no such file")
    total, done, rest = path.stat().st_size, 0, b""
    if not total:
        raise DataError(f"{path}: is empty")
    with path.open("rb") as file:
        while block := file.read(_PIECE):
            if digest is not None:
                digest.update(block)
            whole = rest + (block if done else block.removeprefix(_BOM))
            cut = whole.rfind(b"\n") + 1
            done += len(block)
            if cut:
                yield whole[:cut]
            rest = whole[cut:]
            report(f"reading {path.name}", done, total)
    if rest:
        yield rest


def _readable(piece: bytes) -> bytes:
    """Return text in UTF-8, each line that is not taken for Latin-1, as the titles of older files are."""
    try:
        piece.decode()
    except UnicodeDecodeError:
        return b"\n".join(_readable_line(line) for line in piece.split(b"\n"))
    return piece


def _readable_line(line: bytes) -> bytes:
    try:
        line.decode()
    except UnicodeDecodeError:
        return line.decode("latin-1").encode()
    return line


def _header(path: Path, column: pl.Series) -> str:
    found = str(column[0])
    if found.strip().lstrip("-").isdigit():
        raise DataError(f"{path.name}, line 1: {found!r} where the header should be")
    return found


def typed(rows: pl.DataFrame, names: Sequence[str], kind: PolarsType) -> pl.DataFrame:
    """Return the rows with some columns of a type; null where that cannot be. Spaces around a value do not matter."""
    columns = []
    for name in names:
        if rows[name].dtype == kind:
            continue
        made = rows[name].cast(kind, strict=False)
        if made.null_count() > rows[name].null_count():  # rare, so that it may take its time
            made = rows[name].str.strip_chars().cast(kind, strict=False)
        columns.append(made)
    return rows.with_columns(columns)


def _parse(
    path: Path,
    piece: bytes,
    names: Sequence[str],
    separator: str,
    quoted: bool,
    types: Mapping[str, PolarsType] | None = None,
) -> pl.DataFrame:
    if types is not None:
        made = _parse_as(path, piece, {**dict.fromkeys(names, pl.String), **types}, separator, quoted)
        if not any(made[name].null_count() for name in names) and made["more"].null_count() == made.height:
            return made
    return _parse_as(path, piece, dict.fromkeys(names, pl.String), separator, quoted)


def _parse_as(
    path: Path, piece: bytes, columns: Mapping[str, PolarsType], separator: str, quoted: bool
) -> pl.DataFrame:
    mark = separator.encode()
    if len(mark) > 1:  # the parser takes one byte
        piece, mark = piece.replace(mark, _JOINED), _JOINED
    schema = {**columns, "more": pl.String}
    # A line of full width in front, which is cut off again, so that a short first line does not set the width.
    try:
        return pl.read_csv(
            mark.join([b"0"] * len(schema)) + b"\n" + piece,
            has_header=False,
            schema=schema,
            separator=mark.decode(),
            quote_char='"' if quoted else None,
            truncate_ragged_lines=True,
            ignore_errors=True,
            encoding="utf8-lossy",
        ).slice(1)
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from error


def _without_header(path: Path, rows: pl.DataFrame, name: str, first: str, problems: Problems) -> pl.DataFrame:
    headers = rows.filter(pl.col(name) == first)
    again = headers.filter(pl.col("line") > 1)
    if again.height:
        problems.note("repeated header", again.height, f"{path.name}, line {again['line'][0]}")
    return rows.filter((pl.col(name) != first).fill_null(True)) if headers.height else rows


def _shaped(piece: Piece, names: Sequence[str], exact: Sequence[str], least: int, problems: Problems) -> Piece:
    everything = pl.all_horizontal(pl.col(*names).is_null())
    piece = problems.keep(piece, ~everything, "empty line")
    piece = problems.keep(piece, pl.col("more").is_null(), "too many columns")
    piece = problems.keep(piece, pl.col(names[least - 1]).is_not_null(), "missing columns")
    exact = [name for name in exact if piece.rows[name].dtype == pl.String]
    if not exact:
        return Piece(piece.path, piece.rows.drop("more"))
    marked = pl.any_horizontal(pl.col(*exact).str.contains(_MARK, literal=True).fill_null(False))
    piece = problems.keep(piece, ~marked, "not UTF-8")
    return Piece(piece.path, piece.rows.drop("more"))
