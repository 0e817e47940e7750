"""Rarer primitives: as MindSpore in both modes; special functions against mpmath."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, ops
from graphcell.ops import incomplete
from graphcell.ops.functional.special import betainc
from tests.recording import check, load

RUNS = [ms.GRAPH_MODE, ms.PYNATIVE_MODE]


@pytest.mark.parametrize("mode", RUNS, ids=["graph", "pynative"])
@pytest.mark.parametrize("key", list(load("rarer_primitives")))
def test_as_mindspore(key: str, mode: int) -> None:
    check("rarer_primitives", key, mode, 1e-4)


def bessel(name: str) -> Callable[[Any], Any]:
    kind, order, scaled = name[0], int(name[1]), name.endswith("e")
    function = getattr(mpmath, f"bessel{kind}")

    def of(x: Any) -> Any:
        factor = 1 if not scaled else mpmath.exp(x) if kind == "k" else mpmath.exp(-abs(x))
        return factor * function(order, x)

    return of


KINDS = ["i0", "i0e", "i1", "i1e", "j0", "j1", "k0", "k0e", "k1", "k1e", "y0", "y1"]
FLOATS = {ms.float64: 1e-13, ms.float32: 2e-7, ms.float16: 1e-3}


def close(got: Tensor, want: list[float], relative: float) -> None:
    """To a relative error, and next to zeros to as much of 1."""
    expected = np.array(want)
    finite = np.abs(expected) < np.finfo(got.asnumpy().dtype).max
    np.testing.assert_allclose(got.asnumpy().astype(np.float64)[finite], expected[finite], rtol=relative, atol=relative)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", KINDS)
def test_bessel_values(name: str, dtype: Any) -> None:
    points = np.concatenate([np.geomspace(1e-3, 60.0, 40), np.linspace(0.25, 12.0, 48), [2.0, 8.0]])
    signed = name[0] in "ij"
    x = Tensor(np.concatenate([-points, points]) if signed else points, dtype)
    close(getattr(ops, f"bessel_{name}")(x), [float(bessel(name)(mpmath.mpf(float(v)))) for v in x.asnumpy()], FLOATS[dtype])


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_bessel_gradients(name: str, run: Callable[..., Any]) -> None:
    points = np.array([-7.5, -0.4, 0.3, 1.9, 2.1, 7.9, 8.1, 30.0] if name[0] in "ij" else [0.3, 1.9, 2.1, 7.9, 8.1, 30.0])
    got = run(lambda x: ms.grad(getattr(ops, f"bessel_{name}"))(x), Tensor(points))
    want = [float(mpmath.diff(bessel(name), mpmath.mpf(v))) for v in points]
    np.testing.assert_allclose(got.asnumpy(), want, rtol=1e-10, atol=1e-12)


def test_bessel_at_the_edges() -> None:
    x = Tensor([0.0, -1.0, np.inf, np.nan], ms.float64)
    inf, nan = np.inf, np.nan
    edges = {
        "i0": [1.0, 1.2660658777520082, inf, nan], "i1e": [0.0, -0.2079104153497085, 0.0, nan], "j0": [1.0, 0.7651976865579666, 0.0, nan],
        "j1": [0.0, -0.44005058574493355, 0.0, nan], "k0": [inf, nan, 0.0, nan], "k1e": [inf, nan, 0.0, nan], "y0": [-inf, nan, 0.0, nan],
    }  # fmt: skip
    for name, want in edges.items():
        np.testing.assert_allclose(getattr(ops, f"bessel_{name}")(x).asnumpy(), want, rtol=1e-14)
    for name, want in (("i1", 0.5), ("j1", 0.5), ("i0", 0.0), ("j0", 0.0)):
        assert float(ms.grad(getattr(ops, f"bessel_{name}"))(Tensor(0.0))) == want


def lower(a: Any, x: Any) -> Any:
    return mpmath.gammainc(a, 0, x, regularized=True)


def upper(a: Any, x: Any) -> Any:
    return mpmath.gammainc(a, x, mpmath.inf, regularized=True)


def beta(a: Any, b: Any, x: Any) -> Any:
    return mpmath.betainc(a, b, 0, x, regularized=True)


CASES: dict[str, tuple[Any, Any, list[list[float]]]] = {
    "igamma": (ops.igamma, lower, [[0.1, 0.1, 1.0, 2.5, 2.5, 10.0, 100.0, 100.0], [0.01, 2.0, 0.3, 0.2, 9.0, 11.0, 80.0, 130.0]]),
    "igammac": (ops.igammac, upper, [[0.1, 0.1, 1.0, 2.5, 2.5, 10.0, 100.0, 100.0], [0.01, 2.0, 0.3, 0.2, 9.0, 11.0, 80.0, 130.0]]),
    "betainc": (betainc, beta, [[0.2, 1.0, 2.0, 9.0, 30.0], [0.7, 1.0, 3.5, 0.4, 50.0], [0.1, 0.5, 0.9, 0.8, 0.4]]),
    "zeta": (ops.zeta, mpmath.zeta, [[1.1, 2.0, 2.0, 3.0, 7.5, 20.0], [0.3, 1.0, 30.0, 2.5, 0.7, 1.5]]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, dtype: Any) -> None:
    function, exact, points = CASES[name]
    operands = [Tensor(p, dtype) for p in points]
    want = [float(exact(*map(float, row))) for row in zip(*(t.asnumpy() for t in operands))]
    close(function(*operands), want, FLOATS[dtype] * 10)


def test_continued_fractions_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many elements some have factors that stay a few units in the last place beside 1."""
    rng, turns, kept = np.random.default_rng(1), [], incomplete._kept_off_zero
    monkeypatch.setattr(incomplete, "_kept_off_zero", lambda x: (turns.append(1), kept(x))[1])
    a, x = rng.uniform(0.5, 4, 20_003), rng.uniform(0.5, 4, 20_003)
    got = incomplete.igamma(a, x)
    assert len(turns) < 1000
    want = [float(mpmath.gammainc(p, 0, q, regularized=True)) for p, q in zip(a[:200], x[:200], strict=True)]
    np.testing.assert_allclose(got[:200], want, rtol=1e-13)


