"""Keys, roles, rates and limits."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.commands import run as cli
from tests.serving import serving
from tests.waiting import wait_until
from treeward.serve.keys import Keys, RateLimit, new_key
from treeward.serve.routes import ROUTES
from treeward.serve.settings import Key


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


def test_every_route_requires_its_role(keyed):
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


def test_long_bodies_and_too_many_requests_are_refused(keyed):
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


def test_slow_callers_are_disconnected(keyed):
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


def test_connections_above_the_limit_are_refused(items, tmp_path):
    with serving(tmp_path, items, "--set", "max_connections=8") as running:
        host, _, port = running.url.removeprefix("http://").partition(":")
        with httpx.Client(base_url=running.url) as early:
            assert early.get("/livez").status_code == 200
            idle = [socket.create_connection((host, int(port))) for _ in range(7)]
            wait_until(lambda: b" 503 " in talk(running.url, answer=b" 503 "), "a further connection is refused")
            assert early.get("/livez").status_code == 200, "open connections stay open"
            for line in idle:
                line.close()
            wait_until(lambda: httpx.get(running.url + "/livez").status_code == 200, "there is room again")


def test_keys_are_found_by_hash_and_limited_by_rate():
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


def test_every_key_is_compared_even_after_a_match(monkeypatch):
    made = [new_key() for _ in range(3)]
    held = Keys([Key(str(i), digest) for i, (_, digest) in enumerate(made)])
    seen = []
    monkeypatch.setattr("treeward.serve.keys.compare_digest", lambda one, other: (seen.append(1), one == other)[1])
    for key in (made[0][0], made[2][0], "tw_wrong"):
        seen.clear()
        held.find(f"Bearer {key}".encode())
        assert len(seen) == 3
