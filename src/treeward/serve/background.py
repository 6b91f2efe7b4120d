"""What a service does between requests: default rewards, editions of the crowd, changes of other replicas, the log."""

import asyncio
from contextlib import suppress

from treeward.core.errors import TreewardError
from treeward.serve.catalogue_admin import CatalogueAdmin
from treeward.serve.live import Live
from treeward.serve.log import Log
from treeward.serve.service import Served

_SECONDS_BETWEEN_SWEEPS, _SECONDS_BETWEEN_FLUSHES = 1.0, 0.1


class Background:
    """Runs three loops on the event loop; threads do their work."""

    def __init__(self, served: Served, catalogue: CatalogueAdmin, live: Live, log: Log) -> None:
        self._served, self._catalogue, self._live, self._log = served, catalogue, live, log
        self._tasks: list[asyncio.Task[None]] = []
        self._store_failed = False

    def start(self) -> None:
        """Begin; called on the event loop."""
        self._tasks = [asyncio.create_task(loop()) for loop in (self._sweep, self._publish, self._flush_log)]

    async def stop(self) -> None:
        """End all three; what is under way in a thread is finished there."""
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _sweep(self) -> None:
        """Every second: a sample for the page, default rewards, other replicas' changes, rebuilds."""
        while True:
            await asyncio.sleep(_SECONDS_BETWEEN_SWEEPS)
            try:
                await asyncio.to_thread(self._live.sample)
                await asyncio.to_thread(self._served.store.status, probe=True)
                if self._has_store_failed():
                    continue  # the rest needs the store, and waiting for it would delay noticing its return
                await asyncio.to_thread(self._served.service.expire)
                await asyncio.to_thread(self._served.service.refresh)
                if self._served.store.shared:
                    await self._catalogue.follow()
                await self._catalogue.renew_if_due()
            except TreewardError as error:
                self._log.note({"error": str(error)})
            except Exception as error:  # the next sweep may succeed; without this, there would be none
                self._log.problem(error, b"-")

    async def _publish(self) -> None:
        """Publish editions of the crowd; an error leaves the last edition in place."""
        while True:
            await asyncio.sleep(self._served.service.publisher.pause)
            if self._store_failed:
                continue
            async with self._catalogue.publishing:
                publisher = self._served.service.publisher
                before = publisher.problem
                await asyncio.to_thread(publisher.tend)
            if publisher.problem != before:
                self._log.note({"crowd": publisher.problem or "makes editions again", "edition": publisher.number})

    def _has_store_failed(self) -> bool:
        """Return whether the store takes no writes; the log gets a line when that begins and when it ends."""
        failed = self._served.store.status().problem
        if (failed is not None) != self._store_failed:
            self._store_failed = failed is not None
            self._log.note({"error": str(failed)} if failed is not None else {"store": "takes writes again"})
        return self._store_failed

    async def _flush_log(self) -> None:
        while True:
            await asyncio.sleep(_SECONDS_BETWEEN_FLUSHES)
            await asyncio.to_thread(self._log.flush)  # in a thread: the reader of the log may be slow
