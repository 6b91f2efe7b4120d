"""Sequences: one line per user, an id and then items in order of time (as S3Rec prepared the Amazon reviews)."""

import json
from collections import Counter
from pathlib import Path

import polars as pl

from treeward.core.errors import DataError
from treeward.data.catalogue import Catalogue
from treeward.data.delimited import Reading
from treeward.data.interactions import Interactions
from treeward.data.loaders.base import Loaded, loader

SIGNS = ("sequences.txt",)

_COMMON = 0.1
_SEPARATOR = "|"


@loader("sequences")
def load(path: Path, reading: Reading) -> Loaded:
    """Read `sequences.txt`, or the folder it is in, with `item2attributes.json` next to it if there is one.

    The column `attributes` holds an item's attributes, separated by ``|``. Its category is the most frequent of those
    that under a tenth of the items have.
    """
    file = path / "sequences.txt" if path.is_dir() else path
    pieces = []
    for piece in reading.pieces(file, ("text",), separator="\x1f"):
        # Copied out of the pieces, which would otherwise all stay in memory.
        words = piece.rows.select("line", pl.col("text").str.extract_all(r"\S+").alias("words"))
        words = piece._replace(rows=words).keep(pl.col("words").list.len() > 1, "no items after the user").rows
        long = words.select(
            "line", pl.col("words").list.first().alias("user"), pl.col("words").list.slice(1).alias("item")
        ).explode("item")
        long = long.with_columns(pl.col("user", "item").cast(pl.Int64, strict=False))
        fine = piece._replace(rows=long).keep(pl.all_horizontal(pl.col("user", "item").is_not_null()), "bad number")
        pieces.append(fine.rows.select("user", "item"))
    events = pl.concat(pieces)
    if not events.height:
        raise DataError(f"{file}: holds no sequences")
    ids = events["item"].unique().sort()
    attributes = _attributes(file.parent / "item2attributes.json", ids, reading)
    catalogue = Catalogue(ids)
    if attributes is not None:
        listed = {"attributes": [_SEPARATOR.join(some) or None for some in attributes]}
        catalogue = Catalogue(ids, categories=_categories(attributes), columns=listed)
    source = {"file": file.name, "read": {"events": events.height}}
    return Loaded(file.parent.name, catalogue, Interactions(events["user"], events["item"]), source)


def _attributes(path: Path, ids: pl.Series, reading: Reading) -> list[list[str]] | None:
    if not path.is_file():
        return None
    raw = path.read_bytes()
    reading.digest.update(raw)
    try:
        attributes = {int(item): [str(attribute) for attribute in held] for item, held in json.loads(raw).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: must hold a list of attributes for each item number: {error}") from error
    return [attributes.get(item, []) for item in ids.to_list()]


def _categories(attributes: list[list[str]]) -> list[str | None]:
    counts = Counter(attribute for some in attributes for attribute in set(some))
    rare = {attribute for attribute, count in counts.items() if count < _COMMON * len(attributes)}
    return [max((a for a in some if a in rare), key=lambda a: (counts[a], a), default=None) for some in attributes]
