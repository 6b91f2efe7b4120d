"""Runs a service from its settings to its last request: listen, load, answer, drain.

Importing this module is quick, so that a service listens at once: what it decides with is imported while it loads.
"""

import asyncio
import gc
import resource
import signal
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from threading import Thread
from typing import TYPE_CHECKING, Any

import uvicorn

from treeward.core.compile_progress import LOADER
from treeward.core.errors import ExtraMissing, InvalidArgument
from treeward.core.progress import Progress, silent
from treeward.serve.known_heads import KnownHeads
from treeward.serve.log import capturing
from treeward.serve.protocol import Protocol
from treeward.serve.settings import Settings
from treeward.serve.starting import Gate, Starting
from treeward.serve.tls import Handshake, tls_of

if TYPE_CHECKING:
    from treeward.serve.app import App
    from treeward.serve.groups import GroupCounts

_BACKLOG = 2048
_SECONDS_TO_DRAIN = 20
_THRESHOLDS = gc.get_threshold()
_THRESHOLDS_TO_LOAD = (100_000, 20, 20)
"""When garbage is collected: hardly ever while modules and kernels are loaded, which all stay."""
_SECONDS_TO_STOP_LOADING = 2
"""How long the end of a service that is still loading waits for a report of progress, at which the loading stops."""


def listening(
    host: str, port: int, *, shared: bool = False, name: str = "port", listens: bool = False
) -> socket.socket:
    """Return a bound socket; `shared`: other processes may take the same port, `listens`: it listens already."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        made.bind((host, port))
        if listens:
            made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        raise InvalidArgument("serve", name, "one that is free here", f"{host}:{port} ({error.strerror})") from error
    return made


def address_of(listener: socket.socket, *, encrypted: bool = False) -> str:
    """Return the address of a socket, as it is typed into a browser."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else "127.0.0.1" if host == "0.0.0.0" else host
    return f"{'https' if encrypted else 'http'}://{shown}:{port}"


def serve(
    settings: Settings,
    *,
    progress: Progress = silent,
    ready: Callable[[str, str, str], None] = lambda *_: None,
    counts: "GroupCounts | None" = None,
    listens_early: bool = True,
) -> None:
    """Run a service until SIGTERM or SIGINT.

    Until everything is loaded, `/livez` answers that the service is alive, `/readyz` says how far it is, and all other
    requests are answered with 503.

    Parameters
    ----------
    settings
        Checked settings.
    progress
        Told how far the loading is, in a thread.
    ready
        Called with both addresses and the items once the service is ready.
    counts
        Shared with other workers.
    listens_early
        Whether it listens before it is ready. Not where other workers answer already: callers should reach those.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, settings.max_connections + 512)), hard))
    starting, loaded, tls = Starting(settings), Future["App"](), tls_of(settings)
    shared = settings.workers > 1
    bound = [listening(settings.host, settings.port, shared=shared, listens=listens_early)]
    if settings.admin_port >= 0:
        bound.append(listening("127.0.0.1", settings.admin_port, name="admin_port", listens=listens_early))
    listeners = [_Listener(one, starting, None if index else tls) for index, one in enumerate(bound)]

    def report(stage: str, done: int, total: int) -> None:
        starting.report(stage, done, total)
        progress(stage, done, total)

    def load() -> None:
        try:
            loaded.set_result(_load(settings, report, counts))
        except BaseException as error:
            loaded.set_exception(error)

    gc.set_threshold(*_THRESHOLDS_TO_LOAD)
    # Not a thread of the event loop's pool: the end of the process must not wait for a compiler.
    Thread(target=load, name=LOADER, daemon=True).start()
    with asyncio.Runner(loop_factory=_loop()) as runner:
        runner.run(_serve(starting, loaded, listeners, ready, listens_early=listens_early))


def _load(settings: Settings, report: Progress, counts: "GroupCounts | None") -> "App":
    try:
        from treeward.serve.app import App
        from treeward.serve.parts import check, explorer_over, open_explorer
        from treeward.serve.service import Service
    except ImportError as error:
        raise ExtraMissing.of("treeward serve", error.name, "serve") from error
    check(settings)
    explorer = open_explorer(settings, report, chosen=True)
    try:
        return App(Service(explorer, settings, counts), explorer_over)
    except BaseException:
        explorer.close()
        raise


def _loop() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


class _Listener:
    """One bound socket with uvicorn's server, and the application that answers, which is replaced once it is loaded."""

    def __init__(self, bound: socket.socket, starting: Starting, tls: ssl.SSLContext | None = None) -> None:
        self.address = address_of(bound, encrypted=tls is not None)
        self._bound, self._gate = bound, Gate(starting)
        self._protocol = protocol = type(
            "ServiceProtocol", (Protocol,), {"settings": starting.settings, "routes": {}, "heads": KnownHeads()}
        )
        self._handshakes: set[Handshake] = set()

        def encrypted(**given: Any) -> Handshake:
            assert tls is not None
            return Handshake(protocol(**given), tls, starting.settings, self._handshakes)

        accept: Any = protocol if tls is None else encrypted
        self._server = _Server(
            uvicorn.Config(
                self._gate, http=accept, interface="asgi3", ws="none", lifespan="off",
                proxy_headers=False, access_log=False, log_config=None, log_level="error", server_header=False,
                date_header=False, timeout_keep_alive=75, timeout_graceful_shutdown=_SECONDS_TO_DRAIN, backlog=_BACKLOG,
            )
        )  # fmt: skip
        self._task: asyncio.Task[None] | None = None

    def start(self) -> "asyncio.Task[None]":
        """Listen, if that has not begun; return what ends when listening does."""
        if self._task is None:
            self._task = asyncio.create_task(self._server.serve(sockets=[self._bound]))
        return self._task

    def answer_by(self, application: Any, hot: Any, routes: Any) -> None:
        """Have requests answered by an application, also on connections that are open already."""
        self._protocol.hot, self._protocol.routes = hot, routes  # type: ignore[attr-defined]
        self._gate.application = application

    async def stop(self) -> None:
        """Take no more connections, and return when the requests that have begun are answered."""
        self._server.should_exit = True
        for one in list(self._handshakes):
            one.abort()
        if self._task is None:
            self._bound.close()
        else:
            await self._task


