import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treeward as tw
from tests import naive
from treeward.bandit import EpsilonGreedy, LinUCB, Thompson
from treeward.core.errors import InvalidArgument
from treeward.engine.available import Flags, Screen, flip, is_open, left, nth, opened, shut, shut_all
from treeward.engine.batch import DECISION, Batch
from treeward.engine.decide import chooser
from treeward.engine.history import History, amend, record, tally
from treeward.engine.layout import empty_state, scratch
from treeward.engine.places import holder, leaf_at
from treeward.engine.posterior import REFRESH
from treeward.engine.ragged import Lists, insert, widened
from treeward.engine.replay import Events, apply_events, reset_user
from treeward.engine.trace import Trace
from treeward.policy import HCB, PHCB, TREE_POLICIES, Beam, CBCategory, CBLeaf, Flat, LogThreshold, Thresholds
from treeward.store.events import CHANGE, REWARD, SHOWN

NONE = np.zeros(0, dtype=np.int32)


def catalogue(count=60, dim=4, seed=0):
    vectors = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    return tw.Catalogue(range(count), vectors, categories=[f"c{row % 5}" for row in range(count)])


class Live:
    """The kernels, driven one user at a time."""

    def __init__(self, plan, events=200, seed=0, stream=0):
        self.plan, self.seed, self.stream = plan, seed, stream
        self.state = empty_state(plan, 1, events)
        self.candidates, self.choose = scratch(plan), chooser(plan)
        reset_user(plan, self.state, 0)

    def decide(self, nonce, closed=NONE):
        screen, out = Screen.open(len(closed) + int(self.state.shown.length[0])), np.zeros(1, dtype=DECISION)
        batch = Batch(np.array([0]), np.array([self.stream]), np.array([nonce]), closed, np.array([0, len(closed)]))
        self.choose(self.state, batch, 1, False, screen, self.seed, self.candidates, Trace.empty(), out)
        self.work = int(out["work"][0])
        return int(out["item"][0]), int(out["node"][0]), int(out["scores"][0])

    def place(self, row):
        return int(np.flatnonzero(self.plan.tree.items == row)[0])

    def update(self, row, node, reward):
        place, node = np.array([self.place(row)], dtype=np.int32), np.array([node], dtype=np.int32)
        event = Events(np.array([REWARD], dtype=np.uint8), place, node, np.array([reward]))
        self.state = apply_events(self.plan, self.state, np.zeros(1, dtype=np.int64), np.array([0, 1]), event)

    @property
    def visible(self):
        return self.state.visible.of(0).tolist()


def twin(policy, plan, tree, shop, seed, stream):
    rule = getattr(policy, "expansion", None)
    limits = rule.thresholds(int(plan.tree.level[-1])) if rule else None

    def opens(level, visits, mean):
        enough = mean >= limits.mean[level] if limits.at_least else mean > limits.mean[level]
        return visits >= limits.visits[level] and enough

    return naive.NaiveUser(
        policy.tree_for(tree, shop), shop.vectors, policy.bandit, personal=isinstance(policy, PHCB),
        nodes=plan.node_budget, items=plan.item_budget, rule=opens, start=plan.start.tolist(),
        by_level=plan.by_level, node_vectors=policy.node_vectors, seed=seed, stream=stream,
    )  # fmt: skip


BANDITS = [LinUCB(0.5), LinUCB(0.5, ridge=3.0), Thompson(0.3), EpsilonGreedy(0.2), EpsilonGreedy(0.2, estimate="mean")]


