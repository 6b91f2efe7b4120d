"""HR@k and NDCG@k, by hand and by brute force."""

from itertools import pairwise, permutations
from math import log2

import numpy as np
import pytest

from treeward.core.ranking import Places, list_quality, places_among_all, places_in_lists


def of_lists(user, score, liked, users, count):
    places = places_in_lists(np.array(user, dtype=int), np.array(score, dtype=float), np.array(liked, dtype=bool))
    return list_quality(places, users, count)


def test_hand_computed_lists():
    # User 0 likes the first and the fourth of five, user 1 the third of three, user 2 nothing.
    user = [0, 1, 0, 0, 1, 0, 0, 1, 2]
    score = [0.9, 0.1, 0.8, 0.7, 0.3, 0.2, 0.1, 0.2, 0.5]
    liked = [1, 1, 0, 0, 0, 1, 0, 0, 0]
    found = of_lists(user, score, liked, 3, 10)
    assert found.hit_rate.tolist()[:2] == [1, 1]
    assert found.ndcg[0] == pytest.approx((1 + 1 / log2(5)) / (1 + 1 / log2(3)))
    assert found.ndcg[1] == pytest.approx(1 / log2(4))
    assert np.isnan(found.hit_rate[2])
    assert np.isnan(found.ndcg[2])
    assert found.mean() == pytest.approx((1, found.ndcg[:2].mean()))
    short = of_lists(user, score, liked, 3, 2)
    assert short.hit_rate.tolist()[:2] == [1, 0]
    assert short.ndcg.tolist()[:2] == pytest.approx([1 / (1 + 1 / log2(3)), 0])


def test_more_liked_items_than_places_can_still_be_perfect():
    found = of_lists([0] * 4, [4, 3, 2, 1], [1, 1, 1, 0], 1, 2)
    assert (found.hit_rate[0], found.ndcg[0]) == (1, 1)


def test_equal_scores_count_as_in_a_random_order():
    alone = of_lists([0] * 20, [0.5] * 20, [1] + [0] * 19, 1, 5)
    assert alone.hit_rate[0] == pytest.approx(5 / 20)
    assert alone.ndcg[0] == pytest.approx(sum(1 / log2(place + 1) for place in range(1, 6)) / 20)
    # One item is ahead; the liked one shares the places 2 to 4, of which two are among the first three.
    behind = of_lists([0] * 5, [9, 1, 1, 1, 0], [0, 0, 1, 0, 0], 1, 3)
    assert behind.hit_rate[0] == pytest.approx(2 / 3)
    assert behind.ndcg[0] == pytest.approx((1 / log2(3) + 1 / log2(4)) / 3)


def by_every_order(score, liked, count):
    """Return both measures as their means over all orders of items with equal scores."""
    hits, gains = [], []
    best = sum(1 / log2(place + 2) for place in range(min(count, sum(liked))))
    for order in permutations(range(len(score))):
        if all(score[one] >= score[other] for one, other in pairwise(order)):
            first = [liked[row] for row in order[:count]]
            hits.append(any(first))
            gains.append(sum(one / log2(place + 2) for place, one in enumerate(first)) / best)
    return np.mean(hits), np.mean(gains)


@pytest.mark.parametrize("seed", range(12))
def test_ties_equal_the_mean_over_all_orders(seed):
    random = np.random.default_rng(seed)
    score, liked = random.integers(0, 3, 7).tolist(), random.random(7) < 0.4
    liked[random.integers(7)] = True
    for count in (1, 2, 3, 5, 9):
        found = of_lists([0] * 7, score, liked, 1, count)
        assert (found.hit_rate[0], found.ndcg[0]) == pytest.approx(by_every_order(score, liked.tolist(), count))


def test_items_that_are_left_out_are_no_candidates():
    scores = np.array([[5.0, 4, 3, 2, 1], [1, 1, 1, 1, 0]])
    scores[0, [0, 1]] = -np.inf
    above, equal = places_among_all(scores, np.array([0, 0, 1]), np.array([2, 4, 1]))
    assert (above.tolist(), equal.tolist()) == ([0, 2, 0], [1, 1, 4])
    found = list_quality(Places(np.array([0, 0, 1]), above, equal), 2, count=2)
    assert found.hit_rate.tolist() == [1, 0.5]


def test_both_ways_to_find_places_agree():
    random = np.random.default_rng(0)
    scores, liked = random.integers(0, 6, (8, 15)).astype(float), random.random((8, 15)) < 0.2
    user, item = np.nonzero(liked)
    above, equal = places_among_all(scores, user, item)
    who = np.repeat(np.arange(8), 15)
    lists = list_quality(places_in_lists(who, scores.ravel(), liked.ravel()), 8)
    np.testing.assert_allclose(lists.ndcg, list_quality(Places(user, above, equal), 8).ndcg)
    np.testing.assert_allclose(lists.hit_rate, list_quality(Places(user, above, equal), 8).hit_rate)


def test_excluded_items_tie_with_each_other():
    found = of_lists([0] * 4, [1, -np.inf, -np.inf, -np.inf], [0, 1, 0, 0], 1, 2)
    assert found.hit_rate[0] == pytest.approx(1 / 3)


def test_nobody_who_liked_something_has_no_mean():
    nothing = np.zeros(0, dtype=np.int64)
    found = list_quality(Places(nothing, nothing, nothing), 2)
    assert np.isnan(found.mean()).all()
    assert np.isnan(of_lists([], [], [], 2, 3).ndcg).all()
