import json
import os
import signal
import tempfile
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from hypothesis import settings

from treeward.cli.warm import JOBS, compile_for

# The first call of a kernel compiles it, which no deadline should count.
settings.register_profile("treeward", deadline=None)
settings.load_profile("treeward")

# The workers of a test run compile for each other: more processes would only compete with them.
os.environ.setdefault("TREEWARD_COMPILE_AHEAD", "0")


def pytest_sessionstart(session):
    """Compile the largest kernels first, each in one worker: left alone, all would wait for the same ones."""
    worker, count = os.environ.get("PYTEST_XDIST_WORKER"), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if worker is not None and count > 1 and "NUMBA_DISABLE_JIT" not in os.environ:
        for job in list(JOBS)[int(worker.removeprefix("gw")) :: count]:
            compile_for(job)


@pytest.fixture(scope="session", autouse=True)
def patient_callers():
    """Let tests wait for answers as long as a busy machine takes; httpx gives up after five seconds by default."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "read", "write", "pool"):
            patch.setattr(httpx._config.DEFAULT_TIMEOUT_CONFIG, name, 60.0)
        yield


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
