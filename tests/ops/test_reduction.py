"""Reductions, softmax, norms and scans against numpy and mpmath; gradients against finite differences."""

# mypy: disable-error-code="arg-type, no-untyped-call, operator, call-overload, misc, import-untyped"
from __future__ import annotations

import tracemalloc
import warnings
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest

import graphcell as gc
from graphcell import dtype as dt
from graphcell import ops
from graphcell.ops.functional.reductions import product_of_others
from graphcell.ops.functional.scanning import linear_recurrence
from graphcell.ops.reduction import ReduceSum
from graphcell.tensor import Tensor
from tests.helpers import check_gradients, in_graph

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)


def array(*shape: int) -> Array:
    return RNG.normal(size=shape)


def close(got: Any, want: Any, rtol: float = 1e-12) -> None:
    """Asserts that Tensors are near arrays, with the same dtype and shape; tuples element by element."""
    if isinstance(want, (tuple, list)):
        assert isinstance(got, tuple) and len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            close(g, w, rtol)
        return
    reference = np.asarray(want)
    assert got.shape == reference.shape and got.asnumpy().dtype == reference.dtype, f"{got.dtype}{got.shape} {reference.dtype}{reference.shape}"
    np.testing.assert_allclose(got.asnumpy(), reference, rtol=rtol, atol=rtol)


def both(function: Any, *args: Any) -> Any:
    """The eager result; that of the graph is asserted to be the same."""
    eager, traced = function(*args), in_graph(function, *args)
    pairs = zip(eager, traced, strict=True) if isinstance(eager, tuple) else [(eager, traced)]
    for e, t in pairs:
        assert e.dtype is t.dtype and e.shape == t.shape
        np.testing.assert_array_equal(e.asnumpy(), t.asnumpy())
    return eager


CUBE = array(2, 3, 4)

