import math
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numba
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treeward as tw
from treeward.core.errors import FeedbackConflict, InvalidArgument, NothingLeft, UnknownDecision, UnknownId
from treeward.data.synthetic import synthetic_catalogue
from treeward.explorer.decision_ids import DecisionIds, SealedDecision
from treeward.explorer.records import Ingested
from treeward.policy import TREE_POLICIES
from treeward.state.user_states import seat_bytes, state_bytes
from treeward.store import MemoryStore
from treeward.store.base import everyone
from treeward.store.events import EVENT


@pytest.fixture(scope="module")
def shop():
    made = synthetic_catalogue(600, dim=8, seed=0)
    ids = [f"i{row}" for row in range(600)]
    return tw.Catalogue(
        ids, made.vectors, titles=made.titles, categories=made.categories,
        columns={"country": ["SE", "NO", "DK"] * 200, "price": np.arange(600) / 10, "stock": [None, 1, 0, 2] * 150},
    )  # fmt: skip


@pytest.fixture(scope="module")
def tree(shop):
    return tw.ItemTree.build(shop.vectors, (5, 30), seed=0).named(shop.titles)


def explorer(shop, tree, policy=None, store=None, **options):
    return tw.Explorer(shop, tree, policy, store, **{"seed": 0, **options})


def told(decision):
    """Return all that a decision says, without its id."""
    return msgspec.structs.astuple(decision)[1:]


def live_a_while(made, users=("ada", "bob"), rounds=30):
    """Recommend and answer; return the rewards given, by decision."""
    given = {}
    for turn in range(rounds):
        decisions = made.recommend(users)
        rewards = {d.id: float((len(d.item) + turn + i) % 2) for i, d in enumerate(decisions)}
        made.feedback(rewards)
        given.update(rewards)
    return given


def bits(made, user):
    """Everything that is known of a user, as bytes."""
    [seat] = made._snapshot.decider.states.seat([user]).tolist()
    return state_bytes(made._snapshot.decider.states.state, seat)


# --- recommend -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TREE_POLICIES)
def test_decisions_say_what_was_decided(shop, tree, name):
    made = explorer(shop, tree, TREE_POLICIES[name]())
    live_a_while(made, rounds=5)
    decisions = made.recommend(["ada", 7, "bob"], n=4)
    assert [(d.user, d.slot) for d in decisions] == [(user, slot) for user in ("ada", 7, "bob") for slot in range(4)]
    for user in ("ada", 7, "bob"):
        assert len({d.item for d in decisions if d.user == user}) == 4
    for d in decisions:
        assert 0 < d.propensity <= 1
        assert d.width > 0
        assert 0 <= d.scores <= 50
        node = d.path[-1] if d.path else 0
        assert shop.row(d.item) in made.tree.items_of(node)
        assert all(made.tree.parent[below] == above for above, below in zip((0, *d.path), d.path, strict=False))
        told = msgspec.json.decode(msgspec.json.encode(d))
        assert told == {"decision_id": d.id, **{name: told[name] for name in told if name != "decision_id"}}
        assert msgspec.convert(told, tw.Decision) == d


def test_estimates_are_those_of_the_posterior(shop, tree):
    made = explorer(shop, tree, tw.HCB(tw.LinUCB()), crowd=False)
    given = live_a_while(made)
    assert given
    d = made.recommend(["ada"])[0]
    x = shop.vectors[shop.row(d.item)] / np.linalg.norm(shop.vectors[shop.row(d.item)])
    [seat] = made._snapshot.decider.states.seat(["ada"]).tolist()
    posterior = made._snapshot.decider.states.state.posterior
    assert d.mean == pytest.approx(x @ posterior.theta[seat, -1], rel=1e-4)
    assert d.width == pytest.approx(math.sqrt(x @ posterior.inverse[seat, -1] @ x), rel=1e-4)


@pytest.mark.parametrize("bandit", [tw.LinUCB(), tw.EpsilonGreedy(0.3)], ids=str)
def test_propensities_are_exact_without_a_budget(shop, tree, bandit):
    made = explorer(shop, tree, tw.HCB(bandit, budget=None))
    live_a_while(made, ["ada"], rounds=8)
    counts, told = {}, {}
    for d in [made.recommend(["ada"])[0] for _ in range(1501)]:
        assert d.exact
        counts[d.item] = counts.get(d.item, 0) + 1
        assert told.setdefault(d.item, d.propensity) == pytest.approx(d.propensity)
    for item, chance in told.items():
        assert counts[item] / 1501 == pytest.approx(chance, abs=4 * math.sqrt(chance / 1501) + 3 / 1501)


def test_propensities_are_estimates_under_a_budget(shop, tree):
    assert not explorer(shop, tree, tw.HCB(budget=9)).recommend(["ada"])[0].exact
    assert not explorer(shop, tree, tw.HCB(tw.Thompson(), budget=None)).recommend(["ada"])[0].exact


