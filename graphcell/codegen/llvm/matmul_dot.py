"""Matrix products with few rows or few columns, as tiles of dot products.

Enters: a `MatmulSpec` whose operands are both contiguous along k, or the left one is and the right one has few columns (`is_narrow`). Leaves:
the emitted stages. The lanes run along k, so the large operand need not be transposed or packed: a product of one row with a transposed matrix
reads the matrix once. Few columns that are not contiguous along k are, in a copy. (Lanes along few columns would be empty for the most part.)
"""

from __future__ import annotations

import math
from dataclasses import replace

from graphcell.codegen.llvm.contraction import (
    ContractionTarget,
    Epilogue,
    Extra,
    KernelParams,
    Plan,
    Stage,
    affine,
    block_range,
    ceil_div,
    first_element,
    round_up,
    split_index,
    tile_loop,
    vector_registers,
)
from graphcell.codegen.llvm.dot_kernel import DotKernel, dot_tiles, emit_dot
from graphcell.codegen.llvm.matmul_spec import MatmulSpec, in_pairs
from graphcell.codegen.llvm.packing import load_strided
from graphcell.codegen.llvm.text import FunctionBuilder, LType, Module, Val, constant_mask, i64
from graphcell.records import dataclass

_FEWEST_ROWS = 16
"""Rows from which few columns are worth a copy."""
_ROWS = 6, 12, 32
"""Of a product with a transposed matrix, at most: from memory, one of twice the L2 cache, and one of long rows in that cache."""
_ROWS_FOR_A_VECTOR, _ROWS_SHORT = 2.5, 4
"""The same by the vectors of the reduction, and where it fills none: B is turned number by number then."""
_LONG_ROW = 16
"""Vectors of such a row, at least."""
_SHORT, _LONG = 4, 32
"""Vectors of the reduction from which the sums over the lanes at the end weigh little: beside columns that fill no vector, and beside those that fill the
second one less than half."""


def uses_dot(spec: MatmulSpec, target: ContractionTarget) -> bool:
    """Few rows or columns, both operands contiguous along k: lanes run along k and nothing need be transposed; or next to nothing of that."""
    if spec.a.column != 1 or spec.k < 2:
        return False
    if is_narrow(spec, target):
        return True
    return spec.b.row == 1 and (spec.n == 1 or (spec.m <= _most_rows(spec, target) and spec.b.column != 1))


def _most_rows(spec: MatmulSpec, target: ContractionTarget) -> int:
    """Rows to which it takes less to read a transposed B again for every few of them than to turn it once: the more, the nearer B is, and the longer
    the reduction, at the end of which each dot product is added up.
    """
    lanes = target.lanes(spec.kind)
    for_sums = _ROWS_SHORT if spec.k < lanes else int(_ROWS_FOR_A_VECTOR * spec.k / lanes)
    if vector_registers(target) < 32 or in_pairs(spec, target).paired:
        return min(for_sums, _ROWS[0])
    nbytes = spec.k * spec.n * LType(spec.b.kind).bytes
    is_near = nbytes <= target.l2_bytes // 2 and spec.k >= _LONG_ROW * lanes
    return min(for_sums, _ROWS[2 if is_near else 1 if nbytes <= 2 * target.l2_bytes else 0])


def is_narrow(spec: MatmulSpec, target: ContractionTarget) -> bool:
    """Whether a left operand that is contiguous along k meets so few columns that a good part of a vector of them would be empty."""
    lanes = target.lanes(spec.kind)
    if spec.a.column != 1 or spec.n < 2 or spec.n == lanes or 2 * spec.n > 3 * lanes or spec.k < (_SHORT if spec.n < lanes else _LONG) * lanes:
        return False
    return spec.b.row == 1 or (spec.m >= _FEWEST_ROWS and not any(spec.b.batch))


