"""Inverses, systems, determinants and Cholesky factors of small matrices: against LAPACK in float64, row exchanges, matrices that have no
result, sizes on both sides of the limit.
"""

from __future__ import annotations

import numpy as np
import pytest

import graphcell as ms
from graphcell import dtype as dt
from graphcell import ops
from graphcell.ir.op import Array, Op
from graphcell.ir.types import TensorType
from graphcell.ops.dispatch import apply, apply1
from graphcell.ops.linear_algebra import Cholesky, Determinant, Inverse, SignLogDeterminant, Solve, SolveTriangular
from graphcell.runtime.executable import Executable, compile_graph
from graphcell.tensor import Tensor
from tests.helpers import check_gradients, trace

DTYPES = [dt.float32, dt.float64]
SHAPES = [(1, 1), (2, 2), (3, 3), (7, 4, 4), (2, 3, 5, 5), (9, 9), (16, 16), (500, 8, 8), (0, 3, 3), (2, 37, 37), (48, 48)]


def compiled(op: Op, *arrays: Array) -> Executable:
    return compile_graph(trace(lambda *xs: apply1(op, *xs), *(TensorType(dt.from_numpy(a.dtype), a.shape) for a in arrays)))


def run(op: Op, *arrays: Array) -> Array:
    executable = compiled(op, *arrays)
    assert all(c.rare for c in executable.compilation.program.host_calls)
    return executable([Tensor(a) for a in arrays])[0].asnumpy()


def run_all(op: Op, *arrays: Array) -> list[Array]:
    types = [TensorType(dt.from_numpy(a.dtype), a.shape) for a in arrays]
    executable = compile_graph(trace(lambda *xs: apply(op, *xs), *types))
    assert all(c.rare for c in executable.compilation.program.host_calls)
    return [t.asnumpy() for t in executable([Tensor(a) for a in arrays])]


def assert_solves(a: Array, x: Array, b: Array) -> None:
    """The residual of a backward stable solution, in units of the dtype."""
    wide = [v.astype(np.float64) for v in (a, x, b)]
    residual = np.abs(wide[0] @ wide[1] - wide[2])
    scale = np.abs(wide[0]).sum(-1, keepdims=True) * np.abs(wide[1]).max(-2, keepdims=True) + np.abs(wide[2])
    assert (residual <= 4 * a.shape[-1] * np.finfo(a.dtype).eps * scale).all()


@pytest.mark.parametrize("width", ["16", "32", ""])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_inverses(shape: tuple[int, ...], dtype: dt.DType, width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCELL_VECTOR_BYTES", width)
    a = np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype.np_type)
    x = run(Inverse(), a)
    assert x.shape == a.shape and x.dtype == a.dtype
    assert_solves(a, x, np.broadcast_to(np.eye(shape[-1], dtype=a.dtype), shape))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("rows", "sides"), [*((rows, sides) for rows in (1, 2, 6, 16) for sides in (1, 3, 17, 64)), (33, 1), (33, 17), (64, 3), (64, 32), (32, 64), (4, 92)]
)
def test_systems(rows: int, sides: int, dtype: dt.DType) -> None:
    rng = np.random.default_rng(rows)
    a, b = (rng.standard_normal((3, rows, n)).astype(dtype.np_type) for n in (rows, sides))
    assert_solves(a, run(Solve(), a, b), b)


@pytest.mark.parametrize("width", ["16", ""])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_determinants(shape: tuple[int, ...], dtype: dt.DType, width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCELL_VECTOR_BYTES", width)
    a = np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype.np_type)
    if shape[-1] > 2:
        a.reshape(-1, *shape[-2:])[-1:, 1] = a.reshape(-1, *shape[-2:])[-1:, 0]  # singular, to the last bit
    wide = a.astype(np.float64)
    size = np.prod(np.linalg.norm(wide, axis=-1), axis=-1)  # a determinant is no larger than that
    (x,) = run_all(Determinant(), a)
    assert x.shape == a.shape[:-2] and x.dtype == a.dtype
    assert (np.abs(x - np.linalg.det(wide)) <= 8 * shape[-1] * np.finfo(a.dtype).eps * size).all()
    sign, log = run_all(SignLogDeterminant(), a)
    np.testing.assert_array_equal(sign, np.sign(x))
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(log, np.log(np.abs(x.astype(np.float64))), rtol=30 * np.finfo(a.dtype).eps, atol=30 * np.finfo(a.dtype).eps)


