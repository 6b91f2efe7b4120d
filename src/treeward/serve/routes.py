"""Every route there is, as data: what it takes, what it gives, who may call it, and what answers."""

import secrets
from collections.abc import Iterable
from itertools import count
from typing import Any, NamedTuple

from treeward.core.errors import (
    FeedbackConflict,
    FeedbackLate,
    InvalidArgument,
    NothingLeft,
    StoreError,
    UnknownDecision,
    UnknownId,
)
from treeward.explorer import records
from treeward.serve import sights, wire
from treeward.serve.batch import Full
from treeward.serve.snapshots import Choice

LONGEST_ARGUMENT = 4096
"""Characters of what stands in a path's braces: a decision id carries the name of its user."""


class Request(NamedTuple):
    """What a handler gets."""

    body: Any
    """Decoded, of the route's type."""
    argument: str
    """What stands in the path's braces, if it has any."""
    query: Any
    """Of the route's type."""
    headers: "Headers"


class Reply(NamedTuple):
    """What a handler gives."""

    status: int
    body: bytes
    kind: bytes = b"application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()


DATA = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
"""Headers of whatever may tell of users: it is kept by nobody, and taken for nothing else."""


class Refused(Exception):
    """A request that does not reach its handler."""

    def __init__(self, status: int, error: str, message: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        super().__init__(message)
        self.reply = Reply(status, wire.encode(wire.Problem(error, message)), headers=headers)


_PROCESS, _NUMBERS = secrets.token_hex(6).encode(), count(1)


class Headers:
    """The headers that matter."""

    __slots__ = ("authorization", "encoding", "have", "host", "kind", "origin", "request_id", "site")

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.authorization: bytes | None = None
        self.kind: bytes | None = None
        self.host: bytes | None = None
        self.encoding: bytes | None = None
        self.have: bytes | None = None
        self.origin: bytes | None = None
        self.site: bytes | None = None
        given = None
        for name, value in headers:
            if name == b"authorization":
                self.authorization = value
            elif name == b"x-request-id":
                given = value
            elif name == b"content-type":
                self.kind = value
            elif name == b"host":
                self.host = value
            elif name == b"accept-encoding":
                self.encoding = value
            elif name == b"if-none-match":
                self.have = value
            elif name == b"origin":
                self.origin = value
            elif name == b"sec-fetch-site":
                self.site = value
        sound = given is not None and len(given) <= 64 and given.replace(b"-", b"").isalnum()
        self.request_id: bytes = given if given is not None and sound else b"%s-%x" % (_PROCESS, next(_NUMBERS))


class Route(NamedTuple):
    """One route."""

    method: str
    path: str
    role: str | None
    """Who may: `read`, `write` or `admin`; None: anybody."""
    summary: str
    handler: str
    """Name of the method of `App` that answers."""
    takes: type | None = None
    gives: type | None = None
    errors: tuple[int, ...] = ()
    admin: bool = False
    """On the admin listener, not on the public one."""
    asks: type | None = None
    """What may stand behind the question mark."""


_ONE, _MANY = (400, 409), (400,)
ROUTES = (
    Route("POST", "/v1/recommend", "write", "Items for a user", "recommend", wire.Ask, wire.Recommendation, _ONE),
    Route(
        "POST", "/v1/recommend/batch", "write", "Items for many users", "recommend_batch", wire.AskMany, wire.Rows,
        _MANY,
    ),
    Route(
        "POST", "/v1/feedback", "write", "What came of a decision; on disk when this answers", "feedback", wire.Reward,
        wire.Taken, (400, 404, 409, 410),
    ),
    Route(
        "POST", "/v1/feedback/batch", "write", "What came of many decisions", "feedback_batch", wire.RewardMany,
        wire.Rows, _MANY,
    ),
    Route("GET", "/v1/users/{user}", "read", "What is known of a user", "user", None, wire.UserView, _MANY),
    Route("GET", "/v1/users", "read", "Some users", "users", None, records.UserList, _MANY, asks=sights.Find),
    Route(
        "GET", "/v1/users/{user}/field", "read", "What is known of a user's interests, drawn on the tree, now or then",
        "field", None, records.Field, (400, 404), asks=sights.When,
    ),
    Route(
        "GET", "/v1/decisions/{decision}", "read", "How a decision came about", "explain", None, records.Explanation,
        (404,),
    ),
    Route("DELETE", "/v1/users/{user}", "admin", "Erase a user, on disk too", "forget", None, wire.Erased, _MANY),
    Route(
        "PUT", "/v1/items", "admin", "Add items, or change what is known of them; they can be shown when this answers",
        "put_items", wire.PutItems, wire.Changed, (400,),
    ),
    Route(
        "DELETE", "/v1/items", "admin",
        "Take items away; none is shown once this has answered (other workers and replicas: within two seconds)",
        "remove_items", wire.RemoveItems, wire.Changed, (400,),
    ),
    Route("GET", "/v1/items/{item}", "read", "An item", "item", None, records.ItemView, (404,)),
    Route("GET", "/v1/tree/{node}", "read", "A node of the tree (0: the root)", "node", None, records.NodeView, (404,)),
    Route(
        "GET", "/v1/tree/{node}/map", "read", "A node and what is worth drawing below it", "map", None, records.NodeMap,
        (404,),
    ),
    Route(
        "GET", "/v1/tree/{node}/items", "read", "Some of the items under a node", "inside", None, records.ItemList,
        (400, 404), asks=sights.Slice,
    ),
    Route(
        "GET", "/v1/tree/{node}/children", "read", "Some of a node's children", "children", None, records.NodeList,
        (400, 404), asks=sights.Slice,
    ),
    Route("GET", "/v1/search", "read", "Items, nodes by name", "search", None, records.Found, _MANY, asks=sights.Find),
    Route("GET", "/v1/about", "read", "What is served, and how", "about", None, sights.About),
    Route(
        "GET", "/v1/live", "read", "How it is doing, second by second", "live", None, sights.LiveView, _MANY,
        asks=sights.Since,
    ),
    Route("GET", "/v1/reports", "read", "Reports of past experiments", "reports", None, sights.Reports),
    Route(
        "GET", "/v1/reports/{report}", "read", "Where a report can be opened for a while", "report_link", None,
        sights.ReportLink, (404,),
    ),
    Route("GET", "/v1/lift", "read", "What exploring is worth, against those held out", "lift", None, wire.Lift),
    Route("GET", "/v1/crowd", "read", "What everybody taught so far", "crowd", None, wire.CrowdView),
    Route("GET", "/livez", None, "Whether the process is alive", "livez", None, wire.Health),
    Route("GET", "/readyz", None, "Whether it takes requests, and if not, why", "readyz", None, wire.Health, (503,)),
    Route("GET", "/openapi.json", None, "This document", "openapi"),
    Route("GET", "/docs", None, "A page to read it", "docs"),
    Route("GET", "/", None, "The page to look at it all", "index"),
    Route("GET", "/assets/{file}", None, "A file of the page", "asset", errors=(404,)),
    Route(
        "GET", "/reports/{report}", None, "A report, by a link that is still good", "report", errors=(400, 404),
        asks=sights.Ticket,
    ),
    Route("GET", "/metrics", "admin", "Metrics for Prometheus", "metrics", admin=True),
    Route(
        "POST", "/admin/backup", "admin", "Copy the store to a file beside it", "backup", wire.Nothing, wire.Saved,
        (400,), admin=True,
    ),
    Route(
        "POST", "/admin/copy", "admin", "Copy the store to a database, as far as it has come", "copy", wire.CopyTo,
        wire.Copied, (400,), admin=True,
    ),
    Route(
        "GET", "/admin/tree", "admin", "How well the tree still fits its items", "health", errors=(400,), admin=True,
        asks=wire.HowHealthy,
    ),
    Route("GET", "/admin/snapshot", "admin", "What is served, and was before", "snapshot", None, Choice, admin=True),
    Route(
        "POST", "/admin/snapshot", "admin", "Serve other items, or another tree of them, or what was served before",
        "swap", wire.Swap, Choice, (400, 409), admin=True,
    ),
)  # fmt: skip

STATUS: tuple[tuple[type[Exception], int, str], ...] = (
    (FeedbackConflict, 409, "conflict"),
    (FeedbackLate, 410, "too_late"),
    (UnknownDecision, 404, "unknown_decision"),
    (UnknownId, 404, "unknown_id"),
    (NothingLeft, 409, "nothing_left"),
    (InvalidArgument, 400, "invalid"),
    (StoreError, 503, "store"),
    (Full, 503, "overloaded"),
)
"""What an error is on the wire; the first that fits."""


def problem(error: Exception) -> tuple[int, wire.Problem]:
    """Return the status and the body that tell of an error."""
    for kind, status, name in STATUS:
        if isinstance(error, kind):
            return status, wire.Problem(name, str(error) or "too many requests are waiting")
    raise error
