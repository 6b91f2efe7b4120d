"""Items that come, change and go while decisions are made."""

import os
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

import treeward as tw
from treeward.data.synthetic import synthetic_catalogue
from treeward.engine.available import Flags
from treeward.engine.layout import rows_together
from treeward.state.user_states import state_bytes
from treeward.store.events import REWARD
from treeward.tree import tree_arrays

DIM, FIRST = 4, 40
POLICIES = {
    "beam": lambda: tw.Beam(budget=4, means=60),
    "beam, once": lambda: tw.Beam(tw.Thompson(0.1), budget=4, means=60),
    "beam, prior": lambda: tw.Beam(budget=4, means=60, prior=prior()),
    "hcb": lambda: tw.HCB(budget=12),
    "phcb": lambda: tw.PHCB(tw.EpsilonGreedy(0.2), budget=12),
    "flat": lambda: tw.Flat(tw.LinUCB(), budget=None),
}


@cache
def prior():
    random = np.random.default_rng(7)
    items = random.integers(FIRST, size=600) ** 2 // FIRST  # some are more popular
    log = tw.Interactions(random.integers(60, size=600), items, rewards=(random.random(600) < 0.4) * 1.0)
    return tw.Crowd.fit(log, shop_of(np.random.default_rng(0), range(FIRST)))


def vectors_of(random, count):
    return random.standard_normal((count, DIM)).astype(np.float32)


def shop_of(random, ids):
    ids = list(ids)
    return tw.Catalogue(
        ids, vectors_of(random, len(ids)), titles=[f"no. {id}" for id in ids], columns={"odd": [id % 2 for id in ids]}
    )


class Shop(RuleBasedStateMachine):
    """An explorer, and beside it what it must be."""

    items = Bundle("items")

    @initialize(policy=st.sampled_from(sorted(POLICIES)), seed=st.integers(0, 5))
    def begin(self, policy, seed):
        self.random, self.once = np.random.default_rng(seed), policy.endswith("once")
        self.folder = Path(tempfile.mkdtemp())
        self.policy, self.next, self.snapshot, self.open_decisions = POLICIES[policy](), FIRST, 0, {}
        self.shop = shop_of(self.random, range(FIRST))
        self.tree = tw.ItemTree.build(self.shop.vectors, (3, 8), seed=0)
        self.live = set(range(FIRST))
        self.column = {id: id % 2 for id in range(FIRST)}
        self.told, self.shown = {}, {}
        self.explorer = self.opened()

    def opened(self):
        return tw.Explorer(
            self.shop, self.tree, self.policy, tw.SQLiteStore(self.folder / "events.db"), repeats=not self.once,
            exposures="all", memory=1 << 20,
        )  # fmt: skip

    @rule(target=items, count=st.integers(1, 12))
    def add(self, count):
        ids = range(self.next, self.next + count)
        self.next += count
        assert self.explorer.add(shop_of(self.random, ids)) == count
        self.live |= set(ids)
        self.column.update({id: id % 2 for id in ids})
        return multiple(*ids)

    @rule(target=items, id=st.integers(0, FIRST - 1))
    def name(self, id):
        return id

    @rule(id=consumes(items))
    def remove(self, id):
        assert self.explorer.remove([id]) == (id in self.live)
        self.live.discard(id)
        assert id not in self.explorer

    @rule(id=items, back=st.booleans())
    def change(self, id, back):
        if back or id in self.live:
            column = int(self.random.integers(2, 4))
            again = tw.Catalogue([id], vectors_of(self.random, 1), titles=["new"], columns={"odd": [column]})
            self.explorer.add(again)
            self.live.add(id)
            self.column[id] = column

    @rule(id=items)
    def update(self, id):
        if id not in self.live:
            with pytest.raises(tw.UnknownId):
                self.explorer.update([id], vectors_of(self.random, 1))
            return
        self.explorer.update([id], vectors_of(self.random, 1))
        assert self.column[id] == self.explorer.catalogue.table["odd"][self.explorer.catalogue.row(id)]

    @rule(user=st.sampled_from(["ada", "bob", "eve"]), n=st.integers(1, 3), odd=st.sampled_from([None, 0, 1, 2]))
    def recommend(self, user, n, odd):
        try:
            made = self.explorer.recommend([user], n, where=None if odd is None else {"odd": odd})
        except tw.NothingLeft:
            fit = {id for id in self.live if odd is None or self.column[id] == odd}
            assert len(fit - (self.shown.get(user, set()) if self.once else set())) < n
            return
        for one in made:
            assert one.item in self.live
            assert odd is None or self.column[one.item] == odd
            assert one.propensity > 0
            if self.once:
                assert one.item not in self.shown.get(user, set())
            self.open_decisions[one.id] = user
        self.shown.setdefault(user, set()).update(one.item for one in made)

    @rule(reward=st.sampled_from([0.0, 1.0]))
    def feedback(self, reward):
        if self.open_decisions:
            id, user = self.open_decisions.popitem()
            assert self.explorer.feedback({id: reward})[id] == "recorded"
            self.told[user] = self.told.get(user, 0) + 1

    @rule()
    def refit(self):
        self.explorer.refit()

    @rule()
    def rebuild(self):
        if self.live:
            self.explorer.rebuild()

    @rule()
    def restart(self):
        self.explorer.close()
        self.explorer = self.opened()

    @rule()
    def swap(self):
        """Go on from what was saved."""
        self.snapshot += 1
        if not self.live:
            return
        items, tree = self.folder / f"items {self.snapshot}", self.folder / f"tree {self.snapshot}"
        self.explorer.save(items, tree)
        self.explorer.close()
        self.shop, self.tree = tw.Catalogue.load(items), tw.ItemTree.load(tree)
        self.explorer = self.opened()

    @invariant()
    def is_whole(self):
        if not hasattr(self, "explorer"):
            return
        explorer = self.explorer
        assert len(explorer) == len(self.live)
        assert {id for id in self.column if id in explorer} == self.live
        now, room = explorer._snapshot, explorer._snapshot.decider.slack
        open_rows = now.rows[now.open_places]
        assert sorted(
            now.catalogue.id_at(int(row)) if room else int(now.catalogue.ids[int(row)]) for row in open_rows
        ) == sorted(self.live)
        assert int(explorer.inspect.sizes()[0]) == len(self.live)
        for user, count in self.told.items():
            assert int((explorer.store.read([user])[0]["kind"] == REWARD).sum()) == count
        if room is not None:
            check_room(now, room)

    @invariant()
    def what_is_at_hand_is_what_the_events_make(self):
        if not hasattr(self, "explorer"):
            return
        decider = self.explorer._snapshot.decider
        for user in ("ada", "bob"):
            [seat] = decider.states.seat([user]).tolist()
            again = decider.state_after(decider.states.events_for_plan(self.explorer.store.read([user])[0]))
            assert state_bytes(decider.states.state, seat) == state_bytes(again, 0)

    def teardown(self):
        if hasattr(self, "explorer"):
            self.explorer.close()


