"""Contract checks: what every bandit, policy and store promises, to run on one of your own.

Each returns nothing, or raises `ContractBroken` with what is wrong. treeward runs them on everything it registers::

    from treeward.testing import check_policy

    def test_my_policy_keeps_its_promises():
        check_policy(MyPolicy())
"""

from collections.abc import Callable

import numpy as np
import polars as pl

from treeward.bandit import Bandit, Prior
from treeward.bandit.choose import Candidates, best_of
from treeward.bandit.posterior import Posterior, learn, reset
from treeward.core.errors import StoreError
from treeward.core.types import AnyArray
from treeward.explorer.explorer import Explorer
from treeward.policy.base import Policy
from treeward.simulate.run import simulate
from treeward.simulate.world import World
from treeward.store.base import EventStore
from treeward.store.events import CHANGE, EVENT, SHOWN, Kept, event
from treeward.store.memory import MemoryStore
from treeward.tree.item_tree import ItemTree


class ContractBroken(AssertionError):
    """A promise was not kept."""


def _require(kept: object, promise: str) -> None:
    if not kept:
        raise ContractBroken(f"broken: {promise}")


def check_bandit(bandit: Bandit) -> None:
    """Check that a bandit makes a usable rule: it explores, learns which arm is best, and depends on its seed alone.

    Examples
    --------
    >>> from treeward.bandit import LinUCB
    >>> check_bandit(LinUCB(alpha=0.5))
    """
    dim, rule = 4, bandit.rule(4)
    _require(rule.kind in range(4), "the rule's kind is one of those in treeward.bandit.rules")
    _require(np.isfinite(rule.strength) and rule.strength >= 0, "the rule's strength is finite and not negative")
    _require(np.isfinite(rule.ridge) and rule.ridge > 0, "the rule's ridge is finite and above 0")
    made, arms = Posterior.empty(1, 1, dim), np.eye(dim, dtype=np.float32)
    reset(made, 0, Prior().start(dim, rule.ridge))
    candidates, z = Candidates.empty(dim, dim), np.empty(dim, dtype=np.float32)
    candidates.vectors[:] = arms

    def choices(seed: int) -> list[int]:
        inverse, theta = made.inverse[0, 0], made.theta[0, 0]
        return [
            best_of(rule.kind, rule.strength, inverse, theta, candidates.vectors, candidates, seed, 0, turn << 16)
            for turn in range(1_000)
        ]

    _require(set(choices(0)) == set(range(dim)), "every arm is tried when nothing is known of any")
    for _ in range(400):
        for arm in range(dim):
            learn(made, 0, 0, arms[arm], 1.0 if arm == 2 else 0.0, z)
            candidates.visits[arm] += 1
            candidates.rewards[arm] += 1.0 if arm == 2 else 0.0
    _require(np.bincount(choices(0)).argmax() == 2, "an arm that is known to be best is taken most often")
    _require(choices(1) == choices(1), "the same seed gives the same choices")


