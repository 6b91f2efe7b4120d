"""`Decider`: chooses items for users by one snapshot's plan, with the state of recently active users in memory."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b
from os import register_at_fork
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.errors import NothingLeft, StoreError
from treeward.core.parallel import cores
from treeward.core.types import AnyArray, Floats, Integers
from treeward.data.catalogue import Catalogue
from treeward.embed.features import Context
from treeward.engine.available import Flags, Screen
from treeward.engine.batch import DECISION, Batch, nothing_closed
from treeward.engine.decide import Chooser, bound_chooser, chooser
from treeward.engine.explore import Candidates
from treeward.engine.layout import Plan, State, empty_state, rows_together, scratch
from treeward.engine.posterior import Posterior
from treeward.engine.replay import Events, add_shown, apply_events, reset_users
from treeward.engine.sampling import MOST_STEPS
from treeward.engine.slack import Slack, with_slack
from treeward.engine.trace import Trace
from treeward.explorer.crowd_edition import CrowdEdition
from treeward.explorer.decision_ids import SealedDecision
from treeward.policy.base import Policy
from treeward.state.contexts import Contexts
from treeward.state.item_positions import ItemPositions
from treeward.state.user_states import UserStates
from treeward.store.base import EventStore, User
from treeward.store.events import NAMELESS
from treeward.store.metadata import begin
from treeward.store.numbers import number_items, number_snapshot

SLOT_BITS = 16
"""The low bits of a call's nonce are left to its slots."""
_MOST_THREADS, _LEAST_PER_THREAD = 4, 12
"""How many threads decide for the users of one call, and for how many users it takes one more."""
_HELD, _HELD_BYTES = 32, 64 << 20
"""How many editions of the crowd are kept to explain decisions by; fewer if they take more bytes than that."""


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


class Call(NamedTuple):
    """The decisions for the users of one call, as arrays."""

    nonces: NDArray[np.int64]
    """(users,)"""
    events: NDArray[np.int64]
    """(users,): how many of the user's events were known."""
    decisions: AnyArray
    """(users * n,) of dtype DECISION"""
    snapshot: int
    """The store's number of the tree, or of the request's context."""
    edition: int
    """The crowd's edition; 0: users learn alone."""


