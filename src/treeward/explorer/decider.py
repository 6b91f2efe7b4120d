"""The deciding half of an explorer: users to items, with the state of users at hand."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.bandit.rules import Rule
from treeward.core import rng
from treeward.core.errors import NothingLeft, StoreError
from treeward.core.types import AnyArray, Floats, Integers
from treeward.data.catalogue import Catalogue
from treeward.embed.features import Context, Features
from treeward.engine.available import Flags, Screen
from treeward.engine.batch import DECISION, Batch, nothing_closed
from treeward.engine.decide import Chooser, bound_chooser, chooser
from treeward.engine.explore import Candidates
from treeward.engine.layout import Plan, State, room, scratch
from treeward.engine.posterior import Posterior
from treeward.engine.replay import Events, absorb, sit_all
from treeward.engine.sampling import MOST_STEPS
from treeward.engine.slack import Room, roomy
from treeward.engine.trace import Trace
from treeward.explorer.contexts import Contexts
from treeward.explorer.crowd_edition import CrowdEdition
from treeward.explorer.roster import Roster
from treeward.explorer.tickets import Ticket
from treeward.state.seats import Seats
from treeward.store.base import EventStore, User
from treeward.store.events import NAMELESS
from treeward.store.metadata import begin
from treeward.store.numbers import number_items, number_snapshot

SLOT_BITS = 16
"""The low bits of a call's nonce are left to its slots."""
_HELD, _HELD_BYTES = 32, 64 << 20
"""So many editions of the crowd are held, that decisions can be explained by; fewer if they take more than that."""


class Closed(NamedTuple):
    """What a call may not show."""

    named: Integers
    """If `only`: the sorted places that alone are open ..."""
    only: bool
    flags: Flags
    """... and otherwise these."""
    extra: Integers
    """Places closed to single users, one user's after another's ..."""
    ends: NDArray[np.int64]
    """(users + 1,) ... and where each one's end."""
    diverse: bool = False
    """After one item of a leaf, not another in the same call."""


class Calls(NamedTuple):
    """What was decided for the users of one call."""

    nonce: NDArray[np.int64]
    """(users,)"""
    events: NDArray[np.int64]
    """(users,): how many of the user's events were known."""
    decisions: AnyArray
    """(users * n,) of dtype DECISION"""
    snapshot: int
    """The store's number of the tree, and of what the request told."""
    edition: int = 0
    """The crowd's edition; 0: users learn alone."""
    explored: bool = True
    """Whether the policy chose the items; otherwise they were adopted."""


