"""Steps on the rows of a table that were used, against dense ones in numpy: many updates of one row, all dtypes, several indices, threads,
rates that are not finite; and training steps that should hold one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import dtype as dt
from graphcell import nn, ops
from graphcell.ir.op import Array
from graphcell.ir.types import TensorType
from graphcell.ops.dispatch import apply1
from graphcell.ops.indexing import ScatterStep, places
from graphcell.runtime.executable import compile_graph
from graphcell.tensor import Tensor
from tests.helpers import trace
from tests.passes.cases import same_bits

FLOATS = [d for d in dt.ALL if d.is_float]


def dense(x: Array, indices: list[Array], updates: Array, rate: Array) -> Array:
    """x + rate * (updates added up in zeros), along the first dimensions, one update after another."""
    total = np.zeros(x.shape, np.float64 if x.dtype == np.float64 else np.float32)
    rows = [places(i.reshape(-1), n) for i, n in zip(indices, x.shape, strict=False)]
    for number, update in enumerate(updates.reshape(-1, *x.shape[len(indices) :])):
        total[tuple(r[number] for r in rows)] += update.astype(total.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(x.astype(total.dtype) + rate.astype(total.dtype) * total).astype(x.dtype)


def run(axes: tuple[int, ...], *arrays: Array) -> Array:
    graph = trace(lambda *xs: apply1(ScatterStep(axes), *xs), *(TensorType(dt.from_numpy(a.dtype), a.shape) for a in arrays))
    executable = compile_graph(graph)
    assert not executable.compilation.program.host_calls
    return executable([Tensor(a) for a in arrays])[0].asnumpy()


@pytest.mark.parametrize("width", ["16", "32", ""])
@pytest.mark.parametrize("columns", [(1,), (7,), (16,), (100,), (3, 21), (2, 1)])
def test_equals_a_dense_step(columns: tuple[int, ...], width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCELL_VECTOR_BYTES", width)
    rng = np.random.default_rng(5)
    for shape in ((40,), (5, 6), (0,)):
        x, updates = (rng.standard_normal(s).astype(np.float32) for s in ((60, *columns), (*shape, *columns)))
        index = rng.integers(-70, 70, shape).astype(np.int32) % 9 - 4  # many updates of one row
        rate = np.array(-0.3, np.float32)
        assert same_bits(run((0,), x, index, updates, rate), dense(x, [index], updates, rate))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("index_dtype", ["int64", "uint8", "int16"])
def test_dtypes(dtype: dt.DType, index_dtype: str) -> None:
    rng = np.random.default_rng(6)
    x, updates, rate = (rng.standard_normal(s).astype(dtype.np_type) for s in ((300, 33), (50, 33), ()))
    index = rng.integers(0, 20, 50).astype(index_dtype)
    assert same_bits(run((0,), x, index, updates, rate), dense(x, [index], updates, rate))


def test_several_indices_and_inner_dimensions() -> None:
    rng = np.random.default_rng(7)
    x, updates, rate = (rng.standard_normal(s).astype(np.float32) for s in ((8, 9, 20), (30, 20), ()))
    i, j = (rng.integers(-99, 99, 30) for _ in range(2))
    assert same_bits(run((0, 1), x, i, j, updates, rate), dense(x, [i, j], updates, rate))
    inner = run((1,), x, j, np.ascontiguousarray(np.broadcast_to(updates, (8, 30, 20))), rate)
    assert same_bits(inner, np.stack([dense(row, [j], updates, rate) for row in x]))


@pytest.mark.parametrize("rate", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("updates", [0, 1, 30])
def test_rates_that_are_not_finite_reach_all_rows(rate: float, updates: int) -> None:
    rng = np.random.default_rng(8)
    x, g = (rng.standard_normal(s).astype(np.float32) for s in ((70, 37), (updates, 37)))
    index = rng.integers(0, 9, updates)
    got = run((0,), x, index, g, np.array(rate, np.float32))
    np.testing.assert_array_equal(got, dense(x, [index], g, np.array(rate, np.float32)))
    assert np.isnan(got[10:]).all()


def test_threads_share_wide_rows_and_keep_their_bits() -> None:
    rng = np.random.default_rng(9)
    x, updates, rate = (rng.standard_normal(s).astype(np.float32) for s in ((2000, 700), (400, 700), ()))
    index = rng.integers(0, 50, 400)
    assert same_bits(run((0,), x, index, updates, rate), dense(x, [index], updates, rate))


class Pairs(nn.Cell):
    """Products of rows of a table; `two`: the table is read in two places."""

    def __init__(self, two: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(500, 12)
        self.other = self.table if two else nn.Embedding(300, 12)

    def construct(self, i: Tensor, j: Tensor) -> Tensor:
        return ops.sigmoid((self.table(i).expand_dims(1) * self.other(j)).sum(2)).mean()


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize("rate", [0.5, "falling"])
def test_training_with_sgd(two: bool, rate: Any) -> None:
    def train(mode: int) -> tuple[list[float], list[Array], Any]:
        ms.set_context(mode=mode)
        ms.set_seed(1)
        net = Pairs(two)
        optimizer = nn.SGD(net.trainable_params(), nn.exponential_decay_lr(0.5, 0.8, 4, 1, 1) if rate == "falling" else rate)
        loss_and_grads = ms.value_and_grad(net, None, optimizer.parameters)

        def update(i: Tensor, j: Tensor) -> Tensor:
            loss, grads = loss_and_grads(i, j)
            return ops.depend(loss, optimizer(grads))

        step = ms.jit(update) if mode == ms.GRAPH_MODE else update
        rng = np.random.default_rng(0)
        data = [(Tensor(rng.integers(0, 90, 20), ms.int32), Tensor(rng.integers(0, 90, (20, 3)), ms.int32)) for _ in range(4)]
        losses = [float(step(*pair)) for pair in data]
        return losses, [p.asnumpy() for p in net.get_parameters()], step

    losses, parameters, step = train(ms.GRAPH_MODE)
    assert step.kernels().count("\nscatter step (") == (1 if two else 2)
    want_losses, want, _ = train(ms.PYNATIVE_MODE)
    np.testing.assert_allclose(losses, want_losses, rtol=1e-6)
    for a, b in zip(parameters, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
