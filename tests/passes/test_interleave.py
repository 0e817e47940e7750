"""Interleaved values computed part by part: the same numbers and gradients as numpy in float64, in one loop nest where that is possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, ops
from graphcell import dtype as dt
from graphcell.ir.types import TensorType
from graphcell.ops.contraction import MatMul
from graphcell.ops.movement import Concat, Slice
from graphcell.passes.interleave import interleave
from graphcell.passes.pipeline import run_pipeline
from tests.helpers import trace

RNG = np.random.default_rng(8)


def stack(parts: Any, m: Any) -> Any:
    return np.stack(parts, -1) if m is np else ops.stack(parts, axis=-1)


def maximum(x: Any, y: Any, m: Any) -> Any:
    return m.maximum(x, y)


def turned(x: Any, y: Any, m: Any) -> Any:
    """Pairs turned by 90 degrees, as rotary embeddings do it."""
    return stack((-x[..., 1::2], x[..., ::2]), m).reshape(x.shape) * y + x * 3.0


def multiplied(x: Any, y: Any, m: Any) -> Any:
    """Complex numbers as pairs."""
    (a, b), (c, d) = ((z[..., 0], z[..., 1]) for z in (x.reshape(6, 5, 16, 2), y.reshape(6, 5, 16, 2)))
    return stack((a * c - b * d, a * d + b * c), m)


def three(x: Any, y: Any, m: Any) -> Any:
    parts = [x.reshape(-1, 3)[:, k] for k in range(3)]
    top = maximum(maximum(parts[0], parts[1], m), parts[2], m)
    return stack([p * top for p in parts], m) * y.reshape(-1, 3)


def of_length_one(x: Any, y: Any, m: Any) -> Any:
    """Vectors by columns, divided by their lengths, which are sums of rows."""
    v, w = x.reshape(-1, 3), y.reshape(-1, 3)
    a, b, c = (v[:, k] / m.sqrt((v * v).sum(-1) + 0.1) for k in range(3))
    return stack((a + w[:, 1], b * w[:, 2], c - (w + 2.0 * v).sum(-1)), m)


def four_with_a_number(x: Any, y: Any, m: Any) -> Any:
    a, b = x.reshape(-1), y.reshape(-1)
    return stack((a, b, m.ones_like(a), a * b), m) * 2.0


def summed(x: Any, y: Any, m: Any) -> Any:
    return (stack((x, y * 2.0), m).reshape(6, -1) * 0.5).sum(-1)


def largest(x: Any, y: Any, m: Any) -> Any:
    return m.maximum(stack((x, y), m) * 0.5, 0.1).sum(0)


def taken_again(x: Any, y: Any, m: Any) -> Any:
    whole = stack((x * y, x + y), m).reshape(6, 5, -1) * 2.0
    return whole[..., ::2] - whole[..., 1::2]


CASES: dict[str, tuple[Callable[..., Any], int | None]] = {
    "pairs turned": (turned, 1),
    "complex numbers": (multiplied, 1),
    "three columns": (three, 1),
    "vectors of length one": (of_length_one, 1),
    "a number in turn": (four_with_a_number, None),
    "sums along the turns": (summed, 1),
    "extrema": (largest, None),
    "parts taken out again": (taken_again, 1),
}
SHAPE = (6, 5, 33)
SHAPES = {"pairs turned": (6, 5, 34), "complex numbers": (6, 5, 32)}
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 6e-3}


def loss(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: (f(x, y, ops) ** 2).sum()


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", CASES)
def test_numbers(name: str, dtype: str) -> None:
    f, _ = CASES[name]
    x, y = (RNG.uniform(-1, 1, SHAPES.get(name, SHAPE)).astype(dtype) for _ in range(2))
    got = ms.jit(lambda x, y: f(x, y, ops))(Tensor(x), Tensor(y)).asnumpy()
    np.testing.assert_allclose(got, f(x.astype(np.float64), y.astype(np.float64), np), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    """Beside central differences of numpy's results in float64."""
    f, _ = CASES[name]
    x, y, along_x, along_y = (RNG.uniform(-1, 1, SHAPES.get(name, SHAPE)) for _ in range(4))

    def at(step: float) -> float:
        return float((f(x + step * along_x, y + step * along_y, np) ** 2).sum())

    dx, dy = ms.jit(ms.grad(loss(f), (0, 1)))(Tensor(x), Tensor(y))
    want = (at(1e-5) - at(-1e-5)) / 2e-5
    assert (dx.asnumpy() * along_x).sum() + (dy.asnumpy() * along_y).sum() == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize("name", [name for name, (_, kernels) in CASES.items() if kernels])
def test_one_loop_nest(name: str) -> None:
    """Gradients included, but for the second step of sums."""
    f, kernels = CASES[name]
    types = [TensorType(dt.float32, SHAPES.get(name, SHAPE))] * 2
    x, y = (Tensor(RNG.uniform(-1, 1, t.shape).astype(np.float32)) for t in types)
    g = ms.jit(lambda x, y: f(x, y, ops))
    g(x, y)
    assert g.kernels().count("loops (") == kernels
    h = ms.jit(ms.grad(loss(f), (0, 1)))
    h(x, y)
    assert h.kernels().count("loops (") <= 3


@pytest.mark.parametrize("activation", [lambda x: x, ops.relu], ids=["product", "relu"])
def test_products_keep_what_ends_them(activation: Callable[..., Any]) -> None:
    """What is multiplied with an interleaved value is no slice of a product, which would have to be written first."""

    def f(x: Any, w: Any, a: Any, b: Any) -> Any:
        return activation(ops.matmul(x, w)) * ops.stack((a, b), axis=-1).reshape(20, 40)

    graph = interleave(run_pipeline(trace(f, *(TensorType(dt.float32, s) for s in ((20, 30), (30, 40), (20, 20), (20, 20)))))[0])
    product = next(n for n in graph.nodes if isinstance(n.op, MatMul))
    assert any(isinstance(n.op, Concat) for n in graph.nodes)
    assert not any(isinstance(n.op, Slice) and product.results[0] in n.operands for n in graph.nodes)


def test_small_tensors_are_left_alone() -> None:
    def f(a: Any, b: Any) -> Any:
        return ops.stack((a, b), axis=-1) * 2.0

    graph = trace(f, *[TensorType(dt.float32, (5,))] * 2)
    assert interleave(graph) is graph


def test_gradients_of_slices_that_overlap_keep_their_order() -> None:
    """(x + a) + b is x + (a + b) only where each element is 0 in a or in b."""

    def f(x: Any) -> Any:
        return ((x * 3.0).sum() + (x[..., ::2] * 5.0).sum() + (x[..., ::2] * 7.0).sum()).sum()

    x = RNG.standard_normal((20, 40)).astype(np.float32)
    got = ms.jit(ms.grad(f))(Tensor(x)).asnumpy()
    want = np.full((20, 40), 3.0)
    want[:, ::2] += 12.0
    np.testing.assert_array_equal(got, want)
