"""Convolutions of single planes are sums of shifted images where nothing around them is channels-last, beside numpy in float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import dtype as dt
from graphcell import ops
from graphcell.ir.graph import Graph
from graphcell.ir.types import TensorType
from graphcell.ops.convolution import Conv, ConvInputGrad, ConvWeightGrad
from graphcell.passes import planes
from graphcell.passes.autodiff import vjp
from graphcell.passes.pipeline import run_pipeline
from graphcell.runtime.executable import compile_graph
from tests.helpers import run, trace

CONVOLUTIONS = (Conv, ConvInputGrad, ConvWeightGrad)
SHAPES = [  # images, filters of a channel, kernel, padding, dilation
    ((1, 1, 64, 65), 1, (3, 3), (1, 1, 1, 1), 1),
    ((2, 3, 5, 17), 1, (3, 3), (1, 1, 1, 1), 1),
    ((1, 4, 6, 21), 2, (2, 3), (0, 1, 2, 0), 1),
    ((2, 9, 8, 33), 1, (3, 1), (2, 2, 0, 0), 2),
    ((1, 2, 3, 4), 3, (3, 3), (1, 2, 1, 3), 1),
    ((3, 2, 1, 70), 1, (1, 9), (0, 0, 4, 4), 1),
    ((1, 1, 70, 64), 3, (7, 7), (3, 3, 3, 3), 1),
    ((1, 1, 9, 80), 20, (3, 3), (0, 0, 0, 0), 1),
]


STRIDED = [  # with strides
    ((1, 1, 64, 65), 1, (3, 3), (1, 1, 1, 1), 1, (2, 2)),
    ((1, 2, 9, 133), 2, (2, 3), (0, 1, 2, 0), 1, (3, 2)),
    ((2, 3, 12, 300), 1, (3, 3), (2, 2, 2, 2), 2, (2, 4)),
    ((1, 9, 7, 54), 1, (3, 3), (1, 1, 1, 0), 1, (5, 3)),
    ((1, 40, 6, 9), 1, (1, 1), (0, 0, 0, 0), 1, (2, 2)),
    ((1, 1, 70, 150), 1, (7, 7), (3, 3, 3, 3), 1, (2, 2)),
]


def blur(padding: tuple[int, ...], dilation: int, groups: int, stride: Any = 1) -> Callable[[Any, Any], Any]:
    return lambda x, w: ops.conv2d(x, w, None, stride, "pad", padding, dilation, groups)


def expected(x: Any, w: Any, padding: tuple[int, ...], dilation: int, cotangent: Any = None) -> tuple[Any, Any]:
    """The result without strides and, for a cotangent of it (ones by default), the gradient for the images."""
    top, bottom, left, right = padding
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    filters = w.shape[0] // x.shape[1]
    h, v = (extent - dilation * (k - 1) for extent, k in zip(padded.shape[2:], w.shape[2:], strict=True))
    y, g = np.zeros((x.shape[0], w.shape[0], h, v)), np.zeros(padded.shape)
    along = np.ones_like(y) if cotangent is None else cotangent
    for i, j in itertools.product(*map(range, w.shape[2:])):
        window = np.s_[:, :, dilation * i : dilation * i + h, dilation * j : dilation * j + v]
        tap = w[None, :, 0, i, j, None, None]
        y += np.repeat(padded[window], filters, 1) * tap
        g[window] += (along * tap).reshape(x.shape[0], x.shape[1], filters, h, v).sum(2)
    return y, g[:, :, top : top + x.shape[2], left : left + x.shape[3]]


def numbers(shape: tuple[int, ...], filters: int, kernel: tuple[int, int], dtype: Any = np.float64) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    return rng.standard_normal(shape).astype(dtype), rng.standard_normal((shape[1] * filters, 1, *kernel)).astype(dtype)


def convolutions(graph: Graph) -> list[str]:
    return [n.op.name for n in run_pipeline(graph)[0].walk() if isinstance(n.op, CONVOLUTIONS)]


def graph_of(fn: Callable[..., Any], *shapes: tuple[int, ...]) -> Graph:
    return trace(fn, *(TensorType(dt.float64, s) for s in shapes))


@pytest.mark.parametrize(("shape", "filters", "kernel", "padding", "dilation"), SHAPES)
def test_values(shape: tuple[int, ...], filters: int, kernel: tuple[int, int], padding: tuple[int, ...], dilation: int) -> None:
    x, w = numbers(shape, filters, kernel)
    graph = graph_of(blur(padding, dilation, shape[1]), x.shape, w.shape)
    assert convolutions(graph) == []
    want, _ = expected(x, w, padding, dilation)
    np.testing.assert_allclose(run(run_pipeline(graph)[0], x, w)[0], want, rtol=1e-12, atol=1e-12)
    compiled = ms.jit(blur(padding, dilation, shape[1]))(ms.Tensor(x), ms.Tensor(w))
    np.testing.assert_allclose(compiled.asnumpy(), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("shape", "filters", "kernel", "padding", "dilation"), SHAPES)
def test_gradients_for_images(shape: tuple[int, ...], filters: int, kernel: tuple[int, int], padding: tuple[int, ...], dilation: int) -> None:
    x, w = numbers(shape, filters, kernel)
    graph = vjp(graph_of(blur(padding, dilation, shape[1]), x.shape, w.shape), [0])
    cotangent = np.random.default_rng(4).standard_normal(expected(x, w, padding, dilation)[0].shape)
    _, want = expected(x, w, padding, dilation, cotangent)
    np.testing.assert_allclose(run(run_pipeline(graph)[0], x, w, cotangent)[-1], want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("shape", "filters", "kernel", "padding", "dilation", "stride"), STRIDED)
def test_strides(shape: tuple[int, ...], filters: int, kernel: tuple[int, int], padding: tuple[int, ...], dilation: int, stride: tuple[int, int]) -> None:
    x, w = numbers(shape, filters, kernel)
    fn = blur(padding, dilation, shape[1], stride)
    assert convolutions(graph_of(fn, x.shape, w.shape)) == []
    want = expected(x, w, padding, dilation)[0][:, :, :: stride[0], :: stride[1]]
    np.testing.assert_allclose(ms.jit(fn)(ms.Tensor(x), ms.Tensor(w)).asnumpy(), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("filters", [1, 2])
def test_gradients_for_images_are_sums_too(filters: int) -> None:
    shapes = (2, 2, 8, 33), (2 * filters, 1, 2, 2)
    assert convolutions(vjp(graph_of(blur((1, 0, 1, 1), 1, 2), *shapes), [0])) == []


@pytest.mark.parametrize("dtype", [ms.float32, ms.float16, ms.bfloat16])
def test_other_types_are_rounded_once(dtype: Any) -> None:
    x, w = numbers((2, 3, 6, 19), 1, (3, 3), np.float32)
    small, numbers_of_w = ms.Tensor(x).astype(dtype), ms.Tensor(w).astype(dtype)
    got = ms.jit(blur((1, 1, 1, 1), 1, 3))(small, numbers_of_w)
    want, _ = expected(*(t.astype(ms.float64).asnumpy() for t in (small, numbers_of_w)), (1, 1, 1, 1), 1)
    assert got.dtype == dtype
    unit = {ms.float32: 2.0**-22, ms.float16: 2.0**-11, ms.bfloat16: 2.0**-8}[dtype]
    np.testing.assert_allclose(got.astype(ms.float64).asnumpy(), want, rtol=1.01 * unit, atol=8 * 2.0**-22)


@pytest.mark.parametrize("dtype", [ms.float16, ms.bfloat16])
@pytest.mark.parametrize("kernel", [(3, 3), (5, 5), (7, 7), (1, 64)])
def test_long_sums_of_half_precision(kernel: tuple[int, int], dtype: Any) -> None:
    """Whose parts are larger than the numbers of the type, or round to others."""
    taps = kernel[0] * kernel[1]
    w = ms.Tensor(np.where(np.arange(taps) <= taps // 2, 1.0, -1.0).reshape(1, 1, *kernel)).astype(dtype)
    x = ms.Tensor(np.full((1, 1, 16, 140), 4000.0)).astype(dtype)
    fn = blur((0, 0, 0, 0), 1, 1)
    want = float(x[0, 0, 0, 0].astype(ms.float64)) * float(w.astype(ms.float64).sum())
    assert (ms.jit(fn)(x, w).astype(ms.float64).asnumpy() == want).all()
    gradient = ms.jit(ms.grad(lambda x, w: fn(x, w).astype(ms.float32).sum()))(x, w).astype(ms.float64).asnumpy()
    assert (gradient[0, 0, 8, 70:76] == float(w.astype(ms.float64).sum())).all()


def test_one_loop_with_what_is_around() -> None:
    """A step of a diffusion."""
    graph = graph_of(lambda x, w: x + 0.1 * ops.conv2d(x, w, None, 1, "same"), (1, 1, 40, 70), (1, 1, 3, 3))
    executable = compile_graph(graph)
    assert [step.title for step in executable.compilation.program.steps] == ["loops0"]


OTHERS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], int]] = {
    "wide strides": (lambda x, w: ops.conv2d(x, w, None, (1, 5), "pad", 1, 1, 3), ((1, 3, 40, 350), (3, 1, 3, 3)), 1),
    "many taps and long strides": (lambda x, w: ops.conv2d(x, w, None, 3, "pad", 2, 1, 1), ((1, 1, 40, 250), (1, 1, 5, 5)), 1),
    "many taps and strides": (lambda x, w: ops.conv2d(x, w, None, 2, "pad", 2, 1, 3), ((1, 3, 40, 150), (3, 1, 5, 5)), 1),
    "channels meet": (lambda x, w: ops.conv2d(x, w, None, 1, "pad", 1, 1, 1), ((1, 3, 40, 70), (3, 3, 3, 3)), 1),
    "many taps": (lambda x, w: ops.conv2d(x, w, None, 1, "pad", 2, 1, 5), ((1, 5, 40, 70), (5, 1, 5, 5)), 1),
    "short rows": (lambda x, w: ops.conv2d(x, w, None, 1, "pad", 1, 1, 64), ((1, 64, 7, 7), (64, 1, 3, 3)), 1),
    "before another": (lambda x, w, v: ops.conv2d(ops.relu(ops.conv2d(x, w, None, 1, "pad", 1, 1, 3)), v), ((1, 3, 40, 70), (3, 1, 3, 3), (8, 3, 1, 1)), 2),
    "behind another": (lambda x, w, v: ops.conv2d(ops.relu(ops.conv2d(x, v)), w, None, 1, "pad", 1, 1, 8), ((1, 3, 40, 70), (8, 1, 3, 3), (8, 3, 1, 1)), 2),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay_convolutions(name: str) -> None:
    fn, shapes, count = OTHERS[name]
    assert convolutions(graph_of(fn, *shapes)) == ["conv"] * count


@pytest.mark.parametrize(("dtype", "count"), [(dt.float16, 1), (dt.bfloat16, 1), (dt.float32, 0), (dt.float64, 0)])
def test_strides_of_half_precision_stay_convolutions(dtype: dt.DType, count: int) -> None:
    graph = trace(blur((1, 1, 1, 1), 1, 16, 2), TensorType(dtype, (2, 16, 112, 112)), TensorType(dtype, (16, 1, 3, 3)))
    assert len(convolutions(graph)) == count


def test_gradients_of_strides_stay_convolutions() -> None:
    gradient = vjp(graph_of(blur((1, 1, 1, 1), 1, 3, 2), (1, 3, 40, 150), (3, 1, 3, 3)), [0])
    assert "conv_input_grad" in convolutions(gradient)


def test_weights_that_are_trained() -> None:
    graph = graph_of(lambda x, w: ops.square(ops.conv2d(x, w, None, 1, "pad", 1, 1, 3)).sum(), (1, 3, 40, 70), (3, 1, 3, 3))
    assert "conv_weight_grad" in convolutions(vjp(graph, [1]))


def test_unrolled_loops_of_many_are_compiled_as_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    def thrice(x: Any, w: Any) -> Any:
        for _ in range(3):
            x = ops.conv2d(x, w, None, 1, "pad", 1, 1, 2)
        return x

    shapes = (1, 2, 8, 20), (2, 1, 3, 3)
    assert convolutions(graph_of(thrice, *shapes)) == []
    monkeypatch.setattr(planes, "_MOST_TERMS", 26)
    assert convolutions(graph_of(thrice, *shapes)) == ["conv"] * 3
