"""The routes behind the page: its files, maps, fields, searches, explanations, reports, and live figures."""

import gzip
import re
from unittest.mock import Mock

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from tests.browsing import SHOTS, browser, needs_browser, watched  # noqa: F401
from tests.serving import serving
from tests.waiting import wait_until
from treeward.client import Client
from treeward.serve import routes
from treeward.serve.live import percentile
from treeward.serve.metrics import STEPS
from treeward.serve.reports import PLOTLY, plotly


@pytest.fixture(scope="module")
def service(visited_service):
    return visited_service


def test_files_of_the_page_are_compressed_and_revalidated(http):
    index = http.get("/")
    assert index.headers["content-type"].startswith("text/html")
    policy = index.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "default-src 'none'" in policy
    assert not re.search(rb"<script[^>]*>[^<]", index.content)
    names = set(re.findall(r"/assets/([\w.-]+)", index.text)) - {PLOTLY}
    assert {"main.js", "style.css", "icon.svg"} <= names
    for name in names:
        answer = http.get(f"/assets/{name}")
        assert answer.status_code == 200
        assert len(answer.content) < 1 << 20
        kept = http.get(f"/assets/{name}", headers={"if-none-match": answer.headers["etag"]})
        assert (kept.status_code, kept.content) == (304, b"")
    with http.stream("GET", f"/assets/{PLOTLY}", headers={"accept-encoding": "gzip"}) as answer:
        packed = b"".join(answer.iter_raw())
    assert "immutable" in answer.headers["cache-control"]
    assert len(packed) < 2 << 20
    assert gzip.decompress(packed) == plotly()
    whole = http.get("/assets/style.css", headers={"range": "bytes=0-10,20-30"})
    assert (whole.status_code, len(whole.content)) == (200, len(http.get("/assets/style.css").content))
    plain = http.get(f"/assets/{PLOTLY}", headers={"accept-encoding": "identity"})
    assert plain.content == plotly()
    assert http.get("/assets/index.html").headers["content-security-policy"] == policy
    for name in ("nothing.js", "..%2Fapp.py", "%2e%2e%2fapp.py", "__init__.py", ""):
        assert http.get(f"/assets/{name}").status_code == 404


def test_a_file_is_compressed_once_and_keeps_its_headers(monkeypatch, tmp_path):
    compressed = []

    def compress(body, level):
        compressed.append(len(body))
        return gzip_compress(body, level)

    gzip_compress = gzip.compress
    monkeypatch.setattr(routes.gzip, "compress", compress)
    file = tmp_path / "some.js"
    file.write_text("let a = 1;\n" * 1_000)
    monkeypatch.setattr(routes, "_PAGE", tmp_path)
    handlers = routes.Routes(Mock(**{"settings.reports": ""}), *[Mock()] * 5)

    async def asset(request):
        return await handlers.asset("some.js", request)

    app = Starlette(routes=[Route("/assets/some.js", asset)])
    with TestClient(app) as client:
        packed = [client.get("/assets/some.js", headers={"accept-encoding": "gzip"}) for _ in range(3)]
        plain = client.get("/assets/some.js", headers={"accept-encoding": "identity"})
        kept = client.get("/assets/some.js", headers={"if-none-match": plain.headers["etag"]})
        file.write_text("let a = 2;\n" * 2_000)
        changed = client.get("/assets/some.js", headers={"accept-encoding": "gzip"})
    assert compressed == [11_000, 22_000]
    assert {one.content for one in packed} == {plain.content}
    assert len(changed.content) == 22_000
    assert {one.headers["etag"] for one in packed} == {plain.headers["etag"]}
    assert [one.headers.get("content-encoding") for one in (packed[2], plain, kept)] == ["gzip", None, None]
    for one in (*packed, plain, kept):
        assert one.headers["vary"].lower() == "accept-encoding"
        assert one.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in one.headers["content-security-policy"]


def test_counts_on_a_map_add_up(http):
    told = http.get("/v1/tree/0/map").json()
    nodes = told["nodes"]
    assert nodes["node"][0] == 0
    ring = [i for i, parent in enumerate(nodes["parent"]) if parent == 0]
    assert sum(nodes["items"][i] for i in ring) == nodes["items"][0] == 3_000
    assert sum(nodes["shown"][i] for i in ring) == nodes["shown"][0] >= 120
    assert sum(nodes["earned"][i] for i in ring) == pytest.approx(nodes["earned"][0])
    known = set(nodes["node"])
    assert all(parent in known for parent in nodes["parent"][1:])
    inside = http.get("/v1/tree/0/items", params={"after": 2_990, "n": 50}).json()
    assert (inside["total"], len(inside["items"])) == (3_000, 10)
    for path in ("/v1/tree/99999/map", "/v1/tree/x/map", "/v1/tree/99999/items"):
        assert http.get(path).status_code == 404
    for query in ("after=-1", "n=0", "n=501", "n=x", "wrong=1", "n=1&n=2", "after=1e400", "%ff=1"):
        assert http.get(f"/v1/tree/0/items?{query}").status_code == 400, query


