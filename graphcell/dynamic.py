"""Calls of one compiled function for any number of rows, without compiling it for each number.

Enters: a compiled function, and which of its arguments have any number of rows (along one dimension). Leaves: the same results. The function
is interpreted for the rows at hand and for blocks of a few sizes; where all graphs are the same but for extents, and treat rows apart
(passes/row_wise.py), it is compiled for the blocks alone, each when it is first of use, and a call runs blocks that cover its rows
(runtime/blocks.py). Where rows meet in sums, it is cut into stages that treat them apart (dynamic_stages.py). Otherwise it is
compiled for each shape, as any function is; `DynamicRows.reason` says why.
"""

from __future__ import annotations

import contextlib
import functools
import math
import random
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcell.frontend import trace_function
from graphcell.frontend.guards import Guards
from graphcell.frontend.signature import key_of
from graphcell.frontend.tracing import Output, Structure, Traced
from graphcell.frontend.trees import Tree
from graphcell.frontend.uncompiled import Uncompiled
from graphcell.ir.types import TensorType
from graphcell.jit import JitFunction
from graphcell.locks import Lock, whole
from graphcell.passes.row_wise import NotRowWise, row_axes, work_of
from graphcell.progress import progress
from graphcell.records import dataclass
from graphcell.runtime.block_sizes import LIGHT, Pieces, plan, sizes_for
from graphcell.runtime.vectorcall import NativelyCalled, with_vectorcall
from graphcell.tensor import Tensor, state

if TYPE_CHECKING:  # as in jit.py
    from graphcell.runtime.binding import CountedTable, Record
    from graphcell.runtime.blocks import BlockBinding, Blocks, Rows
    from graphcell.runtime.stages import StagedBinding


_AHEAD_SECONDS = 2.0
"""So long, the first call also compiles blocks that others will need."""

_PATIENCE = 8
"""So often in a row it is looked at anew, for nothing, whether rows can be treated apart since something changed: a counter may at each call.
So often, too, native code is told anew how to run calls that then need Python once more; and so many such calls come before one number of rows
takes the place of another that shares it."""
_RUNS_BEFORE_NATIVE = 2
_KEPT = 4
"""What is known of so many kinds of arguments, or states of what was read, is kept."""
_KEPT_PLANS = 256
_KEPT_BYTES = 1 << 28
"""Of outputs, which the plans for many numbers of rows may keep."""

Trace = Callable[[int], Traced]


class _NotInPieces(NotRowWise):
    """Nor can it be done in stages."""


@dataclass(frozen=True)
class Held:
    """What a trace read from outside; the types of its outputs, and how its result is built of them."""

    guards: Guards
    captured: list[Tensor]
    types: list[TensorType]
    result: Structure

    @classmethod
    def of(cls, traced: Traced) -> Held:
        return cls(traced.guards, traced.captured, [v.type for v in traced.graph.outputs], traced.result)

    def holds(self) -> bool:
        return not self.guards.failure(self.captured)


@dataclass
class Plan:
    """How to do so many rows: by `binding`, whose outputs `build` makes the result of, or, for the `reason` given, by a graph for them alone.
    True as long as what was `read` stays the same.

    `largest`: the rows of its largest block; `nbytes`: what the buffers of its outputs may take; `record`: by which native code does it, made
    when what was read was the `recorded`-th time compared; `patience`: how often more it may be made; `missed`: how often Python ran although there
    was one; `kept`: what must live as long.
    """

    read: Sequence[Held]
    reason: str = ""
    binding: BlockBinding | StagedBinding | None = None
    build: Callable[[Sequence[Tensor]], Any] | None = None
    largest: int = 0
    nbytes: int = 0
    record: Record | None = None
    recorded: int = -1
    patience: int = _PATIENCE
    missed: int = 0
    remark: str = ""
    kept: Any = None

    def holds(self) -> bool:
        """Whether what was read is as it was."""
        return all(held.holds() for held in self.read)


