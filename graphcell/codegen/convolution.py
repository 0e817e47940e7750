"""From the convolution ops to the plans of their kernels.

Enters: an op and the site where its kernel is emitted. Leaves: the plan, or None where there is no kernel: images that are not channels-last or have
another rank run through `eval`.
"""

from __future__ import annotations

from graphcell.codegen.llvm.contraction import Plan
from graphcell.codegen.llvm.convolution import emit_convolution, emit_input_gradient
from graphcell.codegen.llvm.convolution_weights import emit_weights_gradient
from graphcell.codegen.llvm.correlation import ConvSpec
from graphcell.codegen.native import Site, has_kernel
from graphcell.ir.types import Shape
from graphcell.ops.convolution import Conv, ConvInputGrad, ConvWeightGrad


def _spec(op: Conv | ConvInputGrad | ConvWeightGrad, x_shape: Shape, w_shape: Shape, kind: str) -> ConvSpec:
    (top, bottom), (left, right) = op.padding
    n, h, w, c = x_shape
    k, _, kh, kw = w_shape
    (sh, sw), (dh, dw) = op.stride, op.dilation
    return ConvSpec(n, h, w, c, k, kh, kw, (sh, sw), (top, bottom, left, right), (dh, dw), op.groups, kind, kind, kind)


def emit_conv_op(op: Conv, site: Site) -> Plan | None:
    x, w = site.types
    if not has_kernel(op):
        return None
    spec = _spec(op, x.shape, w.shape, x.dtype.llvm)
    plan = emit_convolution(site.module, site.name, spec, site.target, site.epilogue, site.extra, prepared=1 in site.steady)
    return plan.renamed({"x": "a", "w": "b", "y": "c"})


def emit_input_grad_op(op: ConvInputGrad, site: Site) -> Plan | None:
    w, g = site.types
    if not has_kernel(op):
        return None
    spec = _spec(op, op.infer(w, g).shape, w.shape, w.dtype.llvm)
    plan = emit_input_gradient(site.module, site.name, spec, site.target, site.epilogue, site.extra, prepared=0 in site.steady)
    return plan.renamed({"w": "a", "dy": "b", "dx": "c"})


def emit_weight_grad_op(op: ConvWeightGrad, site: Site) -> Plan | None:
    x, g = site.types
    if not has_kernel(op):
        return None
    spec = _spec(op, x.shape, op.infer(x, g).shape, x.dtype.llvm)
    plan = emit_weights_gradient(site.module, site.name, spec, site.target, site.epilogue, site.extra)
    return plan.renamed({"x": "a", "dy": "b", "dw": "c"})
