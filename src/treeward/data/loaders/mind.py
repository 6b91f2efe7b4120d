"""MIND, the Microsoft News data: `news.tsv` and `behaviors.tsv` as published."""

from collections import Counter
from pathlib import Path

import polars as pl

from treeward.core import checks
from treeward.core.errors import DataError
from treeward.data.catalogue import Catalogue
from treeward.data.delimited import Reading
from treeward.data.interactions import CLICK, HISTORY, SKIP, Interactions
from treeward.data.loaders.base import Loaded, loader

SIGNS = ("behaviors.tsv", "*/behaviors.tsv")

_NEWS = ("id", "category", "subcategory", "title", "abstract", "url", "title_entities", "abstract_entities")
_BEHAVIORS = ("impression", "user", "time", "history", "shown")
_ACTIONS = pl.Enum([HISTORY, SKIP, CLICK])
_CATEGORIES = {"subcategory": "subcategory", "category": "topic"}
"""What may be an item's category: a column of news.tsv, and what it is called in the catalogue."""
_TIME = "%m/%d/%Y %I:%M:%S %p"


@loader("mind")
def load(path: Path, reading: Reading, *, category: str = "subcategory", complete_only: bool = True) -> Loaded:
    """Read a folder with both files, or one with several such folders (train, dev).

    Clicks have the reward 1, skips 0. The column `action` says where an event comes from: ``"history"`` (a click
    before the log began, without a time), ``"click"`` or ``"skip"`` of an impression; see `Interactions.impressions`.

    Parameters
    ----------
    path
        The folder. With folders for train and dev below it, the users of dev are for test, except those of train.
    category
        Which column of `news.tsv` is an item's category: ``"subcategory"``, as in the paper, or ``"category"``, which
        is coarser. The catalogue's table has both in any case, as `subcategory` and `topic`.
    complete_only
        Leave out users without a history or without impressions, as the paper does.
    """
    checks.one_of("mind", "category", category, _CATEGORIES)
    checks.flag("mind", "complete_only", complete_only)
    folders = [path] if (path / "behaviors.tsv").is_file() else sorted(p.parent for p in path.glob("*/behaviors.tsv"))
    if not folders:
        raise DataError(f"{path}: holds neither behaviors.tsv nor folders with one")
    folders.sort(key=lambda folder: "train" not in folder.name.lower())
    items = pl.concat([_news(folder / "news.tsv", reading) for folder in folders])
    items = items.unique("id", keep="first", maintain_order=True)
    items = items.with_columns(pl.col(_CATEGORIES[category]).alias("category"))
    read: Counter[str] = Counter()
    parts = [_behaviors(folder / "behaviors.tsv", reading, read) for folder in folders]
    earlier = pl.concat([frame.select("user").unique() for frame in parts[0]])["user"].unique().cast(pl.String)
    frames = [frame for part in parts for frame in part]
    parts.clear()
    users = _whole(path, frames, reading) if complete_only else pl.concat([f.select("user").unique() for f in frames])
    people = pl.Enum(users["user"].unique().cast(pl.String).sort())
    unlisted = pl.concat([frame.select("item").unique() for frame in frames])["item"].unique().cast(pl.String).sort()
    items = pl.concat([items, pl.DataFrame({"id": unlisted})], how="diagonal").unique(
        "id", keep="first", maintain_order=True
    )
    for at, frame in enumerate(frames):  # one at a time, so that there are never two copies of everything
        kept = frame.filter(pl.col("user").is_in(users["user"].unique().implode()))
        frames[at] = kept.with_columns(
            pl.col("user").cast(pl.String).cast(people), pl.col("item").cast(pl.String).cast(pl.Enum(items["id"]))
        )
    events = pl.concat(frames)
    frames.clear()
    source = {
        "folders": [folder.name for folder in folders], "read": dict(read), "category": category,
        "complete_only": complete_only,
    }  # fmt: skip
    earlier = earlier.filter(earlier.is_in(people.categories.implode()))
    found = Catalogue.of_table(items), Interactions.of_table(events), source
    return Loaded("mind", *found, earlier=earlier if len(folders) > 1 else None)


