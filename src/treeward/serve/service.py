"""What the service does, without HTTP: requests in, answers out, on whatever thread calls."""

import math
import re
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from hashlib import blake2b
from secrets import token_hex
from time import monotonic, strftime
from typing import Any

import numpy as np
import polars as pl
from msgspec import UNSET, UnsetType
from msgspec.structs import replace as replace_fields

from treeward.bandit.crowd import Crowd
from treeward.bandit.sampled import turned
from treeward.core.errors import InvalidArgument, NothingLeft, TreewardError, UnknownDecision, UnknownId
from treeward.core.types import AnyArray
from treeward.core.version import __version__
from treeward.data.catalogue import Catalogue, Id
from treeward.explorer import records
from treeward.explorer.explorer import Explorer
from treeward.explorer.records import Decision
from treeward.explorer.rewards import Given
from treeward.serve import wire
from treeward.serve.counts import Counts
from treeward.serve.crowd import Publisher
from treeward.serve.lift import lift_of
from treeward.serve.pending import Pending
from treeward.serve.settings import Settings
from treeward.store.base import EventStore, User, spelled
from treeward.store.copy import copy
from treeward.store.events import NOTED, REWARD
from treeward.store.opening import is_database, open_store, without_password
from treeward.store.sqlite import SQLiteStore

_FRESH = 60.0
_ENOUGH = 10
"""Fewer items that get other vectors do not tell whether those are of another space."""
_HISTORY = 100
_DUPLICATE = wire.FeedbackAnswer("duplicate", True)
_INTEGER = re.compile(r"-?[0-9]{1,18}")


class Served:
    """The service that answers at present: another one takes its place when another snapshot is served."""

    def __init__(self, service: "Service") -> None:
        self.service, self.settings = service, service.settings

    @property
    def explorer(self) -> Explorer:
        """Its explorer."""
        return self.service.explorer

    @property
    def store(self) -> EventStore:
        """Its store, which all services of a process share."""
        return self.service.explorer.store


