"""States in memory are compact: no sums, and triangles of A^-1. They equal whole states to the bit."""

import numpy as np
import pytest

import treeward as tw
from treeward.data.synthetic import synthetic_catalogue
from treeward.engine.layout import empty_state
from treeward.engine.posterior import BLOCK, REFRESH
from treeward.engine.replay import need_replay
from treeward.state.user_states import seat_bytes, state_bytes, state_rows
from treeward.store.events import CHANGE, EVENT, REWARD, SHOWN

SHOP = synthetic_catalogue(300, dim=6, seed=0)
POLICIES = {
    "beam": tw.Beam(),
    "beam that forgets": tw.Beam(forgetting=0.98),
    "hcb": tw.HCB(),
    "phcb": tw.PHCB(),
    "flat": tw.Flat(),
    "shortlist": tw.Beam(shortlist=3),
}


def some_events(random, count):
    """Exposures, rewards and changes of rewards, in any order."""
    made = np.zeros(count, dtype=EVENT)
    made["item"], made["node"] = random.integers(len(SHOP), size=count), -1
    made["kind"] = random.choice([SHOWN, REWARD, CHANGE], size=count, p=[0.3, 0.6, 0.1])
    made["reward"] = np.where(made["kind"] == SHOWN, 0.0, random.random(count))
    made["nonce"] = random.integers(1, 2**60, size=count)
    return made


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("repeats", [True, False])
def test_compact_states_equal_replayed_ones_to_the_bit(name, repeats):
    explorer = tw.Explorer(SHOP, policy=POLICIES[name], store=tw.MemoryStore(), seed=0, repeats=repeats, crowd=False)
    states, random = explorer._snapshot.decider.states, np.random.default_rng(1)
    users = ["ada", "bob", "eve"]
    assert states.state.posterior.compact
    while explorer.store.counts(["eve"])[0] < 3 * REFRESH:
        sizes = random.integers(0, 60, size=len(users))
        explorer.store.extend(users, sizes, some_events(random, int(sizes.sum())))
        if random.random() < 0.2:
            states.drop(users[random.integers(3)])
        seats = states.seat(users).tolist()
        for user, seat in zip(users, seats, strict=True):
            whole = explorer._snapshot.decider.state_after(states.events_for_plan(explorer.store.read([user])[0]))
            assert not whole.posterior.compact
            assert state_bytes(states.state, seat) == state_bytes(whole, 0), user
    assert max(states.state.posterior.pulls.max(axis=1)) > 2 * REFRESH


def test_a_compact_state_is_replayed_only_where_it_needs_sums():
    plan = tw.Beam().plan(tw.ItemTree.build(SHOP.vectors, seed=0), SHOP)
    posterior = empty_state(plan, 4, 0, compact=True).posterior
    posterior.pulls[:, 0] = (0, 10, REFRESH - 3, 2 * REFRESH - 1)
    seats, one = np.arange(4), np.ones(4, dtype=np.int64)
    assert need_replay(plan, posterior, seats, one).tolist() == [False, False, False, True]
    assert need_replay(plan, posterior, seats, 3 * one).tolist() == [False, False, True, True]
    assert need_replay(plan, posterior, seats, REFRESH * one).tolist() == [False, True, True, True]
    fades = plan._replace(rules=plan.rules._replace(keep=0.9))
    assert need_replay(fades, posterior, seats, (BLOCK - 10) * one).tolist() == [False, True, True, True]
    assert not need_replay(plan, empty_state(plan, 4, 0).posterior, seats, REFRESH * one).any()


def test_memory_holds_four_times_as_many_users_as_whole_states():
    shop = synthetic_catalogue(200, dim=64, seed=0)
    plan = tw.Beam().plan(tw.ItemTree.build(shop.vectors, seed=0), shop)
    whole = sum(row.nbytes for row in state_rows(empty_state(plan, 1, 8), 0))
    posterior = empty_state(plan, 1, 8).posterior
    whole += posterior.products.nbytes + posterior.pending.nbytes + posterior.rewards.nbytes
    assert whole > 6 * seat_bytes(plan)


def test_unused_seats_take_no_memory():
    """A gigabyte holds millions of small states: nothing may be written for those that nobody uses."""
    shop = synthetic_catalogue(50, dim=2, seed=0)
    explorer = tw.Explorer(shop, store=tw.MemoryStore(), seed=0, memory=1 << 30, repeats=False)
    states = explorer._snapshot.decider.states
    assert states.most > 1_000_000
    explorer.recommend(["ada", "bob"])
    assert len(states._seen) == 2
    assert states.state.shown.taken.tolist() == [2 * states.state.shown.first, states.most - 2]
    assert not states.state.shown.capacity[2:].any()
