"""Users, options and explanations of an explorer."""

import math
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest

import treeward as tw
from tests.explorer.small_shop import bits, explorer, live_a_while
from treeward.core.errors import InvalidArgument, NothingLeft, UnknownDecision
from treeward.data.synthetic import synthetic_catalogue
from treeward.policy import TREE_POLICIES
from treeward.store import MemoryStore


def test_forgetting_a_user_erases_everything(shop, tree):
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


def test_merging_moves_events_and_open_decisions(shop, tree):
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
    made.feedback({fresh.id: 1.0})  # the next user of the device is another user
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


def test_interests_are_visible_nodes_or_a_level(shop, tree):
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
def test_bad_users_are_refused(shop, tree, users, why):
    with pytest.raises(InvalidArgument, match=f"Explorer.recommend: {why}"):
        explorer(shop, tree).recommend(users)


@pytest.mark.parametrize("spare", [-0.1, 10.1, 1e308])
def test_more_free_places_than_ten_per_item_are_refused(shop, tree, spare):
    with pytest.raises(InvalidArgument, match="spare must be a finite number of at least 0 and of at most 10"):
        explorer(shop, tree, spare=spare)


@pytest.mark.parametrize("n", [0, -1, 1.5, "2", 65537, None])
def test_bad_numbers_of_items_are_refused(shop, tree, n):
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
def test_bad_options_are_refused(shop, tree, options, why):
    with pytest.raises(InvalidArgument, match=why):
        explorer(shop, tree, **options)


def test_a_tree_of_another_catalogue_is_refused(shop):
    other = tw.ItemTree.build(synthetic_catalogue(600, dim=4, seed=0).vectors, (5,))
    with pytest.raises(InvalidArgument, match="tree must be over 600 items of 8 dimensions, got '600 x 4'"):
        tw.Explorer(shop, other)


def test_no_users_and_no_feedback_do_nothing(shop, tree):
    made = explorer(shop, tree)
    assert made.recommend([]) == []
    assert made.feedback({}) == {}
    assert repr(made) == "Explorer(600 items, Beam(LinUCB), MemoryStore(0 users))"
    with made as same:
        assert same is made


def test_every_user_starts_from_the_prior(shop, tree):
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


def test_many_threads_lose_nothing(shop, tree):
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


def test_new_users_do_not_change_states_in_neighbouring_seats():
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


def test_users_may_be_of_any_integer_type(shop, tree):
    assert len(explorer(shop, tree).recommend(["a", "b"], n=np.uint8(200))) == 400
    with pytest.raises(NothingLeft, match="601 items were asked for, but there are only 600"):
        explorer(shop, tree).recommend(["a"], n=601)


def test_a_catalogue_without_its_last_items_still_replays(shop, tree):
    store = MemoryStore()
    whole = explorer(shop, tree, store=store)
    whole.feedback({d.id: 1.0 for d in whole.recommend(["ada"], n=60)})
    half = tw.Explorer(tw.Catalogue(shop.ids[:300], shop.vectors[:300]), store=store, seed=0)
    left = sum(int(number) < 300 for number in store.read(["ada"])[0]["item"])
    assert 0 < left < 60
    assert sum(interest.visits for interest in half.inspect.interests("ada")) == left
    store = MemoryStore()
    half = tw.Explorer(tw.Catalogue(shop.ids[:300], shop.vectors[:300]), store=store, seed=0)
    whole = explorer(shop, tree, store=store)  # a newer replica next to an older one
    whole.feedback({d.id: 1.0 for d in whole.recommend(["ada"], n=60)})
    half.recommend(["ada"])


def test_users_may_be_numpy_strings(shop, tree):
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


def test_a_user_forgotten_by_another_explorer_is_new(shop, tree):
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


def test_events_of_phcb_teach_hcb_every_level(shop, tree):
    store = MemoryStore()
    live_a_while(explorer(shop, tree, tw.PHCB(), store), ["ada"], rounds=50)
    descending = explorer(shop, tree, tw.HCB(), store)
    [seat] = descending._snapshot.decider.states.seat(["ada"]).tolist()
    assert descending._snapshot.decider.states.state.posterior.pulls[seat].tolist() == [50, 50, 50]


def test_another_explorer_replays_a_user_who_was_merged_and_merged_back(shop, tree):
    store = MemoryStore()
    one, two = (explorer(shop, tree, store=store, crowd=False) for _ in range(2))
    for reward in (0.0, 0.5, 1.0):
        for user in ("a", "b"):
            one.feedback({one.recommend([user])[0].id: reward})
    two.recommend(["a"])
    one.merge("a", "b")
    one.merge("b", "a")
    live = bits(two, "a")
    two.release("a")
    assert live == bits(two, "a")


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
def test_arguments_of_the_wrong_type_are_refused(shop, tree, options, why):
    with pytest.raises(InvalidArgument, match=f"Explorer: {why}"):
        tw.Explorer(shop, **{"tree": tree, **options})


def test_sessions_refuse_foreign_decisions(shop, tree):
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


def test_rounding_does_not_decide_between_equal_items():
    """Vectors of length 1 are of length 1 only up to rounding; to somebody new, learned alone, they are all alike."""
    vectors = np.random.default_rng(0).standard_normal((300, 16)).astype(np.float32)
    shop, tree = tw.Catalogue(range(300), vectors), tw.ItemTree.flat(vectors)
    made = tw.Explorer(shop, tree, tw.Flat(budget=None), seed=0, crowd=False)
    items = [d.item for d in made.recommend([f"u{i}" for i in range(3000)])]
    counts = np.bincount(items, minlength=300)
    assert ((counts - 10) ** 2 / 10).sum() < 378  # chi-square, 299 degrees of freedom, p = 0.001


def test_one_event_has_the_numba_type_of_many(shop, tmp_path):
    """Of another kind, it would be learned by newly compiled kernels: the first user to come back would wait."""
    store = tw.SQLiteStore(tmp_path / "events.db")
    with tw.Explorer(shop, store=store, memory=1 << 22) as explorer:
        for user in ("ada", "bob", "bob"):
            [made] = explorer.recommend([user])
            explorer.feedback({made.id: 1.0})
        seen = [explorer._snapshot.decider.states.events_for_plan(store.read([user])[0]) for user in ("ada", "bob")]
    assert len(seen[0].kind) < len(seen[1].kind)
    assert numba.typeof(seen[0]) == numba.typeof(seen[1])


@pytest.mark.parametrize("items", [5, (one for one in [5]), "5", []], ids=["item", "generator", "text", "empty"])
def test_adopting_needs_a_list_of_items(shop, tree, items):
    with pytest.raises(InvalidArgument, match="items"):
        explorer(shop, tree).adopt("ada", items)
