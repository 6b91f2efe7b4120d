"""`CatalogueChanges`: items are added, changed and removed, and trees replaced, while an explorer decides."""

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from treeward.core.artefact import StrPath
from treeward.core.errors import InvalidArgument, UnknownId
from treeward.core.progress import Progress
from treeward.data.catalogue import Catalogue, Id
from treeward.data.columns import ids as as_ids
from treeward.explorer import change_pages
from treeward.explorer.change_pages import GONE, VECTOR, WHOLE, Page
from treeward.explorer.runtime import Runtime
from treeward.explorer.snapshot import Current, Settled, Setup, Snapshot
from treeward.store.base import read_chunks
from treeward.store.numbers import number_items
from treeward.tree.item_tree import ItemTree

_SLICE = 250
_PAUSE = 0.0002
"""Changes are made a few at a time with a pause between, so that decisions do not wait long."""


class CatalogueChanges:
    """Changes the items of an explorer. Others that change them wait, and those who decide do not.

    Parameters
    ----------
    current
        The snapshot to change, or to replace.
    setup
        What every snapshot has in common.
    first
        The catalogue that the explorer began with, and how many pages of changes it included.
    shown
        Returns which items were shown since the explorer started, by number.
    runtime
        Makes the lock, and pauses.
    """

    def __init__(
        self,
        current: Current,
        setup: Setup,
        first: tuple[Catalogue, int],
        shown: Callable[[], NDArray[np.bool_]],
        runtime: Runtime,
    ) -> None:
        self._current, self._setup, self._store, self._runtime = current, setup, setup.store, runtime
        self._first: tuple[Catalogue, int] | None = first
        self._shown = shown
        self.lock = runtime.lock()
        """Held by every call that changes items: others wait."""

    @property
    def _now(self) -> Snapshot:
        return self._current.snapshot

    def add(self, items: Catalogue) -> int:
        """Add items, or new versions of items; see `Explorer.add`."""
        owner = "Explorer.add"
        if not isinstance(items, Catalogue):
            raise InvalidArgument(owner, "items", "a Catalogue", items)
        if items.gone:  # it was saved by an explorer
            left = ~items.ids.is_in(items.gone)
            items = Catalogue.of_table(items.table.filter(left), items.vectors[left.to_numpy()])
        if not len(items):
            return 0
        fitting = self._fitting(owner, items)
        self._now.seen(fitting)
        for first in range(0, len(items), change_pages.AT_ONCE):
            self._publish(Page(WHOLE, _part(fitting, first, first + change_pages.AT_ONCE), self._seconds()))
        return len(items)

    def update(self, ids: Sequence[Id], vectors: ArrayLike) -> int:
        """Give items other vectors; see `Explorer.update`."""
        owner = "Explorer.update"
        more = Catalogue(as_ids(owner, "ids", ids), vectors)
        with self.lock:
            missing = [id for id in more.ids.to_list() if id not in self._now]
            if missing:
                raise UnknownId(f"{owner}: {len(missing)} item(s) do not exist, such as {missing[0]!r}")
            self._now.seen(more)
            for first in range(0, len(more), change_pages.AT_ONCE):
                self._publish(Page(VECTOR, _part(more, first, first + change_pages.AT_ONCE), self._seconds()))
        return len(more)

    def remove(self, ids: Sequence[Id]) -> int:
        """Remove items; see `Explorer.remove`."""
        given = as_ids("Explorer.remove", "ids", ids).unique(maintain_order=True)
        with self.lock:
            there = [id for id in given.to_list() if id in self._now]
            for first in range(0, len(there), change_pages.AT_ONCE):
                self._publish(change_pages.gone(there[first : first + change_pages.AT_ONCE], self._seconds()))
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
        """Write a page into the store, after those that others wrote first, and apply it."""
        content = page.packed()
        with self.lock:
            if self._first is not None:
                change_pages.remember(self._store, *self._first)
                self._first = None
            while not change_pages.write_page(self._store, self._now.page + 1, content):
                self.catch_up()
            self._follow(self._now.page + 1, page)

    def catch_up(self) -> int:
        """Apply the pages that other processes wrote into the store, and return how many."""
        with self.lock:
            pages = change_pages.pages_after(self._store, self._now.page)
            for number, page in pages:
                self._follow(number, page)
            return len(pages)

    def _follow(self, number: int, page: Page) -> None:
        """Apply a page to the current snapshot."""
        made = self._with(self._now, page)
        with self._current.lock:
            made.page, self._current.snapshot = number, made

    def _with(self, snapshot: Snapshot, page: Page) -> Snapshot:
        """Return a snapshot with a page applied: the same one, unless it has no room."""
        if not snapshot.can_change:
            snapshot = self._laid_out(snapshot, snapshot.tree)
        if page.kind == GONE:
            rows = [snapshot.catalogue.row(id) for id in page.items.ids if id in snapshot]
            for first in range(0, len(rows), _SLICE):
                with self._current.lock:
                    snapshot.remove(rows[first : first + _SLICE])
                self._pause(first, len(rows))
            return snapshot
        items, at = _whole(snapshot, page), 0
        if items is None or not len(items):
            return snapshot
        numbers, seen = number_items(self._store, items.ids), snapshot.seen(items)
        while at < len(items):
            last = min(at + _SLICE, len(items))
            with self._current.lock:
                got = snapshot.put(items.table[at:last], items.vectors[at:last], seen[at:last], numbers[at:last])
            at += got
            if at < last:
                snapshot = self._laid_out(snapshot, None)
            self._pause(at, len(items))
        return snapshot

    def _laid_out(self, snapshot: Snapshot, tree: ItemTree | None) -> Snapshot:
        """Return a snapshot with room: over the same tree or, without one, over the present one with edited leaves."""
        with self._current.lock:
            settled = snapshot.settled()
        made = settled.snapshot(self._setup, settled.edited() if tree is None else tree)
        made.page = snapshot.page
        with self._current.lock:
            if self._now is snapshot:
                self._current.snapshot = made
        self._install_edition()
        return made

    # --- the next snapshot -------------------------------------------------------------------------------------------

    def refit(self) -> None:
        """Split and join leaves; see `Explorer.refit`."""
        self._renew(lambda settled: settled.edited(), rebuilt=False)

    def rebuild(self, *, progress: Progress | None = None) -> None:
        """Build a new tree; see `Explorer.rebuild`."""

        def grown(settled: Settled) -> ItemTree:
            tree = self._setup.policy.grow(settled.catalogue, progress=progress)
            titles = settled.catalogue.titles
            return tree if titles is None or settled.tree.names is None else tree.named(titles)

        self._renew(grown, rebuilt=True, progress=progress)

    def save(self, items: StrPath, tree: StrPath) -> None:
        """Write the catalogue and the tree to two new folders; see `Explorer.save`."""
        with self.lock, self._current.lock:
            settled = self._now.settled()
        settled.catalogue.save(items)
        settled.edited().save(tree)

    def _met(self) -> NDArray[np.bool_]:
        """Return, by number, the items that have events."""
        met = np.zeros(int(self._now.decider.positions.number_of_row.max()) + 1, dtype=np.bool_)
        for events in read_chunks(self._store):
            numbers = events["item"]
            met[numbers[numbers < len(met)]] = True
        return met

    def _renew(
        self,
        tree_of: Callable[[Settled], ItemTree],
        *,
        rebuilt: bool,
        progress: Progress | None = None,
    ) -> None:
        if not len(self._now):  # nothing to build a tree of
            return
        needed = self._met()
        with self._current.lock:
            shown = self._shown()  # feedback to these may still come
            needed[: len(shown)] |= shown[: len(needed)]
            settled = self._now.settled(needed)
        made = settled.snapshot(self._setup, tree_of(settled), rebuilt=rebuilt, progress=progress)
        while True:
            # Apply the changes made in the meantime; the last ones while no other change can be made.
            for number, page in change_pages.pages_after(self._store, made.page):
                made = self._with(made, page)
                made.page = number
            with self.lock, self._current.lock:
                if made.page >= self._now.page:
                    self._current.snapshot = made
                    break
        self._install_edition()

    def _install_edition(self) -> None:
        """Install the crowd's latest edition: one may have been published while a snapshot was made."""
        if self._setup.crowd is not None:
            self._setup.crowd.install_latest()

    def _seconds(self) -> int:
        return self._runtime.nanoseconds() // 1_000_000_000

    def _pause(self, done: int, of: int) -> None:
        if done < of:
            self._runtime.pause(_PAUSE)


def _whole(snapshot: Snapshot, page: Page) -> Catalogue | None:
    """Return a page's items with all their columns; new vectors of removed items are ignored.

    None: the page was written for a catalogue of another kind, before a swap, and is ignored.
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
