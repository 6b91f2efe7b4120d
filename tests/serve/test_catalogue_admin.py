"""Items are added, changed and removed in a running service."""

import random
import threading

import httpx
import numpy as np
import pytest

import treeward as tw
from tests.commands import run as cli
from tests.pg import cluster, needs_postgres  # noqa: F401
from tests.serve.test_snapshots import Callers
from tests.serving import kill, serving, start, stop
from tests.waiting import wait_until
from treeward.client import Client, ServiceError
from treeward.data.synthetic import synthetic_catalogue

DIM = 8


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    made = synthetic_catalogue(400, dim=DIM, seed=0)
    tw.Catalogue(made.ids, made.vectors, titles=made.titles, columns={"stock": list(range(400))}).save(folder / "items")
    return folder


def rows(ids, **more):
    vectors = np.random.default_rng(3).standard_normal((len(ids), DIM)).round(3)
    return [{"item": id, "vector": one.tolist(), **more} for id, one in zip(ids, vectors, strict=True)]


def seen_by(client, times=60, n=5, **filters):
    return {one["item"] for i in range(times) for one in client.recommend(f"somebody {i}", n, **filters)}


def test_items_are_added_changed_and_removed_under_load(shop, tmp_path):
    with serving(tmp_path, shop / "items") as running, Client(running.url) as client:
        with Callers(running.url) as callers:
            assert client.put_items(rows(range(1_000, 1_100), columns={"title": "Fresh", "stock": -1})) == 100
            assert seen_by(client, 10, where={"stock": -1}) <= set(range(1_000, 1_100))
            told = httpx.get(running.url + "/v1/items/1000").json()
            assert (told["title"], told["columns"]["stock"]) == ("Fresh", -1)
            # What is not given stays.
            client.put_items([{"item": 1_000, "columns": {"stock": 7}}, {"item": 3, "columns": {"title": "Old"}}])
            told = httpx.get(running.url + "/v1/items/1000").json()
            assert (told["title"], told["columns"]["stock"]) == ("Fresh", 7)
            assert httpx.get(running.url + "/v1/items/3").json()["columns"]["stock"] == 3
            gone = [*range(0, 200), *range(1_050, 1_100)]
            assert client.remove_items(gone) == 250
            assert client.remove_items(gone) == 0
            assert not seen_by(client) & set(gone)
            assert httpx.get(running.url + "/v1/items/0").status_code == 404
            about = httpx.get(running.url + "/v1/about").json()
            assert about["items"] == 250
            found = httpx.get(running.url + "/v1/search", params={"q": "Fresh", "n": 100}).json()
            assert {one["item"] for one in found["items"]} == set(range(1_000, 1_050))
            assert httpx.get(running.url + "/v1/tree/0").json()["items"] == 250
        assert callers.problems == []
        assert callers.answers > 20
    with serving(tmp_path, shop / "items") as running, Client(running.url) as client:  # and after a restart
        assert httpx.get(running.url + "/v1/about").json()["items"] == 250
        assert not seen_by(client) & set(gone)
        assert client.remove_items([1_000]) == 1


def test_removed_items_are_not_shown_after_the_answer(shop, tmp_path):
    """However busy the service is, and whatever answers were on their way."""
    gone_at, wrong, over = {}, [], threading.Event()

    def ask(number, url):
        with Client(url) as client:
            while not over.is_set():
                asked = dict(gone_at)
                for one in client.recommend(f"{number} {random.random()}", 5):
                    if one["item"] in asked:
                        wrong.append(one["item"])

    with serving(tmp_path, shop / "items") as running, Client(running.url) as client:
        threads = [threading.Thread(target=ask, args=(i, running.url)) for i in range(6)]
        for thread in threads:
            thread.start()
        for first in range(0, 360, 12):
            ids = list(range(first, first + 12))
            client.remove_items(ids)
            gone_at.update(dict.fromkeys(ids))
        over.set()
        for thread in threads:
            thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"items": []}, "1 to 1000"),
        ({"items": [{"item": 5_000}]}, "vector"),
        ({"items": [{"item": 5_000, "vector": [1, 2]}]}, "8 numbers"),
        ({"items": [{"item": "x", "vector": [1.0] * DIM}]}, "ids must be integers, as in the catalogue"),
        (
            {"items": [{"item": 5_000, "vector": [1.0] * DIM, "columns": {"colour": "red"}}]},
            "(title, stock), got 'colour of the item",
        ),
        (
            {"items": [{"item": 5_000, "vector": [1.0] * DIM, "columns": {"stock": "many"}}]},
            "(stock: Int64), got \"'many' of",
        ),
        ({"items": [{"item": 5_000, "vector": [1e300] * DIM}]}, "finite"),
        ({"items": rows([7, 7])}, "unique"),
    ],
)
def test_bad_items_are_refused_and_change_nothing(shop, tmp_path_factory, body, why):
    with serving_once(shop, tmp_path_factory) as url:
        answer = httpx.put(url + "/v1/items", json=body)
        assert answer.status_code == 400, answer.text
        assert why in answer.json()["message"]
        assert httpx.get(url + "/v1/about").json()["items"] == 400


