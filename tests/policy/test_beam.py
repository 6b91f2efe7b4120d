"""`Beam`, the exact ceiling it is measured against, and the rules that hold for every policy."""

from itertools import pairwise

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import treeward as tw
from tests.policy.test_walk import NONE, Live, catalogue
from treeward.bandit import Crowd, EpsilonGreedy, LinUCB, Thompson
from treeward.core.errors import InvalidArgument
from treeward.engine.available import Flags, Screen, is_open, left, opened, shut
from treeward.engine.layout import empty_state
from treeward.engine.ragged import push
from treeward.engine.replay import Events, apply_events, reset_users
from treeward.policy import HCB, PHCB, Beam, CBLeaf, Flat
from treeward.policy.beam import _ladder, _spread, _starts, _widths
from treeward.store.events import CHANGE, REWARD, SHOWN

BANDITS = [LinUCB(0.5), Thompson(0.3), EpsilonGreedy(0.2)]


@pytest.fixture(scope="module")
def shop():
    return catalogue(400, 6, seed=2)


@pytest.fixture(scope="module")
def tree(shop):
    return tw.ItemTree.build(shop.vectors, (5, 40), seed=0, normalize=False)


def best_by_score(user, alpha, closed=()):
    """The best open item under LinUCB, by looking at all of them."""
    posterior = user.state.posterior
    inverse, theta = posterior.inverse[0, -1].astype(float), posterior.theta[0, -1].astype(float)
    x = user.plan.items.astype(float)
    scores = x @ theta + alpha * np.sqrt(np.einsum("ij,ij->i", x @ inverse, x))
    scores[list(closed)] = -np.inf
    return int(np.argmax(scores)), scores


@pytest.mark.parametrize("once", [False, True])
def test_flat_without_a_budget_takes_the_best_of_all_items(shop, tree, once):
    plan = Flat(LinUCB(0.5), None).plan(tree, shop, once=once)
    assert plan.exact
    user, closed = Live(plan), []
    rewards = np.random.default_rng(0).random(len(shop))
    for nonce in range(300):  # beyond a refresh
        shut_now = np.sort(closed).astype(np.int32) if once else NONE
        row, node, scores = user.decide(nonce, shut_now)
        best, every = best_by_score(user, 0.5, closed if once else ())
        assert every[user.place(row)] >= every[best] - 1e-4
        assert scores == len(shop) - len(shut_now)
        assert user.work == 0  # what it costs is the upkeep
        user.update(row, node, rewards[row])
        closed.append(user.place(row))
    assert plan.upkeep == 3 * 36 + 400 * 6


def test_flat_without_a_budget_updates_means_and_widths(shop, tree):
    plan = Flat(LinUCB(0.5), None).plan(tree, shop)
    state, seat = empty_state(plan, 1, 0), np.zeros(1, dtype=np.int64)
    reset_users(plan, state, seat)
    kinds = np.array([REWARD, REWARD, CHANGE, REWARD], dtype=np.uint8)
    events = Events(kinds, np.array([3, 9, 3, 50], np.int32), np.full(4, -1, np.int32), np.array([1.0, 0.0, -0.5, 1.0]))
    state = apply_events(plan, state, seat, np.array([0, 4]), events)
    x = plan.items
    np.testing.assert_allclose(state.board.mean[0], x @ state.posterior.theta[0, 0], atol=1e-5)
    square = np.einsum("ij,ij->i", x @ state.posterior.inverse[0, 0], x)
    np.testing.assert_allclose(state.board.square[0], square, atol=1e-5)


@pytest.mark.parametrize("once", [False, True])
def test_a_beam_that_may_look_at_everything_finds_the_best(shop, tree, once):
    policy = Beam(LinUCB(0.3), 400, means=10**6, fresh=0.0, directions=0)
    user, closed = Live(policy.plan(tree, shop, once=once)), []
    rewards = np.random.default_rng(1).random(len(shop))
    for nonce in range(60):
        row, node, _ = user.decide(nonce, np.sort(closed).astype(np.int32) if once else NONE)
        best, every = best_by_score(user, 0.3, closed if once else ())
        if nonce:  # before the first event nothing tells one item from another but its length
            assert every[user.place(row)] >= every[best] - 1e-5
            assert once or user.work == (5 + 40 + 400) * 6 + 400 * (6 + 36)
        user.update(row, node, rewards[row])
        if once:
            closed.append(user.place(row))


