"""Elementwise kernels as epilogues of contractions: the same numbers as without, and what is not taken as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import graphcell as ms
from graphcell import Parameter, Tensor, nn, ops
from graphcell.codegen.llvm.target import host
from graphcell.codegen.lower import lower
from graphcell.ir.text import parse

Array = NDArray[Any]
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def graph_mode() -> Iterator[None]:
    before = ms.get_context("mode")
    ms.set_context(mode=ms.GRAPH_MODE)
    yield
    ms.set_context(mode=before)


def numbers(*shape: int) -> Array:
    return RNG.standard_normal(shape)


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[tuple[int, ...]]]] = {
    "constant and relu": (lambda a, b: ops.relu(ops.matmul(a, b) + 1.0), lambda a, b: np.maximum(a @ b + 1, 0), [(37, 19), (19, 53)]),
    "bias by column": (lambda a, b, c: ops.tanh(ops.matmul(a, b) + c), lambda a, b, c: np.tanh(a @ b + c), [(33, 20), (20, 130), (130,)]),
    "bias by row": (lambda a, b, c: ops.matmul(a, b) * c, lambda a, b, c: (a @ b) * c, [(33, 20), (20, 48), (33, 1)]),
    "by batch": (lambda a, b, c: ops.matmul(a, b) * c, lambda a, b, c: (a @ b) * c, [(3, 8, 20), (3, 20, 32), (3, 1, 1)]),
    "by row and batch of a shared b": (lambda a, b, c: ops.matmul(a, b) - c, lambda a, b, c: a @ b - c, [(3, 8, 20), (20, 32), (3, 8, 1)]),
    "residual": (lambda a, b, c: ops.relu(ops.matmul(a, b) + c) + c, lambda a, b, c: np.maximum(a @ b + c, 0) + c, [(50, 30), (30, 17), (50, 17)]),
    "transposed residual": (lambda a, b, c: ops.matmul(a, b) + c.T, lambda a, b, c: a @ b + c.T, [(50, 30), (30, 17), (17, 50)]),
    "heads": (
        lambda a, b, c: (ops.matmul(a, b).reshape(6, 4, 16) * c).sum(axis=2), lambda a, b, c: ((a @ b).reshape(6, 4, 16) * c).sum(2), [(6, 5), (5, 64), (4, 1)],
    ),
    "two products": (lambda a, b, c: ops.matmul(a, b) + ops.matmul(a, c), lambda a, b, c: a @ b + a @ c, [(20, 30), (30, 40), (30, 40)]),
    "a long reduction": (lambda a, b, c: ops.relu(ops.matmul(a, b) + c), lambda a, b, c: np.maximum(a @ b + c, 0), [(300, 3000), (3000, 70), (70,)]),
    "a reduction in parts": (lambda a, b, c: ops.relu(ops.matmul(a, b) + c), lambda a, b, c: np.maximum(a @ b + c, 0), [(8, 9000), (9000, 16), (16,)]),
    "one row": (lambda a, b, c: ops.relu(ops.matmul(a, b) + c), lambda a, b, c: np.maximum(a @ b + c, 0), [(1, 300), (300, 70), (70,)]),
    "dot products": (lambda a, b, c: ops.relu(ops.matmul(a, b.T) + c), lambda a, b, c: np.maximum(a @ b.T + c, 0), [(1, 300), (70, 300), (70,)]),
    "few columns": (lambda a, b, c: ops.relu(ops.matmul(a, b) + c), lambda a, b, c: np.maximum(a @ b + c, 0), [(40, 300), (300, 3), (3,)]),
    "one column": (lambda a, b: ops.relu(ops.matmul(a, b) + 1.0), lambda a, b: np.maximum(a @ b + 1, 0), [(40, 30), (30, 1)]),
    "nothing to sum": (lambda a, b: ops.matmul(a, b) + 2.0, lambda a, b: a @ b + 2, [(4, 0), (0, 6)]),
    "no rows": (lambda a, b: ops.matmul(a, b) + 2.0, lambda a, b: a @ b + 2, [(0, 4), (4, 6)]),
    "part of the rows": (lambda a, b: ops.relu(ops.matmul(a, b)[:5]), lambda a, b: np.maximum((a @ b)[:5], 0), [(9, 4), (4, 16)]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_numbers(name: str, dtype: type) -> None:
    f, reference, shapes = CASES[name]
    arrays = [numbers(*s).astype(dtype) for s in shapes]
    got = ms.jit(lambda *x: f(*x))(*map(Tensor, arrays)).asnumpy()
    want = reference(*(x.astype(np.float64) for x in arrays))
    assert got.dtype == dtype and got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=0, atol=(2e-6 if dtype == np.float32 else 1e-13) * max(1, shapes[0][-1]) ** 0.5 * 8)


def test_several_results_of_one_epilogue() -> None:
    a, b, c = (numbers(*s).astype(np.float32) for s in ((33, 20), (20, 37), (37,)))

    @ms.jit
    def f(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        z = ops.matmul(a, b) + c
        return ops.relu(z), z > 0, z.astype(ms.int32), z

    z = a.astype(np.float64) @ b + c
    relu, positive, whole, same = (x.asnumpy() for x in f(Tensor(a), Tensor(b), Tensor(c)))
    np.testing.assert_allclose(same, z, atol=2e-5)
    assert np.array_equal(relu, np.maximum(same, 0)) and np.array_equal(positive, same > 0) and np.array_equal(whole, np.trunc(same))


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_half_precision_rounds_as_without(half: str) -> None:
    """The product is rounded to its dtype before the epilogue sees it."""
    dtype = getattr(ms, half)
    a, b, c = (Tensor(numbers(*s).astype(np.float32)).astype(dtype) for s in ((24, 20), (20, 48), (48,)))
    together = ms.jit(lambda a, b, c: ops.relu(ops.matmul(a, b) + c))(a, b, c)
    product = ms.jit(lambda a, b: ops.matmul(a, b))(a, b)
    apart = ms.jit(lambda p, c: ops.relu(p + c))(product, c)
    assert np.array_equal(together.astype(ms.float32).asnumpy(), apart.astype(ms.float32).asnumpy())


@pytest.mark.parametrize("channels", [5, 16, 20])
def test_convolution_batch_norm_relu_residual(channels: int) -> None:
    net = nn.SequentialCell([nn.Conv2d(channels, channels, 3, pad_mode="pad", padding=1), nn.BatchNorm2d(channels), nn.ReLU()])
    for p in net.get_parameters():
        p.set_data(Tensor(np.abs(numbers(*p.shape)).astype(np.float32)) if "variance" in p.name else Tensor(numbers(*p.shape).astype(np.float32)))
    net.set_train(False)
    x = Tensor(numbers(2, channels, 9, 11).astype(np.float32))
    got = ms.jit(lambda x: net(x) + x)(x).asnumpy()
    w, gamma, beta, mean, variance = (next(p for p in net.get_parameters() if p.name.endswith(n)).asnumpy().astype(np.float64)
                                      for n in ("weight", "gamma", "beta", "mean", "variance"))  # fmt: skip
    data = x.asnumpy().astype(np.float64)
    padded = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    y = np.einsum("nchwij,kcij->nkhw", windows, w)
    scale = gamma / np.sqrt(variance + 1e-5)
    want = np.maximum(y * scale[:, None, None] + (beta - mean * scale)[:, None, None], 0) + data
    np.testing.assert_allclose(got, want, atol=2e-4 * np.abs(want).max())


def test_an_update_in_place_of_what_the_product_reads() -> None:
    """w := relu(x w): the product must have read all of w before the first element is written."""
    start = numbers(48, 48).astype(np.float32)
    w = Parameter(Tensor(start.copy()), name="w")
    x = Tensor(numbers(48, 48).astype(np.float32))

    @ms.jit
    def step(x: Tensor) -> Tensor:
        ops.assign(w, ops.relu(ops.matmul(x, w) * 0.1))
        return x.sum()

    want = start.astype(np.float64)
    for _ in range(3):
        step(x)
        want = np.maximum(x.asnumpy().astype(np.float64) @ want * 0.1, 0)
    np.testing.assert_allclose(w.asnumpy(), want, atol=1e-4 * np.abs(want).max())


def test_a_gradient_step_in_place(k: int = 1500) -> None:
    """The weights are written while partial sums of their gradient still wait for the next pass."""
    start, x, g = (numbers(*s).astype(np.float32) for s in ((40, 64), (k, 40), (k, 64)))
    w = Parameter(Tensor(start.copy()), name="w")

    @ms.jit
    def step(x: Tensor, g: Tensor) -> Tensor:
        ops.assign(w, w - 0.01 * ops.matmul(x.T, g))
        return x.sum()

    step(Tensor(x), Tensor(g))
    want = start - 0.01 * (x.astype(np.float64).T @ g)
    np.testing.assert_allclose(w.asnumpy(), want, atol=1e-4)


GRAPH = """graph @f(%a: f32[64, 32], %b: f32[32, 48], %c: f32[64, 48]) {{
  %p = matmul[transpose_x=False, transpose_y=False] %a, %b
  %q = {} %p, %c
  {}
}}"""


@pytest.mark.parametrize(
    "op, rest, fused",
    [
        ("add", "return %q", True),
        ("add", "return %q, %p", False),  # the product is wanted itself
        ("add", "%r = matmul[transpose_x=False, transpose_y=True] %p, %c\n  return %q, %r", False),  # and read by another product
        ("add", "%r = reduce_sum[axis=(1,), keep_dims=False] %q\n  return %r", False),  # a reduction needs whole rows
    ],
)
def test_what_becomes_an_epilogue(op: str, rest: str, fused: bool) -> None:
    program = lower(parse(GRAPH.format(op, rest)), (), host())
    assert any("epilogue" in step.kernel for step in program.steps) == fused


def test_an_optimizer_is_no_epilogue() -> None:
    """Many arrays are faster in the order in which they lie in memory."""
    text = """graph @f(%a: f32[64, 32], %b: f32[32, 48], %m: f32[64, 48], %v: f32[64, 48], %w: f32[64, 48]) {
      %g = matmul[transpose_x=False, transpose_y=False] %a, %b
      %m1 = add %m, %g
      %g2 = mul %g, %g
      %v1 = add %v, %g2
      %d = div %m1, %v1
      %w1 = sub %w, %d
      return %w1, %m1, %v1
    }"""
    program = lower(parse(text), ((0, 4), (1, 2), (2, 3)), host())
    assert not any("epilogue" in step.kernel for step in program.steps)