CASES = [
    (lambda x: ops.sum(x), lambda x: x.sum()),
    (lambda x: ops.sum(x, 1), lambda x: x.sum(1)),
    (lambda x: ops.sum(x, (0, -1), True), lambda x: x.sum((0, 2), keepdims=True)),
    (lambda x: ops.sum(x, ()), lambda x: x.sum()),
    (lambda x: x.sum(axis=[1, 2], keepdims=True), lambda x: x.sum((1, 2), keepdims=True)),
    (lambda x: x.sum(0, True), lambda x: x.sum(0, keepdims=True)),
    (lambda x: x.sum(0, initial=3.0), lambda x: x.sum(0) + 3.0),
    (lambda x: ops.mean(x, 2), lambda x: x.mean(2)),
    (lambda x: x.mean((0, 1), True), lambda x: x.mean((0, 1), keepdims=True)),
    (lambda x: ops.prod(x, 1), lambda x: x.prod(1)),
    (lambda x: x.prod(), lambda x: x.prod()),
    (lambda x: ops.amax(x, (0, 2)), lambda x: x.max((0, 2))),
    (lambda x: ops.amin(x, 1, True), lambda x: x.min(1, keepdims=True)),
    (lambda x: ops.aminmax(x), lambda x: (x.min(0), x.max(0))),
    (lambda x: x.max(), lambda x: x.max()),
    (lambda x: x.min(axis=1), lambda x: x.min(1)),
    (lambda x: ops.max(x, 1), lambda x: (x.max(1), x.argmax(1))),
    (lambda x: ops.min(x, -1, True), lambda x: (x.min(-1, keepdims=True), x.argmin(-1, keepdims=True))),
    (lambda x: x.max(dim=2, keepdim=True), lambda x: (x.max(2, keepdims=True), x.argmax(2, keepdims=True))),
    (lambda x: ops.max(x), lambda x: (x.max(), np.int64(0))),
    (lambda x: ops.var(x), lambda x: x.var()),
    (lambda x: ops.var(x, (0, 2), 1, True), lambda x: x.var((0, 2), ddof=1, keepdims=True)),
    (lambda x: ops.std(x, 1, True), lambda x: x.std(1, ddof=1)),
    (lambda x: x.std(dim=2, correction=1), lambda x: x.std(2, ddof=1)),
    (lambda x: ops.var_mean(x, 1), lambda x: (x.var(1), x.mean(1))),
    (lambda x: ops.std_mean(x, -1, 1, True), lambda x: (x.std(-1, ddof=1, keepdims=True), x.mean(-1, keepdims=True))),
    (lambda x: x.ptp(1), lambda x: np.ptp(x, 1)),
    (lambda x: x.sum_to_size(1, 4), lambda x: x.sum((0, 1))[None]),
    (lambda x: ops.softmax(x), lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    (lambda x: ops.softmax(x, 0), lambda x: np.exp(x) / np.exp(x).sum(0, keepdims=True)),
    (lambda x: ops.softmin(x, 1), lambda x: np.exp(-x) / np.exp(-x).sum(1, keepdims=True)),
    (lambda x: ops.log_softmax(x, 1), lambda x: x - np.log(np.exp(x).sum(1, keepdims=True))),
    (lambda x: ops.logsumexp(x, (0, 2)), lambda x: np.log(np.exp(x).sum((0, 2)))),
    (lambda x: ops.logsumexp(x, -1, True), lambda x: np.log(np.exp(x).sum(-1, keepdims=True))),
    (lambda x: ops.norm(x), lambda x: np.sqrt((x**2).sum())),
    (lambda x: ops.norm(x, dim=(0, 1), keepdim=True), lambda x: np.sqrt((x**2).sum((0, 1), keepdims=True))),
    (lambda x: ops.norm(x, 3, 1), lambda x: (np.abs(x) ** 3).sum(1) ** (1 / 3)),
    (lambda x: ops.vector_norm(x, 1, 2), lambda x: np.abs(x).sum(2)),
    (lambda x: ops.vector_norm(x, np.inf, (0, 1)), lambda x: np.abs(x).max((0, 1))),
    (lambda x: ops.vector_norm(x, -np.inf), lambda x: np.abs(x).min()),
    (lambda x: ops.matrix_norm(x), lambda x: np.sqrt((x**2).sum((1, 2)))),
    (lambda x: ops.matrix_norm(x, 1, (0, 2), True), lambda x: np.abs(x).sum(0, keepdims=True).max(2, keepdims=True)),
    (lambda x: ops.matrix_norm(x, -np.inf), lambda x: np.abs(x).sum(2).min(1)),
    (lambda x: ops.norm(x[0], 1, (0, 1)), lambda x: np.linalg.norm(x[0], 1)),
    (lambda x: ops.cumsum(x, 1), lambda x: x.cumsum(1)),
    (lambda x: x.cumsum(), lambda x: x.cumsum()),
    (lambda x: ops.cumprod(x, -1), lambda x: x.cumprod(-1)),
    (lambda x: ops.cummax(x, 2)[0], lambda x: np.maximum.accumulate(x, 2)),
    (lambda x: ops.cummin(x, 1)[0], lambda x: np.minimum.accumulate(x, 1)),
    (lambda x: ops.logcumsumexp(x, 2), lambda x: np.log(np.exp(x).cumsum(2))),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CASES)))
def test_against_numpy(number: int) -> None:
    """Values of both modes, gradients to second order, and operands whose memory is not contiguous."""
    function, reference = CASES[number]
    close(both(function, Tensor(CUBE)), reference(CUBE))
    close(function(Tensor.of_array(np.asfortranarray(CUBE))), reference(CUBE))
    check_gradients(function, CUBE, rtol=2e-5, atol=2e-6)


