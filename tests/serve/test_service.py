"""The service over HTTP, as its callers use it: recommend, feedback, filters, modes."""

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.commands import run as cli
from tests.serve.asking import ask
from tests.serving import serving, stop
from tests.waiting import wait_until
from treeward.client import Client, ServiceError
from treeward.data.synthetic import synthetic_catalogue
from treeward.serve.routes import ROUTES
from treeward.store.events import event
from treeward.store.sqlite import SQLiteStore


def test_feedback_is_recorded_once_and_gone_once_the_user_is_erased(http):
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


def test_filters_limit_what_is_recommended(http):
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


def test_every_row_of_a_batch_has_a_status_of_its_own(http):
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


def test_feedback_by_user_and_item_counts_for_the_decision(http):
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


def test_integer_and_string_users_are_different(http):
    for user, path in ((7, "int:7"), ("7", "7"), ("int:7", "str:int:7"), ("a/b ü?", "a%2Fb%20%C3%BC%3F")):
        before = http.get(f"/v1/users/{path}").json()
        assert (before["user"], before["events"]) == (user, 0)
        ask(http, user=user)
        assert http.get(f"/v1/users/{path}").json()["events"] == 1


def test_items_and_nodes_are_returned_and_unknown_ones_are_404(http):
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


def test_health_metrics_and_docs_are_served_where_they_belong(http, service):
    assert http.get("/livez").json()["ok"]
    assert http.get("/readyz").json() == {"ok": True, "reason": "", "crowd": ""}
    ask(http)
    metrics = httpx.get(f"{service.admin}/metrics").text
    assert 'treeward_requests_total{route="/v1/recommend",status="200"}' in metrics
    assert "treeward_store_ok 1.0" in metrics
    assert "treeward_store_ok 1.0" in http.get("/metrics").text, "a scraper on another machine reads these"
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


def test_concurrent_callers_lose_no_events(service):
    with httpx.Client(base_url=service.url, limits=httpx.Limits(max_connections=32), timeout=20) as http:

        def one(i):
            [made] = ask(http, user=f"crowd-{i % 40}")
            answer = http.post("/v1/feedback", json={"decision_id": made["decision_id"], "reward": i % 2})
            return answer.json()["outcome"]

        with ThreadPoolExecutor(32) as pool:
            outcomes = list(pool.map(one, range(400)))
        assert set(outcomes) == {"recorded"}
        assert sum(http.get(f"/v1/users/crowd-{i}").json()["events"] for i in range(40)) == 800


def test_a_restart_continues_where_the_service_stopped(items, tmp_path):
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


def test_a_deleted_store_makes_the_service_not_ready(items, tmp_path):
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


def test_no_item_is_shown_twice_to_a_user_by_default(items, tmp_path):
    with serving(tmp_path, items) as running, Client(running.url) as client:
        shown = [one["item"] for _ in range(10) for one in client.recommend("ada", 100)]
        assert len(set(shown)) == len(shown) == 1_000
        with pytest.raises(ServiceError, match="409 nothing_left"):
            client.recommend("ada")
        assert client.recommend("bob")


def test_erasing_a_string_does_not_stand_for_erasing_an_integer(items, tmp_path):
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


def test_a_store_in_use_is_refused(items, tmp_path):
    store = SQLiteStore(tmp_path / "events.db")
    told = cli("serve", items, "--store", store.path, "--port", 0, "--admin-port", 0, code=2)
    assert "another process has it open" in told
    store.close()
    assert "there is no such store" in cli("store", "check", tmp_path / "no.db", code=2)


def test_a_damaged_backup_can_be_salvaged(tmp_path):

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
