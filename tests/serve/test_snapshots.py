"""Other items or another tree are served without a stop: no caller waits, and no event is lost."""

import asyncio
import contextlib
import os
import random
import threading
import time

import httpx
import numpy as np
import pytest

import treeward as tw
from tests.commands import run as cli
from tests.pg import cluster, needs_postgres  # noqa: F401
from tests.serving import kill, serving, start, stop
from tests.waiting import wait_until
from treeward.client import Client, ServiceError
from treeward.data.synthetic import synthetic_catalogue
from treeward.serve import wire
from treeward.serve.app import App
from treeward.serve.parts import explorer_over, open_explorer, parts
from treeward.serve.service import Service
from treeward.serve.settings import Settings
from treeward.serve.snapshots import Snapshot, choice_of


@pytest.fixture(scope="module")
def shops(tmp_path_factory):
    """Save items; most of them and new ones, with other vectors; and a tree of the latter."""
    folder = tmp_path_factory.mktemp("shops")
    old = synthetic_catalogue(400, dim=8, seed=0)
    grown = synthetic_catalogue(500, dim=12, seed=1)
    new = tw.Catalogue([int(id) + 100 for id in grown.ids], grown.vectors)
    old.save(folder / "old")
    new.save(folder / "new")
    tw.ItemTree.build(new.vectors, (6, 40), seed=3).save(folder / "tree")
    (folder / "rubbish").mkdir()
    return folder


class Callers:
    """Threads that ask for items and give feedback all the time, and the problems they had."""

    def __init__(self, url, count=4):
        self.url, self.problems, self.answers, self._over = url, [], 0, threading.Event()
        self._threads = [threading.Thread(target=self._live, args=(i,)) for i in range(count)]

    def _live(self, number):
        with httpx.Client(base_url=self.url, timeout=20) as http:
            while not self._over.is_set():
                try:
                    made = http.post("/v1/recommend", json={"user": f"caller {number} {self.answers // 50}", "n": 2})
                    id = made.json()["items"][0]["decision_id"]
                    told = http.post("/v1/feedback", json={"decision_id": id, "reward": 1.0})
                    self.problems += [one.text for one in (made, told) if one.status_code != 200]
                    self.answers += 1
                except Exception as error:
                    self.problems.append(repr(error))
                    return

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        for thread in self._threads:
            thread.join()


def events_of(running):
    with Client(running.url) as client:
        return client.user("ada")["events"]


def test_a_swap_under_load_fails_no_request_and_survives_a_restart(shops, tmp_path):
    with serving(tmp_path, shops / "old") as running:
        admin = Client(running.admin, timeout=60)
        with Client(running.url) as client, Callers(running.url) as callers:
            made = client.recommend("ada", 3)
            client.feedback(made[0]["decision_id"], 1.0)
            told = cli("swap", running.admin, shops / "new", "--tree", shops / "tree")
            assert f"now: items {shops / 'new'}, tree {shops / 'tree'}" in told
            assert f"before: items {shops / 'old'}" in told
            about = httpx.get(running.url + "/v1/about").json()
            assert (about["items"], about["dim"]) == (500, 12)
            # Late feedback counts, through the item; what is new can be had, what is gone is not shown any more.
            assert client.feedback(made[1]["decision_id"], 1.0)["outcome"] == "recorded"
            assert client.feedback(made[0]["decision_id"], 1.0)["duplicate"]
            assert client.user("ada")["events"] == 5
            seen = {one["item"] for i in range(60) for one in client.recommend(f"new {i}", 5)}
            assert min(seen) >= 100
            newest = {one["item"] for one in client.recommend("newest", 5, allow=list(range(400, 600)))}
            assert min(newest) >= 400
            wait_until(lambda: callers.answers > 20, "callers were answered")
        assert callers.problems == []
        assert admin.swap(back=True)["now"]["items"] == str(shops / "old")
        assert httpx.get(running.url + "/v1/about").json()["items"] == 400
        assert admin.swap(back=True)["now"]["items"] == str(shops / "new")
        again = admin.swap(items=str(shops / "new"), tree=str(shops / "tree"))  # the same once more
        assert [again[name]["items"] for name in ("now", "before")] == [str(shops / "new"), str(shops / "old")]
        assert admin.swap(back=True)["now"]["items"] == str(shops / "old"), "the way back is not lost"
        admin.swap(back=True)
        check = ("serve", shops / "old", "--store", tmp_path / "events.db", "--check")
        assert "in use now" in cli(*check, width=400)
        admin.close()
        assert stop(running) == 0
    told = cli(*check, width=400)
    assert f"over {shops / 'new'}" in told
    assert f"the settings name {shops / 'old'}" in told
    with serving(tmp_path, shops / "old") as running:  # as it was chosen, not as it is started
        assert f"Items: {shops / 'new'}, as `treeward swap`" in running.said
        assert '"snapshot":"' + str(shops / "new") in running.log.read_text()
        assert httpx.get(running.url + "/v1/about").json()["items"] == 500
        assert events_of(running) == 5
    with serving(tmp_path, shops / "new") as running:  # other settings: another choice
        assert httpx.get(running.admin + "/admin/snapshot").json()["now"] == {
            "items": str(shops / "new"), "tree": "", "prior": "", "features": "",
        }  # fmt: skip
    assert "clean" in cli("store", "check", tmp_path / "events.db", "--items", shops / "old")


