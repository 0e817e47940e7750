"""Sums to which one element of a row counts: what becomes of them, and what they give, against numpy in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphcell
from graphcell import Tensor, ops
from graphcell.ir.text import parse
from graphcell.runtime.executable import Executable, compile_graph

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(11)

PICK = """graph @f(%x: f32[{rows}, {row}], %at: i32[{rows}, 1], %w: f32[{rows}, 1]) {{
  %ramp = iota[shape=({rows}, {row}), axis=1, dtype=i32]
  %place = broadcast_to[shape=({rows}, {row})] %at
  %hit = equal %ramp, %place
  %zero = full[value=0.0, shape=({rows}, {row}), dtype=f32]
  %v = broadcast_to[shape=({rows}, {row})] %w
  {body}
  %s = reduce_sum[axis=(1,), keep_dims=False] %term
  return %s{more}
}}"""


def compiled(rows: int, row: int, body: str, more: str = "") -> Executable:
    return compile_graph(parse(PICK.format(rows=rows, row=row, body=body, more=more)))


def kernels(executable: Executable) -> str:
    return "\n".join(str(k.kernel) for k in executable.compilation.program.steps)


def inputs(rows: int, row: int) -> tuple[Array, Array, Array]:
    x = RNG.standard_normal((rows, row)).astype(np.float32)
    places = RNG.integers(0, row, (rows, 1)).astype(np.int32)
    return x, places, RNG.standard_normal((rows, 1)).astype(np.float32)


def picked(x: Array, places: Array) -> Array:
    """x at the places, 0 outside of the row."""
    inside = (places[:, 0] >= 0) & (places[:, 0] < x.shape[1])
    return np.where(inside, x[np.arange(len(x)), np.where(inside, places[:, 0], 0)], 0)


@pytest.mark.parametrize("width", ["16", "32", ""])
@pytest.mark.parametrize(("rows", "row"), [(1, 1), (3, 7), (40, 16), (5, 1000), (130, 33)])
def test_one_element_is_read_where_it_lies(rows: int, row: int, width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCELL_VECTOR_BYTES", width)
    x, places, w = inputs(rows, row)
    places[::3] = RNG.choice([-1, -row, row, 2**31 - 1, -(2**31)], (len(places[::3]), 1))  # outside: nothing counts
    x[:, ::5] = RNG.choice([np.nan, np.inf, -np.inf], x[:, ::5].shape)
    f = compiled(rows, row, "%y = mul %x, %v\n  %e = exp %y\n  %term = select %hit, %e, %zero")
    (got,) = f([Tensor(a) for a in (x, places, w)])
    with np.errstate(all="ignore"):
        want = picked(np.exp(x.astype(np.float64) * w), places)
    np.testing.assert_allclose(got.asnumpy(), want, rtol=2e-6)


def test_nothing_is_summed_any_more() -> None:
    text = kernels(compiled(40, 100, "%e = exp %x\n  %term = select %hit, %e, %zero"))
    assert "gather" in text and "reduce_sum" not in text


def test_what_else_the_row_needs_is_left() -> None:
    x, places, w = inputs(40, 100)
    f = compiled(40, 100, "%e = exp %x\n  %term = select %hit, %e, %zero\n  %all = reduce_sum[axis=(1,), keep_dims=False] %e", ", %all, %e")
    one, total, every = f([Tensor(a) for a in (x, places, w)])
    exact = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(one.asnumpy(), picked(exact, places), rtol=1e-6)
    np.testing.assert_allclose(total.asnumpy(), exact.sum(1), rtol=1e-6)
    np.testing.assert_allclose(every.asnumpy(), exact, rtol=1e-6)
    assert kernels(f).count("reduce_sum") == 1


def test_differences_are_taken_term_by_term() -> None:
    x, places, w = inputs(40, 100)
    f = compiled(40, 100, "%a = select %hit, %x, %zero\n  %b = neg %a\n  %term = sub %v, %b")
    (got,) = f([Tensor(a) for a in (x, places, w)])
    np.testing.assert_allclose(got.asnumpy(), 100 * w[:, 0].astype(np.float64) + picked(x.astype(np.float64), places), rtol=1e-5, atol=1e-5)
    assert "reduce_sum" not in kernels(f)


@pytest.mark.parametrize(
    "body",
    [
        "%a = select %hit, %x, %zero\n  %term = mul %a, %x",  # an infinite factor elsewhere would make it NaN
        "%term = select %hit, %zero, %x",
        "%a = select %hit, %x, %zero\n  %term = add %a, %x",
        "%same = equal %x, %x\n  %both = bitwise_and %hit, %same\n  %term = select %both, %x, %zero",
    ],
)
def test_other_sums_stay(body: str) -> None:
    f = compiled(40, 100, body)
    assert "reduce_sum" in kernels(f) and "gather" not in kernels(f)


@pytest.mark.parametrize("shape", [(6, 5), (70, 100), (4, 21, 9, 16), (3, 300, 2)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_and_its_gradient(shape: tuple[int, ...], smoothing: float) -> None:
    x = RNG.standard_normal(shape).astype(np.float32)
    y = RNG.integers(0, shape[1], (shape[0], *shape[2:])).astype(np.int32)
    y[0] = -100  # does not count
    y[-1] -= shape[1]  # from the end
    x[0, 0] = np.inf
    step = graphcell.jit(graphcell.value_and_grad(lambda x: ops.cross_entropy(x, Tensor(y), label_smoothing=smoothing), 0))
    loss, dx = step(Tensor(x))
    z = np.moveaxis(x.astype(np.float64), 1, -1)
    with np.errstate(invalid="ignore"):
        log_p = z - z.max(-1, keepdims=True)
        log_p -= np.log(np.exp(log_p).sum(-1, keepdims=True))
    counted = y != -100
    target = (1 - smoothing) * np.eye(shape[1])[np.where(counted, y, 0) % shape[1]] + smoothing / shape[1]
    target[~counted] = 0
    log_p[~counted] = 0
    np.testing.assert_allclose(float(loss), -(target * log_p).sum() / counted.sum(), rtol=2e-6)
    want = np.where(counted[..., None], np.exp(log_p) - target, 0) / counted.sum()
    got = np.moveaxis(dx.asnumpy(), 1, -1)
    np.testing.assert_allclose(got[counted], want[counted], rtol=1e-5, atol=1e-8)


def test_the_gradient_may_lie_where_the_logits_were() -> None:
    """The element is read before anything of its row is written."""
    x = graphcell.Parameter(Tensor(RNG.standard_normal((50, 30)).astype(np.float32)))
    y = Tensor(RNG.integers(0, 30, (50,)).astype(np.int32))
    forward = graphcell.value_and_grad(lambda: ops.cross_entropy(x, y), None, [x])

    @graphcell.jit
    def step() -> Tensor:
        loss, (dx,) = forward()
        return ops.depend(loss, ops.assign(x, x - 5.0 * dx))

    z = x.asnumpy().astype(np.float64)
    for _ in range(3):
        loss = step()
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        hit = np.eye(30)[y.asnumpy()]
        np.testing.assert_allclose(float(loss), -np.log((p * hit).sum(1)).mean(), rtol=1e-5)
        z -= 5.0 * (p - hit) / 50
        np.testing.assert_allclose(x.asnumpy(), z, rtol=1e-4, atol=1e-5)


def test_what_is_stored_once_is_not_stored_at_each_point() -> None:
    """A Parameter takes the picked elements, and what they are picked from is stored, too: the row stays a row."""
    n, classes, width = 4, 10, 256
    p = graphcell.Parameter(Tensor(np.zeros((n, width), np.float32)))
    y = (np.arange(n * width).reshape(n, width) % classes).astype(np.int32)

    @graphcell.jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        e = ops.exp(x)
        mine = ops.select(ops.one_hot(y, classes, Tensor(True), Tensor(False), 1), e, ops.zeros_like(e))
        ops.assign(p, p + mine.sum(1))
        return e

    for k in (1, 2):
        step(Tensor(np.zeros((n, classes, width), np.float32)), Tensor(y))
        np.testing.assert_array_equal(p.asnumpy(), np.full((n, width), k))


@pytest.mark.parametrize(("dtype", "extent"), [(np.int8, 127), (np.int8, 128), (np.int8, 200), (np.int16, 300), (np.int64, 300), (np.uint8, 300)])
def test_ramps_of_few_bits(dtype: type, extent: int) -> None:
    """Numbers of 8 bits cannot say where a long row ends."""
    x = np.arange(3 * extent, dtype=np.float32).reshape(3, extent)
    y = np.array([3, 100, 126], dtype)

    def f(x: Tensor, y: Tensor) -> Tensor:
        return ops.select(ops.one_hot(y, extent, Tensor(True), Tensor(False)), x, ops.zeros_like(x)).sum(-1)

    want = f(Tensor(x), Tensor(y)).asnumpy()
    np.testing.assert_array_equal(graphcell.jit(f)(Tensor(x), Tensor(y)).asnumpy(), want)


def test_ramps_of_floats_meet_no_place_between_two() -> None:
    x = np.arange(1, 25, dtype=np.float32).reshape(3, 8)

    @graphcell.jit
    def f(x: Tensor, p: Tensor) -> Tensor:
        place = ops.arange(0, x.shape[1], 1).astype(graphcell.float32)
        return ops.select(place.broadcast_to(x.shape) == p.expand_dims(1).broadcast_to(x.shape), x, ops.zeros_like(x)).sum(-1)

    np.testing.assert_array_equal(f(Tensor(x), Tensor(np.array([1.5, 2, -0.5], np.float32))).asnumpy(), [0, 11, 0])


def test_a_sum_is_no_negative_zero() -> None:
    f = compiled(3, 7, "%term = select %hit, %x, %zero")
    x = np.full((3, 7), -0.0, np.float32)
    (got,) = f([Tensor(x), Tensor(np.zeros((3, 1), np.int32)), Tensor(np.zeros((3, 1), np.float32))])
    assert not np.signbit(got.asnumpy()).any()


def test_what_is_chosen_may_be_converted() -> None:
    """A loss of half precision with its gradient; what is added to a chosen element before it is converted belongs to all of the row."""
    chosen = "%m = neg %x\n  %t = select %hit, %m, %zero\n  %h = cast[dtype=bf16] %t\n  %n = neg %h\n  %term = cast[dtype=f32] %n"
    x, places, w = inputs(40, 100)
    places[::3] = -1
    assert "reduce_sum" not in kernels(compiled(40, 100, chosen))
    (got,) = compiled(40, 100, chosen)([Tensor(a) for a in (x, places, w)])
    want = picked(x, places).astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(got.asnumpy(), want)
    added = "%t = select %hit, %x, %zero\n  %a = add %t, %v\n  %h = cast[dtype=bf16] %a\n  %term = cast[dtype=f32] %h"
    assert "reduce_sum" in kernels(compiled(40, 100, added))
