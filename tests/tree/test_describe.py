"""Naming, describing, drawing and saving trees."""

import copy
import json
import pickle
import re

import numpy as np
import polars as pl
import pytest

import treeward as tw
from tests import naive
from treeward.core.errors import ArtefactCorrupt, ArtefactWrite, InvalidArgument
from treeward.data.synthetic import synthetic_catalogue
from treeward.tree import draw


@pytest.fixture(scope="module")
def shop():
    return synthetic_catalogue(600, 8, seed=1)


@pytest.fixture(scope="module")
def tree(shop):
    return tw.ItemTree.build(shop.vectors, (6, 40), seed=0).named(shop.titles)


# --- names -----------------------------------------------------------------------------------------------------------


def test_names_are_the_naive_twins(tree, shop):
    titles = shop.titles.to_list()
    for node in range(1, len(tree.parent)):
        expected = ", ".join(naive.telling_words(tree, titles, node)) or f"node {node}"
        assert tree.names[node] == expected
    assert tree.names[0] == "all"


def test_names_on_an_uneven_tree():
    titles = ["red dress the", "blue dress the", "toy car the", "toy train the"]
    tree = tw.ItemTree.from_paths(np.eye(4), ["w>d", "w>d", "t", "t"]).named(titles, words=1)
    assert tree.names == ("all", "toy", "dress", "node 3")


def test_words_in_any_script_and_missing_titles():
    titles = ["Ünïcode café", "Ünïcode café", None, "", "日本 東京", "日本 東京"]
    tree = tw.ItemTree.from_categories(np.eye(6), [0, 0, 1, 1, 2, 2]).named(titles)
    assert tree.names == ("all", "café, ünïcode", "node 2", "日本, 東京")


def test_titles_must_fit(tree):
    with pytest.raises(InvalidArgument, match="titles must be 600 values, one for each row, got '1 values'"):
        tree.named(["x"])
    with pytest.raises(InvalidArgument, match="titles must be texts"):
        tree.named(list(range(600)))
    with pytest.raises(InvalidArgument, match="words must be"):
        tree.named(["x"] * 600, words=0)


# --- description -----------------------------------------------------------------------------------------------------


def test_description_against_the_naive_twin(tree, shop):
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


def test_description_of_an_uneven_tree():
    vectors = np.random.default_rng(0).standard_normal((5, 2)).astype(np.float32)
    tree = tw.ItemTree.from_paths(vectors, ["a>b", "c", "a>d", "a>b", "c"])
    for row in tree.describe(vectors).levels:
        assert row.error == pytest.approx(naive.error_at(tree, row.level, vectors), rel=1e-5)


def test_description_prints(tree, shop):
    text = str(tree.describe())
    assert text.splitlines()[0] == "600 items x 8 dimensions: 47 nodes, 40 leaves, 0 empty"
    assert "explained" not in text
    assert "explained" in str(tree.describe(shop.vectors))
    assert len({len(line) for line in text.splitlines()[1:]}) == 1


def test_vectors_must_fit(tree):
    with pytest.raises(InvalidArgument, match=r"vectors must be of shape \(600, 8\)"):
        tree.describe(np.ones((600, 7)))


def test_identical_items_are_fully_explained():
    assert tw.ItemTree.flat(np.ones((4, 2))).describe(np.ones((4, 2))).levels[0].explained == pytest.approx(1.0)


# --- drawing ---------------------------------------------------------------------------------------------------------


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


