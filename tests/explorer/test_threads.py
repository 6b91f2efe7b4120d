"""Large batches are decided by several threads: the same decisions as by one."""

import numpy as np
import pytest

import treeward as tw
from tests.explorer.test_compact_states import POLICIES, SHOP, some_events
from treeward.explorer import decider

USERS = [f"u{i}" for i in range(61)]
ITEMS = SHOP.ids.to_list()


def decided(policy, threads, monkeypatch, **asked):
    monkeypatch.setattr(decider, "cores", lambda: threads)
    monkeypatch.setattr(decider, "_LEAST_PER_THREAD", 5)
    explorer = tw.Explorer(SHOP, policy=policy, store=tw.MemoryStore(), seed=0, repeats=False, spare=0.5)
    random = np.random.default_rng(1)
    sizes = random.integers(0, 60, size=len(USERS))
    explorer.store.extend(USERS, sizes, some_events(random, int(sizes.sum())))
    rooms = explorer._snapshot.decider._rooms
    assert rooms == []
    made = [*explorer.recommend(USERS, 3, **asked), *explorer.recommend(USERS[::-1], 2, **asked)]
    explorer.publish()
    made += explorer.recommend(USERS, 1, **asked)
    assert len(rooms) == threads - 1
    return [(d.user, d.item, d.slot, d.mean, d.width, d.propensity, d.scores, d.bold, d.path) for d in made]


@pytest.mark.parametrize("policy", [*POLICIES.values(), tw.Beam(tw.Thompson()), tw.HCB(tw.EpsilonGreedy(0.3))], ids=str)
def test_several_threads_decide_as_one(policy, monkeypatch):
    one, four = (decided(policy, threads, monkeypatch) for threads in (1, 4))
    assert one == four


def test_several_threads_keep_to_filters_of_single_users(monkeypatch):
    exclude = {user: ITEMS[i : i + 40] for i, user in enumerate(USERS)}
    asked = {"exclude": exclude, "diverse": True}
    one, three = (decided(tw.Beam(), threads, monkeypatch, **asked) for threads in (1, 3))
    assert one == three
    assert all(item not in exclude[user] for user, item, *_ in one)


def test_an_error_in_one_thread_is_raised_after_all_have_ended(monkeypatch):
    monkeypatch.setattr(decider, "cores", lambda: 4)
    explorer = tw.Explorer(SHOP, seed=0)
    kernel, calls = explorer._snapshot.decider._kernel, []

    def failing(*given):
        calls.append(given)
        if len(given[1].seat) and given[1].seat[0] == 0:
            raise MemoryError("no room")
        kernel(*given)

    monkeypatch.setattr(explorer._snapshot.decider, "_kernel", failing)
    with pytest.raises(MemoryError, match="no room"):
        explorer.recommend(USERS)
    assert len(calls) == 4
    monkeypatch.setattr(explorer._snapshot.decider, "_kernel", kernel)
    assert len(explorer.recommend(USERS)) == len(USERS)
