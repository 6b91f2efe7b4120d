"""Propensities of self-selected ratings, and the factorisation of weighted ratings."""

import numpy as np
import pytest

from treeward.learn.propensity import by_features, by_level
from treeward.learn.ratings import Rated, Shape, cross_validated, factorise_ratings


def test_propensities_by_level_are_recovered():
    random = np.random.default_rng(0)
    rating = random.integers(0, 5, 60_000)
    chance = np.array([0.02, 0.03, 0.05, 0.1, 0.2])
    given = random.random(len(rating)) < chance[rating]
    made = by_level(rating[given], rating[:5_000], 5)
    np.testing.assert_allclose(made / made[0], chance / chance[0], rtol=0.25)
    assert made[4] > 5 * made[0]


def test_a_level_without_ratings_keeps_a_finite_propensity():
    made = by_level(np.array([0, 0]), np.array([1, 1]), 3)
    assert np.isfinite(made).all()
    assert (made > 0).all()


def test_propensities_by_features_are_recovered():
    random = np.random.default_rng(1)
    users, items = random.integers(0, 2, (120, 2)), random.integers(0, 2, (80, 2))
    logits = -3 + 1.5 * users[:, :1] * items[:, 0] + users[:, 1:]  # a product of features counts
    chance = 1 / (1 + np.exp(-logits))
    who, what = np.nonzero(random.random(chance.shape) < chance)
    made = by_features(users, items, who, what, seed=0)
    assert made.min() > 0
    assert made.max() < 1
    assert np.abs(made - chance[who, what]).mean() < 0.03
    np.testing.assert_array_equal(made, by_features(users, items, who, what, seed=0))


def test_features_that_say_nothing_give_one_propensity():
    random = np.random.default_rng(2)
    who, what = np.nonzero(random.random((60, 50)) < 0.1)
    made = by_features(random.normal(size=(60, 3)), np.ones((50, 2)), who, what, seed=0)
    assert made.mean() == pytest.approx(0.1, abs=0.02)
    assert made.std() < 0.03


def rated(users=60, items=40, seed=0):
    random = np.random.default_rng(seed)
    truth = 3 + random.normal(size=(users, 1)) / 2 + random.normal(size=items) / 2
    truth = truth + random.normal(size=(users, 2)) @ random.normal(size=(2, items))
    user, item = np.nonzero(random.random((users, items)) < 0.5)
    rating = truth[user, item] + random.normal(size=len(user)) / 5
    return truth, Rated(user, item, rating, np.ones(len(user)))


def test_factorised_ratings_predict_the_others():
    truth, given = rated()
    made = factorise_ratings(given, 60, 40, Shape(2, 0.3, 0.3), seed=0)
    user, item = np.divmod(np.arange(truth.size), 40)
    error = made.predict(user, item).reshape(truth.shape) - truth
    assert (error**2).mean() < 0.15 * truth.var()
    again = factorise_ratings(given, 60, 40, Shape(2, 0.3, 0.3), seed=0)
    np.testing.assert_array_equal(made.users, again.users)


def test_a_weight_of_two_is_a_rating_given_twice():
    _, given = rated()
    heavy = given._replace(weight=np.where(given.user < 30, 2.0, 1.0))
    twice = Rated(*(np.concatenate([column, column[given.user < 30]]) for column in given))
    one, other = (factorise_ratings(part, 60, 40, Shape(2, 1.0, 1.0), seed=3) for part in (heavy, twice))
    np.testing.assert_allclose(one.users, other.users, rtol=1e-6, atol=1e-8)


def test_users_and_items_without_ratings_get_the_mean():
    made = factorise_ratings(Rated(*map(np.array, ([0], [0], [4.0], [1.0]))), 2, 2, Shape(1, 1.0, 1.0), seed=0)
    assert made.predict(np.array([1]), np.array([1])) == pytest.approx(4.0, abs=0.1)


def test_cross_validation_prefers_the_shape_that_predicts():
    _, given = rated()
    good, flat = Shape(2, 0.3, 0.3), Shape(1, 1e6, 1e6)
    assert cross_validated(given, 60, 40, (flat, good), folds=3, seed=0) == good