def test_a_narrow_beam_finds_nearly_the_best_at_little_work():
    world = tw.World.synthetic(items=20_000, users=30, dim=16, seed=3)
    shop, tree = world.catalogue, tw.ItemTree.build(world.catalogue.vectors, seed=0)
    exact, beam = Flat(LinUCB(0.0), None).plan(tree, shop), Beam(LinUCB(0.0), fresh=0.0).plan(tree, shop)
    found = []
    for person in range(30):
        user, rewards = Live(beam, stream=person), world.probabilities(person)
        for row in np.random.default_rng(person).choice(len(shop), 60):
            user.update(int(row), -1, float(rewards[row]))
        row, _, _ = user.decide(0)
        best, every = best_by_score(user, 0.0)
        found.append(every[user.place(row)] / every[best])
        assert user.work + beam.upkeep < 0.1 * exact.upkeep
    assert np.mean(found) > 0.95


def best_bounds(policy, shop, tree, alpha, rounds=80):
    """How near the upper bounds of the chosen items come to the best one, as a share of what lies above the average."""
    plan = policy.plan(tree, shop)
    user, near = Live(plan), []
    rewards = np.random.default_rng(4).random(len(shop))
    for nonce in range(rounds):
        row, node, _ = user.decide(nonce)
        best, every = best_by_score(user, alpha)
        near.append((every[user.place(row)] - every.mean()) / (every[best] - every.mean()))
        user.update(row, node, rewards[row])
    return np.array(near[1:])  # before the first event all are alike


def test_searches_along_tangents_find_the_highest_bounds():
    shop = catalogue(3_000, 12, seed=5)
    tree = tw.ItemTree.build(shop.vectors, (8, 80), seed=0)
    near = {}
    for directions, budget in ((0, 16), (8, 16), (24, 48)):
        policy = Beam(LinUCB(1.0), budget, means=10**6, fresh=0.0, directions=directions)
        near[directions] = best_bounds(policy, shop, tree, 1.0)
    assert near[24].mean() > 0.95
    assert near[8].mean() < near[24].mean()
    assert near[0].min() < 0.5 < near[8].min()
    assert near[24].max() <= 1 + 1e-5


def test_searches_along_tangents_are_counted_and_keep_propensities_exact(shop, tree):
    made = {}
    for directions in (0, 1, 6):
        policy = Beam(LinUCB(0.5), 6, means=100, fresh=0.0, directions=directions)
        session = policy.session(tree, shop, 20)
        for nonce in range(6):
            made[directions] = session.select(np.arange(20), nonce)
            session.update(made[directions], np.where(made[directions].item % 3 == 0, 1.0, 0.1))
        assert made[directions].exact.all()
        assert (made[directions].propensity == 1.0).all()
    assert (made[0].scores == 6).all()
    assert (made[1].work >= made[0].work + 6 * (1 + 6)).all()
    assert (made[6].scores <= 6).all(), "within the budget"
    assert (made[6].work <= made[0].work + 6 * (100 + 6 + 1 + 40) * 6).all()


def test_searches_along_tangents_never_find_closed_items(shop, tree):
    plan = Beam(LinUCB(2.0), 4, means=100, fresh=0.0, directions=8).plan(tree, shop)
    user = Live(plan)
    user.update(7, -1, 1.0)
    everything, rng = np.arange(400, dtype=np.int32), np.random.default_rng(0)
    for nonce in range(100):
        spared = rng.choice(400, size=int(rng.integers(1, 30)), replace=False)
        row, _, _ = user.decide(nonce, np.delete(everything, spared))
        assert user.place(row) in spared
    assert user.decide(0, everything) == (-1, -1, 0)


def test_directions_do_not_depend_on_the_number_of_threads():
    items = catalogue(18_000, 64, seed=1).vectors
    made = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            made.append(_starts(items, 8))
    np.testing.assert_array_equal(*made)


