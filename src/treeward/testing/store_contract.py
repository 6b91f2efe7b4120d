"""What a store promises."""

from collections.abc import Callable

import numpy as np
import polars as pl

from treeward.core.errors import InvalidArgument, StoreError
from treeward.core.types import AnyArray
from treeward.store.base import (
    EventStore,
    User,
    count_users,
    everyone,
    forget,
    merge,
    read_all,
    read_chunks,
    read_rewards,
)
from treeward.store.copy import copy, is_incomplete
from treeward.store.events import CHANGE, EVENT, SHOWN, event
from treeward.store.memory import MemoryStore
from treeward.store.metadata import begin
from treeward.store.numbers import item_ids, number_items, number_snapshot, snapshot_digests
from treeward.testing.contract import refuses, require


def check_store(make: Callable[[], EventStore], *, durable: bool = False) -> None:
    """Check that a store keeps events as `EventStore` says; `make` opens a new, empty one.

    With `durable`, also that everything is there when the store was closed and `make` is called again.

    Examples
    --------
    >>> from treeward.store import MemoryStore
    >>> check_store(MemoryStore)
    """
    store = make()
    try:
        require(isinstance(store, EventStore), "a store has all members of EventStore")
        _check_events(store)
        _check_bulk(store)
        _check_identities(store)
        _check_metadata(store)
        _check_numbers(store)
        before = _contents(store)
        _check_copy(store)
        require(store.status(probe=True).problem is None, "a store that works has no problem")
    finally:
        store.close()
    if durable:
        again = make()
        try:
            require(_contents(again) == before, "what was kept is there when the store is opened again")
        finally:
            again.close()


def _contents(store: EventStore) -> tuple[object, ...]:
    return {user: events.tobytes() for user, events in read_all(store)}, store.metadata.list()


def _count(store: EventStore, user: User) -> int:
    return store.counts([user])[0]


def _read(store: EventStore, user: User, after: int = 0) -> AnyArray:
    [events] = store.read([user], [after])
    return events


def _check_events(store: EventStore) -> None:
    require(_count(store, "nobody") == 0 and len(_read(store, "nobody")) == 0, "an unknown user has no events")
    require(list(everyone(store)) == [] and store.status().users == 0, "a new store is empty")
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
    require(store.append([], np.zeros(0, dtype=EVENT)).tolist() == [], "no users, no events")
    seen = _read(store, "ada")
    require(seen["item"].tolist() == [1, 2, 1, 9, 9, 5, 5], "events are read in the order they came")
    require(seen[:1].tobytes() == first.tobytes(), "an event is read as it was written")
    require(store.counts(["nobody", "ada", 7]) == [0, 7, 1], "events are counted")
    require(_read(store, "ada", 5)["item"].tolist() == [5, 5], "the first events can be left out")
    several = [events["item"].tolist() for events in store.read(["nobody", 7, "ada"], [0, 0, 6])]
    require(several == [[], [2], [5]], "several users are read at once")
    rewards = read_rewards(store, [("ada", 11), ("ada", 99), ("nobody", 11), ("ada", 13)])
    require(rewards == [[0.25, 0.5], [], [], [0.5]], "a decision's reward is read with its changes")
    seen["item"] = 0
    require(_read(store, "ada")["item"].tolist() == [1, 2, 1, 9, 9, 5, 5], "what was read is a copy")
    store.append(["eric"], event(3, 0.5, nonce=77, kind=SHOWN), within=60.0)
    require(_count(store, "eric") == 1, "what may be safe later can be read at once")
    store.flush()
    before = store.identities.epoch
    forget(store, "eric")
    late = store.append(["ada"], event(1, 1.0, nonce=78), epoch=before)
    require(not late.any() and _count(store, "ada") == 7, "nothing is added for users of another epoch")


def _check_bulk(store: EventStore) -> None:
    many = np.concatenate([event(item, 0.0) for item in range(5)])
    store.extend(["bob", "nobody", "ada"], np.array([3, 0, 2]), many, [0, 0, 7])
    require(_read(store, "bob")["item"].tolist() == [0, 1, 2], "each user gets their part of many events")
    require(_read(store, "ada", 7)["item"].tolist() == [3, 4], "and they are put behind what was there")
    add = lambda: store.extend(["bob", "cleo"], np.array([2, 3]), many, [3, 1])  # noqa: E731
    refuses(add, StoreError, "nothing is added to users who have another number of events")
    require(store.counts(["bob", "cleo"]) == [3, 0], "and then to none of them")
    require(sorted(map(str, everyone(store))) == ["7", "ada", "bob"], "all users are listed, but none without events")
    everything = {user: events["item"].tolist() for user, events in read_all(store)}
    require(count_users(store) == len(everything) == 3, "and counted")
    require(all(_read(store, user)["item"].tolist() == items for user, items in everything.items()), "and read")
    parts = sorted(item for part in read_chunks(store) for item in part["item"].tolist())
    require(parts == sorted(item for part in everything.values() for item in part), "all is read, many at a time")
    for name in ("ünïcode 🌳", "", "7", "a\x00b", "x" * 512, -(2**63), 2**63 - 1):
        store.append([name], event(1, 1.0))
        require(_count(store, name) == 1, f"the user {name!r:.20} is not mistaken for another")
    require(_read(store, 7)["nonce"].tolist() == [12], "the integer 7 and the string '7' are two users")


