"""The steps of a program as sharing.py weighs them: the work of each, how often it runs, the memory that it reads and writes.

Enters: a frame of lower.py whose memory is planned. Leaves: its steps in the order in which they run, with those of branches and loops inside.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, Self, TypeVar

from graphcell.codegen.beside import Pair
from graphcell.codegen.epilogue import FusedEpilogue
from graphcell.codegen.fuse import Analysis
from graphcell.codegen.linear_algebra import matrix_kernel
from graphcell.codegen.llvm.contraction import Plan, Stage
from graphcell.codegen.lowering import PARALLEL_FROM, Lowering
from graphcell.codegen.pieces import Piece
from graphcell.codegen.reach import blocks_of_product, goes_by_units
from graphcell.codegen.schedule import ScheduledKernel
from graphcell.codegen.sharing import ANNOUNCED, GATHERED, LONG, MET, TURNS, Task, Work, done_alone, work_of_loops, work_of_plan
from graphcell.codegen.team import TeamCalls
from graphcell.codegen.units import EVEN, Blocks, Units, takes_apart, units_of_blocks, units_of_rows
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ops.contraction import MatMul
from graphcell.ops.control import For, If, While
from graphcell.ops.creation import Constant
from graphcell.ops.indexing import DynamicSlice, DynamicUpdateSlice, Gather, GatherElements, Scatter, ScatterElements, ScatterStep
from graphcell.ops.movement import Bitcast, Concat, Pad, UpdateSlice
from graphcell.ops.scan import Cumulative


class UnitLike(Protocol):
    """What is asked of a step."""

    node: Node | None
    kernel: ScheduledKernel | None
    may_be_shared: bool

    @property
    def key(self) -> Node: ...
    def reads(self, info: Analysis) -> list[Value]: ...
    def writes(self) -> list[Value]: ...


U = TypeVar("U", bound=UnitLike)
_LONGEST_TRIED = 12_000_000
"""Cycles of one thread up to which a program tries whether that alone is quicker: some milliseconds."""
_TAKEN_APART = 0.9
"""Of its cycles, what a long loop counts for that is taken apart into rows, so that it can go by units."""
_EMITTED = (
    Bitcast, Concat, Constant, Cumulative, DynamicSlice, DynamicUpdateSlice, Gather, GatherElements, Pad, Scatter, ScatterElements, ScatterStep, UpdateSlice,
)  # fmt: skip
"""Ops beyond loop nests and contractions whose code asks nobody outside of it."""


class FrameLike(Protocol[U]):
    """What is asked of a frame."""

    lowering: Lowering
    graph: Graph
    info: Analysis
    outputs: tuple[Value, ...]
    units: list[U]
    in_place: dict[Value, Value]
    pieces: dict[Value, Piece]
    teams: dict[Node, Units]
    pairs: list[Pair[U]]
    epilogues: dict[Node, FusedEpilogue]

    @property
    def inner(self) -> dict[Node, tuple[Self, ...]]: ...
    def native_plan(self, node: Node) -> Plan | None: ...
    def own_stages(self, node: Node, plan: Plan) -> dict[str, Stage]: ...


def share(frame: FrameLike[U], cache_bytes: int) -> bool:
    """Decides which loops of a program teams go through, and which steps one thread does alone. `cache_bytes`: of a processor's own cache.

    Returns: whether the program is so short that it had better try whether one thread alone is quicker. Loops that teams go through try that themselves.
    """
    _keep_pairs(frame)
    _form_teams(frame)
    tasks = list(tasks_of(frame, 1, {}))
    for k in done_alone([task for _, task in tasks], cache_bytes):
        tasks[k][0].may_be_shared = False
    _dissolve_teams(frame)
    is_shared = any(unit.may_be_shared and task.work.may_be_shared for unit, task in tasks)
    return is_shared and not _has_teams(frame) and sum(t.times * t.work.cycles for _, t in tasks) <= _LONGEST_TRIED


def _has_teams(frame: FrameLike[U]) -> bool:
    return bool(frame.teams) or any(p.apart for p in frame.pairs) or any(_has_teams(f) for inside in frame.inner.values() for f in inside)


def _keep_pairs(frame: FrameLike[U]) -> None:
    """Leaves those pairs of loops to a thread each whose steps are short, and worth it, with the products behind them that are short, too."""
    for pair in frame.pairs:
        nodes = [unit.key for unit in (pair.first, pair.second)]
        inside = [_inside(frame, node) for node in nodes]
        suits = all(_is_emitted(frame, node) for node in nodes) and all(t.work.cycles < LONG for tasks in inside for _, t in tasks)
        pair.apart = suits and min(sum(t.times * t.work.cycles for _, t in tasks) for tasks in inside) > GATHERED
        if pair.apart:
            twins = [t for t in zip(*pair.behind, strict=True) if all(_is_emitted(frame, u.key) and _work(frame, u, PARALLEL_FROM)[0].cycles < LONG for u in t)]
            pair.behind = [one for one, _ in twins], [other for _, other in twins]  # the others follow them, for all threads
            for unit in itertools.chain((u for tasks in inside for u, _ in tasks), *pair.behind):
                unit.may_be_shared = False


def _form_teams(frame: FrameLike[U]) -> None:
    """Has teams go through loops whose steps are all short; threads share the long ones of others, and loops inside have teams of their own."""
    for node, frames in frame.inner.items():
        if any(pair.apart and node in (pair.first.key, pair.second.key) for pair in frame.pairs):
            continue
        units = _best_units(frame, node) if isinstance(node.op, (For, While)) and _is_emitted(frame, node) else None
        if units is not None:
            frame.teams[node] = units
        else:
            for inside in frames:
                _form_teams(inside)


def _best_units(frame: FrameLike[U], node: Node) -> Units | None:
    """By which units a team had best go through a loop; None if some of its steps are long."""
    tried = {units: _inside(frame, node, units) for units in EVEN}
    if any(t.work.cycles >= LONG for _, t in tried[EVEN[0]]):
        return None
    best = max(EVEN, key=lambda units: _cycles_by_units(frame, tried[units], units))
    if best.evenness == 1 and all(t.by_units for _, t in tried[best]):
        return best
    products = _products_inside(frame, node)
    gains = {best: _gain(tried[best], best, products)}
    for units in dict.fromkeys(_uneven_units(frame, node, products)):
        gains[units] = _gain(_inside(frame, node, units), units, products)
    return max(gains, key=gains.__getitem__)


def _cycles_by_units(frame: FrameLike[U], steps: Sequence[tuple[U, Task]], units: Units) -> float:
    """Of the steps that go by units."""
    apart = [_TAKEN_APART if u.kernel is not None and takes_apart(u.kernel.kernel, units, frame.lowering.target) else 1.0 for u, _ in steps]
    return sum(t.times * t.work.cycles * part for (_, t), part in zip(steps, apart, strict=True) if t.by_units)


def _gain(steps: Sequence[tuple[U, Task]], units: Units, products: Mapping[Node, Blocks]) -> float:
    """Cycles that two threads save, less those for which one waits that has fewer rows."""
    gain = 0.0
    for unit, task in steps:
        if task.work.may_be_shared:
            evenness = units.evenness if task.by_units else products[unit.key].evenness if unit.key in products else 1.0
            gain += task.gain - (1 / evenness - 1) / 2 * task.times * task.work.cycles
    return gain


def _uneven_units(frame: FrameLike[U], node: Node, products: Mapping[Node, Blocks]) -> Iterator[Units]:
    """Those that suit a product inside a loop, or where there is none, what its steps write."""
    for blocks in products.values():
        yield from units_of_blocks(blocks)
    if not products:
        for rows in sorted({v.type.shape[0] for _, u in _steps_inside(frame, node) for v in u.writes() if v.type.shape}, reverse=True):
            yield from units_of_rows(rows)


def _products_inside(frame: FrameLike[U], node: Node) -> dict[Node, Blocks]:
    """The blocks of each product inside a loop."""
    found = {}
    for inside, unit in _steps_inside(frame, node):
        plan = inside.native_plan(unit.node) if unit.node is not None and isinstance(unit.node.op, MatMul) else None
        if plan is not None:
            found[unit.key] = Blocks(plan.first_rows, math.prod(unit.key.results[0].type.shape[:-1]))
    return found


def _steps_inside(frame: FrameLike[U], node: Node) -> Iterator[tuple[FrameLike[U], U]]:
    """The steps of a loop or branch that have none inside, each with its frame."""
    for inside in frame.inner[node]:
        for unit in inside.units:
            if unit.node is not None and unit.node in inside.inner:
                yield from _steps_inside(inside, unit.node)
            else:
                yield inside, unit


def _dissolve_teams(frame: FrameLike[U]) -> None:
    """Leaves to one thread the loops for which it is not worth gathering a team."""
    for node, frames in frame.inner.items():
        if node not in frame.teams:
            for inside in frames:
                _dissolve_teams(inside)
            continue
        shared = [(u, t) for u, t in _inside(frame, node, frame.teams[node]) if t.work.may_be_shared and u.may_be_shared]
        if sum(t.gain for _, t in shared) < GATHERED:
            del frame.teams[node]
            for unit, _ in shared:
                unit.may_be_shared = False


def _is_emitted(frame: FrameLike[U], node: Node) -> bool:
    """Whether a node is native code that asks neither the host nor the pool."""
    if node.op.regions:
        inner = frame.inner[node]
        return isinstance(node.op, (For, If, While)) and all(u.node is None or _is_emitted(f, u.node) for f in inner for u in f.units)
    return isinstance(node.op, _EMITTED) or (matrix_kernel(node) is None and frame.native_plan(node) is not None)


def _inside(frame: FrameLike[U], node: Node, units: Units | None = None) -> list[tuple[U, Task]]:
    """The steps of a loop, by itself."""
    unit = next(u for u in frame.units if u.node is node)
    return list(_tasks_inside(frame, unit, node, 1, lambda v: v, units))


def tasks_of(frame: FrameLike[U], times: int, memory: dict[Value, Value], units: Units | None = None) -> Iterator[tuple[U, Task]]:
    """The steps of a frame that runs `times` times.

    Args:
        memory: in the buffer of which value outside of its graph its inputs and outputs lie.
        units: of a team that goes through it, None if none does.
    """

    def place(v: Value) -> Value:
        v = frame.in_place.get(v, v)
        v = frame.pieces[v].whole if v in frame.pieces else v
        return memory.get(v, v)

    for unit in frame.units:
        if unit.node is not None and unit.node in frame.inner:
            yield from _tasks_inside(frame, unit, unit.node, times, place, units or frame.teams.get(unit.node))
            continue
        by_units = units is not None and _goes_by_units(frame, unit, units)
        work, most = _work(frame, unit, TeamCalls.shared_from if units else PARALLEL_FROM)
        work = replace(work, may_be_shared=unit.may_be_shared and (by_units or work.may_be_shared))
        reads = tuple((place(v), min(most, v.type.nbytes)) for v in unit.reads(frame.info))
        writes = tuple((place(v), min(most, v.type.nbytes)) for v in unit.writes())
        yield unit, Task(work, times, reads, writes, 0.0 if by_units else MET if units else ANNOUNCED)


def _tasks_inside(
    frame: FrameLike[U], unit: U, node: Node, times: int, place: Callable[[Value], Value], units: Units | None
) -> Iterator[tuple[U, Task]]:
    """The steps of a branch or loop. What a loop carries lies in the buffers of its results."""
    op, operands, results = node.op, [place(v) for v in unit.reads(frame.info)], [place(v) for v in node.results]
    first, carried, turns = 0, 0, 1
    if isinstance(op, If):
        operands = operands[1:]
    elif isinstance(op, (For, While)):
        first, carried = (1, op.first_scanned) if isinstance(op, For) else (0, op.carried)
        turns = op.trip_count if isinstance(op, For) else TURNS
    frames = frame.inner[node]
    for region in frames:
        inside = dict(zip(region.graph.inputs[first:], [*results[:carried], *operands[carried:]], strict=True))
        if isinstance(op, If) or region is frames[-1]:
            inside |= zip(region.outputs, results, strict=True)
        yield from tasks_of(region, times * turns, inside, units)


def _goes_by_units(frame: FrameLike[U], unit: U, units: Units) -> bool:
    """Whether the threads of a team may divide a step by units."""
    scheduled, target = unit.kernel, frame.lowering.target
    if unit.node is not None and isinstance(unit.node.op, (Concat, Pad, UpdateSlice)):
        shape = unit.node.results[0].type.shape
        return getattr(unit.node.op, "axis", 1) > 0 < len(shape) and units.of(shape[0]) > 0
    if unit.node is None:
        return scheduled is not None and not scheduled.after and goes_by_units(scheduled.kernel, units, target)
    plan = frame.native_plan(unit.node)
    rows = math.prod(unit.node.results[0].type.shape[:-1])
    return plan is not None and blocks_of_product(plan, rows, frame.epilogues.get(unit.node), units) > 0


def _work(frame: FrameLike[U], unit: U, shared_from: int) -> tuple[Work, int]:
    """What a step takes, and the most bytes of one value that it touches: a row of a table may be all that is read."""
    node, target = unit.node, frame.lowering.target
    values: Sequence[Value] = [*unit.reads(frame.info), *unit.writes()]
    nbytes = sum(v.type.nbytes for v in values)
    plan = frame.native_plan(node) if node is not None else None
    if plan is not None and node is not None:
        return work_of_plan(node, plan, nbytes, target, shared_from, frame.own_stages(node, plan).values()), nbytes
    if unit.kernel is not None:
        return work_of_loops(unit.kernel.kernel, nbytes, target, shared_from), nbytes
    assert node is not None
    if isinstance(node.op, Concat):
        return Work(nbytes / (target.vector_bytes / 4), nbytes >= 4 * shared_from), nbytes
    if isinstance(node.op, (Gather, GatherElements, DynamicSlice)):
        moved = node.results[0].type.nbytes
    elif isinstance(node.op, (Scatter, ScatterElements, ScatterStep, UpdateSlice, DynamicUpdateSlice)):
        moved = sum(v.type.nbytes for v in node.operands[1:])
    else:
        moved = max((v.type.nbytes for v in values), default=0)
    matrices = matrix_kernel(node)
    if matrices is not None:
        return Work(matrices.cost, matrices.blocks(target) > 1 and matrices.cost >= shared_from), moved
    return Work(moved, moved >= 4 * shared_from), moved