@pytest.mark.parametrize("width", ["16", ""])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_triangular_systems(transposed: bool, dtype: dt.DType, width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCELL_VECTOR_BYTES", width)
    rng = np.random.default_rng(2)
    for stack, rows, sides in [((), 1, 1), ((3,), 7, 5), ((), 40, 1), ((2, 2), 33, 70), ((), 20, 128), ((2,), 3, 129), ((), 120, 120), ((0,), 3, 2), ((), 3, 0)]:
        left = (rng.standard_normal((*stack, rows, rows)) / rows + 2 * np.eye(rows)).astype(dtype.np_type)
        b = rng.standard_normal((*stack, rows, sides)).astype(dtype.np_type)
        x = run(SolveTriangular(transposed), left, b)
        triangle = np.tril(left)
        assert x.shape == b.shape and x.dtype == b.dtype
        if b.size:
            assert_solves(triangle.swapaxes(-1, -2) if transposed else triangle, x, b)


def test_triangular_matrices_with_a_zero_on_the_diagonal_are_refused() -> None:
    solve = ms.jit(lambda a, b: ops.cholesky_solve(b, a))
    a = np.array([[2.0, 5.0], [1.0, 4.0]])
    np.testing.assert_allclose(solve(Tensor(a), Tensor(np.eye(2))).asnumpy(), np.linalg.inv(np.tril(a) @ np.tril(a).T), rtol=1e-12)
    a[1, 1] = 0
    with pytest.raises(ValueError, match="solve_triangular: a matrix is singular"):
        solve(Tensor(a), Tensor(np.eye(2)))


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_a_zero_on_the_diagonal_is_seen_where_rows_could_be_exchanged(mode: int) -> None:
    ms.set_context(mode=mode)
    a = Tensor(np.array([[0.1, 0, 0], [0.3, 0, 0], [0.7, 0.9, 0.3]], np.float32))
    solver = ops.MatrixTriangularSolve()
    solve = ms.jit(lambda a, b: solver(a, b)) if mode == ms.GRAPH_MODE else solver
    with pytest.raises(ValueError, match="singular, it has a 0 on its diagonal"):
        solve(a, Tensor(np.ones((3, 1), np.float32)))


def test_gradients_of_triangular_systems() -> None:
    rng = np.random.default_rng(4)
    left, b = rng.standard_normal((3, 3)) + 3 * np.eye(3), rng.standard_normal((3, 2))
    for transposed in (False, True):
        check_gradients(lambda a, y, t=transposed: apply1(SolveTriangular(t), a, y) ** 2, left, b)
    spd = left @ left.T
    check_gradients(lambda a: ops.cholesky((a + a.T) * 0.5) ** 2, spd)
    check_gradients(lambda y: ops.cholesky_solve(y, ops.cholesky(Tensor(spd))) ** 2, b)


def test_float32_is_computed_in_float64() -> None:
    a = (np.arange(9).reshape(3, 3) + np.diag([1e-3, 0, 0])).astype(np.float32)  # nearly singular
    wide = a.astype(np.float64)
    np.testing.assert_allclose(run(Determinant(), a), np.linalg.det(wide), rtol=1e-6)
    np.testing.assert_allclose(run(Inverse(), a), np.linalg.inv(wide), rtol=1e-6, atol=1e-4)
    positive = (wide @ wide.T + 1e-5 * np.eye(3)).astype(np.float32)
    np.testing.assert_allclose(run(Cholesky(), positive), np.linalg.cholesky(positive.astype(np.float64)), rtol=1e-6, atol=1e-9)


def test_determinants_of_what_is_not_finite() -> None:
    a = np.array([[1, np.nan], [2, 3]])
    sign, log = run_all(SignLogDeterminant(), a)
    assert np.isnan(run_all(Determinant(), a)[0]) and np.isnan(log) and abs(sign) == 1
    assert run_all(Determinant(), np.zeros((3, 3)))[0] == 0
    assert [float(v) for v in run_all(SignLogDeterminant(), np.zeros((3, 3)))] == [0, -np.inf]
    beside = np.array([[np.inf, 1], [0, 0]])  # a pivot of 0 decides
    assert run_all(Determinant(), beside)[0] == 0 == np.linalg.det(beside)
    assert [float(v) for v in run_all(SignLogDeterminant(), beside)] == [0, -np.inf] == [float(v) for v in np.linalg.slogdet(beside)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_cholesky_factors(shape: tuple[int, ...], dtype: dt.DType) -> None:
    half = np.random.default_rng(len(shape)).standard_normal(shape)
    a = (half @ half.swapaxes(-1, -2) + 0.1 * np.eye(shape[-1])).astype(dtype.np_type)
    a += np.triu(np.full(a.shape, 7, a.dtype), 1)  # which is not read
    (x,) = run_all(Cholesky(), a)
    assert not np.triu(x, 1).any() and x.shape == a.shape and x.dtype == a.dtype
    wide, lower = x.astype(np.float64), np.tril(a).astype(np.float64)
    bound = 4 * shape[-1] * np.finfo(a.dtype).eps * (np.abs(wide) @ np.abs(wide).swapaxes(-1, -2))
    assert (np.abs(np.tril(wide @ wide.swapaxes(-1, -2)) - lower) <= bound).all()


@pytest.mark.parametrize("value", [0.0, -1.0, 1.0])
def test_matrices_that_are_not_positive_definite_are_refused(value: float) -> None:
    factor = ms.jit(lambda x: ops.cholesky(x * 1.0))
    good, bad = np.stack([np.eye(2), 4 * np.eye(2)]), np.stack([np.eye(2), [[1.0, 1.0], [1.0, value]]])
    for _ in range(2):
        np.testing.assert_array_equal(factor(Tensor(good)).asnumpy(), np.sqrt(good))
        with pytest.raises(RuntimeError, match="not symmetric positive definite"):
            factor(Tensor(bad))


def test_rows_are_exchanged() -> None:
    a = np.array([[0, 2, 0], [0, 0, 4], [8, 0, 0]], np.float32)
    np.testing.assert_array_equal(run(Inverse(), a), [[0, 0, 0.125], [0.5, 0, 0], [0, 0.25, 0]])
    small = np.array([[1e-30, 1], [1, 1]], np.float32)
    np.testing.assert_allclose(run(Inverse(), small), [[-1, 1], [1, 0]], atol=1e-6)
    tiny = np.full((2, 2), 1e-25, np.float32) * [[1, 2], [3, 5]]
    np.testing.assert_allclose(run(Inverse(), tiny.astype(np.float32)), np.linalg.inv(tiny), rtol=1e-4)


def test_what_is_not_finite_is_passed_on_as_by_lapack() -> None:
    for value in (np.nan, np.inf):
        a = np.eye(3, dtype=np.float32)
        a[1, 2] = value
        np.testing.assert_array_equal(np.isnan(run(Inverse(), a)), np.isnan(np.linalg.inv(a)))


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_singular_matrices_are_refused(mode: int) -> None:
    ms.set_context(mode=mode)

    @ms.jit
    def f(x: Tensor) -> Tensor:
        return ops.inverse(x * 1.0)

    good, bad = np.stack([np.eye(3), 2 * np.eye(3)]), np.stack([np.eye(3), np.ones((3, 3))])
    for _ in range(2):
        np.testing.assert_array_equal(f(Tensor(good, ms.float32)).asnumpy(), np.linalg.inv(good))
        with pytest.raises(ValueError, match="a matrix is singular"):
            f(Tensor(bad, ms.float32))


def test_large_matrices_go_to_lapack_and_say_so() -> None:
    for op, shapes in ((Inverse(), [(49, 49)]), (Solve(), [(4, 4), (4, 93)]), (Determinant(), [(65, 65)]), (Cholesky(), [(57, 57)])):
        arrays = [np.random.default_rng(0).standard_normal(s) for s in shapes]
        (call,) = compiled(op, *arrays).compilation.program.host_calls
        assert not call.rare


def test_gradients_in_a_loop() -> None:
    """A filter's recursion: the inverse is in each step, forwards and backwards."""

    def f(p: Tensor) -> Tensor:
        total = p.sum()
        for _ in range(5):
            p = ops.matmul(p, ops.inverse(p + ops.eye(3, 3, ms.float64))) + 0.5 * p.T
            total = total + (p * p).sum()
        return total

    a = np.random.default_rng(1).standard_normal((3, 3)) + 3 * np.eye(3)
    compiled_grad = ms.grad(ms.jit(f))(Tensor(a)).asnumpy()
    for i in range(3):
        for j in range(3):
            d = np.zeros((3, 3))
            d[i, j] = 1e-6
            numeric = (float(f(Tensor(a + d))) - float(f(Tensor(a - d)))) / 2e-6
            np.testing.assert_allclose(compiled_grad[i, j], numeric, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_triangular_systems_of_float32_are_solved_in_float64(mode: int) -> None:
    ms.set_context(mode=mode)
    x = np.linspace(0, 1, 100)[:, None]
    factor = np.linalg.cholesky(np.exp(-((x - x.T) ** 2) * 8) + 1e-4 * np.eye(100)).astype(np.float32)
    b = np.random.default_rng(0).standard_normal((100, 2)).astype(np.float32)
    wide = factor.astype(np.float64)
    want = np.linalg.solve(wide.T, np.linalg.solve(wide, b).astype(np.float32))
    solve = ms.jit(lambda b, l: ops.cholesky_solve(b, l)) if mode == ms.GRAPH_MODE else ops.cholesky_solve
    np.testing.assert_allclose(solve(Tensor(b), Tensor(factor)).asnumpy(), want, rtol=1e-4, atol=1e-6 * np.abs(want).max())


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
@pytest.mark.parametrize("upper", [False, True])
def test_stacks_of_factors_are_inverted(upper: bool, mode: int) -> None:
    ms.set_context(mode=mode)
    half = np.random.default_rng(1).standard_normal((4, 3, 3)) + 3 * np.eye(3)
    whole = half @ half.swapaxes(-1, -2)
    factor = np.linalg.cholesky(whole)
    given = factor.swapaxes(-1, -2).copy() if upper else factor
    inverse = ms.jit(lambda a: ops.cholesky_inverse(a, upper)) if mode == ms.GRAPH_MODE else lambda a: ops.cholesky_inverse(a, upper)
    np.testing.assert_allclose(inverse(Tensor(given)).asnumpy(), np.linalg.inv(whole), rtol=1e-10, atol=1e-13)
