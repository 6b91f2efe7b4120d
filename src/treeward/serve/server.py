"""A service from its settings to its last request: load, warm, listen, drain."""

import asyncio
import resource
import signal
import socket
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
import uvicorn
from threadpoolctl import threadpool_limits

from treeward.bandit.crowd import Crowd
from treeward.bandit.sampled import check_vectors
from treeward.core.errors import InvalidArgument, NothingLeft, TreewardError
from treeward.core.progress import Progress, silent
from treeward.data.catalogue import Catalogue
from treeward.embed.features import load_features
from treeward.explorer.explorer import Explorer
from treeward.policy.base import Policy
from treeward.serve.app import App
from treeward.serve.counts import Counts
from treeward.serve.log import capturing
from treeward.serve.protocol import Protocol
from treeward.serve.service import Service
from treeward.serve.settings import Settings
from treeward.serve.snapshots import choice_of
from treeward.store.base import EventStore
from treeward.store.opening import open_store
from treeward.tree.item_tree import ItemTree

_EXPOSED_WITHIN = 0.02
"""Of the 50 ms in which an exposure is on disk, what it may wait for company; a commit takes the rest."""
_DRAIN = 20


def open_explorer(settings: Settings, progress: Progress = silent, *, chosen: bool = False) -> Explorer:
    """Return the explorer that settings ask for or, if `chosen`, the one whose snapshot took the place of theirs."""
    store = open_store(settings.store, progress)
    try:
        choice = choice_of(store, settings) if chosen else None
        try:
            if choice is None or choice.now == choice.settings:
                return explorer_over(store, settings, progress)
            return explorer_over(store, choice.now.into(settings), progress, accepted=True)
        except TreewardError as error:
            if choice is None or choice.now == choice.settings:
                raise
            raise unservable(choice.now.items, error) from error
    except BaseException:
        store.close()
        raise


def unservable(items: str, error: TreewardError) -> TreewardError:
    """Return an error that says who chose the items that cannot be served, and the way out."""
    told = f"what a swap or a rebuild put in place, as the store notes ({items}), cannot be served: {error}"
    return TreewardError(f"{told}. Bring it back, or serve what the settings name: treeward serve --from-settings")


def parts(settings: Settings, *, accepted: bool = False) -> tuple[Catalogue, Policy, ItemTree | None]:
    """Return the items, the policy and, if there is one, the tree that settings name, where they fit together.

    `accepted`: they were served before. Items may have got other vectors since, one by one, so the prior's sample of
    them says nothing.
    """
    catalogue = settings.load_items()
    prior = Crowd.load(settings.prior) if settings.prior else None
    features = load_features(settings.features) if settings.features else None
    policy = settings.make_policy(prior=prior, features=features)
    if prior is not None and len(catalogue):
        policy.catalogue_for(Catalogue.of_table(catalogue.table[:1], catalogue.vectors[:1]))  # dimensions, ids
        if not settings.features and not accepted:  # else it was fitted to what they make of the vectors
            check_vectors("serve", prior, catalogue, settings.prior)
    tree = ItemTree.load(settings.tree) if settings.tree else None
    if tree is not None and (len(tree) != len(catalogue) or (features is None and _is_of_others(tree, catalogue))):
        rule = f"built of these {len(catalogue):,} items, in this order"
        raise InvalidArgument("serve", "tree", rule, f"{settings.tree}, of {len(tree):,}")
    settings.fulfilling(catalogue)
    return catalogue, policy, tree


