"""The learning half of an explorer: rewards to events, each decision's once."""

import math
from collections.abc import Callable, Mapping, Sequence
from time import time_ns
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core import checks
from treeward.core.errors import FeedbackLate, InvalidArgument, TreewardError, UnknownDecision
from treeward.core.types import AnyArray
from treeward.data.catalogue import Id
from treeward.explorer.crowd_keeper import CrowdKeeper
from treeward.explorer.names import users_of
from treeward.explorer.rewards import change_of
from treeward.explorer.tally import Tally
from treeward.explorer.tickets import Sealer, Ticket
from treeward.store.base import EventStore, User, read_all, read_rewards
from treeward.store.events import AMENDED, CHANGE, EVENT, NOTED, REWARD, SHOWN, now

Outcome = Literal["recorded", "duplicate", "changed"]
Given = str | tuple[User, Id]
"""What a reward is for: a decision id, or a user and an item."""
Row = tuple[int, int, float, int, int, int, int, float]
"""An event, field by field."""


class _Told(NamedTuple):
    """What is known of a decision."""

    user: User
    """Whose it is now."""
    ticket: Ticket
    before: list[float]
    """Its reward and the changes made to it."""


class Ledger:
    """Writes rewards to a store. Needs no lock: the store decides which of several callers was first.

    Parameters
    ----------
    store
        Where events live.
    number_of
        The store's number of an item.
    on_repeat, limits, window, learns
        As `Explorer` has them; `limits` is its reward_range.
    tally, crowd
        What is told of every reward that was recorded, if anything is.
    """

    def __init__(
        self,
        store: EventStore,
        number_of: Callable[[Id], int],
        on_repeat: str,
        limits: tuple[float, float],
        window: float | None,
        learns: bool,
        tally: Tally | None = None,
        crowd: CrowdKeeper | None = None,
    ) -> None:
        self._store, self._number_of, self._on_repeat, self._window = store, number_of, on_repeat, window
        self.limits, self._tally, self._crowd = limits, tally, crowd
        self.sealer = Sealer(store.identities.secret)
        self._reward, self._change = (REWARD, CHANGE) if learns else (NOTED, AMENDED)
        self.recorded: Callable[[Sequence[User], AnyArray], None] = lambda users, events: None
        """Called with the users and the events of rewards that were recorded."""

    def ticket(self, id: str) -> tuple[User, Ticket]:
        """Return who an id's user is now, and what the id says."""
        ticket = self.sealer.unseal(id)
        user = self._store.identities.resolve(ticket.user, ticket.epoch)
        if user is None:
            raise UnknownDecision(f"the decision {id[:12]}... is of a user who was forgotten")
        return user, ticket

    def row_of(self, id: str) -> tuple[User, Row]:
        """Return whose decision an id is, and the event that a reward of 0 for it would be."""
        user, ticket = self.ticket(id)
        return user, (ticket.item, ticket.node, 0.0, ticket.nonce, ticket.snapshot, self._reward, 0, ticket.own)

    def open_rows(self) -> list[tuple[User, Row, int]]:
        """Return the decisions that were shown and have no reward, as `row_of` does, and when that was."""
        found: list[tuple[User, Row, int]] = []
        for user, events in read_all(self._store):
            shown = events[events["kind"] == SHOWN]
            missing = shown[~np.isin(shown["nonce"], events["nonce"][events["kind"] != SHOWN])]
            for item, node, _, nonce, snapshot, _, when, own in missing.tolist():
                found.append((user, (item, node, 0.0, nonce, snapshot, self._reward, 0, own), when))
        return found

    def expire(self, rows: Sequence[tuple[User, Row, int]], reward: float) -> int:
        """Give decisions that still have no reward this one, and return how many that were; users are of an epoch."""
        while True:
            at = self._store.identities.epoch
            found = [(self._store.identities.resolve(user, epoch), row) for user, row, epoch in rows]
            known = [(user, row) for user, row in found if user is not None]
            events = np.array([row for _, row in known], dtype=EVENT)
            events["reward"], events["time"] = reward, now()
            users = [user for user, _ in known]
            new = self._store.append(users, events, epoch=at)
            if self._store.identities.epoch == at or new.any():
                self._count(users, events, new)
                return int(new.sum())

    def _count(self, users: Sequence[User], events: AnyArray, new: NDArray[np.bool_]) -> None:
        if not new.any():
            return
        if self._tally is not None:
            self._tally.add(events[new])
        theirs = [user for user, fresh in zip(users, new.tolist(), strict=True) if fresh]
        if self._crowd is not None:
            self._crowd.fold(theirs, events[new])
        self.recorded(theirs, events[new])

    def settle(self, rewards: Mapping[str, float]) -> dict[str, Outcome]:
        """Record rewards by decision id, all of them or none."""
        given = [(id, self._checked(reward)) for id, reward in rewards.items()]
        outcomes = self._settle(given, strict=True)
        return {id: outcome for (id, _), outcome in zip(given, outcomes, strict=True) if isinstance(outcome, str)}

    def settle_each(self, rows: Sequence[tuple[Given, float]]) -> list[Outcome | TreewardError]:
        """Record rewards, each for itself."""
        outcomes: list[Outcome | TreewardError] = ["duplicate"] * len(rows)
        waiting = list(range(len(rows)))
        while waiting:  # rows for one decision are settled one after the other
            seen: set[Given] = set()
            now = [i for i in waiting if not (rows[i][0] in seen or seen.add(rows[i][0]))]  # type: ignore[func-returns-value]
            waiting = [i for i in waiting if i not in set(now)] if len(now) < len(waiting) else []
            given: list[tuple[Given, float]] = []
            sound: list[int] = []
            for i in now:
                try:
                    given.append((rows[i][0], self._checked(rows[i][1])))
                    sound.append(i)
                except InvalidArgument as error:
                    outcomes[i] = error
            for i, outcome in zip(sound, self._settle(given, strict=False), strict=True):
                outcomes[i] = outcome
        return outcomes

    def _checked(self, reward: float) -> float:
        return checks.number("Explorer.feedback", "reward", reward, low=self.limits[0], high=self.limits[1])

    def _settle(self, given: Sequence[tuple[Given, float]], *, strict: bool) -> list[Outcome | TreewardError]:
        """Record rewards for different decisions; `strict`: raise the first error, and record nothing."""
        outcomes: list[Outcome | TreewardError] = ["duplicate"] * len(given)
        waiting = list(range(len(given)))
        while waiting:  # more than once if somebody changed the same decisions in between, or users were forgotten
            epoch = self._store.identities.epoch
            rows: list[tuple[int, User, Row, int]] = []
            told = self._told_of([given[i][0] for i in waiting])
            for i, of in zip(waiting, told, strict=True):
                try:
                    made = self._event_of(*given[i], of)
                except TreewardError as error:
                    if strict:
                        raise
                    outcomes[i] = error
                    continue
                if made is not None:
                    rows.append((i, *made))
            events = np.array([row for _, _, row, _ in rows], dtype=EVENT)
            known = np.array([before for *_, before in rows], dtype=np.int64)
            users = [user for _, user, _, _ in rows]
            new = self._store.append(users, events, known, epoch=epoch)
            self._count(users, events, new)
            for (i, _, row, _), fresh in zip(rows, new.tolist(), strict=True):
                if fresh:
                    outcomes[i] = "changed" if row[5] in (CHANGE, AMENDED) else "recorded"
            waiting = [row[0] for row, fresh in zip(rows, new.tolist(), strict=True) if not fresh]
        return outcomes

    def _told_of(self, given: Sequence[Given]) -> list[_Told | TreewardError | None]:
        """Return what is known of decisions, asked for all at once: errors of ids that say nothing, None for items."""
        found: list[_Told | TreewardError | None] = [None] * len(given)
        known: list[tuple[int, User, Ticket]] = []
        for i, of in enumerate(given):
            if isinstance(of, tuple):
                continue
            try:
                known.append((i, *self.ticket(of)))
            except TreewardError as error:
                found[i] = error
        before = read_rewards(self._store, [(user, ticket.nonce) for _, user, ticket in known]) if known else []
        for (i, user, ticket), rewards in zip(known, before, strict=True):
            found[i] = _Told(user, ticket, rewards)
        return found

    def _event_of(self, of: Given, reward: float, told: "_Told | TreewardError | None") -> tuple[User, Row, int] | None:
        """Return the event that a reward makes, whose it is, and what was given before; None: nothing new."""
        if isinstance(of, tuple):
            return self._event_for(*of, reward)
        if not isinstance(told, _Told):
            assert told is not None
            raise told
        user, ticket, before = told
        if self._window is not None and time_ns() // 1_000_000 > ticket.time + self._window * 1_000:
            raise FeedbackLate(f"the decision {of[:12]}... was made more than {self._window:g} seconds ago")
        change = change_of(of, before, reward, self._on_repeat)
        if change is None:
            return None
        kind, own = (self._change, _net(before, ticket.own)) if before else (self._reward, ticket.own)
        return user, (ticket.item, ticket.node, change, ticket.nonce, ticket.snapshot, kind, now(), own), len(before)

    def _event_for(self, user: User, item: Id, reward: float) -> tuple[User, Row, int] | None:
        """Return the event of a reward for the latest decision that showed an item, or for the item itself.

        One that has no reward is preferred; if all have, this is another reward for the last.
        """
        [who] = users_of("Explorer.feedback", [user])
        number = self._number_of(item)
        events = self._store.read([who])[0]
        mine = events[events["item"] == number]
        closed = set(mine["nonce"][mine["kind"] != SHOWN].tolist())
        shown = [one for one in mine[::-1].tolist() if one[5] == SHOWN]
        latest = next((one for one in shown if one[3] not in closed), shown[0] if shown else None)
        if latest is None:
            return who, (number, -1, reward, 0, 0, self._reward, now(), 0.0), 0
        _, node, _, nonce, snapshot, _, when, own = latest
        if self._window is not None and when and now() > when + 1 + self._window:  # events know the second they are of
            raise FeedbackLate(f"{item!r:.40} was shown to {who!r:.40} more than {self._window:g} seconds ago")
        before = read_rewards(self._store, [(who, nonce)])[0]
        change = change_of(f"that showed {item!r:.20}", before, reward, self._on_repeat)
        if change is None:
            return None
        kind, own = (self._change, _net(before, own)) if before else (self._reward, own)
        return who, (number, node, change, nonce, snapshot, kind, now(), own), len(before)


def _net(before: Sequence[float], own: float) -> float:
    """Return what a decision earned so far, without what was the user's own."""
    return math.fsum(before) - own
