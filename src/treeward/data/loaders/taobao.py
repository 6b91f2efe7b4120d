"""Taobao's log: `UserBehavior.csv`, five columns without a header."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from treeward.core import checks
from treeward.core.errors import DataError
from treeward.data.catalogue import Catalogue
from treeward.data.dataset import Sizes
from treeward.data.delimited import Reading
from treeward.data.interactions import Interactions, checked_weights
from treeward.data.loaders.base import Loaded, loader
from treeward.data.loaders.tabular import weighed

SIGNS = ("UserBehavior.csv",)

_COLUMNS = ("user", "item", "category", "action", "time")
_NUMBERS = ("user", "item", "category", "time")
_NAMES = ("pv", "cart", "fav", "buy")
_ACTIONS = pl.Enum(_NAMES)
_PAPER = Sizes(test=10_000, validation=1_000)


@loader("taobao")
def load(
    path: Path,
    reading: Reading,
    *,
    actions: Mapping[str, float] | None = None,
    least: int = 10,
    until_stable: bool = False,
) -> Loaded:
    """Read `UserBehavior.csv`, or the folder it is in.

    Page views are clicks and have the reward 1. The file has no skips. Events of other actions are neither: they are
    left out of the log, and counted in `Dataset.dropped`. For test and validation there are 10,000 and 1,000 users by
    default, as in the paper, or a fifth and a tenth of fewer than 50,000 users.

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
    """
    weights = {"pv": 1.0} if actions is None else checked_weights("taobao", actions)
    for name in weights:
        checks.one_of("taobao", "actions", name, _NAMES)
    checks.integer("taobao", "least", least, low=0)
    checks.flag("taobao", "until_stable", until_stable)
    file = path / "UserBehavior.csv" if path.is_dir() else path
    pieces = []
    for piece in reading.pieces(file, _COLUMNS, types=dict.fromkeys(_NUMBERS, pl.Int64)):
        made = piece.typed(pl.Int64, *_NUMBERS).typed(_ACTIONS, "action")
        small = pl.all_horizontal(pl.col("user", "item", "category").is_between(-(2**31), 2**31 - 1))
        made = made.keep(small, "bad number").keep(pl.col("time").is_not_null(), "bad time")
        made = made.keep(pl.col("action").is_not_null(), "unknown action")
        pieces.append(made.rows.select(pl.col(*_COLUMNS[:3]).cast(pl.Int32, strict=False), "action", "time"))
    events = pl.concat(pieces)
    if not events.height:
        raise DataError(f"{file}: holds no events; wrong with its lines was: {', '.join(reading.found) or 'nothing'}")
    read = {"events": events.height} | {f"{name}s": events[name].n_unique() for name in ("user", "item")}
    found = _counts(events)
    read |= {"categories": events["category"].n_unique(), "clicks": sum(found[name] for name in weights), **found}
    events = _filtered(events, least, until_stable)
    reading.left_out(f"event of a user or item with fewer than {least}", read["events"] - events.height)
    if not events.height:
        raise DataError(f"{file}: nothing is left of {read['events']} events; least={least} is too high for it")
    items = events.group_by("item", maintain_order=True).agg(pl.col("category").first())
    catalogue = Catalogue(items["item"].cast(pl.Int64), categories=items["category"].cast(pl.String))
    whole = Interactions(events["user"], events["item"], actions=events["action"], times=events["time"])
    log, other = weighed(whole, weights, reading)
    source = {
        "file": file.name, "read": read, "actions": weights, "other_actions": other, "least": least,
        "until_stable": until_stable,
    }  # fmt: skip
    sizes = _PAPER if log.users.n_unique() >= 5 * _PAPER.test else Sizes(0.2, 0.1)
    return Loaded("taobao", catalogue, log, source, sizes)


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