class Decider:
    """A plan, the seats of the users asked for lately, and what it takes to draw.

    Parameters
    ----------
    plan
        The policy, made ready.
    catalogue, store
        The items, and where the events are.
    seed
        Where draws come from; None: from the store's secret.
    memory
        Bytes for the seats.
    spare
        Free places of every leaf, as a share of its items; 0: none, and nothing can be added or removed.
    metric
        By which vectors are multiplied before the leaf nearest to a newcomer is looked for.
    features
        What makes gates of what requests tell.
    rule
        The bandit's.
    """

    def __init__(
        self,
        plan: Plan,
        catalogue: Catalogue,
        store: EventStore,
        seed: int | None,
        memory: int,
        spare: float,
        metric: Floats,
        features: Features | None,
        rule: Rule,
    ) -> None:
        self._store, self._rule = store, rule
        numbers = number_items(store, catalogue.ids)
        digest = blake2b(np.ascontiguousarray(numbers[plan.tree.items]).data, digest_size=16)
        for array in (plan.tree.first_child, plan.tree.item_range):
            digest.update(np.ascontiguousarray(array).data)
        try:
            self.snapshot = named = number_snapshot(store, digest.hexdigest())
        except StoreError:  # all numbers are taken: what this tree's nodes are is not written down
            self.snapshot, named = NAMELESS, -1
        self.room: Room | None = None
        places = np.arange(len(catalogue), dtype=np.int32)
        rows = plan.tree.items
        if spare > 0:
            plan, self.room, places = roomy(plan, spare, metric)
        self.plan, self.roster = plan, Roster(rows, places, numbers)
        self.flags = self.room.flags if self.room is not None else Flags.none()
        """Places that may be shown to anybody."""
        self.contexts = Contexts(store, self.snapshot, features, plan.items.shape[1])
        self.plan = plan = plan._replace(gates=self.contexts.gates)
        self.seats = Seats(plan, store, self.roster, self.contexts, named, memory)
        hidden = blake2b(store.identities.secret, digest_size=8, person=b"draws").digest()
        self._seed = int.from_bytes(hidden, "little") >> 1 if seed is None else seed
        self._begun, self._call_stream = 0, rng.stream("calls", begin(store.metadata))
        leaves = np.diff(plan.tree.first_child) == 0
        self._largest = int(np.diff(plan.tree.item_range[leaves]).max())
        self._room = scratch(plan), Trace.empty(MOST_STEPS)
        nobody = np.zeros(0, dtype=np.int64)
        self._nobody = Batch(nobody, nobody, nobody, *nothing_closed(0))
        self._kernel = self._bound(plan)
        self.edition: CrowdEdition | None = None
        self.moved: list[int] = []
        """Places that got another item since the crowd was laid out."""
        self._held: OrderedDict[int, Plan] = OrderedDict()

    def _bound(self, plan: Plan) -> Chooser:
        return bound_chooser(plan, self.seats.state, self._nobody, self._room, made(0))

    def laid_out(self, edition: CrowdEdition) -> Plan:
        """Return the plan with an edition of the crowd; takes a while, and needs no lock."""
        self.moved.clear()
        return edition.laid_out(self.plan, self.roster.places, self.flags.open, self._rule)

    def install(self, edition: CrowdEdition, plan: Plan) -> None:
        """Decide by an edition of the crowd from now on; `plan` is what `laid_out` returned."""
        self.edition = edition
        for place in self.moved:  # another item took it in the meantime
            plan.crowd.offset[place] = 0.0
        if self.moved and len(plan.bonus):
            plan.bonus[self.moved] = self.newcomers(plan.items[self.moved])
        self.plan = plan = plan._replace(gates=self.contexts.gates)
        self.seats.renew(plan, edition.number)
        self._kernel = self._bound(plan)
        self._held[edition.number] = plan
        size = plan.crowd.offset.nbytes + plan.bonus.nbytes + plan.crowd.crest.nbytes
        while len(self._held) > max(1, min(_HELD, _HELD_BYTES // max(1, size))):
            self._held.popitem(last=False)

    def newcomers(self, vectors: Floats) -> Floats:
        """Return what the scores of items gain that nobody has met."""
        assert self.edition is not None
        return self.edition.newcomers(vectors, self._rule)

    def plan_of(self, edition: int) -> Plan | None:
        """Return the plan of an edition of the crowd, as long as it is held."""
        if edition == self.seats.edition:
            return self.plan
        return self._held.get(edition)

    def decide(self, users: Sequence[User], n: int, closed: Closed, context: Context | None = None) -> Calls:
        """Decide n times for each user; raise `NothingLeft`, and change nothing, if that cannot be."""
        snapshot, gate = self.contexts.of(context)
        count, most = len(users), self.seats.most
        counters = np.arange(self._begun, self._begun + count)
        self._begun += count
        nonces = rng.lanes(self._seed, np.full(count, self._call_stream), counters) >> SLOT_BITS << SLOT_BITS
        calls = Calls(nonces, np.zeros(count, dtype=np.int64), made(count * n), snapshot, self.seats.edition)
        for first in range(0, count, most):
            last = min(count, first + most)
            seats = self.seats.seat(users[first:last])
            calls.events[first:last] = self.seats.seen(seats)
            part, here = calls.decisions[first * n : last * n], closed._replace(ends=closed.ends[first : last + 1])
            streams = self.seats.streams[seats]
            with _through(self.seats.state.posterior, seats, gate):
                self._choose(self.seats.state, seats, streams, nonces[first:last], n, here, self._room, part)
        if calls.decisions["place"].min() < 0:
            at = int(np.argmax(calls.decisions["place"] < 0))
            left = at % n
            raise NothingLeft(f"{n} item(s) were asked for, but only {left} may be shown to {users[at // n]!r}")
        return calls

    def adopted(self, user: User, rows: NDArray[np.int64], context: Context | None = None) -> Calls:
        """Return the calls of decisions that were made elsewhere."""
        nonce = rng.lanes(self._seed, np.array([self._call_stream]), np.array([self._begun])) >> SLOT_BITS << SLOT_BITS
        self._begun += 1
        calls = Calls(nonce, np.array([self._store.counts([user])[0]]), made(len(rows)), self.contexts.of(context)[0],
                      self.seats.edition, explored=False)  # fmt: skip
        calls.decisions["item"], calls.decisions["node"] = rows, -1
        calls.decisions["mean"] = calls.decisions["width"] = np.nan
        calls.decisions["propensity"], calls.decisions["exact"] = 1.0, True
        return calls

    def state_after(self, events: Events) -> State:
        """Return a state of its own, in seat 0, that knows these events of a user."""
        self.plan = self.seats.up_to_date()
        return self._state_after(self.plan, events)

    @staticmethod
    def _state_after(plan: Plan, events: Events) -> State:
        state, seat = room(plan, 1, 0), np.zeros(1, dtype=np.int64)
        sit_all(plan, state, seat)
        return absorb(plan, state, seat, np.array([0, len(events.kind)]), events)

    def again(self, user: User, ticket: Ticket, closed: Closed) -> tuple[State, Trace, int]:
        """Decide as for a ticket once more, told step by step: return the state of then, the trace and the place.

        If the edition of the crowd that it was made by is not held any more, the latest takes its place.
        """
        seat = np.zeros(1, dtype=np.int64)
        now = self.seats.up_to_date()
        plan = (self.plan_of(ticket.edition) or now)._replace(gates=now.gates)
        state = self._state_after(plan, self.seats.seen_by_plan(self._store.read([user])[0][: ticket.events]))
        candidates = scratch(self.plan)  # of its own: others may be deciding
        trace = Trace.empty(MOST_STEPS, len(candidates.arm))
        out = made(ticket.slot + 1)
        stream = np.array([rng.stream("user", ticket.user)])
        gate = self.contexts.gate_at(ticket.snapshot)
        with _through(state.posterior, seat, gate):
            call = np.array([ticket.call])
            self._choose(state, seat, stream, call, ticket.slot + 1, closed, (candidates, trace), out, chooser(plan))
        return state, trace, int(out["place"][-1])

    def rehearse(self, user: User, state: State, nonce: int) -> None:
        """Decide once for a user whose state is in seat 0, and throw the decision away."""
        none = np.zeros(0, dtype=np.int32)
        closed = Closed(none, False, self.flags, none, np.zeros(2, dtype=np.int64))
        stream, call = np.array([rng.stream("user", user)]), np.array([nonce << SLOT_BITS])
        self._choose(state, np.zeros(1, dtype=np.int64), stream, call, 1, closed, self._room, made(1))

    def _choose(
        self,
        state: State,
        seats: NDArray[np.int64],
        streams: NDArray[np.int64],
        nonces: NDArray[np.int64],
        n: int,
        closed: Closed,
        room: tuple[Candidates, Trace],
        out: AnyArray,
        kernel: Chooser | None = None,
    ) -> None:
        most = n + (int(np.diff(closed.ends).max()) if len(closed.extra) else 0)
        if self.plan.once:
            most += int(state.shown.length[seats].max())
        if closed.diverse:
            most = min(most + n * self._largest, len(self.plan.items))
        mine = np.zeros(most, dtype=np.int32), np.zeros(1, dtype=np.int64)
        screen = Screen(closed.named, closed.only, closed.flags, *mine)
        lanes = rng.lanes(self._seed, streams, nonces)
        batch = Batch(seats, lanes, np.zeros(len(seats), dtype=np.int64), closed.extra, closed.ends)
        (kernel or self._kernel)(state, batch, n, closed.diverse, screen, self._seed, *room, out)


@contextmanager
def _through(posterior: Posterior, seats: NDArray[np.int64], gate: Floats | None) -> Iterator[None]:
    """Have theta and A^-1 of some seats for a while as they are for vectors that pass a gate."""
    if gate is None:
        yield
        return
    inverse, theta = posterior.inverse[seats], posterior.theta[seats]
    posterior.inverse[seats], posterior.theta[seats] = inverse * np.outer(gate, gate), theta * gate
    try:
        yield
    finally:
        posterior.inverse[seats], posterior.theta[seats] = inverse, theta


def made(count: int) -> AnyArray:
    """Return room for so many decisions."""
    return np.zeros(count, dtype=DECISION)
