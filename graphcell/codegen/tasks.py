"""The steps of a program as sharing.py weighs them: the work of each, how often it runs, the memory that it reads and writes.

Enters: a frame of lower.py whose memory is planned. Leaves: its steps in the order in which they run, with those of branches and loops inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, Self, TypeVar

from graphcell.codegen.fuse import Analysis
from graphcell.codegen.linear_algebra import matrix_kernel
from graphcell.codegen.llvm.contraction import Plan
from graphcell.codegen.lowering import PARALLEL_FROM, Lowering
from graphcell.codegen.pieces import Piece
from graphcell.codegen.schedule import ScheduledKernel
from graphcell.codegen.sharing import TURNS, Task, Work, work_of_loops, work_of_plan
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ops.control import For, If, While
from graphcell.ops.indexing import DynamicSlice, DynamicUpdateSlice, Gather, GatherElements, Scatter, ScatterElements, ScatterStep
from graphcell.ops.movement import UpdateSlice


class UnitLike(Protocol):
    """What is asked of a step."""

    node: Node | None
    kernel: ScheduledKernel | None

    def reads(self, info: Analysis) -> list[Value]: ...
    def writes(self) -> list[Value]: ...


U = TypeVar("U", bound=UnitLike)


class FrameLike(Protocol[U]):
    """What is asked of a frame."""

    lowering: Lowering
    graph: Graph
    info: Analysis
    outputs: tuple[Value, ...]
    units: list[U]
    in_place: dict[Value, Value]
    pieces: dict[Value, Piece]

    @property
    def inner(self) -> dict[Node, tuple[Self, ...]]: ...
    def native_plan(self, node: Node) -> Plan | None: ...


def tasks_of(frame: FrameLike[U], times: int, memory: dict[Value, Value]) -> Iterator[tuple[U, Task]]:
    """The steps of a frame that runs `times` times. `memory`: in the buffer of which value outside of its graph its inputs and outputs lie."""

    def place(v: Value) -> Value:
        v = frame.in_place.get(v, v)
        v = frame.pieces[v].whole if v in frame.pieces else v
        return memory.get(v, v)

    for unit in frame.units:
        if unit.node is not None and unit.node in frame.inner:
            yield from _tasks_inside(frame, unit, unit.node, times, place)
            continue
        work, most = _work(frame, unit)
        reads = tuple((place(v), min(most, v.type.nbytes)) for v in unit.reads(frame.info))
        yield unit, Task(work, times, reads, tuple((place(v), min(most, v.type.nbytes)) for v in unit.writes()))


def _tasks_inside(frame: FrameLike[U], unit: U, node: Node, times: int, place: Callable[[Value], Value]) -> Iterator[tuple[U, Task]]:
    """The steps of a branch or loop. What a loop carries lies in the buffers of its results."""
    op, operands, results = node.op, [place(v) for v in unit.reads(frame.info)], [place(v) for v in node.results]
    first, carried, turns = 0, 0, 1
    if isinstance(op, If):
        operands = operands[1:]
    elif isinstance(op, (For, While)):
        first, carried = int(isinstance(op, For)), op.carried
        turns = op.trip_count if isinstance(op, For) else TURNS
    frames = frame.inner[node]
    for region in frames:
        inside = dict(zip(region.graph.inputs[first:], [*results[:carried], *operands[carried:]], strict=True))
        if isinstance(op, If) or region is frames[-1]:
            inside |= zip(region.outputs, results, strict=True)
        yield from tasks_of(region, times * turns, inside)


def _work(frame: FrameLike[U], unit: U) -> tuple[Work, int]:
    """What a step takes, and the most bytes of one value that it touches: a row of a table may be all that is read."""
    node, target = unit.node, frame.lowering.target
    values: Sequence[Value] = [*unit.reads(frame.info), *unit.writes()]
    nbytes = sum(v.type.nbytes for v in values)
    plan = frame.native_plan(node) if node is not None else None
    if plan is not None and node is not None:
        return work_of_plan(node, plan, nbytes, target), nbytes
    if unit.kernel is not None:
        return work_of_loops(unit.kernel.kernel, nbytes, target), nbytes
    assert node is not None
    if isinstance(node.op, (Gather, GatherElements, DynamicSlice)):
        moved = node.results[0].type.nbytes
    elif isinstance(node.op, (Scatter, ScatterElements, ScatterStep, UpdateSlice, DynamicUpdateSlice)):
        moved = sum(v.type.nbytes for v in node.operands[1:])
    else:
        moved = max((v.type.nbytes for v in values), default=0)
    matrices = matrix_kernel(node)
    if matrices is not None:
        return Work(matrices.cost, matrices.blocks(target) > 1 and matrices.cost >= PARALLEL_FROM), moved
    return Work(moved, moved >= 4 * PARALLEL_FROM), moved
