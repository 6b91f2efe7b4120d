"""The crowd: what everybody taught, as sums, as editions, and in decisions."""

import json
from contextlib import nullcontext
from threading import Thread

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import treeward as tw
from treeward.bandit.item_sums import ItemSums
from treeward.bandit.shared_taste import (
    ITEM_SHRINKAGE,
    RIDGE,
    SharedTaste,
    Sums,
    doubt,
    item_effects,
    noise_of,
    shared_taste,
    spread_of,
)
from treeward.core.errors import ArtefactCorrupt, ArtefactError, InvalidArgument
from treeward.data.synthetic import synthetic_catalogue
from treeward.engine.crowd import CREST, crests
from treeward.explorer.crowd_edition import CrowdEdition
from treeward.explorer.crowd_keeper import NOTE
from treeward.explorer.runtime import Runtime
from treeward.explorer.snapshot import Snapshot
from treeward.policy import TREE_POLICIES
from treeward.store.base import everyone, forget
from treeward.store.events import CHANGE, EVENT, NOTED, REWARD, SHOWN
from treeward.store.numbers import number_items

DIM = 6


@pytest.fixture(scope="module")
def shop():
    return synthetic_catalogue(400, dim=DIM, seed=0)


def explorer_of(shop, policy=None, store=None, **options):
    return tw.Explorer(shop, None, policy, store, **{"seed": 0, "memory": 1 << 23, **options})


def play(explorer, visits, users=30, first=0, good=lambda item: item % 5 == 0):
    """Let users come in turn; they click on what is good."""
    for visit in range(first, first + visits):
        [made] = explorer.recommend([f"u{visit % users}"])
        explorer.feedback({made.id: float(good(made.item))})


def events_of(rows):
    made = np.zeros(len(rows), dtype=EVENT)
    for at, (item, reward, kind, time) in enumerate(rows):
        made[at]["item"], made[at]["reward"], made[at]["kind"], made[at]["time"] = item, reward, kind, time
        made[at]["nonce"] = 77
    return made


def test_squares_of_large_rewards_are_exact_in_any_batching():
    events = events_of([(0, 1e6, REWARD, 0)] * 100)
    together, apart = ItemSums(), ItemSums()
    together.add(events)
    for at in range(len(events)):
        apart.add(events[at : at + 1])
    assert together.squares == apart.squares == 1e14
    together.add(events, -1)
    assert together.squares == 0


def test_a_changed_reward_counts_like_a_final_one(shop):
    noise = []
    for changed in (False, True):
        explorer = explorer_of(shop, on_repeat="last", publishes=False)
        for visit in range(60):
            [made] = explorer.recommend([f"u{visit}"])
            if changed:
                explorer.feedback({made.id: float(visit % 2)})
                explorer.feedback({made.id: 0.5})
            explorer.feedback({made.id: float(visit % 3 == 0)})
        explorer.publish()
        noise.append(explorer.crowd_keeper.latest.taste.noise)
    assert noise[1] == pytest.approx(noise[0], rel=1e-5)


def test_rewards_of_missing_items_do_not_raise_the_noise(shop):
    explorer = explorer_of(shop, policy=tw.Flat(), publishes=False)
    coin = np.random.default_rng(0)
    play(explorer, 300, good=lambda item: coin.random() < 0.5)  # whatever the item: noise is the same for any of them
    explorer.publish()
    before, store = explorer.crowd_keeper.latest, explorer.store
    left = explorer.catalogue.ids.filter(np.arange(len(shop)) % 4 == 0)
    rows = shop.rows(left)
    fewer = tw.Catalogue(left, shop.vectors[rows])
    after = explorer_of(fewer, policy=tw.Flat(), store=store, publishes=False).crowd_keeper.latest
    assert after.times.sum() < 0.6 * before.times.sum()
    assert after.taste.noise == pytest.approx(before.taste.noise, rel=0.25)


