"""Sequences of clicks."""

import numpy as np
import polars as pl
import pytest

import treeward as tw
from tests.rings import ITEMS, ring_shop
from treeward.core.errors import DataError, InvalidArgument
from treeward.learn.clicks import clicks_of, last_clicks, padded


@pytest.fixture(scope="module")
def shop():
    return ring_shop()


def test_clicks_are_ordered_by_time_with_missing_times_first(shop):
    log = tw.Interactions(
        ["b", "a", "a", "a", "a"],
        ["i03", "i02", "i01", "i00", "zz"],
        rewards=[1, 1, 1, 0, 1],
        times=pl.Series([5, 9, None, 1, 2]),
    )
    clicks = clicks_of("test", log, shop)
    assert clicks.users.to_list() == ["a", "b"]
    assert [mine.tolist() for mine in clicks.each()] == [[1, 2], [3]]  # i00 was not rewarded, zz is unknown
    assert clicks.counts(ITEMS)[:4].tolist() == [0, 1, 1, 1]


def test_a_repeated_last_click_is_not_held_out(shop):
    log = tw.Interactions(["a", "a", "b", "b"], ["i01", "i01", "i01", "i02"])
    held = last_clicks(clicks_of("test", log, shop))
    assert ([one.tolist() for one in held.histories], held.following.tolist()) == ([[1]], [2])


def test_padding_keeps_the_latest_clicks():
    rows, lengths = padded([np.arange(5), np.array([7])], 3, 99)
    assert (rows.tolist(), lengths.tolist()) == ([[2, 3, 4], [7, 99, 99]], [3, 1])


def test_a_log_with_other_ids_is_refused(shop):
    with pytest.raises(InvalidArgument, match="interactions must be with items of type String"):
        clicks_of("test", tw.Interactions([1], [2]), shop)
    with pytest.raises(DataError, match="rewards no item"):
        clicks_of("test", tw.Interactions(["a"], ["i01"], rewards=[0]), shop)
