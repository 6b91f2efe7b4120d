import itertools
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import treeward as tw
from tests import naive
from treeward.core.errors import InvalidArgument
from treeward.core.parallel import workers
from treeward.tree import kmeans, rebalance, split
from treeward.tree.build import default_widths
from treeward.tree.row_groups import Rows, group


def mixture(count, dim, centres, seed=0, spread=0.2):
    random = np.random.default_rng(seed)
    middle = random.standard_normal((centres, dim))
    return (middle[np.arange(count) % centres] + spread * random.standard_normal((count, dim))).astype(np.float32)


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one.arrays, other.arrays, strict=True))


@st.composite
def catalogues(draw):
    """Vectors with all the trouble real ones have (repeats, zeros, huge and tiny lengths), and widths that fit."""
    count, dim = draw(st.integers(1, 40)), draw(st.integers(1, 4))
    numbers = st.sampled_from([0.0, 1.0, -1.0, 1e-30, 1e18]) | st.floats(-100, 100, width=32)
    vectors = draw(arrays(np.float32, (count, dim), elements=numbers))
    widths = sorted(draw(st.sets(st.integers(1, count), max_size=3)))
    return vectors, widths


@given(catalogues(), st.booleans(), st.none() | st.integers(1, 5), st.integers(0, 2**63 - 1))
@settings(max_examples=60, deadline=None)
def test_any_input_becomes_a_partition_with_true_vectors(case, normalize, max_leaf, seed):
    vectors, widths = case
    tree = tw.ItemTree.build(vectors, widths, seed=seed, normalize=normalize, max_leaf=max_leaf)
    naive.check_tree(tree, vectors, normalize)
    if max_leaf is None:
        assert tree.widths == tuple(widths)
    elif widths:
        assert tree.widths[:-1] == tuple(widths[:-1])
        assert tree.widths[-1] >= widths[-1]
        assert max(len(tree.items_of(leaf)) for leaf in tree.leaves) <= max_leaf


@pytest.mark.parametrize("normalize", [True, False])
def test_two_stage_tree_equals_the_naive_twin(monkeypatch, normalize):
    monkeypatch.setattr(kmeans, "MOST_DIRECT", 20)
    vectors = 3 * mixture(600, 5, 30)
    tree = tw.ItemTree.build(vectors, (4, 60), seed=3, normalize=normalize)
    assert tree.widths == (4, 60)
    naive.check_tree(tree, vectors, normalize)