def check_room(now, room):
    """Assert that what is kept up is what one would count."""
    tree, open_places = now.decider.plan.tree, room.flags.open
    assert Flags.of(open_places).before.tolist() == room.flags.before.tolist()
    assert Flags.of(open_places).bits.tolist() == room.flags.bits.tolist()
    assert (tree.items[open_places] >= 0).all()
    assert (room.taken == (tree.items >= 0)).all()
    leaves = tree_arrays.leaves(tree)
    for leaf in leaves.tolist():
        first, last = tree.item_range[leaf]
        assert room.held[leaf] == open_places[first:last].sum()
        assert room.spare[leaf] == (~room.taken[first:last]).sum()
        assert room.taken[first : room.cursor[leaf]].all()
        if open_places[first:last].any():
            mean = room.vectors[first:last][open_places[first:last]].mean(axis=0)
            assert np.allclose(room.mean[leaf], mean, atol=1e-4)
    if len(room.reach):
        check_search(now, room, open_places)
    for node in range(len(tree.parent) - 1, -1, -1):
        first, last = tree.first_child[node], tree.first_child[node + 1]
        if first < last:
            assert np.allclose(room.mean[node], room.mean[first:last].mean(axis=0), atol=1e-4)
    if room.follow:
        assert np.allclose(tree.vectors, room.mean, atol=1e-4)
    for row, place in enumerate(now.decider.positions.place_of_row.tolist()):
        assert place < 0 or tree.items[place] == row