class Service:
    """An explorer with a mode, a holdout, and default rewards; `counts` may be shared with other workers."""

    def __init__(self, explorer: Explorer, settings: Settings, counts: Counts | None = None) -> None:
        self.explorer, self.settings = explorer, settings
        self.counts = Counts() if counts is None else counts
        explorer.rewards.recorded = self._rewarded
        self._salt = blake2b(explorer.store.identities.secret, digest_size=16, person=b"holdout").digest()
        self._popular = explorer.catalogue, np.arange(len(explorer.catalogue))
        self._counted = -math.inf
        self.refresh()
        self._integers = explorer.catalogue.ids.dtype.is_integer()
        self.bold = 0
        self._lift: tuple[float, wire.Lift] | None = None
        self.decisions = 0
        self.publisher = Publisher(explorer, settings.publish_every)
        self._pending = Pending(settings.window)
        if settings.default_reward is not None:
            self._pending.reopen(explorer)

    @classmethod
    def following(cls, former: "Service", explorer: Explorer) -> "Service":
        """Return a service over another explorer of the same store that goes on where one stops."""
        settings = replace(former.settings, default_reward=None)  # what is open, is known
        made = cls(explorer, settings, former.counts)
        made.settings, made._pending = former.settings, former._pending
        made.bold, made.decisions = former.bold, former.decisions
        made.publisher.took = former.publisher.took
        return made

    def held_out(self, user: User) -> bool:
        """Tell whether a user belongs to those who are not explored for: the same answer for ever."""
        if not self.settings.holdout:
            return False
        drawn = int.from_bytes(blake2b(spelled(user), key=self._salt, digest_size=8).digest(), "little")
        return drawn < self.settings.holdout * 2**64

    def recommend(self, asks: Sequence[wire.RecommendRequest]) -> list[wire.Recommendation | Exception]:
        """Answer many requests with as few calls as their users and filters allow."""
        answers: list[wire.Recommendation | Exception | None] = [None] * len(asks)
        groups: dict[object, list[dict[User, tuple[int, wire.RecommendRequest]]]] = {}
        for i, ask in enumerate(asks):
            if ask.fallback and any(isinstance(item, str) == self._integers for item in ask.fallback):
                kind = "integers" if self._integers else "strings"
                answers[i] = InvalidArgument("recommend", "fallback", f"item ids, which are {kind} here", ask.fallback)
                continue
            if self.settings.mode == "apprentice" or (self.settings.holdout and self.held_out(ask.user)):
                try:
                    answers[i] = self._other(ask)
                except TreewardError as error:
                    answers[i] = error
                continue
            key: object = ask.n
            if ask.allow is not None or ask.where is not None or ask.diverse or ask.context is not None:
                key = (ask.n, ask.diverse, repr(ask.allow), repr(ask.where), repr(ask.context))
            calls = groups.setdefault(key, [])
            for call in calls:  # one call, one decision a user
                if ask.user not in call:
                    call[ask.user] = (i, ask)
                    break
            else:
                calls.append({ask.user: (i, ask)})
        for calls in groups.values():
            for call in calls:
                self._together(list(call.values()), answers)
        return [answer for answer in answers if answer is not None]

    def _together(
        self, group: list[tuple[int, wire.RecommendRequest]], answers: list[wire.Recommendation | Exception | None]
    ) -> None:
        first = group[0][1]
        exclude = {ask.user: ask.exclude for _, ask in group if ask.exclude} or None
        try:
            made = self.explorer.recommend(
                [ask.user for _, ask in group], first.n, exclude=exclude, allow=first.allow, where=first.where,
                diverse=first.diverse, context=first.context,
            )  # fmt: skip
        except TreewardError as error:
            if len(group) == 1:
                answers[group[0][0]] = error
                return
            for one in group:  # somebody's request cannot be fulfilled: the others' can
                self._together([one], answers)
            return
        for at, (i, _) in enumerate(group):
            answers[i] = self._answer(made[at * first.n : (at + 1) * first.n])

    def _other(self, ask: wire.RecommendRequest) -> wire.Recommendation:
        """Serve the caller's own items, or what is popular."""
        if self.settings.mode == "apprentice":
            if len(ask.fallback) < ask.n:
                rule = f"at least {ask.n} of the caller's own items, which an apprentice serves"
                raise InvalidArgument("recommend", "fallback", rule, ask.fallback)
            if not self.held_out(ask.user):
                self._compare(ask)
        own = self._own(ask)[: ask.n]
        shown = own + self._popular_for(ask, own) if len(own) < ask.n else own
        kinds = ["fallback"] * len(own) + ["popular"] * (len(shown) - len(own))
        made = self.explorer.adopt(ask.user, shown, context=ask.context)
        # Callers who weight by propensities must not take a choice that was not the policy's for a certain one.
        return self._answer(
            [replace_fields(one, policy=kind, propensity=math.nan) for one, kind in zip(made, kinds, strict=True)]
        )

    def _own(self, ask: wire.RecommendRequest) -> list[Id]:
        """Return the caller's own items that may be shown, each once; an apprentice's caller shows what they show."""
        inspect = self.explorer.inspect
        if self.settings.mode == "apprentice" or not ask.fallback:
            return [item for item in ask.fallback if not inspect.was_removed(item)]
        shop, found = inspect.catalogue, list[Id]()
        may = inspect.may_show_to(ask.user, ask.exclude, ask.allow, ask.where)
        for item in dict.fromkeys(ask.fallback):
            with suppress(UnknownId):  # a list of theirs may be newer than the catalogue
                row = shop.row(item)
                if row < len(may) and may[row]:  # else it came, or changed, since
                    found.append(item)
        return found

    def _compare(self, ask: wire.RecommendRequest) -> None:
        """Count how often the explorer would have shown what the caller shows."""
        try:
            own = self.explorer.preview(
                ask.user, ask.n, exclude=ask.exclude, allow=ask.allow, where=ask.where, diverse=ask.diverse,
                context=ask.context,
            )  # fmt: skip
        except TreewardError:  # it would have had nothing to show
            return
        self.counts.add("compared", ask.n)
        self.counts.add("matched", sum(one.item == theirs for one, theirs in zip(own, ask.fallback, strict=False)))

    def _popular_for(self, ask: wire.RecommendRequest, own: list[Id]) -> list[Id]:
        """Return what is popular and may be shown, to fill up the caller's own items."""
        if self._popular[0] is not self.explorer.catalogue:  # a new layout
            self._counted = -math.inf
            self.refresh()
        inspect = self.explorer.inspect
        shop, may = inspect.catalogue, inspect.may_show_to(ask.user, ask.exclude, ask.allow, ask.where)
        of, popular = self._popular
        popular = popular[popular < len(may)] if of is shop else popular[:0]
        popular = np.append(popular, np.arange(len(popular), len(may)))  # what came, or changed, since the last count
        taken = [shop.row(item) for item in own]
        rows = popular[may[popular] & ~np.isin(popular, taken)][: ask.n - len(own)]
        if len(own) + len(rows) < ask.n:
            raise NothingLeft(f"{ask.n} item(s) were asked for, but only {len(own) + len(rows)} may be shown")
        found: list[Id] = shop.some(rows)["id"].to_list()
        return found

    def refresh(self) -> None:
        """Count again what is popular, where anybody is held out and the last count is a minute old."""
        if not self.settings.holdout or monotonic() - self._counted < _FRESH:
            return
        self._counted = monotonic()
        inspect = self.explorer.inspect
        self._popular = inspect.catalogue, np.argsort(-inspect.item_counts().earned, kind="stable")

    def _answer(self, made: list[Decision]) -> wire.Recommendation:
        self.decisions += len(made)
        self.counts.add("decisions", len(made), self.held_out(made[0].user))
        self.bold += sum(one.bold for one in made)
        if self.settings.default_reward is not None:
            epoch = self.explorer.store.identities.epoch
            with suppress(UnknownDecision):  # who was forgotten meanwhile has no open decisions
                self._pending.add([(*self.explorer.rewards.open_event(one.id), epoch) for one in made])
        return wire.Recommendation(made)

    def feedback(self, rewards: Sequence[wire.FeedbackRequest]) -> list[wire.FeedbackAnswer | Exception]:
        """Record rewards, each for itself; they are on disk when this returns."""
        answers = list[wire.FeedbackAnswer | Exception]([_DUPLICATE] * len(rewards))
        rows: list[tuple[Given, float]] = []
        at: list[int] = []
        for i, one in enumerate(rewards):
            if isinstance(one.decision_id, str) and one.user is UNSET and one.item is UNSET:
                rows.append((one.decision_id, one.reward))
            elif one.decision_id is UNSET and isinstance(one.user, str | int) and isinstance(one.item, str | int):
                rows.append(((one.user, one.item), one.reward))
            else:
                rule = "by decision_id alone, or by user and item"
                answers[i] = InvalidArgument("feedback", "reward", rule, "neither, or both")
                continue
            at.append(i)
        for i, outcome in zip(at, self.explorer.rewards.record_each(rows), strict=True):
            answers[i] = (
                outcome if isinstance(outcome, Exception) else wire.FeedbackAnswer(outcome, outcome == "duplicate")
            )
        return answers

    def _rewarded(self, users: Sequence[User], events: AnyArray) -> None:
        first = np.isin(events["kind"], (REWARD, NOTED)).tolist()
        self.counts.rewards([self.held_out(user) for user in users], events["reward"].tolist(), first)

    def expire(self) -> int:
        """Give decisions whose window has passed the default reward; return how many."""
        reward = self.settings.default_reward
        return 0 if reward is None else self._pending.expire(self.explorer, reward)

    def user(self, user: User) -> wire.UserView:
        """Return what is known of a user."""
        events = self.explorer.store.read([user])[0]
        inspect = self.explorer.inspect
        history, interests = inspect.events(events[-_HISTORY:]), inspect.interests(user)[:_HISTORY]
        return wire.UserView(user, len(events), self.held_out(user), interests, history)

    def put_items(self, rows: Sequence[wire.PutItem]) -> int:
        """Add items, or change what is known of them, and return how many."""
        with self.explorer.changes.lock:  # nobody may change in between what is taken over
            items = self._whole(rows)
            self._check_space(items)
            return self.explorer.add(items)

    def _check_space(self, items: Catalogue) -> None:
        """Refuse vectors of another embedding: the prior that is served was fitted to those there are."""
        if not isinstance(self.explorer.policy.prior, Crowd):
            return
        shop, at = self.explorer.catalogue, [i for i, id in enumerate(items.ids.to_list()) if id in self.explorer]
        if len(at) < _ENOUGH:
            return
        before = np.array([shop.vector_at(shop.row(items.ids[i])) for i in at], dtype=np.float64)
        far, changed = turned(before, items.vectors[at].astype(np.float64))
        if changed >= _ENOUGH and 2 * far > changed:
            rule = (
                "of the space that the prior was fitted to. These seem to be of another: fit a prior to them, and use "
                "`treeward swap ADMIN_ADDRESS ITEMS --prior PRIOR`"
            )
            value = f"{far} of the {changed} known items that change point elsewhere"
            raise InvalidArgument("items", "vector", rule, value)

    def _whole(self, rows: Sequence[wire.PutItem]) -> Catalogue:
        """Return items with all that is to be known of them: what is not given is as it was."""
        shop = self.explorer.catalogue
        names = [name for name in shop.schema if name != "id"]
        if any(isinstance(row.item, str) == shop.ids_are_integers for row in rows):
            kind = "integers" if shop.ids_are_integers else "strings"
            raise InvalidArgument("items", "items", f"with ids, which are {kind} here", [row.item for row in rows[:5]])
        ids, vectors, columns = [], [], []
        for row in rows:
            unknown = [name for name in row.columns if name not in names]
            if unknown:
                rule = f"among those of the items that are served ({', '.join(names)})"
                raise InvalidArgument("items", "columns", rule, f"{', '.join(unknown)} of the item {row.item!r}")
            if row.item in self.explorer:
                at = shop.row(row.item)
                known = {name: value for name, value in shop.some([at]).row(0, named=True).items() if name != "id"}
                columns.append({**known, **row.columns})
                vectors.append(shop.vector_at(at) if row.vector is UNSET else row.vector)
                ids.append(row.item)
                continue
            if row.vector is UNSET:
                raise InvalidArgument("items", "vector", "given, as the item is new", row.item)
            ids.append(row.item)
            vectors.append(row.vector)
            columns.append(row.columns)
        if any(len(vector) != shop.dim for vector in vectors):
            raise InvalidArgument("items", "vector", f"{shop.dim} numbers", f"{[len(one) for one in vectors][:5]}")
        held = {name: [one.get(name) for one in columns] for name in names}
        return Catalogue.of_table(_table(ids, held, shop), np.array(vectors, dtype=np.float32))

    def field(self, user: User, asked: wire.FieldQuery) -> records.Field:
        """Return a user's interests in the nodes around one, now or after some of the events."""
        upto = None if isinstance(asked.upto, UnsetType) else min(asked.upto, self.explorer.store.counts([user])[0])
        return self.explorer.inspect.field(user, node=asked.node, upto=upto)

    def about(self, role: str) -> wire.About:
        """Return what is served, and how; `role` is the caller's."""
        inspect, settings = self.explorer.inspect, self.settings
        shop, tree = inspect.catalogue, inspect.tree
        return wire.About(
            __version__, len(inspect), shop.dim, int(tree.level[-1]), len(tree.parent), shop.titles is not None,
            self.explorer.policy.name, settings.policy == "phcb", settings.mode, settings.holdout,
            settings.reward_low, settings.reward_high, role,
        )  # fmt: skip

    def lift(self) -> wire.Lift:
        """Return what exploring is worth; counted from all events at most once a minute, `as_of` says when."""
        if self._lift is None or monotonic() - self._lift[0] > _FRESH:
            counted = [int(self.counts.total(name)) for name in ("matched", "compared")]
            self._lift = monotonic(), lift_of(self.explorer.store, self.held_out, *counted)
        return self._lift[1]

    def backup(self) -> str:
        """Copy the store to a new file beside it, and return which."""
        store = self.explorer.store
        if not isinstance(store, SQLiteStore):
            raise InvalidArgument("backup", "store", "one that is a file", repr(store))
        target = store.path.with_name(f"{store.path.name}.{strftime('%Y%m%dT%H%M%S')}-{token_hex(2)}.backup")
        store.backup(target)
        return str(target)

    def copy(self, to: str) -> wire.Copied:
        """Copy the store to a database, as far as it has come; more events may come meanwhile."""
        if not is_database(to):
            raise InvalidArgument("copy", "to", "a database, as postgresql://user@host/name", without_password(to))
        if self.explorer.store.shared:
            raise InvalidArgument(
                "copy", "store", "one that is a file: `treeward store copy` copies a database", "a database"
            )
        with closing(open_store(to)) as target:
            return wire.Copied(*copy(self.explorer.store, target, rounds=2))

    def forget(self, user: User) -> wire.Erased:
        """Erase a user."""
        if isinstance(user, str) and _INTEGER.fullmatch(user):
            as_text, as_number = self.explorer.store.counts([user, int(user)])
            if as_number and not as_text:
                rule = f"a known user: there is no {user!r}, but an int:{user}"
                raise InvalidArgument("forget", "user", rule, user)
        gone = self.explorer.forget(user)
        self._pending.forget(user)
        return wire.Erased(gone)


def _table(ids: list[Id], columns: dict[str, list[Any]], shop: Catalogue) -> pl.DataFrame:
    try:
        return pl.DataFrame({"id": ids, **columns}, schema=shop.schema)
    except (TypeError, OverflowError, pl.exceptions.PolarsError) as error:
        for name, kind in shop.schema.items():
            for id, value in zip(ids, columns.get(name, ids), strict=True):
                try:
                    pl.Series([value], dtype=kind)
                except (TypeError, OverflowError, pl.exceptions.PolarsError):
                    rule = f"of the type that the items served have ({name}: {kind})"
                    raise InvalidArgument("items", "columns", rule, f"{value!r:.80} of the item {id!r}") from error
        raise InvalidArgument("items", "items", "of the columns' types", str(error).splitlines()[0]) from error
