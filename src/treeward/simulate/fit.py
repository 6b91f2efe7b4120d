"""`World.fit`: a world learned from a log, debiased by inverse-propensity weights."""

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core import checks, rng
from treeward.core.checks import Count, Fraction, NotNegative, Number, Positive, Seed
from treeward.core.errors import DataError, InvalidArgument
from treeward.core.progress import Progress, Stage, silent
from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue
from treeward.data.interactions import SKIP, Interactions
from treeward.data.item_rows import with_item_rows
from treeward.learn.factorise import Events, Factors, factorise
from treeward.simulate.selection import Answers, answer_propensities, calibrated, check_answers, features_of

Source = Literal["auto", "impressions", "popularity", "rating", "features", "both", "none"]
Exposure = Source | Callable[[NDArray[np.int64], NDArray[np.int64]], Floats]
"""Where propensities come from: a name, or a function of (times shown, times rewarded) of every item."""

_HELD_OUT = 0.1
_BY_ANSWER = ("rating", "features", "both")
"""Sources of propensities that belong to an answer, not to an item."""


class Fitted(NamedTuple):
    """A fitted world's parts, and what is needed to evaluate it."""

    factors: Factors
    users: pl.Series
    """The users' ids, in the order of the factors."""
    propensity: Floats
    """(items,): relative to the mean; where each answer has its own, the mean of an item's answers."""
    shown: NDArray[np.int64]
    """(items,): how many users saw an item, according to the log ..."""
    liked: NDArray[np.int64]
    """... and rewarded."""
    train: Events
    held_out: Events
    """Rows, and sampled negatives, that were not learned from."""
    settings: dict[str, object]


@checks.checked("World.fit")
def fit(
    interactions: Interactions,
    catalogue: Catalogue,
    *,
    dim: Count = 32,
    exposure: Exposure = "auto",
    random: Interactions | None = None,
    user_features: pl.DataFrame | None = None,
    power: Fraction = 0.5,
    clip: Annotated[float, Number(above=0, high=1)] = 0.1,
    negatives: Count = 4,
    decay: NotNegative = 0.5,
    rate: Positive = 0.004,
    passes: Count = 60,
    patience: Count = 8,
    seed: Seed = 0,
    device: str = "cpu",
    progress: Progress | None = None,
    stage: str = "fitting the world",
) -> Fitted:
    """Fit the factors of a world to a log; `World.fit` documents the parameters."""
    rows = _rows(interactions, catalogue)
    positive = rows.reward > 0
    sample = None if random is None else _sample(random, catalogue, rows)
    kind = _kind(exposure, rows, sample)
    # Skips set the base rate where there are enough of them; otherwise untouched items are drawn as well. Where answers
    # are known to be selected, an item without one was not chosen, which says nothing of how it would be liked.
    is_selected = sample is not None or user_features is not None
    has_skips = is_selected or int((~positive).sum()) >= negatives * int(positive.sum())
    # Drawn by row, so that the same rows are held out whatever the options: fits can be compared.
    held = rng.uniforms(seed, rng.stream("held out"), len(rows.user)) < _HELD_OUT
    # Counted on training events only: a weight must not reveal what is held out.
    shown = np.bincount(rows.item[~held], minlength=len(catalogue))
    liked = np.bincount(rows.item[positive & ~held], minlength=len(catalogue))
    if kind in _BY_ANSWER:
        people = None if user_features is None else features_of(rows.users, user_features)
        own = answer_propensities(str(kind), rows.answers, ~held, sample, catalogue, people, seed)
        propensity, weight = _item_means(rows, own, len(catalogue)), _answer_weights(own, clip)
    else:
        propensity = _propensity(kind, shown, liked, power, clip)
        weight = _row_weights(rows, propensity, has_skips)
    observed = Events(rows.user, rows.item, rows.reward, weight)
    parts = [_take(observed, held == part) for part in (False, True)]
    if not is_selected:
        parts = [_thinned(part, negatives, seed, bool(which)) for which, part in enumerate(parts)]
    if not has_skips:
        drawn = _drawn(rows, len(catalogue), negatives, propensity, seed)
        apart = rng.uniforms_of(seed, drawn.user * len(catalogue) + drawn.item, rng.stream("apart")) < _HELD_OUT
        parts = [_joined(part, _take(drawn, apart == bool(which))) for which, part in enumerate(parts)]
    for name, part in zip(("learn from", "hold out"), parts, strict=True):
        if not (part.reward > 0).any() or not (part.reward <= 0).any():
            raise DataError(f"there are no positives, or no negatives, to {name}: the log is too short or too full")
    factors = factorise(
        parts[0], parts[1], int(rows.user.max()) + 1, len(catalogue), dim, decay=decay, rate=rate, passes=passes,
        patience=patience, seed=seed, device=device, stage=Stage(progress or silent, stage, passes),
    )  # fmt: skip
    if kind in _BY_ANSWER and sample is not None:
        factors = calibrated(factors, sample)
    settings: dict[str, object] = {
        "dim": dim, "exposure": kind if isinstance(kind, str) else getattr(kind, "__name__", "own"), "power": power,
        "clip": clip, "negatives": negatives, "decay": decay, "rate": rate, "seed": seed,
        "impressions": _has_skips_of_a_system(interactions),
    }  # fmt: skip
    if sample is not None:
        settings |= {"random": len(sample.user), "rate_random": sample.rate, "rate_log": rows.answers.rate}
    return Fitted(factors, rows.users, propensity, shown, liked, parts[0], parts[1], settings)


