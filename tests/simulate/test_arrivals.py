"""Visits of users over days."""

import numpy as np
import pytest

from treeward.core.errors import InvalidArgument
from treeward.simulate.arrivals import Visits, arrivals, counts_of


def test_visits_are_a_function_of_the_seed():
    one, same, other = (arrivals(200, 10, most=100, seed=seed) for seed in (3, 3, 4))
    for mine, theirs in zip(one, same, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert len(one.user) != len(other.user) or (one.user != other.user).any()


def test_visits_of_a_user_are_numbered_in_the_order_of_time():
    visits = arrivals(300, 7, most=40, seed=1)
    assert set(visits.user.tolist()) == set(range(300))
    assert (np.diff(visits.day) >= 0).all()
    assert (visits.day.min(), visits.day.max()) == (1, 7)
    assert ((visits.luck >= 0) & (visits.luck < 1)).all()
    for user in range(300):
        mine = visits.visit[visits.user == user]
        assert mine.tolist() == list(range(1, len(mine) + 1))
    assert visits.visit.max() == 40  # of 300 users, somebody would come more often
    first = visits.day[visits.visit == 1]
    assert np.bincount(first, minlength=8)[1:].min() > 20  # uniform would be 43


def test_visits_per_user_have_the_median_and_a_heavy_tail():
    counts = counts_of(100_000, 4.0, 3.5, 10_000, 0)
    assert np.median(counts) == 4
    assert 6.4 < counts.mean() < 7.2
    beyond = [(counts > n).mean() for n in (60, 120)]
    assert 4 < beyond[0] / beyond[1] < 14  # an exponential law of this mean would give more than 1,000
    assert np.median(counts_of(10_000, 40.0, 3.5, 1_000, 0)) == pytest.approx(40, abs=2)


def test_batches_hold_no_user_twice_and_end_with_the_day():
    visits = arrivals(30, 5, most=50, seed=0)
    parts = list(visits.batches(8))
    assert [one.start for one in parts] == [0, *(one.stop for one in parts[:-1])]
    assert parts[-1].stop == len(visits.user)
    for part in parts:
        users = visits.user[part].tolist()
        assert len(set(users)) == len(users) <= 8
        assert len(set(visits.day[part].tolist())) == 1
    none = Visits(*(column[:0] for column in visits))
    assert list(none.batches(8)) == []


@pytest.mark.parametrize("bad", [{"users": 0}, {"days": -1}, {"median": 0.5}, {"tail": 1.0}, {"most": 0}])
def test_impossible_visits_are_refused(bad):
    with pytest.raises(InvalidArgument, match=next(iter(bad))):
        arrivals(**{"users": 3, "days": 2, "most": 5, **bad})
