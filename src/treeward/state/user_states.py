"""`UserStates`: the states of recently active users. A bounded cache of what their events say, never the record."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.errors import InvalidArgument
from treeward.core.lazy_memory import lazy_zeros
from treeward.core.types import AnyArray, Integers
from treeward.engine.history import History
from treeward.engine.layout import Plan, State, empty_state
from treeward.engine.posterior import Posterior
from treeward.engine.ragged import Lists
from treeward.engine.replay import Events, add_shown, apply_events, copy_users, need_replay, reset_users
from treeward.state.contexts import Contexts
from treeward.state.item_positions import ItemPositions
from treeward.store.base import EventStore, User, join
from treeward.store.events import REWARD

_FIRST_EVENTS = 8
_NO_GATES = np.zeros(0, dtype=np.int32)
_KNOWN = ("theta", "pulls")
"""Arrays of a posterior that describe a user, besides A^-1. The sums follow from the events."""


class Stamp(NamedTuple):
    """What a state was computed with; it may be outdated if any of it is another now."""

    edition: int
    """The crowd's edition."""
    epoch: int
    """The store's epoch."""
    version: int
    """How often vectors or places of items had changed."""


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
        try:
            self.state = empty_state(plan, self.most, _FIRST_EVENTS, compact=True)
        except (OSError, MemoryError) as error:
            rule = f"what this machine can reserve at once ({error})"
            raise InvalidArgument("Explorer", "memory", rule, memory) from error
        self.streams: NDArray[np.int64] = lazy_zeros((self.most,), np.int64)
        # These have an entry for every seat that was ever used.
        self._seen: list[int] = []
        self._stamp: list[Stamp] = []
        self.edition = 0
        """The crowd's edition that the plan knows; 0: users learn alone, or nothing was published yet."""
        self._free: list[int] = []
        self._seat_of: OrderedDict[User, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seat_of)

    def has_at_hand(self, user: User) -> bool:
        """Return whether a user's state is here, or is computed in no time; may be called without a lock.

        Where requests have contexts, all states are taken to be here: what contexts mean is learned with the lock held.
        """
        seat = self._seat_of.get(user)
        if self._contexts.any or (seat is not None and self._stamp[seat].edition == self.edition):
            return True
        return not self.store.shared and self.store.counts([user])[0] <= _FIRST_EVENTS

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
            parts = [newer[i] for i in behind]
            events, counts = parts[0] if len(parts) == 1 else join(parts), np.array([len(part) for part in parts])
            rewards = np.add.reduceat(events["kind"] == REWARD, np.cumsum(counts) - counts, dtype=np.int64)
            outdated = np.flatnonzero(need_replay(self.plan, self.state.posterior, found[behind], rewards))
            if not len(outdated):
                break
            for i in outdated.tolist():
                self.drop(users[behind[i]])
        self._catch_up(found[behind], counts, events)
        return found

    def _seats_of(self, users: Sequence[User], epoch: int) -> NDArray[np.int64]:
        """Return the users' seats; their state may be behind."""
        now, stamps, seat_of = self.now(epoch), self._stamp, self._seat_of
        absent: list[int] = []
        found: list[int] = []
        for i, user in enumerate(users):  # before any takes a seat: those who have one shall keep it
            seat = seat_of.get(user)
            if seat is not None and (stamps[seat] == now or self._is_valid(user, seat, now)):
                seat_of.move_to_end(user)
                found.append(seat)
            else:
                self.drop(user)
                absent.append(i)
                found.append(-1)
        for i in absent:
            found[i] = self._take_seat(users[i], now)
        if absent:
            reset_users(self.plan, self.state, np.array([found[i] for i in absent], dtype=np.int64))
        return np.array(found, dtype=np.int64)

    def _take_seat(self, user: User, stamp: Stamp) -> int:
        if self._free:
            seat = self._free.pop()
        elif len(self._seen) < self.most:
            seat = len(self._seen)
            self._seen.append(0)
            self._stamp.append(stamp)
        else:
            seat = self._seat_of.popitem(last=False)[1]
        self._seat_of[user], self._stamp[seat], self._seen[seat] = seat, stamp, 0
        self.streams[seat] = rng.stream("user", user)
        return seat

    def _is_valid(self, user: User, seat: int, now: Stamp) -> bool:
        """Return whether a state is still that of its user, by the present edition of the crowd and present items."""
        then = self._stamp[seat]
        if then.edition != now.edition:
            return False
        if then.epoch != now.epoch and self.store.identities.moved_since(
            user, then.epoch
        ):  # perhaps by another process
            return False
        if then.version != now.version:
            changed = np.concatenate(self._changed[then.version :])
            if np.isin(self.store.read([user])[0]["item"], changed).any():
                return False
        self._stamp[seat] = now
        return True

    def seen(self, seats: NDArray[np.int64]) -> list[int]:
        """Return how many events the state in each seat knows."""
        return [self._seen[seat] for seat in seats.tolist()]

    def recent(self, most: int) -> list[User]:
        """Return users with events, the most recently active first."""
        known = (user for user in reversed(self._seat_of) if self._seen[self._seat_of[user]])
        return list(islice(known, min(most, self.most)))

    def add_exposures(self, users: Sequence[User], places: Integers) -> None:
        """Let states know the latest events of users, exposures of items at `places`, (users, n).

        Their next call need not read them then.
        """
        if self.store.shared:
            return
        count, seen, seats, current = places.shape[1], self._seen, list[int](), list[int]()
        for i, (user, known) in enumerate(zip(users, self.store.counts(users), strict=True)):
            seat = self._seat_of.get(user)
            # If more events were added in between, the user's next call reads all of them.
            if seat is not None and known == seen[seat] + count:
                seen[seat] = known
                seats.append(seat)
                current.append(i)
        if not seats or not self.plan.once:  # where items may repeat, exposures change no state
            return
        try:
            self.state = add_shown(self.plan, self.state, np.array(seats), places[current])
        except BaseException:  # as in `seat`
            for i in current:
                self.drop(users[i])
            raise

    def drop(self, user: User) -> None:
        """Discard a user's state."""
        seat = self._seat_of.pop(user, None)
        if seat is not None:
            self._free.append(seat)

    def _catch_up(self, seats: NDArray[np.int64], counts: NDArray[np.int64], events: AnyArray) -> None:
        """Let states know events: the first counts[0] belong to the first seat, and so on."""
        for seat, count in zip(seats.tolist(), counts.tolist(), strict=True):
            self._seen[seat] += count
        ends, seen = np.concatenate([[0], np.cumsum(counts)]), self.events_for_plan(events)
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

    def now(self, epoch: int) -> Stamp:
        """Return what a state is computed with at present."""
        return Stamp(self.edition, epoch, len(self._changed))

    def knows_any(self, numbers: AnyArray) -> bool:
        """Return whether the catalogue has any of these items."""
        return bool((self._positions.places(numbers) >= 0).any())

    def adopt(self, users: Sequence[User], counts: Sequence[int], state: State, stamp: Stamp) -> None:
        """Take over states that were computed elsewhere: `state` has the users in its first seats."""
        for user in users:
            self.drop(user)
        seats = np.array([self._take_seat(user, stamp) for user in users], dtype=np.int64)
        reset_users(self.plan, self.state, seats)
        self.state = copy_users(self.plan, state, self.state, seats)
        for seat, count in zip(seats.tolist(), counts, strict=True):
            self._seen[seat] = count

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
