"""Logs of decisions in the layout of the Open Bandit data set."""

import polars as pl
import pytest

import treeward as tw
from tests.simulate.test_off_policy import logged
from treeward.core.errors import InvalidArgument
from treeward.simulate import World
from treeward.simulate.synthetic import vivid


@pytest.fixture(scope="module")
def world():
    return World(*vivid(items=40, users=300, dim=8, seed=4))


def test_logs_are_written_in_the_open_bandit_layout(world, tmp_path):
    log = logged(world, 0, rounds=3).log
    folder = tw.write_open_bandit(log, world.catalogue, tmp_path)
    assert folder == tmp_path / "bts" / "all"
    events, items = pl.read_csv(folder / "all.csv"), pl.read_csv(folder / "item_context.csv")
    assert events.columns[1:] == [
        "timestamp", "item_id", "position", "click", "propensity_score", "user_feature_0"
    ]  # fmt: skip
    assert events.height == 900
    assert events["item_id"].to_list() == log["row"].to_list()
    assert events["position"].unique().to_list() == [1]
    assert events["propensity_score"].to_list() == pytest.approx(log["propensity"].to_list())
    assert items["item_id"].to_list() == list(range(40))
    assert [name for name in items.columns if name.startswith("item_feature")] == [
        f"item_feature_{i}" for i in range(8)
    ]
    with pytest.raises(InvalidArgument, match="campaign must be a name for a folder"):
        tw.write_open_bandit(log, world.catalogue, tmp_path, campaign="../up")
    with pytest.raises(InvalidArgument, match="of rows below 2"):
        tw.write_open_bandit(log, tw.Catalogue(range(2)), tmp_path)
