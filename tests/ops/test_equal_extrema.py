"""Where the gradient of an extremum goes if several elements are equal: as in MindSpore to the first along an int, and to all alike along several axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, ops
from graphcell import dtype as dt
from graphcell.ir.types import TensorType
from graphcell.passes.pipeline import run_pipeline
from tests.helpers import run, trace

X = np.array([[1, 3, 3, 2], [0, 0, 0, 0]], np.float32)
FIRST_OF_LARGEST, FIRST_OF_SMALLEST = [[0, 1, 0, 0], [1, 0, 0, 0]], [[1, 0, 0, 0], [1, 0, 0, 0]]
SHARED = [[0, 0.5, 0.5, 0], [0.25] * 4]
CASES: dict[str, Any] = {
    "max": (lambda x: x.max(axis=1).sum(), FIRST_OF_LARGEST),
    "kept": (lambda x: x.max(axis=-1, keepdims=True).sum(), FIRST_OF_LARGEST),
    "min": (lambda x: x.min(axis=1).sum(), FIRST_OF_SMALLEST),
    "with indices": (lambda x: x.max(axis=1, return_indices=True)[0].sum(), FIRST_OF_LARGEST),
    "by dim": (lambda x: x.max(dim=1)[0].sum(), FIRST_OF_LARGEST),
    "an axis in a tuple": (lambda x: x.max(axis=(1,)).sum(), SHARED),
    "amax": (lambda x: ops.amax(x, 1).sum(), SHARED),
    "of all": (lambda x: x.max(), [[0, 0.5, 0.5, 0], [0] * 4]),
    "bounded": (lambda x: x.max(axis=1, initial=2.5).sum(), [[0, 1, 0, 0], [0] * 4]),
}


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str, mode: int) -> None:
    fn, want = CASES[name]
    before = ms.get_context("mode")
    ms.set_context(mode=mode)
    try:
        gradient = ms.grad(fn)
        got = (ms.jit(gradient) if mode == ms.GRAPH_MODE else gradient)(Tensor(X)).asnumpy()
    finally:
        ms.set_context(mode=before)
    assert got.tolist() == want


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("shape", [(5, 7), (3, 1), (1, 40)])
def test_extrema_are_not_gathered(shape: tuple[int, ...], largest: bool) -> None:
    """NaN is an extremum of its row."""
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    x[0, 0] = np.nan

    def fn(x: Any) -> Any:
        return x.max(axis=1) if largest else x.min(axis=1)

    graph, _ = run_pipeline(trace(fn, TensorType(dt.float32, shape)))
    assert not {"gather_elements", "argmax", "argmin"} & {node.op.name for node in graph.walk()}
    want = (np.max if largest else np.min)(x, 1)
    np.testing.assert_array_equal(run(graph, x)[0], want)
    np.testing.assert_array_equal(ms.jit(fn)(Tensor(x)).asnumpy(), want)


def test_others_are_gathered() -> None:
    """At places of another's extrema, or along another axis."""
    x, y = (np.random.default_rng(k).standard_normal((6, 6)).astype(np.float32) for k in (3, 4))

    def fn(x: Any, y: Any) -> Any:
        place = ops.argmax(x, 1, True)
        return ops.gather_elements(y, 1, place), ops.gather_elements(x, 0, ops.reshape(place, (1, 6)))

    at = x.argmax(1)
    for got, want in zip(ms.jit(fn)(Tensor(x), Tensor(y)), (y[np.arange(6), at][:, None], x[at, np.arange(6)][None]), strict=True):
        np.testing.assert_array_equal(got.asnumpy(), want)
