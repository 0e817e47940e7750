"""Turns a fused group into a `LoopKernel`: chooses the order of the loops and the stages (the vector loop: vectorize.py).

Enters: a Group (fuse.py). Leaves: the kernel and the values whose buffers it reads and writes, in the order of its operands.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from graphcell.codegen.axes import Axis, Dims, flatten, leaf_set, leaves
from graphcell.codegen.contract import contract
from graphcell.codegen.extrema import find_nan_once
from graphcell.codegen.fuse import Analysis, Group
from graphcell.codegen.gathers import gather_strides
from graphcell.codegen.kernel import (
    Access,
    GatherLoad,
    Guard,
    Index,
    Load,
    LoopKernel,
    Source,
    Splat,
    Statement,
    Store,
    Strides,
    with_loops,
)
from graphcell.codegen.layout import row_major
from graphcell.codegen.moves import bits_of, moved_as_bits
from graphcell.codegen.pick import pick
from graphcell.codegen.pieces import Piece
from graphcell.codegen.quotients import multiply_by_inverses
from graphcell.codegen.reduction_parts import reductions_in_parts
from graphcell.codegen.row_parts import Following, rows_in_parts
from graphcell.codegen.share_powers import share_powers
from graphcell.codegen.turns import unroll_turns
from graphcell.codegen.vectorize import choose_vector
from graphcell.dtype import DType
from graphcell.ir.graph import Node, Value
from graphcell.ops.base import Reduction
from graphcell.ops.creation import Full, Iota
from graphcell.ops.indexing import Gather
from graphcell.records import dataclass


@dataclass(frozen=True)
class ScheduledKernel:
    """A kernel, the values whose buffers are its operands, and those that it writes. What it writes into one concatenation goes by way of the
    buffer of the first of these parts. Where its rows or reductions are in parts, what these come to are further operands, of so many bytes each, of which
    the kernels after it make the result."""

    kernel: LoopKernel
    buffers: tuple[Value, ...]
    writes: tuple[Value, ...]
    partial: tuple[int, ...] = ()
    after: tuple[Following, ...] = ()


@dataclass(frozen=True)
class _Raw:
    """A local before the loops are numbered: what varies along which axes."""

    what: Source | None
    node: Node | None
    args: tuple[int, ...]
    axes: frozenset[Axis]


class _Scheduler:
    def __init__(self, group: Group, info: Analysis, pieces: Mapping[Value, Piece], gathers: Mapping[Value, Node]):
        self.group, self.info, self.pieces, self.gathers = group, info, pieces, gathers
        self.reduced = set(leaf_set(group.reduced))
        self.summed = set(leaf_set(group.summed))
        self.buffers: dict[Value, int] = {}
        self.locals: dict[object, int] = {}
        self.body: list[Statement] = []
        self.stored = info.written(group)
        self.loops = self._order_loops()

    # -- loops -------------------------------------------------------------------------------------------------------
    def _order_loops(self) -> list[Axis]:
        """Axes from slowest to fastest in the memory of the widest access; outer ones before those reduced."""
        domain = leaf_set(self.group.domain)
        ranked = sorted(self._accesses(), key=lambda strides: -len(strides))
        place: dict[Axis, int] = {}
        for strides in ranked:
            for axis, stride in strides.items():
                place.setdefault(axis, stride)
        order = sorted(domain, key=lambda a: -place.get(a, 0))
        return [a for a in order if a not in self.reduced] + [a for a in order if a in self.reduced]

    def _accesses(self) -> list[dict[Axis, int]]:
        """Strides by axis: of what is stored first, then of what is loaded."""
        found = [self._strides(self.group.values[v], self._steps(v)) for v in self.stored]
        for operand in self.group.operands.values():
            if operand.root not in self.group.values and not self.info.is_fill(operand.root):
                found.append(self._strides(operand.axes, self.info.layout(operand.root).strides))
        return found

    def _steps(self, v: Value) -> Strides:
        """By which strides v is written."""
        return self.pieces[v].strides if v in self.pieces else row_major(v.type.shape)

    def _home(self, v: Value) -> tuple[Value, int]:
        """In whose buffer v lies, and how far behind its begin."""
        if v not in self.pieces:
            return v, 0
        piece = self.pieces[v]
        offset, _, home = min((p.offset, k, x) for k, x in enumerate(self.stored) if (p := self.pieces.get(x)) and p.whole is piece.whole)
        return home, piece.offset - offset

    @staticmethod
    def _strides(dims: Dims, steps: tuple[int, ...]) -> dict[Axis, int]:
        table: dict[Axis, int] = {}
        for axes, step in zip(dims, steps, strict=True):
            for axis in reversed(leaves(axes)):
                table[axis] = step
                step *= axis.extent
        return table

    # -- body --------------------------------------------------------------------------------------------------------
    def run(self, masks: bool) -> ScheduledKernel:
        for node in self.group.nodes:
            args = tuple(self._operand(node, k) for k in range(len(node.operands)))
            self._compute(node, args)
        stores = []
        for v in self.stored:
            strides = self._strides(self.group.values[v], self._steps(v))
            home, offset = self._home(v)
            stores.append(Store(self.locals[v], Access(self._buffer(home), self._vector_of(strides), offset), v in self.group.sums))
        extents = tuple(a.extent for a in self.loops)
        outer = sum(a not in self.reduced for a in self.loops)
        if self.summed and not self.reduced:  # columns are inner loops
            outer = 1 + max(d for d, a in enumerate(self.loops) if a in self.summed)
        dtypes = tuple(v.type.dtype for v in self.buffers)
        summed = sum(1 << d for d, a in enumerate(self.loops) if a in self.summed)
        kernel = contract(pick(LoopKernel(extents, outer, -1, tuple(self.body), tuple(stores), dtypes, summed=summed)))
        kernel = find_nan_once(multiply_by_inverses(share_powers(kernel)))
        kernel = moved_as_bits(collapse(unroll_turns(collapse(kernel))))
        parts = rows_in_parts(kernel) if kernel.summed else reductions_in_parts(kernel)
        after = tuple(Following(choose_vector(collapse(f.kernel), masks), f.operands) for f in parts.after)
        return ScheduledKernel(choose_vector(parts.kernel, masks), tuple(self.buffers), tuple(self.stored), parts.nbytes, after)

    def _buffer(self, v: Value) -> int:
        return self.buffers.setdefault(v, len(self.buffers))

    def _vector_of(self, strides: dict[Axis, int]) -> tuple[int, ...]:
        return tuple(strides.get(a, 0) for a in self.loops)

    def _mask(self, axes: list[Axis]) -> int:
        found = set(leaves(axes))
        return sum(1 << d for d, a in enumerate(self.loops) if a in found)

    def _add(self, key: object, statement: Statement) -> int:
        if key not in self.locals:
            self.locals[key] = len(self.body)
            self.body.append(statement)
        return self.locals[key]

    def _operand(self, node: Node, k: int) -> int:
        operand = self.group.operands[node, k]
        root = operand.root
        if root in self.group.values:
            return self.locals[root]
        dtype = root.type.dtype
        maker = self.info.made_by.get(root)
        if maker is not None and isinstance(maker.op, Full):
            splat = Splat(maker.op.value, dtype)
            return self._add(splat, Statement(splat, (), dtype, 0, 0))
        mask = self._mask(flatten(operand.axes))
        if maker is not None and isinstance(maker.op, Iota):
            index = Index(self._vector_of(self._strides((operand.axes[maker.op.axis],), (1,))), dtype)
            return self._add(index, Statement(index, (), dtype, self._mask(list(operand.axes[maker.op.axis])), 0))
        if root in self.gathers:
            return self._gather(self.gathers[root], operand.axes)
        layout = self.info.layout(root)
        access = Access(self._buffer(layout.root), self._vector_of(self._strides(operand.axes, layout.strides)), layout.offset)
        guards = tuple(Guard(self._vector_of(self._strides(operand.axes, g.strides)), g.offset, g.extent) for g in layout.guards)
        load = Load(access, dtype, guards, layout.outside if guards else None)
        varies = sum(1 << d for d, s in enumerate(zip(access.strides, *(g.strides for g in guards), strict=True)) if any(s)) & mask
        return self._add(load, Statement(load, (), dtype, varies, 0))

    def _gather(self, node: Node, axes: Dims) -> int:
        """The local of an element that is gathered, by the axes of the gather's result."""
        assert isinstance(node.op, Gather)
        layouts = [self.info.layout(v) for v in node.operands]
        of_x, of_indices = gather_strides(node.op, layouts, len(axes))
        places = []
        for v, layout, steps in zip(node.operands[1:], layouts[1:], of_indices, strict=True):
            strides = self._vector_of(self._strides(axes, steps))
            load = Load(Access(self._buffer(layout.root), strides, layout.offset), v.type.dtype)
            places.append(self._add(load, Statement(load, (), v.type.dtype, sum(1 << d for d, s in enumerate(strides) if s), 0)))
        table, whole = node.operands[0].type, layouts[0]
        access = Access(self._buffer(whole.root), self._vector_of(self._strides(axes, of_x)), whole.offset)
        gather = GatherLoad(access, tuple(whole.strides[a] for a in node.op.axes), tuple(table.shape[a] for a in node.op.axes), table.dtype)
        return self._add((gather, *places), Statement(gather, tuple(places), table.dtype, self._mask(flatten(axes)), 0))

    def _compute(self, node: Node, args: tuple[int, ...]) -> None:
        v = node.results[0]
        if v in self.group.sums:  # added up where it is stored
            self.locals[v] = args[0]
            return
        loops = 0
        for a in args:
            loops |= self.body[a].loops
        stage = max((self.body[a].stage for a in args), default=0)
        if isinstance(node.op, Reduction):
            reduced = sum(1 << d for d, a in enumerate(self.loops) if a in self.reduced)
            loops &= ~reduced
            stage += 1
        self.locals[v] = len(self.body)
        self.body.append(Statement(node.op, args, v.type.dtype, loops, stage))


