"""Halves that are only moved go as integers, bit by bit; narrow integers fill whole registers. Of all vector widths, on guarded memory, against numpy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell import ops
from graphcell.codegen.kernel import Access, Guard, Load, LoopKernel, Splat, Statement, Store
from graphcell.codegen.llvm.widths import lanes_of
from graphcell.codegen.moves import moved_as_bits
from tests.codegen.plans import TARGETS
from tests.codegen.test_guards import run_guarded
from tests.codegen.test_loop_shapes import check, graph_of, kernels

RNG = np.random.default_rng(7)
HALVES = [np.float16, ml_dtypes.bfloat16]
MOVES: dict[str, Any] = {
    "turned": (lambda x: x.swapaxes(0, 1).copy(), lambda x: x.T),
    "backwards": (lambda x: ops.flip(x, (1,)), lambda x: x[:, ::-1]),
    "together": (lambda x: ops.cat([x[:, 3:], x], -1), lambda x: np.concatenate([x[:, 3:], x], -1)),
    "rolled": (lambda x: ops.roll(x, 5, 1), lambda x: np.roll(x, 5, 1)),
    "padded": (lambda x: ops.pad(x, (3, 4, 1, 0), value=-2.5), lambda x: np.pad(x, ((1, 0), (3, 4)), constant_values=-2.5)),
    "gathered": (lambda x: x[ops.arange(40, -1, -3)], lambda x: x[40::-3]),
}


def any_numbers() -> np.ndarray[Any, Any]:
    """Of 16 bits, any patterns, some of them NaN with bits of their own."""
    return RNG.permutation(1 << 16)[: 41 * 331].astype(np.uint16).reshape(41, 331)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", MOVES)
def test_bits_of_halves_are_kept(name: str, dtype: Any) -> None:
    fn, of_numpy = MOVES[name]
    x = any_numbers().view(dtype)
    graph = graph_of(fn, [x])
    assert all(k.operands.count(dt.int16) >= 1 for k in kernels(graph))
    for target in TARGETS.values():
        for at_end in (True, False):
            (got,) = run_guarded(graph, [x], target, at_end)
            np.testing.assert_array_equal(got.view(np.uint16), of_numpy(x).view(np.uint16))


@pytest.mark.parametrize("dtype", HALVES)
def test_what_is_computed_with_stays(dtype: Any) -> None:
    x = RNG.standard_normal((9, 40)).astype(dtype)
    (kernel,) = kernels(graph_of(lambda x: ops.cat([x, x * 2.0], -1), [x]))[-1:]
    assert moved_as_bits(kernel) == kernel
    assert dt.int16 not in kernel.operands


def narrow(x: Any, y: Any) -> Any:
    return ops.maximum(x, y), ops.flip(x, (1,)), x[:, 1:] + y[:, :-1], x == y, (x > y).all(1), ops.where(x < y, y, x), x.max(1), -x


def narrow_in_numpy(x: Any, y: Any) -> list[Any]:
    where = np.where(x < y, y, x)
    return [np.maximum(x, y), x[:, ::-1], x[:, 1:] + y[:, :-1], x == y, (x > y).all(1), where, x.max(1), -x]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
@pytest.mark.parametrize("columns", [1, 7, 63, 101, 999])
def test_narrow_integers(columns: int, dtype: Any) -> None:
    x, y = (RNG.integers(0, 100, (5, columns)).astype(dtype) for _ in range(2))
    check(narrow, [x, y], narrow_in_numpy(x, y))


def test_bits() -> None:
    x, y = (RNG.integers(0, 2, (7, 333)) > 0 for _ in range(2))

    def fn(x: Any, y: Any) -> Any:
        return ops.logical_xor(x, y), ops.logical_and(x, ops.logical_not(y)), ops.flip(x, (1,)), x.all(1)

    check(fn, [x, y], [x ^ y, x & ~y, x[:, ::-1], x.all(1)])


def kernel_of(fn: Any, *arrays: Any) -> LoopKernel:
    (kernel,) = kernels(graph_of(fn, list(arrays)))
    return kernel


@pytest.mark.parametrize("width", TARGETS)
def test_narrow_integers_fill_registers(width: int) -> None:
    target = TARGETS[width]
    for dtype in (np.int8, np.int16, np.int32):
        x = np.zeros((3, 4096), dtype)
        assert lanes_of(kernel_of(lambda x: ops.maximum(x, -x), x), target) == width // x.itemsize
    assert lanes_of(kernel_of(lambda x: x.astype(dt.float32) * 2.0, np.zeros((3, 4096), np.int8)), target) == width // 4
    if not target.avx512:  # what is left of a row of 63 bytes would go one by one
        assert lanes_of(kernel_of(lambda x: ops.flip(x, (1,)), np.zeros((3, 63), np.int8)), target) < width


@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16])
def test_numbers_outside_are_bits_too(dtype: dt.DType) -> None:
    load = Load(Access(0, (1,)), dtype, (Guard((1,), -2, 5),), Splat(-2.5, dtype))
    kernel = LoopKernel((9,), 1, -1, (Statement(load, (), dtype, 1, 0),), (Store(0, Access(1, (1,))),), (dtype, dtype))
    moved = moved_as_bits(kernel)
    (what,) = (s.what for s in moved.body)
    assert isinstance(what, Load)
    assert what.outside is not None
    assert what.dtype is moved.body[0].dtype is what.outside.dtype is dt.int16
    assert np.array(what.outside.value, np.int16).view(dtype.np_type) == -2.5
    assert moved.operands == (dt.int16, dt.int16)
