"""Epilogues: the elementwise kernel that follows a contraction, applied to each vector of its result as it leaves the registers.

Enters: a fused kernel without reductions that reads the result of a contraction, each element once. Leaves: a `FusedEpilogue`, whose
`emitter` is what the emitters of contractions call on each finished vector (`Epilogue` in llvm/contraction.py). It stores the kernel's
results itself: what the contraction computes is never written to memory and read again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphcell.codegen.kernel import Access, GatherLoad, Load, LoopKernel, rebase
from graphcell.codegen.layout import row_major
from graphcell.codegen.llvm.body import BodyBuilder, compute_type
from graphcell.codegen.llvm.contraction import Epilogue, split_index
from graphcell.codegen.llvm.points import PointEmitter, Scope
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.llvm.text import PTR, FunctionBuilder, LType, Val, i64
from graphcell.codegen.vectorize import permute
from graphcell.records import dataclass

MOST_STREAMS = 3
"""Arrays of the result's size that an epilogue may read and write. A register tile touches a few cache lines in each of many rows, far from
the order in which memory streams; with more arrays (an optimizer's state) a kernel of its own is faster."""


@dataclass(frozen=True)
class FusedEpilogue:
    """A kernel as the epilogue of a contraction.

    Attributes:
        kernel: loops in the order of the result's elements, offsets of operands taken out.
        bases: these offsets, in elements.
        operand: which of the kernel's buffers is the contraction's result, which has no memory.
        columns: elements of a row of the result, as the contraction's emitters count them.
    """

    kernel: LoopKernel
    bases: tuple[int, ...]
    operand: int
    columns: int

    @property
    def extra(self) -> tuple[tuple[str, LType], ...]:
        """The pointers that the contraction's functions take besides their own: the kernel's other buffers."""
        return tuple((extra_name(k), PTR) for k in range(len(self.kernel.operands)) if k != self.operand)

    def emitter(self) -> Epilogue:
        """What the contraction's emitters call."""
        return _Emitter(self)

    def home_of_partial_sums(self) -> int | None:
        """A buffer that the kernel fills with elements of the result's dtype in the result's order, if there is one."""
        result = self.kernel.operands[self.operand]
        order = row_major(self.kernel.extents)
        for store in self.kernel.stores:
            if self.kernel.operands[store.access.operand] == result and store.access.strides == order and not store.access.offset:
                return store.access.operand
        return None


def match_epilogue(kernel: LoopKernel, operand: int, columns: int, target: Target) -> FusedEpilogue | None:
    """`kernel` as the epilogue of the contraction whose result is buffer `operand`, or None if it cannot be one.

    Every element of the result must be read once, and in the direction of its rows all that is read and written must lie side by side or stay in place,
    without guards, and nothing may be added up. Slow functions stay apart: where the registers hold a tile of sums, each call of one would have to save
    these, and a loop of its own keeps constants and tables in registers instead.
    """
    loads = [s.what.access for s in kernel.body if isinstance(s.what, Load) and s.what.access.operand == operand]
    if not loads or len(set(loads)) > 1 or kernel.summed or any(s.is_reduction or s.is_slow or isinstance(s.what, GatherLoad) for s in kernel.body):
        return None
    if any(isinstance(s.what, Load) and s.what.guards for s in kernel.body):
        return None
    (access,) = set(loads)
    order = sorted(range(len(kernel.extents)), key=lambda d: -access.strides[d])
    moved = permute(kernel, order)
    last = len(order) - 1
    kernel = LoopKernel(moved.extents, last, last, moved.body, moved.stores, moved.operands)
    (access,) = {s.what.access for s in kernel.body if isinstance(s.what, Load) and s.what.access.operand == operand}
    if columns < 2 or access.offset or access.strides != row_major(kernel.extents) or kernel.points % columns or not kernel.points:
        return None
    inner, lanes = kernel.extents[-1], target.lanes(kernel.operands[operand].llvm)
    if inner % columns and (columns % inner or inner % lanes):
        return None
    if sum(all(a.strides[d] or n == 1 for d, n in enumerate(kernel.extents)) for a in _accesses(kernel)) > MOST_STREAMS + len(loads):
        return None
    if any(a.strides[-1] not in (0, 1) for a in _accesses(kernel)) or any(s.access.strides[-1] != 1 for s in kernel.stores):
        return None
    kernel, bases = rebase(kernel)
    return FusedEpilogue(kernel, bases, operand, columns)


def _accesses(kernel: LoopKernel) -> list[Access]:
    return [s.what.access for s in kernel.body if isinstance(s.what, Load)] + [s.access for s in kernel.stores]


def extra_name(operand: int) -> str:
    """The name under which the contraction's functions know a buffer of the kernel."""
    return f"extra{operand}"


class _Emitter:
    """The kernel's body for one vector of the result.

    What varies along the columns alone (a bias, a scale) is computed once for all rows of a register tile.
    """

    def __init__(self, fused: FusedEpilogue):
        self.fused = fused
        self.kernel = fused.kernel
        self.split = _columns_begin(self.kernel.extents, fused.columns)
        self.known: dict[object, Scope] = {}
        self.places: dict[object, list[Val]] = {}

    def __call__(self, b: FunctionBuilder, value: Val, row: Val, column: Val, mask: Val | None, batch: Val) -> None:
        point = _Point(self.fused, b, value.type.lanes, mask, self._index(b, row, column))
        scope = Scope({}, self._along_columns(point, b, column, mask))
        dtype = self.kernel.operands[self.fused.operand]
        value = point.b.cast(point.b.narrow(value, dtype), compute_type(dtype, value.type.lanes))
        for n, s in enumerate(self.kernel.body):
            if isinstance(s.what, Load) and s.what.access.operand == self.fused.operand:
                scope.known[n] = value
        results = [point._value(s.local, scope) for s in self.kernel.stores]  # all is read before anything is written
        for store, result in zip(self.kernel.stores, results, strict=True):
            point._store_vector(store.access, result)

    def _along_columns(self, point: _Point, b: FunctionBuilder, column: Val, mask: Val | None) -> Scope:
        """Values that are the same in all rows, found once in each straight run of code."""
        key = (b, b.position, column.text, mask)
        if key not in self.known:
            scope = self.known[key] = Scope({})
            rows = (1 << self.split) - 1
            of_result: set[int] = set()  # with a single row nothing varies along rows
            for n, s in enumerate(self.kernel.body):
                if not of_result.isdisjoint(s.args) or (isinstance(s.what, Load) and s.what.access.operand == self.fused.operand):
                    of_result.add(n)
                elif not s.loops & rows:
                    point._value(n, scope)
        return self.known[key]

    def _index(self, b: FunctionBuilder, row: Val, column: Val) -> list[Val]:
        """The index of each loop at the vector's first lane."""
        extents = self.kernel.extents
        if extents[-1] > self.fused.columns:
            inside = extents[-1] // self.fused.columns
            *outer, part = self._decompose(b, row, (*extents[:-1], inside))
            return [*outer, b.add(b.mul(part, i64(self.fused.columns)), column)]
        return [*self._decompose(b, row, extents[: self.split]), *self._decompose(b, column, extents[self.split :])]

    def _decompose(self, b: FunctionBuilder, index: Val, extents: Sequence[int]) -> list[Val]:
        key = (b, b.position, index.text, tuple(extents))
        if key not in self.places:
            self.places[key] = split_index(b, index, extents)
        return self.places[key]


def _columns_begin(extents: Sequence[int], columns: int) -> int:
    """The first loop of those that run within a row; all loops run over rows if a loop spans several of them."""
    for d in range(len(extents)):
        if math.prod(extents[d:]) == columns:
            return d
    return len(extents)


class _Point(PointEmitter):
    """One vector of the iteration space, inside a function of the contraction."""

    def __init__(self, fused: FusedEpilogue, b: FunctionBuilder, lanes: int, mask: Val | None, index: list[Val]):
        pointers = [Val("null", PTR) if k == fused.operand else b.args[extra_name(k)] for k in range(len(fused.kernel.operands))]
        super().__init__(fused.kernel, BodyBuilder.extending(b), pointers, lanes)
        self.index, self.mask = [*index], mask