def collapse(kernel: LoopKernel) -> LoopKernel:
    """Merges neighbouring loops that every access walks as one."""
    d = 0
    while d + 1 < len(kernel.extents):
        if d + 1 != kernel.outer and _walks_as_one(kernel, d):
            kernel = _merge_loops(kernel, d)
        else:
            d += 1
    return kernel


def _vectors(kernel: LoopKernel) -> list[tuple[int, ...]]:
    found = [s.access.strides for s in kernel.stores]
    for statement in kernel.body:
        what = statement.what
        if isinstance(what, Index):
            found.append(what.strides)
        elif isinstance(what, (Load, GatherLoad)):
            found.append(what.access.strides)
        if isinstance(what, Load):
            found += [g.strides for g in what.guards]
    return found


def _walks_as_one(kernel: LoopKernel, d: int) -> bool:
    extent = kernel.extents[d + 1]
    if any(v[d] != v[d + 1] * extent for v in _vectors(kernel)):
        return False
    return all(bool(loops >> d & 1) == bool(loops >> (d + 1) & 1) for loops in (kernel.summed, *(s.loops for s in kernel.body)))


def _merge_loops(kernel: LoopKernel, d: int) -> LoopKernel:
    extents = (*kernel.extents[:d], kernel.extents[d] * kernel.extents[d + 1], *kernel.extents[d + 2 :])
    outer = kernel.outer - (d < kernel.outer)
    return with_loops(kernel, extents, outer, lambda v: v[:d] + v[d + 1 :], lambda mask: mask & ((1 << d) - 1) | mask >> (d + 1) << d)