def test_picture(tree, tmp_path):
    path = tree.draw(tmp_path / "tree.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.read_bytes() == tree.draw(tmp_path / "again.png").read_bytes()
    for other in (tw.ItemTree.flat([[1.0]]), tw.ItemTree.from_categories(np.eye(3), ["$x$", "日本", "\\frac"])):
        assert other.draw(tmp_path / "other.png").stat().st_size > 1000


def test_where_it_cannot_be_drawn(tree, tmp_path):
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


# --- saving ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [True, False])
def test_saved_is_loaded(tree, tmp_path, named):
    if not named:
        tree = tw.ItemTree(tree.arrays, provenance=tree.provenance)
    tree.save(tmp_path / "tree")
    loaded = tw.ItemTree.load(tmp_path / "tree")
    for one, other in zip(tree.arrays, loaded.arrays, strict=True):
        assert np.array_equal(one, other)
        assert one.dtype == other.dtype
        assert not other.flags.writeable
    assert loaded.names == tree.names
    assert dict(loaded.provenance) == json.loads(json.dumps(dict(tree.provenance)))
    owner = loaded.items
    while owner.base is not None and not isinstance(owner, np.memmap):
        owner = owner.base
    assert isinstance(owner, np.memmap)


def test_provenance_says_how_it_was_made(tree, shop):
    made = tree.provenance
    assert (made["widths"], made["seed"], made["normalize"], made["made_by"]) == ((6, 40), 0, True, "build")
    assert made["vectors_sha256"] == tw.ItemTree.flat(shop.vectors).provenance["vectors_sha256"]
    assert tw.ItemTree.flat(shop.vectors, normalize=False).normalized is False


def test_an_honest_manifest_over_a_broken_tree_is_refused(tree, tmp_path):
    from treeward.core import artefact

    parts = tree.arrays._asdict()
    for change in ({"level": tree.level + np.int32(1)}, {"extra": tree.level}):
        contents = artefact.Contents(parts | change, {}, {}, {})
        artefact.write(tmp_path / "t", "treeward.tree", 1, contents, overwrite=True)
        with pytest.raises(ArtefactCorrupt, match="does not hold a tree"):
            tw.ItemTree.load(tmp_path / "t")


def test_a_tree_can_be_copied_and_sent_but_not_changed(tree):
    for other in (copy.deepcopy(tree), pickle.loads(pickle.dumps(tree))):
        assert all(np.array_equal(a, b) for a, b in zip(tree.arrays, other.arrays, strict=True))
        assert (other.names, dict(other.provenance)) == (tree.names, dict(tree.provenance))
    with pytest.raises(TypeError):
        tree.provenance["normalize"] = False
    mine = [array.copy() for array in tree.arrays]
    tw.ItemTree(type(tree.arrays)(*mine))
    assert all(array.flags.writeable for array in mine)


def test_numpy_scalars_are_as_good_as_numbers(shop, tmp_path):
    made = tw.ItemTree.build(
        shop.vectors, (np.int64(6),), seed=np.int64(3), max_leaf=np.int32(200), normalize=np.bool_(True)
    )
    made.save(tmp_path / "t")
    assert tw.ItemTree.load(tmp_path / "t").provenance["seed"] == 3
    with pytest.raises(InvalidArgument, match="normalize must be True or False, got 'no'"):
        tw.ItemTree.build(shop.vectors, normalize="no")


def test_nodes_that_are_not_there(tree):
    for node in (-1, 47, 1.5):
        with pytest.raises(InvalidArgument, match="node must be an integer from 0 to 46"):
            tree.children_of(node)
        with pytest.raises(InvalidArgument, match="node must be"):
            tree.items_of(node)


def test_a_flipped_byte_is_found_by_the_structure_too(tree, tmp_path):
    tree.save(tmp_path / "t")
    path = next((tmp_path / "t").glob("first_child-*.npy"))
    whole = bytearray(path.read_bytes())
    whole[-2] ^= 0x7F  # a first child in the millions
    path.write_bytes(whole)
    with pytest.raises(ArtefactCorrupt, match="does not hold a tree"):
        tw.ItemTree.load(tmp_path / "t", verify=False)


def test_series_and_lists_of_titles_are_alike(tree, shop):
    assert tree.named(shop.titles.to_list()).names == tree.named(pl.Series(shop.titles)).names == tree.names
