"""The changing half of an explorer: items come, change and go while it decides."""

from collections.abc import Callable, Sequence
from itertools import islice
from threading import RLock
from time import sleep
from typing import Literal, NamedTuple

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
from treeward.explorer import changes, health
from treeward.explorer.changes import GONE, VECTOR, WHOLE, Page
from treeward.explorer.decider import Calls
from treeward.explorer.edition import Edition, How, Settled
from treeward.explorer.health import Health
from treeward.explorer.names import users_of
from treeward.explorer.views import Views
from treeward.store.base import User, everyone, read_chunks
from treeward.store.events import now
from treeward.store.numbers import number_items
from treeward.tree.edit import limits
from treeward.tree.item_tree import ItemTree

_MANY = 0.05
"""The share of leaves without a free place, too large or too small, from which on a refit is worth while."""
_SLICE = 250
_PAUSE = 0.0002
"""Changes are made a few at a time, and whoever waits for a decision goes first."""


class Fitness(NamedTuple):
    """How far a catalogue has moved away from what its tree was made for."""

    items: int
    came: int
    """Items that came, or changed, since it was clustered ..."""
    gone: int
    """... and that went."""
    full: int
    """Leaves without a free place ..."""
    crowded: int
    """... with so many items that they are to be split ..."""
    starved: int
    """... and with so few that they are to join another."""
    leaves: int
    dead: int
    """Rows that no item is in any more."""

    def due(self, share: float = 0.2) -> Literal["", "refit", "rebuild"]:
        """Return what is to be done about it; a rebuild, once a `share` of the items came or went (0: never)."""
        moved = self.came + self.gone
        if share and moved > share * self.items:
            return "rebuild"
        unfit = self.full + self.crowded + self.starved > _MANY * self.leaves
        return "refit" if moved and (unfit or self.dead > 1_000 + self.items // 4) else ""


class Living(Views):
    """What can be changed of the items of an `Explorer`."""

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
            missing = [id for id in more.ids.to_list() if id not in self]
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
            there = [id for id in given.to_list() if id in self]
            for first in range(0, len(there), changes.AT_ONCE):
                self._publish(changes.gone(there[first : first + changes.AT_ONCE], now()))
        return len(there)

    def _fitting(self, owner: str, items: Catalogue) -> Catalogue:
        """Return items with the columns of the catalogue."""
        schema = self.catalogue.schema
        if items.ids_are_integers != self.catalogue.ids_are_integers:
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

    def _with(self, edition: Edition, page: Page) -> Edition:
        """Return an edition that knows a page: the same, unless there is no room in it."""
        if not edition.roomy:
            edition = self._laid_out(edition, edition.tree)
        if page.kind == GONE:
            rows = [edition.catalogue.row(id) for id in page.items.ids if edition.contains(id)]
            for first in range(0, len(rows), _SLICE):
                with self._lock:
                    edition.remove(rows[first : first + _SLICE])
                _yield(first, len(rows))
            return edition
        items, at = _whole(edition, page), 0
        if items is None or not len(items):
            return edition
        numbers, seen = number_items(self.store, items.ids), edition.seen(items)
        while at < len(items):
            last = min(at + _SLICE, len(items))
            with self._lock:
                got = edition.put(items.table[at:last], items.vectors[at:last], seen[at:last], numbers[at:last])
            at += got
            if at < last:
                edition = self._laid_out(edition, None)
            _yield(at, len(items))
        return edition

    def _laid_out(self, edition: Edition, tree: ItemTree | None) -> Edition:
        """Return an edition with room: over the same tree, or over that with its leaves split and joined."""
        with self._lock:
            settled = edition.settled()
        made = settled.edition(self._how, settled.edited() if tree is None else tree)
        made.page = edition.page
        with self._lock:
            if self._now is edition:
                self._now = made
        self._follow_crowd()
        return made

    def _take_note(self, calls: Calls) -> None:
        """Note what is shown: what newcomers get falls, and no rebuild forgets what feedback may still come to."""
        self._now.shown(calls.decisions["place"])
        numbers = self._decider.roster.numbers[calls.decisions["item"]]
        most = int(numbers.max()) + 1
        if most > len(self._shown):
            self._shown = np.pad(self._shown, (0, most + most // 8 - len(self._shown)))
        self._shown[numbers] = True

    def _number_of(self, item: Id) -> int:
        now = self._now
        return int(now.decider.roster.numbers[now.catalogue.row(item)])

    def _ids_of(self, rows: AnyArray) -> list[Id]:
        """Return the ids of a few rows: for one or two, asking for each is faster than for all at once."""
        shop = self.catalogue
        ids = shop.id_at if isinstance(shop, GrowingCatalogue) else shop.ids.__getitem__
        return [ids(row) for row in rows.tolist()]

    def rest(self, user: User) -> None:
        """Give up what is at hand of a user, as if others had needed the room; the next call rebuilds it."""
        [who] = users_of("Explorer.rest", [user])
        with self._lock:
            self._decider.seats.drop(who)

    # --- the next edition --------------------------------------------------------------------------------------------

    def fitness(self) -> Fitness:
        """Tell how far the items have moved away from what the tree was made for."""
        with self._lock:
            edition = self._now
            room, leaves = edition.decider.room, edition.tree.leaves
            if room is None:
                return Fitness(len(edition), 0, 0, 0, 0, 0, len(leaves), 0)
            count, spare = room.held[leaves], room.spare[leaves]
            dead = len(edition.catalogue) - int(np.count_nonzero(room.taken))
        most, least = limits(edition.tree)
        crowded, starved = int((count > most).sum()), int((count < least).sum())
        came, went = len(edition.since.came), edition.since.went
        return Fitness(len(edition), came, went, int((spare == 0).sum()), crowded, starved, len(leaves), dead)

    def health(self, *, users: int = 100, anew: bool = True, progress: Progress | None = None) -> Health:
        """Tell how well the tree still fits its items, and whether clustering them anew would pay.

        Parameters
        ----------
        users
            For how many of those who were asked for lately the best item is looked for, in the tree and everywhere.
        anew
            Cluster the items anew, to compare with; without it, only what has changed is told.
        progress
            Called with (stage, done, total) as they are clustered.
        """
        if not len(self):
            raise InvalidArgument("Explorer.health", "items", "at least one that may be shown", "none")
        with self._lock:
            edition = self._now
            seats = edition.decider.seats
            now, settled, fit = health.look(edition), edition.settled(), self.fitness()
            leaves = edition.tree.leaves
            sizes = edition.sizes(leaves)
            late = now.late(edition.decider.roster.numbers, edition.since.came)
            stale = health.stale(edition, leaves, late)
            known = list(islice(dict.fromkeys([*seats.recent(users), *islice(everyone(self.store), users)]), users))
            known = known[: seats.most]
            thetas = seats.state.posterior.theta[seats.seat(known), -1].copy()
        if not known:
            noise = getattr(self._how.policy.prior, "noise", 1.0)
            thetas = health.drawn(edition.decider.plan.prior, noise, users)
        far, open = now.far(), now.open
        other = None
        if anew:
            policy = self._how.policy
            other = health.look_at(policy, settled, policy.grow(settled.catalogue, progress=progress))
        return Health(
            fit.items, fit.came, fit.gone, fit.leaves, int(sizes.max(initial=0)),
            float((sizes.astype(np.float64) ** 2).sum() / max(1, sizes.sum()) / max(1e-9, sizes.mean())),
            fit.full, fit.crowded, fit.starved, stale, _root(far[open]),
            _root(far[open & late]), _root(other.far()[other.open]) if other else np.nan, now.lost(thetas),
            other.lost(thetas) if other else np.nan, len(known),
        )  # fmt: skip

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
        met = np.zeros(int(self._decider.roster.numbers.max()) + 1, dtype=np.bool_)
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
        if not len(self):  # nothing to make a tree of: what there was stays
            return
        needed = self._met()
        with self._lock:
            needed[: len(self._shown)] |= self._shown[: len(needed)]
            settled = self._now.settled(needed)
        made = settled.edition(self._how, tree_of(settled), anew=anew, progress=progress)
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
        """Decide by the crowd's latest edition; see `Shared`."""


def _root(squares: NDArray[np.float64]) -> float:
    return float(np.sqrt(squares.mean())) if len(squares) else float("nan")


def _yield(done: int, of: int) -> None:
    if done < of:
        sleep(_PAUSE)


def _whole(edition: Edition, page: Page) -> Catalogue | None:
    """Return a page's items with all that is known of them; other vectors of items that are gone mean nothing.

    A page written for a catalogue of another kind, which a swap has taken the place of, is passed over: None.
    """
    catalogue = edition.catalogue
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
    known = page.items.rows(id for id in page.items.ids if edition.contains(id))
    rows = catalogue.rows(page.items.ids[known])
    return Catalogue.of_table(catalogue.some(rows), page.items.vectors[known])


def _part(items: Catalogue, first: int, last: int) -> Catalogue:
    if first == 0 and last >= len(items):
        return items
    return Catalogue.of_table(items.table[first:last], items.vectors[first:last])