_KEPT = {}


class serving_once:
    """One service for all tests that change nothing."""

    def __init__(self, shop, factory):
        if "running" not in _KEPT:
            _KEPT["manager"] = serving(factory.mktemp("rubbish"), shop / "items")
            _KEPT["running"] = _KEPT["manager"].__enter__()

    def __enter__(self):
        return _KEPT["running"].url

    def __exit__(self, *_):
        pass


@pytest.fixture(scope="module", autouse=True)
def _end():
    yield
    if "manager" in _KEPT:
        _KEPT["manager"].__exit__(None, None, None)


def test_commands_put_and_remove_items_and_report_health(shop, tmp_path):
    random_vectors = np.random.default_rng(0).standard_normal((30, DIM))
    more = tw.Catalogue(range(2_000, 2_030), random_vectors, titles=[f"More {i}" for i in range(30)])
    more.save(tmp_path / "more")
    (tmp_path / "ids.txt").write_text("2000\n2001\n5\n77777\n")
    with serving(tmp_path, shop / "items") as running:
        assert "30 item(s) are in." in cli("items", "put", running.url, tmp_path / "more")
        assert "4 of 5 item(s) were there, and are gone." in cli(
            "items", "remove", running.url, "7", f"@{tmp_path / 'ids.txt'}"
        )
        told = cli("tree", "health", running.admin, "--users", "5")
        assert "426" in told
        assert "rebuild" in told
        assert "error" in cli("items", "put", running.url, tmp_path / "nothing", code=2)
        assert "error" in cli("items", "remove", "http://127.0.0.1:9", "1", code=2)
    before = {file.name: file.read_bytes() for file in tmp_path.glob("events.db*")}
    told = cli("tree", "health", shop / "items", "--store", tmp_path / "events.db", "--no-compare")
    assert "426" in told
    assert {file.name: file.read_bytes() for file in tmp_path.glob("events.db*")} == before  # not even an edition
    assert "no such store" in cli("tree", "health", shop / "items", "--store", tmp_path / "none.db", code=2)


def swapped_back(admin):
    """Swap back, as soon as the service does not rebuild the tree by itself."""
    answers = []

    def swaps():
        try:
            answers.append(admin.swap(back=True))
        except ServiceError as refused:
            if refused.error != "swapping":
                raise
        return answers

    wait_until(swaps, "no other snapshot is being loaded", seconds=300)
    return answers[0]


