"""`treeward warm`: compile all kernels ahead, for instance while an image is built."""

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

from treeward.cli.console import progress, say

if TYPE_CHECKING:
    from treeward.data.catalogue import Catalogue
    from treeward.simulate.world import World


def warm() -> None:
    """Compile all kernels for this machine and keep them on disk, so that nothing is compiled later.

    Run it as the user who will run treeward, on a processor of the same kind.
    """
    from treeward.cli.doctor import kernels
    from treeward.core.errors import TreewardError
    from treeward.core.parallel import cores
    from treeward.core.tasks import tasks

    kept = kernels()
    if kept["folder"] is None or not kept["writable"]:
        raise TreewardError("compiled kernels cannot be kept: set NUMBA_CACHE_DIR to a folder that can be written to")
    start = perf_counter()
    with progress() as report, tasks("processes", max(2, cores())) as workers:
        report("kernels", 0, len(JOBS))
        for done, _ in enumerate(workers.each(compile_for, [(name,) for name in JOBS]), start=1):
            report("kernels", done, len(JOBS))
    say(f"Compiled in {perf_counter() - start:.0f} s, kept in {kept['folder']}")


def compile_for(name: str) -> None:
    """Run a small job, for which numba compiles what is not on disk yet."""
    JOBS[name]()


def _shop() -> "Catalogue":
    from treeward.data.synthetic import synthetic_catalogue

    return synthetic_catalogue(60, dim=4, seed=0)


def _world() -> "World":
    import treeward as tw

    return tw.World.synthetic(items=60, users=2, dim=4, seed=0)


def deciding() -> None:
    """Compile the kernels that decide."""
    import treeward as tw

    for policy in (tw.Beam(), tw.HCB()):
        tw.Explorer(_shop(), policy=policy)


def learning() -> None:
    """Compile the kernels that learn from events; they share nothing with those that decide."""
    from treeward.policy.compile_learning import learn_from_items, learn_on_paths

    learn_from_items()
    learn_on_paths()


def baselines() -> None:
    """Compile the baselines that learn from all users together, or ask questions."""
    import treeward as tw

    world = _world()
    for policy in (tw.ConUCB(), tw.HMAB(), tw.ICTR(), tw.ContextFree()):
        tw.simulate(policy, world, rounds=2, users=1)


def rivals() -> None:
    """Compile the policies that others published since 2021."""
    import treeward as tw

    world = _world()
    for policy in (tw.XCB(), tw.MIPS(), tw.MIPS(tw.Thompson()), tw.DiagLinUCB(), tw.SpannerIGW()):
        tw.simulate(policy, world, rounds=2, users=1)


def simulating() -> None:
    """Compile the loop of a simulation."""
    import treeward as tw

    for policy in (tw.Beam(), tw.PHCB()):
        tw.simulate(policy, _world(), rounds=2, users=1, regret=True)


def changing() -> None:
    """Compile the kernels that add, remove and explain items."""
    import numpy as np

    import treeward as tw

    explorer = tw.Explorer(_shop(), repeats=False, spare=0.2)
    made = explorer.recommend(["ada", "bob"], 12)  # enough for their histories to be resized
    explorer.feedback({one.id: 1.0 for one in made})
    explorer.explain(made[0])
    explorer.remove([made[0].item])
    explorer.add(tw.Catalogue([1_000], np.ones((1, 4), dtype=np.float32)))
    explorer.rebuild()
    explorer.recommend(["ada"])


JOBS: dict[str, Callable[[], None]] = {
    job.__name__: job for job in (deciding, baselines, learning, simulating, rivals, changing)
}
"""Jobs that share few kernels go first: a job waits while another one compiles what both need."""
