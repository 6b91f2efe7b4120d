"""Data sets with items shown at random: Coat and Open Bandit, tiny ones written here and the real ones."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import treeward as tw
from treeward.core.errors import DataError
from treeward.data.dataset import Dataset
from treeward.data.loaders import kind_of, load_dataset
from treeward.data.open_bandit import checked_log

SLICES = Path(__file__).parents[3] / "shared" / "data"
MATRICES = ("train.ascii", "test.ascii", "user_features.ascii", "item_features.ascii")


def write_matrix(path, matrix):
    path.write_text("".join("".join(f"{value} " for value in row) + "\n" for row in np.asarray(matrix).tolist()))


def coat(folder, users=12, items=8, seed=0):
    """Ratings that are the higher the more of them users choose, and others at random."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    rating = random.integers(1, 6, (users, items))
    write_matrix(folder / "train.ascii", rating * (random.random((users, items)) < rating / 7))
    write_matrix(folder / "test.ascii", rating * (random.random((users, items)) < 0.5))
    write_matrix(folder / "user_features.ascii", np.arange(users)[:, None] % np.array([2, 3]) == 0)
    write_matrix(folder / "item_features.ascii", np.arange(items)[:, None] % np.array([2, 3, 4]) == 0)
    for name in MATRICES[2:]:
        path = folder / name
        path.write_text(path.read_text().replace("True", "1").replace("False", "0"))
    return folder


def open_bandit(folder, rows=60, items=4):
    folder.mkdir(parents=True, exist_ok=True)
    context = [f"{i},{i},{i / 10},colour{i % 2}" for i in range(items)]
    (folder / "item_context.csv").write_text("\n".join([",item_id,item_feature_0,item_feature_1", *context, ""]))
    lines = [f"{n},2019,{n % items},{n % 3 + 1},{int(n % 5 == 0)},0.25,u{n % 7},v{n % 2},0.0" for n in range(rows)]
    head = ",timestamp,item_id,position,click,propensity_score,user_feature_0,user_feature_1,user-item_affinity_0"
    (folder / f"{folder.name}.csv").write_text("\n".join([head, *lines, ""]))
    return folder


def changed(path, line, old, new):
    """Replace the first occurrence of a text in one line of a file."""
    lines = path.read_text().splitlines()
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new, 1)
    path.write_text("\n".join(lines) + "\n")


# --- coat ------------------------------------------------------------------------------------------------------------


def test_coat_has_chosen_and_random_ratings(tmp_path):
    folder = tmp_path / "coat"
    folder.mkdir()
    write_matrix(folder / "train.ascii", [[5, 0, 1], [0, 4, 3]])
    write_matrix(folder / "test.ascii", [[0, 2, 0], [4, 0, 0]])
    write_matrix(folder / "user_features.ascii", [[1, 0], [0, 1]])
    write_matrix(folder / "item_features.ascii", [[1, 0], [0, 1], [1, 1]])
    assert kind_of(folder) == "coat"
    data = load_dataset(folder, test=1, validation=0)
    table = data.interactions.table.select("user", "item", "reward", "action")
    assert table.rows() == [(0, 0, 1.0, "5"), (0, 2, 0.0, "1"), (1, 1, 1.0, "4"), (1, 2, 0.0, "3")]
    assert data.random.table.select("user", "item", "reward", "action").rows() == [(0, 1, 0.0, "2"), (1, 0, 1.0, "4")]
    assert data.catalogue.vectors.tolist() == [[1, 0], [0, 1], [1, 1]]
    assert data.user_features.rows() == [(0, 1.0, 0.0), (1, 0.0, 1.0)]
    assert load_dataset(folder, positive=5, test=1, validation=0).interactions.rewards.sum() == 1
    as_rewards = {str(rating): rating for rating in (1, 3, 4, 5)}
    assert data.interactions.weighed(as_rewards).rewards.to_list() == [5, 1, 4, 3]