def _whole(path: Path, frames: list[pl.DataFrame], reading: Reading) -> pl.DataFrame:
    """Return the users who have both a history and impressions."""
    past = pl.col("action") == HISTORY
    each = [frame.group_by("user").agg(past.any().alias("past"), (~past).any().alias("now")) for frame in frames]
    whole = pl.concat(each).group_by("user").agg(pl.col("past", "now").any())
    kept = whole.filter(pl.col("past") & pl.col("now"))
    if not kept.height:
        raise DataError(f"{path}: no user has both a history and impressions; complete_only=False keeps the others")
    reading.left_out("user without history or impressions", whole.height - kept.height)
    return kept


def _news(path: Path, reading: Reading) -> pl.DataFrame:
    pieces = reading.pieces(path, _NEWS, separator="\t", least=4, kept_marks=("title", "abstract"))
    table = pl.concat([piece.keep(pl.col("id").is_not_null(), "no id").rows for piece in pieces])
    return table.select("id", "title", pl.col("category").alias("topic"), "subcategory", "abstract")


def _behaviors(path: Path, reading: Reading, read: Counter[str]) -> list[pl.DataFrame]:
    """Return the events: histories first, then the impressions a piece at a time."""
    shown, past = [], pl.DataFrame(schema={"user": pl.String, "history": pl.String, "words": pl.UInt32})
    for piece in reading.pieces(path, _BEHAVIORS, separator="\t"):
        read["impressions"] += piece.rows.height
        times = pl.col("time").str.to_datetime(_TIME, strict=False).dt.epoch("s")
        piece = piece._replace(rows=piece.rows.with_columns(times)).keep(pl.col("user").is_not_null(), "no user")
        piece = piece.keep(pl.col("time").is_not_null(), "bad time")
        reading.note("empty history", piece.rows["history"].null_count(), path.name, fatal=False)
        past = _longest(past, piece.rows.select("user", "history").drop_nulls(), read)
        long = piece.rows.select("line", "user", "time", pl.col("shown").str.extract_all(r"\S+")).explode("shown")
        long = long.with_columns(pl.col("shown").str.extract_groups(r"^(\S+)-([01])$").alias("parts"))
        known = pl.col("parts").struct.field("1").is_not_null()
        fine = piece._replace(rows=long).keep(known, "bad impression").rows
        clicked = pl.col("parts").struct.field("2") == "1"
        shown.append(
            fine.select(
                pl.col("user").cast(pl.Categorical),
                pl.col("parts").struct.field("1").cast(pl.Categorical).alias("item"),
                clicked.cast(pl.Float32).alias("reward"),
                pl.when(clicked).then(pl.lit(CLICK)).otherwise(pl.lit(SKIP)).cast(_ACTIONS).alias("action"),
                "time",
            )
        )
        read["shown"] += fine.height
        read["clicks"] += int(fine.select(clicked.sum()).item())
    past = past.select("user", pl.col("history").str.extract_all(r"\S+"))
    history = past.explode("history").select(
        pl.col("user").cast(pl.Categorical),
        pl.col("history").cast(pl.Categorical).alias("item"),
        pl.lit(1.0, pl.Float32).alias("reward"),
        pl.lit(HISTORY).cast(_ACTIONS).alias("action"),
        pl.lit(None, pl.Int64).alias("time"),
    )
    return [history, *shown]


def _longest(before: pl.DataFrame, more: pl.DataFrame, read: Counter[str]) -> pl.DataFrame:
    """Keep each user's longest history: it is repeated, and grows, at every impression."""
    more = more.with_columns(pl.col("history").str.count_matches(r"\S+").alias("words"))
    read["history clicks"] += int(more["words"].sum())
    both = pl.concat([before, more]).sort("words", descending=True, maintain_order=True)
    # Copied, or else the few strings that are kept would keep the whole piece in memory.
    return both.unique("user", keep="first", maintain_order=True).with_columns(pl.col("history") + "")
