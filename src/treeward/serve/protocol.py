"""HTTP for the hot routes: straight from the parser to the batch and back, without a task a request.

Everything else, and everything unusual (pipelining behind another request, Expect, a full house), goes uvicorn's way.
"""

import asyncio
import struct
from collections.abc import Mapping
from fcntl import ioctl
from termios import TIOCOUTQ
from time import perf_counter
from typing import Any, ClassVar, NamedTuple

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from treeward.serve import wire
from treeward.serve.hot import HotPath, HotRoute
from treeward.serve.replies import NOT_KEPT, Headers, Reply

_MOST_HEAD = 64 << 10
"""Bytes of a request's headers and trailers, together."""
_MOST_DRAINED = 64 << 10
"""Bytes of a body that are read, and thrown away, of a caller who is refused anyway: so that the answer arrives."""
_PAUSE = 0.25
"""Seconds until a request that finds no room is told so."""
_HEAD = (
    b"content-type: application/json\r\n"
    + b"".join(b"%s: %s\r\n" % pair for pair in NOT_KEPT)
    + b"content-length: %d\r\nx-request-id: "
)
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: 64\r\n"
    b"retry-after: 1\r\nconnection: close\r\n\r\n"
    b'{"error":"overloaded","message":"too many connections are open"}'
)


class _Going(NamedTuple):
    """A request on its way."""

    route: HotRoute[Any, Any]
    headers: Headers
    start: float
    body: bytearray
    keep_alive: bool
    caller: str
    refusal: Reply | None
    """What a caller gets who may not do this: the body is then not kept, and a long one not waited for."""


