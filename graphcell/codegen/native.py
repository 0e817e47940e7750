"""Ops with kernels of their own (contractions, convolutions, sorts): from an op to the plan of its emitted functions.

Each entry takes the op and a `Site` and returns a `Plan` whose buffers are `a`, `b`, `d`, `e`, … for the operands and `c`, `c1`, … for
the results; or None where there is no native kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from graphcell.codegen.attention import emit_attention_grad_op, emit_attention_op
from graphcell.codegen.layout import row_major
from graphcell.codegen.llvm.contraction import Epilogue, Extra, Plan
from graphcell.codegen.llvm.convolution import emit_convolution, emit_input_gradient
from graphcell.codegen.llvm.convolution_weights import emit_weights_gradient
from graphcell.codegen.llvm.correlation import ConvSpec
from graphcell.codegen.llvm.matmul import MatmulSpec, Operand, emit_matmul, with_prepared_weights
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.llvm.sorting import SortKernel, emit_sort
from graphcell.codegen.llvm.text import Module
from graphcell.ir.graph import Node
from graphcell.ir.op import Op
from graphcell.ir.types import Shape, TensorType
from graphcell.ops.attention import Attention, AttentionGrad
from graphcell.ops.contraction import MatMul
from graphcell.ops.convolution import Conv, ConvInputGrad, ConvWeightGrad
from graphcell.ops.sorting import Sort, TopK
from graphcell.records import dataclass


@dataclass(frozen=True)
class Site:
    """Where a kernel is emitted and for what.

    Attributes:
        name: the functions' names begin with it.
        types: of the operands.
        strides: of the operands, in elements.
        steady: operands that do not change from run to run, so that what is done to them alone costs nothing.
        written: strides of the results where they are not contiguous.
        epilogue: what becomes of each vector of the result (llvm/contraction.py), with the pointers `extra` that it needs.
    """

    module: Module
    name: str
    types: tuple[TensorType, ...]
    strides: tuple[tuple[int, ...], ...]
    target: Target
    epilogue: Epilogue | None = None
    extra: Extra = ()
    steady: frozenset[int] = frozenset()
    written: tuple[tuple[int, ...] | None, ...] = ()

    def result_strides(self, number: int, type: TensorType) -> tuple[int, ...]:
        """How a result lies in memory; the last dimension is contiguous."""
        given = self.written[number] if number < len(self.written) else None
        return row_major(type.shape) if given is None else given


Emit = Callable[[Any, Site], Plan | None]


def emit_matmul_op(op: MatMul, site: Site) -> Plan | None:
    x, y = site.types
    if not x.dtype.is_float:
        return None
    kind = x.dtype.llvm
    sx, sy = site.strides
    rows, inner = (sx[-1], sx[-2]) if op.transpose_x else (sx[-2], sx[-1])
    down, across = (sy[-1], sy[-2]) if op.transpose_y else (sy[-2], sy[-1])
    result = op.infer(x, y)
    m, n = result.shape[-2:]
    k = x.shape[-2] if op.transpose_x else x.shape[-1]
    out = site.result_strides(0, result)
    left, right = Operand(kind, rows, inner, sx[:-2]), Operand(kind, down, across, sy[:-2])
    spec = MatmulSpec(m, n, k, left, right, Operand(kind, out[-2], 1, out[:-2]), result.shape[:-2])
    if 1 in site.steady:
        spec = with_prepared_weights(spec)
    return emit_matmul(site.module, site.name, spec, site.target, site.epilogue, site.extra)


def _spec(op: Conv | ConvInputGrad | ConvWeightGrad, x_shape: Shape, w_shape: Shape, kind: str) -> ConvSpec:
    (top, bottom), (left, right) = op.padding
    n, h, w, c = x_shape
    k, _, kh, kw = w_shape
    (sh, sw), (dh, dw) = op.stride, op.dilation
    return ConvSpec(n, h, w, c, k, kh, kw, (sh, sw), (top, bottom, left, right), (dh, dw), op.groups, kind, kind, kind)


def emit_conv_op(op: Conv, site: Site) -> Plan | None:
    x, w = site.types
    if not _has_kernel(op):
        return None
    spec = _spec(op, x.shape, w.shape, x.dtype.llvm)
    plan = emit_convolution(site.module, site.name, spec, site.target, site.epilogue, site.extra, prepared=1 in site.steady)
    return plan.renamed({"x": "a", "w": "b", "y": "c"})


def emit_input_grad_op(op: ConvInputGrad, site: Site) -> Plan | None:
    w, g = site.types
    if not _has_kernel(op):
        return None
    spec = _spec(op, op.infer(w, g).shape, w.shape, w.dtype.llvm)
    plan = emit_input_gradient(site.module, site.name, spec, site.target, site.epilogue, site.extra, prepared=0 in site.steady)
    return plan.renamed({"w": "a", "dy": "b", "dx": "c"})


def emit_weight_grad_op(op: ConvWeightGrad, site: Site) -> Plan | None:
    x, g = site.types
    if not _has_kernel(op):
        return None
    spec = _spec(op, x.shape, op.infer(x, g).shape, x.dtype.llvm)
    plan = emit_weights_gradient(site.module, site.name, spec, site.target, site.epilogue, site.extra)
    return plan.renamed({"x": "a", "dy": "b", "dw": "c"})


def _has_kernel(op: Conv | ConvInputGrad | ConvWeightGrad) -> bool:
    """Images channels-last; other ranks run through `eval`."""
    return op.channels_last and op.rank == 2


def emit_sort_op(op: Sort | TopK, site: Site) -> Plan | None:
    (x,) = site.types
    if not x.dtype.llvm:
        return None
    count, descending = (op.k, op.largest) if isinstance(op, TopK) else (x.shape[op.axis], op.descending)
    kernel = SortKernel(x.dtype, math.prod(x.shape[: op.axis]), x.shape[op.axis], math.prod(x.shape[op.axis + 1 :]), count, descending)
    return emit_sort(site.module, site.name, kernel, site.target)


native_kernels: dict[type[Op], Emit] = {
    MatMul: emit_matmul_op,
    Conv: emit_conv_op,
    ConvInputGrad: emit_input_grad_op,
    ConvWeightGrad: emit_weight_grad_op,
    Attention: emit_attention_op,
    AttentionGrad: emit_attention_grad_op,
    Sort: emit_sort_op,
    TopK: emit_sort_op,
}
"""Which ops have native kernels beyond loop nests."""


def epilogue_columns(node: Node) -> int:
    """Elements of a row of the node's result as the epilogue of its kernel counts them; 0 if it takes no epilogue."""
    op = node.op
    if isinstance(op, (Conv, ConvInputGrad, ConvWeightGrad)):
        shape = node.results[0].type.shape
        return (math.prod(shape[1:]) if isinstance(op, ConvWeightGrad) else shape[-1]) if _has_kernel(op) else 0
    return node.results[0].type.shape[-1] if isinstance(op, MatMul) and node.results[0].type.dtype.is_float else 0
