import json
import os
import signal
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

# The first call of a kernel compiles it, which no deadline should count.
settings.register_profile("treeward", deadline=None)
settings.load_profile("treeward")


def pytest_sessionstart(session):
    """Compile the largest kernels first, each in one worker: left alone, all would compile all at the same time."""
    worker, run = os.environ.get("PYTEST_XDIST_WORKER"), os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if worker is None or os.environ.get("PYTEST_XDIST_WORKER_COUNT") == "1" or "NUMBA_DISABLE_JIT" in os.environ:
        return
    for step, work in enumerate(({"gw0": deciding, "gw1": replaying}, {"gw0": living})):
        marks = {name: Path(tempfile.gettempdir()) / f"treeward-{run}-{step}-{name}" for name in work}
        if worker in work:
            work[worker]()
            marks[worker].touch()
        end = time.monotonic() + 300
        while not all(mark.exists() for mark in marks.values()) and time.monotonic() < end:
            time.sleep(0.2)


@pytest.fixture(scope="session", autouse=True)
def one_process():
    """Compute experiments' cells in the test's own process, unless it asks for more: another takes seconds to start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("treeward.core.tasks.cores", lambda: 1)
        yield


UNSTOPPABLE = ("/coverage/", "<frozen importlib")  # one may hold a lock, the other would leave half a module


@contextmanager
def patience():
    """Stop a test after PATIENCE seconds, where that is set: with kernels interpreted, some would take hours."""
    seconds = int(os.environ.get("PATIENCE", "0"))

    def stop(_, frame):
        while frame is not None:
            if any(part in frame.f_code.co_filename for part in UNSTOPPABLE):
                signal.setitimer(signal.ITIMER_REAL, 0.01)
                return
            frame = frame.f_back
        pytest.skip(f"stopped after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    with patience():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    with patience():
        return (yield)


def pytest_collection_modifyitems(config, items):
    """Leave out what passed before, where REST names the file that DURATIONS wrote."""
    if path := os.environ.get("REST"):
        passed = json.loads(Path(path).read_text())
        config.hook.pytest_deselected(items=[one for one in items if one.nodeid in passed])
        items[:] = [one for one in items if one.nodeid not in passed]


def pytest_terminal_summary(terminalreporter):
    """Keep how long every test took that passed, for `make mutants`, where DURATIONS names a file."""
    if path := os.environ.get("DURATIONS"):
        passed = terminalreporter.stats.get("passed", [])
        Path(path).write_text(json.dumps({one.nodeid: round(one.duration, 2) for one in passed}))


def pytest_sessionfinish(session):
    worker, run = os.environ.get("PYTEST_XDIST_WORKER"), os.environ.get("PYTEST_XDIST_TESTRUNUID")
    for mark in Path(tempfile.gettempdir()).glob(f"treeward-{run}-*-{worker}"):
        mark.unlink()


def small_shop():
    from treeward.data.synthetic import synthetic_catalogue

    return synthetic_catalogue(60, dim=4, seed=0)


def deciding():
    import treeward as tw

    tw.Explorer(small_shop())


def replaying():
    """Compile what takes as long as deciding does, and needs none of it."""
    import treeward as tw
    from treeward.policy.learn import Events, absorb
    from treeward.policy.plan import room

    shop, policy, none = small_shop(), tw.HCB(), np.full(1, -1, dtype=np.int32)
    plan = policy.plan(policy.grow(shop, 0), shop)
    events = Events(np.zeros(1, dtype=np.uint8), none, none, np.zeros(1))
    absorb(plan, room(plan, 1, 0), np.zeros(1, dtype=np.int64), np.array([0, 1]), events)
    world = tw.World.synthetic(items=60, users=2, dim=4, seed=0)
    for policy in (tw.ConUCB(), tw.HMAB(), tw.ICTR(), tw.ContextFree()):
        tw.simulate(policy, world, rounds=2, users=1)


def living():
    import treeward as tw

    world = tw.World.synthetic(items=60, users=2, dim=4, seed=0)
    tw.simulate(tw.PHCB(), world, rounds=2, users=1, regret=True)