def _is_of_others(tree: ItemTree, catalogue: Catalogue) -> bool:
    """Tell whether most leaves are far from the mean of what are said to be their items, beside those items' length."""
    if tree.dim != catalogue.dim:  # it was grown over what a prior makes of the vectors
        return False
    some, far = tree.leaves[:: max(1, len(tree.leaves) // 50)], 0
    for leaf in some:
        items = catalogue.vectors[tree.items_of(int(leaf))].astype(np.float64)
        if tree.normalized:
            items /= np.maximum(np.linalg.norm(items, axis=1, keepdims=True), 1e-12)
        off = items.mean(axis=0) - tree.vectors[leaf]
        far += int(off @ off > 0.05**2 * np.square(items).sum(axis=1).mean())
    return 2 * far > len(some)


def explorer_over(
    store: EventStore, settings: Settings, progress: Progress = silent, *, accepted: bool = False
) -> Explorer:
    """Return the explorer that settings ask for, over a store that is open; `accepted`: as for `parts`."""
    catalogue, policy, tree = parts(settings, accepted=accepted)
    made = Explorer(
        catalogue,
        _grown(policy, catalogue, progress) if tree is None else tree,
        policy,
        store,
        repeats=settings.repeats,
        on_repeat=settings.on_repeat,
        reward_range=(settings.reward_low, settings.reward_high),
        exposures="all",
        exposed_within=None if settings.exposures == "strict" else _EXPOSED_WITHIN,
        window=settings.window or None,
        learns=settings.mode != "frozen",
        counts=True,
        cold=settings.cold,
        spare=settings.spare,
        where=settings.condition(),
        progress=progress,
        memory=settings.memory << 20,
        crowd=settings.crowd,
        half_life=settings.half_life or None,
        publishes=False,
    )
    with suppress(NothingLeft):  # of what is in stock, perhaps
        made.preview("")  # decided for nobody, so that nobody waits for a first time
    return made


def _grown(policy: Policy, catalogue: Catalogue, progress: Progress) -> ItemTree:
    tree = policy.grow(catalogue, progress=progress)
    if catalogue.titles is None:
        return tree
    progress("naming nodes", 0, 1)
    named = tree.named(catalogue.titles)
    progress("naming nodes", 1, 1)
    return named


def listening(host: str, port: int, *, shared: bool = False, name: str = "port") -> socket.socket:
    """Return a socket that listens, with other processes of ours if `shared`, or say why there is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise InvalidArgument("serve", name, "one that is free here", f"{host}:{port} ({error.strerror})") from error
    return made


def serve(
    settings: Settings,
    *,
    progress: Progress = silent,
    ready: Callable[[str, str, str], None] = lambda *_: None,
    counts: Counts | None = None,
) -> None:
    """Run a service until SIGTERM or SIGINT; `ready` is told both addresses and which items, once it does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, settings.max_connections + 512)), hard))
    sockets = [listening(settings.host, settings.port, shared=settings.workers > 1)]
    if settings.admin_port >= 0:
        sockets.append(listening("127.0.0.1", settings.admin_port, name="admin_port"))
    explorer = open_explorer(settings, progress, chosen=True)
    app = App(Service(explorer, settings, counts), explorer_over)
    try:
        threadpool_limits(1)  # products are small: threads that wait for each other would take the cores from requests
        with capturing(app.log), asyncio.Runner(loop_factory=_loop()) as runner:
            served = app.catalogue.choice.now
            app.log.note({"snapshot": served.items, "tree": served.tree, "prior": served.prior})
            runner.run(_serve(app, sockets, lambda public, admin: ready(public, admin, served.items)))
    finally:
        app.served.explorer.close()  # which may be another than at the start
    failed = explorer.store.status().problem
    if failed is not None and not explorer.store.shared:  # a database may be back by now, and lacks nothing
        raise failed


def _loop() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


async def _serve(app: App, sockets: list[socket.socket], ready: Callable[[str, str], None]) -> None:
    servers = []
    for index, application in enumerate((app.public, app.admin)[: len(sockets)]):
        ours = type("ServiceProtocol", (Protocol,), {"hot": app.hot, "routes": {} if index else app.hot.routes})
        config = uvicorn.Config(
            application, http=ours, interface="asgi3", ws="none", lifespan="off",
            proxy_headers=False, access_log=False, log_config=None, log_level="error", server_header=False,
            date_header=False, timeout_keep_alive=75, timeout_graceful_shutdown=_DRAIN, backlog=2048,
        )  # fmt: skip
        servers.append(_Server(config))
    app.start()
    loop = asyncio.get_running_loop()

    def end() -> None:
        app.access.draining = True
        for server in servers:
            server.should_exit = True

    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, end)
    tasks = [asyncio.create_task(server.serve(sockets=[one])) for server, one in zip(servers, sockets, strict=True)]
    while not all(server.started for server in servers) and not any(task.done() for task in tasks):
        await asyncio.sleep(0.01)
    ready(*(address_of(one) for one in sockets), *([""] if len(sockets) == 1 else []))
    try:
        await asyncio.gather(*tasks)
    finally:
        await app.stop()


class _Server(uvicorn.Server):
    """One of two in a process: signals are handled for both."""

    def capture_signals(self) -> Any:
        return nullcontext()


def address_of(listener: socket.socket) -> str:
    """Return the address of a socket, as one would type it."""
    host, port, *_ = listener.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