@pytest.mark.parametrize("repeats", [True, False])
def test_batch_is_singles(shop, tree, repeats):
    together, apart = (explorer(shop, tree, repeats=repeats) for _ in range(2))
    users = [f"u{i}" for i in range(9)]
    for turn in range(25):
        batch = together.recommend(users, n=2)
        singles = [d for user in users for d in apart.recommend([user], n=2)]
        # Ids differ by the time of day, and by how often each explorer was asked before.
        assert [told(d) for d in batch[:2]] == [told(d) for d in singles[:2]]
        rewards = {d.item: (len(d.item) + turn) % 2 for d in batch}
        together.feedback({d.id: rewards[d.item] for d in batch})
        apart.feedback({d.id: (len(d.item) + turn) % 2 for d in singles})
    assert [told(d) for d in batch] == [told(d) for d in singles]
    for user in users:
        assert bits(together, user) == bits(apart, user)


def test_one_seat_is_as_good_as_many(shop, tree):
    """A user who gives up the seat after every call, and is rebuilt, lives as one who keeps it."""
    policy = tw.PHCB()
    plan = policy.plan(tree, shop)
    roomy, cramped = (explorer(shop, tree, policy, crowd=False, memory=most) for most in (1 << 30, seat_bytes(plan)))
    assert cramped._snapshot.decider.states.most == 1
    users = ["ada", "bob", "cyd"]
    for turn in range(200):
        one, other = roomy.recommend(users), cramped.recommend(users)
        assert [told(d) for d in one] == [told(d) for d in other], turn
        for made, decisions in ((roomy, one), (cramped, other)):
            made.feedback({d.id: float((len(d.item) + turn) % 3 == 0) for d in decisions})
    assert len(cramped._snapshot.decider.states) == 1
    for user in users:
        assert bits(roomy, user) == bits(cramped, user)


@pytest.mark.parametrize("name", TREE_POLICIES)
def test_replay_is_live(shop, tree, name):
    live = explorer(shop, tree, TREE_POLICIES[name](), crowd=False, repeats=False, on_repeat="last")
    given = live_a_while(live, rounds=40)
    live.feedback({id: 1 - reward for id, reward in list(given.items())[::5]})
    rebuilt = explorer(shop, tree, TREE_POLICIES[name](), live.store, crowd=False, repeats=False)
    for user in ("ada", "bob", "nobody"):
        assert bits(live, user) == bits(rebuilt, user)


def test_draws_cannot_be_foretold_unless_seeded(shop, tree):
    first = [explorer(shop, tree, seed=None).recommend(["ada"], n=5) for _ in range(2)]
    assert [d.item for d in first[0]] != [d.item for d in first[1]]
    second = [explorer(shop, tree, seed=3).recommend(["ada"], n=5) for _ in range(2)]
    assert [d.item for d in second[0]] == [d.item for d in second[1]]
    store = MemoryStore()
    calls = [explorer(shop, tree, store=store).recommend(["ada"])[0] for _ in range(2)]
    assert len({d.id[:60] for d in calls}) == 2  # two explorers on one store do not repeat nonces


def test_many_items_at_once(shop, tree):
    made = explorer(shop, tree)
    every = made.recommend(["ada"], n=600)
    assert {d.item for d in every} == set(shop.ids)
    made.feedback({d.id: 0.5 for d in every})
    assert made.store.counts(["ada"])[0] == 600


def test_no_item_is_shown_twice_if_so_asked(shop, tree):
    made = explorer(shop, tree, repeats=False)
    seen = []
    for _ in range(60):
        seen += [d.item for d in made.recommend(["ada"], n=10)]
    assert len(set(seen)) == 600
    with pytest.raises(NothingLeft, match="1 item.s. were asked for, but only 0 may be shown to 'ada'"):
        made.recommend(["bob", "ada"])
    assert made.store.counts(["bob"])[0] == 0
    assert made.store.counts(["ada"])[0] == 600


# --- filters ---------------------------------------------------------------------------------------------------------


