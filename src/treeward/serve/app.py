"""A service as two ASGI applications, `public` and `admin`, and the parts behind them."""

import asyncio
from collections.abc import Callable

from treeward.explorer.explorer import Explorer
from treeward.serve.background import Background
from treeward.serve.catalogue_admin import CatalogueAdmin
from treeward.serve.cold import Listener
from treeward.serve.hot import HotPath
from treeward.serve.keys import Access
from treeward.serve.live import Live
from treeward.serve.log import Log
from treeward.serve.metrics import Metrics
from treeward.serve.personalizer import PERSONALIZER, AzureDialect, Personalizer
from treeward.serve.routes import ROUTES, Routes
from treeward.serve.service import Served, Service


class App:
    """Owns the parts of a service: the hot path, the cold routes, catalogue changes, and background work.

    Parameters
    ----------
    service
        What answers, already warm.
    opened
        Opens the explorer for some settings over a store, warm; used when another snapshot is to be served.
    """

    def __init__(self, service: Service, opened: Callable[..., Explorer]) -> None:
        self.served, self.log, self.access = Served(service), Log(), Access(service.settings)
        metrics = Metrics(self.served)
        live = Live(self.served, metrics)
        self.hot = HotPath(self.served, self.access, metrics, self.log)
        self.catalogue = CatalogueAdmin(self.served, opened, self.hot, self.log)
        self._background = Background(self.served, self.catalogue, live, self.log)
        self._routes = Routes(self.served, self.access, self.hot, self.catalogue, live, metrics)
        public, admin = ([route for route in ROUTES if route.admin == admin] for admin in (False, True))
        self._personalizer: Personalizer | None = None
        if service.settings.personalizer:
            self._personalizer = Personalizer(self.served, self.hot, metrics)
            both = [(public, self._routes), (PERSONALIZER, self._personalizer)]
            self.public = Listener(both, self.hot, AzureDialect())
        else:
            self.public = Listener([(public, self._routes)], self.hot)
        self.admin = Listener([(admin, self._routes)], self.hot)
        self.public.next_to(self.admin, "is for operators, at `admin_port` on loopback; this is the callers' listener")
        self.admin.next_to(self.public, "is for callers, at `port`; this is the admin listener")

    def start(self) -> None:
        """Begin to take requests; called on the event loop."""
        self.hot.start()
        self._background.start()

    async def stop(self) -> None:
        """Answer what is waiting, and end."""
        self.access.draining = True
        await self.hot.close()
        await self._background.stop()
        await self.catalogue.stop()
        await asyncio.to_thread(self.served.service.publisher.close)  # finishes an edition that is being written
        self._routes.close()
        if self._personalizer is not None:
            self._personalizer.close()
        self.log.flush()