def test_dtypes_of_results() -> None:
    """Those of MindSpore: sums and products of integers are Int64, means stay, counts are Int32."""
    for kind in (np.int8, np.uint8, np.int32, np.bool_):
        x = Tensor(np.ones((2, 3), kind))
        assert ops.sum(x).dtype is dt.int64 and ops.prod(x, 1).dtype is dt.int64
    assert ops.sum(Tensor([1, 2]), dtype=dt.float16).dtype is dt.float16
    assert Tensor([1.0]).sum(0, dt.float64).dtype is dt.float64
    close(ops.mean(Tensor(np.array([1, 2, 2], np.int32))), np.int32(1))
    close(ops.mean(Tensor(np.array([-1, -2, -2], np.int8))), np.int8(-1))
    close(ops.mean(Tensor(np.full(4, 100, np.int8))), np.int8(100))
    assert ops.argmax(Tensor([1.0])).dtype is dt.int64 and ops.argmin(Tensor([1.0])).dtype is dt.int32
    assert ops.count_nonzero(Tensor([1.0])).dtype is dt.int32
    close(ops.count_nonzero(Tensor([[1, 0], [2, 3]]), 1, True, dt.int64), np.array([[1], [2]]))
    for half in (dt.float16, dt.bfloat16):
        x = Tensor(CUBE).astype(half)
        for f in (ops.sum, ops.mean, ops.var, ops.std, ops.amax, ops.softmax, ops.log_softmax, ops.norm, lambda t: ops.cumsum(t, 1)):
            assert f(x).dtype is half
        assert in_graph(lambda t: (t.max(dim=1), t.prod(), ops.cumprod(t, 1), ops.logsumexp(t, 1)), x)[0][0].dtype is half


EXTREMA: list[tuple[Any, str]] = [
    (lambda x: x.max(1), "pair value"), (lambda x: x.max(1, True), "pair value"), (lambda x: x.min(-1, False), "pair value"),
    (lambda x: x.max(1, keepdim=True), "pair pair"), (lambda x: x.max(dim=1), "pair pair"), (lambda x: x.min(axis=1), "value value"),
    (lambda x: x.max(1, keepdims=True), "value value"), (lambda x: x.min(1, initial=9.0), "value value"), (lambda x: x.max((0, 1)), "value value"),
    (lambda x: x.max(None), "value value"), (lambda x: x.min(1, return_indices=True), "pair pair"),
]  # fmt: skip
"""Forms of `Tensor.max` and what they give where ops run at once and inside of a graph, as MindSpore 2.10 does."""


@pytest.mark.parametrize("number", range(len(EXTREMA)))
def test_what_an_extremum_gives_depends_on_names_and_mode(number: int) -> None:
    form, kinds = EXTREMA[number]
    x = Tensor(CUBE)
    values = [y[0] if isinstance(y, tuple) else y for y in (form(x), in_graph(form, x))]
    assert " ".join("pair" if isinstance(y, tuple) else "value" for y in (form(x), in_graph(form, x))) == kinds
    np.testing.assert_array_equal(values[0].asnumpy(), values[1].asnumpy())


def test_half_precision_is_accumulated_in_single() -> None:
    x = np.full(4096, 1.0, np.float16)
    assert float(ops.sum(Tensor(x))) == 4096.0
    assert float(ops.mean(Tensor(np.full(4096, 60000.0, np.float16)))) == 60000.0
    assert float(ops.cumsum(Tensor(x), 0)[-1]) == 4096.0
    big = np.array([300.0, 300.0], np.float16)
    assert float(ops.norm(Tensor(big))) == pytest.approx(424.26, rel=1e-3)
    assert float(ops.std(Tensor(np.array([-300.0, 300.0], np.float16)))) == 300.0


@pytest.mark.parametrize("axis", [(0,), (0, 1), (0, 2), (1,), (0, 1, 2), ()])
@pytest.mark.parametrize("shape", [(30001, 2, 3), (257, 300, 2), (256, 1, 5), (2, 70001, 1), (300, 7, 500)])
def test_long_columns_keep_their_digits(shape: tuple[int, ...], axis: tuple[int, ...]) -> None:
    x = np.full(shape, 0.1, np.float32)  # all alike: what is rounded does not cancel
    for values in (x, x.transpose(2, 0, 1)[::2].copy().transpose(1, 2, 0)):
        for keep_dims in (False, True):
            got = ReduceSum(axis, keep_dims).eval(values)
            exact = values.sum(axis, np.float64, keepdims=keep_dims)
            assert got.shape == exact.shape and got.dtype == np.float32
            np.testing.assert_allclose(got, exact, rtol=4e-6)
    half = x.astype(np.float16)
    with np.errstate(over="ignore"):
        exact = half.sum(axis, np.float64).astype(np.float16)
    np.testing.assert_array_equal(ReduceSum(axis).eval(half), exact)


