"""Convolution: eval and native code against plain loops in float64; its three linear maps are transposes of each other; second-order
gradients by finite differences; what is refused. Layers are tested in tests/nn/test_layers.py.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcell import Tensor, nn, ops
from graphcell import dtype as dt
from graphcell.context import GRAPH_MODE, config
from graphcell.ir.types import TensorType
from graphcell.jit import jit
from graphcell.ops.convolution import Conv, ConvInputGrad, ConvWeightGrad
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.convolution import conv_transpose
from tests.helpers import check_gradients
from tests.recording import ramp

Array = np.ndarray[Any, Any]


def convolve(x: Array, w: Array, stride: Any, padding: Any, dilation: Any, groups: int = 1) -> Array:
    """Cross-correlation of x (N, C, *S) and w (K, C / groups, *kernel), element by element."""
    rank = len(stride)
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *padding])
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilation)]
    out = [(padded.shape[2 + a] - reach[a]) // stride[a] + 1 for a in range(rank)]
    y = np.zeros((x.shape[0], w.shape[0], *out))
    inner, outer = x.shape[1] // groups, w.shape[0] // groups
    for k in range(w.shape[0]):
        channels = padded[:, k // outer * inner : (k // outer + 1) * inner]
        for place in itertools.product(*map(range, out)):
            cut = tuple(slice(p * s, p * s + r, d) for p, s, r, d in zip(place, stride, reach, dilation))
            y[(slice(None), k, *place)] = (channels[(slice(None), slice(None), *cut)] * w[k].astype(np.float64)).sum(
                tuple(range(1, rank + 2))
            )
    return y


GEOMETRIES: list[tuple[tuple[int, ...], tuple[int, ...], Any, Any, Any, int]] = [
    ((2, 3, 5, 6), (4, 3, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ((1, 2, 7, 5), (3, 2, 2, 3), (2, 1), ((0, 1), (2, 0)), (1, 1), 1),
    ((2, 4, 6, 6), (4, 2, 3, 3), (1, 2), ((1, 1), (1, 1)), (1, 1), 2),
    ((1, 3, 6, 7), (6, 1, 3, 2), (1, 1), ((2, 2), (0, 0)), (2, 1), 3),
    ((1, 2, 9, 9), (2, 2, 3, 3), (3, 3), ((0, 0), (0, 0)), (2, 3), 1),
    ((2, 5, 4, 4), (7, 5, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    ((1, 5, 4, 4), (7, 5, 1, 1), (2, 2), ((0, 0), (0, 0)), (1, 1), 1),
    ((1, 1, 8, 3), (17, 1, 5, 3), (1, 1), ((2, 2), (1, 1)), (1, 1), 1),
    ((1, 2, 4, 5, 3), (3, 2, 2, 3, 2), (1, 2, 1), ((1, 0), (1, 1), (0, 0)), (1, 1, 1), 1),
    ((2, 4, 3, 3, 3), (2, 2, 2, 2, 2), (1, 1, 1), ((0, 0),) * 3, (1, 2, 1), 2),
    ((2, 3, 9), (4, 3, 3), (2,), ((1, 1),), (1,), 1),
]


@pytest.mark.parametrize(("x_shape", "w_shape", "stride", "padding", "dilation", "groups"), GEOMETRIES)
@pytest.mark.parametrize("channels_last", [False, True])
def test_the_three_maps_are_the_definition_and_its_transposes(
    x_shape: Any, w_shape: Any, stride: Any, padding: Any, dilation: Any, groups: int, channels_last: bool
) -> None:
    x, w = ramp(x_shape).astype(np.float64), ramp(w_shape, 1.0).astype(np.float64)
    want = convolve(x, w, stride, padding, dilation, groups)
    given_x = np.moveaxis(x, 1, -1) if channels_last else x
    geometry = (stride, padding, dilation, groups, channels_last)
    y = apply1(Conv(*geometry), Tensor(given_x), Tensor(w)).asnumpy()
    np.testing.assert_allclose(np.moveaxis(y, -1, 1) if channels_last else y, want, rtol=1e-10, atol=1e-10)
    g = ramp(y.shape, 2.0).astype(np.float64)
    dx = apply1(ConvInputGrad(*geometry, spatial_shape=x_shape[2:]), Tensor(w), Tensor(g)).asnumpy()
    dw = apply1(ConvWeightGrad(*geometry, kernel=w_shape[2:]), Tensor(given_x), Tensor(g)).asnumpy()
    assert dx.shape == given_x.shape and dw.shape == w.shape
    inner = (y * g).sum()  # <conv(x, w), g> = <x, input_grad(w, g)> = <w, weight_grad(x, g)>
    np.testing.assert_allclose([(given_x * dx).sum(), (w * dw).sum()], [inner, inner], rtol=1e-9)


@pytest.mark.parametrize(("x_shape", "w_shape", "stride", "padding", "dilation", "groups"), GEOMETRIES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_native_code_agrees(
    x_shape: Any, w_shape: Any, stride: Any, padding: Any, dilation: Any, groups: int, dtype: str
) -> None:
    x, w = (Tensor(ramp(s, k).astype(dtype)) for k, s in enumerate((x_shape, w_shape)))
    geometry = (stride, padding, dilation, groups)
    conv = Conv(*geometry)
    want = convolve(x.asnumpy(), w.asnumpy(), *geometry)
    g = Tensor(ramp(want.shape, 2.0).astype(dtype))

    @jit
    def all_three(x: Any, w: Any, g: Any) -> Any:
        dx = apply1(ConvInputGrad(*geometry, spatial_shape=x_shape[2:]), w, g)
        dw = apply1(ConvWeightGrad(*geometry, kernel=w_shape[2:]), x, g)
        return apply1(conv, x, w), dx, dw

    y, dx, dw = (t.asnumpy() for t in all_three(x, w, g))
    tolerance = 2e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(y, want, rtol=tolerance, atol=tolerance * 10)
    wide_x, wide_w, wide_g = (Tensor(t.asnumpy().astype(np.float64)) for t in (x, w, g))
    want_dx = apply1(ConvInputGrad(*geometry, spatial_shape=x_shape[2:]), wide_w, wide_g).asnumpy()
    want_dw = apply1(ConvWeightGrad(*geometry, kernel=w_shape[2:]), wide_x, wide_g).asnumpy()
    np.testing.assert_allclose(dx, want_dx, rtol=tolerance, atol=tolerance * 10)
    np.testing.assert_allclose(dw, want_dw, rtol=tolerance, atol=tolerance * np.abs(want_dw).max())


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_geometries_agree(data: st.DataObject) -> None:
    draw = data.draw
    small = st.integers(1, 3)
    groups = draw(st.integers(1, 3))
    kernel, stride, dilation = ((draw(small), draw(small)) for _ in range(3))
    padding = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(2))
    extents = tuple(draw(st.integers((k - 1) * d + 1, 8)) for k, d in zip(kernel, dilation))
    n, c, k = draw(small), groups * draw(small), groups * draw(st.integers(1, 6))
    x, w = ramp((n, c, *extents)), ramp((k, c // groups, *kernel), 1.0)
    want = convolve(x, w, stride, padding, dilation, groups)
    eager = apply1(Conv(stride, padding, dilation, groups), Tensor(x), Tensor(w)).asnumpy()
    compiled = jit(lambda a, b: apply1(Conv(stride, padding, dilation, groups), a, b))
    native = compiled(Tensor(x), Tensor(w)).asnumpy()
    for got in (eager, native):
        np.testing.assert_allclose(got, want, rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda x, w: ops.conv2d(x, w, None, 2, "pad", 1), ((1, 2, 3, 3), (2, 2, 2, 2))),
        (lambda x, w, b: ops.conv2d(x, w, b, 1, "same", 0, 1, 2), ((1, 2, 2, 3), (2, 1, 2, 2), (2,))),
        (lambda x, w: ops.conv1d(x, w, None, 1, "valid", 0, 2), ((1, 2, 5), (2, 2, 2))),
        (lambda x, w: ops.conv3d(x, w, None, 1, "same"), ((1, 1, 2, 2, 2), (1, 1, 2, 1, 2))),
        (lambda w, g: apply1(ConvInputGrad((2, 1), ((1, 0), (0, 0)), (1, 1), 1, spatial_shape=(4, 3)), w, g), ((2, 1, 2, 2), (1, 2, 2, 2))),
        (lambda x, g: apply1(ConvWeightGrad((1, 1), ((0, 0), (1, 1)), (1, 1), 1, kernel=(2, 2)), x, g), ((1, 2, 3, 2), (1, 2, 2, 3))),
    ],
)
def test_gradients_to_second_order(function: Any, shapes: Any) -> None:
    check_gradients(function, *(ramp(s, k) for k, s in enumerate(shapes)), rtol=1e-4)


VOLUMES = [
    ((2, 4, 5, 6, 7), (6, 4, 3, 3, 3), (1, 1, 1), ((1, 1), (1, 1), (1, 1)), (1, 1, 1), 1),
    ((2, 4, 7, 6, 7), (6, 2, 2, 3, 1), (2, 1, 2), ((1, 0), (0, 1), (2, 1)), (2, 1, 1), 2),
    ((1, 3, 4, 4, 4), (3, 1, 3, 3, 3), (2, 2, 2), ((0, 1), (1, 0), (1, 1)), (1, 1, 1), 3),
    ((2, 1, 3, 5, 5), (2, 1, 1, 5, 5), (1, 1, 1), ((0, 0), (0, 0), (0, 0)), (1, 1, 1), 1),
]


@pytest.mark.parametrize("extents,kernel,stride,padding,dilation,groups", VOLUMES)
def test_volumes_are_convolved_as_images(extents: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> None:
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal(extents), rng.standard_normal(kernel)
    pads = tuple(p for pair in padding for p in pair)
    wanted = convolve(x, w, stride, padding, dilation, groups)
    g = rng.standard_normal(wanted.shape)
    back = apply1(ConvInputGrad(stride, padding, dilation, groups, spatial_shape=extents[2:]), Tensor(w), Tensor(g)).asnumpy()

    def forward(a: Tensor, b: Tensor) -> Tensor:
        return ops.conv3d(a, b, None, stride, "pad", pads, dilation, groups)

    def transposed(a: Tensor, b: Tensor) -> Tensor:
        return conv_transpose(a, b, extents[2:], stride, padding, dilation, groups)

    compiled = jit(forward)
    for f in (forward, compiled):
        np.testing.assert_allclose(f(Tensor(x), Tensor(w)).asnumpy(), wanted, atol=1e-12)
    assert "calls back" not in compiled.explain()
    for f in (transposed, jit(transposed)):
        np.testing.assert_allclose(f(Tensor(g), Tensor(w)).asnumpy(), back, atol=1e-12)


@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16])
@pytest.mark.parametrize("mode", ["eager", "native"])
def test_half_precision_accumulates_in_single(dtype: Any, mode: str) -> None:
    x, w = Tensor(ramp((1, 64, 5, 5)), dtype), Tensor(ramp((2, 64, 3, 3), 1.0), dtype)
    wide = [t.astype(dt.float32).asnumpy() for t in (x, w)]
    function = ops.conv2d if mode == "eager" else jit(lambda x, w: ops.conv2d(x, w))
    y = function(x, w)
    assert y.dtype is dtype
    want = convolve(*wide, (1, 1), ((0, 0), (0, 0)), (1, 1))
    step = 2.0**-10 if dtype is dt.float16 else 2.0**-7
    np.testing.assert_allclose(y.astype(dt.float32).asnumpy(), want, rtol=2 * step, atol=1e-3)


@pytest.mark.parametrize("mode", ["eager", "native"])
def test_empty_batches(mode: str) -> None:
    def step(x: Any, w: Any) -> Any:
        return ops.conv2d(x, w)

    function = step if mode == "eager" else jit(step)
    assert function(Tensor(np.zeros((0, 2, 4, 4), np.float32)), Tensor(ramp((3, 2, 3, 3)))).shape == (0, 3, 2, 2)


def test_output_padding_adds_zeros() -> None:
    """As MindSpore has it; in PyTorch the same name makes more of the transposed convolution."""
    net = nn.Conv2dTranspose(1, 2, 3, stride=2, pad_mode="pad", padding=1, output_padding=1)
    plain = nn.Conv2dTranspose(1, 2, 3, stride=2, pad_mode="pad", padding=1)
    plain.weight.set_data(net.weight)
    x = Tensor(ramp((1, 1, 3, 3)))
    assert np.array_equal(net(x).asnumpy(), np.pad(plain(x).asnumpy(), ((0, 0), (0, 0), (0, 1), (0, 1))))


@pytest.mark.parametrize("layer", [nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d, nn.BatchNorm2d])
@pytest.mark.parametrize("mode", [GRAPH_MODE, 1])
def test_channels_last_is_the_same_image_in_another_order(layer: Any, mode: int) -> None:
    config.mode = mode
    arguments: Any = {nn.Conv2d: (3, 4, 3), nn.BatchNorm2d: (3,)}.get(layer, (2, 2))
    first, last = layer(*arguments), layer(*arguments, data_format="NHWC")
    for p, q in zip(first.get_parameters(), last.get_parameters()):
        q.set_data(p)
    x = ramp((2, 3, 5, 4))
    want = first(Tensor(x)).asnumpy()
    got = last(Tensor(np.moveaxis(x, 1, -1))).asnumpy()
    np.testing.assert_allclose(np.moveaxis(got, -1, 1), want, rtol=1e-5, atol=1e-5)


F32 = dt.float32
TWO = ((0, 0), (0, 0))


@pytest.mark.parametrize(
    ("op", "shapes", "text"),
    [
        (Conv((1, 1), TWO, (1, 1)), ((1, 2, 4, 4), (3, 3, 2, 2)), "2 channels"),
        (Conv((1, 1), TWO, (1, 1)), ((1, 2, 4), (3, 2, 2)), "4 dimensions"),
        (Conv((1, 1), TWO, (1, 1)), ((1, 2, 2, 2), (3, 2, 3, 3)), "larger than the padded input"),
        (Conv((1, 1), TWO, (1, 1), 2), ((1, 4, 4, 4), (3, 2, 2, 2)), "groups"),
        (ConvInputGrad((1, 1), TWO, (1, 1), spatial_shape=(4, 4)), ((3, 2, 2, 2), (1, 3, 4, 4)), "extents"),
        (ConvInputGrad((1, 1), TWO, (1, 1), spatial_shape=(4, 4)), ((3, 2, 2, 2), (1, 4, 3, 3)), "channels"),
        (ConvWeightGrad((1, 1), TWO, (1, 1), kernel=(2, 2)), ((1, 2, 4, 4), (1, 3, 4, 4)), "extents"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(op: Any, shapes: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        op.infer(*(TensorType(F32, s) for s in shapes))


def test_dtypes_that_do_not_fit_are_refused() -> None:
    op = Conv((1, 1), TWO, (1, 1))
    for a, b in ((dt.float32, dt.float64), (dt.int32, dt.int32)):
        with pytest.raises(TypeError, match="same float type"):
            op.infer(TensorType(a, (1, 2, 4, 4)), TensorType(b, (3, 2, 2, 2)))


@pytest.mark.parametrize(
    "settings_",
    [
        {"stride": 0}, {"stride": (1, 2, 3)}, {"dilation": 0}, {"pad_mode": "half"}, {"padding": 1}, {"groups": 0}, {"groups": 2},
        {"pad_mode": "pad", "padding": -1}, {"pad_mode": "pad", "padding": (1, 2, 3)},
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_are_refused(settings_: Any) -> None:
    with pytest.raises(ValueError):
        ops.conv2d(Tensor(ramp((1, 3, 4, 4))), Tensor(ramp((2, 3, 2, 2))), **settings_)


@pytest.mark.parametrize("settings_", [{"stride": 1.5}, {"stride": True}, {"dilation": "1"}])
def test_settings_of_another_kind_are_refused(settings_: Any) -> None:
    with pytest.raises(TypeError):
        ops.conv2d(Tensor(ramp((1, 3, 4, 4))), Tensor(ramp((2, 3, 2, 2))), **settings_)
