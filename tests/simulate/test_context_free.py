"""The most that a context-free policy can earn from a random sample of items."""

from itertools import combinations

import numpy as np
import pytest

import treeward as tw
from treeward.simulate import context_free_ceiling


@pytest.fixture(scope="module")
def tiny():
    table = np.random.default_rng(0).random((4, 7)).astype(np.float32)
    table[:, 5] = table[:, 2]  # two items that are equally good
    return tw.World.from_matrix(table, tw.Catalogue(range(7)))


def by_enumeration(world, users, budget):
    """The mean over every sample of its commonly best item."""
    means = np.mean([world.probabilities(user).astype(np.float64) for user in users], axis=0)
    return np.mean([max(means[list(sample)]) for sample in combinations(range(len(means)), budget)])


@pytest.mark.parametrize("budget", range(1, 8))
@pytest.mark.parametrize("users", [[0], [2, 1], [0, 1, 2, 3]])
def test_ceiling_is_the_mean_over_all_samples(tiny, users, budget):
    expected = by_enumeration(tiny, users, budget)
    assert context_free_ceiling(tiny, users, budget) == pytest.approx(expected, rel=1e-12)


def test_ceiling_agrees_with_random_samples():
    world, random = tw.World.synthetic(items=3_000, users=30, dim=8, seed=2), np.random.default_rng(1)
    means = np.mean([world.probabilities(user) for user in range(30)], axis=0)
    seen = np.array([means[random.choice(3_000, 50, replace=False)].max() for _ in range(4_000)])
    error = seen.std() / len(seen) ** 0.5
    assert abs(context_free_ceiling(world, range(30), 50) - seen.mean()) < 4 * error


def test_ceiling_lies_between_random_items_and_the_commonly_best():
    world = tw.World.synthetic(items=100_000, users=5, dim=4, seed=0)
    means = np.mean([world.probabilities(user).astype(np.float64) for user in range(5)], axis=0)
    values = [context_free_ceiling(world, range(5), budget) for budget in (1, 50, 5_000, 99_999, 100_000, 200_000)]
    assert values == sorted(values)
    assert values[0] == pytest.approx(means.mean(), rel=1e-6)
    assert values[-1] == values[-2] == pytest.approx(means.max(), rel=1e-6)


def test_context_free_policies_do_not_earn_more_than_the_ceiling():
    world = tw.World.synthetic(items=500, users=40, dim=8, seed=1)
    most = context_free_ceiling(world, range(40), 50)
    tree = tw.ItemTree.flat(world.catalogue.vectors)  # one group, so that candidates come from all items
    policy = tw.ContextFree(groups="leaves", budget=100, shared_nodes=True, shared_items=True)  # 50 of them for items
    earned = tw.simulate(policy, world, tree, rounds=600, seed=0)
    assert earned.settings["most_scores"] == 50
    assert 0.8 * most < earned.expected[:, 300:].mean() < most


def test_ceiling_refuses_bad_arguments(tiny):
    for users, budget, why in (
        ([], 3, "users must be at least one"),
        ([4], 3, "users must be"),
        ([-1], 3, "users must be"),
        ([0.5], 3, "users must be"),
        ([0], 0, "budget must be"),
        ([0], 2.5, "budget must be"),
    ):
        with pytest.raises(tw.InvalidArgument, match=f"context_free_ceiling: {why}"):
            context_free_ceiling(tiny, users, budget)
