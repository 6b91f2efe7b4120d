"""What a store promises."""

from collections.abc import Callable

import numpy as np
import polars as pl

from treeward.core.errors import StoreError
from treeward.store.base import EventStore
from treeward.store.events import CHANGE, EVENT, SHOWN, Kept, event
from treeward.store.memory import MemoryStore
from treeward.testing.contract import ContractBroken, require


def check_store(make: Callable[[], EventStore], *, durable: bool = False) -> None:
    """Check that a store keeps events as `EventStore` says; `make` opens a new, empty one.

    With `durable`, also that all is there when the store was closed and `make` is called again.

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
        before = _all_of(store)
    finally:
        store.close()
    if durable:
        again = make()
        try:
            require(_all_of(again) == before, "what was kept is there when the store is opened again")
        finally:
            again.close()


def _all_of(store: EventStore) -> tuple[object, ...]:
    events = {user: mine.tobytes() for user, mine in store.read_all()}
    return events, store.head().plain()


def _check_events(store: EventStore) -> None:
    require(store.count("nobody") == 0 and len(store.read("nobody")) == 0, "somebody unknown has no events")
    require(list(store.users()) == [] and store.size() == 0, "a new store is empty")
    first, second = event(1, 0.25, nonce=11, node=4, snapshot=3), event(2, 1.0, nonce=12)
    require(store.append(["ada"], first).tolist() == [True], "a new event is new")
    require(store.append(["ada", 7], np.concatenate([second, second])).all(), "users have decisions of their own")
    require(not store.append(["ada"], first).any(), "the same reward of a decision is not added twice")
    require(not store.append(["ada"], event(1, 0.75, nonce=11)).any(), "nor is another one")
    change = event(1, 0.5, nonce=11, kind=CHANGE)
    require(not store.append(["ada"], change, np.array([2])).any(), "a change is not added if another came first")
    require(store.append(["ada"], change, np.array([1])).all(), "a change is added if none came in between")
    require(store.append(["ada"], event(9, 0.0, nonce=13, kind=SHOWN)).all(), "an exposure is added")
    require(store.append(["ada"], event(9, 0.5, nonce=13)).all(), "and the reward after it")
    require(store.append(["ada", "ada"], np.concatenate([event(5, 1.0)] * 2)).all(), "imported events have no decision")
    require(store.append([], np.zeros(0, dtype=EVENT)).tolist() == [], "nothing is added to nobody")
    seen = store.read("ada")
    require(seen["item"].tolist() == [1, 2, 1, 9, 9, 5, 5], "events are read in the order they came")
    require(seen[:1].tobytes() == first.tobytes(), "an event is read as it was written")
    require(store.count("ada") == 7, "events are counted")
    require(store.counts(["nobody", "ada", 7]) == [0, 7, 1], "and those of several users")
    require(store.read("ada", after=5)["item"].tolist() == [5, 5], "the first events can be left out")
    require(store.rewards_of("ada", 11) == [0.25, 0.5], "a decision's reward is read with its changes")
    require(store.rewards_of("ada", 99) == store.rewards_of("nobody", 11) == [], "no reward, no list")
    seen["item"] = 0
    require(store.read("ada")["item"].tolist() == [1, 2, 1, 9, 9, 5, 5], "what was read is a copy")
    store.append(["eric"], event(3, 0.5, nonce=77, kind=SHOWN), within=60.0)
    require(store.count("eric") == 1, "what may be safe later can be read at once")
    store.flush()
    before = store.epoch
    store.forget("eric")
    require(store.count("eric") == 0, "nothing is left of somebody forgotten")
    late = store.append(["ada"], event(1, 1.0, nonce=78), epoch=before)
    require(not late.any() and store.count("ada") == 7, "nothing is added for users of another epoch")
    many = np.concatenate([event(item, 0.0) for item in range(5)])
    store.extend(["bob", "nobody", "ada"], np.array([3, 0, 2]), many)
    require(store.read("bob")["item"].tolist() == [0, 1, 2], "many events are cut as they should be")
    require(store.read("ada", after=7)["item"].tolist() == [3, 4], "and put behind what was there")
    require(sorted(map(str, store.users())) == ["7", "ada", "bob"], "all users are listed, but none without events")
    require(store.size() == 3, "and counted")
    everything = {user: events["item"].tolist() for user, events in store.read_all()}
    require(
        everything == {user: store.read(user)["item"].tolist() for user in store.users()}, "all is read as one by one"
    )
    parts = sorted(item for part in store.chunks() for item in part["item"].tolist())
    require(parts == sorted(item for part in everything.values() for item in part), "all is read many at a time")
    for name in ("ünïcode 🌳", "", "7", "a\x00b", "x" * 512, -(2**63), 2**63 - 1):
        store.append([name], event(1, 1.0))
        require(store.count(name) == 1, f"the user {name!r:.20} is somebody of their own")
    require(store.read(7)["nonce"].tolist() == [12], "the integer 7 and the string '7' are two users")


def _check_moves(store: EventStore) -> None:
    epoch = store.epoch
    store.append(["anna"], event(1, 1.0, nonce=51))
    store.append(["eve"], event(2, 1.0, nonce=52))
    store.keep("eve", Kept(1, epoch, b"state"))
    kept = store.kept("eve")
    require(kept is None or kept == (1, epoch, b"state"), "a state is kept as it was, or not at all")
    require(store.resolve("anna", epoch) == "anna", "a user is who they are")
    require(store.merge("anna", "eve") == 1, "merging tells how many events moved")
    require(store.read("eve")["item"].tolist() == [2, 1], "the events moved come last")
    require(store.count("anna") == 0, "nothing stays behind")
    require(store.resolve("anna", epoch) == "eve", "decisions of before move along")
    require(store.epoch > epoch and store.resolve("anna", store.epoch) == "anna", "those of after do not")
    require(not store.append(["eve"], event(1, 1.0, nonce=51)).any(), "a reward that moved is not added again")
    later = store.epoch
    require(store.forget("eve") == 2, "forgetting tells how many events there were")
    require(store.count("eve") == 0 and store.kept("eve") is None, "nothing is left of somebody forgotten")
    store.keep("eve", Kept(2, later, b"state"))
    require(store.kept("eve") is None, "a state of before they were forgotten is not kept after it")
    require(store.resolve("eve", later) is None, "their decisions are unknown")
    require(store.resolve("anna", epoch) is None, "and those that had moved to them")
    require(store.resolve("eve", store.epoch) == "eve", "they may come back as somebody new")
    require(store.forget("nobody at all") == 0, "somebody unknown can be forgotten")
    start = store.epoch
    store.merge("w1", "w2")
    store.merge("w2", "w3")
    store.forget("w2")
    require(store.resolve("w1", start) == "w3", "forgetting somebody does not touch those who moved on before")
    store.forget("w3")
    require(store.resolve("w1", start) is None, "forgetting reaches everybody they had become")


def _check_numbers(store: EventStore) -> None:
    numbers = store.number_items(pl.Series(["a", "b", "c"]))
    require(len(set(numbers.tolist())) == 3 and numbers.dtype == np.int32, "items have numbers of their own")
    again = store.number_items(pl.Series(["c", "d", "a"])).tolist()
    require([again[0], again[2]] == [numbers[2], numbers[0]], "an item keeps its number")
    require(again[1] not in numbers.tolist(), "a new item gets a new one")
    trees = store.number_snapshot("one"), store.number_snapshot("two"), store.number_snapshot("one")
    require(trees[0] == trees[2] != trees[1], "a tree keeps its number")
    require(len(store.secret()) >= 16 and store.secret() == store.secret(), "the secret is long, and stays")
    require(store.begin() != store.begin(), "no two beginnings are the same")
    store.take_note("one", b"1")
    store.take_note("one", b"2")
    require((store.note("one"), store.note("other")) == (b"2", None), "notes are kept, the last one of a name")
    kept = store.take_note("two/b", b"3", new=True), store.take_note("two/b", b"4", new=True)
    require(kept == (True, False) and store.note("two/b") == b"3", "a new note never takes an older one's place")
    store.take_note("two/a", b"5")
    listed = store.notes("two/"), store.notes("two/", "two/a")
    require(listed == ([("two/a", b"5"), ("two/b", b"3")], [("two/b", b"3")]), "notes are listed by name")


def _check_head(store: EventStore) -> None:
    head = store.head()
    require(head.secret == store.secret() and head.epoch == store.epoch, "its head is the store's own")
    require(store.number_items(head.items).tolist() == list(range(len(head.items))), "items are in their order")
    require([store.number_snapshot(one) for one in head.snapshots] == [0, 1], "so are trees")
    require(not head.unfinished and not store.unfinished, "a store is no unfinished copy by itself")
    copy = MemoryStore()
    copy.adopt(head._replace(unfinished=True))
    require(copy.head() == head._replace(unfinished=True, items=copy.head().items), "a head is taken over whole")
    store.adopt(head._replace(unfinished=True))
    require(store.unfinished and store.head().moves == head.moves, "a head of one's own can be taken over")
    store.adopt(head)
    require(not store.unfinished and store.resolve("w1", 0) == copy.resolve("w1", 0), "and means the same")
    try:
        store.adopt(head._replace(secret=bytes(32)))
    except StoreError:
        return
    raise ContractBroken("broken: a store that has events does not take over another's head")
