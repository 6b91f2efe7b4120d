"""`Snapshot`: a catalogue laid out for deciding, with room for items to be added and removed."""

from collections.abc import Callable, Iterable
from threading import RLock
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core import checks
from treeward.core.errors import InvalidArgument, UnknownId
from treeward.core.progress import Progress
from treeward.core.types import AnyArray, Floats, Integers
from treeward.data.catalogue import Catalogue, Id
from treeward.data.growing_catalogue import GrowingCatalogue
from treeward.embed.features import Context
from treeward.engine.places import leaf_at
from treeward.engine.slack import leave, reopen, settle
from treeward.explorer.decider import Closed, Decider
from treeward.explorer.filters import Exclude, Filters, Where
from treeward.policy.base import Policy, check_lengths
from treeward.store.base import EventStore, User
from treeward.store.numbers import number_items
from treeward.tree import tree_arrays
from treeward.tree.edit import edited
from treeward.tree.item_tree import ItemTree
from treeward.tree.row_groups import Rows

if TYPE_CHECKING:
    from treeward.explorer.crowd_keeper import CrowdKeeper

SPARE = 0.125
"""Free places of a leaf, as a share of its items, once items are added or removed."""
NEW = 100.0
"""An item is new until it was shown this often."""


class Current:
    """The snapshot that is used now. It is read and changed with `lock` held."""

    snapshot: "Snapshot"

    def __init__(self, lock: RLock) -> None:
        self.lock = lock


class Setup(NamedTuple):
    """What every snapshot of an explorer has in common."""

    policy: Policy
    store: EventStore
    once: bool
    rest: int
    seed: int | None
    memory: int
    cold: float
    where: Where | None = None
    crowd: "CrowdKeeper | None" = None
    """Learns from all users; None: users learn alone."""


class Request(NamedTuple):
    """What a call asks for, besides users and n; see `Explorer.recommend`."""

    exclude: Exclude | None = None
    allow: Iterable[Id] | None = None
    where: Where | None = None
    diverse: bool = False
    context: Context | None = None


class Since(NamedTuple):
    """Changes to the items since the tree was built."""

    came: set[int]
    """Numbers of items that were added, or have other vectors."""
    went: int
    """How many were removed."""


