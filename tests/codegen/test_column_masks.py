"""Rows whose columns fill no group of vectors: where masked stores take long, what is left over is code of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphcell import dtype as dt
from graphcell.codegen.llvm.scan import emit_scan, scan_kernel
from graphcell.codegen.llvm.target import Target, host
from graphcell.codegen.llvm.triangular import TriangularKernel, emit_triangular

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
