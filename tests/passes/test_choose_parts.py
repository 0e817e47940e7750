"""Concatenations of quickly computed parts are computed where they are read, beside numpy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import ops
from graphcell.ir.graph import Graph
from graphcell.ir.types import TensorType
from graphcell.passes.autodiff import vjp
from graphcell.passes.pipeline import run_pipeline
from graphcell.runtime.executable import compile_graph
from tests.helpers import run, trace

RNG = np.random.default_rng(11)


def rotated(x: Any, cos: Any, sin: Any) -> Any:
    a, b = ops.chunk(x, 2, -1)
    return x * cos + ops.cat((-b, a), -1) * sin


def rotated_in_numpy(x: Any, cos: Any, sin: Any) -> Any:
    a, b = np.split(x, 2, -1)
    return x * cos + np.concatenate((-b, a), -1) * sin


def turned(x: Any, cos: Any, sin: Any) -> Any:
    """The same, pair by pair."""
    a, b = ops.chunk(x, 2, -1)
    n = a.shape[-1]
    return ops.cat((a * cos[:, :n] - b * sin[:, :n], b * cos[:, n:] + a * sin[:, n:]), -1) + 1.0


def turned_in_numpy(x: Any, cos: Any, sin: Any) -> Any:
    (a, b), n = np.split(x, 2, -1), x.shape[-1] // 2
    return np.concatenate((a * cos[:, :n] - b * sin[:, :n], b * cos[:, n:] + a * sin[:, n:]), -1) + 1.0


def three(x: Any, cos: Any, sin: Any) -> Any:
    """Parts of several lengths, one of them as it is, one of a number a row."""
    return ops.cat((x[..., 20:] * 2.0, sin[None, None, :, :17].broadcast_to((*x.shape[:-1], 17)) / x[..., :1], x[..., :20]), -1) * 3.0


def three_in_numpy(x: Any, cos: Any, sin: Any) -> Any:
    return np.concatenate((x[..., 20:] * 2.0, np.broadcast_to(sin[:, :17], (*x.shape[:-1], 17)) / x[..., :1], x[..., :20]), -1) * 3.0


def squares(x: Any, cos: Any, sin: Any) -> Any:
    """Of which one operand is taken twice."""
    y = -x[..., 20:]
    z = y * y
    return ops.cat((z * z, x[..., :20]), -1) * 3.0


def squares_in_numpy(x: Any, cos: Any, sin: Any) -> Any:
    return np.concatenate((x[..., 20:] ** 4, x[..., :20]), -1) * 3.0


FUNCTIONS = [(rotated, rotated_in_numpy), (turned, turned_in_numpy), (three, three_in_numpy), (squares, squares_in_numpy)]


def arrays(columns: int, dtype: Any) -> list[Any]:
    return [RNG.standard_normal(shape).astype(dtype) for shape in ((2, 3, 7, columns), (7, columns), (7, columns))]


def concatenations(graph: Graph) -> int:
    return sum(n.op.name == "concat" for n in run_pipeline(graph)[0].walk())


def graph_of(fn: Callable[..., Any], xs: list[Any]) -> Graph:
    return trace(fn, *(TensorType(ms.Tensor(x).dtype, x.shape) for x in xs))


@pytest.mark.parametrize(("fn", "of_numpy"), FUNCTIONS)
@pytest.mark.parametrize("columns", [40, 64, 130])
@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 2e-6), (np.float64, 1e-14)])
def test_values(fn: Any, of_numpy: Any, columns: int, dtype: Any, error: float) -> None:
    xs = arrays(columns, dtype)
    graph = graph_of(fn, xs)
    assert concatenations(graph) == 0
    want = of_numpy(*(x.astype(np.float64) for x in xs))
    for got in (run(run_pipeline(graph)[0], *xs)[0], ms.jit(fn)(*map(ms.Tensor, xs)).asnumpy()):
        np.testing.assert_allclose(got, want, rtol=error, atol=10 * error)


@pytest.mark.parametrize(("fn", "of_numpy"), FUNCTIONS)
def test_gradients(fn: Any, of_numpy: Any) -> None:
    """Against differences of numpy's values."""
    xs = arrays(48, np.float64)
    along = RNG.standard_normal(of_numpy(*xs).shape)
    got = ms.jit(ms.grad(lambda *xs: (fn(*xs) * ms.Tensor(along)).sum(), 0))(*map(ms.Tensor, xs)).asnumpy()
    step = RNG.standard_normal(xs[0].shape)
    want = sum(sign * (of_numpy(xs[0] + sign * 1e-6 * step, *xs[1:]) * along).sum() for sign in (1, -1)) / 2e-6
    np.testing.assert_allclose((got * step).sum(), want, rtol=1e-6)


def test_a_rotation_is_one_loop() -> None:
    executable = compile_graph(graph_of(rotated, arrays(64, np.float32)))
    assert [step.title for step in executable.compilation.program.steps] == ["loops0"]


def test_its_gradient_reads_memory_once() -> None:
    graph = vjp(graph_of(rotated, arrays(64, np.float32)), [0])
    assert len(compile_graph(graph).compilation.program.steps) <= 2  # the rotation, and that of its gradient


def doubled(x: Any, cos: Any, sin: Any) -> Any:
    a, b = ops.chunk(x, 2, -1)
    return ops.cat((-b, a), -1)


OTHERS: dict[str, Callable[..., Any]] = {
    "an output": doubled,
    "before a product": lambda x, cos, sin: ops.matmul(doubled(x, cos, sin), ops.swapaxes(cos, 0, 1)),
    "slow to compute": lambda x, cos, sin: ops.cat((ops.erfinv(x[..., 20:]), x[..., :20]), -1) * 2.0,
    "needed elsewhere": lambda x, cos, sin: (ops.cat((y := -x, y), -1) * 2.0, y),
    "computed by a loop that need not write it": lambda x, cos, sin: ops.cat((-(x * 2.0).exp(), x), -1) * 2.0,
    "short": lambda x, cos, sin: ops.cat((-x[..., 12:24], x[..., :12]), -1) * 2.0,
    "along columns": lambda x, cos, sin: ops.cat((-x[:, 1:], x[:, :1]), 1) * 2.0,
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_put_together(name: str) -> None:
    assert concatenations(graph_of(OTHERS[name], arrays(64, np.float32))) == 1


def test_of_one_within_another_the_inner_is_chosen() -> None:
    """Parts that are chosen lie nowhere in memory, from which others could be read."""

    def within(x: Any, cos: Any, sin: Any) -> Any:
        inner = ops.cat((-x, x), -1)
        return ops.cat((inner * 2.0, -inner, x), -1) * 3.0

    xs = arrays(64, np.float32)
    inner = np.concatenate((-xs[0], xs[0]), -1)
    assert concatenations(graph_of(within, xs)) == 1
    np.testing.assert_array_equal(ms.jit(within)(*map(ms.Tensor, xs)).asnumpy(), np.concatenate((inner * 2, -inner, xs[0]), -1) * 3)


@pytest.mark.parametrize("dtype", [ms.float16, ms.bfloat16])
def test_half_precision_is_put_together(dtype: Any) -> None:
    xs = [ms.Tensor(x).astype(dtype) for x in arrays(64, np.float32)]
    graph = trace(rotated, *(TensorType(x.dtype, x.shape) for x in xs))
    assert concatenations(graph) == 1
    wide = [x.astype(ms.float64).asnumpy() for x in xs]
    np.testing.assert_allclose(ms.jit(rotated)(*xs).astype(ms.float64).asnumpy(), rotated_in_numpy(*wide), rtol=2e-2, atol=5e-2)
