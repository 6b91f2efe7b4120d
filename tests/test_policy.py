import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treeward as tw
from tests import naive
from treeward.bandit import EpsilonGreedy, LinUCB, Thompson
from treeward.core.errors import InvalidArgument
from treeward.policy import HCB, PHCB, POLICIES, CBCategory, CBLeaf, Flat, LogLevel, Thresholds
from treeward.policy.history import History, open_place, record, tally
from treeward.policy.plan import room, scratch
from treeward.policy.walk import decide, holder, sit, update

NONE = np.zeros(0, dtype=np.int32)


def catalogue(count=60, dim=4, seed=0):
    vectors = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    return tw.Catalogue(range(count), vectors, categories=[f"c{row % 5}" for row in range(count)])


class Live:
    """The kernels, driven one user at a time."""

    def __init__(self, plan, events=200, seed=0, stream=0):
        self.plan, self.seed, self.stream = plan, seed, stream
        self.state = room(plan, 1, events)
        self.candidates = scratch(plan, self.state)
        sit(plan, self.state, 0)

    def decide(self, nonce, closed=NONE):
        place, node, scores, _ = decide(
            self.plan, self.state, 0, closed, len(closed), self.seed, self.stream, nonce, self.candidates
        )
        return (int(self.plan.tree.items[place]) if place >= 0 else -1), node, scores

    def place(self, row):
        return int(np.flatnonzero(self.plan.tree.items == row)[0])

    def update(self, row, node, reward):
        update(self.plan, self.state, 0, self.place(row), node, reward)

    @property
    def visible(self):
        return self.state.visible[0, : self.state.open[0]].tolist()


def twin(policy, plan, tree, shop, seed, stream):
    rule = getattr(policy, "expansion", None)
    limits = rule.thresholds(int(plan.tree.level[-1])) if rule else None

    def opens(level, visits, mean):
        enough = mean >= limits.mean[level] if limits.at_least else mean > limits.mean[level]
        return visits >= limits.visits[level] and enough

    return naive.NaiveUser(
        policy.tree_for(tree, shop), shop.vectors, policy.bandit, personal=isinstance(policy, PHCB),
        nodes=plan.node_budget, items=plan.item_budget, rule=opens, start=plan.start.tolist(),
        by_level=plan.by_level, seed=seed, stream=stream,
    )  # fmt: skip


BANDITS = [LinUCB(0.5), LinUCB(0.5, ridge=3.0), Thompson(0.3), EpsilonGreedy(0.2), EpsilonGreedy(0.2, estimate="mean")]


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("split", ["paper", "authors"])
@pytest.mark.parametrize("kind", POLICIES.values())
@pytest.mark.parametrize("bandit", BANDITS, ids=str)
def test_every_round_is_the_naive_twins(kind, bandit, split, once):
    shop = catalogue()
    # Not normalised: unit vectors would all be equally uncertain at first, and ties fall to rounding.
    tree = tw.ItemTree.build(shop.vectors, (4, 12), seed=0, normalize=False)
    policy = kind(bandit, budget=12, split=split)
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


def test_hcb_on_a_flat_tree_is_flat_and_so_on():
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


def test_no_budget_scores_every_child():
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
    plan = PHCB(expansion=LogLevel(q=4, p=0.5)).plan(tree, shop)
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
    taken = np.array([tree.vectors[node] for _, node, _, _ in trace], dtype=float)
    rewards = np.array([reward for _, _, reward, _ in trace])
    np.testing.assert_allclose(
        user.state.posterior.theta[0, 0], np.linalg.solve(np.eye(8) + taken.T @ taken, taken.T @ rewards), atol=1e-5
    )


def test_the_authors_rule_rounds_nothing_and_takes_equality():
    limits = LogLevel(q=10, p=0.1, authors=True).thresholds(3)
    assert limits.visits[2] == pytest.approx(6.931, abs=1e-3)
    assert limits.at_least
    tree, shop = four_levels()
    plan = PHCB(expansion=LogLevel(q=0, p=0, authors=True), start="children").plan(tree, shop)
    user = Live(plan)
    assert user.visible == [1, 2]
    user.update(0, 1, 0.0)
    assert user.visible == [3, 4, 2]


def test_a_rule_of_ones_own_and_a_start_of_ones_own():
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
    user = Live(PHCB(expansion=LogLevel(q=1, p=0.2)).plan(tree, shop))
    for row, reward in events:
        at = holder(user.plan, user.state, 0, user.place(row))
        assert row in tree.items_of(user.visible[at])
        user.update(row, user.visible[at], reward)
        assert sorted(row for node in user.visible for row in tree.items_of(node).tolist()) == list(range(60))


