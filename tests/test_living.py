"""Items that come, change and go while decisions are made."""

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

import treeward as tw
from treeward.policy.screen import Flags
from treeward.state.frozen import freeze
from treeward.store.events import REWARD
from treeward.tree import shape

DIM, FIRST = 4, 40
POLICIES = {
    "beam": lambda: tw.Beam(budget=4, means=60),
    "beam, once": lambda: tw.Beam(tw.Thompson(0.1), budget=4, means=60),
    "hcb": lambda: tw.HCB(budget=12),
    "phcb": lambda: tw.PHCB(tw.EpsilonGreedy(0.2), budget=12),
    "flat": lambda: tw.Flat(tw.LinUCB(), budget=None),
}


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
        was = id in self.live
        self.explorer.update([id], vectors_of(self.random, 1))
        self.live.add(id)
        assert self.column[id] == self.explorer.catalogue.table["odd"][self.explorer.catalogue.row(id)]
        assert was or id in self.explorer

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
        now, room = explorer._now, explorer._decider.room
        open_rows = now.rows[now.open_places]
        assert sorted(now.catalogue.id_at(int(row)) if room else int(now.catalogue.ids[int(row)]) for row in open_rows) == sorted(self.live)
        assert int(explorer.sizes()[0]) == len(self.live)
        for user, count in self.told.items():
            assert int((explorer.store.read(user)["kind"] == REWARD).sum()) == count
        if room is not None:
            check_room(now, room)

    @invariant()
    def what_is_at_hand_is_what_the_events_make(self):
        if not hasattr(self, "explorer"):
            return
        decider = self.explorer._decider
        for user in ("ada", "bob"):
            [seat] = decider.seats.seat([user]).tolist()
            again = decider.state_after(decider.seats.seen_by_plan(self.explorer.store.read(user)))
            assert freeze(decider.seats.state, seat, bytes(16)) == freeze(again, 0, bytes(16))

    def teardown(self):
        if hasattr(self, "explorer"):
            self.explorer.close()


def check_room(now, room):
    """Assert that what is kept up is what one would count."""
    tree, open_places = now.decider.plan.tree, room.flags.open
    assert Flags.of(open_places).before.tolist() == room.flags.before.tolist()
    assert (tree.items[open_places] >= 0).all()
    assert (room.taken == (tree.items >= 0)).all()
    leaves = shape.leaves(tree)
    for leaf in leaves.tolist():
        first, last = tree.item_range[leaf]
        assert room.held[leaf] == open_places[first:last].sum()
        assert room.spare[leaf] == (~room.taken[first:last]).sum()
        assert room.taken[first : room.cursor[leaf]].all()
        if open_places[first:last].any():
            mean = room.vectors[first:last][open_places[first:last]].mean(axis=0)
            assert np.allclose(room.mean[leaf], mean, atol=1e-4)
    for node in range(len(tree.parent) - 1, -1, -1):
        first, last = tree.first_child[node], tree.first_child[node + 1]
        if first < last:
            assert np.allclose(room.mean[node], room.mean[first:last].mean(axis=0), atol=1e-4)
    if room.follow:
        assert np.allclose(tree.vectors, room.mean, atol=1e-4)
    number_of = now.decider.roster
    for row, place in enumerate(number_of.place_of.tolist()):
        assert place < 0 or tree.items[place] == row


TORTURE = os.environ.get("TORTURE") == "1"
Shop.TestCase.settings = settings(
    max_examples=1_000 if TORTURE else 40, stateful_step_count=30, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)  # fmt: skip
TestInterleavings = Shop.TestCase