def schedule(
    group: Group,
    info: Analysis,
    masks: bool = False,
    pieces: Mapping[Value, Piece] = MappingProxyType({}),
    gathers: Mapping[Value, Node] = MappingProxyType({}),
) -> ScheduledKernel:
    """The kernel of a group.

    Args:
        masks: whether the processor stores some lanes of a vector by one instruction.
        pieces: where values are written that lie in others.
        gathers: values that are gathered where they are read (gathers.py).
    """
    return _Scheduler(group, info, pieces, gathers).run(masks)


def copy_kernel(shape: tuple[int, ...], dtype: DType, source: Access, target: Access) -> LoopKernel:
    """Copies elements of `shape` from operand 0 to operand 1."""
    kept, extents = _longer_than_one(shape)
    dtype = bits_of(dtype)
    body = (Statement(Load(_along(source, kept), dtype), (), dtype, (1 << len(kept)) - 1, 0),)
    return choose_vector(collapse(LoopKernel(extents, len(kept), -1, body, (Store(0, _along(target, kept)),), (dtype, dtype))))


def fill_kernel(shape: tuple[int, ...], dtype: DType, value: bool | int | float, target: Access) -> LoopKernel:
    """Writes `value` into elements of `shape` of operand 0."""
    kept, extents = _longer_than_one(shape)
    body = (Statement(Splat(value, dtype), (), dtype, 0, 0),)
    return choose_vector(collapse(LoopKernel(extents, len(kept), -1, body, (Store(0, _along(target, kept)),), (dtype,))))


def _longer_than_one(shape: tuple[int, ...]) -> tuple[list[int], tuple[int, ...]]:
    """The dimensions of more than one element, and their extents."""
    kept = [d for d, n in enumerate(shape) if n != 1]
    return kept, tuple(shape[d] for d in kept)


def _along(a: Access, kept: list[int]) -> Access:
    return Access(a.operand, tuple(a.strides[d] for d in kept), a.offset)
