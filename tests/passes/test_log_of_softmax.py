"""Divergences from a softmax, which ask for its logarithm, and powers of a log softmax: in both modes and against double, where probabilities vanish, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import dtype as dt
from graphcell import ops
from graphcell.ir.graph import Graph
from graphcell.ir.types import TensorType
from graphcell.ops.mathematics import Exp, Log
from graphcell.passes.pipeline import run_pipeline
from graphcell.tensor import Tensor
from tests.helpers import trace

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(9)


def by_softmax(s: Tensor, t: Tensor) -> Tensor:
    return ops.kl_div(ops.log_softmax(s, -1), ops.softmax(t, -1), reduction="none")


def by_log_softmax(s: Tensor, t: Tensor) -> Tensor:
    return ops.kl_div(ops.log_softmax(s, -1), ops.exp(ops.log_softmax(t, -1)), reduction="none")


def by_something_else(s: Tensor, t: Tensor) -> Tensor:
    return ops.kl_div(ops.log_softmax(s, -1), ops.exp(t) / ops.exp(t).sum(-1, keepdims=True), reduction="none")


def divergence(s: Array, t: Array) -> Array:
    s, t = (x.astype(np.float64) - x.max(-1, keepdims=True) for x in (s, t))
    p, q = (x - np.log(np.exp(x).sum(-1, keepdims=True)) for x in (t, s))
    return np.exp(p) * (p - q)


def logarithms(graph: Graph) -> list[int]:
    return sorted(n.results[0].type.size for n in run_pipeline(graph)[0].walk() if isinstance(n.op, Log))


@pytest.mark.parametrize("fn", [by_softmax, by_log_softmax, by_something_else])
@pytest.mark.parametrize("spread", [1.0, 60.0])
def test_values(fn: Callable[..., Tensor], spread: float) -> None:
    """With 60 some probabilities are zero in float32: their terms are zero."""
    s, t = (np.clip(RNG.standard_normal((40, 33)) * spread, -80, 80).astype(np.float32) for _ in range(2))
    want = divergence(s, t)
    got = ms.jit(fn)(Tensor(s), Tensor(t)).asnumpy()
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6 * spread)
    if spread > 1:
        assert (got[np.abs(want) < 1e-45] == 0).all() and (got == 0).any()


def test_only_rows_take_logarithms() -> None:
    types = [TensorType(dt.float32, (40, 33))] * 2
    assert logarithms(trace(by_softmax, *types)) == [40, 40]
    assert logarithms(trace(by_log_softmax, *types)) == [40, 40]
    assert max(logarithms(trace(by_something_else, *types))) == 40 * 33


def test_gradients() -> None:
    def loss(s: Tensor, t: Tensor) -> Any:
        return by_softmax(s, t).sum()

    s, t = (Tensor(RNG.standard_normal((6, 9)).astype(np.float32)) for _ in range(2))
    got = ms.jit(ms.grad(loss, (0,)))(s, t)
    want = ms.grad(loss, (0,))(s, t)
    np.testing.assert_allclose(*(np.asarray((g[0] if isinstance(g, tuple) else g).asnumpy()) for g in (got, want)), rtol=1e-5, atol=1e-6)


def entropy(x: Tensor) -> Tensor:
    p = ops.log_softmax(x, -1)
    return -(ops.exp(p) * p).sum(-1)


@pytest.mark.parametrize("spread", [1.0, 60.0])
def test_powers_of_a_log_softmax(spread: float) -> None:
    x = np.clip(RNG.standard_normal((40, 33)) * spread, -80, 80).astype(np.float32)
    wide = x.astype(np.float64) - x.max(-1, keepdims=True)
    log = wide - np.log(np.exp(wide).sum(-1, keepdims=True))
    got = ms.jit(lambda x: (ops.exp(ops.log_softmax(x, -1)), entropy(x)))(Tensor(x))
    np.testing.assert_allclose(got[0].asnumpy(), np.exp(log), rtol=5e-6, atol=1e-37)
    np.testing.assert_allclose(got[1].asnumpy(), -(np.exp(log) * log).sum(-1), rtol=1e-5, atol=1e-6)


def test_powers_of_a_log_softmax_of_what_is_not_finite() -> None:
    x = np.zeros((5, 33), np.float32)
    x[0, 3], x[1, 4], x[2], x[3, 5] = -np.inf, np.inf, -np.inf, np.nan
    got = ms.jit(lambda x: ops.exp(ops.log_softmax(x, -1)))(Tensor(x)).asnumpy()
    assert np.isnan(got[1:4]).all() and got[0, 3] == 0
    np.testing.assert_allclose(got[[0, 4]], [(np.arange(33) != 3) / 32, np.full(33, 1 / 33)], rtol=1e-6)


def below_the_largest_of_all(x: Tensor) -> Tensor:
    d = x - x.max()
    return ops.exp(d - ops.log(ops.exp(d).sum(-1, keepdims=True)))


def powers(dtype: dt.DType, fn: Callable[..., Tensor] = entropy) -> int:
    graph = run_pipeline(trace(fn, TensorType(dtype, (40, 33))))[0]
    return sum(isinstance(n.op, Exp) for n in graph.walk())


def test_each_number_has_one_power() -> None:
    """Half precision keeps its own: there an exponent is rounded before it is a power."""
    assert [powers(dtype) for dtype in (dt.float32, dt.float64, dt.float16, dt.bfloat16)] == [1, 1, 2, 2]


def test_the_maximum_must_be_that_of_the_row() -> None:
    """Another one may be so large that all powers of a row vanish, before they are summed, not those of the differences."""
    assert powers(dt.float32, below_the_largest_of_all) == 2
    x = np.zeros((2, 4), np.float32)
    x[1] = [-86.5, -86.75, -87, -87.125]
    got = ms.jit(below_the_largest_of_all)(Tensor(x)).asnumpy()
    wide = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(got, wide / wide.sum(1, keepdims=True), rtol=1e-4)