def test_items_removed_while_a_snapshot_loads_are_never_shown(shops, tmp_path):
    """Items of both snapshots, and items that only the new one has."""
    both, only_new, late = 150, 450, 160
    settings = Settings(items=str(shops / "old"), store=str(tmp_path / "events.db"))
    loading, go, caught_up, removed, shown = *(threading.Event() for _ in range(4)), []

    def opened(store, asked, **more):
        made = explorer_over(store, asked, **more)
        catch_up = made.changes.catch_up

        def watched():
            shown.append(app.served.explorer is made and any(id in made for id in (both, only_new, late)))
            found = catch_up()
            if not caught_up.is_set():  # something is removed right after the new one knows what there was
                caught_up.set()
                assert removed.wait(30)
            return found

        made.changes.catch_up = watched
        loading.set()
        assert go.wait(30)
        return made

    async def remove(*ids):
        return await app.catalogue.remove_items(ids)

    async def scene():
        app.start()
        swap = asyncio.create_task(app.catalogue.swap(wire.SwapRequest(items=str(shops / "new"))))
        await asyncio.to_thread(loading.wait, 30)
        await remove(both, only_new)
        go.set()
        await asyncio.to_thread(caught_up.wait, 30)
        assert app.served.explorer is explorer
        await remove(late)
        removed.set()
        await swap
        assert app.served.explorer is not explorer
        assert not [id for id in (both, only_new, late) if id in app.served.explorer]
        await app.stop()

    with open_explorer(settings) as explorer:
        app = App(Service(explorer, settings), opened)
        asyncio.run(scene())
    assert not any(shown)


def test_a_tree_of_the_same_items_in_another_order_is_refused(tmp_path):
    shop = synthetic_catalogue(300, dim=4, seed=0)
    order = np.random.default_rng(0).permutation(300)
    tw.Catalogue(shop.ids.gather(order), shop.vectors[order]).save(tmp_path / "shuffled")
    shop.save(tmp_path / "items")
    trees = {
        "plain": tw.ItemTree.build(shop.vectors, seed=0),
        "long": tw.ItemTree.build(shop.vectors, seed=0, normalize=False),
        "one": tw.ItemTree.flat(shop.vectors),
        "around nothing": tw.ItemTree.from_categories(
            np.vstack([shop.vectors[:150], -shop.vectors[:150]]), ["a"] * 300
        ),
    }
    opposite = tw.Catalogue(range(300), np.vstack([shop.vectors[:150], -shop.vectors[:150]]))
    opposite.save(tmp_path / "opposite")
    for name, tree in trees.items():
        tree.save(tmp_path / name)
        items = "opposite" if name == "around nothing" else "items"
        parts(Settings(items=str(tmp_path / items), tree=str(tmp_path / name)))
    for name in ("plain", "long"):
        told = cli("serve", tmp_path / "shuffled", "--tree", tmp_path / name, "--check", code=2)
        assert "tree must be built of these 300 items, in this order" in told.replace("\n", " ")