class _Rows(NamedTuple):
    user: NDArray[np.int64]
    item: NDArray[np.int64]
    reward: Floats
    users: pl.Series

    @property
    def answers(self) -> Answers:
        return Answers(self.user, self.item, self.reward)


def _kind(exposure: Exposure, rows: _Rows, sample: Answers | None) -> object:
    """Return where propensities come from, and refuse a source that the log does not have."""
    if callable(exposure):
        return exposure
    kind = checks.one_of("World.fit", "exposure", exposure, get_args(Source))
    positive = int((rows.reward > 0).sum())
    if kind == "auto" and sample is not None:
        kind = "rating"
    elif kind == "auto":
        kind = "impressions" if len(rows.reward) >= 2 * positive else "popularity"
    if kind in _BY_ANSWER:
        check_answers(kind, rows.answers, sample)
    return kind


def _has_skips_of_a_system(log: Interactions) -> bool:
    """Return whether the log says of its negatives that something was shown and not clicked."""
    return "action" in log.table.columns and bool((log.table["action"].cast(pl.String) == SKIP).any())


def _pairs(log: Interactions, catalogue: Catalogue) -> pl.DataFrame:
    """Return user, row and reward, 1 or 0; clicks of one item by one user count once."""
    pairs = with_item_rows("World.fit", log, catalogue).group_by("user", "row", maintain_order=True)
    return pairs.agg((pl.col("reward").max() > 0).cast(pl.Float32)).collect()


def _sample(random: Interactions, catalogue: Catalogue, rows: _Rows) -> Answers:
    """Return answers to items shown at random, with the log's numbers of users."""
    if random.users.dtype.is_integer() != rows.users.dtype.is_integer():
        raise InvalidArgument("World.fit", "random", f"with users of type {rows.users.dtype}", random.users.dtype)
    found = _pairs(random, catalogue)
    if not found.height:
        raise DataError("the random events are of no item of the catalogue")
    known = pl.DataFrame({"user": rows.users, "number": np.arange(len(rows.users))})
    found = found.with_columns(pl.col("user").cast(rows.users.dtype))
    numbers = found.select("user").join(known, on="user", how="left", maintain_order="left")["number"].fill_null(-1)
    return Answers(numbers.to_numpy(), found["row"].to_numpy(), found["reward"].to_numpy())


def _rows(log: Interactions, catalogue: Catalogue) -> _Rows:
    """Return the log in numbers: users by first appearance, items by row; clicks of one item by one user count once."""
    found = _pairs(log, catalogue)
    if not found.height or not (found["reward"] > 0).any():
        raise DataError("the log rewards no item of the catalogue")
    users = found["user"].unique(maintain_order=True)
    numbers = found.select("user").join(
        pl.DataFrame({"user": users, "number": np.arange(len(users))}), on="user", maintain_order="left"
    )["number"]
    reward = found["reward"].to_numpy().astype(np.float32)
    return _Rows(numbers.to_numpy(), found["row"].to_numpy(), reward, users)


