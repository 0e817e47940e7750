"""Ops with kernels of their own (contractions, convolutions): from an op to the plan of its emitted functions.

Each entry takes the module, a name, the op, the operand types, the operand strides (in elements) and the target, and returns a `Plan`
whose buffers are `a`, `b`, `d`, `e`, … for the operands and `c`, `c1`, … for the results; or None where there is no native kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphcell.codegen.layout import row_major
from graphcell.codegen.llvm.contraction import Plan
from graphcell.codegen.llvm.convolution import emit_convolution, emit_input_gradient
from graphcell.codegen.llvm.convolution_weights import emit_weights_gradient
from graphcell.codegen.llvm.correlation import ConvSpec
from graphcell.codegen.llvm.matmul import MatmulSpec, Operand, emit_matmul
from graphcell.codegen.llvm.target import Target
from graphcell.codegen.llvm.text import Module
from graphcell.ir.op import Op
from graphcell.ir.types import Shape, TensorType
from graphcell.ops.contraction import MatMul
from graphcell.ops.convolution import Conv, ConvInputGrad, ConvWeightGrad

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
    left, right = Operand(kind, rows, inner, sx[:-2]), Operand(kind, down, across, sy[:-2])
    spec = MatmulSpec(m, n, k, left, right, Operand(kind, out[-2], 1, out[:-2]), result.shape[:-2])
    return emit_matmul(module, name, spec, target)


def _spec(op: Conv | ConvInputGrad | ConvWeightGrad, x_shape: Shape, w_shape: Shape, kind: str) -> ConvSpec:
    (top, bottom), (left, right) = op.padding
    n, h, w, c = x_shape
    k, _, kh, kw = w_shape
    (sh, sw), (dh, dw) = op.stride, op.dilation
    return ConvSpec(n, h, w, c, k, kh, kw, (sh, sw), (top, bottom, left, right), (dh, dw), op.groups, kind, kind, kind)


def emit_conv_op(module: Module, name: str, op: Conv, types: Sequence[TensorType], strides: Strides, target: Target) -> Plan | None:
    x, w = types
    if not _has_kernel(op):
        return None
    spec = _spec(op, x.shape, w.shape, x.dtype.llvm)
    return emit_convolution(module, name, spec, target).renamed({"x": "a", "w": "b", "y": "c"})


def emit_input_grad_op(module: Module, name: str, op: ConvInputGrad, types: Sequence[TensorType], strides: Strides, target: Target) -> Plan | None:
    w, g = types
    if not _has_kernel(op):
        return None
    spec = _spec(op, op.infer(w, g).shape, w.shape, w.dtype.llvm)
    return emit_input_gradient(module, name, spec, target).renamed({"w": "a", "dy": "b", "dx": "c"})


def emit_weight_grad_op(module: Module, name: str, op: ConvWeightGrad, types: Sequence[TensorType], strides: Strides, target: Target) -> Plan | None:
    x, g = types
    if not _has_kernel(op):
        return None
    spec = _spec(op, x.shape, op.infer(x, g).shape, x.dtype.llvm)
    return emit_weights_gradient(module, name, spec, target).renamed({"x": "a", "dy": "b", "dw": "c"})


def _has_kernel(op: Conv | ConvInputGrad | ConvWeightGrad) -> bool:
    """Images channels-last; other ranks run through `eval`."""
    return op.channels_last and op.rank == 2


native_kernels: dict[type[Op], Emit] = {
    MatMul: emit_matmul_op,
    Conv: emit_conv_op,
    ConvInputGrad: emit_input_grad_op,
    ConvWeightGrad: emit_weight_grad_op,
}
"""Which ops have native kernels beyond loop nests."""
