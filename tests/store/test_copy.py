"""Moving events: from one kind of store to another while it is in use, and to Parquet and back."""

import threading

import numpy as np
import polars as pl
import pytest

import treeward as tw
from tests.commands import run as cli
from tests.pg import cluster, needs_postgres  # noqa: F401
from tests.serving import serving
from treeward.client import Client
from treeward.core.errors import StoreError
from treeward.data.synthetic import synthetic_catalogue
from treeward.store import MemoryStore, memory, postgres
from treeward.store.base import everyone, merge, read_all
from treeward.store.copy import copy, is_incomplete
from treeward.store.events import event
from treeward.store.named_events import NamedEvents
from treeward.store.numbers import number_items, number_snapshot
from treeward.store.opening import open_store
from treeward.store.sqlite import SQLiteStore

KINDS = ("file", pytest.param("database", marks=needs_postgres))


@pytest.fixture
def places(tmp_path, request):
    """Where a store of each kind can be."""

    def place(kind, name):
        if kind == "file":
            return str(tmp_path / f"{name}.db")
        return request.getfixturevalue("cluster").database(f"{name}-{abs(hash(request.node.name)):x}")

    return place


def lived(where):
    """Return a store in which people were shown things, gave rewards, changed them, were merged and erased."""
    shop = synthetic_catalogue(200, dim=4, seed=0)
    store = open_store(where)
    explorer = tw.Explorer(shop, store=store, exposures="all", on_repeat="last", seed=0)
    made = [d for user in ("ada", 7, "7", "zoë", "gone", "old") for d in explorer.recommend([user], n=3)]
    explorer.feedback({d.id: 0.5 for d in made[::2]})
    explorer.feedback({made[0].id: 1.0})
    explorer.forget("gone")
    explorer.merge("old", "ada")
    return shop, explorer, made


def contents(store):
    return {user: events.tobytes() for user, events in read_all(store)}


def head(store):
    return {key: value for key, value in store.metadata.list() if key != "copy"}


@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("of", KINDS)
def test_a_copy_equals_its_source(places, of, to):
    shop, explorer, made = lived(places(of, "one"))
    source, target = explorer.store, open_store(places(to, "two"))
    assert copy(source, target) == (4, 23, True)
    assert contents(target) == contents(source)
    assert head(target) == head(source)
    explorer.publish()  # which the next one does at its start
    # Who opens the copy goes on where the other stopped: open decisions, merged and erased people.
    other = tw.Explorer(shop, store=target, exposures="all", seed=0)
    assert other.feedback({made[1].id: 1.0}) == {made[1].id: "recorded"}
    with pytest.raises(tw.UnknownDecision):
        other.feedback({made[13].id: 1.0})
    before = target.counts(["ada"])[0]
    other.feedback({made[15].id: 0.5})  # "old" is "ada" now
    assert target.counts(["ada"])[0] == before + 1
    assert [d.item for d in other.recommend(["zoë"])] == [d.item for d in explorer.recommend(["zoë"])]
    explorer.close()
    other.close()


@pytest.mark.parametrize("of", KINDS)
@pytest.mark.parametrize("to", KINDS)
def test_an_interrupted_copy_resumes(places, of, to, monkeypatch):
    shop, explorer, _ = lived(places(of, "one"))
    source, where = explorer.store, places(to, "two")
    monkeypatch.setattr(memory, "_USERS_AT_ONCE", 1)
    monkeypatch.setattr(postgres, "_USERS_AT_ONCE", 1)
    target = open_store(where)
    first, extend, calls = target, type(target).extend, []

    def failing(self, *given):
        if self is first and len(calls) == 6:  # four times to check names, and two users' events
            raise StoreError("the cable was pulled")
        calls.append(1)
        extend(self, *given)

    monkeypatch.setattr(type(target), "extend", failing)
    with pytest.raises(StoreError, match="cable"):
        copy(source, target)
    target.close()
    # Nobody is served from half a copy.
    target = open_store(where)
    assert is_incomplete(target)
    with pytest.raises(StoreError, match="lacks events"):
        tw.Explorer(shop, store=target)
    # Meanwhile the source goes on: somebody new, more of somebody copied, and somebody copied is erased.
    explorer.recommend(["new", "zoë"])
    explorer.forget(next(iter(everyone(target))))
    told = copy(source, target)
    assert told.complete
    assert contents(target) == contents(source)
    assert target.identities.epoch == source.identities.epoch
    assert copy(source, target) == (told.users, 0, True)
    tw.Explorer(shop, store=target).close()
    explorer.close()


