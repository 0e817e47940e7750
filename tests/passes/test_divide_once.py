"""Which divisors are inverted once, and what the quotients are."""

from __future__ import annotations

import numpy as np
import pytest

import graphcell
from graphcell import Tensor, ops
from graphcell.ir.graph import Graph
from graphcell.ir.text import parse
from graphcell.ir.verify import verify
from graphcell.passes.divide_once import divide_once
from graphcell.passes.eliminate_dead import eliminate_dead

SOFTMAX = """graph @f(%x: {dtype}[6, 5]) {{
  %top = reduce_max[axis={peak}, keep_dims=True] %x
  %wide = broadcast_to[shape=(6, 5)] %top
  %below = sub %x, %wide
  %e = exp %below
  %sum = reduce_sum[axis={axis}, keep_dims=True] %e
  %s = broadcast_to[shape=(6, 5)] %sum
  %y = div %e, %s
  return %y
}}"""


def divisions(graph: Graph) -> list[tuple[int, ...]]:
    verify(graph)
    return [n.results[0].type.shape for n in graph.nodes if n.op.name == "div"]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("axis", "small"), [("(1,)", (6, 1)), ("(0,)", (1, 5))])
def test_sums_of_softmaxes_are_inverted(dtype: str, axis: str, small: tuple[int, ...]) -> None:
    assert divisions(divide_once(parse(SOFTMAX.format(dtype=dtype, axis=axis, peak=axis)))) == [small]


@pytest.mark.parametrize("text", [
    SOFTMAX.format(dtype="f16", axis="(1,)", peak="(1,)"),
    SOFTMAX.format(dtype="f32", axis="(1,)", peak="(0,)"),  # may count no exponential as 1
    SOFTMAX.format(dtype="f32", axis="(1,)", peak="(1,)").replace("exp %below", "exp %x"),
    SOFTMAX.format(dtype="f32", axis="(1,)", peak="(1,)").replace("sum[axis=(1,), keep_dims=True] %e", "max[axis=(1,), keep_dims=True] %e"),
])  # fmt: skip
def test_other_divisors_stay(text: str) -> None:
    graph = parse(text)
    assert divide_once(graph) is graph


ROOT = """graph @f(%x: f32[6, 5], %v: f32[6, 1], %w: f32[6, 1]) {{
  %r = {op} %v
  %eps = full[value={eps}, shape=(6, 1), dtype=f32]
  %d = {join} %r, %eps
  %s = broadcast_to[shape=(6, 5)] %d
  %y = div %x, %s
  return %y
}}"""


@pytest.mark.parametrize("join", ["add", "maximum"])
def test_roots_are_inverted(join: str) -> None:
    assert divisions(divide_once(parse(ROOT.format(op="sqrt", eps=1e-6, join=join)))) == [(6, 1)]
    plain = ROOT.format(op="sqrt", eps=0.0, join="add").replace("broadcast_to[shape=(6, 5)] %d", "broadcast_to[shape=(6, 5)] %r")
    assert divisions(divide_once(parse(plain))) == [(6, 1)]
    for op, eps in (("abs", 1e-6), ("sqrt", 0.0), ("sqrt", 1e-40), ("sqrt", -1.0), ("sqrt", float("nan")), ("sqrt", 1e38)):
        graph = parse(ROOT.format(op=op, eps=repr(eps), join=join))
        assert divide_once(graph) is graph


def test_quotients_by_roots_at_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """0, infinities, NaN and denormals give what a division gives."""
    monkeypatch.setenv("GRAPHCELL_DENORMALS", "1")
    d = np.array([0.0, -0.0, 1e-45, 1e-30, 1.0, 3e38, np.inf, np.nan, -1.0], np.float32)[:, None]
    x = np.array([0.0, -0.0, 1e-45, -1e-30, 1.0, 3e38, np.inf, -np.inf, np.nan], np.float32)[None] * np.ones((9, 1), np.float32)
    got = graphcell.jit(lambda x, d: x / ops.sqrt(d))(Tensor(x), Tensor(d)).asnumpy()
    with np.errstate(all="ignore"):
        want = x / np.sqrt(d)
    assert (np.isnan(got) == np.isnan(want)).all() and (np.isinf(got) == np.isinf(want)).all()
    number = ~np.isnan(want)
    assert (np.signbit(got) == np.signbit(want))[number].all()
    finite = np.isfinite(want)
    np.testing.assert_allclose(got[finite], want[finite], rtol=3e-7, atol=3e-45)