def test_a_prior_replaces_the_searches_along_tangents(shop, tree):
    prior = tw.Prior(np.zeros(6), np.eye(6))
    assert len(Beam().plan(tree, shop).search.starts) == 8
    assert len(Beam(prior=prior).plan(tree, shop).search.starts) == 0
    assert len(Beam(prior=prior, directions=3).plan(tree, shop).search.starts) == 3
    starts = Beam(directions=12).plan(tree, shop).search.starts
    np.testing.assert_allclose(np.linalg.norm(starts, axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(starts[::2], -starts[1::2])


def test_a_fitted_prior_needs_fewer_finalists_and_less_chance(shop, tree):
    prior = tw.Prior(np.zeros(6), np.eye(6))
    cases = (
        (Beam(), 16, 0.01),
        (Beam(prior=tw.Prior()), 16, 0.01),
        (Beam(prior=prior), 4, 0.001),
        (Beam(budget=9, fresh=0.5, prior=prior), 9, 0.5),
    )
    for policy, finalists, fresh in cases:
        session = policy.session(tree, shop, 1)
        session.update(session.select([0], 0), [1.0])
        assert session.select([0], 1).scores[0] == finalists
        assert policy.plan(tree, shop).search.fresh == pytest.approx(fresh)


def test_a_crowd_that_starts_from_nothing_explores_as_without_a_prior(shop):
    assert not tw.Crowd.empty(shop).informed
    explorer = tw.Explorer(shop, seed=0)
    assert explorer._snapshot.decider.plan.search.fresh == pytest.approx(0.01)
    explorer.feedback({explorer.recommend(["ada"])[0].id: 1.0})
    [shown] = explorer.recommend(["ada"])
    assert shown.scores == 16


def test_unknown_user_gets_any_item(shop, tree):
    seen = set()
    for stream in range(60):
        user = Live(Beam(fresh=0.0).plan(tree, shop), stream=stream)
        seen.add(user.decide(0)[0])
    assert len(seen) > 25


@pytest.mark.parametrize("bandit", BANDITS, ids=str)
def test_every_item_keeps_a_positive_probability(shop, tree, bandit):
    session = Beam(bandit, fresh=0.2).session(tree, shop, 300, seed=1)
    for nonce in range(3):
        made = session.select(np.arange(300), nonce)
        session.update(made, np.where(made.item % 3 == 0, 1.0, 0.2))
    counts = np.zeros(len(shop))
    told = []
    for nonce in range(3, 40):
        made = session.select(np.arange(300), nonce)
        np.add.at(counts, made.item, 1)
        told.append(made.propensity)
    assert (np.array(told) >= 0.2 / len(shop)).all()
    assert (counts > 0).mean() > 0.98
    assert made.exact.all() == (not isinstance(bandit, Thompson))


def test_propensities_equal_observed_frequencies(shop, tree):
    session = Beam(EpsilonGreedy(0.3), 6, fresh=0.1, explore=0.6).session(tree, shop, 1, seed=1)
    session.update(session.select([0], 0), [1.0])
    counts, told = np.zeros(len(shop)), np.zeros(len(shop))
    for nonce in range(1, 8_000):
        made = session.select([0], nonce)
        counts[made.item[0]] += 1
        told[made.item[0]] = made.propensity[0]
    common = np.flatnonzero(told > 0.01)
    assert len(common) == 6
    np.testing.assert_allclose(counts[common] / 7_999, told[common], atol=0.02)
    assert told[told > 0].sum() == pytest.approx(1.0, abs=0.05)


def test_closed_items_are_never_chosen(shop, tree):
    plan = Beam(means=100, fresh=0.0).plan(tree, shop)
    user = Live(plan)
    user.update(7, -1, 1.0)
    everything, rng = np.arange(400, dtype=np.int32), np.random.default_rng(0)
    for nonce in range(100):
        spared = rng.choice(400, size=int(rng.integers(1, 5)), replace=False)
        row, node, _ = user.decide(nonce, np.delete(everything, spared))
        assert user.place(row) in spared
        first, last = tree.item_range[node]
        assert first <= user.place(row) < last
    assert user.decide(0, everything) == (-1, -1, 0)


def test_beam_walks_trees_of_uneven_depth():
    vectors = np.random.default_rng(0).standard_normal((90, 4)).astype(np.float32)
    paths = [("a",) if i % 3 == 0 else ("b", f"b{i % 4}") if i % 3 == 1 else ("c", "d", f"e{i % 2}") for i in range(90)]
    shop = tw.Catalogue(range(90), vectors)
    tree = tw.ItemTree.from_paths(vectors, paths)
    user = Live(Beam(LinUCB(0.0), 90, means=10**6, fresh=0.0).plan(tree, shop))
    for nonce in range(30):
        row, node, _ = user.decide(nonce)
        best, every = best_by_score(user, 0.0)
        assert nonce == 0 or every[user.place(row)] == pytest.approx(every[best], abs=1e-6)
        user.update(row, node, float(row % 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0}, "budget"), ({"budget": 1.5}, "budget"), ({"means": 0}, "means"), ({"reach": -1}, "reach"),
        ({"fresh": 1.5}, "fresh"), ({"shortlist": 16}, "shortlist"), ({"forgetting": 0.0}, "forgetting"),
        ({"explore": -0.1}, "explore"),
    ],
)  # fmt: skip
def test_bad_options_are_refused(shop, tree, options, message):
    with pytest.raises(InvalidArgument, match=message):
        Beam(**options).plan(tree, shop)


