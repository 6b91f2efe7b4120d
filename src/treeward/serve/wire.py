"""What goes over the wire: one type a body, from which the OpenAPI document is made."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from treeward.explorer.records import Event, Interest

LONGEST_ID = 512

User = Annotated[str, Meta(min_length=1, max_length=LONGEST_ID)] | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Item = Annotated[str, Meta(max_length=4096)] | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, Meta(ge=1, le=65536)]
Scalar = str | int | float | bool | None
Condition = Scalar | list[Scalar] | dict[str, Scalar]


class Ask(Struct, forbid_unknown_fields=True):
    """Items for a user."""

    user: User
    n: Count = 1
    exclude: list[Item] = []
    allow: list[Item] | None = None
    where: dict[str, Condition] | None = None
    """A condition on the catalogue's columns: a value, a list of values, or {"min": ..., "max": ...}."""
    diverse: bool = False
    """Spread the n over the tree."""
    context: dict[str, Annotated[str, Meta(max_length=200)] | int | float] | None = None
    """What is known of the request: device, hour, place; what the service's features have a meaning for."""
    fallback: list[Item] = []
    """The caller's own items, best first: for users held out, and what an apprentice serves."""


class AskMany(Struct, forbid_unknown_fields=True):
    """Items for many users."""

    requests: list[Ask]


class Choice(Struct):
    """An item for a user."""

    decision_id: str
    item: str | int
    slot: int
    mean: float | None
    width: float | None
    propensity: float | None
    path: tuple[int, ...]
    policy: str
    """`explore`, `fallback` (the caller's own item), or `popular`."""


class Recommendation(Struct):
    """What to show."""

    items: list[Choice]
    snapshot: int
    edition: int
    """The edition of the crowd that these were decided by; 0: every user is learned alone."""


class Problem(Struct):
    """What went wrong."""

    error: str
    """A name to act on."""
    message: str
    """A sentence to read."""


class Reward(Struct, forbid_unknown_fields=True):
    """What came of a decision: by its id, or by user and item where that got lost."""

    reward: float
    decision_id: str | UnsetType = UNSET
    user: User | UnsetType = UNSET
    item: Item | UnsetType = UNSET


class RewardMany(Struct, forbid_unknown_fields=True):
    """What came of many decisions."""

    rewards: list[Reward]


class Taken(Struct):
    """What a reward did: `recorded`, `changed` an earlier one, or `duplicate`."""

    outcome: str
    duplicate: bool


class Row(Struct):
    """One row of a batch: its status is what the single call would have answered."""

    status: int
    body: Any


class Rows(Struct):
    """One row a row, in the same order."""

    rows: list[Row]


class UserView(Struct):
    """What is known of a user."""

    user: str | int
    events: int
    held_out: bool
    interests: list[Interest]
    history: list[Event]


class Erased(Struct):
    """What was erased."""

    events: int


class Nothing(Struct, forbid_unknown_fields=True):
    """An empty object: there is nothing to say."""


class Saved(Struct):
    """Where a backup is."""

    path: str


class CopyTo(Struct, forbid_unknown_fields=True):
    """Where the store is to be copied to."""

    to: Annotated[str, Meta(max_length=2_000, description="A database: postgresql://user@host/name.")]


class Swap(Struct, forbid_unknown_fields=True):
    """What to serve from now on: other items, with a tree or a prior; or what was served before."""

    items: Annotated[str, Meta(max_length=2_000, description="A saved catalogue, or a file of item vectors.")] = ""
    tree: Annotated[str, Meta(max_length=2_000)] = ""
    prior: Annotated[str, Meta(max_length=2_000)] = ""
    features: Annotated[str, Meta(max_length=2_000)] = ""
    back: bool = False


class PutItem(Struct, forbid_unknown_fields=True):
    """An item: what is not given stays as it is, or is empty if the item is new."""

    item: Item
    vector: Annotated[list[float], Meta(min_length=1, max_length=65536)] | UnsetType = UNSET
    """Needed if the item is new."""
    columns: dict[str, Scalar] = {}
    """`title`, `category` and whatever other columns the catalogue has."""


class PutItems(Struct, forbid_unknown_fields=True):
    """Items to add, or to change."""

    items: list[PutItem]


class RemoveItems(Struct, forbid_unknown_fields=True):
    """Items to take away."""

    items: list[Item]


class Changed(Struct):
    """What came of it."""

    changed: int
    """Items that were added, changed or taken away ..."""
    items: int
    """... and that can be shown now."""


class HowHealthy(Struct, forbid_unknown_fields=True):
    """How closely to look."""

    users: Annotated[int, Meta(ge=1, le=10_000)] = 100
    anew: bool = True
    """Cluster the items anew, to compare with."""


class Copied(Struct):
    """What a copy has come to."""

    users: int
    events: int
    """Brought this time."""
    complete: bool
    """Whether it is whole; else events came meanwhile, and it is to be finished when the service has stopped."""


class Health(Struct):
    """Whether it is well, and if not, why."""

    ok: bool
    reason: str
    crowd: str = ""
    """Why no new editions of the crowd are made, though it is well; nothing if they are."""


class RisenItem(Struct):
    """An item that everybody likes better than its vector says."""

    item: str | int
    title: str | None
    effect: float
    """By how much, in units of reward."""
    times: float
    """Rewards it got, those of long ago faded where there is a half-life ..."""
    mean: float
    """... and what they are on average."""


class CrowdNode(Struct):
    """What everybody thinks of a node."""

    node: int
    name: str
    items: int
    mean: float
    """Expected reward for a newcomer, its offset included ..."""
    offset: float
    """... which is by how much its items are better than their vectors say."""


class CrowdView(Struct):
    """What everybody taught so far."""

    learns: bool
    """Whether anything is learned from everybody; if not, the rest is empty."""
    edition: int
    rewards: int
    """Rewards that the edition knows ..."""
    waiting: int
    """... and events that came since."""
    age: float
    """Seconds since it was made."""
    publish_seconds: float
    """What making it took."""
    noise: float
    """Variance of a reward around what is expected of it."""
    mean_reward: float
    users: int
    """In the sample that tells how much tastes differ."""
    problem: str
    """Why there is no newer edition, or what was wrong with the one in the store; nothing if all is well."""
    risen: list[RisenItem]
    """Largest effects first."""
    strongest: list[CrowdNode]
    """Nodes at level 2 of the highest means, best first."""
    weakest: list[CrowdNode]
    """... and of the lowest, worst first."""


class Group(Struct):
    """Users who are explored for, or held out."""

    users: int
    decisions: int
    reward: float
    """Mean reward of a decision; one without feedback earned nothing."""


class Lift(Struct):
    """What exploring is worth: the difference of the two groups' mean rewards per decision, by user."""

    as_of: float
    """When it was counted, in seconds since 1970: at most a minute ago, since it reads every event."""
    explored: Group
    held_out: Group
    difference: float | None
    low: float | None
    """95 % interval ..."""
    high: float | None
    """... by user, Welch."""
    matched: int
    """Decisions of an apprentice that were what the caller showed ..."""
    compared: int
    """... of so many."""


encode = msgspec.json.Encoder(decimal_format="number").encode
