"""What every answer is made of: the headers of a request that matter, replies, and refusals with their reason."""

import secrets
from collections.abc import Iterable
from itertools import count
from typing import NamedTuple

from treeward.core.errors import (
    FeedbackConflict,
    FeedbackLate,
    InvalidArgument,
    NothingLeft,
    StoreError,
    UnknownDecision,
    UnknownId,
)
from treeward.serve import wire
from treeward.serve.batch import Full

Pairs = tuple[tuple[bytes, bytes], ...]

NOT_KEPT: Pairs = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
"""Headers of every answer that may contain data of users: no cache keeps it, no browser guesses its type."""
CLOSE: Pairs = ((b"connection", b"close"),)
_PROCESS, _NUMBERS = secrets.token_hex(6).encode(), count(1)


class Reply(NamedTuple):
    """A JSON answer."""

    status: int
    body: bytes
    headers: Pairs = ()


class Refused(Exception):
    """A request that is answered with an error before it reaches its handler."""

    def __init__(self, status: int, error: str, message: str, headers: Pairs = ()) -> None:
        super().__init__(message)
        self.reply = Reply(status, wire.encode(wire.Problem(error, message)), headers)


class Headers:
    """The headers of a request that the service reads itself, in one pass."""

    __slots__ = ("authorization", "content_type", "host", "origin", "request_id", "site")

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.authorization: bytes | None = None
        self.content_type: bytes | None = None
        self.host: bytes | None = None
        self.origin: bytes | None = None
        self.site: bytes | None = None
        given = b""
        for name, value in headers:
            if name == b"authorization":
                self.authorization = value
            elif name == b"x-request-id":
                given = value
            elif name == b"content-type":
                self.content_type = value
            elif name == b"host":
                self.host = value
            elif name == b"origin":
                self.origin = value
            elif name == b"sec-fetch-site":
                self.site = value
        # A caller's id goes into the log and back into a header: only harmless ones are taken.
        sound = len(given) <= 64 and given.replace(b"-", b"").isalnum()
        self.request_id: bytes = given if sound else new_request_id()


def new_request_id() -> bytes:
    """Return an id for a request that came without a sound one."""
    return b"%s-%x" % (_PROCESS, next(_NUMBERS))


def check_json(content_type: bytes | None) -> None:
    """Refuse a body that is not said to be JSON, such as a form, which any page can make a browser send."""
    if content_type is None or content_type.partition(b";")[0].strip().lower() != b"application/json":
        raise Refused(415, "not_json", "send it with Content-Type: application/json")


_STATUS: tuple[tuple[type[Exception], int, str], ...] = (
    (FeedbackConflict, 409, "conflict"),
    (FeedbackLate, 410, "too_late"),
    (UnknownDecision, 404, "unknown_decision"),
    (UnknownId, 404, "unknown_id"),
    (NothingLeft, 409, "nothing_left"),
    (InvalidArgument, 400, "invalid"),
    (StoreError, 503, "store"),
    (Full, 503, "overloaded"),
)
"""Status and name of each expected error; the first that fits counts."""


def problem(error: Exception) -> tuple[int, wire.Problem]:
    """Return the status and the body for an expected error; raise any other."""
    for kind, status, name in _STATUS:
        if isinstance(error, kind):
            return status, wire.Problem(name, str(error) or "too many requests are waiting")
    raise error