# --- rules for every policy ------------------------------------------------------------------------------------------


RULES = [{"shortlist": 4}, {"forgetting": 0.98}, {"explore": 0.5}, {"shortlist": 3, "forgetting": 0.9}]


@pytest.mark.parametrize("rest", [0, 5])
@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("kind", [HCB, PHCB, Beam, Flat])
def test_replay_is_the_same_to_the_bit_under_any_rule(shop, tree, kind, rules, rest):
    plan = kind(**rules).plan(tree, shop, once=rest > 0, rest=rest)
    random, count = np.random.default_rng(4), 150
    places = random.integers(0, 30, count).astype(np.int32)
    kinds = random.choice([SHOWN, REWARD, REWARD, CHANGE], count).astype(np.uint8)
    events = Events(kinds, places, np.full(count, -1, np.int32), random.random(count).round(1))
    seat, states = np.zeros(1, dtype=np.int64), []
    for cuts in ([0, count], list(range(count + 1)), [0, 3, 90, count]):
        state = empty_state(plan, 1, 0)
        reset_users(plan, state, seat)
        for first, last in pairwise(cuts):
            part = Events(*(column[first:last] for column in events))
            state = apply_events(plan, state, seat, np.array([0, last - first]), part)
        states.append(state)
    for state in states[1:]:
        for name in ("precision", "moment", "inverse", "theta", "pulls"):
            np.testing.assert_array_equal(
                getattr(state.posterior, name), getattr(states[0].posterior, name), err_msg=name
            )
        for one, other in ((state.short, states[0].short), (state.shown, states[0].shown)):
            assert one.of(0).tolist() == other.of(0).tolist()
    assert len(states[0].short.of(0)) == rules.get("shortlist", 0)
    assert len(states[0].shown.of(0)) == rest


@pytest.mark.parametrize("kind", [HCB, PHCB, CBLeaf, Flat])
def test_shortlist_repeats_items_with_good_rewards(kind):
    world = tw.World.synthetic(items=5_000, users=60, dim=8, seed=1)
    tree = tw.ItemTree.build(world.catalogue.vectors, seed=0)
    plain, short = (tw.simulate(kind(shortlist=k), world, tree, rounds=400, reward="click", seed=0) for k in (0, 8))
    assert short.cumulative[-1] > plain.cumulative[-1]
    assert short.settings["most_scores"] <= 50


def test_forgetting_follows_a_drifting_interest(shop):
    """A user likes one half of the items at first, the other later."""
    rewards = (shop.vectors[:, 0] > 0).astype(float), (shop.vectors[:, 0] < 0).astype(float)
    tree = tw.ItemTree.build(shop.vectors, (5, 40), seed=0, normalize=False)
    earned = []
    for forgetting in (1.0, 0.95):
        policy = Beam(LinUCB(0.1), forgetting=forgetting, fresh=0.01)
        user, total = Live(policy.plan(tree, shop), events=2_000), 0.0
        for turn in range(900):
            row, node, _ = user.decide(turn)
            reward = rewards[turn >= 450][row]
            user.update(row, node, reward)
            total += reward * (turn >= 450)
        earned.append(total)
    assert earned[1] > 1.2 * earned[0]


def test_total_forgetting_leaves_the_prior(shop, tree):
    plan = Beam(forgetting=0.2).plan(tree, shop)
    user = Live(plan, events=200)
    for i in range(96):  # whole blocks of 32: what came before counts 0.2**32 times as much
        user.update(i % 20, -1, 1.0)
    posterior = user.state.posterior
    np.testing.assert_allclose(posterior.precision[0, 0], plan.prior.precision, atol=1e-9)
    np.testing.assert_allclose(posterior.theta[0, 0], 0, atol=1e-6)