@given(st.integers(0, 1000), st.integers(21, 200))
@settings(max_examples=20, deadline=None)
def test_two_stage_build_survives_degenerate_vectors(seed, count):
    vectors = np.random.default_rng(seed).integers(0, 2, (200, 3)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch, workers(2) as pool:
        patch.setattr(kmeans, "MOST_DIRECT", 20)
        labels = kmeans.cluster(Rows(vectors, normalize=False), count, seed=seed, workers=pool)
    assert np.bincount(labels, minlength=count).min() >= 1
    assert labels.max() == count - 1


def test_clusters_that_are_there_are_found():
    vectors = mixture(400, 8, 4, spread=0.05)
    tree = tw.ItemTree.build(vectors, (4,), seed=0, normalize=False)
    found = {frozenset(int(row) % 4 for row in tree.items_of(leaf)) for leaf in tree.leaves}
    assert found == {frozenset([0]), frozenset([1]), frozenset([2]), frozenset([3])}


@pytest.mark.parametrize("direct", [20, 1024])
def test_clusters_that_lloyd_alone_would_miss_are_found(monkeypatch, direct):
    monkeypatch.setattr(kmeans, "MOST_DIRECT", direct)
    vectors = mixture(900, 8, 60, spread=0.01)
    tree = tw.ItemTree.build(vectors, (60,), seed=0, normalize=False)
    pure = [len({int(row) % 60 for row in tree.items_of(leaf)}) == 1 for leaf in tree.leaves]
    assert sum(pure) >= 57


def test_cuts_and_joins_are_what_they_change_the_error_by():
    random = np.random.default_rng(5)
    points = random.standard_normal((40, 3)).astype(np.float32)
    labels = np.sort(random.integers(0, 6, 40)).astype(np.int32)

    def error(*members):
        chosen = points[np.isin(labels, members)].astype(np.float64)
        return ((chosen - chosen.mean(axis=0)) ** 2).sum()

    centres = np.stack([points[labels == label].mean(axis=0) for label in range(6)])
    offers, everyone = rebalance.Offers.blank(6, 3), np.arange(6, dtype=np.int32)
    rebalance.look(Rows(points, normalize=False), group(labels, 6), everyone, everyone, centres, offers)
    for label in range(6):
        costs = [error(label, other) - error(label) - error(other) if other != label else np.inf for other in range(6)]
        assert offers.cost[label] == pytest.approx(min(costs), rel=1e-4)
        assert offers.neighbour[label] == np.argmin(costs)
        own, (one, other) = points[labels == label], offers.halves[label]
        sides = np.argmin([((own - one) ** 2).sum(axis=1), ((own - other) ** 2).sum(axis=1)], axis=0)
        np.testing.assert_allclose([own[sides == side].mean(axis=0) for side in (0, 1)], [one, other], atol=1e-5)
        after = sum(((own[sides == side] - half) ** 2).sum() for side, half in enumerate((one, other)))
        assert offers.gain[label] == pytest.approx(error(label) - after, rel=1e-4)


def test_empty_clusters_move_first_and_cost_nothing():
    points = np.array([[0.0], [0.1], [9.0], [9.1]], dtype=np.float32)
    groups = group(np.zeros(4, dtype=np.int32), 2)
    centres = np.array([[4.5], [100.0]], dtype=np.float32)
    offers, both = rebalance.Offers.blank(2, 1), np.arange(2, dtype=np.int32)
    rebalance.look(Rows(points, normalize=False), groups, both, both, centres, offers)
    assert offers.cost.tolist() == [np.inf, 0.0]
    owner = np.array([3, 7], dtype=np.int32)
    assert rebalance.rebalance(centres, owner, groups.sizes, offers) == 1
    np.testing.assert_allclose(sorted(centres.ravel()), [0.05, 9.05], atol=1e-6)
    assert owner.tolist() == [3, 3]


def test_two_stage_is_about_as_good_as_lloyd_everywhere(monkeypatch):
    vectors = mixture(3000, 8, 300, spread=0.3)

    def error(tree):
        return tree.describe(vectors).levels[-1].error

    plain = error(tw.ItemTree.build(vectors, (200,), seed=0))
    monkeypatch.setattr(kmeans, "MOST_DIRECT", 20)
    assert error(tw.ItemTree.build(vectors, (200,), seed=0)) < 1.05 * plain


@pytest.mark.parametrize("direct", [20, 1024])
def test_same_seed_same_tree_whatever_the_threads(monkeypatch, direct):
    monkeypatch.setattr(kmeans, "MOST_DIRECT", direct)
    monkeypatch.setattr(kmeans, "_BLOCK_ROWS", 64)
    vectors = mixture(900, 6, 50)
    one, two, five = (tw.ItemTree.build(vectors, (5, 90), seed=1, threads=threads) for threads in (1, 2, 5))
    assert same(one, two)
    assert same(one, five)
    assert not same(one, tw.ItemTree.build(vectors, (5, 90), seed=2))


def test_a_memory_map_builds_the_same_tree_as_an_array(tmp_path):
    vectors = mixture(300, 4, 9)
    np.save(tmp_path / "v.npy", vectors)
    mapped = tw.ItemTree.build(np.load(tmp_path / "v.npy", mmap_mode="r"), (3, 20))
    assert same(mapped, tw.ItemTree.build(vectors, (3, 20)))


def test_default_widths_keep_leaves_small_and_nodes_narrow():
    for items in (1, 31, 32, 1_000, 30_000, 161_013, 4_162_024, 100_000_000):
        widths = (1, *default_widths(items))
        assert all(below / above <= 101 for above, below in itertools.pairwise(widths))
        assert items / widths[-1] < 32
    assert tw.ItemTree.build(mixture(40, 3, 2)).widths == (2,)
    assert tw.ItemTree.build(mixture(10, 3, 2)).widths == ()


def test_flat_trees_and_trees_of_leaves_have_two_levels():
    vectors = mixture(200, 4, 10)
    flat = tw.ItemTree.flat(vectors)
    naive.check_tree(flat, vectors)
    assert (flat.widths, flat.leaves.tolist()) == ((), [0])
    tree = tw.ItemTree.build(vectors, (3, 20), seed=0).named([f"t{row % 7} x" for row in range(200)])
    leaves = tree.leaves_only()
    naive.check_tree(leaves, vectors)
    assert leaves.widths == (20,)
    assert np.array_equal(leaves.items, tree.items)
    assert leaves.names[1:] == tuple(tree.names[node] for node in tree.leaves)
    assert flat.leaves_only() is flat


def test_each_item_its_own_leaf():
    tree = tw.ItemTree.build(mixture(30, 3, 3), (30,))
    assert np.diff(tree.item_range[1:]).tolist() == [[1]] * 30


def test_progress_reaches_the_end_of_every_stage(monkeypatch):
    monkeypatch.setattr(kmeans, "MOST_DIRECT", 20)
    told = {}

    def tell(stage, done, total):
        told[stage] = (done, total)

    tw.ItemTree.build(mixture(500, 3, 5), (3, 50), progress=tell)
    polish = {f"leaves: polish {turn} of 3" for turn in (1, 2, 3)}
    assert set(told) == {"leaves: cells", "leaves: inside cells", "level 2", *polish}
    assert all(done == total > 0 for done, total in told.values())


def test_an_interrupted_build_leaves_no_threads():
    def stop(stage, done, total):
        if done == 1:
            raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        tw.ItemTree.build(mixture(500, 3, 5), (3, 50), progress=stop)
    assert threading.active_count() == before


def test_a_tree_cannot_be_changed():
    tree = tw.ItemTree.build(mixture(50, 3, 5), (5,))
    with pytest.raises(AttributeError, match="immutable"):
        tree.names = ()
    for array in tree.arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    assert repr(tree) == "ItemTree(50 items x 3 dimensions, 6 nodes, widths (5,))"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"vectors": [[np.nan]]}, "vectors must be finite"),
        ({"vectors": []}, "vectors must be a matrix of shape"),
        ({"widths": (3, 2)}, "widths must be strictly increasing"),
        ({"widths": (21,)}, "widths must be at most the number of items"),
        ({"seed": -1}, "seed must be an integer of at least 0"),
        ({"seed": 2**63}, "seed must be an integer"),
        ({"seed": None}, "seed must be an integer"),
        ({"max_leaf": 0}, "max_leaf must be an integer of at least 1"),
        ({"threads": 0}, "threads must be an integer of at least 1"),
    ],
)
def test_bad_arguments_are_refused(change, why):
    with pytest.raises(InvalidArgument, match=why):
        tw.ItemTree.build(**{"vectors": np.ones((20, 2)), "widths": (2,)} | change)


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("parent", [-1, 0, 1], "parents and children disagree"),
        ("first_child", [1, 3, 2, 3], "children are not slices"),
        ("first_child", [1, 2, 3, 3], "parents and children disagree"),
        ("level", [1, 2, 3], "levels do not follow"),
        ("item_range", [[0, 4], [0, 3], [2, 4]], "do not partition"),
        ("item_range", [[0, 4], [0, 4], [4, 4]], "a node has no items"),
        ("items", [0, 1, 2, 2], "not a permutation"),
        ("items", [0, 1, 2, 9], "not a permutation"),
        ("vectors", [[np.nan, 1]] * 3, "not finite"),
        ("vectors", [[1.0, 1]] * 2, r"vectors is float32\(2, 2\)"),
        ("items", [], "children|a node has no items|empty"),
    ],
)
def test_arrays_that_are_no_tree_are_refused(field, value, why):
    good = tw.ItemTree.build([[1.0, 0], [1, 0.1], [0, 1], [0.1, 1]], (2,)).arrays
    wrong = good._replace(**{field: np.array(value, dtype=getattr(good, field).dtype)})
    with pytest.raises(InvalidArgument, match=f"a tree that partitions its items, got .*({why})"):
        tw.ItemTree(wrong)


