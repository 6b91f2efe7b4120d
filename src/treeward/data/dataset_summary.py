"""What is in a data set, what was left out and why, compared with the paper's figures."""

from typing import Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.data.dataset import SPLITS, Dataset

PAPER = {
    "mind": {"users": 1_000_000, "items": 161_013, "categories": 285, "clicks in impressions": 24_155_470},
    "taobao": {"users": 987_994, "items": 4_162_024, "categories": 9_439, "all actions": 100_150_807},
}
"""Table 2 of the paper.

For MIND, its interactions are clicks in impressions: the published count, 1.5 per impression, without skips and without
the clicks of histories. For Taobao, they are events of all actions in the whole file, before any filter.
"""

_COUNTED = 20_000_000


class Counts(NamedTuple):
    """Numbers of users, items and events."""

    users: int
    items: int
    """With at least one event."""
    listed: int
    """In the catalogue."""
    categories: int
    interactions: int
    """Events in the log: clicks and skips."""
    clicks: int
    """Events with a reward above 0, those of histories included."""
    skips: int
    """All other events."""


class DatasetSummary(NamedTuple):
    """Everything `treeward data inspect` prints."""

    name: str
    counts: Counts
    density: float
    """Distinct pairs of a user and an item with an event, as a share of all pairs. From 20 million events on, every
    event counts as a distinct pair."""
    positive_share: float
    splits: dict[str, int]
    """Users per split."""
    actions: dict[str, int]
    """Events per action."""
    other_actions: dict[str, int]
    """Events of actions that the loader left out, per action, after its filter."""
    read: dict[str, int]
    """The same counts before the loader's filter, where it has one."""
    times: tuple[str, str] | None
    """First and last, if there are times."""
    dropped: dict[str, tuple[int, str]]
    """What was left out: how often, and where first."""
    source: dict[str, object]
    paper: dict[str, int] | None
    """The paper's table 2, where it applies."""
    events_per_user: NDArray[np.int64]
    events_per_item: NDArray[np.int64]

    @property
    def kinds(self) -> dict[str, int]:
        """Counts of events as in the paper's table 2, where the log distinguishes them."""
        made = {}
        if {"history", "click"} <= set(self.actions):
            made["clicks in impressions"] = self.actions["click"]
            made["clicks of histories"] = self.actions["history"]
        if "all actions" in self.read:
            made["all actions"] = self.counts.interactions + sum(self.other_actions.values())
        return made


def describe(data: Dataset) -> DatasetSummary:
    """Summarise a data set."""
    log = data.interactions
    users = log.table.group_by("user").len()["len"].to_numpy().astype(np.int64)
    items = log.table.group_by("item").len()["len"].to_numpy().astype(np.int64)
    pairs = log.table.select(pl.struct("user", "item").n_unique()).item() if len(log) < _COUNTED else len(log)
    categories = data.catalogue.categories
    positive = int((log.rewards > 0).sum())
    counts = Counts(
        len(users), len(items), len(data.catalogue), 0 if categories is None else categories.drop_nulls().n_unique(),
        len(log), positive, len(log) - positive,
    )  # fmt: skip
    actions = {}
    if "action" in log.table.columns:
        actions = dict(log.table.group_by("action").len().sort("len", descending=True).iter_rows())
    return DatasetSummary(
        name=data.name,
        counts=counts,
        density=pairs / max(1, len(users) * len(items)),
        positive_share=positive / max(1, len(log)),
        splits={name: int((data.splits["split"] == name).sum()) for name in SPLITS},
        actions={str(name): int(count) for name, count in actions.items()},
        other_actions=dict(data.source.get("other_actions", {})),
        read=_read(data),
        times=_span(log.table),
        dropped={reason: (problem.times, problem.where) for reason, problem in data.dropped.items()},
        source=data.source,
        paper=PAPER.get(data.name),
        events_per_user=users,
        events_per_item=items,
    )


def _read(data: Dataset) -> dict[str, int]:
    found, names = data.source.get("read"), ("users", "items", "categories", "clicks")
    if not isinstance(found, dict) or not {*names, "events"} <= set(found):
        return {}
    return {name: found[name] for name in names} | {"all actions": found["events"]}


def _span(table: pl.DataFrame) -> tuple[str, str] | None:
    if "time" not in table.columns or table["time"].null_count() == table.height:
        return None
    times = table["time"]
    ends = pl.Series([times.min(), times.max()])
    if times.dtype.is_integer():
        # The median decides: one absurd time must not turn seconds into milliseconds.
        unit: Literal["ms", "s"] = "ms" if float(times.median()) > 10**11 else "s"  # type: ignore[arg-type]
        ends = pl.from_epoch(ends.cast(pl.Int64), time_unit=unit)
    first, last = ends.cast(pl.String).str.replace(r"\.0+$", "")
    return first, last


def histogram(values: NDArray[np.int64]) -> list[tuple[str, int]]:
    """Return how many values lie in 1, 2, 3-4, 5-8, 9-16, ..., up to the largest."""
    found = []
    low = 1
    while low <= int(values.max(initial=0)):
        high = 1 if low == 1 else 2 * (low - 1)
        found.append((f"{low}" if low == high else f"{low}-{high}", int(((values >= low) & (values <= high)).sum())))
        low = high + 1
    return found