@dataclass(frozen=True)
class DotMatmul:
    """Emits the dot-product form; blocks are batch x groups of row tiles x groups of column tiles.

    `exchanged`: the spec is that of the product's transpose, so that its left operand is the buffer b, and its columns are the rows of the result. There is no
    epilogue then, which would ask for these.
    """

    module: Module
    name: str
    spec: MatmulSpec
    target: ContractionTarget
    epilogue: Epilogue | None
    extra: Extra
    batch_rows: int
    exchanged: bool = False

    def emit(self) -> Plan:
        if self._goes_as_row:
            return replace(self, spec=_transposed(self.spec), exchanged=True).emit()
        spec, extra = self.spec, tuple(self.extra)
        rows, columns = dot_tiles(spec.m, spec.n, spec.kind, self.target)
        row_tiles, column_tiles = sum(s.tiles for s in rows), sum(s.tiles for s in columns)
        batch = math.prod(spec.batch)
        wanted = spec.blocks_wanted
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
        params = KernelParams((*self._operands, "c"), extra)
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
        stage = Stage(b.finish(), params.buffers, tuple(n for n, _ in extra), blocks, spec.flops // blocks)
        tiles, of_block, beside = (columns, per_column, grid[1]) if self.exchanged else (rows, per_row, grid[0])
        is_of_rows = spec.for_team and batch == beside == 1
        plan = Plan((stage,), note=note, first_rows=tuple(first_element(tiles, k * of_block) for k in range(blocks)) if is_of_rows else ())
        if not self._is_turned:
            return plan
        packed = ("packed", spec.n * self._pitch * LType(spec.kind).bytes)
        return replace(plan, stages=(self._emit_turn(), stage), shared=(packed,), note=f"{note}, columns copied")

    @property
    def _is_turned(self) -> bool:
        """Whether the columns are copied, so that they are contiguous along k."""
        return self.spec.b.row != 1

    @property
    def _goes_as_row(self) -> bool:
        """Whether the result is a column that is computed as a row: then the lanes of several of its elements are added up at once."""
        spec = self.spec
        return spec.n == 1 < spec.m and spec.b.row == spec.c.row == 1 and self.epilogue is None

    @property
    def _operands(self) -> tuple[str, str]:
        """The buffers of the left and the right operand."""
        return ("b", "a") if self.exchanged else ("a", "packed" if self._is_turned else "b")

    @property
    def _pitch(self) -> int:
        """From column to column in the copy."""
        return round_up(self.spec.k, self.target.lanes(self.spec.kind))

    def _emit_turn(self) -> Stage:
        spec, lanes = self.spec, self.target.lanes(self.spec.kind)
        params = KernelParams(("b", "packed"))
        b = FunctionBuilder(self.module, f"{self.name}.turn", params.list, internal=False)
        full = spec.k // lanes * lanes

        def piece(column: Val, k: Val, mask: Val | None) -> None:
            source = b.gep(b.args["b"], affine(b, [(column, spec.b.column), (k, spec.b.row)]), LType(spec.b.kind))
            to = b.gep(b.args["packed"], affine(b, [(column, self._pitch), (k, 1)]), LType(spec.kind))
            b.store(load_strided(b, source, spec.b.row, spec.b.kind, spec.kind, lanes, mask), to)

        with b.loop(b.args["begin"], b.args["end"], name="column") as column:
            with b.loop(0, full, lanes, name="k") as k:
                piece(column.index, k.index, None)
            if full < spec.k:
                piece(column.index, i64(full), constant_mask(spec.k - full, lanes))
        return Stage(b.finish(), params.buffers, (), spec.n, spec.k, by_each=True)

    def _kernel(self, i: int, rows: int, j: int, columns: int) -> str:
        spec = self.spec
        kernel = DotKernel(
            spec.kind,
            self.target.lanes(spec.kind),
            rows,
            columns,
            spec.k,
            spec.a.row,
            self._pitch if self._is_turned else spec.b.column,
            spec.c.row,
            spec.a.kind,
            spec.kind if self._is_turned else spec.b.kind,
            spec.c.kind,
            self.batch_rows,
        )
        return emit_dot(self.module, f"{self.name}.dot{i}{j}", kernel, self.epilogue, self.extra)

    def _call(
        self, b: FunctionBuilder, name: str, index: list[Val], linear: Val, row: Val, column: Val
    ) -> None:
        spec, (left_name, right_name) = self.spec, self._operands
        a_at = affine(b, [*zip(index, spec.a.batch, strict=True), (row, spec.a.row)])
        if self._is_turned:
            right = b.gep(b.args[right_name], affine(b, [(column, self._pitch)]), LType(spec.kind))
        else:
            right = b.gep(b.args[right_name], affine(b, [*zip(index, spec.b.batch, strict=True), (column, spec.b.column)]), LType(spec.b.kind))
        c_at = affine(b, [*zip(index, spec.c.batch, strict=True), (row, spec.c.row), (column, 1)])
        linear_row = affine(b, [(linear, spec.m), (row, 1)])
        b.call(
            name,
            LType("void"),
            b.gep(b.args[left_name], a_at, LType(spec.a.kind)),
            right,
            b.gep(b.args["c"], c_at, LType(spec.c.kind)),
            linear_row,
            column,
            *(b.args[n] for n, _ in self.extra),
        )


def _transposed(spec: MatmulSpec) -> MatmulSpec:
    """The product that gives a contiguous column as a row."""
    left, right = (replace(o, row=o.column, column=o.row) for o in (spec.b, spec.a))
    return replace(spec, m=spec.n, n=spec.m, a=left, b=right, c=replace(spec.c, row=spec.m, column=1))
