import inspect
import json
import os
from pathlib import Path

import numba
import numpy as np
import pytest

import treeward as tw
from treeward.core.errors import InvalidArgument
from treeward.core.types import TreeArrays
from treeward.experiment.reference import AS_THE_AUTHORS
from treeward.policy import HCB, PHCB, TREE_POLICIES, Flat
from treeward.simulate import World, simulate
from treeward.simulate.synthetic import vivid

REFERENCE = Path(__file__).parents[3] / "shared" / "reference"


@pytest.fixture(scope="module")
def world():
    return World(*vivid(items=600, users=12, dim=8, seed=3))


@pytest.fixture(scope="module")
def tree(world):
    return tw.ItemTree.build(world.catalogue.vectors, (8, 60), seed=0)


def same(one, other):
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("rewards", "expected", "scores"))


@pytest.mark.parametrize("kind", TREE_POLICIES.values())
def test_results_do_not_depend_on_threads_or_other_users(world, tree, kind):
    policy = kind(budget=20)
    whole = simulate(policy, world, tree, rounds=40, seed=5, reward="click")
    assert same(whole, simulate(policy, world, tree, rounds=40, seed=5, reward="click", threads=1))
    some = simulate(policy, world, tree, rounds=40, users=[7, 2], seed=5, reward="click")
    assert np.array_equal(some.rewards, whole.rewards[[7, 2]])
    assert np.array_equal(
        simulate(policy, world, tree, rounds=25, seed=5, reward="click").rewards, whole.rewards[:, :25]
    )
    assert not same(whole, simulate(policy, world, tree, rounds=40, seed=6, reward="click"))


def test_learning_beats_chance_and_trees_beat_sampling(world, tree):
    earned = {
        kind.__name__: simulate(kind(budget=12), world, tree, rounds=300).cumulative[-1]
        for kind in TREE_POLICIES.values()
    }
    assert min(earned.values()) > 1.5 * 300 * world.base_rate()
    assert max(earned["HCB"], earned["PHCB"]) > earned["Flat"]


def test_budgets_are_kept_and_counted(world, tree):
    for kind in TREE_POLICIES.values():
        result = simulate(kind(budget=12), world, tree, rounds=50)
        assert 0 < result.scores.max() <= 12
    assert simulate(Flat(budget=None), world, tree, rounds=3).scores.tolist() == [600, 600, 600]


@pytest.mark.parametrize("kind", TREE_POLICIES.values())
def test_no_item_is_shown_twice_without_repeats(world, tree, kind):
    result = simulate(kind(budget=12), world, tree, rounds=600, users=2, repeats=False, regret=True)
    for user in range(2):
        chances = world.probabilities(user)
        np.testing.assert_allclose(np.sort(result.expected[user]), np.sort(chances), rtol=1e-5)
        assert result.best[user, -1] == pytest.approx(result.expected[user, -1], rel=1e-5)
    assert result.coverage == 1
    assert (result.best - result.expected > -1e-6).all()


def test_regret_is_against_the_best_item(world, tree):
    result = simulate(HCB(), world, tree, rounds=30, regret=True)
    best = [world.probabilities(user).max() for user in range(world.users)]
    np.testing.assert_allclose(result.best, np.repeat(np.array(best)[:, None], 30, axis=1), rtol=1e-6)
    assert result.regret[-1] == pytest.approx(30 * np.mean(best) - result.cumulative[-1], rel=1e-4)
    assert (np.diff(result.regret) >= 0).all()


def test_the_best_item_left_equals_a_naive_search(world, tree):
    result = simulate(PHCB(), world, tree, rounds=80, users=1, repeats=False, regret=True, seed=2)
    chances, left = world.probabilities(0).astype(float), dict(enumerate(world.probabilities(0).tolist()))
    for turn in range(80):
        assert result.best[0, turn] == pytest.approx(max(left.values()), rel=1e-6)
        shown = min(left, key=lambda row: abs(chances[row] - result.expected[0, turn]))
        del left[shown]


def test_clicks_have_the_expected_probability(world, tree):
    result = simulate(Flat(budget=5), world, tree, rounds=500, reward="click")
    assert set(np.unique(result.rewards)) == {0, 1}
    spread = np.sqrt((result.expected * (1 - result.expected)).sum())
    assert abs(result.rewards.sum() - result.expected.sum()) < 4 * spread


def test_regret_without_asking_for_it_raises(world, tree):
    result = simulate(HCB(), world, tree, rounds=3, users=np.int64(2))
    with pytest.raises(InvalidArgument, match=r"regret must be asked for"):
        _ = result.regret