class Snapshot:
    """A catalogue, its tree, and the policy made ready for them.

    Parameters
    ----------
    setup
        The policy, the store, and so on.
    catalogue, tree
        The items and their tree, before the policy adapts them; None: a tree is built.
    spare
        Free places of every leaf, as a share of its items; 0: items cannot be added or removed.
    page
        How many pages of changes the catalogue knows.
    new
        How often new items were shown, by the store's number.
    since
        Changes since the tree was built; by default none.
    """

    def __init__(
        self,
        setup: Setup,
        catalogue: Catalogue,
        tree: ItemTree | None,
        *,
        spare: float = 0.0,
        page: int = 0,
        new: dict[int, int] | None = None,
        since: Since | None = None,
        progress: Progress | None = None,
    ) -> None:
        policy, self.setup, self.page = setup.policy, setup, page
        grows = isinstance(catalogue, GrowingCatalogue) or spare == 0
        self.catalogue: Catalogue = catalogue if grows else GrowingCatalogue(catalogue)
        if tree is None:
            seen = policy.catalogue_for(catalogue)
            self.tree, seen = policy.fitted(policy.grow(seen, progress=progress), seen)
        else:
            self.tree, seen = policy.fitted(tree, catalogue)
        plan = policy.plan_on(self.tree, seen, once=setup.once, rest=setup.rest)
        self.decider = Decider(plan, policy, catalogue, setup.store, setup.seed, setup.memory, spare)
        if spare > 0:
            number_items(setup.store, catalogue.ids.head(0))  # makes a table of them now, not at the first change
        shop = self.catalogue  # for a few ids, one by one is faster than a column
        self.id_at: Callable[[int], Id] = shop.id_at if isinstance(shop, GrowingCatalogue) else shop.ids.__getitem__
        """Returns the id of a row."""
        self.filters = Filters(self, setup.where)
        self.version = 0
        """How often items were added or removed."""
        self._new = dict(new or {})
        self.since = since or Since(set(), 0)
        self._paths: dict[int, tuple[int, ...]] = {}
        went = self.since.went
        self.remove([catalogue.row(id) for id in catalogue.gone])
        self.since = self.since._replace(went=went)
        self._raise_new(np.array(list(self._new), dtype=np.int64))
        if setup.crowd is not None and setup.crowd.latest is not None:
            self.decider.install(setup.crowd.latest, self.decider.with_edition(setup.crowd.latest))

    @property
    def can_change(self) -> bool:
        """Whether items can be added and removed."""
        return self.decider.slack is not None

    @property
    def rows(self) -> Integers:
        """(places,): the catalogue's rows in leaf order; -1 where there is nothing."""
        return self.decider.plan.tree.items

    @property
    def open_places(self) -> NDArray[np.bool_]:
        """(places,): which may be shown."""
        open = self.decider.flags.open
        return open if len(open) else np.ones(len(self.rows), dtype=np.bool_)

    def __len__(self) -> int:
        """Return how many items may be shown."""
        flags = self.decider.flags
        return int(flags.before[-1]) if len(flags.open) else len(self.rows)

    def __contains__(self, id: Id) -> bool:
        """Return whether an item may be shown."""
        try:
            row, places = self.catalogue.row(id), self.decider.positions.place_of_row
        except UnknownId:
            return False
        place = int(places[row]) if row < len(places) else -1  # it is being added just now
        open = self.decider.flags.open
        return place >= 0 and (len(open) == 0 or bool(open[place]))

    def sizes(self, nodes: Integers | slice = slice(None)) -> NDArray[np.int64]:
        """Return how many items under each of these nodes may be shown."""
        ranges = self.decider.plan.tree.item_range[nodes]
        upto = np.concatenate([[0], np.cumsum(self.open_places)])
        found: NDArray[np.int64] = upto[ranges[:, 1]] - upto[ranges[:, 0]]
        return found

    def inside(self, node: int) -> Integers:
        """Return the rows of the items under a node that may be shown."""
        first, last = self.decider.plan.tree.item_range[node]
        return self.rows[first:last][self.open_places[first:last]]

    def seen(self, more: Catalogue) -> Floats:
        """Return the vectors of items as the plan has them, checked."""
        if more.dim != self.catalogue.dim:
            rule = f"of {self.catalogue.dim} dimensions, as the catalogue's"
            raise InvalidArgument("Explorer", "vectors", rule, f"{more.dim}")
        policy, plan = self.setup.policy, self.decider.plan
        made = Rows(policy.catalogue_for(more).vectors, self.tree.normalized).take(slice(None))
        check_lengths(type(policy.bandit).__name__, made, plan.prior, policy.bandit.rule(made.shape[1]).ridge)
        return made

    def closed(self, users: list[User], request: Request) -> Closed:
        """Return what a call may not show."""
        exclude, allow, where, diverse, _ = request
        spread = checks.flag("Explorer", "diverse", diverse)
        return Closed(*self.filters.base(allow, where), *self.filters.extra(exclude, users), spread)

    def number_of(self, item: Id) -> int:
        """Return the store's number of an item."""
        return int(self.decider.positions.number_of_row[self.catalogue.row(item)])

    def path(self, node: int) -> tuple[int, ...]:
        """Return the nodes from below the root to a node; nothing for -1."""
        if node < 0:
            return ()
        if node not in self._paths:
            above = int(self.tree.parent[node])
            self._paths[node] = () if above < 0 else (*self.path(above), node)
        return self._paths[node]

    def path_of(self, row: int) -> tuple[int, ...]:
        """Return the nodes from below the root to the leaf of a row; nothing if its item is in another row now."""
        places, tree = self.decider.positions.place_of_row, self.decider.plan.tree
        place = int(places[row]) if row < len(places) else -1
        return self.path(leaf_at(tree.first_child, tree.item_range, place)) if place >= 0 else ()

    # --- changes; callers hold the lock ------------------------------------------------------------------------------

    def put(self, table: pl.DataFrame, vectors: Floats, seen: Floats, numbers: NDArray[np.int32]) -> int:
        """Add items, or new versions of items, in order, as long as there is room; return how many were added.

        `seen`: their vectors as the plan has them.
        """
        slack, positions = self.decider.slack, self.decider.positions
        assert slack is not None
        assert isinstance(self.catalogue, GrowingCatalogue)
        places, former = np.full(len(numbers), -1), positions.places(numbers).astype(np.int64)
        same = (former >= 0) & (slack.vectors[former] == seen).all(axis=1)
        fresh = np.flatnonzero(~same)
        found = np.full(len(fresh), -1)
        newcomers = np.ascontiguousarray(seen[fresh])
        got = settle(slack, newcomers, newcomers @ self.decider.metric, found)
        places[same], places[fresh] = former[same], found
        last = len(numbers) if got == len(fresh) else int(fresh[got])
        numbers, places, former, same = numbers[:last], places[:last], former[:last], same[:last]
        if not last:
            return 0
        reopen(slack, places[same])
        moved = ~same & (former >= 0)
        leave(slack, former[moved], True)
        self.catalogue.append(table[:last], vectors[:last])
        slack.tree.items[places] = positions.add(numbers, places)
        self.version += 1
        self.since.came.update(numbers[~same].tolist())
        unknown = self.decider.states.unknown
        stale = moved | np.array([number in unknown for number in numbers.tolist()])
        self.decider.states.items_changed(numbers[stale])
        self.decider.plan.bonus[former[moved]] = 0.0
        self.decider.place_new_items(places[~same], newcomers[: int((~same).sum())])
        self._new.update(dict.fromkeys(numbers[former < 0].tolist(), 0))
        self._raise_new(numbers)
        return last

    def remove(self, rows: Iterable[int]) -> int:
        """Stop showing items, and return how many could be shown until now."""
        slack, places = self.decider.slack, self.decider.positions.place_of_row[list(rows)].astype(np.int64)
        if not len(places):
            return 0
        assert slack is not None
        count = leave(slack, places[places >= 0], False)
        self.version += count > 0
        self.since = self.since._replace(went=self.since.went + count)
        return count

    # --- new items ---------------------------------------------------------------------------------------------------

    def set_shown(self, shown: Callable[[AnyArray], AnyArray]) -> None:
        """Set how often new items were shown, by a function that returns the counts of item numbers."""
        if not self.setup.cold:
            return
        numbers = np.array(list(self._new), dtype=np.int64)
        for number, count in zip(numbers.tolist(), shown(numbers).tolist(), strict=True):
            self._new[number] = count
        self._new = {number: count for number, count in self._new.items() if count < NEW}
        self.decider.plan.bonus[:] = 0.0
        self._raise_new(numbers)

    def _raise_new(self, numbers: AnyArray) -> None:
        """Raise the scores of those of some items that are new."""
        bonus = self.decider.plan.bonus
        if not len(bonus) or not self.setup.cold:
            return
        places = self.decider.positions.places(numbers)
        for number, place in zip(numbers.tolist(), places.tolist(), strict=True):
            if number in self._new and place >= 0:
                bonus[place] = self.setup.cold / np.sqrt(1.0 + self._new[number])

    def shown(self, places: NDArray[np.int64]) -> None:
        """Lower the bonus of the new items that were shown."""
        bonus = self.decider.plan.bonus
        if not self._new or not len(bonus):
            return
        for place in places[bonus[places] > 0].tolist() if self.setup.cold else ():
            number = int(self.decider.positions.number_of_row[self.rows[place]])
            count = self._new.get(number, int(NEW)) + 1
            if count >= NEW:
                self._new.pop(number, None)
                bonus[place] = 0.0
            else:
                self._new[number] = count
                bonus[place] = self.setup.cold / np.sqrt(1.0 + count)

    # --- the next snapshot -------------------------------------------------------------------------------------------

    def settled(self, needed: NDArray[np.bool_] | None = None) -> "Settled":
        """Return the present items as a separate catalogue, and the leaf of each.

        `needed`: by number, whether a removed item is still needed; by default all are kept.
        """
        decider = self.decider
        places = np.flatnonzero(self.rows >= 0)
        numbers = decider.positions.number_of_row[self.rows[places]]
        open = self.open_places[places]
        if needed is not None:
            wanted = np.zeros(len(places), dtype=np.bool_)
            wanted[numbers < len(needed)] = needed[numbers[numbers < len(needed)]]
            keep = open | wanted
            places, open = places[keep], open[keep]
        rows = self.rows[places]
        leaves = tree_arrays.leaves(decider.plan.tree)
        ends = decider.plan.tree.item_range[leaves, 1]
        leaf = leaves[np.searchsorted(ends, places, side="right")]
        order = np.argsort(rows, kind="stable")
        rows, open, leaf = rows[order], open[order], leaf[order]
        made = Catalogue.of_table(self.catalogue.some(rows), self.catalogue.vectors[rows])
        made.gone, made.pages = made.ids.filter(pl.Series(~open)).to_list(), self.page
        since = Since(set(self.since.came), self.since.went)
        return Settled(made, open, leaf, self.tree, self.page, dict(self._new), since)


class Settled(NamedTuple):
    """The items of a snapshot, without gaps."""

    catalogue: Catalogue
    """Knows which of its items were removed, and how many pages it includes."""
    open: NDArray[np.bool_]
    """(items,): which may be shown."""
    leaf: Integers
    """(items,): the leaf of each."""
    tree: ItemTree
    page: int
    new: dict[int, int]
    since: Since

    def edited(self) -> ItemTree:
        """Return the tree with leaves split and joined where they are too large or too small."""
        return edited(self.tree, Rows(self.catalogue.vectors, self.tree.normalized), self.leaf, self.open)

    def snapshot(
        self, setup: Setup, tree: ItemTree, *, rebuilt: bool = False, progress: Progress | None = None
    ) -> Snapshot:
        """Return the next snapshot; `rebuilt`: the tree was built from these items."""
        since = None if rebuilt else self.since
        return Snapshot(
            setup, self.catalogue, tree, spare=SPARE, page=self.page, new=self.new, since=since, progress=progress
        )