class DynamicRows(NativelyCalled):
    """A compiled function whose arguments number `arguments`, Tensors, have any number of rows, all the same, each along the dimension said.

    Args:
        check: raises if the arguments of a call are not as they must be.

    Attributes:
        reason: why the last call was compiled for its very shape; "" if it was not.
    """

    def __new__(cls, *args: Any) -> DynamicRows:
        return object.__new__(_DYNAMIC_ROWS)

    _some_rows = 32
    """So many, to find out about a function of whose calls none came yet."""

    def __init__(self, function: JitFunction, arguments: dict[int, int], check: Callable[[tuple[Any, ...], dict[str, Any]], None]):
        self.function, self.arguments = function, arguments
        self._check = check
        self._known: list[Known] = []  # the last used first
        self._in_vain = 0
        self._lock = Lock()
        self.reason = ""

    def __call__(self, *args: Any) -> Any:
        self._check(args, {})
        rows = self._rows(args)
        if not rows or state.trace is not None or state.tapes or self.function.is_eager:
            return self.function(*args)
        found = self._find_out(args, rows)
        self.reason = found.reason
        self.function.remark = f"compiled for each number of rows: {found.reason}" if found.reason else f"compiled for blocks of rows{found.remark}"
        if found.binding is None or found.build is None:
            result = self.function(*args)
            self._serve_alone(found, args, rows)
            return result
        result = found.build(found.binding([x for x in args if type(x) is Tensor]))
        self._serve(found, args, rows)
        return result

    def compile(self, *args: Any) -> None:
        """Compiles all blocks that calls with arguments like these may need, whatever their rows are; where rows cannot be treated apart,
        for these very arguments, if they have so many.
        """
        rows = self._rows(args) or 0
        found = self._find_out(args, rows if rows > 0 else self._some_rows)
        if found.binding is None and rows > 0:
            self.function.compile(*args)
        if not found.reason:
            self._known[0].compile_ahead(lambda n: self._with_rows(args, n))

    def _rows(self, args: Sequence[Any]) -> int | None:
        """The number of rows, if the arguments agree on it."""
        if max(self.arguments) >= len(args):
            return None
        extents = {args[k].shape[axis] if isinstance(args[k], Tensor) and args[k].ndim > axis else None for k, axis in self.arguments.items()}
        return extents.pop() if len(extents) == 1 else None

    def _find_out(self, args: Sequence[Any], rows: int) -> Plan:
        """Whether the function treats rows apart; looked at anew when something that it reads has changed."""
        from graphcell.runtime.blocks import BlockBinding

        objects: list[Any] = []
        key = [
            (type(x), x.dtype, _with_extent(x.shape, self.arguments[k], 0)) if k in self.arguments else key_of(x, [], objects)
            for k, x in enumerate(args)
        ]  # fmt: skip
        with self._lock:
            is_again = False
            for known in [known for known in self._known if known.key == key]:
                found = known.plans.get(rows)
                if found is None and known.holds():
                    break
                if found is not None and ((found.reason and self._in_vain > _PATIENCE) or found.holds()):
                    self._remember(known)
                    return found
                is_again = is_again or found is not None
            else:
                inputs = [self.arguments.get(k) for k, x in enumerate(args) if type(x) is Tensor]
                known = Known(self.function, key, objects, inputs)
            self._remember(known)
            drawn = random_state()
            found = known.planned(rows, lambda n: self._with_rows(args, n))
            if found.reason:
                set_random_state(drawn)
                found = known.planned_in_stages(rows, lambda n: self._with_rows(args, n), found)
            if isinstance(found.binding, BlockBinding) and not known.is_ahead:
                known.is_ahead = True
                with contextlib.suppress(Exception):  # this call needs none of it
                    known.compile_ahead(lambda n: self._with_rows(args, n), _AHEAD_SECONDS)
                self.function.compile(*self._with_rows(args, found.largest))  # to be the one that is shown
            elif found.largest and self.function.to_show is None:
                self.function.to_show = functools.partial(self.function.compile, *self._with_rows(args, found.largest))
            set_random_state(drawn)  # numbers that Python's libraries gave while code was only looked at are not used up
            self._in_vain = self._in_vain + is_again if found.reason else 0
            return found

    def _remember(self, known: Known) -> None:
        """Puts it first."""
        if not self._known or self._known[0] is not known:
            self._known = [known, *(other for other in self._known if other is not known)][:_KEPT]

    def _with_rows(self, args: Sequence[Any], rows: int) -> list[Any]:
        """The arguments with so many rows, of no particular values and in no memory."""
        return [
            Tensor.of_array(np.broadcast_to(np.zeros((), x.dtype.np_type), _with_extent(x.shape, self.arguments[k], rows))) if k in self.arguments else x
            for k, x in enumerate(args)
        ]

    def _serve(self, found: Plan, args: tuple[Any, ...], rows: int) -> None:
        """Lets native code do calls like this one, if it has not been told yet."""
        from graphcell.runtime.binding import Record

        changes = sum(held.guards.changes for held in found.read)
        assert found.binding is not None
        if found.recorded == changes:
            return self._put_back(found, rows)
        if found.binding.spaces.runs < _RUNS_BEFORE_NATIVE or not found.patience:
            return
        found.patience = _PATIENCE if found.record is not None and found.record.hits else found.patience - 1
        found.record, found.recorded = None, changes
        compared = Guards.compare_together([held.guards for held in found.read])
        table = self._table()
        if compared is None or table is None:
            return
        result, build = found.read[0].result, found.build  # that of so many rows is first
        assert build is not None
        found.record = Record.of(
            table, found.binding, args, {}, compared.epoch, compared.cells, compared.variables, compared.check, build,
            result.is_single, result.is_tuple(len(found.binding.spaces.pools)),
        )  # fmt: skip
        if found.record is not None:
            table.add_for(rows, found.record)

    def _serve_alone(self, found: Plan, args: tuple[Any, ...], rows: int) -> None:
        """The same where the graph for so many rows alone does it, once its function lets native code run it."""
        entry = self.function.compile(*args) if found.patience else None
        if entry is None or isinstance(entry, Uncompiled) or entry.record is None:
            return
        if found.recorded == entry.guards.changes:
            return self._put_back(found, rows)
        found.patience = _PATIENCE if found.record is not None and found.record.hits else found.patience - 1
        table = self._table()
        found.record, found.recorded = entry.record_in(table, args, {}) if table is not None else None, entry.guards.changes
        found.kept = entry
        if table is not None and found.record is not None:
            table.add_for(rows, found.record)

    def _put_back(self, found: Plan, rows: int) -> None:
        """Lets native code find a record again after a while, if that for another number of rows is where it was."""
        found.missed = (found.missed + 1) % _PATIENCE
        table, record = self._table(), found.record
        if not found.missed and table is not None and record is not None:
            table.add_for(rows, record)

    def _table(self) -> CountedTable | None:
        """Where native code looks for records, by the number of rows in an argument's first dimension; None where no argument has them there."""
        from graphcell.runtime.binding import CountedTable

        counted = next((k for k, axis in self.arguments.items() if axis == 0), None)
        table = self._natives_in(lambda: CountedTable(counted)) if counted is not None else None
        return table if isinstance(table, CountedTable) else None