def check_search(now, room, open_places):
    """Assert that a search goes by what is there."""
    tree = now.decider.plan.tree
    for node in range(len(tree.parent)):
        first, last = tree.item_range[node]
        inside = room.vectors[first:last][open_places[first:last]]
        assert room.held[node] == len(inside)
        if len(inside):
            far = ((inside[:, : room.own] - room.mean[node, : room.own]) ** 2).sum(axis=1).mean()
            assert room.reach[node] == pytest.approx(room.stretch * np.sqrt(far / room.own), abs=1e-3)
        if room.ladder.shape[1]:
            falling = np.sort(inside[:, -1])[::-1]
            assert room.ladder[tree.level[node], first : first + len(inside)].tolist() == falling.tolist()


TORTURE = os.environ.get("TORTURE") == "1"
Shop.TestCase.settings = settings(
    max_examples=1_000 if TORTURE else 15, stateful_step_count=30, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)  # fmt: skip
TestInterleavings = Shop.TestCase


# --- what it is good for ---------------------------------------------------------------------------------------------


def two_places(**more):
    """Return an explorer over items in two places, with users who like one of them."""
    random = np.random.default_rng(0)
    here, there = np.array([3, 0, 0, 0]), np.array([0, 3, 0, 0])
    vectors = np.concatenate([here + 0.3 * vectors_of(random, 150), there + 0.3 * vectors_of(random, 150)])
    explorer = tw.Explorer(tw.Catalogue(range(300), vectors), seed=0, memory=1 << 22, **more)
    for _ in range(30):
        made = explorer.recommend(["ada", "bob"])
        explorer.feedback({one.id: float((one.item < 150) == (one.user == "ada")) for one in made})
    return explorer, random, here, there


@pytest.fixture
def grown():
    return two_places()


def test_a_new_item_is_recommended_to_users_who_like_it_at_once():
    explorer, _, here, _ = two_places(crowd=False)
    explorer.add(tw.Catalogue([1_000], here[None] + 0.1))
    shown = {user: [d.item for _ in range(20) for d in explorer.recommend([user])] for user in ("ada", "bob")}
    assert 1_000 in shown["ada"]
    assert 1_000 not in shown["bob"]
    row = explorer.catalogue.row(1_000)
    near = [explorer.catalogue.id_at(int(one)) for one in explorer.inspect.items_of(explorer.inspect.path_of(row)[-1])]
    assert sum(id < 150 for id in near if id != 1_000) > len(near) / 2


def test_the_bonus_of_new_items_falls_as_they_are_shown():
    explorer, _, here, _ = two_places(crowd=False)
    explorer.add(tw.Catalogue([1_000], here[None] + 0.1))
    edition = explorer._snapshot
    place = edition.decider.positions.place_of_row[edition.catalogue.row(1_000)]
    before = float(edition.decider.plan.bonus[place])
    assert before == pytest.approx(0.1)
    count = sum(d.item == 1_000 for _ in range(40) for d in explorer.recommend(["ada"]))
    assert 0 < count < 100
    assert edition.decider.plan.bonus[place] == pytest.approx(0.1 / np.sqrt(1 + count))
    explorer.rebuild()
    place = explorer._snapshot.decider.positions.place_of_row[explorer.catalogue.row(1_000)]
    assert explorer._snapshot.decider.plan.bonus[place] == pytest.approx(0.1 / np.sqrt(1 + count))
    few = tw.Catalogue(range(50), vectors_of(np.random.default_rng(1), 50))
    none = tw.Explorer(few, cold=0.0, memory=1 << 22, crowd=False)
    none.add(tw.Catalogue([99], np.ones((1, DIM))))
    assert not none._snapshot.decider.plan.bonus.any()


def test_events_with_removed_items_still_count(grown):
    explorer, _, _, _ = grown
    [seat] = explorer._snapshot.decider.states.seat(["ada"]).tolist()
    theta = explorer._snapshot.decider.states.state.posterior.theta[seat].copy()
    late = explorer.recommend(["ada"])[0]
    met = set(explorer.catalogue.ids[explorer.inspect.rows_of(explorer.store.read(["ada"])[0]["item"])].to_list())
    assert explorer.remove([*met, 10**6]) == len(met)
    assert explorer.feedback({late.id: 1.0})[late.id] == "recorded"
    explorer.rebuild()
    assert len(explorer) == 300 - len(met)
    [seat] = explorer._snapshot.decider.states.seat(["ada"]).tolist()
    again = explorer._snapshot.decider.states.state.posterior.theta[seat]
    assert np.abs(again).sum() > 0.5 * np.abs(theta).sum()
    shown = {d.item for _ in range(30) for d in explorer.recommend(["ada"])}
    assert not shown & met
    assert np.mean([item < 150 for item in shown]) > 0.7
    assert explorer.explain(late).item == late.item


