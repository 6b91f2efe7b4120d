"""`treeward demo`: everything at work on a synthetic world, up to a service with a page."""

import os
import shlex
import signal
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import typer

from treeward.bandit.crowd import Crowd
from treeward.cli.console import console, errors, progress, say, show_table, show_tree, timed
from treeward.cli.options import Derived, expanded
from treeward.cli.simulate import SIZES, check_sizes, show_results
from treeward.core import checks, rng
from treeward.core.errors import ExtraMissing, InvalidArgument
from treeward.data.interactions import Interactions
from treeward.policy import TREE_POLICIES
from treeward.policy.base import Policy
from treeward.serve.settings import Settings
from treeward.simulate import World, draw_curves, simulate
from treeward.store.journal import connect
from treeward.tree.build import default_widths
from treeward.tree.item_tree import ItemTree

if TYPE_CHECKING:
    from treeward.cli.demo_traffic import Visitors  # needs the extra serve

_EARLIER, _SHOWINGS, _PICKED = 500, 300, 2_000
"""Earlier users, items shown to each, and how many items these were picked from."""
_CHILDREN = 20
"""At most this many children per node: 50 scores per round, over four steps, then cover most of a node's children."""
_VISITORS, _PAUSE = 40, 0.04
_GROUP = 250
"""Clicks per visit are printed for groups of this many visits."""
_PUBLISHED = 0.25
"""Seconds between editions of the crowd: visitors come as fast as they are answered, hours of traffic in seconds."""


class _Demo(NamedTuple):
    """What is shown, and to how many users."""

    world: World
    users: int
    rounds: int
    visits: int
    seed: int
    out: Path


