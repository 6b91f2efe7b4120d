"""Collects requests of many connections, and answers them together in threads of their own."""

import asyncio
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")
Then = Callable[[Answered | Exception], None]


class Full(Exception):
    """Too many requests are waiting."""


class _Lane(Generic[Asked, Answered]):
    """One thread, and the requests that wait for it.

    Parameters
    ----------
    name
        Of the thread.
    handle
        Is called with requests, and what to call with the answer to each.
    at_once
        How many one call gets at most.
    """

    def __init__(self, name: str, handle: Callable[[list[tuple[Asked, Then[Answered]]]], None], at_once: int) -> None:
        self._handle, self._at_once = handle, at_once
        self._queue: SimpleQueue[list[tuple[Asked, Then[Answered]]] | None] = SimpleQueue()
        self._fresh: list[tuple[Asked, Then[Answered]]] = []
        self._busy = Lock()
        self._loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]  # there is none before the start
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to take requests."""
        self._loop = loop
        self._thread.start()

    def add(self, asked: Asked, then: "Then[Answered]") -> None:
        """Add a request to those of this turn of the event loop."""
        if not self._fresh:
            self._loop.call_soon(self._hand_over)
        self._fresh.append((asked, then))

    def put(self, batch: list[tuple[Asked, Then[Answered]]]) -> None:
        """Add requests; may be called by another thread."""
        self._queue.put(batch)

    def pass_by(self) -> None:
        """Wait for the requests that are being handled now."""
        with self._busy:
            pass

    def close(self) -> None:
        """Handle the waiting requests, and end the thread."""
        self._hand_over()
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def _hand_over(self) -> None:
        fresh, self._fresh = self._fresh, []
        if fresh:
            self._queue.put(fresh)

    def _run(self) -> None:
        ended = False
        left: list[tuple[Asked, Then[Answered]]] = []
        while left or not ended:
            if not left:
                more = self._queue.get()
                ended = more is None
                left = more or []
            while not ended and len(left) < self._at_once and not self._queue.empty():
                more = self._queue.get()
                ended = more is None
                left = left + (more or [])
            batch, left = left[: self._at_once], left[self._at_once :]
            if batch:
                with self._busy:
                    self._handle(batch)


class Batcher(Generic[Asked, Answered]):
    """Hands the requests of one turn of the event loop, and all that arrive while the thread is busy, to one call.

    Parameters
    ----------
    name
        Of the thread.
    work
        Takes requests and returns as many answers; an answer that is an exception is raised for its request.
    most
        How many requests may wait; `Full` is raised for more.
    at_once
        How many one call gets at most.
    slow
        Says which requests need a preparation that takes long ...
    prepare
        ... which a second thread does, so that other requests need not wait for it. It never raises.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[Sequence[Asked]], Sequence[Answered | Exception]],
        most: int,
        at_once: int = 256,
        *,
        slow: Callable[[Asked], bool] = lambda asked: False,
        prepare: Callable[[Sequence[Asked]], None] = lambda asked: None,
    ) -> None:
        self._work, self._most, self._slow, self._prepare = work, most, slow, prepare
        self.waiting = 0
        self._lane = _Lane(name, self._answer, at_once)
        self._slow_lane = _Lane(f"{name}-prepare", self._prepare_then_answer, max(1, at_once // 16))
        self._loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]  # there is none before the start

    def start(self) -> None:
        """Begin to answer; called on the event loop."""
        self._loop = asyncio.get_running_loop()
        self._lane.start(self._loop)
        self._slow_lane.start(self._loop)

    @property
    def full(self) -> bool:
        """Whether no further request may wait."""
        return self.waiting >= self._most

    def ask_then(self, asked: Asked, then: "Then[Answered]") -> None:
        """Have `then` called, on the event loop, with the answer or the exception; cheaper than a future."""
        if self.waiting >= self._most:
            raise Full
        (self._slow_lane if self._slow(asked) else self._lane).add(asked, then)
        self.waiting += 1

    def ask(self, asked: Asked) -> "asyncio.Future[Answered]":
        """Return a future of the answer."""
        future: asyncio.Future[Answered] = self._loop.create_future()

        def settle(answer: Answered | Exception) -> None:
            if future.cancelled():
                return
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        self.ask_then(asked, settle)
        return future

    def ask_many(self, many: Sequence[Asked]) -> "list[asyncio.Future[Answered]]":
        """Return futures of the answers, if there is room for all of them; an empty queue accepts any batch."""
        if self.waiting and self.waiting + len(many) > self._most:
            raise Full
        most, self._most = self._most, self.waiting + len(many)
        try:
            return [self.ask(asked) for asked in many]
        finally:
            self._most = most

    async def passed(self) -> None:
        """Return when the requests that are being answered now have been."""
        await asyncio.to_thread(self._lane.pass_by)
        await asyncio.sleep(0)

    def close(self) -> None:
        """Answer the waiting requests, and end the threads."""
        self._slow_lane.close()
        self._lane.close()

    def _prepare_then_answer(self, batch: "list[tuple[Asked, Then[Answered]]]") -> None:
        self._prepare([asked for asked, _ in batch])
        self._lane.put(batch)

    def _answer(self, batch: "list[tuple[Asked, Then[Answered]]]") -> None:
        try:
            answers: Sequence[Answered | Exception] = self._work([asked for asked, _ in batch])
        except Exception as error:
            answers = [error] * len(batch)
        self._loop.call_soon_threadsafe(self._deliver, batch, answers)

    def _deliver(self, batch: "list[tuple[Asked, Then[Answered]]]", answers: Sequence[Answered | Exception]) -> None:
        self.waiting -= len(batch)
        for (_, then), answer in zip(batch, answers, strict=True):
            then(answer)
