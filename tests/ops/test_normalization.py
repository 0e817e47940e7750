"""Normalisation against its formulas in float64, by finite differences, natively, in half precision; what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, Tensor, nn, ops
from graphcell import dtype as dt
from graphcell.context import GRAPH_MODE, PYNATIVE_MODE
from graphcell.jit import jit
from tests.helpers import check_gradients
from tests.recording import ramp

Array = np.ndarray[Any, Any]
MODES = [PYNATIVE_MODE, GRAPH_MODE]


def normalized(x: Array, axis: Any, eps: float) -> Array:
    x = x.astype(np.float64)
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + eps)


def run(mode: int, function: Any, *arguments: Any) -> Any:
    return (function if mode == PYNATIVE_MODE else jit(function))(*arguments)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(3, 7), (2, 3, 33), (2, 3, 4, 5), (1, 1000)])
def test_layer_norm(mode: int, shape: Any) -> None:
    x, w, b = ramp(shape), ramp(shape[-1:], 1.0), ramp(shape[-1:], 2.0)
    y = run(mode, lambda x, w, b: ops.layer_norm(x, shape[-1:], w, b, 1e-3), *map(Tensor, (x, w, b)))
    np.testing.assert_allclose(y.asnumpy(), normalized(x, -1, 1e-3) * w + b, rtol=2e-5, atol=2e-5)
    two = run(mode, lambda x: ops.layer_norm(x, shape[-2:]), Tensor(x))
    np.testing.assert_allclose(two.asnumpy(), normalized(x, (-2, -1), 1e-5), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("mode", MODES)
def test_group_and_instance_norm(mode: int) -> None:
    ms.set_context(mode=mode)
    x, w, b = ramp((2, 6, 3, 4)), ramp((6,), 1.0), ramp((6,), 2.0)
    per_channel = (w[:, None, None], b[:, None, None])
    y = run(mode, lambda x, w, b: ops.group_norm(x, 3, w, b), *map(Tensor, (x, w, b)))
    want = normalized(x.reshape(2, 3, -1), -1, 1e-5).reshape(x.shape) * per_channel[0] + per_channel[1]
    np.testing.assert_allclose(y.asnumpy(), want, rtol=2e-5, atol=2e-5)
    net = nn.InstanceNorm2d(6)
    net.gamma.set_data(Tensor(w))
    net.beta.set_data(Tensor(b))
    want = normalized(x, (2, 3), 1e-5) * per_channel[0] + per_channel[1]
    np.testing.assert_allclose(net(Tensor(x)).asnumpy(), want, rtol=2e-5, atol=2e-5)
    assert [p.name for p in net.get_parameters()] == ["mean", "variance", "gamma", "beta"]
    assert nn.InstanceNorm1d(2)(Tensor(ramp((1, 2, 5)))).shape == (1, 2, 5)
    assert nn.InstanceNorm3d(2)(Tensor(ramp((1, 2, 2, 2, 2)))).shape == (1, 2, 2, 2, 2)


@pytest.mark.parametrize("mode", MODES)
def test_rms_norm(mode: int) -> None:
    x, w = ramp((2, 3, 5)), ramp((5,), 1.0)
    y, inverse = run(mode, lambda x, w: ops.rms_norm(x, w, 1e-3), Tensor(x), Tensor(w))
    want = 1 / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(inverse.asnumpy(), want, rtol=1e-5)
    np.testing.assert_allclose(y.asnumpy(), x * want * w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_local_response(mode: int) -> None:
    x = ramp((2, 7, 2, 3))
    y = run(mode, lambda x: ops.lrn(x, 2, 2.0, 0.5, 0.75), Tensor(x))
    want = np.empty(x.shape)
    for c in range(7):
        near = x[:, max(0, c - 2) : c + 3].astype(np.float64)
        want[:, c] = x[:, c] / (2.0 + 0.5 * (near**2).sum(1)) ** 0.75
    np.testing.assert_allclose(y.asnumpy(), want, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_local_response_of_nothing(mode: int) -> None:
    for shape in ((2, 5, 0, 3), (0, 5, 2, 3), (2, 0, 4, 3)):
        assert run(mode, lambda x: ops.lrn(x, 2), Tensor(np.zeros(shape, np.float32))).shape == shape


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 6), (2, 3, 4, 5), (2, 3, 2, 2, 2)])
def test_batch_norm_in_training_moves_its_statistics(mode: int, shape: Any) -> None:
    x, w, b = ramp(shape), ramp((3,), 1.0), ramp((3,), 2.0)
    mean, var = Parameter(Tensor(ramp((3,), 3.0)), name="mean"), Parameter(Tensor(np.abs(ramp((3,), 4.0)) + 1), name="var")
    before = mean.asnumpy().copy(), var.asnumpy().copy()

    def step(x: Any, w: Any, b: Any) -> Any:
        return ops.batch_norm(x, mean, var, w, b, True, 0.2, 1e-3)

    y = run(mode, step, Tensor(x), Tensor(w), Tensor(b))
    axis = (0, *range(2, x.ndim))
    along = (3, *(1,) * (x.ndim - 2))
    want = normalized(x, axis, 1e-3) * w.reshape(along) + b.reshape(along)
    np.testing.assert_allclose(y.asnumpy(), want, rtol=2e-5, atol=2e-5)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(mean.asnumpy(), 0.8 * before[0] + 0.2 * wide.mean(axis), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(var.asnumpy(), 0.8 * before[1] + 0.2 * wide.var(axis, ddof=1), rtol=1e-5, atol=1e-6)


def test_batch_norm_of_one_value_a_channel_keeps_the_statistics_finite() -> None:
    net = nn.BatchNorm1d(2).set_train()
    y = net(Tensor([[3.0, -1.0]]))
    assert y.asnumpy().tolist() == [[0.0, 0.0]]
    assert np.isfinite(net.moving_variance.asnumpy()).all()


def test_frozen_scale_and_shift_get_no_gradient_but_move() -> None:
    net = nn.BatchNorm2d(2, affine=False).set_train()
    assert net.trainable_params() == []
    gradient = ms.grad(net)(Tensor(ramp((2, 2, 3, 3))))
    np.testing.assert_allclose(gradient.asnumpy(), 0, atol=1e-5)  # a sum of normalised values does not change
    assert net.moving_mean.asnumpy().any()


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda x, w, b: ops.layer_norm(x, (3,), w, b), ((2, 3), (3,), (3,))),
        (lambda x, w, b: ops.group_norm(x, 2, w, b), ((1, 4, 2), (4,), (4,))),
        (lambda x, w: ops.rms_norm(x, w)[0], ((2, 3), (3,))),
        (lambda x: ops.lrn(x, 1), ((1, 3, 1, 2),)),
        (lambda x, w, b: ops.batch_norm(x, Tensor([0.5, 1.0]), Tensor([1.0, 2.0]), w, b), ((2, 2, 2), (2,), (2,))),
    ],
)
def test_gradients_to_second_order(function: Any, shapes: Any) -> None:
    check_gradients(function, *(ramp(s, float(k)) for k, s in enumerate(shapes)), rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_gradient_of_batch_norm_in_training(mode: int) -> None:
    """Against finite differences in float64, with respect to input, scale and shift."""
    mean, var = (Parameter(Tensor(np.array(v)), name=f"p{v}") for v in ([0.0, 0.0], [1.0, 1.0]))
    x, w, b = (ramp(s, k).astype(np.float64) for k, s in enumerate(((3, 2, 2), (2,), (2,))))
    c = ramp((3, 2, 2), 5.0).astype(np.float64)

    def loss(x: Any, w: Any, b: Any) -> Any:
        return (ops.batch_norm(x, mean, var, w, b, True) * Tensor(c)).sum()

    found = run(mode, lambda *a: ms.grad(loss, (0, 1, 2))(*a), Tensor(x), Tensor(w), Tensor(b))

    def value(arrays: Any) -> float:
        return float(((normalized(arrays[0], (0, 2), 1e-5) * arrays[1][:, None] + arrays[2][:, None]) * c).sum())

    arrays = [x, w, b]
    for k, got in enumerate(found):
        want = np.zeros(arrays[k].shape)
        for index in np.ndindex(*want.shape):
            ends = []
            for sign in (1, -1):
                moved = [a.copy() for a in arrays]
                moved[k][index] += sign * 1e-6
                ends.append(value(moved))
            want[index] = (ends[0] - ends[1]) / 2e-6
        np.testing.assert_allclose(got.asnumpy(), want, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16])
def test_half_precision_is_normalised_in_single(mode: int, dtype: Any) -> None:
    x = ramp((2, 4, 40)) + 30  # the sum of squares overflows float16
    wide = Tensor(x, dtype).astype(dt.float32).asnumpy()
    step = 2.0**-9 if dtype is dt.float16 else 2.0**-6
    mean, var = (Parameter(Tensor(np.full(4, v, np.float32)), name=f"p{v}") for v in (0.0, 1.0))
    for function, axis, shape in (
        (lambda x: ops.layer_norm(x, (40,)), -1, x.shape),
        (lambda x: ops.group_norm(x, 2), -1, (2, 2, 80)),
        (lambda x: ops.batch_norm(x, mean, var, None, None, True), (0, 2), x.shape),
    ):
        y = run(mode, function, Tensor(x, dtype))
        assert y.dtype is dtype
        want = normalized(wide.reshape(shape), axis, 1e-5).reshape(x.shape)
        np.testing.assert_allclose(y.astype(dt.float32).asnumpy(), want, rtol=2 * step, atol=4 * step)


NORMS = {
    "batch": lambda x, w, b: ops.batch_norm(x, Parameter(np.zeros(2, np.float32)), Parameter(np.ones(2, np.float32)), w, b, True),
    "group": lambda x, w, b: ops.group_norm(x, 2, w, b),
    "layer": lambda x, w, b: ops.layer_norm(x.reshape((-1, 2)), (2,), w, b),
    "nn.BatchNorm2d": nn.BatchNorm2d(2).set_train(),
    "nn.GroupNorm": nn.GroupNorm(2, 2),
    "nn.LayerNorm": nn.LayerNorm((2,)),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16], ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_gradients_of_weights_are_sums_in_full_precision(name: str, dtype: Any, mode: int) -> None:
    """65,600 and 69,905 elements: more than float16 can count, and neither it nor bfloat16 has the number."""
    ms.set_context(mode=mode)
    norm: Any = NORMS[name]
    shape = (65600, 2) if name == "nn.LayerNorm" else (5, 2, 13981, 1)
    x = Tensor(np.random.default_rng(3).normal(size=shape), dtype)
    if isinstance(norm, nn.Cell):
        weights = tuple(norm.trainable_params())
        found = ms.grad(lambda x: norm(x).astype(dt.float32).sum(), None, weights)(x)
    else:
        w, b = Tensor(np.ones(2), dt.float32), Tensor(np.zeros(2), dt.float32)
        found = ms.grad(lambda w, b: norm(x, w, b).astype(dt.float32).sum(), (0, 1))(w, b)
    of_scale, of_shift = found
    assert of_scale.dtype is dt.float32 and of_shift.dtype is dt.float32
    assert of_shift.tolist() == [x.size / 2] * 2
    if "ayer" not in name:  # over whole channels the normalised values sum up to nothing
        np.testing.assert_allclose(of_scale.asnumpy(), np.zeros(2), atol=x.size * 1e-5)


X = Tensor(ramp((2, 4, 3)))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: ops.layer_norm(X, (4,)), ValueError),
        (lambda: ops.layer_norm(X, ()), ValueError),
        (lambda: ops.layer_norm(Tensor([1, 2]), (2,)), TypeError),
        (lambda: ops.layer_norm(3.0, (2,)), TypeError),
        (lambda: ops.group_norm(X, 3), ValueError),
        (lambda: ops.group_norm(X, 0), ValueError),
        (lambda: ops.group_norm(Tensor([1.0]), 1), ValueError),
        (lambda: ops.batch_norm(X, Tensor([0.0]), Tensor([1.0]), None, None), ValueError),
        (lambda: ops.batch_norm(Tensor([1.0]), Tensor([0.0]), Tensor([1.0]), None, None), ValueError),
        (lambda: ops.rms_norm(X, Tensor([1.0])), ValueError),
        (lambda: ops.lrn(X), ValueError),
        (lambda: nn.InstanceNorm1d(3)(X), ValueError),
        (lambda: nn.InstanceNorm2d(4)(X), ValueError),
        (lambda: nn.InstanceNorm2d(4, affine=1), TypeError),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        make()