def test_a_result_holds_its_settings(world, tree):
    result = simulate(PHCB(tw.LinUCB(0.7), budget=20), world, tree, rounds=5, seed=9)
    assert result.settings["seed"] == 9
    assert "alpha=0.7" in result.settings["policy"]
    assert result.settings["vectors_sha256"] == tree.provenance["vectors_sha256"]
    assert str(result).startswith("PHCB(LinUCB): ")
    assert len(result.per_user) == 12


def test_treeward_simulate_is_callable(world):
    import treeward.simulate as package

    assert tw.simulate(HCB(budget=20), world, rounds=2, users=1).rewards.shape == (1, 2)
    assert package(HCB(budget=20), world, rounds=2, users=1).rewards.shape == (1, 2)
    assert inspect.signature(tw.simulate) == inspect.signature(package) == inspect.signature(simulate)
    assert "rounds" in inspect.signature(tw.simulate).parameters


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"rounds": 0}, "rounds must be an integer"),
        ({"rounds": 601, "repeats": False}, "rounds must be an integer from 1 to 600"),
        ({"users": 13}, "users must be an integer from 1 to 12"),
        ({"users": [12]}, "users must be an integer from 0 to 11"),
        ({"users": []}, "users must be at least one"),
        ({"seed": -1}, "seed must be"),
        ({"reward": "money"}, "reward must be one of probability, click, got 'money'"),
        ({"policy": HCB(budget=1)}, "budget must be an integer from 3 to 32768"),
    ],
)
def test_bad_arguments_are_refused(world, tree, change, why):
    with pytest.raises(InvalidArgument, match=why):
        simulate(**{"policy": HCB(), "world": world, "tree": tree, "rounds": 5} | change)


# --- against the paper's authors' own code ---------------------------------------------------------------------------


def reference_world():
    """A small world that the authors' published code was run on, with its tree."""
    held = np.load(REFERENCE / "world.npz")
    shop = tw.Catalogue(range(6000), held["item_features"], categories=held["category"].astype(str))
    inner = held["level"] < held["level"].max()
    children = np.where(inner, held["child_end"] - held["first_child"][:-1], 0)
    parent = np.concatenate([[-1], np.repeat(np.arange(len(children)), children)])
    ranges = np.stack([held["item_start"], held["item_end"]], axis=1)
    first = np.concatenate([[1], 1 + np.cumsum(children)])
    integers = [
        np.ascontiguousarray(array, dtype=np.int32) for array in (parent, held["level"], first, ranges, held["items"])
    ]
    tree = tw.ItemTree(TreeArrays(held["node_vectors"], *integers), provenance={"normalize": False})
    world = World(shop, held["user_simulator"], held["item_simulator"], held["user_bias"], held["item_bias"])
    return world, tree


SEEDS = 10 if os.environ.get("TORTURE") else 4


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled when kernels are interpreted")
def test_kernels_are_compiled_once(world, tree, tmp_path):
    """Not again for what was loaded, nor for literals and numbers of 32 bits: each takes ten seconds or more."""
    from treeward.engine import beam, walk
    from treeward.engine.learn import learn_item
    from treeward.engine.learn_paths import learn_path
    from treeward.engine.simulate import rounds_by_beam, rounds_by_walk

    world.save(tmp_path / "world")
    for met in (world, World.load(tmp_path / "world")):
        for policy in (HCB(), PHCB(), tw.Beam()):
            simulate(policy, met, tree, rounds=2, users=1)
    assert len(rounds_by_beam.overloads) == len(rounds_by_walk.overloads) == 1
    inner = beam.decide, walk.decide, walk._choose_node, learn_item, learn_path
    assert "Literal" not in str([one.signatures for one in inner])
    assert all(len(one.signatures) <= 1 for one in inner)  # none where the entries came from disk


@pytest.mark.skipif(not REFERENCE.exists(), reason="the reference run of the authors' code is not beside the project")
@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="ten million user-rounds take days when kernels are interpreted")
@pytest.mark.parametrize("policy", AS_THE_AUTHORS.values(), ids=lambda policy: type(policy).__name__)
def test_agrees_with_the_authors_code(policy):
    """Paired by user, seeds averaged, within three standard errors at rounds 100, 300 and 1000."""
    world, tree = reference_world()
    theirs = np.array(json.loads((REFERENCE / "authors_results.json").read_text())["cumulative"][type(policy).__name__])
    totals = [np.cumsum(simulate(policy, world, tree, seed=seed, threads=1).rewards, axis=1) for seed in range(SEEDS)]
    apart = np.mean(totals, axis=0)[:, [99, 299, 999]] - theirs
    assert (np.abs(apart.mean(axis=0)) <= 3 * apart.std(axis=0, ddof=1) / len(apart) ** 0.5).all()
