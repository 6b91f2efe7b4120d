import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treeward as tw
from tests import naive
from treeward.core.errors import InvalidArgument


def under(tree, name):
    return sorted(tree.items_of(tree.names.index(name)).tolist())


def test_every_category_has_one_node():
    vectors = np.eye(5, dtype=np.float32)
    tree = tw.ItemTree.from_categories(vectors, ["b", "a", None, "b", "a > c"])
    naive.check_tree(tree, vectors)
    assert tree.names == ("all", "(other)", "a", "a > c", "b")
    assert under(tree, "b") == [0, 3]
    assert under(tree, "(other)") == [2]


def test_items_at_inner_nodes_get_a_leaf_of_their_own():
    vectors = np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32)
    paths = ["Apparel > Clothing > Dresses", "Apparel", "Toys", "Apparel > Clothing", "Apparel>Shoes", None, " > "]
    tree = tw.ItemTree.from_paths(vectors, paths)
    naive.check_tree(tree, vectors)
    assert tree.names == (
        "all", "(other)", "Apparel", "Toys",
        "(other)", "Clothing", "Shoes",
        "(other)", "Dresses",
    )  # fmt: skip
    assert tree.level.tolist() == [1, 2, 2, 2, 3, 3, 3, 4, 4]
    assert under(tree, "Apparel") == [0, 1, 3, 4]
    assert under(tree, "Dresses") == [0]
    assert sorted(tree.items_of(1).tolist()) == [5, 6]
    assert sorted(tree.items_of(4).tolist()) == [1]
    assert sorted(tree.items_of(7).tolist()) == [3]


PATHS = st.lists(st.sampled_from("abc"), max_size=4).map(tuple)


@given(st.lists(PATHS, min_size=1, max_size=30))
@settings(max_examples=60, deadline=None)
def test_any_paths_become_a_partition(paths):
    vectors = np.random.default_rng(1).standard_normal((len(paths), 2)).astype(np.float32)
    tree = tw.ItemTree.from_paths(vectors, paths)
    naive.check_tree(tree, vectors)
    for row, path in enumerate(paths):
        leaf = next(leaf for leaf in tree.leaves if row in tree.items_of(leaf))
        walked = []
        while leaf > 0:
            walked.insert(0, tree.names[leaf])
            leaf = tree.parent[leaf]
        assert tuple(walked) in (path, (*path, "(other)"))


@pytest.mark.parametrize(
    "labels", [["x", "y", "x"], [7, 8, 7], np.array([7, 8, 7]), pl.Series(["x", "y", "x"]), [["x"], ["y"], ["x"]]]
)
def test_labels_may_be_strings_integers_or_paths(labels):
    tree = tw.ItemTree.from_categories(np.ones((3, 2)), labels)
    assert [sorted(tree.items_of(node).tolist()) for node in (1, 2)] == [[0, 2], [1]]


def test_missing_labels_alone_make_a_flat_tree():
    assert tw.ItemTree.from_categories(np.ones((3, 2)), [None, float("nan"), None]).widths == ()


def test_leaves_only_of_an_uneven_tree():
    vectors = np.random.default_rng(0).standard_normal((4, 2)).astype(np.float32)
    tree = tw.ItemTree.from_paths(vectors, ["a>b", "c", "a>d", "a>b"]).leaves_only()
    naive.check_tree(tree, vectors)
    assert tree.names == ("all", "b", "d", "c")


def test_a_category_called_other_is_left_alone():
    tree = tw.ItemTree.from_paths(np.eye(3), ["A", "A > (other) > B", "C"])
    naive.check_tree(tree, np.eye(3))
    assert sorted(tree.names) == ["(other)", "(other) 2", "A", "B", "C", "all"]


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ("xyz", "labels must be a list of labels, got 'xyz'"),
        (None, "labels must be a list of labels"),
        (["x"], "labels must be 3 labels, one for each item, got '1 labels'"),
        (["x", {}, "y"], "labels must be strings, integers, paths or None"),
        (["x", 1.5, "y"], "labels must be strings, integers, paths or None"),
    ],
)
def test_bad_labels_are_refused(labels, why):
    with pytest.raises(InvalidArgument, match=why):
        tw.ItemTree.from_categories(np.ones((3, 2)), labels)
