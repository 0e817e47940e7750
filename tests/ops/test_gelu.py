"""Derivatives of GELU by tanh beyond the first, against mpmath; the first are among those of all elementwise ops."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

import graphcell as gc
from graphcell import dtype as ms
from graphcell import ops
from graphcell.tensor import Tensor
from tests.codegen.accuracy import gate_of_gelu


@pytest.mark.parametrize("dtype", [ms.float16, ms.bfloat16, ms.float32])
@pytest.mark.parametrize("compiled", [False, True])
def test_the_second_derivative_of_gelu_by_tanh(compiled: bool, dtype: Any) -> None:
    """As exact in half precision, and far out: no square overflows."""
    points = np.concatenate([np.linspace(-6, 6, 49), [30, -30, 300, -300, 60000, -60000]])
    x = Tensor(points.astype(np.float32)).astype(dtype)

    def second(x: Any) -> Any:
        return gc.grad(lambda x: gc.grad(lambda z: ops.gelu(z, approximate="tanh").sum())(x).sum())(x)

    found = (gc.jit(second) if compiled else second)(x).astype(ms.float32).asnumpy()
    given = x.astype(ms.float32).asnumpy()
    with mpmath.workprec(200):
        want = [float(mpmath.diff(lambda z: z * gate_of_gelu(z), mpmath.mpf(float(v)), 2)) if abs(v) < 20 else 0.0 for v in given]
    np.testing.assert_allclose(found, want, atol=2 * {ms.float16: 2.0**-11, ms.bfloat16: 2.0**-8, ms.float32: 2.0**-22}[dtype])