def test_a_copy_catches_up_with_a_store_in_use(places):
    _, explorer, _ = lived(places("file", "one"))
    target = open_store(places("file", "two"))
    busy = threading.Event()
    read = explorer.store.read

    def noisy(users, after=None, nonces=None):
        found = read(users, after, nonces)
        if not busy.is_set():
            explorer.store.append(["ada"], event(1, 1.0))
        return found

    explorer.store.read = noisy
    told = copy(explorer.store, target, rounds=3)
    assert not told.complete
    assert is_incomplete(target)
    busy.set()
    told = copy(explorer.store, target)
    assert told.complete
    assert contents(target) == contents(explorer.store)
    explorer.close()
    target.close()


@pytest.mark.parametrize("to", KINDS)
def test_stores_with_events_and_copies_that_served_are_not_overwritten(places, to):
    shop, one, _ = lived(places("file", "one"))
    _, other, _ = lived(places(to, "two"))
    before = contents(other.store)
    with pytest.raises(StoreError, match="holds events of its own"):
        copy(one.store, other.store)
    assert contents(other.store) == before
    # A copy that has served since goes its own way: bringing it up again would undo that.
    moved = open_store(places(to, "moved"))
    copy(one.store, moved)
    serving = tw.Explorer(shop, store=moved, exposures="all")
    serving.recommend(["newcomer"])
    before, metadata = contents(moved), moved.metadata.list()
    with pytest.raises(StoreError, match="has served traffic since it was copied"):
        copy(one.store, moved)
    assert contents(moved) == before
    assert moved.metadata.list() == metadata
    assert not is_incomplete(moved)
    serving.close()
    target = open_store(places("file", "three"))
    copy(one.store, target)
    target.append(["ada"], event(3, 0.25))
    one.store.append(["ada"], event(4, 0.25))
    with pytest.raises(StoreError, match="'ada' are not those of"):
        copy(one.store, target)
    for each in (one, other, target):
        each.close()


@pytest.mark.parametrize("to", KINDS)
def test_a_user_erased_in_the_source_is_a_new_user_in_the_copy(places, to):
    _, explorer, made = lived(places("file", "one"))
    target = open_store(places(to, "two"))
    copy(explorer.store, target)
    explorer.forget("zoë")
    explorer.merge("7", "ada")
    for _ in range(5):
        explorer.store.append(["zoë"], event(1, 0.125))
    assert copy(explorer.store, target).complete
    assert contents(target) == contents(explorer.store)
    assert target.identities.resolve(made[9].user, 0) is None
    explorer.close()
    target.close()


@pytest.mark.parametrize("to", KINDS)
def test_two_copies_at_once_add_events_only_once(places, to, monkeypatch):
    _, explorer, _ = lived(places("file", "one"))
    target = open_store(places(to, "two"))
    counts, raced = type(target).counts, []

    def racing(self, users):
        found = counts(self, users)
        if self is target and not raced:
            raced.append(1)
            copy(explorer.store, target)
        return found

    monkeypatch.setattr(type(target), "counts", racing)
    with pytest.raises(StoreError, match="another caller adds events at the same time"):
        copy(explorer.store, target)
    assert copy(explorer.store, target).complete
    assert contents(target) == contents(explorer.store)
    explorer.close()
    target.close()


@needs_postgres
def test_names_that_a_database_cannot_hold_are_refused_before_anything_is_copied(places):
    source, target = open_store(places("file", "one")), open_store(places("database", "two"))
    source.append(["ada", "x" * 2_599], np.concatenate([event(1, 1.0)] * 2))
    source.append(["y" * 2_600], event(1, 1.0))
    before = target.metadata.list()
    with pytest.raises(StoreError, match=r"at most 2,600 bytes, got 'yyy.*\(2,601 bytes\)'; nothing was copied"):
        copy(source, target)
    assert (contents(target), target.metadata.list()) == ({}, before)
    source.move("y" * 2_600, None)
    assert copy(source, target) == (2, 2, True)
    source.close()
    target.close()


def test_metadata_is_copied(places):
    source, target = open_store(places("file", "one")), open_store(places("file", "two"))
    source.metadata.put({"snapshot": b"this one"})
    copy(source, target)
    assert target.metadata.get("snapshot") == b"this one"
    source.close()
    target.close()


def test_a_copy_follows_users_who_were_merged_and_merged_back():
    source, target = MemoryStore(), MemoryStore()
    source.append(["a", "b", "a"], np.concatenate([event(i, 1.0, nonce=i + 1) for i in range(3)]))
    copy(source, target)
    merge(source, "a", "b")
    merge(source, "b", "a")
    assert source.read(["a"])[0]["item"].tolist() == [1, 0, 2]
    assert copy(source, target).complete
    assert contents(target) == contents(source)


