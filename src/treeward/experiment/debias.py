"""`experiment debias`: fits to self-selected ratings, with and without weights, tested on items shown at random."""

from itertools import product
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core import checks, rng
from treeward.core.artefact import StrPath, write_file
from treeward.core.checks import Number, Seed, Whole
from treeward.core.errors import DataError, InvalidArgument
from treeward.core.progress import Progress, Stage, silent
from treeward.core.report_html import heading, page, table, text
from treeward.data.dataset import Dataset
from treeward.data.interactions import Interactions
from treeward.data.item_rows import with_item_rows
from treeward.experiment.debias_metrics import METRICS, Interval, Predicted, figures, interval, resampled
from treeward.learn.propensity import by_features, by_level
from treeward.learn.ratings import Rated, Shape, cross_validated, factorise_ratings
from treeward.simulate.selection import features_of
from treeward.simulate.world import World

_OWNER = "experiment debias"
PLAIN, BASE, BY_RATING = "unweighted", "unweighted, shifted to the sample", "weighted by rating"
BY_FEATURES, BY_BOTH = "weighted by features", "weighted by both"
_EXPOSURES = {PLAIN: "none", BY_RATING: "rating", BY_FEATURES: "features", BY_BOTH: "both"}
RATING, CLICK = "rating", "reward"
SHAPES = tuple(Shape(*one) for one in product((4, 16), (3.0, 5.0, 7.0, 10.0, 20.0), (2.0, 3.0, 5.0, 10.0)))
"""What cross-validation chooses from: dimensions, and the pull of vectors and of biases towards zero."""
RATIO = "MSE / unweighted"
PUBLISHED = {(RATING, PLAIN, "MSE"): 1.202, (RATING, PLAIN, "MAE"): 0.920} | {
    (RATING, arm, metric): value
    for arm in (BY_RATING, BY_FEATURES)
    for metric, value in (("MSE", 1.093), ("MAE", 0.860), (RATIO, 0.909))
}
"""For Coat: MF-Naive and MF-IPS in table 1 of Schnabel et al. (ICML 2016), from memory, not checked with the paper."""


class Debias(NamedTuple):
    """What is measured, as data."""

    sample: Annotated[float, Number(above=0, below=1)] = 0.05
    """Share of the random ratings that propensities are computed from; they are not tested on."""
    folds: Annotated[int, Whole(low=2)] = 5
    """Folds of the cross-validation on self-selected ratings."""
    draws: Annotated[int, Whole(low=2)] = 1_000
    """Bootstrap samples of users."""
    seed: Seed = 0
    """Every random choice comes from this seed."""


class Row(NamedTuple):
    """One metric of one fit."""

    task: str
    arm: str
    metric: str
    figure: Interval
    published: float | None


class Debiased(NamedTuple):
    """A finished experiment."""

    how: Debias
    name: str
    chosen: int
    """Self-selected ratings ..."""
    sampled: int
    """... random ratings that propensities came from ..."""
    tested: int
    """... and random ratings that were tested on."""
    rows: list[Row]
    shapes: dict[str, Shape]
    """What cross-validation chose, by arm."""

    def row(self, task: str, arm: str, metric: str) -> Row:
        """Return one figure."""
        return next(row for row in self.rows if (row.task, row.arm, row.metric) == (task, arm, metric))


class _Part(NamedTuple):
    """Ratings in numbers."""

    user: NDArray[np.int64]
    item: NDArray[np.int64]
    rating: NDArray[np.float64]
    positive: NDArray[np.bool_]

    def take(self, which: NDArray[np.int64]) -> "_Part":
        return _Part(self.user[which], self.item[which], self.rating[which], self.positive[which])


