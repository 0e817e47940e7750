"""Divergences from a softmax, which ask for its logarithm: in both modes and against double, where probabilities vanish, too."""

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
from graphcell.ops.mathematics import Log
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
