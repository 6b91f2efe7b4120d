"""Azure Personalizer's requests, answered by treeward: rank, reward and activate, so that callers change the endpoint.

An event is a decision under a name. A name of the caller's own is recorded in the store, with the decision, before the
answer. An event without one is named by its decision id, which needs no record.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import blake2b
from http import HTTPStatus
from secrets import token_hex
from typing import Any, ParamSpec, TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from treeward.core.errors import FeedbackConflict, InvalidArgument, NothingLeft, TreewardError, UnknownDecision
from treeward.data.catalogue import Id
from treeward.serve import wire
from treeward.serve.batch import Full
from treeward.serve.hot import HotPath
from treeward.serve.metrics import Metrics
from treeward.serve.personalizer_wire import (
    LONGEST_ID,
    Features,
    PersonalizerError,
    PersonalizerProblem,
    RankedAction,
    RankReply,
    RankRequest,
    RewardRequest,
)
from treeward.serve.replies import Refused, Reply
from treeward.serve.routes import Route, json_response, no_content, route
from treeward.serve.service import Served
from treeward.store.base import User
from treeward.store.named_events import NamedEvent, NamedEvents

Found = TypeVar("Found")
Given = ParamSpec("Given")

PREFIX = "/personalizer/"
VERSIONS = ("v1.0", "v1.1-preview.1", "v1.1-preview.2", "v1.1-preview.3")
"""Versions that are part of the path; the newest clients have it in the query instead."""
USER_HEADER = b"treeward-user"
USER_FEATURES = ("userId", "user_id", "user.id", "user.userId", "user")
"""Features that name the user, if their value is a text or an integer."""
_KEY_HEADER = b"ocp-apim-subscription-key"
_CODES = {"rank": "InvalidRankRequest", "reward": "InvalidRewardRequest", "activate": "InvalidEventIdToActivate"}
"""The code of a status of 400, by the last part of the path."""
_LONGEST_FACT, _LARGEST_FACT = 200, 2.0**53
_THREADS, _LOCKS = 8, 256

Context = dict[str, str | int | float]


class _Record(Struct, array_like=True):
    """What is kept of an event with a name, besides its user."""

    digest: str
    """Of the request: the same one again, a retry, gets the same answer."""
    decision: str
    """The decision id; empty until the event is activated."""
    item: str | int
    context: Context | None
    order: list[int]
    """The actions that may be shown, as positions in the request, the chosen one first."""
    probability: float


class AzureDialect:
    """How callers of Personalizer send their key, and read errors."""

    prefix = PREFIX

    def authorization(self, headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
        """Return the subscription key as an Authorization header has it."""
        return next((b"Bearer " + value for name, value in headers if name == _KEY_HEADER), None)

    def refusal(self, path: str, reply: Reply) -> Reply:
        """Return a refusal as ``{"error": {"code", "message"}}``."""
        told = msgspec.json.decode(reply.body, type=wire.Problem)
        if reply.status == 401:
            told.message = "send a key: Ocp-Apim-Subscription-Key: ..."
        if reply.status == 400:
            code = _CODES.get(path.rpartition("/")[2], "BadRequest")
        elif reply.status == 404:
            code = "ResourceNotFound"
        else:
            code = HTTPStatus(reply.status).phrase.title().replace(" ", "")
        return reply._replace(body=wire.encode(PersonalizerProblem(PersonalizerError(code, told.message))))


class Personalizer:
    """The handlers. They decide and record rewards by the hot path, and keep names of events in the store."""

    def __init__(self, served: Served, hot: HotPath, metrics: Metrics) -> None:
        self._served, self._hot, self._features = served, hot, metrics.features
        self._features |= {"used": 0, "ignored": 0}
        self._threads, self._busy = ThreadPoolExecutor(_THREADS, "treeward-personalizer"), 0
        self._locks = [asyncio.Lock() for _ in range(_LOCKS)]
        """By the name of an event: its requests are answered one after the other."""
        self._write = msgspec.json.Encoder(order="deterministic")
        self._read = msgspec.json.Decoder(_Record)

    def close(self) -> None:
        """Begin nothing else."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    # --- routes ------------------------------------------------------------------------------------------------------

    @route("POST", "/personalizer/rank", "write", 409, gives=RankReply, status=201, problem=PersonalizerProblem)
    async def rank(self, body: RankRequest, request: Request) -> Response:
        """Choose one of some items (Azure Personalizer)."""
        user, name = self._user(body, request), body.event_id
        if name is None and not body.defer_activation:
            record = await self._decide(self._asked(body, user), self._checked(body), "")
            if len(record.decision) <= LONGEST_ID:
                return _ranked(record.decision, body, record)
            name = token_hex(16)  # of a user with a long name
            if not await self._add(name, record):
                raise AssertionError("a random name was taken")
            return _ranked(name, body, record)
        name = token_hex(16) if name is None else name
        digest = self._digest(body, user)
        async with self._lock(name):
            known = await self._do(self._events.get, name)
            if known is None:
                self._check_name(name)
                actions, asked = self._checked(body), self._asked(body, user)
                if body.defer_activation:
                    # The epoch first: a user who is forgotten from now on is not in what follows.
                    epoch = await self._do(self._events.epoch, user)
                    record = await self._do(self._plan, asked, actions, digest)
                    added = await self._do(self._events.add, name, user, epoch, self._write.encode(record))
                else:
                    record = await self._decide(asked, actions, digest)
                    added = await self._add(name, record)
                if added:
                    return _ranked(name, body, record)
                known = await self._do(self._events.get, name)  # another replica was first
        record = self._decoded(known, name)
        if record.digest != digest:
            raise Refused(409, "conflict", f"the event {name[:80]} was ranked before, with another request")
        return _ranked(name, body, record)

    @route("POST", "/personalizer/events/{event}/reward", "write", 409, 410, status=204, problem=PersonalizerProblem)
    async def reward(self, event: str, body: RewardRequest) -> Response:
        """Record the reward of an event; it is on disk when this answers (Azure Personalizer)."""
        low, high = self._served.explorer.rewards.limits
        if not low <= body.value <= high:
            raise InvalidArgument("reward", "value", f"from {low:g} to {high:g}", body.value)
        decision = await self._decision(event)
        with suppress(FeedbackConflict):  # on_repeat="reject" is Personalizer's "earliest": the first reward counts
            await self._hot.feedback.ask(wire.FeedbackRequest(body.value, decision))
        return no_content()

    @route("POST", "/personalizer/events/{event}/activate", "write", 409, status=204, problem=PersonalizerProblem)
    async def activate(self, event: str) -> Response:
        """Record that the item of an event was shown (Azure Personalizer)."""
        async with self._lock(event):
            known = await self._do(self._events.get, event)
            if known is None:
                self._served.explorer.rewards.decision_of(event)
                return no_content()
            record = self._decoded(known, event)
            if not record.decision:
                await self._do(self._show, event, known, record)
        return no_content()

    @route(
        "POST", "/personalizer/{version}/rank", "write", 409, gives=RankReply, status=201, problem=PersonalizerProblem
    )
    async def rank_versioned(self, version: str, body: RankRequest, request: Request) -> Response:
        """Choose one of some items (Azure Personalizer, older clients)."""
        _check_version(version)
        return await self.rank(body, request)

    @route(
        "POST", "/personalizer/{version}/events/{event}/reward", "write", 409, 410, status=204,
        problem=PersonalizerProblem,
    )  # fmt: skip
    async def reward_versioned(self, version: str, event: str, body: RewardRequest) -> Response:
        """Record the reward of an event; it is on disk when this answers (Azure Personalizer, older clients)."""
        _check_version(version)
        return await self.reward(event, body)

    @route(
        "POST", "/personalizer/{version}/events/{event}/activate", "write", 409, status=204, problem=PersonalizerProblem
    )
    async def activate_versioned(self, version: str, event: str) -> Response:
        """Record that the item of an event was shown (Azure Personalizer, older clients)."""
        _check_version(version)
        return await self.activate(event)

    # --- requests ----------------------------------------------------------------------------------------------------

    def _check_name(self, name: str) -> None:
        """Refuse a decision's id as the name of another event: the id is a name already."""
        with suppress(UnknownDecision):
            self._served.explorer.rewards.ids.unseal(name)
            raise InvalidArgument("rank", "eventId", "an id of your own, not that of a decision", f"{name[:12]}...")

    def _asked(self, body: RankRequest, user: User) -> wire.RecommendRequest:
        return wire.RecommendRequest(user, allow=[], context=self._context(body.context_features or []))

    def _checked(self, body: RankRequest) -> dict[Id, int]:
        """Return the items that may be chosen, with their positions; refuse ids that are unknown or repeated."""
        integers, explorer = self._served.explorer.catalogue.ids_are_integers, self._served.explorer
        excluded, found, unknown = set(body.excluded_actions or ()), dict[Id, int](), list[str]()
        if len({action.id for action in body.actions}) != len(body.actions):
            ids = [action.id for action in body.actions]
            twice = sorted({id for id in ids if ids.count(id) > 1})
            raise InvalidArgument("rank", "actions", "with ids that are all different", twice)
        for at, action in enumerate(body.actions):
            id: Id = action.id
            if integers:
                with suppress(ValueError):
                    id = int(action.id) if str(int(action.id)) == action.id else id
            if isinstance(id, str) == integers or id not in explorer:
                unknown.append(action.id)
            elif action.id not in excluded:
                found[id] = at
        if unknown:
            raise InvalidArgument("rank", "actions", "with ids of items that the catalogue has", unknown)
        if not found:
            raise InvalidArgument("rank", "excludedActions", "fewer than all actions", sorted(excluded))
        return found

    def _user(self, body: RankRequest, request: Request) -> User:
        """Return who asks: by the header, or a feature; otherwise a visitor of this event alone."""
        given: object = None
        for value in (value for key, value in request.headers.raw if key == USER_HEADER):
            if given is not None:
                raise InvalidArgument("rank", "treeward-user", "a header that is given once", "several")
            try:
                given = value.decode()
            except UnicodeDecodeError:
                raise InvalidArgument("rank", "treeward-user", "a header in UTF-8", value) from None
        if given is None:
            told = {path: value for path, _, value in _flat(body.context_features or []) if path in USER_FEATURES}
            named = (told[path] for path in USER_FEATURES if path in told)
            given = next((value for value in named if type(value) in (str, int)), None)
        if given is None:
            if body.event_id is None:
                return f"event:{token_hex(12)}"
            secret = self._served.store.identities.secret
            return f"event:{blake2b(body.event_id.encode(), key=secret, person=b'visitor', digest_size=12).hexdigest()}"
        try:
            made: User = msgspec.convert(given, wire.User)
        except msgspec.ValidationError:
            raise InvalidArgument("rank", "user", f"1 to {wire.LONGEST_ID} characters, or an integer", given) from None
        return made

    def _context(self, given: Features) -> Context | None:
        """Return the features that the service's own features know as contexts, and count the others."""
        features = self._served.explorer.policy.features
        declared: Mapping[str, Sequence[str]] = {} if features is None else features.contexts
        made, ignored = Context(), 0
        for path, name, value in _flat(given):
            known = path if path in declared else name
            if path in USER_FEATURES and known not in declared:
                continue
            fact = _fact(value, numeric=not declared.get(known)) if known in declared and known not in made else None
            if fact is None:
                ignored += 1
            else:
                made[known] = fact
        self._features["used"] += len(made)
        self._features["ignored"] += ignored
        return made or None

    def _digest(self, body: RankRequest, user: User) -> str:
        actions, excluded = [action.id for action in body.actions], sorted(body.excluded_actions or ())
        told = [user, actions, excluded, body.context_features, bool(body.defer_activation)]
        return blake2b(self._write.encode(told), digest_size=12).hexdigest()

    # --- deciding ----------------------------------------------------------------------------------------------------

    async def _decide(self, asked: wire.RecommendRequest, actions: dict[Id, int], digest: str) -> _Record:
        """Decide now, and order the other actions behind the chosen one."""
        items = list(actions)
        asked.allow, asked.fallback = items, items  # the first action is the baseline of Personalizer's apprentice mode
        made = (await self._hot.recommend.ask(asked)).items[0]
        order = await self._do(self._order, asked, made.item)
        share = 1.0 if math.isnan(made.propensity) else made.propensity
        positions = [actions[item] for item in order]
        return _Record(digest, made.id, made.item, asked.context, positions, share)

    def _plan(self, asked: wire.RecommendRequest, actions: dict[Id, int], digest: str) -> _Record:
        """Decide without recording anything."""
        service, items = self._served.service, list(actions)
        asked.allow = items
        order, share = self._open(asked), 1.0
        if not order:
            raise NothingLeft("none of the actions may be shown now")
        if self._explores(asked.user):
            made = service.explorer.preview(asked.user, len(order), allow=order, context=asked.context)
            order, share = [one.item for one in made], made[0].propensity
        positions = [actions[item] for item in order]
        return _Record(digest, "", order[0], asked.context, positions, share)

    def _order(self, asked: wire.RecommendRequest, chosen: Id) -> list[Id]:
        """Return the items that may be shown: the chosen one, and the others as they would be chosen after it."""
        rest = [item for item in self._open(asked) if item != chosen]
        if len(rest) > 1 and self._explores(asked.user):
            with suppress(TreewardError):  # an item was removed meanwhile: the caller's order is as good
                explorer = self._served.explorer
                made = explorer.preview(asked.user, len(rest), allow=rest, context=asked.context)
                rest = [one.item for one in made]
        return [chosen, *rest]

    def _explores(self, user: User) -> bool:
        """Return whether the policy decides for a user."""
        return self._served.settings.mode != "apprentice" and not self._served.service.groups.held_out(user)

    def _open(self, asked: wire.RecommendRequest) -> list[Id]:
        """Return the actions that may be shown by the service's own condition, which an apprentice does not apply."""
        items = asked.allow or []
        if not self._served.settings.where or self._served.settings.mode == "apprentice":
            return items
        inspect = self._served.explorer.inspect
        may, shop = inspect.may_show_to(asked.user, (), items), inspect.catalogue
        return [item for item in items if shop.row(item) < len(may) and may[shop.row(item)]]

    # --- events ------------------------------------------------------------------------------------------------------

    @property
    def _events(self) -> NamedEvents:
        return self._served.service.named_events()

    async def _add(self, name: str, record: _Record) -> bool:
        """Name a decision, which knows its user and the epoch; return whether nothing had this name."""
        made = self._served.explorer.rewards.ids.unseal(record.decision)
        return await self._do(self._events.add, name, made.user, made.epoch, self._write.encode(record))

    async def _decision(self, event: str) -> str:
        """Return the decision id of an event; refuse one that is unknown or was not activated."""
        known = await self._do(self._events.get, event)
        if known is None:
            self._served.explorer.rewards.decision_of(event)
            return event
        record = self._decoded(known, event)
        if not record.decision:
            raise Refused(409, "conflict", f"the event {event[:80]} is deferred: activate it, then give the reward")
        return record.decision

    def _decoded(self, known: NamedEvent | None, event: str) -> _Record:
        if known is None or known.user is None:
            raise UnknownDecision(f"the event {event[:80]} is of a user who was forgotten")
        return self._read.decode(known.content)

    def _show(self, event: str, known: NamedEvent, record: _Record) -> None:
        assert known.user is not None
        record.decision = self._served.service.show(known.user, known.epoch, record.item, record.context).id
        if not self._events.replace(event, self._write.encode(record)):
            self._decoded(None, event)

    def _lock(self, event: str) -> asyncio.Lock:
        return self._locks[hash(event) % _LOCKS]

    async def _do(self, work: Callable[Given, Found], *given: Given.args, **named: Given.kwargs) -> Found:
        """Do what takes a lock or a disk, in a thread."""
        if self._busy >= self._served.settings.max_waiting:
            raise Full
        self._busy += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: work(*given, **named))
        finally:
            self._busy -= 1