def test_whole_quotients_stay_whole() -> None:
    """Division by the largest element of a row, and by a number, rounds once."""
    x = np.arange(1, 4097, dtype=np.float32).reshape(64, 64)

    @graphcell.jit
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        return x / ops.amax(x, 1, True), x / 49

    share, part = f(Tensor(x))
    assert (share.asnumpy() == x / x.max(1, keepdims=True)).all() and (part.asnumpy() == x / np.float32(49)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softmax_and_its_gradient(dtype: type) -> None:
    x = np.random.default_rng(0).standard_normal((30, 77)).astype(dtype) * 10
    x[3, 5], x[4] = -np.inf, -np.inf  # a row of nothing is NaN
    x[5, 7] = np.inf
    f = graphcell.jit(graphcell.value_and_grad(lambda x: (ops.softmax(x, -1) ** 2).sum(), 0))
    p = graphcell.jit(lambda x: ops.softmax(x, -1))(Tensor(x)).asnumpy()
    with np.errstate(invalid="ignore"):
        e = np.exp(x.astype(np.longdouble) - x.max(1, keepdims=True))
        want = e / e.sum(1, keepdims=True)
    precision = 8 * np.finfo(dtype).eps
    np.testing.assert_allclose(p, want.astype(np.float64), rtol=50 * precision)
    assert np.isnan(p[4]).all() and np.isnan(p[5]).all()
    rest = [k for k in range(30) if k not in (4, 5)]
    q = want[rest]
    slope = 2 * q * (q - (q * q).sum(1, keepdims=True))
    _, dx = f(Tensor(x[rest]))
    np.testing.assert_allclose(dx.asnumpy(), slope.astype(np.float64), rtol=0, atol=precision)


def test_a_maximum_of_other_rows_is_none_of_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever forgets to keep the dimension takes the largest of another row: 1 / sum could overflow where the sum is denormal."""
    monkeypatch.setenv("GRAPHCELL_DENORMALS", "1")

    def f(x: Tensor) -> Tensor:
        e = ops.exp(x - ops.amax(x, 1))
        return e / e.sum(axis=1, keepdims=True)

    got = graphcell.jit(f)(Tensor(np.array([[-100, 0], [100, 100]], np.float32)))
    np.testing.assert_array_equal(got.asnumpy()[0], [0.5, 0.5])


GRADIENT = SOFTMAX.replace("(%x: {dtype}[6, 5])", "(%x: {dtype}[6, 5], %dy: {dtype}[6, 5])").replace("  return %y", """  %d = div %dy, %s
  %minus = neg %d
  %dot = mul %minus, %y
  %sums = reduce_sum[axis={axis}, keep_dims=False] %dot
  %column = reshape[shape={small}] %sums
  %spread = broadcast_to[shape=(6, 5)] %column
  %de = add %d, %spread
  %dx = mul %de, %e
  return %y, %dx""")


def names(graph: Graph) -> list[str]:
    verify(graph)
    return [n.op.name for n in graph.nodes]


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
@pytest.mark.parametrize(("axis", "small"), [("(1,)", "(6, 1)"), ("(0,)", "(1, 5)")])
def test_the_gradient_of_a_softmax_is_made_of_its_result(dtype: str, axis: str, small: str) -> None:
    graph = eliminate_dead(divide_once(parse(GRADIENT.format(dtype=dtype, axis=axis, peak=axis, small=small))))
    assert names(graph).count("div") == 1 and "neg" not in names(graph)
    x = np.random.default_rng(3).normal(size=(6, 5))
    y = np.exp(x) / np.exp(x).sum(int(axis[1]), keepdims=True)
    dy = np.random.default_rng(4).normal(size=(6, 5))
    want = y * (dy - (dy * y).sum(int(axis[1]), keepdims=True))
    kind = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[dtype]
    got = graphcell.grad(lambda x, dy: (ops.softmax(x, int(axis[1])) * dy).sum())(Tensor(x.astype(kind)), Tensor(dy.astype(kind))).asnumpy()
    np.testing.assert_allclose(got, want, atol={"f16": 2e-3, "f32": 1e-6, "f64": 1e-13}[dtype])


@pytest.mark.parametrize(("old", "new"), [
    ("sum[axis=(1,), keep_dims=False] %dot", "sum[axis=(0,), keep_dims=False] %dot"),  # along dimensions along which s differs
    ("%dot = mul %minus, %y", "%dot = mul %minus, %e"),
    ("%dx = mul %de, %e", "%dx = mul %de, %below"),
    ("%minus = neg %d", "%minus = neg %dy"),
    ("%e = exp %below", "%e = exp %x"),
])  # fmt: skip
def test_what_only_looks_like_the_gradient_of_a_softmax_stays(old: str, new: str) -> None:
    text = GRADIENT.format(dtype="f32", axis="(1,)", peak="(1,)", small="(6, 1)").replace("[6, 5]", "[5, 5]").replace("(6, ", "(5, ").replace(old, new)
    assert "neg" in names(divide_once(parse(text)))