def measure_debias(data: Dataset, how: Debias, *, progress: Progress | None = None) -> Debiased:
    """Fit ratings and rewards with and without inverse-propensity weights, and test on items shown at random.

    The rating of an event is its action, where all actions are numbers, and else its reward. Dimensions and pulls are
    chosen by cross-validation on the self-selected ratings, with each fit's own weights.
    """
    checks.validate(how, _OWNER)
    if data.random is None:
        raise InvalidArgument(_OWNER, "DATA", "data with ratings of items shown at random, such as Coat", data)
    people = data.interactions.users.unique(maintain_order=True).sort()
    chosen, random = (_part(log, data, people) for log in (data.interactions, data.random))
    count = round(how.sample * len(random.user))
    picked = np.zeros(len(random.user), dtype=np.bool_)
    picked[rng.subset(how.seed, rng.stream("debias sample"), len(picked), count)] = True
    sample, test = (random.take(np.flatnonzero(picked == part)) for part in (True, False))
    if not (len(sample.user) and test.positive.any() and not test.positive.all()):
        raise DataError("too few random ratings: some must be left for the sample, and some of either kind to test on")
    times = resampled(len(people), how.draws, how.seed)
    features = None if data.user_features is None else features_of(people, data.user_features)
    arms = [PLAIN, BASE, BY_RATING, *([BY_FEATURES, BY_BOTH] if features is not None and data.catalogue.dim else [])]
    stage = Stage(progress or silent, "fitting", 2 * len(arms) - 1)
    found: dict[tuple[str, str], NDArray[np.float64]] = {}
    shapes: dict[str, Shape] = {}
    for arm in arms:
        shape, predicted = _fitted_ratings(arm, chosen, sample, test, data, features, how, shapes)
        shapes[arm] = shape
        found[RATING, arm] = figures(Predicted(test.user, test.rating, test.positive, predicted), times)
        stage.step()
    for arm in arms:
        if arm != BASE:
            chances = _fitted_rewards(arm, sample, test, data, people, how.seed)
            reward = test.positive.astype(np.float64)
            found[CLICK, arm] = figures(Predicted(test.user, reward, test.positive, chances), times)
            stage.step()
    rows = _rows(found, data.source.get("loader") == "coat")
    return Debiased(how, data.name, len(chosen.user), len(sample.user), len(test.user), rows, shapes)


def _part(log: Interactions, data: Dataset, people: pl.Series) -> _Part:
    """Return the events of known users and items; the rating is the action, where it is a number, else the reward."""
    rows = with_item_rows(_OWNER, log, data.catalogue).collect()
    rating = rows["reward"]
    if "action" in rows.columns:
        numbers = rows["action"].cast(pl.String).cast(pl.Float64, strict=False)
        rating = rating if numbers.null_count() else numbers
    known = pl.DataFrame({"user": people, "number": np.arange(len(people))})
    numbers = rows.select("user").join(known, on="user", how="left", maintain_order="left")["number"].fill_null(-1)
    made = _Part(
        numbers.to_numpy(), rows["row"].to_numpy(), rating.cast(pl.Float64).to_numpy(), (rows["reward"] > 0).to_numpy()
    )
    return made.take(np.flatnonzero(made.user >= 0))


def _fitted_ratings(
    arm: str,
    chosen: _Part,
    sample: _Part,
    test: _Part,
    data: Dataset,
    features: NDArray[np.float64] | None,
    how: Debias,
    shapes: dict[str, Shape],
) -> tuple[Shape, NDArray[np.float64]]:
    """Return what validation chose, and the predicted ratings of the tested pairs."""
    weight = np.ones(len(chosen.user))
    if arm in (BY_RATING, BY_BOTH):
        levels = np.unique(np.concatenate([chosen.rating, sample.rating]))
        level, drawn = (np.searchsorted(levels, part.rating) for part in (chosen, sample))
        weight /= by_level(level, drawn, len(levels))[level]
    if arm in (BY_FEATURES, BY_BOTH) and features is not None:
        weight /= by_features(features, data.catalogue.vectors, chosen.user, chosen.item, seed=how.seed)
    rated = Rated(chosen.user, chosen.item, chosen.rating, weight / weight.mean())
    users, items = int(max(part.user.max() for part in (chosen, test))) + 1, len(data.catalogue)
    shape = shapes.get(PLAIN) if arm == BASE else None
    shape = shape or cross_validated(rated, users, items, SHAPES, folds=how.folds, seed=how.seed)
    made = factorise_ratings(rated, users, items, shape, seed=how.seed)
    predicted = made.predict(test.user, test.item)
    if arm == BASE:
        predicted = predicted + (sample.rating - made.predict(sample.user, sample.item)).mean()
    low, high = chosen.rating.min(), chosen.rating.max()
    return shape, np.clip(predicted, low, high)


