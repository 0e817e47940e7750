"""Pooling: windows and their transpose, maxima whose gradient goes to the first place, means, adaptive windows, columns, unpooling;
against plain numpy, by finite differences, natively. Layers are tested in tests/nn/test_layers.py.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcell import Tensor, grad, nn, ops
from graphcell import dtype as dt
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Builder
from graphcell.ir.types import TensorType
from graphcell.jit import jit
from graphcell.ops.arithmetic import Mul
from graphcell.ops.dispatch import apply1
from graphcell.ops.pooling import Fold, ReduceMaxFirst, Windows
from graphcell.passes.decompose import decompose
from tests.helpers import check_gradients
from tests.recording import ramp

Array = np.ndarray[Any, Any]


def pool(x: Array, kernel: Any, stride: Any, padding: Any, reduce: Any, fill: float, ceil: bool = False, dilation: Any = None) -> Array:
    """`reduce` over windows of the last dimensions, one after the other."""
    rank = len(kernel)
    dilation = dilation or (1,) * rank
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
    counts = []
    for extent, k, s, p in zip(x.shape[-rank:], reach, stride, padding):
        count = (extent + 2 * p - k + (s - 1 if ceil else 0)) // s + 1
        if ceil and (count - 1) * s >= extent + p:
            count -= 1
        counts.append(count)
    lead = [(0, 0)] * (x.ndim - rank)
    padded = np.pad(x.astype(np.float64), [*lead, *((p, p + s * k + k) for p, s, k in zip(padding, stride, reach))], constant_values=fill)
    y = np.zeros((*x.shape[:-rank], *counts))
    for place in itertools.product(*map(range, counts)):
        cut = tuple(slice(p * s, p * s + k, d) for p, s, k, d in zip(place, stride, reach, dilation))
        y[(..., *place)] = reduce(padded[(..., *cut)], axis=tuple(range(-rank, 0)))
    return y


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_max_pool_agrees_eagerly_and_natively(data: st.DataObject) -> None:
    draw = data.draw
    small = st.integers(1, 3)
    kernel, stride, dilation = ((draw(small), draw(small)) for _ in range(3))
    padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    extents = tuple(draw(st.integers((k - 1) * d + 1, 8)) for k, d in zip(kernel, dilation))
    ceil = draw(st.booleans())
    x = ramp((draw(small), draw(small), *extents))
    want = pool(x, kernel, stride, padding, np.max, -np.inf, ceil, dilation)

    def function(x: Any) -> Any:
        return ops.max_pool2d(x, kernel, stride, padding, dilation, True, ceil)

    for got, places in (function(Tensor(x)), jit(function)(Tensor(x))):
        np.testing.assert_allclose(got.asnumpy(), want, rtol=1e-6)
        flat = x.reshape(*x.shape[:2], -1)
        found = np.take_along_axis(flat, places.asnumpy().reshape(*x.shape[:2], -1), -1).reshape(want.shape)
        np.testing.assert_array_equal(found, got.asnumpy())


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_average_pool_agrees_eagerly_and_natively(data: st.DataObject) -> None:
    draw = data.draw
    small = st.integers(1, 3)
    kernel, stride = ((draw(small), draw(small)) for _ in range(2))
    padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    extents = tuple(draw(st.integers(k, 8)) for k in kernel)
    ceil, include = draw(st.booleans()), draw(st.booleans())
    x = ramp((draw(small), draw(small), *extents))
    total = pool(x, kernel, stride, padding, np.sum, 0.0, ceil)
    ones = np.ones(extents)
    if include:  # zeros of the padding count, but not what ceil_mode adds
        ones = np.pad(ones, [(p, p) for p in padding], constant_values=1)
        counts = pool(ones, kernel, stride, (0, 0), np.sum, 0.0, ceil)[tuple(slice(0, n) for n in total.shape[2:])]
    else:
        counts = pool(ones, kernel, stride, padding, np.sum, 0.0, ceil)

    def function(x: Any) -> Any:
        return ops.avg_pool2d(x, kernel, stride, padding, ceil, include)

    for got in (function(Tensor(x)), jit(function)(Tensor(x))):
        np.testing.assert_allclose(got.asnumpy(), total / counts, rtol=1e-5, atol=1e-6)


def test_three_dimensions() -> None:
    x = ramp((1, 2, 5, 4, 3))
    want = pool(x, (2, 3, 2), (2, 1, 1), (1, 0, 1), np.max, -np.inf)
    np.testing.assert_allclose(ops.max_pool3d(Tensor(x), (2, 3, 2), (2, 1, 1), (1, 0, 1)).asnumpy(), want)
    want = pool(x, (2, 2, 2), (1, 1, 1), (0, 0, 0), np.mean, 0.0)
    np.testing.assert_allclose(ops.avg_pool3d(Tensor(x), 2).asnumpy(), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["eager", "native"])
def test_the_gradient_of_equal_maxima_goes_to_the_first(mode: str) -> None:
    x = Tensor(np.zeros((1, 1, 4, 4), np.float32))

    def step(x: Any) -> Any:
        return grad(lambda x: ops.max_pool2d(x, 2))(x)

    got = (step if mode == "eager" else jit(step))(x).asnumpy()[0, 0]
    want = np.zeros((4, 4))
    want[::2, ::2] = 1
    np.testing.assert_array_equal(got, want)


def gradient_of_maxima(x: Array, g: Array, size: int, stride: int, padding: int, dilation: int) -> Array:
    """Each window's number of g goes to its first NaN, or else to the first of its largest elements."""
    wide = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)), constant_values=-np.inf)
    result = np.zeros(wide.shape)
    for n, c, i, j in np.ndindex(*g.shape):
        places = [(i * stride + a * dilation, j * stride + b * dilation) for a in range(size) for b in range(size)]
        values = [wide[n, c, *p] for p in places]
        first = next((p for p, v in zip(places, values, strict=True) if np.isnan(v)), None) or places[values.index(max(values))]
        result[n, c, *first] += g[n, c, i, j]
    return result[:, :, padding : padding + x.shape[2], padding : padding + x.shape[3]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize(("size", "stride", "padding", "dilation"), [(3, 1, 1, 1), (3, 2, 1, 1), (3, 2, 0, 1), (2, 1, 0, 1), (5, 2, 2, 1), (2, 1, 1, 2), (3, 3, 1, 1)])
def test_gradients_of_windows_that_overlap(dtype: type, size: int, stride: int, padding: int, dilation: int) -> None:
    dice = np.random.default_rng(size)
    x = dice.integers(-2, 3, (2, 3, 9, 11)).astype(dtype)  # many are equal
    x[0, 0, 2:4, 3], x[1, 2, 5, 6], x[1, 1, :4, :4] = np.nan, np.nan, -np.inf
    pooled = lambda x: ops.max_pool2d(x, size, stride, padding, dilation)  # noqa: E731
    g = dice.integers(1, 9, pooled(Tensor(x)).shape).astype(dtype)
    got = jit(grad(lambda x: (pooled(x) * Tensor(g)).sum()))(Tensor(x)).asnumpy()
    np.testing.assert_array_equal(got.astype(np.float64), gradient_of_maxima(x.astype(np.float64), g, size, stride, padding, dilation))


def test_no_array_is_kept_for_each_place_of_a_window() -> None:
    step = jit(grad(lambda x: ops.square(ops.max_pool2d(x, 3, 1, 1)).sum()))
    step(Tensor(ramp((2, 16, 20, 20))))
    kernels = step.kernels().split("loops (")
    assert max(k.count("store") for k in kernels) <= 3, "places, numbers, and what comes of them"


@pytest.mark.parametrize("mode", ["eager", "native"])
def test_nan_wins(mode: str) -> None:
    x = Tensor(np.array([[[[1.0, np.nan], [3.0, 4.0]]]], np.float32))

    def step(x: Any) -> Any:
        return ops.max_pool2d(x, 2)

    assert np.isnan((step if mode == "eager" else jit(step))(x).asnumpy()).all()


def adaptive(x: Array, out: Any, reduce: Any) -> Array:
    """Windows [floor(k d / n), ceil((k + 1) d / n)) of each of the last dimensions."""
    rank = len(out)
    y = np.zeros((*x.shape[:-rank], *out))
    for place in itertools.product(*map(range, out)):
        cut = tuple(slice(k * d // n, -(-(k + 1) * d // n)) for k, d, n in zip(place, x.shape[-rank:], out))
        y[(..., *place)] = reduce(x[(..., *cut)].astype(np.float64), axis=tuple(range(-rank, 0)))
    return y


@pytest.mark.parametrize(("extents", "out"), [((7, 5), (3, 2)), ((6, 4), (3, 2)), ((5, 5), (5, 1)), ((3, 4), (7, 2)), ((1, 9), (1, 4))])
@pytest.mark.parametrize("mode", ["eager", "native"])
def test_adaptive_windows_cover_the_image(extents: Any, out: Any, mode: str) -> None:
    x = ramp((2, 3, *extents))

    def step(x: Any) -> Any:
        return ops.adaptive_avg_pool2d(x, out), *ops.adaptive_max_pool2d(x, out, True)

    mean, largest, places = (step if mode == "eager" else jit(step))(Tensor(x))
    np.testing.assert_allclose(mean.asnumpy(), adaptive(x, out, np.mean), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(largest.asnumpy(), adaptive(x, out, np.max), rtol=1e-6)
    flat = x.reshape(2, 3, -1)
    np.testing.assert_array_equal(np.take_along_axis(flat, places.asnumpy().reshape(2, 3, -1), -1).reshape(largest.shape), largest.asnumpy())


def test_adaptive_places_of_equal_maxima_are_the_first() -> None:
    _, places = ops.adaptive_max_pool2d(Tensor(np.zeros((1, 1, 5, 5), np.float32)), 2, True)
    assert places.asnumpy()[0, 0].tolist() == [[0, 2], [10, 12]]


def test_adaptive_volumes() -> None:
    x = ramp((1, 2, 3, 5, 4))
    out = (2, 3, 4)
    np.testing.assert_allclose(ops.adaptive_avg_pool3d(Tensor(x), out).asnumpy(), adaptive(x, out, np.mean), rtol=1e-5, atol=1e-6)
    largest, places = ops.adaptive_max_pool3d(Tensor(x), (2, 3, None), True)
    np.testing.assert_allclose(largest.asnumpy(), adaptive(x, out, np.max), rtol=1e-6)
    assert places.dtype is dt.int32
    flat = x.reshape(1, 2, -1)
    np.testing.assert_array_equal(np.take_along_axis(flat, places.asnumpy().reshape(1, 2, -1), -1).reshape(largest.shape), largest.asnumpy())
    np.testing.assert_allclose(ops.adaptive_max_pool1d(Tensor(x[0, :, 0, 0]), 3).asnumpy(), adaptive(x[0, :, 0, 0], (3,), np.max))


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: ops.max_pool2d(x, 2, 1, 1), (1, 1, 3, 3)),
        (lambda x: ops.avg_pool2d(x, 2, 1, 1, False, False), (1, 1, 3, 2)),
        (lambda x: ops.avg_pool1d(x, 3, 2, 1, True), (1, 2, 4)),
        (lambda x: ops.avg_pool3d(x, 2), (1, 1, 2, 3, 2)),
        (lambda x: ops.adaptive_avg_pool2d(x, (2, 1)), (1, 1, 3, 3)),
        (lambda x: ops.adaptive_max_pool2d(x, 2), (1, 1, 3, 3)),
        (lambda x: ops.lp_pool2d(x * x, 3.0, 2, 1), (1, 1, 3, 2)),
        (lambda x: ops.unfold(x, 2, 1, 1, 2), (1, 2, 3, 3)),
        (lambda x: ops.fold(x, (3, 3), 2), (1, 4, 4)),
        (lambda x: ops.max_unpool2d(x, Tensor(np.array([[[[0, 5], [9, 15]]]])), 2), (1, 1, 2, 2)),
    ],
)
def test_gradients_to_second_order(function: Any, shape: Any) -> None:
    check_gradients(function, ramp(shape, 1.0), rtol=1e-4)


@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation"), [(2, 1, 0, 1), ((2, 3), 2, 1, 1), (2, (1, 2), (0, 1), 2)])
def test_fold_is_the_transpose_of_unfold(kernel: Any, stride: Any, padding: Any, dilation: Any) -> None:
    x = ramp((2, 3, 5, 6)).astype(np.float64)
    columns = ops.unfold(Tensor(x), kernel, dilation, padding, stride)
    g = ramp(columns.shape, 1.0).astype(np.float64)
    back = ops.fold(Tensor(g), (5, 6), kernel, dilation, padding, stride)
    assert back.shape == x.shape
    np.testing.assert_allclose((columns.asnumpy() * g).sum(), (x * back.asnumpy()).sum(), rtol=1e-10)


def test_unfold_gives_the_columns_of_a_convolution() -> None:
    x, w = ramp((2, 3, 5, 4)), ramp((4, 3, 2, 3), 1.0)
    columns = ops.unfold(Tensor(x), (2, 3), 1, 1, 2).asnumpy()
    want = ops.conv2d(Tensor(x), Tensor(w), None, 2, "pad", 1).asnumpy()
    np.testing.assert_allclose((w.reshape(4, -1) @ columns).reshape(want.shape), want, rtol=1e-4, atol=1e-5)


def test_unpooling_undoes_pooling() -> None:
    for x, pool_, unpool in (
        (ramp((1, 2, 4, 6)), ops.max_pool2d, ops.max_unpool2d),
        (ramp((1, 2, 4, 2, 4)), lambda x, k, s, p, d, i: ops.max_pool3d(x, k, s, p, d, False, i), ops.max_unpool3d),
    ):
        y, places = pool_(Tensor(x), 2, 2, 0, 1, True)
        back = unpool(y, places, 2).asnumpy()
        assert back.shape == x.shape
        np.testing.assert_array_equal(back[back != 0], x[back != 0])
        assert np.count_nonzero(back) == y.size
    larger = ops.max_unpool1d(Tensor([[5.0, 7.0]]), Tensor([[1, 3]]), 2, output_size=(1, 6))
    assert larger.asnumpy().tolist() == [[0.0, 5.0, 0.0, 7.0, 0.0, 0.0]]


def test_windows_and_fold_infer_and_refuse() -> None:
    f32 = dt.float32
    windows = Windows((2, 3), (2, 2), (1, 1), (1, 1))
    assert windows.infer(TensorType(f32, (1, 2, 3, 4))).shape == (1, 2, 2, 3, 2, 2)
    with pytest.raises(ValueError, match="larger"):
        windows.infer(TensorType(f32, (1, 2, 1, 4)))
    with pytest.raises(ValueError, match="axes"):
        windows.infer(TensorType(f32, (3, 4)))
    with pytest.raises(ValueError, match="windows of shape"):
        Fold((0,), (2,), (1,), (1,), (4,)).infer(TensorType(f32, (4, 2)))
    with pytest.raises(ValueError, match="empty"):
        ReduceMaxFirst((1,)).infer(TensorType(f32, (3, 0)))
    assert apply1(ReduceMaxFirst((1,), True), Tensor(ramp((2, 3)))).shape == (2, 1)


X = Tensor(ramp((1, 1, 4, 4)))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: ops.max_pool2d(X, 0), ValueError),
        (lambda: ops.max_pool2d(X, 2, 0), ValueError),
        (lambda: ops.max_pool2d(X, 2, 1, 2), ValueError),
        (lambda: ops.max_pool2d(X, 5), ValueError),
        (lambda: ops.max_pool2d(X, "2"), TypeError),
        (lambda: ops.max_pool2d(Tensor(ramp((4, 4))), 2), ValueError),
        (lambda: ops.max_pool2d(3.0, 2), TypeError),
        (lambda: ops.avg_pool2d(X, 2, 1, 2), ValueError),
        (lambda: ops.avg_pool2d(X, 2, divisor_override=-1), ValueError),
        (lambda: ops.avg_pool2d(X.astype(dt.int32), 2), TypeError),
        (lambda: ops.avg_pool1d(X, 2), ValueError),
        (lambda: ops.adaptive_avg_pool2d(X, (1, 2, 3)), ValueError),
        (lambda: ops.adaptive_avg_pool2d(X, 0), ValueError),
        (lambda: ops.adaptive_avg_pool2d(X, 2.5), TypeError),
        (lambda: ops.lp_pool2d(X, 0, 2), ValueError),
        (lambda: ops.lp_pool2d(X, "2", 2), TypeError),
        (lambda: ops.unfold(Tensor(ramp((4, 4))), 2), ValueError),
        (lambda: ops.fold(Tensor(ramp((1, 4, 5))), (3, 3), 2), ValueError),
        (lambda: ops.max_unpool2d(X, Tensor([1]), 2), ValueError),
        (lambda: ops.max_unpool2d(X, X, 2), TypeError),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        make()