def _propensity(kind: object, shown: NDArray[np.int64], liked: NDArray[np.int64], power: float, clip: float) -> Floats:
    if callable(kind):
        try:
            raw = np.asarray(kind(shown, liked), dtype=np.float32)
        except (TypeError, ValueError) as error:
            rule = f"a function that gives {len(shown)} propensities"
            raise InvalidArgument("World.fit", "exposure", rule, str(error)) from error
        if raw.shape != shown.shape or not (np.isfinite(raw) & (raw >= 0)).all() or raw.max() <= 0:
            raise InvalidArgument("World.fit", "exposure", f"a function that gives {len(shown)} propensities", raw)
    elif kind == "none":
        raw = np.ones(len(shown), dtype=np.float32)
    elif kind == "impressions":
        raw = shown.astype(np.float32)
    else:
        raw = liked.astype(np.float32) ** np.float32(power)
    made: Floats = np.maximum(raw / np.float32(raw.mean(dtype=np.float64)), clip).astype(np.float32)
    return made


def _row_weights(rows: _Rows, propensity: Floats, has_skips: bool) -> Floats:
    """Return the weights of the rows of the log.

    A click should count 1 / propensity times as much as a negative that was drawn without regard to exposure. Where
    negatives are drawn, their weights do that (see `_drawn`): only the ratio matters, and weights on the many cheap
    negatives cost far less variance than weights on the clicks. A skip was as exposed as a click of the same item, so
    both have the weight 1 / propensity, which gives rare items an equal say.
    """
    weight = np.ones(len(rows.reward), dtype=np.float32)
    if has_skips:
        weight = (1 / propensity[rows.item]).astype(np.float32)
        for some in (rows.reward > 0, rows.reward <= 0):  # self-normalised: the base rate stays that of the log
            weight[some] /= np.float32(weight[some].mean(dtype=np.float64))
    return weight


def _answer_weights(propensity: NDArray[np.float64], clip: float) -> Floats:
    """Return self-normalised weights of answers: over all of them, because they correct the base rate too."""
    weight = 1 / np.maximum(propensity, clip)
    made: Floats = (weight / weight.mean()).astype(np.float32)
    return made


def _item_means(rows: _Rows, propensity: NDArray[np.float64], items: int) -> Floats:
    counts, sums = np.bincount(rows.item, minlength=items), np.bincount(rows.item, propensity, minlength=items)
    return np.where(counts > 0, sums / np.maximum(counts, 1), 1).astype(np.float32)


def _thinned(part: Events, negatives: int, seed: int, held: bool) -> Events:
    """Return all positives, and of the skips at most `negatives` times as many."""
    positive, skipped = np.flatnonzero(part.reward > 0), np.flatnonzero(part.reward <= 0)
    stream = rng.stream("skips", "held out" if held else "train")
    kept = skipped[rng.subset(seed, stream, len(skipped), negatives * len(positive))]
    return _take(part, np.concatenate([positive, kept]))


def _drawn(rows: _Rows, items: int, negatives: int, propensity: Floats, seed: int) -> Events:
    """Draw items that users never touched as negatives for their clicks, as many as there are too few skips."""
    positive = np.flatnonzero(rows.reward > 0)
    skips = len(rows.reward) - len(positive)
    wanted = negatives * len(positive) - skips
    users = np.repeat(rows.user[positive], negatives)
    if skips:
        users = users[np.sort(rng.sample(seed, rng.stream("whose negatives"), len(users), wanted))]
    drawn = (rng.uniforms(seed, rng.stream("negatives"), wanted) * items).astype(np.int64)
    touched = np.unique(rows.user * items + rows.item)
    fresh = ~np.isin(users * items + drawn, touched)
    users, drawn = users[fresh], drawn[fresh]
    weight = propensity[drawn]
    if len(weight):
        weight = weight / np.float32(weight.mean(dtype=np.float64))  # self-normalised
    return Events(users, drawn, np.zeros(len(users), dtype=np.float32), weight.astype(np.float32))


def _take(part: Events, which: NDArray[np.bool_] | NDArray[np.int64]) -> Events:
    return Events._make(column[which] for column in part)


def _joined(one: Events, other: Events) -> Events:
    return Events(*(np.concatenate([mine, others]) for mine, others in zip(one, other, strict=True)))
