"""Records of events under names that callers chose."""

import random

import pytest

import treeward as tw
from treeward.core.errors import UnknownDecision
from treeward.data.synthetic import synthetic_catalogue
from treeward.store.base import forget, merge
from treeward.store.memory import MemoryStore
from treeward.store.named_events import NamedEvents
from treeward.store.sorted_keys import SortedKeys
from treeward.store.sqlite import SQLiteStore


def content(events, name):
    known = events.get(name)
    return None if known is None or known.user is None else known.content


def test_the_first_record_of_a_name_stays(tmp_path):
    store = SQLiteStore(tmp_path / "events.db")
    events = NamedEvents(store)
    assert events.add("one", "ada", 0, b"a")
    assert not events.add("one", "ada", 0, b"b")
    assert events.replace("one", b"c")
    assert not events.replace("two", b"never added")
    store.close()
    again = NamedEvents(SQLiteStore(tmp_path / "events.db"))
    assert (content(again, "one"), again.get("two")) == (b"c", None)


def test_forgetting_erases_the_records_of_one_user():
    explorer = tw.Explorer(synthetic_catalogue(50, dim=4, seed=0), seed=0)
    events = NamedEvents(explorer.store)
    for name, user in (("one", "ada"), ("two", 7), ("three", "7"), ("four", "ada")):
        assert events.add(name, user, 0, name.encode())
    explorer.forget("ada")
    explorer.forget("7")
    assert [content(events, name) for name in ("one", "two", "three", "four")] == [None, b"two", None, None]
    assert not events.replace("one", b"again")
    assert content(events, "one") is None
    assert [events.exist_of(user) for user in ("ada", "7", 7)] == [False, False, True]
    assert not events.add("one", "bob", events.epoch("bob"), b"x"), "the name cannot be used again"


def test_records_of_a_merged_user_are_those_of_the_other():
    store = MemoryStore()
    events = NamedEvents(store)
    events.add("one", "visitor", 0, b"a")
    merge(store, "visitor", "ada")
    assert events.get("one")[::2] == ("ada", b"a")
    assert (events.exist_of("visitor"), events.exist_of("ada")) == (False, True)
    forget(store, "visitor")
    assert content(events, "one") == b"a", "the name that was given up is nobody's"
    assert events.replace("one", b"b")
    forget(store, "ada")
    assert content(events, "one") is None


class Interrupted(MemoryStore):
    """Does something else just before the next write of metadata."""

    between = None

    @property
    def metadata(self):
        if self.between is not None:
            between, self.between = self.between, None
            between()
        return super().metadata


def test_a_user_who_is_forgotten_after_the_decision_gets_no_record():
    store = MemoryStore()
    events = NamedEvents(store)
    epoch = events.epoch("ada")
    forget(store, "ada")
    with pytest.raises(UnknownDecision, match="forgotten meanwhile"):
        events.add("one", "ada", epoch, b"a")
    assert events.get("one") is None
    assert events.add("one", "ada", events.epoch("ada"), b"b"), "they may come back"


def test_a_user_who_is_forgotten_or_merged_while_a_record_is_added_leaves_none():
    store = Interrupted()
    events = NamedEvents(store)
    store.between = lambda: store.move("ada", None)
    with pytest.raises(UnknownDecision):
        events.add("one", "ada", 0, b"a")
    assert events.get("one") is None
    epoch = events.epoch("visitor")
    store.between = lambda: store.move("visitor", "bob")
    assert events.add("two", "visitor", epoch, b"a")
    assert events.get("two").user == "bob"
    assert (events.exist_of("visitor"), events.exist_of("bob")) == (False, True)


def test_a_user_who_is_forgotten_while_a_record_is_replaced_stays_forgotten(monkeypatch):
    store = MemoryStore()
    events = NamedEvents(store)
    events.add("one", "ada", 0, b"a")
    get = events.get

    def interrupted(name):
        found = get(name)
        monkeypatch.setattr(events, "get", get)
        forget(store, "ada")
        return found

    monkeypatch.setattr(events, "get", interrupted)
    assert not events.replace("one", b"b")
    assert content(events, "one") is None


def test_an_erased_record_leaves_no_bytes_in_the_files(tmp_path):
    store = SQLiteStore(tmp_path / "events.db")
    events = NamedEvents(store)
    events.add("one", "ada-secret", 0, b"item-secret")
    events.add("two", "visitor-secret", 0, b"item-secret")
    events.replace("one", b"item-secret, shown")
    merge(store, "visitor-secret", "ada-secret")

    def held():
        return b"".join(path.read_bytes() for path in tmp_path.iterdir())

    assert b"item-secret" in held()
    forget(store, "ada-secret")
    assert b"ada-secret" not in held()
    assert b"visitor-secret" not in held()
    assert b"item-secret" not in held()


def test_records_are_removed_when_their_time_is_over(tmp_path):
    now = 1_000.0
    store = SQLiteStore(tmp_path / "events.db")
    before = store.metadata.list()
    events = NamedEvents(store, 60.0, clock=lambda: now)
    for name in ("one", "two", "three", "four"):
        events.add(name, name, 0, b"a")
    merge(store, "two", "bob")
    forget(store, "three")
    now = 1_050.0
    events.replace("four", b"b")
    assert events.remove_due() == 0
    now = 1_060.0
    assert events.remove_due() == 3
    assert [events.get(name) for name in ("one", "two", "three")] == [None] * 3
    assert content(events, "four") == b"b"
    now = 1_110.0
    assert events.remove_due() == 1
    store.close()
    left = dict(SQLiteStore(tmp_path / "events.db").metadata.list())
    assert {key for key in left if not key.startswith("identity/")} == set(dict(before)), "nothing is left of them"


def test_records_stay_without_a_time():
    events = NamedEvents(MemoryStore())
    events.add("one", "ada", 0, b"a")
    assert events.remove_due() == 0
    assert content(events, "one") == b"a"


def test_sorted_keys_are_those_of_a_sorted_list(monkeypatch):
    monkeypatch.setattr("treeward.store.sorted_keys._LONGEST", 6)
    draw, keys, held = random.Random(3), SortedKeys(["m"]), ["m"]
    for step in range(3_000):
        one = f"{draw.randrange(200):03}"
        if one in held:
            keys.remove(one)
            held.remove(one)
        else:
            keys.add(one)
            held.append(one)
        held.sort()
        if step % 10 == 0:
            start = f"{draw.randrange(210):03}"
            assert list(keys.since(start)) == [key for key in held if key >= start]
            assert list(keys.since("")) == held
    for one in held:
        keys.remove(one)
    assert list(keys.since("")) == []
    keys.add("x")
    assert list(keys.since("")) == ["x"]
    assert list(SortedKeys(map(str, range(99))).since("")) == sorted(map(str, range(99)))


def test_adding_a_key_moves_few_others():
    keys = SortedKeys(f"{i:07}" for i in range(100_000))
    for i in range(5_000):
        keys.add(f"0050000/{i:04}")
    assert max(map(len, keys._parts)) <= 1_000
    assert len(list(keys.since("0050000/0000"))) == 5_000 + 49_999