def check_policy(policy: Policy) -> None:
    """Check that a policy keeps its budget, shows what exists, learns, and depends on its seed and the events alone.

    For a policy without shared state also: users do not touch each other, batch equals singles, feedback may come late
    and out of order, and an `Explorer` rebuilds from the events what was there live.

    Examples
    --------
    >>> from treeward.policy import HCB
    >>> check_policy(HCB())
    """
    world = World.synthetic(items=600, users=40, dim=8, seed=3)
    tree = ItemTree.build(world.catalogue.vectors, (5, 25), seed=0)
    rounds = 120

    def run(**options: object) -> AnyArray:
        result = simulate(policy, world, tree, rounds=rounds, **options)  # type: ignore[arg-type]
        if policy.budget is not None:
            allowed = policy.budget * (2 if policy.split == "authors" else 1)
            _require(result.scores.max() <= allowed, f"at most {allowed} scores a round")
        return result.rewards

    rewards = run(seed=1)
    _require(
        np.array_equal(rewards, run(seed=1, threads=1)), "the same seed gives the same run, on any number of threads"
    )
    _require(not np.array_equal(rewards, run(seed=2)), "another seed gives another run")
    _require(rewards.sum(axis=1).mean() > 1.2 * rounds * world.base_rate(), "it earns more than random items")
    session = policy.session(tree, world.catalogue, 40, once=True, seed=1)
    shown: dict[int, set[int]] = {user: set() for user in range(40)}
    for turn in range(20):
        made = session.select(range(40), turn)
        for user, item in zip(made.user.tolist(), made.item.tolist(), strict=True):
            _require(0 <= item < 600, "what is chosen is an item of the catalogue")
            _require(item not in shown[user], "an item is shown once, if once is asked for")
            shown[user].add(item)
        _require(((made.propensity > 0) & (made.propensity <= 1)).all(), "propensities are probabilities")
        session.update(made, world.chances(made.user, made.item))
    few = [(37 * i) % 600 for i in range(60)]
    made = policy.session(tree, world.catalogue, 40, seed=1).select(range(40), 0, allow=few)
    _require(set(made.item.tolist()) <= set(few), "only what is allowed is shown, if there is a list of that")
    if not policy.shared_state:
        _check_users_apart(policy, world, tree)
    if policy.replayable and not policy.shared_state:
        _check_explorer(policy, world, tree)


def _check_users_apart(policy: Policy, world: World, tree: ItemTree) -> None:
    together, apart = (policy.session(tree, world.catalogue, 4, seed=5) for _ in range(2))
    for turn in range(30):
        made = together.select(range(4), turn)
        singles = [apart.select([user], turn) for user in (2, 0, 3, 1)]
        for single in singles:
            [user] = single.user.tolist()
            mine = made.take([user])
            same = all(getattr(mine, name).tobytes() == getattr(single, name).tobytes() for name in single._fields)
            _require(same, "deciding for users together is deciding for them one by one")
            apart.update(single, world.chances(single.user, single.item))
        together.update(made, world.chances(made.user, made.item))


def _check_explorer(policy: Policy, world: World, tree: ItemTree) -> None:
    live = Explorer(world.catalogue, tree, policy, seed=0)
    waiting = []
    for turn in range(40):
        waiting.append(live.recommend(["ada"])[0])
        if turn % 3 == 2:  # late, and the last first
            rewards = {made.id: float(made.mean > 0.1 or turn % 2) for made in waiting[::-1][:2]}
            live.feedback(rewards)
            before = live.store.count("ada")
            live.feedback(rewards)
            _require(live.store.count("ada") == before, "feedback given again changes nothing")
    rebuilt = Explorer(world.catalogue, tree, policy, live.store, seed=0)
    for one, other in zip(live.interests("ada"), rebuilt.interests("ada"), strict=True):
        _require(one == other, "what is rebuilt from the events is what was there live, to the bit")


def check_store(make: Callable[[], EventStore]) -> None:
    """Check that a store keeps events as `EventStore` says; `make` opens a new, empty one.

    Examples
    --------
    >>> from treeward.store import MemoryStore
    >>> check_store(MemoryStore)
    """
    store = make()
    try:
        _check_events(store)
        _check_moves(store)
        _check_numbers(store)
        _check_head(store)
    finally:
        store.close()


