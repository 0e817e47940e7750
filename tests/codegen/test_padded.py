"""Paddings and concatenations that loops read where the parts lie: what is left to run, and the numbers, against numpy."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, ops
from graphcell.ir.graph import Builder
from graphcell.ir.types import TensorType
from graphcell.ops.arithmetic import Add
from graphcell.ops.base import Array
from graphcell.ops.movement import Concat, Pad, Reshape, Slice, Transpose
from graphcell.ops.reduction import ReduceMax
from graphcell.runtime.executable import Executable, compile_graph

RNG = np.random.default_rng(12)
WIDTHS = ["16", "32", ""]


def compiled(function: Callable[..., Any], *arrays: Array) -> tuple[Any, str]:
    """What a compiled function returns, and its kernels."""
    f = ms.jit(function)
    result = f(*map(Tensor, arrays))
    return result, f.kernels()


def padded_sum(x: Array, low: tuple[int, ...], high: tuple[int, ...], value: float | int) -> tuple[Array, Array]:
    """x amid padding, plus a Tensor of ones of that shape, natively; and what numpy gives."""
    builder = Builder("padded")
    ir_type = Tensor(x).ir_type
    shape = tuple(a + d + h for a, d, h in zip(low, x.shape, high, strict=True))
    a, b = builder.input(ir_type), builder.input(TensorType(ir_type.dtype, shape))
    (wide,) = builder.append(Pad(low, high, (0,) * x.ndim, value), (a,))
    (total,) = builder.append(Add(), (wide, b))
    other = RNG.integers(1, 5, shape).astype(x.dtype)
    executable = compile_graph(builder.finish([total]))
    assert "where 0 <=" in kernels(executable)
    (got,) = executable([Tensor(x), Tensor(other)])
    with np.errstate(all="ignore"):
        return got.asnumpy(), np.pad(x, list(zip(low, high, strict=True)), constant_values=value) + other


def kernels(executable: Executable) -> str:
    return "\n".join(str(k.kernel) for k in executable.compilation.program.steps)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("value", [0.0, -0.0, 2.5, np.inf, np.nan])
@pytest.mark.parametrize(("shape", "low", "high"), [
    ((1,), (3,), (0,)), ((40,), (0,), (7,)), ((17, 5), (1, 0), (0, 2)), ((3, 33), (2, 1), (1, 1)), ((2, 1, 19), (0, 3, 0), (1, 0, 30)),
])
def test_floats_amid_any_number(shape: Any, low: Any, high: Any, value: float, width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCELL_VECTOR_BYTES", width)
    for dtype in (np.float32, np.float64):
        got, want = padded_sum(RNG.standard_normal(shape).astype(dtype), low, high, value)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64])
def test_integers_amid_the_largest(dtype: Any, width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCELL_VECTOR_BYTES", width)
    got, want = padded_sum(RNG.integers(0, 99, (9, 21)).astype(dtype), (2, 5), (0, 1), int(np.iinfo(dtype).max))
    np.testing.assert_array_equal(got, want)


def test_a_zero_keeps_its_sign() -> None:
    wide, text = compiled(lambda x: -ops.pad(x, (1, 1), value=-0.0), np.full(40, -0.0, np.float32))
    assert "where 0 <=" in text
    assert not np.signbit(wide.asnumpy()).any()


def stencil(u: Any) -> Any:
    p = ops.pad(u, (1, 1, 1, 1))
    return p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4.0 * u


def numpy_stencil(u: Array) -> Array:
    p = np.pad(u, 1)
    return p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4.0 * u


@pytest.mark.parametrize("width", WIDTHS)
def test_a_stencil_reads_its_neighbours_where_they_lie(width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCELL_VECTOR_BYTES", width)
    u = RNG.standard_normal((30, 37))
    got, text = compiled(stencil, u)
    np.testing.assert_allclose(got.asnumpy(), numpy_stencil(u), rtol=1e-13, atol=1e-13)
    assert text.count("loops (") == 1 and text.count("where") == 4
    gradient, text = compiled(ms.grad(lambda u: (stencil(u) ** 2).sum()), u)
    np.testing.assert_allclose(gradient.asnumpy(), 2 * numpy_stencil(numpy_stencil(u)), rtol=1e-12, atol=1e-12)  # a symmetric matrix
    assert text.count("loops (") == 2


def rolled(x: Any, by: int) -> Any:
    return ops.concat((x[:, -by:], x[:, :-by]), 1)


def test_rolls_choose_between_their_parts() -> None:
    x = RNG.standard_normal((6, 50)).astype(np.float32)
    got, text = compiled(lambda x: rolled(x, 3) * 2.0 + rolled(x, 20), x)
    np.testing.assert_array_equal(got.asnumpy(), np.roll(x, 3, 1) * np.float32(2) + np.roll(x, 20, 1))
    assert text.count("loops (") == 1


def test_what_is_returned_is_concatenated_in_memory() -> None:
    x = RNG.standard_normal((6, 50)).astype(np.float32)
    (joined, twice), text = compiled(lambda x: (rolled(x, 3), rolled(x, 3) * 2.0), x)
    np.testing.assert_array_equal(joined.asnumpy(), np.roll(x, 3, 1))
    np.testing.assert_array_equal(twice.asnumpy(), np.roll(x, 3, 1) * np.float32(2))
    assert "where" not in text


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.bool_])
def test_parts_of_any_extent(axis: int, dtype: Any) -> None:
    parts = [RNG.integers(0, 2, tuple(n if k == axis else 5 for k in range(3))).astype(dtype) for n in (1, 4, 18)]
    got, _ = compiled(lambda *p: ops.concat(p, axis) == ops.concat(p[::-1], axis), *parts)
    np.testing.assert_array_equal(got.asnumpy(), np.concatenate(parts, axis) == np.concatenate(parts[::-1], axis))


def test_ones_before_a_slice_are_padding() -> None:
    x = RNG.standard_normal((8, 20)).astype(np.float32)
    got, text = compiled(lambda x: x * ops.concat((ops.ones_like(x[:, :1]), x[:, :-1]), 1), x)
    np.testing.assert_array_equal(got.asnumpy(), x * np.concatenate((np.ones((8, 1), np.float32), x[:, :-1]), 1))
    assert text.count("loops (") == 1


@pytest.mark.parametrize("width", WIDTHS)
def test_backwards(width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCELL_VECTOR_BYTES", width)
    x = RNG.standard_normal((5, 37)).astype(np.float32)
    got, _ = compiled(lambda x: ops.flip(ops.pad(x, (2, 3), value=7.0), (1,)) * 2.0, x)
    np.testing.assert_array_equal(got.asnumpy(), np.pad(x, ((0, 0), (2, 3)), constant_values=7)[:, ::-1] * np.float32(2))


def test_padding_through_other_views() -> None:
    """A pad of a transposed pad, split and cut, against what each op gives by itself."""
    builder = Builder("views")
    x = builder.input(TensorType(ms.float32, (3, 4)))
    (inner,) = builder.append(Pad((1, 0), (0, 2), (0, 0), 1.0), (x,))
    (turned,) = builder.append(Transpose((1, 0)), (inner,))
    (outer,) = builder.append(Pad((0, 1), (2, 0), (0, 0), 1.0), (turned,))
    (cut,) = builder.append(Slice((7, 0), (4, 5), (-2, 1)), (outer,))
    (split,) = builder.append(Reshape((2, 2, 5)), (cut,))
    (both,) = builder.append(Concat(0), (split, split))
    (largest,) = builder.append(ReduceMax((0,), False), (both,))
    array = RNG.standard_normal((3, 4)).astype(np.float32)
    (got,) = compile_graph(builder.finish([largest]))([Tensor(array)])
    wide = np.pad(np.pad(array, ((1, 0), (0, 2)), constant_values=1).T, ((0, 2), (1, 0)), constant_values=1)
    np.testing.assert_array_equal(got.asnumpy(), wide[7::-2].reshape(2, 2, 5).max(0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.float16])
@pytest.mark.parametrize("parts", [2, 3, 4, 5])
def test_parts_side_by_side_are_stored_with_a_stride(parts: int, dtype: Any) -> None:
    for n in (1, 7, 16, 33, 100):
        arrays = [RNG.integers(-9, 9, (3, n)).astype(dtype) for _ in range(parts)]
        got, _ = compiled(lambda *a: ops.stack([x + x for x in a], axis=-1), *arrays)
        np.testing.assert_array_equal(got.asnumpy(), np.stack([x + x for x in arrays], -1))


def test_a_pad_that_a_product_reads_is_made_in_one_pass() -> None:
    x, w = RNG.integers(-3, 4, (6, 10)).astype(np.float32), RNG.integers(-3, 4, (14, 5)).astype(np.float32)
    got, text = compiled(lambda x, w: ops.matmul(ops.pad(x, (1, 3)), w), x, w)
    np.testing.assert_array_equal(got.asnumpy(), np.pad(x, ((0, 0), (1, 3))) @ w)
    assert text.count("loops (") == 1


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("name", "exact"), [("tanh", np.tanh), ("exp", np.exp), ("sin", np.sin)])
@pytest.mark.parametrize(("shape", "pads"), [((4, 31), (10, 0, 1, 2)), ((2, 8), (0, 35, 0, 1)), ((5, 3), (28, 3, 0, 1)), ((3, 70), (1, 1, 2, 0))])
def test_functions_of_padded_rows(name: str, exact: Any, shape: Any, pads: Any, width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of several registers, whose masks are in part constant."""
    monkeypatch.setenv("GRAPHCELL_VECTOR_BYTES", width)
    for dtype in (np.float32, np.float64):
        x = RNG.standard_normal(shape).astype(dtype)
        wide = np.pad(x, ((pads[2], pads[3]), (pads[0], pads[1])), constant_values=-2)
        got, _ = compiled(lambda x, name=name: getattr(ops, name)(ops.pad(x, pads, value=-2.0)), x)
        np.testing.assert_allclose(got.asnumpy(), exact(wide.astype(np.float64)), rtol=4e-7)
        got, _ = compiled(lambda x, name=name: getattr(ops, name)(ops.flip(ops.pad(x, pads, value=-2.0), (0, 1)).T), x)
        np.testing.assert_allclose(got.asnumpy(), exact(wide[::-1, ::-1].T.astype(np.float64)), rtol=4e-7)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("to", [np.float32, np.float16, np.int32])