@pytest.mark.parametrize("held", [True, False])
def test_a_reward_during_erasure_leaves_no_trace(shop, held):
    class Slow(tw.MemoryStore):
        def move(self, source, target):
            with self._lock if held else nullcontext():  # the reward comes after the user is erased, or before
                thread = Thread(target=explorer.rewards.record_each, args=([(late.pop(), 1.0)],))
                thread.start()
                thread.join(0.2)
                threads.append(thread)
                return super().move(source, target)

    late, threads = [], []
    explorer = explorer_of(shop, store=Slow(), publishes=False)
    first, second = explorer.recommend(["ada"], n=2)
    explorer.feedback({first.id: 1.0})
    late.append(second.id)
    explorer.forget("ada")
    for thread in threads:
        thread.join()
    assert threads
    assert explorer.crowd_keeper.sums.rewards == 0
    assert explorer.crowd_keeper.sums.equals(ItemSums())


def test_a_reward_on_its_way_counts_once_though_a_user_is_erased_in_the_store(shop, monkeypatch):
    explorer = explorer_of(shop, publishes=False)
    [ada], [bob] = explorer.recommend(["ada"]), explorer.recommend(["bob"])
    explorer.feedback({bob.id: 1.0})
    keeper, add = explorer.crowd_keeper, explorer.crowd_keeper.add

    publish = Thread(target=explorer.publish)

    def late(*given):  # the store has the reward, the crowd does not yet
        forget(explorer.store, "bob")
        publish.start()
        add(*given)

    monkeypatch.setattr(keeper, "add", late)
    explorer.feedback({ada.id: 1.0})
    publish.join()
    held = keeper.sums
    keeper.recount()
    assert held.rewards == 1
    assert held.equals(keeper.sums)


logs = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.floats(-10, 10, allow_nan=False),
        st.sampled_from([SHOWN, REWARD, CHANGE, NOTED]),
        st.integers(1, 10**6),
    ),
    max_size=40,
)


@given(logs, st.integers(1, 7), st.randoms())
def test_sums_are_the_same_in_any_batching_and_order(rows, size, random):
    whole, parts = ItemSums(), ItemSums()
    whole.add(events_of(rows))
    mixed = list(rows)
    random.shuffle(mixed)
    for first in range(0, len(mixed), size):
        parts.add(events_of(mixed[first : first + size]))
    assert whole.equals(parts)
    assert whole.squares == parts.squares
    taught = [row for row in rows if row[2] == REWARD]
    assert whole.rewards == len(taught)
    for item in range(10):
        mine = [row for row in rows if row[0] == item and row[2] in (REWARD, CHANGE)]
        count = whole.count[item] if item < len(whole) else 0
        assert count == sum(row[2] == REWARD for row in mine)
        if count:
            assert whole.total[item] == pytest.approx(sum(row[1] for row in mine), abs=1e-5)


@given(logs, logs)
def test_subtracting_leaves_no_trace(kept, erased):
    sums, never = ItemSums(), ItemSums()
    sums.add(events_of(kept + erased))
    sums.add(events_of(erased), -1)
    never.add(events_of(kept))
    assert sums.equals(never)
    assert sums.squares == never.squares


def test_rewards_fade_by_their_half_life():
    day = 86_400
    sums = ItemSums(half_life=2.0)
    sums.add(events_of([(0, 1.0, REWARD, 10 * day), (1, 1.0, REWARD, 8 * day)]))
    assert sums.count.tolist() == pytest.approx([1.0, 0.5])
    sums.add(events_of([(2, 1.0, REWARD, 14 * day)]))
    assert sums.count.tolist() == pytest.approx([0.25, 0.125, 1.0])
    sums.add(events_of([(2, 1.0, REWARD, 114 * day)]))  # many half-lives later: what is old is scaled down
    assert sums.count[2] == pytest.approx(1.0)
    assert sums.total[0] == pytest.approx(0.0, abs=1e-12)
    assert sums.mean_of(2) == pytest.approx(1.0)