def _check_events(store: EventStore) -> None:
    _require(store.count("nobody") == 0 and len(store.read("nobody")) == 0, "somebody unknown has no events")
    _require(list(store.users()) == [] and store.size() == 0, "a new store is empty")
    first, second = event(1, 0.25, nonce=11, node=4, snapshot=3), event(2, 1.0, nonce=12)
    _require(store.append(["ada"], first).tolist() == [True], "a new event is new")
    _require(store.append(["ada", 7], np.concatenate([second, second])).all(), "users have decisions of their own")
    _require(not store.append(["ada"], first).any(), "the same reward of a decision is not added twice")
    _require(not store.append(["ada"], event(1, 0.75, nonce=11)).any(), "nor is another one")
    change = event(1, 0.5, nonce=11, kind=CHANGE)
    _require(not store.append(["ada"], change, np.array([2])).any(), "a change is not added if another came first")
    _require(store.append(["ada"], change, np.array([1])).all(), "a change is added if none came in between")
    _require(store.append(["ada"], event(9, 0.0, nonce=13, kind=SHOWN)).all(), "an exposure is added")
    _require(store.append(["ada"], event(9, 0.5, nonce=13)).all(), "and the reward after it")
    _require(
        store.append(["ada", "ada"], np.concatenate([event(5, 1.0)] * 2)).all(), "imported events have no decision"
    )
    _require(store.append([], np.zeros(0, dtype=EVENT)).tolist() == [], "nothing is added to nobody")
    seen = store.read("ada")
    _require(seen["item"].tolist() == [1, 2, 1, 9, 9, 5, 5], "events are read in the order they came")
    _require(seen[:1].tobytes() == first.tobytes(), "an event is read as it was written")
    _require(store.count("ada") == 7, "events are counted")
    _require(store.counts(["nobody", "ada", 7]) == [0, 7, 1], "and those of several users")
    _require(store.read("ada", after=5)["item"].tolist() == [5, 5], "the first events can be left out")
    _require(store.rewards_of("ada", 11) == [0.25, 0.5], "a decision's reward is read with its changes")
    _require(store.rewards_of("ada", 99) == store.rewards_of("nobody", 11) == [], "no reward, no list")
    seen["item"] = 0
    _require(store.read("ada")["item"].tolist() == [1, 2, 1, 9, 9, 5, 5], "what was read is a copy")
    store.append(["eric"], event(3, 0.5, nonce=77, kind=SHOWN), within=60.0)
    _require(store.count("eric") == 1, "what may be safe later can be read at once")
    store.flush()
    before = store.epoch
    store.forget("eric")
    _require(store.count("eric") == 0, "nothing is left of somebody forgotten")
    late = store.append(["ada"], event(1, 1.0, nonce=78), epoch=before)
    _require(not late.any() and store.count("ada") == 7, "nothing is added for users of another epoch")
    many = np.concatenate([event(item, 0.0) for item in range(5)])
    store.extend(["bob", "nobody", "ada"], np.array([3, 0, 2]), many)
    _require(store.read("bob")["item"].tolist() == [0, 1, 2], "many events are cut as they should be")
    _require(store.read("ada", after=7)["item"].tolist() == [3, 4], "and put behind what was there")
    _require(sorted(map(str, store.users())) == ["7", "ada", "bob"], "all users are listed, but none without events")
    _require(store.size() == 3, "and counted")
    everything = {user: events["item"].tolist() for user, events in store.read_all()}
    _require(
        everything == {user: store.read(user)["item"].tolist() for user in store.users()}, "all is read as one by one"
    )
    parts = sorted(item for part in store.chunks() for item in part["item"].tolist())
    _require(parts == sorted(item for part in everything.values() for item in part), "all is read many at a time")
    for name in ("ünïcode 🌳", "", "7", "a\x00b", "x" * 512, -(2**63), 2**63 - 1):
        store.append([name], event(1, 1.0))
        _require(store.count(name) == 1, f"the user {name!r:.20} is somebody of their own")
    _require(store.read(7)["nonce"].tolist() == [12], "the integer 7 and the string '7' are two users")