@pytest.mark.parametrize("name, place", [("igamma", 0), ("igamma", 1), ("igammac", 0), ("igammac", 1), ("betainc", 2), ("zeta", 1)])
def test_gradients(name: str, place: int, run: Callable[..., Any]) -> None:
    function, exact, points = CASES[name]
    got = run(lambda *x: ms.grad(function, place)(*x), *(Tensor(p, ms.float64) for p in points))
    want = [float(mpmath.diff(lambda t, row=row: exact(*row[:place], t, *row[place + 1 :]), row[place])) for row in zip(*points)]
    np.testing.assert_allclose(got.asnumpy(), want, rtol=1e-8, atol=1e-10)


def test_outside_of_the_domain() -> None:
    inf, nan = np.inf, np.nan
    a, x = Tensor([-1.0, 1.0, 1.0, 1.0, nan], ms.float64), Tensor([1.0, -1.0, 0.0, inf, 1.0], ms.float64)
    np.testing.assert_array_equal(ops.igamma(a, x).asnumpy(), [nan, nan, 0.0, 1.0, nan])
    np.testing.assert_array_equal(ops.igammac(a, x).asnumpy(), [nan, nan, 1.0, 0.0, nan])
    s, q = Tensor([1.0, 0.5, 2.0, 2.5], ms.float64), Tensor([1.0, 1.0, 0.0, -0.5], ms.float64)
    np.testing.assert_array_equal(ops.zeta(s, q).asnumpy(), [inf, nan, inf, nan])
    np.testing.assert_array_equal(betainc(1.0, 1.0, Tensor([0.0, 1.0, 1.5], ms.float64)).asnumpy(), [0.0, 1.0, nan])


