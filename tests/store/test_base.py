"""The contract of a store is small, and callers use nothing else."""

import re
from pathlib import Path

import numpy as np
import pytest

import treeward
from treeward.core.errors import InvalidArgument
from treeward.store.base import EventStore, merge, read_rewards
from treeward.store.events import EVENT, SHOWN, event
from treeward.store.memory import MemoryStore
from treeward.store.metadata import Metadata, begin


def members(protocol):
    return {name for name in vars(protocol) if not name.startswith("_")}


def test_a_store_has_twelve_members():
    assert len(members(EventStore)) == 12
    assert members(Metadata) == {"get", "put", "list"}


def test_no_caller_asks_a_store_for_optional_members():
    pattern = re.compile(r"(get|has)attr\([\w.]*store\b")
    source = Path(treeward.__file__).parent
    assert [str(path) for path in source.rglob("*.py") if pattern.search(path.read_text())] == []


def test_wrong_events_and_users_are_refused():
    store = MemoryStore()
    with pytest.raises(InvalidArgument, match="events must be 1 of dtype EVENT"):
        store.append(["ada"], np.zeros(2, dtype=EVENT))
    with pytest.raises(InvalidArgument, match="counts must be 1 that sum to 2"):
        store.extend(["ada"], np.array([1]), np.zeros(2, dtype=EVENT))
    for call in (lambda user: store.append([user], event(1, 1.0)), lambda user: store.move(user, None)):
        for user in (7.0, None, b"ada"):
            with pytest.raises(InvalidArgument, match="users must be strings or integers"):
                call(user)
    assert store.status().users == 0


def test_events_that_were_read_do_not_keep_a_log_from_growing():
    store = MemoryStore()
    store.append(["ada"], event(1, 0.5, nonce=5))
    held = store.read(["ada"]), store.read(["ada"], nonces=[5]), read_rewards(store, [("ada", 5)])
    store.append(["ada"], event(2, 0.5))
    moved = store.move("ada", "bob")
    store.append(["bob"], event(3, 0.5))
    assert [len(events) for [events] in held[:2]] == [1, 1]
    assert (len(moved), store.counts(["ada", "bob"])) == (2, [0, 3])


def test_a_nonce_is_found_only_where_a_nonce_is():
    """The bytes of a nonce may occur in other fields, and across two events."""
    store, nonce = MemoryStore(), 0x1122334455667788
    spread = event(1, 0.0, nonce=5)
    raw = spread.view(np.uint8)
    places = range(len(raw) - 8)
    for at in places:
        one = raw.copy()
        one[at : at + 8] = np.frombuffer(nonce.to_bytes(8, "little"), dtype=np.uint8)
        made = one.view(EVENT)
        user = f"u{at}"
        is_its_own = bool(made["nonce"][0] == nonce)
        store.extend([user], np.array([2]), np.concatenate([made, event(2, 0.0, nonce=9)]))
        assert len(store.read([user], nonces=[nonce])[0]) == is_its_own
        assert store.append([user], event(3, 1.0, nonce=nonce)).all() != is_its_own
        assert not store.append([user], event(3, 1.0, nonce=nonce)).any()
    across = np.concatenate([event(1, 0.0, own=1.5), event(2, 0.0, kind=SHOWN)])
    straddling = int.from_bytes(across.tobytes()[31:39], "little", signed=True)
    store.extend(["ada"], np.array([2]), across)
    assert store.append(["ada", "ada"], np.concatenate([event(3, 1.0, nonce=straddling)] * 2)).tolist() == [True, False]


def test_rewards_of_many_users_in_one_call_are_told_apart():
    store = MemoryStore()
    users = ["bob", "ada", 7, "bob", "7", "ada", "bob"]
    events = np.concatenate([event(i, 1.0, nonce=nonce) for i, nonce in enumerate((1, 1, 1, 2, 1, 1, 1))])
    assert store.append(users, events).tolist() == [True] * 5 + [False] * 2
    mixed = np.concatenate(
        [event(9, 0.3, nonce=3, kind=SHOWN), event(9, 1.0, nonce=3), event(9, 0.3, nonce=3, kind=SHOWN)]
    )
    assert store.append(["bob", "bob", "bob"], mixed).all()
    assert store.append(["bob"], event(9, 1.0, nonce=4), epoch=99).tolist() == [False]
    assert store.counts(["bob", "ada", 7, "7"]) == [5, 1, 1, 1]


def test_metadata_is_listed_by_key_however_it_was_written():
    store = MemoryStore()
    many = {f"page/{i:04}": b"%d" % i for i in range(300)}
    store.metadata.put(dict(list(many.items())[::-1]))
    store.metadata.put({"page/0100a": b"", "pagf": b"", "pag": b""})
    listed = store.metadata.list("page/", "page/0099")
    assert listed == sorted([(key, value) for key, value in many.items() if key > "page/0099"] + [("page/0100a", b"")])
    assert store.metadata.list("page/", "page/0299") == store.metadata.list("none") == []
    assert [begin(store.metadata) for _ in range(12)] == list(range(12))


def test_users_who_move_in_a_circle_resolve():
    store = MemoryStore()
    store.append(["a"], event(1, 1.0))
    for source, target in (("a", "b"), ("b", "c"), ("c", "a"), ("a", "b")):
        merge(store, source, target)
    assert [store.identities.resolve(user, 0) for user in "abc"] == ["b", "b", "b"]
    assert store.counts(list("abc")) == [0, 1, 0]
    assert store.identities.resolve("a", 4) == "a"