@given(
    allow=st.none() | st.sets(st.integers(0, 620), max_size=30),
    exclude=st.none() | st.sets(st.integers(0, 620), max_size=60),
    where=st.none() | st.sampled_from([
        {"country": "SE"}, {"country": ["SE", "NO"], "price": {"min": 30}}, {"price": {"min": 1, "max": 2}},
        {"stock": [1, 2]}, {}, pl.col("price") < 50,
    ]),
    repeats=st.booleans(),
)  # fmt: skip
@settings(max_examples=60)
def test_filters_let_through_what_they_say(shop, tree, allow, exclude, where, repeats):
    made = explorer(shop, tree, repeats=repeats)
    before = {d.item for d in made.recommend(["ada"], n=20)} if not repeats else set()
    country, price, stock = (shop.table[name].to_list() for name in ("country", "price", "stock"))

    def fulfils(row):
        if isinstance(where, pl.Expr):
            return price[row] < 50
        found = where or {}
        bounds = found.get("price", {})
        return (
            country[row]
            in (found["country"] if isinstance(found.get("country"), list) else [found.get("country", country[row])])
            and bounds.get("min", 0) <= price[row] <= bounds.get("max", 100)
            and ("stock" not in found or stock[row] in (1, 2))
        )

    opened = {
        f"i{row}" for row in range(600)
        if (allow is None or row in allow) and row not in (exclude or ()) and fulfils(row) and f"i{row}" not in before
    }  # fmt: skip
    filters = {
        "allow": None if allow is None else [f"i{row}" for row in allow],
        "exclude": None if exclude is None else [f"i{row}" for row in exclude],
        "where": where,
    }
    if opened:
        decisions = made.recommend(["ada"], n=len(opened), **filters)
        assert {d.item for d in decisions} == opened
        first = made.explain(decisions[len(opened) // 2], **filters)
        assert first.reproduced
    left = 0 if not repeats else len(opened)
    with pytest.raises(NothingLeft, match=f"only {left}( may be shown to 'ada')?"):
        made.recommend(["ada"], n=len(opened) + 1, **filters)


def test_exclude_by_user(shop, tree):
    made = explorer(shop, tree)
    keep = {"i3", "i5"}
    rest = [id for id in shop.ids if id not in keep]
    decisions = made.recommend(["ada", "bob"], n=2, exclude={"ada": rest}, allow=["i3", "i5", "i7", "i9"])
    assert {d.item for d in decisions if d.user == "ada"} == keep
    assert {d.item for d in decisions if d.user == "bob"} <= {"i3", "i5", "i7", "i9"}


@pytest.mark.parametrize(
    ("filters", "why"),
    [
        ({"exclude": "i3"}, "Explorer.recommend: exclude must be a list of item ids, got 'i3'"),
        ({"exclude": [3]}, "exclude must be item ids, which are strings here, got 3"),
        ({"allow": 5}, "allow must be a list"),
        ({"where": {"colour": "red"}}, "where must be a condition on catalogue columns.*'colour', which is none of"),
        ({"where": {"price": {"above": 3}}}, "where must be"),
        ({"where": {"price": {}}}, "where must be"),
        ({"where": {"country": {"min": 3}}}, "where must be"),
        ({"where": pl.col("nothing") > 3}, "where must be"),
        ({"where": pl.col("price") + 1}, "where must be"),
        ({"where": pl.col("price").max() > 1}, "where must be"),
        ({"where": "price < 3"}, "where must be"),
    ],
)
def test_bad_filters(shop, tree, filters, why):
    made = explorer(shop, tree)
    with pytest.raises(InvalidArgument, match=why):
        made.recommend(["ada"], **filters)


def test_filters_that_leave_nothing(shop, tree):
    made = explorer(shop, tree)
    for filters in ({"exclude": shop.ids}, {"allow": []}, {"allow": ["nothing"]}, {"where": {"price": {"max": -1}}}):
        with pytest.raises(NothingLeft, match="only 0 may be shown"):
            made.recommend(["ada"], **filters)


# --- feedback --------------------------------------------------------------------------------------------------------


def test_feedback_again_changes_nothing(shop, tree):
    made = explorer(shop, tree)
    given = live_a_while(made)
    before = bits(made, "ada"), made.store.read(["ada"])[0].tobytes()
    assert set(made.feedback(given).values()) == {"duplicate"}
    assert (bits(made, "ada"), made.store.read(["ada"])[0].tobytes()) == before


@given(st.permutations(range(8)))
@settings(max_examples=15)
def test_feedback_in_any_order_gives_the_state_of_the_events_order(shop, tree, order):
    late, again = explorer(shop, tree), explorer(shop, tree)
    decisions = [late.recommend(["ada"])[0] for _ in range(8)]
    others = [again.recommend(["ada"])[0] for _ in range(8)]
    for index in order:
        late.feedback({decisions[index].id: index / 8})
    again.feedback({others[index].id: index / 8 for index in order})
    assert bits(late, "ada") == bits(again, "ada")


@pytest.mark.parametrize(
    ("on_repeat", "rewards", "outcomes", "total"),
    [
        ("max", [0.2, 0.8, 0.5, 0.8], ["recorded", "changed", "duplicate", "duplicate"], 0.8),
        ("last", [0.2, 0.8, 0.5, 0.5], ["recorded", "changed", "changed", "duplicate"], 0.5),
        ("sum", [0.2, 0.5, 0.2, 0.5], ["recorded", "changed", "duplicate", "duplicate"], 0.7),
        ("reject", [0.2, 0.2], ["recorded", "duplicate"], 0.2),
    ],
)
def test_repeated_feedback(shop, tree, on_repeat, rewards, outcomes, total):
    made = explorer(shop, tree, on_repeat=on_repeat)
    d = made.recommend(["ada"])[0]
    assert [made.feedback({d.id: reward})[d.id] for reward in rewards] == outcomes
    assert made.store.read(["ada"])[0]["reward"].sum() == pytest.approx(total)
    straight = explorer(shop, tree)
    straight.feedback({straight.recommend(["ada"])[0].id: total})
    one, other = (x.inspect.interests("ada") for x in (made, straight))
    assert [i.node for i in one] == [i.node for i in other]
    assert [i.mean for i in one] == pytest.approx([i.mean for i in other], abs=1e-6)
    assert [(i.visits, i.reward) for i in one] == [(i.visits, pytest.approx(i.reward)) for i in other]


def test_another_reward_is_a_conflict(shop, tree):
    made = explorer(shop, tree)
    first, second = made.recommend(["ada"], n=2)
    made.feedback({first.id: 1.0})
    with pytest.raises(FeedbackConflict, match="has the reward 1 already, and now got 0"):
        made.feedback({second.id: 1.0, first.id: 0.0})
    assert made.store.counts(["ada"])[0] == 1  # all or nothing


@pytest.mark.parametrize("reward", [math.nan, math.inf, -0.1, 1.1, "1", None, True, [1]])
def test_bad_rewards(shop, tree, reward):
    made = explorer(shop, tree)
    one, other = made.recommend(["ada"], n=2)
    with pytest.raises(InvalidArgument, match="Explorer.feedback: reward must be a finite number of at least 0.0"):
        made.feedback({one.id: 1.0, other.id: reward})
    assert made.store.counts(["ada"])[0] == 0


def test_a_range_of_ones_own(shop, tree):
    made = explorer(shop, tree, reward_range=(-2, 5))
    d = made.recommend(["ada"])[0]
    made.feedback({d.id: -2.0})
    with pytest.raises(InvalidArgument, match="of at least -2.0 and of at most 5.0"):
        made.feedback({d.id: 5.5})


def forged(id):
    middle = len(id) // 2
    yield ""
    yield "nonsense"
    yield "ünïcode"
    yield id + "="
    yield id[:-1]
    yield id + "A"
    yield id[:middle] + ("A" if id[middle] != "A" else "B") + id[middle + 1 :]
    yield id[:-1] + chr(ord(id[-1]) ^ 1)
    yield " " + id
    yield id.replace(id[5], "*")
    yield "A" * 100_000
    yield 5
    yield None


def test_forged_ids(shop, tree):
    made, other = explorer(shop, tree), explorer(shop, tree)
    d, theirs = made.recommend(["ada"])[0], other.recommend(["ada"])[0]
    for id in [*forged(d.id), theirs.id]:
        with pytest.raises(UnknownDecision, match="no decision has the id"):
            made.feedback({d.id: 1.0, id: 1.0})
        with pytest.raises(UnknownDecision):
            made.explain(id)
    assert made.store.counts(["ada"])[0] == 0
    with pytest.raises(InvalidArgument, match="a mapping from decision ids"):
        made.feedback([d.id])


@given(
    st.one_of(st.text(max_size=40), st.integers(-(2**63), 2**63 - 1)), st.integers(0, 2**16 - 1), st.integers(0, 2**46)
)
def test_tickets_come_back_as_they_were(user, slot, call):
    sealer = DecisionIds(b"k" * 32)
    ticket = SealedDecision(3, 5, -1, slot, call << 16, 12, 4, 1_700_000_000_000, 6, 0.25, user)
    assert sealer.unseal(sealer.seal(user, *ticket[:-1])) == ticket
    assert ticket.nonce == (call << 16) + slot
    with pytest.raises(UnknownDecision):
        DecisionIds(b"K" * 32).unseal(sealer.seal(user, *ticket[:-1]))


# --- ingest, forget, merge -------------------------------------------------------------------------------------------


def test_ingested_events_count_through_the_item(shop, tree):
    made = explorer(shop, tree)
    log = tw.Interactions(
        ["bob", "ada", "ada", "bob"], ["i5", "i9", "i5", "i7"], rewards=[1, 0, 1, 0.5], times=[4, 3, 2, 1]
    )
    assert made.ingest(log) == Ingested(4, 2, 0)
    assert made.store.read(["ada"])[0]["reward"].tolist() == [1, 0]  # by time
    assert made.store.read(["bob"])[0]["reward"].tolist() == [0.5, 1]
    assert sum(interest.visits for interest in made.inspect.interests("ada")) == 2
    made.ingest(tw.Interactions(["ada"], ["i5"]))  # behind what is known already
    assert made.store.counts(["ada"])[0] == 3
    assert sum(interest.reward for interest in made.inspect.interests("ada")) == 2


def test_ingesting_is_deciding_there(shop, tree):
    """An imported event teaches HCB what a decision for the same item would have taught."""
    decided, told = explorer(shop, tree, tw.HCB()), explorer(shop, tree, tw.HCB())
    rewards = []
    for turn in range(20):
        d = decided.recommend(["ada"])[0]
        rewards.append((d.item, turn % 2))
        decided.feedback({d.id: turn % 2})
    told.ingest(tw.Interactions(["ada"] * 20, [item for item, _ in rewards], rewards=[r for _, r in rewards]))
    assert bits(decided, "ada") == bits(told, "ada")


def test_bad_logs(shop, tree):
    made = explorer(shop, tree)
    with pytest.raises(UnknownId, match="1 item.s. of the log are not in the catalogue, such as 'x'"):
        made.ingest(tw.Interactions(["ada", "ada"], ["i1", "x"]))
    with pytest.raises(InvalidArgument, match="with item ids of type String, as in the catalogue, got 'Int64'"):
        made.ingest(tw.Interactions(["ada"], [1]))
    with pytest.raises(InvalidArgument, match="with rewards from 0 to 1 .the explorer's reward_range., got .5.0"):
        made.ingest(tw.Interactions(["ada"], ["i1"], rewards=[5]))
    with pytest.raises(InvalidArgument, match="interactions must be an Interactions"):
        made.ingest([("ada", "i1")])
    with pytest.raises(InvalidArgument, match="unknown must be one of error, skip"):
        made.ingest(tw.Interactions(["ada"], ["i1"]), unknown="drop")
    assert list(everyone(made.store)) == []
    assert made.ingest(tw.Interactions(["ada", "ada"], ["i1", "x"]), unknown="skip") == Ingested(1, 1, 1)


def test_forget(shop, tree):
    made = explorer(shop, tree)
    live_a_while(made)
    new = bits(made, "somebody new")
    d = made.recommend(["ada"])[0]
    assert made.forget("ada") == 30
    assert made.store.counts(["ada"])[0] == 0
    with pytest.raises(UnknownDecision, match="is of a user who was forgotten"):
        made.feedback({d.id: 1.0})
    assert bits(made, "ada") == new
    again = made.recommend(["ada"])[0]
    assert made.feedback({again.id: 1.0}) == {again.id: "recorded"}
    assert made.forget("nobody") == 0


def test_merge_at_login(shop, tree):
    made = explorer(shop, tree)
    live_a_while(made)
    visitor = made.recommend(["visitor"], n=3)
    made.feedback({visitor[0].id: 1.0})
    assert made.merge("visitor", "ada") == 1
    assert made.store.counts(["ada"])[0] == 31
    assert made.feedback({visitor[0].id: 1.0}) == {visitor[0].id: "duplicate"}
    assert made.feedback({visitor[1].id: 0.5}) == {visitor[1].id: "recorded"}  # a late one goes along
    assert made.store.counts(["ada"])[0] == 32
    assert made.store.counts(["visitor"])[0] == 0
    fresh = made.recommend(["visitor"])[0]
    made.feedback({fresh.id: 1.0})  # whoever uses the device next is somebody else
    assert (made.store.counts(["visitor"])[0], made.store.counts(["ada"])[0]) == (1, 32)
    made.publish()  # which the next one does at its start
    rebuilt = explorer(shop, tree, store=made.store)
    assert bits(rebuilt, "ada") == bits(made, "ada")
    made.forget("ada")
    with pytest.raises(UnknownDecision):
        made.feedback({visitor[2].id: 1.0})


def test_another_tree_replays_the_same_events(shop, tree):
    made = explorer(shop, tree)
    live_a_while(made)
    open_one = made.recommend(["ada"])[0]
    other_tree = tw.ItemTree.build(shop.vectors, (3, 9), seed=7)
    swapped = explorer(shop, other_tree, store=made.store)
    assert sum(i.visits for i in swapped.inspect.interests("ada")) == 30
    assert swapped.feedback({open_one.id: 1.0}) == {open_one.id: "recorded"}  # late, but it counts through the item
    assert sum(i.visits for i in swapped.inspect.interests("ada")) == 31
    assert not swapped.explain(open_one).reproduced
    fewer = tw.Catalogue(shop.ids[100:], shop.vectors[100:])
    smaller = tw.Explorer(fewer, store=made.store, seed=0)
    gone = {f"i{row}" for row in range(100)}
    numbers = dict(zip(range(600), shop.ids, strict=True))
    left = [e for e in made.store.read(["ada"])[0] if numbers[int(e["item"])] not in gone]
    assert sum(i.visits for i in smaller.inspect.interests("ada")) == len(left)
    [seen] = made.recommend(["ada"], allow=gone)
    with pytest.raises(UnknownDecision, match="is for an item that the catalogue does not have"):
        smaller.explain(seen)


# --- explain, interests ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bandit", [tw.LinUCB(), tw.Thompson(), tw.EpsilonGreedy(0.3, estimate="mean")], ids=str)
@pytest.mark.parametrize("name", TREE_POLICIES)
def test_explanations_reproduce_decisions(shop, tree, name, bandit):
    made = explorer(shop, tree, TREE_POLICIES[name](bandit))
    earlier = [made.recommend(["ada"], n=3)[2]]
    for _ in range(20):
        d = made.recommend(["ada"])[0]
        made.feedback({d.id: float(len(d.item) % 2)})
        earlier.append(d)
    for d in earlier:
        told = made.explain(d if len(d.id) % 2 else d.id)
        assert told.reproduced
        assert (told.user, told.item) == ("ada", d.item)
        assert [step.kind for step in told.steps] == ["node"] * (len(told.steps) - 1) + ["item"]
        chosen = [next(option for option in step.considered if option.chosen) for step in told.steps]
        assert chosen[-1].id == d.item
        assert chosen[-1].mean == pytest.approx(d.mean, abs=1e-5)
        assert chosen[-1].width == pytest.approx(d.width, rel=1e-4)
        if name not in ("phcb", "beam"):
            assert tuple(option.id for option in chosen[:-1]) == d.path
        assert math.prod(s.chance * len(s.considered) / s.total for s in told.steps) == pytest.approx(d.propensity)
        considered = sum(len(s.considered) for s in told.steps if len(s.considered) > 1)
        assert considered - d.scores in ((0, 1) if name == "beam" else (0,))  # it may draw one, and score none
        assert d.item in str(told) or told.title in str(told)
        for step in told.steps:
            means = [option.mean for option in step.considered]
            assert means == sorted(means, reverse=True)


def test_interests(shop, tree):
    made = explorer(shop, tree, tw.PHCB())
    [root] = made.inspect.interests("nobody")
    assert (root.node, root.items, root.visits, root.mean) == (0, 600, 0, 0)
    live_a_while(made, rounds=40)
    found = made.inspect.interests("ada")
    assert sum(i.items for i in found) == 600  # visible nodes partition the catalogue
    assert sum(i.visits for i in found) == 40
    assert [i.mean for i in found] == sorted((i.mean for i in found), reverse=True)
    assert all(i.name == tree.names[i.node] for i in found)
    descended = explorer(shop, tree, tw.HCB(), made.store)
    assert len(descended.inspect.interests("ada")) == 5
    assert len(descended.inspect.interests("ada", level=3)) == 30
    assert sum(i.visits for i in descended.inspect.interests("ada", level=3)) == 40
    for level in (1, 4, "x"):
        with pytest.raises(InvalidArgument, match="level must be an integer from 2 to 3"):
            descended.inspect.interests("ada", level=level)


# --- everything else -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("users", "why"),
    [
        ("ada", "users must be a list of users, got 'ada'"),
        (None, "users must be a list of users"),
        (["ada", "ada"], "users must be all different .ask for n items instead."),
        ([1.5], "users must be strings of at most 512 characters, or 64-bit integers"),
        ([True], "users must be strings"),
        ([None], "users must be strings"),
        ([2**63], "users must be strings"),
        (["x" * 513], "users must be strings"),
    ],
)
def test_bad_users(shop, tree, users, why):
    with pytest.raises(InvalidArgument, match=f"Explorer.recommend: {why}"):
        explorer(shop, tree).recommend(users)


@pytest.mark.parametrize("n", [0, -1, 1.5, "2", 65537, None])
def test_bad_numbers_of_items(shop, tree, n):
    with pytest.raises(InvalidArgument, match="n must be an integer from 1 to 65536"):
        explorer(shop, tree).recommend(["ada"], n=n)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"on_repeat": "min"}, "Explorer: on_repeat must be one of reject, max, sum, last"),
        (
            {"reward_range": (1, 0)},
            "Explorer: reward_range must be a finite number above 1.0 and",
        ),
        ({"reward_range": 1}, "Explorer: reward_range must be two numbers"),
        ({"reward_range": (0, math.inf)}, "reward_range"),
        ({"seed": -1}, "Explorer: seed"),
        ({"memory": 10}, "Explorer: memory must be at least .* bytes, one user's state, got 10"),
        ({"memory": 0}, "Explorer: memory must be an integer of at least 1"),
        ({"repeats": 0}, "Explorer: repeats must be True, False, or a number of other items"),
        ({"policy": tw.HCB(budget=1)}, "HCB: budget"),
        ({"policy": tw.HCB(prior=tw.Prior(mean=[1.0]))}, "Prior: mean must be finite numbers of shape"),
    ],
)
def test_bad_options(shop, tree, options, why):
    with pytest.raises(InvalidArgument, match=why):
        explorer(shop, tree, **options)


