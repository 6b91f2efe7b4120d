"""Trees drawn to a page or a picture."""

import json
import re

import numpy as np
import pytest

import treeward as tw
from treeward.core.errors import ArtefactWrite, InvalidArgument
from treeward.tree import draw


def data_of(path):
    return json.loads(re.search(r'id="data">(.*?)</script>', path.read_text(), re.DOTALL)[1])


def test_page_holds_the_tree_and_needs_no_network(tree, shop, tmp_path):
    path = tree.draw(tmp_path / "deep" / "tree.html", titles=shop.titles, heading="Ours & <theirs>")
    data = data_of(path)
    assert data["name"] == list(tree.names)
    assert data["first"] == tree.first_child.tolist()
    assert data["size"][0] == 600
    leaf = int(tree.leaves[0])
    assert data["examples"][str(leaf)] == [shop.titles[int(row)] for row in tree.items_of(leaf)[:5]]
    text = path.read_text()
    assert "Ours &amp; &lt;theirs&gt;" in text
    assert not re.search(r"<(script|link|img)[^>]*(src|href)=", text.split("<script>")[0])
    assert "%" + "heading%" not in text


def test_hostile_names_cannot_leave_the_data(tmp_path):
    names = ["all", "</script><script>alert(1)</script>", "<!-- <script>"]
    tree = tw.ItemTree.from_categories([[1, 0], [0, 1]], names[1:])
    path = tree.draw(tmp_path / "t.html", titles=["</script>", "x"])
    assert data_of(path)["name"] == ["all", *sorted(names[1:])]
    assert path.read_text().count("</script>") == tw.ItemTree.flat([[1.0]]).draw(tmp_path / "u.html").read_text().count(
        "</script>"
    )


def test_a_page_of_a_huge_tree_is_cut(tree, tmp_path, monkeypatch):
    monkeypatch.setattr(draw, "MOST_NODES", 20)
    data = data_of(tree.draw(tmp_path / "t.html"))
    assert len(data["name"]) == len(data["size"]) == 20
    assert data["nodes"] == 47


def test_headings_are_only_text(tree, tmp_path):
    assert "100 %data% $x$ &lt;b&gt;" in tree.draw(tmp_path / "t.html", heading="100 %data% $x$ <b>").read_text()
    tree.draw(tmp_path / "t.png", heading=r"$\frac$ %data%")


def test_a_picture_is_a_png_of_the_expected_size(tree, tmp_path):
    path = tree.draw(tmp_path / "tree.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.read_bytes() == tree.draw(tmp_path / "again.png").read_bytes()
    for other in (tw.ItemTree.flat([[1.0]]), tw.ItemTree.from_categories(np.eye(3), ["$x$", "日本", "\\frac"])):
        assert other.draw(tmp_path / "other.png").stat().st_size > 1000


def test_paths_that_cannot_be_drawn_to_are_refused(tree, tmp_path):
    with pytest.raises(InvalidArgument, match=r"path must be a file ending in .html or .png, got '.*svg'"):
        tree.draw(tmp_path / "tree.svg")
    with pytest.raises(InvalidArgument, match="titles must be 600 titles"):
        tree.draw(tmp_path / "tree.html", titles=["x"])
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArtefactWrite, match="cannot write"):
        tree.draw(tmp_path / "file" / "tree.html")
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(ArtefactWrite, match="cannot write"):
        tree.draw(tmp_path / "folder.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.html"]
