"""`treeward experiment debias`: fits to self-selected ratings, tested on items shown at random."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import treeward as tw
from tests.commands import run
from tests.data.test_random_exposure import coat
from treeward.core.errors import DataError, InvalidArgument
from treeward.data.loaders import load_dataset
from treeward.experiment import debias
from treeward.experiment.debias import BY_BOTH, BY_RATING, CLICK, PLAIN, RATING, RATIO, Debias, measure_debias
from treeward.experiment.debias_metrics import METRICS, Predicted, figures, interval, resampled
from treeward.learn.ratings import Shape
from treeward.simulate.fit_evidence import auc

COAT = Path(__file__).parents[3] / "shared" / "data" / "coat"


@pytest.fixture
def one_shape(monkeypatch):
    """Leave nothing to choose: what cross-validation chooses for Coat."""
    monkeypatch.setattr(debias, "SHAPES", (Shape(16, 7.0, 3.0),))


def predictions(users=20, each=8, seed=0):
    random = np.random.default_rng(seed)
    user = np.repeat(np.arange(users), each)
    rating = random.integers(1, 6, len(user)).astype(float)
    return Predicted(user, rating, rating >= 4, np.round(rating + random.normal(size=len(user)), 1))


def slow_ndcg(tested, who):
    """Equal predictions count as in the mean over all orders: each gets the mean discount of their places."""
    predicted, relevant = (column[tested.user == who] for column in (tested.predicted, tested.positive))
    discount = np.where(np.arange(len(predicted)) < 5, 1 / np.log2(np.arange(len(predicted)) + 2), 0)
    gain = 0.0
    for value in np.unique(predicted):
        places = slice((predicted > value).sum(), (predicted >= value).sum())
        gain += relevant[predicted == value].sum() * discount[places].mean()
    return gain / discount[: relevant.sum()].sum()


def test_figures_equal_their_definitions():
    tested = predictions()
    [made] = figures(tested, np.ones((1, 20)))
    told = dict(zip(METRICS, made, strict=True))
    error = tested.predicted - tested.rating
    assert told["MSE"] == pytest.approx((error**2).mean())
    assert told["MAE"] == pytest.approx(abs(error).mean())
    assert told["AUC"] == pytest.approx(auc(tested.predicted, tested.positive))
    gains = [slow_ndcg(tested, who) for who in range(20) if tested.positive[tested.user == who].any()]
    assert told["NDCG@5"] == pytest.approx(np.mean(gains))
    bins = np.array_split(np.argsort(tested.predicted, kind="stable"), 10)
    assert told["calibration error"] == pytest.approx(sum(abs(error[part].sum()) for part in bins) / len(error))


def test_a_user_who_counts_twice_is_there_twice():
    tested = predictions(users=4)
    twice = tested.user == 2
    longer = Predicted(
        np.concatenate([tested.user, np.full(twice.sum(), 4)]),
        *(np.concatenate([column, column[twice]]) for column in tested[1:]),
    )
    one = figures(tested, np.array([[1.0, 1, 2, 1]]))[0]
    other = figures(longer, np.ones((1, 5)))[0]
    np.testing.assert_allclose(one[:4], other[:4])  # the bins of the last one are those of the ratings as given


def test_intervals_cover_the_truth_and_repeat():
    times = resampled(50, 300, seed=0)
    assert times.shape == (301, 50)
    assert (times.sum(axis=1) == 50).all()
    np.testing.assert_array_equal(times, resampled(50, 300, seed=0))
    found = interval(figures(predictions(users=50), times)[:, 0])
    assert found.low < found.value < found.high
    assert 0.7 < found.low < 1.0 < found.high < 1.4


def test_the_command_reports_every_fit_with_intervals(tmp_path, one_shape):
    coat(tmp_path / "coat", users=60, items=30)
    told = run("experiment", "debias", "coat", "-o", "run", "--sample", "0.2", "--draws", "50", "--folds", "2",
               cwd=tmp_path)  # fmt: skip
    assert "weighted by rating" in told
    assert "from memory, not checked" in told
    rows = pl.read_csv(tmp_path / "run" / "report.csv")
    assert rows["task"].unique().sort().to_list() == [RATING, CLICK]
    assert rows.filter(pl.col("metric") == "NDCG@5").height == 5 + 4
    assert (rows["low"] <= rows["value"] + 1e-9).all()
    assert (rows["value"] <= rows["high"] + 1e-9).all()
    assert b"weighted by features" in (tmp_path / "run" / "report.html").read_bytes()


def test_random_ratings_are_tested_on_or_sampled_never_both(tmp_path, one_shape):
    data = load_dataset(coat(tmp_path / "coat", users=60, items=30))
    measured = measure_debias(data, Debias(sample=0.25, draws=20, folds=2))
    assert measured.sampled + measured.tested == len(data.random)
    assert measured.sampled == round(0.25 * len(data.random))
    again = measure_debias(data, Debias(sample=0.25, draws=20, folds=2))
    assert again.rows == measured.rows


def test_data_without_random_ratings_is_refused(tmp_path):
    data = load_dataset(coat(tmp_path / "coat"))
    data.random = None
    with pytest.raises(InvalidArgument, match="DATA must be data with ratings of items shown at random"):
        measure_debias(data, Debias())
    data.random = tw.Interactions([0, 1], [0, 1], rewards=[1.0, 1.0])
    with pytest.raises(DataError, match="too few random ratings"):
        measure_debias(data, Debias(sample=0.5))
    with pytest.raises(InvalidArgument, match="experiment debias: sample must be a finite number above 0"):
        measure_debias(data, Debias(sample=1.5))


@pytest.mark.skipif(not COAT.is_dir(), reason="the slices of real data are not here")
def test_weights_lower_the_error_on_random_ratings_of_coat(one_shape):
    measured = measure_debias(load_dataset(COAT), Debias(draws=100, folds=2))
    published = measured.row(RATING, BY_RATING, "MSE").published
    for arm, ratio in ((BY_RATING, 0.92), (BY_BOTH, 0.9)):
        assert measured.row(RATING, arm, "MSE").figure.value < 1.1 * published
        assert measured.row(RATING, arm, RATIO).figure.value <= ratio
        assert measured.row(RATING, arm, RATIO).figure.high < 1
        assert (
            measured.row(RATING, arm, "calibration error").figure.high
            < measured.row(RATING, PLAIN, "calibration error").figure.low
        )
