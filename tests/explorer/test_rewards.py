"""Feedback, decision ids and ingested logs."""

import math
import string
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treeward as tw
from tests.explorer.small_shop import bits, explorer, live_a_while
from treeward.core.errors import FeedbackConflict, InvalidArgument, UnknownDecision, UnknownId
from treeward.explorer.decision_ids import DecisionIds, SealedDecision
from treeward.explorer.records import Ingested
from treeward.store import MemoryStore
from treeward.store.base import everyone
from treeward.store.events import EVENT


def test_duplicate_feedback_counts_once(shop, tree):
    made = explorer(shop, tree)
    given = live_a_while(made)
    before = bits(made, "ada"), made.store.read(["ada"])[0].tobytes()
    assert set(made.feedback(given).values()) == {"duplicate"}
    assert (bits(made, "ada"), made.store.read(["ada"])[0].tobytes()) == before


@given(st.permutations(range(8)))
@settings(max_examples=15)
def test_feedback_in_any_order_gives_the_state_of_the_recorded_order(shop, tree, order):
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
def test_on_repeat_says_what_another_reward_does(shop, tree, on_repeat, rewards, outcomes, total):
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


def test_a_different_reward_is_a_conflict(shop, tree):
    made = explorer(shop, tree)
    first, second = made.recommend(["ada"], n=2)
    made.feedback({first.id: 1.0})
    with pytest.raises(FeedbackConflict, match="has the reward 1 already, and now got 0"):
        made.feedback({second.id: 1.0, first.id: 0.0})
    assert made.store.counts(["ada"])[0] == 1  # all or nothing


@pytest.mark.parametrize("reward", [math.nan, math.inf, -0.1, 1.1, "1", None, True, [1]])
def test_bad_rewards_are_refused(shop, tree, reward):
    made = explorer(shop, tree)
    one, other = made.recommend(["ada"], n=2)
    with pytest.raises(InvalidArgument, match="Explorer.feedback: reward must be a finite number of at least 0.0"):
        made.feedback({one.id: 1.0, other.id: reward})
    assert made.store.counts(["ada"])[0] == 0


def test_reward_range_limits_rewards(shop, tree):
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


def test_forged_ids_are_unknown_decisions(shop, tree):
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
def test_sealed_decisions_are_read_back_unchanged(user, slot, call):
    sealer = DecisionIds(b"k" * 32)
    ticket = SealedDecision(3, 5, -1, slot, call << 16, 12, 4, 1_700_000_000_000, 6, 0.25, user)
    assert sealer.unseal(sealer.seal(user, *ticket[:-1])) == ticket
    assert ticket.nonce == (call << 16) + slot
    with pytest.raises(UnknownDecision):
        DecisionIds(b"K" * 32).unseal(sealer.seal(user, *ticket[:-1]))


def test_an_id_has_one_spelling():
    sealer = DecisionIds(b"k" * 32)
    found = [
        sealer.seal("ada" + "x" * (call % 3), 3, 5, -1, 0, call, 12, 4, 1_700_000_000_000, 6, 0.25)
        for call in range(200)
    ]
    assert {len(id) % 4 for id in found} == {0, 2, 3}
    assert set("-_") <= set("".join(found))
    letters = string.ascii_letters + string.digits + "-_"
    for id in found:
        assert sealer.unseal(id).user.startswith("ada")
        others = {id.replace("-", "+"), id.replace("_", "/"), f"{id}=", f"{id}==", f"{id}A", id[:-1]}
        others |= {f"{id[:9]}{sign}{id[9:]}" for sign in "=\n *é"} | {id[:-1] + letter for letter in letters}
        for other in others - {id}:
            with pytest.raises(UnknownDecision):
                sealer.unseal(other)


def test_rows_for_one_decision_are_recorded_one_after_the_other(shop, tree):
    made = explorer(shop, tree, on_repeat="last", exposures="all")
    d, other = made.recommend(["ada"], 2)
    item, nonce = ("ada", d.item), made.rewards.ids.unseal(d.id).nonce
    rows = [
        (d.id, 0.25), ("no id", 1.0), (other.id, 1.0), (d.id, 0.75), (item, 0.5), (d.id, 0.75), (d.id, 9.0),
        (item, 0.5),
    ]  # fmt: skip
    told = made.rewards.record_each(rows)
    outcomes = ["recorded", "recorded", "changed", "changed", "duplicate", "duplicate"]
    assert [one for one in told if isinstance(one, str)] == outcomes
    assert [type(told[i]) for i in (1, 6)] == [UnknownDecision, InvalidArgument]
    assert made.store.read(["ada"], nonces=[nonce])[0]["reward"].tolist() == [0.25, 0.25, 0.25]
    assert made.rewards.record_each([]) == []


def test_ingested_events_count_for_their_items(shop, tree):
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


def test_ingested_events_teach_like_decisions(shop, tree):
    """An imported event teaches HCB what a decision for the same item would have taught."""
    decided, told = explorer(shop, tree, tw.HCB()), explorer(shop, tree, tw.HCB())
    rewards = []
    for turn in range(20):
        d = decided.recommend(["ada"])[0]
        rewards.append((d.item, turn % 2))
        decided.feedback({d.id: turn % 2})
    told.ingest(tw.Interactions(["ada"] * 20, [item for item, _ in rewards], rewards=[r for _, r in rewards]))
    assert bits(decided, "ada") == bits(told, "ada")


def test_bad_logs_are_refused(shop, tree):
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


def test_bad_events_are_refused():
    store = MemoryStore()
    with pytest.raises(InvalidArgument, match="events must be 1 of dtype EVENT"):
        store.append(["ada"], np.zeros(2, dtype=EVENT))
    with pytest.raises(InvalidArgument, match="counts must be 1 that sum to 2"):
        store.extend(["ada"], np.array([1]), np.zeros(2, dtype=EVENT))


def test_a_change_of_zero_is_a_duplicate(shop, tree):
    made = explorer(shop, tree, on_repeat="sum")
    one, other = made.recommend(["ada"], n=2)
    made.feedback({one.id: 1.0})
    assert made.feedback({one.id: 0.0, other.id: 0.5}) == {one.id: "duplicate", other.id: "recorded"}
    assert made.store.read(["ada"])[0]["reward"].tolist() == [1.0, 0.5]


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
