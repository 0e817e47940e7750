"""Which products and sums are contracted to fused multiply-adds, and what they give, against exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import graphcell
from graphcell import Tensor, ops
from graphcell.codegen.contract import contract
from graphcell.codegen.kernel import Access, Load, LoopKernel, MulAdd, Splat, Statement, Store
from graphcell.dtype import float32, int32
from graphcell.ops.arithmetic import Add, Mul, Sub
from graphcell.ops.reduction import ReduceSum

Array = np.ndarray[Any, Any]


def kernel(*body: Statement, stores: tuple[int, ...]) -> LoopKernel:
    return LoopKernel((32,), 1, -1, body, tuple(Store(n, Access(9, (1,))) for n in stores), (float32,) * 10)


def load(k: int, dtype: Any = float32) -> Statement:
    return Statement(Load(Access(k, (1,)), dtype), (), dtype, 1, 0)


def op(what: Any, *args: int, dtype: Any = float32) -> Statement:
    return Statement(what, args, dtype, 1, 0)


def kinds(k: LoopKernel) -> list[str]:
    return [type(s.what).__name__ for s in k.body]


def test_a_product_that_is_added_becomes_one_operation() -> None:
    done = contract(kernel(load(0), load(1), load(2), op(Mul(), 0, 1), op(Add(), 2, 3), stores=(4,)))
    assert kinds(done) == ["Load", "Load", "Load", "MulAdd"]
    assert done.body[3].args == (0, 1, 2) and done.stores[0].local == 3


def test_a_product_that_is_needed_elsewhere_stays() -> None:
    before = kernel(load(0), load(1), load(2), op(Mul(), 0, 1), op(Add(), 2, 3), stores=(3, 4))
    assert contract(before) is before


def test_twice_is_added_but_where_it_is_contracted() -> None:
    two, three = (Statement(Splat(x, float32), (), float32, 0, 0) for x in (2.0, 3.0))
    done = contract(kernel(load(0), load(1), two, op(Mul(), 2, 0), op(Mul(), 1, 2), op(Add(), 1, 4), stores=(3, 5)))
    assert kinds(done) == ["Load", "Load", "Splat", "Add", "MulAdd"] and done.body[3].args == (0, 0)
    assert kinds(contract(kernel(load(0), two, op(Mul(), 1, 0), stores=(2,)))) == ["Load", "Add"]
    before = kernel(load(0), three, op(Mul(), 1, 0), stores=(2,))
    assert contract(before) is before


def test_twice_does_not_overflow_before_it_is_added() -> None:
    """Also where it is needed as it is."""
    f = graphcell.jit(lambda x, y: (x + (y * y) * 2, (y * y) * 2))
    got = f(Tensor(np.full(100, -3e38, np.float32)), Tensor(np.full(100, 2e38**0.5, np.float32)))
    np.testing.assert_allclose(got[0].asnumpy(), np.full(100, 1e38), rtol=1e-5)
    assert np.isinf(got[1].asnumpy()).all()


def test_differences_of_computed_values_round_twice() -> None:
    """a * d - b * c of equal products must stay zero."""
    before = kernel(load(0), load(1), op(Mul(), 0, 1), op(Sub(), 0, 2), stores=(3,))
    assert contract(before) is before


def test_a_number_minus_a_product_is_contracted() -> None:
    one = Statement(Splat(1.0, float32), (), float32, 0, 0)
    done = contract(kernel(load(0), one, op(Mul(), 0, 0), op(Sub(), 1, 2), stores=(3,)))
    assert done.body[2].what == MulAdd(negated=True) and done.body[2].args == (0, 0, 1)


def test_integers_are_left_alone() -> None:
    before = kernel(load(0, int32), load(1, int32), op(Mul(), 0, 1, dtype=int32), op(Add(), 0, 2, dtype=int32), stores=(3,))
    assert contract(before) is before


def test_sums_of_products_take_the_factors() -> None:
    total = Statement(ReduceSum((0,), False), (2,), float32, 0, 1)
    done = contract(kernel(load(0), load(1), op(Mul(), 0, 1), total, stores=(3,)))
    assert kinds(done) == ["Load", "Load", "ReduceSum"] and done.body[2].args == (0, 1)


@pytest.fixture(autouse=True)
def _graph_mode() -> Any:
    before = graphcell.get_context("mode")
    graphcell.set_context(mode=graphcell.GRAPH_MODE)
    yield
    graphcell.set_context(mode=before)


@pytest.mark.parametrize("n", [1, 7, 16, 100, 333])
def test_contracted_sums_round_once(n: int) -> None:
    rng = np.random.default_rng(n)
    x, y, z = (rng.standard_normal(n).astype(np.float32) for _ in range(3))
    got = graphcell.jit(lambda x, y, z: x * y + z)(Tensor(x), Tensor(y), Tensor(z)).asnumpy()
    for a, b, c, g in zip(x.tolist(), y.tolist(), z.tolist(), got.tolist(), strict=True):
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        near = [np.nextafter(np.float32(g), np.float32(s), dtype=np.float32) for s in (-np.inf, np.inf)]
        assert all(abs(Fraction(g) - exact) <= abs(Fraction(float(v)) - exact) for v in near)


@pytest.mark.parametrize("shape", [(3, 5), (4, 33), (2, 1024), (7, 250)])
def test_sums_of_products_in_rows(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    got = graphcell.jit(lambda x, y: (x * y).sum(axis=1))(Tensor(x), Tensor(y)).asnumpy()
    wide = x.astype(np.float64) * y
    np.testing.assert_array_less(np.abs(got - wide.sum(1)), 1e-6 * np.abs(wide).sum(1))


@pytest.mark.parametrize("mean", [0.0, 1e3, 1e5])
def test_layer_norm_with_a_large_mean(mean: float) -> None:
    """Its variance is that of differences from the mean; float64 of the same float32 data is the reference."""
    x = (np.random.default_rng(1).standard_normal((5, 1000)) + mean).astype(np.float32)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    want = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    one, zero = Tensor(np.ones(1000, np.float32)), Tensor(np.zeros(1000, np.float32))
    got = graphcell.jit(lambda x: ops.layer_norm(x, (1000,), one, zero, 1e-5))(Tensor(x)).asnumpy()
    assert np.max(np.abs(got - want)) <= 2e-6 + 4 * mean * 2.0**-24
