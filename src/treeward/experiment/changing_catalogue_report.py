"""The report of `experiment changing-catalogue`: reward by day, and how long new items wait for their users."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy.special import stdtrit

from treeward.core import artefact
from treeward.core.artefact import StrPath
from treeward.core.plots import Line, line_plot
from treeward.core.report_html import facts, heading, page, plot, table, text
from treeward.core.version import __version__
from treeward.experiment.changing_catalogue import WAYS, ChangingCatalogueResult

_AGAINST = WAYS[-1].label


class WaySummary(NamedTuple):
    """What one way to keep the tree earned at one churn."""

    churn: float
    way: str
    reward: float
    """Per user, over all days."""
    share: float
    """As a share of what the tree that is rebuilt every day earned ..."""
    half: float
    """... with a 95 % interval, paired by user."""
    last: float
    """The same share in the last quarter of the days."""
    within_1: float
    """Share of new items that one of their users saw on the day they came ..."""
    within_3: float
    """... or within three days."""


def way_summaries(lived: ChangingCatalogueResult) -> list[WaySummary]:
    """Return the table."""
    made, spec = [], lived.spec
    late = spec.days - max(1, spec.days // 4)
    for share in spec.churn:
        mine = lived.rewards.filter(churn=share)
        earned = {way.label: _by_user(mine.filter(way=way.label)) for way in WAYS}
        earned_late = {way.label: _by_user(mine.filter(pl.col("day") > late, way=way.label)) for way in WAYS}
        best, best_late = earned[_AGAINST], earned_late[_AGAINST]
        for way in WAYS:
            own, own_late, half = earned[way.label], earned_late[way.label], np.nan
            ratio = own.sum() / max(best.sum(), 1e-9)
            if len(own) > 1:  # the interval of a ratio of means, by what each user adds to its error
                rest = (own - ratio * best) / max(best.mean(), 1e-9)
                half = float(stdtrit(len(own) - 1, 0.975) * rest.std(ddof=1) / np.sqrt(len(own)))
            waits = lived.waits.filter(churn=share, way=way.label)
            made.append(
                WaySummary(share, way.label, float(own.mean()), float(ratio), half,
                     float(own_late.sum() / max(best_late.sum(), 1e-9)), _within(waits, 1), _within(waits, 3))
            )  # fmt: skip
    return made


def _by_user(rewards: pl.DataFrame) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    summed = rewards.group_by("user", "repeat").agg(pl.sum("reward")).group_by("user").agg(pl.mean("reward"))
    found: np.ndarray[tuple[int], np.dtype[np.float64]] = summed.sort("user")["reward"].to_numpy()
    return found


def _within(waits: pl.DataFrame, days: int) -> float:
    """Return the share of items seen within `days` days, of those that were there that long."""
    last = waits["day"].max() if waits.height else 0
    able = waits.filter(pl.col("day") <= (last if isinstance(last, int) else 0) - days + 1)
    return float((able["wait"] < days).fill_null(False).sum() / able.height) if able.height else float("nan")


def write_changing_catalogue(lived: ChangingCatalogueResult, folder: StrPath) -> list[Path]:
    """Write the page and the tables; return the paths."""
    place, lines = Path(folder), way_summaries(lived)
    spec = lived.spec
    head = (
        "way",
        "reward per user",
        "share of rebuilt every day",
        "in the last quarter",
        "seen on its day",
        "within 3 days",
    )
    parts = [
        text(
            f"{spec.users:,} users get {spec.rounds} recommendations per day for {spec.days} days, no item twice.",
            "Every day a share of the catalogue is removed and as many new items are added. Static: new items are",
            "never shown. Overlay: a new item joins the nearest leaf; leaves are split and joined. Rebuilt: the same,",
            "and the whole tree is rebuilt from time to time.",
        )
    ]
    for share in spec.churn:
        rows = [
            (one.way, f"{one.reward:.2f}", f"{one.share:.1%} ± {one.half:.1%}", f"{one.last:.1%}",
             f"{one.within_1:.1%}", f"{one.within_3:.1%}")
            for one in lines if one.churn == share
        ]  # fmt: skip
        parts += [heading(f"{share:.0%} of the catalogue changes every day"), table(head, rows), _curves(lived, share)]
    parts += [
        heading("How this was made"),
        text(
            "An item's users: those for whom it is among the best 0.2 % of the catalogue on the day it comes.",
            soft=True,
        ),
        facts([(name, getattr(spec, name)) for name in spec.__dataclass_fields__] + [("treeward", __version__)]),
    ]
    tidy = pl.DataFrame([one._asdict() for one in lines])
    made = [
        artefact.write_file(place / "report.html", page("A changing catalogue", parts)),
        artefact.write_file(place / "report.csv", tidy.write_csv().encode()),
    ]
    lived.rewards.write_parquet(place / "rewards.parquet")
    lived.waits.write_parquet(place / "waits.parquet")
    return [*made, place / "rewards.parquet", place / "waits.parquet"]


def _curves(lived: ChangingCatalogueResult, share: float) -> str:
    mine = lived.rewards.filter(churn=share).group_by("way", "day").agg(pl.mean("reward")).sort("day")
    found = {way.label: mine.filter(way=way.label) for way in WAYS}
    lines = [Line(label, one["day"].to_numpy(), one["reward"].to_numpy()) for label, one in found.items()]
    return plot(line_plot(lines, "day", "reward per user and day"), "Reward by day.")
