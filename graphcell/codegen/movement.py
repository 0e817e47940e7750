"""Steps that move elements about: copies, concatenation, padding, slices, scans and scatters, as calls of loop nests.

Enters: a node and the places of its values. Leaves: calls in the entry function. `Movement` is what a frame of lower.py inherits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphcell.codegen.fuse import Analysis
from graphcell.codegen.indexed import scatter_cost, scatter_kernel, scatter_step_kernel
from graphcell.codegen.kernel import Access, LoopKernel, rebase
from graphcell.codegen.layout import row_major
from graphcell.codegen.llvm.body import storage_type
from graphcell.codegen.llvm.loops import block_count, cost
from graphcell.codegen.llvm.text import I8, I64, FunctionBuilder, Val, i64
from graphcell.codegen.lowering import Calls, Lowering
from graphcell.codegen.memory import aligned_size
from graphcell.codegen.pieces import Piece, fills_around
from graphcell.codegen.quotients import invert_once_a_row
from graphcell.codegen.reach import reach_of_loops
from graphcell.codegen.schedule import copy_kernel, fill_kernel
from graphcell.codegen.units import in_units
from graphcell.ir.graph import Node, Value
from graphcell.ir.types import Shape, TensorType
from graphcell.locks import whole
from graphcell.ops.indexing import DynamicSlice, Scatter, ScatterElements, ScatterStep
from graphcell.ops.movement import Concat, Pad, UpdateSlice
from graphcell.ops.scan import Cumulative


class Movement:
    """The steps of a frame that move elements; `place` says where values lie."""

    lowering: Lowering
    info: Analysis
    place: dict[Value, Val]
    pieces: dict[Value, Piece]

    def place_of(self, v: Value) -> Val:
        return self.place[self.info.layout(v).root]

    def copy(self, b: FunctionBuilder, target: Val, source: Val, type: TensorType, call: Calls) -> None:
        if type.nbytes:
            with call.part(b, target, source, type) as (begin, count):
                to, at = b.gep(target, begin, I8), b.gep(source, begin, I8)
                b.effect(f"call void @llvm.memcpy.p0.p0.i64(ptr {to.text}, ptr {at.text}, {count}, i1 false)")
            self.lowering.module.declarations.setdefault("llvm.memcpy", "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")

    def run_loops(self, b: FunctionBuilder, kernel: LoopKernel, buffers: list[Val], call: Calls) -> None:
        kernel, units, target, reach = invert_once_a_row(kernel), call.units, self.lowering.target, None
        if units is not None:
            divided = in_units(kernel, units, target)
            reach = reach_of_loops(divided, buffers, units, target)
            kernel = divided if reach.of_unit else kernel
        blocks = block_count(kernel, target)
        if blocks:
            kernel, bases = rebase(kernel)
            buffers = [b.gep(p, base, storage_type(d)) for p, base, d in zip(buffers, bases, kernel.operands, strict=True)]
            name = self.lowering.loop_function(kernel)
            with self.lowering.step(b, name, str(kernel), blocks):
                call.blocks(b, name, buffers, blocks, cost(kernel), reach=reach)
                if kernel.past:  # other threads' stores are ordered by the locked instruction with which they leave the region
                    b.order_stores()

    def copy_into(self, b: FunctionBuilder, v: Value, result: Val, strides: tuple[int, ...], offset: int, call: Calls) -> None:
        layout = self.info.layout(v)
        kernel = copy_kernel(v.type.shape, v.type.dtype, Access(0, layout.strides, layout.offset), Access(1, strides, offset))
        self.run_loops(b, kernel, [self.place[layout.root], result], call)

    def _start_from(self, b: FunctionBuilder, v: Value, result: Value, call: Calls) -> None:
        """Copies v to where `result` lies, unless it lies there."""
        if self.place_of(v).text != self.place[result].text:
            self.copy_into(b, v, self.place[result], row_major(result.type.shape), 0, call)

    def emit_concat(self, b: FunctionBuilder, node: Node, op: Concat, call: Calls) -> None:
        (result,) = node.results
        strides = row_major(result.type.shape)
        offset = 0
        for v in node.operands:
            if self.info.layout(v).root not in self.pieces:
                self.copy_into(b, v, self.place[result], strides, offset, call)
            offset += v.type.shape[op.axis] * strides[op.axis]

    def emit_pad(self, b: FunctionBuilder, node: Node, op: Pad, call: Calls) -> None:
        (x,), (result,) = node.operands, node.results
        strides = row_major(result.type.shape)
        for shape, access in _boxes_around(op, x.type.shape, result.type.shape):
            self.run_loops(b, fill_kernel(shape, result.type.dtype, op.value, access), [self.place[result]], call)
        if self.info.layout(x).root not in self.pieces:
            offset = sum(a * s for a, s in zip(op.low, strides, strict=True))
            inside = tuple(s * (i + 1) for s, i in zip(strides, op.interior, strict=True))
            self.copy_into(b, x, self.place[result], inside, offset, call)

    def emit_update(self, b: FunctionBuilder, node: Node, op: UpdateSlice, call: Calls) -> None:
        (x, update), (result,) = node.operands, node.results
        strides = row_major(result.type.shape)
        if update.type.size < result.type.size:
            self._start_from(b, x, result, call)
        offset = sum(a * s for a, s in zip(op.start, strides, strict=True))
        self.copy_into(b, update, self.place[result], tuple(s * t for s, t in zip(op.step, strides, strict=True)), offset, call)

    def emit_scan(self, b: FunctionBuilder, node: Node, op: Cumulative, call: Calls) -> None:
        with whole:  # few programs need it
            from graphcell.codegen.llvm.scan import emit_scan, scan_kernel

        (x,), (result,) = node.operands, node.results
        kernel = scan_kernel(op.kind, x.type.dtype, x.type.shape, op.axis, op.reverse)
        blocks = kernel.blocks(self.lowering.target)
        if not blocks:
            return
        name = self.lowering.function("scan", kernel, lambda name: emit_scan(self.lowering.module, name, kernel, self.lowering.target))
        with self.lowering.step(b, name, str(kernel), blocks):
            call.blocks(b, name, [self.place_of(x), self.place[result]], blocks, 2 * kernel.points)

    def emit_scatter(self, b: FunctionBuilder, node: Node, op: Scatter | ScatterElements, call: Calls) -> None:
        with whole:  # few programs need it
            from graphcell.codegen.llvm.scatter import emit_scatter

        (result,) = node.results
        self._start_from(b, node.operands[0], result, call)
        kernel = scatter_kernel(op, tuple(v.type for v in node.operands))
        blocks = kernel.blocks(self.lowering.target)
        if not blocks or not kernel.points:
            return
        name = self.lowering.function("scatter", kernel, lambda name: emit_scatter(self.lowering.module, name, kernel, self.lowering.target))
        buffers = [self.place[result], *map(self.place_of, node.operands[1:])]
        with self.lowering.step(b, name, str(kernel), blocks):
            call.blocks(b, name, buffers, blocks, scatter_cost(kernel))

    def scatter_step_bytes(self, node: Node, op: ScatterStep) -> int:
        """Memory for the chains of updates."""
        return sum(map(aligned_size, scatter_step_kernel(op, tuple(v.type for v in node.operands)).link_bytes))

    def emit_scatter_step(self, b: FunctionBuilder, node: Node, op: ScatterStep, own: Val, call: Calls) -> None:
        with whole:  # few programs need it
            from graphcell.codegen.llvm.scatter_step import emit_link, emit_step

        (result,) = node.results
        self._start_from(b, node.operands[0], result, call)
        kernel = scatter_step_kernel(op, tuple(v.type for v in node.operands))
        if not result.type.size:
            return
        link = self.lowering.function("link_updates", kernel, lambda name: emit_link(self.lowering.module, name, kernel))
        step = self.lowering.function("scatter_step", kernel, lambda name: emit_step(self.lowering.module, name, kernel, self.lowering.target))
        *indices, updates, rate = map(self.place_of, node.operands[1:])
        first, following = own, b.gep(own, aligned_size(kernel.link_bytes[0]), I8)
        blocks = kernel.blocks(self.lowering.target)
        with self.lowering.step(b, step, str(kernel), blocks):
            call.blocks(b, link, [*indices, rate, first, following], 1, 0)
            call.blocks(b, step, [self.place[result], *indices, updates, rate, first, following], blocks, kernel.points)

    def _dynamic_start(self, b: FunctionBuilder, starts: Sequence[Value], shape: Sequence[int], strides: Sequence[int], size: Sequence[int]) -> Val:
        """The offset, in elements, of a block of extents `size` whose clamped start is read now."""
        offset = i64(0)
        for v, d, n, step in zip(starts, shape, size, strides, strict=True):
            dtype = v.type.dtype
            at = b.cast(b.load(self.place_of(v), storage_type(dtype)), I64, signed=dtype.signed)
            last = i64(d - n)
            at = b.binary("smin", b.binary("smax", at, i64(0)), last) if dtype.signed else b.binary("umin", at, last)
            offset = b.add(offset, b.mul(at, i64(step)))
        return offset

    def emit_dynamic_slice(self, b: FunctionBuilder, node: Node, op: DynamicSlice, call: Calls) -> None:
        x, (result,) = node.operands[0], node.results
        layout = self.info.layout(x)
        with call.read(b):
            offset = self._dynamic_start(b, node.operands[1:], x.type.shape, layout.strides, op.size)
        source = b.gep(self.place_of(x), offset, storage_type(x.type.dtype))
        kernel = copy_kernel(op.size, x.type.dtype, Access(0, layout.strides, layout.offset), Access(1, row_major(op.size)))
        self.run_loops(b, kernel, [source, self.place[result]], call)

    def emit_dynamic_update(self, b: FunctionBuilder, node: Node, call: Calls) -> None:
        x, update, *starts = node.operands
        (result,) = node.results
        self._start_from(b, x, result, call)
        with call.read(b):
            offset = self._dynamic_start(b, starts, x.type.shape, row_major(x.type.shape), update.type.shape)
        target = b.gep(self.place[result], offset, storage_type(x.type.dtype))
        self.copy_into(b, update, target, row_major(x.type.shape), 0, call)


def _boxes_around(op: Pad, inside: Shape, outside: Shape) -> Iterator[tuple[Shape, Access]]:
    """What a padding fills: for each dimension what lies before and behind, two boxes of one size as one; or all."""
    strides = row_major(outside)
    if not fills_around(op, inside, outside):
        yield outside, Access(0, strides)
        return
    for d, (low, high, n) in enumerate(zip(op.low, op.high, inside, strict=True)):
        first = sum(a * s for a, s in zip(op.low[:d], strides[:d], strict=True))
        boxes = [(2, low, 0)] if low == high else [(1, low, 0), (1, high, low + n)]
        for count, size, begin in boxes:
            if size:
                steps = (*strides[:d], (low + n) * strides[d], *strides[d:])
                yield (*inside[:d], count, size, *outside[d + 1 :]), Access(0, steps, first + begin * strides[d])
