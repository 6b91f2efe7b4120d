"""What goes over the wire when somebody looks: the questions and answers behind the page."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from treeward.serve import wire


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


class Named(Struct):
    """A node and its name."""

    node: int
    name: str


class Nodes(Struct):
    """Nodes as columns, parents before their children; the first is the one asked for."""

    node: list[int]
    parent: list[int]
    name: list[str]
    items: list[int]
    children: list[int]
    """How many it has, drawn or not."""
    shown: list[int]
    earned: list[float]
    crowd: list[float]
    """What a newcomer is expected to think of it, by what everybody taught; empty where users are learned alone."""


class MapView(Struct):
    """A node and what is worth drawing of the three levels below it."""

    node: int
    level: int
    path: list[Named]
    """From the root to the node."""
    nodes: Nodes


class Groups(Struct):
    """Some of a node's children, the largest first."""

    total: int
    nodes: Nodes


class FieldView(Struct):
    """What was known of a user's interest in the nodes around one, after some of the user's events."""

    user: str | int
    upto: int
    events: int
    opened: int
    """Nodes of the whole field; 0: the policy has none."""
    last: wire.Event | None
    """The last event that counts here."""
    path: list[Named]
    nodes: Nodes
    visible: list[bool]
    mean: list[float]
    width: list[float]
    visits: list[int]
    reward: list[float]


class Listed(Struct):
    """An item in a list."""

    item: str | int
    title: str | None
    shown: int
    earned: float


class Listing(Struct):
    """Part of the items under a node."""

    total: int
    items: list[Listed]


class FoundNode(Struct):
    """A node that was looked for."""

    node: int
    name: str
    items: int


class Found(Struct):
    """What was found."""

    items: list[Listed]
    all_items: int
    nodes: list[FoundNode]
    all_nodes: int


class Users(Struct):
    """Some users, those asked for lately first."""

    users: list[str | int]
    total: int


class OptionView(Struct):
    """What was considered at a step."""

    id: str | int
    name: str
    mean: float
    width: float
    chosen: bool


class StepView(Struct):
    """One choice on the way to an item."""

    kind: str
    considered: list[OptionView]
    total: int
    """Out of how many they were drawn."""
    chance: float


class ExplanationView(Struct):
    """How a decision came about."""

    user: str | int
    item: str | int
    title: str
    steps: list[StepView]
    reproduced: bool
    """Whether deciding again gave the same item; not if the request had filters."""
    way: list[OptionView]
    """The nodes from below the root to where the item was taken from."""


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