def test_a_tree_of_another_catalogue(shop):
    other = tw.ItemTree.build(synthetic_catalogue(600, dim=4, seed=0).vectors, (5,))
    with pytest.raises(InvalidArgument, match="tree must be over 600 items of 8 dimensions, got '600 x 4'"):
        tw.Explorer(shop, other)


def test_nobody_and_no_feedback(shop, tree):
    made = explorer(shop, tree)
    assert made.recommend([]) == []
    assert made.feedback({}) == {}
    assert repr(made) == "Explorer(600 items, Beam(LinUCB), MemoryStore(0 users))"
    with made as same:
        assert same is made


def test_a_prior_is_where_everybody_starts(shop, tree):
    likes = shop.vectors[3] / np.linalg.norm(shop.vectors[3])
    sure = tw.Prior(mean=likes, covariance=1e-3 * np.eye(8))
    made = explorer(shop, tree, tw.HCB(tw.LinUCB(0.1), budget=None, prior=sure))
    [d] = made.recommend(["somebody"])
    x = shop.vectors / np.linalg.norm(shop.vectors, axis=1, keepdims=True)
    assert d.mean == pytest.approx((x @ likes)[shop.row(d.item)], abs=1e-4)
    assert d.mean == pytest.approx(max((x @ likes)[row] for row in made.tree.items_of(d.path[-1])), abs=1e-4)
    assert d.mean > 0.7
    live_a_while(made)
    assert bits(made, "ada") == bits(explorer(shop, tree, made.policy, made.store), "ada")


