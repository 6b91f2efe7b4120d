"""What `treeward data inspect` says of a data set."""

import re

import numpy as np

import treeward as tw
from tests.commands import run as cli
from tests.data.test_loaders import behaving, busy, mind, taobao
from treeward.data.dataset_summary import describe, histogram
from treeward.data.loaders import load_dataset


def test_a_summary_counts_users_items_and_events(tmp_path):
    card = describe(load_dataset(taobao(tmp_path, busy())))
    assert card.counts == (6, 4, 4, 2, 72, 72, 0)
    assert card.density == 1.0
    assert card.paper["items"] == 4_162_024
    assert card.times == ("2017-11-24 17:21:10", "2017-11-24 17:21:21")
    assert card.actions == {"pv": 72}
    assert card.other_actions == {}
    assert histogram(np.array([1, 1, 2, 3, 4, 9])) == [("1", 2), ("2", 1), ("3-4", 2), ("5-8", 0), ("9-16", 1)]
    assert histogram(np.array([], dtype=np.int64)) == []


def test_a_summary_counts_clicks_and_skips_separately(tmp_path):
    card = describe(load_dataset(mind(tmp_path), test=1, validation=0))
    assert (card.counts.interactions, card.counts.clicks, card.counts.skips) == (9, 6, 3)
    assert card.counts.categories == 2
    assert card.actions == {"history": 4, "skip": 3, "click": 2}
    assert card.paper == {"users": 1_000_000, "items": 161_013, "categories": 285, "clicks in impressions": 24_155_470}
    assert card.read == {}
    told = cli("data", "inspect", tmp_path, "--loader-option", "test=1", "--loader-option", "validation=0")
    assert re.search(r"clicks +6 *\n", told)
    assert re.search(r"clicks in impressions +2 +24,155,470", told)
    assert re.search(r"clicks of histories +4 *\n", told)
    assert re.search(r"skips +3 *\n", told)
    assert "all actions" not in told


ALL = ("--action", "pv=1", "--action", "cart=1", "--action", "buy=1")


def test_a_summary_names_actions_that_were_left_out(tmp_path):
    card = describe(load_dataset(taobao(tmp_path, behaving(), b"9,9,9,pv,9\n")))
    assert (card.counts.clicks, card.counts.skips) == (72, 0)
    assert card.other_actions == {"buy": 13, "cart": 12}
    assert card.read == {"users": 8, "items": 6, "categories": 3, "clicks": 73, "all actions": 98}
    told = cli("data", "inspect", tmp_path)
    assert re.search(r"clicks +72 +73 *\n", told)  # the paper counts no clicks alone
    assert re.search(r"all actions +97 +98 +100,150,807", told)
    assert re.search(r"action buy, left out +13", told)
    whole = cli("data", "inspect", tmp_path, *ALL)
    assert re.search(r"all actions +97 +98 +100,150,807", whole)
    assert ", left out" not in whole


def test_inspect_prints_the_summary(tmp_path):
    (tmp_path / "log").mkdir()
    told = cli("data", "inspect", taobao(tmp_path / "log", busy()), "--save", tmp_path / "kept")
    assert re.search(r"items +4 +4 +4,162,024", told)
    assert re.search(r"action pv +72", told)
    assert re.search(r"9-16 +6 +█+", told)  # events per user
    assert load_dataset(tmp_path / "kept").source["sha256"] in told
    assert "exists" in cli("data", "inspect", tmp_path / "kept", "--save", tmp_path / "kept", code=2)
    (tmp_path / "mine.csv").write_text("visitor,sku,at\nada,1,5\nbob,,6\nada,2,7\ncleo,1,8\ndan,2,9\neve,1,10\n")
    columns = [word for one in ("user=visitor", "item=sku", "time=at") for word in ("--column", one)]
    told = cli("data", "inspect", tmp_path / "mine.csv", *columns)
    assert "left out or noted" in told
    assert "paper" not in told
    assert "no column 'user'" in cli("data", "inspect", tmp_path / "mine.csv", code=2)
    for wrong, flag in (("columns=visitor", "--column"), ("columns=[1]", "--column"), ("items=5", "--items")):
        told = cli("data", "inspect", tmp_path / "mine.csv", "--loader-option", wrong, code=2, width=200)
        assert f"--loader-option must be an option that is not given as {flag}, got '{wrong.split('=')[0]}'" in told


def test_one_absurd_time_does_not_change_the_unit(tmp_path):
    tw.Interactions([1, 2, 3], [1, 2, 3], times=[1_500_000_000, 1_500_000_100, 10**15]).table.write_csv(
        tmp_path / "x.csv"
    )
    first, _ = describe(load_dataset(tmp_path / "x.csv")).times
    assert first.startswith("2017-07-14")
