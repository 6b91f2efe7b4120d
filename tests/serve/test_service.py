"""The service, over HTTP, as its callers meet it."""

import asyncio
import base64
import os
import random
import re
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import polars as pl
import pytest

import treeward as tw
from tests.commands import run as cli
from tests.serving import serving, stop
from tests.waiting import wait_until
from treeward.client import AsyncClient, Client, ServiceError
from treeward.core.errors import InvalidArgument, UnknownDecision
from treeward.data.synthetic import synthetic_catalogue
from treeward.serve import wire
from treeward.serve.batch import Batcher, Full
from treeward.serve.keys import Keys, RateLimit, new_key
from treeward.serve.routes import ROUTES
from treeward.serve.server import open_explorer
from treeward.serve.service import Service
from treeward.serve.settings import Key, Settings, is_loopback, read_settings, table
from treeward.store.base import forget
from treeward.store.events import SHOWN, event
from treeward.store.numbers import number_items
from treeward.store.sqlite import SQLiteStore


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    path = tmp_path_factory.mktemp("shop") / "items"
    synthetic_catalogue(1_000, dim=8, seed=0).save(path)
    return path


@pytest.fixture(scope="module")
def service(items, tmp_path_factory):
    with serving(tmp_path_factory.mktemp("service"), items, "--set", "repeats=true") as running:
        yield running


@pytest.fixture
def http(service):
    with httpx.Client(base_url=service.url, timeout=10) as client:
        yield client


def ask(http, **body):
    answer = http.post("/v1/recommend", json={"user": "ada", **body})
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


def test_recommend_and_feedback(http):
    made = ask(http, user="eva", n=3)
    assert [one["slot"] for one in made] == [0, 1, 2]
    assert len({one["item"] for one in made}) == 3
    assert set(made[0]) == {
        "decision_id", "user", "item", "slot", "mean", "width", "propensity", "exact", "path", "scores", "bold",
        "edition", "snapshot", "policy",
    }  # fmt: skip
    assert made[0]["policy"] == "explore"
    reward = {"decision_id": made[0]["decision_id"], "reward": 1}
    assert http.post("/v1/feedback", json=reward).json() == {"outcome": "recorded", "duplicate": False}
    assert http.post("/v1/feedback", json=reward).json() == {"outcome": "duplicate", "duplicate": True}
    other = http.post("/v1/feedback", json={**reward, "reward": 0.5})
    assert (other.status_code, other.json()["error"]) == (409, "conflict")
    told = http.get("/v1/users/eva").json()
    assert [one["kind"] for one in told["history"]] == ["shown"] * 3 + ["reward"]
    title, when = (told["history"][3].pop(name) for name in ("title", "time"))
    assert told["history"][3] == {"kind": "reward", "item": made[0]["item"], "reward": 1.0}
    assert title == http.get(f"/v1/items/{made[0]['item']}").json()["title"]
    assert 0 <= time.time() - when < 60
    assert sum(one["visits"] for one in told["interests"]) == 1
    assert http.delete("/v1/users/eva").json() == {"events": 4}
    assert http.get("/v1/users/eva").json()["events"] == 0
    gone = http.post("/v1/feedback", json=reward)
    assert (gone.status_code, gone.json()["error"]) == (404, "unknown_decision")


def test_filters(http):
    assert ask(http, allow=[7])[0]["item"] == 7
    assert {one["item"] for one in ask(http, allow=[7, 8, 9], exclude=[8], n=2)} == {7, 9}
    shop = synthetic_catalogue(1_000, dim=8, seed=0)
    category = shop.categories[3]
    assert shop.categories[ask(http, where={"category": category})[0]["item"]] == category
    none = http.post("/v1/recommend", json={"user": "ada", "allow": [7], "n": 2})
    assert (none.status_code, none.json()["error"]) == (409, "nothing_left")
    for bad in ({"where": {"colour": "red"}}, {"n": 0}, {"n": 70_000}, {"n": 2_000}, {"allow": ["x"]}, {"colour": 1}):
        answer = http.post("/v1/recommend", json={"user": "ada", **bad})
        assert answer.status_code == 400, bad
        assert answer.json()["error"] == "invalid"


def test_batches_have_a_status_a_row(http):
    rows = http.post(
        "/v1/recommend/batch", json={"requests": [{"user": "a"}, {"user": "a", "n": 2}, {"user": 5, "allow": []}]}
    ).json()["rows"]
    assert [row["status"] for row in rows] == [200, 200, 409]
    id = rows[0]["body"]["items"][0]["decision_id"]
    rewards = [
        {"decision_id": id, "reward": 1}, {"decision_id": id, "reward": 1}, {"decision_id": id, "reward": 0},
        {"decision_id": "x", "reward": 1}, {"decision_id": id, "reward": 7}, {"reward": 1},
        {"user": "a", "item": 3, "reward": 1}, {"user": "a", "item": "3", "reward": 1},
    ]  # fmt: skip
    told = http.post("/v1/feedback/batch", json={"rewards": rewards}).json()["rows"]
    assert [row["status"] for row in told] == [200, 200, 409, 404, 400, 400, 200, 404]
    assert [row["body"].get("outcome") for row in told[:2]] == ["recorded", "duplicate"]
    for empty in ({"rewards": []}, {"rewards": [{"reward": 1}] * 1_001}):
        assert http.post("/v1/feedback/batch", json=empty).status_code == 400