@expanded
def demo(
    size: Annotated[dict[str, Any], Derived(World.synthetic, *SIZES, words=SIZES, users=200)],
    rounds: Annotated[int, typer.Option(help="Recommendations per user in the comparison of policies.", min=1)] = 300,
    visits: Annotated[int, typer.Option(help="Visits to the service, as fast as it answers.", min=1)] = 2_000,
    policy: Annotated[str, typer.Option(help=f"Policy of the service: {', '.join(TREE_POLICIES)}.")] = "beam",
    port: Annotated[int, typer.Option(help="Port of the page; if taken, any free one.", min=0, max=65535)] = 8000,
    stay: Annotated[
        bool | None,
        typer.Option(help="Go on until Ctrl-C, or stop after the visits. Default: stay if there is a terminal.",
                     show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for what the demo makes.")] = Path("demo-out"),
) -> None:  # fmt: skip
    """Generate a synthetic world, build its item tree, learn a prior, compare policies, and serve it to visitors.

    The service starts without the prior and learns from all its visitors: clicks per visit rise as they come. It goes
    on until Ctrl-C, with a page to look at. Without a terminal, or with --no-stay, it stops after the visits.
    """
    checks.one_of("demo", "--policy", policy, TREE_POLICIES)
    check_sizes("demo", size)
    checks.integer("demo", "--users", size["users"], low=2)
    _check_extra()
    _clear(out / "events.db")
    items, users, seed = size["items"], size["users"], size["seed"]
    with timed(f"Generating {items:,} items and {users:,} users, like those of public logs"):
        world = World.synthetic(**{**size, "users": users + _EARLIER})
        world.catalogue.save(out / "items", overwrite=True)
    with progress() as report:
        widths = default_widths(items, _CHILDREN)
        tree = ItemTree.build(world.catalogue.vectors, widths, seed=seed, progress=report)
    titles = world.catalogue.titles
    assert titles is not None
    with timed("Naming nodes"):
        tree = tree.named(titles)
    tree.save(out / "tree", overwrite=True)
    show_tree(tree.describe(world.catalogue.vectors))
    heading = f"A synthetic catalogue, seed {seed}"
    with timed("Drawing the tree"):
        tree.draw(out / "tree.html", titles=titles, heading=heading)
        tree.draw(out / "tree.png", heading=heading)
    with timed(f"Learning a prior, from {_EARLIER} earlier users who saw {min(_PICKED, items):,} picked items"):
        prior = _prior(world, users, seed)
        prior.save(out / "prior", overwrite=True)
    shown = _Demo(world, users, rounds, visits, seed, out)
    _compare(shown, tree, prior)
    _serve(shown, policy, port, stays=sys.stdout.isatty() if stay is None else stay)


def _check_extra() -> None:
    try:
        import treeward.serve.app  # noqa: F401
    except ImportError as error:
        raise ExtraMissing.of("demo", error.name, "serve") from error


def _clear(store: Path) -> None:
    """Remove the events of an earlier demo, unless a service has them open."""
    if store.exists():
        connect(store, create=False).close()  # raises if the store is in use, or not a store
        for suffix in ("", "-wal", "-shm"):
            store.with_name(store.name + suffix).unlink(missing_ok=True)


def _prior(world: World, users: int, seed: int) -> Crowd:
    """Return a prior from the logs of earlier users, who were shown items from a small selection."""
    who = np.repeat(np.arange(users, users + _EARLIER), _SHOWINGS)
    drawn, luck = rng.uniforms(seed, rng.stream("demo", "earlier"), 2 * len(who)).reshape(2, -1)
    count = min(_PICKED, len(world.catalogue))
    picked = rng.sample(seed, rng.stream("demo", "picked"), len(world.catalogue), count)
    rows = picked[(drawn * count).astype(np.int64)]
    clicked = (luck < world.chances(who, rows)).astype(np.float64)
    return Crowd.fit(Interactions(who, world.catalogue.ids[rows], rewards=clicked), world.catalogue, seed=seed)


def _compare(shown: _Demo, tree: ItemTree, prior: Crowd) -> None:
    """Try every policy on the users, some of them also with the prior."""
    world, users, seed = shown.world, shown.users, shown.seed
    policies: list[tuple[str, Policy, ItemTree]] = [(kind().name, kind(), tree) for kind in TREE_POLICIES.values()]
    grown = TREE_POLICIES["beam"](prior=prior).grow(world.catalogue, seed)  # as a service with a prior grows its own
    for name in ("phcb", "beam"):
        made = TREE_POLICIES[name](prior=prior)
        policies.append((f"{made.name}, prior", made, grown))
    with timed("Compiling (the first time takes about a minute)"):
        for _, one, its in policies:
            simulate(one, world, its, rounds=1, users=1, seed=seed, reward="click")
    options: dict[str, Any] = {"rounds": shown.rounds, "users": users, "seed": seed, "reward": "click"}
    with progress() as report:
        results = [simulate(one, world, its, **options, progress=report)._replace(policy=label)
                   for label, one, its in policies]  # fmt: skip
    sizes = f"{users:,} users, {len(world.catalogue):,} items"
    say(
        f"\nPolicies compared: {sizes}, {shown.rounds:,} rounds, rewards are clicks. Flat is the bandit without a tree."
    )
    show_results(results, world.base_rate(users) * shown.rounds)
    with timed("Drawing the curves"):
        draw_curves(results, shown.out / "curves.html", f"{sizes}, seed {seed}")
        draw_curves(results, shown.out / "curves.png", f"{sizes}, seed {seed}")


def _serve(shown: _Demo, policy: str, port: int, *, stays: bool) -> None:
    """Serve the world to its users until interrupted, or for a fixed number of visits."""
    from treeward.serve.server import serve

    out = shown.out
    settings = Settings(
        items=str(out / "items"), policy=policy, publish_every=_PUBLISHED,
        repeats=True,  # ten visits per visitor show little where each item out of 100,000 appears once
        store=str(out / "events.db"), port=port, admin_port=-1, log="off", reports=str(out),
    )  # fmt: skip
    settings.check()
    stop, failed = Event(), list[Exception]()
    threads: list[Thread] = []
    bars = ExitStack()

    def ready(public: str, admin: str, items: str) -> None:
        bars.close()
        threads.append(Thread(target=_visit, args=(public, shown, policy, stays, stop, failed)))
        threads[0].start()

    try:
        with bars:
            report = bars.enter_context(progress())
            try:
                serve(settings, progress=report, ready=ready)
            except InvalidArgument as error:
                if error.parameter != "port" or not port:
                    raise
                serve(replace(settings, port=0), progress=report, ready=ready)  # the port is taken: use any other
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]
    say(f"Stopped; the events are in {out / 'events.db'}. Look at them again:")
    words = ("treeward", "serve", settings.items, "--policy", policy, "--store", settings.store, "--reports", str(out))
    say("  " + shlex.join(words))


def _visit(url: str, shown: _Demo, policy: str, stays: bool, stop: Event, failed: list[Exception]) -> None:
    """Make the visits, on a thread next to the service's; any failure ends the service."""
    users = min(shown.users, _VISITORS)
    try:
        from treeward.cli.demo_traffic import Visitors

        visitors = Visitors(url, shown.world, users, shown.seed)
        more = " Open it in a browser." if stays else ""
        say(f"\nServing at {url} : {shown.visits:,} visits are on their way.{more}")
        console.file.flush()
        with progress() as report:
            visitors.come(shown.visits, stop, progress=report)
        if visitors.visits:
            _show_visits(visitors, shown.world.base_rate(users), policy)
            _show_crowd(visitors.crowd())
        if stays and not stop.is_set():
            say(f"\nVisitors go on coming. Open {url} in a browser: pick a user, recommend, like, replay. "
                "Ctrl-C to stop.")  # fmt: skip
            console.file.flush()
            visitors.come(None, stop, pause=_PAUSE)
        visitors.close()
    except Exception as error:
        if not stop.is_set():  # otherwise the service has stopped, and the error follows from that
            failed.append(error)
    finally:
        if not stop.is_set():
            os.kill(os.getpid(), signal.SIGTERM)


def _show_visits(visitors: "Visitors", random: float, policy: str) -> None:
    from treeward.cli.demo_traffic import Summary, rates

    found = Summary.of(visitors.visits)
    rows = (
        ("visits", f"{found.visits:,}"),
        ("clicks", f"{found.clicks:,}"),
        ("clicks per visit, items at random", f"{random:.1%}"),
        *((f"clicks per visit, visits {first + 1:,} to {last:,}", f"{rate:.1%}")
          for first, last, rate in rates(visitors.visits, _GROUP)),
        ("an item arrives within", f"{found.median:.1f} ms (half), {found.slowest:.1f} ms (99 %)"),
        ("a click is on disk within", f"{found.told:.1f} ms (99 %)"),
    )  # fmt: skip
    title = f"The service, {policy} from nothing, and its visitors"
    show_table(title, ("", "value"), rows, left=("", "value"), show_header=False)
    errors.file.flush()


def _show_crowd(found: dict[str, Any]) -> None:
    """Print what the service learned from all visitors."""
    if found["risen"]:
        say(f"The crowd is at edition {found['edition']:,} and knows {found['rewards']:,} rewards. What rose most:")
    for one in found["risen"][:3]:
        say(f"  {one['title'] or one['item']}: {one['earned']:,.0f} clicks in {one['shown']:,} showings")
