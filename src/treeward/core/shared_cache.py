"""Kernels that several processes need at once are compiled by one of them; the others wait, and load them from disk.

The only users of numba's own classes besides `compiled`, which does without this module where a numba lacks them.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from hashlib import blake2b
from time import monotonic, sleep
from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher

from treeward.core.locks import free_byte, lock_byte

PATIENCE = 120.0
"""Seconds after which a process compiles itself: another one may have been stopped, and keeps its lock."""
_POLL = 0.02


class Turns:
    """Locks of this process, one per kernel that it compiles.

    A lock is one byte of a file in the cache folder, and the system takes it back when a process ends, however it ends.
    A process that compiles a kernel also compiles those it calls, so locks are taken from caller to callee: always in
    the same direction, and so no two processes wait for each other.

    Not for several threads: callers hold the compiler's lock.
    """

    def __init__(self) -> None:
        self.held: list[tuple[int, int]] = []
        self._files: dict[str, int | None] = {}
        self.waiting: Callable[[], AbstractContextManager[object]] = nullcontext
        """Entered while another process has the lock."""

    def take(self, folder: str, name: str) -> bool:
        """Wait for the lock of a kernel; False if there is none to be had, or this process has it already."""
        file = self._file(folder)
        if file is None:
            return False
        at = int.from_bytes(blake2b(name.encode(), digest_size=7).digest(), "little")
        if (file, at) in self.held:
            return False
        try:
            if not lock_byte(file, at):
                with self.waiting():
                    self._wait(file, at)
        except OSError:  # patience is at an end, or the file system has no locks
            self._files[folder] = None
            return False
        self.held.append((file, at))
        return True

    def leave(self, count: int) -> None:
        """Give locks back, the last ones first, until `count` are left."""
        while len(self.held) > count:
            file, at = self.held.pop()
            with suppress(OSError):
                free_byte(file, at)

    def _file(self, folder: str) -> int | None:
        """Return the folder's file, which stays open: closing it would give back every lock of this process."""
        if folder not in self._files:
            self._files[folder] = None
            with suppress(OSError):
                self._files[folder] = os.open(os.path.join(folder, "treeward.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        return self._files[folder]

    @staticmethod
    def _wait(file: int, at: int) -> None:
        until = monotonic() + PATIENCE
        while not lock_byte(file, at):
            if monotonic() > until:
                raise TimeoutError
            sleep(_POLL)


turns = Turns()


class SharedCache(FunctionCache):
    """A cache folder that several processes fill."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what is on disk; else take the lock, and look once more: another process may just have saved it."""
        found = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        if found is None and turns.take(self.cache_path, f"{self._py_func.__module__}.{self._py_func.__qualname__}"):
            found = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        return found


class _Existing:
    """Finds a folder of kernels that exists, also if it cannot be written to."""

    def ensure_cache_path(self) -> None:
        """Refuse a folder that does not exist."""
        os.stat(self.get_cache_path())  # type: ignore[attr-defined]


class ReadOnlyPlaces(CompileResultCacheImpl):
    """Where kernels may have been kept by another user: in `NUMBA_CACHE_DIR`, or next to the package."""

    _locator_classes: Any = tuple(
        type(one.__name__, (_Existing, one), {})
        for one in CompileResultCacheImpl._locator_classes
        if one.__name__.lstrip("_") in ("UserProvidedCacheLocator", "InTreeCacheLocator")
    )


class ReadOnlyCache(FunctionCache):
    """A cache folder that cannot be written to, as in a read-only container: what it lacks is compiled and not kept."""

    _impl_class = ReadOnlyPlaces

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what is on disk; None if there is nothing, or nothing that can be read."""
        # Bytes that are cut short or damaged raise almost any error in numba's own format; compiling is always right.
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception:
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep nothing."""


class TolerantIndex(IndexDataCacheFile):
    """A list of kernels on disk that may be another version's."""

    def _load_index(self) -> Any:
        """Return the kernels on disk; none if they name classes that this version of treeward does not have."""
        try:
            return super()._load_index()  # type: ignore[no-untyped-call]
        except (AttributeError, ImportError):
            return {}


class SharedKernel(CPUDispatcher):
    """A kernel whose cache folder several processes fill."""

    def compile(self, sig: Any) -> Any:
        """Load or compile for these types; locks taken on the way are given back once the kernel is on disk."""
        with global_compiler_lock:
            before = len(turns.held)
            try:
                return super().compile(sig)
            finally:
                turns.leave(before)


def read_only(made: Any) -> None:
    """Let a kernel that cannot be kept on disk be loaded from there, if there is a folder for it."""
    with suppress(RuntimeError):  # no such folder
        made._cache = ReadOnlyCache(made.py_func)  # type: ignore[no-untyped-call]
        made._cache._cache_file.__class__ = TolerantIndex


def share(made: Any) -> None:
    """Let other processes wait for what this one compiles, and the other way round, if the kernel is kept on disk."""
    cache = getattr(made, "_cache", None)
    if type(made) is CPUDispatcher and type(cache) is FunctionCache:
        made.__class__, cache.__class__ = SharedKernel, SharedCache
        if type(cache._cache_file) is IndexDataCacheFile:
            cache._cache_file.__class__ = TolerantIndex
