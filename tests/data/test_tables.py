"""Tables on disk: what is wrong with one is said with its file and its line."""

import numpy as np
import polars as pl
import pytest

import treeward as tw
from treeward.core.errors import DataError
from treeward.data.tables import place_of


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ("a,x,1,5\nb,y,much,6\n", "line 3: the reward must be a finite number, not 'much'"),
        ("a,x,1,5\nb,y,,6\n", "line 3: the reward must be a finite number, not None"),
        ("a,x,1,5\nb,y,inf,6\n", "line 3: the reward must be a finite number, not inf"),
        (
            "a,x,1,5\nb,y,1,soon\nc,x,0,7\n",
            "line 3: the time must be an integer or like 2026-01-31T12:00:00, not 'soon'",
        ),
        (
            "a,x,1,2026-01-31T12:00:00\nb,y,1,2026-01-31T12:00:00\nc,x,0,7th\n",
            "line 4: the time must be an integer or like 2026-01-31T12:00:00, not '7th'",
        ),
        ('"a\nb",x,1,5\nb,y,much,6\n', "line 4: the reward must be a finite number, not 'much'"),
    ],
)
def test_a_malformed_reward_or_time_names_its_file_and_line(tmp_path, rows, why):
    (tmp_path / "log.csv").write_text(f"user,item,reward,time\n{rows}")
    for read in (tw.Interactions.load, tw.load_dataset):
        with pytest.raises(DataError, match=f"log.csv, {why}"):
            read(tmp_path / "log.csv")


def test_times_that_are_missing_stay_missing(tmp_path):
    (tmp_path / "log.csv").write_text("user,item,time\na,x,2026-01-31T12:00:00\nb,y,\n")
    assert tw.Interactions.load(tmp_path / "log.csv").table["time"].null_count() == 1


def test_rows_of_parquet_files_are_counted_as_rows(tmp_path):
    table = pl.DataFrame({"user": ["a", "b"], "item": ["x", "y"], "reward": [1.0, float("nan")]})
    table.write_parquet(tmp_path / "log.parquet")
    with pytest.raises(DataError, match="log.parquet, row 2: the reward must be a finite number"):
        tw.Interactions.load(tmp_path / "log.parquet")
    assert place_of("x.csv", table, 1) == "x.csv, line 3"


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ("a,1,0\n,0,1\n", "items.csv, line 3: no id"),
        ("a,1,0\nb,0,1\na,1,1\n", "items.csv, line 4: an id that an earlier item has, 'a'"),
        ("a,1,0\nb,nan,1\n", r"items.csv: Catalogue: vectors must be finite in float32, got .* in row 1"),
    ],
)
def test_bad_items_name_their_file(tmp_path, rows, why):
    (tmp_path / "items.csv").write_text(f"id,vector0,vector1\n{rows}")
    with pytest.raises(DataError, match=why):
        tw.Catalogue.load(tmp_path / "items.csv")


def test_a_bad_matrix_names_its_file(tmp_path):
    np.save(tmp_path / "items.npy", np.array([[1.0, np.inf]]))
    with pytest.raises(DataError, match="items.npy: Catalogue: vectors must be finite"):
        tw.Catalogue.load(tmp_path / "items.npy")
