"""The ASGI application: from bytes to a route's handler and back, with keys, limits, metrics and a log."""

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from itertools import accumulate
from time import monotonic, perf_counter
from typing import Any

import msgspec

from treeward.core.errors import InvalidArgument, TreewardError
from treeward.explorer.explorer import Explorer
from treeward.explorer.rewards import Outcome
from treeward.serve import wire
from treeward.serve.batch import Batcher, Full
from treeward.serve.changing import Changing
from treeward.serve.keys import Buckets, allows
from treeward.serve.log import Log
from treeward.serve.paths import argument, asked, blank, fits
from treeward.serve.routes import DATA, ROUTES, Headers, Refused, Reply, Request, Route, problem
from treeward.serve.service import Service
from treeward.serve.settings import Settings, is_loopback
from treeward.store.base import EventStore

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_CLOSE = ((b"connection", b"close"),)
_SECONDS_A_SWEEP, _SECONDS_A_LOG = 1.0, 0.1
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:]+))(?::[0-9]*)?", re.IGNORECASE)
"""A host, of which an IPv6 address is in brackets, and perhaps a port."""


class App(Changing):
    """One service behind its routes; `public` and `admin` are two ASGI applications on it.

    Parameters
    ----------
    service
        What answers, already warm.
    opened
        Opens the explorer that settings ask for over a store, warm; for when another snapshot is to be served.
    """

    def __init__(self, service: Service, opened: Callable[[EventStore, Settings], Explorer]) -> None:
        super().__init__(service, opened)
        self.buckets = Buckets(self.settings.rate)
        self.busy = self.refusal(Full(), b"")
        """What is answered if too many wait."""
        self.log = Log()
        self._tasks: list[asyncio.Task[None]] = []
        self._away = False
        self._decoders: dict[Any, msgspec.json.Decoder[Any]] = {
            route.takes: msgspec.json.Decoder(route.takes) for route in ROUTES if route.takes is not None
        }
        self._plain = {
            admin: {
                (route.method, route.path): route for route in ROUTES if "{" not in route.path and route.admin == admin
            }
            for admin in (False, True)
        }
        self._named = {(route.method, *blank(route.path)): route for route in ROUTES if "{" in route.path}
        self.hot = {
            (b"POST", path.encode()): self._plain[False]["POST", path] for path in ("/v1/recommend", "/v1/feedback")
        }
        """The routes that most requests are for."""

    def start(self) -> None:
        """Begin to take requests; called on the event loop."""
        most = self.settings.max_waiting
        self._asks = Batcher("treeward-recommend", lambda asks: self.service.recommend(asks), most)
        self._rewards = Batcher("treeward-feedback", lambda rewards: self.service.feedback(rewards), most, 4096)
        self._tasks = [asyncio.create_task(work()) for work in (self._sweep, self._write_log, self._learn)]

    async def stop(self) -> None:
        """Answer what is waiting and let go."""
        self.draining = True
        for batcher in (self._asks, self._rewards):
            if batcher is not None:
                await asyncio.to_thread(batcher.close)
        for task in [*self._tasks, *([self._renewing] if self._renewing is not None else [])]:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await asyncio.to_thread(self.service.publisher.close)  # an edition that is being written is finished
        self._looker.shutdown(wait=False, cancel_futures=True)
        self.log.flush()

    async def public(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer callers."""
        await self._call(scope, receive, send, admin=False)

    async def admin(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer this machine."""
        await self._call(scope, receive, send, admin=True)

    async def _call(self, scope: Scope, receive: Receive, send: Send, *, admin: bool) -> None:
        if scope["type"] != "http":
            return
        start = perf_counter()
        headers = Headers(scope["headers"])
        route: Route | None = None
        caller = "-"
        try:
            if self.keys.open is not None:
                _check_host(headers)
            route, argument = self._route(scope["method"], scope["raw_path"] or b"/", admin)
            if route.role is not None:
                caller = self.admit(headers, route.role)
            body = None
            if route.takes is not None:
                body = self.decoded(route, headers.kind, await self._body(receive))
            query = asked(route, scope["query_string"])
            reply = await getattr(self, "_" + route.handler)(Request(body, argument, query, headers))
        except Exception as error:
            reply = self.refusal(error, headers.request_id)
        await send(
            {
                "type": "http.response.start",
                "status": reply.status,
                "headers": [
                    (b"content-type", reply.kind),
                    (b"content-length", b"%d" % len(reply.body)),
                    (b"x-request-id", headers.request_id),
                    *(DATA if reply.kind.startswith((b"application/json", b"text/plain")) else ()),
                    *reply.headers,
                ],
            }
        )
        await send({"type": "http.response.body", "body": reply.body})
        took = perf_counter() - start
        self.seen(route, scope["method"], reply.status, took, caller, headers.request_id)

    def seen(
        self, route: Route | None, method: str, status: int, seconds: float, caller: str, request_id: bytes
    ) -> None:
        """Count a request that was answered, and log it: never its body, its key or its user."""
        name = route.path if route is not None else "-"
        self.count.seen(name, status, seconds)
        if self.settings.log == "json":
            self.log.request(request_id, method, name, status, seconds, caller)

    def full(self, route: Route) -> bool:
        """Tell whether no more of a hot route may wait."""
        batcher = self._rewards if route.takes is wire.Reward else self._asks
        return batcher is None or batcher.waiting >= self.settings.max_waiting

    def ask(self, route: Route, body: Any) -> "asyncio.Future[Any]":
        """Put the body of a hot route into its batch."""
        return self._batch(route, body).ask(body)

    def ask_then(self, route: Route, body: Any, then: Callable[[Any], None]) -> None:
        """Put the body of a hot route into its batch, and have `then` called with the answer or the exception."""
        self._batch(route, body).ask_then(body, then)

    def _batch(self, route: Route, body: Any) -> Batcher[Any, Any]:
        assert self._asks is not None
        assert self._rewards is not None
        if route.takes is wire.Reward:
            return self._rewards
        self._check_ask(body)
        return self._asks

    def said(self, route: Route, answer: Any) -> bytes:
        """Return what a hot route's caller reads."""
        return wire.encode(_taken(answer) if route.takes is wire.Reward else answer)

    def refusal(self, error: Exception, request_id: bytes) -> Reply:
        """Return what tells a caller of an error; one nobody thought of goes to the log, without its caller's data."""
        if isinstance(error, Refused):
            return error.reply
        try:
            status, told = problem(error)
        except Exception:
            self.log.problem(error, request_id)
            status, told = 500, wire.Problem("internal", "something went wrong here; the log says where")
        return Reply(status, wire.encode(told), headers=((b"retry-after", b"1"),) if status == 503 else ())

    def _route(self, method: str, raw: bytes, admin: bool) -> tuple[Route, str]:
        path = raw.decode("latin-1").partition("?")[0]
        route = self._plain[admin].get((method, path))
        if route is not None:
            return route, ""
        parts = path.split("/")
        for at in range(2, len(parts) if not admin and len(parts) < 6 else 0):
            named = self._named.get((method, *parts[:at], "", *parts[at + 1 :]))
            if named is not None and parts[at]:
                return named, argument(parts[at])
        known = {route.method for route in ROUTES if route.admin == admin and fits(route.path, path)}
        if known:
            allow = ", ".join(sorted(known)).encode()
            raise Refused(405, "method", f"{path[:80]} takes {allow.decode()}", ((b"allow", allow),))
        if any(fits(route.path, path) for route in ROUTES if route.admin != admin):
            told = "is for callers, at `port`; this is the admin listener"
            if not admin:
                told = "is for operators, at `admin_port` on loopback; this is the callers' listener"
            raise Refused(404, "other_port", f"{path[:80]} {told}")
        raise Refused(404, "no_route", f"there is nothing at {path[:80]}")

    def admit(self, headers: Headers, role: str) -> str:
        """Return the name of a caller who may do what needs a role, now."""
        key = self.keys.find(headers.authorization)
        if self.keys.open is not None:
            _check_host(headers)
            _check_origin(headers)
        if key is None:
            raise Refused(401, "key", "send a key: Authorization: Bearer ...", ((b"www-authenticate", b"Bearer"),))
        if not allows(key, role):
            raise Refused(403, "role", f"this needs a key with the role {role}")
        wait = self.buckets.wait_of(key.name, monotonic())
        if wait:
            after = ((b"retry-after", b"%d" % max(1, round(wait + 0.5))),)
            raise Refused(429, "rate", f"more than {self.settings.rate:g} requests a second", after)
        if self.draining:
            raise Refused(503, "draining", "the service is shutting down", ((b"retry-after", b"1"),))
        return key.name

    async def _body(self, receive: Receive) -> bytes:
        try:
            async with asyncio.timeout(self.settings.body_timeout):
                message = await receive()
                body: bytes = message.get("body", b"")
                while message.get("more_body", False):
                    if len(body) > self.settings.max_body:
                        break
                    message = await receive()
                    body += message.get("body", b"")
        except TimeoutError:
            raise self.too_slow() from None
        if message["type"] == "http.disconnect":
            raise Refused(400, "invalid", "the caller went away")
        if len(body) > self.settings.max_body:
            raise self.too_large()
        return body

    def too_large(self) -> Refused:
        """Return what is said of a body over the limit."""
        return Refused(413, "too_large", f"a body may have {self.settings.max_body} bytes", _CLOSE)

    def too_slow(self) -> Refused:
        """Return what is said of a body that does not come."""
        return Refused(408, "timeout", f"the body took over {self.settings.body_timeout:g} s", _CLOSE)

    def decoded(self, route: Route, kind: bytes | None, body: bytes) -> Any:
        """Return a body as the route's type."""
        if kind is None or kind.partition(b";")[0].strip().lower() != b"application/json":
            raise Refused(415, "not_json", "send it with Content-Type: application/json")
        try:
            return self._decoders[route.takes].decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise Refused(400, "invalid", str(error) or "the body is nested too deeply") from None

    def _many(self, rows: list[Any], name: str) -> None:
        if not 0 < len(rows) <= self.settings.max_batch:
            raise InvalidArgument("batch", name, f"1 to {self.settings.max_batch} rows", f"{len(rows)} rows")

    async def _recommend(self, request: Request) -> Reply:
        route = self.hot[b"POST", b"/v1/recommend"]
        return Reply(200, self.said(route, await self.ask(route, request.body)))

    def _check_ask(self, ask: wire.Ask) -> None:
        if ask.n > self.settings.max_batch:
            raise InvalidArgument("recommend", "n", f"at most {self.settings.max_batch}", ask.n)

    async def _recommend_batch(self, request: Request) -> Reply:
        assert self._asks is not None
        self._many(request.body.requests, "requests")
        asks: list[wire.Ask] = request.body.requests
        upto = list(accumulate(ask.n for ask in asks))
        few = [ask for ask, items in zip(asks, upto, strict=True) if items <= self.settings.max_batch]
        answers: list[Any] = await asyncio.gather(*self._asks.ask_many(few), return_exceptions=True) if few else []
        late = InvalidArgument("batch", "n", f"at most {self.settings.max_batch} in all, this row's included", "more")
        return _rows([*answers, *[late] * (len(asks) - len(few))])

    async def _feedback(self, request: Request) -> Reply:
        route = self.hot[b"POST", b"/v1/feedback"]
        return Reply(200, self.said(route, await self.ask(route, request.body)))

    async def _feedback_batch(self, request: Request) -> Reply:
        assert self._rewards is not None
        self._many(request.body.rewards, "rewards")
        outcomes = await asyncio.gather(*self._rewards.ask_many(request.body.rewards), return_exceptions=True)
        return _rows([one if isinstance(one, BaseException) else _taken(one) for one in outcomes])

    async def _sweep(self) -> None:
        """Let default rewards come true, and follow what others were told."""
        while True:
            await asyncio.sleep(_SECONDS_A_SWEEP)
            try:
                await asyncio.to_thread(self.live.sample)
                await asyncio.to_thread(self.service.look)
                if self._store_is_away():
                    continue  # nothing below can be done, and waiting for it would keep us from noticing it is back
                await asyncio.to_thread(self.service.expire)
                await asyncio.to_thread(self.service.refresh)
                if self.service.explorer.store.shared:
                    await self._follow()
                await self._tend()
            except TreewardError as error:
                self.log.note({"error": str(error)})
            except Exception as error:  # the next sweep may do better; without one nothing would
                self.log.problem(error, b"-")

    async def _learn(self) -> None:
        """Let what came count for everybody, every now and then; what goes wrong leaves the last edition in place."""
        while True:
            await asyncio.sleep(self.service.publisher.pause)
            if self._away:
                continue
            async with self._learning:
                publisher = self.service.publisher
                before = publisher.problem
                await asyncio.to_thread(publisher.tend)
            if publisher.problem != before:
                self.log.note({"crowd": publisher.problem or "makes editions again", "edition": publisher.number})

    def _store_is_away(self) -> bool:
        """Tell whether the store takes no writes; the log has a line when that begins and when it ends."""
        failed = self.service.explorer.store.status().problem
        if (failed is not None) != self._away:
            self._away = failed is not None
            self.log.note({"error": str(failed)} if failed is not None else {"store": "takes writes again"})
        return self._away

    async def _write_log(self) -> None:
        while True:
            await asyncio.sleep(_SECONDS_A_LOG)
            await asyncio.to_thread(self.log.flush)  # whoever reads it may be slow


def _check_host(headers: Headers) -> None:
    """Refuse, where there are no keys, a name that may have been made to lead here (DNS rebinding)."""
    if headers.host is not None and not _is_local(headers.host):
        raise Refused(
            403, "host", "without keys, only 127.0.0.1 and localhost are answered to; behind a proxy, set keys"
        )


def _check_origin(headers: Headers) -> None:
    """Refuse, where there are no keys, what a page from elsewhere may have made a browser of this machine send."""
    origin = headers.origin
    if headers.site == b"cross-site" or (origin is not None and not _is_local(origin.partition(b"://")[2])):
        raise Refused(403, "origin", "without keys, pages from elsewhere are not answered; behind a proxy, set keys")


def _is_local(host: bytes) -> bool:
    parts = _HOST.fullmatch(host.decode("latin-1").lower())
    return parts is not None and is_loopback(parts[1] or parts[2])


def _taken(outcome: Outcome) -> wire.Taken:
    return wire.Taken(outcome, outcome == "duplicate")


def _rows(answers: "list[Any]") -> Reply:
    rows = []
    for answer in answers:
        if isinstance(answer, Exception):
            status, told = problem(answer)
            rows.append(wire.Row(status, told))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            rows.append(wire.Row(200, answer))
    return Reply(200, wire.encode(wire.Rows(rows)))
