"""MovieLens (latest, 1M, 100k) and MovieTweetings: ratings, titles, genres."""

from pathlib import Path
from typing import NamedTuple

import polars as pl

from treeward.core import checks
from treeward.core.errors import DataError
from treeward.data.catalogue import Catalogue
from treeward.data.delimited import Reading
from treeward.data.interactions import Interactions
from treeward.data.loaders.base import Loaded, loader

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
    columns: tuple[str, ...] = ("id", "title", "genres")
    """Of the file of movies ..."""
    movie_separator: str = ""
    """... and what separates them, if it is not what separates ratings ..."""
    least: int = 2
    """... and how many of them a line must have."""


_FORMS = (
    _Form("ratings.csv", "movies.csv", ",", True),
    _Form("ratings.dat", "movies.dat", "::", False),
    _Form("u.data", "u.item", "\t", False, ("id", "title", "date", "video", "url", *_GENRES_100K), "|", 6),
)


@loader("movielens")
def load(path: Path, reading: Reading, *, positive: float | None = None) -> Loaded:
    """Read a folder with `ratings.csv`, `ratings.dat` or `u.data`, and the movies next to it.

    Parameters
    ----------
    path
        The folder.
    positive
        From which rating on the reward is 1; by default 4 where ratings go up to 5, 7 where they go up to 10.
    """
    path = path.parent if path.is_file() else path
    form = next((form for form in _FORMS if (path / form.ratings).is_file()), None)
    if form is None:
        raise DataError(f"{path}: holds none of {', '.join(form.ratings for form in _FORMS)}")
    pieces = []
    for piece in reading.pieces(path / form.ratings, _RATINGS, separator=form.separator, header=form.header):
        made = piece.typed(pl.Int64, "user", "item", "time").typed(pl.Float32, "rating")
        made = made.keep(pl.all_horizontal(pl.col("user", "item").is_not_null()), "bad number")
        made = made.keep(pl.col("rating").is_finite() & pl.col("rating").is_between(0, 10), "bad rating")
        pieces.append(made.keep(pl.col("time").is_not_null(), "bad time").rows.select(_RATINGS))
    events = pl.concat(pieces)
    if not events.height:
        raise DataError(f"{path / form.ratings}: holds no ratings")
    highest = float(events["rating"].to_numpy().max())
    threshold = (4.0 if highest <= 5 else 7.0) if positive is None else checks.number("movielens", "positive", positive)
    movies = _movies(path / form.movies, form, reading)
    unlisted = events["item"].unique().filter(~events["item"].unique().is_in(movies["id"].implode())).sort()
    movies = pl.concat([movies, pl.DataFrame({"id": unlisted})], how="diagonal")
    rewards = (events["rating"] >= threshold).cast(pl.Float32)
    log = Interactions(events["user"], events["item"], rewards=rewards, times=events["time"])
    source = {"file": form.ratings, "read": {"events": events.height}, "positive": threshold}
    return Loaded("movielens", Catalogue.of_table(movies), log, source)


def _movies(path: Path, form: _Form, reading: Reading) -> pl.DataFrame:
    """Return id, title and category (the first genre) of every movie, and all its genres."""
    rows = []
    for piece in reading.pieces(
        path, form.columns, separator=form.movie_separator or form.separator, header=form.header, quoted=form.header,
        least=form.least, kept_marks=("title",),
    ):  # fmt: skip
        made = piece.typed(pl.Int64, "id").keep(pl.col("id").is_not_null(), "bad number").rows
        if "genres" not in form.columns:
            flags = [pl.when(pl.col(genre) == "1").then(pl.lit(genre)) for genre in _GENRES_100K]
            made = made.with_columns(pl.concat_str(flags, separator="|", ignore_nulls=True).alias("genres"))
        genres = pl.col("genres").replace({"(no genres listed)": None, "": None})
        rows.append(made.select("id", "title", genres.str.split("|").list.first().alias("category"), genres))
    return pl.concat(rows).unique("id", keep="first", maintain_order=True)
