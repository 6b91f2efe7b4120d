"""What a service does about changing items: single ones that come and go, whole snapshots, and what follows from it."""

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

import msgspec
import numpy as np

from treeward.core.errors import InvalidArgument, TreewardError
from treeward.data.catalogue import Id
from treeward.explorer.explorer import Explorer
from treeward.serve import wire
from treeward.serve.batch import Batcher
from treeward.serve.handlers import Handlers
from treeward.serve.log import Log
from treeward.serve.looks import Looks
from treeward.serve.routes import Refused, Reply, Request
from treeward.serve.service import Service
from treeward.serve.snapshots import Choice, Snapshot, choice_of
from treeward.store.sqlite import SQLiteStore

_SECONDS_BETWEEN = 10.0
"""A tree is laid out anew at most so often."""
_NICE = 10


class Changing(Handlers):
    """A service whose items change.

    Parameters
    ----------
    service
        What answers, already warm.
    opened
        Opens the explorer that settings ask for over a store, warm; for when another snapshot is to be served.
        Called as `explorer_over` is.
    """

    log: Log
    _asks: "Batcher[wire.Ask, wire.Recommendation] | None"

    def __init__(self, service: Service, opened: Callable[..., Explorer]) -> None:
        super().__init__(service)
        self._opened, self._swapping, self._learning = opened, asyncio.Lock(), asyncio.Lock()
        self._withdrawn: set[Id] = set()
        """Items that were removed while another snapshot is being loaded, which may hold them too."""
        self._choice = choice_of(service.explorer.store, self.settings)
        self._refused: Choice | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._renewed = monotonic()

    @property
    def choice(self) -> Choice:
        """What is served, and was before."""
        return self._choice

    # --- single items ------------------------------------------------------------------------------------------------

    async def _put_items(self, request: Request) -> Reply:
        rows = request.body.items
        if not 0 < len(rows) <= self.settings.max_batch:
            raise InvalidArgument("items", "items", f"1 to {self.settings.max_batch} rows", f"{len(rows)} rows")
        service = self.service
        added = await asyncio.to_thread(service.put_items, rows)
        self._withdrawn -= {row.item for row in rows}
        await self._also(service)
        return Reply(200, wire.encode(wire.Changed(added, len(self.service.explorer))))

    async def _remove_items(self, request: Request) -> Reply:
        ids = request.body.items
        if not 0 < len(ids) <= self.settings.max_batch:
            raise InvalidArgument("items", "items", f"1 to {self.settings.max_batch} ids", f"{len(ids)} ids")
        service = self.service
        if any(isinstance(id, str) == service.explorer.catalogue.ids_are_integers for id in ids):
            kind = "integers" if service.explorer.catalogue.ids_are_integers else "strings"
            raise InvalidArgument("items", "items", f"ids, which are {kind} here", ids)
        if self._swapping.locked():
            self._withdrawn.update(ids)
        gone = await asyncio.to_thread(service.explorer.remove, ids)
        await self._also(service, ids)
        if self._asks is not None:
            await self._asks.passed()  # answers that were on their way are out before this one
        return Reply(200, wire.encode(wire.Changed(gone, len(self.service.explorer))))

    async def _also(self, service: Service, gone: Sequence[Id] = ()) -> None:
        """Let what was changed hold for what is served now, if that is something else by now.

        `gone`: items that were removed; the other snapshot may hold some that the former did not.
        """
        while service is not self.service:
            service = self.service
            await asyncio.to_thread(service.explorer.changes.catch_up)
            await asyncio.to_thread(service.explorer.remove, gone)

    async def _health(self, request: Request) -> Reply:
        asked: wire.HowHealthy = request.query
        found = await asyncio.to_thread(self.service.explorer.inspect.health, users=asked.users, anew=asked.anew)
        told = {name: None if value != value else value for name, value in found._asdict().items()}
        return Reply(200, msgspec.json.encode({**told, "advice": found.advice}))

    # --- snapshots ---------------------------------------------------------------------------------------------------

    async def _swap(self, request: Request) -> Reply:
        """Serve another snapshot from now on: loaded beside this one, then written down, then in its place."""
        asked: wire.Swap = request.body
        if self._swapping.locked():
            raise Refused(409, "swapping", "another snapshot is being loaded")
        async with self._swapping:
            held = await asyncio.to_thread(choice_of, self.service.explorer.store, self.settings)
            choice = held.after(
                held.back() if asked.back else held.named(asked.items, asked.tree, asked.prior, asked.features)
            )
            try:
                explorer = await self._beside(choice, accepted=asked.back)
                await asyncio.to_thread(self._check_where, explorer)
            except (TreewardError, OSError) as error:
                raise Refused(400, "snapshot", f"it cannot be served: {error}") from error
            await asyncio.to_thread(choice.keep, self.service.explorer.store)
            await self._serve(choice, explorer)
            return Reply(200, msgspec.json.encode(choice))

    def _check_where(self, explorer: Explorer) -> None:
        """Refuse a snapshot of which nothing could be shown: what is served can be."""
        inspect = explorer.inspect
        shop, may = inspect.catalogue, inspect.may_show(np.arange(len(inspect.catalogue)))
        if self.settings.where and not (self.settings.fulfilling(shop) & may).any():
            rule = "fulfilled by at least one of its items"
            raise InvalidArgument("serve", "where", rule, f"{self.settings.where}, by none of {len(shop):,}")

    async def _follow(self) -> None:
        """Serve what another replica was told to, and know what items it was told of."""
        await asyncio.to_thread(self.service.explorer.changes.catch_up)
        if self._swapping.locked():
            return
        choice = await asyncio.to_thread(choice_of, self.service.explorer.store, self.settings)
        if choice.now == self._choice.now or choice == self._refused:
            return
        async with self._swapping:
            try:
                await self._serve(choice, await self._beside(choice, accepted=True))
            except (TreewardError, OSError) as error:
                self._refused = choice  # tried once: what is served goes on being served
                self.log.note({"error": f"the snapshot {choice.now.items} cannot be served here: {error}"})

    async def _beside(self, choice: Choice, *, accepted: bool) -> Explorer:
        """Load another snapshot; `accepted`: it was served before, here or by another replica."""
        self._withdrawn.clear()
        store, settings = self.service.explorer.store, choice.now.into(self.settings)
        return await asyncio.to_thread(self._opened, store, settings, accepted=accepted)

    async def _serve(self, choice: Choice, explorer: Explorer) -> None:
        await asyncio.to_thread(
            explorer.changes.catch_up
        )  # with what came while it was loaded: most of it, without a lock
        async with self._learning:  # so that numbers of editions only grow
            mine, former = explorer.crowd_keeper, self.service.explorer.crowd_keeper
            if mine is not None and former is not None:
                await asyncio.to_thread(mine.take_over, former)
            await asyncio.to_thread(self._install, choice, explorer)
        self.log.note({"snapshot": choice.now.items, "tree": choice.now.tree})

    def _install(self, choice: Choice, explorer: Explorer) -> None:
        """Serve another explorer from now on, while nobody can change the items of the former.

        A removal is therefore either known to the new one, or still waits for the former's lock; then `_also` lets it
        hold for the new one before it is acknowledged.
        """
        with self.service.explorer.changes.lock:
            explorer.changes.catch_up()
            explorer.remove(list(self._withdrawn))
            self._choice, service = choice, Service.following(self.service, explorer)
            self.count.service = self.live.service = service
            self.looks, self.service = Looks(service), service

    # --- what follows from changes -----------------------------------------------------------------------------------

    async def _tend(self) -> None:
        """Begin to lay the tree out anew, if that is due."""
        busy = self._renewing is not None and not self._renewing.done()
        if busy or self._swapping.locked() or monotonic() - self._renewed < _SECONDS_BETWEEN:
            return
        due = (await asyncio.to_thread(self.service.explorer.inspect.fitness)).due(self.settings.rebuild)
        if due:
            work = self._rebuild if due == "rebuild" else self.service.explorer.refit
            self._renewing = asyncio.create_task(self._renew(work))

    async def _renew(self, work: Callable[[], None]) -> None:
        begun = monotonic()
        async with self._swapping:
            try:
                await asyncio.to_thread(_patiently, work)
                items = len(self.service.explorer)
                self.log.note({"tree": "laid out anew", "items": items, "seconds": round(monotonic() - begun, 1)})
            except Exception as error:
                self.log.note({"error": f"the tree could not be laid out anew: {type(error).__name__}: {error}"})
            self._renewed = monotonic()

    def _rebuild(self) -> None:
        """Cluster the items anew and, where there is a folder for it, write that down as the snapshot to serve."""
        explorer, store = self.service.explorer, self.service.explorer.store
        explorer.rebuild()
        folder = self._folder()
        if folder is None:
            return
        before = self._choice
        made = folder / f"{explorer.inspect.page:012d}-{token_hex(4)}"
        explorer.save(made / "items", made / "tree")
        if choice_of(store, self.settings) != before:  # somebody chose another meanwhile: that holds
            shutil.rmtree(made, ignore_errors=True)
            return
        choice = before.after(Snapshot(str(made / "items"), str(made / "tree"), before.now.prior, before.now.features))
        choice.keep(store)
        self._choice = choice
        dropped = Path(before.before.items).parent
        if dropped.parent == folder and before.before not in (choice.now, choice.before):
            shutil.rmtree(dropped, ignore_errors=True)  # nobody can go back to it any more

    def _folder(self) -> Path | None:
        """Return where snapshots are written: as the settings say, or beside the file that is the store."""
        store = self.service.explorer.store
        if self.settings.snapshots:  # in which others may have theirs
            name = blake2b(store.identities.secret, digest_size=8, person=b"snapshots").hexdigest()
            return Path(self.settings.snapshots).resolve() / name
        if not isinstance(store, SQLiteStore):
            return None
        return store.path.resolve().with_name(f"{store.path.name}.snapshots")


def _patiently(work: Callable[[], None]) -> None:
    """Work, and let others go first."""
    with suppress(OSError, AttributeError):  # of this thread alone, and of those it starts
        os.setpriority(os.PRIO_PROCESS, get_native_id(), _NICE)
    work()
