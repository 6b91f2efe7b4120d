"""Paths, methods, queries and errors of the cold routes: the contract, where a framework's defaults would differ."""

import socket

import httpx
import pytest

from tests.serving import serving
from treeward.data.synthetic import synthetic_catalogue
from treeward.serve.routes import ROUTES


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("routes")
    synthetic_catalogue(300, dim=4, seed=0).save(folder / "items")
    with serving(folder, folder / "items") as running:
        yield running


@pytest.fixture
def http(service):
    with httpx.Client(base_url=service.url, timeout=10) as client:
        yield client


def raw(url, request):
    """Send bytes, and return the answer's head."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as line:
        line.sendall(request)
        return line.recv(4096).decode("latin-1")


def test_every_route_is_matched_by_its_own_method_only(http, service):
    methods = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
    by_path = {}
    for route in ROUTES:
        by_path.setdefault((route.admin, route.path), set()).add(route.method)
    for (admin, path), allowed in by_path.items():
        address = (service.admin if admin else service.url) + path.replace("{", "").replace("}", "")
        for method in methods - allowed:
            answer = http.request(method, address)
            assert answer.status_code == 405, (method, path)
            assert answer.headers["allow"] == ", ".join(sorted(allowed))
            assert method == "HEAD" or answer.json()["error"] == "method"


@pytest.mark.parametrize(
    "path", ["/v1/users/", "/v1/users/ada/", "/livez/", "/docs/", "/v1//users", "/v1/tree/0/", "/assets"]
)
def test_slashes_are_not_redirected(http, path):
    answer = http.get(path, follow_redirects=False)
    assert (answer.status_code, answer.json()["error"]) == (404, "no_route")


@pytest.mark.parametrize(
    "path", ["/nothing", "/v1/tree/999999", "/v1/search?n=x", "/assets/nothing.js", "/%ff", "/v1/users/%ff"]
)
def test_errors_are_json_with_a_request_id(http, path):
    answer = http.get(path, headers={"x-request-id": "mine-1", "accept": "text/html"})
    assert answer.status_code in (400, 404)
    assert set(answer.json()) == {"error", "message"}
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"] == "mine-1"
    assert answer.headers["cache-control"] == "no-store"


def test_an_encoded_slash_is_part_of_a_name(http):
    for user in ("a/b", "a/field", "/", "..", "a?b=c", "a#b", "100%", "%2F", "ü€"):
        path = "/v1/users/" + "".join(f"%{byte:02X}" for byte in user.encode())
        assert http.get(path).json()["user"] == user
        assert http.get(path + "/field").json()["user"] == user


@pytest.mark.parametrize(
    "query", ["q=a&q=b", "wrong=1", "n=0", "n=101", "n=1.5", "n=", "q=%ff", "q=" + "a" * 201, "%ff=1"]
)
def test_bad_queries_are_refused(http, query):
    answer = http.get("/v1/search?" + query)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid")
    assert answer.json()["message"].startswith("the query: ")


def test_queries_are_decoded(http):
    assert http.get("/v1/search", params={"q": "a+b &ü=%", "n": 3}).status_code == 200
    assert http.get("/v1/search?q=17&n=1").json()["items"][0]["item"] == 17
    assert http.get("/v1/users?q=%EF%BF%BD").status_code == 200, "the replacement character is valid UTF-8"
    assert http.get("/livez?whatever=1&whatever=2").status_code == 200, "a route without a query ignores it"


def test_the_empty_user_is_refused_like_in_a_body(http):
    assert http.post("/v1/recommend", json={"user": ""}).status_code == 400
    for method, path in (("GET", "/v1/users/str:"), ("GET", "/v1/users/str:/field"), ("DELETE", "/v1/users/str:")):
        answer = http.request(method, path)
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid")


@pytest.mark.parametrize("field", ["items", "tree", "prior", "features"])
def test_a_null_character_in_a_path_is_refused(http, service, field):
    answer = http.post(service.admin + "/admin/snapshot", json={field: "a\0b"})
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid")
    assert "null characters" in answer.json()["message"]


def test_targets_that_are_no_paths_are_answered(service):
    for target in ("*", "http://127.0.0.1/livez", "/" + "x" * 20_000, "/livez?" + "x" * 20_000, "/livez#x", "/\x01"):
        head = raw(
            service.url, f"GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode("latin-1")
        )
        assert head.split(" ")[1] in ("200", "400", "404"), (target[:20], head)


def test_the_slow_way_answers_the_hot_routes_too(service):
    """Expect: 100-continue is left to uvicorn, which hands the request to the cold routes."""
    body = b'{"user": "ada"}'
    head = b"POST /v1/recommend HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\nconnection: close\r\n"
    head += b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    host, _, port = service.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as line:
        line.sendall(head)
        heard = line.recv(4096)
        assert heard.startswith(b"HTTP/1.1 100")
        line.sendall(body)
        while part := line.recv(4096):
            heard += part
    assert b"HTTP/1.1 200 OK" in heard
    assert b'"decision_id"' in heard


def test_websockets_are_not_served(service):
    head = raw(
        service.url,
        b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    )
    assert " 101 " not in head
