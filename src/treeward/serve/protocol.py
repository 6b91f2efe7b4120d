"""HTTP for the hot routes: from the parser straight to the batch and back, without a task per request.

Callers send the same head again and again. One that was parsed before is recognised by its bytes and not parsed again:
see `KnownHeads`. All other requests, and unusual ones (pipelined behind another request, with Expect or Upgrade), go
uvicorn's way to the cold routes. For every request there are limits to the size and the time of its headers.
"""

import asyncio
import socket
import struct
import sys
from collections.abc import Mapping
from fcntl import ioctl
from termios import TIOCOUTQ
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from treeward.serve import wire
from treeward.serve.known_heads import KnownHead, KnownHeads
from treeward.serve.replies import CLOSE, NOT_KEPT, Headers, Reply, check_json, new_request_id
from treeward.serve.settings import Key, Settings

if TYPE_CHECKING:
    from treeward.serve.hot import HotPath, HotRoute

_MOST_HEAD = 64 << 10
"""Bytes of a request's headers and trailers together."""
_MOST_DRAINED = 64 << 10
"""Bytes that are read of the body of a refused request, so that its caller gets to the answer."""
_KERNEL_TELLS = sys.platform == "linux" and hasattr(socket, "TCP_INFO")
"""Whether the kernel says how much of what was sent is still unread; elsewhere only full buffers are noticed."""
_BYTES_ACKED = 120
"""Where the kernel's `struct tcp_info` has the number of bytes that were acknowledged."""
_PAUSE = 0.25
"""Seconds before a request is answered with 503 because too many wait."""
_HEAD = (
    b"content-type: application/json\r\n"
    + b"".join(b"%s: %s\r\n" % pair for pair in NOT_KEPT)
    + b"content-length: %d\r\nx-request-id: %s\r\n"
)
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: 64\r\n"
    b"retry-after: 1\r\nconnection: close\r\n\r\n"
    b'{"error":"overloaded","message":"too many connections are open"}'
)


class _Waiting(NamedTuple):
    """A hot request that is being answered."""

    route: "HotRoute[Any, Any]"
    request_id: bytes
    start: float
    keep_alive: bool
    caller: str


class _Arriving(NamedTuple):
    """A hot request that is being read."""

    waiting: _Waiting
    """What it will be."""
    body: bytearray
    key: Key | None
    refusal: Reply | None
    """The answer, if the caller may not do this: then the body is not kept, and a long one is not waited for."""