class Protocol(HttpToolsProtocol):
    """uvicorn's protocol, which waits for headers for ever, with an end to that and a short way for the hot routes."""

    hot: ClassVar[HotPath]
    """Set by a subclass, made for one application ..."""
    routes: ClassVar[Mapping[tuple[bytes, bytes], HotRoute[Any, Any]]]
    """... and the routes that take the fast path on its listener."""

    def connection_made(self, transport: Any) -> None:
        """Begin, if there is room for one more."""
        super().connection_made(transport)
        self._application, self.app = self.app, self._answering
        self._running: Any = None
        self._in_headers = True
        self._head = 0
        self._moved = False
        self._drained = 0
        self._arriving: _Going | None = None
        self._waiting: _Going | None = None
        self._closing = False
        self._caller = "-"
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        if len(self.connections) > self.hot.settings.max_connections:
            transport.write(_FULL)
            transport.close()
            return
        self._arm(self.hot.settings.header_timeout, self._cut)

    async def _answering(self, scope: Any, receive: Any, send: Any) -> None:
        """Have the application answer, as long as somebody is there: uvicorn would write to a closed connection."""
        self._running = send.__self__

        async def answer(message: Any) -> None:
            self._running.disconnected |= self.transport.is_closing()
            await send(message)

        await self._application(scope, receive, answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """End; uvicorn knows this of the last request that came, which need not be the one that is answered."""
        self._disarm()
        if self._running is not None:
            self._running.disconnected = True
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Take no more requests from somebody who does not read the answers."""
        super().pause_writing()
        self.flow.pause_reading()
        self._watch()

    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        if not self._closing:
            self.flow.resume_reading()

    def _left(self) -> int:
        """Return how much the caller has not taken, of what is kept here and in the kernel."""
        socket = self.transport.get_extra_info("socket")
        queued = struct.unpack("i", ioctl(socket.fileno(), TIOCOUTQ, bytes(4)))[0]
        return self.transport.get_write_buffer_size() + int(queued)

    def _watch(self) -> None:
        """Look after answers that the kernel has no room for; one that is being closed waits for them as well."""
        if self._unread is None and self.transport.get_write_buffer_size():
            self._unread = self.loop.call_later(self.hot.settings.body_timeout, self._look, self._left())

    def _look(self, before: int) -> None:
        """Give up on answers of which nothing was read for a while; who reads slowly gets them."""
        self._unread = None
        if self.transport.get_write_buffer_size() and self._left() >= before:
            self.transport.abort()
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        """Take bytes; whoever stops in the middle of a request, or before the next, has only so long to go on."""
        if self.transport.is_closing() or (self._closing and self._arriving is None):
            return
        self._moved = False
        super().data_received(data)
        if not self._moved:  # all of it is part of one header or trailer
            self._head += len(data)
        if self._head > _MOST_HEAD:
            self.transport.close()
            return
        if self._arriving is not None and self._arriving.refusal is not None and self._drained > _MOST_DRAINED:
            self._refuse(self._arriving.refusal)
            return
        if self._timer is None and self.timeout_keep_alive_task is None:
            if self._arriving is not None:
                self._arm(self.hot.settings.body_timeout, self._late)
            elif self._waiting is None and (self.cycle is None or self.cycle.response_complete):
                self._in_headers = True
                self._arm(self.hot.settings.header_timeout, self._cut)

    def on_response_complete(self) -> None:
        """Go on to the next request, unless the last one was answered before all of it was there."""
        self._watch()
        if self.cycle.more_body:
            self.transport.close()
        super().on_response_complete()

    def on_message_begin(self) -> None:
        """Expect headers."""
        super().on_message_begin()
        self._in_headers, self._head, self._moved = True, 0, True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a trailer, up to what is allowed of both."""
        self._moved = True
        self._head += len(name) + len(value) + len(b": \r\n")
        if self._head <= _MOST_HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Choose the way."""
        self._in_headers, self._moved = False, True
        self._disarm()
        if self._head > _MOST_HEAD:  # and not all of it was kept: the connection is about to be closed
            self._closing = True
            return
        route = self.routes.get((self.parser.get_method(), self.url))
        busy = self._waiting is not None or (self.cycle is not None and not self.cycle.response_complete)
        if self._waiting is not None:  # somebody does not wait for answers: one at a time, then a new connection
            self._closing = True
            self.flow.pause_reading()
            return
        if route is None or busy or self.expect_100_continue or self.parser.should_upgrade():
            super().on_headers_complete()
            return
        keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        headers, caller, refusal = Headers(self.headers), "-", None
        try:
            caller = self.hot.access.admit(headers, "write")
        except Exception as error:
            refusal = self.hot.refusal(error, headers.request_id)
            announced = next((value for name, value in self.headers if name == b"content-length"), b"0")
            self._drained = int(announced) if int(announced) > _MOST_DRAINED else 0  # no use waiting for a long one
        self._arriving = _Going(route, headers, perf_counter(), bytearray(), keep_alive, caller, refusal)

    def on_body(self, body: bytes) -> None:
        """Take a part of a body, up to what is allowed."""
        self._moved = True
        going = self._arriving
        if going is not None:
            if going.refusal is None:
                going.body.extend(body)
            else:
                self._drained += len(body)
            if len(going.body) > self.hot.settings.max_body:
                self._refuse(self.hot.too_large().reply)
        elif not self._closing:
            super().on_body(body)

    def on_chunk_header(self) -> None:
        """Note that a chunk begins: its size is no header."""
        self._moved = True

    def on_chunk_complete(self) -> None:
        """Note that a chunk ends."""
        self._moved = True

    def on_message_complete(self) -> None:
        """Hand a whole request on."""
        self._moved = True
        going, self._arriving = self._arriving, None
        if going is None:
            if not self._closing and self._waiting is None:
                super().on_message_complete()
            return
        self._disarm()
        self._waiting, self._caller = going, going.caller
        if going.refusal is not None:
            self._write(going.refusal)
            return
        if going.route.full:
            # Before anything is looked at, and not at once: who comes right back must not keep others waiting.
            self.loop.call_later(_PAUSE, self._write, self.hot.busy)
            return
        try:
            self.hot.ask_then(going.route, going.headers, bytes(going.body), self._answered)
        except Exception as error:
            self._write(self.hot.refusal(error, going.headers.request_id))

    def shutdown(self) -> None:
        """Close as soon as nothing waits for an answer."""
        if self._waiting is not None or self._arriving is not None:
            self._closing = True
        else:
            super().shutdown()

    def _answered(self, answer: Any) -> None:
        going = self._waiting
        if going is None:
            return
        if isinstance(answer, Exception):
            self._write(self.hot.refusal(answer, going.headers.request_id))
        else:
            self._write(Reply(200, wire.encode(answer)))

    def _write(self, reply: Reply) -> None:
        going, self._waiting = self._waiting, None
        if going is None:
            return
        close = self._closing or not going.keep_alive or any(name == b"connection" for name, _ in reply.headers)
        if not self.transport.is_closing():
            head = [
                STATUS_LINE[reply.status],
                _HEAD % len(reply.body),
                going.headers.request_id,
                b"\r\n",
            ]
            head += [b"%s: %s\r\n" % pair for pair in reply.headers if pair[0] != b"connection"]
            self.transport.write(b"".join([*head, b"connection: close\r\n\r\n" if close else b"\r\n", reply.body]))
            self._watch()
        self.server_state.total_requests += 1
        if close:
            self.transport.close()
        else:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        took = perf_counter() - going.start
        self.hot.count(going.route.path, "POST", reply.status, took, self._caller, going.headers.request_id)

    def _refuse(self, reply: Reply) -> None:
        """Answer before all of the request is there, and close."""
        self._waiting, self._arriving = self._arriving, None
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
