"""What docs/security.md promises of the service, tried as an attacker would."""

import ast
import gzip
import json
import os
import re
import subprocess
import traceback
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import polars as pl
import pytest

import treeward as tw
from tests.browsing import browser, needs_browser, watched  # noqa: F401
from tests.commands import run as cli
from tests.pg import cluster, needs_postgres  # noqa: F401
from tests.serving import TREEWARD, serving, stop
from treeward.client import Client
from treeward.core import report_html
from treeward.core.errors import InvalidArgument, TreewardError
from treeward.serve.keys import new_key
from treeward.serve.routes import ROUTES
from treeward.serve.settings import Settings, read_settings
from treeward.simulate.curves import draw_curves
from treeward.simulate.result import Result
from treeward.store.opening import open_store

ROOT = Path(__file__).parents[2]


HACK = (
    '<img src=x onerror="window.hacked=1"></script><script>window.hacked=1</script>'
    "<a href='javascript:window.hacked=1'>x</a>"
)


def test_every_test_named_in_the_docs_exists():
    text = (ROOT / "docs" / "security.md").read_text()
    named = set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text))
    assert len(named) > 30
    for file, name in named:
        assert re.search(rf"^ *def {name}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file}::{name}"
    for attacks in ("test_security.py", "test_protocol.py", "test_hostile_files.py"):  # all their tests are named
        mine = re.findall(r"^def (test_\w+)\(", Path(__file__).with_name(attacks).read_text(), re.MULTILINE)
        lacking = {name for name in mine if (f"tests/serve/{attacks}", name) not in named}
        assert lacking <= {"test_every_test_named_in_the_docs_exists"}


FROM_ELSEWHERE = (
    {"host": "evil.example"},
    {"host": "[::1].evil.example"},
    {"host": "[::1"},
    {"host": "127.0.0.1:80:evil.example"},
    {"host": "127.0.0.1.evil.example:8000"},
    {"host": "localhost.evil.example"},
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1.evil.example"},
    {"sec-fetch-site": "cross-site"},
)


@pytest.mark.parametrize("headers", FROM_ELSEWHERE, ids=str)
def test_pages_of_other_sites_are_refused(service, headers):
    for method, url, body in (
        ("POST", f"{service.url}/v1/feedback", {"user": "ada", "item": 1, "reward": 1}),
        ("POST", f"{service.url}/v1/recommend/batch", {"requests": [{"user": "ada"}]}),
        ("DELETE", f"{service.url}/v1/users/ada", None),
        ("GET", f"{service.url}/v1/users", None),
        ("POST", f"{service.admin}/admin/snapshot", {"back": True}),
        ("GET", f"{service.admin}/admin/tree", None),
    ):
        answer = httpx.request(method, url, json=body, headers=headers)
        assert (answer.status_code, answer.json()["error"]) == (
            403,
            next(iter(headers)).replace("sec-fetch-site", "origin"),
        )


@pytest.mark.parametrize("host", ["evil.example", "[::1].evil.example"])
def test_foreign_host_names_are_refused_on_every_route(service, host):
    for method, path in {(one.method, one.path) for one in ROUTES if not one.admin} | {("GET", "/nothing")}:
        answer = httpx.request(method, service.url + re.sub("{.*?}", "0", path), headers={"host": host})
        assert (answer.status_code, answer.json()["error"]) == (403, "host"), path


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LocalHost:1",
        "localhost:1",
        "127.0.0.1",
        "127.7.7.7:80",
        "[::1]",
        "[::1]:8000",
    ],
)
def test_loopback_host_names_are_accepted(service, host):
    assert httpx.get(f"{service.url}/readyz", headers={"host": host}).status_code == 200