def test_a_store_that_fails_leaves_nothing_half_done(shop, tree):
    class Failing(MemoryStore):
        broken = False

        def read(self, users, after=None, nonces=None):
            if self.broken:
                raise OSError("the disk is gone")
            return super().read(users, after, nonces)

    store = Failing()
    made = explorer(shop, tree, store=store)
    live_a_while(made)
    made.publish()  # which the next one does at its start
    calm = explorer(shop, tree, store=store)
    store.broken = True
    with pytest.raises(OSError, match="the disk is gone"):
        made.recommend(["cyd", "ada", "bob"])
    store.broken = False
    for user in ("ada", "bob", "cyd"):
        assert bits(made, user) == bits(calm, user)


def test_many_threads(shop, tree):
    made, given, lock = explorer(shop, tree), {}, threading.Lock()

    def live(user):
        for turn in range(25):
            d = made.recommend([user])[0]
            made.feedback({d.id: float(turn % 2)})
            with lock:
                given.setdefault(user, []).append(d.id)
            if turn % 10 == 5:
                made.inspect.interests(user)
                made.explain(d)

    users = [f"u{i}" for i in range(8)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(live, users))
    made.publish()  # which the next one does at its start
    for user in users:
        assert made.store.counts([user])[0] == 25
        assert len(set(given[user])) == 25
        assert bits(made, user) == bits(explorer(shop, tree, store=made.store), user)


