"""The sums of all users' rewards, where several explorers use one store."""

from threading import Event, Thread, current_thread, main_thread

import pytest

import treeward as tw
from treeward.data.synthetic import synthetic_catalogue
from treeward.store.base import forget


@pytest.fixture(scope="module")
def shop():
    return synthetic_catalogue(60, dim=4, seed=0)


def explorer_of(shop, store, **options):
    return tw.Explorer(shop, store=store, seed=0, publishes=False, **options)


def reward(explorer, user, items):
    """Let a user like some items; return the decisions."""
    made = explorer.adopt(user, items)
    explorer.feedback({one.id: 1.0 for one in made})
    return made


class NotedLock:
    """A lock that notes when another thread than the main one asks for it."""

    def __init__(self, lock, asked):
        self._lock, self._asked = lock, asked

    def __enter__(self):
        if current_thread() is not main_thread():
            self._asked.set()
        self._lock.acquire()

    def __exit__(self, *_):
        self._lock.release()


def test_a_reward_recorded_during_a_recount_counts_once(shop):
    came, threads = Event(), []

    class Store(tw.MemoryStore):
        during = None

        def users(self):
            if self.during is not None:
                threads.append(Thread(target=self.during))
                self.during = None
                threads[0].start()
                came.wait()  # the reward is in the store, or has to wait for the recount
            return super().users()

        def append(self, *args, **options):
            new = super().append(*args, **options)
            if current_thread() is not main_thread():
                came.set()
            return new

    store = Store()
    explorer = explorer_of(shop, store)
    reward(explorer, "ada", [1])
    [late] = explorer.adopt("bob", [2])
    sums = explorer.crowd_keeper._sums
    sums._recounting = NotedLock(sums._recounting, came)
    forget(store, "eve")  # not by this explorer: its next edition recounts
    store.during = lambda: explorer.feedback({late.id: 1.0})
    explorer.publish()
    threads[0].join()
    explorer.publish()
    assert explorer.crowd_keeper.latest.rewards == 2


def test_erasing_a_user_whom_another_explorer_counted_subtracts_nothing_else(shop):
    store = tw.MemoryStore()
    first, second = explorer_of(shop, store), explorer_of(shop, store)
    reward(first, "ada", [1, 2, 3])
    reward(second, "bob", [1, 2, 3])
    second.forget("ada")
    second.publish()
    assert second.crowd_keeper.latest.rewards == 3
    assert second.crowd_keeper.latest.times.tolist() == [1, 1, 1]


def test_erasing_a_user_whom_an_explorer_without_a_crowd_recorded_leaves_no_negative_sums(shop):
    store = tw.MemoryStore()
    alone, explorer = explorer_of(shop, store, crowd=False), explorer_of(shop, store)
    reward(alone, "ada", [1, 2, 3])
    explorer.forget("ada")
    explorer.publish()
    assert explorer.crowd_keeper.latest.rewards == 0


@pytest.mark.parametrize("move", ["forget", "merge"])
def test_an_erasure_elsewhere_is_noticed_after_one_here(shop, move):
    store = tw.MemoryStore()
    explorer = explorer_of(shop, store)
    reward(explorer, "ada", [1])
    reward(explorer, "bob", [2])
    forget(store, "bob")
    explorer.forget("eve") if move == "forget" else explorer.merge("eve", "ada")
    explorer.publish()
    assert explorer.crowd_keeper.latest.rewards == 1


def test_a_late_reward_does_not_put_an_erased_user_back_into_the_sample(shop):
    store = tw.MemoryStore()
    explorer = explorer_of(shop, store)
    for user in ("ada", "bob"):
        reward(explorer, user, [1])
    late, epoch = store.read(["ada"])[0], store.identities.epoch
    explorer.forget("ada")
    for user in ("ada", "bob"):  # the store had recorded it before
        explorer.crowd_keeper.add([user], late, epoch)
    assert list(explorer.crowd_keeper._sums.sample) == ["bob"]


def test_the_crowd_leaves_out_items_that_the_catalogue_no_longer_has(shop):
    store = tw.MemoryStore()
    explorer = explorer_of(shop, store)
    reward(explorer, "ada", [1, 2, 3])
    explorer.publish()
    explorer.forget("ada")
    explorer.remove([1, 3])
    explorer.rebuild()
    crowd = explorer.crowd
    assert crowd.ids.to_list() == [2]
    assert len(crowd.times) == len(crowd.earned) == 1
