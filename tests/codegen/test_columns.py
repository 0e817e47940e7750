"""Blocks of columns: each column is visited once, whichever blocks a range has; and rows whose columns fill no group of vectors: where masked stores take
long, what is left over is code of its own."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell.codegen.llvm.body import BodyBuilder
from graphcell.codegen.llvm.columns import Columns, columns_of
from graphcell.codegen.llvm.scan import emit_scan, scan_kernel
from graphcell.codegen.llvm.target import Target, compile_object, host, load_object
from graphcell.codegen.llvm.text import I32, I64, PTR, Val, const, i64
from graphcell.codegen.llvm.triangular import TriangularKernel, emit_triangular
from graphcell.ir.op import Array

GROUP = 32  # columns of four vectors of AVX2


def masked_stores(target: Target, columns: int) -> int:
    module = target.module()
    emit_scan(module, "scan", scan_kernel("add", dt.float32, (9, columns), 0, False), target)
    emit_triangular(module, "triangular", TriangularKernel(dt.float32, 2, 6, columns, False), target)
    return str(module).count("call void @llvm.masked.store")


@pytest.mark.parametrize("columns", [3, GROUP - 1, GROUP, GROUP + 5, 4 * GROUP, 4 * GROUP + 3])
def test_no_mask_is_compared_where_masked_stores_take_long(columns: int) -> None:
    zen3, haswell = (replace(host(), cpu=cpu, vector_bytes=32, features="+avx2,+fma") for cpu in ("znver3", "haswell"))
    assert masked_stores(zen3, columns) == 0
    assert (masked_stores(haswell, columns) > 0) == (columns % GROUP != 0)


class Counted:
    """A function that adds 1 to each column of the blocks that it is called for, in rows of `count` numbers, and 100 to the first one of each `body`."""

    def __init__(self, columns: Columns, target: Target):
        module = target.module()
        b = BodyBuilder(module, "count", [("rows", PTR), ("begin", I64), ("end", I64)], internal=False)

        def body(row: Val, column: Val, masks: list[Val | None]) -> None:
            first = b.gep(b.args["rows"], b.add(b.mul(row, i64(columns.count)), column), I32)
            b.store(b.add(b.load(first, I32), const(100, I32)), first)
            for v, mask in enumerate(masks):
                at = b.gep(first, v * columns.lanes, I32)
                b.store_value(b.add(b.load_value(at, dt.int32, columns.lanes, mask), b.splat(const(1, I32), columns.lanes)), at, dt.int32, mask)

        columns.emit(b, body)
        b.finish()
        self.code = load_object(compile_object(str(module), target))

    def __call__(self, rows: Array, begin: int, end: int) -> None:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(self.code.address("count"))(rows.ctypes.data, begin, end)


@pytest.mark.parametrize("cpu", ["znver3", "haswell"])
@pytest.mark.parametrize(("lanes", "line", "most"), [(8, 2, 4), (8, 1, 4), (8, 1, 8), (8, 8, 4)])
@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 23, 32, 40, 61, 64, 100, 128, 129, 300])
def test_every_column_once_whatever_the_ranges(count: int, lanes: int, line: int, most: int, cpu: str) -> None:
    columns = Columns(count, lanes, line, most)
    counted = Counted(columns, replace(host(), cpu=cpu, vector_bytes=32))
    rows = 3
    total = rows * columns.blocks
    wide = columns.each * lanes
    for begin in range(total):
        for end in range(begin, total + 1):
            found = np.zeros((rows + 1, count), np.int32)
            counted(found, begin, end)
            wanted = np.zeros((rows, columns.blocks), np.int32)
            wanted.reshape(-1)[begin:end] = 1
            assert (found[:rows] % 100 == wanted.repeat(wide, 1)[:, :count]).all() and not found[rows].any()
    counted(found := np.zeros((rows, count), np.int32), 0, total)
    assert (found // 100).sum() == rows * _groups(columns.blocks, most // columns.each)


def _groups(blocks: int, most: int) -> int:
    """How often the body goes through a row: for two blocks at once, if these are all and `most` allows that, else for each."""
    return 1 if blocks == 2 and most >= 2 else blocks


def test_two_threads_share_the_columns_of_a_row() -> None:
    wide, narrow = (replace(host(), vector_bytes=n) for n in (64, 32))
    assert [columns_of(n, dt.float32, wide).blocks for n in (0, 1, 16, 17, 32, 64, 80, 128, 129, 192, 300)] == [0, 1, 1, 2, 2, 2, 2, 2, 3, 3, 5]
    assert [columns_of(n, dt.float32, narrow).blocks for n in (0, 1, 16, 17, 32, 40, 64, 65, 128)] == [0, 1, 1, 2, 2, 2, 2, 3, 4]
    assert [columns_of(64, d, narrow).blocks for d in (dt.float64, dt.float16, dt.int8)] == [4, 2, 2]
    assert [columns_of(64, dt.float32, wide, most).each for most in (1, 2, 8)] == [1, 2, 2]
