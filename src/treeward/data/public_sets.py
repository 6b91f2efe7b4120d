"""The public data sets behind the figures of the docs: where each is found, and whether a copy of it is the right one.

Nothing is downloaded. The table is `public_sets.toml`.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from hashlib import file_digest
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from treeward.core.artefact import StrPath
from treeward.core.errors import DataError

PUBLISHED, MEASURED = "as published", "as measured for the docs"


class PublicFile(NamedTuple):
    """A file that a loader reads."""

    name: str
    """Its path in the folder, as the loader expects it ..."""
    published: str
    """... and as it is published."""
    known: Mapping[str, str]
    """The SHA-256 of each known copy, by what that copy is."""


class PublicSet(NamedTuple):
    """A public data set."""

    title: str
    found: str
    """Where it is found."""
    terms: str
    loader: str
    files: tuple[PublicFile, ...]
    note: str = ""
    figures: bool = True
    """Whether figures of the docs were measured on it."""


class Checked(NamedTuple):
    """What became of a file."""

    file: PublicFile
    found: str | None
    """Its SHA-256; None if it is missing."""
    hint: str = ""
    """Where a missing file is, under its published name."""

    @property
    def copy(self) -> str | None:
        """Which of the known copies it is; None if it is none of them."""
        return next((what for what, known in self.file.known.items() if known == self.found), None)

    def __str__(self) -> str:
        name, known = self.file.name, " or ".join(f"{sum} ({what})" for what, sum in self.file.known.items())
        if self.found is None:
            return f"{name} is missing{self.hint}"
        return f"{name} is {self.copy}" if self.copy else f"{name} differs: its SHA-256 is {self.found}, not {known}"


@cache
def public_sets() -> dict[str, PublicSet]:
    """Return the data sets by name.

    Examples
    --------
    >>> public_sets()["sports"].loader
    'sequences'
    """
    table = tomllib.loads((files("treeward.data") / "public_sets.toml").read_text(encoding="utf-8"))
    return {name: _set(told) for name, told in table.items()}


def _set(told: dict[str, Any]) -> PublicSet:
    copies = {"sha256": PUBLISHED, "measured": MEASURED}
    parts = tuple(
        PublicFile(name, one.get("published", name), {copies[key]: one[key] for key in copies if key in one})
        for name, one in told["files"].items()
    )
    return PublicSet(**{**told, "files": parts, "note": " ".join(told.get("note", "").split())})


def check_copy(known: PublicSet, path: StrPath) -> list[Checked]:
    """Return for each file of a data set whether a folder has it, and its SHA-256."""
    folder = Path(path).parent if Path(path).is_file() else Path(path)
    if not folder.is_dir():
        raise DataError(f"{path}: cannot be read: there is no such file or folder")
    return [_checked(folder, file) for file in known.files]


def _checked(folder: Path, file: PublicFile) -> Checked:
    place, there = folder / file.name, folder / file.published
    if not place.is_file():
        return Checked(file, None, f": move {there} to {place}" if there.is_file() else "")
    try:
        with place.open("rb") as opened:
            return Checked(file, file_digest(opened, "sha256").hexdigest())
    except OSError as error:
        raise DataError(f"{place}: cannot be read: {error.strerror}") from error
