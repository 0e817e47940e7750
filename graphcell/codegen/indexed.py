"""Kernels of the ops that read and write at places known only when they run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphcell.codegen.gathers import gather_strides
from graphcell.codegen.kernel import Access, GatherLoad, Load, LoopKernel, Statement, Store
from graphcell.codegen.layout import Layout, row_major
from graphcell.codegen.schedule import collapse
from graphcell.codegen.vectorize import choose_vector
from graphcell.ir.types import TensorType
from graphcell.locks import whole
from graphcell.ops.indexing import Gather, GatherElements, Scatter, ScatterElements, ScatterStep

if TYPE_CHECKING:
    from graphcell.codegen.llvm.scatter import ScatterKernel
    from graphcell.codegen.llvm.scatter_step import ScatterStepKernel


def gather_kernel(op: Gather | GatherElements, types: tuple[TensorType, ...], layouts: Sequence[Layout], result: TensorType) -> LoopKernel:
    """Operands: the memory of x and of the indices, which lie there as `layouts` say, the result."""
    x, *indices = types
    rank, whole = result.rank, layouts[0]
    steps = whole.strides
    every = (1 << rank) - 1
    if isinstance(op, Gather):
        axes = op.axes
        x_strides, index_strides = gather_strides(op, layouts, rank)
    else:
        axes = (op.axis,)
        x_strides, index_strides = tuple(0 if k == op.axis else s for k, s in enumerate(steps)), [layouts[1].strides]
    body = []
    for k, (t, layout, strides) in enumerate(zip(indices, layouts[1:], index_strides, strict=True)):
        varies = sum(1 << d for d, s in enumerate(strides) if s)
        body.append(Statement(Load(Access(k + 1, strides, layout.offset), t.dtype), (), t.dtype, varies, 0))
    what = GatherLoad(Access(0, x_strides, whole.offset), tuple(steps[a] for a in axes), tuple(x.shape[a] for a in axes), x.dtype)
    body.append(Statement(what, tuple(range(len(indices))), x.dtype, every, 0))
    stores = (Store(len(body) - 1, Access(len(types), row_major(result.shape))),)
    dtypes = (*(t.dtype for t in types), result.dtype)
    return choose_vector(collapse(LoopKernel(result.shape, rank, -1, tuple(body), stores, dtypes)))


def scatter_kernel(op: Scatter | ScatterElements, types: tuple[TensorType, ...]) -> ScatterKernel:
    """Operands: the target (a copy of x), the indices, the updates."""
    with whole:  # few programs need it
        from graphcell.codegen.llvm.scatter import ScatterKernel

    x, *indices, updates = types
    steps, update_steps, index_steps = row_major(x.shape), row_major(updates.shape), row_major(indices[0].shape)
    free: list[tuple[int, int, int, int]] = []
    ordered: list[tuple[int, int, int, int]] = []
    if isinstance(op, Scatter):
        axes, first, inner = op.axes, op.axes[0], indices[0].rank
        for d in range(first):
            free.append((x.shape[d], steps[d], update_steps[d], 0))
        for d in range(inner):
            ordered.append((indices[0].shape[d], 0, update_steps[first + d], index_steps[d]))
        rest = [k for k in range(first, x.rank) if k not in axes]
        for position, k in enumerate(rest):
            free.append((x.shape[k], steps[k], update_steps[first + inner + position], 0))
        vector = bool(rest) and steps[rest[-1]] == 1
    else:
        axes, vector = (op.axis,), False
        for d, n in enumerate(updates.shape):
            if d == op.axis:
                ordered.append((n, 0, update_steps[d], index_steps[d]))
            else:
                free.append((n, steps[d], update_steps[d], index_steps[d]))
    return ScatterKernel(op.kind, x.dtype, tuple(t.dtype for t in indices), tuple(free), tuple(ordered),
                         tuple(steps[a] for a in axes), tuple(x.shape[a] for a in axes), vector)


def scatter_cost(kernel: ScatterKernel) -> int:
    return kernel.points * (1 if kernel.vector else 4) + math.prod(n for n, *_ in kernel.ordered)


def scatter_step_kernel(op: ScatterStep, types: tuple[TensorType, ...]) -> ScatterStepKernel:
    """Operands: the target (x itself or a copy), the indices, the updates, the rate. The last dimension is not indexed."""
    with whole:  # few programs need it
        from graphcell.codegen.llvm.scatter_step import ScatterStepKernel

    x, *indices, updates, _ = types
    steps, update_steps = row_major(x.shape), row_major(updates.shape)
    first, inner = op.axes[0], indices[0].rank
    rest = [k for k in range(first, x.rank) if k not in op.axes]
    places = [*((k, k) for k in range(first)), *((k, first + inner + position) for position, k in enumerate(rest))]
    outer = tuple((x.shape[k], steps[k], update_steps[place]) for k, place in places[:-1])
    update_step = math.prod(updates.shape[first + inner :])
    return ScatterStepKernel(x.dtype, tuple(t.dtype for t in indices), indices[0].size, update_step, outer, x.shape[-1],
                             tuple(steps[a] for a in op.axes), tuple(x.shape[a] for a in op.axes))
