"""The looking half of an explorer: what was decided, why, and what is known of whom; nothing here changes anything."""

from collections.abc import Iterable
from threading import RLock

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core import checks
from treeward.core.errors import InvalidArgument, UnknownDecision, UnknownId
from treeward.core.progress import Progress, silent
from treeward.core.types import AnyArray, Integers
from treeward.data.catalogue import Catalogue, Id
from treeward.engine.places import leaf_at
from treeward.explorer.decider import Closed, Decider
from treeward.explorer.edition import Edition
from treeward.explorer.filters import Exclude, Where
from treeward.explorer.ledger import Ledger
from treeward.explorer.log import decision_log
from treeward.explorer.looks import Counts, Decision, Explanation, Interest, item_name, steps_of, survey, way_to
from treeward.explorer.maps import Field, field
from treeward.explorer.names import users_of
from treeward.explorer.rebuilt import StateCheck, check_states
from treeward.explorer.tally import Tally, sums
from treeward.store.base import EventStore, User
from treeward.store.events import SHOWN
from treeward.tree.item_tree import ItemTree


class Views:
    """What can be looked at of an `Explorer`."""

    store: EventStore
    ledger: Ledger
    _now: Edition
    _lock: RLock
    _tally: Tally | None

    def view(self) -> "Views":
        """Return what can be looked at as it is laid out now.

        A tree that is rebuilt, and rows that are numbered otherwise, do not reach it: what several calls on it return
        fits together. Items that come and go in the meantime do, as long as nothing is laid out again.
        """
        made = Views()
        made.store, made.ledger, made._now, made._lock, made._tally = (
            self.store, self.ledger, self._now, self._lock, self._tally,
        )  # fmt: skip
        return made

    @property
    def catalogue(self) -> Catalogue:
        """The items, those that are gone among them; a row keeps its number until the tree is laid out anew."""
        return self._now.catalogue

    @property
    def tree(self) -> ItemTree:
        """The tree the policy walks, as it was last laid out; `sizes` and `items_of` tell what is in it now."""
        return self._now.tree

    @property
    def _decider(self) -> Decider:
        return self._now.decider

    @property
    def page(self) -> int:
        """How many pages of changes to the items were read."""
        return self._now.page

    def __len__(self) -> int:
        """Return how many items may be shown."""
        return len(self._now)

    def __contains__(self, item: Id) -> bool:
        """Tell whether an item may be shown."""
        return self._now.contains(item)

    def are_open(self, rows: AnyArray) -> NDArray[np.bool_]:
        """Tell which of some rows are of items that may be shown."""
        with self._lock:
            now = self._now
            places = now.decider.roster.place_of[rows]
            return (places >= 0) & now.open_places[places]

    def is_gone(self, item: Id) -> bool:
        """Tell whether an item was there, and was taken away."""
        now = self._now
        try:
            now.catalogue.row(item)
        except UnknownId:
            return False
        return not now.contains(item)

    def sizes(self, nodes: Integers | slice = slice(None)) -> NDArray[np.int64]:
        """Return how many items under each of some nodes, or of all, may be shown."""
        return self._now.sizes(nodes)

    def items_of(self, node: int) -> Integers:
        """Return the catalogue's rows of the items under a node that may be shown."""
        now = self._now
        checks.integer("Explorer.items_of", "node", node, low=0, high=len(now.tree.parent) - 1)
        with self._lock:  # an item that comes in is not all there before
            return now.inside(node)

    @property
    def snapshot(self) -> int:
        """The store's number of the tree that decisions are made on."""
        return self._decider.snapshot

    def rows_of(self, numbers: AnyArray) -> NDArray[np.int64]:
        """Return the catalogue's rows of the store's item numbers, -1 for items the catalogue does not have."""
        return _rows_of(self._now, numbers)

    def open_to(
        self, user: User, exclude: Iterable[Id], allow: Iterable[Id] | None, where: Where | None
    ) -> tuple[Catalogue, NDArray[np.bool_]]:
        """Return the catalogue, and which of its rows a user may be shown."""
        with self._lock:
            now = self._now
            named, only, flags = now.filters.base(allow, where)
            extra, _ = now.filters.extra(list(exclude), [user])
            place_of = now.decider.roster.place_of
            places = np.zeros(len(now.rows), dtype=np.bool_)
            if only:
                places[named] = True
            else:
                places[:] = flags.open if len(flags.open) else True
        places[extra] = False
        plan = now.decider.plan
        if plan.once:
            events = self.store.read([user])[0]
            numbers = events["item"][events["kind"] == SHOWN][-plan.rest :] if plan.rest else events["item"]
            known = now.decider.roster.places
            met = known[numbers[numbers < len(known)]]
            places[met[met >= 0]] = False
        return now.catalogue, places[place_of] & (place_of >= 0)

    def _closed(
        self,
        users: list[User],
        exclude: Exclude | None,
        allow: Iterable[Id] | None,
        where: Where | None,
        diverse: bool,
    ) -> Closed:
        """Return what a call may not show."""
        spread = checks.flag("Explorer", "diverse", diverse)
        filters = self._now.filters
        return Closed(*filters.base(allow, where), *filters.extra(exclude, users), spread)

    def path_of(self, row: int) -> tuple[int, ...]:
        """Return the nodes from below the root to the leaf of a catalogue row."""
        return _path_of(self._now, row)

    def _path(self, node: int) -> tuple[int, ...]:
        """Return the nodes from below the root to a node."""
        return _path(self._now, node)

    def log(self) -> pl.DataFrame:
        """Return every decision that was recorded: user, item, row, slot, propensity, exact, adopted, reward, context.

        Adopted: somebody else chose the item, as for users held out or from a caller's fallback (see `adopt`); its
        propensity says nothing, and estimates leave it out. Null: no reward came, nothing was told. Where some users
        are strings and some integers, integers are written ``int:1``. Needs ``exposures="all"`` or ``repeats=False``,
        from before the decisions were made. Items the catalogue does not have are left out. `off_policy` and
        `write_open_bandit` take it from here.
        """
        with self._lock:
            shop, decider = self._now.catalogue, self._now.decider
            return decision_log(self.store, shop, decider.roster.row_of, decider.contexts.told)

    def check_states(self, users: int = 1_000, progress: Progress = silent) -> StateCheck:
        """Compute users' states twice and compare: event by event as they came, and at once from the log.

        States that the store remembers are compared with the log as well, for all users.

        Parameters
        ----------
        users
            At most so many users are rebuilt twice, spread evenly over all of them.
        progress
            Called with (stage, done, total).
        """
        most = checks.integer("Explorer.check_states", "users", users, low=1)
        with self._lock:
            return check_states(self._decider, self.store, most, progress)

    def explain(
        self,
        decision: Decision | str,
        *,
        exclude: Exclude | None = None,
        allow: Iterable[Id] | None = None,
        where: Where | None = None,
        diverse: bool = False,
    ) -> Explanation:
        """Tell how a decision, or the id of one, came about, by deciding again with what was known then.

        If the call had filters, or was to be `diverse`, give the same again. What was adopted has no steps. Decisions
        for a user who was merged with another since raise `UnknownDecision`: what was known then is mixed with more.
        """
        id = decision.id if isinstance(decision, Decision) else decision
        user, ticket = self.ledger.ticket(id)
        if user != ticket.user:
            raise UnknownDecision(f"the decision {id[:12]}... is of a user who was merged with another since")
        with self._lock:
            now = self._now
            row = int(_rows_of(now, np.array([ticket.item]))[0])
            if row < 0:
                raise UnknownDecision(f"the decision {id[:12]}... is for an item that the catalogue does not have")
            if ticket.node < 0:  # somebody else chose it
                return Explanation(ticket.user, now.catalogue.ids[row], item_name(now.catalogue, row), [], False, [])
            closed = self._closed([ticket.user], exclude, allow, where, diverse)
            decider, shop = now.decider, now.catalogue
            state, trace, place = decider.again(user, ticket, closed)
            steps = steps_of(decider.plan, state, 0, trace, now.tree, shop)
            # In a context it is not written down which tree's node it was: the item's own leaf says it.
            told = decider.contexts.told(ticket.snapshot) is not None
            known = told or ticket.snapshot == decider.snapshot
            path = _path_of(now, row) if told else _path(now, ticket.node if known else -1)
            way = way_to(decider.plan, state, now.tree, path)
            same = known and place >= 0 and int(decider.plan.tree.items[place]) == row
            return Explanation(ticket.user, shop.ids[row], item_name(shop, row), steps, same, way)

    def field(self, user: User, *, node: int = 0, upto: int | None = None) -> Field:
        """Tell what is known of a user's interest in the nodes around one, now or after the first `upto` events.

        Parameters
        ----------
        user
            Anybody; of somebody unknown, only the prior is known.
        node
            Whose surroundings: three levels below it, or, under pHCB, as far down as the user's field is open.
        upto
            How many of the user's events to go by; all of them by default.
        """
        [who] = users_of("Explorer.field", [user])
        now = self._now
        checks.integer("Explorer.field", "node", node, low=0, high=len(now.tree.parent) - 1)
        # A state of its own, from a copy of the events: nobody has to wait for who looks.
        held = self.store.read([who])[0]
        last = len(held) if upto is None else checks.integer("Explorer.field", "upto", upto, low=0, high=len(held))
        with self._lock:
            events = now.decider.seats.seen_by_plan(held[:last])
        state = now.decider.state_after(events)
        return field(now.decider.plan, state, events, now.tree, now.sizes(), node, held)

    def counts(self) -> Counts:
        """Tell how often every item was shown, and what it earned; needs ``counts=True`` from the start."""
        return self.counts_at(slice(None))

    def totals(self) -> tuple[int, int, float]:
        """Tell how many items were ever shown, and, since the start, how many rewards came and what they come to."""
        with self._lock:
            now = self._now
            shown, _ = self._counted(now, now.rows[now.open_places] if now.roomy else slice(None))
        assert self._tally is not None
        return int(np.count_nonzero(shown)), self._tally.rewards, self._tally.gained

    @property
    def has_crowd(self) -> bool:
        """Whether what one user teaches helps all others."""
        return self._now.how.crowd is not None

    def opinions(self) -> tuple[ItemTree, NDArray[np.float32], NDArray[np.float32]]:
        """Return the tree, what a newcomer is expected to think of each node, and what of that is its items' own."""
        now = self._now
        plan = now.decider.plan
        offset = plan.crowd.node_offset if len(plan.crowd.node_offset) else np.zeros(len(plan.nodes), dtype=np.float32)
        means: NDArray[np.float32] = (plan.nodes @ plan.prior.theta + offset).astype(np.float32)
        return now.tree, means, offset

    def counts_of(self, nodes: Integers) -> Counts:
        """Tell how often items under each of some nodes were shown, and what they earned."""
        with self._lock:
            now = self._now
            places = np.flatnonzero(now.open_places)
            at = np.searchsorted(places, now.decider.plan.tree.item_range[nodes]).astype(np.int32)
            return Counts(*(sums(values, at) for values in self._counted(now, now.rows[places])))

    def counts_at(self, rows: AnyArray | slice) -> Counts:
        """Tell how often the items of some rows were shown, and what they earned."""
        return Counts(*self._counted(self._now, rows))

    def _counted(self, now: Edition, rows: AnyArray | slice) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return what was counted of the items of some rows."""
        if self._tally is None:
            raise InvalidArgument("Explorer", "counts", "True, so that there is something to tell", False)
        return self._tally.look(now.decider.roster.numbers[rows])

    def recent_users(self, most: int) -> list[User]:
        """Return whom decisions were asked for lately, the latest first."""
        with self._lock:
            return self._decider.seats.recent(most)

    def interests(self, user: User, *, level: int = 2) -> list[Interest]:
        """Tell what is known of a user: the visible nodes of pHCB, or the nodes of one level of HCB, best mean first.

        Parameters
        ----------
        user
            Anybody; of somebody unknown, only the prior is known.
        level
            For a policy that descends: which level of the tree; the root is on level 1.
        """
        [who] = users_of("Explorer.interests", [user])
        with self._lock:
            now = self._now
            checks.integer("Explorer.interests", "level", level, low=2, high=max(2, int(now.tree.level[-1])))
            seats, plan = now.decider.seats, now.decider.plan
            [seat] = seats.seat([who]).tolist()
            events = seats.seen_by_plan(self.store.read([who])[0])
            return survey(plan, seats.state, seat, events, now.tree, level, now.sizes())


def _rows_of(now: Edition, numbers: AnyArray) -> NDArray[np.int64]:
    """Return the rows of the store's item numbers; -1: none."""
    known = now.decider.roster.row_of
    return np.where(numbers < len(known), known[np.minimum(numbers, len(known) - 1)], -1)


def _path_of(now: Edition, row: int) -> tuple[int, ...]:
    """Return the nodes from below the root to the leaf of a row; nothing if its item is in another row now."""
    places = now.decider.roster.place_of
    place = int(places[row]) if row < len(places) else -1
    tree = now.decider.plan.tree
    return _path(now, leaf_at(tree.first_child, tree.item_range, place)) if place >= 0 else ()


def _path(now: Edition, node: int) -> tuple[int, ...]:
    """Return the nodes from below the root to a node."""
    if node < 0:
        return ()
    if node not in now.paths:
        above = int(now.tree.parent[node])
        now.paths[node] = () if above < 0 else (*_path(now, above), node)
    return now.paths[node]