def test_long_columns_of_other_orders() -> None:
    x = np.full((70001, 3), 0.1, np.float32)
    for values, axis in ((x.T, (1,)), (x[::-1], (0,)), (np.broadcast_to(x[:1], (70001, 3)), (0,)), (x[:, None], (0, 1))):
        np.testing.assert_allclose(ReduceSum(axis).eval(values), 70001 * float(x[0, 0]), rtol=4e-6)


def test_sums_in_chains_need_little_memory() -> None:
    for shape, axis in (((300, 1, 20000), (0, 1)), ((200, 2, 20000), (0, 1)), ((300, 20000, 2), (0, 2))):
        x = np.ones(shape, np.float16)
        tracemalloc.start()
        ReduceSum(axis).eval(x)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < x.nbytes / 4, f"{shape}: {peak} of {x.nbytes} bytes"


def test_a_sum_that_overflows_is_infinite_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isinf(ReduceSum((0,)).eval(np.full(10, 60000, np.float16)))


def test_without_elements_or_dimensions() -> None:
    empty, scalar = Tensor(np.zeros((0, 3))), Tensor(np.float64(2.5))
    close(ops.sum(empty), np.float64(0))
    close(ops.sum(empty, 0), np.zeros(3))
    close(ops.sum(empty, 1), np.zeros(0))
    close(ops.prod(empty, 0), np.ones(3))
    assert np.isnan(ops.mean(empty, 0).asnumpy()).all()
    close(ops.amax(empty, 1), np.zeros(0))
    close(ops.amax(empty, 0, initial=3.0), np.full(3, 3.0))
    close(ops.softmax(empty), np.zeros((0, 3)))
    close(ops.logsumexp(empty, 0), np.full(3, -np.inf))
    close(ops.cumsum(empty, 0), np.zeros((0, 3)))
    close(ops.all(empty), np.bool_(True))
    close(ops.any(empty, 0), np.zeros(3, bool))
    for axis in (None, 0, -1, ()):
        close(ops.sum(scalar, axis), np.float64(2.5))
        close(ops.mean(scalar, axis), np.float64(2.5))
        close(ops.amax(scalar, axis), np.float64(2.5))
    close(ops.max(scalar, 0), (np.float64(2.5), np.int64(0)))
    close(ops.argmax(scalar, 0), np.int64(0))
    close(ops.var(scalar), np.float64(0))
    for call in (lambda: ops.amax(empty, 0), lambda: ops.max(empty, 0), lambda: ops.argmax(empty, 0), lambda: empty.max()):
        with pytest.raises(ValueError, match="empty"):
            call()


def test_truth() -> None:
    x = np.array([[1.0, 0.0, np.nan], [2.0, 3.0, 4.0]])
    for axis in (None, 0, 1, (0, 1)):
        close(both(lambda t, a=axis: ops.all(t, a), Tensor(x)), x.astype(bool).all(axis))
        close(both(lambda t, a=axis: t.any(a, True), Tensor(x)), x.astype(bool).any(axis, keepdims=True))
    assert not Tensor([[True, False]]).all() and Tensor([[True, False]]).any(dim=1, keepdim=True).shape == (1, 1)


