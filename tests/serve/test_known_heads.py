"""Heads of requests that are recognised by their bytes: the answers are those that the parser would have led to."""

import json
import socket
import time
from types import SimpleNamespace

import pytest

from tests.serving import serving
from tests.waiting import wait_until
from treeward.serve.keys import new_key
from treeward.serve.known_heads import _LONGEST, _MOST, KnownHeads
from treeward.serve.settings import Key

KEY = Key("anyone", "", "admin")
ROUTE = SimpleNamespace(path="/v1/recommend")


def request(body, *headers, path="/v1/recommend"):
    lines = [f"POST {path} HTTP/1.1", "host: 127.0.0.1", "content-type: application/json",
             f"content-length: {len(body)}", *headers]  # fmt: skip
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Connection:
    """A raw connection that reads whole answers."""

    def __init__(self, url):
        host, _, port = url.removeprefix("http://").partition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.left = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def answer(self):
        """Return status, headers and JSON of the next answer."""
        while b"\r\n\r\n" not in self.left:
            self.more()
        head, _, rest = self.left.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        length = int(headers["content-length"])
        while len(rest) < length:
            self.more()
            rest = self.left.partition(b"\r\n\r\n")[2]
        self.left = rest[length:]
        return int(first.split()[1]), headers, json.loads(rest[:length])

    def more(self):
        data = self.socket.recv(1 << 16)
        assert data, "the connection was closed"
        self.left += data


def users(answer):
    status, _, body = answer
    assert status == 200, body
    return [one["user"] for one in body["items"]]


def test_requests_with_the_same_head_get_their_own_answers(service):
    with Connection(service.url) as one, Connection(service.url) as other:
        ids = set()
        for turn in range(20):
            for link, name in ((one, f"ann{turn:02d}"), (other, f"bob{turn:02d}")):
                link.send(request(b'{"user":"%s"}' % name.encode()))
                answer = link.answer()
                assert users(answer) == [name]
                ids.add(answer[1]["x-request-id"])
        assert len(ids) == 40, "every request has an id of its own"


def test_a_known_head_whose_body_comes_later_is_parsed(service):
    whole = request(b'{"user":"ann"}')
    with Connection(service.url) as link:
        for cut in range(1, len(whole), 7):
            link.send(whole)
            assert users(link.answer()) == ["ann"]
            link.send(whole[:cut])
            time.sleep(0.002)
            link.send(whole[cut:])
            assert users(link.answer()) == ["ann"]


