"""Largest elements of windows that are found with their places: the same numbers, of ties the first, NaN and infinities included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell import ops
from graphcell.ir.graph import Graph
from graphcell.ir.types import TensorType
from graphcell.ops.functional.pooling import max_pool
from graphcell.ops.pooling import ReduceMaxFirst, ReduceMinPlace
from graphcell.passes import planes
from graphcell.passes.autodiff import vjp
from graphcell.passes.pipeline import run_pipeline
from graphcell.passes.places_of_largest import places_of_largest
from tests.codegen.plans import TARGETS
from tests.codegen.test_guards import run_guarded
from tests.helpers import run, trace

WINDOWS: dict[str, tuple[tuple[int, ...], tuple[Any, ...]]] = {
    "apart": ((2, 3, 6, 8), ((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1))),
    "some are left": ((2, 3, 7, 9), ((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1))),
    "overlapping": ((2, 2, 9, 8), ((3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1))),
    "side by side": ((1, 4, 6, 7), ((3, 2), (1, 1), ((1, 1), (0, 1)), (1, 1))),
    "gaps": ((2, 2, 9, 10), ((2, 2), (3, 4), ((0, 0), (0, 0)), (1, 1))),
    "dilated": ((2, 2, 9, 10), ((2, 3), (2, 1), ((0, 0), (1, 1)), (2, 3))),
    "a sequence": ((3, 5, 22), ((4,), (4,), ((0, 0),), (1,))),
    "a volume": ((1, 2, 4, 6, 4), ((2, 2, 2), (2, 2, 2), ((0, 0),) * 3, (1, 1, 1))),
}


QUICK = {"apart", "some are left", "gaps", "a sequence", "a volume"}
"""Windows along the last dimension that are neither far apart nor padded."""
BEHIND = [name for name in WINDOWS if name != "a volume"]
"""Those that may stand behind a convolution of images, or of sequences, which runs channels-last."""


def graph_of(name: str, dtype: dt.DType = dt.float64, behind: bool = False) -> Graph:
    """The pooling's result and its gradient, weighted by the second operand. `behind`: of a convolution with the third operand, channel by channel."""
    shape, (kernel, *more) = WINDOWS[name]
    pooled = trace(lambda x: max_pool(x, kernel, *more), TensorType(dtype, shape)).outputs[0].type

    def weighted(x: Any, g: Any, *w: Any) -> Any:
        if w:
            x = (ops.conv1d if x.ndim == 3 else ops.conv2d)(x, w[0], groups=shape[1])
        y: Any = max_pool(x, kernel, *more)
        return y, (y * g).sum()

    weights = [TensorType(dtype, (shape[1], *(1,) * (len(shape) - 1)))] if behind else []
    return vjp(trace(weighted, TensorType(dtype, shape), pooled, *weights), [0], [1])


def arrays_of(graph: Graph, kind: str) -> list[Any]:
    rng = np.random.default_rng(11)
    types = [v.type for v in graph.inputs]
    x = rng.integers(-2, 3, types[0].shape).astype(float) if kind == "ties" else rng.standard_normal(types[0].shape)
    if kind == "special":
        x = np.where(rng.random(x.shape) < 0.4, rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], x.shape), x)
    dtype = types[0].dtype.np_type
    return [x.astype(dtype), rng.standard_normal(types[1].shape).astype(dtype), *(np.ones(t.shape, dtype) for t in types[2:])]


@pytest.mark.parametrize("kind", ["numbers", "ties", "special"])
@pytest.mark.parametrize("name", WINDOWS)
def test_the_same_numbers(name: str, kind: str) -> None:
    graph = graph_of(name)
    found = places_of_largest(graph)
    assert any(isinstance(n.op, ReduceMinPlace) for n in graph.nodes)
    arrays = arrays_of(graph, kind)
    with np.errstate(invalid="ignore"):
        for want, got in zip(run(graph, *arrays), run(found, *arrays), strict=True):
            np.testing.assert_array_equal(got, want)


def check_compiled(graph: Graph, kind: str, dtype: dt.DType) -> None:
    arrays = arrays_of(graph, kind)
    with np.errstate(invalid="ignore"):
        pooled, _, gradient = run(graph, *arrays)
    tolerance = {2: 2e-2, 4: 1e-6, 8: 1e-12}[dtype.itemsize]
    for target in TARGETS.values():
        got, _, got_gradient = run_guarded(graph, arrays, target, True)
        np.testing.assert_array_equal(got.astype(np.float64), pooled.astype(np.float64))
        np.testing.assert_allclose(got_gradient.astype(np.float64), gradient.astype(np.float64), tolerance, tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.float16, dt.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["numbers", "ties", "special"])
@pytest.mark.parametrize("name", WINDOWS)
def test_compiled(name: str, kind: str, dtype: dt.DType) -> None:
    check_compiled(graph_of(name, dtype), kind, dtype)


@pytest.fixture
def runs_channels_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions of single channels, which else may be loops along the rows."""
    monkeypatch.setattr(planes, "_MOST_TERMS", 0)


@pytest.mark.slow
@pytest.mark.usefixtures("runs_channels_last")
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=str)
@pytest.mark.parametrize("kind", ["numbers", "ties", "special"])
@pytest.mark.parametrize("name", BEHIND)
def test_compiled_behind_a_convolution(name: str, kind: str, dtype: dt.DType) -> None:
    check_compiled(graph_of(name, dtype, behind=True), kind, dtype)


@pytest.mark.usefixtures("runs_channels_last")
@pytest.mark.parametrize(("name", "behind"), [*((name, False) for name in WINDOWS), *((name, True) for name in BEHIND)])
def test_windows_are_read_once(name: str, behind: bool) -> None:
    optimized, _ = run_pipeline(graph_of(name, behind=behind))
    asks = any(isinstance(n.op, (ReduceMaxFirst, ReduceMinPlace)) for n in optimized.walk())
    assert asks is (not behind and name not in QUICK)


def test_only_where_somebody_asks_and_windows_are_small() -> None:
    small, large = ((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1)), ((5, 5), (5, 5), ((0, 0), (0, 0)), (1, 1))
    x = TensorType(dt.float32, (2, 3, 10, 10))
    alone = trace(lambda x: max_pool(x, *small), x)
    assert places_of_largest(alone) is alone
    graph = vjp(trace(lambda x: max_pool(x, *large).sum(), x), [0])
    assert sum(isinstance(n.op, ReduceMinPlace) for n in places_of_largest(graph).nodes) == 1
    both = vjp(trace(lambda x: max_pool(x, *small).sum() + max_pool(x, *large).sum(), x), [0])
    optimized, _ = run_pipeline(both)
    assert sum(isinstance(n.op, ReduceMinPlace) for n in optimized.nodes) == 1


def test_the_largest_of_a_row_is_none_of_a_window() -> None:
    x = TensorType(dt.float32, (4, 9))
    graph = trace(lambda x: ops.argmax(x, 1), x)
    assert places_of_largest(graph) is graph