def test_nan_spreads_and_is_left_out() -> None:
    x = np.array([[1.0, np.nan, 3.0], [4.0, 5.0, -6.0]])
    for f, g in ((ops.sum, np.sum), (ops.amax, np.max), (ops.amin, np.min), (ops.prod, np.prod)):
        close(f(Tensor(x), 1), g(x, 1))
    close(ops.max(Tensor(x), 1), (np.array([np.nan, 5.0]), np.array([1, 1])))
    close(ops.nansum(Tensor(x), 1), np.nansum(x, 1))
    close(ops.nanmean(Tensor(x), 0), np.nanmean(x, 0))
    close(ops.cummax(Tensor(x), 1), (np.maximum.accumulate(x, 1), np.array([[0, 1, 1], [0, 1, 1]])))
    check_gradients(lambda t: ops.nansum(t**2, 1) + ops.nanmean(t, 1), x[1:])


def test_initial_and_where() -> None:
    mask = np.array([True, False, True, True])
    close(ops.amax(Tensor(CUBE), 2, initial=0.5, where=Tensor(mask)), CUBE.max(2, initial=0.5, where=mask))
    close(Tensor(CUBE).min(axis=2, where=Tensor(mask)), CUBE.min(2, initial=np.inf, where=mask))
    value, index = ops.max(Tensor(CUBE), 2, initial=-9.0, where=Tensor(mask))
    close(value, CUBE.max(2, initial=-9.0, where=mask))
    close(index, np.where(mask, CUBE, -9.0).argmax(2))
    with pytest.raises(TypeError, match="where needs initial"):
        ops.amax(Tensor([1, 2]), where=Tensor([True, False]))


def test_gradients_at_ties_are_shared_or_go_to_the_first() -> None:
    from graphcell.ops.dispatch import Tape, recording

    def gradient(f: Any) -> Array:
        x, tape = Tensor(np.array([1.0, 3.0, 3.0, 3.0])), Tape()
        tape.watch(x)
        with recording(tape):
            y = f(x)
        (g,) = tape.gradients([y], [Tensor(np.float64(6.0))], [x])
        assert g is not None
        return g.asnumpy()

    np.testing.assert_array_equal(gradient(ops.amax), [0, 2, 2, 2])
    np.testing.assert_array_equal(gradient(lambda x: -ops.amin(-x)), [0, 2, 2, 2])
    np.testing.assert_array_equal(gradient(lambda x: x.max(0)[0]), [0, 6, 0, 0])


@pytest.mark.parametrize("zeros", [(), (1,), (1, 3), (0, 1, 2, 3, 4)])
def test_products_with_zeros(zeros: tuple[int, ...]) -> None:
    """Gradients of products are exact where elements are zero, to every order."""
    x = array(5)
    x[list(zeros)] = 0.0
    want = [np.prod(np.delete(x, k)) for k in range(5)]
    close(product_of_others(Tensor(x), (0,)), np.array(want))
    check_gradients(lambda t: ops.prod(t) + ops.prod(t.reshape(5, 1), 0).sum(), x, order=3, step=1e-4, rtol=1e-4, atol=1e-5)
    check_gradients(lambda t: ops.cumprod(t, 0), x, order=2)
    check_gradients(lambda t: ops.flip(ops.cumprod(ops.flip(t, (0,)), 0), (0,)), x, order=2)


def test_product_of_others_along_axes() -> None:
    x = array(2, 3, 4)
    want = np.empty_like(x)
    for i, j, k in np.ndindex(*x.shape):
        rest = x[:, j, :].copy()
        rest[i, k] = 1.0
        want[i, j, k] = rest.prod()
    close(product_of_others(Tensor(x), (0, 2)), want)
    close(product_of_others(Tensor(x[:, :1]), (1,)), np.ones((2, 1, 4)))
    close(product_of_others(Tensor(np.zeros((2, 0))), (1,)), np.zeros((2, 0)))


def test_linear_recurrence() -> None:
    a, b = array(2, 7), array(2, 7)
    want = np.empty_like(b)
    h = np.zeros(2)
    for k in range(7):
        h = a[:, k] * h + b[:, k]
        want[:, k] = h
    close(linear_recurrence(Tensor(a), Tensor(b), 1), want)
    check_gradients(lambda s, t: linear_recurrence(s, t, 0), array(3), array(3))


