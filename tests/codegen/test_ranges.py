"""Rows that are cut where a concatenation or a padding has its seams, of all vector widths, on guarded memory, against numpy."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

from graphcell import ops
from graphcell.codegen.kernel import Guard, LoopKernel
from graphcell.codegen.llvm.loops import emit_loops
from graphcell.codegen.llvm.ranges import holds_in, ranges_of, seams
from graphcell.codegen.llvm.target import host
from graphcell.codegen.llvm.widths import lanes_of
from tests.codegen.test_loop_shapes import check, graph_of, kernels, normal


def cuts(kernel: LoopKernel) -> list[int]:
    """Where the rows of a kernel are cut."""
    if not kernel.outer <= kernel.vector or kernel.tile >= 0:
        return []
    return [here.start for here in ranges_of(kernel, lanes_of(kernel, host()))[1:]]


def halves(x: Any) -> Any:
    """A function of both halves of x, put together the other way round, with what becomes of that along the row and beside it."""
    a, b = ops.chunk(x, 2, -1)
    whole = ops.cat([ops.tanh(b), ops.abs(a)], -1)
    return whole * 2.0, whole.sum(-1), whole - whole.max(-1, keepdims=True)


def halves_in_numpy(x: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    a, b = np.split(x.astype(np.float64), 2, -1)
    whole = np.concatenate([np.tanh(b), np.abs(a)], -1)
    return [whole * 2.0, whole.sum(-1), whole - whole.max(-1, keepdims=True)]


@pytest.mark.parametrize("half", [64, 65, 127, 128, 333])
def test_halves(half: int) -> None:
    x = normal(37, 2 * half)
    check(halves, [x], halves_in_numpy(x), 1e-5)


@pytest.mark.parametrize(("dtype", "error"), [(np.float64, 1e-12), (np.float16, 2e-2)])
def test_dtypes(dtype: Any, error: float) -> None:
    x = normal(20, 334).astype(dtype)
    check(halves, [x], halves_in_numpy(x), error)


def pieces(x: Any, y: Any, z: Any) -> Any:
    whole = ops.cat([x.exp(), y.exp(), z.exp()], -1)
    return whole / whole.sum(-1, keepdims=True)


@pytest.mark.parametrize("columns", [(70, 64, 101), (300, 1, 129), (1, 200, 300)])
def test_pieces(columns: tuple[int, ...]) -> None:
    parts = [normal(19, n) for n in columns]
    whole = np.exp(np.concatenate(parts, -1).astype(np.float64))
    check(pieces, parts, [whole / whole.sum(-1, keepdims=True)], 1e-5)


@pytest.mark.parametrize(("low", "high"), [(100, 0), (0, 91), (64, 200), (3, 2)])
def test_padded_rows(low: int, high: int) -> None:
    def fn(x: Any, y: Any) -> Any:
        wide = ops.pad(x, (low, high), value=-2.5) * y
        return wide, wide.sum(-1)

    x, y = normal(23, 150), normal(23, 150 + low + high)
    wide = np.pad(x.astype(np.float64), ((0, 0), (low, high)), constant_values=-2.5) * y
    check(fn, [x, y], [wide, wide.sum(-1)], 1e-5)


def test_rows_are_cut_around_seams() -> None:
    found = [k for k in kernels(graph_of(halves, [normal(37, 1000)])) if k.reduces]
    assert found
    for kernel in found:
        lanes = lanes_of(kernel, host())
        assert cuts(kernel) == sorted({500 // lanes * lanes, -(-500 // lanes) * lanes})


def test_rows_of_short_pieces_are_not_cut() -> None:
    parts = [normal(19, n) for n in (12, 1, 9)]
    assert not any(cuts(k) for k in kernels(graph_of(pieces, parts)))


def test_a_short_piece_belongs_to_its_neighbours() -> None:
    parts = [normal(19, n) for n in (320, 1, 959)]
    found = [k for k in kernels(graph_of(pieces, parts)) if k.reduces]
    assert found
    for kernel in found:
        assert cuts(kernel) == [320, 320 + lanes_of(kernel, host())]


def test_nothing_is_masked_or_chosen_between_seams() -> None:
    """Halves of whole vectors have no vector with a seam, so all of their text is what runs between seams."""

    def fn(x: Any) -> Any:
        a, b = ops.chunk(x, 2, -1)
        return ops.cat([b + 1.0, a * 2.0], -1).sum(-1)

    target = host()
    for half, is_plain in ((512, True), (512 + 3, False)):
        (kernel,) = [k for k in kernels(graph_of(fn, [normal(37, 2 * half)])) if "where 0 <=" in str(k)]
        module = target.module()
        emit_loops(module, "f", kernel, target)
        assert (not re.search(r"masked|select <\d+ x i1> %", str(module))) == is_plain, half


def test_rows_of_many_pieces_are_not_cut() -> None:
    def fn(x: Any) -> Any:
        parts = ops.split(x, 333, -1)
        return ops.cat([p * float(k + 1) for k, p in enumerate(parts)], -1).sum(-1)

    assert not any(cuts(k) for k in kernels(graph_of(fn, [normal(5, 5 * 333)])))


def test_what_is_known_within_a_range() -> None:
    guard = Guard((0, 1), -10, 20)  # holds from 10 to 29
    assert holds_in(range(10, 30), guard, 1) is True
    assert holds_in(range(30, 40), guard, 1) is False
    assert holds_in(range(10), guard, 1) is False
    assert holds_in(range(9, 30), guard, 1) is None
    assert holds_in(range(10, 31), guard, 1) is None
    assert holds_in(range(10, 30), Guard((1, 1), -10, 20), 1) is None


@pytest.mark.parametrize("step", [-4, -3, -2, -1, 1, 2, 3, 4])
def test_what_is_known_of_places_apart(step: int) -> None:
    """Beside each point's own answer; of the seams, beside the points at which that changes."""
    for offset, extent in itertools.product((-9, -4, 0, 3, 30, 61), (1, 7, 20)):
        guard, may_be_stepped_over = Guard((0, step), offset, extent), extent < abs(step)
        holds = [0 <= offset + step * at < extent for at in range(40)]
        changes = {at for at in range(1, 40) if holds[at] != holds[at - 1]}
        found = {cut for cut in seams(guard, 1) if 0 < cut < 40}
        assert found == changes or (may_be_stepped_over and found > changes)
        for first, end in itertools.combinations(range(0, 40, 3), 2):
            here, known = set(holds[first:end]), holds_in(range(first, end), guard, 1)
            assert here == ({True, False} if known is None else {known}) or (may_be_stepped_over and known is None)


@pytest.mark.parametrize(("step", "columns", "dtype"), [(2, 37, np.float32), (2, 301, np.float32), (3, 130, np.float32), (4, 301, np.float64)])
def test_every_few_elements_of_padded_rows(columns: int, step: int, dtype: Any) -> None:
    """As a convolution with strides reads them: with neighbours on both sides, and rows above and below."""

    def fn(x: Any) -> Any:
        padded = ops.pad(x, (1, 2, 1, 1), value=-2.5)
        part = sum(padded[i : i + 40 : step, j : j + columns : step] * float(1 + i + 2 * j) for i, j in itertools.product(range(2), range(3)))
        return part, part.sum(-1), padded[:, ::-step]

    x = normal(40, columns).astype(dtype)
    padded = np.pad(x.astype(np.float64), ((1, 1), (1, 2)), constant_values=-2.5)
    part = sum(padded[i : i + 40 : step, j : j + columns : step] * (1 + i + 2 * j) for i, j in itertools.product(range(2), range(3)))
    check(fn, [x], [part, part.sum(-1), padded[:, ::-step]], 1e-5)
