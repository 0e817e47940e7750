"""Turns a fused group into a `LoopKernel`: chooses the order of the loops, the vector loop, and the stages.

Enters: a Group (fuse.py). Leaves: the kernel and the values whose buffers it reads and writes, in the order of its operands.
"""

from __future__ import annotations

import math

from graphcell.codegen.axes import Axis, Dims, flatten, leaf_set, leaves
from graphcell.codegen.contract import contract
from graphcell.codegen.fuse import Analysis, Group
from graphcell.codegen.kernel import (
    SMALL_STRIDE,
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
    is_tiled,
    with_loops,
)
from graphcell.codegen.layout import row_major
from graphcell.codegen.pick import pick
from graphcell.dtype import DType
from graphcell.ir.graph import Node, Value
from graphcell.ops.base import Reduction
from graphcell.ops.creation import Full, Iota
from graphcell.passes.costs import masks_are_quick
from graphcell.records import dataclass


@dataclass(frozen=True)
class ScheduledKernel:
    """A kernel and the values whose buffers are its operands; the first `reads` are read, the rest written."""

    kernel: LoopKernel
    buffers: tuple[Value, ...]
    writes: frozenset[Value]


@dataclass(frozen=True)
class _Raw:
    """A local before the loops are numbered: what varies along which axes."""

    what: Source | None
    node: Node | None
    args: tuple[int, ...]
    axes: frozenset[Axis]


class _Scheduler:
    def __init__(self, group: Group, info: Analysis, outputs: set[Value]):
        self.group, self.info = group, info
        self.reduced = set(leaf_set(group.reduced))
        self.buffers: dict[Value, int] = {}
        self.locals: dict[object, int] = {}
        self.body: list[Statement] = []
        inside = set(group.nodes)
        self.stored = [v for v in group.values if v in outputs or any(u not in inside for u in info.readers(v))]
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
        found = [self._strides(self.group.values[v], row_major(v.type.shape)) for v in self.stored]
        for operand in self.group.operands.values():
            if operand.root not in self.group.values and not self.info.is_fill(operand.root):
                found.append(self._strides(operand.axes, self.info.layout(operand.root).strides))
        return found

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
            strides = self._strides(self.group.values[v], row_major(v.type.shape))
            stores.append(Store(self.locals[v], Access(self._buffer(v), self._vector_of(strides))))
        extents = tuple(a.extent for a in self.loops)
        outer = sum(a not in self.reduced for a in self.loops)
        dtypes = tuple(v.type.dtype for v in self.buffers)
        kernel = contract(pick(LoopKernel(extents, outer, -1, tuple(self.body), tuple(stores), dtypes)))
        return ScheduledKernel(choose_vector(collapse(kernel), masks), tuple(self.buffers), frozenset(self.stored))

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
        layout = self.info.layout(root)
        access = Access(self._buffer(layout.root), self._vector_of(self._strides(operand.axes, layout.strides)), layout.offset)
        guards = tuple(Guard(self._vector_of(self._strides(operand.axes, g.strides)), g.offset, g.extent) for g in layout.guards)
        load = Load(access, dtype, guards, layout.outside if guards else None)
        varies = sum(1 << d for d, s in enumerate(zip(access.strides, *(g.strides for g in guards), strict=True)) if any(s)) & mask
        return self._add(load, Statement(load, (), dtype, varies, 0))

    def _compute(self, node: Node, args: tuple[int, ...]) -> None:
        v = node.results[0]
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
    return all(bool(s.loops >> d & 1) == bool(s.loops >> (d + 1) & 1) for s in kernel.body)


def _merge_loops(kernel: LoopKernel, d: int) -> LoopKernel:
    extents = (*kernel.extents[:d], kernel.extents[d] * kernel.extents[d + 1], *kernel.extents[d + 2 :])
    outer = kernel.outer - (d < kernel.outer)
    return with_loops(kernel, extents, outer, lambda v: v[:d] + v[d + 1 :], lambda mask: mask & ((1 << d) - 1) | mask >> (d + 1) << d)