@pytest.mark.parametrize("kind", [HCB, PHCB, Beam, Flat])
def test_context_of_a_request_is_used_for_learning(kind):
    """Through the first gate, another, or none: what is learned is the vector times the gate."""
    shop = catalogue()
    tree = tw.ItemTree.build(shop.vectors, (3, 9), seed=0)
    plan = kind().plan(tree, shop)
    gates = np.array([[0.5, 2.0, 0.0, 1.0], [3.0, 0.25, 1.0, -1.0]], dtype=np.float32)
    plan = plan._replace(gates=gates)
    for gate in (-1, 0, 1):
        user = Live(plan)
        one = np.array([7], dtype=np.int32)
        event = Events(np.array([REWARD], dtype=np.uint8), one, one - 8, np.ones(1), np.array([gate], dtype=np.int32))
        state = apply_events(plan, user.state, np.zeros(1, dtype=np.int64), np.array([0, 1]), event)
        x = plan.items[7].astype(np.float64) * (gates[gate] if gate >= 0 else 1.0)
        np.testing.assert_allclose(state.posterior.theta[0, -1], x / (1 + x @ x), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("split", ["paper", "authors"])
@pytest.mark.parametrize("kind", [kind for kind in TREE_POLICIES.values() if kind is not Beam])
@pytest.mark.parametrize("bandit", BANDITS, ids=str)
def test_every_round_equals_the_naive_twin(kind, bandit, split, once):
    shop = catalogue()
    # Not normalised: unit vectors would all be equally uncertain at first, and ties fall to rounding.
    tree = tw.ItemTree.build(shop.vectors, (4, 12), seed=0, normalize=False)
    policy = kind(bandit, budget=12, split=split, node_vectors="mean" if split == "authors" else "unit")
    plan = policy.plan(tree, shop, once=once)
    user, slow = Live(plan, seed=3, stream=9), twin(policy, plan, tree, shop, 3, 9)
    reward_of = np.random.default_rng(5).uniform(0, 1, len(shop))
    shown = []
    for nonce in range(45):
        closed = np.sort([user.place(row) for row in shown]).astype(np.int32) if once else NONE
        made, expected = user.decide(nonce, closed), slow.decide(nonce, gone=shown if once else ())
        assert made == expected, f"round {nonce}"
        row, node, _ = made
        user.update(row, node, reward_of[row])
        slow.update(row, node, reward_of[row])
        if once:
            shown.append(row)
        if isinstance(policy, PHCB):
            assert user.visible == slow.visible


@pytest.mark.parametrize("kind", [HCB, PHCB])
def test_deep_tree_equals_the_naive_twin(kind):
    shop = catalogue(240)
    tree = tw.ItemTree.build(shop.vectors, (3, 9, 30, 90), seed=0, normalize=False)
    policy = kind(LinUCB(0.5), budget=25)
    plan = policy.plan(tree, shop)
    user, slow = Live(plan, seed=3, stream=9), twin(policy, plan, tree, shop, 3, 9)
    for nonce in range(40):
        made = user.decide(nonce)
        assert made == slow.decide(nonce, gone=())
        for one in (user, slow):
            one.update(*made[:2], float(made[0] % 3 == 0))


def test_hcb_on_other_trees_equals_the_policies_named_after_them():
    shop = catalogue()
    tree = tw.ItemTree.build(shop.vectors, (4, 12), seed=0)
    pairs = [
        (Flat(), HCB().plan(tw.ItemTree.flat(shop.vectors), shop)),
        (CBLeaf(), HCB().plan(tree.leaves_only(), shop)),
        (CBCategory(), HCB().plan(tw.ItemTree.from_categories(shop.vectors, shop.categories), shop)),
    ]
    for policy, same in pairs:
        one, other = Live(policy.plan(tree, shop)), Live(same)
        for nonce in range(20):
            row, node, scores = one.decide(nonce)
            assert (row, node, scores) == other.decide(nonce)
            one.update(row, node, row / 60)
            other.update(row, node, row / 60)


def test_budgets_are_split_as_the_paper_says():
    shop = catalogue(400)
    tree = tw.ItemTree.build(shop.vectors, (20, 40), seed=0)

    def budgets(policy):
        plan = policy.plan(tree, shop)
        return plan.node_budget, plan.item_budget

    assert budgets(HCB()) == (16, 18)
    assert budgets(PHCB()) == (25, 25)
    assert budgets(Flat()) == (50, 50)
    assert budgets(CBLeaf()) == (25, 25)
    assert budgets(HCB(split="authors")) == (25, 50)
    assert budgets(PHCB(split="authors")) == (50, 50)
    assert budgets(CBCategory(split="authors")) == (50, 50)


def test_without_a_budget_every_child_is_scored():
    shop = catalogue()
    tree = tw.ItemTree.build(shop.vectors, (4, 12), seed=0)
    for policy in (HCB(budget=None), HCB(budget=10_000)):
        user = Live(policy.plan(tree, shop))
        row, leaf, scores = user.decide(0)
        above = int(tree.parent[leaf])
        widths = [4, len(tree.children_of(above)), len(tree.items_of(leaf))]
        assert scores == sum(width for width in widths if width > 1)
        assert row in tree.items_of(leaf)


def test_a_single_arm_is_not_scored():
    shop = tw.Catalogue([0], [[1.0, 0.0]])
    assert Live(Flat().plan(tw.ItemTree.flat(shop.vectors), shop)).decide(0) == (0, 0, 0)


def test_feedback_in_another_order_gives_the_state_of_that_order():
    shop = catalogue()
    tree = tw.ItemTree.build(shop.vectors, (4, 12), seed=0)
    plan = PHCB(budget=12).plan(tree, shop)
    late, again = Live(plan), Live(plan)
    decisions = [late.decide(nonce) for nonce in range(8)]
    order = [5, 2, 7, 0]  # the others never come
    for index in order:
        late.update(*decisions[index][:2], 0.9)
    for index in order:
        again.update(*decisions[index][:2], 0.9)
    assert late.visible == again.visible
    assert all(np.array_equal(a, b) for a, b in zip(late.state.posterior, again.state.posterior, strict=True))


def four_levels():
    """Root; A, B; under A: C, D; under C: E, F; 8 items: E 0-1, F 2-3, D 4-5, B 6-7."""
    paths = ["A>C>E"] * 2 + ["A>C>F"] * 2 + ["A>D"] * 2 + ["B"] * 2
    tree = tw.ItemTree.from_paths(np.eye(8), paths)
    assert tree.names == ("all", "A", "B", "C", "D", "E", "F")
    return tree, tw.Catalogue(range(8), np.eye(8, dtype=np.float32))


def test_phcb_by_hand_step_by_step():
    """q = 4, p = 0.5: level 1 needs 0 visits and a mean above 0; level 2 floor(4 ln 2) = 2 and above 0.347;
    level 3 floor(4 ln 3) = 4 and above 0.549."""
    tree, shop = four_levels()
    plan = PHCB(expansion=LogThreshold(q=4, p=0.5)).plan(tree, shop)
    assert plan.need_visits[1:].tolist() == [0, 2, 4, 5]
    user = Live(plan)
    every, a, b, c, d, e, f = range(7)
    trace = [
        # row, node it was taken from, reward, visible after it, why
        (6, every, 0.0, [every]),  # mean 0 is not above 0
        (0, every, 0.5, [a, b]),  # mean 0.25 > 0: the root opens; A inherits row 0, B row 6
        (6, b, 1.0, [a, b]),  # B has 2 visits and mean 0.5, but it is a leaf
        (4, a, 0.0, [a, b]),  # A: 2 visits, mean 0.25 is not above 0.347
        (1, a, 1.0, [c, d, b]),  # A: 3 visits, mean 0.5: opens; C inherits rows 0 and 1, D row 4
        (2, c, 0.2, [c, d, b]),  # C: 3 visits of 4
        (4, d, 1.0, [c, d, b]),  # D is a leaf
        (3, a, 1.0, [e, f, d, b]),  # late, from A: counted where row 3 lies now, C: 4 visits, mean 0.675: opens
        (2, every, 1.0, [e, f, d, b]),  # later still, from the root: F is a leaf
    ]
    for step, (row, node, reward, visible) in enumerate(trace):
        user.update(row, node, reward)
        assert user.visible == visible, step
        for node_seen in user.visible:
            earned = [r for other, _, r, _ in trace[: step + 1] if other in tree.items_of(node_seen)]
            visits, total = tally(user.state.history, 0, *tree.item_range[node_seen])
            assert (visits, total) == (len(earned), pytest.approx(sum(earned)))
    taken = np.array([user.plan.nodes[node] for _, node, _, _ in trace], dtype=float)
    rewards = np.array([reward for _, _, reward, _ in trace])
    np.testing.assert_allclose(
        user.state.posterior.theta[0, 0], np.linalg.solve(np.eye(8) + taken.T @ taken, taken.T @ rewards), atol=1e-5
    )


def test_authors_rule_does_not_round_and_accepts_equality():
    limits = LogThreshold(q=10, p=0.1, authors=True).thresholds(3)
    assert limits.visits[2] == pytest.approx(6.931, abs=1e-3)
    assert limits.at_least
    tree, shop = four_levels()
    plan = PHCB(expansion=LogThreshold(q=0, p=0, authors=True), start="children").plan(tree, shop)
    user = Live(plan)
    assert user.visible == [1, 2]
    user.update(0, 1, 0.0)
    assert user.visible == [3, 4, 2]


def test_own_expansion_and_start_are_used():
    class Never:
        def thresholds(self, levels):
            return Thresholds(np.full(levels + 1, np.inf), np.zeros(levels + 1))

    tree, shop = four_levels()
    user = Live(PHCB(expansion=Never(), start=[2, 4, 3]).plan(tree, shop))
    assert user.visible == [3, 4, 2]
    for _ in range(20):
        user.update(0, 3, 1.0)
    assert user.visible == [3, 4, 2]


@given(st.lists(st.tuples(st.integers(0, 59), st.floats(0, 1)), max_size=60), st.integers(0, 3))
@settings(max_examples=40)
def test_visible_nodes_always_partition_the_catalogue(events, seed):
    shop = catalogue()
    tree = tw.ItemTree.build(shop.vectors, (3, 9, 20), seed=seed)
    user = Live(PHCB(expansion=LogThreshold(q=1, p=0.2)).plan(tree, shop))
    for row, reward in events:
        at = holder(tree.arrays.item_range, user.state.visible, 0, user.place(row))
        assert row in tree.items_of(user.visible[at])
        user.update(row, user.visible[at], reward)
        assert sorted(row for node in user.visible for row in tree.items_of(node).tolist()) == list(range(60))


@given(st.lists(st.tuples(st.integers(0, 20), st.floats(-1, 1)), max_size=40), st.integers(0, 20), st.integers(0, 21))
def test_history_counts_events_of_a_slice(events, first, last):
    history = History.empty(1, 40)
    for place, reward in events:
        record(history, 0, place, reward)
    inside = [reward for place, reward in events if first <= place < last]
    visits, total = tally(history, 0, first, max(first, last))
    assert visits == len(inside)
    assert total == pytest.approx(sum(inside), abs=1e-9)


PLACES = st.integers(0, 200)


@given(st.sets(PLACES), st.sampled_from(["only", "flags", "all"]), st.lists(PLACES), PLACES, PLACES, st.sets(PLACES))
def test_filters_keep_open_items(named, kind, closed, first, length, turned):
    flags = Flags.none()
    if kind == "flags":
        flags = Flags.of(np.isin(np.arange(201), sorted(named)))
        for place in turned:
            flip(flags, place, not flags.open[place])
        named = named ^ turned
        assert Flags.of(flags.open).before.tolist() == flags.before.tolist()
        assert Flags.of(flags.open).bits.tolist() == flags.bits.tolist()
    listed = np.array(sorted(named) if kind == "only" else [], dtype=np.int32)
    screen = Screen.of(listed, kind == "only", flags, 210)
    for place in closed:
        shut(screen, place)
    together = Screen.of(listed, kind == "only", flags, 210)
    shut_all(together, np.array(sorted(set(closed)), dtype=np.int32), 0, len(set(closed)))
    count = int(together.closed[0])
    assert together.mine[:count].tolist() == screen.mine[: screen.closed[0]].tolist()
    last = min(201, first + length)
    there = [p for p in range(first, last) if (kind == "all" or p in named) and p not in closed]
    assert left(screen, first, last) == len(there)
    assert [nth(screen, first, last, rank) for rank in range(len(there))] == there
    assert [place for place in range(first, last) if is_open(screen, place)] == there
    out = np.zeros(201, dtype=np.int64)
    assert out[: opened(screen, first, last, out)].tolist() == there


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), max_size=200))
def test_ragged_lists_grow_independently(steps):
    lists, beside, expected = Lists.empty(4, 2), np.zeros(8), [[], [], [], []]
    for seat, value in steps:
        lists, [beside] = widened(lists, seat, int(lists.length[seat]) + 1, beside)
        start, count = int(lists.start[seat]), int(lists.length[seat])
        lists.length[seat] = insert(lists.values[start : start + count + 1], count, value)
        expected[seat] = sorted({*expected[seat], value})
        beside[start : start + len(expected[seat])] = expected[seat]
        if seat == 3:  # another user takes the row
            lists.length[seat], expected[seat] = 0, []
    for seat, values in enumerate(expected):
        start = int(lists.start[seat])
        assert lists.of(seat).tolist() == values == beside[start : start + len(values)].tolist()


