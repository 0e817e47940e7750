"""How many keys masks leave to queries: what `emit_seen` finds beside what the definition says, and attention under masks of any shape."""

from __future__ import annotations

import ctypes
import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from graphcell.codegen.llvm.attention_masks import Factor, count_tiles, emit_seen, may_hide, split_queries
from graphcell.codegen.llvm.attention_products import AttentionSpec, Parts
from graphcell.codegen.llvm.matmul_spec import Operand
from graphcell.codegen.llvm.target import compile_object, host, load_object
from graphcell.ir.op import Array
from graphcell.ops.attention import Attention
from tests.codegen.plans import TARGETS
from tests.codegen.test_attention import attention_graph, call, close, operands, reference, type_of
from tests.codegen.test_guards import run_guarded

WIDTH = 16


def seen(mask: Array, q: Array, k: Array, v: Array, peaks: Array | None = None, fill: float = -1e9) -> list[int]:
    """The keys that each part of the queries looks at, as native code says."""
    m, n = mask.shape
    kind = {"float32": "float", "float64": "double"}[q.dtype.name]
    matrix = Operand(kind, WIDTH, 1)
    looked = Operand("i1" if mask.dtype == np.bool_ else kind, n, 1)
    spec = AttentionSpec(m, n, WIDTH, WIDTH, (1,), 0.25, matrix, matrix, matrix, matrix, looked, fill)
    target = replace(host(), flushes=False)
    assert may_hide(spec, target.lanes(kind), matrix)
    module = target.module()
    queries = split_queries(spec, m)
    factors = Factor("q", matrix, WIDTH, weighted=False), Factor("k", matrix, WIDTH, True, False), Factor("v", matrix, WIDTH, True)
    name = emit_seen(Parts(module, "attention", kind, target), spec, queries, n, factors, peaks=peaks is not None)
    library = load_object(compile_object(str(module).replace(f"define internal i64 @{name}", f"define i64 @{name}"), target))
    counts = np.zeros(count_tiles(queries), np.int64)
    arrays = [mask, *(() if peaks is None else (peaks,)), q, k, v, counts]
    total = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * len(arrays))(library.address(name))(*(x.ctypes.data for x in arrays))
    assert total == counts.sum()
    return [int(x) for x in counts]


