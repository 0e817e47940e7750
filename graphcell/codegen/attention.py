"""From the attention ops to the plans of their kernels.

Enters: an op and the site where its kernel is emitted. Leaves: the plan, or None where there is no kernel: operands without elements.
"""

from __future__ import annotations

from dataclasses import replace

from graphcell.codegen.layout import row_major
from graphcell.codegen.llvm.attention import emit_attention
from graphcell.codegen.llvm.attention_gradient import GradientSpec, emit_attention_gradient
from graphcell.codegen.llvm.attention_products import AttentionSpec
from graphcell.codegen.llvm.contraction import Plan
from graphcell.codegen.llvm.matmul_spec import Operand
from graphcell.codegen.native import Site
from graphcell.ir.types import TensorType
from graphcell.ops.attention import Attention, AttentionGrad, swap_sequence

Strides = tuple[int, ...]


def emit_attention_op(op: Attention, site: Site) -> Plan | None:
    """Forward."""
    if any(t.size == 0 for t in site.types):
        return None
    out, *rows = op.infer(*site.types)
    powers = _operand(rows[2], row_major(rows[2].shape)) if op.powers else None
    spec = replace(_spec(op, site, 3, _read(op, 3, out, row_major(out.shape))), powers=powers)
    return emit_attention(site.module, site.name, spec, site.target)


def emit_attention_grad_op(op: AttentionGrad, site: Site) -> Plan | None:
    """Backward."""
    if any(t.size == 0 for t in site.types):
        return None
    out, g = (_read(op, 3, site.types[k], site.strides[k]) for k in (3, 6))
    dq, dk, dv = (_read(op, part, type, site.result_strides(part, type)) for part, type in enumerate(op.infer(*site.types)))
    spec = replace(_spec(op, site, 7 + op.powers, out), powers=_operand(site.types[7], site.strides[7]) if op.powers else None)
    return emit_attention_gradient(site.module, site.name, GradientSpec(spec, g, dq, dk, dv), site.target)


def _spec(op: Attention | AttentionGrad, site: Site, mask_at: int, out: Operand) -> AttentionSpec:
    q, k, v = site.types[:3]
    left, right, values = (_operand(t, s) for t, s in zip(site.types[:3], site.strides[:3], strict=True))
    mask, keep = op.masks([_mask(t, s) for t, s in zip(site.types[mask_at:], site.strides[mask_at:], strict=True)])
    shape = q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1], q.shape[:-2]
    return AttentionSpec(*shape, op.scale, left, right, values, out, mask, op.fill, keep, op.dropout)


def _mask(type: TensorType, strides: Strides) -> Operand:
    return _operand(type, tuple(0 if d == 1 else s for d, s in zip(type.shape, strides, strict=True)))


def _operand(type: TensorType, strides: Strides) -> Operand:
    return Operand(type.dtype.llvm, strides[-2], strides[-1], strides[:-2])


def _read(op: Attention | AttentionGrad, part: int, type: TensorType, strides: Strides) -> Operand:
    """An operand of the shape in which part number `part` is written, as matrices of one head each."""
    return _operand(type, swap_sequence(strides) if op.sequence_first[part] else strides)