def test_wide_integers_in_kernels_of_narrower_numbers(to: Any, width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCELL_VECTOR_BYTES", width)
    x = np.arange(99).reshape(33, 3)
    got, _ = compiled(lambda x: ops.cast(ops.pad(x, (28, 3, 0, 1), value=-1), ms.common.dtype.pytype_to_dtype(np.dtype(to).type)), x)
    np.testing.assert_array_equal(got.asnumpy(), np.pad(x, ((0, 1), (28, 3)), constant_values=-1).astype(to))


def test_extents_beyond_32_bits() -> None:
    got, _ = compiled(lambda x: ops.pad(ops.broadcast_to(x.reshape(1), (1 << 32,)), (2, 5), value=9.0)[:4] + 1.0, np.float32([0.5]))
    assert got.asnumpy().tolist() == [10.0, 10.0, 1.5, 1.5]


@pytest.mark.parametrize("seed", range(80))
def test_paddings_fill_what_lies_around(seed: int) -> None:
    """Of what is given, which is copied, and of what a loop makes, which it writes where it belongs."""
    dice = random.Random(seed)
    shape = tuple(dice.choice((1, 2, 3, 5, 17, 40)) for _ in range(dice.randint(0, 4)))
    low = tuple(dice.choice((0, 0, 1, 2)) for _ in shape)
    high = tuple(n if dice.random() < 0.5 else dice.choice((0, 1, 3)) for n in low)
    interior = tuple(dice.choice((0, 0, 0, 0, 0, 1)) for _ in shape)
    dtype = dice.choice((np.float32, np.float64, np.float16, np.int8, np.int32))
    op = Pad(low, high, interior, dice.choice((0, -1, 3)) if np.issubdtype(dtype, np.integer) else dice.choice((0.0, -np.inf, 3.0)))
    x, made = np.asarray(5 * RNG.standard_normal(shape)).astype(dtype), dice.random() < 0.7
    builder = Builder("padded")
    a = builder.input(Tensor(x).ir_type)
    (inside,) = builder.append(Add(), (a, a)) if made else (a,)
    (wide,) = builder.append(op, (inside,))
    (got,) = compile_graph(builder.finish([wide]))([Tensor(x)])
    np.testing.assert_array_equal(got.asnumpy(), op.eval(x + x if made else x))


def test_what_is_padded_is_made_where_it_belongs() -> None:
    """A loop for tanh, one for rows above and below, one for columns on either side, one for the windows: nothing is copied."""
    x = RNG.standard_normal((3, 5, 24, 64)).astype(np.float32)
    got, kernels = compiled(lambda x: ops.max_pool2d(ops.tanh(x), 3, 2, 1), x)
    wide = np.pad(np.tanh(x.astype(np.float64)), ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    want = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))[:, :, ::2, ::2].max((4, 5))
    np.testing.assert_allclose(got.asnumpy(), want, rtol=1e-5, atol=1e-6)
    assert kernels.count("loops (") == 4 and kernels.count("load") == 2
