"""Item vectors from texts, sentence models and their cache."""

import sqlite3
import sys

import numpy as np
import pytest

import treeward as tw
from treeward.core.errors import DataError, InvalidArgument
from treeward.embed.decompose import columns_to_read, principal_components
from treeward.embed.sentences import PACKAGE, Cache, SentencesMissing, find_model
from treeward.embed.text import TEXT_COLUMNS, _texts

TITLES = ["red wool scarf", "blue wool scarf", "steel garden spade", "small garden spade", "green wool hat"]


def test_static_vectors_need_no_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    shop = tw.text_vectors(tw.Catalogue(range(5), titles=TITLES), 3, model="static")
    near = shop.vectors @ shop.vectors.T
    assert near[0, 1] > near[0, 2]
    assert near[2, 3] > near[2, 4]
    again = tw.text_vectors(tw.Catalogue(range(5), titles=TITLES), 3, model="static")
    np.testing.assert_array_equal(shop.vectors, again.vectors)
    assert tw.text_vectors(tw.Catalogue([1], titles=["one"]), 4, model="static").dim == 1  # one word, one dimension


def test_a_sentence_model_embeds_a_title_once(tmp_path, monkeypatch):
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


def test_a_model_is_found_by_directory_or_package(tmp_path):
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


def test_title_and_abstract_are_read_by_default():
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


def test_a_damaged_cache_is_reported_and_damaged_vectors_are_ignored(tmp_path):
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
    assert set(fine.get(["a", "b", "c", "d"])) == {"a", "d"}  # damaged vectors are embedded again
    with sqlite3.connect(tmp_path / "fine") as held:
        held.execute("UPDATE texts SET vector = x'00'")
    with pytest.raises(DataError, match="cannot be used as a cache"):
        fine.get(["a"])


def test_principal_components_keep_the_directions_that_vary():
    random = np.random.default_rng(0)
    flat = np.concatenate([random.normal(size=(200, 2)) * [5, 3], random.normal(size=(200, 6)) * 0.01], axis=1)
    made = principal_components(flat.astype(np.float32), 2)
    centred = flat - flat.mean(axis=0)
    wanted = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    np.testing.assert_allclose(made @ made.T, wanted @ wanted.T, atol=0.05)  # whichever way it is turned
