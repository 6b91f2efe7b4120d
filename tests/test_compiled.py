"""How kernels are compiled: options of numba's own that may go away, and kernels bound to types."""

import numba
import numpy as np
import pytest

from treeward.core import compiled

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled here")


def _sum(values):
    total = 0.0
    for i in range(len(values)):
        total += values[i]
    return total


def test_bound_kernel_refuses_other_types():
    add = compiled.bound(compiled.kernel(_sum), np.ones(3))
    assert add(np.ones(4)) == 4.0
    with pytest.raises(TypeError, match=r"_sum: argument 0 is array\(float32.* bound to array\(float64"):
        add(np.ones(4, dtype=np.float32))


def test_bound_kernel_is_not_slowed_down_outside_of_tests(monkeypatch):
    monkeypatch.delenv("PYTEST_VERSION")
    kernel = compiled.kernel(_sum)
    add = compiled.bound(kernel, np.ones(3))
    assert add is kernel.overloads[next(iter(kernel.overloads))].entry_point


def test_inner_kernel_cannot_be_called_from_python():
    with pytest.raises(TypeError, match="is for other kernels"):
        compiled.inner(_sum)(np.ones(3))


@pytest.mark.parametrize("missing", ["_nrt", "forceinline", "no_cpython_wrapper", "no_cfunc_wrapper"])
def test_kernels_compile_without_private_options(monkeypatch, missing):
    """An option that a numba has not is left out: the same results, more slowly."""
    monkeypatch.setattr(compiled, "_KNOWN", compiled._KNOWN - {missing})
    inner = compiled.inner(_sum)
    outer = compiled.tight(lambda values: inner(values) + 1.0)
    assert outer(np.ones(3)) == 4.0