def test_feedback_by_user_and_item(http):
    [made] = ask(http, user="uwe")
    given = {"user": "uwe", "item": made["item"], "reward": 0.5}
    assert http.post("/v1/feedback", json=given).json()["outcome"] == "recorded"
    by_id = http.post("/v1/feedback", json={"decision_id": made["decision_id"], "reward": 0.5})
    assert by_id.json()["duplicate"], "it was for the decision that showed the item"
    assert http.post("/v1/feedback", json=given).json()["duplicate"], "sent again, it counts once"
    assert http.post("/v1/feedback", json={**given, "reward": 1}).status_code == 409
    assert http.post("/v1/feedback", json={**given, "item": 12}).json()["outcome"] == "recorded"
    history = http.get("/v1/users/uwe").json()["history"]
    assert [(one["kind"], one["item"]) for one in history] == [
        ("shown", made["item"]), ("reward", made["item"]), ("reward", 12),
    ]  # fmt: skip


def test_users_are_strings_or_integers(http):
    for user, path in ((7, "int:7"), ("7", "7"), ("int:7", "str:int:7"), ("a/b ü?", "a%2Fb%20%C3%BC%3F")):
        before = http.get(f"/v1/users/{path}").json()
        assert (before["user"], before["events"]) == (user, 0)
        ask(http, user=user)
        assert http.get(f"/v1/users/{path}").json()["events"] == 1


def test_looking_at_items_and_the_tree(http):
    root = http.get("/v1/tree/0").json()
    assert (root["items"], root["parent"], root["level"]) == (1_000, None, 1)
    item = http.get("/v1/items/5").json()
    leaf = http.get(f"/v1/tree/{item['path'][-1]}").json()
    assert leaf["children"] == []
    assert leaf["parent"] == (item["path"][-2] if len(item["path"]) > 1 else 0)
    assert item["title"] == item["columns"]["title"]
    for path in (
        "/v1/items/9999",
        "/v1/items/x",
        "/v1/tree/-1",
        "/v1/tree/99999",
        "/v1/tree/x",
        "/nothing",
        "/v1/users/",
    ):
        assert http.get(path).status_code == 404, path
    assert http.put("/v1/recommend").headers["allow"] == "POST"
    assert http.put("/v1/recommend").status_code == 405


def test_health_metrics_docs(http, service):
    assert http.get("/livez").json()["ok"]
    assert http.get("/readyz").json() == {"ok": True, "reason": "", "crowd": ""}
    ask(http)
    metrics = httpx.get(f"{service.admin}/metrics").text
    assert 'treeward_requests_total{route="/v1/recommend",status="200"}' in metrics
    assert "treeward_store_ok 1.0" in metrics
    assert http.get("/metrics").status_code == 404, "not where callers are"
    assert httpx.post(f"{service.admin}/v1/recommend", json={"user": "a"}).status_code == 404
    page = http.get("/docs")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "POST /v1/feedback" in page.text
    told = http.get("/openapi.json").json()
    assert told["openapi"] == "3.1.0"
    assert {(method.upper(), path) for path, methods in told["paths"].items() for method in methods} == {
        (route.method, route.path) for route in ROUTES if not route.admin
    }
    assert httpx.post(f"{service.admin}/admin/backup").status_code == 415, "no form of another page gets there"
    saved = httpx.post(f"{service.admin}/admin/backup", json={}).json()["path"]
    assert SQLiteStore(saved).identities.secret
    assert http.get("/livez", headers={"x-request-id": "abc-1"}).headers["x-request-id"] == "abc-1"
    assert http.get("/livez", headers={"x-request-id": 'a"b'}).headers["x-request-id"] != 'a"b'


NUMBERS = [
    "NaN",
    "Infinity",
    "-Infinity",
    "1e400",
    '"1"',
    "true",
    "null",
    "[]",
    "{}",
    "1e308",
    "-1",
    "2",
    "",
    "1" * 5_000,
]


