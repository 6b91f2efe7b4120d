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
    try:
        compiled = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # nowhere to keep it, as in a read-only container
        compiled = numba.njit(nogil=True, error_model="numpy")(function)
    return cast("Callable[P, R]", compiled)
