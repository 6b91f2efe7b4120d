"""Item vectors from attributes."""

import numpy as np
import pytest

import treeward as tw
from treeward.core.errors import DataError, InvalidArgument


def test_items_that_share_attributes_are_close():
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
    _by_category = tw.attribute_vectors(tw.Catalogue(range(2), categories=["a", "b"]), dim=2)
    assert _by_category.vectors @ _by_category.vectors.T == pytest.approx(np.eye(2), abs=1e-6)


def test_attribute_vectors_need_attributes():
    with pytest.raises(DataError, match="no item has an attribute"):
        tw.attribute_vectors(tw.Catalogue([1, 2], titles=["a", "b"]))
    with pytest.raises(InvalidArgument, match="columns of the items"):
        tw.attribute_vectors(tw.Catalogue([1, 2], categories=["a", "b"]), columns=["colour"])
    with pytest.raises(InvalidArgument, match="dim"):
        tw.attribute_vectors(tw.Catalogue([1, 2], categories=["a", "b"]), 0)
