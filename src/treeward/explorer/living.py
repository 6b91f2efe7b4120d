"""The changing half of an explorer: items come, change and go while it decides."""

from collections.abc import Callable, Sequence
from threading import RLock
from time import sleep

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from treeward.core.artefact import StrPath
from treeward.core.errors import InvalidArgument, UnknownId
from treeward.core.progress import Progress
from treeward.core.types import AnyArray
from treeward.data.catalogue import Catalogue, Id
from treeward.data.columns import ids as as_ids
from treeward.data.growing_catalogue import GrowingCatalogue
from treeward.explorer import changes
from treeward.explorer.changes import GONE, VECTOR, WHOLE, Page
from treeward.explorer.decider import Calls
from treeward.explorer.names import users_of
from treeward.explorer.snapshot import How, Settled, Snapshot
from treeward.store.base import EventStore, User, read_chunks
from treeward.store.events import now
from treeward.store.numbers import number_items
from treeward.tree.item_tree import ItemTree

_SLICE = 250
_PAUSE = 0.0002
"""Changes are made a few at a time, and whoever waits for a decision goes first."""


class Living:
    """What can be changed of the items of an `Explorer`."""

    store: EventStore
    _now: Snapshot
    _lock: RLock
    _how: How
    _begun_with: Catalogue | None
    _first_page: int
    _shown: NDArray[np.bool_]
    _changing: RLock

    @property
    def changing(self) -> RLock:
        """What is held by whoever changes items: others wait."""
        return self._changing

    def add(self, items: Catalogue) -> int:
        """Add items, or new versions of items: they can be recommended when this returns. Return how many.

        Each hangs on the leaf nearest to its vector. What the catalogue has no column for is refused; where it has a
        column that `items` has not, the new ones have nothing in it. The store keeps what came, so that it is there
        after a restart, and in every replica.
        """
        owner = "Explorer.add"
        if not isinstance(items, Catalogue):
            raise InvalidArgument(owner, "items", "a Catalogue", items)
        if items.gone:  # of a catalogue that was saved
            left = ~items.ids.is_in(items.gone)
            items = Catalogue.of_table(items.table.filter(left), items.vectors[left.to_numpy()])
        if not len(items):
            return 0
        fitting = self._fitting(owner, items)
        self._now.seen(fitting)
        for first in range(0, len(items), changes.AT_ONCE):
            self._publish(Page(WHOLE, _part(fitting, first, first + changes.AT_ONCE), now()))
        return len(items)

    def update(self, ids: Sequence[Id], vectors: ArrayLike) -> int:
        """Give items other vectors, and return how many; all else that is known of them stays.

        What users did with them counts, from now on, as if they had always had these.
        """
        owner = "Explorer.update"
        more = Catalogue(as_ids(owner, "ids", ids), vectors)
        with self._changing:
            missing = [id for id in more.ids.to_list() if id not in self._now]
            if missing:
                raise UnknownId(f"{owner}: {len(missing)} item(s) are not there, such as {missing[0]!r}")
            self._now.seen(more)
            for first in range(0, len(more), changes.AT_ONCE):
                self._publish(Page(VECTOR, _part(more, first, first + changes.AT_ONCE), now()))
        return len(more)

    def remove(self, ids: Sequence[Id]) -> int:
        """Take items away: none is recommended once this has returned. Return how many were there.

        Ids that are not there are passed over. What users did with items that are gone still tells what these users
        like, and feedback to them still counts.
        """
        given = as_ids("Explorer.remove", "ids", ids).unique(maintain_order=True)
        with self._changing:
            there = [id for id in given.to_list() if id in self._now]
            for first in range(0, len(there), changes.AT_ONCE):
                self._publish(changes.gone(there[first : first + changes.AT_ONCE], now()))
        return len(there)

    def _fitting(self, owner: str, items: Catalogue) -> Catalogue:
        """Return items with the columns of the catalogue."""
        schema = self._now.catalogue.schema
        if items.ids_are_integers != self._now.catalogue.ids_are_integers:
            raise InvalidArgument(owner, "items", f"with ids that are {schema['id']}", items.ids.dtype)
        if not items.dim:
            raise InvalidArgument(owner, "items", "with vectors", "none")
        table = pl.DataFrame(schema=schema)
        extra = [name for name in items.table.columns if name not in table.columns]
        if extra:
            raise InvalidArgument(owner, "items", f"with columns among {table.columns}", extra)
        try:
            made = pl.concat([table, items.table], how="diagonal_relaxed").cast(dict(table.schema))  # type: ignore[arg-type]
        except pl.exceptions.PolarsError as error:
            kinds = {name: str(kind) for name, kind in table.schema.items()}
            raise InvalidArgument(owner, "items", f"with columns as {kinds}", str(error).splitlines()[0]) from error
        for name, kind in items.schema.items():
            if kind.is_numeric() and not (items.table[name].eq_missing(made[name])).all():
                raise InvalidArgument(owner, "items", f"with {table.schema[name]} in {name}", kind)
        return Catalogue.of_table(made, items.vectors)

    # --- pages -------------------------------------------------------------------------------------------------------

    def _publish(self, page: Page) -> None:
        """Write a page into the store, behind those that others wrote first, and do what it says."""
        content = page.packed()
        with self._changing:
            if self._begun_with is not None:
                changes.remember(self.store, self._begun_with, self._first_page)
                self._begun_with = None
            while not changes.write_page(self.store, self._now.page + 1, content):
                self.catch_up()
            self._follow(self._now.page + 1, page)

    def catch_up(self) -> int:
        """Do what other processes wrote into the store's pages, and return how many pages that were."""
        with self._changing:
            pages = changes.pages_after(self.store, self._now.page)
            for number, page in pages:
                self._follow(number, page)
            return len(pages)

    def _follow(self, number: int, page: Page) -> None:
        """Do what a page says to what is served."""
        made = self._with(self._now, page)
        with self._lock:
            made.page, self._now = number, made

    def _with(self, snapshot: Snapshot, page: Page) -> Snapshot:
        """Return an snapshot that knows a page: the same, unless there is no room in it."""
        if not snapshot.roomy:
            snapshot = self._laid_out(snapshot, snapshot.tree)
        if page.kind == GONE:
            rows = [snapshot.catalogue.row(id) for id in page.items.ids if id in snapshot]
            for first in range(0, len(rows), _SLICE):
                with self._lock:
                    snapshot.remove(rows[first : first + _SLICE])
                _yield(first, len(rows))
            return snapshot
        items, at = _whole(snapshot, page), 0
        if items is None or not len(items):
            return snapshot
        numbers, seen = number_items(self.store, items.ids), snapshot.seen(items)
        while at < len(items):
            last = min(at + _SLICE, len(items))
            with self._lock:
                got = snapshot.put(items.table[at:last], items.vectors[at:last], seen[at:last], numbers[at:last])
            at += got
            if at < last:
                snapshot = self._laid_out(snapshot, None)
            _yield(at, len(items))
        return snapshot

    def _laid_out(self, snapshot: Snapshot, tree: ItemTree | None) -> Snapshot:
        """Return an snapshot with room: over the same tree, or over that with its leaves split and joined."""
        with self._lock:
            settled = snapshot.settled()
        made = settled.snapshot(self._how, settled.edited() if tree is None else tree)
        made.page = snapshot.page
        with self._lock:
            if self._now is snapshot:
                self._now = made
        self._follow_crowd()
        return made

    def _take_note(self, calls: Calls) -> None:
        """Note what is shown: what newcomers get falls, and no rebuild forgets what feedback may still come to."""
        self._now.shown(calls.decisions["place"])
        numbers = self._now.decider.roster.numbers[calls.decisions["item"]]
        most = int(numbers.max()) + 1
        if most > len(self._shown):
            self._shown = np.pad(self._shown, (0, most + most // 8 - len(self._shown)))
        self._shown[numbers] = True

    def _number_of(self, item: Id) -> int:
        now = self._now
        return int(now.decider.roster.numbers[now.catalogue.row(item)])

    def _ids_of(self, rows: AnyArray) -> list[Id]:
        """Return the ids of a few rows: for one or two, asking for each is faster than for all at once."""
        shop = self._now.catalogue
        ids = shop.id_at if isinstance(shop, GrowingCatalogue) else shop.ids.__getitem__
        return [ids(row) for row in rows.tolist()]

    def rest(self, user: User) -> None:
        """Give up what is at hand of a user, as if others had needed the room; the next call rebuilds it."""
        [who] = users_of("Explorer.rest", [user])
        with self._lock:
            self._now.decider.seats.drop(who)

    # --- the next snapshot --------------------------------------------------------------------------------------------

    def refit(self) -> None:
        """Split leaves that overflow and join those that starve, beside what is served, and serve that from then on.

        What is gone, and nobody ever met, is forgotten.
        """
        self._renew(lambda settled: settled.edited(), anew=False)

    def rebuild(self, *, progress: Progress | None = None) -> None:
        """Cluster the items there are into a new tree, beside what is served, and serve that from then on.

        Users are replayed onto it from their events as they come. What is gone, and nobody ever met, is forgotten.
        """

        def grown(settled: Settled) -> ItemTree:
            tree = self._how.policy.grow(settled.catalogue, progress=progress)
            titles = settled.catalogue.titles
            return tree if titles is None or settled.tree.names is None else tree.named(titles)

        self._renew(grown, anew=True, progress=progress)

    def save(self, items: StrPath, tree: StrPath) -> None:
        """Write the catalogue and the tree as they are now to two new folders, for another process to go on with."""
        with self._changing, self._lock:
            settled = self._now.settled()
        settled.catalogue.save(items)
        settled.edited().save(tree)

    def _met(self) -> NDArray[np.bool_]:
        """Return, by number, the items that the store has events of."""
        met = np.zeros(int(self._now.decider.roster.numbers.max()) + 1, dtype=np.bool_)
        for events in read_chunks(self.store):
            numbers = events["item"]
            met[numbers[numbers < len(met)]] = True
        return met

    def _renew(
        self,
        tree_of: Callable[[Settled], ItemTree],
        *,
        anew: bool,
        progress: Progress | None = None,
    ) -> None:
        if not len(self._now):  # nothing to make a tree of: what there was stays
            return
        needed = self._met()
        with self._lock:
            needed[: len(self._shown)] |= self._shown[: len(needed)]
            settled = self._now.settled(needed)
        made = settled.snapshot(self._how, tree_of(settled), anew=anew, progress=progress)
        while True:
            # What came meanwhile; the last of it while nobody changes anything.
            for number, page in changes.pages_after(self.store, made.page):
                made = self._with(made, page)
                made.page = number
            with self._changing, self._lock:
                if made.page >= self._now.page:
                    self._now = made
                    break
        self._follow_crowd()

    def _follow_crowd(self) -> None:
        """Decide by the crowd's latest snapshot; see `Shared`."""


def _yield(done: int, of: int) -> None:
    if done < of:
        sleep(_PAUSE)


def _whole(snapshot: Snapshot, page: Page) -> Catalogue | None:
    """Return a page's items with all that is known of them; other vectors of items that are gone mean nothing.

    A page written for a catalogue of another kind, which a swap has taken the place of, is passed over: None.
    """
    catalogue = snapshot.catalogue
    if page.items.dim != catalogue.dim or page.items.ids_are_integers != catalogue.ids_are_integers:
        return None
    if page.kind == WHOLE:
        held = page.items.table
        fitted = [
            pl.col(name).cast(kind, strict=False) if name in held.columns else pl.lit(None, dtype=kind).alias(name)
            for name, kind in catalogue.schema.items()
        ]
        same = held.schema == catalogue.schema
        return page.items if same else Catalogue.of_table(held.select(fitted), page.items.vectors)
    known = page.items.rows(id for id in page.items.ids if id in snapshot)
    rows = catalogue.rows(page.items.ids[known])
    return Catalogue.of_table(catalogue.some(rows), page.items.vectors[known])


def _part(items: Catalogue, first: int, last: int) -> Catalogue:
    if first == 0 and last >= len(items):
        return items
    return Catalogue.of_table(items.table[first:last], items.vectors[first:last])