_DYNAMIC_ROWS = with_vectorcall(DynamicRows)


class Known:
    """What was found out about a function for arguments of one kind.

    Attributes:
        key: of the arguments; `objects` are those whose identity is in it.
        plans: for each number of rows that there was.
        is_ahead: whether blocks that were not needed yet were compiled, too.
    """

    reference = 4099
    """The number of rows of the graph with which all others are compared. A prime, so that what can be divided by it depends on it."""

    def __init__(self, function: JitFunction, key: Any, objects: list[Any], inputs: list[int | None]):
        self.function, self.key, self.objects, self.inputs = function, key, objects, inputs
        self.plans: dict[int, Plan] = {}
        self.is_ahead = False
        self._axes: list[int | None] | None = None
        self._reference: Traced | None = None
        self._read: dict[int, Held] = {}
        self._usable = LIGHT
        self._compiled: dict[int, int] = {}  # numbers of the blocks
        self._programs: list[Held] = []  # what these blocks read
        self._blocks: Blocks | None = None
        self._staged: Known | None = None
        self._is_hopeless = False

    def holds(self) -> bool:
        """Whether all that was read is still the same."""
        return all(held.holds() for held in [*self._read.values(), *self._programs]) and (self._staged is None or self._staged.holds())

    def planned(self, rows: int, arguments: Callable[[int], list[Any]]) -> Plan:
        """How to do so many rows. `arguments(n)` are those of a call for n rows."""
        self._forget_oldest()
        pieces, reason = self._try(rows, self._tracer(arguments))
        sizes = {size for _, size in pieces}
        read = [self._read[n] for n in {rows, self.reference, *sizes} if n in self._read]
        if not reason and self._compile_pieces(pieces, arguments):
            found = self._bound(rows, pieces, read)
        else:
            found = Plan(read, reason or "it runs as Python")
        self.plans[rows] = found
        return found

    def planned_in_stages(self, rows: int, arguments: Callable[[int], list[Any]], plan: Plan) -> Plan:
        """How to do so many rows where they meet, if that can be done in stages; else the plan given."""
        from graphcell.dynamic_stages import KnownInStages

        if self._is_hopeless:
            return plan
        if self._staged is None:
            self._staged = KnownInStages(self.function, self.key, self.objects, self.inputs)
        try:
            found = self._staged.planned(rows, arguments)
        except Exception as e:  # whatever it is: a graph for so many rows alone may do
            plan.reason = f"{type(e).__name__}: {e}"
            return plan
        if found.reason:
            plan.reason = found.reason
            return plan
        self.plans[rows] = found
        return found

    def compile_ahead(self, arguments: Callable[[int], list[Any]], seconds: float = math.inf) -> None:
        """Makes all blocks that there may be, or those that are done in so many seconds; smaller ones first. Before them the graph for one
        row, if that is another: what is broadcast to more rows needs no op there.
        """
        if self._staged is not None and not self._blocks:
            return self._staged.compile_ahead(arguments, seconds)
        begin = time.perf_counter()
        if not self._is_usable(1, self._tracer(arguments)):
            with contextlib.suppress(Exception):  # which comes again if there is a call with one row
                self.function.compile(*arguments(1))
        self._compile_sizes(arguments, seconds - (time.perf_counter() - begin))

    def _compile_sizes(self, arguments: Callable[[int], list[Any]], seconds: float) -> None:
        begin = time.perf_counter()
        sizes = sorted(self._usable.rows)
        with progress(len(sizes), " sizes of blocks") as step:
            for size in sizes:
                if time.perf_counter() - begin > seconds:
                    return
                if self._is_usable(size, self._tracer(arguments)):
                    self._compile(size, arguments)
                else:
                    self._usable = self._usable.without({size})
                step()

    def _tracer(self, arguments: Callable[[int], list[Any]]) -> Trace:
        return lambda n: self._traced(arguments(n))

    def _traced(self, arguments: list[Any]) -> Traced:
        return trace_function(self.function.__traced__, arguments)

    def _try(self, rows: int, trace: Trace) -> tuple[Pieces, str]:
        """Blocks for so many rows; or why there are none."""
        try:
            self._compare(rows, trace)
            return self._pieces(rows, trace), ""
        except NotRowWise as e:
            self._is_hopeless = isinstance(e, _NotInPieces)
            return (), str(e)
        except Exception as e:  # whatever the function does with unusual extents; if the error is its own, it comes again
            return (), f"{type(e).__name__}: {e}"

    def _forget_oldest(self) -> None:
        """Lets go of plans for rows that came long ago, if there are many or their outputs take much memory."""
        total = sum(plan.nbytes for plan in self.plans.values())
        while self.plans and (len(self.plans) >= _KEPT_PLANS or total > _KEPT_BYTES):
            rows = next(iter(self.plans))
            total -= self.plans.pop(rows).nbytes
            if rows not in self._usable.rows and rows != self.reference:
                self._forget(rows)

    def _cover(self, rows: int) -> Pieces:
        """Blocks of sizes that may do for so many rows."""
        return plan(rows, self._usable)

    def _pieces(self, rows: int, trace: Trace) -> Pieces:
        """Blocks of sizes for which the function does the same as for all rows."""
        while self._usable.rows:
            pieces = self._cover(rows)
            unusable = {size for _, size in pieces if not self._is_usable(size, trace)}
            if not unusable:
                return pieces
            self._usable = self._usable.without(unusable)
        raise NotRowWise("what is computed depends on the number of rows")

    def _is_usable(self, size: int, trace: Trace) -> bool:
        try:
            self._compare(size, trace)
        except Exception:  # its own error or NotRowWise: a block of another size may do
            return False
        return True

    def _compare(self, rows: int, trace: Trace) -> None:
        """Looks whether the function does the same for so many rows as for `reference` rows, row by row.

        Raises:
            NotRowWise: it does not.
        """
        if self._reference is None:
            self._reference = trace(self.reference)
            self._read[self.reference] = Held.of(self._reference)
            self._refer(self._reference)
        if rows in self._read:
            return
        reference, traced = self._reference, trace(rows)
        if traced.leaves != len(self.inputs):
            raise _NotInPieces("Tensors are inside of other arguments")
        if traced.effects or any(getattr(leaf, "is_number", False) for leaf in traced.result.leaves):
            raise _NotInPieces("the function returns numbers, or changes something outside")
        if list(map(id, traced.captured)) != list(map(id, reference.captured)) or _fixed(traced.result) != _fixed(reference.result):
            raise NotRowWise("what is read or returned depends on the number of rows")
        self._match(rows, reference, traced)
        self._read[rows] = Held.of(traced)

    def _refer(self, reference: Traced) -> None:
        """Takes in the graph with which all others are compared."""
        self._usable = sizes_for(*work_of(reference.graph, self.reference))

    def _match(self, rows: int, reference: Traced, traced: Traced) -> None:
        """Compares the graph for so many rows with it.

        Raises:
            NotRowWise: they are not the same, or rows may not be treated apart.
        """
        if traced.updates:
            raise NotRowWise("the function writes into Parameters")
        self._axes = row_axes(reference.graph, traced.graph, [*self.inputs, *[None] * len(reference.captured)], (self.reference, rows))

    def _forget(self, rows: int) -> None:
        """Lets go of what is known of the graph for so many rows."""
        self._read.pop(rows, None)

    def _compile_pieces(self, pieces: Pieces, arguments: Callable[[int], list[Any]]) -> bool:
        """Makes the blocks for these that there are not yet; False if one would run as Python."""
        return all(self._compile(size, arguments) for size in {size for _, size in pieces})

    def _compile(self, size: int, arguments: Callable[[int], list[Any]]) -> bool:
        """Makes the block of so many rows, if there is none yet; False if it would run as Python."""
        from graphcell.runtime.blocks import Block, Blocks

        if size in self._compiled:
            return True
        given = arguments(size)
        entry = self.function.compile(*given)
        if isinstance(entry, Uncompiled) or entry.binding is None:
            return False
        inputs, outputs = self._lie(size, [x.ir_type for x in given if type(x) is Tensor])
        if self._blocks is None:
            self._blocks = Blocks(len(inputs), len(outputs))
        self._compiled[size] = self._blocks.add(Block(size, entry.binding, inputs, outputs))
        self._programs.append(Held.of(entry.traced))
        return True

    def _lie(self, rows: int, types: Sequence[TensorType]) -> tuple[list[Rows], list[Rows]]:
        """How so many rows lie in the inputs, which have these types, and the outputs."""
        from graphcell.runtime.blocks import Rows

        assert self._axes is not None
        return (
            [Rows.of(t, axis, rows) for t, axis in zip(types, self.inputs, strict=True)],
            [Rows.of(t, axis, rows) for t, axis in zip(self._read[rows].types, self._axes, strict=True)],
        )

    def _bound(self, rows: int, pieces: Pieces, read: Sequence[Held]) -> Plan:
        """The plan to do so many rows in these blocks."""
        from graphcell.runtime.blocks import BlockBinding, BlockPlan

        assert self._blocks is not None and self._reference is not None
        held = self._read[rows]
        inputs, outputs = self._lie(rows, [_of_rows(v.type, axis, rows) for v, axis in zip(self._reference.graph.inputs, self.inputs)])
        numbered = [(start, self._compiled[size]) for start, size in pieces]
        binding = BlockBinding(BlockPlan(self._blocks, numbered, rows, inputs, outputs), held.types)
        read = [held, *(other for other in read if other is not held), *(self._programs[number] for number in {number for _, number in numbered})]
        nbytes = sum(pool.nbytes for pool in binding.spaces.pools)
        return Plan(read, "", binding, held.result.builder(), max(size for _, size in pieces), nbytes)


def random_state() -> tuple[Any, Any]:
    """Of the generators of Python's libraries."""
    with whole:  # numpy imports its generators late
        return random.getstate(), np.random.get_state()


def set_random_state(found: tuple[Any, Any]) -> None:
    """Takes them back to a state."""
    random.setstate(found[0])
    np.random.set_state(found[1])


def _of_rows(type: TensorType, axis: int | None, rows: int) -> TensorType:
    """An input's type with so many rows."""
    return type if axis is None else type.with_shape(_with_extent(type.shape, axis, rows))


def _with_extent(shape: tuple[int, ...], axis: int, extent: int) -> tuple[int, ...]:
    return (*shape[:axis], extent, *shape[axis + 1 :])


def _fixed(result: Structure) -> list[Hashable]:
    """All of a result but the Tensors: equal for results that differ in these alone."""
    return [*_parts(result.tree), *(leaf if isinstance(leaf, Output) else key_of(leaf, [], []) for leaf in result.leaves)]


def _parts(tree: Tree) -> Iterator[Hashable]:
    yield tree.kind, len(tree.children), key_of(tree.keys, [], []), key_of(tree.constant, [], [])
    for child in tree.children:
        yield from _parts(child)