def test_two_requests_in_one_piece_are_not_taken_for_one(service):
    first, second = request(b'{"user":"ann"}'), request(b'{"user":"bob"}')
    with Connection(service.url) as link:
        for _ in range(2):
            link.send(first)
            assert users(link.answer()) == ["ann"]
        link.send(first + second)
        assert users(link.answer()) == ["ann"], "then the connection is closed, as for all pipelined requests"
    with Connection(service.url) as link:
        link.send(first + b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert users(link.answer()) == ["ann"]


def test_cold_routes_and_known_heads_take_turns_on_a_connection(service):
    with Connection(service.url) as link:
        for _ in range(5):
            link.send(request(b'{"user":"ann"}'))
            [one] = link.answer()[2]["items"]
            link.send(b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            assert link.answer()[2]["ok"] is True
            body = b'{"decision_id":"%s","reward":1.0}' % one["decision_id"].encode()
            link.send(request(body, path="/v1/feedback"))
            assert link.answer()[2]["outcome"] == "recorded"


def test_the_rest_of_a_cut_request_is_never_taken_for_a_head(items, tmp_path):
    """A caller sends two requests at once, and the second is cut between two headers."""
    good, digest = new_key()
    config = tmp_path / "settings.toml"
    config.write_text(f'[[keys]]\nname = "shop"\nrole = "write"\nsha256 = "{digest}"\n')
    rest = b"content-type: application/json\r\ncontent-length: 14\r\n\r\n"
    begun = f"POST /v1/recommend HTTP/1.1\r\nhost: shop.example\r\nauthorization: Bearer {good}\r\n".encode()
    with serving(tmp_path, items, "--config", config) as running:
        for first in (b"GET /livez HTTP/1.1\r\nhost: shop.example\r\n\r\n", begun + rest + b'{"user":"ann"}'):
            with Connection(running.url) as link:
                link.send(first + begun)
                assert link.answer()[0] == 200
                link.send(rest + b'{"user":"bob"}')
                assert users(link.answer()) == ["bob"]
        with Connection(running.url) as stranger:
            stranger.send(rest + b'{"user":"eve"}')
            assert b" 400 " in stranger.socket.recv(1 << 16).partition(b"\r\n")[0]
        with Connection(running.url) as stranger:
            stranger.send(b"POST /v1/recommend HTTP/1.1\r\nhost: shop.example\r\n" + rest + b'{"user":"eve"}')
            assert stranger.answer()[0] == 401


def test_a_known_head_without_its_end_is_not_answered_yet(service):
    with Connection(service.url) as link:
        for _ in range(2):
            link.send(request(b""))
            assert link.answer()[0] == 400
        link.send(request(b"")[:-4])
        time.sleep(0.05)
        link.send(b"\r\nx-more: 1\r\n\r\n")
        assert link.answer()[0] == 400
        link.send(request(b'{"user":"ann"}'))
        assert users(link.answer()) == ["ann"], "one answer for each request"


def test_half_a_request_behind_a_waiting_one_is_cut_off(items, tmp_path):
    with serving(tmp_path, items, "--set", "header_timeout=1.0") as running, Connection(running.url) as link:
        for _ in range(2):
            link.send(request(b'{"user":"ann"}'))
            link.answer()
        link.send(request(b'{"user":"ann"}'))
        link.send(b"POST /v1")
        assert users(link.answer()) == ["ann"]
        assert link.socket.recv(1) == b"", "long before an idle connection would be closed"


def test_bad_bodies_under_a_known_head_are_refused(service):
    with Connection(service.url) as link:
        for body, status in ((b'{"user":"ann"}', 200), (b'{"user":"ann"]', 400), (b'{"user":"\xff\xfe1"}', 400),
                             (b"[[[[[[[[[[[[[[", 400), (b'{"user":"bob"}', 200)):  # fmt: skip
            assert len(body) == 14
            link.send(request(body))
            assert link.answer()[0] == status


def test_keys_rates_and_lengths_hold_for_known_heads(items, tmp_path):
    good, digest = new_key()
    config = tmp_path / "settings.toml"
    config.write_text(f'rate = 5\nmax_body = 1000\n[[keys]]\nname = "shop"\nrole = "write"\nsha256 = "{digest}"\n')
    with serving(tmp_path, items, "--config", config) as running, Connection(running.url) as link:
        right, wrong = f"authorization: Bearer {good}", f"authorization: Bearer {good[:-1]}x"
        seen = []
        for header in (right, wrong, right, wrong):
            link.send(request(b'{"user":"ann"}', header))
            seen.append(link.answer()[0])
        assert seen == [200, 401, 200, 401]
        statuses = set()
        for _ in range(40):
            link.send(request(b'{"user":"ann"}', right))
            statuses.add(link.answer()[0])
        assert statuses == {200, 429}, "more than twice the rate at once"

        def served():
            link.send(request(b'{"user":"ann"}', right))
            return link.answer()[0] == 200

        wait_until(served, "the rate allows another request")


def learned(heads, whole, headers, body):
    heads.learn(whole, headers, body, ROUTE, KEY)
    return heads.get(whole.partition(b"\r\n\r\n")[0])


def test_only_heads_that_will_come_again_are_remembered():
    body, heads = b'{"user":"a"}', KnownHeads()
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), (b"content-length", b"12")]
    assert learned(heads, request(body), headers, body) == (ROUTE, KEY, 12)
    assert learned(heads, request(body, "x-a: 1"), headers[:2], body) is None, "in chunks"
    assert learned(heads, request(body, "x-request-id: 7"), [*headers, (b"x-request-id", b"7")], body) is None
    assert learned(heads, request(body, "x-b: 1"), headers, body[:-1]) is None, "not what the parser has read"
    assert learned(heads, request(body, "x-c: " + "c" * _LONGEST), headers, body) is None
    assert learned(heads, request(body, "x-d: 1").partition(b"\r\n")[2], headers, body) is None, "the rest of a request"
    assert learned(heads, request(body, "x-e: 1", path="/v1/feedback"), headers, body) is None, "of another route"
    assert len(heads) == 1


def test_no_more_heads_are_kept_than_fit():
    body, heads = b"{}", KnownHeads()
    headers = [(b"content-length", b"2")]
    for number in range(3 * _MOST):
        assert learned(heads, request(body, f"x-trace: {number}"), headers, body) is not None
        assert len(heads) <= _MOST


@pytest.mark.parametrize("header", ["connection: close", "expect: 100-continue"])
def test_heads_that_change_how_a_connection_is_used_are_not_remembered(service, header):
    for _ in range(3):
        with Connection(service.url) as link:
            link.send(request(b'{"user":"ann"}', header))
            if header.startswith("expect"):
                wait_until(lambda link=link: b"100 Continue" in link.left or link.more(), "it may go on")
                link.left = link.left.partition(b"\r\n\r\n")[2]
                assert users(link.answer()) == ["ann"]
            else:
                answer = link.answer()
                assert users(answer) == ["ann"]
                assert answer[1]["connection"] == "close"
                assert link.socket.recv(1) == b""
