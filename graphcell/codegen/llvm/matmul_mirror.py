"""The half of a symmetric product that is copied: C = A . A^T from the tiles that reach down to the diagonal.

Enters: a `MatmulSpec` whose right operand is the left one transposed. Leaves: a stage that writes what lies above the diagonal, square by square.
"""

from __future__ import annotations

import math

from graphcell.codegen.llvm.contraction import ContractionTarget, KernelParams, Stage, affine, ceil_div, split_index
from graphcell.codegen.llvm.matmul_spec import MatmulSpec
from graphcell.codegen.llvm.packing import emit_transpose
from graphcell.codegen.llvm.text import VOID, FunctionBuilder, LType, Module, i64


def emit_mirror(module: Module, name: str, spec: MatmulSpec, target: ContractionTarget) -> Stage:
    """Copies the squares below the diagonal, transposed. What lies in a square on the diagonal was computed: no column tile begins within one."""
    lanes, row, kind = target.lanes(spec.kind), spec.c.row, LType(spec.kind)
    params = KernelParams(("c",))
    b = FunctionBuilder(module, name, params.list, internal=False)
    square = emit_transpose(module, lanes, spec.kind, spec.kind)
    rows = ceil_div(spec.m, lanes) - 1
    with b.loop(b.args["begin"], b.args["end"], name="squares") as loop:
        *batch, above = split_index(b, loop.index, (*spec.batch, rows))
        c = b.gep(b.args["c"], affine(b, list(zip(batch, spec.c.batch, strict=True))), kind)
        count = b.add(above, i64(1))
        first = b.binary("smin", b.mul(count, i64(lanes)), i64(spec.m - lanes))  # the last ones overlap those before where rows are left over
        with b.loop(0, count, name="square", at_least_once=True) as left:
            column = b.mul(left.index, i64(lanes))
            source = b.gep(c, affine(b, [(first, row), (column, 1)]), kind)
            b.call(square, VOID, source, i64(row), b.gep(c, affine(b, [(column, row), (first, 1)]), kind), i64(row))
    return Stage(b.finish(), params.buffers, (), math.prod(spec.batch) * rows, lanes * spec.m)
