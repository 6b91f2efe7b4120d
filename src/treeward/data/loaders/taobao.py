"""Taobao's log: `UserBehavior.csv`, five columns without a header."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from treeward.core import checks
from treeward.core.errors import DataError
from treeward.core.progress import Progress
from treeward.data.catalogue import Catalogue
from treeward.data.dataset import Dataset, Sizes, left_out, split_users
from treeward.data.delimited import Piece, Problems, read_pieces, typed
from treeward.data.interactions import Interactions, checked_weights
from treeward.data.loaders.tabular import weighed

SIGNS = ("UserBehavior.csv",)

_COLUMNS = ("user", "item", "category", "action", "time")
_NAMES = ("pv", "cart", "fav", "buy")
_ACTIONS = pl.Enum(_NAMES)
_PAPER = Sizes(test=10_000, validation=1_000)


def load(
    path: Path,
    *,
    actions: Mapping[str, float] | None = None,
    least: int = 10,
    until_stable: bool = False,
    test: int | float | None = None,
    validation: int | float | None = None,
    seed: int = 0,
    strict: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Read `UserBehavior.csv`, or the folder it is in.

    Page views are clicks and have the reward 1. The file has no skips. Events of other actions are neither: they are
    left out of the log, and counted in `Dataset.dropped`.

    Parameters
    ----------
    path
        The file or its folder.
    actions
        What each action is worth: of ``"pv"`` (page views), ``"cart"``, ``"fav"`` and ``"buy"``; 0: a skip. By default
        ``{"pv": 1}``, as in the paper.
    least
        Leave out users and items with fewer events than this; 10 in the paper. Events of all actions count, in the
        whole file, before other actions are left out. An item that is kept stays in the catalogue even if no event
        on it has a weight.
    until_stable
        Count again after leaving out, until nothing more falls below.
    test, validation
        Users for test and validation: numbers, or shares. By default 10,000 and 1,000 as in the paper, or a fifth and a
        tenth where there are fewer than 50,000 users.
    seed
        Who is for what.
    strict
        Raise at the first malformed line.
    progress
        Called with (stage, done, total).
    """
    weights = {"pv": 1.0} if actions is None else checked_weights("taobao", actions)
    for name in weights:
        checks.one_of("taobao", "actions", name, _NAMES)
    checks.integer("taobao", "least", least, low=0)
    file = path / "UserBehavior.csv" if path.is_dir() else path
    problems, digest = Problems(strict), hashlib.sha256()
    numbers = ("user", "item", "category", "time")
    pieces = []
    types = dict.fromkeys(numbers, pl.Int64)
    for piece in read_pieces(file, _COLUMNS, problems, types=types, progress=progress, digest=digest):
        made = Piece(file, typed(typed(piece.rows, numbers, pl.Int64), ("action",), _ACTIONS))
        numbered = pl.all_horizontal(pl.col("user", "item", "category").is_between(-(2**31), 2**31 - 1))
        made = problems.keep(made, numbered, "bad number")
        made = problems.keep(made, pl.col("time").is_not_null(), "bad time")
        made = problems.keep(made, pl.col("action").is_not_null(), "unknown action")
        pieces.append(made.rows.select(pl.col(*_COLUMNS[:3]).cast(pl.Int32, strict=False), "action", "time"))
    events = pl.concat(pieces)
    if not events.height:
        raise DataError(f"{file}: holds no events; wrong with its lines was: {', '.join(problems.found) or 'nothing'}")
    read = {"events": events.height} | {f"{name}s": events[name].n_unique() for name in ("user", "item")}
    found = _counts(events)
    read |= {"categories": events["category"].n_unique(), "clicks": sum(found[name] for name in weights), **found}
    events = _filtered(events, least, until_stable)
    problems.found |= left_out(f"event of a user or item with fewer than {least}", read["events"] - events.height)
    if not events.height:
        raise DataError(f"{file}: nothing is left of {read['events']} events; least={least} is too high for it")
    items = events.group_by("item", maintain_order=True).agg(pl.col("category").first())
    catalogue = Catalogue(items["item"].cast(pl.Int64), categories=items["category"].cast(pl.String))
    whole = Interactions(events["user"], events["item"], actions=events["action"], times=events["time"])
    log, other = weighed(whole, weights, problems)
    users = log.users.unique()
    paper = len(users) >= 5 * _PAPER.test
    sizes = Sizes(
        (_PAPER.test if paper else 0.2) if test is None else test,
        (_PAPER.validation if paper else 0.1) if validation is None else validation,
    )
    splits = split_users(users.cast(pl.Int64), sizes, seed)
    source = {
        "loader": "taobao", "file": file.name, "sha256": digest.hexdigest(), "read": read, "actions": weights,
        "other_actions": other, "least": least, "until_stable": until_stable, "test": sizes.test,
        "validation": sizes.validation, "seed": seed,
    }  # fmt: skip
    return Dataset("taobao", catalogue, log, splits, dropped=problems.found, source=source)


def _counts(events: pl.DataFrame) -> dict[str, int]:
    """Return how many events there are of each action."""
    found = events.group_by("action").len().select(pl.col("action").cast(pl.String), "len")
    return dict.fromkeys(_NAMES, 0) | dict(found.iter_rows())


def _filtered(events: pl.DataFrame, least: int, until_stable: bool) -> pl.DataFrame:
    """Leave out users and items with too few events: counted at once, and again until nothing changes if so asked."""
    while True:
        left = events
        for name in ("user", "item"):  # both counted before either is left out
            counts = events.group_by(name).len()
            few = counts.filter(pl.col("len") < least)
            left = left.join(few, on=name, how="anti", maintain_order="left")
        if not until_stable or left.height == events.height:
            return left
        events = left
