"""What docs/security.md promises, tried as an attacker would."""

import ast
import gzip
import json
import os
import re
import socket
import sqlite3
import struct
import subprocess
import time
import traceback
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import httpx
import numpy as np
import polars as pl
import pytest
from rich.table import Table

import treeward as tw
from tests.browsing import browser, needs_browser, watched  # noqa: F401
from tests.commands import run as cli
from tests.pg import cluster, needs_postgres  # noqa: F401
from tests.serving import TREEWARD, serving, stop
from tests.waiting import wait_until
from treeward.cli.console import _Console, line, plain
from treeward.client import Client
from treeward.core import artefact, page
from treeward.core.errors import ArtefactCorrupt, DataError, InvalidArgument, StoreError, StoreVersion, TreewardError
from treeward.data.synthetic import synthetic_catalogue
from treeward.experiment.spec import Arm, Spec
from treeward.serve import keys as keyring
from treeward.serve.keys import Keys, new_key
from treeward.serve.protocol import Protocol
from treeward.serve.routes import ROUTES
from treeward.serve.settings import Key, Settings, read_settings
from treeward.simulate.curves import draw_curves
from treeward.simulate.result import Result
from treeward.store.base import everyone, forget, merge, read_rewards
from treeward.store.check import check
from treeward.store.events import event
from treeward.store.numbers import number_items
from treeward.store.opening import open_store
from treeward.store.parquet import export
from treeward.store.sqlite import SQLiteStore

ROOT = Path(__file__).parents[2]
HACK = (
    '<img src=x onerror="window.hacked=1"></script><script>window.hacked=1</script>'
    "<a href='javascript:window.hacked=1'>x</a>"
)
SHOUT = "\x1b]0;owned\x07\x1b[2J[red]x[/red] [link=https://evil.example]y[/link] :bomb: \u202egpj.exe\r\x9b31m"


