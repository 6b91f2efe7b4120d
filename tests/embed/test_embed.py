"""Item vectors from titles and clicks, and models of the next click."""

import sqlite3
import sys

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import treeward as tw
from treeward.cli.app import app
from treeward.core.errors import ArtefactError, DataError, InvalidArgument
from treeward.embed.decompose import columns_to_read, principal_components
from treeward.embed.quality import quality
from treeward.embed.sentences import PACKAGE, Cache, SentencesMissing, find_model
from treeward.embed.text import TEXT_COLUMNS, _texts
from treeward.learn.clicks import clicks_of, last_clicks, padded
from treeward.learn.networks import KINDS
from treeward.learn.next_click import NextClick, Settings, top_rows
from treeward.learn.torch import TorchMissing

ITEMS = 40


def rings(users, seed=0):
    """Users walk round one of two rings of items, one step at a time: the next click follows from the last."""
    random = np.random.default_rng(seed)
    who, what = [], []
    for user in range(users):
        ring, at, half = user % 2, random.integers(ITEMS // 2), ITEMS // 2
        for step in range(6):
            who.append(f"u{user}")
            what.append(f"i{ring * half + (at + step) % half:02}")
    return tw.Interactions(who, what)


@pytest.fixture(scope="module")
def shop():
    return tw.Catalogue([f"i{item:02}" for item in range(ITEMS)], titles=[f"thing number {i}" for i in range(ITEMS)])


# --- clicks ---------------------------------------------------------------------------------------------------------


def test_clicks_are_in_order_of_time_and_what_has_none_is_first(shop):
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


def test_a_repeated_last_click_is_not_asked_for(shop):
    log = tw.Interactions(["a", "a", "b", "b"], ["i01", "i01", "i01", "i02"])
    held = last_clicks(clicks_of("test", log, shop))
    assert ([one.tolist() for one in held.histories], held.following.tolist()) == ([[1]], [2])


def test_padding_keeps_the_latest():
    rows, lengths = padded([np.arange(5), np.array([7])], 3, 99)
    assert (rows.tolist(), lengths.tolist()) == ([[2, 3, 4], [7, 99, 99]], [3, 1])


def test_clicks_of_another_kind_of_id_are_refused(shop):
    with pytest.raises(InvalidArgument, match="interactions must be with items of type String"):
        clicks_of("test", tw.Interactions([1], [2]), shop)
    with pytest.raises(DataError, match="rewards no item"):
        clicks_of("test", tw.Interactions(["a"], ["i01"], rewards=[0]), shop)


# --- models of the next click ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models(shop):
    settings = Settings(rate=0.01, passes=25, window=8)
    return {kind: NextClick.fit(kind, rings(600), rings(60, 1), shop, 16, settings=settings) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_foresees_the_next_click(models, shop, kind):
    held = last_clicks(clicks_of("test", rings(100, 2), shop))
    found = models[kind].top(held.histories, 3)
    recall = (found == held.following[:, None]).any(axis=1).mean()
    chance = 3 / (ITEMS - 5)
    assert recall > (0.9 if kind != "linear" else 3 * chance)  # a mean does not know which click was last
    assert models[kind].losses[-1] < models[kind].losses[0]
    for row, mine in zip(found.tolist(), held.histories, strict=True):
        assert len(set(row)) == 3
        assert not set(row) & set(mine.tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_says_the_same(models, kind, tmp_path):
    model = models[kind]
    model.save(tmp_path / "model")
    again = NextClick.load(tmp_path / "model")
    histories = [np.array([1, 2, 3]), np.array([25]), np.zeros(0, dtype=np.int64)]
    np.testing.assert_array_equal(model.user_vectors(histories), again.user_vectors(histories))
    assert not again.user_vectors(histories)[2].any()  # nobody yet: nowhere, so what is popular comes first
    # What somebody is asked beside others does not matter.
    np.testing.assert_allclose(again.user_vector([25]), again.user_vectors(histories)[1], atol=1e-5)
    (tmp_path / "model" / "manifest.json").write_text("{}")
    with pytest.raises(ArtefactError):
        NextClick.load(tmp_path / "model")


def test_the_same_seed_gives_the_same_model(shop):
    settings = Settings(passes=2)
    for kind in KINDS:
        one, two, other = (
            NextClick.fit(kind, rings(40), rings(10, 1), shop, 8, seed=seed, settings=settings) for seed in (3, 3, 4)
        )
        np.testing.assert_array_equal(one.vectors, two.vectors)
        np.testing.assert_array_equal(one.weights, two.weights)
        assert not np.array_equal(one.vectors, other.vectors)


def test_many_items_are_learned_from_a_sample():
    """More than 2,048 items: the softmax is over a sample, corrected for how it is drawn."""
    count = 2_400
    shop = tw.Catalogue(range(count))
    random = np.random.default_rng(0)
    starts = random.integers(0, count // 2, 3_000)  # the second half is never clicked
    log = tw.Interactions(np.repeat(np.arange(3_000), 2), np.stack([starts, (starts + 1) % (count // 2)], 1).ravel())
    valid = tw.Interactions(np.repeat(np.arange(200), 2), np.stack([np.arange(200), np.arange(1, 201)], 1).ravel())
    model = NextClick.fit("gru", log, valid, shop, 16, settings=Settings(rate=0.01, passes=10))
    assert model.losses[-1] < 0.8 * np.log(count)
    found = model.top([np.array([row]) for row in range(200)], 20)
    assert (found == np.arange(1, 201)[:, None]).any(axis=1).mean() > 0.3
    assert (found < count // 2).mean() > 0.9


def test_scores_and_bests():
    scores = np.array([[0.1, 0.9, 0.5, 0.7]], dtype=np.float32)
    assert top_rows(scores.copy(), [np.array([1])], 2, include_clicked=False).tolist() == [[3, 2]]
    assert top_rows(scores.copy(), [np.array([1])], 4, include_clicked=True).tolist() == [[1, 3, 2, 0]]


def test_models_refuse_what_they_cannot_learn_from(shop):
    log = rings(20)
    with pytest.raises(InvalidArgument, match="kind must be"):
        NextClick.fit("lstm", log, log, shop)
    with pytest.raises(InvalidArgument, match=r"start must be of shape \(40, 8\), and finite"):
        NextClick.fit("gru", log, log, shop, 8, start=np.zeros((3, 8), dtype=np.float32))
    single = tw.Interactions(["a"], ["i01"])
    with pytest.raises(DataError, match="no validation user clicked two things"):
        NextClick.fit("gru", log, single, shop)
    with pytest.raises(DataError, match="no training user clicked two things"):
        NextClick.fit("gru", single, log, shop)
    with pytest.raises(InvalidArgument, match="device must be one that torch has here"):
        NextClick.fit("gru", log, log, shop, device="zz")
    for wrong in ({"rate": 0}, {"window": 0}, {"passes": "x"}):
        with pytest.raises(InvalidArgument, match=f"{next(iter(wrong))} must be"):
            NextClick.fit("gru", log, log, shop, settings=Settings(**wrong))
    with pytest.raises(DataError, match="there are no validation users"):
        NextClick.fit("gru", log, tw.Interactions.of_table(log.table.head(0)), shop)
    model = NextClick.fit("linear", log, log, shop, 4, settings=Settings(passes=1))
    for history in ([ITEMS], [-1]):
        with pytest.raises(InvalidArgument, match="histories must be rows from 0 to 39"):
            model.user_vector(history)
    with pytest.raises(InvalidArgument, match="count must be"):
        model.top([np.array([1])], ITEMS + 1)


# --- vectors of clicks ----------------------------------------------------------------------------------------------


def test_gru_vectors_tell_the_rings_apart(shop):
    tuned = tw.gru_vectors(rings(300), rings(40, 1), shop, 8, settings=Settings(passes=8))
    assert tuned.catalogue.vectors.shape == (ITEMS, 8)
    near = tuned.catalogue.vectors @ tuned.catalogue.vectors.T
    half = ITEMS // 2
    assert near[:half, :half].mean() > near[:half, half:].mean() + 0.1
    longer = shop.with_vectors(np.random.default_rng(0).normal(size=(ITEMS, 12)))
    shorter = shop.with_vectors(np.random.default_rng(0).normal(size=(ITEMS, 3)))
    for begun in (longer, shorter):  # what is there is what tuning starts from, however long
        assert tw.gru_vectors(rings(30), rings(10, 1), begun, 8, settings=Settings(passes=1)).catalogue.dim == 8
    with pytest.raises(InvalidArgument, match="valid must be of type Interactions"):
        tw.gru_vectors(rings(30), [], shop)


def test_text_gru_is_text_and_then_gru(shop):
    train, valid, settings = rings(60), rings(10, 1), Settings(passes=2)
    tuned = tw.text_gru_vectors(train, valid, shop, 8, model="static", settings=settings)
    said = tw.text_vectors(shop, 8, model="static")
    np.testing.assert_array_equal(
        tuned.catalogue.vectors, tw.gru_vectors(train, valid, said, 8, settings=settings).catalogue.vectors
    )
    assert tuned.catalogue.table.equals(shop.table)
    assert not np.allclose(tuned.catalogue.vectors, tw.gru_vectors(train, valid, shop, 8, settings=settings)[0].vectors)
    had = shop.with_vectors(np.ones((ITEMS, 3)))  # what they had before does not matter
    again = tw.text_gru_vectors(train, valid, had, 8, model="static", settings=settings)
    np.testing.assert_array_equal(again.catalogue.vectors, tuned.catalogue.vectors)


def test_text_gru_fills_items_without_text_if_asked(shop):
    titles = [title if at % 2 else None for at, title in enumerate(shop.titles)]
    some = tw.Catalogue(shop.ids, titles=titles, categories=["a", "b"] * (ITEMS // 2))
    call = {"model": "static", "settings": Settings(passes=1)}
    with pytest.raises(DataError, match="20 of 40 items have no text in title; --fill gives them"):
        tw.text_gru_vectors(rings(30), rings(10, 1), some, 8, **call)
    made = tw.text_gru_vectors(rings(30), rings(10, 1), some, 8, fill=True, **call)
    assert np.isfinite(made.catalogue.vectors).all()
    bare = tw.Catalogue(shop.ids)
    with pytest.raises(DataError, match="40 of 40 items have no text in title, abstract, description"):
        tw.text_gru_vectors(rings(30), rings(10, 1), bare, 8, fill=True, **call)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"valid": []}, "valid must be of type Interactions"),
        ({"catalogue": "items"}, "catalogue must be of type Catalogue"),
        ({"dim": 0}, "dim must be an integer of at least 1"),
        ({"seed": -1}, "seed must be an integer of at least 0"),
        ({"columns": ("body",)}, "columns must be columns of the items"),
        ({"model": "no-such-model"}, "model must be a directory"),
    ],
)
def test_bad_arguments_of_text_gru_are_refused(shop, change, why):
    with pytest.raises(InvalidArgument, match=why):
        tw.text_gru_vectors(**{"train": rings(5), "valid": rings(5), "catalogue": shop, "dim": 8} | change)


def test_without_torch_gru_says_how_to_get_it(shop, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(TorchMissing, match="pip install 'treeward.train.'"):
        tw.gru_vectors(rings(30), rings(10), shop, 8)
    with pytest.raises(TorchMissing, match="text_gru_vectors needs torch"):
        tw.text_gru_vectors(rings(30), rings(10), tw.Catalogue(shop.ids), 8)  # before it looks for texts


# --- vectors of texts -----------------------------------------------------------------------------------------------

TITLES = ["red wool scarf", "blue wool scarf", "steel garden spade", "small garden spade", "green wool hat"]


def test_static_vectors_need_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    shop = tw.text_vectors(tw.Catalogue(range(5), titles=TITLES), 3, model="static")
    near = shop.vectors @ shop.vectors.T
    assert near[0, 1] > near[0, 2]
    assert near[2, 3] > near[2, 4]
    again = tw.text_vectors(tw.Catalogue(range(5), titles=TITLES), 3, model="static")
    np.testing.assert_array_equal(shop.vectors, again.vectors)
    assert tw.text_vectors(tw.Catalogue([1], titles=["one"]), 4, model="static").dim == 1  # one word, one dimension


def test_a_sentence_model_reads_titles_once(tmp_path, monkeypatch):
    shop = tw.Catalogue(range(5), titles=TITLES)
    seen = []
    made = tw.text_vectors(shop, 4, cache=tmp_path / "texts.sqlite", progress=lambda *told: seen.append(told))
    near = made.vectors @ made.vectors.T
    assert near[0, 1] > near[0, 2] < near[2, 3]
    assert seen[-1] == ("reading texts", 1, 1)
    whole = tw.text_vectors(shop, None, cache=tmp_path / "texts.sqlite")
    assert whole.dim == 384
    np.testing.assert_allclose(np.linalg.norm(whole.vectors, axis=1), 1, atol=1e-5)
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)  # no longer needed: all is in the cache
    np.testing.assert_array_equal(tw.text_vectors(shop, 4, cache=tmp_path / "texts.sqlite").vectors, made.vectors)
    with pytest.raises(SentencesMissing, match="pip install 'treeward.train.'; or use the model static"):
        tw.text_vectors(tw.Catalogue([1, 2], titles=["a", "new one"]), 1, cache=tmp_path / "texts.sqlite")


def test_a_model_is_told_by_its_contents(tmp_path):
    packaged = find_model("test", PACKAGE)
    assert find_model("test", str(packaged.folder)) == packaged
    for given in ("no-such-package", "", "../..", "numpy", "__main__"):
        with pytest.raises(InvalidArgument, match="model must be a directory of a sentence-transformers model"):
            find_model("test", given)
    (tmp_path / "modules.json").write_text("[]")
    (tmp_path / "pytorch_model.bin").write_text("a pickle")
    with pytest.raises(InvalidArgument, match="weights as .safetensors; pickled ones are not read"):
        find_model("test", str(tmp_path))
    (tmp_path / "pytorch_model.bin").unlink()
    (tmp_path / "model.safetensors").write_text("rubbish")
    with pytest.raises(InvalidArgument, match="a whole sentence-transformers model"):
        tw.text_vectors(tw.Catalogue([1, 2], titles=["a", "b"]), model=str(tmp_path), cache=tmp_path / "cache")


def test_items_without_text_are_refused_or_filled():
    for wordless in (tw.Catalogue(range(0), titles=[]), tw.Catalogue(range(2), titles=["!!!", "?"])):
        with pytest.raises(DataError, match="have no text in title"):
            tw.text_vectors(wordless, model="static")
    bare = tw.Catalogue(range(3))
    with pytest.raises(DataError, match="3 of 3 items have no text in title, abstract, description; name columns"):
        tw.text_vectors(bare, model="static")
    shop = tw.Catalogue(range(5), titles=[*TITLES[:3], None, " "], categories=["w", "w", "g", "g", "w"])
    with pytest.raises(DataError, match="2 of 5 items have no text in title; --fill gives them"):
        tw.text_vectors(shop, model="static")
    filled = tw.text_vectors(shop, 2, model="static", fill=True)
    near = filled.vectors @ filled.vectors.T
    assert near[3, 2] > near[3, 0]
    joined = tw.text_vectors(shop, 2, columns=("category", "title"), model="static")  # every item says something
    assert joined.dim == 2
    with pytest.raises(InvalidArgument, match=r"columns must be columns of the items \(id, title, category\)"):
        tw.text_vectors(shop, columns=("abstract",), model="static")
    with pytest.raises(InvalidArgument, match="columns must be columns of the items"):
        tw.text_vectors(shop, columns=(), model="static")


def test_items_say_their_title_and_their_abstract():
    abstracts = ["about a vote in the senate", None, "  ", "about a golf course"]
    titles = ["a vote", "the senate", "a hole in one", None]
    shop = tw.Catalogue(range(4), titles=titles, columns={"abstract": abstracts})
    assert _texts(shop, columns_to_read("test", shop, None, TEXT_COLUMNS)) == [
        "a vote. about a vote in the senate", "the senate", "a hole in one", "about a golf course",
    ]  # fmt: skip
    both, named = (tw.text_vectors(shop, 3, model="static", columns=one) for one in (None, ("title", "abstract")))
    np.testing.assert_array_equal(both.vectors, named.vectors)
    alone = tw.text_vectors(shop, 3, model="static", columns=("title",), fill=True)
    assert not np.allclose(both.vectors, alone.vectors)
    assert (both.vectors @ both.vectors.T)[0, 1] > 0.2  # the abstract says senate, and so does the other title
    untitled = tw.Catalogue(range(4), columns={"abstract": ["one thing", "another thing", "a third thing", "one"]})
    assert tw.text_vectors(untitled, 2, model="static").dim == 2


def test_a_broken_cache_is_said_to_be_broken(tmp_path):
    path = tmp_path / "cache"
    path.write_text("not a database, and long enough to be told from one " * 30)
    with pytest.raises(DataError, match="cannot be used as a cache .*; delete it, or choose another"):
        Cache(path, "m")
    fine = Cache(tmp_path / "fine", "m")
    fine.put(["a"], np.ones((1, 3), dtype=np.float32))
    assert Cache(tmp_path / "fine", "other").get(["a"]) == {}
    np.testing.assert_array_equal(fine.get(["a", "b"])["a"], np.ones(3))
    fine.put(["b", "c", "d"], np.ones((3, 3), dtype=np.float32))
    with sqlite3.connect(tmp_path / "fine") as held:
        held.execute("UPDATE texts SET vector = NULL WHERE key = ?", [fine.key("b")])
        held.execute("UPDATE texts SET vector = zeroblob(8) WHERE key = ?", [fine.key("c")])
    assert set(fine.get(["a", "b", "c", "d"])) == {"a", "d"}  # what cannot be is read anew
    with sqlite3.connect(tmp_path / "fine") as held:
        held.execute("UPDATE texts SET vector = x'00'")
    with pytest.raises(DataError, match="cannot be used as a cache"):
        fine.get(["a"])


def test_principal_components_keep_what_differs():
    random = np.random.default_rng(0)
    flat = np.concatenate([random.normal(size=(200, 2)) * [5, 3], random.normal(size=(200, 6)) * 0.01], axis=1)
    made = principal_components(flat.astype(np.float32), 2)
    centred = flat - flat.mean(axis=0)
    wanted = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    np.testing.assert_allclose(made @ made.T, wanted @ wanted.T, atol=0.05)  # whichever way it is turned


# --- quality, and the command line ----------------------------------------------------------------------------------


def test_enum_ids_and_categories_are_as_good_as_strings():
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


def test_quality_of_vectors(log):
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
    call += ["--passes", "2", "--start", "text"]
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


def test_purity():
    tree = tw.ItemTree.from_categories(np.eye(6), ["a", "a", "a", "b", "b", "b"])
    assert tree.purity(["x", "x", "y", "y", "y", None]) == (4 / 5, 3 / 5)
    assert tree.purity([None] * 6) == (0.0, 0.0)
    with pytest.raises(InvalidArgument, match="labels must be 6 of them"):
        tree.purity(["x"])


def test_attribute_vectors_put_items_together_that_share_attributes():
    tags = ["tree|tall", "tree | small", "kitchen", None, " | ", "kitchen|tall"]
    shop = tw.Catalogue(range(6), columns={"tags": tags, "brand": ["a", "a", "b", None, None, "b"]})
    made = tw.attribute_vectors(shop, dim=64)
    assert made.dim == 6  # four tags and two brands
    near = made.vectors @ made.vectors.T
    assert near[0, 1] > near[0, 5] > near[1, 2]
    assert np.isfinite(made.vectors).all()
    assert np.linalg.norm(made.vectors[3] - made.vectors[:3].mean(axis=0)) < 1  # without attributes: about the mean
    again = tw.attribute_vectors(shop, dim=64)
    np.testing.assert_array_equal(made.vectors, again.vectors)
    lists = tw.Catalogue(range(2), columns={"tags": [["x", "y"], ["x"]]})
    assert tw.attribute_vectors(lists, dim=1).vectors.shape == (2, 1)
    by_category = tw.attribute_vectors(tw.Catalogue(range(2), categories=["a", "b"]), dim=2)
    assert by_category.vectors @ by_category.vectors.T == pytest.approx(np.eye(2), abs=1e-6)


def test_attribute_vectors_need_attributes():
    with pytest.raises(DataError, match="no item has an attribute"):
        tw.attribute_vectors(tw.Catalogue([1, 2], titles=["a", "b"]))
    with pytest.raises(InvalidArgument, match="columns of the items"):
        tw.attribute_vectors(tw.Catalogue([1, 2], categories=["a", "b"]), columns=["colour"])
    with pytest.raises(InvalidArgument, match="dim"):
        tw.attribute_vectors(tw.Catalogue([1, 2], categories=["a", "b"]), 0)