def test_a_chosen_snapshot_that_was_deleted_is_named(shops, tmp_path):
    settings = Settings(items=str(shops / "old"), store=str(tmp_path / "events.db"))
    with open_explorer(settings) as explorer:
        choice_of(explorer.store, settings).after(Snapshot(str(tmp_path / "gone"))).keep(explorer.store)
    with pytest.raises(
        tw.TreewardError, match=r"what a swap or a rebuild put in place.*gone\), cannot be served: .*--from-settings"
    ):
        open_explorer(settings, chosen=True)
    with open_explorer(settings) as explorer:  # the settings' own are sound
        assert len(explorer.catalogue) > 0


def test_a_snapshot_that_cannot_be_served_is_refused(shops, tmp_path):
    strings = tmp_path / "strings"
    tw.Catalogue([f"x{i}" for i in range(50)], synthetic_catalogue(50, dim=4, seed=0).vectors).save(strings)
    with serving(tmp_path, shops / "old") as running, Client(running.admin, tries=1, timeout=60) as admin:
        for asked, told in (
            ({"items": str(tmp_path / "nowhere")}, "it cannot be served"),
            ({"items": str(shops / "rubbish")}, "it cannot be served"),
            ({"tree": str(shops / "tree")}, "it cannot be served"),  # of other items
            ({"items": str(strings)}, "integers"),
            ({}, "a saved catalogue"),
            ({"back": True}, "there was none"),
        ):
            with pytest.raises(ServiceError, match=told) as caught:
                admin.swap(**asked)
            assert caught.value.status == 400
        assert admin.snapshot()["now"]["items"] == str(shops / "old")
        assert httpx.get(running.url + "/readyz").status_code == 200
        assert events_of(running) == 0
        for url, path, told in (
            (running.url, "/admin/snapshot", "is for operators, at `admin_port`"),
            (running.admin, "/v1/users/ada", "is for callers, at `port`"),
        ):
            answer = httpx.get(url + path)
            assert (answer.status_code, answer.json()["error"]) == (404, "other_port")
            assert told in answer.json()["message"]
        assert httpx.get(running.url + "/nothing").json()["error"] == "no_route"
        assert "used alone" in cli("swap", running.admin, "x", "--back", code=2)
        assert f"now: items {shops / 'old'}" in cli("swap", running.admin)
    assert "error:" in cli("swap", running.admin, "--back", code=2)
    assert "Traceback" not in (tmp_path / "stderr").read_text()


def test_a_prior_of_other_vectors_is_refused(tmp_path):
    shop = synthetic_catalogue(300, dim=8, seed=0)
    other, narrow = synthetic_catalogue(300, dim=8, seed=5), synthetic_catalogue(300, dim=6, seed=0)
    for name, made in (("shop", shop), ("other", other), ("narrow", narrow)):
        made.save(tmp_path / name)
    grown = synthetic_catalogue(400, dim=8, seed=0)  # the first 300 are others; their vectors are put in
    vectors = np.concatenate([2 * shop.vectors, grown.vectors[300:]])
    tw.Catalogue(grown.ids, vectors).save(tmp_path / "grown")
    log = tw.Interactions([user for user in range(50) for _ in range(4)], [i % 20 for i in range(200)])
    tw.Crowd.fit(log, shop).save(tmp_path / "prior")
    for name, told in (("shop", "sound"), ("grown", "sound"), ("other", "64 of the 64 items compared have other"),
                       ("narrow", "of 8 dimensions")):  # fmt: skip
        code = 0 if told == "sound" else 2
        assert told in cli(
            "serve", tmp_path / name, "--prior", tmp_path / "prior", "--check", cwd=tmp_path, width=400, code=code
        )
    for words in (("build", tmp_path / "other", "-o", tmp_path / "tree"), ("health", tmp_path / "other")):
        told = cli("tree", *words, "--prior", tmp_path / "prior", width=400, code=2)
        assert "64 of the 64 items compared have other vectors" in told
    assert not (tmp_path / "tree").exists()
    with pytest.raises(AssertionError, match="fitted to these vectors"):
        start(tmp_path, tmp_path / "other", "--prior", tmp_path / "prior")


