"""How many registers a vector of a loop nest fills: by its functions, and with AVX-512 by the longest chain of instructions."""

from __future__ import annotations

import math
from typing import Any

import mpmath as mp  # type: ignore[import-untyped]
import numpy as np
import pytest

import graphcell as ms
from graphcell import ops
from graphcell.codegen.llvm.widths import lanes_of, registers_of
from tests.codegen.plans import TARGETS
from tests.codegen.test_loop_shapes import Function, check, graph_of, kernels, normal


@pytest.mark.skipif(32 not in TARGETS, reason="needs AVX2")
@pytest.mark.parametrize(("columns", "registers"), [(256, 4), (1000, 4), (48, 2), (40, 1)])
def test_long_functions_are_computed_on_several_registers(columns: int, registers: int) -> None:
    (kernel,) = kernels(graph_of(lambda x: ops.tanh(x).sum(1), [normal(9, columns)]))
    assert registers_of(kernel, TARGETS[32]) == registers
    assert lanes_of(kernel, TARGETS[32]) == 8 * registers


@pytest.mark.skipif(32 not in TARGETS, reason="needs AVX2")
@pytest.mark.parametrize(
    ("function", "exact"),
    [(ops.lgamma, mp.loggamma), (ops.digamma, mp.digamma), (lambda x: x**x + x ** (x - 1), lambda x: x**x + x ** (x - 1))],
    ids=["lgamma", "digamma", "powers"],
)
def test_the_longest_functions_of_floats_take_half_as_many(function: Any, exact: Any) -> None:
    for dtype, registers in ((np.float32, 2), (np.float64, 4)):
        x = abs(normal(9, 256)).astype(dtype) + dtype(0.5)
        fn = lambda x: function(x).sum(1) + ops.exp(x).sum(1)  # noqa: E731
        (kernel,) = kernels(graph_of(fn, [x]))
        assert registers_of(kernel, TARGETS[32]) == registers
        wide = x.astype(np.float64)
        with mp.workdps(30):
            slow = np.vectorize(lambda v: float(exact(mp.mpf(v))))(wide)
        check(fn, [x], slow.sum(1) + np.exp(wide).sum(1), 1e-5)


@pytest.mark.skipif(32 not in TARGETS, reason="needs AVX2")
def test_a_power_alone_takes_as_many_as_other_functions_and_one_of_integers_one() -> None:
    for x, registers in ((abs(normal(9, 256)).astype(np.float32), 4), (np.ones((9, 256), np.int32), 1)):
        (kernel,) = kernels(graph_of(lambda x: (x**x).sum(1), [x]))
        assert any(s.is_slow for s in kernel.body) and registers_of(kernel, TARGETS[32]) == registers


@pytest.mark.skipif(64 not in TARGETS, reason="needs AVX-512")
def test_functions_that_look_tables_up_keep_to_one_register() -> None:
    for dtype, registers in ((np.float32, 1), (np.float64, 4)):
        (kernel,) = kernels(graph_of(lambda x: ops.tanh(x).sum(1), [normal(9, 256).astype(dtype)]))
        assert registers_of(kernel, TARGETS[64]) == registers


def _again(function: Any, x: Any, times: int) -> Any:
    for _ in range(times):
        x = function(x)
    return x


def _quotient(x: Any) -> Any:
    return 1.0 / (x + 1.5)


CHAINS: dict[str, tuple[Any, Any, int]] = {
    "short": (ops.tanh, np.tanh, 1),
    "chain": (lambda x: _again(ops.tanh, x, 2), lambda x: _again(np.tanh, x, 2), 2),
    "long": (lambda x: _again(ops.tanh, x, 4), lambda x: _again(np.tanh, x, 4), 4),
    "quotients": (lambda x: _again(_quotient, x, 3), lambda x: _again(_quotient, x, 3), 1),
    "more quotients": (lambda x: _again(_quotient, x, 6), lambda x: _again(_quotient, x, 6), 4),
    "most quotients": (lambda x: _again(_quotient, x, 12), lambda x: _again(_quotient, x, 12), 4),
    "long function": (lambda x: ops.sin(ops.tanh(x)), lambda x: np.sin(np.tanh(x)), 4),
    "two of them": (lambda x: ops.sin(ops.sin(x)), lambda x: np.sin(np.sin(x)), 4),
    "side by side": (lambda x: ops.tanh(x) + ops.exp(x), lambda x: np.tanh(x) + np.exp(x), 1),
    "longest": (lambda x: ops.lgamma(_again(ops.tanh, x, 4) + 2.0), lambda x: np.vectorize(math.lgamma)(_again(np.tanh, x, 4) + 2.0), 2),
}
"""Functions of floats, the same in numpy, and the registers of a vector with AVX-512."""


@pytest.mark.skipif(64 not in TARGETS, reason="needs AVX-512")
@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("columns", [1024, 1000])
def test_long_chains_of_floats_are_computed_on_several_registers(name: str, columns: int) -> None:
    fn, exact, registers = CHAINS[name]
    x = abs(normal(9, columns)) + np.float32(0.25)
    (kernel,) = kernels(graph_of(fn, [x]))
    assert registers_of(kernel, TARGETS[64]) == registers
    check(fn, [x], exact(x.astype(np.float64)), 1e-5)