def dense_posterior(x, rewards_of, noise):
    """Return mu and gamma of r = x'mu + gamma_i + noise by one dense Gaussian posterior over both."""
    items, dim = x.shape
    design, rewards = [], []
    for item, given_to in enumerate(rewards_of):
        for reward in given_to:
            row = np.zeros(dim + items)
            row[:dim], row[dim + item] = x[item], 1.0
            design.append(row)
            rewards.append(reward)
    design, rewards = np.array(design), np.array(rewards)
    prior = np.diag(np.concatenate([np.full(dim, RIDGE), np.full(items, ITEM_SHRINKAGE)]))
    precision = prior + design.T @ design  # in units of the noise
    mean = np.linalg.solve(precision, design.T @ rewards)
    covariance = np.linalg.inv(precision) * noise
    return mean[:dim], mean[dim:], covariance


def test_taste_and_item_effects_are_those_of_a_dense_posterior():
    """The naive twin: all unknowns in one vector, no sums, no integration by hand."""
    random = np.random.default_rng(0)
    x = random.standard_normal((7, 4)).astype(np.float32)
    rewards_of = [random.random(count) for count in (3, 1, 0, 5, 2, 8, 1)]
    seen = np.array([item for item, some in enumerate(rewards_of) if len(some)])
    sums = Sums(
        seen,
        np.array([len(rewards_of[item]) for item in seen], dtype=float),
        np.array([rewards_of[item].sum() for item in seen]),
        sum(float((some**2).sum()) for some in rewards_of),
    )
    nobody = tw.Crowd(np.zeros(4), np.eye(4), lengths=(0.0, 1.0))
    taste = shared_taste(nobody, x, sums)
    mu, gamma, covariance = dense_posterior(x.astype(float), rewards_of, taste.noise)
    np.testing.assert_allclose(taste.mean, mu, atol=1e-6)
    np.testing.assert_allclose(item_effects(taste, x, sums), gamma[seen], atol=1e-6)
    np.testing.assert_allclose(np.linalg.inv(taste.precision) * taste.noise, covariance[:4, :4], atol=1e-6)
    # How uncertain x'mu is, is the same; gamma's own part is given mu.
    shared = np.sqrt(np.einsum("ij,jk,ik->i", x, covariance[:4, :4], x))
    np.testing.assert_allclose(doubt(taste, x, np.zeros(0)), shared, rtol=1e-4)


def test_a_users_taste_given_the_crowd_is_the_posterior_around_it(shop):
    """What an explorer holds of a user: the dense posterior around mu, of rewards less the item effects."""
    explorer = explorer_of(shop)
    play(explorer, 240)
    explorer.publish()
    seats, plan, edition = (
        explorer._snapshot.decider.states,
        explorer._snapshot.decider.plan,
        explorer._snapshot.decider.edition,
    )
    [seat] = seats.seat(["u3"])
    events = explorer.store.read(["u3"])[0]
    events = events[events["kind"] == REWARD]
    place = explorer._snapshot.decider.positions.place_of_number[events["item"]]
    x, left = plan.items[place].astype(float), events["reward"] - plan.crowd.offset[place]
    precision = np.linalg.inv(edition.taste.spread)
    theta = np.linalg.solve(precision + x.T @ x, precision @ edition.taste.mean + x.T @ left)
    np.testing.assert_allclose(seats.state.posterior.theta[seat, 0], theta, atol=2e-5)


def test_noise_is_what_varies_within_items():
    random = np.random.default_rng(0)
    means = random.random(50)
    rewards = means[:, None] + 0.3 * random.standard_normal((50, 200))
    sums = Sums(np.arange(50), np.full(50, 200.0), rewards.sum(axis=1), float((rewards**2).sum()))
    assert noise_of(sums, 1.0) == pytest.approx(0.09, rel=0.05)
    assert noise_of(Sums(*(np.zeros(0),) * 3, 0.0), 0.7) == 0.7