class Protocol(HttpToolsProtocol):
    """uvicorn's protocol, with a time limit for headers, which it lacks, and a fast path for the hot routes."""

    settings: ClassVar[Settings]
    """Set by a subclass, made for one listener, as are ..."""
    routes: ClassVar[Mapping[tuple[bytes, bytes], "HotRoute[Any, Any]"]]
    """... the routes that take the fast path, none while the service loads ..."""
    hot: ClassVar["HotPath"]
    """... what answers them ..."""
    heads: ClassVar[KnownHeads]
    """... and the heads of their requests that were parsed before."""

    def connection_made(self, transport: Any) -> None:
        """Begin, unless there are too many connections."""
        super().connection_made(transport)
        self._application, self.app = self.app, self._answering
        self._running: Any = None
        self._in_headers = True
        self._head = 0
        self._moved = False
        self._drained = 0
        self._between = True
        """Whether the parser has seen all of a request, and nothing of the next one."""
        self._whole: bytes | None = None
        """What arrived at once, and may be a whole request whose head should be remembered."""
        self._idle_since = 0.0
        """When the last hot request was answered."""
        self._arriving: _Arriving | None = None
        self._waiting: _Waiting | None = None
        self._closing = False
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        if len(self.connections) > self.settings.max_connections:
            transport.write(_FULL)
            transport.close()
            return
        self._arm(self.settings.header_timeout, self._cut)

    async def _answering(self, scope: Any, receive: Any, send: Any) -> None:
        """Have the application answer while the connection is open; uvicorn would write to a closed one."""
        self._running = send.__self__

        async def answer(message: Any) -> None:
            self._running.disconnected |= self.transport.is_closing()
            await send(message)

        await self._application(scope, receive, answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """End; uvicorn would notify only the last request, which need not be the one that is being answered."""
        self._disarm()
        self._unset_keepalive_if_required()
        if self._running is not None:
            self._running.disconnected = True
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Read no more requests from a caller who does not read the answers."""
        super().pause_writing()
        self.flow.pause_reading()
        self._watch()

    def resume_writing(self) -> None:
        """Read again."""
        super().resume_writing()
        if not self._closing:
            self.flow.resume_reading()

    def _is_unread(self) -> bool:
        """Return whether answers wait here, or, since what is encrypted waits elsewhere, in the kernel."""
        if self.transport.get_write_buffer_size():
            return True
        if self.scheme != "https" or not _KERNEL_TELLS:
            return False
        sender = self.transport.get_extra_info("socket")
        return bool(struct.unpack("i", ioctl(sender.fileno(), TIOCOUTQ, bytes(4)))[0])

    def _acknowledged(self) -> int:
        """Return a number that changes when the caller's side takes more bytes: those taken so far, if known."""
        if not _KERNEL_TELLS:
            return -self.transport.get_write_buffer_size()
        sender = self.transport.get_extra_info("socket")
        state = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED + 8)
        return int(struct.unpack_from("Q", state, _BYTES_ACKED)[0])

    def _watch(self) -> None:
        """Watch answers that the kernel has no room for, even on a connection that is being closed."""
        if self._unread is None and self._is_unread():
            self._unread = self.loop.call_later(self.settings.body_timeout, self._look, self._acknowledged())

    def _look(self, before: int) -> None:
        """Abort a connection if nothing was read for a while; a slow reader gets the whole answer."""
        self._unread = None
        if self._is_unread() and self._acknowledged() == before:
            self.transport.abort()
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        """Take bytes, and limit the time until the rest of a request, or the next one, must arrive."""
        if self.transport.is_closing() or (self._closing and self._arriving is None):
            return
        self._whole = None
        if self._between and self._waiting is None and (self.cycle is None or self.cycle.response_complete):
            head, end, body = data.partition(b"\r\n\r\n")
            known = self.heads.get(head) if end else None
            if known is not None and len(body) == known.length:
                self._take(known, body)
                return
            self._whole = data
        self._moved = self._between = False
        super().data_received(data)
        if not self._moved:  # all bytes belong to one header or trailer
            self._head += len(data)
        if self._head > _MOST_HEAD:
            self.transport.close()
            return
        if self._arriving is not None and self._arriving.refusal is not None and self._drained > _MOST_DRAINED:
            self._refuse(self._arriving.refusal)
            return
        if self._timer is None and self.timeout_keep_alive_task is None:
            if self._arriving is not None:
                self._arm(self.settings.body_timeout, self._late)
            elif self._waiting is None and (self.cycle is None or self.cycle.response_complete):
                self._in_headers = True
                self._arm(self.settings.header_timeout, self._cut)

    def _take(self, known: KnownHead, body: bytes) -> None:
        """Answer a request whose head is known."""
        self._disarm()
        self._waiting = _Waiting(known.route, new_request_id(), perf_counter(), True, known.key.name)
        try:
            self.hot.access.let_in(known.key)
        except Exception as error:
            self._write(self.hot.refusal(error, self._waiting.request_id))
            return
        self._ask(known.route, body)

    def _ask(self, route: "HotRoute[Any, Any]", body: bytes) -> None:
        """Put a request into its batch."""
        if route.full:
            # Before the body is decoded, and with a pause: callers who retry at once must not slow others down.
            self.loop.call_later(_PAUSE, self._write, self.hot.busy)
            return
        try:
            self.hot.ask_then(route, body, self._answered)
        except Exception as error:
            self._answered(error)

    def on_response_complete(self) -> None:
        """Go on to the next request, unless this one was answered before all of it had arrived."""
        self._watch()
        if self.cycle.more_body:
            self.transport.close()
        super().on_response_complete()

    def on_message_begin(self) -> None:
        """Expect headers."""
        super().on_message_begin()
        self._in_headers, self._head, self._moved, self._between = True, 0, True, False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header or a trailer, up to the limit of both."""
        self._moved = True
        self._head += len(name) + len(value) + len(b": \r\n")
        if self._head <= _MOST_HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Choose the fast path or uvicorn's."""
        self._in_headers, self._moved = False, True
        self._disarm()
        if self._head > _MOST_HEAD:  # not all headers were kept, and the connection is about to be closed
            self._closing = True
            return
        route = self.routes.get((self.parser.get_method(), self.url))
        busy = self._waiting is not None or (self.cycle is not None and not self.cycle.response_complete)
        if self._waiting is not None:  # pipelined: this one is answered, then the connection closed
            self._closing = True
            self.flow.pause_reading()
            return
        if route is None or busy or self.expect_100_continue or self.parser.should_upgrade():
            super().on_headers_complete()
            return
        keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        headers, key, refusal = Headers(self.headers), None, None
        try:
            key = self.hot.access.key_of(headers, "write")
            self.hot.access.let_in(key)
            check_json(headers.content_type)
        except Exception as error:
            refusal = self.hot.refusal(error, headers.request_id)
            announced = next((value for name, value in self.headers if name == b"content-length"), b"0")
            self._drained = int(announced) if int(announced) > _MOST_DRAINED else 0  # a long body is not waited for
        caller = "-" if key is None else key.name
        waiting = _Waiting(route, headers.request_id, perf_counter(), keep_alive, caller)
        self._arriving = _Arriving(waiting, bytearray(), key, refusal)

    def on_body(self, body: bytes) -> None:
        """Take a part of a body, up to the limit."""
        self._moved = True
        going = self._arriving
        if going is not None:
            if going.refusal is None:
                going.body.extend(body)
            else:
                self._drained += len(body)
            if len(going.body) > self.settings.max_body:
                self._refuse(self.hot.too_large().reply)
        elif not self._closing:
            super().on_body(body)

    def on_chunk_header(self) -> None:
        """Note that a chunk begins: the line with its size is not a header."""
        self._moved = True

    def on_chunk_complete(self) -> None:
        """Note that a chunk ends."""
        self._moved = True

    def on_message_complete(self) -> None:
        """Answer a request that has arrived completely."""
        self._moved = self._between = True
        going, self._arriving = self._arriving, None
        if going is None:
            if not self._closing and self._waiting is None:
                super().on_message_complete()
            return
        self._disarm()
        self._waiting, body = going.waiting, bytes(going.body)
        if going.refusal is not None:
            self._write(going.refusal)
            return
        if self._whole is not None and going.key is not None and going.waiting.keep_alive:
            self.heads.learn(self._whole, self.headers, body, going.waiting.route, going.key)
        self._ask(going.waiting.route, body)

    def shutdown(self) -> None:
        """Close as soon as no request waits for its answer."""
        if self._waiting is not None or self._arriving is not None:
            self._closing = True
        else:
            super().shutdown()

    def _answered(self, answer: Any) -> None:
        going = self._waiting
        if going is None:
            return
        if isinstance(answer, Exception):
            self._write(self.hot.refusal(answer, going.request_id))
        else:
            self._write(Reply(200, wire.encode(answer)))

    def _write(self, reply: Reply) -> None:
        going, self._waiting = self._waiting, None
        if going is None:
            return
        status, body, headers = reply
        close = self._closing or not going.keep_alive or (len(headers) > 0 and CLOSE[0] in headers)
        if not self.transport.is_closing():
            more = b"".join([b"%s: %s\r\n" % pair for pair in headers if pair[0] != b"connection"])
            end = b"connection: close\r\n\r\n" if close else b"\r\n"
            self.transport.write(
                b"".join((STATUS_LINE[status], _HEAD % (len(body), going.request_id), more, end, body))
            )
            self._watch()
        self.server_state.total_requests += 1
        now = perf_counter()
        if close:
            self.transport.close()
        elif not self.transport.is_closing():
            self._idle_since = now
            if self.timeout_keep_alive_task is None:
                self._keep_alive(self.timeout_keep_alive)
            if not self._between and self._in_headers and self._timer is None:  # the next request has begun meanwhile
                self._arm(self.settings.header_timeout, self._cut)
        self.hot.count(going.route.path, "POST", status, now - going.start, going.caller, going.request_id)

    def _keep_alive(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that is idle; requests with known heads don't stop the timer, which would take time."""
        self.timeout_keep_alive_task = None
        left = self._idle_since + self.timeout_keep_alive - perf_counter()
        if self._waiting is None and left <= 0:
            super().timeout_keep_alive_handler()
        elif not self.transport.is_closing():
            self._keep_alive(max(left, 1.0))

    def _refuse(self, reply: Reply) -> None:
        """Answer before all of the request has arrived, and close."""
        if self._arriving is not None:
            self._waiting, self._arriving = self._arriving.waiting, None
        self._closing = True
        self._write(reply)

    def _late(self) -> None:
        self._timer = None
        if self._arriving is not None:
            self._refuse(self.hot.too_slow().reply)

    def _cut(self) -> None:
        self._timer = None
        if self._in_headers and not self.transport.is_closing():
            self.transport.close()

    def _arm(self, seconds: float, then: Any) -> None:
        self._timer = self.loop.call_later(seconds, then)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
