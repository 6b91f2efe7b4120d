"""Quality of vectors from clicks, in the library and on the command line."""

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import treeward as tw
from tests.rings import ITEMS, rings
from treeward.cli.app import app
from treeward.core.errors import DataError, InvalidArgument
from treeward.data.dataset import Dataset
from treeward.embed.quality import quality
from treeward.learn.next_click import Settings

TITLES = ["red wool scarf", "blue wool scarf", "steel garden spade", "small garden spade", "green wool hat"]


def test_enum_ids_and_categories_give_the_same_vectors_as_strings():
    log, names = rings(60), [f"i{item:02}" for item in range(ITEMS)]
    enum, kinds = pl.Enum(names), pl.Enum(["a", "b"])
    told = pl.Series([None, *["a", "b"] * (ITEMS // 2)][:ITEMS], dtype=kinds)
    coded = tw.Catalogue(pl.Series(names, dtype=enum), categories=told)
    plain = tw.Catalogue(names, categories=told.cast(pl.String))
    some = tw.Interactions.of_table(log.table.filter(pl.col("item") != "i03"))  # which is then filled
    np.testing.assert_array_equal(tw.svd_vectors(some, coded, 4).vectors, tw.svd_vectors(some, plain, 4).vectors)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("rings") / "events.csv"
    pl.DataFrame(rings(400).table).write_csv(path)
    return path


def test_good_vectors_find_more_last_clicks_than_random_ones(log):
    data = tw.load_dataset(str(log))
    ring = np.array([int(name[1:]) for name in data.catalogue.ids.to_list()])
    angle = 2 * np.pi * (ring % (ITEMS // 2)) / (ITEMS // 2)
    side = ring >= ITEMS // 2
    flat = np.stack([np.cos(angle) * side, np.sin(angle) * side, np.cos(angle) * ~side, np.sin(angle) * ~side], axis=1)
    good = quality(data, data.catalogue.with_vectors(flat))
    bad = quality(data, data.catalogue.with_vectors(np.random.default_rng(0).normal(size=(ITEMS, 4))))
    assert good.users == bad.users == len(data.users("test"))
    assert good.recall["these vectors"] == 1  # the ring is known, and 20 of it are asked for
    assert bad.recall["these vectors"] < good.recall["these vectors"]
    assert good.recall["popularity"] == bad.recall["popularity"] < 0.8


def test_lists_leave_out_clicked_items_and_share_ties():
    """Popularity knows three items by 3, 2 and 2 clicks, and three that nobody clicked."""
    clicks = {"a": [0, 1], "b": [0, 1], "c": [0, 2], "d": [2, 5], "x": [0, 1], "y": [1, 0, 3], "z": [2, 4]}
    users = [user for user, items in clicks.items() for _ in items]
    log = tw.Interactions(users, [item for items in clicks.values() for item in items])
    splits = pl.DataFrame({"user": list(clicks), "split": ["train"] * 4 + ["test"] * 3})
    shop = tw.Catalogue(range(6), np.eye(6))
    data = Dataset("tiny", shop, log, splits)
    found = quality(data, shop, count=2)
    # x: item 1 ties with 2 for the first place after 0 is left out. y: 3 ties with 4 behind 2 and 5. z: 4 ties with 3
    # behind 0, 1 and 5.
    assert found.users == 3
    assert found.hit_rate["popularity"] == pytest.approx((1 + 0 + 0) / 3)
    assert found.ndcg["popularity"] == pytest.approx((1 + 1 / np.log2(3)) / 2 / 3)
    assert found.recall["popularity"] == 1  # there are fewer than 20 items
    # The vectors of what was clicked say nothing of other items: all the others tie.
    assert found.hit_rate["these vectors"] == pytest.approx((2 / 5 + 2 / 4 + 2 / 5) / 3)
    with pytest.raises(InvalidArgument, match="quality: count must be an integer of at least 1"):
        quality(data, shop, count=0)
    once = tw.Interactions(["a", "a", "b"], [0, 1, 0])
    halves = pl.DataFrame({"user": ["a", "b"], "split": ["train", "test"]})
    with pytest.raises(DataError, match="no test user clicked a second item"):
        quality(Dataset("tiny", shop, once, halves), shop)


@pytest.mark.parametrize("how", [["svd"], ["gru", "--passes", "2"]], ids=lambda how: how[0])
def test_embed_by_clicks_on_the_command_line(log, tmp_path, how):
    done = CliRunner().invoke(app, ["embed", how[0], str(log), "-o", str(tmp_path / "items"), "--dim", "8", *how[1:]])
    assert done.exit_code == 0, done.output
    assert "these vectors" in done.output
    assert all(name in done.output for name in ("HR@10", "NDCG@10", "recall@20"))
    assert ("gru model" in done.output) == (how[0] == "gru")
    assert tw.Catalogue.load(tmp_path / "items").dim == 8
    again = CliRunner().invoke(app, ["embed", how[0], str(log), "-o", str(tmp_path / "items")])
    assert again.exit_code == 1


def test_embed_text_on_the_command_line(tmp_path):
    folder = tmp_path / "ml"
    folder.mkdir()
    lines = [f"{user},{1 + (user + step) % 8},5,{step}" for user in range(40) for step in range(4)]
    (folder / "ratings.csv").write_text("userId,movieId,rating,timestamp\n" + "\n".join(lines) + "\n")
    rows = [
        f"{at + 1},{title},{'Wool' if 'wool' in title else 'Garden'}" for at, title in enumerate([*TITLES, *TITLES[:3]])
    ]
    (folder / "movies.csv").write_text("movieId,title,genres\n" + "\n".join(rows) + "\n")
    call = ["embed", "text", str(folder), "-o", str(tmp_path / "items"), "--model", "static", "--dim", "3"]
    done = CliRunner().invoke(app, call)
    assert done.exit_code == 0, done.output
    assert "main category" in done.output
    assert tw.Catalogue.load(tmp_path / "items").dim == 3
    call = ["embed", "gru", str(folder), "-o", str(tmp_path / "tuned"), "--model", "static", "--dim", "3"]
    call += ["--passes", "2", "--initial", "text"]
    done = CliRunner().invoke(app, call)
    assert done.exit_code == 0, done.output
    data = tw.load_dataset(folder)
    wanted = tw.text_gru_vectors(
        data.part("train"), data.part("validation"), data.catalogue, 3, model="static", settings=Settings(passes=2)
    )
    np.testing.assert_array_equal(tw.Catalogue.load(tmp_path / "tuned").vectors, wanted.catalogue.vectors)
    done = CliRunner().invoke(app, [*call, "--force", "--text", "body"])
    assert done.exit_code == 1
    assert "columns must be columns of the items" in str(done.exception)


def test_purity_counts_the_main_label_of_each_leaf():
    tree = tw.ItemTree.from_categories(np.eye(6), ["a", "a", "a", "b", "b", "b"])
    assert tree.purity(["x", "x", "y", "y", "y", None]) == (4 / 5, 3 / 5)
    assert tree.purity([None] * 6) == (0.0, 0.0)
    with pytest.raises(InvalidArgument, match="labels must be 6 of them"):
        tree.purity(["x"])
