"""Bodies and answers of Azure Personalizer, as its callers send and read them."""

from typing import Annotated, Any

from msgspec import Meta, Struct

MOST_ACTIONS = 50
LONGEST_ID = 256

Name = Annotated[str, Meta(min_length=1, max_length=LONGEST_ID)]
Features = list[dict[str, Any]]


class Action(Struct):
    """An item that may be chosen."""

    id: Name
    features: Features | None = None
    """Ignored: the catalogue has the item's vector."""


class RankRequest(Struct, rename="camel"):
    """A request to choose one of some items. Fields that are not known are ignored."""

    actions: Annotated[list[Action], Meta(min_length=1, max_length=MOST_ACTIONS)]
    context_features: Features | None = None
    """Who asks, and in which context."""
    excluded_actions: list[str] | None = None
    event_id: Name | None = None
    """By which the reward is given; by default one is made."""
    defer_activation: bool | None = None
    """Record nothing before the event is activated."""


class RankedAction(Struct):
    """An item in a ranking."""

    id: str
    probability: float


class RankReply(Struct, rename="camel"):
    """Which item to show."""

    ranking: list[RankedAction]
    event_id: str
    reward_action_id: str


class RewardRequest(Struct):
    """The reward of an event."""

    value: float


class PersonalizerError(Struct):
    """Why a request was refused."""

    code: str
    message: str


class PersonalizerProblem(Struct):
    """A refusal."""

    error: PersonalizerError
