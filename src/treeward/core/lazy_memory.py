"""Arrays of zeros whose memory is taken as they are written to, however large they are."""

import mmap
from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import DTypeLike

from treeward.core.types import AnyArray

_LARGE = 1 << 20
_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


def lazy_zeros(shape: Sequence[int], dtype: DTypeLike) -> AnyArray:
    """Return zeros. A large array comes from the system, not from memory that was used and freed before.

    `numpy.zeros` does that too, until a program has freed an array of the same size: then it writes all the zeros.

    Examples
    --------
    >>> lazy_zeros((2, 3), np.int64).tolist()
    [[0, 0, 0], [0, 0, 0]]
    """
    kind = np.dtype(dtype)
    size = prod(shape) * kind.itemsize
    if size < _LARGE:
        return np.zeros(shape, dtype=kind)
    return np.frombuffer(mmap.mmap(-1, size, **_PRIVATE), dtype=kind).reshape(shape)
