"""`Seats`: the users whose state is at hand. A bounded cache of what their events say, never the record."""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.errors import InvalidArgument
from treeward.core.types import AnyArray, Floats, Integers
from treeward.engine.layout import Plan, room
from treeward.engine.replay import Events, absorb, sit_all
from treeward.store.base import EventStore, User
from treeward.store.events import EVENT

_FIRST_EVENTS = 8


class Roster(Protocol):
    """Who knows where items are."""

    @property
    def places(self) -> Integers:
        """(item numbers,): the place of every item number of the store; -1 where the item is gone."""
        ...


class Contexts(Protocol):
    """Who knows what requests told."""

    @property
    def gates(self) -> Floats:
        """By which vectors are multiplied, one row a context."""
        ...

    def trees_of(self, numbers: AnyArray) -> AnyArray:
        """Return the numbers of the trees that events were decided on."""
        ...

    def gates_of(self, numbers: AnyArray) -> Integers:
        """Return which gate each event passes; nothing at all if there are none."""
        ...


class Seats:
    """As many users as a memory budget holds; whoever was asked for longest ago gives up their seat.

    Parameters
    ----------
    plan
        The policy, made ready.
    store
        Where the events are.
    roster
        Knows the place in leaf order of every item number of the store.
    contexts
        Knows what requests told, by the snapshots of events.
    snapshot
        The store's number for the plan's tree.
    memory
        Bytes for the seats.
    """

    def __init__(
        self,
        plan: Plan,
        store: EventStore,
        roster: Roster,
        contexts: Contexts,
        snapshot: int,
        memory: int,
    ) -> None:
        self.plan, self.store, self._roster, self._snapshot = plan, store, roster, snapshot
        self._contexts = contexts
        self.unknown: set[int] = set()
        """Numbers of items that events were about, but that nobody knew: the states then made know nothing of them."""
        self._moves: list[NDArray[np.int32]] = []
        self.each = seat_bytes(plan)
        self.most = memory // self.each
        if self.most < 1:
            raise InvalidArgument("Explorer", "memory", f"at least {self.each} bytes, one user's state", memory)
        # All seats at once: the system hands out zeroed memory as it is touched, so empty ones cost nothing.
        self.state = room(plan, self.most, _FIRST_EVENTS)
        self.streams = np.zeros(self.most, dtype=np.int64)
        self._seen = [0] * self.most
        self._epoch = [0] * self.most
        self._edition = [0] * self.most
        self.edition = 0
        """The crowd's edition that the plan knows; 0: users learn alone, or nothing was published yet."""
        self._version = [0] * self.most
        self._free = list(range(self.most))[::-1]
        self._seat_of: OrderedDict[User, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seat_of)

    def seat(self, users: Sequence[User]) -> NDArray[np.int64]:
        """Return the users' seats, with their state up to date; not more users than `most` at a time."""
        try:
            return self._seat(users)
        except BaseException:  # the store failed: what is half caught up must not be taken for whole
            for user in users:
                self.drop(user)
            raise

    def _seat(self, users: Sequence[User]) -> NDArray[np.int64]:
        while True:
            epoch = self.store.identities.epoch
            found = self._seats_of(users)
            newer = self.store.read(users, self.seen(found))
            if (
                self.store.identities.epoch == epoch
            ):  # otherwise somebody was forgotten or merged: who is who must be asked anew
                break
        behind = [(seat, events) for seat, events in zip(found.tolist(), newer, strict=True) if len(events)]
        for seat, events in behind:
            self._seen[seat] += len(events)
        if behind:
            self._catch_up(behind)
        return found

    def _seats_of(self, users: Sequence[User]) -> NDArray[np.int64]:
        """Return the users' seats; their state may be behind."""
        for user in users:
            seat = self._seat_of.get(user)
            if seat is not None and (self._moved(user, seat) or self._outdated(user, seat)):
                self.drop(user)
        found = np.empty(len(users), dtype=np.int64)
        fresh: list[int] = []
        for i, user in enumerate(users):
            seat = self._seat_of.get(user)
            if seat is None:
                seat = self._take_seat(user)
                fresh.append(seat)
            else:
                self._seat_of.move_to_end(user)
            found[i] = seat
        if fresh:
            sit_all(self.plan, self.state, np.array(fresh, dtype=np.int64))
        return found

    def seen(self, seats: NDArray[np.int64]) -> list[int]:
        """Return how many events the state in each seat knows."""
        return [self._seen[seat] for seat in seats.tolist()]

    def recent(self, most: int) -> list[User]:
        """Return who was asked for lately and has events, the latest first."""
        return list(
            islice((user for user in reversed(self._seat_of) if self._seen[self._seat_of[user]]), min(most, self.most))
        )

    def passed(self, users: Sequence[User], count: int) -> None:
        """Take the last `count` events of users for known: exposures, which change no state where items may repeat."""
        if self.plan.once or self.store.shared:
            return
        for user, events in zip(users, self.store.counts(users), strict=True):
            seat = self._seat_of.get(user)
            # If more came in between, all of it is read when the user is next asked for.
            if seat is not None and events == self._seen[seat] + count:
                self._seen[seat] += count

    def drop(self, user: User) -> None:
        """Give up a user's seat."""
        seat = self._seat_of.pop(user, None)
        if seat is not None:
            self._free.append(seat)

    def _catch_up(self, behind: list[tuple[int, AnyArray]]) -> None:
        # numpy compares the fields of structured arrays one by one before it joins them: bytes are joined at once.
        events = np.frombuffer(b"".join(events.tobytes() for _, events in behind), dtype=EVENT)
        ends = np.zeros(len(behind) + 1, dtype=np.int64)
        np.cumsum([len(events) for _, events in behind], out=ends[1:])
        seats = np.array([seat for seat, _ in behind], dtype=np.int64)
        seen = self.seen_by_plan(events)
        self.state = absorb(self.up_to_date(), self.state, seats, ends, seen)

    def up_to_date(self) -> Plan:
        """Return the plan with the gates that are known by now."""
        if len(self.plan.gates) != len(self._contexts.gates):
            self.plan = self.plan._replace(gates=self._contexts.gates)
        return self.plan

    def seen_by_plan(self, events: AnyArray) -> Events:
        """Return the store's events with places for item numbers, and without the nodes of other trees."""
        # Another catalogue on the same store may have items, and numbers, that this one does not have.
        items, known = events["item"], self._roster.places
        places = np.where(items < len(known), known[np.minimum(items, len(known) - 1)], np.int32(-1))
        if (places < 0).any():
            self.unknown.update(items[places < 0].tolist())
        return Events(
            events["kind"].copy(),
            places,
            np.where(self._contexts.trees_of(events["snapshot"]) == self._snapshot, events["node"], np.int32(-1)),
            events["reward"].copy(),
            self._contexts.gates_of(events["snapshot"]),
        )

    def _take_seat(self, user: User) -> int:
        if self._free:
            seat = self._free.pop()
        else:
            _, seat = self._seat_of.popitem(last=False)
        self._seat_of[user] = seat
        self._epoch[seat] = self.store.identities.epoch
        self._version[seat], self._edition[seat] = len(self._moves), self.edition
        self.streams[seat] = rng.stream("user", user)
        self._seen[seat] = 0
        return seat

    def renew(self, plan: Plan, edition: int) -> None:
        """Go by another edition of the crowd: users are rebuilt from their events when they next come."""
        self.plan, self.edition = plan, edition

    def items_moved(self, numbers: NDArray[np.int32]) -> None:
        """Take note that items have other vectors, and places, than before: states that know of them are outdated."""
        if len(numbers):
            self._moves.append(numbers)
            self.unknown.difference_update(numbers.tolist())

    def _outdated(self, user: User, seat: int) -> bool:
        """Tell whether the state in a seat knows another edition of the crowd, or items that have changed since."""
        if self._edition[seat] != self.edition:
            return True
        if self._version[seat] == len(self._moves):
            return False
        changed = np.concatenate(self._moves[self._version[seat] :])
        if np.isin(self.store.read([user])[0]["item"], changed).any():
            return True
        self._version[seat] = len(self._moves)
        return False

    def _moved(self, user: User, seat: int) -> bool:
        """Tell whether the user in a seat is no longer who they were: forgotten or merged, perhaps elsewhere."""
        now = self.store.identities.epoch
        if self._epoch[seat] == now:
            return False
        if self.store.identities.resolve(user, self._epoch[seat]) != user:
            return True
        self._epoch[seat] = now
        return False


def seat_bytes(plan: Plan) -> int:
    """Return what a user's state takes, as long as their history is short."""

    def size(made: object) -> int:
        return sum(map(size, made)) if isinstance(made, tuple) else int(getattr(made, "nbytes", 0))

    return size(room(plan, 2, _FIRST_EVENTS)) - size(room(plan, 1, _FIRST_EVENTS))
