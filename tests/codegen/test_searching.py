"""Searches in sorted sequences in native code beside counts by numpy: any dtype, NaN, equal elements, rows, lengths, guarded memory, threads."""

from __future__ import annotations

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor
from graphcell import dtype as dt
from graphcell.codegen.llvm.searching import SearchKernel, emit_search
from graphcell.codegen.llvm.text import Module
from graphcell.ir.op import Array
from graphcell.ir.types import TensorType
from graphcell.ops.dispatch import apply1
from graphcell.ops.sorting import SearchSorted
from graphcell.runtime import threads
from tests.codegen.plans import TARGETS
from tests.codegen.test_guards import run_guarded
from tests.codegen.test_sorting import KINDS, some
from tests.helpers import trace

SHAPES = [((0,), (5,)), ((1,), (3,)), ((2,), (40,)), ((3,), (2, 17)), ((64,), ()), ((97,), (1100,)), ((1000,), (33,)), ((3, 20), (3, 50)), ((2, 2, 9), (2, 2, 600)), ((4, 7), (4, 0))]


def counts(sequence: Array, values: Array, right: bool) -> Array:
    """Elements before each value, counted one by one. NaN come after all numbers; denormal floats count as zero, and both zeros are one."""
    wide = [x if x.dtype.kind in "iub" else x.astype(np.float64) for x in (sequence, values)]
    if sequence.dtype.name in ("float32", "bfloat16"):
        wide = [np.where(np.abs(x) < np.finfo(np.float32).tiny, 0.0, x) for x in wide]
    ranks = np.unique(np.concatenate([x.ravel() for x in wide]), return_inverse=True, equal_nan=True)[1].ravel()
    s, v = ranks[: sequence.size].reshape(sequence.shape), ranks[sequence.size :].reshape(values.shape)
    s = s if sequence.ndim == 1 else s[..., None, :]
    before: Array = s <= v[..., None] if right else s < v[..., None]
    return before.sum(-1)


def sorted_rows(x: Array) -> Array:
    return np.sort(x.astype(np.float32), -1).astype(x.dtype) if x.dtype.name == "bfloat16" else np.sort(x, -1)


@pytest.mark.slow
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: np.dtype(kind).name)
@pytest.mark.parametrize(("of_sequence", "of_values"), SHAPES, ids=str)
def test_search(kind: type, of_sequence: tuple[int, ...], of_values: tuple[int, ...], right: bool) -> None:
    sequence, values = sorted_rows(some(kind, of_sequence, 3)), some(kind, of_values, 4)
    if sequence.size > 2 and sequence.ndim == 1:
        values = np.where(np.random.default_rng(5).random(of_values) < 0.4, sequence[sequence.size // 2], values)
    got = ms.jit(lambda s, v: apply1(SearchSorted(right), s, v))(Tensor(sequence), Tensor(values))
    assert got.dtype is dt.int64 and got.shape == of_values
    np.testing.assert_array_equal(got.asnumpy(), counts(sequence, values, right))


@pytest.mark.parametrize("width", list(TARGETS))
@pytest.mark.parametrize("kind", [np.float32, np.int8, np.float16, np.int64, np.bool_], ids=lambda kind: np.dtype(kind).name)
def test_no_access_outside_of_buffers(kind: type, width: int) -> None:
    """Whatever the order of the sequence."""
    for of_sequence, of_values in [((33,), (19,)), ((2, 5), (2, 531)), ((1,), (2,))]:
        sequence, values = some(kind, of_sequence, 7), some(kind, of_values, 8)
        graph = trace(lambda s, v: apply1(SearchSorted(), s, v), *(TensorType(dt.from_numpy(x.dtype), x.shape) for x in (sequence, values)))
        for at_end in (True, False):
            (got,) = run_guarded(graph, [sequence, values], TARGETS[width], at_end)
            assert got.min() >= 0 and got.max() <= of_sequence[-1]
        (got,) = run_guarded(graph, [sorted_rows(sequence), values], TARGETS[width], True)
        np.testing.assert_array_equal(got, counts(sorted_rows(sequence), values, False))


def test_threads_share_the_values() -> None:
    rng = np.random.default_rng(1)
    sequence, values = np.sort(rng.standard_normal(1000).astype(np.float32)), rng.standard_normal(100_000).astype(np.float32)
    search = ms.jit(lambda s, v: apply1(SearchSorted(), s, v))
    pool = threads.pool()
    before = pool.threads
    try:
        pool.resize(3)
        np.testing.assert_array_equal(search(Tensor(sequence), Tensor(values)).asnumpy(), np.searchsorted(sequence, values))
    finally:
        pool.resize(before)


def test_sequences_that_no_word_counts_are_left_to_numpy() -> None:
    assert emit_search(Module(), "search", SearchKernel(dt.float32, 1, 5, 1 << 31, True, False), TARGETS[max(TARGETS)]) is None
