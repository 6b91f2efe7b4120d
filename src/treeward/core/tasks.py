"""Work in other processes, or on the machines of a Ray cluster: the same calls, and the same results to the bit.

Tasks are plain functions of plain arguments. Results either come back (`Tasks.each`) or stay where they were computed
until another task needs them (`Tasks.start`, arrays only). If a worker is killed, its work is done again.
"""

import multiprocessing
import os
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from treeward.core import checks
from treeward.core.errors import ExtraMissing, InvalidArgument, TreewardError
from treeward.core.files import open_npy
from treeward.core.parallel import cores
from treeward.core.types import AnyArray

RETRIES = 3
"""How often a task is repeated after its process was killed."""
Ref = Any
"""An array that stays where a task left it: an argument for another task, or for `Tasks.get`."""


class Share(Protocol):
    """A folder that tasks can read."""

    def folder(self) -> Path:
        """Return its path on the machine of the caller."""


class Tasks(Protocol):
    """Workers that call functions elsewhere."""

    def each(self, function: Callable[..., Any], pieces: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """Call ``function(*piece)`` for every piece; yield number and result of each as it is done."""

    def start(self, function: Callable[..., Any], *given: Any, parts: int = 1) -> list[Ref]:
        """Begin ``function(*given)``, which returns an array, or a tuple of `parts` arrays.

        A `Ref` among the arguments arrives as its array.
        """

    def put(self, array: AnyArray) -> Ref:
        """Put an array where all tasks can read it."""

    def get(self, ref: Ref) -> AnyArray:
        """Wait for an array and return it; it may be read-only."""

    def wait(self, ref: Ref) -> None:
        """Wait until an array is there."""

    def free(self, refs: Sequence[Ref]) -> None:
        """Release arrays that are not needed any more."""

    def share(self, folder: Path, names: Sequence[str]) -> Share:
        """Let tasks read some files and subfolders of a folder, if they exist; they must not change meanwhile."""


@contextmanager
def tasks(on: str = "processes", count: int | None = None, scratch: Path | None = None) -> Iterator[Tasks]:
    """Open workers: ``"processes"`` of this machine, or ``"ray"``, or a cluster at ``"ray://host:port"``.

    Parameters
    ----------
    on
        Where. Plain ``"ray"`` joins the cluster that RAY_ADDRESS names, or starts Ray on this machine.
    count
        How many processes; by default one per core. 1 means this process. A cluster has one worker per core.
    scratch
        Folder for arrays of processes; by default a temporary one.
    """
    if on == "processes":
        count = cores() if count is None else checks.integer("treeward", "processes", count, low=1)
        if scratch is not None and not scratch.is_dir():
            raise InvalidArgument("treeward", "scratch", "a folder that exists", str(scratch))
        with (
            tempfile.TemporaryDirectory(prefix="treeward-", dir=scratch) as folder,
            Processes(count, Path(folder), here=count == 1) as made,
        ):
            yield made
    elif on == "ray" or on.startswith("ray://"):
        check_place(on)
        from treeward.core.on_ray import on_ray

        with on_ray(None if on == "ray" else on, count) as cluster:
            yield cluster
    else:
        check_place(on)


def check_place(on: str) -> None:
    """Raise if `tasks` could not open workers there: for use before other preparations."""
    if on != "processes" and on != "ray" and not on.startswith("ray://"):
        raise InvalidArgument("treeward", "on", "processes, ray, or ray://host:port", on)
    if on != "processes" and find_spec("ray") is None:
        raise ExtraMissing.of(f"computing on {on}", "ray", "ray")


def arrays(made: Any, parts: int) -> tuple[AnyArray, ...]:
    """Return the result of a task as `parts` arrays."""
    found = made if isinstance(made, tuple) else (made,)
    if len(found) != parts:
        raise TreewardError(f"a task returned {len(found)} arrays, not {parts}")
    return tuple(np.asarray(one) for one in found)


class _Call:
    """A call that is waiting, running or done."""

    def __init__(self, function: Callable[..., Any], given: tuple[Any, ...]) -> None:
        self.function, self.given, self.tried = function, given, 0
        self.done: Future[Any] | None = None


class _File(NamedTuple):
    """An array in a file, and the call that writes it."""

    path: str
    call: _Call | None


class _Path(NamedTuple):
    """What a worker gets in place of a `_File`."""

    path: str


class _Here(NamedTuple):
    path: Path

    def folder(self) -> Path:
        return self.path


class _Now:
    """An executor that makes every call at once, in this process."""

    _processes = None

    def submit(self, function: Callable[..., Any], *given: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(function(*given))
        except Exception as error:
            done.set_exception(error)
        return done

    def shutdown(self, *, wait: bool, cancel_futures: bool) -> None:
        pass


class Processes:
    """Tasks in processes of this machine; arrays that stay are files of a scratch folder."""

    def __init__(self, count: int, scratch: Path, *, here: bool = False) -> None:
        self._workers, self._scratch, self._made, self._here = count, scratch, 0, here
        self._waiting: deque[_Call] = deque()
        self._running: dict[Future[Any], _Call] = {}
        self._pool = self._fresh()

    def _fresh(self) -> ProcessPoolExecutor | _Now:
        if self._here:  # starting another process would take longer than many tasks
            return _Now()
        method = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self._workers, mp_context=method, initializer=_follow_parent)

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:  # their results are not needed any more
            for process in list((self._pool._processes or {}).values()):
                process.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _advance(self) -> list[_Call]:
        """Hand out calls to free workers, wait until one is done, and return those that are done."""
        # Not more than there are workers: if one is killed, all that was handed out must be repeated.
        while self._waiting and len(self._running) < self._workers:
            call = self._waiting[0]
            try:
                self._running[self._pool.submit(call.function, *call.given)] = call
            except BrokenProcessPool:
                return self._again()
            self._waiting.popleft().tried += 1
        done = wait(self._running, return_when=FIRST_COMPLETED).done
        if any(isinstance(one.exception(), BrokenProcessPool) for one in done):
            return self._again()
        made = []
        for one in done:
            call = self._running.pop(one)
            call.done = one
            made.append(call)
        return made

    def _again(self) -> list[_Call]:
        """Start new workers after one was killed; return the calls that were done before, or are given up."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool = self._fresh()
        running, self._running = self._running, {}
        made = []
        for one, call in running.items():
            lost = not one.done() or one.cancelled() or isinstance(one.exception(), BrokenProcessPool)
            if lost and call.tried <= RETRIES:
                self._waiting.appendleft(call)
            else:
                call.done = one
                made.append(call)
        return made

    @staticmethod
    def _result(call: _Call) -> Any:
        assert call.done is not None
        try:
            return call.done.result()
        except BrokenProcessPool as error:
            why = "a worker process ended before it was done (out of memory?)"
            raise TreewardError(f"{why}; tried {call.tried} times") from error

    def each(self, function: Callable[..., Any], pieces: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """Call a function for every piece; see `Tasks.each`."""
        calls = {_Call(function, piece): number for number, piece in enumerate(pieces)}
        self._waiting.extend(calls)
        while calls:
            for call in self._advance():
                if call in calls:
                    yield calls.pop(call), self._result(call)

    def start(self, function: Callable[..., Any], *given: Any, parts: int = 1) -> list[Ref]:
        """Begin a call whose arrays stay; see `Tasks.start`."""
        paths = [self._path() for _ in range(parts)]
        plain = tuple(self._settled(one) if isinstance(one, _File) else one for one in given)
        call = _Call(_kept, (function, plain, paths))
        self._waiting.append(call)
        return [_File(path, call) for path in paths]

    def _settled(self, file: _File) -> _Path:
        if file.call is not None:
            while file.call.done is None:
                self._advance()
            self._result(file.call)
        return _Path(file.path)

    def _path(self) -> str:
        self._made += 1
        return str(self._scratch / f"{self._made}.npy")

    def put(self, array: AnyArray) -> Ref:
        """Put an array where all tasks can read it."""
        path = self._path()
        np.save(path, array)
        return _File(path, None)

    def get(self, ref: Ref) -> AnyArray:
        """Wait for an array, and return it."""
        return _read(self._settled(ref).path)

    def wait(self, ref: Ref) -> None:
        """Wait until an array is there."""
        self._settled(ref)

    def free(self, refs: Sequence[Ref]) -> None:
        """Remove arrays."""
        for ref in refs:
            Path(ref.path).unlink(missing_ok=True)

    def share(self, folder: Path, names: Sequence[str]) -> Share:
        """Let tasks read a folder; see `Tasks.share`."""
        return _Here(folder)


def _read(path: str) -> AnyArray:
    return open_npy(path)


def _kept(function: Callable[..., Any], given: tuple[Any, ...], paths: list[str]) -> None:
    """Call a function in a worker and write its arrays to files, each completely or not at all."""
    with threadpool_limits(1, user_api="blas"):
        made = function(*(_read(one.path) if isinstance(one, _Path) else one for one in given))
    for array, path in zip(arrays(made, len(paths)), paths, strict=True):
        part = f"{path}.{os.getpid()}"
        with open(part, "wb") as file:
            np.save(file, array)
        os.replace(part, path)


def _follow_parent() -> None:
    """End this process when its parent has ended, for whatever reason."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
