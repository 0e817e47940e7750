"""What a loop is handed row by row is read where it lies, however far apart the rows are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphcell import dtype as ms
from graphcell import jit, ops, value_and_grad
from graphcell.codegen.lower import lower
from graphcell.frontend.tracing import trace_function
from graphcell.passes.pipeline import run_pipeline
from graphcell.runtime.loader import host
from graphcell.tensor import Tensor

STEPS = 11


def counted(x: Tensor, total: Tensor, row: Callable[[Tensor, Any], Tensor]) -> Tensor:
    k = Tensor(0, ms.int32)
    while k < STEPS:
        total = total * 0.5 + row(x, k)
        k = k + 1
    return total


def middle(x: Tensor, total: Tensor) -> Tensor:
    return counted(x, total, lambda x, k: x[k, 1])


def every_other(x: Tensor, total: Tensor) -> Tensor:
    return counted(x[::2], total, lambda x, k: x[k, 2])


def backwards(x: Tensor, total: Tensor) -> Tensor:
    return counted(x[::-1], total, lambda x, k: x[k, 0])


def inside(x: Tensor, total: Tensor) -> Tensor:
    return counted(x[3:], total, lambda x, k: x[k, 1])


def columns(x: Tensor, total: Tensor) -> Tensor:
    """Rows whose elements lie apart: these are copied."""
    return counted(x.transpose(2, 1, 0), total[:3], lambda x, k: x[k, :, 4])


def expected(rows: np.ndarray[Any, Any], total: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    total = total.astype(np.float64)
    for row in rows[:STEPS].astype(np.float64):
        total = total * 0.5 + row
    return total


VIEWS = [(middle, lambda x: x[:, 1]), (every_other, lambda x: x[::2, 2]), (backwards, lambda x: x[::-1, 0]), (inside, lambda x: x[3:, 1])]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("f", "view"), [*VIEWS, (columns, lambda x: x.transpose(2, 1, 0)[:, :, 4])])
def test_rows_of_views(f: Any, view: Any, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x, total = rng.standard_normal((24, 3, 37)).astype(dtype), rng.standard_normal(37).astype(dtype)
    got = jit(f)(Tensor(x), Tensor(total)).asnumpy().astype(np.float64)
    rows = view(x)
    precision = 40 * float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(got, expected(rows, total[: rows.shape[1]]), rtol=precision, atol=precision)


@pytest.mark.parametrize("f", [f for f, _ in VIEWS])
def test_nothing_is_copied(f: Any) -> None:
    tensors = Tensor(np.zeros((24, 3, 37), np.float32)), Tensor(np.zeros(37, np.float32))
    program = lower(run_pipeline(trace_function(f, tensors, {}).graph, "f")[0], (), host())
    assert sum(step.kernel.count("copy") for step in program.steps) <= 1, program.steps  # the start of the total


@pytest.mark.parametrize(("f", "view"), VIEWS)
def test_gradients(f: Any, view: Any) -> None:
    rng = np.random.default_rng(1)
    x, total = rng.standard_normal((24, 3, 37), np.float32), rng.standard_normal(37).astype(np.float32)
    _, (dx, dtotal) = jit(value_and_grad(lambda x, total: f(x, total).sum(), (0, 1)))(Tensor(x), Tensor(total))
    want = np.zeros(x.shape)
    view(want)[:STEPS] = (0.5 ** np.arange(STEPS)[::-1])[:, None]
    np.testing.assert_allclose(dx.asnumpy(), want, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(dtotal.asnumpy(), np.full(37, 0.5**STEPS), rtol=1e-6)


def test_rows_of_what_the_loop_also_carries() -> None:
    """The loop may not write over what it still reads."""

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        k, state = Tensor(0, ms.int32), x * 2
        rows = state[:, 1]
        while k < STEPS:
            state = state * 0.5 + rows[k]
            k = k + 1
        return state, ops.relu(rows)

    x = np.random.default_rng(2).standard_normal((STEPS, 2, 5)).astype(np.float32)
    state, rows = jit(f)(Tensor(x))
    want = x.astype(np.float64) * 2
    fixed = want[:, 1].copy()
    for k in range(STEPS):
        want = want * 0.5 + fixed[k]
    np.testing.assert_allclose(state.asnumpy(), want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(rows.asnumpy(), np.maximum(fixed, 0), rtol=1e-6)
