"""Several processes behind one port, over one database: started, watched, restarted when one dies, and stopped."""

import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from threading import Event
from time import monotonic
from types import FrameType
from typing import Any

from treeward.core.compile_progress import exit_around_compiler
from treeward.core.errors import StoreError, TreewardError
from treeward.serve.groups import GroupCounts
from treeward.serve.log import Log
from treeward.serve.server import address_of, listening, serve
from treeward.serve.settings import Settings

_PAUSE = 1.0
"""Seconds before a worker that died is restarted."""
_PATIENCE = 30.0
"""Seconds that a worker has to end."""


def serve_many(settings: Settings, *, ready: Callable[[str, str, str], None] = lambda *_: None) -> None:
    """Run `settings.workers` services behind one port until SIGTERM or SIGINT; `ready` is called once all listen."""
    held = listening(settings.host, settings.port, shared=True)  # keeps the port while workers come and go
    held_admin = listening("127.0.0.1", settings.admin_port) if settings.admin_port >= 0 else None
    public, admin = address_of(held), address_of(held_admin) if held_admin is not None else ""
    if held_admin is not None:
        held_admin.close()  # the first worker opens it
    ports = [int(address.rpartition(":")[2]) if address else -1 for address in (public, admin)]
    crew = _Crew(replace(settings, port=ports[0], admin_port=ports[1]))
    before = [(name, signal.signal(name, crew.end)) for name in (signal.SIGTERM, signal.SIGINT)]
    try:
        crew.run(lambda items: ready(public, admin, items))
    finally:
        for name, handler in before:
            signal.signal(name, handler)
        held.close()


class _Crew:
    """The worker processes."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._context = settings, get_context("spawn")
        self._workers: list[tuple[BaseProcess, Connection]] = []
        self._ended = Event()
        self._counts = self._context.RawArray("d", settings.workers * GroupCounts.WIDTH)
        self._log = Log()

    def end(self, number: int = 0, frame: FrameType | None = None) -> None:
        """Have all workers answer what is waiting, and end."""
        self._ended.set()
        for process, _ in self._workers:
            if process.is_alive():
                process.terminate()

    def run(self, ready: Callable[[str], None]) -> None:
        """Start all workers, and restart those that die, until `end` is called."""
        try:
            for index in range(self._settings.workers):
                self._workers.append(self._start(index, first=index == 0))
            items = self._wait_until_ready()
            if not self._ended.is_set():
                ready(items)
            while not self._ended.is_set():
                wait([process.sentinel for process, _ in self._workers], timeout=0.5)
                gone = [index for index, (process, _) in enumerate(self._workers) if not process.is_alive()]
                for index in gone if not self._ended.is_set() else []:
                    self._log_death(index)
                if gone and not self._ended.wait(_PAUSE):
                    for index in gone:
                        self._workers[index] = self._start(index)
        finally:
            self.end()
            self._join()

    def _log_death(self, index: int) -> None:
        """Log that a worker died, and why: a killed process cannot log it itself."""
        process, told = self._workers[index]
        code, why = process.exitcode, ""
        with suppress(EOFError):
            while told.poll():
                why = told.recv()[1] or why
        why = why or (signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}")
        self._log.note({"error": "a worker died, and is restarted", "worker": index, "pid": process.pid, "of": why})
        self._log.flush()

    def _wait_until_ready(self) -> str:
        """Wait until all workers listen, or one reports why it does not; return the items they serve."""
        items = ""
        for process, told in self._workers:
            while not told.poll(0.1) and process.is_alive() and not self._ended.is_set():
                pass
            problem = "" if self._ended.is_set() else "a worker died as it began"
            if told.poll():
                items, problem = told.recv()
            if problem:
                raise StoreError(problem)
        return items

    def _start(self, index: int, *, first: bool = False) -> tuple[BaseProcess, Connection]:
        ours, theirs = self._context.Pipe(duplex=False)
        settings = self._settings if index == 0 else replace(self._settings, admin_port=-1)
        given = (settings, theirs, self._counts, index, first)
        process = self._context.Process(target=_work, args=given, name=f"treeward-worker-{index}")
        process.start()
        theirs.close()
        return process, ours

    def _join(self) -> None:
        until = monotonic() + _PATIENCE
        for process, _ in self._workers:
            process.join(max(0.0, until - monotonic()))
            if process.is_alive():
                process.kill()
                process.join()


def _work(settings: Settings, told: Connection, held: Any, index: int, first: bool) -> None:
    """Run one worker; `first`: no other one answers yet."""
    try:
        serve(
            settings,
            ready=lambda *which: told.send((which[-1], "")),
            counts=GroupCounts(held, index, settings.workers),
            listens_early=first,
        )
    except (TreewardError, OSError) as error:
        told.send(("", str(error)))
    except KeyboardInterrupt:
        pass
    exit_around_compiler(0)