@given(st.lists(st.tuples(st.integers(0, 20), st.floats(-1, 1)), max_size=40), st.integers(0, 20), st.integers(0, 21))
def test_history_counts_slices(events, first, last):
    history = History.empty(1, 40)
    for place, reward in events:
        record(history, 0, place, reward)
    inside = [reward for place, reward in events if first <= place < last]
    visits, total = tally(history, 0, first, max(first, last))
    assert visits == len(inside)
    assert total == pytest.approx(sum(inside), abs=1e-9)


@given(st.sets(st.integers(0, 30)), st.integers(0, 20), st.integers(0, 9))
def test_open_places_skip_closed_ones(closed, first, rank):
    places = np.array(sorted(closed), dtype=np.int32)
    expected = [place for place in range(first, 100) if place not in closed][rank]
    assert open_place(places, len(places), first, rank) == expected


@pytest.mark.parametrize("kind", POLICIES.values())
def test_nothing_left_and_almost_nothing_left(kind):
    shop = catalogue(12)
    tree = tw.ItemTree.build(shop.vectors, (2, 5), seed=0)
    user = Live(kind(budget=12).plan(tree, shop, once=True))
    everything = np.arange(12, dtype=np.int32)
    assert user.decide(0, everything) == (-1, -1, 0)
    for spared in range(12):
        row, _, scores = user.decide(0, np.delete(everything, spared))
        assert user.place(row) == spared
        assert scores == 0


def test_samples_are_uniform():
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
        (HCB(LinUCB(ridge=1e-6)), "LinUCB: ridge must be at least 0.001 for vectors of squared length 1 "),
        (HCB(split="even"), "HCB: split must be one of paper, authors"),
        (HCB(LinUCB(alpha=-1)), "LinUCB: alpha"),
        (PHCB(expansion=LogLevel(p=2)), "LogLevel: p must be a finite number of at least 0 and of at most 1"),
        (PHCB(expansion=LogLevel(q=-1)), "LogLevel: q must be"),
        (PHCB(start="leaves"), "PHCB: start must be one of root, children"),
        (PHCB(start=[1]), "PHCB: start must be nodes that partition the items"),
        (PHCB(start=[0, 1]), "PHCB: start must be nodes that partition the items"),
        (PHCB(start=[99]), "PHCB: start must be an integer from 0 to"),
    ],
)
def test_bad_parameters(policy, why):
    shop = catalogue(30)
    with pytest.raises(InvalidArgument, match=why):
        policy.plan(tw.ItemTree.build(shop.vectors, (3, 6)), shop)


@pytest.mark.parametrize("kind", POLICIES.values())
def test_users_nothing_is_known_of_meet_all_arms_alike(kind):
    shop = tw.Catalogue(range(12), np.eye(12, dtype=np.float32), categories=[f"c{row % 3}" for row in range(12)])
    tree = tw.ItemTree.from_categories(shop.vectors, shop.categories)
    plan = kind(EpsilonGreedy(0.0), budget=24).plan(tree, shop)
    rows = np.bincount([Live(plan, stream=stream).decide(0)[0] for stream in range(600)], minlength=12)
    assert ((rows - 50) ** 2 / 50).sum() < 31.3  # chi-square, 11 degrees of freedom, p = 0.001


def test_leaves_of_a_chain():
    shop = tw.Catalogue(range(3), np.eye(3, dtype=np.float32))
    plan = CBLeaf().plan(tw.ItemTree.from_paths(np.eye(3), ["a>b>c"] * 3), shop)
    assert (plan.slots, plan.node_budget, plan.item_budget) == (2, 25, 25)


def test_bad_trees_and_catalogues():
    shop = catalogue(30)
    with pytest.raises(InvalidArgument, match="tree must be over 30 items of 4 dimensions, got '20 x 4'"):
        HCB().plan(tw.ItemTree.build(catalogue(20).vectors, (3,)), shop)
    bare = tw.Catalogue(range(30), shop.vectors)
    with pytest.raises(InvalidArgument, match="CBCategory: catalogue must be one with categories"):
        CBCategory().plan(tw.ItemTree.build(shop.vectors, (3,)), bare)
    with pytest.raises(InvalidArgument, match="tree must be of at most 15 levels"):
        HCB().plan(tw.ItemTree.from_paths(np.ones((30, 4)), [tuple("x" * 20)] + [("y",)] * 29), shop)
