"""Where a changing catalogue could go wrong: states kept, replicas, pages, contexts, threads."""

import threading

import numpy as np
import polars as pl
import pytest

import treeward as tw
from treeward.data.synthetic import synthetic_catalogue
from treeward.state.contexts import Contexts
from treeward.store.metadata import page_key
from treeward.store.numbers import SNAPSHOTS, number_items, snapshot_digests

DIM = 8
ONE = np.ones((1, DIM))


@pytest.fixture(scope="module")
def shop():
    return synthetic_catalogue(200, dim=DIM, seed=0)


def explorer_of(shop, store=None, **more):
    return tw.Explorer(shop, store=store, seed=0, memory=1 << 22, **more)


def theta(explorer, user):
    seats = explorer._snapshot.decider.states
    return seats.state.posterior.theta[seats.seat([user])[0]].copy()


def is_what_the_events_make(explorer, user):
    before = theta(explorer, user)
    explorer._snapshot.decider.states.drop(user)
    return np.array_equal(before, theta(explorer, user))


def test_changed_items_are_not_shown_twice_to_a_returning_user():
    explorer, seen = explorer_of(synthetic_catalogue(400, dim=DIM, seed=0), repeats=False, crowd=False), set()
    for _ in range(140):
        [made] = explorer.recommend(["ada"])
        seen.add(made.item)
        explorer.feedback({made.id: 0.5})
    explorer.release("ada")
    explorer.add(tw.Catalogue([9_001], ONE))
    told = explorer.inspect.check_states()
    assert told.mismatches == ()
    assert not {one.item for one in explorer.recommend(["ada"], n=200)} & seen


def test_exposures_of_items_that_another_replica_added_count(shop):
    store = tw.MemoryStore()
    one, other = (explorer_of(shop, store, spare=0.1, repeats=False) for _ in range(2))
    one.add(tw.Catalogue([9_001], ONE))
    [made] = one.recommend(["ada"], allow=[9_001])
    one.feedback({made.id: 1.0})
    other.recommend(["ada"])
    assert other.changes.catch_up() == 1
    assert is_what_the_events_make(other, "ada")
    with pytest.raises(tw.NothingLeft):
        other.recommend(["ada"], allow=[9_001])


def test_contexts_of_other_replicas_are_understood(shop):
    store = tw.MemoryStore()
    features = tw.Crossed.over(shop, {"device": ["phone", "desk"]}, dims=2)
    one, other = (explorer_of(shop, store, policy=tw.Beam(features=features)) for _ in range(2))
    [made] = one.recommend(["ada"], context={"device": "phone"})
    other.recommend(["bob"], context={"device": "desk"})
    one.feedback({made.id: 1.0})
    alone = explorer_of(shop, store, policy=tw.Beam(features=features))
    assert np.array_equal(theta(other, "ada"), theta(alone, "ada"))


