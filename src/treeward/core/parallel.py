"""Thread pools. Work is cut into pieces independently of the number of threads, and results come in order."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import RLock
from typing import TypeVar

from threadpoolctl import threadpool_limits

from treeward.core.checks import integer

T = TypeVar("T")
R = TypeVar("R")

# BLAS has one thread count for the whole process, which the pool that set it must restore. So: one pool at a time.
_one_at_a_time = RLock()


class Workers:
    """A thread pool whose `map` keeps order and holds only a few results at a time."""

    def __init__(self, executor: ThreadPoolExecutor, threads: int) -> None:
        self.executor, self.threads = executor, threads

    def map(self, function: Callable[[T], R], pieces: Iterable[T]) -> Iterator[R]:
        """Yield ``function(piece)`` for every piece, in the order of the pieces."""
        waiting: deque[Future[R]] = deque()
        for piece in pieces:
            waiting.append(self.executor.submit(function, piece))
            if len(waiting) > 2 * self.threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def each(self, function: Callable[[T], None], pieces: Iterable[T], done: Callable[[], None] = lambda: None) -> None:
        """Call ``function(piece)`` for every piece, and `done` after each."""
        for _ in self.map(function, pieces):
            done()


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def workers(threads: int | None = None) -> Iterator[Workers]:
    """Open a pool of `threads` (default: the cores this process may use), with BLAS on one thread inside.

    Another thread that opens a pool waits until this one is closed.

    Examples
    --------
    >>> with workers(2) as pool:
    ...     list(pool.map(abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    count = cores() if threads is None else integer("treeward", "threads", threads, low=1)
    with _one_at_a_time, threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(count) as executor:
        try:
            yield Workers(executor, count)
        except BaseException:
            executor.shutdown(wait=True, cancel_futures=True)
            raise
