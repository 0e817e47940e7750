"""What a matmul asks for before it reads it, where the processor would not foresee it.

Enters: a `MatmulSpec` and its `Schedule`. Leaves: distances and `Fetch`es for the micro-kernels (see `MicroKernel`), and addresses. Nothing of it
changes a result, and addresses may lie outside of buffers.
"""

from __future__ import annotations

from graphcell.codegen.llvm.contraction import LINE_BYTES, PAGE_BYTES, ContractionTarget, ceil_div
from graphcell.codegen.llvm.matmul_schedule import Schedule
from graphcell.codegen.llvm.matmul_spec import MatmulSpec
from graphcell.codegen.llvm.microkernel import Fetch
from graphcell.codegen.llvm.packing import displaced
from graphcell.codegen.llvm.text import FunctionBuilder, LType, Val, i64

STEPS_AHEAD = 16  # by which a transposed A is asked for where the processor does not do it by itself
_FEW_COLUMN_TILES = 2  # of a block: so few panels of B leave the lines of A and of what is asked for where they are


def elements_ahead(spec: MatmulSpec, plan: Schedule, target: ContractionTarget) -> int:
    """How many elements beyond the first row's the last is that each reduction step asks for of A: what the next tile reads of this step, a cache line
    further at least, or a later step.
    """
    if plan.pack_a != "no":
        return 0
    if spec.reads_lines_in_parts(plan.tile, target):
        return max(LINE_BYTES // LType(spec.kind).bytes, 2 * plan.tile.rows - 1) if plan.row_tiles > 1 else 0
    return STEPS_AHEAD * spec.a.column + plan.tile.rows - 1 if spec.a_aliases else 0


def next_tile(spec: MatmulSpec, plan: Schedule, rows: int) -> int:
    """Elements to what the next row tile reads of an A that lies row by row: the processor foresees a row, but not where the next ones begin. Not where
    tiles follow each other on the same few lines of the nearer caches, which B's panels pass through meanwhile.
    """
    in_rows = plan.pack_a == "no" and spec.a.column == 1 and spec.m > plan.tile.rows
    crowded = spec.a.row * LType(spec.kind).bytes % PAGE_BYTES == 0 and plan.columns_per_block > _FEW_COLUMN_TILES
    return rows * spec.a.row if in_rows and not crowded else 0


def fetch_of(spec: MatmulSpec, plan: Schedule) -> Fetch | None:
    """What each row tile after the first asks for of the columns that the first one reads next: by turns a few cache lines of each row, and if there are
    more such tiles, of a part of the rows.
    """
    if not plan.fetches:
        return None
    tiles, lines = min(plan.row_tiles, plan.rows_per_block) - 1, _lines(spec, plan)
    each = ceil_div(lines, tiles)
    return Fetch(spec.b.row, each, rounds=1 << ((tiles // ceil_div(lines, each)).bit_length() - 1))


def fetched_from(
    b: FunctionBuilder, spec: MatmulSpec, plan: Schedule, fetch: Fetch, now: Val, turn: Val, steps: tuple[Val, Val], last: Val | None
) -> Val:
    """Where tile `turn` of those after the first begins to ask: in the next pass, or in the next block after the last one.

    Args:
        now: what of B the pass reads where it lies.
        steps: the first reduction step of the pass, and how many it has.
        last: 1 in the last pass, else 0; None if there is one.
    """
    element = LType(spec.b.kind)
    first, count = steps
    further = i64(plan.columns_per_block * plan.tile.columns)
    if last is not None:
        further = b.select(b.icmp("ne", last, i64(0)), b.sub(further, b.mul(first, i64(spec.b.row))), i64(plan.depth * spec.b.row))
    parts = ceil_div(_lines(spec, plan), fetch.lines)
    line = b.mul(b.rem(turn, i64(parts), signed=False), i64(fetch.lines * (LINE_BYTES // element.bytes)))
    part = b.rem(b.div(turn, i64(parts), signed=False), i64(fetch.rounds), signed=False)
    row = b.mul(b.mul(part, b.div(count, i64(fetch.rounds), signed=False)), i64(spec.b.row))
    return displaced(b, displaced(b, now, further, element), b.add(line, row), element)


def _lines(spec: MatmulSpec, plan: Schedule) -> int:
    """Cache lines of what a tile reads of a row of B."""
    return ceil_div(plan.tile.columns * LType(spec.b.kind).bytes, LINE_BYTES)