def test_bad_events():
    store = MemoryStore()
    with pytest.raises(InvalidArgument, match="events must be 1 of dtype EVENT"):
        store.append(["ada"], np.zeros(2, dtype=EVENT))
    with pytest.raises(InvalidArgument, match="counts must be 1 that sum to 2"):
        store.extend(["ada"], np.array([1]), np.zeros(2, dtype=EVENT))


def test_the_five_line_example_of_the_design():
    code = """
import numpy as np, treeward as tw
vectors = np.random.default_rng(0).standard_normal((500, 16)).astype("float32")
tree = tw.ItemTree.build(vectors, widths=(10, 50), seed=0)
explorer = tw.Explorer(tw.Catalogue(range(500), vectors), tree, policy=tw.PHCB(tw.LinUCB(alpha=0.5), budget=50))
[d] = explorer.recommend(["ada"])
print(explorer.feedback({d.id: 1.0})[d.id], d.item in range(500))
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout == "recorded True\n"


# --- once broken, never again ----------------------------------------------------------------------------------------


def test_newcomers_leave_their_neighbours_alone():
    """A start of more nodes than a list's least room, and one user whose field grew, so that all lists moved."""
    vectors = np.random.default_rng(0).normal(size=(2000, 4)).astype(np.float32)
    ids = [f"i{row}" for row in range(2000)]
    tree = tw.ItemTree.build(vectors, (20, 400), seed=0)
    made = tw.Explorer(tw.Catalogue(ids, vectors), tree, tw.PHCB(start="children"), seed=0, memory=2_000_000)
    rows = np.tile(np.arange(0, 2000, 3), 2)
    made.ingest(tw.Interactions(["busy"] * len(rows), [ids[row] for row in rows]))
    made.recommend(["busy"])
    users = [f"n{i}" for i in range(made._snapshot.decider.states.most - 1)]
    made.recommend(users)
    for user in ("busy", *users[::50]):
        seat = made._snapshot.decider.states._seat_of[user]
        nodes = made._snapshot.decider.states.state.visible.of(seat)
        assert sorted(row for node in nodes for row in tree.items_of(int(node)).tolist()) == list(range(2000))


