"""Quality of vectors from clicks, in the library and on the command line."""

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import treeward as tw
from tests.rings import ITEMS, rings
from treeward.cli.app import app
from treeward.core.errors import InvalidArgument
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


@pytest.mark.parametrize("how", [["svd"], ["gru", "--passes", "2"]], ids=lambda how: how[0])
def test_embed_by_clicks_on_the_command_line(log, tmp_path, how):
    done = CliRunner().invoke(app, ["embed", how[0], str(log), "-o", str(tmp_path / "items"), "--dim", "8", *how[1:]])
    assert done.exit_code == 0, done.output
    assert "these vectors" in done.output
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
