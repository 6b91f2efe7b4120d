"""`Runtime`: the threads and the clock of an explorer, in one place, so that a test can replace them."""

from collections.abc import Callable
from threading import RLock
from time import sleep, time_ns
from typing import NamedTuple


class Runtime(NamedTuple):
    """Where the parts of an explorer get their locks, the time and pauses from."""

    lock: Callable[[], RLock] = RLock
    """Makes a lock that a thread may take again while it holds it."""
    nanoseconds: Callable[[], int] = time_ns
    """The time since 1970."""
    pause: Callable[[float], None] = sleep
    """Waits for some seconds, so that other threads get their turn."""