def _fitted_rewards(
    arm: str, sample: _Part, test: _Part, data: Dataset, people: pl.Series, seed: int
) -> NDArray[np.float64]:
    """Return the chances of the tested pairs in a world that was fitted to the self-selected events."""
    ids = data.catalogue.ids
    random = Interactions(people[sample.user], ids[sample.item], rewards=sample.positive.astype(np.float64))
    world = World.fit(
        data.interactions, data.catalogue, twin=False, exposure=_EXPOSURES[arm], random=random,
        user_features=data.user_features, seed=seed,
    )  # fmt: skip
    assert world.user_ids is not None
    number = {user: at for at, user in enumerate(world.user_ids.to_list())}
    numbers = np.array([number[user] for user in people.to_list()])
    return world.chances(numbers[test.user], test.item)


def _rows(found: dict[tuple[str, str], NDArray[np.float64]], is_coat: bool) -> list[Row]:
    """Return every metric of every fit, and how the squared error compares with that of the unweighted fit."""
    made = []
    for (task, arm), values in found.items():
        for at, metric in enumerate(METRICS):
            published = PUBLISHED.get((task, arm, metric)) if is_coat else None
            made.append(Row(task, arm, metric, interval(values[:, at]), published))
        if arm != PLAIN:
            ratio = interval(values[:, 0] / found[task, PLAIN][:, 0])
            published = PUBLISHED.get((task, arm, RATIO)) if is_coat else None
            made.append(Row(task, arm, RATIO, ratio, published))
    return made


def table_of(measured: Debiased, task: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the head and the rows of a task's table, as text."""
    metrics = (*METRICS, RATIO)
    lines: list[tuple[str, ...]] = []
    for arm in dict.fromkeys(row.arm for row in measured.rows if row.task == task):
        mine = {row.metric: row for row in measured.rows if (row.task, row.arm) == (task, arm)}
        lines.append((arm, *(str(mine[name].figure) if name in mine else "" for name in metrics)))
        told = [mine[name].published if name in mine else None for name in metrics]
        if any(one is not None for one in told):
            lines.append(("  published", *("" if one is None else f"{one:.3f}" for one in told)))
    return ("fit", *metrics), lines


def write_debias(measured: Debiased, folder: StrPath) -> list[Path]:
    """Write the page and the table; return the paths."""
    place = Path(folder)
    rows = [
        {"task": row.task, "fit": row.arm, "metric": row.metric, **row.figure._asdict(), "published": row.published}
        for row in measured.rows
    ]
    place.mkdir(parents=True, exist_ok=True)
    return [
        write_file(place / "report.html", _page(measured)),
        write_file(place / "report.csv", pl.DataFrame(rows, infer_schema_length=None).write_csv().encode()),
    ]


def _page(measured: Debiased) -> bytes:
    parts = [
        text(
            f"Fitted to {measured.chosen:,} self-selected ratings, tested on {measured.tested:,} of items shown at",
            f"random; {measured.sampled:,} others of these were used for propensities. Intervals of 95 % come from",
            f"{measured.how.draws:,} bootstrap samples of users.",
        )
    ]
    for task in (RATING, CLICK):
        parts += [heading(f"Predicting the {task}"), table(*table_of(measured, task))]
    chosen = "; ".join(f"{arm}: {shape.dim} dimensions, pull {shape.pull:g} and {shape.bias_pull:g}"
                       for arm, shape in measured.shapes.items())  # fmt: skip
    parts.append(text(f"Chosen by cross-validation on the self-selected ratings: {chosen}.", soft=True))
    return page("Experiment: debias", parts)