def test_explore_limits_the_share_of_exploring_decisions(shop, tree):
    users = 400
    for kind in (HCB, Beam):
        greedy = kind(LinUCB(5.0), explore=0.0, **({"fresh": 0.0} if kind is Beam else {}))
        session = greedy.session(tree, shop, users, seed=2)
        session.update(session.select(np.arange(users), 0), np.ones(users))
        again = kind(LinUCB(0.0), **({"fresh": 0.0} if kind is Beam else {})).session(tree, shop, users, seed=2)
        again.update(again.select(np.arange(users), 0), np.ones(users))
        one, other = session.select(np.arange(users), 1), again.select(np.arange(users), 1)
        np.testing.assert_allclose(one.mean, other.mean, atol=1e-5)  # the best mean, whatever the width
        half = kind(LinUCB(5.0), explore=0.5, **({"fresh": 0.0} if kind is Beam else {})).session(
            tree, shop, users, seed=2
        )
        assert half.select(np.arange(users), 0).propensity.min() > 0


def test_ragged_lists_keep_the_last_entries():
    values, count = np.zeros(3, dtype=np.int32), 0
    for value, expected in ((5, [5]), (7, [5, 7]), (5, [7, 5]), (8, [7, 5, 8]), (9, [5, 8, 9]), (8, [5, 9, 8])):
        count = push(values, count, value)
        assert values[:count].tolist() == expected


def test_items_repeat_after_their_rest(shop, tree):
    world = tw.World.synthetic(items=300, users=5, dim=8, seed=1)
    result = tw.simulate(Beam(), world, rounds=200, repeats=7, seed=0, log=False)
    assert result.rewards.shape == (5, 200)
    explorer = tw.Explorer(shop, tree, repeats=3, seed=0)
    shown = []
    for _ in range(40):
        [d] = explorer.recommend(["ada"])
        assert d.item not in shown[-3:]
        shown.append(d.item)
        explorer.feedback({d.id: float(d.item in (1, 2, 3, 4, 5))})
    assert len(set(shown)) < 40
    with pytest.raises(InvalidArgument, match="repeats"):
        tw.Explorer(shop, tree, repeats=-1)


def test_slates_are_spread_over_the_tree(shop, tree):
    explorer = tw.Explorer(shop, tree, seed=0)
    explorer.feedback({explorer.recommend(["ada"])[0].id: 1.0})
    plain = explorer.recommend(["ada"], n=30)
    spread = explorer.recommend(["ada"], n=30, diverse=True)
    assert len({d.path for d in spread}) == 30 > len({d.path for d in plain})
    assert len({d.item for d in explorer.recommend(["ada"], n=60, diverse=True)}) == 60  # more than there are leaves
    told = explorer.explain(spread[5], diverse=True)
    assert told.reproduced


def test_asking_for_more_items_than_exist_is_refused(shop):
    """It is an error with and without diverse lists, and nothing is recorded."""
    few = tw.Catalogue(range(6), shop.vectors[:6])
    explorer = tw.Explorer(few, repeats=False, seed=0)
    with pytest.raises(tw.NothingLeft):
        explorer.recommend(["ada"], 6, exclude=[0, 3], diverse=True)
    assert len(explorer.recommend(["ada"], 6, diverse=True)) == 6
    for diverse in (False, True):
        with pytest.raises(tw.NothingLeft):
            explorer.recommend(["ada"], 2, diverse=diverse)


def test_late_feedback_does_not_end_an_items_rest(shop, tree):
    explorer = tw.Explorer(shop, tree, repeats=2, seed=0)
    shown = [explorer.recommend(["ada"])[0] for _ in range(3)]
    before = explorer.inspect.may_show_to("ada")
    explorer.feedback({shown[0].id: 1.0})
    np.testing.assert_array_equal(explorer.inspect.may_show_to("ada"), before)
    for d in shown[1:]:
        with pytest.raises(tw.NothingLeft):
            explorer.recommend(["ada"], allow=[d.item])
    assert explorer.recommend(["ada"], allow=[shown[0].item])
    with pytest.raises(InvalidArgument, match="fewer than the 400 items"):
        tw.Explorer(shop, tree, repeats=400)


