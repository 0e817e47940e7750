"""Matrix products with few rows or few columns, as tiles of dot products.

Enters: a `MatmulSpec` whose operands are both contiguous along k. Leaves: the emitted stage. The lanes run
along k, so nothing need be transposed or packed: a product of one row with a transposed matrix reads the
matrix once.
"""

from __future__ import annotations

import math

from graphcell.codegen.llvm.contraction import (
    ContractionTarget,
    Epilogue,
    Extra,
    KernelParams,
    Plan,
    Segment,
    Stage,
    affine,
    block_range,
    ceil_div,
    split_evenly,
    split_index,
    tile_loop,
    vector_registers,
)
from graphcell.codegen.llvm.dot_kernel import DotKernel, emit_dot
from graphcell.codegen.llvm.matmul_schedule import BLOCKS_WANTED, FLOPS_PER_BLOCK, MatmulSpec
from graphcell.codegen.llvm.text import FunctionBuilder, LType, Module, Val
from graphcell.records import dataclass


def uses_dot(spec: MatmulSpec, target: ContractionTarget) -> bool:
    """Few rows or columns, both operands contiguous along k: lanes run along k and nothing need be
    transposed.
    """
    along_k = (spec.a.column == 1 or spec.k == 1) and (spec.b.row == 1 or spec.k == 1)
    if not along_k or spec.k < 2 or (spec.b.column == 1 and spec.n > 1):
        return False
    return spec.n == 1 or spec.m <= 6


@dataclass(frozen=True)
class DotMatmul:
    """Emits the dot-product form; blocks are batch x groups of row tiles x groups of column tiles."""

    module: Module
    name: str
    spec: MatmulSpec
    target: ContractionTarget
    epilogue: Epilogue | None
    extra: Extra
    batch_rows: int

    def emit(self) -> Plan:
        spec, extra = self.spec, tuple(self.extra)
        rows, columns = self._segments()
        row_tiles, column_tiles = sum(s.tiles for s in rows), sum(s.tiles for s in columns)
        batch = math.prod(spec.batch)
        wanted = min(BLOCKS_WANTED, max(1, spec.flops // FLOPS_PER_BLOCK))
        per_row = max(1, row_tiles * batch // wanted) if row_tiles > 1 else 1
        per_column = (
            column_tiles
            if row_tiles * batch >= wanted
            else max(1, column_tiles * batch * row_tiles // wanted)
        )
        grid = (ceil_div(column_tiles, per_column), ceil_div(row_tiles, per_row))
        kernels = [
            [self._kernel(i, r.size, j, c.size) for j, c in enumerate(columns)] for i, r in enumerate(rows)
        ]
        params = KernelParams(("a", "b", "c"), extra)
        b = FunctionBuilder(self.module, self.name, params.list, internal=False)
        with b.loop(b.args["begin"], b.args["end"], name="block") as loop:
            *index, across, down = split_index(b, loop.index, (*spec.batch, *grid))
            linear = affine(b, [(x, math.prod(spec.batch[d + 1 :])) for d, x in enumerate(index)])
            row_range = block_range(b, down, per_row, row_tiles)
            column_range = block_range(b, across, per_column, column_tiles)
            for j, column_segment in enumerate(columns):
                with tile_loop(b, column_segment, *column_range, "columns") as (_, column):
                    for i, row_segment in enumerate(rows):
                        with tile_loop(b, row_segment, *row_range, "rows") as (_, row):
                            self._call(b, kernels[i][j], index, linear, row, column)
        note = f"dot products, tile {rows[0].size}x{columns[0].size}, grid {grid[0]}x{grid[1]}"
        blocks = batch * grid[0] * grid[1]
        return Plan(
            (Stage(b.finish(), params.buffers, tuple(n for n, _ in extra), blocks, spec.flops // blocks),),
            note=note,
        )

    def _segments(self) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
        """Tiles of rows and columns, so that accumulators and the rows' vectors stay in registers."""
        spec, registers = self.spec, vector_registers(self.target)
        lanes = self.target.lanes(spec.kind)
        wide = min(lanes, 8 if registers >= 32 else 4, 1 << (spec.n - 1).bit_length())
        tall = max(1, min((registers - 2) // (wide + 1), 8))
        full = spec.n // wide
        columns = [Segment(0, full, 0, wide)] if full else []
        if spec.n > full * wide:
            columns.append(Segment(full, 1, full * wide, spec.n - full * wide))
        return split_evenly(spec.m, tall), tuple(columns)

    def _kernel(self, i: int, rows: int, j: int, columns: int) -> str:
        spec = self.spec
        kernel = DotKernel(
            spec.kind,
            self.target.lanes(spec.kind),
            rows,
            columns,
            spec.k,
            spec.a.row,
            spec.b.column,
            spec.c.row,
            spec.a.kind,
            spec.b.kind,
            spec.c.kind,
            self.batch_rows,
        )
        return emit_dot(self.module, f"{self.name}.dot{i}{j}", kernel, self.epilogue, self.extra)

    def _call(
        self, b: FunctionBuilder, name: str, index: list[Val], linear: Val, row: Val, column: Val
    ) -> None:
        spec = self.spec
        a_at = affine(b, [*zip(index, spec.a.batch, strict=True), (row, spec.a.row)])
        b_at = affine(b, [*zip(index, spec.b.batch, strict=True), (column, spec.b.column)])
        c_at = affine(b, [*zip(index, spec.c.batch, strict=True), (row, spec.c.row), (column, 1)])
        linear_row = affine(b, [(linear, spec.m), (row, 1)])
        b.call(
            name,
            LType("void"),
            b.gep(b.args["a"], a_at, LType(spec.a.kind)),
            b.gep(b.args["b"], b_at, LType(spec.b.kind)),
            b.gep(b.args["c"], c_at, LType(spec.c.kind)),
            linear_row,
            column,
            *(b.args[n] for n, _ in self.extra),
        )
