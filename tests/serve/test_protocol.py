"""Callers who send too much, too slowly, or never read."""

import json
import os
import re
import socket
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from tests.browsing import browser, needs_browser, watched  # noqa: F401
from tests.pg import cluster, needs_postgres  # noqa: F401
from tests.serving import serving
from tests.waiting import wait_until
from treeward.serve.keys import new_key
from treeward.serve.protocol import Protocol
from treeward.serve.reports import PLOTLY


@pytest.fixture(scope="module")
def service(items, tmp_path_factory):
    """Without keys, on loopback."""
    options = ("--set", "header_timeout=1.0", "--set", "body_timeout=1.0")
    with serving(tmp_path_factory.mktemp("open"), items, *options) as running:
        yield running


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


def test_a_caller_who_never_reads_is_disconnected_and_takes_no_memory(service):
    before = megabytes(service.process)
    with connected(service.url) as caller:
        assert cut(caller, b"POST /v1/recommend HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}" * 20)
    assert megabytes(service.process) - before < 30
    assert httpx.get(f"{service.url}/livez").status_code == 200


def test_a_caller_who_never_reads_is_disconnected_where_the_kernel_does_not_tell(items, tmp_path, monkeypatch):
    """As on macOS, whose sockets have no TCP_INFO."""
    (tmp_path / "sitecustomize.py").write_text("import socket\ndel socket.TCP_INFO\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with serving(tmp_path, items, "--set", "body_timeout=1.0") as running, connected(running.url) as caller:
        assert cut(caller, b"POST /v1/recommend HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}" * 20)
        assert httpx.get(f"{running.url}/livez").status_code == 200


def test_a_caller_who_never_reads_causes_no_errors_in_the_log(service):
    callers = [connected(service.url) for _ in range(8)]
    for caller, path in zip(callers, ("/docs", "/", "/openapi.json", f"/assets/{PLOTLY}") * 2, strict=True):
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
    assert [line for line in said if "error" in line] == [], "a caller who goes away is no error"


def test_bytes_in_the_kernels_buffer_count_as_unread():
    """The transport's own buffer does not move as long as the kernel's is full."""
    here, there = socket.socketpair()
    with here, there:
        here.sendall(b"x" * 8_000)
        transport = SimpleNamespace(get_write_buffer_size=lambda: 0, get_extra_info={"socket": here}.get)
        encrypted = SimpleNamespace(transport=transport, scheme="https")
        assert Protocol._is_unread(encrypted)
        there.recv(8_000, socket.MSG_WAITALL)
        assert not Protocol._is_unread(encrypted)
        encrypted.transport.get_write_buffer_size = lambda: 1
        assert Protocol._is_unread(encrypted)


def test_bytes_that_the_caller_takes_are_counted():
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as here:
        there = listener.accept()[0]
        with there:
            sender = SimpleNamespace(transport=SimpleNamespace(get_extra_info={"socket": here}.get))
            before = Protocol._acknowledged(sender)
            here.sendall(b"x" * 8_000)
            wait_until(lambda: Protocol._acknowledged(sender) == before + 8_000, "all bytes are acknowledged")


def test_a_caller_who_hangs_up_before_the_answer_is_forgotten(service):
    """A connection that is kept for the time of an idle one would take some 10 KB."""
    body = b'{"user":"gone"}'
    call = b"POST /v1/recommend HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    call += b"content-length: %d\r\n\r\n" % len(body) + body

    def hang_up(times):
        for _ in range(times):
            with connected(service.url) as caller:
                caller.sendall(call)

    hang_up(4_000)  # what the service needs at once for so many
    before = megabytes(service.process)
    hang_up(6_000)
    assert megabytes(service.process) - before < 25


@pytest.mark.parametrize("where", ["url", "admin"])
def test_both_listeners_disconnect_slow_and_long_headers(service, where):
    place = getattr(service, where)
    callers = [connected(place) for _ in range(20)]
    for caller in callers:
        caller.sendall(b"GET /livez HTTP/1.1\r\nx-slow: ")

    def cut_before_the_time_is_over():
        with connected(place) as long:
            long.sendall(b"GET /livez HTTP/1.1\r\n")
            return cut(long, b"x: y\r\n" * 2_000, 0.8)

    assert any(cut_before_the_time_is_over() for _ in range(10))  # a busy machine may need more than one try
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
def test_long_headers_are_refused_even_in_one_piece(service, size):
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


def test_a_caller_without_a_key_is_refused_before_the_body(items, tmp_path):
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


def test_a_caller_who_hangs_up_during_a_file_causes_no_errors_in_the_log(service):
    for encoding in ("gzip", "identity") * 5:
        with connected(service.url) as caller:
            head = f"GET /assets/{PLOTLY} HTTP/1.1\r\nhost: localhost\r\naccept-encoding: {encoding}\r\n\r\n"
            caller.sendall(head.encode())
            assert caller.recv(100).startswith(b"HTTP/1.1 200")
    httpx.get(f"{service.url}/livez", headers={"x-request-id": "hung-up"})
    wait_until(lambda: "hung-up" in service.log.read_text(), "the log is written")
    assert '"error"' not in service.log.read_text()
