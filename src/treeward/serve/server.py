"""Runs a service from its settings to its last request: load, warm up, listen, drain."""

import asyncio
import resource
import shlex
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
import uvicorn
from threadpoolctl import threadpool_limits

from treeward.bandit.changed_vectors import check_vectors
from treeward.bandit.crowd import Crowd
from treeward.core.errors import InvalidArgument, NothingLeft, TreewardError
from treeward.core.progress import Progress, silent
from treeward.data.catalogue import Catalogue
from treeward.embed.features import load_features
from treeward.explorer.explorer import Explorer
from treeward.policy.base import PRIOR, Policy
from treeward.serve.app import App
from treeward.serve.groups import GroupCounts
from treeward.serve.log import capturing
from treeward.serve.protocol import Protocol
from treeward.serve.service import Service
from treeward.serve.settings import Settings
from treeward.serve.snapshots import choice_of
from treeward.store.base import EventStore
from treeward.store.opening import abandon, open_store
from treeward.tree.item_tree import ItemTree

_EXPOSED_WITHIN = 0.02
"""How long an exposure may wait for others to share a commit; the commit takes the rest of the promised 50 ms."""
_SECONDS_TO_DRAIN = 20


def open_explorer(settings: Settings, progress: Progress = silent, *, chosen: bool = False) -> Explorer:
    """Return the explorer of the settings or, if `chosen`, of the snapshot that a swap or a rebuild chose instead."""
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
        abandon(store)
        raise


def unservable(items: str, error: TreewardError) -> TreewardError:
    """Return an error that says why the chosen items cannot be served, and what to do."""
    told = f"what a swap or a rebuild put in place, as the store notes ({items}), cannot be served: {error}"
    return TreewardError(f"{told}. Bring it back, or serve what the settings name: treeward serve --from-settings")


def parts(settings: Settings, *, accepted: bool = False) -> tuple[Catalogue, Policy, ItemTree | None]:
    """Return the items, the policy and, if there is one, the tree of the settings; refuse them if they do not fit.

    `accepted`: they were served before. Items may have got other vectors one by one since, so they are not compared
    with the sample of vectors that the prior has.
    """
    catalogue = settings.load_items()
    prior = Crowd.load(settings.prior) if settings.prior else None
    features = load_features(settings.features) if settings.features else None
    policy = settings.make_policy(prior=prior, features=features)
    if prior is not None and len(catalogue):
        policy.catalogue_for(
            Catalogue.of_table(catalogue.table[:1], catalogue.vectors[:1])
        )  # refuses other dimensions, and other ids
        if not settings.features and not accepted:  # with features, the prior was fitted to their vectors
            check_vectors("serve", prior, catalogue, settings.prior)
    tree = ItemTree.load(settings.tree) if settings.tree else None
    if tree is not None and (len(tree) != len(catalogue) or (features is None and _is_foreign(tree, catalogue))):
        rule = f"built of these {len(catalogue):,} items, in this order"
        raise InvalidArgument("serve", "tree", rule, f"{settings.tree}, of {len(tree):,}")
    settings.fulfilling(catalogue)
    return catalogue, policy, tree


def warnings_about(settings: Settings, catalogue: Catalogue, policy: Policy, tree: ItemTree | None) -> Iterator[str]:
    """Return sentences about settings that can be served, but are hardly what the operator meant."""
    if catalogue.ids_are_row_numbers:
        yield (
            f"{settings.items}: no column is called id, so items go by their row numbers, 0 to {len(catalogue) - 1}; "
            f"--column id=NAME says which holds their ids (it has {', '.join(catalogue.table.columns[1:])})"
        )
    prior = policy.prior
    if not isinstance(prior, Crowd):
        return
    if prior.provenance.get("trial", {}).get("worse"):
        found = prior.provenance["trial"]
        yield (
            f"the prior {settings.prior} may do harm: when it was fitted, it earned {found['prior']:.4f} per "
            f"recommendation, a list of the most popular items {found['popularity']:.4f}, no prior "
            f"{found['nothing']:.4f}"
        )
    clustered = tree is not None and policy.features is None and tree.provenance.get("made_by") == "build"
    if tree is not None and clustered and tree.provenance.get(PRIOR) != prior.digest:
        what = "another prior" if PRIOR in tree.provenance else "no prior"
        fix = shlex.join(
            ["treeward", "tree", "build", settings.items, "--prior", settings.prior, "-o", settings.tree, "--force"]
            + [word for one in settings.columns for word in ("--column", one)]
        )
        yield f"the tree {settings.tree} was built with {what}; one that fits {settings.prior}: {fix}"


def _is_foreign(tree: ItemTree, catalogue: Catalogue) -> bool:
    """Return whether a tree was built of other items: most leaves are far from the mean of the items they contain."""
    if tree.dim != catalogue.dim:  # it was built over vectors that a prior has changed
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
    """Return the explorer of the settings over an open store, warm; `accepted`: as for `parts`."""
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
    with suppress(NothingLeft):  # nothing may be in stock
        made.preview("")  # compiles and loads what the first request would have to wait for
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
    """Return a listening socket; `shared`: other processes may listen on the same port."""
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
    counts: GroupCounts | None = None,
) -> None:
    """Run a service until SIGTERM or SIGINT; `ready` is called with both addresses and the items once it listens."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, settings.max_connections + 512)), hard))
    sockets = [listening(settings.host, settings.port, shared=settings.workers > 1)]
    if settings.admin_port >= 0:
        sockets.append(listening("127.0.0.1", settings.admin_port, name="admin_port"))
    explorer = open_explorer(settings, progress, chosen=True)
    app = App(Service(explorer, settings, counts), explorer_over)
    try:
        threadpool_limits(1)  # products are small: BLAS threads would only take the cores from requests
        with capturing(app.log), asyncio.Runner(loop_factory=_loop()) as runner:
            served = app.catalogue.choice.now
            app.log.note({"snapshot": served.items, "tree": served.tree, "prior": served.prior})
            runner.run(_serve(app, sockets, lambda public, admin: ready(public, admin, served.items)))
    finally:
        app.served.explorer.close()  # not `explorer`: a swap may have replaced it
    failed = explorer.store.status().problem
    if failed is not None and not explorer.store.shared:  # a database loses nothing, and may be back by now
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
            date_header=False, timeout_keep_alive=75, timeout_graceful_shutdown=_SECONDS_TO_DRAIN, backlog=2048,
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
    """One of two servers in a process, whose signals are handled for both."""

    def capture_signals(self) -> Any:
        return nullcontext()


def address_of(listener: socket.socket) -> str:
    """Return the address of a socket, as it is typed into a browser."""
    host, port, *_ = listener.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
