"""`treeward demo`: the whole thing on a synthetic world, up to a service that one can look at."""

import os
import shlex
import signal
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from treeward.cli.console import console, errors, progress, say, show, timed
from treeward.cli.simulate import show_results

if TYPE_CHECKING:
    from treeward.bandit.crowd import Crowd
    from treeward.cli.visitors import Visitors
    from treeward.serve.settings import Settings
    from treeward.simulate import World
    from treeward.tree.item_tree import ItemTree

_EARLIER, _SHOWINGS, _PICKED = 500, 300, 2_000
_CHILDREN = 20
"""So many children per node, at most: 50 scores per round, over four steps, then cover most of a node's children."""
_VISITORS, _PAUSE = 40, 0.04
_TOLD = 250
"""Clicks per visit are said for so many visits at a time."""
_PUBLISHED = 0.25
"""Seconds between editions of the crowd: visitors come as fast as they are answered, hours of traffic in seconds."""


def demo(
    items: Annotated[int, typer.Option(help="Items in the synthetic world.", min=100)] = 100_000,
    users: Annotated[int, typer.Option(help="Users in the synthetic world.", min=2)] = 200,
    rounds: Annotated[int, typer.Option(help="Recommendations a user gets in the comparison.", min=1)] = 300,
    dim: Annotated[int, typer.Option(help="Dimensions of the item vectors.", min=2)] = 32,
    visits: Annotated[int, typer.Option(help="Visits to the service, as fast as it answers.", min=1)] = 2_000,
    policy: Annotated[str, typer.Option(help="What the service explores with: beam, phcb, hcb, ...")] = "beam",
    port: Annotated[int, typer.Option(help="Where the page is; if taken, any free one.", min=0, max=65535)] = 8000,
    once: Annotated[
        bool | None,
        typer.Option("--once/--stay", help="Stop after a fixed run. Default: only where there is no terminal.",
                     show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for what it makes.")] = Path("demo-out"),
    seed: Annotated[int, typer.Option(help="Everything random comes from here.", min=0)] = 0,
) -> None:  # fmt: skip
    """Generate a synthetic world, build its item tree, learn a prior, compare policies, and serve it to visitors.

    The service starts from nothing, without the prior, and learns from all its visitors: clicks per visit rise as they
    come. It goes on until Ctrl-C, with a page to look at. Where there is no terminal, or with --once, it stops after a
    fixed number of visits.
    """
    from treeward.core import checks
    from treeward.policy import TREE_POLICIES
    from treeward.simulate import World
    from treeward.tree.build import default_widths
    from treeward.tree.item_tree import ItemTree

    checks.one_of("demo", "--policy", policy, TREE_POLICIES)
    _needs_serve()
    _clear(out / "events.db")
    with timed(f"Generating {items:,} items and {users:,} users, like those of public logs"):
        world = World.synthetic(items, users + _EARLIER, dim, seed)
        world.catalogue.save(out / "items", overwrite=True)
    with progress() as report:
        widths = default_widths(items, _CHILDREN)
        tree = ItemTree.build(world.catalogue.vectors, widths, seed=seed, progress=report)
    titles = world.catalogue.titles
    assert titles is not None
    with timed("Naming nodes"):
        tree = tree.named(titles)
    tree.save(out / "tree", overwrite=True)
    show(tree.describe(world.catalogue.vectors))
    heading = f"A synthetic catalogue, seed {seed}"
    with timed("Drawing the tree"):
        tree.draw(out / "tree.html", titles=titles, heading=heading)
        tree.draw(out / "tree.png", heading=heading)
    with timed(
        f"Learning what to expect of newcomers, from {_EARLIER} earlier users of {min(_PICKED, items):,} picked items"
    ):
        prior = _prior(world, users, seed)
        prior.save(out / "prior", overwrite=True)
    _compare(world, tree, prior, users, rounds, seed, out)
    stays = sys.stdout.isatty() if once is None else not once
    _serve(world, out, policy, users, visits, port, seed, stays=stays)


def _needs_serve() -> None:
    from treeward.core.errors import ExtraMissing

    try:
        import treeward.serve.server  # noqa: F401
    except ImportError as error:
        raise ExtraMissing.of("demo", error.name, "serve") from error


def _clear(store: Path) -> None:
    """Remove the events of an earlier demo, unless somebody serves them."""
    from treeward.store.journal import connect

    if store.exists():
        connect(store, create=False).close()  # raises where it is in use, or none of ours
        for suffix in ("", "-wal", "-shm"):
            store.with_name(store.name + suffix).unlink(missing_ok=True)


def _prior(world: "World", users: int, seed: int) -> "Crowd":
    """Return what the logs of earlier users say of newcomers: they were shown a few items that somebody had picked."""
    import numpy as np

    from treeward.bandit.crowd import Crowd
    from treeward.core import rng
    from treeward.data.interactions import Interactions

    who = np.repeat(np.arange(users, users + _EARLIER), _SHOWINGS)
    drawn, luck = rng.uniforms(seed, rng.stream("demo", "earlier"), 2 * len(who)).reshape(2, -1)
    count = min(_PICKED, len(world.catalogue))
    picked = rng.sample(seed, rng.stream("demo", "picked"), len(world.catalogue), count)
    rows = picked[(drawn * count).astype(np.int64)]
    clicked = (luck < world.chances(who, rows)).astype(np.float64)
    log = Interactions(who, world.catalogue.ids[rows], rewards=clicked)
    return Crowd.fit(log, world.catalogue, seed=seed)


def _compare(world: "World", tree: "ItemTree", prior: "Crowd", users: int, rounds: int, seed: int, out: Path) -> None:
    from treeward.policy import TREE_POLICIES
    from treeward.policy.base import Policy
    from treeward.simulate import draw_curves, simulate
    from treeward.tree.item_tree import ItemTree

    policies: list[tuple[str, Policy, ItemTree]] = [(kind().name, kind(), tree) for kind in TREE_POLICIES.values()]
    grown = TREE_POLICIES["beam"](prior=prior).grow(world.catalogue, seed)  # as a service with a prior grows its own
    for name in ("phcb", "beam"):
        made = TREE_POLICIES[name](prior=prior)
        policies.append((f"{made.name}, prior", made, grown))
    with timed("Compiling (the first time takes about a minute)"):
        for _, one, its in policies:
            simulate(one, world, its, rounds=1, users=1, seed=seed, reward="click")
    with progress() as report:
        results = [
            simulate(one, world, its, rounds=rounds, users=users, seed=seed, reward="click", progress=report)._replace(
                policy=label
            )
            for label, one, its in policies
        ]
    say(
        f"\nPolicies compared: {users:,} users, {len(world.catalogue):,} items, {rounds:,} rounds, rewards are clicks. "
        "Flat is the bandit without a tree."
    )
    show_results(results, world.base_rate(users) * rounds)
    with timed("Drawing the curves"):
        subtitle = f"{users:,} users, {len(world.catalogue):,} items, seed {seed}"
        draw_curves(results, out / "curves.html", subtitle)
        draw_curves(results, out / "curves.png", subtitle)


def _serve(
    world: "World", out: Path, policy: str, users: int, visits: int, port: int, seed: int, *, stays: bool
) -> None:
    """Serve the world to its users until told to stop, or for a fixed number of visits."""
    from treeward.core.errors import InvalidArgument
    from treeward.serve.server import serve
    from treeward.serve.settings import Settings

    settings = Settings(
        items=str(out / "items"), policy=policy, publish_every=_PUBLISHED,
        repeats=min(1_000, len(world.catalogue) // 2),  # not `False`: a demo that goes on would run out of items
        store=str(out / "events.db"), port=port, admin_port=-1, log="off", reports=str(out),
    )  # fmt: skip
    settings.check()
    stop, failed = Event(), list[Exception]()
    threads: list[Thread] = []

    bars = ExitStack()

    def ready(public: str, admin: str, items: str) -> None:
        bars.close()
        threads.append(Thread(target=_visit, args=(public, world, users, visits, seed, stays, settings, stop, failed)))
        threads[0].start()

    try:
        with bars:
            report = bars.enter_context(progress())
            try:
                serve(settings, progress=report, ready=ready)
            except InvalidArgument as error:
                if error.parameter != "port" or not port:
                    raise
                serve(replace(settings, port=0), progress=report, ready=ready)  # it is taken: any other
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]
    say(f"Stopped; the events are in {out / 'events.db'}. Look at them again:")
    words = ("treeward", "serve", settings.items, "--policy", policy, "--store", settings.store, "--reports", str(out))
    say("  " + shlex.join(words))


def _visit(
    url: str,
    world: "World",
    users: int,
    visits: int,
    seed: int,
    stays: bool,
    settings: "Settings",
    stop: Event,
    failed: list[Exception],
) -> None:
    """Let visitors come, on a thread beside the service's; whatever goes wrong ends the service."""
    users = min(users, _VISITORS)
    try:
        from treeward.cli.visitors import Visitors

        visitors = Visitors(url, world, users, seed)
        say(f"\nServing at {url} : {visits:,} visits are on their way." + (" Open it in a browser." if stays else ""))
        console.file.flush()
        with progress() as report:
            visitors.come(visits, stop, progress=report)
        _show(visitors, world, users, settings.policy)
        if visitors.visits:
            _show_crowd(visitors.crowd())
        if stays and not stop.is_set():
            say(f"\nVisitors go on coming. Open {url} in a browser: pick a user, recommend, like, replay. "
                "Ctrl-C to stop.")  # fmt: skip
            console.file.flush()
            visitors.come(None, stop, pause=_PAUSE)
        visitors.close()
    except Exception as error:
        if not stop.is_set():  # otherwise it is the service that is gone
            failed.append(error)
    finally:
        if not stop.is_set():
            os.kill(os.getpid(), signal.SIGTERM)


def _show(visitors: "Visitors", world: "World", users: int, policy: str) -> None:
    from treeward.cli.visitors import Summary, rates

    if not visitors.visits:
        return
    told = Summary.of(visitors.visits)
    table = Table(title=f"The service, {policy} from nothing, and its visitors", title_justify="left",
                  box=SIMPLE_HEAD, padding=0, show_header=False)  # fmt: skip
    rises = [(f"clicks per visit, visits {first + 1:,} to {last:,}", f"{rate:.1%}")
             for first, last, rate in rates(visitors.visits, _TOLD)]  # fmt: skip
    for name, value in (
        ("visits", f"{told.visits:,}"),
        ("clicks", f"{told.clicks:,}"),
        ("clicks per visit, items at random", f"{world.base_rate(users):.1%}"),
        *rises,
        ("an item is there within", f"{told.median:.1f} ms (half), {told.slowest:.1f} ms (99 %)"),
        ("a click is on disk within", f"{told.told:.1f} ms (99 %)"),
    ):
        table.add_row(name, value)
    console.print(table)
    errors.file.flush()


def _show_crowd(told: "dict[str, Any]") -> None:
    """Say what everybody taught."""
    if not told["risen"]:
        return
    say(f"The crowd is at edition {told['edition']:,} and knows {told['rewards']:,} rewards. What rose most:")
    for one in told["risen"][:3]:
        say(f"  {one['title'] or one['item']}: {one['mean']:.0%} clicks of {one['times']:,.0f} showings")
