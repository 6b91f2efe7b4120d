"""`Inspection`: what an explorer knows, read from one snapshot. Nothing here changes a decision."""

import re
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from threading import RLock
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core import checks
from treeward.core.errors import InvalidArgument, TreewardError, UnknownDecision, UnknownId
from treeward.core.progress import Progress, silent
from treeward.core.types import AnyArray, Integers
from treeward.data.catalogue import Catalogue, Id
from treeward.engine.layout import Plan
from treeward.explorer import estimates, records
from treeward.explorer import health as tree_health
from treeward.explorer.filters import Exclude, Where
from treeward.explorer.health import Fitness, Health
from treeward.explorer.item_counts import ItemCounts
from treeward.explorer.log import decision_log
from treeward.explorer.rewards import Rewards
from treeward.explorer.snapshot import Request, Snapshot
from treeward.explorer.state_check import StateCheck, check_states
from treeward.store.base import User, everyone
from treeward.store.events import AMENDED, CHANGE, NOTED, REWARD, SHOWN
from treeward.tree.item_tree import ItemTree

_KINDS = {SHOWN: "shown", REWARD: "reward", CHANGE: "change", NOTED: "noted", AMENDED: "noted change"}
_SOME_ITEMS = 20


class Inspection:
    """Reads one snapshot of an `Explorer`; get one with `Explorer.inspect`.

    All calls on one inspection refer to the same tree and the same numbering of items, even if the explorer has been
    rebuilt since. Items that are added to or removed from that snapshot in the meantime do show.
    """

    def __init__(self, snapshot: Snapshot, lock: RLock, rewards: Rewards, item_counts: ItemCounts | None) -> None:
        self._snapshot, self._lock, self._rewards, self._item_counts = snapshot, lock, rewards, item_counts
        self._store, self._decider = snapshot.setup.store, snapshot.decider

    # --- the items ---------------------------------------------------------------------------------------------------

    @property
    def catalogue(self) -> Catalogue:
        """The items, including removed ones; a row keeps its number in this snapshot."""
        return self._snapshot.catalogue

    @property
    def tree(self) -> ItemTree:
        """The tree of this snapshot, as it was when the snapshot was made."""
        return self._snapshot.tree

    @property
    def page(self) -> int:
        """How many pages of changes to the items this snapshot knows."""
        return self._snapshot.page

    @property
    def number(self) -> int:
        """The store's number of the tree."""
        return self._decider.number

    def __len__(self) -> int:
        """Return how many items may be shown."""
        return len(self._snapshot)

    def __contains__(self, item: Id) -> bool:
        """Return whether an item may be shown."""
        return item in self._snapshot

    def may_show(self, rows: AnyArray) -> NDArray[np.bool_]:
        """Return which of these rows hold items that may be shown."""
        with self._lock:
            places = self._decider.positions.place_of_row[rows]
            return (places >= 0) & self._snapshot.open_places[places]

    def may_show_to(
        self, user: User, exclude: Iterable[Id] = (), allow: Iterable[Id] | None = None, where: Where | None = None
    ) -> NDArray[np.bool_]:
        """Return which of the catalogue's rows a call with these filters may show to a user."""
        with self._lock:
            snapshot, positions, plan = self._snapshot, self._decider.positions, self._decider.plan
            named, only, flags = snapshot.filters.base(allow, where)
            extra, _ = snapshot.filters.extra(list(exclude), [user])
            place_of = positions.place_of_row
            places = np.zeros(len(snapshot.rows), dtype=np.bool_)
            if only:
                places[named] = True
            else:
                places[:] = flags.open if len(flags.open) else True
        places[extra] = False
        if plan.once:
            events = self._store.read([user])[0]
            numbers = events["item"][events["kind"] == SHOWN][-plan.rest :] if plan.rest else events["item"]
            met = positions.places(numbers)
            places[met[met >= 0]] = False
        return places[place_of] & (place_of >= 0)

    def was_removed(self, item: Id) -> bool:
        """Return whether an item was in the catalogue and has been removed."""
        try:
            self.catalogue.row(item)
        except UnknownId:
            return False
        return item not in self

    def sizes(self, nodes: Integers | slice = slice(None)) -> NDArray[np.int64]:
        """Return how many items under each of these nodes, or of all, may be shown."""
        return self._snapshot.sizes(nodes)

    def items_of(self, node: int) -> Integers:
        """Return the catalogue's rows of the items under a node that may be shown."""
        self._check(node)
        with self._lock:  # an item that is being added is incomplete until then
            return self._snapshot.inside(node)

    def rows_of(self, numbers: AnyArray) -> NDArray[np.int64]:
        """Return the catalogue's rows of the store's item numbers, -1 for items that the catalogue does not have."""
        return self._decider.positions.rows(numbers)

    def path_of(self, row: int) -> tuple[int, ...]:
        """Return the nodes from below the root to the leaf of a row; nothing if its item is in another row now."""
        return self._snapshot.path_of(row)

    # --- users and decisions -----------------------------------------------------------------------------------------

    def log(self) -> pl.DataFrame:
        """Return every recorded decision; see `Explorer.log`."""
        with self._lock:
            return decision_log(self._store, self.catalogue, self._decider.positions, self._decider.contexts.told)

    def explain(
        self,
        decision: records.Decision | str,
        *,
        exclude: Exclude | None = None,
        allow: Iterable[Id] | None = None,
        where: Where | None = None,
        diverse: bool = False,
    ) -> records.Explanation:
        """Return how a decision was made; see `Explorer.explain`."""
        id = decision.id if isinstance(decision, records.Decision) else decision
        user, made = self._rewards.decision_of(id)
        if user != made.user:
            raise UnknownDecision(f"the decision {id[:12]}... is of a user who was merged with another since")
        with self._lock:
            snapshot, decider, shop, tree = self._snapshot, self._decider, self.catalogue, self.tree
            row = int(self.rows_of(np.array([made.item]))[0])
            if row < 0:
                raise UnknownDecision(f"the decision {id[:12]}... is for an item that the catalogue does not have")
            if made.node < 0:  # adopted: there was nothing to choose
                return records.Explanation(made.user, shop.ids[row], estimates.item_name(shop, row), [], False, [])
            closed = snapshot.closed([made.user], Request(exclude, allow, where, diverse))
            state, trace, place = decider.repeat(user, made, closed)
            steps = estimates.steps_of(decider.plan, state, trace, tree, shop)
            # In a context it is not recorded which tree the node belongs to: the item's own leaf is used instead.
            in_context = decider.contexts.told(made.snapshot) is not None
            known = in_context or made.snapshot == decider.number
            path = snapshot.path_of(row) if in_context else snapshot.path(made.node if known else -1)
            way = estimates.way_to(decider.plan, state, tree, path)
            same = known and place >= 0 and int(decider.plan.tree.items[place]) == row
            return records.Explanation(made.user, shop.ids[row], estimates.item_name(shop, row), steps, same, way)

    def interests(self, user: User, *, level: int = 2) -> list[records.Interest]:
        """Return what is known of a user: the visible nodes of pHCB, or the nodes of one level, best mean first.

        Parameters
        ----------
        user
            Any user; for an unknown user, only the prior is known.
        level
            For a policy without visible nodes: which level of the tree; the root is on level 1.
        """
        [who] = checks.users("Inspection.interests", [user])
        checks.integer("Inspection.interests", "level", level, low=2, high=max(2, int(self.tree.level[-1])))
        with self._lock:
            states, plan = self._decider.states, self._decider.plan
            [seat] = states.seat([who]).tolist()
            events = states.events_for_plan(self._store.read([who])[0])
            return estimates.interests_of(plan, states.state, seat, events, self.tree, level, self.sizes())

    def field(self, user: User, *, node: int = 0, upto: int | None = None) -> records.Field:
        """Return what is known of a user's interest in the nodes around one, now or after the first `upto` events.

        Parameters
        ----------
        user
            Any user; for an unknown user, only the prior is known.
        node
            The node in the middle: three levels below it or, under pHCB, as far down as the user's field is open.
        upto
            How many of the user's events to use; all of them by default.
        """
        [who] = checks.users("Inspection.field", [user])
        self._check(node)
        # The state is computed from a copy of the events, outside the lock: no decision waits for it.
        [held] = self._store.read([who])
        last = len(held) if upto is None else checks.integer("Inspection.field", "upto", upto, low=0, high=len(held))
        with self._lock:
            events = self._decider.states.events_for_plan(held[:last])
            plan = self._decider.states.plan_with_gates()  # the next edition of the crowd may replace it at any time
        state = self._decider.state_after(events, plan)
        made = estimates.field_of(plan, state, events, self.tree, self.sizes(), node)
        told = self.events(held[:last][-1:])
        return records.Field(
            who, last, len(held), made.opened, told[0] if told else None, self.path_to(node),
            self._columns(made.node, plan), made.visible.tolist(), _short(made.mean), _short(made.width),
            made.visits.tolist(), _short(made.reward),
        )  # fmt: skip

    def events(self, events: AnyArray) -> list[records.Event]:
        """Return the store's events as records."""
        shop, rows = self.catalogue, self.rows_of(events["item"]).tolist()
        return [
            records.Event(
                _KINDS[kind], shop.ids[row] if row >= 0 else None, self._title(row) if row >= 0 else None,
                None if kind == SHOWN else reward, when or None,
            )
            for row, kind, reward, when in zip(
                rows, *(events[name].tolist() for name in ("kind", "reward", "time")), strict=True
            )
        ]  # fmt: skip

    def recent_users(self, most: int) -> list[User]:
        """Return users who have events and whose state is in memory, the most recently active first."""
        with self._lock:
            recent = self._decider.states.recent(most)
        # Another explorer on the same store may have erased some of them.
        return [user for user, count in zip(recent, self._store.counts(recent), strict=True) if count]

    def find_users(self, text: str, n: int) -> records.UserList:
        """Return at most n users whose name contains a text, the most recently active first."""
        store, text = self._store, text.strip()
        known, recent = list(everyone(store)), self.recent_users(4 * n)
        if not text:
            return records.UserList(list(islice(dict.fromkeys([*recent, *known[:n]]), n)), len(known))
        exact: list[User] = [text]
        if re.fullmatch("-?[0-9]{1,19}", text):
            exact.append(int(text))
        named = [user for user, count in zip(exact, store.counts(exact), strict=True) if count]
        found = (user for user in (*recent, *known) if text.lower() in str(user).lower())
        return records.UserList(list(islice(dict.fromkeys([*named, *islice(found, 2 * n)]), n)), len(known))

    # --- the tree and its items, as records --------------------------------------------------------------------------

    def node(self, node: int) -> records.NodeView:
        """Return a node of the tree."""
        self._check(node)
        tree, parent, inside = self.tree, int(self.tree.parent[node]), self.items_of(node)
        return records.NodeView(
            node, estimates.node_name(tree, node), int(tree.level[node]), parent if parent >= 0 else None, len(inside),
            list(tree.children_of(node)), self.catalogue.ids[np.asarray(inside[:_SOME_ITEMS])].to_list(),
        )  # fmt: skip

    def map(self, node: int) -> records.NodeMap:
        """Return a node and the nodes worth drawing of the three levels below it."""
        self._check(node)
        nodes = estimates.around(self.tree, self.sizes(), node)
        return records.NodeMap(node, int(self.tree.level[node]), self.path_to(node), self.nodes(nodes))

    def children(self, node: int, *, after: int = 0, n: int = 50) -> records.NodeList:
        """Return n of a node's children, the largest first, without the first `after`."""
        self._check(node)
        below = np.arange(self.tree.first_child[node], self.tree.first_child[node + 1], dtype=np.int32)
        largest = below[np.argsort(-self.sizes(below), kind="stable")]
        return records.NodeList(len(below), self.nodes(largest[after : after + n]))

    def items(self, node: int, *, after: int = 0, n: int = 50) -> records.ItemList:
        """Return n of the items under a node, without the first `after`."""
        rows = self.items_of(node)
        return records.ItemList(len(rows), self._listed(rows[after : after + n]))

    def item(self, item: Id) -> records.ItemView:
        """Return an item."""
        shop = self.catalogue
        row = shop.row(item)
        if item not in self:
            raise UnknownId(f"the item {item!r} was removed")
        held: dict[str, Any] = shop.some([row]).row(0, named=True)
        plain = {name: value for name, value in held.items() if isinstance(value, str | int | float | bool | None)}
        return records.ItemView(shop.ids[row], self._title(row), plain, list(self.path_of(row)))

    def find(self, text: str, n: int) -> records.Found:
        """Return at most n items with this id or text in their title, and n nodes with it in their name."""
        text, tree = text.strip(), self.tree
        if not text:
            return records.Found([], 0, [], 0)
        rows = self._rows_with(text)
        nodes = _containing(pl.Series(tree.names if tree.names is not None else [], dtype=pl.String), text)
        if re.fullmatch(r"(node )?\d{1,9}", text) and int(text.split()[-1]) < len(tree.parent):
            nodes = np.unique(np.append(nodes, int(text.split()[-1])))
        size = self.sizes()
        best = nodes[np.argsort(-size[nodes], kind="stable")[:n]]
        found = [records.FoundNode(node, _name(tree, node), int(size[node])) for node in best.tolist()]
        return records.Found(self._listed(rows[:n]), len(rows), found, len(nodes))

    def nodes(self, nodes: Integers) -> records.Nodes:
        """Return nodes as columns."""
        return self._columns(nodes, self._decider.plan)

    def _columns(self, nodes: Integers, plan: Plan) -> records.Nodes:
        """Return nodes as columns, with the crowd's means by a plan."""
        tree = self.tree
        counts = self.node_counts(nodes) if self._item_counts is not None else None
        crowd = _crowd_means(plan)[0][nodes] if self.has_crowd else np.zeros(0)
        return records.Nodes(
            nodes.tolist(), tree.parent[nodes].tolist(), [_name(tree, node) for node in nodes.tolist()],
            self.sizes(nodes).tolist(), np.diff(tree.first_child)[nodes].tolist(),
            counts.shown.tolist() if counts else [], _short(counts.earned) if counts else [], _short(crowd),
        )  # fmt: skip

    def path_to(self, node: int) -> list[records.NodeName]:
        """Return the nodes from the root to a node."""
        return [records.NodeName(one, _name(self.tree, one)) for one in (0, *self._snapshot.path(node))]

    def _listed(self, rows: AnyArray) -> list[records.ListedItem]:
        shop, counts = self.catalogue, records.Counts(np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows)))
        if self._item_counts is not None:
            counts = self.item_counts(rows)
        return [
            records.ListedItem(shop.ids[row], self._title(row), shown, earned)
            for row, shown, earned in zip(rows.tolist(), counts.shown.tolist(), counts.earned.tolist(), strict=True)
        ]

    def _title(self, row: int) -> str | None:
        return estimates.item_name(self.catalogue, row) if self.catalogue.titles is not None else None

    def _rows_with(self, text: str) -> AnyArray:
        """Return the rows of items with this id, then those whose title (or id, if there are none) contains it."""
        shop = self.catalogue
        integers = shop.ids.dtype.is_integer()
        exact = []
        with suppress(ValueError, TreewardError):
            exact.append(shop.row(int(text) if integers else text))
        held = shop.titles if shop.titles is not None else (pl.Series([], dtype=pl.String) if integers else shop.ids)
        rows = _containing(held.cast(pl.String), text)
        found: AnyArray = np.concatenate([np.array(exact, dtype=np.int64), rows[~np.isin(rows, exact)]])
        return found[self.may_show(found)]

    def _check(self, node: int) -> None:
        last = len(self.tree.parent) - 1
        if not isinstance(node, int | np.integer) or not 0 <= node <= last:
            raise UnknownId(f"the tree has no node {node}; its nodes are 0 to {last}")

    # --- counts and the crowd ----------------------------------------------------------------------------------------

    def item_counts(self, rows: AnyArray | slice = slice(None)) -> records.Counts:
        """Return how often the items of these rows, or all, were shown, and the sum of their rewards."""
        if self._item_counts is None:
            raise InvalidArgument("Explorer", "counts", "True from the start, so that items are counted", False)
        return records.Counts(*self._item_counts.read(self._decider.positions.number_of_row[rows]))

    def node_counts(self, nodes: Integers) -> records.Counts:
        """Return how often the items under each of these nodes were shown, and the sum of their rewards."""
        with self._lock:
            places = np.flatnonzero(self._snapshot.open_places)
            at = np.searchsorted(places, self._decider.plan.tree.item_range[nodes]).astype(np.int32)
            counts = self.item_counts(self._snapshot.rows[places])
        return records.Counts(_sums(counts.shown, at), _sums(counts.earned, at))

    def totals(self) -> records.Totals:
        """Return how many items were ever shown, and the rewards since the start."""
        assert self._item_counts is not None
        return records.Totals(self._item_counts.covered(), self._item_counts.rewards, self._item_counts.earned)

    def items_earning(self, amount: float) -> int:
        """Return how many items have rewards that add up to an amount, removed items among them."""
        assert self._item_counts is not None
        return self._item_counts.reaching(amount)

    @property
    def has_crowd(self) -> bool:
        """Whether users also learn from each other."""
        return self._snapshot.setup.crowd is not None

    def crowd_means(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the expected reward of each node for a new user, and how much of it its items add to their vectors."""
        return _crowd_means(self._decider.plan)

    # --- health ------------------------------------------------------------------------------------------------------

    def fitness(self) -> Fitness:
        """Return how far the items have moved away from what the tree was made for; takes little time."""
        with self._lock:
            return tree_health.fitness(self._snapshot)

    def health(self, *, users: int = 100, compare: bool = True, progress: Progress | None = None) -> Health:
        """Return how well the tree still fits its items, and whether rebuilding it would pay.

        Parameters
        ----------
        users
            For how many recent users the best item is searched, in the tree and in the whole catalogue.
        compare
            Build a new tree to compare with; without it, only what has changed is reported.
        progress
            Called with (stage, done, total) as it is built.
        """
        if not len(self):
            raise InvalidArgument("Inspection.health", "items", "at least one that may be shown", "none")
        return tree_health.health(self._snapshot, self._lock, users, compare, progress)

    def check_states(self, users: int = 1_000, progress: Progress = silent) -> StateCheck:
        """Compute users' states twice and compare: event by event as they came, and at once from the log.

        States that the store keeps are compared with the log as well, for all users.

        Parameters
        ----------
        users
            At most this many users are rebuilt twice, spread evenly over all of them.
        progress
            Called with (stage, done, total).
        """
        most = checks.integer("Inspection.check_states", "users", users, low=1)
        with self._lock:
            return check_states(self._decider, self._store, most, progress)


def _name(tree: ItemTree, node: int) -> str:
    return estimates.node_name(tree, node)[: estimates.LONGEST_NAME]


def _crowd_means(plan: Plan) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the expected reward of each node for a new user, and how much of it its items add to their vectors."""
    offset = plan.crowd.node_offset if len(plan.crowd.node_offset) else np.zeros(len(plan.nodes), dtype=np.float32)
    means: NDArray[np.float32] = (plan.nodes @ plan.prior.theta + offset).astype(np.float32)
    return means, offset


def _sums(values: AnyArray, ranges: Integers) -> AnyArray:
    """Return the sum of values first:last for each row of `ranges`."""
    upto = np.concatenate([np.zeros(1, dtype=values.dtype), np.cumsum(values)])
    found: AnyArray = upto[ranges[:, 1]] - upto[ranges[:, 0]]
    return found


def _containing(texts: pl.Series, part: str) -> AnyArray:
    """Return which of some texts contain another, ignoring case."""
    found = texts.str.contains("(?i)" + pl.escape_regex(part))
    return found.fill_null(False).arg_true().to_numpy().astype(np.int64)


def _short(values: AnyArray) -> list[float]:
    """Return numbers of six digits: more cannot be seen, and JSON gets long."""
    return [float(f"{value:.6g}") for value in values.tolist()]
