"""Sequences: a line a user, the user's id and then items in order of time (as S3Rec prepared the Amazon reviews)."""

import hashlib
import json
from collections import Counter
from pathlib import Path

import polars as pl

from treeward.core.errors import DataError
from treeward.core.progress import Progress
from treeward.data.catalogue import Catalogue
from treeward.data.dataset import Dataset, Sizes, split_users
from treeward.data.delimited import Problems, read_pieces
from treeward.data.interactions import Interactions

SIGNS = ("sequences.txt",)

_COMMON = 0.1
_SEPARATOR = "|"


def load(
    path: Path,
    *,
    test: int | float = 0.2,
    validation: int | float = 0.1,
    seed: int = 0,
    strict: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Read `sequences.txt`, or the folder it is in, with `item2attributes.json` next to it if there is one.

    The column `attributes` holds an item's attributes, separated by ``|``. Its category is the most frequent of those
    that under a tenth of the items have.

    Parameters
    ----------
    path
        The file or its folder.
    test, validation
        Users for test and validation: numbers, or shares.
    seed
        Who is for what.
    strict
        Raise at the first malformed line.
    progress
        Called with (stage, done, total).
    """
    file = path / "sequences.txt" if path.is_dir() else path
    problems, digest = Problems(strict), hashlib.sha256()
    pieces = []
    for piece in read_pieces(file, ("text",), problems, separator="\x1f", progress=progress, digest=digest):
        # Copied out of the pieces, which would otherwise all stay in memory.
        words = piece.rows.select("line", pl.col("text").str.extract_all(r"\S+").alias("words"))
        words = problems.keep(
            piece._replace(rows=words), pl.col("words").list.len() > 1, "no items after the user"
        ).rows
        long = words.select(
            "line", pl.col("words").list.first().alias("user"), pl.col("words").list.slice(1).alias("item")
        ).explode("item")
        long = long.with_columns(pl.col("user", "item").cast(pl.Int64, strict=False))
        fine = pl.all_horizontal(pl.col("user", "item").is_not_null())
        pieces.append(problems.keep(piece._replace(rows=long), fine, "bad number").rows.select("user", "item"))
    events = pl.concat(pieces)
    if not events.height:
        raise DataError(f"{file}: holds no sequences")
    ids = events["item"].unique().sort()
    attributes = _attributes(file.parent / "item2attributes.json", ids, digest)
    source = {
        "loader": "sequences", "file": file.name, "sha256": digest.hexdigest(), "read": {"events": events.height},
        "test": test, "validation": validation, "seed": seed,
    }  # fmt: skip
    splits = split_users(events["user"], Sizes(test, validation), seed)
    log = Interactions(events["user"], events["item"])
    catalogue = Catalogue(ids)
    if attributes is not None:
        listed = {"attributes": [_SEPARATOR.join(some) or None for some in attributes]}
        catalogue = Catalogue(ids, categories=_categories(attributes), columns=listed)
    return Dataset(file.parent.name, catalogue, log, splits, dropped=problems.found, source=source)


def _attributes(path: Path, ids: pl.Series, digest: "hashlib._Hash") -> list[list[str]] | None:
    if not path.is_file():
        return None
    raw = path.read_bytes()
    digest.update(raw)
    try:
        attributes = {int(item): [str(attribute) for attribute in held] for item, held in json.loads(raw).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: must hold a list of attributes for each item number: {error}") from error
    return [attributes.get(item, []) for item in ids.to_list()]


def _categories(attributes: list[list[str]]) -> list[str | None]:
    counts = Counter(attribute for some in attributes for attribute in set(some))
    rare = {attribute for attribute, count in counts.items() if count < _COMMON * len(attributes)}
    return [max((a for a in some if a in rare), key=lambda a: (counts[a], a), default=None) for some in attributes]