def _check_identities(store: EventStore) -> None:
    def resolve(user: User, epoch: int) -> User | None:
        return store.identities.resolve(user, epoch)

    def epoch() -> int:
        return store.identities.epoch

    secret, start = store.identities.secret, epoch()
    require(len(secret) >= 16, "the secret is long")
    store.append(["anna"], event(1, 1.0, nonce=51))
    store.append(["eve"], event(2, 1.0, nonce=52))
    require(resolve("anna", start) == "anna", "a user stays the same user")
    require(store.move("anna", "eve")["nonce"].tolist() == [51], "the events that moved are returned")
    require(_read(store, "eve")["item"].tolist() == [2, 1], "the events moved come last")
    require(_count(store, "anna") == 0, "nothing stays behind")
    require(resolve("anna", start) == "eve", "earlier decisions move along")
    require(epoch() > start and resolve("anna", epoch()) == "anna", "later ones do not")
    require(not store.append(["eve"], event(1, 1.0, nonce=51)).any(), "a reward that moved is not added again")
    later = epoch()
    require(forget(store, "eve") == 2, "forgetting returns how many events there were")
    require(_count(store, "eve") == 0, "nothing is left of a forgotten user")
    require(resolve("eve", later) is None, "their decisions are unknown")
    require(resolve("anna", start) is None, "and those that had moved to them")
    require(resolve("eve", epoch()) == "eve", "they may come back as a new user")
    require(forget(store, "nobody at all") == 0, "an unknown user can be forgotten")
    start = epoch()
    require([merge(store, "w1", "w2"), merge(store, "w2", "w3")] == [0, 0], "unknown users can be merged")
    forget(store, "w2")
    require(resolve("w1", start) == "w3", "forgetting a user does not touch those who moved on before")
    forget(store, "w3")
    require(resolve("w1", start) is None, "forgetting reaches everybody who had become that user")
    refuses(lambda: store.move("ada", "ada"), InvalidArgument, "nobody is merged with themselves")
    _check_owned(store)
    require(store.identities.secret == secret, "the secret stays")
    require(store.metadata.get("secret") == secret, "and is in the metadata")


def _check_owned(store: EventStore) -> None:
    values, owner_key, before = store.metadata, store.identities.owner_key, store.identities.epoch
    for user in ("mo", "nia"):
        key = f"about/{user}"
        values.put({key: b"told", owner_key(user, key): b""}, new=True, epoch=before)
    merge(store, "mo", "nia")
    late = values.put({"about/mo": b"late"}, epoch=before)
    require(not late and values.get("about/mo") == b"told", "no metadata is written for users of another epoch")
    require(not values.list(owner_key("mo")), "metadata about a user who is another now is the other's")
    keys = [owner_key("nia", f"about/{user}") for user in ("mo", "nia")]
    require(values.list(owner_key("nia")) == [(key, b"") for key in keys], "together with the other's own")
    forget(store, "nia")
    left = [values.get(f"about/{user}") for user in ("mo", "nia")], values.list(owner_key("nia"))
    require(left == ([b"", b""], []), "metadata about a forgotten user is empty")
    require(values.put({"about/mo": None, "about/nia": None}, epoch=store.identities.epoch), "metadata can be removed")
    require(values.list("about/") == [], "and is then gone")


def _check_metadata(store: EventStore) -> None:
    values = store.metadata
    values.put({"one": b"1"})
    values.put({"one": b"2", "zero": b""})
    require([values.get(key) for key in ("one", "zero", "other")] == [b"2", b"", None], "the last value is kept")
    written = values.put({"two/b": b"3"}, new=True), values.put({"two/b": b"4", "two/c": b""}, new=True)
    require(written == (True, False), "a new value never takes an older one's place")
    require((values.get("two/b"), values.get("two/c")) == (b"3", None), "and then nothing is written")
    values.put({"two/a": b"5"})
    listed = values.list("two/"), values.list("two/", "two/a")
    require(listed == ([("two/a", b"5"), ("two/b", b"3")], [("two/b", b"3")]), "values are listed by key")
    require(values.list("two/", most=1) == [("two/a", b"5")], "the first of them alone")
    values.put({"two/a": None, "two/d": b"6", "two/never": None})
    require([key for key, _ in values.list("two/")] == ["two/b", "two/d"], "a value of None removes a key")
    everything = values.list()
    require(everything == sorted(everything) and len(everything) >= 6, "and all of them")


def _check_numbers(store: EventStore) -> None:
    numbers = number_items(store, pl.Series(["a", "b", "c"]))
    require(numbers.dtype == np.int32 and numbers.tolist() == [0, 1, 2], "items get numbers of their own")
    again = number_items(store, pl.Series(["c", "d", "a"])).tolist()
    require(again == [2, 3, 0], "an item keeps its number, and a new item gets a new one")
    trees = number_snapshot(store, "one"), number_snapshot(store, "two"), number_snapshot(store, "one")
    require(trees == (0, 1, 0), "a tree keeps its number")
    require(item_ids(store).to_list() == ["a", "b", "c", "d"], "items are listed in the order of their numbers")
    require(snapshot_digests(store) == ["one", "two"], "so are trees")
    require(begin(store.metadata) != begin(store.metadata), "no two starts have the same number")


def _check_copy(store: EventStore) -> None:
    require(not is_incomplete(store), "a store is not an incomplete copy by itself")
    twin = MemoryStore()
    copied = copy(store, twin)
    require(copied.complete and copied.users == count_users(store), "a store can be copied")
    events, values = _contents(twin)
    mine, kept = _contents(store)
    require(events == mine, "the copy has its events")
    require(set(dict(values)) - {"copy"} == set(dict(kept)), "and its metadata")  # type: ignore[call-overload]
    require(twin.identities.resolve("w1", 0) == store.identities.resolve("w1", 0), "and means the same")
    epoch = store.identities.epoch
    store.metadata.put({"epoch": b"%d" % (epoch + 5)})
    require(store.identities.epoch == epoch + 5, "a store that becomes a copy takes over the epoch")
    store.metadata.put({"epoch": b"%d" % epoch})