def test_a_copy_that_numbered_items_or_trees_is_refused():
    for number in (
        lambda store, i: number_items(store, pl.Series([i])),
        lambda store, i: number_snapshot(store, f"{i}"),
    ):
        source, target = MemoryStore(), MemoryStore()
        number(source, 1)
        copy(source, target)
        number(target, 2)
        with pytest.raises(StoreError, match="numbered items or trees of its own"):
            copy(source, target)


def test_an_incomplete_copy_is_not_copied():
    source, target = MemoryStore(), MemoryStore()
    source.append(["ada"], event(1, 1.0))
    assert not copy(source, target, rounds=1).complete
    with pytest.raises(StoreError, match="a copy that lacks events"):
        copy(target, MemoryStore())


@needs_postgres
def test_copy_export_and_import_from_the_command_line(cluster, tmp_path):  # noqa: F811
    _, explorer, _ = lived(str(tmp_path / "events.db"))
    there = cluster.database("moved")
    told = cli("store", "copy", tmp_path / "events.db", there, code=2)
    assert "another process has it open" in told
    assert "POST /admin/copy" in told
    expected = contents(explorer.store)
    explorer.close()
    told = cli("store", "copy", tmp_path / "events.db", there)
    assert "23 events brought, 4 users in all" in told
    assert "complete" in told
    assert "0 events brought" in cli("store", "copy", tmp_path / "events.db", there)
    assert "complete" in cli("store", "copy", there, tmp_path / "back.db")
    store = open_store(str(tmp_path / "back.db"))
    assert contents(store) == expected
    store.close()
    assert "clean" in cli("store", "check", tmp_path / "back.db")
    assert "there is no such store" in cli("store", "copy", tmp_path / "absent.db", there, code=2)
    assert "another store than SOURCE" in cli("store", "copy", there, there, code=2)
    told = cli("store", "export", there, tmp_path / "out")
    assert "Wrote 23 events of 4 users" in told
    assert "new, or an empty folder" in cli("store", "export", there, tmp_path / "out", code=2)
    assert "Added 23 events of 4 users" in cli("store", "import", tmp_path / "new.db", tmp_path / "out")
    assert "are in the store already" in cli("store", "import", tmp_path / "new.db", tmp_path / "out", code=2)
    assert "clean" in cli("store", "check", tmp_path / "new.db")


@needs_postgres
def test_a_service_moves_to_a_database_without_losing_anything(cluster, tmp_path):  # noqa: F811
    """While it serves, its store is copied; what came meanwhile follows once it has stopped."""
    synthetic_catalogue(300, dim=4, seed=0).save(tmp_path / "items")
    there = cluster.database("online")
    with serving(tmp_path, tmp_path / "items") as running, Client(running.url) as client:
        import httpx

        made = [client.recommend(f"user {i}")[0] for i in range(20)]
        client.feedback(made[0]["decision_id"], 1.0)
        answer = httpx.post(running.admin + "/admin/copy", json={"to": there}, timeout=30)
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"users": 20, "events": 21, "complete": True}
        client.feedback(made[1]["decision_id"], 1.0)
        refused = httpx.post(running.admin + "/admin/copy", json={"to": str(tmp_path / "x.db")})
        assert (refused.status_code, refused.json()["error"]) == (400, "invalid")
        assert httpx.post(running.url + "/admin/copy", json={"to": there}).status_code == 404
    assert "1 events brought, 20 users in all" in cli("store", "copy", tmp_path / "events.db", there)
    with serving(tmp_path, tmp_path / "items", "--store", there) as running, Client(running.url) as client:
        assert client.feedback(made[1]["decision_id"], 1.0)["duplicate"]
        assert client.feedback(made[2]["decision_id"], 1.0)["outcome"] == "recorded"


# --- Parquet --------------------------------------------------------------------------------------------------------


def test_a_copy_drops_metadata_that_was_removed_or_erased_since(tmp_path):
    source, target, now = MemoryStore(), SQLiteStore(tmp_path / "copy.db"), [100.0]
    events = NamedEvents(source, 10.0, clock=lambda: now[0])
    for name in ("one", "two"):
        events.add(name, f"{name}-secret", 0, b"what was shown")
    copy(source, target)
    assert NamedEvents(target).get("one").content == b"what was shown"
    source.move("one-secret", None)
    copy(source, target)
    assert [NamedEvents(target).get(name).user for name in ("one", "two")] == [None, "two-secret"]
    now[0] += 10
    assert events.remove_due() == 2
    copy(source, target)
    assert head(target) == head(source)
    assert target.metadata.list("event") == target.metadata.list("owned/") == []
    target.close()