def test_the_own_page_and_programs_are_accepted(service):
    for headers in ({}, {"origin": service.url, "sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}):
        assert httpx.get(f"{service.url}/v1/users", headers=headers).status_code == 200


def test_no_cross_origin_permission_is_given(service):
    asks = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    for path in ("/v1/feedback", "/v1/users/ada", "/"):
        answer = httpx.options(service.url + path, headers=asks)
        assert answer.status_code in (404, 405)
        assert not [name for name in answer.headers if name.startswith("access-control")]
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        answer = httpx.post(f"{service.url}/v1/feedback", content=b"{}", headers={"content-type": kind})
        assert answer.status_code == 415, kind


def test_answers_are_neither_cached_nor_framed(service):
    with httpx.Client(base_url=service.url) as http:
        told = [
            http.get("/v1/users"), http.get("/v1/users/ada"), http.post("/v1/recommend", json={"user": "ada"}),
            http.post("/v1/recommend", json={}), http.get("/nothing"), httpx.get(f"{service.admin}/metrics"),
        ]  # fmt: skip
        for answer in told:
            assert answer.headers["cache-control"] == "no-store", answer.url
            assert answer.headers["x-content-type-options"] == "nosniff", answer.url
            assert "server" not in answer.headers
        for path in ("/", "/docs"):
            answer = http.get(path)
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["x-content-type-options"] == "nosniff"


def test_path_traversal_is_refused(service):
    with httpx.Client() as http:
        for path in (
            "/../../etc/passwd", "/assets/../../../etc/passwd", "/assets/..%2f..%2fapp.py", "/assets/%2e%2e/keys.py",
            "/assets//etc/passwd", "/v1/reports/..%2F..%2Fetc%2Fpasswd",
            "/reports/..%2f..%2fetc%2fpasswd?until=9&ticket=x",
            "/v1/items/..%2F..", "/admin/backup",
        ):  # fmt: skip
            address = httpx.URL(service.url).copy_with(raw_path=path.encode())
            assert http.get(address).status_code in (400, 404), path


def test_compressed_bodies_are_refused(service):
    bomb = gzip.compress(b'{"user": "ada"}' + b" " * 10_000_000)
    for encoding in ("gzip", "deflate", "br", "zstd"):
        headers = {"content-type": "application/json", "content-encoding": encoding}
        assert httpx.post(f"{service.url}/v1/recommend", content=bomb, headers=headers).status_code == 400


def test_reading_about_unknown_users_stores_nothing(service):
    with httpx.Client(base_url=service.url) as http:
        before = http.get("/v1/users").json()["total"]
        for number in range(50):
            assert http.get(f"/v1/users/stranger-{number}").status_code == 200
            assert http.get(f"/v1/users/stranger-{number}/field").status_code == 200
        assert http.get("/v1/users").json()["total"] == before
        for name in ("x" * 4_000, "int:" + "9" * 4_000, "int:-1", "%00", "..", "%F0%9F%92%A3"):
            assert http.get(f"/v1/users/{name}").status_code in (200, 400, 404), name
        for user in ("x" * 513, "", 2**63, 1.5, None, ["ada"], {"a": 1}):
            assert http.post("/v1/recommend", json={"user": user}).status_code == 400, user


WHO = "Ottoline\nFfoulkes-7731"


def test_user_names_and_keys_do_not_leak(items, tmp_path):
    """One user's life: asked for, rewarded, looked at, got wrong, erased; then everything written is searched."""
    made = {role: new_key() for role in ("write", "admin")}
    lines = "".join(f'[[keys]]\nname = "{role}r"\nrole = "{role}"\nsha256 = "{key[1]}"\n' for role, key in made.items())
    (tmp_path / "settings.toml").write_text(lines)
    write, admin = ({"authorization": f"Bearer {made[role][0]}"} for role in ("write", "admin"))
    wrong = "tw_wrongwrongwrong"
    path = "/v1/users/" + WHO.replace("\n", "%0A")
    with serving(tmp_path, items, "--config", tmp_path / "settings.toml") as running:
        with httpx.Client(base_url=running.url, headers=write) as http:
            [choice] = http.post("/v1/recommend", json={"user": WHO}).json()["items"]
            assert (
                http.post("/v1/feedback", json={"decision_id": choice["decision_id"], "reward": 1}).status_code == 200
            )
            bodies = [
                {"user": WHO, "n": 0}, {"user": WHO, WHO: 1}, {"user": [WHO]}, {"user": WHO, "allow": ["x"]},
                {"user": WHO, "where": {WHO: 1}}, {"user": WHO, "n": 1_000, "allow": [1]},
            ]  # fmt: skip
            assert {http.post("/v1/recommend", json=body).status_code for body in bodies} == {400, 409}
            http.post("/v1/feedback", json={"decision_id": WHO, "reward": 1})
            http.post(
                "/v1/feedback", content=b'{"user": "' + WHO.encode(), headers={"content-type": "application/json"}
            )
            for one in (path, path + "/field", "/v1/users?q=Ottoline", f"/{WHO[:8]}", f"/v1/items/{WHO[:8]}"):
                http.get(one)
            assert WHO in http.get("/v1/users").json()["users"]
            assert http.delete(path).status_code == 403
            assert http.get("/v1/users", headers={"authorization": f"Bearer {wrong}"}).status_code == 401
            backup = httpx.post(f"{running.admin}/admin/backup", json={}, headers=admin).json()["path"]
            metrics = httpx.get(f"{running.admin}/metrics", headers=admin).text
            live = http.get("/v1/live").text + http.get("/v1/about").text + http.get("/v1/lift").text
            arguments = Path(f"/proc/{running.process.pid}/cmdline").read_text()
            swapped = subprocess.run(
                [TREEWARD, "swap", running.admin], env=os.environ | {"TREEWARD_KEY": wrong},
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert swapped.returncode == 2
            erased = http.delete(path, headers=admin).json()
            assert erased["events"] == 2
            after = http.get("/v1/users").text + http.get("/v1/search?q=Ottoline").text + http.get(path).text[60:]
            files = b"".join(one.read_bytes() for one in tmp_path.glob("events.db*") if str(one) != backup)
            assert (
                http.post("/v1/feedback", json={"decision_id": choice["decision_id"], "reward": 1}).status_code == 404
            )
            running.process.stdout.flush()
        stop(running)
        said = swapped.stdout + swapped.stderr
    log = (tmp_path / "stderr").read_text()
    asked = [json.loads(one) for one in log.splitlines() if one.startswith("{")]
    assert len(asked) > 15, "a line a request, whatever the name has in it"
    whole = (tmp_path / "events.db").read_bytes()
    checked = cli("store", "check", tmp_path / "events.db")
    cli("store", "export", tmp_path / "events.db", tmp_path / "out")
    table = pl.read_parquet(tmp_path / "out" / "*.parquet")
    assert (table.height, Path(backup).read_bytes().count(b"Ottoline")) == (0, 1)
    for text in (metrics, live, arguments, said, log, after, checked, files.decode("latin-1"), whole.decode("latin-1")):
        for word in ("Ottoline", "Ffoulkes", wrong, *(key for key, _ in made.values())):
            assert word not in text


ADDRESSES = (
    "postgresql://u:hush%zz@h/db", "postgresql://u:hush%00@127.0.0.1:1/db", "postgresql://u:hush@[::1/db",
    "postgresql://u:hush/db", "postgresql://u:hush", "postgresql://u:hu/hush@h/db", "postgresql://u:hush@127.0.0.1:1/db?x",
    "postgresql://h/db?password=hush=", "mysql://u:hush@h/db", "postgresql:/u:hush@h/db", "postgresql+psycopg://u:hush@h/db",
)  # fmt: skip


@pytest.mark.parametrize("address", ADDRESSES)
def test_errors_contain_no_password(address):
    with pytest.raises(TreewardError) as told:
        open_store(address, create=False)
    assert "hush" not in str(told.value)
    assert "hush" not in "".join(traceback.format_exception(told.value))


def test_commands_print_no_password(items, tmp_path):
    for arguments in (
        ("serve", items, "--check", "--store", ADDRESSES[-1]),
        ("store", "export", ADDRESSES[0], tmp_path / "out"),
        ("store", "check", "postgresql://u:hush@h/db"),
        ("store", "backup", "postgresql://u:hush@h/db", tmp_path / "copy.db"),
        ("store", "salvage", "mysql://u:hush@h/db", tmp_path / "saved.db"),
    ):
        assert "hush" not in cli(*arguments, code=2)
    address = "postgresql://u:hush@h/db"
    assert "hush" not in cli("serve", items, "--check", "--store", address)
    assert "hush" not in repr(read_settings(None, {"TREEWARD_STORE": address}, {"items": str(items)}))
    with pytest.raises(InvalidArgument) as told:
        read_settings(None, {"TREEWARD_STORE": address}, {"items": str(items), "port": "x"})
    assert "hush" not in str(told.value)


def test_nothing_listens_beyond_loopback_without_a_key():
    for host in ("0.0.0.0", "::", "192.168.0.1", "example.org", "", "localhost.example.org", "127.0.0.1.example.org"):
        with pytest.raises(InvalidArgument, match="as long as there are no keys"):
            Settings(items="x", host=host).check()


@contextmanager
def opened(browser, faults=0):  # noqa: F811
    tab = watched(browser.new_page())
    yield tab
    assert tab.evaluate("window.hacked") is None
    assert tab.locator("img[src=x]").count() == 0
    assert tab.locator("a[href^=javascript]").count() == 0
    assert len(tab.faults) == faults
    tab.close()


@needs_browser
def test_scripts_in_names_do_not_run_on_pages(browser, service, tmp_path):  # noqa: F811
    from plotly import graph_objects as go

    shop = tw.Catalogue([f"{HACK}{row}" for row in range(20)], np.eye(20, dtype=np.float32), titles=[HACK] * 20)
    tree = tw.ItemTree.from_categories(shop.vectors, [HACK, "other"] * 10)
    tree.draw(tmp_path / "tree.html", titles=shop.titles, heading=HACK)
    rewards = np.ones((2, 3), np.float32)
    draw_curves(
        [Result(HACK, rewards, rewards, rewards, np.ones(3), np.ones(2, bool), 1.0, {})], tmp_path / "curves.html", HACK
    )
    figure = go.Figure().add_bar(x=[HACK], y=[1], name=HACK, hovertext=HACK)
    figure.update_layout(xaxis_title=HACK, showlegend=True)
    parts = [
        report_html.heading(HACK),
        report_html.text(HACK),
        report_html.table([HACK], [[HACK]], HACK),
        report_html.facts([(HACK, HACK)]),
    ]
    (tmp_path / "report.html").write_bytes(report_html.page(HACK, [*parts, report_html.plot(figure, HACK)]))
    for name in ("tree", "curves", "report"):
        with opened(browser) as tab:
            tab.goto(f"file://{tmp_path}/{name}.html")
            tab.wait_for_selector(".main-svg")
            tab.wait_for_timeout(200)
    with Client(service.url, timeout=60) as client:
        client.put_items([{"item": 5, "columns": {"title": HACK, "category": HACK}}])
        client.recommend(HACK, allow=[5])
    with opened(browser) as tab:
        for place in ("catalogue", "catalogue/0/5", "user", "live"):
            tab.goto(f"{service.url}/#/{place}")
            tab.wait_for_selector("#view:not([aria-busy])")
        tab.goto(f"{service.url}/#/user/" + httpx.URL("/", params={"q": HACK}).query.decode()[2:].replace("+", "%20"))
        tab.wait_for_selector("#view:not([aria-busy])")
        tab.wait_for_timeout(300)
        assert "onerror" in tab.locator("#view").inner_text()


def test_scripts_in_column_names_do_not_run_on_the_api_page():
    from treeward.serve.openapi import Shape, document
    from treeward.serve.openapi import page as api_page
    from treeward.serve.routes import ROUTES

    told = api_page(document(ROUTES, Shape("integer", {HACK: "string"}, 4, (HACK,), 10, (0.0, 1.0), True)))
    assert "&lt;img src=x" in told
    assert "<img" not in told


def test_the_source_starts_no_programs_and_reads_no_pickles():
    banned = {"subprocess", "pickle", "marshal", "shelve", "yaml", "dill", "cloudpickle", "ctypes", "tarfile", "pty"}
    calls = {"eval", "exec", "system", "popen", "mktemp", "execfile", "__import__"}
    own = ROOT / "src" / "treeward" / "core" / "compile_ahead.py"  # starts this Python, with a program of its own
    assert re.findall(r"Popen\(\s*(.*?),\n", own.read_text()) == ['[sys.executable, "-P", "-c", program]']
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [one.name for one in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                assert not {name.split(".")[0] for name in names} & (
                    banned - ({"subprocess"} if path == own else set())
                ), path
            if isinstance(node, ast.Call):
                called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                model = isinstance(node.func, ast.Attribute) and called == "eval" and not node.args  # a network's
                assert called not in calls or model, f"{path}:{node.lineno}"
                assert all(one.arg != "shell" for one in node.keywords), f"{path}:{node.lineno}"
