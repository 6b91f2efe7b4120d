"""RecBole's atomic files: tab-separated text, of which the first line names every field as ``field:type``."""

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Self

import polars as pl

from treeward.core.errors import DataError
from treeward.data.delimited import Piece, Reading

TOKEN, TOKENS, FLOAT, FLOATS = TYPES = ("token", "token_seq", "float", "float_seq")
_OF_ROLE = {
    "user": (TOKEN,), "item": (TOKEN,), "reward": (FLOAT,), "action": (TOKEN,), "time": (FLOAT,), "id": (TOKEN,),
    "vector": (FLOATS,), "title": (TOKEN, TOKENS), "category": (TOKEN, TOKENS),
}  # fmt: skip
"""The types that the field of a role may have."""
_MISSING = ("", "nan")


_READ_IF_THERE = ("reward", "action", "time")


class AtomicFile(NamedTuple):
    """A file, and its fields."""

    path: Path
    fields: Mapping[str, str]
    """The type of every field, in the order of the file."""

    @classmethod
    def of(cls, path: Path) -> Self:
        """Read the first line of a file."""
        try:
            with path.open(encoding="utf-8-sig", errors="replace") as file:
                first = file.readline().rstrip("\r\n")
        except OSError as error:
            raise DataError(f"{path}: cannot be read: there is no such file") from error
        if not first.strip():
            raise DataError(f"{path}: is empty, or begins with an empty line")
        made: dict[str, str] = {}
        where, rule = f"{path.name}, line 1", f"field:type, the type one of {', '.join(TYPES)}"
        for word in first.split("\t"):
            name, _, kind = word.strip().rpartition(":")
            if not name:
                raise DataError(f"{where}: {word!r} has no type: it must be {rule}")
            if kind not in TYPES:
                raise DataError(f"{where}: {word!r} has an unknown type: it must be {rule}")
            if name in made:
                raise DataError(f"{where}: repeats the field {name!r}")
            made[name] = kind
        return cls(path, made)

    def roles(
        self, given: Mapping[str, str], usual: Mapping[str, tuple[str, ...]], needed: Collection[str]
    ) -> dict[str, str]:
        """Return the field of each role: the one that was given, or the first of the usual ones of a fitting type.

        A usual field for rewards, actions or times must be of a fitting type: without it, the log would say
        something else.
        """
        made = {}
        for role in {**usual, **given}:
            kinds = _OF_ROLE[role]
            names = (given[role],) if role in given else usual[role]
            found = [name for name in names if name in self.fields]
            fitting = [name for name in found if self.fields[name] in kinds]
            if fitting:
                made[role] = fitting[0]
            elif role in given or role in needed or (found and role in _READ_IF_THERE):
                where, fix = f"{self.path.name}, line 1", f"--column {role}=NAME (columns={{{role!r}: 'NAME'}})"
                if found:
                    of = self.fields[found[0]]
                    raise DataError(
                        f"{where}: {found[0]!r}, the {role}, must be of type {' or '.join(kinds)}, not {of}"
                    )
                has = ", ".join(self.fields)
                raise DataError(f"{where}: no field {names[0]!r} for the {role}; it has {has}. Name it: {fix}")
        return made

    def pieces(
        self, reading: Reading, wanted: Mapping[str, str], *, separator: str = " ", latin: bool = False
    ) -> Iterator[Piece]:
        """Yield some fields, as columns of the names that `wanted` gives them; a missing value is null.

        Tokens and their sequences are text, numbers floats, sequences of numbers lists of floats. Lines with a field
        too few or too many, or with a bad number, are counted.

        Parameters
        ----------
        wanted
            The field of each column.
        separator
            What separates the numbers of a sequence.
        latin
            A line that is not UTF-8 is taken for Latin-1.
        """
        many = len(self.fields)
        # Split here, not by the parser, for which an empty last field and a missing one are the same.
        split = pl.col("text").str.strip_suffix("\r").str.split_exact("\t", many).alias("parts")
        kept = ("text",) if latin else ()
        for piece in reading.pieces(self.path, ("text",), separator="\x1f", header=True, kept_marks=kept):
            made = piece._replace(rows=piece.rows.select("line", split).unnest("parts"))
            made = made.keep(pl.col(f"field_{many - 1}").is_not_null(), "missing columns")
            made = made.keep(pl.col(f"field_{many}").is_null(), "too many columns")
            columns = [self._text(field).alias(name) for name, field in wanted.items()]
            made = made._replace(rows=made.rows.select("line", *columns))
            for name, field in wanted.items():
                if self.fields[field] in (FLOAT, FLOATS):
                    made = _numbers(made, name, separator if self.fields[field] == FLOATS else None)
            yield made

    def _text(self, field: str) -> pl.Expr:
        value = pl.col(f"field_{list(self.fields).index(field)}").str.strip_chars()
        return pl.when(~value.is_in(_MISSING)).then(value)


def _numbers(piece: Piece, name: str, separator: str | None) -> Piece:
    """Return a column of texts as numbers, or as lists of numbers where there is a separator."""
    made = pl.col(name)
    if separator is None:
        made = made.cast(pl.Float64, strict=False)
        good = made.is_finite()
    else:
        words = made.str.extract_all(f"[^{re.escape(separator)}]+")
        made = words.cast(pl.List(pl.Float32), strict=False)
        good = (made.list.drop_nulls().list.len() == words.list.len()) & made.list.sum().is_finite()
    piece = piece.keep(pl.col(name).is_null() | good, "bad number")
    return piece._replace(rows=piece.rows.with_columns(made))