def test_regret_counts_available_items_only():
    chances = np.array([[0.9, 0.5, 0.1]])
    world = tw.World.from_matrix(chances, tw.Catalogue(range(3), np.eye(3, dtype=np.float32)))
    result = tw.simulate(Flat(LinUCB(0.0), None), world, rounds=40, repeats=1, regret=True, seed=0)
    last = result.best[0, -6:]  # it knows by now: best and second best in turn
    assert np.unique(last).tolist() == pytest.approx([0.5, 0.9])


def test_propensities_of_unknown_users_are_uniform(shop, tree):
    """Items that look alike are about equally likely; these propensities are estimates, not exact."""
    assert not Beam(fresh=0.3).session(tree, shop, 300, seed=4).select(np.arange(300), 0).exact.any()
    few = tw.Catalogue(range(17), np.eye(17, dtype=np.float32))
    made = Beam(fresh=0.5).session(tw.ItemTree.flat(few.vectors), few, 300).select(np.arange(300), 0)
    np.testing.assert_allclose(made.propensity, 1 / 17, rtol=0.1)
    assert not made.exact.any()


def test_a_beam_sees_all_of_an_uneven_tree():
    random = np.random.default_rng(0)
    vectors = random.standard_normal((200, 4)).astype(np.float32)
    paths = [("c0", f"d{row % 2}") if row % 20 == 0 else (f"c{row % 20}",) for row in range(200)]
    shop = tw.Catalogue(range(200), vectors)
    tree = tw.ItemTree.from_paths(vectors, paths)
    user = Live(Beam(LinUCB(0.0), 200, means=10**6, fresh=0.0).plan(tree, shop))
    user.update(3, -1, 1.0)
    row, _, scores = user.decide(0)
    best, every = best_by_score(user, 0.0)
    assert scores == 200
    assert every[user.place(row)] == pytest.approx(every[best], abs=1e-6)


def test_search_arrays_follow_from_the_tree():
    """Ladders, spreads and widths of an uneven tree, each counted by hand; leaves wait for the levels below them."""
    random = np.random.default_rng(1)
    vectors = random.standard_normal((60, 3)).astype(np.float32)
    paths = [("a", f"b{row % 3}", f"c{row % 2}") if row % 5 else (f"d{row % 2}",) for row in range(60)]
    tree = tw.ItemTree.from_paths(vectors, paths, normalize=False)
    items = vectors[tree.items]
    ladder, spread = _ladder(tree, items[:, 2]), _spread(tree, items, 2)
    childless = np.diff(tree.first_child) == 0
    assert childless[tree.level < tree.level[-1]].any()
    for node, (begin, end) in enumerate(tree.item_range):
        for level in range(tree.level[node], (tree.level[-1] if childless[node] else tree.level[node]) + 1):
            np.testing.assert_array_equal(ladder[level, begin:end], np.sort(items[begin:end, 2])[::-1])
        apart = (items[begin:end, :2] - tree.vectors[node, :2]).astype(np.float64)
        assert spread[node] == pytest.approx(np.sqrt((apart**2).sum(axis=1).mean() / 2), rel=1e-4)
    for level, width in enumerate(_widths(tree, 12)[2:], 2):
        here = [n for n in range(len(tree.level)) if tree.level[n] == level or (childless[n] and tree.level[n] < level)]
        inside = [tree.items_of(n).size if childless[n] else np.diff(tree.first_child)[n] for n in here]
        assert width == max(1, min(len(here), round(12 / tree.level[-1] / np.mean(inside))))
    assert _widths(tree, 10**6)[2:].tolist() == [3, 5, 8]


def test_shortlisted_item_belongs_to_its_visible_node(shop, tree):
    session, seen = PHCB(LinUCB(0.1), 16, shortlist=5).session(tree, shop, 3), []
    likes = np.random.default_rng(3).random((3, len(shop))) < 0.2
    for nonce in range(40):
        fields = [session.state.visible.of(user).tolist() for user in range(3)]
        made = session.select(np.arange(3), nonce)
        for user, (place, node) in enumerate(zip(made.place.tolist(), made.node.tolist(), strict=True)):
            begin, end = tree.item_range[node]
            assert node in fields[user]
            assert begin <= place < end
        seen += zip(range(3), made.item.tolist(), strict=True)
        session.update(made, likes[np.arange(3), made.item].astype(float))
    assert len(set(seen)) < 100  # of 120: without a shortlist items hardly come back


