import os
import tempfile
import time
from pathlib import Path

import numpy as np
from hypothesis import settings

# The first call of a kernel compiles it, which no deadline should count.
settings.register_profile("treeward", deadline=None)
settings.load_profile("treeward")


def pytest_sessionstart(session):
    """Compile the two largest kernels first, one in each worker, where both would compile both at the same time."""
    worker, run = os.environ.get("PYTEST_XDIST_WORKER"), os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if worker not in ("gw0", "gw1") or os.environ.get("PYTEST_XDIST_WORKER_COUNT") == "1":
        return
    marks = [Path(tempfile.gettempdir()) / f"treeward-{run}-{name}" for name in ("gw0", "gw1")]
    (compile_deciding if worker == "gw0" else compile_replaying)()
    marks[worker == "gw1"].touch()
    end = time.monotonic() + 300
    while not all(mark.exists() for mark in marks) and time.monotonic() < end:
        time.sleep(0.2)


def pytest_sessionfinish(session):
    if run := os.environ.get("PYTEST_XDIST_TESTRUNUID"):
        for mark in Path(tempfile.gettempdir()).glob(f"treeward-{run}-*"):
            mark.unlink(missing_ok=True)


def compile_deciding():
    import treeward as tw
    from treeward.data.synthetic import synthetic_catalogue

    tw.Explorer(synthetic_catalogue(60, dim=4, seed=0))


def compile_replaying():
    import treeward as tw
    from treeward.data.synthetic import synthetic_catalogue
    from treeward.policy.learn import Events, absorb
    from treeward.policy.plan import room

    shop, policy, none = synthetic_catalogue(60, dim=4, seed=0), tw.HCB(), np.full(1, -1, dtype=np.int32)
    plan = policy.plan(policy.grow(shop, 0), shop)
    events = Events(np.zeros(1, dtype=np.uint8), none, none, np.zeros(1))
    absorb(plan, room(plan, 1, 0), np.zeros(1, dtype=np.int64), np.array([0, 1]), events)