@pytest.mark.skipif(64 not in TARGETS, reason="needs AVX-512")
def test_what_counts_as_a_chain() -> None:
    def registers(fn: Any, *arrays: Any) -> list[int]:
        return [registers_of(k, TARGETS[64]) for k in kernels(graph_of(fn, list(arrays)))]

    x, half = abs(normal(9, 1024)) + np.float32(0.25), abs(normal(9, 1024)).astype(np.float16) + np.float16(0.25)
    steps = lambda x: _again(lambda y: y * 0.9 + x, x, 5)  # noqa: E731
    assert registers(steps, x) == [1] and registers(steps, half) == [2]
    assert registers(lambda x: x**x * x + x, x) == [4] and registers(lambda x: ops.tanh(ops.cos(x)) * ops.tan(x), x) == [4]
    assert registers(lambda x: ops.tanh(x).astype(ms.float64) * 2.0, x) == [4]  # doubles are polynomials
    uniform = lambda x: x * _again(ops.tanh, x.sum(1, keepdims=True) * 1e-3, 4)  # noqa: E731
    assert registers(uniform, x) == [1]  # once a row
    largest = lambda x: _again(lambda y: (y * 0.9 + x).max(axis=1, keepdims=True) * x, x, 8)  # noqa: E731
    assert set(registers(largest, x)) == {1}


@pytest.mark.skipif(64 not in TARGETS, reason="needs AVX-512")
@pytest.mark.parametrize(("times", "registers"), [(3, 2), (4, 4)])
def test_columns_that_are_added_up_beside_rows_take_registers(times: int, registers: int) -> None:
    """Rows that are normed, a chain, and sums of its columns: of the longest chains alone on four."""

    def fn(x: Any) -> Any:
        y = _again(ops.tanh, x - x.mean(1, keep_dims=True), times)
        return y * y.sum(1, keepdims=True), y.sum(0)

    x = normal(4096, 1024)
    kernel = next(k for k in kernels(graph_of(fn, [x])) if k.summed)
    assert kernel.stages > 2 and registers_of(kernel, TARGETS[64]) == registers
    y = _again(np.tanh, x.astype(np.float64) - x.mean(1, keepdims=True, dtype=np.float64), times)
    check(fn, [x], (y * y.sum(1, keepdims=True), y.sum(0)), 1e-4)


@pytest.mark.skipif(64 not in TARGETS, reason="needs AVX-512")
@pytest.mark.parametrize(("times", "registers"), [(1, 1), (3, 2), (4, 4)])
def test_kernels_of_many_stages_take_four_for_the_longest_chains_alone(times: int, registers: int) -> None:
    """A norm of rows, a chain, and a sum of what it gives."""

    def fn(x: Any) -> Any:
        centred = x - x.mean(1, keep_dims=True)
        y = _again(ops.tanh, centred * ops.rsqrt(ops.square(centred).mean(1, keep_dims=True) + 1.0), times)
        return y * y.sum(1, keepdims=True)

    x = normal(9, 1024)
    (kernel,) = kernels(graph_of(fn, [x]))
    assert kernel.stages == 4 and not kernel.summed and registers_of(kernel, TARGETS[64]) == registers
    wide = x.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    y = _again(np.tanh, centred / np.sqrt(np.square(centred).mean(1, keepdims=True) + 1.0), times)
    check(fn, [x], y * y.sum(1, keepdims=True), 1e-4)


@pytest.mark.skipif(64 not in TARGETS, reason="needs AVX-512")
@pytest.mark.parametrize(("count", "registers"), [(16, 4), (28, 2)])
def test_values_that_wait_take_registers(count: int, registers: int) -> None:
    """Each of `count` values is needed with the one that comes as late as it was early."""

    def fn(x: Any) -> Any:
        ys = [ops.exp(x * (0.01 * k)) for k in range(count)]
        return sum(ys[k] * ys[-1 - k] for k in range(count // 2))

    x = normal(9, 1024).astype(np.float64)
    (kernel,) = kernels(graph_of(fn, [x]))
    assert registers_of(kernel, TARGETS[64]) == registers
    check(fn, [x], count // 2 * np.exp(x * (0.01 * (count - 1))), 1e-12)


@pytest.mark.skipif(64 not in TARGETS, reason="needs AVX-512")
def test_what_waits_for_a_reduction_begins_another_chain() -> None:
    fn = lambda x: ops.tanh(x - ops.tanh(ops.tanh(x)).sum(1, keepdims=True) * 1e-3)  # noqa: E731
    (kernel,) = kernels(graph_of(fn, [normal(9, 1024)]))
    assert kernel.stages > 1 and registers_of(kernel, TARGETS[64]) == 2
    halves = lambda x: ops.tanh(ops.tanh(x).sum(1, keepdims=True) * 1e-3 + x)  # noqa: E731
    (kernel,) = kernels(graph_of(halves, [normal(9, 1024)]))
    assert kernel.stages > 1 and registers_of(kernel, TARGETS[64]) == 1


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x * 2.0 + x.sum(1, keepdims=True),  # nothing to wait for
        lambda x: ops.exp(x.transpose(1, 0)),  # squares of registers are transposed
        lambda x: ops.exp(x[:, ::2]),
    ],
    ids=["light", "transposed", "steps"],
)
def test_other_kernels_keep_to_one_register(fn: Function) -> None:
    for kernel in kernels(graph_of(fn, [normal(64, 256)])):
        assert all(registers_of(kernel, target) == 1 for target in TARGETS.values())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("columns", [31, 33, 64, 129, 1000])
def test_functions_of_rows_of_any_length(columns: int, dtype: Any) -> None:
    x = normal(5, columns).astype(dtype)
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(1, keepdims=True))
    tolerance = 2e-3 if dtype == np.float16 else 1e-6
    check(lambda x: ops.softmax(x, 1), [x], e / e.sum(1, keepdims=True), tolerance)
    check(lambda x: ops.tanh(x) / (1 + ops.exp(x)), [x], np.tanh(wide) / (1 + np.exp(wide)), tolerance)
    check(lambda x: ops.exp(x).mean(0), [x], np.exp(wide).mean(0), 5e-3 if dtype == np.float16 else 1e-5)