@pytest.mark.parametrize(
    ("name", "line", "old", "new", "why"),
    [
        ("train.ascii", 3, "0", "6", "train.ascii, line 3: '6' is not a rating from 1 to 5, or 0 where there is none"),
        ("train.ascii", 2, "0", "-1", "train.ascii, line 2: '-1' is not a rating"),
        ("test.ascii", 4, "0", "2.5", "test.ascii, line 4: '2.5' is not a rating"),
        ("test.ascii", 12, "0 ", "", "test.ascii, line 12: has 7 values, not 8"),
        ("user_features.ascii", 5, "1", "2", "user_features.ascii, line 5: '2' is not 0 or 1"),
    ],
)
@pytest.mark.parametrize("strict", [False, True])
def test_bad_ratings_are_refused_by_file_and_line(tmp_path, name, line, old, new, why, strict):
    folder = coat(tmp_path / "coat")
    changed(folder / name, line, old, new)
    with pytest.raises(DataError, match=why):
        load_dataset(folder, strict=strict)


@pytest.mark.parametrize(("name", "rows"), [("user_features.ascii", 12), ("item_features.ascii", 8)])
def test_features_of_another_length_are_refused(tmp_path, name, rows):
    folder = coat(tmp_path / "coat")
    lines = (folder / name).read_text().splitlines()
    (folder / name).write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(DataError, match=f"{name}, line {rows}: is missing: there should be {rows} lines"):
        load_dataset(folder)
    (folder / name).write_text("\n".join([*lines, lines[0]]) + "\n")
    with pytest.raises(DataError, match=f"{name}, line {rows + 1}: there should be only {rows} lines"):
        load_dataset(folder)


@pytest.mark.parametrize("name", MATRICES)
def test_a_missing_or_empty_matrix_is_refused(tmp_path, name):
    folder = coat(tmp_path / "coat")
    (folder / name).write_text("\n")
    with pytest.raises(DataError, match=f"{name}: is empty"):
        load_dataset(folder, "coat")
    (folder / name).unlink()
    with pytest.raises(DataError, match=f"{name}: cannot be read"):
        load_dataset(folder, "coat")


@pytest.mark.skipif(not SLICES.is_dir(), reason="the slices of real data are not here")
def test_counts_of_coat_are_as_published():
    data = load_dataset(SLICES / "coat")
    assert (len(data.interactions), len(data.random), len(data.catalogue)) == (6_960, 4_640, 300)
    assert data.random.rewards.sum() == 860
    assert data.interactions.users.n_unique() == data.user_features.height == 290


# --- open bandit -----------------------------------------------------------------------------------------------------


def test_open_bandit_has_decisions_with_propensities(tmp_path):
    folder = open_bandit(tmp_path / "men")
    assert kind_of(folder) == "open-bandit"
    data = load_dataset(folder)
    log, left_out = checked_log("test", data.decisions)
    assert (log.height, left_out) == (60, 0)
    assert log.row(5) == ("u5|v1", 1, 2, 0.25, 1.0)
    assert data.catalogue.vectors.round(1).tolist() == [[0, 1, 0], [np.float32(0.1), 0, 1], [np.float32(0.2), 1, 0],
                                                        [np.float32(0.3), 0, 1]]  # fmt: skip
    assert data.interactions.rewards.sum() == 12
    uniform = np.full(4, 0.25)
    assert tw.off_policy(data.decisions, lambda user: uniform).ips.value == pytest.approx(0.2)


def test_saved_data_keeps_random_ratings_features_and_decisions(tmp_path):
    data = load_dataset(coat(tmp_path / "coat"))
    data.save(tmp_path / "saved")
    again = Dataset.load(tmp_path / "saved")
    assert again.random.table.equals(data.random.table)
    assert again.user_features.equals(data.user_features)
    assert again.decisions is None
    logged = load_dataset(open_bandit(tmp_path / "men"))
    logged.save(tmp_path / "logged")
    again = Dataset.load(tmp_path / "logged")
    assert again.decisions.equals(logged.decisions)
    assert again.random is None


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("0.25", "0", "men.csv, line 9: propensity_score must be above 0 and up to 1, got 0.0"),
        ("0.25", "1.01", "men.csv, line 9: propensity_score must be above 0 and up to 1, got 1.01"),
        ("0.25", "nan", "men.csv, line 9: propensity_score must be above 0 and up to 1, got nan"),
        ("0.25", "much", "men.csv, line 9: propensity_score must be above 0 and up to 1"),
        ("2019,3", "2019,4", "men.csv, line 9: item_id must be an item of item_context.csv, got 4"),
    ],
)
def test_bad_propensities_and_items_are_refused_by_file_and_line(tmp_path, old, new, why):
    folder = open_bandit(tmp_path / "men")
    changed(folder / "men.csv", 9, old, new)
    with pytest.raises(DataError, match=why):
        load_dataset(folder)