@needs_postgres
def test_replicas_follow_a_swap(cluster, shops, tmp_path):  # noqa: F811
    url = cluster.database("swaps")
    folders = [tmp_path / str(i) for i in range(2)]
    for folder in folders:
        folder.mkdir()
    one, other = (start(folder, shops / "old", "--store", url) for folder in folders)
    with Callers(other.url) as callers, Client(one.admin, timeout=60) as admin:
        admin.swap(items=str(shops / "new"))
        wait_until(lambda: httpx.get(other.url + "/v1/about").json()["items"] == 500, "the other replica follows")
        upto = callers.answers
        wait_until(lambda: callers.answers > upto, "it answers")
    assert callers.problems == []
    with Client(other.url) as there, Client(one.url) as here:
        [made] = there.recommend("ada")
        assert here.feedback(made["decision_id"], 1.0)["outcome"] == "recorded"
        wait_until(lambda: here.user("ada")["interests"] == there.user("ada")["interests"], "both know as much")
    assert [stop(one), stop(other)] == [0, 0]


def test_a_service_killed_during_a_swap_comes_back_whole(shops, tmp_path):
    """50 times with TORTURE=1."""
    coin = random.Random(0)
    for _ in range(50 if os.environ.get("TORTURE") else 3):
        running = start(tmp_path, shops / "old")
        with Client(running.url) as client:
            before = httpx.get(running.url + "/v1/about").json()["items"]
            client.feedback(client.recommend("ada")[0]["decision_id"], 1.0)
        told = []

        def ask(running=running, to=str(shops / ("new" if before == 400 else "old")), told=told):
            with contextlib.suppress(httpx.TransportError):
                told.append(httpx.post(running.admin + "/admin/snapshot", json={"items": to}, timeout=60).status_code)

        thread = threading.Thread(target=ask)
        thread.start()
        time.sleep(coin.uniform(0.0, 0.25))
        kill(running)
        thread.join()
        with serving(tmp_path, shops / "old") as running:
            after = httpx.get(running.url + "/v1/about").json()["items"]
            assert after in (400, 500)
            assert after != before or told != [200]
            assert events_of(running) % 2 == 0
    assert "clean" in cli("store", "check", tmp_path / "events.db")


def test_removed_items_stay_removed_while_snapshots_are_swapped(tmp_path):
    """No request after an acknowledged DELETE gets the item; 3,000 removals with TORTURE=1."""
    removals = 3_000 if os.environ.get("TORTURE") else 150
    synthetic_catalogue(removals + 100, dim=4, seed=0).save(tmp_path / "old")
    grown = synthetic_catalogue(removals + 200, dim=4, seed=1)
    grown.save(tmp_path / "new")
    gone, shown, over = [], [], threading.Event()

    def ask(number, url):
        with httpx.Client(base_url=url, timeout=60) as http:
            while not over.is_set():
                upto = len(gone)
                answer = http.post("/v1/recommend", json={"user": f"{number}-{random.random()}", "n": 10})
                shown.extend({one["item"] for one in answer.json()["items"]} & set(gone[:upto]))

    def swap(url):
        with Client(url, timeout=60) as admin:
            for turn in range(10_000):
                if over.is_set():
                    return
                admin.swap(items=str(tmp_path / ("new" if turn % 2 == 0 else "old")))

    with serving(tmp_path, tmp_path / "old") as running, Client(running.url, timeout=60) as client:
        threads = [threading.Thread(target=ask, args=(i, running.url)) for i in range(3)]
        threads.append(threading.Thread(target=swap, args=(running.admin,)))
        for thread in threads:
            thread.start()
        try:
            for item in range(removals):
                client.remove_items([item])
                gone.append(item)
        finally:
            over.set()
            for thread in threads:
                thread.join()
        with Client(running.admin) as admin:
            assert admin.snapshot()["before"] is not None, "there were swaps"
    assert shown == []
