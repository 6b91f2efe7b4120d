import math
from itertools import pairwise

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import treeward as tw
from tests import naive
from treeward.bandit import BANDITS, EpsilonGreedy, LinUCB, Prior, Thompson
from treeward.bandit.crowd_fit import Fitted, _earned, counted, noise_of_clicks
from treeward.core import rng
from treeward.core.errors import InvalidArgument
from treeward.core.progress import silent
from treeward.engine import posterior as posteriors
from treeward.engine.explore import Belief, Candidates, Draws, _sample, best_of, chance_of
from treeward.engine.layout import CrowdArrays
from treeward.engine.posterior import BLOCK, REFRESH, Posterior, correct, factorise, fade, observe, refresh, reset


def posterior(dim, ridge=1.0, slots=1):
    made = Posterior.empty(1, slots, dim)
    reset(made, 0, Prior().start(dim, ridge))
    return made


def belief(made):
    return Belief(made.inverse[0, 0], made.theta[0, 0], CrowdArrays.none().root)


def learn(made, seat, slot, x, reward):
    return posteriors.learn(made, seat, slot, x, reward, np.empty(len(x), dtype=np.float32))


def unit_rows(count, dim, seed=0):
    drawn = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def fill(vectors):
    candidates = Candidates.empty(len(vectors), vectors.shape[1])
    candidates.vectors[:] = vectors
    return candidates


def close(made, twin, rtol=1e-3):
    np.testing.assert_allclose(made.inverse[0, 0], twin.inverse(), rtol=rtol, atol=rtol * np.abs(twin.inverse()).max())
    np.testing.assert_allclose(
        made.theta[0, 0], twin.theta(), rtol=rtol, atol=rtol * max(1e-3, np.abs(twin.theta()).max())
    )


@given(st.integers(1, 6), st.floats(0.1, 10), st.integers(0, 2**31), st.integers(0, 3 * BLOCK))
def test_posterior_is_the_closed_form(dim, ridge, seed, count):
    made, twin = posterior(dim, ridge), naive.NaivePosterior(dim, ridge)
    random = np.random.default_rng(seed)
    for _ in range(count):
        x, reward = random.uniform(-1, 1, dim).astype(np.float32), random.uniform(-1, 1)
        learn(made, 0, 0, x, reward)
        twin.learn(x, reward)
    close(made, twin)
    waiting = made.pending[0, 0, : count % BLOCK].astype(float)
    np.testing.assert_allclose((made.precision[0, 0] + waiting.T @ waiting) @ twin.inverse(), np.eye(dim), atol=1e-6)
    assert made.pulls[0, 0] == count
    if count % BLOCK == 0:
        refresh(made, 0, 0)
        close(made, twin, rtol=1e-5)


def test_posterior_does_not_drift_with_few_arms():
    updates = 3_000 if numba.config.DISABLE_JIT else 100_000  # without a refresh the drift shows long before
    arms, dim = unit_rows(25, 16), 16
    made, twin = posterior(dim), naive.NaivePosterior(dim)
    random = np.random.default_rng(1)
    for arm, reward in zip(random.integers(0, 25, updates), random.uniform(0, 1, updates), strict=True):
        learn(made, 0, 0, arms[arm], reward)
        twin.learn(arms[arm], reward)
    inverse, theta = twin.inverse(), twin.theta()
    width = np.sqrt(np.einsum("id,de,ie->i", arms, made.inverse[0, 0].astype(float), arms))
    np.testing.assert_allclose(width, np.sqrt(np.einsum("id,de,ie->i", arms, inverse, arms)), rtol=1e-3)
    np.testing.assert_allclose(arms @ made.theta[0, 0], arms @ theta, rtol=1e-3)
    assert updates > REFRESH


