"""The one place that knows numba (with `shared_cache`, which it leaves out where need be): how kernels are compiled."""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

import numba
import numpy as np
from numba.core import event
from numba.core.cpu import CPUTargetOptions
from numpy.typing import NDArray

from treeward.core.compile_progress import compile_progress

try:
    from treeward.core import shared_cache
except ImportError:  # a numba that is built otherwise: every process compiles for itself
    shared_cache = None  # type: ignore[assignment]

P = ParamSpec("P")
R = TypeVar("R")


class _Decorator(Protocol):
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def kernel(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def kernel(*, sums: bool = False, allocates: bool = True, inline: bool = False) -> _Decorator: ...
def kernel(function: Any = None, /, *, sums: bool = False, allocates: bool = True, inline: bool = False) -> Any:
    """Compile a function on its first call, keep the machine code on disk, and release the interpreter's lock.

    Never ``parallel=True``: threads are ours (`treeward.core.parallel`), so that results do not depend on their number
    and no OpenMP runtime is started behind the caller's back.

    Parameters
    ----------
    function
        What to compile.
    sums
        Let sums be taken in vector lanes. The order of additions is then the compiler's: still the same every time on
        one machine. NaN and infinity keep their meaning.
    allocates
        Whether it creates arrays. If not, arrays are passed without counting references: counting is atomic and costs
        some 10 ns per array, far more than the work of a small function that takes tuples of dozens of them. Slices
        are fine; anything that needs memory of its own does not compile.
    inline
        Put it in place of each call, so that tuples are not copied (some 0.3 microseconds). Not for what is large: it
        is compiled again wherever it is called.
    """
    options = ({} if allocates else {"_nrt": False}) | ({"forceinline": True} if inline else {})
    return _decorated(function, lambda one: _compiled(one, _SUMS if sums else set(), **options))


@overload
def inner(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def inner(*, sums: bool = False, inline: bool = True) -> _Decorator: ...
def inner(function: Any = None, /, *, sums: bool = False, inline: bool = True) -> Any:
    """Compile a function that other kernels call and that creates no arrays; options as for `kernel`.

    It has no entry for Python, which would unpack every array of every argument: that takes as long to compile as the
    function itself. Tests may call it all the same: such a call compiles an entry, which is not kept on disk.
    """
    options = {"_nrt": False, "no_cpython_wrapper": True} | ({"forceinline": True} if inline else {})
    return _decorated(function, lambda one: _with_late_entry(_compiled(one, _SUMS if sums else set(), **options)))


def _decorated(function: Any, decorate: Callable[[Any], Any]) -> Any:
    """Support both ``@kernel`` and ``@kernel(...)``."""
    return decorate if function is None else decorate(function)


class _Teller(event.Listener):
    """Show somebody at a terminal why nothing happens, while kernels compile that are not on disk yet."""

    def __init__(self) -> None:
        self._progress, self._seconds = compile_progress, 0.0
        self._since = perf_counter()
        self._status: Any = None

    def on_start(self, event: Any) -> None:
        """Show the line, if this is not a kernel that another one calls."""
        if _ours(event):
            self._progress.depth += 1
            if self._progress.depth == 1:
                self._show()

    def on_end(self, event: Any) -> None:
        """Count the kernel, and hide the line again."""
        if _ours(event):
            self._progress.depth -= 1
            self._progress.done += 1
            if not self._progress.depth:
                self._hide()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Show meanwhile that another process compiles."""
        self._progress.waits = True
        if not self._progress.depth:
            self._show()
        try:
            yield
        finally:
            self._progress.waits = False
            if not self._progress.depth:
                self._hide()

    def _show(self) -> None:
        self._since = perf_counter()
        with suppress(Exception):  # no display is worth an error
            if not sys.stderr.isatty() or multiprocessing.parent_process() is not None:  # whose parent has a display
                return
            if self._status is None:
                from treeward.core.compile_status import CompileStatus

                instead = "treeward compiles for this machine, once: up to a minute, kept on disk"
                self._status = CompileStatus(self._text, instead)
            self._status.show()

    def _hide(self) -> None:
        self._seconds += perf_counter() - self._since
        with suppress(Exception):
            if self._status is not None:
                self._status.hide()

    def _text(self) -> str:
        seconds = self._seconds + perf_counter() - self._since
        doing = "waits for another process that compiles" if self._progress.waits else "compiles for this machine, once"
        return f"treeward {doing} ({self._progress.done} done, {seconds:.0f} s)"


def _ours(event: Any) -> bool:
    return bool(event.data["dispatcher"].py_func.__module__.startswith("treeward."))


_teller = _Teller()
event.register("numba:compile", _teller)  # type: ignore[no-untyped-call]
if shared_cache is not None:
    shared_cache.turns.waiting = _teller.waiting

_SUMS = {"reassoc", "contract"}
_NO_C = {"no_cfunc_wrapper": True}  # an entry for C, which nobody needs
# Some of these are private to numba: without them kernels compile and run more slowly, to the same results.
_PRIVATE = "_nrt", "forceinline", "no_cpython_wrapper", "no_cfunc_wrapper"
_KNOWN = {name for name in _PRIVATE if hasattr(CPUTargetOptions, name)}


def _with_late_entry(made: Callable[P, R]) -> Callable[P, R]:
    """Let Python call a kernel that has no entry for it: without this, such a call would end the process."""
    if hasattr(made, "py_func") and "no_cpython_wrapper" in _KNOWN:  # else kernels are interpreted
        made.__class__ = type("InnerKernel", (type(made),), {"__call__": _call_late_entry})
    return made


_entries: dict[int, Any] = {}


def _call_late_entry(made: Any, *args: Any) -> Any:
    if id(made) not in _entries:
        _entries[id(made)] = numba.njit(lambda *given: made(*given))
    return _entries[id(made)](*args)


def bound(function: Callable[P, R], *args: P.args, **options: P.kwargs) -> Callable[P, R]:
    """Call a kernel, and return it fixed to the types it was called with.

    numba looks at every array in every argument before each call to find out what it was given: some 15 microseconds
    for a state of many arrays, which is as long as a decision takes. A caller that always passes the same types can
    skip that. Other types would be read as if they were these. Under pytest, and with ``python -X dev``, they are
    refused.
    """
    function(*args, **options)
    overloads = getattr(function, "overloads", None)  # none where kernels are interpreted
    if overloads is None:
        return function
    types = tuple(numba.typeof(value) for value in args)  # type: ignore[no-untyped-call]
    made = overloads.get(types)
    if made is None:
        return function
    entry = cast("Callable[P, R]", made.entry_point)
    verify = sys.flags.dev_mode or "PYTEST_VERSION" in os.environ
    return _verified(function.__name__, entry, types) if verify else entry


def _verified(name: str, entry: Callable[P, R], types: tuple[Any, ...]) -> Callable[P, R]:
    """Return the same, but compare the types of its arguments at every call."""

    def call(*args: P.args, **options: P.kwargs) -> R:
        for at, (value, expected) in enumerate(zip(args, types, strict=True)):
            found = numba.typeof(value)  # type: ignore[no-untyped-call]
            if found != expected:
                raise TypeError(f"{name}: argument {at} is {found}, but it was bound to {expected}")
        return entry(*args, **options)

    return call


def _compiled(function: Callable[P, R], fastmath: set[str], **options: object) -> Callable[P, R]:
    chosen: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": fastmath or False}
    chosen |= {name: value for name, value in {**_NO_C, **options}.items() if name in _KNOWN}
    try:
        made = numba.njit(cache=True, **chosen)(function)
    except RuntimeError:  # nowhere to keep it, as in a read-only container
        made = numba.njit(**chosen)(function)
        if shared_cache is not None:
            shared_cache.read_only(made)
    if shared_cache is not None:
        shared_cache.share(made)
    return cast("Callable[P, R]", made)


# Matrix products for `tight` functions. numba would compile the body of np.dot as tightly as its caller, which it does
# not allow; so these two are compiled beforehand, for the types they are used with.


def _beforehand(signature: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        made: Any = _compiled(function, set())
        if hasattr(made, "compile"):  # else kernels are interpreted
            made.compile(signature)
            made.disable_compile()
        return cast("Callable[P, R]", made)

    return decorate


@_beforehand("void(float32[:, ::1], float32[:, ::1], float32[:, ::1])")
def multiply(a: NDArray[np.float32], b: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Write a @ b."""
    np.dot(a, b, out)


@_beforehand("void(float64[:, ::1], float64[:, ::1])")
def gram(a: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Write a' @ a."""
    np.dot(a.T, a, out)


@inner
def whole(value: int) -> int:
    """Return a number in 64 bits: for one in 32, or a literal, numba would compile what it is handed to once more."""
    return np.int64(value)  # type: ignore[return-value]
