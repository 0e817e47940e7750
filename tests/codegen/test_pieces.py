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