def test_posteriors_of_slots_and_users_are_independent():
    made = Posterior.empty(2, 2, 3)
    reset(made, 0, Prior().start(3, 1.0))
    reset(made, 1, Prior().start(3, 1.0))
    arrays = [array for array in made if array.shape[:2] == (2, 2) and array is not made.work]
    assert len(arrays) == 6
    before = [array[1].copy() for array in arrays] + [array[0, 0].copy() for array in arrays]
    learn(made, 0, 1, np.ones(3, dtype=np.float32), 1.0)
    after = [array[1] for array in arrays] + [array[0, 0] for array in arrays]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("ridge", [0.1, 1.0, 7.0])
def test_linucb_honours_the_ridge_before_the_first_update(ridge):
    rule = LinUCB(alpha=1.0, ridge=ridge).rule(3)
    made, x = posterior(3, rule.ridge), fill(np.array([[1, 0, 0], [0, 2, 0]], dtype=np.float32))
    assert best_of(rule.kind, rule.strength, belief(made), x.vectors, x, Draws(0, 0, 0)) == 1
    np.testing.assert_allclose(x.width, [1 / math.sqrt(ridge), 2 / math.sqrt(ridge)], rtol=1e-6)


@given(st.integers(0, 2**31), st.integers(1, 12), st.sampled_from(["linucb", "thompson", "epsilon"]))
def test_choices_follow_the_closed_form(seed, count, name):
    dim, random = 4, np.random.default_rng(seed)
    made, twin = posterior(dim), naive.NaivePosterior(dim)
    for _ in range(10):
        x, reward = random.uniform(-1, 1, dim).astype(np.float32), random.uniform()
        learn(made, 0, 0, x, reward)
        twin.learn(x, reward)
    arms = random.uniform(-1, 1, (count, dim)).astype(np.float32)
    bandit = {"linucb": LinUCB(0.7), "thompson": Thompson(v=0.5), "epsilon": EpsilonGreedy(0.5)}[name]
    rule = bandit.rule(dim)
    chosen = best_of(rule.kind, rule.strength, belief(made), arms, fill(arms), Draws(seed, 5, 6))
    if name == "linucb":
        scores = [x @ twin.theta() + 0.7 * twin.width(x) for x in arms.astype(float)]
    elif name == "thompson":
        z = [naive.draw_normal(seed, 5, 6 + i) for i in range(dim)]
        scores = arms.astype(float) @ (twin.theta() + 0.5 * np.linalg.cholesky(twin.inverse()) @ z)
    elif naive.draw_uniform(seed, 5, 6) < 0.5:
        assert chosen == int(naive.draw_uniform(seed, 5, 7) * count)
        return
    else:
        scores = arms.astype(float) @ twin.theta()
    assert scores[chosen] >= max(scores) - 1e-4


def test_thompson_draws_have_the_posterior_mean_and_covariance():
    made, dim = posterior(2, 0.5), 2
    for x, reward in (([1.0, 0.5], 1.0), ([0.2, -1.0], 0.3), ([0.5, 0.5], 0.6)):
        learn(made, 0, 0, np.array(x, dtype=np.float32), reward)
    x = fill(np.eye(2, dtype=np.float32))
    factorise(made.inverse[0, 0], x.root)
    draws = np.empty((3000, 2))
    for i in range(3000):
        _sample(x.vectors, x, belief(made), 0.7, Draws(0, 0, 10 * i))
        draws[i] = x.sampled
    assert draws.mean(axis=0) == pytest.approx(made.theta[0, 0], abs=4 * 0.7 / math.sqrt(3000))
    np.testing.assert_allclose(np.cov(draws.T), 0.49 * made.inverse[0, 0], atol=0.06)
    assert dim == draws.shape[1]


def test_epsilon_greedy_explores_with_probability_epsilon():
    made, x = posterior(1), fill(np.array([[1.0], [0.1]], dtype=np.float32))
    learn(made, 0, 0, np.ones(1, dtype=np.float32), 1.0)
    rule = EpsilonGreedy(0.2).rule(1)
    second = [best_of(rule.kind, rule.strength, belief(made), x.vectors, x, Draws(0, 0, 4 * i)) for i in range(3000)]
    assert np.mean(second) == pytest.approx(0.1, abs=4 * math.sqrt(0.09 / 3000))