def test_too_few_names_are_refused():
    tree = tw.ItemTree.build([[1.0, 0], [0, 1]], (2,))
    with pytest.raises(InvalidArgument, match="names must be 3 names, got '1 names'"):
        tw.ItemTree(tree.arrays, names=["x"])


def test_max_leaf_holds_without_widths():
    for widths in (None, ()):
        tree = tw.ItemTree.build(mixture(20, 3, 2), widths, max_leaf=5)
        assert max(len(tree.items_of(leaf)) for leaf in tree.leaves) <= 5
        naive.check_tree(tree, mixture(20, 3, 2))


@pytest.mark.parametrize(("shift", "scale"), [(0, 1), (10_000, 1), (0, 1e20), (0, 1e-20)])
@pytest.mark.parametrize("direct", [20, 1024])
def test_vectors_far_from_the_origin_or_of_any_size_cluster_as_well(monkeypatch, direct, shift, scale):
    monkeypatch.setattr(kmeans, "MOST_DIRECT", direct)
    vectors = mixture(600, 4, 30, spread=0.01)
    moved = ((vectors.astype(np.float64) + shift) * scale).astype(np.float32)
    tree = tw.ItemTree.build(moved, (30,), normalize=False)
    pure = [len({int(row) % 30 for row in tree.items_of(leaf)}) == 1 for leaf in tree.leaves]
    assert sum(pure) >= 27


def test_clusters_are_not_wasted_on_identical_rows(monkeypatch):
    monkeypatch.setattr(kmeans, "MOST_DIRECT", 20)
    vectors = np.concatenate([np.zeros((2000, 4)), np.random.default_rng(0).standard_normal((200, 4))])
    tree = tw.ItemTree.build(vectors, (100,), normalize=False)
    idle = sum((tree.items_of(leaf) < 2000).all() for leaf in tree.leaves)
    assert idle <= 3


def test_a_giant_node_is_averaged_piece_by_piece():
    from treeward.tree import row_groups

    vectors = mixture(3 * row_groups.BLOCK_ROWS + 5, 3, 4)
    tree = tw.ItemTree.flat(vectors, normalize=False)
    np.testing.assert_allclose(tree.vectors[0], vectors.mean(axis=0, dtype=np.float64), rtol=1e-6)


def test_halves_cuts_across_the_long_side():
    points = np.array([[0, 0], [10, 0.5], [1, 0.3], [9, 0.1]], dtype=np.float32)
    marked = split.halves(points, 2)
    assert {frozenset(np.flatnonzero(marked)), frozenset(np.flatnonzero(~marked))} == {
        frozenset([0, 2]),
        frozenset([1, 3]),
    }


def test_divide_makes_even_parts():
    labels = np.zeros(23, dtype=np.int32)
    count = split.divide(labels, 1, Rows(mixture(23, 2, 1), normalize=False), 5)
    assert count == 5
    assert sorted(np.bincount(labels).tolist()) == [4, 4, 5, 5, 5]
