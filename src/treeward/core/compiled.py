"""The one place that knows numba: how kernels are compiled."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile on first call, keep the machine code on disk, release the GIL.

    Never ``parallel=True``: threads are ours (`treeward.core.parallel`), so that results do not depend on their number
    and no OpenMP runtime is started behind the caller's back.
    """
    return _compiled(function, set())


def summing_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile as `kernel` does, but let sums be taken in vector lanes.

    The order of additions is then the compiler's: still the same every time on one machine. NaN and infinity keep their
    meaning.
    """
    return _compiled(function, {"reassoc", "contract"})


def _compiled(function: Callable[P, R], fastmath: set[str]) -> Callable[P, R]:
    try:
        made = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=fastmath or False)(function)
    except RuntimeError:  # nowhere to keep it, as in a read-only container
        made = numba.njit(nogil=True, error_model="numpy", fastmath=fastmath or False)(function)
    return cast("Callable[P, R]", made)
