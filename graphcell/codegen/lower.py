"""Lowers a graph to one native function.

Enters: an optimised Graph and the list of in-place updates. Leaves: a `Program`: LLVM assembly text whose function `run` executes the
whole graph, and what the runtime must know to call it (arena size, constants, host calls). Ops without native code are called back.

`i32 run(ptr inputs, ptr outputs, ptr arena, ptr parallel_for, ptr call_host)`: `inputs` and `outputs` are tables of buffer addresses;
the result is 0, or 1 if a host call failed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from graphcell.codegen.beside import Pair, begins, pair_loops
from graphcell.codegen.control import ControlFlow
from graphcell.codegen.epilogue import FusedEpilogue, match_epilogue
from graphcell.codegen.even_depth import with_even_depths
from graphcell.codegen.frozen import LEAST_BYTES, emit_prepare, partition
from graphcell.codegen.fuse import Analysis, Group, fuse
from graphcell.codegen.gathers import find_gathers
from graphcell.codegen.indexed import gather_kernel
from graphcell.codegen.kernel import GatherLoad, Load, LoopKernel, Store
from graphcell.codegen.legalize import is_loop_op, is_virtual, legalize
from graphcell.codegen.linear_algebra import matrix_kernel
from graphcell.codegen.llvm.contraction import Plan
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.llvm.quicker import has_clock, measured
from graphcell.codegen.llvm.text import I8, I32, PTR, FunctionBuilder, Val
from graphcell.codegen.lowering import Calls, Lowering, Translates
from graphcell.codegen.memory import Interval, aligned_size, plan_apart, plan_by_size
from graphcell.codegen.native import Site, epilogue_columns, is_mirrored_product, native_kernel
from graphcell.codegen.order import Step, order
from graphcell.codegen.past_caches import large_results, waits_for_output
from graphcell.codegen.pieces import Piece, find_pieces
from graphcell.codegen.prepare import LETTERS, Request, Spot, Steady, preparation_of, title_of
from graphcell.codegen.program import HostCall, Program
from graphcell.codegen.reduction_parts import ends_in_reductions
from graphcell.codegen.schedule import ScheduledKernel, schedule
from graphcell.codegen.tasks import share
from graphcell.codegen.units import Units
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ops import linear_algebra
from graphcell.ops.contraction import MatMul
from graphcell.ops.control import For, If, While
from graphcell.ops.creation import Constant
from graphcell.ops.indexing import DynamicSlice, DynamicUpdateSlice, Gather, GatherElements, Scatter, ScatterElements, ScatterStep
from graphcell.ops.movement import Bitcast, Concat, Pad, UpdateSlice
from graphcell.ops.scan import Cumulative
from graphcell.passes.regions import invariant_operands
from graphcell.records import dataclass

_APART = 4
"""Caches of the second level up to which no two temporaries of a program, or of a branch, share memory. Measured on Zen 4: ten training steps that keep 0.3
to 3.7 MB so take 0.94 to 0.99 of the time on two threads, one 1.02, and up to 1.006 on one; of larger ones nothing is gained."""


@dataclass
class _Unit:
    """Something that runs at one step: a fused kernel, a single node, or a contraction whose epilogue is a fused kernel."""

    node: Node | None
    kernel: ScheduledKernel | None
    group: Group
    may_be_shared: bool = True
    """Whether threads share it, if it is large enough."""

    @property
    def key(self) -> Node:
        """A node that stands for the unit."""
        return self.node if self.node is not None else self.group.nodes[0]

    def reads(self, info: Analysis) -> list[Value]:
        found = [info.layout(v).root for v in self.node.operands] if self.node is not None else []
        if self.kernel is not None:
            inside = {*self.kernel.writes, *(self.node.results if self.node is not None else ())}
            found += [v for v in self.kernel.buffers if v not in inside]
        return found

    def writes(self) -> list[Value]:
        if self.kernel is not None:
            return list(self.kernel.writes)
        assert self.node is not None
        return list(self.node.results)


class _Frame(ControlFlow):
    """Lowers one graph (the whole, or a region) inside the entry function."""

    def __init__(self, lowering: Lowering, graph: Graph, in_loop: bool = False):
        self.lowering, self.in_loop = lowering, in_loop
        groups, self.info = fuse(graph)
        self.graph = graph = self.info.graph
        self.outputs = tuple(self.info.layout(v).root for v in graph.outputs)
        """The values in whose buffers the graph's outputs lie (an output may be a reshape of one)."""
        self.pieces: dict[Value, Piece] = {}
        """Values that lie in a part of the buffer of a later one."""
        self.gathers = find_gathers(groups, self.info)
        """Values that are gathered where a loop nest reads them."""
        self.units = [self._unit(g) for g in groups if g.nodes[0] not in self.gathers.values()]
        self.epilogues: dict[Node, FusedEpilogue] = {}
        self._fuse_epilogues()
        self.inner: dict[Node, tuple[_Frame, ...]] = {}
        for u in self.units:
            if u.node is not None and u.node.op.regions:
                in_loop = self.in_loop or isinstance(u.node.op, (For, While))
                self.inner[u.node] = tuple(_Frame(lowering, g, in_loop) for g in u.node.op.regions)
        self.place: dict[Value, Val] = {}
        self.intervals: dict[Value, Interval] = {}
        self.scratch: dict[_Unit | Node, Interval] = {}
        self.storage: dict[Value, Value] = {}
        """Values that lie in the buffer of a later one, which takes it over."""
        self.in_place: dict[Value, Value] = {}
        """Outputs that are written over an input of the graph, and values that they take over: what a loop carries, or what is updated."""
        self.arena_bytes = 0
        self.steady: dict[Value, Steady] = {}
        """Values that do not change while the graph is run again and again."""
        self.spots: dict[Node, Spot] = {}
        self.requests: dict[Node, Request] = {}
        self.pairs: list[Pair[_Unit]] = []
        """Loops that follow each other and may run at one time, and the products behind them."""
        self.teams: dict[Node, Units] = {}
        """Loops that a team of threads goes through, and by which units of rows."""
        self.is_program = False
        """Whether this is no region."""
        self.past: frozenset[Value] = frozenset()
        """Large results of the whole program that are written past the caches: they would not stay there until somebody reads them."""

    def _unit(self, group: Group) -> _Unit:
        if is_loop_op(group.nodes[0].op):
            return _Unit(None, self._schedule(group), group)
        return _Unit(group.nodes[0], None, group)

    def _schedule(self, group: Group) -> ScheduledKernel:
        return schedule(group, self.info, self.lowering.target.avx512, self.pieces, self.gathers)

    def _fuse_epilogues(self) -> None:
        """Contractions whose results go into one kernel without reductions take it as their epilogue and run at its place."""
        makers: dict[Value, _Unit] = {}
        made_at: dict[Value, int] = {}
        readers: dict[Value, int] = {}
        for step, unit in enumerate(self.units):
            if unit.node is not None and epilogue_columns(unit.node):
                makers[unit.node.results[0]] = unit
                made_at[unit.node.results[0]] = step
            for v in set(unit.reads(self.info)) & makers.keys():
                readers[v] = readers.get(v, 0) + 1
        gone: set[Node] = set()
        for unit in self.units:
            if unit.kernel is None:
                continue
            scheduled = unit.kernel
            points = scheduled.kernel.points
            ready = [v for v in scheduled.buffers if v in makers and readers.get(v) == 1 and v not in self.info.outputs and v.type.size == points]
            for v in sorted(ready, key=lambda v: -made_at[v]):
                node = makers[v].node
                fused = match_epilogue(unit.kernel.kernel, unit.kernel.buffers.index(v), epilogue_columns(node), self.lowering.target) if node else None
                if node is not None and fused is not None:
                    unit.node, self.epilogues[node] = node, fused
                    gone.add(node)
                    del makers[v]
                    break
        self.units = [u for u in self.units if u.kernel is not None or u.node not in gone]

    # -- memory ------------------------------------------------------------------------------------------------------
    def plan(self, given: set[Value]) -> None:
        """Plans the temporaries; the buffers of `given` values exist already."""
        last = self._last_reads() | dict.fromkeys(self.outputs, len(self.units))
        self._place_pieces(given)
        if self.is_program and self.lowering.target.writes_past_caches:
            self._write_past_caches(given)
        parts: dict[Value, list[Value]] = {}
        for x, piece in self.pieces.items():
            parts.setdefault(piece.whole, []).append(x)
        for step, unit in self._steps():
            for v in unit.writes():
                if v not in given and not (unit.node is not None and isinstance(unit.node.op, Constant)):
                    self.intervals[v] = Interval(max(1, v.type.nbytes), step, last.get(v, step))
            for x, y in _taken_over(unit, self.info):
                if x in self.intervals and last[x] == step and y not in self.in_place and not self._is_read_beside(unit, x):
                    self.storage[x] = y
                    first = self.intervals.pop(x).first
                    if y in self.intervals:
                        self.intervals[y].first = first
            for x in [x for v in unit.writes() for x in parts.get(v, ())]:
                first, whole = self.intervals.pop(x).first, self.intervals.get(self.pieces[x].whole)
                if whole is not None:
                    whole.first = min(whole.first, first)
            extra = self._extra_bytes(unit)
            if extra:
                self.scratch[unit.key] = Interval(extra, step, step)
        intervals = [*self.intervals.values(), *self.scratch.values()]
        l2_bytes = self.lowering.target.l2_bytes
        self.arena_bytes = plan_by_size(intervals, l2_bytes // 2) if self.in_loop else plan_apart(intervals, _APART * l2_bytes)

    def _write_past_caches(self, given: set[Value]) -> None:
        """Finds large outputs in memory of the caller's that no step reads, but those that are written or copied over an input; all kernels are known."""
        unread = (self.info.outputs & given) - self._last_reads().keys() - self.in_place.keys()
        self.past = frozenset[Value]().union(*(large_results(unread.intersection(unit.writes())) for unit in self.units))
        for unit in self.units:
            if unit.kernel is None or self.past.isdisjoint(unit.kernel.buffers):
                continue
            past = frozenset(k for k, v in enumerate(unit.kernel.buffers) if v in self.past)
            if unit.node is None:
                unit.kernel = replace(unit.kernel, kernel=replace(unit.kernel.kernel, past=past))
            elif waits_for_output(unit.node):
                fused, (result,) = self.epilogues[unit.node], unit.node.results
                alike = frozenset(k for k in past if unit.kernel.buffers[k].type.nbytes == result.type.nbytes)  # whose lines a tile fills as well
                self.epilogues[unit.node] = replace(fused, kernel=replace(fused.kernel, past=alike))

    def _steps(self) -> Iterator[tuple[int, _Unit]]:
        """The steps in order, numbered; what may run at one time has one number."""
        yield from zip(begins(self.units, self.pairs), self.units, strict=True)

    def _last_reads(self) -> dict[Value, int]:
        """The last step that reads each value."""
        return {v: step for step, unit in self._steps() for v in unit.reads(self.info)}

    def _is_read_beside(self, unit: _Unit, v: Value) -> bool:
        """Whether something else that may run at that time reads a value."""
        pair = self._pair_of(unit)
        return pair is not None and any(v in u.reads(self.info) for u in pair.units if u is not unit)

    def _pair_of(self, unit: _Unit) -> Pair[_Unit] | None:
        return next((pair for pair in self.pairs if any(unit is u for u in pair.units)), None)

    def _place_pieces(self, given: set[Value]) -> None:
        """Finds what may lie in the buffer of a concatenation, and lets the loops that make it write there."""
        readers: dict[Value, int] = {}
        for unit in self.units:
            for v in set(unit.reads(self.info)):
                readers[v] = readers.get(v, 0) + 1
        nodes = [unit.node for unit in self.units if unit.node is not None and unit.kernel is None]
        loops = [unit for unit in self.units if unit.node is None]
        looped = {v: unit.kernel.kernel.line for unit in loops if unit.kernel is not None for v in unit.writes()}
        self.pieces = find_pieces(nodes, looped, readers, self.info, given | self.info.outputs, self.in_place)
        for unit in loops:
            if not self.pieces.keys().isdisjoint(unit.writes()):
                unit.kernel = self._schedule(unit.group)

    def _extra_bytes(self, unit: _Unit) -> int:
        """Memory that a step needs for itself: the arenas of its regions and new carried values, or shared packing buffers."""
        node = unit.node
        if node is None:
            assert unit.kernel is not None
            return sum(map(aligned_size, unit.kernel.partial))
        total = 0
        for frame in self.inner.get(node, ()):
            frame.steady = self._steady_inside(node, frame)
            if isinstance(node.op, (While, For)):
                frame.find_in_place(_carried(node.op, frame.graph) if frame is self.inner[node][-1] else [])
            outside = set(frame.graph.inputs) | self._bound_outputs(node, frame) | set(frame.in_place)
            frame.plan(outside)
            total += frame.arena_bytes
        if node in self.spots:
            total += self.spots[node].nbytes
        if isinstance(node.op, ScatterStep):
            total += self.scatter_step_bytes(node, node.op)
        plan = self.native_plan(node)
        if plan is not None:
            self._request_preparation(node, plan)
            total += self.shared_bytes(node, plan)
            if plan.resumes and unit.kernel is not None and self.partial_home(node, unit.kernel) is None:
                total += node.results[0].type.nbytes
        return total

    def _steady_inside(self, node: Node, frame: _Frame) -> dict[Value, Steady]:
        """Inputs of a region that do not change: those that are steady here, and what a loop does not change."""
        slots = invariant_operands(node.op)
        if slots is None:
            return {}
        first, shift = slots
        if isinstance(node.op, While) or (isinstance(node.op, For) and node.op.trip_count > 1):
            self.spots.setdefault(node, Spot())
        found = {}
        for v, inside in zip(node.operands[first:], frame.graph.inputs[first + shift :], strict=True):
            root = self.info.layout(v).root
            if root in self.steady:
                found[inside] = self.steady[root]
            elif node in self.spots:
                found[inside] = Steady(self.spots[node], root)
        return found

    def _steady_operands(self, node: Node) -> frozenset[int]:
        return frozenset(k for k, v in enumerate(node.operands[: len(LETTERS)]) if self.info.layout(v).root in self.steady)

    def _request_preparation(self, node: Node, plan: Plan) -> None:
        """Leaves to a spot what the plan does to a steady operand alone."""
        what = preparation_of(plan, self._steady_operands(node))
        if what is not None:
            v = node.operands[what.operand]
            layout = self.info.layout(v)
            steady = self.steady[layout.root]
            self.requests[node] = steady.spot.request(plan, what, steady.root, layout.offset * v.type.dtype.itemsize, title_of(node))

    def reorder(self, updates: Sequence[tuple[int, Value]]) -> None:
        """Brings the steps in an order that needs less memory; `updates` are the outputs (by position) that are written over inputs."""
        steps = [Step(u, u.reads(self.info), u.writes(), u.node is not None and _has_effect(u.node)) for u in self.units]
        overwritten, given = [(self.outputs[k], target) for k, target in updates], {*self.graph.inputs, *self.outputs}
        units = order(steps, given, overwritten)
        fixed = [u for u in units if u.node is not None and _has_effect(u.node)]
        self.units, self.pairs = pair_loops(units, self.info, given, overwritten, fixed)

    def find_in_place(self, pairs: Iterable[tuple[int, Value]]) -> None:
        """Of outputs (by position) that shall end up in the buffer of an input: those that may be written there at once, and what they take over."""
        writers = {v: step for step, unit in enumerate(self.units) for v in unit.writes()}
        last = {v: step for step, unit in enumerate(self.units) for v in unit.reads(self.info)}  # by places, as the writers
        last |= dict.fromkeys(self.outputs, len(self.units))
        for k, target in pairs:
            v: Value | None = self.outputs[k]
            while v is not None and v in writers:
                step = writers[v]
                if last.get(target, -1) > step or not _may_write_in_place(self.units[step], self.info, v, target):
                    break
                if self._is_read_beside(self.units[step], target):
                    break
                if self.is_program and _may_end_amid_turns(self.units[step]):
                    break
                self.in_place[v] = target
                taken = [(x, y) for x, y in _taken_over(self.units[step], self.info) if not self._is_read_beside(self.units[step], x)]
                v = next((x for x, y in taken if y is v and last.get(x) == step), None)
                if v in writers and not all(map(_always_ends, self.units[writers[v] + 1 : step + 1])):
                    break  # who raises an error leaves the input as it was

    def _bound_outputs(self, node: Node, frame: _Frame) -> set[Value]:
        """Outputs of a region that are written straight to where the op's results lie."""
        if isinstance(node.op, If):
            return set(frame.outputs)
        if isinstance(node.op, For):
            return set(frame.outputs[node.op.carried :])
        return set()

    def native_plan(self, node: Node) -> Plan | None:
        emit = native_kernel(type(node.op))
        if emit is None:
            return None
        types, strides = tuple(v.type for v in node.operands), tuple(self.info.layout(v).strides for v in node.operands)
        fused, steady = self.epilogues.get(node), self._steady_operands(node)
        written = tuple(self.pieces[v].strides if v in self.pieces else None for v in node.results)
        mirrored = fused is None and is_mirrored_product(node, has_epilogue=False)
        past = self.writes_past_caches(node)
        key = (node.op, types, strides, written, fused and (fused.kernel, fused.operand), steady, mirrored, self.in_loop, past)
        if key not in self.lowering.plans:
            name = f"{node.op.name}{len(self.lowering.plans)}"
            where = self.lowering.module, name, types, strides, self.lowering.target
            site = Site(*where, steady=steady, written=written, mirrored=mirrored, for_team=self.in_loop, past=past)
            if fused is not None:
                site = replace(site, epilogue=fused.emitter(), extra=fused.extra)
            plan = emit(node.op, site)
            if plan is None:
                return None
            self.lowering.plans[key] = plan
        return self.lowering.plans[key]

    # -- code --------------------------------------------------------------------------------------------------------
    def emit(self, b: FunctionBuilder, arena: Val, call: Calls) -> None:
        """Emits all steps; the places of inputs and of bound outputs are set already."""
        self.set_places(b, arena)
        for unit in self.units:
            call.may_share = unit.may_be_shared
            pair = self._pair_of(unit)
            if pair is None or not pair.apart:
                self.emit_unit(b, unit, arena, call)
            elif unit is pair.first:
                owns = {u.key: self._own(b, u.key, arena) for u in pair.units}
                for node, own in owns.items():
                    self._emit_preparations(b, node, own, call)
                self.emit_pair(b, pair, owns, call)

    def set_places(self, b: FunctionBuilder, arena: Val) -> None:
        """Says where the temporaries lie."""
        for v, interval in self.intervals.items():
            self.place[v] = b.gep(arena, interval.offset, I8)
        for v, target in self.in_place.items():
            self.place[v] = self.place[target]
        for v in self.storage:
            owner = v
            while owner in self.storage:
                owner = self.storage[owner]
            self.place[v] = self.place[owner]
        for v, piece in self.pieces.items():
            self.place[v] = b.gep(self.place[piece.whole], piece.offset * v.type.dtype.itemsize, I8)

    def emit_unit(self, b: FunctionBuilder, unit: _Unit, arena: Val, call: Calls) -> None:
        """Emits one step."""
        own = self._own(b, unit.key, arena)
        self._emit_preparations(b, unit.key, own, call)
        self.emit_with(b, unit, own, call)

    def emit_with(self, b: FunctionBuilder, unit: _Unit, own: Val, call: Calls) -> None:
        """Emits one step, which has the memory at `own` for itself."""
        node = unit.node
        if node is not None and unit.kernel is not None:
            self.emit_fused(b, node, unit.kernel, own, call)
        elif unit.kernel is not None:
            self._run_scheduled(b, unit.kernel, own, call)
        else:
            assert node is not None
            self._emit_node(b, node, own, call)

    def _own(self, b: FunctionBuilder, node: Node, arena: Val) -> Val:
        """The memory that a node has for itself."""
        return b.gep(arena, self.scratch[node].offset, I8) if node in self.scratch else arena

    def _run_scheduled(self, b: FunctionBuilder, scheduled: ScheduledKernel, own: Val, call: Calls) -> None:
        """A loop nest, and what follows where it is in parts."""
        places = [self.place[v] for v in scheduled.buffers]
        if scheduled.partial:
            places += [b.gep(own, begin, I8) for begin in itertools.accumulate(map(aligned_size, scheduled.partial[:-1]), initial=0)]
        self.run_loops(b, scheduled.kernel, places, call)
        for f in scheduled.after:
            self.run_loops(b, f.kernel, [places[k] for k in f.operands], call)

    def _emit_node(self, b: FunctionBuilder, node: Node, own: Val, call: Calls) -> None:
        op = node.op
        if isinstance(op, Constant):
            self.place[node.results[0]] = call.constant(b, op.literal.array)
        elif isinstance(op, If):
            self.emit_if(b, node, own, call)
        elif isinstance(op, (For, While)):
            self.emit_loop(b, node, own, call)
        elif isinstance(op, Concat):
            self.emit_concat(b, node, op, call)
        elif isinstance(op, Pad):
            self.emit_pad(b, node, op, call)
        elif isinstance(op, UpdateSlice):
            self.emit_update(b, node, op, call)
        elif isinstance(op, Bitcast):
            self.copy(b, self.place[node.results[0]], self.place_of(node.operands[0]), node.results[0].type, call)
        elif isinstance(op, Cumulative):
            self.emit_scan(b, node, op, call)
        elif isinstance(op, (Gather, GatherElements)):
            kernel = gather_kernel(op, tuple(v.type for v in node.operands), [self.info.layout(v) for v in node.operands], node.results[0].type)
            self.run_loops(b, kernel, [self.place_of(v) for v in (*node.operands, *node.results)], call)
        elif isinstance(op, (Scatter, ScatterElements)):
            self.emit_scatter(b, node, op, call)
        elif isinstance(op, ScatterStep):
            self.emit_scatter_step(b, node, op, own, call)
        elif isinstance(op, DynamicSlice):
            self.emit_dynamic_slice(b, node, op, call)
        elif isinstance(op, DynamicUpdateSlice):
            self.emit_dynamic_update(b, node, call)
        elif (plan := self.native_plan(node)) is not None:
            self.emit_plan(b, node, plan, own, call)
        elif (matrices := matrix_kernel(node)) is not None:
            self.emit_on_matrices(b, node, matrices, self._host_call(node, rare=True), call)
        else:
            call.host(b, self._host_call(node), [self.place_of(v) for v in (*node.operands, *node.results)])

    def _emit_preparations(self, b: FunctionBuilder, node: Node, own: Val, call: Calls) -> None:
        """What is done once before a loop."""
        if node in self.spots:
            region = b.gep(own, sum(f.arena_bytes for f in self.inner[node]), I8)
            self.spots[node].emit(b, self.lowering, region, lambda root: self.place[root], call)

    def _host_call(self, node: Node, rare: bool = False) -> HostCall:
        where = node.span.place() if node.span is not None else ""
        return HostCall(node.op, tuple(v.type for v in node.operands), tuple(v.type for v in node.results), where, rare)


def lower(
    graph: Graph, updates: Sequence[tuple[int, int]], target: Target, frozen: Iterable[int] = (), translates: Translates | None = None
) -> Program:
    """Lowers `graph`.

    Args:
        updates: (output, input) positions: that output is written into that input's buffer.
        frozen: positions of inputs that seldom change; what depends on them alone is computed by the function `prepare`.
        translates: takes the functions of the program as they become complete, the last of them at the end.
    """
    graph = legalize(with_even_depths(graph, target), {k for k, _ in updates})
    may_be_kept = sorted(set(frozen) - {at for _, at in updates})
    program = _lower(graph, updates, target, may_be_kept, translates) or _lower(graph, updates, target, (), translates)
    assert program is not None
    return program


def _lower(graph: Graph, updates: Sequence[tuple[int, int]], target: Target, frozen: Sequence[int], translates: Translates | None) -> Program | None:
    """The program; None if it would keep too little of what is frozen."""
    lowering, spot = Lowering(target, translates), Spot()
    cut = partition(graph, frozen)
    frame = _Frame(lowering, cut.main)
    frame.is_program = True
    frame.steady = {v: Steady(spot, v) for v in cut.sources} if frozen else {}
    params = [("inputs", PTR), ("outputs", PTR), ("arena", PTR), ("parallel_for", PTR), ("call_host", PTR)]
    b = FunctionBuilder(lowering.module, "run", params, I32, internal=False)
    call = Calls(lowering, b, len(graph.inputs))
    region = call.kept(b)
    kept = {v: spot.reserve(v.type.nbytes) for v in cut.kept}
    for v, offset in kept.items():
        frame.place[v] = b.gep(region, offset, I8)
    read = {frame.info.root_of_memory(v) for n in cut.main.nodes for v in n.operands if not is_virtual(n.op)} | set(graph.inputs)
    for k, v in enumerate(graph.inputs):
        if v in read:
            frame.place[v] = b.load(b.gep(b.args["inputs"], k, PTR), PTR)
    updated = dict(updates)
    overwritten = [(k, graph.inputs[at]) for k, at in updated.items()]
    frame.reorder(overwritten)
    frame.find_in_place(overwritten)
    position = 0
    given = set(cut.main.inputs)
    for k, v in enumerate(frame.outputs):
        if k not in updated:
            frame.place[v] = b.load(b.gep(b.args["outputs"], position, PTR), PTR)
            position += 1
            given.add(v)
    frame.plan(given | frame.in_place.keys())
    if 0 < spot.nbytes < LEAST_BYTES:
        return None
    lowering.hand_over()
    for request in spot.requests:
        request.bind(b, region)
    finish = None
    if share(frame, target.l2_bytes) and has_clock():
        takes_all, finish = measured(b, "run.times")
        call.pool = b.select(takes_all, call.pool, lowering.alone())
    frame.emit(b, b.args["arena"], call)
    for k, at in updated.items():
        if frame.outputs[k] not in frame.in_place:
            frame.copy(b, frame.place[graph.inputs[at]], frame.place[frame.outputs[k]], frame.outputs[k].type, call)
    found = emit_prepare(_Frame(lowering, cut.once), cut, spot, kept) if spot.nbytes else None
    if finish is not None:
        finish()
    call.finish(b)
    arena_bytes = max(frame.arena_bytes, found.arena_bytes if found is not None else 0)
    return Program(lowering.finish(), arena_bytes, lowering.constants, lowering.host_calls, lowering.steps, lowering.profiled, found)


def _has_effect(node: Node) -> bool:
    return node.op.has_effect or any(g.has_effect() for g in node.op.regions)


def _always_ends(unit: _Unit) -> bool:
    """False for a step that may raise an error, and for those that may run anything."""
    op = unit.node and unit.node.op
    return unit.kernel is not None or isinstance(op, (Concat, Gather, GatherElements, MatMul, Pad, Scatter, ScatterElements, UpdateSlice))


def _may_end_amid_turns(unit: _Unit) -> bool:
    """Whether a loop may raise an error when it has changed what it carries."""
    node = unit.node
    return node is not None and isinstance(node.op, (While, For)) and (_has_effect(node) or any(map(_asks_lapack, node.op.regions)))


def _asks_lapack(graph: Graph) -> bool:
    """Whether a graph has linear algebra, which raises an error where a matrix has no result."""
    return any(type(n.op).__module__ == linear_algebra.__name__ or any(map(_asks_lapack, n.op.regions)) for n in graph.nodes)


def _may_write_in_place(unit: _Unit, info: Analysis, output: Value, target: Value) -> bool:
    """True if the step that makes `output` may write it over `target`, which nobody reads later: it reads each element before it writes
    that element."""
    if unit.node is not None and unit.kernel is not None and target in (info.layout(v).root for v in unit.node.operands):
        return False
    if target not in unit.reads(info) or (target, output) in _taken_over(unit, info):
        return True
    if unit.kernel is None:
        return False
    source, result = unit.kernel.buffers.index(target), unit.kernel.buffers.index(output)
    written = False
    for kernel, operands in ((unit.kernel.kernel, range(len(unit.kernel.kernel.operands))), *((f.kernel, f.operands) for f in unit.kernel.after)):
        loads = [s.what for s in kernel.body if isinstance(s.what, (Load, GatherLoad)) and operands[s.what.access.operand] == source]
        stores = [s for s in kernel.stores if operands[s.access.operand] == result]
        if loads and (stores or written) and not _goes_along(kernel, stores, loads):
            return False
        written = written or bool(stores)
    return True


def _goes_along(kernel: LoopKernel, stores: Sequence[Store], loads: Sequence[Load | GatherLoad]) -> bool:
    """Whether a kernel walks its elements once, and writes each, by one of these stores, where it reads it, by all these loads."""
    if len(stores) != 1 or any(isinstance(load, GatherLoad) for load in loads):
        return False
    (store,) = stores
    walks_again = kernel.stages > 1 and not (ends_in_reductions(kernel) and kernel.writes_inside(store))
    if walks_again or store.adds or any(n > 1 and not step for n, step in zip(kernel.extents, store.access.strides, strict=True)):
        return False  # written again and again
    return all((load.access.strides, load.access.offset) == (store.access.strides, store.access.offset) for load in loads)


def _taken_over(unit: _Unit, info: Analysis) -> list[tuple[Value, Value]]:
    """(operand, result) pairs of values that may share a buffer, if nobody reads the operand later: the op changes it in place."""
    node = unit.node
    if node is None:
        return []
    if isinstance(node.op, (While, For)):
        count = node.op.carried
    else:
        count = int(isinstance(node.op, (Scatter, ScatterElements, ScatterStep, UpdateSlice, DynamicUpdateSlice)))
    roots = [info.layout(v).root for v in node.operands]
    pairs = zip(node.operands[:count], roots, node.results, strict=False)
    return [(x, y) for v, x, y in pairs if roots.count(x) == 1 and info.layout(v).is_whole(v.type.shape)]


def _carried(op: While | For, graph: Graph) -> list[tuple[int, Value]]:
    """The carried values of a loop as (position among the outputs of its body, input)."""
    first = int(isinstance(op, For))
    return [(k, graph.inputs[k + first]) for k in range(op.carried)]