class _Server(uvicorn.Server):
    """One of two servers in a process, whose signals are handled for both."""

    def capture_signals(self) -> Any:
        return nullcontext()


async def _serve(
    starting: Starting,
    loaded: "Future[App]",
    listeners: list[_Listener],
    ready: Callable[[str, str, str], None],
    *,
    listens_early: bool,
) -> None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()
    """The signal that ends the service."""

    def end(number: int) -> None:
        if not ended.done():
            ended.set_result(number)

    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, end, name)
    if listens_early:
        for one in listeners:
            one.start()
    app = await _loaded(starting, loaded, ended)
    try:
        if app is None:
            if ended.result() == signal.SIGINT:
                raise KeyboardInterrupt
        else:
            await _answer(app, listeners, ready, ended)
    finally:
        for one in listeners:
            await one.stop()


async def _loaded(starting: Starting, loaded: "Future[App]", ended: "asyncio.Future[int]") -> "App | None":
    """Return what is loaded; None if the service was told to end before. Raise what went wrong."""
    loading = asyncio.wrap_future(loaded)
    either: list[asyncio.Future[Any]] = [loading, ended]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not ended.done():
        return loading.result()
    starting.stopped = True
    await asyncio.wait([loading], timeout=_SECONDS_TO_STOP_LOADING)
    if loading.done() and loading.exception() is None:
        loading.result().served.explorer.close()
    return None


async def _answer(
    app: "App", listeners: list[_Listener], ready: Callable[[str, str, str], None], ended: "asyncio.Future[int]"
) -> None:
    """Answer requests until the end, and then those that wait."""
    from threadpoolctl import threadpool_limits

    try:
        threadpool_limits(1)  # products are small: BLAS threads would only take the cores from requests
        with capturing(app.log):
            served = app.catalogue.choice.now
            app.log.note({"snapshot": served.items, "tree": served.tree, "prior": served.prior})
            # What was loaded stays: the collector need not look through it again and again.
            gc.collect()
            gc.freeze()
            gc.set_threshold(*_THRESHOLDS)
            app.start()
            for index, one in enumerate(listeners):
                one.answer_by(app.admin if index else app.public, app.hot, {} if index else app.hot.routes)
            ending: list[asyncio.Future[Any]] = [ended, *(one.start() for one in listeners)]
            ready(listeners[0].address, listeners[1].address if len(listeners) > 1 else "", served.items)
            try:
                await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
                app.access.draining = True
                for one in listeners:
                    await one.stop()
            finally:
                await app.stop()
    finally:
        app.served.explorer.close()  # by now a swap may have replaced the first one
    store = app.served.store
    failed = store.status().problem
    if failed is not None and not store.shared:  # a database loses nothing, and may be back by now
        raise failed