def test_spread_is_found_where_users_differ():
    random = np.random.default_rng(1)
    taste = SharedTaste(np.zeros(3), np.eye(3), 0.3 * np.eye(3), 0.04)
    users = []
    for _ in range(800):
        own = random.standard_normal(3) * np.sqrt(0.04 * np.array([4.0, 0.5, 0.0]))
        x = random.standard_normal((6, 3)).astype(np.float32)
        users.append((x, x @ own + 0.2 * random.standard_normal(6)))
    found = taste
    for _ in range(10):  # each call goes on from the spread before
        found = found._replace(spread=spread_of(found, users))
    np.testing.assert_allclose(np.diag(found.spread), [4.0, 0.5, 0.01], atol=0.5)
    assert spread_of(taste, []) is taste.spread


def test_crests_are_the_highest_offsets_under_each_node(shop):
    tree = tw.ItemTree.build(shop.vectors, (4, 30), seed=0)
    random = np.random.default_rng(0)
    worth, open = random.standard_normal(400).astype(np.float32), random.random(400) < 0.7
    crest, mean = np.empty((len(tree.parent), CREST), np.float32), np.empty(len(tree.parent), np.float32)
    crests(worth, open, tree.first_child, tree.item_range, crest, mean)
    for node, (first, last) in enumerate(tree.item_range):
        best = np.sort(worth[first:last][open[first:last]])[::-1][:CREST]
        if len(best):
            np.testing.assert_array_equal(crest[node, : len(best)], best)
            assert (crest[node, len(best) :] == best[-1]).all()
            assert mean[node] == pytest.approx(best.mean(), rel=1e-5)
        else:
            assert not crest[node].any()


@pytest.mark.parametrize("bandit", [tw.LinUCB(), tw.Thompson(), tw.EpsilonGreedy()], ids=str)
@pytest.mark.parametrize("name", TREE_POLICIES)
def test_every_policy_works_with_the_crowd(name, bandit, shop):
    """Decisions name their edition, can be made again, and a newcomer profits from what others clicked."""
    labelled = tw.Catalogue(shop.ids, shop.vectors, categories=[f"c{i % 9}" for i in range(400)])
    explorer = explorer_of(labelled, TREE_POLICIES[name](bandit))
    play(explorer, 120)
    assert explorer.publish() == explorer._snapshot.decider.edition.number > 1
    made = explorer.recommend(["u1", "u2", "newcomer"], n=2)
    assert {one.edition for one in made} == {explorer._snapshot.decider.edition.number}
    play(explorer, 60)  # another edition comes, and the first is still held
    explorer.publish()
    for one in made:
        told = explorer.explain(one)
        assert told.reproduced, told
    assert np.isfinite([one.mean for one in made]).all()


@pytest.mark.parametrize("name", ["beam", "phcb", "hcb"])
def test_rebuilt_states_equal_live_states_with_the_crowd(name, shop):
    """Under one edition: one by one, in a batch, with one seat, or from the store: the same decisions."""
    store = tw.MemoryStore()
    live = explorer_of(shop, TREE_POLICIES[name](), store)
    play(live, 150)
    live.publish()
    users = [f"u{i}" for i in range(12)]
    frozen = {"store": store, "publishes": False}
    states = []
    for most in (1 << 23, live._snapshot.decider.states.each + 1):
        again = explorer_of(shop, TREE_POLICIES[name](), memory=most, **frozen)
        assert again._snapshot.decider.edition.same_as(live._snapshot.decider.edition._replace(time=0.0))
        found = []
        for user in users:
            [seat] = again._snapshot.decider.states.seat([user])
            found.append(again._snapshot.decider.states.state.posterior.theta[seat].copy())
        states.append(found)
    np.testing.assert_array_equal(states[0], states[1])
    seats = live._snapshot.decider.states
    for user, theta in zip(users, states[0], strict=True):
        [seat] = seats.seat([user])
        np.testing.assert_array_equal(seats.state.posterior.theta[seat], theta)