def test_more_items_than_free_places_can_be_added(grown):
    """Leaves that overflow are split, and nothing is lost on the way."""
    explorer, random, here, _ = grown
    leaves = explorer.inspect.fitness().leaves
    explorer.add(tw.Catalogue(range(1_000, 3_000), here + 0.2 * vectors_of(random, 2_000)))
    assert len(explorer) == 2_300
    assert all(id in explorer for id in range(1_000, 3_000))
    fit = explorer.inspect.fitness()
    assert fit.leaves > leaves
    check_room(explorer._snapshot, explorer._snapshot.decider.slack)
    explorer.remove(range(1_000, 2_950))
    assert explorer.inspect.fitness().starved > 0
    explorer.refit()
    assert explorer.inspect.fitness().leaves < fit.leaves
    assert len(explorer) == 350


def test_health_says_when_a_rebuild_pays(grown):
    explorer, random, _, _ = grown
    before = explorer.inspect.health(users=2)
    assert (before.added, before.removed, before.stale) == (0, 0, 0)
    assert not before.pays
    assert "does not pay" in before.advice
    far = np.array([0, 0, 5, 0])
    explorer.add(tw.Catalogue(range(1_000, 1_150), far + 2 * vectors_of(random, 150)))
    explorer.remove(range(0, 100))
    after = explorer.inspect.health(users=2)
    assert (after.items, after.added, after.removed, after.users) == (350, 150, 100, 2)
    assert after.stale > 0
    assert after.distance_added > after.distance_rebuilt
    quick = explorer.inspect.health(users=2, compare=False)
    assert np.isnan(quick.lost_rebuilt)
    assert "may pay" in quick.advice


@pytest.mark.parametrize(
    ("items", "why"),
    [
        (tw.Catalogue([1], [[1.0, 2.0]]), "4 dimensions"),
        (tw.Catalogue(["x"], np.ones((1, DIM))), "ids that are Int64"),
        (tw.Catalogue([1]), "with vectors"),
        (tw.Catalogue([1], np.ones((1, DIM)), columns={"price": [1]}), "columns among"),
        ("rubbish", "a Catalogue"),
    ],
)  # fmt: skip
def test_bad_items_are_refused(grown, items, why):
    explorer = grown[0]
    with pytest.raises(tw.InvalidArgument, match=why):
        explorer.add(items)
    assert len(explorer) == 300
    assert explorer.store.metadata.list("change/") == []


def test_a_new_catalogue_includes_earlier_changes(tmp_path):
    random = np.random.default_rng(0)
    shop = shop_of(random, range(50))
    store = tw.SQLiteStore(tmp_path / "events.db")
    explorer = tw.Explorer(shop, store=store, memory=1 << 22)
    explorer.add(shop_of(random, [100]))
    explorer.remove([3])
    assert 100 in tw.Explorer(shop, store=store, memory=1 << 22)
    newer = tw.Explorer(shop_of(random, range(60)), store=store, memory=1 << 22)
    assert 100 not in newer
    assert 3 in newer
    newer.remove([5])
    again = tw.Explorer(shop, store=store, memory=1 << 22)
    assert (100 in again, 3 in again, 5 in again) == (True, False, False)
    store.metadata.put({"change/000000000099": b"rubbish"})
    with pytest.raises(tw.TreewardError, match="page 99"):
        tw.Explorer(shop, store=store)


def test_what_is_kept_apart_of_the_best_liked_items_follows_new_ones():
    explorer = tw.Explorer(synthetic_catalogue(300, dim=6, seed=0), store=tw.MemoryStore(), seed=0)
    explorer.feedback({d.id: float(d.item % 2) for d in explorer.recommend(["ada", "bob"], 20)})
    explorer.publish()
    decider = explorer._snapshot.decider
    places, vectors = decider.plan.crowd.top[:3], decider.plan.items[decider.plan.crowd.top[:3]]
    for change in (lambda: None, lambda: decider.place_new_items(places, vectors)):
        change()
        plan = decider.plan
        expected = rows_together(plan.crowd.top, plan.items, plan.crowd.offset, plan.bonus)
        assert len(plan.crowd.top) > 3
        np.testing.assert_array_equal(plan.crowd.liked, expected)
    assert not plan.crowd.liked[:3, -2].any()
