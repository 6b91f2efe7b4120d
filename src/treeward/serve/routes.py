"""The routes: a method of `Routes` each, whose signature says what it takes and gives, and OpenAPI shows."""

import asyncio
import gzip
import re
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.staticfiles import StaticFiles

from treeward.core.errors import UnknownId
from treeward.data.catalogue import Id
from treeward.explorer import records
from treeward.serve import openapi, wire
from treeward.serve.batch import Full
from treeward.serve.catalogue_admin import CatalogueAdmin
from treeward.serve.crowd import crowd_view
from treeward.serve.hot import HotPath
from treeward.serve.keys import Access
from treeward.serve.live import Live
from treeward.serve.metrics import Metrics
from treeward.serve.replies import NOT_KEPT, Refused
from treeward.serve.reports import PLOTLY, Reports
from treeward.serve.service import Served
from treeward.serve.snapshots import Choice, choice_of
from treeward.store.base import User

Found = TypeVar("Found")
Given = ParamSpec("Given")
Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])

_PAGE = Path(__file__).parent / "page"
_PLOTLY_FILE = "plotly.min.js"
_SAFE = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}
_DOCS_HEADERS = _SAFE | {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
}
_PAGE_HEADERS = _SAFE | {
    "cache-control": "no-cache",
    # The plotting library sets styles on what it draws; scripts come from here or not at all.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
}
_REPORT_HEADERS = {
    # A report may be a page of another author: it may run its own scripts, but has no access to this page and its key.
    "content-security-policy": "sandbox allow-scripts; default-src 'none'; script-src 'self' 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
_MOST_LOOKING = 64
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
"""One way to write each integer."""


class Route(NamedTuple):
    """One route."""

    method: str
    path: str
    role: str | None
    """Role that a caller needs: `read`, `write` or `admin`; None: anyone may call it."""
    errors: tuple[int, ...]
    """Statuses of its own errors, besides those that every route of its kind may have."""
    admin: bool
    """On the admin listener, not on the public one."""
    name: str
    """Of the method of `Routes` that answers."""
    summary: str
    arguments: dict[str, Any]
    """Names in the path's braces, with their types."""
    takes: type[Struct] | None
    """Type of the body."""
    asks: type[Struct] | None
    """Type of the query string."""
    gives: type[Struct] | None
    """Type of a JSON answer."""
    wants_request: bool
    status: int = 200
    """Status of a successful answer."""
    problem: type[Struct] = wire.Problem
    """Type of the body of a refusal."""


def route(
    method: str,
    path: str,
    role: str | None,
    *errors: int,
    admin: bool = False,
    gives: Any = None,
    status: int = 200,
    problem: type[Struct] = wire.Problem,
) -> Callable[[Handler], Handler]:
    """Make a method of `Routes` a handler: its parameters `body` and `query` have the types that are decoded."""

    def mark(handler: Handler) -> Handler:
        kinds = dict(handler.__annotations__)
        answer = gives or kinds.pop("return")
        answer = answer if isinstance(answer, type) and issubclass(answer, Struct) else None
        arguments = {name: kinds[name] for name in re.findall(r"{(\w+)}", path)}
        summary = (handler.__doc__ or "").splitlines()[0].rstrip(".")
        handler.route = Route(  # type: ignore[attr-defined]
            method, path, role, errors, admin, handler.__name__, summary, arguments,
            kinds.get("body"), kinds.get("query"), answer, "request" in kinds, status, problem,
        )  # fmt: skip
        return handler

    return mark


class Routes:
    """Every handler; those of the hot routes are for the few requests that do not take the fast path."""

    def __init__(
        self, served: Served, access: Access, hot: HotPath, catalogue: CatalogueAdmin, live: Live, metrics: Metrics
    ) -> None:
        self._served, self._access, self._hot, self._catalogue = served, access, hot, catalogue
        self._live, self._metrics, self._reports = live, metrics, Reports(served.settings.reports)
        self._files, self._compressing = _PageFiles(directory=_PAGE), asyncio.Lock()
        self._looker = ThreadPoolExecutor(1, "treeward-look")
        self._comparer = ThreadPoolExecutor(1, "treeward-lift")
        self._waiting = {self._looker: 0, self._comparer: 0}
        """Requests per pool."""

    def close(self) -> None:
        """Begin nothing else."""
        for pool in (self._looker, self._comparer):
            pool.shutdown(wait=False, cancel_futures=True)

    async def _look(self, work: Callable[Given, Found], *given: Given.args, **named: Given.kwargs) -> Found:
        """Look something up in the one thread for that, so that looking never takes the cores from deciding."""
        return await self._in(self._looker, lambda: work(*given, **named))

    async def _in(self, pool: ThreadPoolExecutor, work: Callable[[], Found]) -> Found:
        if self._waiting[pool] >= _MOST_LOOKING:
            raise Full
        self._waiting[pool] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work)
        finally:
            self._waiting[pool] -= 1

    # --- deciding and feedback ---------------------------------------------------------------------------------------

    @route("POST", "/v1/recommend", "write", 400, 409)
    async def recommend(self, body: wire.RecommendRequest) -> wire.Recommendation:
        """Recommend items to a user."""
        self._hot.check(body)
        return await self._hot.recommend.ask(body)

    @route("POST", "/v1/recommend/batch", "write", 400)
    async def recommend_batch(self, body: wire.RecommendBatch) -> wire.BatchAnswer:
        """Recommend items to many users."""
        return await self._hot.recommend_many(body.requests)

    @route("POST", "/v1/feedback", "write", 400, 404, 409, 410)
    async def feedback(self, body: wire.FeedbackRequest) -> wire.FeedbackAnswer:
        """Record the reward of a decision; it is on disk when this answers."""
        return await self._hot.feedback.ask(body)

    @route("POST", "/v1/feedback/batch", "write", 400)
    async def feedback_batch(self, body: wire.FeedbackBatch) -> wire.BatchAnswer:
        """Record the rewards of many decisions."""
        return await self._hot.feedback_many(body.rewards)

    # --- users -------------------------------------------------------------------------------------------------------

    @route("GET", "/v1/users/{user}", "read", 400)
    async def user(self, user: User) -> wire.UserView:
        """Return what is known of a user."""
        return await self._look(self._served.service.user, user)

    @route("GET", "/v1/users", "read", 400)
    async def users(self, query: wire.Search) -> records.UserList:
        """List some users."""
        return await self._look(self._served.explorer.inspect.find_users, query.q, query.n)

    @route("GET", "/v1/users/{user}/field", "read", 400, 404)
    async def field(self, user: User, query: wire.FieldQuery) -> records.Field:
        """Return a user's interests in the nodes around one, now or after some of the events."""
        return await self._look(self._served.service.field, user, query)

    @route("GET", "/v1/decisions/{decision}", "read", 404)
    async def explain(self, decision: str) -> records.Explanation:
        """Explain how a decision was made."""
        return await self._look(self._served.explorer.inspect.explain, decision)

    @route("DELETE", "/v1/users/{user}", "admin", 400)
    async def forget(self, user: User) -> wire.Erased:
        """Erase a user, on disk too."""
        return await asyncio.to_thread(self._served.service.forget, user)

    # --- items and the tree ------------------------------------------------------------------------------------------

    @route("PUT", "/v1/items", "admin", 400)
    async def put_items(self, body: wire.PutItems) -> wire.ItemsChanged:
        """Add items, or change what is known of them; they can be recommended when this answers."""
        return await self._catalogue.put_items(body.items)

    @route("DELETE", "/v1/items", "admin", 400)
    async def remove_items(self, body: wire.RemoveItems) -> wire.ItemsChanged:
        """Remove items; none is shown once this has answered (other workers and replicas: within two seconds)."""
        return await self._catalogue.remove_items(body.items)

    @route("GET", "/v1/items/{item}", "read", 404)
    async def item(self, item: str) -> records.ItemView:
        """Return an item."""
        integers = self._served.explorer.catalogue.ids_are_integers
        return await self._look(self._served.explorer.inspect.item, _integer(item, "item") if integers else item)

    @route("GET", "/v1/tree/{node}", "read", 404)
    async def node(self, node: int) -> records.NodeView:
        """Return a node of the tree; 0 is the root."""
        return await self._look(self._served.explorer.inspect.node, node)

    @route("GET", "/v1/tree/{node}/map", "read", 404)
    async def map(self, node: int) -> records.NodeMap:
        """Return a node and what is worth drawing below it."""
        return await self._look(self._served.explorer.inspect.map, node)

    @route("GET", "/v1/tree/{node}/items", "read", 400, 404)
    async def inside(self, node: int, query: wire.Slice) -> records.ItemList:
        """List some of the items under a node."""
        return await self._look(self._served.explorer.inspect.items, node, after=query.after, n=query.n)

    @route("GET", "/v1/tree/{node}/children", "read", 400, 404)
    async def children(self, node: int, query: wire.Slice) -> records.NodeList:
        """List some of a node's children."""
        return await self._look(self._served.explorer.inspect.children, node, after=query.after, n=query.n)

    @route("GET", "/v1/search", "read", 400)
    async def search(self, query: wire.Search) -> records.Found:
        """Find items and nodes by name."""
        return await self._look(self._served.explorer.inspect.find, query.q, query.n)

    # --- the service -------------------------------------------------------------------------------------------------

    @route("GET", "/v1/about", "read")
    async def about(self, request: Request) -> wire.About:
        """Describe what is served, and how."""
        key = self._access.keys.find(request.headers.get("authorization", "").encode("latin-1"))
        return await self._look(self._served.service.about, key.role if key is not None else "")

    @route("GET", "/v1/live", "read", 400)
    async def live(self, query: wire.Since) -> wire.LiveView:
        """Return what the service did, second by second."""
        return await self._look(self._live.since, query.after, self._reason())

    @route("GET", "/v1/overview", "read")
    async def overview(self) -> wire.Overview:
        """Return what the service has done since its start."""
        return await self._look(self._live.overview)

    @route("GET", "/v1/reports", "read")
    async def reports(self) -> wire.ReportList:
        """List reports of past experiments."""
        return await asyncio.to_thread(self._reports.listed)

    @route("GET", "/v1/reports/{report}", "read", 404)
    async def report_link(self, report: str) -> wire.ReportLink:
        """Return a link to a report, good for ten minutes."""
        return await asyncio.to_thread(self._reports.link, report)

    @route("GET", "/v1/lift", "read")
    async def lift(self) -> wire.Lift:
        """Compare users who are explored for with those held out."""
        # It may read for seconds, and other views should not wait for it.
        return await self._in(self._comparer, self._served.service.groups.lift)

    @route("GET", "/v1/crowd", "read")
    async def crowd(self) -> wire.CrowdView:
        """Return what was learned from all users."""
        return await self._look(crowd_view, self._served.explorer, self._served.service.publisher)

    @route("GET", "/livez", None)
    async def livez(self) -> wire.Health:
        """Return whether the process is alive."""
        return wire.Health(True, "")

    @route("GET", "/readyz", None, 503, gives=wire.Health)
    async def readyz(self) -> Response:
        """Return whether the service takes requests, and if not, why."""
        reason = self._reason()
        return json_response(
            wire.Health(not reason, reason, self._served.service.publisher.warning), 503 if reason else 200
        )

    def _reason(self) -> str:
        """Return why the service is not ready; nothing if it is."""
        failed = self._served.store.status().problem
        if failed is not None:
            return f"the store takes no writes: {failed}"
        return "shutting down" if self._access.draining else ""

    # --- pages -------------------------------------------------------------------------------------------------------

    @route("GET", "/openapi.json", None)
    async def openapi(self) -> dict[str, Any]:
        """Return this document."""
        return self._document()

    @route("GET", "/docs", None)
    async def docs(self) -> Response:
        """Return this document as a page."""
        return HTMLResponse(openapi.page(self._document()), headers=_DOCS_HEADERS)

    def _document(self) -> dict[str, Any]:
        public = [route for route in ROUTES if not route.admin]
        if self._served.settings.personalizer:
            from treeward.serve.personalizer import PERSONALIZER

            public += PERSONALIZER
        return openapi.document(public, openapi.Shape.of(self._served.explorer, self._served.settings))

    @route("GET", "/", None)
    async def index(self) -> Response:
        """Return the page that shows it all."""
        text = await asyncio.to_thread((_PAGE / "index.html").read_text, encoding="utf-8")
        return HTMLResponse(text.replace("%plotly%", PLOTLY), headers=_PAGE_HEADERS)

    @route("GET", "/assets/{file}", None, 404)
    async def asset(self, file: str, request: Request) -> Response:
        """Return a file of the page."""
        # Parts of files are not served: pages never ask for them, and answers would have to be joined from many.
        request.scope["headers"] = [pair for pair in request.scope["headers"] if pair[0] != b"range"]
        try:
            found = await self._files.get_response(_PLOTLY_FILE if file == PLOTLY else file, request.scope)
        except HTTPException:
            raise Refused(404, "no_route", f"there is no file {file[:80]}") from None
        found.headers.update(_PAGE_HEADERS | {"vary": "accept-encoding"})
        if file == PLOTLY:  # its name has its version in it, so browsers may keep it for good
            found.headers["cache-control"] = "public, max-age=31536000, immutable"
        if isinstance(found, FileResponse) and "gzip" in request.headers.get("accept-encoding", ""):
            async with self._compressing:  # one at a time, so that the first requests do not all compress
                body = await asyncio.to_thread(_compressed, str(found.path), found.headers["etag"])
            kept = {name: value for name, value in found.headers.items() if name != "content-length"}
            return Response(body, headers=kept | {"content-encoding": "gzip"})
        return found

    @route("GET", "/reports/{report}", None, 400, 404)
    async def report(self, report: str, query: wire.Ticket) -> Response:
        """Return a report, by a link that has not expired."""
        body = await asyncio.to_thread(self._reports.read, report, query.until, query.ticket)
        return HTMLResponse(body, headers=_REPORT_HEADERS)

    # --- operators ---------------------------------------------------------------------------------------------------

    @route("GET", "/metrics", "read")
    async def metrics(self) -> Response:
        """Return metrics for Prometheus; as on the admin listener, which other machines cannot reach."""
        return await self.admin_metrics()

    @route("GET", "/metrics", "admin", admin=True)
    async def admin_metrics(self) -> Response:
        """Return metrics for Prometheus."""
        text = self._metrics.text(self._hot.recommend.waiting, self._hot.feedback.waiting)
        return _unkept(text, "text/plain; version=0.0.4; charset=utf-8")

    @route("POST", "/admin/backup", "admin", 400, admin=True)
    async def backup(self, body: wire.Empty) -> wire.Backup:
        """Copy the store to a file next to it."""
        return wire.Backup(await asyncio.to_thread(self._served.service.backup))

    @route("POST", "/admin/copy", "admin", 400, admin=True)
    async def copy(self, body: wire.CopyRequest) -> wire.Copied:
        """Copy the store to a database, as far as it has come."""
        return await asyncio.to_thread(self._served.service.copy, body.to)

    @route("GET", "/admin/tree", "admin", 400, admin=True)
    async def health(self, query: wire.HealthQuery) -> dict[str, Any]:
        """Return how well the tree still fits its items."""
        found = await asyncio.to_thread(self._served.explorer.inspect.health, users=query.users, compare=query.compare)
        told = {name: None if value != value else value for name, value in found._asdict().items()}
        return {**told, "advice": found.advice}

    @route("GET", "/admin/snapshot", "admin", admin=True)
    async def snapshot(self) -> Choice:
        """Return which snapshot is served, and which was before."""
        return await asyncio.to_thread(choice_of, self._served.store, self._served.settings)

    @route("POST", "/admin/snapshot", "admin", 400, 409, admin=True)
    async def swap(self, body: wire.SwapRequest) -> Choice:
        """Serve other items, or another tree of them, or the snapshot before."""
        return await self._catalogue.swap(body)


