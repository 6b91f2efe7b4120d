"""`Rewards`: turns feedback into events; every decision is rewarded once."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from treeward.core import checks
from treeward.core.errors import FeedbackConflict, FeedbackLate, InvalidArgument, TreewardError, UnknownDecision
from treeward.core.types import AnyArray
from treeward.data.catalogue import Id
from treeward.explorer.crowd_keeper import CrowdKeeper
from treeward.explorer.decision_ids import DecisionIds, SealedDecision
from treeward.explorer.item_counts import ItemCounts
from treeward.explorer.runtime import Runtime
from treeward.explorer.snapshot import Current
from treeward.policy.session import LARGEST
from treeward.store.base import EventStore, User, read_all
from treeward.store.events import AMENDED, CHANGE, EVENT, NOTED, REWARD, SHOWN

OnRepeat = Literal["reject", "max", "sum", "last"]
Outcome = Literal["recorded", "duplicate", "changed"]
Given = str | tuple[User, Id]
"""What a reward is for: a decision id, or a user and an item."""
Row = tuple[int, int, float, int, int, int, int, float]
"""An event, field by field."""
_Known = tuple[User, SealedDecision, list[float]]
"""What is known of a decision: whose it is now, what its id says, and its reward with the changes made to it."""


class Rewards:
    """Records rewards in a store. Needs no lock: the store decides which of several callers was first.

    Parameters
    ----------
    current
        The snapshot that maps items to their numbers.
    store
        Where events live.
    on_repeat, limits, window, learns
        As `Explorer` has them; `limits` is its reward_range.
    item_counts, crowd
        Are given every reward that was recorded, if they exist.
    runtime
        The clock.
    """

    def __init__(
        self,
        current: Current,
        store: EventStore,
        on_repeat: OnRepeat,
        limits: tuple[float, float],
        window: float | None,
        learns: bool,
        item_counts: ItemCounts | None,
        crowd: CrowdKeeper | None,
        runtime: Runtime,
    ) -> None:
        self._current, self._store, self._on_repeat, self._window = current, store, on_repeat, window
        self.limits, self._item_counts, self._runtime = limits, item_counts, runtime
        self._crowd = crowd if learns else None
        self.ids = DecisionIds(store.identities.secret)
        self._reward, self._change = (REWARD, CHANGE) if learns else (NOTED, AMENDED)
        self.recorded: Callable[[Sequence[User], AnyArray], None] = lambda users, events: None
        """Called with the users and the events of rewards that were recorded."""

    def decision_of(self, id: str) -> tuple[User, SealedDecision]:
        """Return whose decision an id is now, and what the id says."""
        decision = self.ids.unseal(id)
        user = self._store.identities.resolve(decision.user, decision.epoch)
        if user is None:
            raise UnknownDecision(f"the decision {id[:12]}... is of a user who was forgotten")
        return user, decision

    # --- feedback ----------------------------------------------------------------------------------------------------

    def record(self, rewards: Mapping[str, float]) -> dict[str, Outcome]:
        """Record rewards by decision id, all of them or none."""
        given: list[tuple[Given, float]] = [(id, self._checked(reward)) for id, reward in rewards.items()]
        outcomes = self._record(given, strict=True)
        return {id: outcome for id, outcome in zip(rewards, outcomes, strict=True) if isinstance(outcome, str)}

    def record_each(self, rows: Sequence[tuple[Given, float]]) -> list[Outcome | TreewardError]:
        """Record many rewards independently: return an outcome or an error for each row.

        A row has a decision id or, where that got lost, a user and an item. It is then for the latest decision without
        a reward that showed the item to the user (if exposures are recorded); if there is none, it is an event of its
        own.
        """
        outcomes: list[Outcome | TreewardError] = ["duplicate"] * len(rows)
        waiting: Sequence[int] = range(len(rows))
        while waiting:  # rows for one decision are recorded one after the other
            first = {rows[i][0]: i for i in reversed(waiting)}
            now, later = waiting, list[int]()
            if len(first) < len(waiting):
                now, later = sorted(first.values()), [i for i in waiting if first[rows[i][0]] != i]
            given: list[tuple[Given, float]] = []
            valid: list[int] = []
            for i in now:
                try:
                    given.append((rows[i][0], self._checked(rows[i][1])))
                    valid.append(i)
                except InvalidArgument as error:
                    outcomes[i] = error
            for i, outcome in zip(valid, self._record(given, strict=False), strict=True):
                outcomes[i] = outcome
            waiting = later
        return outcomes

    def _checked(self, reward: float) -> float:
        low, high = self.limits
        if type(reward) is float and low <= reward <= high:  # the usual case, without a call
            return reward
        return checks.number("Explorer.feedback", "reward", reward, low=low, high=high)

    def _record(self, given: Sequence[tuple[Given, float]], *, strict: bool) -> list[Outcome | TreewardError]:
        """Record rewards for different decisions; `strict`: raise the first error, and record nothing."""
        outcomes: list[Outcome | TreewardError] = ["duplicate"] * len(given)
        waiting: Sequence[int] = range(len(given))
        while waiting:  # again if the same decisions were changed in between, or users were forgotten
            epoch = self._store.identities.epoch
            rows: list[tuple[int, User, Row, int]] = []
            now = self._runtime.nanoseconds()
            known = self._known([given[i][0] for i in waiting])
            for i, of in zip(waiting, known, strict=True):
                try:
                    made = self._event_of(*given[i], of, now)
                except TreewardError as error:
                    if strict:
                        raise
                    outcomes[i] = error
                    continue
                if made is not None:
                    rows.append((i, *made))
            events = np.array([row for _, _, row, _ in rows], dtype=EVENT)
            before = np.array([count for *_, count in rows], dtype=np.int64)
            users = [user for _, user, _, _ in rows]
            new = self._append(users, events, before, epoch)
            again: list[int] = []
            for (i, _, row, _), fresh in zip(rows, new.tolist(), strict=True):
                if fresh:
                    outcomes[i] = "changed" if row[5] in (CHANGE, AMENDED) else "recorded"
                else:
                    again.append(i)
            waiting = again
        return outcomes

    def _known(self, given: Sequence[Given]) -> list[_Known | TreewardError | None]:
        """Return what is known of decisions, read at once: an error for an invalid id, None for a user and an item."""
        found: list[_Known | TreewardError | None] = [None] * len(given)
        valid: list[tuple[int, User, SealedDecision]] = []
        decision_of = self.decision_of
        for i, of in enumerate(given):
            if isinstance(of, tuple):
                continue
            try:
                user, decision = decision_of(of)
            except TreewardError as error:
                found[i] = error
            else:
                valid.append((i, user, decision))
        users, nonces = [user for _, user, _ in valid], [decision.nonce for _, _, decision in valid]
        before = self._store.read(users, nonces=nonces) if valid else []
        for (i, user, decision), events in zip(valid, before, strict=True):
            found[i] = user, decision, events["reward"].tolist() if len(events) else []
        return found

    def _event_of(
        self, of: Given, reward: float, known: _Known | TreewardError | None, now: int
    ) -> tuple[User, Row, int] | None:
        """Return whose event a reward makes, the event, and how many rewards came before; None: nothing new."""
        if isinstance(of, tuple):
            return self._event_for(*of, reward)
        if not isinstance(known, tuple):
            assert known is not None
            raise known
        user, (snapshot, item, node, slot, call, _, _, time, _, own, _), before = known
        if self._window is not None and now // 1_000_000 > time + self._window * 1_000:
            raise FeedbackLate(f"the decision {of[:12]}... was made more than {self._window:g} seconds ago")
        if not before:  # the usual case, without further calls
            return user, (item, node, reward, call + slot, snapshot, self._reward, now // 1_000_000_000, own), 0
        return self._event(of, user, (item, node, call + slot, snapshot, own), before, reward)

    def _event_for(self, user: User, item: Id, reward: float) -> tuple[User, Row, int] | None:
        """Return the event of a reward for the latest decision that showed an item, or for the item itself.

        A decision without a reward is preferred; if all have one, this is another reward for the last.
        """
        [who] = checks.users("Explorer.feedback", [user])
        number = self._current.snapshot.number_of(item)
        [events] = self._store.read([who])
        mine = events[events["item"] == number]
        rewarded = set(mine["nonce"][mine["kind"] != SHOWN].tolist())
        shown = [one for one in mine[::-1].tolist() if one[5] == SHOWN]
        latest = next((one for one in shown if one[3] not in rewarded), shown[0] if shown else None)
        if latest is None:
            return self._event("", who, (number, -1, 0, 0, 0.0), [], reward)
        _, node, _, nonce, snapshot, _, when, own = latest
        # Events have their time in whole seconds.
        if self._window is not None and when and self._seconds() > when + 1 + self._window:
            raise FeedbackLate(f"{item!r:.40} was shown to {who!r:.40} more than {self._window:g} seconds ago")
        before = self._store.read([who], nonces=[nonce])[0]["reward"].tolist()
        return self._event(f"that showed {item!r:.20}", who, (number, node, nonce, snapshot, own), before, reward)

    def _event(
        self, id: str, user: User, target: tuple[int, int, int, int, float], before: list[float], reward: float
    ) -> tuple[User, Row, int] | None:
        """Return whose event a reward makes, the event, and how many rewards came before; None: nothing new."""
        change = change_of(id, before, reward, self._on_repeat)
        if change is None:
            return None
        item, node, nonce, snapshot, own = target
        kind = self._reward
        if before:  # a change carries what the decision earned before it, without the user's own part
            kind, own = self._change, math.fsum(before) - own
        return user, (item, node, change, nonce, snapshot, kind, self._seconds(), own), len(before)

    def _seconds(self) -> int:
        return self._runtime.nanoseconds() // 1_000_000_000

    def _append(
        self, users: Sequence[User], events: AnyArray, known: NDArray[np.int64] | None, epoch: int
    ) -> NDArray[np.bool_]:
        """Append events of an epoch to the store, pass on those that were added, and return which were."""
        with nullcontext() if self._crowd is None else self._crowd.recording():
            new = self._store.append(users, events, known, epoch=epoch)
            if not new.any():
                return new
            if not new.all():
                users, events = [user for user, fresh in zip(users, new.tolist(), strict=True) if fresh], events[new]
            if self._crowd is not None:
                self._crowd.add(users, events, epoch)
        if self._item_counts is not None:
            self._item_counts.add(events)
        self.recorded(users, events)
        return new

    # --- decisions without a reward ----------------------------------------------------------------------------------

    def open_event(self, id: str) -> tuple[User, Row]:
        """Return whose decision an id is, and the event that a reward of 0 for it would be."""
        user, one = self.decision_of(id)
        return user, (one.item, one.node, 0.0, one.nonce, one.snapshot, self._reward, 0, one.own)

    def open_events(self) -> list[tuple[User, Row, int]]:
        """Return the decisions that were shown and have no reward, as `open_event` does, and the second of each."""
        found: list[tuple[User, Row, int]] = []
        for user, events in read_all(self._store):
            shown = events[events["kind"] == SHOWN]
            missing = shown[~np.isin(shown["nonce"], events["nonce"][events["kind"] != SHOWN])]
            for item, node, _, nonce, snapshot, _, when, own in missing.tolist():
                found.append((user, (item, node, 0.0, nonce, snapshot, self._reward, 0, own), when))
        return found

    def expire(self, rows: Sequence[tuple[User, Row, int]], reward: float) -> int:
        """Give this reward to decisions that still have none, and return how many.

        Each row is a user, an event of `open_event`, and the store's epoch in which the user had this name.
        """
        while True:
            identities = self._store.identities
            at = identities.epoch
            found = [(identities.resolve(user, epoch), row) for user, row, epoch in rows]
            known = [(user, row) for user, row in found if user is not None]
            events = np.array([row for _, row in known], dtype=EVENT)
            events["reward"], events["time"] = reward, self._seconds()
            users = [user for user, _ in known]
            new = self._append(users, events, None, at)
            if self._store.identities.epoch == at or new.any():
                return int(new.sum())


def checked_range(value: tuple[float, float]) -> tuple[float, float]:
    """Return the least and the largest reward."""
    if not isinstance(value, Sequence) or len(value) != 2:
        raise InvalidArgument("Explorer", "reward_range", "two numbers, the least and the largest", value)
    low = checks.number("Explorer", "reward_range", value[0], low=-LARGEST, high=LARGEST)
    return low, checks.number("Explorer", "reward_range", value[1], above=low, high=LARGEST)


def change_of(id: str, before: list[float], reward: float, on_repeat: str) -> float | None:
    """Return by how much a reward changes what a decision has earned; None: not at all."""
    if not before:
        return reward
    total = math.fsum(before)
    same = math.isclose(total, reward, rel_tol=1e-12, abs_tol=1e-12)
    if on_repeat == "sum":
        return None if reward in before or reward == 0 else reward
    if same or (on_repeat == "max" and reward < total):
        return None
    if on_repeat == "reject":
        raise FeedbackConflict(f"the decision {id[:12]}... has the reward {total:g} already, and now got {reward:g}")
    return reward - total
