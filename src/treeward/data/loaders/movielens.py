"""MovieLens (latest, 1M, 100k) and MovieTweetings: ratings, titles, genres."""

import hashlib
from pathlib import Path
from typing import NamedTuple

import polars as pl

from treeward.core import checks
from treeward.core.errors import DataError
from treeward.core.progress import Progress
from treeward.data.catalogue import Catalogue
from treeward.data.dataset import Dataset, Sizes, split_users
from treeward.data.delimited import Digest, Piece, Problems, read_pieces, typed
from treeward.data.interactions import Interactions

SIGNS = ("ratings.csv", "ratings.dat", "u.data")

_GENRES_100K = (
    "unknown", "Action", "Adventure", "Animation", "Children", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
    "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip
_RATINGS = ("user", "item", "rating", "time")


class _Form(NamedTuple):
    ratings: str
    movies: str
    separator: str
    header: bool


_FORMS = (
    _Form("ratings.csv", "movies.csv", ",", True),
    _Form("ratings.dat", "movies.dat", "::", False),
    _Form("u.data", "u.item", "\t", False),
)


def load(
    path: Path,
    *,
    positive: float | None = None,
    test: int | float = 0.2,
    validation: int | float = 0.1,
    seed: int = 0,
    strict: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Read a folder with `ratings.csv`, `ratings.dat` or `u.data`, and the movies beside it.

    Parameters
    ----------
    path
        The folder.
    positive
        From which rating on the reward is 1; by default 4 where ratings go up to 5, 7 where they go up to 10.
    test, validation
        Users for test and validation: numbers, or shares.
    seed
        Who is for what.
    strict
        Raise at the first malformed line.
    progress
        Called with (stage, done, total).
    """
    path = path.parent if path.is_file() else path
    form = next((form for form in _FORMS if (path / form.ratings).is_file()), None)
    if form is None:
        raise DataError(f"{path}: holds none of {', '.join(form.ratings for form in _FORMS)}")
    problems, digest = Problems(strict), hashlib.sha256()
    pieces = []
    for piece in read_pieces(
        path / form.ratings, _RATINGS, problems, separator=form.separator, header=form.header, progress=progress,
        digest=digest,
    ):  # fmt: skip
        rows = typed(typed(piece.rows, ("user", "item", "time"), pl.Int64), ("rating",), pl.Float32)
        made = Piece(piece.path, rows)
        made = problems.keep(made, pl.all_horizontal(pl.col("user", "item").is_not_null()), "bad number")
        made = problems.keep(made, pl.col("rating").is_finite() & pl.col("rating").is_between(0, 10), "bad rating")
        made = problems.keep(made, pl.col("time").is_not_null(), "bad time")
        pieces.append(made.rows.select(_RATINGS))
    events = pl.concat(pieces)
    if not events.height:
        raise DataError(f"{path / form.ratings}: holds no ratings")
    highest = float(events["rating"].to_numpy().max())
    threshold = (4.0 if highest <= 5 else 7.0) if positive is None else checks.number("movielens", "positive", positive)
    movies = _movies(path / form.movies, form, problems, progress, digest)
    unlisted = events["item"].unique().filter(~events["item"].unique().is_in(movies["id"].implode())).sort()
    movies = pl.concat([movies, pl.DataFrame({"id": unlisted})], how="diagonal")
    log = Interactions(
        events["user"],
        events["item"],
        rewards=(events["rating"] >= threshold).cast(pl.Float32),
        times=events["time"],
    )
    splits = split_users(events["user"], Sizes(test, validation), seed)
    source = {
        "loader": "movielens", "file": form.ratings, "sha256": digest.hexdigest(), "read": {"events": events.height},
        "positive": threshold, "test": test, "validation": validation, "seed": seed,
    }  # fmt: skip
    return Dataset("movielens", Catalogue.of_table(movies), log, splits, dropped=problems.found, source=source)


def _movies(path: Path, form: _Form, problems: Problems, progress: Progress | None, digest: Digest) -> pl.DataFrame:
    """Return id, title and category (the first genre) of every movie, and all its genres."""
    if form.ratings == "u.data":
        names: tuple[str, ...] = ("id", "title", "date", "video", "url", *_GENRES_100K)
        separator, least = "|", 6
    else:
        names, separator, least = ("id", "title", "genres"), form.separator, 2
    pieces = read_pieces(
        path, names, problems, separator=separator, header=form.header, quoted=form.header, least=least,
        kept_marks=("title",), progress=progress, digest=digest,
    )  # fmt: skip
    rows = []
    for piece in pieces:
        made = piece.rows
        if form.ratings == "u.data":
            flags = [pl.when(pl.col(genre) == "1").then(pl.lit(genre)) for genre in _GENRES_100K]
            made = made.with_columns(pl.concat_str(flags, separator="|", ignore_nulls=True).alias("genres"))
        made = typed(made, ("id",), pl.Int64)
        made = problems.keep(Piece(path, made), pl.col("id").is_not_null(), "bad number").rows
        genres = pl.col("genres").replace({"(no genres listed)": None, "": None})
        rows.append(made.select("id", "title", genres.str.split("|").list.first().alias("category"), genres))
    return pl.concat(rows).unique("id", keep="first", maintain_order=True)
