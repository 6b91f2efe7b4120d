"""Delimited text of any size, read piece by piece; every malformed line is counted, with its reason and its place."""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import polars as pl

from treeward.core.errors import DataError
from treeward.core.progress import Progress, silent

PolarsType = pl.DataType | type[pl.DataType]

_PIECE = 32 << 20
_JOINED = b"\x1f"
_BOM = b"\xef\xbb\xbf"
_MARK = "�"


class Problem(NamedTuple):
    """One kind of fault."""

    times: int
    where: str
    """The first of them: file and line."""


class Piece(NamedTuple):
    """Some lines of a file, as text, with their numbers in the column `line`."""

    rows: pl.DataFrame
    path: Path
    reading: "Reading"

    def keep(self, good: pl.Expr, reason: str) -> "Piece":
        """Return the rows for which `good` holds, and count the others."""
        told = self.rows.select(good.fill_null(False).alias("good"))["good"]
        if told.all():
            return self
        lines = self.rows.filter(~told)["line"]
        self.reading.note(reason, len(lines), f"{self.path.name}, line {lines[0]}")
        return self._replace(rows=self.rows.filter(told))

    def typed(self, kind: PolarsType, *names: str) -> "Piece":
        """Return the rows with some columns of a type; null where that is impossible. Spaces around values are fine."""
        columns = []
        for column in (self.rows[name] for name in names):
            if column.dtype == kind:
                continue
            made = column.cast(kind, strict=False)
            if made.null_count() > column.null_count():  # rare, so that it may take its time
                made = column.str.strip_chars().cast(kind, strict=False)
            columns.append(made)
        return self._replace(rows=self.rows.with_columns(columns))


class Reading:
    """One pass over the files of a data set: reports progress, hashes every byte, counts malformed lines by kind.

    Parameters
    ----------
    strict
        Raise `DataError` at the first malformed line instead.
    progress
        Called with (stage, done, total).
    """

    def __init__(self, strict: bool = False, progress: Progress | None = None) -> None:
        self.strict, self.progress, self.digest = strict, progress or silent, sha256()
        self.found: dict[str, Problem] = {}

    def note(self, reason: str, count: int, where: str, *, fatal: bool = True) -> None:
        """Count faults of a kind; one that is not fatal is counted even if strict."""
        if count:
            if self.strict and fatal:
                raise DataError(f"{where}: {reason}")
            before = self.found.get(reason, Problem(0, where))
            self.found[reason] = Problem(before.times + count, before.where)

    def left_out(self, what: str, count: int) -> None:
        """Count what a filter left out, which is no fault."""
        self.note(what, count, "filter", fatal=False)

    def pieces(
        self,
        path: Path,
        names: Sequence[str],
        *,
        separator: str = ",",
        header: bool = False,
        quoted: bool = False,
        least: int | None = None,
        types: Mapping[str, PolarsType] | None = None,
        kept_marks: Sequence[str] = (),
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
            Types of columns (see `Piece.typed`): a piece without a fault is then parsed as these at once, far faster.
        kept_marks
            Columns in which bytes that are not UTF-8 do not make a line bad: such a line is taken for Latin-1.
        """
        line, first = 1, None
        exact = [name for name in names if name not in kept_marks]
        for raw in self._whole_lines(path):
            text = _readable(raw) if kept_marks else raw
            rows = _parse(path, text, names, separator, quoted, types)
            rows = rows.with_columns(pl.int_range(line, line + rows.height, dtype=pl.Int64).alias("line"))
            line += rows.height
            if header:
                first = _header(path, rows[names[0]]) if first is None else first
                rows = self._without_header(path, rows, names[0], first)
            yield _checked(Piece(rows, path, self), names, exact, least or len(names))

    def lines(self, path: Path) -> Iterator[tuple[int, bytes]]:
        """Yield the lines of a file with their numbers, from 1, and without their ends; for formats of one's own."""
        number = 0
        for raw in self._whole_lines(path):
            for line in raw.removesuffix(b"\n").split(b"\n"):
                number += 1
                yield number, line

    def _whole_lines(self, path: Path) -> Iterator[bytes]:
        """Yield a file in pieces that end where lines end."""
        if not path.is_file():
            raise DataError(f"{path}: cannot be read: there is no such file")
        total, done, rest = path.stat().st_size, 0, b""
        if not total:
            raise DataError(f"{path}: is empty")
        with path.open("rb") as file:
            while block := file.read(_PIECE):
                self.digest.update(block)
                whole = rest + (block if done else block.removeprefix(_BOM))
                cut = whole.rfind(b"\n") + 1
                done += len(block)
                if cut:
                    yield whole[:cut]
                rest = whole[cut:]
                self.progress(f"reading {path.name}", done, total)
        if rest:
            yield rest

    def _without_header(self, path: Path, rows: pl.DataFrame, name: str, first: str) -> pl.DataFrame:
        headers = rows.filter(pl.col(name) == first)
        again = headers.filter(pl.col("line") > 1)
        if again.height:
            self.note("repeated header", again.height, f"{path.name}, line {again['line'][0]}")
        return rows.filter((pl.col(name) != first).fill_null(True)) if headers.height else rows


def _readable(piece: bytes) -> bytes:
    """Return text in UTF-8; each line that is not is taken for Latin-1, as the titles of older files are."""
    try:
        piece.decode()
    except UnicodeDecodeError:
        if b"\n" not in piece:
            return piece.decode("latin-1").encode()
        return b"\n".join(map(_readable, piece.split(b"\n")))
    return piece


def _header(path: Path, column: pl.Series) -> str:
    found = str(column[0])
    if found.strip().lstrip("-").isdigit():
        raise DataError(f"{path.name}, line 1: {found!r} where the header should be")
    return found


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
        # A null may be a fault or an empty field: only the slow way can tell which.
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


def _checked(piece: Piece, names: Sequence[str], exact: Sequence[str], least: int) -> Piece:
    """Return the lines that have the right number of columns, and no stray bytes in the columns `exact`."""
    piece = piece.keep(~pl.all_horizontal(pl.col(*names).is_null()), "empty line")
    piece = piece.keep(pl.col("more").is_null(), "too many columns")
    piece = piece.keep(pl.col(names[least - 1]).is_not_null(), "missing columns")
    exact = [name for name in exact if piece.rows[name].dtype == pl.String]
    if exact:
        marked = pl.any_horizontal(pl.col(*exact).str.contains(_MARK, literal=True).fill_null(False))
        piece = piece.keep(~marked, "not UTF-8")
    return piece._replace(rows=piece.rows.drop("more"))
