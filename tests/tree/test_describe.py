"""Naming, describing, drawing and saving trees."""

import numpy as np
import polars as pl
import pytest

import treeward as tw
from tests import naive
from treeward.core.errors import InvalidArgument

# --- description -----------------------------------------------------------------------------------------------------


def test_description_equals_that_of_the_naive_twin(tree, shop):
    seen = tree.describe(shop.vectors)
    assert (seen.items, seen.dim, seen.nodes, seen.leaves) == (600, 8, 47, 40)
    for row in seen.levels:
        nodes = [node for node in range(47) if tree.level[node] == row.level]
        sizes = [len(naive.rows_under(tree, node)) for node in nodes]
        assert (row.nodes, row.empty) == (len(nodes), 0)
        assert (row.items.low, row.items.median, row.items.high) == (min(sizes), int(np.median(sizes)), max(sizes))
        assert row.error == pytest.approx(naive.error_at(tree, row.level, shop.vectors), rel=1e-5)
        assert row.explained == pytest.approx(1 - row.error / seen.levels[0].error)
    assert seen.levels[0].balance == 1
    assert 0.7 < seen.levels[2].balance < 1


def test_an_uneven_tree_is_described():
    vectors = np.random.default_rng(0).standard_normal((5, 2)).astype(np.float32)
    tree = tw.ItemTree.from_paths(vectors, ["a>b", "c", "a>d", "a>b", "c"])
    for row in tree.describe(vectors).levels:
        assert row.error == pytest.approx(naive.error_at(tree, row.level, vectors), rel=1e-5)


def test_a_description_prints_as_a_table(tree, shop):
    text = str(tree.describe())
    assert text.splitlines()[0] == "600 items x 8 dimensions: 47 nodes, 40 leaves, 0 empty"
    assert "explained" not in text
    assert "explained" in str(tree.describe(shop.vectors))
    assert len({len(line) for line in text.splitlines()[1:]}) == 1


def test_vectors_of_another_shape_are_refused(tree):
    with pytest.raises(InvalidArgument, match=r"vectors must be of shape \(600, 8\)"):
        tree.describe(np.ones((600, 7)))


def test_identical_items_are_fully_explained():
    assert tw.ItemTree.flat(np.ones((4, 2))).describe(np.ones((4, 2))).levels[0].explained == pytest.approx(1.0)


# --- drawing ---------------------------------------------------------------------------------------------------------


# --- saving ----------------------------------------------------------------------------------------------------------


def test_titles_may_be_a_series_or_a_list(tree, shop):
    assert tree.named(shop.titles.to_list()).names == tree.named(pl.Series(shop.titles)).names == tree.names
