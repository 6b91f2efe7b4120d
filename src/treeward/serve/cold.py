"""The two listeners as ASGI applications: Starlette matches paths; keys, bodies, queries and errors are done here."""

import asyncio
from collections.abc import Iterable
from time import perf_counter
from typing import Any, Protocol
from urllib.parse import unquote, unquote_to_bytes

import msgspec
from starlette import routing
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from treeward.serve.hot import HotPath, decoded
from treeward.serve.openapi import LONGEST_ARGUMENT
from treeward.serve.replies import NOT_KEPT, Headers, Refused, Reply, check_json
from treeward.serve.routes import Route, converted, json_response


class Dialect(Protocol):
    """How another service's callers send their key, and read errors."""

    prefix: str
    """Of the paths that are answered so."""

    def authorization(self, headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
        """Return the caller's key as an Authorization header has it."""
        ...

    def refusal(self, path: str, reply: Reply) -> Reply:
        """Return a refusal with a body that these callers can read."""
        ...


class Listener:
    """The routes of one listener.

    Parameters
    ----------
    parts
        Routes, and what has a method for each of them.
    hot
        What every request needs.
    dialect
        How requests under its prefix are read and refused, if there are any.
    """

    def __init__(
        self, parts: Iterable[tuple[Iterable[Route], Any]], hot: HotPath, dialect: Dialect | None = None
    ) -> None:
        self._hot, self._dialect = hot, dialect
        by_path: dict[str, tuple[dict[str, Route], Any]] = {}
        for routes, handlers in parts:
            for route in routes:
                by_path.setdefault(route.path, ({}, handlers))[0][route.method] = route
        # One Starlette route per path, without methods: it would add HEAD, and name only one of several in Allow.
        paths = [routing.Route(path, _Endpoint(*some, hot)) for path, some in by_path.items()]
        self._router = routing.Router(paths, redirect_slashes=False, default=self._no_route)
        self._other: Listener | None = None
        self._elsewhere = ""

    def next_to(self, other: "Listener", elsewhere: str) -> None:
        """Say `elsewhere` of the routes that only the other listener has."""
        self._other, self._elsewhere = other, elsewhere

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, count it and log it."""
        if scope["type"] != "http":
            return
        begun, status, headers = perf_counter(), 0, Headers(scope["headers"])
        # Not the decoded path: with it, an id that contains an encoded slash would be two parts.
        scope["path"] = (scope["raw_path"] or b"/").decode("latin-1").partition("?")[0]
        scope.update({"treeward.headers": headers, "treeward.route": "-", "treeward.caller": "-"})

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", headers.request_id)]
            await send(message)

        dialect = self._dialect if self._dialect and scope["path"].startswith(self._dialect.prefix) else None
        if dialect is not None and headers.authorization is None:
            headers.authorization = dialect.authorization(scope["headers"])
        try:
            self._hot.access.check_host(headers)
            await self._router(scope, receive, send_with_id)
        except Exception as error:
            reply = self._hot.refusal(error, headers.request_id)
            reply = reply if dialect is None else dialect.refusal(scope["path"], reply)
            if not status:  # else the answer has begun, and the connection is closed instead
                refused = Response(reply.body, reply.status, media_type="application/json")
                refused.raw_headers.extend((*NOT_KEPT, *reply.headers))
                await refused(scope, receive, send_with_id)
        seconds = perf_counter() - begun
        route, caller = scope["treeward.route"], scope["treeward.caller"]
        self._hot.count(route, scope["method"], status, seconds, caller, headers.request_id)

    def has(self, scope: Scope) -> bool:
        """Return whether a route has the path of a request, whatever its method."""
        return any(path.matches(scope)[0] is not routing.Match.NONE for path in self._router.routes)

    async def _no_route(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"][:80]
        if self._other is not None and self._other.has(scope):
            raise Refused(404, "other_port", f"{path} {self._elsewhere}")
        raise Refused(404, "no_route", f"there is nothing at {path}")


class _Endpoint:
    """The routes of one path, by their methods."""

    def __init__(self, routes: dict[str, Route], handlers: Any, hot: HotPath) -> None:
        self._routes, self._hot = routes, hot
        self._handlers = {method: getattr(handlers, route.name) for method, route in routes.items()}
        self._decoders = {
            method: msgspec.json.Decoder(route.takes) for method, route in routes.items() if route.takes is not None
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method: str = scope["method"]
        route = self._routes.get(method)
        if route is None:
            allow = ", ".join(sorted(self._routes))
            raise Refused(405, "method", f"{scope['path'][:80]} takes {allow}", ((b"allow", allow.encode()),))
        scope["treeward.route"] = route.path
        request = Request(scope, receive, send)
        if route.role is not None:
            scope["treeward.caller"] = self._hot.access.admit(scope["treeward.headers"], route.role)
        given: dict[str, Any] = {
            name: converted(kind, name, _unquoted(scope["path_params"][name])) for name, kind in route.arguments.items()
        }
        if route.takes is not None:
            body = await self._body(request)
            check_json(scope["treeward.headers"].content_type)
            given["body"] = decoded(self._decoders[method], body)
        if route.asks is not None:
            given["query"] = _query(route.asks, request)
        if route.wants_request:
            given["request"] = request
        answer = await self._handlers[method](**given)
        sent: ASGIApp = answer if callable(answer) else json_response(answer)
        await sent(scope, receive, send)

    async def _body(self, request: Request) -> bytes:
        """Return a body, if it arrives in time and is not too long.

        Starlette's own limit would answer with its text even those who lack a key.
        """
        body = bytearray()
        try:
            async with asyncio.timeout(self._hot.settings.body_timeout):
                async for part in request.stream():
                    body += part
                    if len(body) > self._hot.settings.max_body:
                        raise self._hot.too_large()
        except TimeoutError:
            raise self._hot.too_slow() from None
        except ClientDisconnect:
            raise Refused(400, "invalid", "the caller went away") from None
        return bytes(body)


def _query(kind: type[msgspec.Struct], request: Request) -> Any:
    """Return a query string as its type."""
    pairs = request.query_params.multi_items()
    try:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("a name is given twice")
        unquote_to_bytes(request.scope["query_string"]).decode()  # Starlette would replace what is not UTF-8
        return msgspec.convert(dict(pairs), kind, strict=False)
    except UnicodeDecodeError:
        raise Refused(400, "invalid", "the query: it is not UTF-8") from None
    except ValueError as error:  # msgspec's among them
        raise Refused(400, "invalid", f"the query: {error}") from None


def _unquoted(text: str) -> str:
    """Return an argument of a path."""
    try:
        found = unquote(text, errors="strict") if len(text) <= 3 * LONGEST_ARGUMENT else text
    except UnicodeDecodeError:
        raise Refused(400, "invalid", "the path is not UTF-8") from None
    if len(found) > LONGEST_ARGUMENT:
        raise Refused(404, "no_route", "nothing has a name that long")
    return found
