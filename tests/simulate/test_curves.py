"""Curves of results, drawn to a page or a picture."""

import pytest

import treeward as tw
from treeward.core.errors import ArtefactWrite, InvalidArgument
from treeward.policy import HCB, Flat
from treeward.simulate import World, draw_curves, simulate
from treeward.simulate.synthetic import vivid


@pytest.fixture(scope="module")
def world():
    return World(*vivid(items=600, users=12, dim=8, seed=3))


@pytest.fixture(scope="module")
def tree(world):
    return tw.ItemTree.build(world.catalogue.vectors, (8, 60), seed=0)


def test_curves_are_drawn_as_page_and_picture(world, tree, tmp_path):
    results = [simulate(kind(budget=20), world, tree, rounds=30) for kind in (Flat, HCB)]
    page = draw_curves(results, tmp_path / "deep" / "c.html", heading="<b>Ours</b>").read_text()
    assert "HCB(LinUCB)" in page
    assert "<b>Ours" not in page
    assert draw_curves(results, tmp_path / "c.png", "$\\frac$").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InvalidArgument, match=r"path must be a file ending in .html or .png"):
        draw_curves(results, tmp_path / "c.svg")
    with pytest.raises(InvalidArgument, match="results must be at least one"):
        draw_curves([], tmp_path / "c.png")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArtefactWrite, match="cannot write"):
        draw_curves(results, tmp_path / "file" / "c.png")