def test_numbers_of_any_integer_type(shop, tree):
    assert len(explorer(shop, tree).recommend(["a", "b"], n=np.uint8(200))) == 400
    with pytest.raises(NothingLeft, match="601 items were asked for, but there are only 600"):
        explorer(shop, tree).recommend(["a"], n=601)


def test_a_catalogue_that_lost_its_last_items(shop, tree):
    store = MemoryStore()
    whole = explorer(shop, tree, store=store)
    whole.feedback({d.id: 1.0 for d in whole.recommend(["ada"], n=60)})
    half = tw.Explorer(tw.Catalogue(shop.ids[:300], shop.vectors[:300]), store=store, seed=0)
    left = sum(int(number) < 300 for number in store.read(["ada"])[0]["item"])
    assert 0 < left < 60
    assert sum(interest.visits for interest in half.inspect.interests("ada")) == left
    store = MemoryStore()
    half = tw.Explorer(tw.Catalogue(shop.ids[:300], shop.vectors[:300]), store=store, seed=0)
    whole = explorer(shop, tree, store=store)  # a newer replica beside an older one
    whole.feedback({d.id: 1.0 for d in whole.recommend(["ada"], n=60)})
    half.recommend(["ada"])


def test_long_conditions_are_told_apart(shop, tree):
    made = explorer(shop, tree)
    one, other = np.full(2000, -1.0), np.full(2000, -1.0)
    one[1000], other[1000] = 0.7, 0.8
    assert made.recommend(["ada"], where={"price": one})[0].item == "i7"
    assert made.recommend(["ada"], where={"price": other})[0].item == "i8"
    assert made.recommend(["ada"], where={"price": pl.Series([0.9])})[0].item == "i9"
    assert shop.table["stock"][shop.row(made.recommend(["ada"], where={"stock": None})[0].item)] is None
    for wrong in ({"price": object()}, {"country": ["SE", 2]}, {"price": {"min": object()}}):
        with pytest.raises(InvalidArgument, match="where must be"):
            made.recommend(["ada"], where=wrong)


def test_nothing_added_is_nothing_changed(shop, tree):
    made = explorer(shop, tree, on_repeat="sum")
    one, other = made.recommend(["ada"], n=2)
    made.feedback({one.id: 1.0})
    assert made.feedback({one.id: 0.0, other.id: 0.5}) == {one.id: "duplicate", other.id: "recorded"}
    assert made.store.read(["ada"])[0]["reward"].tolist() == [1.0, 0.5]


def test_names_from_numpy_are_names(shop, tree):
    made = explorer(shop, tree)
    name = np.array(["ada"])[0]
    [d] = made.recommend([name])
    assert type(d.user) is str
    assert made.explain(d).reproduced
    made.forget(name)
    with pytest.raises(UnknownDecision):
        made.feedback({d.id: 1.0})
    with pytest.raises(InvalidArgument, match="users must be strings of at most 512 characters"):
        made.recommend(["\ud800"])
    with pytest.raises(InvalidArgument, match="users must be strings of at most 512 characters"):
        made.ingest(tw.Interactions(["x" * 513], ["i1"]))