def test_scans() -> None:
    x = np.array([[1, 3, 3, 2], [5, 1, 1, 0]], np.int32)
    close(ops.cumsum(Tensor(x), 1), x.cumsum(1, dtype=np.int32))
    close(ops.cumsum(Tensor(x), 0, dt.float64), x.cumsum(0, dtype=np.float64))
    close(ops.cumprod(Tensor(x), 1), x.cumprod(1, dtype=np.int64))
    close(both(lambda t: ops.cummax(t, 1), Tensor(x)), (np.maximum.accumulate(x, 1), np.array([[0, 1, 2, 2], [0, 0, 0, 0]])))
    close(both(lambda t: ops.cummin(t, 1), Tensor(x)), (np.minimum.accumulate(x, 1), np.array([[0, 0, 0, 0], [0, 1, 2, 3]], np.int32)))
    from graphcell.ops.functional.scanning import cumulative

    y = array(3, 4)
    for kind, f in (("add", np.add), ("mul", np.multiply), ("max", np.maximum), ("min", np.minimum)):
        close(cumulative(Tensor(y), 1, kind, True), np.flip(f.accumulate(np.flip(y, 1), 1), 1))
        check_gradients(lambda t, k=kind: cumulative(t, 1, k, True) ** 2, y)


def test_softmax_of_large_numbers() -> None:
    """Neither overflow nor underflow; against 50 digits."""
    x = np.array([[1000.0, 1001.0, 999.0], [-1000.0, 0.0, 80.0], [-1e300, 1e300, 0.0]])
    with mpmath.workdps(50):
        for row, got, log_got in zip(x, ops.softmax(Tensor(x)).asnumpy(), ops.log_softmax(Tensor(x)).asnumpy(), strict=True):
            powers = [mpmath.exp(mpmath.mpf(v) - mpmath.mpf(max(row))) for v in row]
            total = sum(powers)
            np.testing.assert_allclose(got, [float(p / total) for p in powers], rtol=1e-14)
            np.testing.assert_allclose(log_got, [float(mpmath.mpf(v) - mpmath.mpf(max(row)) - mpmath.log(total)) for v in row], rtol=1e-14, atol=1e-15)
    close(ops.logsumexp(Tensor(x[:1]), 1), np.array([1000.0 + np.log(np.exp([0.0, 1.0, -1.0]).sum())]))
    close(ops.logsumexp(Tensor(np.array([[-np.inf, -np.inf], [np.inf, 1.0]])), 1), np.array([-np.inf, np.inf]))
    close(ops.logcumsumexp(Tensor(np.array([-800.0, 0.0, 800.0])), 0), np.array([-800.0, 0.0, 800.0]))