@pytest.mark.parametrize(
    ("bandit", "products"),
    [
        (LinUCB(0.5), 12 * (6 + 36)),
        (Thompson(0.3), 12 * 6 + 36 + 6**3 // 6),
        (EpsilonGreedy(0.2), 12 * 6),
        (EpsilonGreedy(0.2, estimate="mean"), 12),
    ],
    ids=str,
)
def test_multiplications_are_counted(bandit, products, shop):
    user = Live(Flat(bandit, 12).plan(tw.ItemTree.flat(shop.vectors), shop))
    for nonce in range(3):
        row, node, scores = user.decide(nonce)
        assert (scores, user.work) == (12, products)
        user.update(row, node, 1.0)


def test_filters_of_items_combine():
    flags = Flags.of(~np.isin(np.arange(9), [2, 5]))
    screen = Screen.of(np.zeros(0, np.int32), False, flags, 4)
    for place in (7, 2, 0):
        shut(screen, place)
    out = np.zeros(10, dtype=np.int64)
    assert out[: opened(screen, 0, 9, out)].tolist() == [1, 3, 4, 6, 8]
    assert [place for place in range(9) if is_open(screen, place)] == [1, 3, 4, 6, 8]
    only = Screen.of(np.array([2, 5, 7], np.int32), True, Flags.none(), 4)
    shut(only, 5)
    assert out[: opened(only, 0, 9, out)].tolist() == [2, 7] == [place for place in range(9) if is_open(only, place)]
    assert left(only, 0, 9) == 2


# --- the prior -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def population():
    """Users whose tastes come from a known prior, and their log."""
    random = np.random.default_rng(0)
    shop = tw.Catalogue(range(600), random.standard_normal((600, 5)).astype(np.float32))
    x = shop.vectors / np.linalg.norm(shop.vectors, axis=1, keepdims=True)
    mean, spread = np.array([0.3, 0, 0, 0, 0]), np.diag([0.01, 0.5, 0.01, 0.01, 0.01])
    users, items = [], []
    for user in range(800):
        chances = np.clip(0.3 + x @ random.multivariate_normal(mean, spread), 0, 1)
        shown = random.choice(600, 60, replace=False)
        liked = shown[random.random(60) < chances[shown]]
        users += [user] * len(liked)
        items += liked.tolist()
    return shop, tw.Interactions(users, items)


def test_fitted_prior_finds_the_directions_in_which_users_differ(population, tmp_path):
    shop, log = population
    prior = Crowd.fit(log, shop, seed=1)
    spread = np.diag(np.asarray(prior.covariance))[:5]
    assert spread.argmax() == 1
    assert spread[1] > 5 * np.delete(spread, 1).max()
    assert np.asarray(prior.mean)[0] > 0
    assert prior.noise > prior.provenance["noise_of_the_log"]
    assert len(prior.provenance["tried"]) == 5
    again = Crowd.fit(log, shop, seed=1)
    np.testing.assert_array_equal(again.covariance, prior.covariance)
    prior.save(tmp_path / "prior")
    loaded = Crowd.load(tmp_path / "prior")
    np.testing.assert_array_equal(loaded.covariance, prior.covariance)
    assert loaded.noise == prior.noise
    assert loaded.provenance == prior.provenance
    np.testing.assert_array_equal(loaded.transform(shop).vectors, prior.transform(shop).vectors)


def test_fitted_prior_helps_new_users(population):
    shop, log = population
    prior = Crowd.fit(log, shop, seed=1)
    x = shop.vectors / np.linalg.norm(shop.vectors, axis=1, keepdims=True)
    random = np.random.default_rng(7)
    thetas = random.multivariate_normal([0.3, 0, 0, 0, 0], np.diag([0.01, 0.5, 0.01, 0.01, 0.01]), 60)
    world = tw.World.from_matrix(np.clip(0.3 + thetas @ x.T, 0, 1), shop)
    with_prior, without = (
        tw.simulate(Beam(prior=one), world, rounds=60, reward="click", repeats=False, seed=0) for one in (prior, None)
    )
    assert with_prior.cumulative[-1] > 1.05 * without.cumulative[-1]
    for policy in (HCB(prior=prior), PHCB(prior=prior), Flat(prior=prior, budget=None)):  # every policy takes it
        tree = tw.ItemTree.build(shop.vectors, (5, 40))
        assert tw.simulate(policy, world, tree, rounds=20, seed=0).cumulative[-1] > 20 * 0.3


def test_a_prior_does_not_depend_on_the_unit_of_rewards(population):
    shop, log = population
    one = Crowd.fit(log, shop, users=400)
    hundred = Crowd.fit(tw.Interactions(log.users, log.items, rewards=np.full(len(log), 100.0)), shop, users=400)
    np.testing.assert_allclose(np.asarray(hundred.mean) / 100, np.asarray(one.mean), rtol=1e-4, atol=1e-6)
    spread, other = np.asarray(one.covariance) * one.noise, np.asarray(hundred.covariance) * hundred.noise / 1e4
    np.testing.assert_allclose(other, spread, rtol=1e-3, atol=1e-6)


def test_prior_adds_features_to_the_catalogue(population):
    shop, log = population
    prior = Crowd.fit(log, shop, users=200)
    seen = prior.transform(shop)
    assert seen.dim == 7
    np.testing.assert_allclose(np.linalg.norm(seen.vectors[:, :5], axis=1), 1, rtol=1e-5)
    assert (seen.vectors[:, 5] == 1).all()
    counts = np.bincount(log.items.to_numpy(), minlength=600)
    assert seen.vectors[:, 6].argmax() == counts.argmax()
    assert prior.transform(seen) is seen
    with pytest.raises(InvalidArgument, match="dimensions"):
        prior.transform(shop.with_vectors(seen.vectors + 1))
    older = Crowd.fit(log.of_users(log.users.unique().head(90)), shop, users=90)
    tree, _ = Beam(prior=prior).fitted(Beam(prior=older).grow(shop), shop)
    leaf = int(tree.leaves[0])
    assert tree.vectors[leaf, 6] == pytest.approx(seen.vectors[tree.items_of(leaf), 6].mean(), rel=1e-5)
    others = tw.Catalogue([5, 10_000], shop.vectors[:2])  # one known, one new: it may be as popular as any
    usual = pytest.approx(seen.vectors[:, 6].mean(), rel=1e-4)
    assert prior.transform(others).vectors[:, 6].tolist() == [seen.vectors[5, 6], usual]
    tree = Beam(prior=prior).grow(shop)
    assert (tree.dim, len(tree), tree.normalized) == (7, 600, False)
    explorer = tw.Explorer(shop, policy=Beam(prior=prior))
    assert {d.item for d in explorer.recommend(["new"], n=5)} <= set(range(600))


def test_prior_refuses_bad_logs_and_catalogues(population, tmp_path):
    shop, log = population
    with pytest.raises(InvalidArgument, match="dimensions"):
        Crowd.fit(log, shop, users=50).transform(shop.with_vectors(shop.vectors[:, :3]))
    with pytest.raises(InvalidArgument, match="vectors"):
        Crowd.fit(log, tw.Catalogue(range(600)))
    with pytest.raises(tw.DataError, match="empty"):
        Crowd.fit(tw.Interactions([], []), shop)
    with pytest.raises(tw.DataError, match="rewards no item"):
        Crowd.fit(tw.Interactions([1], [2], rewards=[0.0]), shop)
    with pytest.raises(InvalidArgument, match="negatives"):
        Crowd.fit(log, shop, negatives=0)
    names, prior = tw.Catalogue([f"i{i}" for i in range(600)], shop.vectors), Crowd.fit(log, shop, users=50)
    with pytest.raises(InvalidArgument, match="ids that are"):
        prior.transform(names)
    with pytest.raises(tw.TreewardError):
        Crowd.load(tmp_path)


def test_tree_over_other_vectors_keeps_its_items(shop, tree):
    wider = np.concatenate([shop.vectors, np.ones((400, 1), dtype=np.float32)], axis=1)
    other = tree.over(wider)
    np.testing.assert_array_equal(other.items, tree.items)
    np.testing.assert_allclose(other.vectors[:, :6], tree.vectors, atol=1e-6)
    np.testing.assert_allclose(other.vectors[:, 6], 1)
    with pytest.raises(InvalidArgument, match="items"):
        tree.over(wider[:5])