def test_many_changes_rebuild_the_tree_and_save_a_snapshot(shop, tmp_path, monkeypatch):
    """The rebuilt tree is also served after a restart, whatever vectors the prior was fitted to."""
    monkeypatch.setenv("TREEWARD_REBUILD", "0.1")
    known = tw.Catalogue.load(shop / "items")
    log = tw.Interactions([user for user in range(50) for _ in range(4)], [i % 20 for i in range(200)])
    tw.Crowd.fit(log, known).save(tmp_path / "prior")
    prior = ("--prior", tmp_path / "prior")
    turned = known.vectors + 0.5 * np.random.default_rng(0).standard_normal(known.vectors.shape) * known.vectors.std()
    changed = [{"item": id, "vector": turned[id].tolist()} for id in range(50, 400)]
    with (
        serving(tmp_path, shop / "items", *prior) as running,
        Client(running.url) as client,
        Callers(running.url) as callers,
    ):
        with pytest.raises(ServiceError, match=r"of another: fit a prior .*treeward swap .*20 of the 20 known items"):
            client.put_items([{"item": id, "vector": (-known.vectors[id]).tolist()} for id in range(20)])
        client.put_items(rows(range(1_000, 1_100)) + changed)
        client.remove_items(list(range(50)))
        with Client(running.admin) as admin:
            wait_until(lambda: "snapshots" in admin.snapshot()["now"]["items"], "a new snapshot is served", seconds=300)
        upto = callers.answers
        wait_until(lambda: callers.answers > upto, "callers are answered")
        client.remove_items([60])
        client.put_items(rows([2_000]))
        assert httpx.get(running.url + "/v1/about").json()["items"] == 450
    assert callers.problems == []
    folders = list((tmp_path / "events.db.snapshots").iterdir())
    assert len(folders) == 1
    check = ("serve", shop / "items", *prior, "--store", tmp_path / "events.db", "--check")
    assert f"over {folders[0]}" in cli(*check, width=400)
    with serving(tmp_path, shop / "items", *prior) as running, Client(running.url) as client:
        assert httpx.get(running.url + "/v1/about").json()["items"] == 450
        assert not seen_by(client, 40) & {*range(50), 60}
        with Client(running.admin, timeout=60) as admin:
            back = admin.swap(back=True)
            assert back["now"]["items"] == str(shop / "items")
            assert httpx.get(running.url + "/v1/about").json()["items"] == 450
            assert "snapshots" in swapped_back(admin)["now"]["items"]
    # Restored without the folder of snapshots, the settings' own items are served, with what changed since.
    (tmp_path / "events.db.snapshots").rename(tmp_path / "lost")
    with pytest.raises(AssertionError, match=r"a swap or a rebuild put in place.* treeward serve\s--from-settings"):
        start(tmp_path, shop / "items", *prior)
    assert "treeward serve --from-settings" in cli(*check, width=900, code=2)
    assert f"over {shop / 'items'}" in cli(*check, "--from-settings", width=400)
    with serving(tmp_path, shop / "items", *prior, "--from-settings") as running, Client(running.url) as client:
        assert httpx.get(running.url + "/v1/about").json()["items"] == 450
        assert not seen_by(client, 40) & {*range(50), 60}
    assert f"over {shop / 'items'}" in cli(*check, width=400)


def test_a_service_killed_while_items_change_keeps_whole_batches(shop, tmp_path):
    """Acknowledged batches are there after the next start; others are there whole, or not at all."""
    known, next_id = set(range(400)), 10_000
    web = httpx.Client(limits=httpx.Limits(max_keepalive_connections=1, keepalive_expiry=1.0))
    maybe = set()
    for turn in range(2):
        running = start(tmp_path, shop / "items")
        url, client = running.url, Client(running.url, tries=1)
        there = {id for id in known | maybe if web.get(f"{url}/v1/items/{id}").status_code == 200}
        assert known <= there <= known | maybe
        known, maybe = there, set()
        stopper = threading.Timer(0.6 + 0.3 * turn, kill, args=(running,))
        stopper.start()
        try:
            while True:
                ids = list(range(next_id, next_id + 20))
                next_id += 20
                maybe = set(ids)
                client.put_items(rows(ids))
                known |= maybe
                maybe = set()
        except (ServiceError, httpx.HTTPError):
            pass
        stopper.join()
        client.close()
    running = start(tmp_path, shop / "items")
    there = {id for id in known | maybe if web.get(f"{running.url}/v1/items/{id}").status_code == 200}
    assert known <= there <= known | maybe
    stop(running)
    web.close()


@needs_postgres
def test_replicas_follow_changes_of_items(shop, tmp_path, cluster):  # noqa: F811
    url = cluster.database("living")
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with (
        serving(first, shop / "items", "--store", url) as one,
        serving(second, shop / "items", "--store", url) as other,
        Client(one.url) as client,
        Client(other.url) as elsewhere,
    ):
        client.put_items(rows(range(1_000, 1_020)))
        elsewhere.remove_items(list(range(100)))
        client.put_items(rows(range(1_020, 1_030)))
        wait_until(
            lambda: {httpx.get(each.url + "/v1/about").json()["items"] for each in (one, other)} == {330},
            "both replicas know all changes",
        )
        for each in (client, elsewhere):
            assert not seen_by(each, 20) & set(range(100))
