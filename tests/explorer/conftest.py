"""A small shop for the tests of the explorer."""

import numpy as np
import pytest

import treeward as tw
from treeward.data.synthetic import synthetic_catalogue


@pytest.fixture(scope="module")
def shop():
    made = synthetic_catalogue(600, dim=8, seed=0)
    ids = [f"i{row}" for row in range(600)]
    return tw.Catalogue(
        ids, made.vectors, titles=made.titles, categories=made.categories,
        columns={"country": ["SE", "NO", "DK"] * 200, "price": np.arange(600) / 10, "stock": [None, 1, 0, 2] * 150},
    )  # fmt: skip


@pytest.fixture(scope="module")
def tree(shop):
    return tw.ItemTree.build(shop.vectors, (5, 30), seed=0).named(shop.titles)