def test_a_growing_catalogue_can_be_read_while_it_grows(shop):
    explorer, problems = explorer_of(shop), []

    def read():
        for _ in range(60):
            try:
                assert len(explorer.catalogue.table) <= len(explorer.catalogue)
                explorer.catalogue.some([0, len(explorer.catalogue) - 1])
            except Exception as error:
                problems.append(error)

    def write(first):
        for id in range(first, first + 40):
            explorer.add(tw.Catalogue([id], ONE * (id % 7 + 1)))

    explorer.add(tw.Catalogue([5_000], ONE))
    threads = [threading.Thread(target=read) for _ in range(2)]
    threads += [threading.Thread(target=write, args=(first,)) for first in (10_000, 20_000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(explorer.catalogue.table) == len(explorer.catalogue)
    explorer.refit()
    assert len(explorer) == 281


def test_an_explorer_works_without_free_snapshot_numbers(shop):
    store = tw.MemoryStore()
    explorer = explorer_of(shop, store)
    taken = len(snapshot_digests(store))
    store.metadata.put({page_key(SNAPSHOTS, i): b"tree %d" % i for i in range(taken, (1 << 16) - 1)})
    [made] = explorer.recommend(["ada"])
    explorer.remove([made.item])
    explorer.refit()
    assert explorer.feedback({made.id: 1.0})[made.id] == "recorded"
    [late] = explorer.recommend(["ada"])
    assert explorer.feedback({late.id: 1.0})[late.id] == "recorded"
    assert is_what_the_events_make(explorer, "ada")


def test_pages_for_another_kind_of_catalogue_are_ignored(shop):
    store = tw.MemoryStore()
    first = tw.Catalogue(shop.ids, shop.vectors, columns={"stock": list(range(200))})
    explorer_of(first, store).add(tw.Catalogue([9_001], ONE, columns={"stock": [1]}))
    more = {"stock": list(range(200)), "country": ["SE"] * 200}
    wider = explorer_of(tw.Catalogue(shop.ids, shop.vectors, columns=more), store)
    assert wider.recommend(["ada"], where={"stock": 1}, allow=[9_001])
    assert wider.catalogue.some([wider.catalogue.row(9_001)])["country"].to_list() == [None]
    wider.refit()
    flat = synthetic_catalogue(50, dim=3, seed=1)
    other = explorer_of(flat, store)
    other.add(tw.Catalogue([7_000], np.ones((1, 3))))
    assert wider.changes.catch_up() == 1
    assert 7_000 not in wider
    assert wider.remove([5]) == 1


def test_a_changed_item_is_counted_once(shop):
    explorer = explorer_of(shop, counts=True, exposures="all")
    explorer.update([0], ONE)
    explorer.update([0], 2 * ONE)
    assert explorer.ingest(tw.Interactions(["ada"], [0])).events == 1
    explorer.recommend(["ada"], allow=[0])
    assert explorer.inspect.totals().items == 1


def test_removed_items_count_without_recorded_exposures(shop):
    explorer = explorer_of(shop)
    [made] = explorer.recommend(["ada"])
    explorer.remove([made.item])
    explorer.refit()
    explorer.feedback({made.id: 1.0})
    assert not np.array_equal(theta(explorer, "ada"), theta(explorer, "nobody"))


def test_a_store_remembers_the_first_catalogue(shop):
    store, other = tw.MemoryStore(), synthetic_catalogue(201, dim=DIM, seed=1)
    one, two = explorer_of(shop, store), explorer_of(other, store)
    one.remove([0])
    one.add(tw.Catalogue([9_001], ONE))
    two.changes.catch_up()
    two.add(tw.Catalogue([9_002], ONE))
    again = explorer_of(other, store)
    assert (0 in again, 9_001 in again, 9_002 in again) == (False, True, True)


def test_bad_contexts_are_refused(shop):
    features = tw.Crossed.over(shop, {"device": ["phone", "9"], "hour": 24}, dims=2)
    explorer = explorer_of(shop, policy=tw.Beam(features=features))
    for strange in ({"hour": 10**400}, {"hour": "noon"}, {"hour": 2**60}):
        with pytest.raises(tw.InvalidArgument):
            explorer.recommend(["ada"], context=strange)
    before = len(explorer.store.metadata.list("context/"))
    for i in range(50):
        explorer.recommend(["ada"], context={"device": f"nobody has seen {i}"})
    explorer.recommend(["ada"], context={"device": 9})
    explorer.recommend(["ada"], context={"device": "9"})
    assert len(explorer.store.metadata.list("context/")) == before + 1


def test_contexts_recorded_with_other_features_are_ignored(shop):
    store = tw.MemoryStore()
    words = tw.Crossed.over(shop, {"hour": ["morning", "night"]}, dims=2)
    numbers = tw.Crossed.over(shop, {"hour": 24}, dims=2)
    [made] = explorer_of(shop, store, policy=tw.Beam(features=words)).recommend(["ada"], context={"hour": "morning"})
    later = explorer_of(shop, store, policy=tw.Beam(features=numbers))
    later.feedback({made.id: 1.0})
    assert later.recommend(["ada"], context={"hour": 9})
    assert isinstance(later._snapshot.decider.contexts, Contexts)
    assert not later.explain(made).reproduced or later.explain(made).item == made.item


def test_new_items_lose_their_bonus_once_shown_often(shop):
    explorer = explorer_of(shop, cold=0.5, crowd=False)
    explorer.add(tw.Catalogue([9_001], ONE))
    for _ in range(3):
        explorer.recommend([f"user {i}" for i in range(70)], allow=[9_001])
    assert explorer._snapshot._new == {}
    assert not explorer._snapshot.decider.plan.bonus.any()
    explorer.add(tw.Catalogue([9_002], ONE * 2))
    [place] = explorer._snapshot.decider.positions.places(number_items(explorer.store, pl.Series([9_002])))
    explorer.update([9_002], -ONE)
    assert explorer._snapshot.decider.plan.bonus[place] == 0


def test_values_that_do_not_fit_a_column_are_refused(shop):
    priced = tw.Catalogue(shop.ids, shop.vectors, titles=[None] * 200, columns={"price": list(range(200))})
    explorer = explorer_of(priced)
    with pytest.raises(tw.InvalidArgument, match="Int64 in price"):
        explorer.add(tw.Catalogue([9_001], ONE, columns={"price": [1.75]}))
    explorer.add(tw.Catalogue([9_001], ONE, titles=["Named"], columns={"price": [2.0]}))
    assert explorer.catalogue.some([explorer.catalogue.row(9_001)])["title"].to_list() == ["Named"]


def test_all_items_can_be_removed_and_others_added(shop, tmp_path):
    explorer = explorer_of(shop)
    explorer.remove(list(range(200)))
    assert len(explorer) == 0
    explorer.refit()
    explorer.rebuild()
    with pytest.raises(tw.NothingLeft):
        explorer.recommend(["ada"])
    with pytest.raises(tw.InvalidArgument, match="at least one"):
        explorer.inspect.health()
    explorer.add(tw.Catalogue([9_001], ONE))
    assert [one.item for one in explorer.recommend(["ada"])] == [9_001]
    explorer.save(tmp_path / "items", tmp_path / "tree")
    again = explorer_of(shop)
    assert again.add(tw.Catalogue.load(tmp_path / "items")) == 1
    with pytest.raises(tw.UnknownId, match="was removed"):
        explorer.adopt("ada", [3])


def test_a_rebuilt_tree_keeps_its_names(shop):
    named = tw.ItemTree.build(shop.vectors, seed=0).named(shop.titles)
    explorer = tw.Explorer(shop, named, memory=1 << 22)
    explorer.add(tw.Catalogue([9_001], ONE, titles=["Something new"]))
    explorer.refit()
    assert explorer.tree.names is not None
    explorer.rebuild()
    assert explorer.tree.names is not None


@pytest.mark.parametrize("compare", [False, True])
def test_health_works_while_items_change(shop, compare):
    explorer, done, problems = explorer_of(shop), threading.Event(), []

    def change():
        random, number = np.random.default_rng(0), 10_000
        while not done.is_set():
            try:
                explorer.add(tw.Catalogue(range(number, number + 20), random.normal(size=(20, DIM))))
                explorer.remove(range(number, number + 20))
                if number % 400 == 0:
                    explorer.rebuild()
            except Exception as error:
                problems.append(error)
            number += 20

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for _ in range(15 if compare else 60):
            told = explorer.inspect.health(compare=compare)
            assert told.items >= len(shop)
            assert np.isfinite(told.distance)
    finally:
        done.set()
        changing.join()
    assert problems == []