def test_new_users_are_shown_what_others_liked(shop):
    """A shop where a fifth of the items is good to everybody, whatever their vectors say."""
    alone, together = explorer_of(shop, crowd=False), explorer_of(shop)
    for explorer in (alone, together):
        play(explorer, 600, users=150)
    first = {
        explorer: np.mean([explorer.recommend([f"new{i}"])[0].item % 5 == 0 for i in range(40)])
        for explorer in (alone, together)
    }
    assert first[together] > 0.9
    assert first[alone] < 0.5


def test_erasing_a_user_leaves_the_sums_of_a_log_that_never_had_them(shop):
    explorer = explorer_of(shop)
    play(explorer, 200, users=10)
    without = tw.MemoryStore()
    for user in everyone(explorer.store):
        if user != "u4":
            held = explorer.store.read([user])[0]
            without.extend([user], np.array([len(held)]), held)
    number_items(without, shop.ids)
    explorer.forget("u4")
    assert explorer.crowd_keeper.sums.equals(explorer_of(shop, store=without).crowd_keeper.sums)
    explorer.publish()
    assert "u4" not in explorer.crowd_keeper._sums.sample


def test_a_user_erased_in_the_store_is_subtracted(shop):
    explorer = explorer_of(shop)
    play(explorer, 100, users=10)
    before = explorer.crowd_keeper.sums.rewards
    gone = int((explorer.store.read(["u4"])[0]["kind"] == REWARD).sum())
    forget(explorer.store, "u4")
    explorer.publish()
    assert explorer.crowd_keeper.sums.rewards == before - gone


def test_merged_users_teach_once(shop):
    explorer = explorer_of(shop)
    play(explorer, 100, users=10)
    before = explorer.crowd_keeper.sums
    explorer.merge("u4", "u5")
    explorer.publish()
    assert explorer.crowd_keeper.sums.equals(before)


def test_editions_are_published_automatically_or_by_a_call(shop):
    explorer = explorer_of(shop)
    assert explorer._snapshot.decider.edition.number == 1
    play(explorer, 49)
    assert explorer._snapshot.decider.edition.number == 1
    play(explorer, 2, first=49)
    assert explorer._snapshot.decider.edition.number == 2
    by_hand = explorer_of(shop, publishes=False)
    play(by_hand, 120)
    assert by_hand._snapshot.decider.edition.number == 1
    assert by_hand.publish() == 2
    assert by_hand.recommend(["ada"])[0].edition == 2


def test_without_a_crowd_users_are_learned_alone(shop):
    explorer = explorer_of(shop, crowd=False)
    [made] = explorer.recommend(["ada"])
    assert made.edition == 0
    assert explorer.crowd is None
    with pytest.raises(InvalidArgument, match="learned alone"):
        explorer.publish()
    fixed = explorer_of(shop, tw.Beam(prior=tw.Prior()))
    assert fixed.crowd is None


def test_a_restart_continues_from_the_last_edition(tmp_path, shop):
    with explorer_of(shop, store=tw.SQLiteStore(tmp_path / "events.db")) as explorer:
        play(explorer, 230)
        number = explorer.publish()
        edition = explorer._snapshot.decider.edition
    with explorer_of(shop, store=tw.SQLiteStore(tmp_path / "events.db")) as again:
        assert again._snapshot.decider.edition.number == number + 1
        assert again._snapshot.decider.edition.same_as(edition)