ROUTES: tuple[Route, ...] = tuple(one.route for one in vars(Routes).values() if hasattr(one, "route"))


class _PageFiles(StaticFiles):
    """The files of the page, and the plotting library out of its own package."""

    def lookup_path(self, path: str) -> Any:
        """Return where a file is."""
        if path == _PLOTLY_FILE:
            from plotly import __file__ as package

            found = Path(package).parent / "package_data" / _PLOTLY_FILE
            return str(found), found.stat()
        return super().lookup_path(path)


@lru_cache(maxsize=64)
def _compressed(path: str, etag: str) -> bytes:
    """Return a file compressed; the ETag changes with the file."""
    return gzip.compress(Path(path).read_bytes(), 6)


def json_response(answer: Any, status: int = 200) -> Response:
    """Return an answer as JSON."""
    return _unkept(wire.encode(answer), "application/json", status)


def no_content() -> Response:
    """Return an answer without a body."""
    made = Response(status_code=204)
    made.raw_headers.extend(NOT_KEPT)
    return made


def _unkept(body: bytes, media_type: str, status: int = 200) -> Response:
    made = Response(body, status, media_type=media_type)
    made.raw_headers.extend(NOT_KEPT)
    return made


def converted(kind: Any, name: str, text: str) -> Id:
    """Return an argument of a path as its type.

    A user is a string, an integer as ``int:7``, or a string that begins like that as ``str:int:7``.
    """
    if kind is int:
        return _integer(text, name)
    if kind == User:
        if text == "str:":
            raise Refused(400, "invalid", "the name of a user is not empty")
        if text.startswith("str:"):
            return text[4:]
        if text.startswith("int:"):
            with suppress(ValueError):
                return int(text[4:])
    return text


def _integer(text: str, what: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise UnknownId(f"there is no {what} {text[:40]!r}: ids are integers here")
    return int(text)