def test_malformed_decisions_are_counted(tmp_path):
    folder = open_bandit(tmp_path / "men")
    changed(folder / "men.csv", 3, ",0,0.25", ",2,0.25")
    changed(folder / "men.csv", 4, "2019,2,3,", "2019,2,0,")
    data = load_dataset(folder)
    assert {reason: found.where for reason, found in data.dropped.items()} == {
        "click is neither 0 nor 1": "men.csv, line 3", "position below 1": "men.csv, line 4",
    }  # fmt: skip
    assert data.decisions.height == 58


@pytest.mark.parametrize(
    ("name", "old", "new", "why"),
    [
        ("men.csv", "propensity_score", "chance", "men.csv, line 1: has no column propensity_score"),
        ("men.csv", "user_feature_0,user_feature_1", "a,b", "men.csv, line 1: has no column user_feature_0"),
        ("men.csv", "position", "click", "men.csv, line 1: has no column position"),
        ("item_context.csv", "item_feature_1", "item_feature_0", "item_context.csv, line 1: repeats a column"),
    ],
)
def test_wrong_columns_are_refused(tmp_path, name, old, new, why):
    folder = open_bandit(tmp_path / "men")
    changed(folder / name, 1, old, new)
    with pytest.raises(DataError, match=why):
        load_dataset(folder)


def test_items_must_be_numbered_and_different(tmp_path):
    folder = open_bandit(tmp_path / "men")
    changed(folder / "item_context.csv", 3, "1,1,", "1,x,")
    with pytest.raises(DataError, match="item_context.csv, line 3: item_id must be an integer"):
        load_dataset(folder)
    changed(folder / "item_context.csv", 3, "1,x,", "1,0,")
    with pytest.raises(DataError, match="has an item twice"):
        load_dataset(folder)


def test_what_treeward_writes_in_this_layout_is_read(tmp_path):
    log = pl.DataFrame({"user": ["a", "a", "b"], "row": [0, 2, 1], "slot": [0, 1, 0], "propensity": [0.5, 0.25, 1.0],
                        "reward": [1.0, 0.0, 1.0]})  # fmt: skip
    shop = tw.Catalogue([7, 8, 9], [[0.5], [1.0], [2.0]])
    folder = tw.write_open_bandit(log, shop, tmp_path / "out")
    data = load_dataset(folder, test=0, validation=0)
    assert data.decisions.drop("user").equals(log.drop("user"))
    assert data.decisions["user"].to_list() == ["0", "0", "1"]
    assert data.catalogue.vectors.tolist() == [[0.5], [1.0], [2.0]]


@pytest.mark.skipif(not SLICES.is_dir(), reason="the slices of real data are not here")
@pytest.mark.parametrize(("campaign", "items", "clicks"), [("men", 34, (46, 69)), ("women", 46, (46, 46))])
def test_intervals_from_the_random_log_cover_the_mean_of_the_other_policy(campaign, items, clicks):
    random, bts = (load_dataset(SLICES / "open-bandit" / policy / campaign) for policy in ("random", "bts"))
    assert tuple(int(data.decisions["reward"].sum()) for data in (random, bts)) == clicks
    assert len(random.catalogue) == items
    assert set(random.decisions["propensity"].round(9)) == {round(1 / items, 9)}
    shown = np.zeros((3, items))
    np.add.at(shown, (bts.decisions["slot"].to_numpy(), bts.decisions["row"].to_numpy()), 1)
    shown /= shown.sum(axis=1, keepdims=True)
    told = tw.off_policy(random.decisions, lambda user: shown)
    own = bts.decisions["reward"].mean()
    for one in (told.ips, told.snips, told.dr):
        assert one.low <= own <= one.high
    assert told.supported