def wanted(mask: Array, dtype: Any, added: bool) -> list[int]:
    """The same from the definition, for masks that leave each query a key; rounded up to two vectors. Few queries find out about bits by their peaks only."""
    m, n = mask.shape
    unit = 2 * host().lanes("float" if dtype == np.float32 else "double")
    if m < 32 and not added:
        return [n]
    sizes = [len(part) for part in np.array_split(np.arange(m), -(-m // 32))]
    starts = np.cumsum([0, *sizes])
    return [min(n, -(-(int(np.flatnonzero(mask[a:b].any(0)).max()) + 1) // unit) * unit) for a, b in itertools.pairwise(starts)]


def matrices(m: int, n: int, dtype: Any) -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal((rows, WIDTH)).astype(dtype) for rows in (m, n, n)]


@pytest.mark.slow
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("m", "n"), [(128, 128), (100, 130), (7, 300), (300, 97)])
def test_counts(m: int, n: int, dtype: Any, added: bool) -> None:
    rows, keys = np.arange(m)[:, None], np.arange(n)
    ends = np.random.default_rng(1).integers(1, n // 2, (m, 1))
    for mask in (keys <= rows * n // m, keys <= n - 1 - rows * n // m, keys < ends, (keys < 20) & (rows >= 0), abs(keys - rows * n // m) < 10):
        given = np.where(mask, 0.0, -1e9).astype(dtype) if added else mask
        assert seen(given, *matrices(m, n, dtype)) == wanted(mask, dtype, added)


@pytest.mark.parametrize("added", [False, True])
def test_all_keys_where_it_is_not_sure(added: bool) -> None:
    m, n = 64, 128
    mask = np.arange(n) < np.arange(m)[:, None] + 1
    q, k, v = matrices(m, n, np.float32)

    def count(mask: Array, low: float, q: Array = q, k: Array = k, v: Array = v, peaks: Array | None = None) -> list[int]:
        return seen(np.where(mask, 0.0, low).astype(np.float32) if added else mask, q, k, v, peaks, low)

    assert count(mask, -1e9) == [32, 64]
    assert count(mask, -50.0) == [n, n]  # such a score counts
    assert count(mask, -1e4, 1000 * q) == [n, n]  # it may be larger than others
    for where, x in (("k", k), ("v", v)):
        for number in (math.inf, math.nan, 1e30):
            broken = x.copy()
            broken[100, 3] = number  # of a key that is hidden: 0 times it may be NaN
            assert count(mask, -1e9, **{where: broken}) == [n, n]
    q[40, 2] = math.nan
    assert count(mask, -1e9, q) == [32, n]
    nothing = mask.copy()
    nothing[50] = False  # all weights are alike
    assert count(nothing, -1e9, matrices(m, n, np.float32)[0]) == [32, n]


def test_what_is_not_finite_counts_where_it_is_hidden() -> None:
    m, n = 64, 128
    mask = np.arange(n) < np.arange(m)[:, None] + 1
    q, k, v = matrices(m, n, np.float32)
    v[10] = math.inf  # all see it
    assert seen(mask, q, k, v) == [32, 64]
    v[40] = math.nan  # the first half does not
    assert seen(mask, q, k, v) == [n, n]


def in_pairs_of_vectors(keys: int) -> int:
    """So many keys and those that share the last two vectors with them."""
    unit = 2 * host().lanes("float")
    return -(-keys // unit) * unit


def test_few_queries() -> None:
    m, n = 4, 256
    q, k, v = matrices(m, n, np.float32)
    mask, needed = (np.arange(n) < 70) & (np.arange(m) >= 0)[:, None], in_pairs_of_vectors(70)
    for given, at_first in ((mask, n), (np.where(mask, 0.0, -1e9).astype(np.float32), needed)):
        assert seen(given, q, k, v) == [at_first]
        assert seen(given, q, k, v, np.full(m, 1.0, np.float32)) == [needed]
        assert seen(given & False if given.dtype == bool else given - 1e9, q, k, v, np.full(m, 1.0, np.float32)) == [0]
    k[200] = math.nan  # replaced in any case
    assert seen(mask, q, k, v, np.full(m, 1.0, np.float32)) == [needed]


def test_squares_that_vanish() -> None:
    """Denormal numbers are zeros, so squares say nothing of such queries: the only score that is seen is -800, far below what replaces the others."""
    q, k, v, g = operands((1,), 64, 128, 100, 100)
    q[...], k[...], k[:, 0] = 8e-20, 0.9e18, -1e18
    mask = np.zeros((1, 64, 128), bool)
    mask[..., 0] = True
    graph = attention_graph([type_of(x) for x in (q, k, v, mask)], type_of(g), Attention(100.0, -115.0))
    close(call(graph, [q, k, v, mask, g]), reference(q, k, v, g, mask, 100.0, -115.0), 3e-4)


@pytest.mark.parametrize(("heads", "n"), [(1, 2304), (2, 1280), (3, 1024)])
def test_ranges_of_keys_are_all_written(heads: int, n: int) -> None:
    """Chunks that do not divide evenly among the blocks that share them."""
    q, k, v, g = operands((heads,), 40, n, 8, 8)
    graph = attention_graph([type_of(x) for x in (q, k, v)], type_of(g), Attention(0.3))
    close(run_guarded(graph, [q, k, v, g], TARGETS[max(TARGETS)], at_end=True), reference(q, k, v, g, None, 0.3, 0.0), 3e-6)


@pytest.mark.parametrize("added", [False, True])
def test_a_chunk_is_hidden_once_larger_scores_are_known(added: bool) -> None:
    m, n = 64, 128
    mask = np.zeros((m, n), bool)
    given = np.full((m, n), -1e9, np.float32) if added else mask
    arrays = matrices(m, n, np.float32)
    assert seen(given, *arrays) == [n, n]
    assert seen(given, *arrays, np.full(m, 2.0, np.float32)) == [0, 0]
    peaks = np.full(m, 2.0, np.float32)
    for number in (-math.inf, math.inf, math.nan, -1e9):
        peaks[40] = number
        assert seen(given, *arrays, peaks) == [0, n]


def test_numbers_that_sums_with_a_large_mask_round_are_not_hidden() -> None:
    """Scores beside -1e9 are multiples of 64: a key may win that seems to be far below."""
    m, n = 64, 128
    rows = np.full((m, n), -1e9 - 300, np.float32)
    rows[:, 0] = -1e9
    q, k, v = matrices(m, n, np.float32)
    assert seen(rows, q / 10, k / 10, v) == [n, n]
    assert seen(rows * np.float32(4), q / 10, k / 10, v) == [n, n]
    rows[:, 1:] = -2e9
    assert seen(rows, q / 10, k / 10, v) == [in_pairs_of_vectors(1)] * 2


def masks_by_row(m: int, n: int) -> dict[str, Array]:
    rng = np.random.default_rng(8)
    rows, keys = np.arange(m)[:, None], np.arange(n)
    ends = rng.integers(1, n, (m, 1))
    return {
        "ends anywhere": keys < ends,
        "ends that grow": keys < np.sort(ends, 0),
        "ends that fall": keys < np.sort(ends, 0)[::-1],
        "most rows short": keys < np.where(rows % 50 == 49, n, 5),
        "few rows short": keys < np.where(rows % 50 == 0, 5, n),
    }


@pytest.mark.slow
@pytest.mark.parametrize("powers", [False, True])
@pytest.mark.parametrize(("m", "n", "d"), [(128, 128, 32), (130, 200, 20), (300, 500, 16), (33, 65, 8)])
def test_rows_of_any_length(m: int, n: int, d: int, powers: bool) -> None:
    q, k, v, g = operands((2,), m, n, d, d)
    for mask in masks_by_row(m, n).values():
        for given in (mask[None], np.where(mask, 0.0, -math.inf).astype(np.float32)[None]):
            graph = attention_graph([type_of(x) for x in (q, k, v, given)], type_of(g), Attention(0.3, -1e9, powers=powers))
            close(call(graph, [q, k, v, given, g]), reference(q, k, v, g, given, 0.3, -1e9), 3e-6)


@pytest.mark.parametrize("length", [1, 30, 64, 129])
def test_keys_that_are_padded(length: int) -> None:
    """One row of a mask for all queries, another for each batch entry."""
    q, k, v, g = operands((2, 2), 70, 130, 24, 16)
    mask = np.arange(130)[None, None, None] < np.array([length, 130])[:, None, None, None]
    graph = attention_graph([type_of(x) for x in (q, k, v, mask)], type_of(g), Attention(0.3, -1e9))
    close(call(graph, [q, k, v, mask, g]), reference(q, k, v, g, mask, 0.3, -1e9), 3e-6)


@pytest.mark.slow
@pytest.mark.parametrize("powers", [False, True])
@pytest.mark.parametrize("width", list(TARGETS))
def test_no_access_outside_of_buffers(width: int, powers: bool) -> None:
    """What was not computed is not read: scratch memory begins as NaN there."""
    for m, n, d, e in [(70, 130, 20, 33), (64, 128, 16, 16)]:
        q, k, v, g = operands((2,), m, n, d, e)
        for mask in masks_by_row(m, n).values():
            graph = attention_graph([type_of(x) for x in (q, k, v, mask[None])], type_of(g), Attention(0.5, -1e9, powers=powers))
            got = run_guarded(graph, [q, k, v, mask[None], g], TARGETS[width], at_end=True)
            close(got, reference(q, k, v, g, mask[None], 0.5, -1e9), 3e-6)