def test_a_field_grows_with_a_users_events(http):
    now = http.get("/v1/users/ada/field").json()
    assert (now["upto"], now["events"]) == (now["events"], now["events"])
    first = http.get("/v1/users/ada/field", params={"upto": 0}).json()
    assert (first["opened"], first["last"]) == (1, None)
    opened = [http.get("/v1/users/ada/field", params={"upto": n}).json()["opened"] for n in range(0, 120, 12)]
    assert opened == sorted(opened)
    assert opened[-1] > 1
    # The nodes that are drawn and visible do not lie in each other.
    visible = {node for node, seen in zip(now["nodes"]["node"], now["visible"], strict=True) if seen}
    parent = dict(zip(now["nodes"]["node"], now["nodes"]["parent"], strict=True))
    for node in visible:
        above = parent[node]
        while above in parent:
            assert above not in visible
            above = parent[above]
    told = http.get("/v1/users/ada").json()["interests"]
    means = dict(zip(now["nodes"]["node"], now["mean"], strict=True))
    assert all(means[one["node"]] == pytest.approx(one["mean"], rel=1e-4) for one in told if one["node"] in means)
    assert http.get("/v1/users/nobody/field", params={"upto": 5}).json()["upto"] == 0
    assert http.get("/v1/users/ada/field", params={"node": 10**6}).status_code == 404


def test_children_are_listed_largest_first_in_parts(http):
    told = http.get("/v1/tree/0/children", params={"n": 5}).json()
    rest = http.get("/v1/tree/0/children", params={"after": 5, "n": 500}).json()
    nodes = told["nodes"]["node"] + rest["nodes"]["node"]
    sizes = told["nodes"]["items"] + rest["nodes"]["items"]
    assert told["total"] == len(set(nodes)) == len(nodes)
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) == 3_000


def test_changed_rewards_count_once_in_live_figures(large_items, tmp_path):
    with serving(tmp_path, large_items, "--set", "on_repeat=last") as running, Client(running.url) as client:
        [made] = client.recommend("ada")
        client.feedback(made["decision_id"], 0.25)
        client.feedback(made["decision_id"], 1.0)
        told = httpx.get(running.url + "/v1/live").json()
        assert (told["rewards"], told["earned"]) == (1, 1.0)


def test_items_nodes_and_users_are_found_by_name(http):
    assert http.get("/v1/search").json() == {"items": [], "all_items": 0, "nodes": [], "all_nodes": 0}
    assert [one["node"] for one in http.get("/v1/search?q=node 5").json()["nodes"]] == [5]
    assert http.get("/v1/search?q=17").json()["items"][0]["item"] == 17
    for rubbish in ("(", "[a-", "\\", "%", "*", "\x00", "é" * 200):
        assert http.get("/v1/search", params={"q": rubbish}).status_code == 200, rubbish
    assert http.get("/v1/search", params={"q": "a" * 201}).status_code == 400
    told = http.get("/v1/users").json()
    assert {"ada", 7} <= set(told["users"])
    assert http.get("/v1/users?q=AD").json()["users"] == ["ada"]


def test_explanations_reproduce_their_decision(http):
    [made] = http.post("/v1/recommend", json={"user": "ada"}).json()["items"]
    told = http.get("/v1/decisions/" + made["decision_id"]).json()
    assert (told["reproduced"], told["item"]) == (True, made["item"])
    assert [one["id"] for one in told["way"]] == made["path"]
    assert [sum(one["chosen"] for one in step["considered"]) for step in told["steps"]] == [1] * len(told["steps"])
    assert http.get("/v1/decisions/" + made["decision_id"][:-2] + "AA").status_code == 404


def test_reports_are_opened_only_by_valid_links(http):
    link = http.get("/v1/reports/one%2Freport.html").json()["url"]
    answer = http.get(link)
    assert b"Hello" in answer.content
    assert len(answer.content) < 1 << 20
    assert "sandbox allow-scripts" in answer.headers["content-security-policy"]
    name, _, ticket = link.partition("?")
    assert http.get(name).status_code == 404
    assert http.get(f"/reports/evil.html?{ticket}").status_code == 404
    assert http.get(link.replace("until=", "until=9")).status_code == 404
    assert [one["name"] for one in http.get("/v1/reports").json()["reports"]] == ["evil.html", "one/report.html"]
    for other in ("..%2Fsecret.html", "%2Fetc%2Fpasswd", "notes.txt", "one", "link.html", "up%2Fsecret.html"):
        assert http.get(f"/v1/reports/{other}").status_code == 404


def test_live_figures_count_a_decision_and_its_reward(http):
    wait_until(lambda: http.get("/v1/live").json()["seconds"]["time"], "the first second is over")
    before = http.get("/v1/live").json()
    [made] = http.post("/v1/recommend", json={"user": "lee"}).json()["items"]
    http.post("/v1/feedback", json={"decision_id": made["decision_id"], "reward": 0.25})
    since = {"after": before["seconds"]["time"][-1]}
    wait_until(lambda: sum(http.get("/v1/live", params=since).json()["seconds"]["decisions"]), "its second is over")
    after = http.get("/v1/live", params=since).json()
    assert after["decisions"] - before["decisions"] == 1
    assert after["rewards"] - before["rewards"] == 1
    assert after["earned"] - before["earned"] == pytest.approx(0.25)
    assert sum(after["seconds"]["decisions"]) >= 1
    assert min(after["seconds"]["time"]) > before["seconds"]["time"][-1]
    shown = http.get("/v1/tree/0/items", params={"n": 500}).json()["items"]
    assert after["seconds"]["covered"][-1] >= sum(one["shown"] > 0 for one in shown)


def test_percentiles_are_interpolated_from_counts():
    counts = [0] * (len(STEPS) + 1)
    assert percentile(counts, 0.5) is None
    counts[3] = 100
    assert percentile(counts, 0.5) == pytest.approx(1e3 * (STEPS[2] + STEPS[3]) / 2)
    counts[-1] = 100
    assert percentile(counts, 0.99) > 1e3 * STEPS[-1]
