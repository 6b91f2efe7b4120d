"""`Snapshot`: a catalogue laid out for deciding, with room for items to be added and removed."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core import checks
from treeward.core.errors import InvalidArgument, UnknownId
from treeward.core.progress import Progress
from treeward.core.types import AnyArray, Floats, Integers
from treeward.data.catalogue import Catalogue, Id
from treeward.data.growing_catalogue import GrowingCatalogue
from treeward.engine.layout import Plan
from treeward.engine.places import leaf_at
from treeward.engine.slack import leave, reopen, settle
from treeward.explorer.crowd_edition import CrowdEdition
from treeward.explorer.crowd_keeper import CrowdKeeper
from treeward.explorer.decider import Closed, Decider
from treeward.explorer.filters import Exclude, Filters, Where
from treeward.policy.base import Policy, check_lengths
from treeward.store.base import EventStore, User
from treeward.store.numbers import number_items
from treeward.tree import tree_arrays
from treeward.tree.edit import edited
from treeward.tree.item_tree import ItemTree
from treeward.tree.row_groups import Rows

SPARE = 0.125
"""Free places of a leaf, as a share of its items, once items come and go."""
NEW = 100.0
"""An item that was shown so often is new no more."""


class How(NamedTuple):
    """What every snapshot of an explorer has in common."""

    policy: Policy
    store: EventStore
    once: bool
    rest: int
    seed: int | None
    memory: int
    cold: float
    where: Where | None = None
    crowd: CrowdKeeper | None = None
    """What is learned from everybody; None: users learn alone."""


class Since(NamedTuple):
    """What became of the items since the tree was clustered."""

    came: set[int]
    """Numbers of items that came, or have other vectors."""
    went: int


class Snapshot:
    """A catalogue, its tree, and the policy made ready for them.

    Parameters
    ----------
    how
        The policy, the store, and so on.
    catalogue, tree
        The items and their tree, before the policy makes its own of them; None: one is grown.
    spare
        Free places of every leaf, as a share of its items; 0: items neither come nor go. What users did with items that
        are gone still counts.
    page
        How many pages of changes the catalogue knows.
    new
        How often items that are new were shown, by the store's number.
    since
        What came and went since the tree was clustered; by default nothing.
    """

    def __init__(
        self,
        how: How,
        catalogue: Catalogue,
        tree: ItemTree | None,
        *,
        spare: float = 0.0,
        page: int = 0,
        new: dict[int, int] | None = None,
        since: "Since | None" = None,
        progress: Progress | None = None,
    ) -> None:
        policy, self.how, self.page = how.policy, how, page
        self.catalogue: Catalogue = (
            catalogue if isinstance(catalogue, GrowingCatalogue) or spare == 0 else GrowingCatalogue(catalogue)
        )
        seen = policy.catalogue_for(catalogue)
        self.tree, seen = policy.fitted(
            policy.grow(seen, progress=progress) if tree is None else tree, seen if tree is None else catalogue
        )
        plan = policy.plan_on(self.tree, seen, once=how.once, rest=how.rest)
        self._metric = policy.metric(seen.dim)
        self.decider = Decider(plan, catalogue, how.store, how.seed, how.memory, spare, self._metric, policy.features,
                               policy.bandit.rule(seen.dim))  # fmt: skip
        if spare > 0:
            number_items(how.store, catalogue.ids.head(0))  # makes a table of them now, not at the first change
        self.filters = Filters(self, how.where)
        self.version = 0
        """How often items came or went."""
        self._new = dict(new or {})
        self.since = since or Since(set(), 0)
        self._paths: dict[int, tuple[int, ...]] = {}
        went = self.since.went
        self.remove([catalogue.row(id) for id in catalogue.gone])
        self.since = self.since._replace(went=went)
        self._welcome(np.array(list(self._new), dtype=np.int64))
        if how.crowd is not None and how.crowd.now is not None:
            self.decider.install(how.crowd.now, self.laid_out(how.crowd.now))

    def laid_out(self, edition: CrowdEdition) -> Plan:
        """Return the plan with an edition of the crowd."""
        return self.decider.laid_out(edition)

    @property
    def roomy(self) -> bool:
        """Whether items can come and go."""
        return self.decider.room is not None

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
        """Tell whether an item may be shown."""
        try:
            row, places = self.catalogue.row(id), self.decider.roster.place_of
        except UnknownId:
            return False
        place = int(places[row]) if row < len(places) else -1  # it may be on its way in
        open = self.decider.flags.open
        return place >= 0 and (len(open) == 0 or bool(open[place]))

    def sizes(self, nodes: Integers | slice = slice(None)) -> NDArray[np.int64]:
        """Return how many items under each of some nodes may be shown."""
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
        policy, plan = self.how.policy, self.decider.plan
        made = Rows(policy.catalogue_for(more).vectors, self.tree.normalized).take(slice(None))
        check_lengths(type(policy.bandit).__name__, made, plan.prior, policy.bandit.rule(made.shape[1]).ridge)
        return made

    def closed(
        self,
        users: list[User],
        exclude: Exclude | None,
        allow: Iterable[Id] | None,
        where: Where | None,
        diverse: bool,
    ) -> Closed:
        """Return what a call may not show."""
        spread = checks.flag("Explorer", "diverse", diverse)
        return Closed(*self.filters.base(allow, where), *self.filters.extra(exclude, users), spread)

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
        places, tree = self.decider.roster.place_of, self.decider.plan.tree
        place = int(places[row]) if row < len(places) else -1
        return self.path(leaf_at(tree.first_child, tree.item_range, place)) if place >= 0 else ()

    # --- changes; whoever calls these holds the explorer's lock ------------------------------------------------------

    def put(self, table: pl.DataFrame, vectors: Floats, seen: Floats, numbers: NDArray[np.int32]) -> int:
        """Add items, or other versions of items, in order, as long as there is room; return how many got in.

        `seen`: their vectors as the plan has them.
        """
        room, roster = self.decider.room, self.decider.roster
        assert room is not None
        assert isinstance(self.catalogue, GrowingCatalogue)
        places, former = np.full(len(numbers), -1), np.array([roster.place_at(int(one)) for one in numbers])
        same = (former >= 0) & (room.vectors[former] == seen).all(axis=1)
        fresh = np.flatnonzero(~same)
        found = np.full(len(fresh), -1)
        newcomers = np.ascontiguousarray(seen[fresh])
        got = settle(room, newcomers, newcomers @ self._metric, found)
        places[same], places[fresh] = former[same], found
        last = len(numbers) if got == len(fresh) else int(fresh[got])
        numbers, places, former, same = numbers[:last], places[:last], former[:last], same[:last]
        if not last:
            return 0
        reopen(room, places[same])
        moved = ~same & (former >= 0)
        leave(room, former[moved], True)
        self.catalogue.append(table[:last], vectors[:last])
        room.tree.items[places] = roster.enter(numbers, places)
        self.version += 1
        self.since.came.update(numbers[~same].tolist())
        unknown = self.decider.seats.unknown
        stale = moved | np.array([number in unknown for number in numbers.tolist()])
        self.decider.seats.items_moved(numbers[stale])
        bonus, edition = self.decider.plan.bonus, self.decider.edition
        bonus[former[moved]] = bonus[places[~same]] = 0.0
        if edition is not None:
            self.decider.plan.crowd.offset[places[~same]] = 0.0
            bonus[places[~same]] = self.decider.newcomers(newcomers[: int((~same).sum())])
            self.decider.moved += places[~same].tolist()
        self._new.update(dict.fromkeys(numbers[former < 0].tolist(), 0))
        self._welcome(numbers)
        return last

    def remove(self, rows: Iterable[int]) -> int:
        """Let items be shown no more, and return how many could be until now."""
        room, places = self.decider.room, self.decider.roster.place_of[list(rows)].astype(np.int64)
        if not len(places):
            return 0
        assert room is not None
        count = leave(room, places[places >= 0], False)
        self.version += count > 0
        self.since = self.since._replace(went=self.since.went + count)
        return count

    # --- newcomers ---------------------------------------------------------------------------------------------------

    def met(self, shown: Callable[[AnyArray], AnyArray]) -> None:
        """Take it from somebody who has counted how often items that are new were shown."""
        if not self.how.cold:
            return
        numbers = np.array(list(self._new), dtype=np.int64)
        for number, count in zip(numbers.tolist(), shown(numbers).tolist(), strict=True):
            self._new[number] = count
        self._new = {number: count for number, count in self._new.items() if count < NEW}
        self.decider.plan.bonus[:] = 0.0
        self._welcome(numbers)

    def _welcome(self, numbers: AnyArray) -> None:
        """Give those of some items that are new what newcomers get."""
        bonus, roster = self.decider.plan.bonus, self.decider.roster
        if not len(bonus) or not self.how.cold:
            return
        for number in numbers.tolist():
            place = roster.place_at(number)
            if number in self._new and place >= 0:
                bonus[place] = self.how.cold / np.sqrt(1.0 + self._new[number])

    def shown(self, places: NDArray[np.int64]) -> None:
        """Take note of what was shown: what newcomers get falls with it."""
        bonus = self.decider.plan.bonus
        if not self._new or not len(bonus):
            return
        for place in places[bonus[places] > 0].tolist() if self.how.cold else ():
            number = int(self.decider.roster.numbers[self.rows[place]])
            count = self._new.get(number, int(NEW)) + 1
            if count >= NEW:
                self._new.pop(number, None)
                bonus[place] = 0.0
            else:
                self._new[number] = count
                bonus[place] = self.how.cold / np.sqrt(1.0 + count)

    # --- the next one ------------------------------------------------------------------------------------------------

    def settled(self, needed: NDArray[np.bool_] | None = None) -> "Settled":
        """Return the items there are now as a catalogue of its own, and the leaf each hangs on.

        `needed`: by number, whether anybody needs an item that is gone; by default all are kept.
        """
        decider = self.decider
        places = np.flatnonzero(self.rows >= 0)
        numbers = decider.roster.numbers[self.rows[places]]
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
    """Which knows what of it is gone, and how many pages it has read."""
    open: NDArray[np.bool_]
    """(items,): which may be shown."""
    leaf: Integers
    """(items,): the leaf of the tree that each hangs on."""
    tree: ItemTree
    page: int
    new: dict[int, int]
    since: Since

    def edited(self) -> ItemTree:
        """Return the tree with its leaves split and joined where that is due."""
        return edited(self.tree, Rows(self.catalogue.vectors, self.tree.normalized), self.leaf, self.open)

    def snapshot(self, how: How, tree: ItemTree, *, anew: bool = False, progress: Progress | None = None) -> Snapshot:
        """Return the next snapshot, over a tree that was kept, or clustered `anew`."""
        since = None if anew else self.since
        return Snapshot(
            how, self.catalogue, tree, spare=SPARE, page=self.page, new=self.new, since=since, progress=progress
        )
