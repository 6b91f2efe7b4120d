"""Results of `experiment stream`, in numbers: clicks per visit, paired differences, coverage."""

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import stdtrit

from treeward.core import rng
from treeward.experiment.stream import Streamed
from treeward.experiment.stream_arms import BEAM, LIST
from treeward.experiment.summary import Estimate

OFTEN = 10
"""Coverage is also counted for items that were shown at least this often."""
BINS = {"1": (1, 1), "2": (2, 2), "3-4": (3, 4), "5-8": (5, 8), "9-16": (9, 16), "17+": (17, 2**31 - 1)}
"""Which visit of the user it was, first and last."""
_DRAWS = 1_000


class ArmSummary(NamedTuple):
    """One arm."""

    arm: str
    clicks: Estimate
    """Per visit."""
    last: Estimate
    """The same in the last third of the visits."""
    over_beam: Estimate | None
    """How many more per visit than Beam on the same visits, with the same luck; None for Beam itself ..."""
    over_list: Estimate | None
    """... and than the popularity list."""
    shown: float
    """Share of the items that were shown at least once ..."""
    often: float
    """... and at least 10 times."""
    scores: float | None
    """Computed per visit, where they are counted."""
    microseconds: float
    """Per visit: deciding and learning."""


class _Played(NamedTuple):
    """One arm in one repeat, in the order of time."""

    clicks: NDArray[np.float64]
    users: NDArray[np.int64]
    rows: NDArray[np.int64]


def arm_summaries(streamed: Streamed) -> list[ArmSummary]:
    """Return the table, one line per arm."""
    spec, items = streamed.spec, int(streamed.prepared["items"])
    played = _played(streamed)
    made = []
    for arm in spec.arms:
        mine = played[arm]
        over_beam, over_list = (
            _paired(mine, played[other]) if other in played and other != arm else None for other in (BEAM, LIST)
        )
        shows = [np.bincount(one.rows, minlength=items) for one in mine]
        cells = streamed.cells.filter(arm=arm)
        scores = cells["scores"].drop_nulls().to_numpy()
        visits = sum(len(one.clicks) for one in mine)
        made.append(
            ArmSummary(
                arm,
                _rate(mine),
                _rate([_last_third(one) for one in mine]),
                over_beam,
                over_list,
                shown=float(np.mean([(one > 0).mean() for one in shows])),
                often=float(np.mean([(one >= OFTEN).mean() for one in shows])),
                scores=float(scores.mean()) if len(scores) else None,
                microseconds=float(cells["seconds"].sum()) / visits * 1e6,
            )
        )
    return made


def gap(streamed: Streamed, one: str, other: str) -> Estimate:
    """Return how many more clicks per visit one arm got than another, on the same visits with the same luck."""
    played = _played(streamed)
    return _paired(played[one], played[other])


def _played(streamed: Streamed) -> dict[str, list[_Played]]:
    made: dict[str, list[_Played]] = {arm: [] for arm in streamed.spec.arms}
    for (arm, _), cell in streamed.visits.group_by("arm", "repeat", maintain_order=True):
        columns = cell["click"].cast(pl.Float64), cell["user"].cast(pl.Int64), cell["row"].cast(pl.Int64)
        made[str(arm)].append(_Played(*(one.to_numpy() for one in columns)))
    return made


def _paired(mine: list[_Played], theirs: list[_Played]) -> Estimate:
    """Return the difference, paired visit by visit."""
    return _rate([one._replace(clicks=one.clicks - two.clicks) for one, two in zip(mine, theirs, strict=True)])


def _last_third(one: _Played) -> _Played:
    first = 2 * len(one.clicks) // 3
    return _Played(one.clicks[first:], one.users[first:], one.rows[first:])


def _rate(repeats: list[_Played]) -> Estimate:
    """Return the mean per visit: with an interval over repeats, or for one repeat by a bootstrap over users."""
    means = np.array([one.clicks.mean() for one in repeats])
    if len(means) > 1:
        error = means.std(ddof=1) / len(means) ** 0.5
        return Estimate(float(means.mean()), float(stdtrit(len(means) - 1, 0.975) * error))
    users = np.unique(repeats[0].users, return_inverse=True)[1]
    count = int(users.max()) + 1
    if count < 2:
        return Estimate(float(means[0]))
    visits, clicks = np.bincount(users), np.bincount(users, weights=repeats[0].clicks)
    drawn = np.empty(_DRAWS)
    for at in range(_DRAWS):
        some = (rng.uniforms(0, rng.stream("stream", "bootstrap", at), count) * count).astype(np.int64)
        drawn[at] = clicks[some].sum() / visits[some].sum()
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Estimate(float(means[0]), float(high - low) / 2)


def by_day(streamed: Streamed) -> pl.DataFrame:
    """Return arm, day, clicks per visit (mean over repeats) and visits of one repeat on average."""
    return _mean_over_repeats(streamed, "day")


def by_visit(streamed: Streamed) -> pl.DataFrame:
    """Return arm, which visit of the user it was (see `BINS`), clicks per visit, and visits."""
    starts = [first for first, _ in BINS.values()]
    names = pl.Series("visit", list(BINS), dtype=pl.Enum(list(BINS)))
    numbers = np.searchsorted(starts, streamed.visits["visit"].to_numpy(), side="right") - 1
    return _mean_over_repeats(streamed._replace(visits=streamed.visits.with_columns(names[numbers])), "visit")


def _mean_over_repeats(streamed: Streamed, what: str) -> pl.DataFrame:
    each = streamed.visits.group_by("arm", "repeat", what).agg(pl.mean("click").alias("clicks"), pl.len().alias("n"))
    made = each.group_by("arm", what).agg(pl.mean("clicks"), pl.mean("n").alias("visits"))
    order = pl.DataFrame({"arm": list(streamed.spec.arms), "at": range(len(streamed.spec.arms))})
    return made.join(order, on="arm").sort("at", what).drop("at")


def tidy(streamed: Streamed) -> pl.DataFrame:
    """Return the lines as a table."""
    rows = []
    for one in arm_summaries(streamed):
        row: dict[str, object] = {}
        for name, value in one._asdict().items():
            if name in ("clicks", "last", "over_beam", "over_list"):
                row |= {name: value and value.mean, f"{name}_half": value and value.half}
            else:
                row[name] = value
        rows.append(row)
    return pl.DataFrame(rows, schema_overrides={name: pl.Float64 for name in rows[0] if name != "arm"})
