"""What an explorer returns: each thing has one record, the same in the library, over HTTP and on the page.

All of them but `Counts` can be encoded with `msgspec.json.encode`; numbers that are not known (nan) become null.
"""

from typing import Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

User = int | str
Id = int | str


class Decision(Struct, frozen=True, gc=False):
    """An item for a user."""

    id: str = field(name="decision_id")
    """Identifies the decision in feedback. Opaque and sealed."""
    user: User
    item: Id
    slot: int
    """Position among the n items of the call, from 0."""
    mean: float
    """Estimated reward of the item."""
    width: float
    """Uncertainty of the estimate: sqrt(x' A^-1 x)."""
    propensity: float
    """Probability of this item, given the slots before it; an estimate unless `exact`."""
    exact: bool
    """Under LinUCB or epsilon-greedy: every step considered all its arms, or all that `Beam` reaches by itself."""
    path: tuple[int, ...]
    """The nodes from below the root to the node that the item was taken from."""
    scores: int
    """How many scores were computed."""
    bold: bool = False
    """Whether an arm with a higher mean was rejected on the way, in order to learn."""
    edition: int = 0
    """The edition of the crowd that it was decided by; 0: the user is learned alone, or nothing was published yet."""
    snapshot: int = 0
    """The store's number of the tree that it was decided on."""
    policy: str = "explore"
    """``"explore"``: the policy chose the item; otherwise where it came from, such as ``"adopted"``."""


class Option(Struct, frozen=True):
    """An arm that was considered at a step."""

    id: Id
    """Number of a node, or id of an item."""
    name: str
    """Its name or title, cut after 80 characters."""
    mean: float
    width: float
    chosen: bool


class Step(Struct, frozen=True):
    """One choice on the way to an item."""

    kind: str
    """``"node"`` or ``"item"``."""
    considered: list[Option]
    """Best mean first."""
    total: int
    """How many arms the considered ones were drawn from."""
    chance: float
    """Probability of the chosen one among those considered."""


class Explanation(Struct, frozen=True):
    """How a decision was made."""

    user: User
    item: Id
    title: str
    steps: list[Step]
    reproduced: bool
    """Whether deciding again gave the same item. It does, unless the call had filters that `explain` was not given, or
    the items, the tree, the policy or the seed have changed since."""
    way: list[Option]
    """The nodes from below the root to the node that the item was taken from, with their estimates of then."""

    def __repr__(self) -> str:
        lines = [f"{self.title} for {self.user}"]
        for step in self.steps:
            chosen = next((option for option in step.considered if option.chosen), None)
            name = chosen.name if chosen else "?"
            seen = f"{len(step.considered)} of {step.total}"
            estimate = f"mean {chosen.mean:.3f}, width {chosen.width:.3f}" if chosen else ""
            lines.append(f"  {step.kind:4}  {name}: {estimate}; {seen} considered, chance {step.chance:.3g}")
        return "\n".join(lines)


class Interest(Struct, frozen=True):
    """What is known of a user's interest in the items under a node."""

    node: int
    name: str
    items: int
    mean: float
    width: float
    visits: int
    """Events of the user on these items ..."""
    reward: float
    """... and the sum of their rewards."""


class Event(Struct, frozen=True):
    """One event of a user."""

    kind: str
    """``"shown"``, ``"reward"``, ``"change"``, or ``"noted"`` and ``"noted change"`` where nothing is learned."""
    item: Id | None
    """None: the catalogue does not have it."""
    title: str | None
    reward: float | None
    time: int | None
    """Seconds since 1970; None: not known."""


class Counts(Struct, frozen=True):
    """How often items, or those under nodes, were shown, and the sum of their rewards."""

    shown: NDArray[np.int64]
    earned: NDArray[np.float64]


class Totals(Struct, frozen=True):
    """What happened so far."""

    items: int
    """Different items that were ever shown."""
    rewards: int
    """Rewards since the explorer started ..."""
    earned: float
    """... and their sum, with changes to earlier rewards."""


class NodeName(Struct, frozen=True):
    """A node and its name."""

    node: int
    name: str


class Nodes(Struct, frozen=True):
    """Nodes as columns, parents before their children; the first is the one that was asked for."""

    node: list[int]
    parent: list[int]
    name: list[str]
    items: list[int]
    """Items under it that may be shown."""
    children: list[int]
    """How many children it has, listed here or not."""
    shown: list[int]
    """How often its items were shown; empty unless items are counted ..."""
    earned: list[float]
    """... and the sum of their rewards."""
    crowd: list[float]
    """Expected reward for a new user, by what all users taught; empty where users are learned alone."""


class NodeMap(Struct, frozen=True):
    """A node and the nodes worth drawing of the three levels below it."""

    node: int
    level: int
    path: list[NodeName]
    """From the root to the node."""
    nodes: Nodes


class NodeView(Struct, frozen=True):
    """A node of the tree."""

    node: int
    name: str
    level: int
    parent: int | None
    items: int
    children: list[int]
    some_items: list[Id]


class NodeList(Struct, frozen=True):
    """Some of a node's children, the largest first."""

    total: int
    nodes: Nodes


class Field(Struct, frozen=True):
    """What a user's events say about the nodes around one; lists have one entry per node of `nodes`."""

    user: User
    upto: int
    """How many of the user's events this takes into account ..."""
    events: int
    """... and how many there are."""
    opened: int
    """Number of visible nodes in the whole tree; 0: the policy has no field."""
    last: Event | None
    """The last event taken into account."""
    path: list[NodeName]
    """From the root to the node that was asked for."""
    nodes: Nodes
    visible: list[bool]
    """Whether the next decision chooses among these nodes; true for all where the policy has no field."""
    mean: list[float]
    width: list[float]
    visits: list[int]
    """The user's rewards for items under the node ..."""
    reward: list[float]
    """... and their sum."""


class ItemView(Struct, frozen=True):
    """An item."""

    item: Id
    title: str | None
    columns: dict[str, Any]
    path: list[int]
    """The nodes from below the root to its leaf."""


class ListedItem(Struct, frozen=True):
    """An item in a list."""

    item: Id
    title: str | None
    shown: int
    earned: float


class ItemList(Struct, frozen=True):
    """Some of the items under a node."""

    total: int
    items: list[ListedItem]


class FoundNode(Struct, frozen=True):
    """A node that was found by its name."""

    node: int
    name: str
    items: int


class Found(Struct, frozen=True):
    """What a search found."""

    items: list[ListedItem]
    all_items: int
    nodes: list[FoundNode]
    all_nodes: int


class UserList(Struct, frozen=True):
    """Some users, the most recently active first."""

    users: list[User]
    total: int


class Ingested(Struct, frozen=True):
    """What `Explorer.ingest` recorded."""

    events: int
    users: int
    skipped: int
    """Interactions with items that the catalogue does not have."""
