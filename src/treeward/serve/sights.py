"""What goes over the wire when somebody looks: the questions and answers behind the page."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType


class Slice(Struct, forbid_unknown_fields=True):
    """Which part of a list."""

    after: Annotated[int, Meta(ge=0, le=2**53)] = 0
    """How many to pass over."""
    n: Annotated[int, Meta(ge=1, le=500)] = 50


class Find(Struct, forbid_unknown_fields=True):
    """What to look for."""

    q: Annotated[str, Meta(max_length=200)] = ""
    n: Annotated[int, Meta(ge=1, le=100)] = 20


class When(Struct, forbid_unknown_fields=True):
    """Which part of a user's field, and when."""

    node: Annotated[int, Meta(ge=0, le=2**53)] = 0
    upto: Annotated[int, Meta(ge=0, le=2**53)] | UnsetType = UNSET
    """After so many of the user's events; all of them by default."""


class Since(Struct, forbid_unknown_fields=True):
    """From when on."""

    after: Annotated[float, Meta(ge=0, le=1e12)] = 0.0
    """Seconds since 1970."""


class Ticket(Struct, forbid_unknown_fields=True):
    """What a link to a report carries."""

    until: Annotated[int, Meta(ge=0, le=2**53)] = 0
    ticket: Annotated[str, Meta(max_length=64)] = ""


class About(Struct):
    """What is served, and how."""

    version: str
    items: int
    dim: int
    levels: int
    nodes: int
    titles: bool
    policy: str
    field: bool
    """Whether users have a field of visible nodes that opens."""
    mode: str
    holdout: float
    low: float
    """The least reward ..."""
    high: float
    """... and the largest."""
    role: str
    """What the caller may do."""


class Second(Struct):
    """What happened in about a second."""

    time: float
    recommend: float
    """Requests a second ..."""
    feedback: float
    refused: int
    """429 and 5xx."""
    decisions: int
    bold: int
    """Of these, decisions that passed over something that looked better."""
    rewards: int
    earned: float
    covered: int
    """Different items shown so far."""
    p50: float | None
    """Milliseconds in which half the requests for items were answered ..."""
    p99: float | None
    feedback_p99: float | None
    waiting: int
    """Writes that are not on disk yet."""
    commits: int


class LiveView(Struct):
    """How the service is doing."""

    seconds: dict[str, list[Any]]
    """Columns of `Second`."""
    decisions: int
    rewards: int
    earned: float
    users: int
    items: int
    store_ok: bool
    reason: str
    """Why it is not ready; nothing if it is."""


class Report(Struct):
    """A report of a past experiment."""

    name: str
    title: str
    modified: float


class Reports(Struct):
    """What reports there are."""

    set: bool
    """Whether there is a folder for them."""
    reports: list[Report]


class ReportLink(Struct):
    """Where a report can be opened for a while."""

    url: str