def test_operands_broadcast_and_numbers_join() -> None:
    x = Tensor([[0.5], [2.0]], ms.float64)
    got = ops.igamma(Tensor([1.0, 3.0], ms.float64), x)
    want = [[float(lower(a, v)) for a in (1.0, 3.0)] for v in (0.5, 2.0)]
    np.testing.assert_allclose(got.asnumpy(), want, rtol=1e-13)
    assert ops.zeta(2.0, x).shape == (2, 1) and ops.zeta(2.0, x).dtype is ms.float64
    with pytest.raises(TypeError, match="one float dtype"):
        ops.igamma(x, Tensor([1.0]))
    assert ops.igamma(Tensor(np.zeros((0, 3))), Tensor(np.zeros((0, 3)))).shape == (0, 3) and ops.bessel_j0(Tensor(np.zeros((0,)))).shape == (0,)


# -- factorizations against numpy ----------------------------------------------------------------------------------------------
def test_lu_of_stacks() -> None:
    """P L U is the matrix whose factorization it is, and solves its systems."""
    rng = np.random.default_rng(3)
    packed, pivots = rng.normal(size=(2, 4, 4)) + 3 * np.eye(4), np.array([[3, 2, 4, 4], [1, 4, 3, 4]], np.int32)
    p, lo, up = (t.asnumpy() for t in ops.lu_unpack(Tensor(packed), Tensor(pivots)))
    for k in range(2):
        order = np.arange(4)
        for row, other in enumerate(pivots[k] - 1):
            order[[row, other]] = order[[other, row]]
        np.testing.assert_array_equal(p[k], np.eye(4)[:, order])
        np.testing.assert_allclose(lo[k], np.tril(packed[k], -1) + np.eye(4))
        np.testing.assert_allclose(up[k], np.triu(packed[k]))
    b = rng.normal(size=(2, 4, 3))
    np.testing.assert_allclose((p @ lo @ up) @ ops.lu_solve(Tensor(b), Tensor(packed), Tensor(pivots)).asnumpy(), b, atol=1e-12)


@pytest.mark.parametrize("shape", [(4, 3), (3, 3), (2, 5, 3)])
def test_reflectors(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).normal(size=shape)
    y, tau = ops.geqrf(Tensor(x))
    q = ops.orgqr(y, tau).asnumpy()
    np.testing.assert_allclose(q @ np.triu(y.asnumpy()[..., : shape[-1], :]), x, atol=1e-12)
    np.testing.assert_allclose(np.swapaxes(q, -1, -2) @ q, np.broadcast_to(np.eye(shape[-1]), (*shape[:-2], shape[-1], shape[-1])), atol=1e-12)


def test_segments_must_not_fall() -> None:
    for ids in ([1, 0], [-1, 0]):
        with pytest.raises(ValueError, match="must not be negative, and must not fall"):
            ops.SegmentSum()(Tensor([1.0, 2.0]), Tensor(ids, ms.int32))


# -- steps that shrink: their formulas, where MindSpore's kernels move some Parameters away from 0 ------------------------------
@pytest.mark.parametrize("l1", [0.05, 0.3, 5.0])
def test_ftrl_and_dual_averaging_with_l1(l1: float) -> None:
    rng = np.random.default_rng(5)
    var, g, linear, total = (rng.normal(size=7) for _ in range(4))
    accum, squares = rng.uniform(0.5, 2.0, 7), rng.uniform(0.5, 2.0, 7)
    lr, l2, power, steps = 0.1, 0.2, -0.4, 3
    p = [ms.Parameter(Tensor(x)) for x in (var, accum, linear)]
    wide = (accum + g * g) ** -power
    z = linear + g - (wide - accum**-power) / lr * var
    want = np.where(np.abs(z) > l1, (np.sign(z) * l1 - z) / (wide / lr + 2 * l2), 0.0)
    np.testing.assert_allclose(ops.ApplyFtrl()(*p, Tensor(g), lr, l1, l2, power).asnumpy(), want, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(p[2].asnumpy(), z, rtol=1e-12)
    q = [ms.Parameter(Tensor(x)) for x in (var, total, squares)]
    kept = np.sign(total + g) * np.maximum(np.abs(total + g) - l1 * steps, 0.0)
    want = -lr * kept / (l2 * steps * lr + np.sqrt(squares + g * g))
    got = ops.ApplyAdagradDA()(*q, Tensor(g), lr, l1, l2, Tensor(steps, ms.int32)).asnumpy()
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)