def events_of(plan, rows):
    """Events as a plan sees them, from (kind, catalogue row, node, reward)."""
    place_of = np.argsort(plan.tree.items)
    kinds, items, nodes, rewards = zip(*rows, strict=True)
    places = place_of[list(items)].astype(np.int32)
    return Events(
        np.array(kinds, dtype=np.uint8), places, np.array(nodes, dtype=np.int32), np.array(rewards, dtype=float)
    )


def same_state(one, other):
    for a, b in zip((*one.posterior[:7], *one.board), (*other.posterior[:7], *other.board), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in ((one.visible, other.visible), (one.shown, other.shown), (one.history.places, other.history.places)):
        assert a.of(0).tolist() == b.of(0).tolist()
    count = int(one.history.places.length[0])
    starts = int(one.history.places.start[0]), int(other.history.places.start[0])
    np.testing.assert_array_equal(
        *(made.history.rewards[at : at + count] for made, at in zip((one, other), starts, strict=True))
    )


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("bandit", [LinUCB(), EpsilonGreedy(estimate="mean")], ids=str)
@pytest.mark.parametrize("kind", TREE_POLICIES.values())
def test_replayed_events_give_the_live_state_to_the_bit(kind, bandit, once):
    shop, random = catalogue(), np.random.default_rng(2)
    tree = tw.ItemTree.build(shop.vectors, (4, 12), seed=0)
    plan = kind(bandit).plan(tree, shop, once=once)
    user = Live(plan)
    rows = []
    for turn in range(1500):
        row, node = int(random.integers(60)), -1
        if turn % 3:
            row, node, _ = user.decide(turn)
        kind_of = CHANGE if turn % 11 == 10 else SHOWN if turn % 7 == 6 else REWARD
        rows.append((kind_of, row, node, random.uniform() - (kind_of == CHANGE) / 2))
    every, seat = events_of(plan, rows), np.zeros(1, dtype=np.int64)

    def replayed(*cuts):
        state = empty_state(plan, 1, 0)
        reset_user(plan, state, 0)
        for first, last in zip((0, *cuts), (*cuts, len(rows)), strict=True):
            part = Events(*(column[first:last] for column in every))
            state = apply_events(plan, state, seat, np.array([0, last - first]), part)
        return state

    live = replayed(*range(1, len(rows)))
    assert live.posterior.pulls[0].min() > 2 * REFRESH
    same_state(replayed(), live)
    same_state(replayed(REFRESH - 1, REFRESH + 1, 700, 1499), live)


def test_a_changed_reward_counts_where_the_event_was():
    tree, shop = four_levels()
    plan = PHCB(expansion=LogThreshold(q=4, p=0.5)).plan(tree, shop)
    changed, seat = empty_state(plan, 1, 0), np.zeros(1, dtype=np.int64)
    reset_user(plan, changed, 0)
    rows = [(REWARD, 6, 0, 0.0), (REWARD, 0, 0, 0.0), (CHANGE, 0, 0, 0.5)]
    changed = apply_events(plan, changed, seat, np.array([0, 3]), events_of(plan, rows))
    assert changed.visible.of(0).tolist() == [1, 2]  # the change, not the reward, opened the root
    assert tally(changed.history, 0, 0, 8) == (2, 0.5)
    amend(changed.history, 0, 3, 9.0)  # no event there
    assert tally(changed.history, 0, 0, 8) == (2, 0.5)


def test_removed_item_is_ignored_in_replay():
    tree, shop = four_levels()
    plan, seat = PHCB().plan(tree, shop), np.zeros(1, dtype=np.int64)
    one, other = empty_state(plan, 1, 0), empty_state(plan, 1, 0)
    reset_user(plan, one, 0)
    reset_user(plan, other, 0)
    rows = events_of(plan, [(REWARD, 3, -1, 1.0), (REWARD, 5, -1, 1.0), (REWARD, 1, -1, 0.5)])
    rows.place[1] = -1
    one = apply_events(plan, one, seat, np.array([0, 3]), rows)
    other = apply_events(plan, other, seat, np.array([0, 2]), Events(*(column[[0, 2]] for column in rows[:4])))
    same_state(one, other)


def test_every_place_has_its_leaf():
    tree, _ = four_levels()
    for leaf in tree.leaves.tolist():
        first, last = tree.item_range[leaf].tolist()
        assert {leaf_at(tree.arrays.first_child, tree.arrays.item_range, place) for place in range(first, last)} == {
            leaf
        }


@pytest.mark.parametrize("kind", [HCB, PHCB, CBLeaf, CBCategory])
def test_node_vectors_have_length_one_by_default(kind):
    shop = catalogue()
    tree = tw.ItemTree.build(shop.vectors, (4, 12), seed=0)
    plan, plain = kind().plan(tree, shop), kind(node_vectors="mean").plan(tree, shop)
    np.testing.assert_allclose(np.linalg.norm(plan.nodes, axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(plain.nodes, plain.tree.vectors)
    assert (np.linalg.norm(plain.nodes, axis=1) < 1).all()
    lengths = np.linalg.norm(plain.nodes, axis=1, keepdims=True)
    np.testing.assert_allclose(plan.nodes, plain.nodes / lengths, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(plan.tree.vectors, plain.tree.vectors)  # the tree itself keeps its means


def test_a_node_whose_items_cancel_stays_zero():
    shop = tw.Catalogue(range(4), [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, 2.0]], categories=["a", "a", "b", "b"])
    tree = tw.ItemTree.from_categories(shop.vectors, shop.categories)
    plan = HCB().plan(tree, shop)
    np.testing.assert_allclose(plan.nodes, [[0, 1], [0, 0], [0, 1]])


def test_features_of_a_prior_are_not_scaled():
    shop = catalogue()
    log = tw.Interactions(np.repeat(np.arange(40), 3), np.arange(120) % len(shop))
    prior = tw.Crowd.fit(log, shop, seed=0)
    plan = HCB(prior=prior).plan(tw.ItemTree.build(shop.vectors, (4, 12), seed=0), shop)
    own = shop.dim
    np.testing.assert_allclose(np.linalg.norm(plan.nodes[:, :own], axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(plan.nodes[:, own:], plan.tree.vectors[:, own:])
    assert (plan.nodes[:, own] == 1).all()  # the bias


def test_beam_ranks_nodes_by_their_means():
    shop = catalogue()
    tree = tw.ItemTree.build(shop.vectors, (4, 12), seed=0)
    np.testing.assert_array_equal(Beam().plan(tree, shop).nodes, tree.vectors)
    for policy in (Beam(node_vectors="unit"), tw.ConUCB(node_vectors="unit")):
        with pytest.raises(InvalidArgument, match="node_vectors must be"):
            policy.session(tree, shop, 1)
    with pytest.raises(InvalidArgument, match="node_vectors must be one of unit, mean"):
        HCB(node_vectors="long").plan(tree, shop)


@pytest.mark.parametrize("budget", [None, 12])
def test_updated_scores_equal_recomputed_ones(budget):
    shop, random = catalogue(), np.random.default_rng(0)
    plan = HCB(budget=budget).plan(tw.ItemTree.build(shop.vectors, (4, 12), seed=0), shop)
    assert len(plan.board.mean) == 4
    user = Live(plan)
    for turn in range(700):  # across a refresh
        row, node, _ = user.decide(turn)
        user.update(row, node, random.uniform())
    state, x = user.state, plan.nodes[1:5]
    np.testing.assert_allclose(state.board.mean[0], x @ state.posterior.theta[0, 0], rtol=1e-4)
    squares = np.einsum("ij,ij->i", x @ state.posterior.inverse[0, 0], x)
    np.testing.assert_allclose(state.board.square[0], squares, rtol=1e-3)


@pytest.mark.parametrize("kind", TREE_POLICIES.values())
def test_policies_work_when_few_or_no_items_are_left(kind):
    shop = catalogue(12)
    tree = tw.ItemTree.build(shop.vectors, (2, 5), seed=0)
    user = Live(kind(budget=12).plan(tree, shop, once=True))
    everything = np.arange(12, dtype=np.int32)
    assert user.decide(0, everything) == (-1, -1, 0)
    for spared in range(12):
        row, _, scores = user.decide(0, np.delete(everything, spared))
        assert user.place(row) == spared
        assert scores == 0


def test_sampled_candidates_are_uniform():
    shop = catalogue(30)
    user = Live(Flat(EpsilonGreedy(1.0), budget=5).plan(tw.ItemTree.flat(shop.vectors), shop))
    rows = np.bincount([user.decide(nonce)[0] for nonce in range(3000)], minlength=30)
    assert ((rows - 100) ** 2 / 100).sum() < 58.3  # chi-square, 29 degrees of freedom, p = 0.001


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (HCB(budget=2), "HCB: budget must be an integer from 3 to 32768, got 2"),
        (PHCB(budget=1), "PHCB: budget must be an integer from 2 to 32768"),
        (HCB(budget=0), "HCB: budget"),
        (HCB(budget=40_000), "HCB: budget must be an integer from 3 to 32768"),
        (HCB(LinUCB(ridge=1e-6)), "LinUCB: ridge must be at least 0.001 for vectors of squared width 1e\\+06 "),
        (HCB(split="even"), "HCB: split must be one of paper, authors"),
        (HCB(LinUCB(alpha=-1)), "LinUCB: alpha"),
        (PHCB(expansion=LogThreshold(p=2)), "LogThreshold: p must be a finite number of at least 0 and of at most 1"),
        (PHCB(expansion=LogThreshold(q=-1)), "LogThreshold: q must be"),
        (PHCB(start="leaves"), "PHCB: start must be one of root, children"),
        (PHCB(start=[1]), "PHCB: start must be nodes that partition the items"),
        (PHCB(start=[0, 1]), "PHCB: start must be nodes that partition the items"),
        (PHCB(start=[99]), "PHCB: start must be an integer from 0 to"),
    ],
)
def test_bad_parameters_are_refused(policy, why):
    shop = catalogue(30)
    with pytest.raises(InvalidArgument, match=why):
        policy.plan(tw.ItemTree.build(shop.vectors, (3, 6)), shop)


@pytest.mark.parametrize("kind", TREE_POLICIES.values())
def test_all_arms_are_equal_for_unknown_users(kind):
    shop = tw.Catalogue(range(12), np.eye(12, dtype=np.float32), categories=[f"c{row % 3}" for row in range(12)])
    tree = tw.ItemTree.from_categories(shop.vectors, shop.categories)
    plan = kind(EpsilonGreedy(0.0), budget=24).plan(tree, shop)
    rows = np.bincount([Live(plan, stream=stream).decide(0)[0] for stream in range(600)], minlength=12)
    assert ((rows - 50) ** 2 / 50).sum() < 31.3  # chi-square, 11 degrees of freedom, p = 0.001


def test_chain_of_nodes_is_walked_in_two_steps():
    shop = tw.Catalogue(range(3), np.eye(3, dtype=np.float32))
    plan = CBLeaf().plan(tw.ItemTree.from_paths(np.eye(3), ["a>b>c"] * 3), shop)
    assert (plan.slots, plan.node_budget, plan.item_budget) == (2, 25, 25)


def test_trees_that_do_not_fit_the_catalogue_are_refused():
    shop = catalogue(30)
    with pytest.raises(InvalidArgument, match="tree must be over 30 items of 4 dimensions, got '20 x 4'"):
        HCB().plan(tw.ItemTree.build(catalogue(20).vectors, (3,)), shop)
    bare = tw.Catalogue(range(30), shop.vectors)
    with pytest.raises(InvalidArgument, match="CBCategory: catalogue must be one with categories"):
        CBCategory().plan(tw.ItemTree.build(shop.vectors, (3,)), bare)
    with pytest.raises(InvalidArgument, match="tree must be of at most 15 levels"):
        HCB().plan(tw.ItemTree.from_paths(np.ones((30, 4)), [tuple("x" * 20)] + [("y",)] * 29), shop)