def test_epsilon_greedy_can_use_the_mean_reward_of_an_arm():
    made, x = posterior(1), fill(np.ones((3, 1), dtype=np.float32))
    x.visits[:], x.rewards[:] = [0, 4, 2], [0, 1, 1.5]
    rule = EpsilonGreedy(0.0, estimate="mean").rule(1)
    assert best_of(rule.kind, rule.strength, belief(made), x.vectors, x, Draws(0, 0, 0)) == 2
    assert x.mean.tolist() == [0, 0.25, 0.75]


def test_thompson_spread_follows_the_theory_without_v():
    assert Thompson(v=None).rule(16).strength == pytest.approx(1e-4 * math.sqrt(24 / 0.05 * 16 * math.log(10)))
    assert Thompson(v=0.3).rule(16).strength == 0.3


@pytest.mark.parametrize(
    ("bandit", "why"),
    [
        (LinUCB(alpha=-1), "LinUCB: alpha must be a finite number of at least 0"),
        (LinUCB(alpha=float("nan")), "LinUCB: alpha"),
        (LinUCB(alpha="x"), "LinUCB: alpha"),
        (LinUCB(ridge=0), "LinUCB: ridge must be a finite number above 0"),
        (Thompson(v=-0.1), "Thompson: v must be"),
        (Thompson(v=None, delta=1.0), "Thompson: delta must be a finite number above 0 and below 1"),
        (EpsilonGreedy(epsilon=1.5), "EpsilonGreedy: epsilon must be a finite number of at least 0 and of at most 1"),
        (EpsilonGreedy(estimate="best"), "EpsilonGreedy: estimate must be one of linear, mean, got 'best'"),
    ],
)
def test_bad_parameters_are_refused(bandit, why):
    with pytest.raises(InvalidArgument, match=why):
        bandit.rule(4)


def test_posterior_starts_with_the_prior():
    mean, covariance = np.array([0.5, -1.0]), np.array([[2.0, 0.3], [0.3, 0.5]])
    start = Prior(mean, covariance).start(2, ridge=3.0)
    made, twin = Posterior.empty(1, 1, 2), naive.NaivePosterior(2)
    reset(made, 0, start)
    twin.precision, twin.moment = 3.0 * np.linalg.inv(covariance), 3.0 * np.linalg.inv(covariance) @ mean
    close(made, twin, rtol=1e-5)
    assert twin.theta() == pytest.approx(mean)
    for x, reward in (([1.0, 0.5], 1.0), ([0.2, -1.0], 0.3)):
        learn(made, 0, 0, np.array(x, dtype=np.float32), reward)
        twin.learn(x, reward)
    close(made, twin, rtol=1e-5)


@pytest.mark.parametrize(
    ("prior", "why"),
    [
        (Prior(mean=[1.0]), "Prior: mean must be finite numbers of shape \\(2,\\), got 'shape \\(1,\\)'"),
        (Prior(mean=[1.0, math.nan]), "Prior: mean must be finite"),
        (Prior(mean="x"), "Prior: mean must be numbers"),
        (Prior(covariance=[[1, 0.5], [0.2, 1]]), "Prior: covariance must be symmetric"),
        (
            Prior(covariance=[[1, 2], [2, 1]]),
            "positive definite, got 'a lowest eigenvalue of -1",
        ),
        (Prior(covariance=np.zeros((2, 2))), "positive definite"),
    ],
)
def test_bad_priors_are_refused(prior, why):
    with pytest.raises(InvalidArgument, match=why):
        prior.start(2, 1.0)


@given(st.integers(0, 2**31), st.floats(-2, 2))
def test_corrected_reward_equals_a_reward_given_so_from_the_start(seed, change):
    random = np.random.default_rng(seed)
    made, twin = posterior(3), naive.NaivePosterior(3)
    for turn in range(12):
        x, reward = random.uniform(-1, 1, 3).astype(np.float32), random.uniform()
        learn(made, 0, 0, x, reward)
        twin.learn(x, reward + change if turn == 5 else reward)
        if turn == 5:
            again = x
    correct(made, 0, 0, again, change, np.empty(3, dtype=np.float32))
    close(made, twin)
    np.testing.assert_allclose(made.moment[0, 0], twin.moment, atol=1e-6)


