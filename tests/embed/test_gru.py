"""Item vectors tuned by a GRU."""

import sys

import numpy as np
import pytest

import treeward as tw
from tests.rings import ITEMS, ring_shop, rings
from treeward.core.errors import DataError, InvalidArgument
from treeward.learn.next_click import Settings
from treeward.learn.torch import TorchMissing


@pytest.fixture(scope="module")
def shop():
    return ring_shop()


def test_gru_vectors_separate_the_rings(shop):
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


def test_text_gru_fills_items_without_text_on_request(shop):
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


def test_without_torch_the_error_says_how_to_install_it(shop, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(TorchMissing, match="pip install 'treeward.train.'"):
        tw.gru_vectors(rings(30), rings(10), shop, 8)
    with pytest.raises(TorchMissing, match="text_gru_vectors needs torch"):
        tw.text_gru_vectors(rings(30), rings(10), tw.Catalogue(shop.ids), 8)  # before it looks for texts
