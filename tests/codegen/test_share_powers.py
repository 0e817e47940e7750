"""Powers of e that functions of a kernel share: which forms they take, and what the numbers are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphcell as gc
from graphcell import Tensor, ops

X = np.concatenate([np.linspace(-120, 120, 4001), [0.0, -0.0, np.inf, -np.inf, 1e-30, -1e-30]]).astype(np.float32)


def kernels_of(f: Callable[..., Any], x: np.ndarray[Any, Any]) -> tuple[str, list[np.ndarray[Any, Any]]]:
    compiled = gc.jit(f)
    found = compiled(Tensor(x))
    return compiled._last.executable.kernels(), [y.asnumpy() for y in (found if isinstance(found, tuple) else (found,))]


def softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_a_softplus_and_its_slope_share_their_power(dtype: type, order: tuple[int, int]) -> None:
    functions = [lambda x: ops.logsigmoid(-x), ops.sigmoid]

    def f(x: Any) -> Any:
        y, z = (functions[k](x) for k in order)
        return y, z, y * z

    text, found = kernels_of(f, X.astype(dtype))
    assert "sigmoid_beside_softplus" in text
    wide = X.astype(dtype).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        want = [-softplus(wide), 1 / (1 + np.exp(-wide))]
    for k, y in zip(order, found[:2], strict=True):
        np.testing.assert_allclose(y, want[k], rtol=4 * float(np.finfo(dtype).eps), atol=float(np.finfo(dtype).tiny))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_sigmoid_beside_the_softplus_of_the_negative(dtype: type) -> None:
    def f(x: Any) -> Any:
        p, loss = ops.sigmoid(x), ops.logsigmoid(x)
        return p, loss, p * loss

    text, (p, loss, _) = kernels_of(f, X.astype(dtype))
    assert "sigmoid_beside_softplus" in text
    wide = X.astype(dtype).astype(np.float64)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(p, 1 / (1 + np.exp(-wide)), rtol=4 * float(np.finfo(dtype).eps), atol=float(np.finfo(dtype).tiny))
    np.testing.assert_allclose(loss, -softplus(-wide), rtol=4 * float(np.finfo(dtype).eps), atol=float(np.finfo(dtype).tiny))


@pytest.mark.parametrize("by_hand", [lambda x: ops.tanh(ops.softplus(x)), ops.mish])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_mish_written_by_hand_and_its_gradient(dtype: type, by_hand: Callable[..., Any]) -> None:
    x = X[np.isfinite(X)].astype(dtype)
    compiled = gc.jit(gc.value_and_grad(lambda x, w: (by_hand(x) * w).sum()))
    w = np.random.default_rng(4).normal(size=x.shape).astype(dtype)
    _, slope = compiled(Tensor(x), Tensor(w))
    wide = x.astype(np.float64)
    t, e = np.tanh(softplus(wide)), 1 / (1 + np.exp(-wide))
    want = (1 - t * t) * e * w if by_hand is not ops.mish else (t + wide * (1 - t * t) * e) * w
    np.testing.assert_allclose(slope.asnumpy(), want, rtol=1e-5, atol=4e-7 if dtype is np.float32 else 1e-12)


def test_tanh_of_softplus_takes_one_power() -> None:
    text, _ = kernels_of(lambda x: ops.tanh(ops.softplus(x)) * ops.sigmoid(x), X)
    assert "tanh_softplus" in text and "sigmoid_beside_tanh_softplus" in text and " = softplus" not in text and "greater" not in text
    text, _ = kernels_of(lambda x: ops.tanh(ops.select(x > 5, x, ops.logsigmoid(-x))), X)
    assert "tanh_softplus" not in text  # tanh(5) is not 1


def test_a_sigmoid_alone_keeps_its_form() -> None:
    text, _ = kernels_of(lambda x: ops.sigmoid(x) * ops.logsigmoid(x + 1.0), X)
    assert "sigmoid" in text and "beside" not in text


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logarithms_that_are_written_by_hand(dtype: type) -> None:
    text, (y,) = kernels_of(lambda x: ops.log1p(ops.exp(-ops.abs(x))), X.astype(dtype))
    assert "log1p_of_fraction" in text
    np.testing.assert_allclose(y, np.log1p(np.exp(-np.abs(X.astype(np.float64)))), rtol=4 * float(np.finfo(dtype).eps), atol=float(np.finfo(dtype).tiny))
    nan = gc.jit(lambda x: ops.log1p(ops.exp(-ops.abs(x))))(Tensor(np.full(20, np.nan, dtype))).asnumpy()
    assert np.isnan(nan).all()


def test_other_logarithms_know_nothing_of_their_operand() -> None:
    text, (y,) = kernels_of(lambda x: ops.log1p(ops.exp(-x)), X[np.abs(X) < 80])
    assert "log1p" in text and "of_fraction" not in text
    np.testing.assert_allclose(y, np.log1p(np.exp(-X[np.abs(X) < 80].astype(np.float64))), rtol=1e-6, atol=1e-38)


def test_losses_of_logits_take_one_power() -> None:
    rng = np.random.default_rng(2)
    x, z = rng.uniform(-30, 30, (40, 90)).astype(np.float32), rng.uniform(0, 1, (40, 90)).astype(np.float32)
    loss = gc.jit(gc.value_and_grad(lambda x, z: ops.binary_cross_entropy_with_logits(x, z)))
    value, slope = loss(Tensor(x), Tensor(z))
    wide, target = x.astype(np.float64), z.astype(np.float64)
    np.testing.assert_allclose(value.asnumpy(), (softplus(wide) - wide * target).mean(), rtol=1e-6)
    np.testing.assert_allclose(slope.asnumpy(), (1 / (1 + np.exp(-wide)) - target) / x.size, rtol=1e-4, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_a_power_and_its_slopes_share_a_logarithm(dtype: type) -> None:
    base = np.array([0.0, -0.0, 1e-6, 0.3, 1.0, 1.7, 6e4, np.inf, -2.0, -0.5, np.nan], dtype)
    exponent = np.array([-1.5, 0.0, 0.5, 1.0, 2.0, 3.0], dtype)
    x, y = (a.ravel() for a in np.meshgrid(base, exponent))
    compiled = gc.jit(gc.value_and_grad(lambda x, y, w: (x**y * w).sum(), (0, 1)))
    w = np.random.default_rng(4).normal(size=x.shape).astype(dtype)
    _, (by_base, by_exponent) = compiled(Tensor(x), Tensor(y), Tensor(w))
    assert "log_beside_power" in compiled._last.executable.kernels()
    wide, to, weight = (a.astype(np.float64) for a in (x, y, w))
    with np.errstate(all="ignore"):
        power = (wide**to).astype(dtype).astype(np.float64)  # infinite where the dtype's is
        want_base = np.where(to == 0, 0, to * wide ** np.where(to == 0, 1, to - 1)) * weight
        want_exponent = np.where(wide == 0, 0, power * np.log(np.where(wide == 0, 1, wide))) * weight
        want_base, want_exponent = (a.astype(dtype) for a in (want_base, want_exponent))
    tolerance = 8 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(by_base.asnumpy(), want_base, rtol=tolerance, atol=float(np.finfo(dtype).tiny))
    np.testing.assert_allclose(by_exponent.asnumpy(), want_exponent, rtol=tolerance, atol=float(np.finfo(dtype).tiny))


def test_what_becomes_of_the_operand_of_a_shared_logarithm() -> None:
    compiled = gc.jit(gc.value_and_grad(lambda x, y: (x**y).sum(), (0, 1)))
    compiled(Tensor(abs(X[:256])), Tensor(X[:256]))
    text = compiled._last.executable.kernels()
    assert text.count(" = log_beside_power ") == 1 and text.count(" = select ") == 3  # the base without zeros is gone


@pytest.mark.parametrize(("other", "is_shared"), [(1.0, True), (2.0, False)])
def test_logarithms_where_other_conditions_hold(other: float, is_shared: bool) -> None:
    x = np.linspace(0.1, 3, 500, dtype=np.float32)
    text, (y,) = kernels_of(lambda x: x ** (x - 1) + ops.log(ops.select(x > 1, ops.full_like(x, other), x)), x)
    assert ("log_beside_power" in text) == is_shared
    wide = x.astype(np.float64)
    np.testing.assert_allclose(y, wide ** (wide - 1) + np.log(np.where(x > 1, other, wide)), rtol=1e-5, atol=1e-6)


def test_logarithms_of_other_numbers_are_their_own() -> None:
    text, _ = kernels_of(lambda x: (ops.log(ops.select(x == 0, ops.ones_like(x), x + 1)), (x + 2) ** x, ops.log(x), 3.0 ** (x + 1)), X)
    assert "pow" in text and "= log t" in text and "log_beside_power" not in text


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_powers_of_a_softmax_have_the_bits_of_others(dtype: type) -> None:
    """Of what is infinite and no number, too: no power of x - max(x) is above 1."""
    x = np.random.default_rng(3).normal(size=(9, 40)).astype(dtype) * np.array([1, 10, 100, 1000, 3, 1, 1, 1, 1], dtype)[:, None]
    x[4, 3], x[5, 2], x[6, 1], x[7, 7], x[8] = np.inf, -np.inf, np.nan, np.finfo(dtype).max, np.finfo(dtype).min

    def f(x: Any) -> Any:
        return ops.exp(x - x.max(1, keepdims=True))

    text, (found,) = kernels_of(f, x)
    assert "exp_of_negative" in text
    with np.errstate(over="ignore", invalid="ignore"):
        exponents = x - x.max(1, keepdims=True)
    (other,) = kernels_of(lambda x: ops.exp(x), exponents)[1]
    np.testing.assert_array_equal(found, other)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(found, np.exp(exponents.astype(np.float64)), rtol=4 * float(np.finfo(dtype).eps), atol=float(np.finfo(dtype).tiny))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_no_power_of_halves_is_above_one(dtype: type) -> None:
    """Where the maximum is rounded, since another op takes it so, what it is of is, too."""
    random = np.random.default_rng(5)
    a, b, y = (random.uniform(1, 2, (64, 300)).astype(dtype), (random.uniform(1, 2, (64, 300)) * 1000).astype(dtype), np.ones((64, 1), dtype))

    def f(a: Any, b: Any, y: Any) -> Any:
        x = a * b
        largest = x.max(1, keepdims=True)
        return ops.exp(x - largest), largest > y

    powers, _ = gc.jit(f)(*map(Tensor, (a, b, y)))
    eager, _ = f(*map(Tensor, (a, b, y)))
    np.testing.assert_allclose(powers.asnumpy().astype(np.float32), eager.asnumpy().astype(np.float32), atol=1e-3)
    assert powers.asnumpy().max() == 1


def test_other_differences_have_powers_above_one() -> None:
    x = np.random.default_rng(3).normal(size=(9, 40)).astype(np.float32) * 10
    for f in (lambda x: ops.exp(x - x.min(1, keepdims=True)), lambda x: ops.exp(x.max(1, keepdims=True) - x), lambda x: ops.exp(2 * x - x.max(1, keepdims=True))):
        assert "exp_of_negative" not in kernels_of(f, x)[0]