def choose_vector(kernel: LoopKernel, masks: bool = False) -> LoopKernel:
    """Picks the vector loop with which the kernel takes the fewest instructions, and the loop along which tiles are transposed or rows are
    grouped, if that helps.

    Without reductions the vector loop becomes the inner loop.
    """
    count = len(kernel.extents)
    if not count:
        return kernel
    plan = _Plan(count - 1)
    if kernel.points:
        plans = [p for d in range(count) for p in (_Plan(d), *_tiled_plans(kernel, d), *_grouped_plans(kernel, d))]
        plan = min(plans, key=lambda p: (kernel.extents[p.vector] == 1, _vector_cost(kernel, p, masks), -kernel.extents[p.vector], -p.vector, p.tile))
    outer = kernel.outer if kernel.outer < count else count - 1
    last = (plan.tile, plan.vector) if kernel.outer == count else (plan.tile,)
    order = [d for d in range(count) if d not in last] + [d for d in last if d >= 0]
    moved = permute(kernel, order)
    vector, tile, group = (order.index(d) if d >= 0 else -1 for d in (plan.vector, plan.tile, plan.group))
    return LoopKernel(moved.extents, outer, vector, moved.body, moved.stores, moved.operands, tile, group)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The vector loop, and the loops of tiles and groups (codegen/kernel.py)."""

    vector: int
    tile: int = -1
    group: int = -1


def _grouped_plans(kernel: LoopKernel, d: int) -> list[_Plan]:
    """With the rows of the innermost outer loop that makes whole groups."""
    reduces = any(s.is_reduction for s in kernel.body)
    if not reduces or d < kernel.outer or kernel.inner_points > _LONGEST_GROUPED_ROW:
        return []
    return [_Plan(d, group=e) for e in range(kernel.outer) if kernel.extents[e] >= _LANES][-1:]


def _tiled_plans(kernel: LoopKernel, d: int) -> list[_Plan]:
    """With the loops along which something lies side by side that does not along d."""
    count = len(kernel.extents)
    first = 0
    if kernel.outer < count:
        if d >= kernel.outer:
            return []
        first = kernel.outer
    if kernel.extents[d] < _FEWEST_IN_TILE or sum(12 if s.is_slow else 1 for s in kernel.body) > _HEAVIEST_IN_TILE:
        return []
    loops = [e for e in range(first, count) if e != d and kernel.extents[e] >= _FEWEST_IN_TILE]
    return [_Plan(d, tile=e) for e in loops if any(is_tiled(v, d, e) for v in _access_strides(kernel))]


def _access_strides(kernel: LoopKernel) -> list[tuple[int, ...]]:
    return [s.access.strides for s in kernel.stores] + [s.what.access.strides for s in kernel.body if isinstance(s.what, Load) and not s.what.guards]


_LANES = 16
"""Lanes of a vector, for rough costs."""
_COMBINE_LANES, _COMBINE_GROUPED = (10, 40), (7, 8)
"""What combining the lanes of one reduction costs, in vector instructions, and if it is an extremum of floats: of each row by itself, in groups."""
_GROUP_INPUT, _GROUP_STORE = 0.5, (2.0, 4.0)
"""What it costs to read a number of a row in a group, and to write a vector, into caches or memory: a group is read, then written, with little overlap."""
_LONGEST_GROUPED_ROW = 512
"""Points of a row up to which rows are grouped: of longer ones, a group would not stay in the L1 cache."""
_IN_CACHES = 1 << 22
"""Bytes up to which what is written stays in caches."""
_ROW_INSTRUCTIONS = 4
"""What it costs to begin a row."""
_GATHER_LANE, _SCATTER_LANE = 1.5, 4.0
"""What each lane of a vector costs whose elements do not lie side by side."""
_STRIDED = 2.5
"""What it costs to store a vector with a small stride by masks, for each vector of memory that it goes to."""
_TILED = 6.0
"""What a vector costs that comes from a tile, or goes into one."""
_GUARD = 2.0
"""What it costs to find the lanes that a guard lets through."""
_FEWEST_IN_TILE, _HEAVIEST_IN_TILE = 4, 100
"""Iterations from which a loop is tiled, and rough instructions of a point up to which (all points of a tile are unrolled)."""


def _vector_cost(kernel: LoopKernel, plan: _Plan, masks: bool) -> float:
    """Rough vector instructions of a kernel with a plan.

    A partial vector costs as much as a whole one (but short rows get shorter vectors). Elements that are not neighbours in memory are
    moved one by one. Along an outer loop of a kernel with reductions, rows lie in the lanes; along an inner one, lanes are combined at
    the end of the row, or crosswise at the end of a group of rows, which finds what is the same for a whole row in vectors.
    """
    d, tile, grouped = plan.vector, plan.tile, plan.group >= 0
    extent, outer = kernel.extents[d], kernel.outer
    lanes = min(_LANES, extent)
    vectors = -(-extent // _LANES)
    reductions = sum(s.is_reduction for s in kernel.body)
    across = d < outer and reductions > 0
    inner = math.prod(kernel.extents[outer:]) if reductions else extent
    rows = math.prod(kernel.extents[:outer]) if reductions else kernel.points // max(extent, 1)
    tiled = _TILED
    if tile >= 0:  # to transpose a partial tile costs as much as a whole one (but few iterations make small tiles)
        lanes = 1 << (lanes - 1).bit_length()
        tiled *= -(-kernel.extents[tile] // lanes) * lanes / kernel.extents[tile]
    if across:
        groups, steps = rows // extent * vectors, inner
    else:
        groups, steps = rows, inner // extent * vectors
    in_row = ((1 << len(kernel.extents)) - 1) & ~((1 << outer) - 1) if reductions else 1 << d
    row_cost: float = _ROW_INSTRUCTIONS
    if not across:
        row_cost += sum((_COMBINE_GROUPED if grouped else _COMBINE_LANES)[_is_extremum(s)] for s in kernel.body if s.is_reduction)
    step_cost = 0.0
    for n, statement in enumerate(kernel.body):
        what = statement.what
        one = float(statement.instructions)
        if isinstance(what, Load):
            one = _access_cost(what.access.strides, d, -1 if what.guards else tile, tiled, lanes, _GATHER_LANE) + _GUARD * len(what.guards)
            if tile >= 0 and kernel.extents[tile] > _LANES:
                one *= _stages_that_read(kernel, n)
        elif isinstance(what, GatherLoad):
            one = lanes * _GATHER_LANE
        elif isinstance(what, Splat):
            continue
        if statement.loops & in_row or statement.is_reduction:
            step_cost += one
        elif across:
            row_cost += one
        elif statement.loops:
            row_cost += _GROUP_INPUT + statement.instructions / _LANES if grouped else statement.instructions
    for store in kernel.stores:
        strided = masks and 1 < store.access.strides[d] <= SMALL_STRIDE and masks_are_quick(kernel.operands[store.access.operand])
        one = _STRIDED * store.access.strides[d] if strided else _access_cost(store.access.strides, d, tile, tiled, lanes, _SCATTER_LANE)
        if not reductions or kernel.writes_inside(store):
            far = kernel.points * kernel.operands[store.access.operand].itemsize > _IN_CACHES
            step_cost += one + (_GROUP_STORE[far] if grouped else 0.0)
        else:
            row_cost += one / _LANES if grouped else one
    return groups * (row_cost + steps * step_cost)


def _stages_that_read(kernel: LoopKernel, local: int) -> int:
    """In how many stages an op takes a local."""
    return len({s.stage - s.is_reduction for s in kernel.body if local in s.args} or {0})


def _is_extremum(s: Statement) -> bool:
    return isinstance(s.what, Reduction) and s.what.kind in ("max", "min") and s.dtype.is_float


def _access_cost(strides: tuple[int, ...], d: int, tile: int, tiled: float, lanes: int, apart: float) -> float:
    stride = strides[d]
    if stride in (0, 1):
        return 1.0
    if tile >= 0 and is_tiled(strides, d, tile):
        return tiled
    if apart == _GATHER_LANE and abs(stride) <= SMALL_STRIDE:
        return 2.0 * abs(stride)
    return lanes * apart


def permute(kernel: LoopKernel, order: list[int]) -> LoopKernel:
    """The kernel with its loops in another order; none is the vector loop."""

    def vector(v: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(v[d] for d in order)

    return with_loops(kernel, vector(kernel.extents), kernel.outer, vector, lambda mask: sum(1 << new for new, old in enumerate(order) if mask >> old & 1))


def schedule(group: Group, info: Analysis, outputs: set[Value], masks: bool = False) -> ScheduledKernel:
    """The kernel of a group; `outputs` are the values that the graph returns, `masks` says that the processor stores some lanes of a vector
    by one instruction.
    """
    return _Scheduler(group, info, outputs).run(masks)


def copy_kernel(shape: tuple[int, ...], dtype: DType, source: Access, target: Access) -> LoopKernel:
    """Copies elements of `shape` from operand 0 to operand 1."""
    kept = [d for d, n in enumerate(shape) if n != 1]

    def along_kept(a: Access) -> Access:
        return Access(a.operand, tuple(a.strides[d] for d in kept), a.offset)

    body = (Statement(Load(along_kept(source), dtype), (), dtype, (1 << len(kept)) - 1, 0),)
    extents = tuple(shape[d] for d in kept)
    return choose_vector(collapse(LoopKernel(extents, len(kept), -1, body, (Store(0, along_kept(target)),), (dtype, dtype))))


def fill_kernel(size: int, dtype: DType, value: bool | int | float) -> LoopKernel:
    """Writes `value` into the `size` elements of operand 0."""
    body = (Statement(Splat(value, dtype), (), dtype, 0, 0),)
    return choose_vector(LoopKernel((size,), 1, -1, body, (Store(0, Access(0, (1,))),), (dtype,)))