@pytest.mark.parametrize("value", NUMBERS)
def test_strange_numbers(http, value):
    [made] = ask(http)
    body = f'{{"decision_id": "{made["decision_id"]}", "reward": {value}}}'
    answer = http.post("/v1/feedback", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    body = f'{{"user": "ada", "n": {value}}}'
    answer = http.post("/v1/recommend", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == (200 if value == "2" else 400)


def test_fuzzed_bodies(http):
    rng = random.Random(0)
    bodies = [b'{"user": "ada"}', b'{"decision_id": "AQAA", "reward": 0.5}', b"[" * 100_000, b'{"a":' * 50_000]
    for _ in range(50_000 if os.environ.get("TORTURE") else 400):
        body = bytearray(rng.choice(bodies[:2]))
        for _ in range(rng.randint(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        bodies.append(bytes(body))
    for body in bodies:
        for path in ("/v1/recommend", "/v1/feedback"):
            answer = http.post(path, content=body, headers={"content-type": "application/json"})
            assert answer.status_code < 500, body
    assert http.post("/v1/recommend", content=b'{"user": "ada"}').status_code == 415
    away = http.post("/v1/recommend", json={"user": "ada"}, headers={"host": "evil.example"})
    assert (away.status_code, away.json()["error"]) == (403, "host")
    for depth in (2, 500):
        where = b'{"user":"u","where":{"price":' + b'{"min":' * depth + b"1" + b"}" * depth + b"}}"
        # The client gives up after ten seconds: what grew with a power of the depth would take for ever.
        answer = http.post("/v1/recommend", content=where, headers={"content-type": "application/json"})
        assert answer.status_code == 400
    form = http.post("/v1/recommend", data={"user": "ada"})
    assert (form.status_code, form.json()["error"]) == (415, "not_json"), "a page elsewhere can send forms"


def test_no_tampered_decision_is_taken(http):
    [made] = ask(http)
    id = made["decision_id"]
    rng = random.Random(1)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    forged = {id[:at] + rng.choice(letters.replace(id[at], "")) + id[at + 1 :] for at in range(len(id))}
    forged |= {id + "A", id[:-1], id + "=", " " + id, id.lower(), ""}
    other = tw.Explorer(synthetic_catalogue(1_000, dim=8, seed=0)).recommend(["ada"])[0].id
    for one in [*forged - {id}, other, base64.urlsafe_b64encode(b"\x01" * 60).decode()]:
        answer = http.post("/v1/feedback", json={"decision_id": one, "reward": 1})
        assert answer.status_code == 404, one


def test_schemathesis_finds_nothing(items, tmp_path):
    """All checks, every phase, one request leading to the next; but who was erased may be looked at, as a newcomer."""
    tries = 500 if os.environ.get("TORTURE") else 12
    with serving(tmp_path, items) as service:  # of its own: its items are changed, too
        done = _schemathesis(service, tries, tmp_path)
    assert done.returncode == 0, done.stdout[-20_000:]
    assert re.search(r"Stateful", done.stdout)
    assert "Tested: 29" in done.stdout


def _schemathesis(service, tries, tmp_path):
    return subprocess.run(
        [Path(sys.executable).with_name("schemathesis"), "--config-file", Path(__file__).with_name("schemathesis.toml"),
         "run", f"{service.url}/openapi.json", "--checks", "all", "--exclude-checks", "use_after_free",
         "--phases", "coverage,fuzzing,stateful", "--max-examples", str(tries), "--generation-deterministic"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip


def test_the_client(service):
    with Client(service.url) as client:
        assert client.ready()
        [made] = client.recommend("cleo", where={"category": {"min": "A"}}, exclude=[1])
        assert client.feedback(made["decision_id"], 1.0)["outcome"] == "recorded"
        rows = client.feedback_many([(made["decision_id"], 1.0), ("x", 1.0)])
        assert [row["status"] for row in rows] == [200, 404]
        assert client.user("cleo")["events"] == 2
        with pytest.raises(ServiceError, match="404 unknown_decision") as told:
            client.feedback("nothing", 1.0)
        assert (told.value.status, told.value.error) == (404, "unknown_decision")
        assert client.forget("cleo") == 2

    async def both():
        async with AsyncClient(service.url) as client:
            [made] = await client.recommend("cleo", n=1, allow=[4], fallback=[2])
            told = await client.feedback(made["decision_id"], 0.5)
            [row] = await client.feedback_many([(made["decision_id"], 0.5)])
            assert (row["status"], await client.ready()) == (200, True)
            seen = told["outcome"], (await client.user("cleo"))["events"], await client.forget("cleo")
            with pytest.raises(ServiceError, match="404"):
                await client.feedback(made["decision_id"], 0.5)
            return seen

    assert asyncio.run(both()) == ("recorded", 2, 2)
    block = re.search(r"```py\n(.*?)```", (Path(__file__).parents[2] / "docs" / "serve.md").read_text(), re.DOTALL)[1]
    assert "http://127.0.0.1:8000" in block
    exec(block.replace("http://127.0.0.1:8000", service.url), {})
    with Client("http://127.0.0.1:9", tries=2) as nobody:
        assert not nobody.ready()
        with pytest.raises(httpx.ConnectError):
            nobody.recommend("ada")


def test_many_at_once_get_what_they_would_alone(service):
    with httpx.Client(base_url=service.url, limits=httpx.Limits(max_connections=32), timeout=20) as http:

        def one(i):
            [made] = ask(http, user=f"crowd-{i % 40}")
            answer = http.post("/v1/feedback", json={"decision_id": made["decision_id"], "reward": i % 2})
            return answer.json()["outcome"]

        with ThreadPoolExecutor(32) as pool:
            outcomes = list(pool.map(one, range(400)))
        assert set(outcomes) == {"recorded"}
        assert sum(http.get(f"/v1/users/crowd-{i}").json()["events"] for i in range(40)) == 800


def test_it_stops_and_goes_on(items, tmp_path):
    with serving(tmp_path, items) as one:
        with Client(one.url) as client:
            [made] = client.recommend("ada")
            [open_] = client.recommend("ada")
            client.feedback(made["decision_id"], 1.0)
            wait_until(lambda: client.crowd()["rewards"] == 1, "the crowd knows it")
            before = client.user("ada")
        assert stop(one) == 0
        assert "everything is on disk" in (tmp_path / "stderr").read_text()
    with serving(tmp_path, items) as two, Client(two.url) as client:
        assert client.user("ada") == before
        assert client.feedback(made["decision_id"], 1.0)["duplicate"]
        assert client.feedback(open_["decision_id"], 1.0)["outcome"] == "recorded"
    told = cli("store", "check", tmp_path / "events.db", "--items", items)
    assert "4 events of 1 users; the last is event 4, of 'ada'" in told
    assert "clean" in told
    with Client(two.url, tries=1) as client, pytest.raises(httpx.TransportError):
        client.recommend("ada")


def test_windows_and_default_rewards(items, tmp_path):
    options = ("--set", "window=4.0", "--set", "default_reward=0.25")
    with serving(tmp_path, items, *options) as running, Client(running.url, tries=1) as client:
        one, other = client.recommend("ada", 2)
        client.feedback(one["decision_id"], 1.0)
        wait_until(lambda: len(client.user("ada")["history"]) == 4, "the default reward is given")
        with pytest.raises(ServiceError, match="410 too_late"):
            client.feedback(other["decision_id"], 1.0)
        named = {"user": "ada", "item": other["item"], "reward": 1.0}
        # Events know only the second they are of: feedback by item finds out up to two seconds later.
        wait_until(
            lambda: httpx.post(running.url + "/v1/feedback", json=named).json()["error"] != "conflict",
            "the window is over for feedback by item",
        )
        late = httpx.post(running.url + "/v1/feedback", json=named)
        assert (late.status_code, late.json()["error"]) == (410, "too_late")
        history = client.user("ada")["history"]
        assert [(one["kind"], one["reward"]) for one in history[2:]] == [("reward", 1.0), ("reward", 0.25)]
        [shown] = client.recommend("bob")
    with serving(tmp_path, items, *options) as running, Client(running.url) as client:
        wait_until(lambda: len(client.user("bob")["history"]) == 2, "it is given after a restart too")
        history = client.user("bob")["history"]
        assert [one["kind"] for one in history] == ["shown", "reward"]
        assert 0 <= time.time() - history[0]["time"] < 600
        assert history[0]["item"] == shown["item"]


def test_a_decision_dated_in_the_future_keeps_no_other_waiting(items, tmp_path):
    options = ("--set", "window=1", "--set", "default_reward=0.25")
    store = SQLiteStore(tmp_path / "events.db")  # the machine's clock was a day ahead
    store.append(["eve"], event(number_items(store, pl.Series([7]))[0], 0.5, nonce=9, kind=SHOWN, time=2**32 - 1))
    store.close()
    with serving(tmp_path, items, *options) as running, Client(running.url) as client:
        client.recommend("ada", 2)
        wait_until(lambda: client.user("ada")["events"] == 4, "decisions made after the restart earn the default")
        wait_until(lambda: client.user("eve")["events"] == 2, "so does the one from the future")


def test_a_store_whose_file_is_gone_is_noticed(items, tmp_path):
    with serving(tmp_path, items) as running, Client(running.url, tries=1) as client:
        client.feedback(client.recommend("ada")[0]["decision_id"], 1.0)
        (tmp_path / "events.db").rename(tmp_path / "elsewhere.db")
        wait_until(lambda: httpx.get(running.url + "/readyz").status_code == 503, "the service is not ready")
        told = httpx.get(running.url + "/readyz")
        assert "moved, removed or replaced" in told.json()["reason"]
        with pytest.raises(ServiceError, match="503 store"):
            client.recommend("ada")
        assert stop(running) == 2


def test_frozen_records_but_does_not_learn(items, tmp_path):
    with serving(tmp_path, items, "--mode", "frozen") as running, Client(running.url) as client:
        before = client.user("ada")["interests"]
        [made] = client.recommend("ada")
        assert client.feedback(made["decision_id"], 1.0)["outcome"] == "recorded"
        assert client.feedback(made["decision_id"], 1.0)["duplicate"]
        after = client.user("ada")
        assert [one["mean"] for one in after["interests"]] == [one["mean"] for one in before]
        last = {name: value for name, value in after["history"][-1].items() if name not in ("title", "time")}
        assert last == {"kind": "noted", "item": made["item"], "reward": 1.0}
    with (
        serving(tmp_path, items, "--mode", "frozen", "--set", "on_repeat=last") as running,
        Client(running.url) as client,
    ):
        assert client.feedback(made["decision_id"], 0.25)["outcome"] == "changed"
        again = client.user("ada")
        assert [one["mean"] for one in again["interests"]] == [one["mean"] for one in before]
        assert again["history"][-1]["kind"] == "noted change"


def test_apprentices_serve_the_callers_item(items, tmp_path):
    with serving(tmp_path, items, "--mode", "apprentice") as running, Client(running.url, tries=1) as client:
        with pytest.raises(ServiceError, match="caller's own items"):
            client.recommend("ada")
        for i in range(3):
            [made] = client.recommend("ada", fallback=[i])
            assert (made["item"], made["policy"], made["propensity"]) == (i, "fallback", None)
            client.feedback(made["decision_id"], 1.0)
        assert sum(one["visits"] for one in client.user("ada")["interests"]) == 3
        lift = httpx.get(f"{running.url}/v1/lift").json()
        assert (lift["compared"], 0 <= lift["matched"] <= 3) == (3, True)
        assert lift["explored"]["decisions"] == 3, "only what was served was shown"
        [made] = client.recommend("ada", fallback=[9], allow=[])
        assert made["item"] == 9


def metrics_of(running):
    """Return the samples of a service's metrics by name."""
    lines = httpx.get(f"{running.admin}/metrics").text.splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_holdouts_and_lift(items, tmp_path):
    with serving(tmp_path, items, "--set", "holdout=0.5") as running, Client(running.url) as client:
        out = {}
        for i in range(40):
            [made] = client.recommend(f"u{i}", fallback=[3] if i % 2 else [])
            out[i] = made["policy"]
            client.feedback(made["decision_id"], 1.0 if made["policy"] == "explore" else 0.25)
            assert client.user(f"u{i}")["held_out"] == (made["policy"] != "explore")
        assert {"explore", "fallback", "popular"} == set(out.values())
        assert all(kind != "popular" for i, kind in out.items() if i % 2)
        lift = client.lift()

        async def asked():
            async with AsyncClient(running.url) as other:
                return await other.lift()

        assert asyncio.run(asked()) == lift
        assert 0 <= time.time() - lift["as_of"] < 60
        assert lift["difference"] == pytest.approx(0.75)
        counted = metrics_of(running)
        for group in ("explored", "held_out"):
            mine = lift[group]
            assert counted[f'treeward_decisions_total{{group="{group}"}}'] == mine["decisions"]
            assert counted[f'treeward_rewards_total{{group="{group}"}}'] == mine["users"]
            assert counted[f'treeward_earned{{group="{group}"}}'] == pytest.approx(mine["reward"] * mine["decisions"])
        assert lift["low"] <= 0.75 <= lift["high"]
        assert lift["explored"]["users"] + lift["held_out"]["users"] == 40
        shop = synthetic_catalogue(1_000, dim=8, seed=0)
        for i in range(40):
            [choice] = client.recommend(f"u{i}", where={"category": shop.categories[7]})
            assert shop.categories[choice["item"]] == shop.categories[7]
        [again] = client.recommend("u0", fallback=[3])
        assert (again["policy"] == "explore") == (out[0] == "explore"), "for ever"


def test_no_item_is_shown_twice_to_a_user_by_default(items, tmp_path):
    with serving(tmp_path, items) as running, Client(running.url) as client:
        shown = [one["item"] for _ in range(10) for one in client.recommend("ada", 100)]
        assert len(set(shown)) == len(shown) == 1_000
        with pytest.raises(ServiceError, match="409 nothing_left"):
            client.recommend("ada")
        assert client.recommend("bob")


def test_nobody_held_out_sees_an_item_twice(items, tmp_path):
    options = ("--set", "holdout=0.9", "--set", "repeats=false")
    with serving(tmp_path, items, *options) as running, Client(running.url) as client:
        shown = [client.recommend(f"u{i % 5}", 2) for i in range(25)]
        for i in range(5):
            mine = [one["item"] for made in shown[i::5] for one in made]
            assert len(set(mine)) == len(mine)


def test_held_out_users_are_shown_nothing_that_the_request_excludes(items, tmp_path):
    settings = Settings(items=str(items), store=str(tmp_path / "events.db"), holdout=0.5, repeats=False)
    with open_explorer(settings) as explorer:
        service = Service(explorer, settings)
        user = next(name for name in map(str, range(50)) if service.groups.held_out(name))
        first, *others = explorer.catalogue.ids.to_list()[:6]

        def shown(**options):
            ask = wire.RecommendRequest(user=user, n=2, fallback=(first, 10**6, *others), **options)
            [answer] = service.recommend([ask])
            assert not isinstance(answer, Exception), answer
            return [one.item for one in answer.items], answer.items[0].policy

        assert shown(exclude=(first,)) == (others[:2], "fallback")
        assert shown(allow=(first, others[3], others[2]))[0] == [first, others[2]]
        assert shown() == ([others[3], others[4]], "fallback")  # all others were shown
        assert shown()[1] == "popular"


def test_a_fallback_shows_each_item_once_and_is_filled_up(items, tmp_path):
    options = ("--set", "holdout=0.9", "--set", "repeats=false")
    with serving(tmp_path, items, *options) as running, Client(running.url) as client:
        first, second = 3, 5
        for user in map(str, range(60)):
            made = client.recommend(user, 3, fallback=[first, first, first, second])
            if made[0]["policy"] != "explore":
                break
        kinds = [one["policy"] for one in made]
        assert [one["item"] for one in made[:2]] == [first, second]
        assert kinds == ["fallback", "fallback", "popular"]
        assert made[2]["item"] not in (first, second)
        assert {one["propensity"] for one in made} == {None}
        again = client.recommend(user, 3, fallback=[first, first, first])  # it was shown: nothing of it is left
        assert [one["policy"] for one in again] == ["popular"] * 3
        assert len({one["item"] for one in made + again}) == 6


def test_erasing_a_string_that_is_an_integer_is_not_taken_for_done(items, tmp_path):
    with serving(tmp_path, items) as running, Client(running.url) as client, httpx.Client(base_url=running.url) as http:
        client.recommend(7)
        client.recommend("8")
        client.recommend(8)
        told = http.delete("/v1/users/7")
        assert (told.status_code, "there is no '7', but an int:7" in told.json()["message"]) == (400, True)
        assert http.delete("/v1/users/int:7").json()["events"] == 1
        assert http.delete("/v1/users/7").json()["events"] == 0
        assert http.delete("/v1/users/8").json()["events"] == 1  # the string
        assert http.get("/v1/users/int:8").json()["events"] == 1


def test_settings_of_keys_are_read_to_the_letter(tmp_path):
    key = f'items = "x"\n[[keys]]\nname = "a"\nsha256 = "{"0" * 64}"\n'
    (tmp_path / "good.toml").write_text(f'{key}role = "read"\n')
    assert read_settings(tmp_path / "good.toml").keys[0].role == "read"
    for wrong in ('Role = "read"', 'role = "reader"', "rate = 5.0"):
        (tmp_path / "bad.toml").write_text(key + wrong)
        with pytest.raises(InvalidArgument, match="keys"):
            read_settings(tmp_path / "bad.toml")


@pytest.fixture(scope="module")
def keyed(items, tmp_path_factory):
    folder = tmp_path_factory.mktemp("keyed")
    keys = {role: new_key() for role in ("read", "write", "admin")}
    lines = "".join(f'[[keys]]\nname = "{role}r"\nrole = "{role}"\nsha256 = "{key[1]}"\n' for role, key in keys.items())
    (folder / "settings.toml").write_text(
        f"rate = 200\nbody_timeout = 1.0\nheader_timeout = 1.0\nmax_body = 20000\n{lines}"
    )
    with serving(folder, items, "--config", folder / "settings.toml") as running:
        yield running, {role: key[0] for role, key in keys.items()}, folder


def test_who_may_do_what(keyed):
    running, keys, folder = keyed
    ranks = {"read": 1, "write": 2, "admin": 3, None: 0}
    tried = {None: None, "wrong": "tw_nothing", **keys}
    for route in ROUTES:
        path = route.path.replace("{user}", "ada").replace("{item}", "1").replace("{node}", "0")
        path = path.replace("{file}", "style.css")
        none = "{decision}" in path or "{report}" in path  # there are none of these
        for name, key in tried.items():
            headers = {"authorization": f"Bearer {key}"} if key else {}
            base = running.admin if route.admin else running.url
            body = {"json": {}} if route.takes else {}
            status = httpx.request(route.method, base + path, headers=headers, **body).status_code
            if route.role is None:
                assert status == (404 if none else 200), route
            elif name in (None, "wrong"):
                assert status == 401, (route, name)
            elif ranks[name] < ranks[route.role]:
                assert status == 403, (route, name)
            else:
                assert status in ((404,) if none else (200, 400)), (route, name)
    assert "--key, or TREEWARD_KEY in the environment" in cli("tree", "health", running.admin, code=2)
    assert httpx.get(running.url + "/v1/lift", headers={"authorization": "Basic x"}).status_code == 401
    wait_until(lambda: '"key":"writer"' in (folder / "stderr").read_text(), "the log names the key")
    log = (folder / "stderr").read_text()
    for key in tried.values():
        assert key is None or key not in log
    assert "Bearer" not in log


def test_limits(keyed):
    running, keys, _ = keyed
    headers = {"authorization": f"Bearer {keys['write']}"}
    big = httpx.post(running.url + "/v1/recommend", json={"user": "a", "exclude": list(range(9_000))}, headers=headers)
    assert (big.status_code, big.json()["error"]) == (413, "too_large")
    known = {"authorization": f"Bearer {keys['read']}"}
    # One by one, a busy machine may not come to 200 a second.
    with httpx.Client(base_url=running.url, headers=known) as http, ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(lambda _: http.get("/v1/tree/0"), range(1_500)))
    refused = [answer for answer in codes if answer.status_code == 429]
    assert refused
    assert int(refused[0].headers["retry-after"]) >= 1
    assert {answer.status_code for answer in codes} == {200, 429}


def talk(url, *parts, pause=0.0, wait=60.0, answer=None):
    """Send parts of a request slowly, and return what came back: the `answer`, or all until it was closed."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=wait) as line:
        for part in parts:
            try:
                line.sendall(part)
            except OSError:
                break
            time.sleep(pause)
        heard = b""
        try:
            while (answer is None or answer not in heard) and (more := line.recv(4096)):
                heard += more
        except ConnectionError:
            pass
        return heard


def test_slow_callers_are_cut(keyed):
    running, keys, _ = keyed
    start = time.time()
    assert talk(running.url) == b"", "nothing was sent"
    assert time.time() - start < 8
    assert talk(running.url, *([b"GET /livez HTTP/1.1\r\n"] + [b"x-a: b\r\n"] * 4), pause=0.4) == b""
    head = f"POST /v1/recommend HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {keys['write']}\r\n".encode()
    head += b"content-type: application/json\r\ncontent-length: 15\r\n\r\n"
    assert b" 408 " in talk(running.url, head, b'{"user"')
    assert b" 200 " in talk(running.url, head, b'{"user": "ada"}', pause=0.1, answer=b" 200 ")
    for first in (head + b'{"user": "ada"}', b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"):
        start = time.time()
        assert b" 200 " in talk(running.url, first, b"\r\n", pause=0.2)
        assert time.time() - start < 8, "a line end is no sign of life"
    start = time.time()
    keyless = b"POST /v1/feedback/batch HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n"
    assert b" 401 " in talk(running.url, keyless, b"x")
    assert time.time() - start < 8, "what was refused is not waited for"
    assert talk(running.url, b"GET /livez HTTP/1.1\r\nx: " + b"y" * 300_000, b"y" * 300_000) == b""


def test_the_cap_on_connections(items, tmp_path):
    with serving(tmp_path, items, "--set", "max_connections=8") as running:
        host, _, port = running.url.removeprefix("http://").partition(":")
        with httpx.Client(base_url=running.url) as early:
            assert early.get("/livez").status_code == 200
            idle = [socket.create_connection((host, int(port))) for _ in range(7)]
            wait_until(lambda: b" 503 " in talk(running.url, answer=b" 503 "), "a further connection is refused")
            assert early.get("/livez").status_code == 200, "who is in stays in"
            for line in idle:
                line.close()
            wait_until(lambda: httpx.get(running.url + "/livez").status_code == 200, "there is room again")


def test_settings(tmp_path, items):
    path = tmp_path / "settings.toml"
    path.write_text('items = "a.npy"\nport = 9000\nmode = "frozen"\n')
    made = read_settings(path, {"TREEWARD_PORT": "9001", "TREEWARD_REPEATS": "false", "HOME": "x"}, {"mode": "online"})
    assert (made.items, made.port, made.repeats, made.mode) == ("a.npy", 9_001, False, "online")
    assert {name for name, _, _ in table()} == {one for one in Settings.__dataclass_fields__}
    docs = (Path(__file__).parents[2] / "docs" / "serve.md").read_text()
    for name, default, about in table():
        assert f"| `{name}` | {f'`{default}`' if default else ''} | {about} |" in docs
    for text, why in (
        ("prot = 1", "did you mean 'port'"),
        ("port = 'x'", "Expected `int`, got `str` - at `.*port`"),
        ("port = 70000", "port must be an integer from 0 to 65535"),
        ("host = '0.0.0.0'", "as long as there are no keys"),
        ("holdout = 1.0", "holdout"),
        ("default_reward = 0.0", "window must be above 0"),
        ("policy = 'hmab'", "policy must be one of"),
        ("mode = 'of'", "Invalid enum value 'of'"),
        ("[[keys]]\nname = 'a'\nsha256 = 'x'", "64 hexadecimal digits"),
        ("port = ", "a TOML file"),
        ("bandit = 'linucbb'", "did you mean 'linucb'"),
        ("bandit = 'epsilon'\nstrength = 5.0", "epsilon must be"),
        ("tree = '/nowhere/tree'", "a saved tree that exists"),
        ("store = '/nowhere/x.db'", "in a folder that exists"),
        ("memory = 99999999999", "memory must be"),
    ):
        path.write_text(f"items = 'x'\n{text}\n")
        with pytest.raises(InvalidArgument, match=why):
            read_settings(path, {})
    with pytest.raises(InvalidArgument, match="did you mean 'port'"):
        read_settings(None, {"TREEWARD_PROT": "1"})
    with pytest.raises(InvalidArgument, match="TREEWARD_PORT"):
        read_settings(None, {"TREEWARD_PORT": "many"})
    with pytest.raises(InvalidArgument, match="path of a catalogue"):
        read_settings(None, {})
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.org")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    told = cli("serve", items, "--check")
    assert "sound: beam with linucb" in told
    assert "a file or folder that exists" in cli("serve", tmp_path / "no", "--check", code=2)
    (tmp_path / "rubbish.csv").write_text("a,b\n1,2\n")
    assert "no column 'vector'" in cli("serve", tmp_path / "rubbish.csv", "--check", code=2)
    assert "--set" in cli("serve", items, "--set", "port", "--check", code=2)
    assert "no keys" in cli("serve", items, "--host", "0.0.0.0", code=2)
    key = cli("key", "new", "shop", "--role", "read")
    assert 'role = "read"' in key
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = cli("serve", items, "--port", taken.getsockname()[1], code=2)
        assert "one that is free here" in busy


def test_keys_and_buckets():
    key, digest = new_key()
    keys = Keys([Key("a", digest, "read")])
    assert keys.find(f"Bearer {key}".encode()).name == "a"
    for wrong in (None, b"", key.encode(), f"Bearer {key}x".encode(), f"Bearer {digest}".encode(), b"Bearer "):
        assert keys.find(wrong) is None
    assert Keys([]).find(None).role == "admin"
    buckets = RateLimit(2.0)
    assert [buckets.wait_of("a", 0.0) for _ in range(5)] == [0, 0, 0, 0, 0.5]
    assert buckets.wait_of("b", 0.0) == 0
    assert buckets.wait_of("a", 0.5) == 0
    assert RateLimit(0.0).wait_of("a", 0.0) == 0


def test_a_store_in_use_is_told(items, tmp_path):
    store = SQLiteStore(tmp_path / "events.db")
    told = cli("serve", items, "--store", store.path, "--port", 0, "--admin-port", 0, code=2)
    assert "another process has it open" in told
    store.close()
    assert "there is no such store" in cli("store", "check", tmp_path / "no.db", code=2)


def test_backup_and_salvage_from_the_command_line(tmp_path):
    from treeward.store.events import event

    store = SQLiteStore(tmp_path / "events.db")
    for i in range(30):
        store.append(["ada"], event(i, 0.5, nonce=i + 1))
    store.close()
    cli("store", "backup", tmp_path / "events.db", tmp_path / "copy.db")
    file = sqlite3.connect(tmp_path / "copy.db")
    with file:
        file.execute("UPDATE events SET records = zeroblob(35) WHERE seq = 21")
    file.close()
    assert "event 21 is not what was written" in cli("store", "check", tmp_path / "copy.db", code=1)
    told = cli("store", "salvage", tmp_path / "copy.db", tmp_path / "saved.db")
    assert "20 events of 1 users" in told
    assert "it and all after it are left out" in told
    assert SQLiteStore(tmp_path / "saved.db").read(["ada"])[0]["item"].tolist() == list(range(20))
    assert "exists already" in cli("store", "salvage", tmp_path / "copy.db", tmp_path / "saved.db", code=2)


def front_page(visitor):
    try:
        return visitor.get("/")
    except httpx.ConnectError:
        return None


def test_the_shop(service):
    shop = Path(__file__).parents[2] / "examples" / "shop.py"
    process = subprocess.Popen([sys.executable, shop, service.url], stderr=subprocess.DEVNULL)
    try:
        with httpx.Client(base_url="http://127.0.0.1:8780", follow_redirects=True) as visitor:
            page = wait_until(lambda: front_page(visitor), "the shop answers")
            assert page.text.count("<article>") == 6
            id = re.search(r"name=id value=(\S+?)>", page.text)[1]
            again = visitor.post("/", data={"id": id, "reward": "1"})
            assert again.text.count("<article>") == 6
            assert visitor.post("/", data={"id": "x", "reward": "1"}).status_code == 400
            user = visitor.cookies["user"]
        with Client(service.url) as client:
            assert [one["kind"] for one in client.user(user)["history"]] == ["shown"] * 6 + ["reward"] + ["shown"] * 6
    finally:
        process.terminate()
        process.wait()


def test_batches_find_room_for_all_or_none():
    async def go():
        gate = threading.Event()
        batcher = Batcher("test", lambda asked: (gate.wait(5), list(asked))[1], 10)
        first = batcher.ask_many(range(30))  # nobody waits: any number is fine
        with pytest.raises(Full):
            batcher.ask_many([1])
        with pytest.raises(Full):
            batcher.ask(1)
        gate.set()
        assert await asyncio.gather(*first) == list(range(30))
        assert batcher.waiting == 0
        assert await batcher.ask(5) == 5
        await asyncio.to_thread(batcher.close)

    asyncio.run(go())


def test_whoever_was_erased_meanwhile_stays_erased():
    shop = synthetic_catalogue(200, dim=4, seed=0)
    explorer = tw.Explorer(shop, exposures="all")
    service = Service(explorer, Settings(items="x", window=0.01, default_reward=0.0))
    [made] = service.recommend([wire.RecommendRequest("ada")])[0].items
    append, store = explorer.store.append, explorer.store

    def late(*arguments, **options):
        store.append = append
        forget(store, "ada")
        return append(*arguments, **options)

    store.append = late
    [outcome] = service.feedback([wire.FeedbackRequest(1.0, decision_id=made.id)])
    assert isinstance(outcome, UnknownDecision)
    assert store.counts(["ada"])[0] == 0
    time.sleep(0.05)
    assert service.expire() == 0
    assert store.counts(["ada"])[0] == 0
    service.recommend([wire.RecommendRequest("anon")])
    explorer.merge("anon", "known")
    time.sleep(0.05)
    assert service.expire() == 1
    assert (store.counts(["anon"])[0], store.counts(["known"])[0]) == (0, 2)
