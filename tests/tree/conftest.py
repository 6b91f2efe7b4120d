"""A small tree for the tests of this folder."""

import pytest

import treeward as tw
from treeward.data.synthetic import synthetic_catalogue


@pytest.fixture(scope="module")
def shop():
    return synthetic_catalogue(600, 8, seed=1)


@pytest.fixture(scope="module")
def tree(shop):
    return tw.ItemTree.build(shop.vectors, (6, 40), seed=0).named(shop.titles)
