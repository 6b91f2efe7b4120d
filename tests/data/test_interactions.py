"""Logs of events: made, saved, read from tables, and refused."""

from datetime import datetime

import numpy as np
import polars as pl
import pytest

import treeward as tw
from treeward.core.errors import DataError, InvalidArgument


def test_times_survive_a_csv(tmp_path):
    log = tw.Interactions(["u"], ["i"], times=[datetime(2026, 1, 31, 12)])
    log.table.write_csv(tmp_path / "log.csv")
    assert tw.Interactions.load(tmp_path / "log.csv").table["time"].to_list() == [datetime(2026, 1, 31, 12)]
    (tmp_path / "log.csv").write_text("user,item,time\na,b,noon\n")
    with pytest.raises(
        DataError, match=r"log.csv, line 2: the time must be an integer or like 2026-01-31T12:00:00, not 'noon'"
    ):
        tw.Interactions.load(tmp_path / "log.csv")


def test_interactions_are_equal_from_every_form(tmp_path):
    log = tw.Interactions(["u", "v"], [1, 2], rewards=[0.5, 1], actions=["pv", "buy"], times=[10, 20])
    log.save(tmp_path / "log")
    assert tw.Interactions.load(tmp_path / "log").table.equals(log.table)
    log.table.rename({"user": "uid"}).write_csv(tmp_path / "log.csv")
    assert tw.Interactions.load(tmp_path / "log.csv", columns={"user": "uid"}).table.equals(log.table)
    assert repr(log) == "Interactions(2 events, 2 users, 2 items)"


def test_rewards_are_one_unless_given():
    assert tw.Interactions([1, 1], ["a", "b"]).rewards.to_list() == [1.0, 1.0]
    assert len(tw.Interactions([], [])) == 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"items": [1]}, "items must be 2 values"),
        ({"users": [None, "x"]}, "users must be without nulls"),
        ({"users": [1.5, 2.0]}, "users must be all strings or all integers"),
        ({"rewards": [1.0, np.nan]}, "rewards must be finite"),
        ({"rewards": [1.0, None]}, r"rewards must be finite numbers, one for each event, got \[None\]"),
        ({"actions": [["a"], ["b"]]}, "actions must be names"),
        ({"rewards": ["good", "bad"]}, "rewards must be numbers"),
        ({"rewards": [1.0]}, "rewards must be 2 values"),
        ({"times": ["noon", "dusk"]}, "times must be integers, dates or datetimes"),
        ({"actions": ["pv"]}, "actions must be 2 values"),
    ],
)
def test_bad_interactions_are_refused(change, why):
    with pytest.raises(InvalidArgument, match=why):
        tw.Interactions(**{"users": ["u", "v"], "items": [1, 2]} | change)


LOGS_WITHOUT_IMPRESSIONS = [
    ({}, "history or skip"),
    ({"actions": ["pv", "buy", "pv"]}, "history or skip"),
    ({"actions": ["click", "skip", None]}, "history"),
    ({"actions": ["history", "click", "click"]}, "skip"),
    ({"actions": pl.Series(["history", "click", "click"], dtype=pl.Enum(["history", "skip", "click"]))}, "skip"),
]


@pytest.mark.parametrize(("given", "missing"), LOGS_WITHOUT_IMPRESSIONS)
def test_impressions_of_a_log_without_any_raise(given, missing):
    log = tw.Interactions(["u", "u", "v"], [1, 2, 3], **given)
    assert not log.has_impressions
    why = f"the log has no impressions: none of its events has the action {missing}$"
    with pytest.raises(DataError, match=why):
        log.impressions()


def test_an_empty_log_has_no_impressions():
    assert not tw.Interactions([], []).has_impressions


def test_impressions_keep_the_order_and_the_times(tmp_path):
    actions = ["skip", "history", "click", "skip", None, "look", "history"]
    log = tw.Interactions(
        list("uvuvuvu"), range(7), rewards=[0, 1, 1, 0, 1, 1, 1], actions=actions, times=[5, 1, 6, 7, 8, 9, 2]
    )
    log.save(tmp_path / "log")
    for one in (log, tw.Interactions.load(tmp_path / "log")):
        history, clicks, skips = one.impressions()
        assert history.table.select("user", "item", "time").rows() == [("v", 1, 1), ("u", 6, 2)]
        assert clicks.items.to_list() == [2]
        assert skips.of_users(pl.Series(["v"])).items.to_list() == [3]
    no_clicks = tw.Interactions(["u", "u"], [1, 2], rewards=[1, 0], actions=["history", "skip"]).impressions()
    assert [len(part) for part in no_clicks] == [1, 0, 1]


def test_a_log_without_users_or_items_is_refused(tmp_path):
    pl.DataFrame({"user": [1]}).write_csv(tmp_path / "log.csv")
    with pytest.raises(DataError, match="no column 'item' for the item"):
        tw.Interactions.load(tmp_path / "log.csv")


def test_users_of_another_type_are_refused():
    log = tw.Interactions(["a"], [1])
    with pytest.raises(InvalidArgument, match="a series of String"):
        log.of_users(pl.Series([1]))
    with pytest.raises(InvalidArgument, match="a series of String"):
        log.of_users(["a"])