def test_a_damaged_edition_is_ignored_and_reported(tmp_path, shop):
    path = tmp_path / "events.db"
    with explorer_of(shop, store=tw.SQLiteStore(path)) as explorer:
        play(explorer, 120)
        explorer.publish()
        expected = explorer.crowd_keeper.sums
        held = bytearray(explorer.store.metadata.get(NOTE))
        held[len(held) // 2] ^= 1
        explorer.store.metadata.put({NOTE: bytes(held)})
    with explorer_of(shop, store=tw.SQLiteStore(path)) as again:
        assert "not what was written" in again.crowd_keeper.problem
        assert again.crowd_keeper.sums.equals(expected)
        assert again.recommend(["ada"])[0].edition == 1


def test_an_edition_for_other_vectors_is_ignored_and_reported(shop):
    store = tw.MemoryStore()
    explorer = explorer_of(shop, store=store)
    play(explorer, 60)
    explorer.publish()
    wider = explorer_of(synthetic_catalogue(400, dim=DIM + 2, seed=0), store=store)
    assert f"{DIM + 2} dimensions, the items have {DIM + 4}" in wider.crowd_keeper.problem
    assert wider.recommend(["ada"])[0].edition == 1


def test_editions_are_unpacked_unchanged(shop):
    explorer = explorer_of(shop)
    play(explorer, 80)
    explorer.publish()
    edition = explorer._snapshot.decider.edition
    again = CrowdEdition.unpacked(edition.packed())
    assert again.packed() == edition.packed()
    assert again.mean_reward == edition.mean_reward
    for torn in (b"", b"x" * 10, edition.packed()[:-1], edition.packed()[1:]):
        with pytest.raises(ArtefactCorrupt, match="not what was written"):
            CrowdEdition.unpacked(torn)


def test_a_saved_crowd_starts_another_explorer(tmp_path, shop):
    explorer = explorer_of(shop)
    play(explorer, 400, users=100)
    explorer.publish()
    explorer.crowd.save(tmp_path / "crowd")
    taken = tw.Crowd.load(tmp_path / "crowd")
    assert taken.users == explorer.crowd.users > 0
    np.testing.assert_array_equal(taken.earned, explorer.crowd.earned)
    elsewhere = explorer_of(shop, crowd=taken)
    liked = np.mean([elsewhere.recommend([f"n{i}"])[0].item % 5 == 0 for i in range(30)])
    assert liked > 0.9
    (tmp_path / "crowd" / "manifest.json").write_text(json.dumps({}))
    with pytest.raises(ArtefactError):
        tw.Crowd.load(tmp_path / "crowd")


def test_a_crowd_of_other_dimensions_is_refused(shop):
    other = tw.Crowd.empty(synthetic_catalogue(50, dim=DIM + 1, seed=0))
    with pytest.raises(InvalidArgument, match=f"of {DIM + 1} dimensions"):
        explorer_of(shop, crowd=other)
    with pytest.raises(InvalidArgument, match="True, False or a Crowd"):
        explorer_of(shop, crowd="yes")
    with pytest.raises(InvalidArgument, match="half_life"):
        explorer_of(shop, half_life=0)


def test_a_log_of_clicks_teaches_its_users_and_not_the_crowd(shop):
    """It says nothing of what was not clicked: everything would look as good as everything else."""
    explorer = explorer_of(shop)
    explorer.ingest(tw.Interactions(["ada"] * 5, [0, 5, 10, 15, 20]))
    explorer.publish()
    assert explorer.store.counts(["ada"])[0] == 5
    assert explorer.crowd_keeper.sums.rewards == 0


def test_changed_rewards_change_the_crowd(shop):
    explorer = explorer_of(shop, on_repeat="last")
    [made] = explorer.recommend(["ada"])
    explorer.feedback({made.id: 0.0})
    explorer.feedback({made.id: 1.0})
    number = explorer.store.read(["ada"])[0]["item"][-1]
    assert explorer.crowd_keeper.sums.mean_of(number) == 1.0
    frozen = explorer_of(shop, learns=False)
    [made] = frozen.recommend(["ada"])
    frozen.feedback({made.id: 1.0})
    assert frozen.crowd_keeper.sums.rewards == 0


def test_a_half_life_follows_changing_tastes(shop, monkeypatch):
    """Items that were good become bad: with a half-life the crowd follows, without it lags."""
    day, share = 86_400, {}
    for half_life in (None, 1.0):
        explorer = explorer_of(shop, half_life=half_life)
        for epoch, good in enumerate((lambda item: item % 5 == 0, lambda item: item % 5 == 1)):
            seconds = (100 + 10 * epoch) * day
            clock = Runtime(nanoseconds=lambda seconds=seconds: seconds * 1_000_000_000)
            monkeypatch.setattr(explorer.rewards, "_runtime", clock)
            play(explorer, 500, users=250, first=500 * epoch, good=good)
        share[half_life] = np.mean([explorer.recommend([f"n{i}"])[0].item % 5 == 1 for i in range(40)])
    assert share[1.0] > share[None] + 0.3


def test_added_items_start_uncertain_and_removed_ones_still_count(shop):
    explorer = explorer_of(shop, spare=0.2)
    play(explorer, 300, users=60)
    explorer.publish()
    plan = explorer._snapshot.decider.plan
    assert (plan.bonus[explorer._snapshot.open_places] > 0).all()
    taste = explorer._snapshot.decider.edition.taste
    shown = [int(i) for i in explorer.store.read(["u1"])[0]["item"][:3]]
    explorer.remove(shown)
    explorer.add(tw.Catalogue([1_000], shop.vectors[:1] + 0.01))
    place = explorer._snapshot.decider.positions.place_of_row[explorer.catalogue.row(1_000)]
    plan = explorer._snapshot.decider.plan
    assert plan.crowd.offset[place] == 0
    assert plan.bonus[place] == pytest.approx(plan.bonus[explorer._snapshot.open_places].max(), rel=0.5)
    explorer.publish()
    np.testing.assert_allclose(explorer._snapshot.decider.edition.taste.mean, taste.mean, atol=1e-9)
    explorer.rebuild()
    assert explorer.recommend(["u1"])[0].edition == explorer._snapshot.decider.edition.number
    assert len(explorer._snapshot.decider.plan.crowd.offset) == len(explorer._snapshot.decider.plan.items)


def test_publishing_during_decisions_and_changes_is_safe(shop):
    """Threads that publish, decide, add and remove at once: no error, and every edition is whole."""
    from concurrent.futures import ThreadPoolExecutor

    explorer = explorer_of(shop, spare=0.3, publishes=False)

    def decide(worker):
        for turn in range(60):
            made = explorer.recommend([f"w{worker}-{turn % 7}"])
            explorer.feedback({made[0].id: float(made[0].item % 5 == 0)})

    def change():
        for turn in range(20):
            explorer.add(tw.Catalogue([2_000 + turn], shop.vectors[turn : turn + 1]))
            explorer.remove([2_000 + turn])

    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(decide, worker) for worker in range(2)] + [pool.submit(change)]
        jobs.append(pool.submit(lambda: [explorer.publish() for _ in range(25)]))
        for job in jobs:
            job.result()
    explorer.publish()
    explorer.crowd_keeper.recount()
    assert explorer._snapshot.decider.edition.rewards == explorer.crowd_keeper.sums.rewards == 120


def test_an_edition_published_during_a_rebuild_is_installed_after_it(shop, monkeypatch):
    explorer = explorer_of(shop, spare=0.2, publishes=False)
    play(explorer, 60)
    explorer.publish()
    init = Snapshot.__init__

    def publish_after(self, *args, **options):
        init(self, *args, **options)
        monkeypatch.setattr(Snapshot, "__init__", init)
        play(explorer, 30, first=60)
        explorer.publish()

    monkeypatch.setattr(Snapshot, "__init__", publish_after)
    explorer.rebuild()
    assert explorer.crowd_keeper.latest.number == 3
    assert explorer._snapshot.decider.edition is explorer.crowd_keeper.latest
    assert explorer.recommend(["ada"])[0].edition == 3