PERSONALIZER: tuple[Route, ...] = tuple(one.route for one in vars(Personalizer).values() if hasattr(one, "route"))


def _check_version(version: str) -> None:
    if version not in VERSIONS:
        raise Refused(404, "no_route", f"the version {version[:40]} is none of {', '.join(VERSIONS)}")


def _flat(given: Features) -> Iterator[tuple[str, str, Any]]:
    """Return features with their full name, their own name and their value: two levels, as Personalizer has them."""
    for one in given:
        for name, value in one.items():
            if isinstance(value, dict):
                yield from ((f"{name}.{inner}", inner, held) for inner, held in value.items())
            else:
                yield name, name, value


def _fact(value: object, *, numeric: bool) -> str | int | float | None:
    """Return a feature's value as a context has it; None if it cannot be one."""
    if isinstance(value, bool):
        return None if numeric else str(value).lower()
    if isinstance(value, int | float):
        return value if abs(value) <= _LARGEST_FACT else None
    if not isinstance(value, str) or len(value) > _LONGEST_FACT:
        return None
    if not numeric:
        return value
    with suppress(ValueError):
        return float(value) if abs(float(value)) <= _LARGEST_FACT else None
    return None


def _ranked(event: str, body: RankRequest, record: _Record) -> Response:
    """Return the answer: excluded actions stay where they were, items that may not be shown come last."""
    actions, excluded = body.actions, set(body.excluded_actions or ())
    order, share = record.order, min(1.0, max(0.0, record.probability))
    rest = (1.0 - share) / (len(order) - 1) if len(order) > 1 else 0.0
    chance = dict.fromkeys(order, rest) | {order[0]: share if len(order) > 1 else 1.0}
    last = [at for at, action in enumerate(actions) if at not in chance and action.id not in excluded]
    free = iter([*order, *last])
    places = [at if action.id in excluded else next(free) for at, action in enumerate(actions)]
    ranking = [RankedAction(actions[at].id, chance.get(at, 0.0)) for at in places]
    return json_response(RankReply(ranking, event, actions[order[0]].id), 201)
