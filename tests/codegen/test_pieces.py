"""Products that are made where a concatenation puts them: the same numbers, without copies, and where they must be copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, ops
from graphcell import dtype as dt
from graphcell.codegen.lower import lower
from graphcell.ir.types import TensorType
from graphcell.passes.pipeline import run_pipeline
from tests.codegen.plans import TARGETS
from tests.helpers import trace

RNG = np.random.default_rng(4)
SHAPES = [(5, 7), (7, 19), (5, 3), (3, 33)]


def pair(a: Any, b: Any, c: Any, d: Any) -> tuple[Any, Any]:
    return ops.matmul(a, b), ops.matmul(c, d)


def joined(a: Any, b: Any, c: Any, d: Any) -> Any:
    return ops.concat(pair(a, b, c, d), 1)


def summed(a: Any, b: Any, c: Any, d: Any) -> Any:
    return (joined(a, b, c, d) ** 2).sum(0)


def reshaped(a: Any, b: Any, c: Any, d: Any) -> Any:
    x, y = pair(a, b, c, d)
    return ops.concat((x.reshape(1, 5, 19), y.reshape(1, 5, 33)), 2).sum(1)


def read_twice(a: Any, b: Any, c: Any, d: Any) -> Any:
    x, y = pair(a, b, c, d)
    return ops.concat((x, y, x), 1).sum(0), x.sum()


def results(a: Any, b: Any, c: Any, d: Any) -> Any:
    x, y = pair(a, b, c, d)
    return ops.concat((x, y), 1), x


def of_products(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    return a @ b, c @ d


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], int]] = {
    "a result": (joined, lambda x, y: np.concatenate((x, y), 1), 0),
    "read by a loop": (summed, lambda x, y: (np.concatenate((x, y), 1) ** 2).sum(0), 0),
    "with another shape": (reshaped, lambda x, y: np.concatenate((x, y), 1).sum(0, keepdims=True), 0),
    "read by others": (read_twice, lambda x, y: (np.concatenate((x, y, x), 1).sum(0), x.sum()), 2),
    "a result itself": (results, lambda x, y: (np.concatenate((x, y), 1), x), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers(name: str) -> None:
    f, reference, _ = CASES[name]
    arrays = [RNG.standard_normal(s).astype(np.float32) for s in SHAPES]
    got = ms.jit(f)(*map(Tensor, arrays))
    want = reference(*of_products(*(x.astype(np.float64) for x in arrays)))
    for x, y in zip(got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,), strict=True):
        np.testing.assert_allclose(x.asnumpy(), y, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_copies(name: str) -> None:
    f, _, copies = CASES[name]
    graph = run_pipeline(trace(f, *(TensorType(dt.float32, s) for s in SHAPES)))[0]
    program = lower(graph, (), TARGETS[max(TARGETS)])
    moved = [s for s in program.steps if s.title.startswith("loops") and s.kernel.count(" = ") == 1]
    assert len(moved) == copies


def of_loops(a: Any, b: Any) -> Any:
    return ops.concat((ops.tanh(a), b * 2.0, a - 1.0), 0)


def by_rows(a: Any, b: Any) -> Any:
    return ops.concat((ops.tanh(a), b * 2.0), 1)


def by_turns(a: Any, b: Any) -> Any:
    return ops.stack((ops.tanh(a), b * 2.0, a * b), axis=-1)


def two_results(a: Any, b: Any) -> Any:
    x, y = ops.tanh(a), a * b
    return ops.concat((x, y), 1), ops.concat((y, x, b), 1), x


def test_what_others_read_too_is_written_twice_by_the_loop_that_makes_it() -> None:
    """Nothing is copied but what is given."""
    a, b = RNG.standard_normal((2, 9, 80)).astype(np.float32)
    f = ms.jit(two_results)
    x, y = np.tanh(a.astype(np.float64)), a.astype(np.float64) * b
    for got, want in zip(f(Tensor(a), Tensor(b)), (np.concatenate((x, y), 1), np.concatenate((y, x, b), 1), x), strict=True):
        np.testing.assert_allclose(got.asnumpy(), want, rtol=1e-5, atol=1e-6)
    assert f.kernels().count("loops (") == 3


def of_lines(a: Any, b: Any) -> Any:
    """Loops along lines of 50, which is what they read."""
    return ops.concat((ops.tanh(a[:, :50]), b[:, 3:53] * 2.0), 1)


LOOPS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[int, ...], int]] = {
    "long runs": (of_loops, lambda a, b: np.concatenate((np.tanh(a), b * 2.0, a - 1.0), 0), (5, 70), 3),
    "rows": (by_rows, lambda a, b: np.concatenate((np.tanh(a), b * 2.0), 1), (5, 70), 2),
    "by turns": (by_turns, lambda a, b: np.stack((np.tanh(a), b * 2.0, a * b), -1), (5, 33), 1),
    "short lines": (of_lines, lambda a, b: np.concatenate((np.tanh(a[:, :50]), b[:, 3:53] * 2.0), 1), (70, 55), 2),
    "whole vectors": (by_rows, lambda a, b: np.concatenate((np.tanh(a), b * 2.0), 1), (70, 48), 2),
    "short runs are copied": (by_rows, lambda a, b: np.concatenate((np.tanh(a), b * 2.0), 1), (70, 5), 4),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int8])
@pytest.mark.parametrize("name", LOOPS)
def test_what_loops_make(name: str, dtype: type) -> None:
    """As many loop nests as it takes, and numpy's numbers."""
    f, reference, shape, loops = LOOPS[name]
    if dtype is np.int8:
        a, b = (RNG.integers(0, 2, shape).astype(dtype) for _ in range(2))
        g = ms.jit(lambda a, b: f(a.astype(dt.float32), b.astype(dt.float32)).astype(dt.int8))
    else:
        a, b = (RNG.standard_normal(shape).astype(dtype) for _ in range(2))
        g = ms.jit(f)
    got = g(Tensor(a), Tensor(b)).asnumpy()
    want = reference(a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_allclose(got, want.astype(dtype), rtol=2e-3 if dtype is np.float16 else 1e-5, atol=2e-3 if dtype is np.float16 else 1e-6)
    if dtype is not np.int8:
        assert g.kernels().count("loops (") == loops