def test_gradients_of_softmax_of_large_numbers() -> None:
    """The closed forms, in float32 at the ends of the range: finite, and right to the last bits."""
    from graphcell.ops.dispatch import Tape, recording

    x = np.array([[100.0, -100.0, 0.0], [90.0, 88.0, -90.0]], np.float32)
    g = RNG.normal(size=x.shape).astype(np.float32)
    wide = x.astype(np.float64)
    p = np.exp(wide - wide.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    wanted = {ops.softmax: p * (g - (g * p).sum(1, keepdims=True)), ops.log_softmax: g - p * g.sum(1, keepdims=True, dtype=np.float64)}
    for function, want in wanted.items():
        t, tape = Tensor(x), Tape()
        tape.watch(t)
        with recording(tape):
            y = function(t)
        (got,) = tape.gradients([y], [Tensor(g)], [t])
        assert got is not None
        np.testing.assert_allclose(got.asnumpy(), want, rtol=1e-5, atol=2e-7)


def test_gradient_of_a_norm_at_zero_is_zero() -> None:
    from graphcell.ops.dispatch import Tape, recording

    x, tape = Tensor(np.zeros(3)), Tape()
    tape.watch(x)
    with recording(tape):
        y = ops.norm(x)
    (g,) = tape.gradients([y], [Tensor(np.float64(1.0))], [x])
    assert g is not None
    np.testing.assert_array_equal(g.asnumpy(), np.zeros(3))


ERRORS = [
    (lambda x: ops.sum(3), TypeError, "input must be a Tensor, but is int"),
    (lambda x: ops.sum(x, 3), ValueError, r"dim must be in \[-3, 3\), but is 3"),
    (lambda x: ops.sum(x, (1, 1)), ValueError, "names a dimension twice"),
    (lambda x: ops.sum(x, "a"), TypeError, "dim must be an int, but is str"),
    (lambda x: ops.sum(x, 1, 1), TypeError, "keepdim must be a bool, but is int"),
    (lambda x: ops.mean(x > 0), TypeError, "must hold numbers, but is Bool"),
    (lambda x: ops.max(x, (0, 1)), TypeError, "axis must be an int, but is tuple"),
    (lambda x: ops.amax(x > 0), TypeError, "is Bool"),
    (lambda x: ops.argmax(x, 1.5), TypeError, "dim must be an int, but is float"),
    (lambda x: ops.var(x.astype(dt.int32)), TypeError, "must hold floats, but is Int32"),
    (lambda x: ops.softmax(x.astype(dt.int32)), TypeError, "must hold floats, but is Int32"),
    (lambda x: ops.softmax(x, 3), ValueError, "axis must be in"),
    (lambda x: ops.softmax(x[0, 0, 0]), ValueError, "one dimension at least"),
    (lambda x: ops.softmax(x, (0, 1)), TypeError, "axis must be an int, but is tuple"),
    (lambda x: ops.norm(x, 3, (0, 1)), ValueError, "ord must be"),
    (lambda x: ops.matrix_norm(x, 1, (1, 1)), ValueError, "two different dimensions"),
    (lambda x: ops.cumsum(x > 0, 1), TypeError, "must hold numbers, but is Bool"),
    (lambda x: ops.cumprod(x, None), TypeError, "dim must be an int, but is NoneType"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number: int) -> None:
    call, kind, message = ERRORS[number]
    with pytest.raises(kind, match=message):
        call(Tensor(CUBE))


def test_gradients_of_logsumexp_beside_infinities_concern_these_alone() -> None:
    x = np.array([[np.inf, 1, 2], [0, -np.inf, 3], [1, 2, 3]], np.float32)
    slope_of = gc.grad(lambda x: ops.logsumexp(x, 1).sum())
    for f in (slope_of, gc.jit(slope_of)):
        slope = f(Tensor(x)).asnumpy()
        assert np.isnan(slope[0, 0]) and not slope[0, 1:].any() and not slope[1, 1]
        np.testing.assert_allclose(slope[1:].sum(1), 1, rtol=1e-6)
    values = ops.logsumexp(Tensor(np.array([[np.inf, 1], [-np.inf, -np.inf], [np.nan, 1], [0, 0]], np.float32)), 1).asnumpy()
    np.testing.assert_array_equal(values, [np.inf, -np.inf, np.nan, np.float32(np.log(2))])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("extremum", ["amax", "amin"])
def test_gradients_of_extrema_in_half_precision_find_them(extremum: str, dtype: Any) -> None:
    """What is computed once more, with more digits than it has, equals the extremum only where it is rounded."""
    rng = np.random.default_rng(3)
    x, c = rng.standard_normal((6, 70, 40)).astype(dtype), rng.standard_normal(40).astype(dtype)

    def loss(x: Tensor, c: Tensor) -> Tensor:
        return (getattr(ops, extremum)(x * c, 1) * x[:, 0]).sum()

    got = gc.jit(lambda x, c: gc.grad(loss, 0)(x, c))(Tensor(x), Tensor(c)).astype(dt.float32).asnumpy()
    v, w = (x * c).astype(np.float32), x.astype(np.float32)
    hits = v == getattr(np, "max" if extremum == "amax" else "min")(v, 1, keepdims=True)
    want = hits / hits.sum(1, keepdims=True) * w[:, :1] * c.astype(np.float32)
    want[:, 0] += (v * hits).sum(1) / hits.sum(1)
    np.testing.assert_allclose(got, want, rtol=0.02, atol=0.02)
