"""`interpolate` against matrices written down from the definitions, in float64; shapes, gradients, errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, ops
from graphcell.ops.functional import interpolation

MODES = [("nearest", 3), ("nearest", 4), ("nearest", 5), ("nearest-exact", 4), ("linear", 3), ("bilinear", 4), ("trilinear", 5), ("bicubic", 4)]
SIZES = {3: [(4,), (11,), (1,)], 4: [(4, 9), (11, 3), (7, 5)], 5: [(4, 3, 9), (2, 5, 1)]}
X = {r: np.random.default_rng(r).normal(size=(2, 3, *(7, 5, 4)[: r - 2])).astype(np.float32) for r in (3, 4, 5)}


def keys(d: float, a: float) -> float:
    d = abs(d)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def matrix(mode: str, extent: int, out: int, aligned: bool, factor: float | None = None) -> Any:
    """The weights of the input elements (columns) in the output elements (rows)."""
    m = np.zeros((out, extent))
    step = 1 / factor if factor else extent / out
    for i in range(out):
        centre = i * (extent - 1) / max(out - 1, 1) if aligned else (i + 0.5) * step - 0.5
        if mode.startswith("nearest"):
            m[i, min(extent - 1, math.floor(i * step if mode == "nearest" else (i + 0.5) * step + 1e-9))] = 1
        elif mode == "bicubic":
            for k in range(math.floor(centre) - 1, math.floor(centre) + 3):
                if aligned or 0 <= k < extent:
                    m[i, min(max(k, 0), extent - 1)] += keys(centre - k, -0.75 if aligned else -0.5)
            m[i] /= m[i].sum()
        else:
            centre = min(max(centre, 0), extent - 1)
            for k in range(extent):
                m[i, k] = max(0.0, 1 - abs(centre - k))
    return m


def resized(x: Any, matrices: list[Any]) -> Any:
    y = x.astype(np.float64)
    for axis, m in enumerate(matrices, start=2):
        y = np.moveaxis(np.tensordot(y, m, (axis, 1)), -1, axis)
    return y


CASES = [
    (mode, rank, size, aligned)
    for mode, rank in MODES
    for size in SIZES[rank]
    for aligned in ((None,) if mode.startswith("nearest") else (None, False, True))
]


@pytest.mark.parametrize(("mode", "rank", "size", "aligned"), CASES)
def test_sizes(mode: str, rank: int, size: tuple[int, ...], aligned: bool | None) -> None:
    x = X[rank]
    matrices = [matrix(mode, e, o, bool(aligned)) for e, o in zip(x.shape[2:], size)]
    y = ops.interpolate(Tensor(x), size=size, mode=mode, align_corners=aligned)
    np.testing.assert_allclose(y.asnumpy(), resized(x, matrices), rtol=1e-5, atol=1e-5)
    assert y.dtype is ms.float32


@pytest.mark.parametrize(("mode", "rank"), MODES)
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients(mode: str, rank: int, compiled: bool) -> None:
    """The gradient of a sum of squares is 2 Mᵀ M x along every axis."""
    x, size = X[rank], SIZES[rank][0]
    matrices = [matrix(mode, e, o, False) for e, o in zip(x.shape[2:], size)]
    gradient = ms.grad(lambda t: ops.interpolate(t, size=size, mode=mode).square().sum())
    got = (ms.jit(lambda t: gradient(t)) if compiled else gradient)(Tensor(x))
    np.testing.assert_allclose(got.asnumpy(), 2 * resized(x, [m.T @ m for m in matrices]), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("size", "times"), [((6, 12), (2, 3)), ((3, 8), (1, 2)), ((9, 4), (3, 1)), ((15, 5), (5, 0)), ((4, 8), (0, 2))])
def test_whole_multiples_of_the_nearest_are_repetitions(size: tuple[int, int], times: tuple[int, int]) -> None:
    """Not gathered, and their gradients not scattered; 0 times: no whole multiple."""
    ms.set_context(mode=ms.GRAPH_MODE)
    x, weight = np.random.default_rng(0).standard_normal((2, 2, 3, 4)), np.random.default_rng(1).standard_normal((2, 2, *size))
    value = ms.jit(lambda x: ops.interpolate(x, size, mode="nearest"))
    slope = ms.jit(ms.grad(lambda x, w: (ops.interpolate(x, size, mode="nearest") * w).sum()))
    rows, columns = (np.arange(out) * extent // out for out, extent in zip(size, (3, 4), strict=True))
    assert np.array_equal(value(Tensor(x)).asnumpy(), x[:, :, rows][:, :, :, columns])
    wanted = np.zeros_like(x)
    np.add.at(wanted, (slice(None), slice(None), rows[:, None], columns), weight)
    np.testing.assert_allclose(slope(Tensor(x), Tensor(weight)).asnumpy(), wanted, rtol=1e-12, atol=1e-12)
    assert ("gather" in value.ir()) == (0 in times) and ("scatter" in slope.ir()) == (0 in times)


def test_scale_factors() -> None:
    x = X[4]
    got = ops.interpolate(Tensor(x), scale_factor=1.7, mode="bilinear")
    assert got.shape == (2, 3, 11, 8)  # 11.9 and 8.5, rounded down
    np.testing.assert_allclose(got.asnumpy(), resized(x, [matrix("bilinear", e, o, False, 1.7) for e, o in ((7, 11), (5, 8))]), atol=1e-5)
    again = ops.interpolate(Tensor(x), scale_factor=1.7, mode="bilinear", recompute_scale_factor=True)
    np.testing.assert_array_equal(again.asnumpy(), ops.interpolate(Tensor(x), size=(11, 8), mode="bilinear").asnumpy())
    assert ops.interpolate(Tensor(x), scale_factor=(2.0, 1)).shape == (2, 3, 14, 5)
    np.testing.assert_array_equal(ops.upsample(Tensor(x), scale_factor=2).asnumpy(), x.repeat(2, 2).repeat(2, 3))


def test_area_is_the_mean() -> None:
    x = X[4][:, :, :6, :4]
    got = ops.interpolate(Tensor(x), size=(3, 2), mode="area").asnumpy()
    np.testing.assert_allclose(got, x.reshape(2, 3, 3, 2, 2, 2).mean((3, 5)), rtol=1e-5)


@pytest.mark.parametrize(("spatial", "extents", "order"), [((10, 168), (231, 18), (1, 0)), ((500, 30), (50, 90), (0, 1)), ((50, 50), (100, 100), (1, 0))])
def test_what_shrinks_is_resized_first(spatial: tuple[int, int], extents: tuple[int, int], order: tuple[int, int]) -> None:
    assert interpolation._order(spatial, extents) == order


def test_dtypes() -> None:
    for dtype in (ms.float16, ms.bfloat16, ms.float64):
        y = ops.interpolate(Tensor(X[3], dtype), size=9, mode="linear")
        assert y.dtype is dtype and y.shape == (2, 3, 9)
    with pytest.raises(TypeError, match="floats"):
        ops.interpolate(Tensor([[[1, 2]]]), size=3)


def test_errors() -> None:
    x = Tensor(X[4])
    for error, message, arguments in (
        (ValueError, "both empty", {}),
        (ValueError, "simultaneously", {"size": 3, "scale_factor": 2.0}),
        (ValueError, "'mode'", {"size": 3, "mode": "zz"}),
        (ValueError, "linear only support", {"size": 3, "mode": "linear"}),
        (ValueError, "align_corners", {"size": 3, "align_corners": True}),
        (ValueError, "2 spatial", {"size": (3,)}),
        (ValueError, "positive", {"size": 0}),
        (ValueError, "positive", {"scale_factor": -1.0}),
        (TypeError, "size must be a number", {"size": 2.5}),
        (TypeError, "scale_factor must be", {"scale_factor": "2"}),
    ):
        with pytest.raises(error, match=message):
            ops.interpolate(x, **arguments)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be a tensor"):
        ops.interpolate(3, size=3)


def test_rms_norm() -> None:
    x, gamma = X[3].astype(np.float64), np.linspace(0.5, 2, 7)
    root = 1 / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
    y, r = ops.rms_norm(Tensor(x, ms.float32), Tensor(gamma, ms.float32))
    np.testing.assert_allclose(y.asnumpy(), x * root * gamma, rtol=1e-5)
    np.testing.assert_allclose(r.asnumpy(), root, rtol=1e-5)
    half, r = ops.rms_norm(Tensor(x, ms.float16), Tensor(np.ones((3, 7)), ms.float16))
    assert half.dtype is ms.float16 and r.dtype is ms.float32 and r.shape == (2, 1, 1)
    with pytest.raises(ValueError, match="gamma"):
        ops.rms_norm(Tensor(x), Tensor(np.ones(3)))


@pytest.mark.parametrize("compiled", [False, True])
def test_gumbel_softmax(compiled: bool) -> None:
    logits = np.log(np.array([0.1, 0.2, 0.7], np.float32))
    draw = lambda x, hard, tau: ops.gumbel_softmax(x, tau, hard, 0)  # noqa: E731
    run = ms.jit(draw) if compiled else draw
    ms.set_seed(1)
    many = Tensor(np.repeat(logits[:, None], 20000, 1))
    hard = run(many, True, 1.0).asnumpy()
    assert set(np.unique(hard.round(6))) == {0.0, 1.0}
    np.testing.assert_allclose(hard.sum(0), 1, rtol=1e-6)
    np.testing.assert_allclose(hard.mean(1), [0.1, 0.2, 0.7], atol=0.015)  # four standard deviations are 0.013
    soft = run(many, False, 0.5).asnumpy()
    np.testing.assert_allclose(soft.sum(0), 1, rtol=1e-5)
    assert np.isfinite(soft).all() and ((soft.max(0) > 0) & (soft.max(0) <= 1)).all()
    gradient = ms.grad(lambda x: (run(x, True, 1.0) * Tensor([[1.0], [2.0], [3.0]])).sum())(many)
    assert np.abs(gradient.asnumpy()).max() > 0.01
    np.testing.assert_allclose(gradient.asnumpy().sum(0), 0, atol=1e-5)  # the results sum to one, whatever the logits


def test_gumbel_softmax_errors() -> None:
    x = Tensor(np.zeros((2, 3), np.float32))
    with pytest.raises(TypeError, match="logits"):
        ops.gumbel_softmax(Tensor([1, 2]))
    for tau, dim in ((-1.0, 0), (0.0, 0), ("1", 0), (1.0, 2), (1.0, -3), (1.0, 0.5)):
        with pytest.raises(ValueError, match="gumbel_softmax"):
            ops.gumbel_softmax(x, tau, False, dim)  # type: ignore[arg-type]
