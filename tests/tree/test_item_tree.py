"""Trees: saved, loaded, copied, and refused if damaged."""

import copy
import json
import pickle

import numpy as np
import pytest

import treeward as tw
from treeward.core.errors import ArtefactCorrupt, InvalidArgument


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


def test_provenance_holds_the_build_options(tree, shop):
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


def test_numpy_scalars_are_accepted(shop, tmp_path):
    made = tw.ItemTree.build(
        shop.vectors, (np.int64(6),), seed=np.int64(3), max_leaf=np.int32(200), normalize=np.bool_(True)
    )
    made.save(tmp_path / "t")
    assert tw.ItemTree.load(tmp_path / "t").provenance["seed"] == 3
    with pytest.raises(InvalidArgument, match="normalize must be True or False, got 'no'"):
        tw.ItemTree.build(shop.vectors, normalize="no")


def test_unknown_nodes_are_refused(tree):
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
