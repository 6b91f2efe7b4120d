"""`UserStates`: the states of recently active users. A bounded cache of what their events say, never the record."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.errors import InvalidArgument
from treeward.core.types import AnyArray
from treeward.engine.history import History
from treeward.engine.layout import Plan, State, empty_state
from treeward.engine.posterior import Posterior
from treeward.engine.ragged import Lists
from treeward.engine.replay import Events, apply_events, need_replay, reset_users
from treeward.state.contexts import Contexts
from treeward.state.item_positions import ItemPositions
from treeward.store.base import EventStore, User, join

_FIRST_EVENTS = 8
_NO_GATES = np.zeros(0, dtype=np.int32)
_KNOWN = ("theta", "pulls")
"""Arrays of a posterior that describe a user, besides A^-1. The sums follow from the events."""


class UserStates:
    """States of as many users as a memory budget holds; the least recently active user gives way to a new one.

    A user's state is one row, their seat, of the engine's arrays.

    Parameters
    ----------
    plan
        The policy, made ready.
    store
        Where the events are.
    positions
        The place in leaf order of every item number of the store.
    contexts
        The contexts of requests, by the snapshot numbers of events.
    snapshot
        The store's number of the plan's tree.
    memory
        Bytes for the states.
    """

    def __init__(
        self,
        plan: Plan,
        store: EventStore,
        positions: ItemPositions,
        contexts: Contexts,
        snapshot: int,
        memory: int,
    ) -> None:
        self.plan, self.store, self._positions, self._snapshot = plan, store, positions, snapshot
        self._contexts = contexts
        self.unknown: set[int] = set()
        """Numbers of items that events were about, but that the catalogue did not have when states were computed."""
        self._changed: list[NDArray[np.int32]] = []
        self.each = seat_bytes(plan)
        self.most = memory // self.each
        if self.most < 1:
            raise InvalidArgument("Explorer", "memory", f"at least {self.each} bytes, one user's state", memory)
        # All seats at once: the system hands out zeroed memory as it is touched, so unused ones cost nothing.
        self.state = empty_state(plan, self.most, _FIRST_EVENTS, compact=True)
        self.streams = np.zeros(self.most, dtype=np.int64)
        # These have an entry for every seat that was ever used.
        self._seen: list[int] = []
        self._epoch: list[int] = []
        self._edition: list[int] = []
        self._version: list[int] = []
        self.edition = 0
        """The crowd's edition that the plan knows; 0: users learn alone, or nothing was published yet."""
        self._free: list[int] = []
        self._seat_of: OrderedDict[User, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seat_of)

    def seat(self, users: Sequence[User]) -> NDArray[np.int64]:
        """Return the users' seats, with their state up to date; at most `most` users at a time."""
        try:
            return self._seat(users)
        except BaseException:  # the store failed: a half updated state must not be taken for a whole one
            for user in users:
                self.drop(user)
            raise

    def _seat(self, users: Sequence[User]) -> NDArray[np.int64]:
        store = self.store
        while True:
            epoch = store.identities.epoch
            found = self._seats_of(users, epoch)
            newer = store.read(users, self.seen(found))
            if store.identities.epoch != epoch:  # a user was forgotten or merged in between
                continue
            behind = [i for i, events in enumerate(newer) if len(events)]
            if not behind:
                return found
            seats, coming = found[behind], np.array([len(newer[i]) for i in behind])
            outdated = np.flatnonzero(need_replay(self.plan, self.state.posterior, seats, coming))
            if not len(outdated):
                break
            for i in outdated.tolist():
                self.drop(users[behind[i]])
        for seat, count in zip(seats.tolist(), coming.tolist(), strict=True):
            self._seen[seat] += count
        self._catch_up(seats, coming, [newer[i] for i in behind])
        return found

    def _seats_of(self, users: Sequence[User], epoch: int) -> NDArray[np.int64]:
        """Return the users' seats; their state may be behind."""
        for user in users:
            seat = self._seat_of.get(user)
            if seat is not None and not self._is_valid(user, seat, epoch):
                self.drop(user)
        found = np.empty(len(users), dtype=np.int64)
        fresh: list[int] = []
        for i, user in enumerate(users):
            seat = self._seat_of.get(user)
            if seat is None:
                seat = self._take_seat(user, epoch)
                fresh.append(seat)
            else:
                self._seat_of.move_to_end(user)
            found[i] = seat
        if fresh:
            reset_users(self.plan, self.state, np.array(fresh, dtype=np.int64))
        return found

    def _take_seat(self, user: User, epoch: int) -> int:
        if self._free:
            seat = self._free.pop()
        elif len(self._seen) < self.most:
            seat = len(self._seen)
            for about in (self._seen, self._epoch, self._edition, self._version):
                about.append(0)
        else:
            seat = self._seat_of.popitem(last=False)[1]
        self._seat_of[user], self._epoch[seat], self._seen[seat] = seat, epoch, 0
        self._version[seat], self._edition[seat] = len(self._changed), self.edition
        self.streams[seat] = rng.stream("user", user)
        return seat

    def _is_valid(self, user: User, seat: int, epoch: int) -> bool:
        """Return whether a state is still that of its user, by the present edition of the crowd and present items."""
        if self._edition[seat] != self.edition:
            return False
        if self._epoch[seat] != epoch:
            if self.store.identities.moved_since(user, self._epoch[seat]):  # perhaps by another process
                return False
            self._epoch[seat] = epoch
        if self._version[seat] != len(self._changed):
            changed = np.concatenate(self._changed[self._version[seat] :])
            if np.isin(self.store.read([user])[0]["item"], changed).any():
                return False
            self._version[seat] = len(self._changed)
        return True

    def seen(self, seats: NDArray[np.int64]) -> list[int]:
        """Return how many events the state in each seat knows."""
        return [self._seen[seat] for seat in seats.tolist()]

    def recent(self, most: int) -> list[User]:
        """Return users with events, the most recently active first."""
        known = (user for user in reversed(self._seat_of) if self._seen[self._seat_of[user]])
        return list(islice(known, min(most, self.most)))

    def skip_exposures(self, users: Sequence[User], count: int) -> None:
        """Count the last `count` events of users as seen: exposures, which change no state where items may repeat."""
        if self.plan.once or self.store.shared:
            return
        for user, events in zip(users, self.store.counts(users), strict=True):
            seat = self._seat_of.get(user)
            # If more events were added in between, the user's next call reads all of them.
            if seat is not None and events == self._seen[seat] + count:
                self._seen[seat] += count

    def drop(self, user: User) -> None:
        """Discard a user's state."""
        seat = self._seat_of.pop(user, None)
        if seat is not None:
            self._free.append(seat)

    def _catch_up(self, seats: NDArray[np.int64], coming: NDArray[np.int64], newer: list[AnyArray]) -> None:
        ends = np.concatenate([[0], np.cumsum(coming)])
        seen = self.events_for_plan(newer[0] if len(newer) == 1 else join(newer))
        self.state = apply_events(self.plan_with_gates(), self.state, seats, ends, seen)

    def plan_with_gates(self) -> Plan:
        """Return the plan with the gates of all contexts known by now."""
        if len(self.plan.gates) != len(self._contexts.gates):
            self.plan = self.plan._replace(gates=self._contexts.gates)
        return self.plan

    def events_for_plan(self, events: AnyArray) -> Events:
        """Return the store's events with places for item numbers, and without the nodes of other trees."""
        places = self._positions.places(events["item"])
        if (places < 0).any():
            self.unknown.update(events["item"][places < 0].tolist())
        trees, gates = events["snapshot"], _NO_GATES
        if self._contexts.any:
            trees, gates = self._contexts.trees_of(trees), self._contexts.gates_of(trees)
        nodes = np.where(trees == self._snapshot, events["node"], np.int32(-1))
        return Events(events["kind"].copy(), places, nodes, events["reward"].copy(), gates)

    def install(self, plan: Plan, edition: int) -> None:
        """Use another edition of the crowd: every user is replayed from their events at their next call."""
        self.plan, self.edition = plan, edition

    def items_changed(self, numbers: NDArray[np.int32]) -> None:
        """Invalidate the states that know these items, which have other vectors or places than before."""
        if len(numbers):
            self._changed.append(numbers)
            self.unknown.difference_update(numbers.tolist())


def seat_bytes(plan: Plan) -> int:
    """Return the size of a user's state while their history is short."""

    def size(made: object) -> int:
        return sum(map(size, made)) if isinstance(made, tuple) else int(getattr(made, "nbytes", 0))

    one, two = (size(empty_state(plan, seats, _FIRST_EVENTS, compact=True)) for seats in (1, 2))
    return two - one


def state_bytes(state: State, seat: int) -> bytes:
    """Return a user's state as bytes: equal states are equal bytes."""
    return b"".join(row.tobytes() for row in state_rows(state, seat))


def state_rows(state: State, seat: int) -> Iterator[AnyArray]:
    """Yield everything that is known of a seat's user, as views of the arrays."""
    for part in state:
        if isinstance(part, Lists):
            yield part.of(seat)
        elif isinstance(part, History):
            yield part.places.of(seat)
            yield part.places._replace(values=part.rewards).of(seat)  # type: ignore[arg-type]  # laid out alike
        elif isinstance(part, Posterior):
            yield from (part.inverse_of(seat, slot) for slot in range(part.theta.shape[1]))
            yield from (getattr(part, name)[seat] for name in _KNOWN)
        else:
            yield from (array[seat] for array in part)
