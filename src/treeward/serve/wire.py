"""Bodies, queries and answers that only HTTP has; the rest are `explorer.records`. OpenAPI is made of both."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from treeward.explorer.records import Decision, Event, Id, Interest

LONGEST_ID = 512

User = Annotated[str, Meta(min_length=1, max_length=LONGEST_ID)] | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Item = Annotated[str, Meta(max_length=4096)] | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, Meta(ge=1, le=65536)]
Number = Annotated[int, Meta(ge=0, le=2**53)]
Path = Annotated[str, Meta(max_length=2_000)]
Scalar = str | int | float | bool | None
Condition = Scalar | list[Scalar] | dict[str, Scalar]


class Problem(Struct):
    """Why a request was refused."""

    error: str
    """A name to act on."""
    message: str
    """A sentence to read."""


# --- deciding and feedback -------------------------------------------------------------------------------------------


class RecommendRequest(Struct, forbid_unknown_fields=True):
    """A request for items for a user."""

    user: User
    n: Count = 1
    exclude: list[Item] = []
    allow: list[Item] | None = None
    where: dict[str, Condition] | None = None
    """A condition on the catalogue's columns: a value, a list of values, or {"min": ..., "max": ...}."""
    diverse: bool = False
    """Spread the n items over the tree."""
    context: dict[str, Annotated[str, Meta(max_length=200)] | int | float] | None = None
    """Facts about the request that the service's features use: device, hour, place."""
    fallback: list[Item] = []
    """The caller's own items, best first: for users held out, and in the mode `apprentice`."""


class RecommendBatch(Struct, forbid_unknown_fields=True):
    """Requests for items for many users."""

    requests: list[RecommendRequest]


class Recommendation(Struct):
    """The items to show, in order."""

    items: list[Decision]


class FeedbackRequest(Struct, forbid_unknown_fields=True):
    """The reward of a decision, which is named by its id, or by user and item if the id was lost."""

    reward: float
    decision_id: str | UnsetType = UNSET
    user: User | UnsetType = UNSET
    item: Item | UnsetType = UNSET


class FeedbackBatch(Struct, forbid_unknown_fields=True):
    """The rewards of many decisions."""

    rewards: list[FeedbackRequest]


class FeedbackAnswer(Struct):
    """What a reward did: it was `recorded`, it `changed` an earlier one, or it was a `duplicate`."""

    outcome: str
    duplicate: bool


class BatchRow(Struct):
    """The answer to one row of a batch: the status and the body that the single call would have had."""

    status: int
    body: Any


class BatchAnswer(Struct):
    """The answers to a batch, in its order."""

    rows: list[BatchRow]


# --- users and items -------------------------------------------------------------------------------------------------


class Part(Struct):
    """A part of a user's history."""

    upto: int
    """How many of the user's events there are up to its end."""
    shown: int
    """Items shown in it ..."""
    rewards: int
    """... rewards in it ..."""
    earned: float
    """... and their sum, with changes to earlier rewards."""


class UserView(Struct):
    """What is known of a user."""

    user: str | int
    events: int
    held_out: bool
    interests: list[Interest]
    history: list[Event]
    """The last hundred events."""
    story: list[Part]
    """All events in at most thirty parts of about equal length, the first ones first."""


class Erased(Struct):
    """How much was erased."""

    events: int


class PutItem(Struct, forbid_unknown_fields=True):
    """An item. Fields that are not given stay as they are, or are empty if the item is new."""

    item: Item
    vector: Annotated[list[float], Meta(min_length=1, max_length=65536)] | UnsetType = UNSET
    """Required if the item is new."""
    columns: dict[str, Scalar] = {}
    """`title`, `category` and any other columns of the catalogue."""


class PutItems(Struct, forbid_unknown_fields=True):
    """Items to add, or to change."""

    items: list[PutItem]


class RemoveItems(Struct, forbid_unknown_fields=True):
    """Items to remove."""

    items: list[Item]


class ItemsChanged(Struct):
    """How many items a request has changed."""

    changed: int
    """Items that were added, changed or removed ..."""
    items: int
    """... and that can be shown now."""


# --- queries ---------------------------------------------------------------------------------------------------------


class Slice(Struct, forbid_unknown_fields=True):
    """A part of a list."""

    after: Number = 0
    """How many entries to skip."""
    n: Annotated[int, Meta(ge=1, le=500)] = 50


class Search(Struct, forbid_unknown_fields=True):
    """A text to search for."""

    q: Annotated[str, Meta(max_length=200)] = ""
    n: Annotated[int, Meta(ge=1, le=100)] = 20


class FieldQuery(Struct, forbid_unknown_fields=True):
    """The part of a user's field, and the time."""

    node: Number = 0
    upto: Number | UnsetType = UNSET
    """After how many of the user's events; all of them by default."""


class Since(Struct, forbid_unknown_fields=True):
    """The beginning of a time span."""

    after: Annotated[float, Meta(ge=0, le=1e12)] = 0.0
    """Seconds since 1970."""


class Ticket(Struct, forbid_unknown_fields=True):
    """The part of a link to a report that makes it valid."""

    until: Number = 0
    ticket: Annotated[str, Meta(max_length=64)] = ""


class HealthQuery(Struct, forbid_unknown_fields=True):
    """How closely to examine the tree."""

    users: Annotated[int, Meta(ge=1, le=10_000)] = 100
    compare: bool = True
    """Build a new tree, to compare with."""


# --- the service -----------------------------------------------------------------------------------------------------


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
    """The smallest possible reward ..."""
    high: float
    """... and the largest."""
    role: str
    """Role of the caller's key."""