def test_every_test_that_the_page_names_exists():
    text = (ROOT / "docs" / "security.md").read_text()
    named = set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text))
    assert len(named) > 30
    for file, name in named:
        assert re.search(rf"^ *def {name}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file}::{name}"
    mine = re.findall(r"^def (test_\w+)\(", Path(__file__).read_text(), re.MULTILINE)
    assert {name for name in mine if ("tests/serve/test_security.py", name) not in named} == {mine[0]}


# --- a service -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    path = tmp_path_factory.mktemp("shop") / "items"
    synthetic_catalogue(1_000, dim=8, seed=0).save(path)
    return path


@pytest.fixture(scope="module")
def service(items, tmp_path_factory):
    """Without keys, on loopback."""
    options = ("--set", "header_timeout=1.0", "--set", "body_timeout=1.0")
    with serving(tmp_path_factory.mktemp("open"), items, *options) as running:
        yield running


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
def test_a_page_from_elsewhere_gets_nothing_done(service, headers):
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
def test_a_name_that_leads_here_opens_no_route(service, host):
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
def test_this_machine_is_known_by_its_names(service, host):
    assert httpx.get(f"{service.url}/readyz", headers={"host": host}).status_code == 200


def test_the_page_itself_and_programs_get_in(service):
    for headers in ({}, {"origin": service.url, "sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}):
        assert httpx.get(f"{service.url}/v1/users", headers=headers).status_code == 200


def test_other_pages_are_given_no_leave(service):
    asks = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    for path in ("/v1/feedback", "/v1/users/ada", "/"):
        answer = httpx.options(service.url + path, headers=asks)
        assert answer.status_code in (404, 405)
        assert not [name for name in answer.headers if name.startswith("access-control")]
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        answer = httpx.post(f"{service.url}/v1/feedback", content=b"{}", headers={"content-type": kind})
        assert answer.status_code == 415, kind


def test_answers_are_kept_by_nobody_and_framed_by_nobody(service):
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


def test_paths_lead_nowhere(service):
    with httpx.Client() as http:
        for path in (
            "/../../etc/passwd", "/assets/../../../etc/passwd", "/assets/..%2f..%2fapp.py", "/assets/%2e%2e/keys.py",
            "/assets//etc/passwd", "/v1/reports/..%2F..%2Fetc%2Fpasswd",
            "/reports/..%2f..%2fetc%2fpasswd?until=9&ticket=x",
            "/v1/items/..%2F..", "/admin/backup", "/metrics",
        ):  # fmt: skip
            address = httpx.URL(service.url).copy_with(raw_path=path.encode())
            assert http.get(address).status_code in (400, 404), path


def test_compressed_bodies_are_not_unpacked(service):
    bomb = gzip.compress(b'{"user": "ada"}' + b" " * 10_000_000)
    for encoding in ("gzip", "deflate", "br", "zstd"):
        headers = {"content-type": "application/json", "content-encoding": encoding}
        assert httpx.post(f"{service.url}/v1/recommend", content=bomb, headers=headers).status_code == 400


def test_looking_at_strangers_keeps_nothing(service):
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


def connected(url):
    host, _, port = url.removeprefix("http://").partition(":")
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect((host, int(port)))
    made.settimeout(5)
    return made


def megabytes(process):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1]) / 1024


def cut(caller, part, seconds=20):
    """Send the same again and again; tell whether the service closes the connection."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            caller.sendall(part)
        except ConnectionError:
            return True
        time.sleep(0.0005)
    return False


def is_closed(caller):
    try:
        caller.send(b"x", socket.MSG_DONTWAIT)
    except ConnectionError:
        return True
    except BlockingIOError:
        pass
    return False


def test_whoever_never_reads_is_cut_and_takes_no_memory(service):
    before = megabytes(service.process)
    with connected(service.url) as caller:
        assert cut(caller, b"POST /v1/recommend HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}" * 20)
    assert megabytes(service.process) - before < 30
    assert httpx.get(f"{service.url}/livez").status_code == 200


def test_who_does_not_read_writes_nothing_but_json_into_the_log(service):
    callers = [connected(service.url) for _ in range(6)]
    for caller, path in zip(callers, ("/docs", "/", "/openapi.json") * 2, strict=True):
        with suppress(TimeoutError):  # the service reads no more of it
            caller.settimeout(0.3)
            for _ in range(100):
                caller.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode() * 10)
    for caller in callers:
        with caller:
            wait_until(lambda caller=caller: is_closed(caller), "the connection is cut")
    httpx.get(f"{service.url}/livez", headers={"x-request-id": "after-all"})
    wait_until(lambda: "after-all" in service.log.read_text(), "the log is written")
    lines = service.log.read_text().splitlines()
    said = lines[next(i for i, line in enumerate(lines) if line.startswith("{")) :]
    assert [line for line in said if not json.loads(line)] == []
    assert [line for line in said if "error" in line] == [], "somebody who goes away is no error"


def test_what_a_slow_reader_takes_from_the_kernel_counts():
    """The transport's own buffer does not move as long as the kernel's is full."""
    here, there = socket.socketpair()
    with here, there:
        here.sendall(b"x" * 8_000)
        transport = SimpleNamespace(get_write_buffer_size=lambda: 100, get_extra_info={"socket": here}.get)
        before = Protocol._left(SimpleNamespace(transport=transport))
        assert before > 100
        there.recv(8_000, socket.MSG_WAITALL)
        assert Protocol._left(SimpleNamespace(transport=transport)) == 100


@pytest.mark.parametrize("where", ["url", "admin"])
def test_both_listeners_cut_slow_and_long_headers(service, where):
    place = getattr(service, where)
    callers = [connected(place) for _ in range(20)]
    for caller in callers:
        caller.sendall(b"GET /livez HTTP/1.1\r\nx-slow: ")
    with connected(place) as long:
        long.sendall(b"GET /livez HTTP/1.1\r\n")
        assert cut(long, b"x: y\r\n" * 2_000, 0.8)
    for caller in callers:
        assert caller.recv(1) == b"", "closed after a second"
        caller.close()


HOT, COLD = b"POST /v1/recommend", b"POST /v1/recommend/batch"


@pytest.mark.parametrize("call", [HOT, COLD], ids=["hot", "cold"])
@pytest.mark.parametrize("trailer", [b"X: y\r\n" * 2_000, b"z" * 12_000], ids=["many", "one"])
def test_trailers_are_limited_like_headers(service, call, trailer):
    before = megabytes(service.process)
    start = (
        call + b" HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    with connected(service.url) as caller:
        caller.sendall(start + b"1\r\n1\r\n0\r\n" + (b"X: " if trailer[:1] == b"z" else b""))
        sent = 0
        while sent < 30_000_000:
            try:
                caller.sendall(trailer)
            except ConnectionError:
                break
            sent += len(trailer)
    assert sent < 30_000_000, "the service took it all"
    assert megabytes(service.process) - before < 30
    assert httpx.get(f"{service.url}/livez").status_code == 200


@pytest.mark.parametrize("size", [70_000, 120_000])
def test_long_headers_are_refused_even_if_they_come_at_once(service, size):
    body = b'{"user": "ada"}'
    head = b" HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n" % len(body)
    for call in (HOT, COLD):
        with connected(service.url) as caller:
            answer = b""
            try:
                caller.sendall(call + head + b"x: %s\r\n\r\n" % (b"y" * size) + body)
                answer = caller.recv(100)
            except ConnectionError:
                pass
            assert b" 200 " not in answer
    fine = {"x": "y" * 60_000}
    assert httpx.post(f"{service.url}/v1/recommend", json={"user": "ada"}, headers=fine).status_code == 200


def test_who_has_no_key_is_refused_before_the_body_is_sent(items, tmp_path):
    _, digest = new_key()
    (tmp_path / "settings.toml").write_text(f'[[keys]]\nname = "a"\nsha256 = "{digest}"\n')
    with serving(tmp_path, items, "--config", tmp_path / "settings.toml") as running:
        for call in (HOT, COLD, b"POST /v1/feedback"):
            head = b" HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 900000\r\n\r\n"
            with connected(running.url) as caller:
                caller.sendall(call + head)
                assert caller.recv(100).startswith(b"HTTP/1.1 401"), call
        answers = [httpx.post(f"{running.url}/v1/recommend", json={"user": "ada"}) for _ in range(3)]
        assert {answer.status_code for answer in answers} == {401}
        with httpx.Client(base_url=running.url) as http:  # where all of a request is there, the connection goes on
            for _ in range(3):
                assert http.post("/v1/recommend", json={"user": "ada"}).headers.get("connection") is None


def test_a_body_in_many_small_chunks_is_read(service):
    body = b'{"user": "' + b"a" * 200 + b'"}'
    head = HOT + b" HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    with connected(service.url) as caller:
        caller.sendall(head)
        for byte in body:
            caller.sendall(b"1\r\n")
            caller.sendall(bytes([byte]) + b"\r\n")
        caller.sendall(b"0\r\nX: y\r\n\r\n")
        assert caller.recv(100).startswith(b"HTTP/1.1 200")


def test_every_key_is_compared_whatever_comes_first(monkeypatch):
    made = [new_key() for _ in range(3)]
    held = Keys([Key(str(i), digest) for i, (_, digest) in enumerate(made)])
    seen = []
    monkeypatch.setattr(keyring, "compare_digest", lambda one, other: (seen.append(1), one == other)[1])
    for key in (made[0][0], made[2][0], "tw_wrong"):
        seen.clear()
        held.find(f"Bearer {key}".encode())
        assert len(seen) == 3


# --- what is kept, and what is told -----------------------------------------------------------------------------------

WHO = "Ottoline\nFfoulkes-7731"


def test_names_and_keys_are_where_they_belong_and_nowhere_else(items, tmp_path):
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


def test_the_files_are_the_owners(tmp_path):
    before = os.umask(0)
    try:
        store = SQLiteStore(tmp_path / "events.db")
        number_items(store, pl.Series([17]))
        store.append(["ada"], event(0, 1.0, nonce=7))
        store.backup(tmp_path / "copy.db")
        export(store, tmp_path / "out")
        found = {one.name: one.stat().st_mode & 0o777 for one in tmp_path.iterdir()}
        store.close()
    finally:
        os.umask(before)
    assert found.pop("out") == 0o700
    assert set(found) >= {"events.db", "events.db-wal", "copy.db"}
    assert set(found.values()) == {0o600}


ADDRESSES = (
    "postgresql://u:hush%zz@h/db", "postgresql://u:hush%00@127.0.0.1:1/db", "postgresql://u:hush@[::1/db",
    "postgresql://u:hush/db", "postgresql://u:hush", "postgresql://u:hu/hush@h/db", "postgresql://u:hush@127.0.0.1:1/db?x",
    "postgresql://h/db?password=hush=", "mysql://u:hush@h/db", "postgresql:/u:hush@h/db", "postgresql+psycopg://u:hush@h/db",
)  # fmt: skip


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_error_tells_a_password(address):
    with pytest.raises(TreewardError) as told:
        open_store(address, create=False)
    assert "hush" not in str(told.value)
    assert "hush" not in "".join(traceback.format_exception(told.value))


def test_no_command_tells_a_password(items, tmp_path):
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


# --- files from strangers ---------------------------------------------------------------------------------------------


def npy(header, body=b"\0" * 64, version=1):
    text = header.encode() + b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(text)) + text + body


def shaped(shape, kind="'<f4'"):
    return npy(f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}")


RUNS = "cos\nsystem\n(S'touch pwned'\ntR."
HOSTILE = {
    "larger than any machine": shaped("(1099511627776, 8)"),
    "larger than any number": shaped("(4611686018427387904, 4)"),
    "wraps to nothing": shaped("(1099511627776, 1099511627776)"),
    "more digits than a number has": shaped("(99999999999999999999999999, 8)"),
    "negative": shaped("(-4, 4)"),
    "a flag for a size": shaped("(True, 4)"),
    "objects": npy("{'descr': '|O', 'fortran_order': False, 'shape': (4, 4), }", RUNS.encode()),
    "objects inside": shaped("(4, 4)", "[('a', '|O')]"),
    "a call": shaped("(4, 4)", "__import__('os').system('touch pwned')"),
    "deep": shaped("(4, 4)", "(" * 4_000 + ")" * 4_000),
    "many signs": shaped("(4, 4)", "-" * 9_000 + "1"),
    "huge elements": shaped("(1, 1)", "'|V2147483647'"),
    "cut off": npy("{'descr': '<f4'"),
    "a pickle": RUNS.encode(),
    "a zip": b"PK\x03\x04" + b"\0" * 60,
    "of another version": npy("{}", version=9),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_hostile_arrays_are_refused(content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shards").mkdir()
    for path in (tmp_path / "x.npy", tmp_path / "shards" / "0.npy"):
        path.write_bytes(content)
    with pytest.raises(DataError, match="x.npy: cannot be read"):
        tw.Catalogue.load(tmp_path / "x.npy")
    with pytest.raises(DataError, match="0.npy: cannot be read"):
        tw.ItemTree.from_shards(tmp_path / "shards", [2])
    assert not (tmp_path / "pwned").exists()


def test_a_sealed_manifest_over_a_hostile_array_is_refused(tmp_path):
    folder = tmp_path / "tree"
    tw.ItemTree.flat(np.eye(4, dtype=np.float32)).save(folder)
    told = json.loads((folder / "manifest.json").read_text())
    file = told["files"]["vectors"]
    content = HOSTILE["larger than any machine"]
    (folder / file["name"]).write_bytes(content)
    file |= {"bytes": len(content), "shape": [1099511627776, 8], "sha256": artefact.hashlib.sha256(content).hexdigest()}
    told["checksum"] = artefact._checksum(told)
    (folder / "manifest.json").write_bytes(artefact._render(told))
    with pytest.raises(ArtefactCorrupt, match="cannot be read"):
        tw.ItemTree.load(folder)


def test_links_that_wait_where_we_write_are_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "tree").mkdir()
    for name in ("vectors.npy.part", "manifest.json.part"):
        (tmp_path / "tree" / name).symlink_to(victim)
    tw.ItemTree.flat(np.eye(4, dtype=np.float32)).save(tmp_path / "tree")
    assert tw.ItemTree.load(tmp_path / "tree").vectors.shape[1] == 4
    (tmp_path / "out.html").symlink_to(victim)
    artefact.write_file(tmp_path / "out.html", b"page")
    assert victim.read_text() == "precious"
    (tmp_path / "events.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="a link to nothing; make the store where it leads to"):
        SQLiteStore(tmp_path / "events.db")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    "trick",
    [
        "CREATE TRIGGER keep AFTER INSERT ON users BEGIN INSERT INTO metadata VALUES (new.name, new.name, 0); END",
        "CREATE VIEW more AS SELECT * FROM users",
        "CREATE TABLE more (name)",
        "CREATE INDEX more ON users (name)",
        "DROP TABLE metadata; CREATE VIEW metadata AS SELECT * FROM users",
        "DROP TABLE metadata; CREATE VIRTUAL TABLE metadata USING fts5(key, value, crc)",
    ],
)
def test_a_store_that_does_things_is_refused(trick, tmp_path):
    path = tmp_path / "events.db"
    SQLiteStore(path).close()
    with sqlite3.connect(path) as file:
        file.executescript(trick)
    file.close()
    with pytest.raises(StoreVersion, match="that no store of treeward's has"):
        SQLiteStore(path)
    with pytest.raises(StoreVersion):
        check(path)


def test_a_store_that_was_analysed_is_still_one(tmp_path):
    SQLiteStore(tmp_path / "events.db").close()
    with sqlite3.connect(tmp_path / "events.db") as file:
        file.execute("ANALYZE")
    file.close()
    SQLiteStore(tmp_path / "events.db").close()


NAMES = (
    "'; DROP TABLE events; --",
    '"; DELETE FROM users',
    "a' OR '1'='1",
    "%s %(x)s $1 {}",
    "\\'; x",
    "a\x01b",
    "ü\u202e",
)


def hold(store):
    for number, name in enumerate(NAMES):
        store.append([name], event(number, 0.5, nonce=number + 1))
    number_items(store, pl.Series(NAMES))
    store.metadata.put({NAMES[0]: b"note"})
    merge(store, NAMES[1], NAMES[2])
    assert forget(store, NAMES[0]) == 1
    assert set(everyone(store)) == set(NAMES[2:])
    assert (store.counts([NAMES[2]]), store.metadata.get(NAMES[0])) == ([2], b"note")
    assert read_rewards(store, [(NAMES[3], 4)]) == [[0.5]]


def test_names_are_never_sql(tmp_path):
    store = SQLiteStore(tmp_path / "events.db")
    hold(store)
    store.close()
    assert not check(tmp_path / "events.db").problems
    assert set(SQLiteStore(tmp_path / "events.db").users()) == set(NAMES[2:])


@needs_postgres
def test_names_are_never_sql_in_a_database(cluster):  # noqa: F811
    store = open_store(cluster.database("names"))
    hold(store)
    store.close()


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_a_terminal_shows_names_and_obeys_none():
    held = Table(title=SHOUT)
    held.add_column(SHOUT)
    held.add_row(SHOUT)
    with (out := Path(os.devnull).open("w")):
        made = _Console(file=out, force_terminal=True, color_system=None, record=True, width=200)
        for what in (held, SHOUT, f"{SHOUT}\n"):
            made.print(what, highlight=False)
        shown = made.export_text()
    assert shown.count("[link=https://evil.example]y[/link] :bomb:") == 5
    for sign in "\x1b\x07\r\x9b\u202e":
        assert sign not in shown
    assert plain(SHOUT).startswith(r"\x1b]0;owned\x07\x1b[2J[red]x[/red]")
    assert line("a\nb\tc") == "a\\nb\tc"


def test_commands_show_titles_and_obey_none(tmp_path):
    shop = tw.Catalogue(
        ["a", SHOUT + "\nforged line"], np.eye(2, dtype=np.float32), titles=["plain", SHOUT + "\nforged"]
    )
    shop.save(tmp_path / "items")
    tw.ItemTree.flat(shop.vectors).named(shop.titles).save(tmp_path / "tree")
    told = cli("tree", "show", tmp_path / "tree", "--items", tmp_path / "items")
    assert "[link=https://evil.example]y[/link]" in told
    assert not re.search(r"^forged|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", told, re.MULTILINE)
    odd = tmp_path / "\x1b[2J[bold]x.npy"
    odd.write_bytes(b"rubbish")
    told = cli("tree", "build", odd, "-o", tmp_path / "t", code=2)
    assert "[bold]x.npy" in told
    assert "\x1b" not in told


def test_labels_are_no_formulas():
    for label in ("=cmd()", "+1", "-1", "@x", "\tx"):
        with pytest.raises(InvalidArgument, match="do not begin with"):
            Spec(name="x", data="x", arms=(Arm(label, "hcb"),)).check()


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
def test_pages_show_names_and_run_none(browser, service, tmp_path):  # noqa: F811
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
    parts = [page.heading(HACK), page.text(HACK), page.table([HACK], [[HACK]], HACK), page.facts([(HACK, HACK)])]
    (tmp_path / "report.html").write_bytes(page.page(HACK, [*parts, page.plot(figure, HACK)]))
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


def test_the_api_page_shows_column_names_and_runs_none():
    from treeward.serve.openapi import Shape, document
    from treeward.serve.openapi import page as api_page
    from treeward.serve.routes import ROUTES

    told = api_page(document(ROUTES, Shape("integer", {HACK: "string"}, 4, (HACK,), 10, (0.0, 1.0), True))).decode()
    assert "&lt;img src=x" in told
    assert "<img" not in told


def test_the_code_starts_no_programs_and_reads_no_pickles():
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
