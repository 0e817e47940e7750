"""Lowers a graph to one native function.

Enters: an optimised Graph and the list of in-place updates. Leaves: a `Program`: LLVM assembly text whose function `run` executes the
whole graph, and what the runtime must know to call it (arena size, constants, host calls). Ops without native code are called back.

`i32 run(ptr inputs, ptr outputs, ptr arena, ptr parallel_for, ptr call_host)`: `inputs` and `outputs` are tables of buffer addresses;
the result is 0, or 1 if a host call failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from graphcell.codegen.fuse import Analysis, Group, fuse
from graphcell.codegen.indexed import gather_kernel, scatter_cost, scatter_kernel
from graphcell.codegen.kernel import Access, LoopKernel, rebase
from graphcell.codegen.layout import row_major
from graphcell.codegen.legalize import is_loop_op, is_virtual, legalize
from graphcell.codegen.llvm.body import storage_type
from graphcell.codegen.llvm.contraction import Plan
from graphcell.codegen.llvm.loops import block_count, cost
from graphcell.codegen.llvm.scan import emit_scan, scan_kernel
from graphcell.codegen.llvm.scatter import emit_scatter
from graphcell.codegen.llvm.target import Target
from graphcell.codegen.llvm.text import I1, I8, I32, I64, PTR, FunctionBuilder, Val, const, i64
from graphcell.codegen.memory import Interval, plan_arena
from graphcell.codegen.native import native_kernels
from graphcell.codegen.program import Calls, HostCall, Lowering, Program, Scratch
from graphcell.codegen.schedule import ScheduledKernel, copy_kernel, fill_kernel, schedule
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ir.types import TensorType
from graphcell.ops.control import For, If, While
from graphcell.ops.creation import Constant
from graphcell.ops.indexing import DynamicSlice, DynamicUpdateSlice, Gather, GatherElements, Scatter, ScatterElements
from graphcell.ops.movement import Bitcast, Concat, Pad, UpdateSlice
from graphcell.ops.scan import Cumulative

PARALLEL_FROM = 60_000
"""Rough scalar instructions from which a kernel is shared by threads."""


@dataclass
class _Unit:
    """Something that runs at one step: a fused kernel or a single node."""

    node: Node | None
    kernel: ScheduledKernel | None

    def reads(self, info: Analysis) -> list[Value]:
        if self.kernel is not None:
            return [v for v in self.kernel.buffers if v not in self.kernel.writes]
        assert self.node is not None
        return [info.layout(v).root for v in self.node.operands]

    def writes(self) -> list[Value]:
        if self.kernel is not None:
            return [v for v in self.kernel.buffers if v in self.kernel.writes]
        assert self.node is not None
        return list(self.node.results)


class _Frame:
    """Lowers one graph (the whole, or a region) inside the entry function."""

    def __init__(self, lowering: Lowering, graph: Graph):
        self.lowering = lowering
        self.graph = graph
        groups, self.info = fuse(graph)
        self.outputs = tuple(self.info.layout(v).root for v in graph.outputs)
        """The values in whose buffers the graph's outputs lie (an output may be a reshape of one)."""
        self._output_set = set(self.outputs)
        self.units = [self._unit(g) for g in groups]
        self.inner: dict[Node, tuple[_Frame, ...]] = {}
        for u in self.units:
            if u.node is not None and u.node.op.regions:
                self.inner[u.node] = tuple(_Frame(lowering, g) for g in u.node.op.regions)
        self.place: dict[Value, Val] = {}
        self.intervals: dict[Value, Interval] = {}
        self.scratch: dict[_Unit | Node, Interval] = {}
        self.storage: dict[Value, Value] = {}
        """Values that lie in the buffer of a later one, which takes it over."""
        self.in_place: dict[Value, Value] = {}
        """Outputs that are written over an input of the graph: what a loop carries, or what is updated."""
        self.arena_bytes = 0

    def _unit(self, group: Group) -> _Unit:
        if is_loop_op(group.nodes[0].op):
            return _Unit(None, schedule(group, self.info, self._output_set))
        return _Unit(group.nodes[0], None)

    # -- memory ------------------------------------------------------------------------------------------------------
    def plan(self, given: set[Value]) -> None:
        """Plans the temporaries; the buffers of `given` values exist already."""
        last: dict[Value, int] = {}
        for step, unit in enumerate(self.units):
            for v in unit.reads(self.info):
                last[v] = step
        for v in self.outputs:
            last[v] = len(self.units)
        for step, unit in enumerate(self.units):
            for v in unit.writes():
                if v not in given and not (unit.node is not None and isinstance(unit.node.op, Constant)):
                    self.intervals[v] = Interval(max(1, v.type.nbytes), step, last.get(v, step))
            for x, y in _taken_over(unit, self.info):
                if x in self.intervals and last[x] == step and y not in self.in_place:
                    self.storage[x] = y
                    first = self.intervals.pop(x).first
                    if y in self.intervals:
                        self.intervals[y].first = first
            extra = self._extra_bytes(unit)
            if extra and unit.node is not None:
                self.scratch[unit.node] = Interval(extra, step, step)
        self.arena_bytes = plan_arena([*self.intervals.values(), *self.scratch.values()])

    def _extra_bytes(self, unit: _Unit) -> int:
        """Memory that a step needs for itself: the arenas of its regions and new carried values, or shared packing buffers."""
        node = unit.node
        if node is None:
            return 0
        total = 0
        for frame in self.inner.get(node, ()):
            if isinstance(node.op, (While, For)):
                frame.find_in_place(_carried(node.op, frame.graph))
            outside = set(frame.graph.inputs) | self._bound_outputs(node, frame) | set(frame.in_place)
            frame.plan(outside)
            total += frame.arena_bytes
        plan = self._native_plan(node)
        if plan is not None:
            total += sum(-(-size // 64) * 64 for _, size in plan.shared)
        return total

    def find_in_place(self, pairs: Iterable[tuple[int, Value]]) -> None:
        """Of outputs (by position) that shall end up in the buffer of an input: those that may be written there at once."""
        for k, target in pairs:
            if _may_write_in_place(self, self.outputs[k], target):
                self.in_place[self.outputs[k]] = target

    def _bound_outputs(self, node: Node, frame: _Frame) -> set[Value]:
        """Outputs of a region that are written straight to where the op's results lie."""
        if isinstance(node.op, If):
            return set(frame.outputs)
        if isinstance(node.op, For):
            return set(frame.outputs[node.op.carried :])
        return set()

    def _native_plan(self, node: Node) -> Plan | None:
        emit = native_kernels.get(type(node.op))
        if emit is None:
            return None
        key = (node.op, tuple((v.type, self._strided(v)) for v in node.operands))
        if key not in self.lowering.plans:
            name = f"{node.op.name}{len(self.lowering.plans)}"
            layouts = [self.info.layout(v) for v in node.operands]
            plan = emit(self.lowering.module, name, node.op, [v.type for v in node.operands], [y.strides for y in layouts], self.lowering.target)
            if plan is None:
                return None
            self.lowering.plans[key] = plan
        return self.lowering.plans[key]

    def _strided(self, v: Value) -> tuple[int, ...]:
        return self.info.layout(v).strides

    # -- code --------------------------------------------------------------------------------------------------------
    def emit(self, b: FunctionBuilder, arena: Val, call: Calls) -> None:
        """Emits all steps; the places of inputs and of bound outputs are set already."""
        for v, interval in self.intervals.items():
            self.place[v] = b.gep(arena, interval.offset, I8)
        for v, target in self.in_place.items():
            self.place[v] = self.place[target]
        for v in self.storage:
            owner = v
            while owner in self.storage:
                owner = self.storage[owner]
            self.place[v] = self.place[owner]
        for unit in self.units:
            if unit.kernel is not None:
                self._run_loops(b, unit.kernel.kernel, [self.place[v] for v in unit.kernel.buffers], call)
            else:
                assert unit.node is not None
                self._emit_node(b, unit.node, arena, call)

    def _emit_node(self, b: FunctionBuilder, node: Node, arena: Val, call: Calls) -> None:
        op = node.op
        if isinstance(op, Constant):
            self.place[node.results[0]] = call.constant(b, op.literal.array)
            return
        own = b.gep(arena, self.scratch[node].offset, I8) if node in self.scratch else arena
        if isinstance(op, If):
            self._emit_if(b, node, own, call)
        elif isinstance(op, While):
            self._emit_while(b, node, own, call)
        elif isinstance(op, For):
            self._emit_for(b, node, own, call)
        elif isinstance(op, Concat):
            self._emit_concat(b, node, op, call)
        elif isinstance(op, Pad):
            self._emit_pad(b, node, op, call)
        elif isinstance(op, UpdateSlice):
            self._emit_update(b, node, op, call)
        elif isinstance(op, Bitcast):
            self._copy(b, self.place[node.results[0]], self.place_of(node.operands[0]), node.results[0].type)
        elif isinstance(op, Cumulative):
            self._emit_scan(b, node, op, call)
        elif isinstance(op, (Gather, GatherElements)):
            kernel = gather_kernel(op, tuple(v.type for v in node.operands), node.results[0].type)
            self._run_loops(b, kernel, [self.place_of(v) for v in (*node.operands, *node.results)], call)
        elif isinstance(op, (Scatter, ScatterElements)):
            self._emit_scatter(b, node, op, call)
        elif isinstance(op, DynamicSlice):
            self._emit_dynamic_slice(b, node, op, call)
        elif isinstance(op, DynamicUpdateSlice):
            self._emit_dynamic_update(b, node, call)
        else:
            plan = self._native_plan(node)
            if plan is not None:
                self._emit_plan(b, node, plan, own, call)
            else:
                call.host(b, self._host_call(node), [self.place_of(v) for v in (*node.operands, *node.results)])

    def place_of(self, v: Value) -> Val:
        return self.place[self.info.layout(v).root]

    def _host_call(self, node: Node) -> HostCall:
        where = node.span.place() if node.span is not None else ""
        return HostCall(node.op, tuple(v.type for v in node.operands), tuple(v.type for v in node.results), where)

    def _emit_plan(self, b: FunctionBuilder, node: Node, plan: Plan, own: Val, call: Calls) -> None:
        table: dict[str, Val] = {}
        for letter, v in zip("abdefg", node.operands, strict=False):
            layout = self.info.layout(v)
            table[letter] = b.gep(self.place[layout.root], layout.offset * v.type.dtype.itemsize, I8)
        for k, v in enumerate(node.results):
            table["c" if k == 0 else f"c{k}"] = self.place[v]
        offset = 0
        for name, size in plan.shared:
            table[name] = b.gep(own, offset, I8)
            offset += -(-size // 64) * 64
        title = f"{node.op} {', '.join(str(v.type) for v in node.operands)}"
        with self.lowering.step(b, title, str(plan), sum(s.blocks for s in plan.stages)):
            for stage in plan.stages:
                buffers = [table[n] for n in stage.buffers if n != "scratch"]
                scratch = Scratch(stage.buffers.index("scratch"), plan.scratch_bytes) if "scratch" in stage.buffers else None
                call.blocks(b, stage.function, buffers, stage.blocks, stage.blocks * stage.flops >= PARALLEL_FROM, scratch)

    # -- movement ----------------------------------------------------------------------------------------------------
    def _run_loops(self, b: FunctionBuilder, kernel: LoopKernel, buffers: list[Val], call: Calls) -> None:
        blocks = block_count(kernel, self.lowering.target)
        if blocks:
            kernel, bases = rebase(kernel)
            buffers = [b.gep(p, base, storage_type(d)) for p, base, d in zip(buffers, bases, kernel.operands, strict=True)]
            name = self.lowering.loop_function(kernel)
            with self.lowering.step(b, name, str(kernel), blocks):
                call.blocks(b, name, buffers, blocks, cost(kernel) >= PARALLEL_FROM)

    def _copy_into(self, b: FunctionBuilder, v: Value, result: Val, strides: tuple[int, ...], offset: int, call: Calls) -> None:
        layout = self.info.layout(v)
        kernel = copy_kernel(v.type.shape, v.type.dtype, Access(0, layout.strides, layout.offset), Access(1, strides, offset))
        self._run_loops(b, kernel, [self.place[layout.root], result], call)

    def _start_from(self, b: FunctionBuilder, v: Value, result: Value, call: Calls) -> None:
        """Copies v to where `result` lies, unless it lies there."""
        if self.place_of(v).text != self.place[result].text:
            self._copy_into(b, v, self.place[result], row_major(result.type.shape), 0, call)

    def _emit_concat(self, b: FunctionBuilder, node: Node, op: Concat, call: Calls) -> None:
        (result,) = node.results
        strides = row_major(result.type.shape)
        offset = 0
        for v in node.operands:
            self._copy_into(b, v, self.place[result], strides, offset, call)
            offset += v.type.shape[op.axis] * strides[op.axis]

    def _emit_pad(self, b: FunctionBuilder, node: Node, op: Pad, call: Calls) -> None:
        (x,), (result,) = node.operands, node.results
        strides = row_major(result.type.shape)
        self._run_loops(b, fill_kernel(result.type.size, result.type.dtype, op.value), [self.place[result]], call)
        offset = sum(a * s for a, s in zip(op.low, strides, strict=True))
        inside = tuple(s * (i + 1) for s, i in zip(strides, op.interior, strict=True))
        self._copy_into(b, x, self.place[result], inside, offset, call)

    def _emit_update(self, b: FunctionBuilder, node: Node, op: UpdateSlice, call: Calls) -> None:
        (x, update), (result,) = node.operands, node.results
        strides = row_major(result.type.shape)
        if update.type.size < result.type.size:
            self._start_from(b, x, result, call)
        offset = sum(a * s for a, s in zip(op.start, strides, strict=True))
        self._copy_into(b, update, self.place[result], tuple(s * t for s, t in zip(op.step, strides, strict=True)), offset, call)

    def _emit_scan(self, b: FunctionBuilder, node: Node, op: Cumulative, call: Calls) -> None:
        (x,), (result,) = node.operands, node.results
        kernel = scan_kernel(op.kind, x.type.dtype, x.type.shape, op.axis, op.reverse)
        blocks = kernel.blocks(self.lowering.target)
        if not blocks:
            return
        name = self.lowering.kernels.get(kernel)
        if name is None:
            name = self.lowering.kernels[kernel] = emit_scan(self.lowering.module, f"scan{len(self.lowering.kernels)}", kernel, self.lowering.target)
        with self.lowering.step(b, name, str(kernel), blocks):
            call.blocks(b, name, [self.place_of(x), self.place[result]], blocks, 2 * kernel.points >= PARALLEL_FROM)

    def _emit_scatter(self, b: FunctionBuilder, node: Node, op: Scatter | ScatterElements, call: Calls) -> None:
        (result,) = node.results
        self._start_from(b, node.operands[0], result, call)
        kernel = scatter_kernel(op, tuple(v.type for v in node.operands))
        blocks = kernel.blocks(self.lowering.target)
        if not blocks or not kernel.points:
            return
        name = self.lowering.kernels.get(kernel)
        if name is None:
            name = self.lowering.kernels[kernel] = emit_scatter(self.lowering.module, f"scatter{len(self.lowering.kernels)}", kernel, self.lowering.target)
        buffers = [self.place[result], *map(self.place_of, node.operands[1:])]
        with self.lowering.step(b, name, str(kernel), blocks):
            call.blocks(b, name, buffers, blocks, scatter_cost(kernel) >= PARALLEL_FROM)

    def _dynamic_start(self, b: FunctionBuilder, starts: Sequence[Value], shape: Sequence[int], size: Sequence[int]) -> Val:
        """The offset, in elements, of a block of extents `size` whose clamped start is read now."""
        offset = i64(0)
        for v, d, n, step in zip(starts, shape, size, row_major(shape), strict=True):
            dtype = v.type.dtype
            at = b.cast(b.load(self.place_of(v), storage_type(dtype)), I64, signed=dtype.signed)
            last = i64(d - n)
            at = b.binary("smin", b.binary("smax", at, i64(0)), last) if dtype.signed else b.binary("umin", at, last)
            offset = b.add(offset, b.mul(at, i64(step)))
        return offset

    def _emit_dynamic_slice(self, b: FunctionBuilder, node: Node, op: DynamicSlice, call: Calls) -> None:
        x, (result,) = node.operands[0], node.results
        offset = self._dynamic_start(b, node.operands[1:], x.type.shape, op.size)
        source = b.gep(self.place_of(x), offset, storage_type(x.type.dtype))
        kernel = copy_kernel(op.size, x.type.dtype, Access(0, row_major(x.type.shape)), Access(1, row_major(op.size)))
        self._run_loops(b, kernel, [source, self.place[result]], call)

    def _emit_dynamic_update(self, b: FunctionBuilder, node: Node, call: Calls) -> None:
        x, update, *starts = node.operands
        (result,) = node.results
        self._start_from(b, x, result, call)
        offset = self._dynamic_start(b, starts, x.type.shape, update.type.shape)
        target = b.gep(self.place[result], offset, storage_type(x.type.dtype))
        self._copy_into(b, update, target, row_major(x.type.shape), 0, call)

    # -- control flow ------------------------------------------------------------------------------------------------
    def _bind(self, frame: _Frame, places: Sequence[Val]) -> None:
        frame.place.update(zip(frame.graph.inputs, places, strict=True))

    def _emit_if(self, b: FunctionBuilder, node: Node, own: Val, call: Calls) -> None:
        condition = b.load(self.place_of(node.operands[0]), I1)
        inputs = [self.place_of(v) for v in node.operands[1:]]
        results = [self.place[v] for v in node.results]

        def branch(frame: _Frame) -> None:
            self._bind(frame, inputs)
            frame.place.update(zip(frame.outputs, results, strict=True))
            frame.emit(b, own, call)

        then, otherwise = self.inner[node]
        b.if_else(condition, lambda: branch(then), lambda: branch(otherwise))

    def _copy(self, b: FunctionBuilder, target: Val, source: Val, type: TensorType) -> None:
        if type.nbytes:
            b.effect(f"call void @llvm.memcpy.p0.p0.i64(ptr {target.text}, ptr {source.text}, i64 {type.nbytes}, i1 false)")
            self.lowering.module.declarations.setdefault("llvm.memcpy", "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")

    def _start_carried(self, b: FunctionBuilder, node: Node, count: int) -> list[Val]:
        """Copies the initial carried values into the op's results, which hold the state of the loop."""
        state = [self.place[v] for v in node.results[:count]]
        for v, place in zip(node.operands[:count], state, strict=True):
            if self.place_of(v).text != place.text:
                self._copy(b, place, self.place_of(v), v.type)
        return state

    def _finish_carried(self, b: FunctionBuilder, body: _Frame, state: Sequence[Val]) -> None:
        """Copies the new carried values over the old ones, where they were not written there."""
        for v, place in zip(body.outputs[: len(state)], state, strict=True):
            if v not in body.in_place:
                self._copy(b, place, body.place[v], v.type)

    def _emit_while(self, b: FunctionBuilder, node: Node, own: Val, call: Calls) -> None:
        op = node.op
        assert isinstance(op, While)
        state = self._start_carried(b, node, op.carried)
        invariant = [self.place_of(v) for v in node.operands[op.carried :]]
        test, body = self.inner[node]
        second = b.gep(own, test.arena_bytes, I8)

        def condition() -> Val:
            self._bind(test, [*state, *invariant])
            test.emit(b, own, call)
            return b.load(test.place_of(test.graph.outputs[0]), I1)

        def iterate() -> None:
            self._bind(body, [*state, *invariant])
            body.emit(b, second, call)
            self._finish_carried(b, body, state)

        b.while_loop(condition, iterate)

    def _emit_for(self, b: FunctionBuilder, node: Node, own: Val, call: Calls) -> None:
        op = node.op
        assert isinstance(op, For)
        state = self._start_carried(b, node, op.carried)
        scanned = node.operands[op.carried : op.carried + op.scanned]
        invariant = [self.place_of(v) for v in node.operands[op.carried + op.scanned :]]
        (body,) = self.inner[node]
        index = b.alloca(I64)
        with b.loop(0, op.trip_count, name="for") as loop:
            at = b.sub(i64(op.trip_count - 1), loop.index) if op.reverse else loop.index
            b.store(at, index)

            def row(place: Val, type: TensorType) -> Val:
                return b.gep(place, b.mul(at, i64(type.nbytes // max(1, type.shape[0]))), I8)

            rows = [row(self.place_of(v), v.type) for v in scanned]
            self._bind(body, [index, *state, *rows, *invariant])
            stacked = node.results[op.carried :]
            for v, result in zip(body.outputs[op.carried :], stacked, strict=True):
                body.place[v] = row(self.place[result], result.type)
            body.emit(b, own, call)
            self._finish_carried(b, body, state)


def lower(graph: Graph, updates: Sequence[tuple[int, int]], target: Target) -> Program:
    """Lowers `graph`; `updates` are (output, input) positions: that output is written into that input's buffer."""
    graph = legalize(graph)
    lowering = Lowering(target)
    frame = _Frame(lowering, graph)
    params = [("inputs", PTR), ("outputs", PTR), ("arena", PTR), ("parallel_for", PTR), ("call_host", PTR)]
    b = FunctionBuilder(lowering.module, "run", params, I32, internal=False)
    call = Calls(lowering, b, len(graph.inputs))
    read = {frame.info.root_of_memory(v) for n in graph.nodes for v in n.operands if not is_virtual(n.op)} | set(graph.inputs)
    for k, v in enumerate(graph.inputs):
        if v in read:
            frame.place[v] = b.load(b.gep(b.args["inputs"], k, PTR), PTR)
    updated = dict(updates)
    frame.find_in_place((k, graph.inputs[at]) for k, at in updated.items())
    position = 0
    given = set(graph.inputs)
    for k, v in enumerate(frame.outputs):
        if k not in updated:
            frame.place[v] = b.load(b.gep(b.args["outputs"], position, PTR), PTR)
            position += 1
            given.add(v)
        elif v in frame.in_place:
            given.add(v)
    frame.plan(given)
    frame.emit(b, b.args["arena"], call)
    for k, at in updated.items():
        if frame.outputs[k] not in frame.in_place:
            frame._copy(b, frame.place[graph.inputs[at]], frame.place[frame.outputs[k]], frame.outputs[k].type)
    b._entry.append(f"  %context = alloca [{lowering.context_slots} x ptr], align 16")
    b.finish(const(0, I32))
    return Program(lowering.finish(), frame.arena_bytes, lowering.constants, lowering.host_calls, lowering.steps, lowering.profiled)


def _may_write_in_place(frame: _Frame, output: Value, target: Value) -> bool:
    """True if the kernel that makes `output` may write it over `target`: nobody reads the old value later, and the kernel itself
    reads each element of it before it writes that element."""
    writer = next((k for k, u in enumerate(frame.units) if output in u.writes()), None)
    if writer is None:
        return False
    for unit in frame.units[writer + 1 :]:
        if target in unit.reads(frame.info):
            return False
    unit = frame.units[writer]
    if target not in unit.reads(frame.info) or (target, output) in _taken_over(unit, frame.info):
        return True
    if unit.kernel is None or unit.kernel.kernel.stages > 1:
        return False
    kernel, buffers = unit.kernel.kernel, unit.kernel.buffers
    source, result = buffers.index(target), buffers.index(output)
    (store,) = [s for s in kernel.stores if s.access.operand == result]
    loads = [s.what.access for s in kernel.body if hasattr(s.what, "access") and s.what.access.operand == source]
    return all((a.strides, a.offset) == (store.access.strides, store.access.offset) for a in loads)


def _taken_over(unit: _Unit, info: Analysis) -> list[tuple[Value, Value]]:
    """(operand, result) pairs of values that may share a buffer, if nobody reads the operand later: the op changes it in place."""
    node = unit.node
    if node is None:
        return []
    if isinstance(node.op, (While, For)):
        count = node.op.carried
    else:
        count = int(isinstance(node.op, (Scatter, ScatterElements, UpdateSlice, DynamicUpdateSlice)))
    roots = [info.layout(v).root for v in node.operands]
    pairs = zip(node.operands[:count], roots, node.results, strict=False)
    return [(x, y) for v, x, y in pairs if roots.count(x) == 1 and info.layout(v).is_whole(v.type.shape)]


def _carried(op: While | For, graph: Graph) -> list[tuple[int, Value]]:
    """The carried values of a loop as (position among the outputs of its body, input); none for the condition of a while loop."""
    first = int(isinstance(op, For))
    return [(k, graph.inputs[k + first]) for k in range(op.carried)] if graph is op.regions[-1] else []
