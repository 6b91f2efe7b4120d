"""`World.fit`: a world learned from a log, debiased by inverse-propensity weights."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core import checks, rng
from treeward.core.errors import DataError, InvalidArgument
from treeward.core.progress import Progress, silent
from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue
from treeward.data.interactions import Interactions
from treeward.learn.factorise import Events, Factors, factorise

Exposure = (
    Literal["auto", "impressions", "popularity", "none"] | Callable[[NDArray[np.int64], NDArray[np.int64]], Floats]
)
"""Where propensities come from: a name, or a function of (times shown, times rewarded) of every item."""

_HELD_OUT = 0.1


class Fitted(NamedTuple):
    """A fitted world's parts, and what is needed to tell how good it is."""

    factors: Factors
    users: pl.Series
    """The users' ids, in the order of the factors."""
    propensity: Floats
    """(items,): relative to the mean."""
    train: Events
    held_out: Events
    """Rows, and sampled negatives, that were not learned from."""
    settings: dict[str, object]


def fit(
    log: Interactions,
    catalogue: Catalogue,
    *,
    dim: int = 32,
    exposure: Exposure = "auto",
    power: float = 0.5,
    clip: float = 0.1,
    negatives: int = 4,
    decay: float = 0.02,
    rate: float = 0.03,
    passes: int = 40,
    patience: int = 2,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Fitted:
    """Fit the factors of a world to a log; `World.fit` says what the parameters mean."""
    owner = "World.fit"
    checks.integer(owner, "dim", dim, low=1)
    checks.integer(owner, "negatives", negatives, low=1)
    checks.integer(owner, "passes", passes, low=1)
    checks.integer(owner, "patience", patience, low=1)
    checks.integer(owner, "seed", seed, low=0)
    checks.number(owner, "clip", clip, above=0, high=1)
    checks.number(owner, "power", power, low=0, high=1)
    checks.number(owner, "decay", decay, low=0)
    checks.number(owner, "rate", rate, above=0)
    rows = _rows(log, catalogue)
    has_skips = bool((rows.reward <= 0).any())
    kind = (
        exposure
        if callable(exposure)
        else checks.one_of(owner, "exposure", exposure, ("auto", "impressions", "popularity", "none"))
    )
    if kind == "auto":
        kind = "impressions" if has_skips else "popularity"
    shown = np.bincount(rows.item, minlength=len(catalogue))
    liked = np.bincount(rows.item[rows.reward > 0], minlength=len(catalogue))
    propensity = _propensity(kind, shown, liked, power, clip)
    positive = rows.reward > 0
    weight = (1 / propensity[rows.item]).astype(np.float32)  # what was skipped was as exposed as what was clicked
    for some in (positive, ~positive) if has_skips else (positive,):
        weight[some] /= weight[some].mean()  # self-normalised: the base rate stays that of the log
    rows = rows._replace(weight=weight)
    held = rng.uniforms(seed, rng.stream("held out"), len(rows.user)) < _HELD_OUT
    parts = [
        _with_negatives(_take(rows, mask), rows, len(catalogue), negatives, seed, name, has_skips)
        for name, mask in (("train", ~held), ("held out", held))
    ]
    for name, part in zip(("learn from", "hold out"), parts, strict=True):
        if not (part.reward > 0).any() or not (part.reward <= 0).any():
            raise DataError(f"there are no positives, or no negatives, to {name}: the log is too short or too full")
    factors = factorise(
        parts[0], parts[1], int(rows.user.max()) + 1, len(catalogue), dim, decay=decay, rate=rate, passes=passes,
        patience=patience, seed=seed, device=device, progress=progress or silent,
    )  # fmt: skip
    settings = {
        "dim": dim, "exposure": kind if isinstance(kind, str) else getattr(kind, "__name__", "own"), "power": power,
        "clip": clip, "negatives": negatives, "decay": decay, "rate": rate, "seed": seed,
    }  # fmt: skip
    return Fitted(factors, rows.users, propensity, parts[0], parts[1], settings)


class _Rows(NamedTuple):
    user: NDArray[np.int64]
    item: NDArray[np.int64]
    reward: Floats
    weight: Floats
    users: pl.Series


def _rows(log: Interactions, catalogue: Catalogue) -> _Rows:
    """Return the log in numbers: users by first appearance, items by row; clicks of one item by one user count once."""
    if log.items.dtype.is_integer() != catalogue.ids.dtype.is_integer():
        raise InvalidArgument("World.fit", "interactions", f"with items of type {catalogue.ids.dtype}", log.items.dtype)
    known = pl.DataFrame({"item": catalogue.ids, "row": np.arange(len(catalogue))})
    table = log.table.lazy()
    if "behaviour" in log.table.columns and bool((log.rewards <= 0).any()):
        # What was clicked before the log began has no skips beside it: it would only tell old items from new ones.
        table = table.filter((pl.col("behaviour").cast(pl.String) != "history").fill_null(True))
    table = table.select("user", "item", "reward").with_columns(
        pl.col(name).cast(pl.String) for name in ("user", "item") if not log.table[name].dtype.is_integer()
    )
    pairs = table.group_by("user", "item", maintain_order=True).agg((pl.col("reward").max() > 0).cast(pl.Float32))
    found = pairs.join(known.lazy(), on="item", maintain_order="left").collect()
    if not found.height or not (found["reward"] > 0).any():
        raise DataError("the log rewards no item of the catalogue")
    users = found["user"].unique(maintain_order=True)
    numbers = found.select("user").join(
        pl.DataFrame({"user": users, "number": np.arange(len(users))}), on="user", maintain_order="left"
    )["number"]
    reward = found["reward"].to_numpy().astype(np.float32)
    return _Rows(numbers.to_numpy(), found["row"].to_numpy(), reward, np.ones_like(reward), users)


def _propensity(kind: object, shown: NDArray[np.int64], liked: NDArray[np.int64], power: float, clip: float) -> Floats:
    if callable(kind):
        raw = np.asarray(kind(shown, liked), dtype=np.float32)
        if raw.shape != shown.shape or not (np.isfinite(raw) & (raw >= 0)).all() or raw.max() <= 0:
            raise InvalidArgument("World.fit", "exposure", f"a function that gives {len(shown)} propensities", raw)
    elif kind == "none":
        raw = np.ones(len(shown), dtype=np.float32)
    elif kind == "impressions":
        raw = shown.astype(np.float32)
    else:
        raw = liked.astype(np.float32) ** np.float32(power)
    made: Floats = np.maximum(raw / raw.mean(), clip).astype(np.float32)
    return made


def _take(rows: _Rows, mask: NDArray[np.bool_]) -> Events:
    return Events(rows.user[mask], rows.item[mask], rows.reward[mask], rows.weight[mask])


def _with_negatives(
    part: Events, every: _Rows, items: int, negatives: int, seed: int, name: str, has_skips: bool
) -> Events:
    """Return the positives with `negatives` times as many negatives: what was skipped, or else items never touched."""
    positive = np.flatnonzero(part.reward > 0)
    wanted = negatives * len(positive)
    skipped = np.flatnonzero(part.reward <= 0)
    stream = rng.stream("negatives", name)
    if has_skips:
        if len(skipped) > wanted:
            skipped = np.sort(skipped[rng.sample(seed, stream, len(skipped), wanted)])
        chosen = np.concatenate([positive, skipped])
        return Events(*(column[chosen] for column in part))
    users = np.repeat(part.user[positive], negatives)
    drawn = (rng.uniforms(seed, stream, wanted) * items).astype(np.int64)
    touched = np.unique(every.user * items + every.item)
    fresh = ~np.isin(users * items + drawn, touched, assume_unique=False)
    users, drawn = users[fresh], drawn[fresh]
    return Events(
        np.concatenate([part.user[positive], users]),
        np.concatenate([part.item[positive], drawn]),
        np.concatenate([part.reward[positive], np.zeros(len(users), dtype=np.float32)]),
        np.concatenate([part.weight[positive], np.ones(len(users), dtype=np.float32)]),
    )


def auc(scores: NDArray[np.floating], rewards: Floats) -> float:
    """Return the probability that a positive scores above a negative; ties count half.

    Examples
    --------
    >>> auc(np.array([0.1, 0.9, 0.5, 0.5]), np.array([0, 1, 1, 0], dtype=np.float32))
    0.875
    """
    positive = np.asarray(rewards) > 0
    _, ranks, counts = np.unique(scores, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts - 1) / 2
    ups = float(middle[ranks][positive].sum())
    up, down = int(positive.sum()), int((~positive).sum())
    return (ups - up * (up + 1) / 2) / (up * down) if up and down else float("nan")


def log_loss(chances: NDArray[np.float64], rewards: Floats) -> float:
    """Return the mean negative log-likelihood."""
    told = np.clip(chances, 1e-7, 1 - 1e-7)
    return float(-np.mean(np.where(np.asarray(rewards) > 0, np.log(told), np.log1p(-told))))
