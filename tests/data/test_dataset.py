"""Data sets: saved, loaded, and split by user."""

import polars as pl
import pytest

import treeward as tw
from tests.data.test_loaders import busy, taobao
from treeward.core.errors import InvalidArgument
from treeward.data.dataset import Dataset, Sizes, split_users
from treeward.data.loaders import load_dataset


def test_saved_is_loaded(tmp_path):
    data = load_dataset(taobao(tmp_path, busy(), b"1,2\n"))
    data.save(tmp_path / "saved")
    again = load_dataset(tmp_path / "saved")
    assert isinstance(again, Dataset)
    for one, other in ((data.interactions, again.interactions), (data.catalogue, again.catalogue)):
        assert one.table.equals(other.table)
    assert again.splits.equals(data.splits)
    assert (again.dropped, again.source, again.name) == (data.dropped, data.source, data.name)
    assert again.catalogue.dim == 0
    with pytest.raises(tw.ArtefactError):
        data.save(tmp_path / "saved")


def test_splits_depend_on_users_and_seed_only():
    users = pl.Series([f"u{i}" for i in range(100)] * 2)
    one, again, other = (split_users(users, Sizes(20, 0.1), seed) for seed in (0, 0, 1))
    assert one.equals(again)
    assert not one.equals(other)
    assert one["split"].value_counts().sort("split").rows() == [("train", 70), ("validation", 10), ("test", 20)]
    assert one["user"].n_unique() == 100
    with pytest.raises(InvalidArgument, match="sizes that leave some of the 100 users for training"):
        split_users(users, Sizes(90, 10), 0)
    with pytest.raises(InvalidArgument, match="test must be a finite number of at least 0 and below 1"):
        split_users(users, Sizes(1.5, 0), 0)