def _check_moves(store: EventStore) -> None:
    epoch = store.epoch
    store.append(["anna"], event(1, 1.0, nonce=51))
    store.append(["eve"], event(2, 1.0, nonce=52))
    store.keep("eve", Kept(1, epoch, b"state"))
    kept = store.kept("eve")
    _require(kept is None or kept == (1, epoch, b"state"), "a state is kept as it was, or not at all")
    _require(store.resolve("anna", epoch) == "anna", "a user is who they are")
    _require(store.merge("anna", "eve") == 1, "merging tells how many events moved")
    _require(store.read("eve")["item"].tolist() == [2, 1], "the events moved come last")
    _require(store.count("anna") == 0, "nothing stays behind")
    _require(store.resolve("anna", epoch) == "eve", "decisions of before move along")
    _require(store.epoch > epoch and store.resolve("anna", store.epoch) == "anna", "those of after do not")
    _require(not store.append(["eve"], event(1, 1.0, nonce=51)).any(), "a reward that moved is not added again")
    later = store.epoch
    _require(store.forget("eve") == 2, "forgetting tells how many events there were")
    _require(store.count("eve") == 0 and store.kept("eve") is None, "nothing is left of somebody forgotten")
    store.keep("eve", Kept(2, later, b"state"))
    _require(store.kept("eve") is None, "a state of before they were forgotten is not kept after it")
    _require(store.resolve("eve", later) is None, "their decisions are unknown")
    _require(store.resolve("anna", epoch) is None, "and those that had moved to them")
    _require(store.resolve("eve", store.epoch) == "eve", "they may come back as somebody new")
    _require(store.forget("nobody at all") == 0, "somebody unknown can be forgotten")
    start = store.epoch
    store.merge("w1", "w2")
    store.merge("w2", "w3")
    store.forget("w2")
    _require(store.resolve("w1", start) == "w3", "forgetting somebody does not touch those who moved on before")
    store.forget("w3")
    _require(store.resolve("w1", start) is None, "forgetting reaches everybody they had become")


def _check_numbers(store: EventStore) -> None:
    numbers = store.number_items(pl.Series(["a", "b", "c"]))
    _require(len(set(numbers.tolist())) == 3 and numbers.dtype == np.int32, "items have numbers of their own")
    again = store.number_items(pl.Series(["c", "d", "a"])).tolist()
    _require([again[0], again[2]] == [numbers[2], numbers[0]], "an item keeps its number")
    _require(again[1] not in numbers.tolist(), "a new item gets a new one")
    trees = store.number_snapshot("one"), store.number_snapshot("two"), store.number_snapshot("one")
    _require(trees[0] == trees[2] != trees[1], "a tree keeps its number")
    _require(len(store.secret()) >= 16 and store.secret() == store.secret(), "the secret is long, and stays")
    _require(store.begin() != store.begin(), "no two beginnings are the same")
    store.take_note("one", b"1")
    store.take_note("one", b"2")
    _require((store.note("one"), store.note("other")) == (b"2", None), "notes are kept, the last one of a name")
    kept = store.take_note("two/b", b"3", new=True), store.take_note("two/b", b"4", new=True)
    _require(kept == (True, False) and store.note("two/b") == b"3", "a new note never takes an older one's place")
    store.take_note("two/a", b"5")
    listed = store.notes("two/"), store.notes("two/", "two/a")
    _require(listed == ([("two/a", b"5"), ("two/b", b"3")], [("two/b", b"3")]), "notes are listed by name")


def _check_head(store: EventStore) -> None:
    head = store.head()
    _require(head.secret == store.secret() and head.epoch == store.epoch, "its head is the store's own")
    _require(store.number_items(head.items).tolist() == list(range(len(head.items))), "items are in their order")
    _require([store.number_snapshot(one) for one in head.snapshots] == [0, 1], "so are trees")
    _require(not head.unfinished and not store.unfinished, "a store is no unfinished copy by itself")
    copy = MemoryStore()
    copy.adopt(head._replace(unfinished=True))
    _require(copy.head() == head._replace(unfinished=True, items=copy.head().items), "a head is taken over whole")
    store.adopt(head._replace(unfinished=True))
    _require(store.unfinished and store.head().moves == head.moves, "a head of one's own can be taken over")
    store.adopt(head)
    _require(not store.unfinished and store.resolve("w1", 0) == copy.resolve("w1", 0), "and means the same")
    try:
        store.adopt(head._replace(secret=bytes(32)))
    except StoreError:
        return
    raise ContractBroken("broken: a store that has events does not take over another's head")