@pytest.mark.parametrize("compiled", [False, True])
def test_a_window_that_is_too_large_is_told_as_it_was_given(compiled: bool) -> None:
    """Sequences are pooled as images of one row, of which nobody has heard."""
    largest, mean = (lambda x: nn.MaxPool1d(5, 2)(x)), (lambda x: ops.avg_pool1d(x, 5))
    for pool in (largest, mean):
        with pytest.raises(ValueError, match=r"a window of \(5,\) elements is larger than the \(padded\) input \(2, 3, 4\)"):
            (jit(pool) if compiled else pool)(Tensor(ramp((2, 3, 4))))


def test_windows_computed_in_many_steps_are_folded_by_few_ops() -> None:
    """What is needed twice is computed once for each place of the windows."""
    builder = Builder("powers")
    x = y = builder.input(TensorType(dt.float64, (2, 4, 4, 3, 3)))
    for _ in range(12):
        (y,) = builder.append(Mul(), (y, y))
    (whole,) = builder.append(Fold((1, 2), (3, 3), (2, 2), (1, 1), (2, 9, 9)), (y,))
    graph = builder.finish([whole])
    done = decompose(graph)
    assert len(done.nodes) < 200 and x in done.inputs
    array = np.random.default_rng(3).uniform(0.999, 1.001, x.type.shape)
    np.testing.assert_allclose(evaluate_graph(done, [array])[0], evaluate_graph(graph, [array])[0], rtol=1e-13)