class Health(Struct):
    """Whether the service is ready, and if not, why."""

    ok: bool
    reason: str
    crowd: str = ""
    """Why no new editions of the crowd are made, although the service is ready; empty if they are."""


class Second(Struct):
    """What happened in about a second."""

    time: float
    recommend: float
    """Requests per second ..."""
    feedback: float
    refused: int
    """Answers of status 429 and 5xx."""
    decisions: int
    bold: int
    """Decisions that rejected an arm with a higher mean, in order to learn."""
    rewards: int
    earned: float
    covered: int
    """Different items shown so far."""
    p50: float | None
    """Milliseconds within which half of the requests for items were answered ..."""
    p99: float | None
    feedback_p99: float | None
    waiting: int
    """Writes that are not on disk yet."""
    commits: int


class LiveView(Struct):
    """What the service did lately, and since its start."""

    seconds: dict[str, list[Any]]
    """Columns of `Second`."""
    decisions: int
    rewards: int
    earned: float
    users: int
    items: int
    store_ok: bool
    reason: str
    """Why the service is not ready; empty if it is."""


class Period(Struct):
    """What happened in a part of the time since the start, over all workers."""

    time: float
    """When it ended."""
    explored: int
    """Decisions for users who are explored for ..."""
    explored_earned: float
    """... and the sum of the rewards that came in meanwhile."""
    held_out: int
    """The same for users who are held out."""
    held_out_earned: float
    covered: int
    """Different items shown up to its end."""


class Overview(Struct):
    """What the service has done since its start."""

    since: float
    """When it started, in seconds since 1970."""
    periods: dict[str, list[Any]]
    """Columns of `Period`: at most 240 parts of equal length, which grow with the time since the start."""
    decisions: int
    rewards: int
    earned: float
    users: int
    """Users in the store."""
    items: int
    """Items that can be shown now."""
    covered: int
    """Different items that were ever shown ..."""
    first_shown: int
    """... and how many of them were shown for the first time since the start."""
    found: int
    """Items whose rewards add up to `found_at` ..."""
    found_at: float
    """... which is five times the largest reward; 0: the largest reward is not positive, and nothing is counted."""


class Report(Struct):
    """A report of a past experiment."""

    name: str
    title: str
    modified: float


class ReportList(Struct):
    """The reports there are."""

    set: bool
    """Whether there is a folder for them."""
    reports: list[Report]


class ReportLink(Struct):
    """A link to a report that is valid for ten minutes."""

    url: str


class RisenItem(Struct):
    """An item that users like better than its vector predicts."""

    item: Id
    title: str | None
    effect: float
    """By how much, in units of reward."""
    times: float
    """Number of its rewards (old ones count less where there is a half-life) ..."""
    mean: float
    """... and their mean, without what the user's own taste was expected to add."""
    shown: int
    """How often it was shown to anybody ..."""
    earned: float
    """... and the sum of its rewards."""


class CrowdNode(Struct):
    """What the crowd expects of a node."""

    node: int
    name: str
    items: int
    mean: float
    """Expected reward for a new user, including the offset ..."""
    offset: float
    """... by which its items are better than their vectors predict."""


class CrowdView(Struct):
    """What was learned from all users."""

    learns: bool
    """Whether there is a crowd; if not, the rest is empty."""
    edition: int
    rewards: int
    """Rewards in the edition ..."""
    waiting: int
    """... and events since."""
    age: float
    """Seconds since it was made."""
    publish_seconds: float
    """Seconds it took to make."""
    noise: float
    """Variance of a reward around its expectation."""
    mean_reward: float
    users: int
    """Users in the sample that tells how much tastes differ."""
    problem: str
    """Why there is no newer edition, or what was wrong with the one in the store; empty if all is well."""
    risen: list[RisenItem]
    """Largest effects first."""
    strongest: list[CrowdNode]
    """The nodes of level 2 with the highest means, best first ..."""
    weakest: list[CrowdNode]
    """... and with the lowest, worst first."""


class Group(Struct):
    """The users who are explored for, or those held out."""

    users: int
    decisions: int
    reward: float
    """Mean reward of a decision; a decision without feedback earned 0."""


class Lift(Struct):
    """The difference between the two groups' mean rewards per decision, by user."""

    as_of: float
    """When it was computed, in seconds since 1970: at most a minute ago, or longer if reading every event takes more
    than three seconds."""
    explored: Group
    held_out: Group
    difference: float | None
    low: float | None
    """Lower end of the 95 % interval, by user (Welch) ..."""
    high: float | None
    """... and upper end."""
    matched: int
    """Decisions in the mode `apprentice` that were the caller's own item ..."""
    compared: int
    """... out of this many."""


# --- operators -------------------------------------------------------------------------------------------------------


class Empty(Struct, forbid_unknown_fields=True):
    """An empty object."""


class Backup(Struct):
    """Where a backup is."""

    path: str


class CopyRequest(Struct, forbid_unknown_fields=True):
    """The database to copy the store to."""

    to: Annotated[str, Meta(max_length=2_000, description="A database: postgresql://user@host/name.")]


class Copied(Struct):
    """What a copy contains."""

    users: int
    events: int
    """Copied by this request."""
    complete: bool
    """Whether nothing is missing; otherwise events arrived meanwhile, and the copy can be completed after a stop."""


class SwapRequest(Struct, forbid_unknown_fields=True):
    """What to serve from now on: other items, another tree, prior or features of them, or the snapshot before."""

    items: Annotated[str, Meta(max_length=2_000, description="A saved catalogue, or a file of item vectors.")] = ""
    tree: Path = ""
    prior: Path = ""
    features: Path = ""
    back: bool = False


encode = msgspec.json.Encoder(decimal_format="number").encode
