"""Names of nodes from the titles of their items."""

import numpy as np
import pytest

import treeward as tw
from tests import naive
from treeward.core.errors import InvalidArgument


def test_names_equal_those_of_the_naive_twin(tree, shop):
    titles = shop.titles.to_list()
    for node in range(1, len(tree.parent)):
        expected = ", ".join(naive.telling_words(tree, titles, node)) or f"node {node}"
        assert tree.names[node] == expected
    assert tree.names[0] == "all"


def test_names_are_found_on_an_uneven_tree():
    titles = ["red dress the", "blue dress the", "toy car the", "toy train the"]
    tree = tw.ItemTree.from_paths(np.eye(4), ["w>d", "w>d", "t", "t"]).named(titles, words=1)
    assert tree.names == ("all", "toy", "dress", "node 3")


def test_words_in_any_script_and_missing_titles():
    titles = ["Ünïcode café", "Ünïcode café", None, "", "日本 東京", "日本 東京"]
    tree = tw.ItemTree.from_categories(np.eye(6), [0, 0, 1, 1, 2, 2]).named(titles)
    assert tree.names == ("all", "café, ünïcode", "node 2", "日本, 東京")


def test_titles_of_another_number_are_refused(tree):
    with pytest.raises(InvalidArgument, match="titles must be 600 values, one for each row, got '1 values'"):
        tree.named(["x"])
    with pytest.raises(InvalidArgument, match="titles must be texts"):
        tree.named(list(range(600)))
    with pytest.raises(InvalidArgument, match="words must be"):
        tree.named(["x"] * 600, words=0)
