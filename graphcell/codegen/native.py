"""Ops with kernels of their own (contractions, convolutions): from an op to the plan of its emitted functions.

Each entry takes the module, a name, the op, the operand types, the operand strides (in elements) and the target, and returns a `Plan`
whose buffers are `a`, `b`, `d`, `e`, … for the operands and `c`, `c1`, … for the results; or None where there is no native kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphcell.codegen.layout import row_major
from graphcell.codegen.llvm.contraction import Plan
from graphcell.codegen.llvm.matmul import MatmulSpec, Operand, emit_matmul
from graphcell.codegen.llvm.target import Target
from graphcell.codegen.llvm.text import Module
from graphcell.ir.op import Op
from graphcell.ir.types import TensorType
from graphcell.ops.contraction import MatMul

Strides = Sequence[tuple[int, ...]]
Emit = Callable[[Module, str, Any, Sequence[TensorType], Strides, Target], Plan | None]


def emit_matmul_op(module: Module, name: str, op: MatMul, types: Sequence[TensorType], strides: Strides, target: Target) -> Plan | None:
    x, y = types
    if not x.dtype.is_float:
        return None
    kind = x.dtype.llvm
    sx, sy = strides
    rows, inner = (sx[-1], sx[-2]) if op.transpose_x else (sx[-2], sx[-1])
    down, across = (sy[-1], sy[-2]) if op.transpose_y else (sy[-2], sy[-1])
    result = op.infer(x, y)
    m, n = result.shape[-2:]
    k = x.shape[-2] if op.transpose_x else x.shape[-1]
    out = row_major(result.shape)
    spec = MatmulSpec(m, n, k, Operand(kind, rows, inner, sx[:-2]), Operand(kind, down, across, sy[:-2]), Operand(kind, out[-2], 1, out[:-2]), result.shape[:-2])
    return emit_matmul(module, name, spec, target)


native_kernels: dict[type[Op], Emit] = {MatMul: emit_matmul_op}
"""Which ops have native kernels beyond loop nests."""