class Decider:
    """A plan, the states of users, and what is needed to draw.

    Parameters
    ----------
    plan
        The policy, made ready.
    policy, catalogue, store
        The policy itself, the items, and where the events are.
    seed
        Where draws come from; None: from the store's secret.
    memory
        Bytes for the states of users.
    spare
        Free places of every leaf, as a share of its items; 0: none, and nothing can be added or removed.
    """

    def __init__(
        self,
        plan: Plan,
        policy: Policy,
        catalogue: Catalogue,
        store: EventStore,
        seed: int | None,
        memory: int,
        spare: float,
    ) -> None:
        dim = plan.items.shape[1]
        self._store, self._rule, self.metric = store, policy.bandit.rule(dim), policy.metric(dim)
        numbers = number_items(store, catalogue.ids)
        digest = blake2b(np.ascontiguousarray(numbers[plan.tree.items]).data, digest_size=16)
        for array in (plan.tree.first_child, plan.tree.item_range):
            digest.update(np.ascontiguousarray(array).data)
        try:
            self.number = named = number_snapshot(store, digest.hexdigest())
        except StoreError:  # all numbers are taken: events then do not record the nodes of this tree
            self.number, named = NAMELESS, -1
        self.slack: Slack | None = None
        places, rows = np.arange(len(catalogue), dtype=np.int32), plan.tree.items
        if spare > 0:
            plan, self.slack, places = with_slack(plan, spare, self.metric)
        self.positions = ItemPositions(rows, places, numbers)
        self.flags = self.slack.flags if self.slack is not None else Flags.none()
        """Places that may be shown."""
        self.contexts = Contexts(store, self.number, policy.features, dim)
        self.plan = plan = plan._replace(gates=self.contexts.gates)
        self.states = UserStates(plan, store, self.positions, self.contexts, named, memory)
        hidden = blake2b(store.identities.secret, digest_size=8, person=b"draws").digest()
        self._seed = int.from_bytes(hidden, "little") >> 1 if seed is None else seed
        self._begun, self._call_stream = 0, rng.stream("calls", begin(store.metadata))
        leaves = np.diff(plan.tree.first_child) == 0
        self._largest = int(np.diff(plan.tree.item_range[leaves]).max())
        self._room = scratch(plan), Trace.empty(MOST_STEPS)
        self._rooms: list[tuple[Floats, Candidates, Trace]] = []
        """What further threads need, one after the other: a matrix to unpack A^-1 into, and working memory."""
        nobody = np.zeros(0, dtype=np.int64)
        self._nobody = Batch(nobody, nobody, nobody, *nothing_closed(0))
        self._kernel = self._bound(plan)
        if plan.once:  # compiled now, not by the first call that shows something
            add_shown(plan, self.states.state, nobody, np.zeros((0, 1), dtype=np.int32))
        self.edition: CrowdEdition | None = None
        """The crowd's edition that is installed."""
        self._replaced: list[int] = []
        """Places that got another item since `with_edition` was called."""
        self._held: OrderedDict[int, Plan] = OrderedDict()

    def _bound(self, plan: Plan) -> Chooser:
        return bound_chooser(plan, self.states.state, self._nobody, self._room, empty(0))

    # --- editions of the crowd ---------------------------------------------------------------------------------------

    def with_edition(self, edition: CrowdEdition) -> Plan:
        """Return the plan with an edition of the crowd; takes a while, and needs no lock."""
        self._replaced.clear()
        return edition.apply_to(self.plan, self.positions.place_of_number, self.flags.open, self._rule)

    def install(self, edition: CrowdEdition, plan: Plan) -> None:
        """Decide by an edition of the crowd from now on; `plan` is what `with_edition` returned."""
        self.edition = edition
        if self._replaced:  # by other items in the meantime
            plan.crowd.offset[self._replaced] = 0.0
            if len(plan.bonus):
                plan.bonus[self._replaced] = edition.new_item_bonus(plan.items[self._replaced], self._rule)
            _renew_liked(plan)
        self.plan = plan = plan._replace(gates=self.contexts.gates)
        self.states.install(plan, edition.number)
        self._kernel = self._bound(plan)
        self._held[edition.number] = plan
        size = plan.crowd.offset.nbytes + plan.bonus.nbytes + plan.crowd.crest.nbytes
        while len(self._held) > max(1, min(_HELD, _HELD_BYTES // max(1, size))):
            self._held.popitem(last=False)

    def place_new_items(self, places: NDArray[np.int64], vectors: Floats) -> None:
        """Let the crowd know nothing of the items at these places: they have just been added, with these vectors."""
        self.plan.bonus[places] = 0.0
        if self.edition is not None:
            self.plan.crowd.offset[places] = 0.0
            self.plan.bonus[places] = self.edition.new_item_bonus(vectors, self._rule)
            self._replaced += places.tolist()
            _renew_liked(self.plan)

    # --- deciding ----------------------------------------------------------------------------------------------------

    def decide(self, users: Sequence[User], n: int, closed: Closed, context: Context | None = None) -> Call:
        """Decide n times for each user; raise `NothingLeft`, and change nothing, if there are too few items."""
        snapshot, gate = self.contexts.of(context) if self.contexts.any or context else (self.number, None)
        count, most = len(users), self.states.most
        nonces = self._nonces(count)
        call = Call(nonces, np.zeros(count, dtype=np.int64), empty(count * n), snapshot, self.states.edition)
        for first in range(0, count, most):
            last = min(count, first + most)
            seats = self.states.seat(users[first:last])
            call.events[first:last] = self.states.seen(seats)
            part, here = call.decisions[first * n : last * n], closed._replace(ends=closed.ends[first : last + 1])
            streams, state = self.states.streams[seats], self.states.state
            if gate is None:
                self._choose(state, seats, streams, nonces[first:last], n, here, self._room, part)
                continue
            with _through(state.posterior, seats, gate):
                self._choose(state, seats, streams, nonces[first:last], n, here, self._room, part)
        if call.decisions["place"].min() < 0:
            at = int(np.argmax(call.decisions["place"] < 0))
            raise NothingLeft(f"{n} item(s) were asked for, but only {at % n} may be shown to {users[at // n]!r}")
        return call

    def adopt(self, user: User, rows: NDArray[np.int64], context: Context | None = None) -> Call:
        """Return decisions for the items of these rows, which another system chose."""
        nonces, known = self._nonces(1), np.array(self._store.counts([user]))
        call = Call(nonces, known, empty(len(rows)), self.contexts.of(context)[0], self.states.edition)
        call.decisions["item"], call.decisions["node"] = rows, -1
        call.decisions["mean"] = call.decisions["width"] = np.nan
        call.decisions["propensity"], call.decisions["exact"] = 1.0, True
        return call

    def _nonces(self, count: int) -> NDArray[np.int64]:
        counters = np.arange(self._begun, self._begun + count)
        self._begun += count
        return rng.lanes(self._seed, np.full(count, self._call_stream), counters) >> SLOT_BITS << SLOT_BITS

    def state_after(self, events: Events, plan: Plan | None = None) -> State:
        """Return a state, in seat 0, that knows these events of a user; by default under the present plan."""
        return _state_after(self.states.plan_with_gates() if plan is None else plan, events)

    def repeat(self, user: User, decision: SealedDecision, closed: Closed) -> tuple[State, Trace, int]:
        """Decide again, with a trace of every step: return the state of then, the trace and the place.

        If the edition of the crowd that it was made by is no longer held, the latest is used instead.
        """
        seat = np.zeros(1, dtype=np.int64)
        now = self.states.plan_with_gates()
        plan = self.plan if decision.edition == self.states.edition else self._held.get(decision.edition)
        plan = (plan or now)._replace(gates=now.gates)
        [events] = self._store.read([user])
        state = _state_after(plan, self.states.events_for_plan(events[: decision.events]))
        candidates = scratch(self.plan)  # not the shared one: other threads may be deciding
        trace = Trace.empty(MOST_STEPS, len(candidates.arm))
        out = empty(decision.slot + 1)
        stream, call = np.array([rng.stream("user", decision.user)]), np.array([decision.call])
        with _through(state.posterior, seat, self.contexts.gate_at(decision.snapshot)):
            room = candidates, trace
            self._choose(state, seat, stream, call, decision.slot + 1, closed, room, out, chooser(plan))
        return state, trace, int(out["place"][-1])

    def rehearse(self, user: User, state: State, nonce: int) -> None:
        """Decide once for a user whose state is in seat 0, and discard the decision."""
        none = np.zeros(0, dtype=np.int32)
        closed = Closed(none, False, self.flags, none, np.zeros(2, dtype=np.int64))
        stream, call = np.array([rng.stream("user", user)]), np.array([nonce << SLOT_BITS])
        self._choose(state, np.zeros(1, dtype=np.int64), stream, call, 1, closed, self._room, empty(1))

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
        lanes, none = rng.lanes(self._seed, streams, nonces), np.zeros(len(seats), dtype=np.int64)

        def choose(first: int, last: int, state: State, room: tuple[Candidates, Trace]) -> None:
            screen = Screen.of(closed.named, closed.only, closed.flags, most)
            some = slice(first, last)
            batch = Batch(seats[some], lanes[some], none[some], closed.extra, closed.ends[first : last + 1])
            decisions = out[first * n : last * n]
            (kernel or self._kernel)(state, batch, n, closed.diverse, screen, self._seed, *room, decisions)

        threads = len(seats) // _LEAST_PER_THREAD
        threads = min(_MOST_THREADS, cores(), threads) if threads > 1 else 1
        if threads < 2:
            choose(0, len(seats), state, room)
            return
        bounds = [len(seats) * k // threads for k in range(threads + 1)]
        others = [
            _helpers().submit(choose, bounds[k], bounds[k + 1], *self._apart(k, state)) for k in range(1, threads)
        ]
        try:
            choose(0, bounds[1], state, room)
        finally:
            wait(others)  # they use what the caller has locked
        for other in others:
            other.result()

    def _apart(self, number: int, state: State) -> tuple[State, tuple[Candidates, Trace]]:
        """Return the state and the working memory that one of several threads uses."""
        while len(self._rooms) < number:
            self._rooms.append((np.zeros_like(state.posterior.inverse), scratch(self.plan), Trace.empty(MOST_STEPS)))
        inverse, candidates, trace = self._rooms[number - 1]
        return state._replace(posterior=state.posterior._replace(inverse=inverse)), (candidates, trace)


@cache
def _helpers() -> ThreadPoolExecutor:
    """Return the threads that decide together with the one that calls."""
    return ThreadPoolExecutor(_MOST_THREADS - 1, thread_name_prefix="treeward-decide")


register_at_fork(after_in_child=_helpers.cache_clear)  # a child process has none of these threads


def _renew_liked(plan: Plan) -> None:
    """Copy again what is kept apart of the items that the crowd likes best: some places hold other items now."""
    crowd = plan.crowd
    crowd.liked[:] = rows_together(crowd.top, plan.items, crowd.offset, plan.bonus)


@contextmanager
def _through(posterior: Posterior, seats: NDArray[np.int64], gate: Floats | None) -> Iterator[None]:
    """Multiply theta and A^-1 of some seats by a gate for a while, as if it were applied to all vectors."""
    if gate is None:
        yield
        return
    factors = np.outer(gate, gate)
    if posterior.compact:
        held, factors = posterior.packed, factors[np.tril_indices(len(gate))]
    else:
        held = posterior.inverse
    inverse, theta = held[seats], posterior.theta[seats]
    held[seats], posterior.theta[seats] = inverse * factors, theta * gate
    try:
        yield
    finally:
        held[seats], posterior.theta[seats] = inverse, theta


def _state_after(plan: Plan, events: Events) -> State:
    state, seat = empty_state(plan, 1, 0), np.zeros(1, dtype=np.int64)
    reset_users(plan, state, seat)
    return apply_events(plan, state, seat, np.array([0, len(events.kind)]), events)


def empty(count: int) -> AnyArray:
    """Return room for a number of decisions."""
    return np.zeros(count, dtype=DECISION)