def test_observing_then_refreshing_equals_learning_to_the_bit():
    arms, random = unit_rows(40, 6), np.random.default_rng(0)
    live, replayed = posterior(6), posterior(6)
    pulled = random.integers(0, 40, REFRESH + 100)
    for turn, arm in enumerate(pulled):
        learn(live, 0, 0, arms[arm], arm / 40)
        if turn < REFRESH:
            observe(replayed, 0, 0, arms[arm], arm / 40)
        else:
            learn(replayed, 0, 0, arms[arm], arm / 40)
        if turn == REFRESH - 1:
            refresh(replayed, 0, 0)
    for one, other in zip(live[:6], replayed[:6], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("bandit", [LinUCB(0.0), Thompson(0.5), EpsilonGreedy(0.3), EpsilonGreedy(1.0)], ids=str)
def test_probabilities_equal_observed_frequencies(bandit):
    made, rule = posterior(2), bandit.rule(2)
    for x, reward in (([1.0, 0.0], 0.6), ([0.0, 1.0], 0.5)):
        learn(made, 0, 0, np.array(x, dtype=np.float32), reward)
    arms = fill(np.array([[1, 0], [1, 0], [0, 1], [0.9, 0.3], [1, 0]], dtype=np.float32)[:, :])
    counts, told = np.zeros(5), np.zeros(5)
    for turn in range(3000):
        at = rule.kind, rule.strength
        chosen = best_of(*at, belief(made), arms.vectors, arms, Draws(0, 0, turn << 16))
        counts[chosen] += 1
        told[chosen] += chance_of(chosen, *at, belief(made), 5, arms.vectors, arms, Draws(0, 0, turn << 16))
    expected = told / np.maximum(counts, 1)
    if isinstance(bandit, Thompson):  # an estimate, whose mean over what was chosen is not that of the arm
        best = counts > 300
        np.testing.assert_allclose(expected[best], counts[best] / 3000, atol=0.1)
    else:
        np.testing.assert_allclose(counts / 3000, expected, atol=0.04)


@pytest.mark.parametrize("bandit", BANDITS.values())
def test_every_bandit_has_sensible_defaults(bandit):
    assert bandit().rule(8).ridge == 1.0


def test_rewarded_items_are_never_drawn_as_non_events():
    """Of each user's items half are liked: so many draws would meet them."""
    random = np.random.default_rng(0)
    likes = random.random((30, 20)) < 0.5
    users, items = np.nonzero(likes)
    shop = tw.Catalogue(range(20), random.standard_normal((20, 3)))
    log = counted(tw.Interactions(users, items), shop, negatives=4, seed=0)
    assert (log.popularity == likes.sum(axis=0)).all()
    for user, (begin, end) in enumerate(pairwise(log.ends)):
        rows, rewards = log.row[begin:end], log.reward[begin:end]
        assert sorted(rows[rewards > 0]) == np.flatnonzero(likes[user]).tolist()
        assert not likes[user, rows[rewards == 0]].any()
        assert likes[user].sum() < (rewards == 0).sum() < 4 * likes[user].sum()


def test_faded_posterior_returns_to_the_prior():
    mean, covariance = np.array([0.5, -1.0, 0.2]), np.diag([2.0, 0.5, 1.0])
    start = Prior(mean, covariance).start(3, 1.0)
    made = Posterior.empty(1, 1, 3)
    reset(made, 0, start)
    x = np.array([1.0, 2.0, -1.0], dtype=np.float32)
    for _ in range(BLOCK):
        observe(made, 0, 0, x, 0.5)
    fade(made, 0, 0, 0.25)
    share = 0.25 * BLOCK
    np.testing.assert_allclose(made.precision[0, 0], start.precision + share * np.outer(x, x), rtol=1e-6)
    np.testing.assert_allclose(made.moment[0, 0], start.moment + share * 0.5 * x, rtol=1e-6)
    refresh(made, 0, 0)
    slow = np.linalg.inv(np.linalg.inv(covariance) + share * np.outer(x, x))
    np.testing.assert_allclose(made.inverse[0, 0], slow, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(made.theta[0, 0], slow @ (np.linalg.inv(covariance) @ mean + share * 0.5 * x), rtol=1e-4)


def test_logged_skips_are_used_before_drawn_ones():
    users, items = np.repeat(np.arange(4), 6), np.tile(np.arange(6), 4)
    rewards = np.tile([1.0, 0.0, 0.0, 0.0, 1.0, -1.0], 4)
    shop = tw.Catalogue(range(50), np.eye(50, 3))
    log = counted(tw.Interactions(users, items, rewards=rewards), shop, negatives=2, seed=0)
    for begin, end in pairwise(log.ends):
        assert log.row[begin:end].tolist() == [0, 4, 1, 2, 3, 5]
        assert log.reward[begin:end].tolist() == [1, 1, 0, 0, 0, 0]


def test_noise_is_the_one_that_earns_most():
    """What a factor earns is what users would click whose tastes are learned by ridge regression, item by item."""
    random = np.random.default_rng(0)
    x = random.standard_normal((40, 3)).astype(np.float32)
    mean, spread, chances = random.standard_normal(3) / 4, np.diag([1.0, 0.5, 2.0]), random.random((5, 40))
    total = 0.0
    for user in range(5):
        a, b, left = np.linalg.inv(spread), np.linalg.inv(spread) @ mean, list(range(40))
        for turn in range(12):
            scores = x @ np.linalg.solve(a, b)
            at = max(left, key=lambda row, scores=scores: scores[row])
            left.remove(at)
            total += chances[user, at] / 5
            click = rng.uniforms(3, rng.stream("prior", "clicks", turn), 5)[user] < chances[user, at]
            a, b = a + np.outer(x[at], x[at]), b + x[at] * click
    assert _earned(x, mean, spread, chances, 12, 3) == pytest.approx(total, rel=1e-5)
    users, items = np.nonzero(chances[np.arange(30) % 5] > 0.6)
    held = counted(tw.Interactions(users, items), tw.Catalogue(range(40), x), negatives=2, seed=0)
    fitted = Fitted(mean, spread, 0.06)
    noise, earned = noise_of_clicks(x, fitted, held, True, 3, silent)
    rates = np.sort(np.clip(x @ mean, 0, 1))[-4:]
    factor = max(earned, key=earned.get)
    assert noise == pytest.approx(max(0.06, (rates * (1 - rates)).mean()) * float(factor), rel=1e-4)
    assert noise_of_clicks(x, fitted, held, False, 3, silent) == (0.06, {})


def test_changing_the_prior_needs_no_events():
    """What is kept of a user is free of the prior: the posterior is the one that the same events make under it."""
    random, dim = np.random.default_rng(3), 4
    first, second = Prior().start(dim, 1.0), Prior(mean=random.standard_normal(dim), covariance=np.diag([1, 2, 3, 4.0]))
    made, expected = Posterior.empty(2, 2, dim), Posterior.empty(2, 2, dim)
    for posterior, start in ((made, first), (expected, second.start(dim, 2.0))):
        reset(posterior, np.arange(2), start)
    for turn in range(REFRESH + BLOCK + 7):
        x, reward = random.standard_normal(dim).astype(np.float32), float(random.random())
        for posterior in (made, expected):
            learn(posterior, turn % 2, turn % 3 % 2, x, reward)
    posteriors.rebase(made, second.start(dim, 2.0))
    np.testing.assert_allclose(made.theta, expected.theta, atol=1e-5)
    np.testing.assert_allclose(made.inverse, expected.inverse, atol=1e-6)
    for posterior in (made, expected):  # and learning goes on from there
        learn(posterior, 0, 0, np.ones(dim, dtype=np.float32), 1.0)
    np.testing.assert_allclose(made.theta, expected.theta, atol=1e-5)
