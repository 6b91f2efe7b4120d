"""Changes of the catalogue in a running service: items one by one, whole snapshots, and rebuilds of the tree."""

import asyncio
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex
from threading import get_native_id
from time import monotonic

import numpy as np

from treeward.core.errors import InvalidArgument, TreewardError
from treeward.data.catalogue import Id
from treeward.explorer.explorer import Explorer
from treeward.serve import wire
from treeward.serve.hot import HotPath
from treeward.serve.log import Log
from treeward.serve.parts import fulfilling
from treeward.serve.put_items import check_ids, put_items
from treeward.serve.replies import Refused
from treeward.serve.service import Served, Service
from treeward.serve.snapshots import Choice, Snapshot, choice_of
from treeward.store.sqlite import SQLiteStore

_SECONDS_BETWEEN = 10.0
"""Shortest time between two rebuilds of the tree."""
_NICE = 10


class CatalogueAdmin:
    """Puts and removes items, swaps snapshots, and rebuilds the tree when it no longer fits.

    Parameters
    ----------
    served
        The service that answers; replaced when another snapshot is to be served.
    opened
        Opens the explorer for some settings over a store, warm. Called as `explorer_over` is.
    hot
        Its answers on their way are waited for when items are removed.
    log
        Gets a line for every snapshot and rebuild.
    """

    def __init__(self, served: Served, opened: Callable[..., Explorer], hot: HotPath, log: Log) -> None:
        self._served, self._opened, self._hot, self._log = served, opened, hot, log
        self._settings = served.settings
        self.publishing = asyncio.Lock()
        """Held while an edition of the crowd is published, or an explorer replaced: edition numbers only grow."""
        self._swapping = asyncio.Lock()
        self._withdrawn: set[Id] = set()
        """Items removed while another snapshot is being loaded, which may contain them too."""
        self.choice = choice_of(served.store, self._settings)
        """The snapshot that is served, and the one before."""
        self._refused: Choice | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._renewed = monotonic()

    # --- single items ------------------------------------------------------------------------------------------------

    async def put_items(self, rows: Sequence[wire.PutItem]) -> wire.ItemsChanged:
        """Add items, or change what is known of them; they can be recommended when this returns."""
        self._hot.check_rows("items", rows)
        service = self._served.service
        added = await asyncio.to_thread(put_items, service.explorer, rows)
        self._withdrawn -= {row.item for row in rows}
        await self._repeat_for_successor(service)
        return wire.ItemsChanged(added, len(self._served.explorer))

    async def remove_items(self, ids: Sequence[Id]) -> wire.ItemsChanged:
        """Remove items; none is recommended once this has returned."""
        self._hot.check_rows("items", ids)
        service = self._served.service
        check_ids(service.explorer, ids)
        if self._swapping.locked():
            self._withdrawn.update(ids)
        gone = await asyncio.to_thread(service.explorer.remove, ids)
        await self._repeat_for_successor(service, ids)
        await self._hot.recommend.passed()  # answers that were on their way are out before this one
        return wire.ItemsChanged(gone, len(self._served.explorer))

    async def _repeat_for_successor(self, service: Service, gone: Sequence[Id] = ()) -> None:
        """Apply a change to the service that has replaced the changed one meanwhile, if any has.

        `gone`: the items that were removed; the other snapshot may contain some that the former did not.
        """
        while service is not self._served.service:
            service = self._served.service
            await asyncio.to_thread(service.explorer.changes.catch_up)
            await asyncio.to_thread(service.explorer.remove, gone)

    # --- snapshots ---------------------------------------------------------------------------------------------------

    async def swap(self, asked: wire.SwapRequest) -> Choice:
        """Serve another snapshot from now on: it is loaded next to this one, noted in the store, then takes over."""
        if self._swapping.locked():
            raise Refused(409, "swapping", "another snapshot is being loaded")
        async with self._swapping:
            held = await asyncio.to_thread(choice_of, self._served.store, self._settings)
            choice = held.after(
                held.back() if asked.back else held.named(asked.items, asked.tree, asked.prior, asked.features)
            )
            try:
                explorer = await self._load(choice, accepted=asked.back)
                await asyncio.to_thread(self._check_where, explorer)
            except (TreewardError, OSError) as error:
                raise Refused(400, "snapshot", f"it cannot be served: {error}") from error
            await asyncio.to_thread(choice.keep, self._served.store)
            await self._serve(choice, explorer)
            return choice

    def _check_where(self, explorer: Explorer) -> None:
        """Refuse a snapshot of which nothing could be shown, as the setting `where` lets none of its items through."""
        shop, where = explorer.inspect.catalogue, self._settings.where
        if where and not (fulfilling(self._settings, shop) & explorer.inspect.may_show(np.arange(len(shop)))).any():
            rule = "fulfilled by at least one of its items"
            raise InvalidArgument("serve", "where", rule, f"{where}, by none of {len(shop):,}")

    async def follow(self) -> None:
        """Take over changes of items, and the choice of a snapshot, that another replica has made."""
        await asyncio.to_thread(self._served.explorer.changes.catch_up)
        if self._swapping.locked():
            return
        choice = await asyncio.to_thread(choice_of, self._served.store, self._settings)
        if choice.now == self.choice.now or choice == self._refused:
            return
        async with self._swapping:
            try:
                await self._serve(choice, await self._load(choice, accepted=True))
            except (TreewardError, OSError) as error:
                self._refused = choice  # tried once: the present snapshot stays
                self._log.note({"error": f"the snapshot {choice.now.items} cannot be served here: {error}"})

    async def _load(self, choice: Choice, *, accepted: bool) -> Explorer:
        """Load another snapshot; `accepted`: it was served before, here or by another replica."""
        self._withdrawn.clear()
        settings = choice.now.into(self._settings)
        return await asyncio.to_thread(self._opened, self._served.store, settings, accepted=accepted)

    async def _serve(self, choice: Choice, explorer: Explorer) -> None:
        await asyncio.to_thread(explorer.changes.catch_up)  # most changes, without holding a lock
        async with self.publishing:
            mine, former = explorer.crowd_keeper, self._served.explorer.crowd_keeper
            if mine is not None and former is not None:
                await asyncio.to_thread(mine.take_over, former)
            await asyncio.to_thread(self._install, choice, explorer)
        self._log.note({"snapshot": choice.now.items, "tree": choice.now.tree})

    def _install(self, choice: Choice, explorer: Explorer) -> None:
        """Replace the explorer while the items of the former cannot change.

        A removal is therefore either known to the new explorer, or still waits for the former's lock; in that case
        `_repeat_for_successor` applies it to the new one before it is acknowledged.
        """
        with self._served.explorer.changes.lock:
            explorer.changes.catch_up()
            explorer.remove(list(self._withdrawn))
            self.choice = choice
            self._served.service = Service(explorer, self._settings, former=self._served.service)

    # --- rebuilds ----------------------------------------------------------------------------------------------------

    async def renew_if_due(self) -> None:
        """Begin to rebuild or refit the tree if enough items have changed."""
        busy = self._renewing is not None and not self._renewing.done()
        if busy or self._swapping.locked() or monotonic() - self._renewed < _SECONDS_BETWEEN:
            return
        due = (await asyncio.to_thread(self._served.explorer.inspect.fitness)).due(self._settings.rebuild)
        if due:
            work = self._rebuild if due == "rebuild" else self._served.explorer.refit
            self._renewing = asyncio.create_task(self._renew(work))

    async def _renew(self, work: Callable[[], None]) -> None:
        begun = monotonic()
        async with self._swapping:
            try:
                await asyncio.to_thread(_with_low_priority, work)
                items = len(self._served.explorer)
                self._log.note({"tree": "rebuilt", "items": items, "seconds": round(monotonic() - begun, 1)})
            except Exception as error:
                self._log.note({"error": f"the tree could not be rebuilt: {type(error).__name__}: {error}"})
            self._renewed = monotonic()

    async def stop(self) -> None:
        """End a rebuild that is under way."""
        if self._renewing is not None:
            self._renewing.cancel()
            with suppress(asyncio.CancelledError):
                await self._renewing

    def _rebuild(self) -> None:
        """Cluster the items again and, where there is a folder for snapshots, save the result as the one to serve."""
        explorer, store = self._served.explorer, self._served.store
        explorer.rebuild()
        folder = self._folder()
        if folder is None:
            return
        before = self.choice
        made = folder / f"{explorer.inspect.page:012d}-{token_hex(4)}"
        explorer.save(made / "items", made / "tree")
        if choice_of(store, self._settings) != before:  # another snapshot was chosen meanwhile: that choice holds
            shutil.rmtree(made, ignore_errors=True)
            return
        choice = before.after(Snapshot(str(made / "items"), str(made / "tree"), before.now.prior, before.now.features))
        choice.keep(store)
        self.choice = choice
        dropped = Path(before.before.items).parent
        if dropped.parent == folder and before.before not in (choice.now, choice.before):
            shutil.rmtree(dropped, ignore_errors=True)  # `swap --back` cannot reach it any more

    def _folder(self) -> Path | None:
        """Return where snapshots are saved: as the settings say, or next to the store's file."""
        if self._settings.snapshots:  # several services may share this folder
            name = blake2b(self._served.store.identities.secret, digest_size=8, person=b"snapshots").hexdigest()
            return Path(self._settings.snapshots).resolve() / name
        store = self._served.store
        return (
            store.path.resolve().with_name(f"{store.path.name}.snapshots") if isinstance(store, SQLiteStore) else None
        )


def _with_low_priority(work: Callable[[], None]) -> None:
    """Work at a lower priority than the threads that answer requests."""
    with suppress(OSError, AttributeError):  # of this thread, and of those it starts
        os.setpriority(os.PRIO_PROCESS, get_native_id(), _NICE)
    work()
