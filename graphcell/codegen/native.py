"""Ops with kernels of their own (contractions, convolutions, sorts): from an op to the plan of its emitted functions.

Each entry takes the op and a `Site` and returns a `Plan` whose buffers are `a`, `b`, `d`, `e`, … for the operands and `c`, `c1`, … for
the results; or None where there is no native kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

from graphcell.codegen.layout import row_major
from graphcell.codegen.llvm.contraction import Epilogue, Extra, Plan
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.llvm.text import Module
from graphcell.ir.graph import Node
from graphcell.ir.op import Op
from graphcell.ir.types import TensorType
from graphcell.locks import whole
from graphcell.ops.attention import Attention, AttentionGrad
from graphcell.ops.contraction import MatMul
from graphcell.ops.convolution import Conv, ConvInputGrad, ConvWeightGrad
from graphcell.ops.sorting import SearchSorted, Sort, TopK
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
        mirrored: whether half of a product is copied (see `is_mirrored_product`).
        for_team: whether it may be a step of a loop that a team of threads goes through.
        past: whether the result, or what an epilogue makes of it, is written past the caches.
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
    mirrored: bool = False
    for_team: bool = False
    past: bool = False

    def result_strides(self, number: int, type: TensorType) -> tuple[int, ...]:
        """How a result lies in memory; the last dimension is contiguous."""
        given = self.written[number] if number < len(self.written) else None
        return row_major(type.shape) if given is None else given


Emit = Callable[[Any, Site], Plan | None]


def emit_matmul_op(op: MatMul, site: Site) -> Plan | None:
    x, y = site.types
    if not x.dtype.is_float:
        return None
    with whole:  # programs of loops alone do not need it
        from graphcell.codegen.llvm.matmul import MatmulSpec, Operand, emit_matmul, with_prepared_weights

    kind = x.dtype.llvm
    sx, sy = site.strides
    rows, inner = (sx[-1], sx[-2]) if op.transpose_x else (sx[-2], sx[-1])
    down, across = (sy[-1], sy[-2]) if op.transpose_y else (sy[-2], sy[-1])
    result = op.infer(x, y)
    m, n = result.shape[-2:]
    k = x.shape[-2] if op.transpose_x else x.shape[-1]
    out = site.result_strides(0, result)
    left, right = Operand(kind, rows, inner, sx[:-2]), Operand(kind, down, across, sy[:-2])
    spec = MatmulSpec(m, n, k, left, right, Operand(kind, out[-2], 1, out[:-2], past=site.past), result.shape[:-2], for_team=site.for_team)
    if site.mirrored:
        spec = replace(spec, mirrored=True)
    elif 1 in site.steady:
        spec = with_prepared_weights(spec)
    return emit_matmul(site.module, site.name, spec, site.target, site.epilogue, site.extra)


_HOMES: dict[type[Op], tuple[str, str]] = {
    Conv: ("convolution", "emit_conv_op"),
    ConvInputGrad: ("convolution", "emit_input_grad_op"),
    ConvWeightGrad: ("convolution", "emit_weight_grad_op"),
    Attention: ("attention", "emit_attention_op"),
    AttentionGrad: ("attention", "emit_attention_grad_op"),
    Sort: ("sorting", "emit_sort_op"),
    TopK: ("sorting", "emit_sort_op"),
    SearchSorted: ("searching", "emit_search_op"),
}
"""Where the other ops with native kernels beyond loop nests have them: a module beside this one, and its function."""


def native_kernel(kind: type[Op]) -> Emit | None:
    """How an op's kernel is emitted, None where loop nests, or `eval`, do it. The code generators of convolutions and the like, a fifth of all, are
    imported where a program has such ops."""
    if kind is MatMul:
        return emit_matmul_op
    if kind not in _HOMES:
        return None
    room, function = _HOMES[kind]
    with whole:
        emit: Emit = getattr(import_module(f"graphcell.codegen.{room}"), function)
    return emit


def has_kernel(op: Conv | ConvInputGrad | ConvWeightGrad) -> bool:
    """Whether a convolution is native: images channels-last; the others run through `eval`."""
    return op.channels_last and op.rank == 2


def is_mirrored_product(node: Node, has_epilogue: bool) -> bool:
    """Whether a node multiplies matrices with themselves, transposed, so that half of the result is copied from the other half. An epilogue, which may
    differ in the two, would have to be a loop nest of its own.
    """
    op = node.op
    if not isinstance(op, MatMul) or op.transpose_x == op.transpose_y or node.operands[0] is not node.operands[1]:
        return False
    with whole:  # programs of loops alone do not need it
        from graphcell.codegen.llvm.matmul_schedule import is_mirrored

    type = node.operands[0].type
    return is_mirrored(type.dtype.llvm, node.results[0].type.shape[-1], type.shape[-2 if op.transpose_x else -1], has_epilogue)


def epilogue_columns(node: Node) -> int:
    """Elements of a row of the node's result as the epilogue of its kernel counts them; 0 if it takes no epilogue."""
    op = node.op
    if isinstance(op, (Conv, ConvInputGrad, ConvWeightGrad)):
        shape = node.results[0].type.shape
        return (math.prod(shape[1:]) if isinstance(op, ConvWeightGrad) else shape[-1]) if has_kernel(op) else 0
    takes_one = isinstance(op, MatMul) and node.results[0].type.dtype.is_float and not is_mirrored_product(node, has_epilogue=True)
    return node.results[0].type.shape[-1] if takes_one else 0
