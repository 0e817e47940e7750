"""Linear algebra: values against numpy's, gradients by finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcell
from graphcell import Tensor, ops
from tests.helpers import check_gradients, in_graph

rng = np.random.default_rng(5)
SQUARE = rng.standard_normal((2, 4, 4)) + 3 * np.eye(4)
POSITIVE = SQUARE @ SQUARE.swapaxes(-1, -2) + np.eye(4)
TALL, WIDE = rng.standard_normal((2, 5, 3)), rng.standard_normal((3, 5))


def both(fn: Any, *arrays: np.ndarray) -> list[Any]:
    """What the function gives eagerly; the same in a graph."""
    eager = fn(*map(Tensor, arrays))
    compiled = in_graph(fn, *map(Tensor, arrays))
    pair = [[r.asnumpy() for r in (x if isinstance(x, tuple) else (x,))] for x in (eager, compiled)]
    for a, b in zip(*pair, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    return pair[0]


@pytest.mark.parametrize("dtype,tolerance", [(np.float64, 1e-11), (np.float32, 2e-4)])
def test_values(dtype: Any, tolerance: float) -> None:
    a, p, tall = SQUARE.astype(dtype), POSITIVE.astype(dtype), TALL.astype(dtype)

    def near(got: np.ndarray, wanted: Any) -> None:
        assert got.dtype == dtype
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)

    near(both(ops.inverse, a)[0], np.linalg.inv(SQUARE))
    near(both(ops.det, a)[0], np.linalg.det(SQUARE))
    sign, log = both(ops.slogdet, -a[0][::-1].copy())
    near(sign, np.linalg.slogdet(-SQUARE[0][::-1])[0])
    near(log, np.linalg.slogdet(-SQUARE[0][::-1])[1])
    near(both(ops.logdet, p)[0], np.log(np.linalg.det(POSITIVE)))
    lower = both(ops.cholesky, p)[0]
    near(lower, np.linalg.cholesky(POSITIVE))
    near(both(lambda x: ops.cholesky(x, upper=True), p)[0], np.linalg.cholesky(POSITIVE).swapaxes(-1, -2))
    near(both(ops.cholesky_inverse, lower[0])[0], np.linalg.inv(POSITIVE[0]))
    near(both(ops.cholesky_solve, tall[:, :4], lower)[0], np.linalg.solve(POSITIVE, TALL[:, :4]))
    near(both(lambda b, u: ops.cholesky_solve(b, u, True), tall[:, :4], lower.swapaxes(-1, -2))[0], np.linalg.solve(POSITIVE, TALL[:, :4]))
    near(both(ops.matrix_solve, a, tall[0, :4])[0], np.linalg.solve(SQUARE, np.broadcast_to(TALL[0, :4], (2, 4, 3))))
    near(both(lambda x, b: ops.matrix_solve(x, b, adjoint=True), a, tall[:, :4])[0], np.linalg.solve(SQUARE.swapaxes(-1, -2), TALL[:, :4]))
    near(both(ops.pinv, tall)[0], np.linalg.pinv(TALL))
    near(both(ops.lstsq, tall[0], a[0, :1].repeat(5, 0))[0], np.linalg.lstsq(TALL[0], SQUARE[0, :1].repeat(5, 0))[0])
    for n in (-2, 0, 1, 5):
        np.testing.assert_allclose(both(lambda x, n=n: ops.matrix_power(x, n), a)[0], np.linalg.matrix_power(SQUARE, n), rtol=20 * tolerance, atol=20 * tolerance)
    for order in (None, 2, -2, 1, -1, np.inf, -np.inf, "fro", "nuc"):
        near(both(lambda x, order=order: ops.cond(x, order), a)[0], np.linalg.cond(SQUARE, order))
    spectral: tuple[Any, ...] = (2, -2, "nuc")
    for order in spectral:
        near(both(lambda x, order=order: ops.norm(x, order, (0, 2), True), tall)[0], np.linalg.norm(TALL, order, (0, 2), True))


@pytest.mark.parametrize("x", [TALL, WIDE, SQUARE], ids=["tall", "wide", "square"])
@pytest.mark.parametrize("full", [False, True])
def test_factors_multiply_to_the_matrix(x: np.ndarray, full: bool) -> None:
    q, r = both(lambda t: ops.qr(t, "complete" if full else "reduced"), x)
    np.testing.assert_allclose(q @ r, x, atol=1e-12)
    np.testing.assert_allclose(q.swapaxes(-1, -2) @ q, np.broadcast_to(np.eye(q.shape[-1]), (*x.shape[:-2], q.shape[-1], q.shape[-1])), atol=1e-12)
    assert np.array_equal(np.triu(r), r)
    s, u, v = both(lambda t: ops.svd(t, full), x)
    np.testing.assert_allclose(s, np.linalg.svd(x, compute_uv=False), atol=1e-12)
    inner = s.shape[-1]
    np.testing.assert_allclose(u[..., :inner] * s[..., None, :] @ v[..., :inner].swapaxes(-1, -2), x, atol=1e-12)
    wanted = (x.shape[-2], x.shape[-1]) if full else (inner, inner)
    assert (u.shape[-1], v.shape[-1]) == wanted
    only = both(lambda t: ops.svd(t, full, compute_uv=False), x)[0]
    np.testing.assert_allclose(only, s, atol=1e-12)


GRADIENTS: dict[str, tuple[Any, Any]] = {
    "inverse": (ops.inverse, SQUARE), "det": (ops.det, SQUARE), "slogdet": (lambda x: ops.slogdet(x)[1], SQUARE),
    "cholesky": (lambda x: ops.cholesky(x + x.swapaxes(-1, -2)), POSITIVE), "qr": (ops.qr, TALL), "qr square": (ops.qr, SQUARE),
    "singular values": (lambda x: ops.svd(x)[0], TALL), "svd tall": (lambda x: ops.svd(x)[1] ** 2, TALL), "svd wide": (lambda x: ops.svd(x)[2] ** 2, WIDE),
    "svd whole": (lambda x: ops.matmul(ops.svd(x)[1], ops.svd(x)[2].swapaxes(-1, -2)), TALL), "pinv": (ops.pinv, TALL),
    "nuclear norm": (lambda x: ops.norm(x, "nuc"), WIDE), "power": (lambda x: ops.matrix_power(x, -3), SQUARE),
}  # fmt: skip


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    fn, x = GRADIENTS[name]
    check_gradients(fn, x, order=1)


def test_gradients_of_solve() -> None:
    check_gradients(ops.matrix_solve, SQUARE, TALL[:, :4], order=2)
    check_gradients(ops.inverse, SQUARE[0], order=2)


def test_half_precision_is_computed_in_single() -> None:
    x = Tensor(POSITIVE[0].astype(np.float16))
    assert ops.det(x).dtype == graphcell.float16 and ops.qr(x)[0].dtype == graphcell.float16
    np.testing.assert_allclose(ops.slogdet(x)[1].asnumpy(), np.linalg.slogdet(POSITIVE[0])[1], rtol=2e-3)


def test_singular_matrices() -> None:
    singular = Tensor(np.ones((3, 3)))
    assert float(ops.det(singular)) == 0 and float(ops.slogdet(singular)[1]) == -np.inf and float(ops.logdet(singular)) == -np.inf
    assert np.isnan(float(ops.logdet(Tensor(np.diag([1.0, -1.0])))))
    np.testing.assert_allclose(ops.pinv(singular).asnumpy(), np.full((3, 3), 1 / 9), rtol=1e-12)
    for fn in (ops.inverse, graphcell.jit(ops.inverse), lambda x: ops.matrix_power(x, -1), lambda x: ops.matrix_solve(x, x)):
        with pytest.raises(ValueError, match="singular"):
            fn(singular)
    for fn in (ops.cholesky, graphcell.jit(ops.cholesky)):
        with pytest.raises(RuntimeError, match="not symmetric positive definite"):
            fn(Tensor(-np.eye(2)))
    with pytest.raises(RuntimeError, match="did not converge"):
        ops.svd(Tensor(np.full((2, 2), np.nan)))


def test_operands_that_do_not_fit() -> None:
    for fn in (ops.inverse, ops.det, ops.slogdet, ops.cholesky, ops.logdet):
        with pytest.raises(ValueError, match="square"):
            fn(Tensor(TALL))
        with pytest.raises(ValueError, match="2 or more dimensions"):
            fn(Tensor(np.ones(3)))
        with pytest.raises(TypeError, match="dtype"):
            fn(Tensor(np.ones((2, 2), np.int32)))
    with pytest.raises(ValueError, match="mode"):
        ops.qr(Tensor(TALL), "full")
    with pytest.raises(TypeError, match="rtol"):
        ops.pinv(Tensor(TALL), rtol="small")
    with pytest.raises(RuntimeError, match="no gradient"):
        graphcell.grad(lambda x: ops.qr(x)[0].sum())(Tensor(WIDE))
