"""What the service does, without HTTP: it answers requests on the thread that calls."""

import math
import re
from collections.abc import Sequence
from contextlib import closing, suppress
from secrets import token_hex
from time import monotonic, strftime, time

import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from treeward.core.errors import InvalidArgument, NothingLeft, TreewardError, UnknownDecision, UnknownId
from treeward.core.types import AnyArray
from treeward.core.version import __version__
from treeward.data.catalogue import Id
from treeward.embed.features import Context
from treeward.explorer import records
from treeward.explorer.explorer import Explorer
from treeward.explorer.records import Decision
from treeward.explorer.rewards import Given, Outcome
from treeward.serve import wire
from treeward.serve.crowd import Publisher
from treeward.serve.groups import GroupCounts, Groups
from treeward.serve.open_decisions import OpenDecisions
from treeward.serve.settings import Settings
from treeward.serve.story import story
from treeward.store.base import EventStore, User
from treeward.store.copy import copy
from treeward.store.events import NOTED, REWARD
from treeward.store.named_events import NamedEvents
from treeward.store.opening import is_database, open_store, without_password
from treeward.store.sqlite import SQLiteStore

Request = wire.RecommendRequest
_SECONDS_POPULAR_HOLDS = 60.0
_HISTORY = 100
_OUTCOMES: tuple[Outcome, ...] = ("recorded", "changed", "duplicate")
_ANSWERS = {outcome: wire.FeedbackAnswer(outcome, outcome == "duplicate") for outcome in _OUTCOMES}
_INTEGER = re.compile(r"-?[0-9]{1,18}")


class Served:
    """The service that answers at present; it is replaced when another snapshot is served."""

    def __init__(self, service: "Service") -> None:
        self.service, self.settings = service, service.settings

    @property
    def explorer(self) -> Explorer:
        """The explorer of the present service."""
        return self.service.explorer

    @property
    def store(self) -> EventStore:
        """The store, which all services of a process share."""
        return self.service.explorer.store


