"""States that are computed aside, while others are decided for: the same to the bit, and never outdated."""

from threading import Event, Thread

import numpy as np
import pytest

import treeward as tw
from tests.explorer.test_compact_states import POLICIES, SHOP, some_events
from treeward.data.synthetic import synthetic_catalogue
from treeward.state import replay_aside
from treeward.state.user_states import state_bytes

USERS = [f"u{i}" for i in range(12)]


def explorer_with(policy, *, repeats=False, store=None, **more):
    """An explorer whose users have some events each, and no states."""
    made = tw.Explorer(SHOP, policy=policy, store=store or tw.MemoryStore(), seed=0, repeats=repeats, **more)
    random = np.random.default_rng(1)
    sizes = random.integers(9, 300, size=len(USERS))
    made.store.extend(USERS, sizes, some_events(random, int(sizes.sum())))
    return made


def states_of(explorer):
    return explorer._snapshot.decider.states


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("repeats", [True, False, 20])
def test_prepared_states_equal_replayed_ones_to_the_bit(name, repeats):
    explorer = explorer_with(POLICIES[name], repeats=repeats, crowd=False)
    states = states_of(explorer)
    assert not any(map(states.has_at_hand, USERS))
    explorer.prepare(USERS[:5])
    explorer.prepare([*USERS, *USERS])
    assert all(map(states.has_at_hand, USERS))
    seats = [states._seat_of[user] for user in USERS]
    before = [state_bytes(states.state, seat) for seat in seats]
    for user in USERS:
        states.drop(user)
    assert [state_bytes(states.state, int(seat)) for seat in states.seat(USERS)] == before


def test_prepared_users_get_the_same_items():
    one, other = (explorer_with(tw.Beam(), crowd=True) for _ in range(2))
    one.prepare(USERS)
    asked = [made.recommend(USERS, 2) for made in (one, other)]
    assert [d.item for d in asked[0]] == [d.item for d in asked[1]]
    assert [d.mean for d in asked[0]] == [d.mean for d in asked[1]]


def test_users_with_few_events_need_no_preparation():
    explorer = explorer_with(tw.Beam())
    assert explorer.has_at_hand("a newcomer")
    assert not explorer.has_at_hand("u3")
    explorer.prepare(["a newcomer"])
    assert len(states_of(explorer)) == 0


def test_nobody_is_prepared_beyond_the_memory():
    explorer = explorer_with(tw.Beam(), memory=1_500)
    states = states_of(explorer)
    assert 1 < states.most < len(USERS)
    explorer.prepare(USERS)
    assert len(states) == states.most
    assert len(explorer.recommend(USERS)) == len(USERS)


@pytest.mark.parametrize("change", ["edition", "forget", "move", "rebuild", "recommend", "feedback"])
def test_what_happens_during_a_preparation_is_not_lost(change, monkeypatch):
    """A state that is outdated when it is ready is discarded, or brought up to date by the next call."""
    explorer = explorer_with(tw.Beam(), memory=1 << 24, store=tw.MemoryStore(), spare=0.5, publishes=False)
    begun, go = Event(), Event()
    init = replay_aside.Replay.__init__

    def slow(self, *given):
        init(self, *given)
        begun.set()
        assert go.wait(60)

    monkeypatch.setattr(replay_aside.Replay, "__init__", slow)
    thread = Thread(target=explorer.prepare, args=(["u3", "u4"],))
    thread.start()
    assert begun.wait(60)
    if change == "edition":
        explorer.publish()
    elif change == "forget":
        explorer.forget("u3")
    elif change == "move":
        known = explorer.store.read(["u3"])[0]["item"]
        ids = [SHOP.ids[int(explorer._snapshot.decider.positions.row_of_number[n])] for n in set(known[:5].tolist())]
        explorer.update(ids, np.random.default_rng(5).normal(size=(len(ids), SHOP.dim)).astype(np.float32))
    elif change == "rebuild":
        explorer.rebuild()
    else:
        [one] = explorer.recommend(["u3"])
        if change == "feedback":
            explorer.feedback({one.id: 1.0})
    go.set()
    thread.join()
    explorer.recommend(["u3", "u4"])
    states = states_of(explorer)
    for user in ("u3", "u4"):
        seat = int(states.seat([user])[0])
        whole = explorer._snapshot.decider.state_after(states.events_for_plan(explorer.store.read([user])[0]))
        assert state_bytes(states.state, seat) == state_bytes(whole, 0), user


def test_threads_that_prepare_and_recommend_agree_with_one_thread():
    shop = synthetic_catalogue(300, dim=6, seed=0)
    explorer = explorer_with(tw.Beam(), memory=3_000)
    many = [f"v{i}" for i in range(40)]
    random = np.random.default_rng(3)
    explorer.store.extend(many, np.full(40, 30), some_events(random, 40 * 30))
    faults = []

    def work(seed):
        chosen = np.random.default_rng(seed)
        try:
            for _ in range(60):
                users = [many[i] for i in chosen.choice(40, 5, replace=False)]
                explorer.prepare(users)
                explorer.recommend(users)
        except Exception as error:
            faults.append(error)

    threads = [Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert len(shop) == len(explorer)
    states = states_of(explorer)
    for user in many:
        seat = int(states.seat([user])[0])
        whole = explorer._snapshot.decider.state_after(states.events_for_plan(explorer.store.read([user])[0]))
        assert state_bytes(states.state, seat) == state_bytes(whole, 0), user