def test_forgotten_by_another_explorer(shop, tree):
    store = MemoryStore()
    one, other = explorer(shop, tree, store=store), explorer(shop, tree, store=store)
    new = bits(one, "somebody new")
    one.ingest(tw.Interactions(["ada"] * 140, shop.ids[:140]))
    assert bits(one, "ada") == bits(other, "ada") != new
    one.forget("ada")
    assert bits(other, "ada") == new
    one.ingest(tw.Interactions(["ada"] * 140, shop.ids[:140]))
    one.recommend(["ada"])
    other.recommend(["ada"])
    one.forget("ada")
    other.close()
    one.ingest(tw.Interactions(["ada"] * 140, shop.ids[140:280], rewards=[0.0] * 140))
    assert max(interest.mean for interest in one.inspect.interests("ada")) == 0


def test_two_explorers_change_the_same_decision(shop, tree):
    store = MemoryStore()
    makers = [explorer(shop, tree, store=store, on_repeat="last") for _ in range(2)]
    decisions = makers[0].recommend(["ada"], n=300)
    makers[0].feedback({d.id: 0.0 for d in decisions})
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda made: [made.feedback({d.id: 1.0}) for d in decisions], makers))
    finally:
        sys.setswitchinterval(switch)
    assert store.read(["ada"])[0]["reward"].sum() == 300


def test_events_of_phcb_teach_hcb_every_level(shop, tree):
    store = MemoryStore()
    live_a_while(explorer(shop, tree, tw.PHCB(), store), ["ada"], rounds=50)
    descending = explorer(shop, tree, tw.HCB(), store)
    [seat] = descending._snapshot.decider.states.seat(["ada"]).tolist()
    assert descending._snapshot.decider.states.state.posterior.pulls[seat].tolist() == [50, 50, 50]


def test_lists_of_any_kind(shop, tree):
    made = explorer(shop, tree)
    for allow in (np.array(["i1", "i2"]), pl.Series(["i1", "i2"]), {"i1", "i2"}, ("i1", "i2")):
        assert made.recommend(["ada"], allow=allow)[0].item in ("i1", "i2")
    for allow in ("", 0):
        with pytest.raises(InvalidArgument, match="allow must be a list of item ids"):
            made.recommend(["ada"], allow=allow)


def test_a_merged_users_decisions_cannot_be_explained(shop, tree):
    made = explorer(shop, tree)
    [d] = made.recommend(["visitor"])
    made.merge("visitor", "ada")
    with pytest.raises(UnknownDecision, match="is of a user who was merged with another since"):
        made.explain(d)
    with pytest.raises(InvalidArgument, match="known must be another user than the anonymous one"):
        made.merge("ada", "ada")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"policy": "hcb"}, "policy must be of type Policy"),
        ({"policy": tw.LinUCB()}, "policy must be of type Policy"),
        ({"store": "events.db"}, "store must be an EventStore"),
        ({"tree": np.eye(3)}, "tree must be of type ItemTree"),
        ({"reward_range": (0, 1e300)}, "reward_range must be a finite number above 0.0 and of at most 1000000.0"),
    ],
)
def test_things_of_the_wrong_kind(shop, tree, options, why):
    with pytest.raises(InvalidArgument, match=f"Explorer: {why}"):
        tw.Explorer(shop, **{"tree": tree, **options})


def test_sessions_refuse_what_is_not_theirs(shop, tree):
    session = tw.HCB().session(tree, shop, 3, once=True)
    made = session.select([0, 1], 0)
    for wrong in (made._replace(place=made.place + 600), made._replace(node=made.node + 600)):
        with pytest.raises(InvalidArgument, match="decisions must be its own, with each (place|node) below"):
            session.update(wrong, [1, 1])
    for rewards in ([1], [1, math.nan], [1, 1e7]):
        with pytest.raises(InvalidArgument, match="rewards must be 2 numbers"):
            session.update(made, rewards)
    with pytest.raises(InvalidArgument, match="users must be all different"):
        session.select([0, 0], 1)
    with pytest.raises(InvalidArgument, match="users must be a list of integers from 0 to 2"):
        session.select([3], 1)
    with pytest.raises(InvalidArgument, match="seed"):
        tw.HCB().session(tree, shop, 3, seed=-1)


def test_rounding_decides_nothing_between_strangers():
    """Vectors of length 1 are of length 1 only up to rounding; to somebody new, learned alone, they are all alike."""
    vectors = np.random.default_rng(0).standard_normal((300, 16)).astype(np.float32)
    shop, tree = tw.Catalogue(range(300), vectors), tw.ItemTree.flat(vectors)
    made = tw.Explorer(shop, tree, tw.Flat(budget=None), seed=0, crowd=False)
    items = [d.item for d in made.recommend([f"u{i}" for i in range(3000)])]
    counts = np.bincount(items, minlength=300)
    assert ((counts - 10) ** 2 / 10).sum() < 378  # chi-square, 299 degrees of freedom, p = 0.001


def test_one_event_is_of_the_kind_that_many_are(shop, tmp_path):
    """Of another kind, it would be learned by newly compiled kernels: the first user to come back would wait."""
    store = tw.SQLiteStore(tmp_path / "events.db")
    with tw.Explorer(shop, store=store, memory=1 << 22) as explorer:
        for user in ("ada", "bob", "bob"):
            [made] = explorer.recommend([user])
            explorer.feedback({made.id: 1.0})
        seen = [explorer._snapshot.decider.states.events_for_plan(store.read([user])[0]) for user in ("ada", "bob")]
    assert len(seen[0].kind) < len(seen[1].kind)
    assert numba.typeof(seen[0]) == numba.typeof(seen[1])