class Service:
    """An explorer with a mode, users held out, and default rewards.

    Parameters
    ----------
    explorer
        Decides and learns.
    settings
        Of the service.
    counts
        Shared with other workers.
    former
        The service over the same store that this one replaces: what it has counted, and its open decisions, go on.
    """

    def __init__(
        self,
        explorer: Explorer,
        settings: Settings,
        counts: GroupCounts | None = None,
        *,
        former: "Service | None" = None,
    ) -> None:
        self.explorer, self.settings = explorer, settings
        self._integers = explorer.catalogue.ids.dtype.is_integer()
        self.publisher = Publisher(explorer, settings.publish_every)
        self.decisions, self.bold = 0, 0
        if former is None:
            self.groups = Groups(explorer.store, settings.holdout, counts)
            self._open = OpenDecisions(settings.window)
            if settings.default_reward is not None:
                self._open.reopen(explorer)
        else:
            self.groups, self._open = former.groups, former._open
            self.decisions, self.bold = former.decisions, former.bold
            self.publisher.took = former.publisher.took
        explorer.rewards.recorded = self._count_rewards
        self._popular = explorer.catalogue, np.arange(len(explorer.catalogue))
        self._popular_since = -math.inf
        self.refresh()

    # --- recommend ---------------------------------------------------------------------------------------------------

    def recommend(self, requests: Sequence[Request]) -> list[wire.Recommendation | Exception]:
        """Answer many requests with as few calls of the explorer as their users and filters allow."""
        answers: list[wire.Recommendation | Exception | None] = [None] * len(requests)
        groups: dict[object, list[dict[User, tuple[int, Request]]]] = {}
        for i, asked in enumerate(requests):
            if asked.fallback and any(isinstance(item, str) == self._integers for item in asked.fallback):
                rule = f"item ids, which are {'integers' if self._integers else 'strings'} here"
                answers[i] = InvalidArgument("recommend", "fallback", rule, asked.fallback)
                continue
            if self.settings.mode == "apprentice" or (self.settings.holdout and self.groups.held_out(asked.user)):
                try:
                    answers[i] = self._without_exploring(asked)
                except TreewardError as error:
                    answers[i] = error
                continue
            key: object = asked.n
            if asked.allow is not None or asked.where is not None or asked.diverse or asked.context is not None:
                key = (asked.n, asked.diverse, repr(asked.allow), repr(asked.where), repr(asked.context))
            calls = groups.setdefault(key, [])
            for call in calls:  # a call may contain each user once
                if asked.user not in call:
                    call[asked.user] = (i, asked)
                    break
            else:
                calls.append({asked.user: (i, asked)})
        for calls in groups.values():
            for call in calls:
                self._explore(list(call.values()), answers)
        return [answer for answer in answers if answer is not None]

    def must_replay(self, asked: Request) -> bool:
        """Return whether a user's events have to be replayed first, which takes a while. It needs no lock."""
        return self.settings.mode != "apprentice" and not self.explorer.has_at_hand(asked.user)

    def replay(self, requests: Sequence[Request]) -> None:
        """Bring the states of users into memory, so that `recommend` need not; it says why if that fails."""
        held_out = self.groups.held_out if self.settings.holdout else lambda user: False
        with suppress(Exception):
            self.explorer.prepare([asked.user for asked in requests if not held_out(asked.user)])

    def _explore(self, group: list[tuple[int, Request]], answers: list[wire.Recommendation | Exception | None]) -> None:
        """Decide for requests of different users with equal filters, in one call."""
        first = group[0][1]
        exclude = {asked.user: asked.exclude for _, asked in group if asked.exclude} or None
        try:
            made = self.explorer.recommend(
                [asked.user for _, asked in group], first.n, exclude=exclude, allow=first.allow, where=first.where,
                diverse=first.diverse, context=first.context,
            )  # fmt: skip
        except TreewardError as error:
            if len(group) == 1:
                answers[group[0][0]] = error
                return
            for one in group:  # one of the requests cannot be fulfilled: the others can
                self._explore([one], answers)
            return
        self._count(made, held_out=False)
        for at, (i, _) in enumerate(group):
            answers[i] = wire.Recommendation(made[at * first.n : (at + 1) * first.n])

    def _count(self, made: list[Decision], *, held_out: bool) -> None:
        """Count decisions, and remember those that may get a default reward."""
        self.decisions += len(made)
        self.groups.counts.add("decisions", len(made), held_out)
        self.bold += sum([one.bold for one in made])
        if self.settings.default_reward is not None:
            epoch = self.explorer.store.identities.epoch
            with suppress(UnknownDecision):  # the user was erased meanwhile
                self._open.add([(*self.explorer.rewards.open_event(one.id), epoch) for one in made])

    # --- users who are not explored for ------------------------------------------------------------------------------

    def _without_exploring(self, asked: Request) -> wire.Recommendation:
        """Show the caller's own items, and popular ones if these are too few."""
        if self.settings.mode == "apprentice":
            if len(asked.fallback) < asked.n:
                rule = f"at least {asked.n} of the caller's own items, which an apprentice serves"
                raise InvalidArgument("recommend", "fallback", rule, asked.fallback)
            if not self.groups.held_out(asked.user):
                self._compare(asked)
        own = self._fallback_items(asked)[: asked.n]
        shown = own + self._popular_items(asked, own) if len(own) < asked.n else own
        kinds = ["fallback"] * len(own) + ["popular"] * (len(shown) - len(own))
        made = self.explorer.adopt(asked.user, shown, context=asked.context)
        # The policy did not choose them: a propensity of 1 would mislead callers who weight by it.
        made = [replace(one, policy=kind, propensity=math.nan) for one, kind in zip(made, kinds, strict=True)]
        self._count(made, held_out=self.groups.held_out(asked.user))
        return wire.Recommendation(made)

    def show(self, user: User, epoch: int, item: Id, context: Context | None) -> Decision:
        """Record that a user was shown an item that was chosen earlier; return the decision that this makes.

        `user` is a name as of that epoch of the store.
        """
        [made] = self.explorer.adopt(user, [item], context=context, epoch=epoch)
        self._count([made], held_out=self.groups.held_out(made.user))
        return made

    def _fallback_items(self, asked: Request) -> list[Id]:
        """Return the caller's own items that may be shown, each once; in the mode `apprentice`, all that exist."""
        inspect = self.explorer.inspect
        if self.settings.mode == "apprentice" or not asked.fallback:
            return [item for item in asked.fallback if not inspect.was_removed(item)]
        shop, found = inspect.catalogue, list[Id]()
        may = inspect.may_show_to(asked.user, asked.exclude, asked.allow, asked.where)
        for item in dict.fromkeys(asked.fallback):
            with suppress(UnknownId):  # the caller's list may be newer than the catalogue
                row = shop.row(item)
                if row < len(may) and may[row]:  # otherwise it was added, or changed, a moment ago
                    found.append(item)
        return found

    def _compare(self, asked: Request) -> None:
        """Count how often the explorer would have shown what the caller shows."""
        try:
            own = self.explorer.preview(
                asked.user, asked.n, exclude=asked.exclude, allow=asked.allow, where=asked.where,
                diverse=asked.diverse, context=asked.context,
            )  # fmt: skip
        except TreewardError:  # it would have had nothing to show
            return
        same = sum(one.item == theirs for one, theirs in zip(own, asked.fallback, strict=False))
        self.groups.counts.add("compared", asked.n)
        self.groups.counts.add("matched", same)

    def _popular_items(self, asked: Request, own: list[Id]) -> list[Id]:
        """Return popular items that may be shown, to fill up the caller's own."""
        if self._popular[0] is not self.explorer.catalogue:  # the rows have other numbers since a rebuild
            self._popular_since = -math.inf
            self.refresh()
        inspect = self.explorer.inspect
        shop, may = inspect.catalogue, inspect.may_show_to(asked.user, asked.exclude, asked.allow, asked.where)
        of, popular = self._popular
        popular = popular[popular < len(may)] if of is shop else popular[:0]
        popular = np.append(popular, np.arange(len(popular), len(may)))  # added or changed since the last count
        taken = [shop.row(item) for item in own]
        rows = popular[may[popular] & ~np.isin(popular, taken)][: asked.n - len(own)]
        if len(own) + len(rows) < asked.n:
            raise NothingLeft(f"{asked.n} item(s) were asked for, but only {len(own) + len(rows)} may be shown")
        found: list[Id] = shop.some(rows)["id"].to_list()
        return found

    def refresh(self) -> None:
        """Order items by what they earned, if any users are held out and the last order is a minute old."""
        if not self.settings.holdout or monotonic() - self._popular_since < _SECONDS_POPULAR_HOLDS:
            return
        self._popular_since = monotonic()
        inspect = self.explorer.inspect
        self._popular = inspect.catalogue, np.argsort(-inspect.item_counts().earned, kind="stable")

    # --- feedback ----------------------------------------------------------------------------------------------------

    def feedback(self, rewards: Sequence[wire.FeedbackRequest]) -> list[wire.FeedbackAnswer | Exception]:
        """Record rewards, each for itself; they are on disk when this returns."""
        wrong: dict[int, Exception] = {}
        rows: list[tuple[Given, float]] = []
        for i, one in enumerate(rewards):
            id, user, item = one.decision_id, one.user, one.item
            if user is UNSET and item is UNSET and isinstance(id, str):
                rows.append((id, one.reward))
            elif id is UNSET and isinstance(user, str | int) and isinstance(item, str | int):
                rows.append(((user, item), one.reward))
            else:
                rule = "named by decision_id alone, or by user and item"
                wrong[i] = InvalidArgument("feedback", "decision", rule, "neither, or both")
        answers: list[wire.FeedbackAnswer | Exception] = [
            _ANSWERS[outcome] if isinstance(outcome, str) else outcome
            for outcome in self.explorer.rewards.record_each(rows)
        ]
        for i, error in wrong.items():  # in order: every answer before it is in its place
            answers.insert(i, error)
        return answers

    def _count_rewards(self, users: Sequence[User], events: AnyArray) -> None:
        first = [kind in (REWARD, NOTED) for kind in events["kind"].tolist()]
        self.groups.add_rewards(users, events["reward"].tolist(), first)

    def expire(self) -> int:
        """Give the default reward to decisions whose window has ended; return how many. Remove old named events."""
        if self.settings.personalizer and self.settings.window:
            self.named_events().remove_due()
        reward = self.settings.default_reward
        return 0 if reward is None else self._open.expire(self.explorer, reward)

    def named_events(self) -> NamedEvents:
        """Return the events with names of the callers' own."""
        # After the window, feedback is answered as late for as long again; then the event is unknown.
        return NamedEvents(self.explorer.store, 2 * self.settings.window, time)

    # --- users -------------------------------------------------------------------------------------------------------

    def user(self, user: User) -> wire.UserView:
        """Return what is known of a user."""
        events, inspect = self.explorer.store.read([user])[0], self.explorer.inspect
        history, interests = inspect.events(events[-_HISTORY:]), inspect.interests(user)[:_HISTORY]
        return wire.UserView(user, len(events), self.groups.held_out(user), interests, history, story(events))

    def field(self, user: User, asked: wire.FieldQuery) -> records.Field:
        """Return a user's interests in the nodes around one, now or after some of the events."""
        upto = None if isinstance(asked.upto, UnsetType) else min(asked.upto, self.explorer.store.counts([user])[0])
        return self.explorer.inspect.field(user, node=asked.node, upto=upto)

    def forget(self, user: User) -> wire.Erased:
        """Erase a user."""
        if isinstance(user, str) and _INTEGER.fullmatch(user):
            named = self.named_events()
            both: tuple[User, User] = user, int(user)
            counts = self.explorer.store.counts(both)
            as_text, as_number = [n or named.exist_of(one) for n, one in zip(counts, both, strict=True)]
            if as_number and not as_text:
                rule = f"a known user: there is no {user!r}, but an int:{user}"
                raise InvalidArgument("forget", "user", rule, user)
        gone = self.explorer.forget(user)
        self._open.forget(user)
        return wire.Erased(gone)

    # --- the service -------------------------------------------------------------------------------------------------

    def about(self, role: str) -> wire.About:
        """Return what is served, and how; `role` is that of the caller."""
        inspect, settings = self.explorer.inspect, self.settings
        shop, tree = inspect.catalogue, inspect.tree
        return wire.About(
            __version__, len(inspect), shop.dim, int(tree.level[-1]), len(tree.parent), shop.titles is not None,
            self.explorer.policy.name, settings.policy == "phcb", settings.mode, settings.holdout,
            settings.reward_low, settings.reward_high, role,
        )  # fmt: skip

    def backup(self) -> str:
        """Copy the store to a new file next to it, and return its path."""
        store = self.explorer.store
        if not isinstance(store, SQLiteStore):
            raise InvalidArgument("backup", "store", "one that is a file", repr(store))
        target = store.path.with_name(f"{store.path.name}.{strftime('%Y%m%dT%H%M%S')}-{token_hex(2)}.backup")
        store.backup(target)
        return str(target)

    def copy(self, to: str) -> wire.Copied:
        """Copy the store to a database, as far as it has come; more events may arrive meanwhile."""
        if not is_database(to):
            raise InvalidArgument("copy", "to", "a database, as postgresql://user@host/name", without_password(to))
        if self.explorer.store.shared:
            rule = "one that is a file: `treeward store copy` copies a database"
            raise InvalidArgument("copy", "store", rule, "a database")
        with closing(open_store(to)) as target:
            return wire.Copied(*copy(self.explorer.store, target, rounds=2))
