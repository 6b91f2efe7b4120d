"""What answers the routes that are not hot: looking, erasing, health, the page and its files."""

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
import polars as pl

from treeward.core.errors import InvalidArgument
from treeward.data.catalogue import Catalogue
from treeward.serve import wire
from treeward.serve.assets import asset
from treeward.serve.batch import Batcher, Full
from treeward.serve.keys import Keys
from treeward.serve.live import Live
from treeward.serve.looks import Looks
from treeward.serve.metrics import Metrics
from treeward.serve.openapi import Shape, document, page
from treeward.serve.paths import parse_id
from treeward.serve.reports import Reports
from treeward.serve.routes import ROUTES, Refused, Reply, Request
from treeward.serve.service import Service
from treeward.serve.snapshots import choice_of
from treeward.store.base import User

_HTML = b"text/html; charset=utf-8"
_SAFE = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
_DOCS = (
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    *_SAFE,
)
_PAGE = (
    (
        b"content-security-policy",
        # The plotting library sets styles on what it draws; scripts come from here or not at all.
        b"default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        b"connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    *_SAFE,
)
_REPORT = (
    (
        b"content-security-policy",
        # Somebody else's page, perhaps: it may run its own scripts, but as nobody: not on this page, not with its key.
        b"sandbox allow-scripts; default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'unsafe-inline'; "
        b"img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    ),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)

Told = TypeVar("Told")
_MOST_LOOKING = 64
_INTEGER = re.compile(r"-?[0-9]{1,18}")


class Handlers:
    """One method a route, named as the route says.

    Parameters
    ----------
    service
        What answers.
    """

    def __init__(self, service: Service) -> None:
        self.service, self.settings = service, service.settings
        self.keys = Keys(self.settings.keys)
        self.count = Metrics(service)
        self.looks, self.live = Looks(service), Live(service, self.count)
        self.reports = Reports(self.settings.reports)
        self.draining = False
        self._looker = ThreadPoolExecutor(1, "treeward-look")
        self._looking = 0
        self._asks: Batcher[wire.Ask, wire.Recommendation] | None = None
        self._rewards: Batcher[wire.Reward, Any] | None = None

    async def _look(self, work: Callable[..., Told], *given: Any) -> Told:
        """Have somebody look, one at a time, so that looking never takes the cores from deciding."""
        if self._looking >= _MOST_LOOKING:
            raise Full
        self._looking += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._looker, work, *given)
        finally:
            self._looking -= 1

    async def _user(self, request: Request) -> Reply:
        return _json(await self._look(self.service.user, _user_of(request.argument)))

    async def _forget(self, request: Request) -> Reply:
        return _json(await asyncio.to_thread(self._forgotten, _user_of(request.argument)))

    def _forgotten(self, user: User) -> wire.Erased:
        store = self.service.explorer.store
        if isinstance(user, str) and _INTEGER.fullmatch(user):
            text, number = store.counts([user, int(user)])
            if number and not text:
                raise InvalidArgument("forget", "user", f"somebody: there is no {user!r}, but an int:{user}", user)
        return self.service.forget(user)

    async def _users(self, request: Request) -> Reply:
        return _json(await self._look(self.looks.users, request.query))

    async def _field(self, request: Request) -> Reply:
        return _json(await self._look(self.looks.field, _user_of(request.argument), request.query))

    async def _item(self, request: Request) -> Reply:
        integers = self.service.explorer.catalogue.ids_are_integers
        return _json(await self._look(self.service.item, parse_id(request.argument, integers, "item")))

    async def _node(self, request: Request) -> Reply:
        return _json(await self._look(self.service.node, _node_of(request)))

    async def _map(self, request: Request) -> Reply:
        return _json(await self._look(self.looks.map, _node_of(request)))

    async def _inside(self, request: Request) -> Reply:
        return _json(await self._look(self.looks.items, _node_of(request), request.query))

    async def _children(self, request: Request) -> Reply:
        return _json(await self._look(self.looks.children, _node_of(request), request.query))

    async def _search(self, request: Request) -> Reply:
        return _json(await self._look(self.looks.find, request.query))

    async def _explain(self, request: Request) -> Reply:
        return _json(await self._look(self.looks.explain, request.argument))

    async def _about(self, request: Request) -> Reply:
        key = self.keys.find(request.headers.authorization)
        return _json(await self._look(self.looks.about, key.role if key is not None else ""))

    async def _live(self, request: Request) -> Reply:
        return _json(await self._look(self.live.since, request.query.after, self.reason()))

    async def _lift(self, request: Request) -> Reply:
        return _json(await self._look(self.service.lift))

    async def _crowd(self, request: Request) -> Reply:
        return _json(await self._look(self.looks.crowd))

    async def _reports(self, request: Request) -> Reply:
        return _json(await asyncio.to_thread(self.reports.listed))

    async def _report_link(self, request: Request) -> Reply:
        return _json(await asyncio.to_thread(self.reports.link, request.argument))

    async def _report(self, request: Request) -> Reply:
        query = request.query
        body = await asyncio.to_thread(self.reports.read, request.argument, query.until, query.ticket)
        return Reply(200, body, _HTML, _REPORT)

    async def _index(self, request: Request) -> Reply:
        return await self._sent("index.html", request, _PAGE)

    async def _asset(self, request: Request) -> Reply:
        return await self._sent(request.argument, request, _SAFE)

    async def _sent(self, name: str, request: Request, headers: tuple[tuple[bytes, bytes], ...]) -> Reply:
        """Return a file of the page, compressed where the browser can read that, or that it has not changed."""
        found = await asyncio.to_thread(asset, name)
        if found is None:
            raise Refused(404, "no_route", f"there is no file {name[:80]}")
        kept = b"public, max-age=31536000, immutable" if found.fixed else b"no-cache"
        headers = (*headers, (b"cache-control", kept), (b"etag", found.tag), (b"vary", b"accept-encoding"))
        if request.headers.have == found.tag:
            return Reply(304, b"", found.kind, headers)
        if b"gzip" in (request.headers.encoding or b""):
            return Reply(200, found.packed, found.kind, (*headers, (b"content-encoding", b"gzip")))
        return Reply(200, found.body, found.kind, headers)

    async def _livez(self, request: Request) -> Reply:
        return Reply(200, b'{"ok":true,"reason":"","crowd":""}')

    async def _readyz(self, request: Request) -> Reply:
        reason = self.reason()
        told = wire.Health(not reason, reason, self.service.publisher.told)
        return Reply(503 if reason else 200, wire.encode(told))

    def reason(self) -> str:
        """Return why the service is not ready; nothing if it is."""
        failed = self.service.explorer.store.status().problem
        if failed is not None:
            return f"the store takes no writes: {failed}"
        return "shutting down" if self.draining else ""

    async def _openapi(self, request: Request) -> Reply:
        return Reply(200, msgspec.json.encode(self._document()))

    async def _docs(self, request: Request) -> Reply:
        return Reply(200, page(self._document()), _HTML, _DOCS)

    def _document(self) -> dict[str, Any]:
        shop, settings = self.service.explorer.catalogue, self.settings
        shape = Shape(
            "integer" if shop.ids_are_integers else "string", _kinds(shop), shop.dim, self.service.contexts,
            settings.max_batch, (settings.reward_low, settings.reward_high),
        )  # fmt: skip
        return document((route for route in ROUTES if not route.admin), bool(settings.keys), shape)

    async def _metrics(self, request: Request) -> Reply:
        waiting = [batcher.waiting if batcher is not None else 0 for batcher in (self._asks, self._rewards)]
        return Reply(200, self.count.text(*waiting), b"text/plain; version=0.0.4; charset=utf-8")

    async def _backup(self, request: Request) -> Reply:
        return _json(wire.Saved(await asyncio.to_thread(self.service.backup)))

    async def _copy(self, request: Request) -> Reply:
        return _json(await asyncio.to_thread(self.service.copy, request.body.to))

    async def _snapshot(self, request: Request) -> Reply:
        return _json(await asyncio.to_thread(choice_of, self.service.explorer.store, self.settings))


def _kinds(shop: Catalogue) -> dict[str, str]:
    """Return what the columns hold that a request can filter by."""
    kinds = {}
    for name, kind in shop.schema.items():
        if kind == pl.String:
            kinds[name] = "string"
        elif kind == pl.Boolean:
            kinds[name] = "boolean"
        elif kind.is_numeric():
            kinds[name] = "integer" if kind.is_integer() else "number"
    return kinds


def _json(told: Any) -> Reply:
    return Reply(200, wire.encode(told))


def _node_of(request: Request) -> int:
    node = parse_id(request.argument, True, "node")
    assert isinstance(node, int)
    return node


def _user_of(text: str) -> User:
    """Return a user from a path: a string, an integer as ``int:7``, or a string that begins so as ``str:int:7``."""
    if text.startswith("str:"):
        return text[4:]
    if text.startswith("int:"):
        try:
            return int(text[4:])
        except ValueError:
            pass
    return text
