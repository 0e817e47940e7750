"""The values of a loop nest at one point, or at one vector of points: loads, stores, ops, and buffers for a row.

Enters: a kernel (codegen/kernel.py) and, from the loops around (loops.py), the current indices. Leaves: LLVM instructions.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from graphcell.codegen.kernel import Access, GatherLoad, Guard, Index, Inverse, Load, LoopKernel, MulAdd, Splat, Statement, interleaved, is_tiled
from graphcell.codegen.llvm.arithmetic import inverse_below, inverse_rest, inverse_scale
from graphcell.codegen.llvm.body import BodyBuilder, compute_type, storage_type
from graphcell.codegen.llvm.combine import place
from graphcell.codegen.llvm.contraction import LINE_BYTES
from graphcell.codegen.llvm.packing import displaced, prefetch
from graphcell.codegen.llvm.ranges import holds_in, is_less_in
from graphcell.codegen.llvm.text import I32, I64, LType, Val, const, constant_mask, i64
from graphcell.codegen.llvm.tiles import load_interleaved, load_strided, store_interleaved, store_strided
from graphcell.dtype import DType
from graphcell.ops.base import Elementwise, Reduction
from graphcell.passes.costs import MASKED_STRIDE, SMALL_STRIDE, masks_are_quick
from graphcell.records import dataclass

_AVX_BITS, _LEAST_BITS = 256, 128
"""Of a register before AVX-512, and of the smallest vector."""
_INVERSE: dict[str, Callable[..., Val]] = {"scale": inverse_scale, "below": inverse_below, "rest": inverse_rest}


def _rounded_somewhere(kernel: LoopKernel) -> set[int]:
    """Locals of half precision that an op takes as they are rounded; not where that compares with a number, for which rounding matters to nobody else. Where an
    extremum is rounded, what it is of is, too: else that could lie beyond it.
    """
    ops = [s for s in kernel.body if isinstance(s.what, Elementwise) and s.what.rounds]
    taken = {a for s in ops for a in s.args if not any(isinstance(kernel.body[other].what, Splat) for other in s.args)}
    for local, s in reversed([*enumerate(kernel.body)]):
        if local in taken and isinstance(s.what, Reduction) and s.what.kind in ("max", "min"):
            taken.update(s.args)
    return {local for local in taken if kernel.body[local].dtype.llvm in ("half", "bfloat")}


def _turns(kernel: LoopKernel) -> dict[Access, Access]:
    """The first of the set (see `kernel.interleaved`) of each load that is in one."""
    loads = [s.what.access for s in kernel.body if isinstance(s.what, Load) and not s.what.guards]
    return {access: together[0] for together in interleaved(loads, kernel.vector) if len(together) > 1 for access in together}


@dataclass
class Scope:
    """Values known in one place of the code: local number -> value, for one vector slot."""

    known: dict[int, Val]
    parent: Scope | None = None

    def find(self, local: int) -> Val | None:
        scope: Scope | None = self
        while scope is not None:
            if local in scope.known:
                return scope.known[local]
            scope = scope.parent
        return None


LEAST_PAST_BYTES = 32
"""Of a vector that is written past the caches: shorter ones would fill lines of memory piece by piece."""


class PointEmitter:
    """What loop nests (rows.py, loops.py) and epilogues share: the values of a kernel at the current indices, its loads, stores and row buffers.

    Attributes:
        index: the current value of each loop's index; in the vector loop, that of the first lane.
        mask: the lanes that count; None for all. Of several vectors side by side only those from `masked_from` on have one.
        slot: which of several vectors side by side is meant.
    """

    def __init__(self, kernel: LoopKernel, b: BodyBuilder, pointers: Sequence[Val], lanes: int):
        self.kernel, self.b, self.pointers, self.lanes = kernel, b, pointers, lanes
        self.index: list[Val | None] = [None] * len(kernel.extents)
        self.vertical = 0 <= kernel.vector < kernel.outer
        self.own_mask: Val | None = None
        """The mask of vectors that have one."""
        self.slot, self.slots, self.masked_from = 0, 1, 0
        self.here: range | None = None
        """The range (ranges.py) of the vector loop that is being emitted, if it is cut."""
        self.turns = _turns(kernel)
        self.bytes_ahead = 0
        """By how much what is read along inner loops is asked for ahead, if rows lie in the lanes; 0: it is not."""
        self.stage = 0
        self.asked: dict[Access, int] = {}
        """In which stage what is read was asked for."""
        self.rounded = _rounded_somewhere(kernel)
        """What is computed with more digits than it has, but rounded somewhere: then it is the same number everywhere."""
        self.spilled: dict[int, Val] = {}
        self.tile: dict[int, Val] = {}
        """Of the current tile: what a tiled load is at the current point."""
        self.tile_stores: dict[Access, list[Val]] | None = None
        """What tiled stores write, point by point of the current tile."""

    @property
    def mask(self) -> Val | None:
        return self.own_mask if self.slot >= self.masked_from else None

    @mask.setter
    def mask(self, mask: Val | None) -> None:
        self.own_mask = mask

    @property
    def count(self) -> int:
        """How many lanes count, if the mask is a constant."""
        return self.lanes if self.mask is None else self.mask.text.count("true")

    def _lanes_are_known(self) -> bool:
        """True if the mask is a constant."""
        return self.mask is None or self.mask.text.startswith("<i1")

    # -- values ------------------------------------------------------------------------------------------------------
    def _value(self, local: int, scope: Scope) -> Val:
        """The value of a local here, computing what is not known yet (without recursion over long chains)."""
        found = scope.find(local)
        if found is not None:
            return found
        stack = [local]
        while stack:
            n = stack[-1]
            if scope.find(n) is not None:
                stack.pop()
                continue
            missing = [] if n in self.spilled else [a for a in self.kernel.body[n].args if scope.find(a) is None]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            scope.known[n] = self._as_used(n, self._compute(n, scope))
        value = scope.find(local)
        assert value is not None
        return value

    def _as_used(self, local: int, value: Val) -> Val:
        """What was computed for a local, rounded if it is to be the same number everywhere."""
        return self.b.rounded_to(self.kernel.body[local].dtype.llvm, value) if local in self.rounded else value

    def _vectorised(self, statement: Statement) -> bool:
        """Does the value fill the lanes (or is it one scalar)?"""
        return self.kernel.vector >= 0 and bool(statement.loops >> self.kernel.vector & 1)

    def _compute(self, local: int, scope: Scope) -> Val:
        s = self.kernel.body[local]
        if local in self.tile:
            return self.tile[local]
        if local in self.spilled:
            return self._load_spill(local)
        what = s.what
        if isinstance(what, Splat):
            return const(what.value, compute_type(what.dtype))
        if isinstance(what, Index):
            return self._index_value(what, s)
        if isinstance(what, Load):
            return self._guarded_load(what) if what.guards else self._load(what.access, what.dtype)
        if self.here is not None and (known := is_less_in(self.here, self.kernel, s)) is not None:
            return const(known, LType("i1", self.lanes))
        if isinstance(what, GatherLoad):
            return self._gather(what, s, scope)
        args = []
        for a in s.args:
            value = scope.find(a)
            assert value is not None
            args.append(value)
        lanes = max((x.type.lanes for x in args), default=0)
        if isinstance(what, MulAdd):
            x, y, z = (self.b.splat(v, lanes) for v in args)
            return self.b.fma(self.b.neg(x) if what.negated else x, y, z)
        if isinstance(what, Inverse):
            return _INVERSE[what.part](self.b, *args)
        assert isinstance(what, Elementwise)
        self.b.dtypes = tuple(self.kernel.body[a].dtype for a in s.args)
        args = [self.b.splat(x, lanes) for x in args]
        result: Val = what.emit(self.b, *args)
        if what.keeps_digits and result.type.kind == "float":
            self.b.keep_digits(result, [x for x in args if x.type.kind == "float"])
        return result

    def _offset(self, strides: Sequence[int], constant: int, loops: Sequence[int]) -> Val:
        b = self.b
        total: Val | None = None
        for d in loops:
            if not strides[d] or self.kernel.extents[d] == 1:
                continue
            index = self.index[d]
            assert index is not None
            term = index if strides[d] == 1 else b.mul(index, i64(strides[d]))
            total = term if total is None else b.add(total, term)
        if total is None:
            return i64(constant)
        return b.add(total, i64(constant)) if constant else total

    def _place(self, strides: Sequence[int], constant: int) -> Val:
        """`constant + sum(strides[d] * index[d])` at the current indices (first lane)."""
        vector = self.kernel.vector
        offset = self._offset(strides, constant, range(len(self.kernel.extents)))
        if self.vertical and self.slot and strides[vector]:
            offset = self.b.add(offset, i64(self.slot * self.lanes * strides[vector]))
        return offset

    def _pointer(self, access: Access, dtype: DType) -> Val:
        """Address of the element at the current indices (first lane)."""
        offset = self._place(access.strides, access.offset)
        return self.b.gep(self.pointers[access.operand], offset, storage_type(dtype))

    def _lane_offsets(self, stride: int, kind: str = "i64") -> Val:
        return Val(f"<{', '.join(f'{kind} {k * stride}' for k in range(self.lanes))}>", LType(kind, self.lanes))

    def _every_lane(self) -> Val:
        return self.mask if self.mask is not None else const(True, LType("i1", self.lanes))

    def _load(self, access: Access, dtype: DType) -> Val:
        stride = access.strides[self.kernel.vector] if self.kernel.vector >= 0 and self.kernel.extents[self.kernel.vector] > 1 else 0
        pointer = self._pointer(access, dtype)
        if stride == 0:
            return self.b.load_value(pointer, dtype, 0)
        if stride == 1:
            self._ask_ahead(access, pointer, dtype)
            return self.b.load_value(pointer, dtype, self.lanes, self.mask)
        if access in self.turns and self._lanes_are_known():
            first = self.turns[access]
            return load_interleaved(self.b, self._pointer(first, dtype), access.offset - first.offset, stride, dtype, self.count, self.lanes)
        if abs(stride) <= SMALL_STRIDE and self._lanes_are_known():
            return load_strided(self.b, pointer, stride, dtype, self.count, self.lanes)
        pointers = self.b.gep_vector(pointer, self._lane_offsets(stride), storage_type(dtype))
        return self.b.gather_value(pointers, dtype, self._every_lane())

    def _ask_ahead(self, access: Access, pointer: Val, dtype: DType) -> None:
        """Asks for what later rows in the lanes read at this point, `bytes_ahead` further, in the stage that reads there first: the others find it in a cache.
        Vectors that lie side by side ask once for each of their cache lines.
        """
        if self.bytes_ahead and any(access.strides[self.kernel.outer :]) and self.asked.setdefault(access, self.stage) == self.stage:
            if self.slot * self.lanes * dtype.itemsize % LINE_BYTES == 0:
                prefetch(self.b, displaced(self.b, pointer, self.bytes_ahead // dtype.itemsize, storage_type(dtype)))

    def _guarded_load(self, what: Load) -> Val:
        """A load that reads nothing where a guard is false, and is `what.outside` there.

        Before AVX-512 it is made register by register: LLVM 22 reads too much of a masked load that it has to split if the mask is partly constant.
        """
        if self.here is not None:
            held = [holds_in(self.here, g, self.kernel.vector) for g in what.guards]
            if False in held:
                return self._outside(what)
            what = replace(what, guards=tuple(g for g, holds in zip(what.guards, held, strict=True) if not holds))
            if not what.guards:
                return self._load(what.access, what.dtype)
        b, vector, dtype = self.b, self.kernel.vector, what.dtype
        stride = what.access.strides[vector] if vector >= 0 and self.kernel.extents[vector] > 1 else 0
        pointer = displaced(b, self.pointers[what.access.operand], self._place(what.access.strides, what.access.offset), storage_type(dtype))
        near = stride in (0, 1) or (abs(stride) <= SMALL_STRIDE and self._lanes_are_known())
        if near and not any(self._varies_in_lanes(g) for g in what.guards):
            return self._load_or_outside(what, pointer, stride)
        if not stride:
            return self._guarded_element(what, pointer)
        width = self.lanes if b.module.avx512 else min(self.lanes, _AVX_BITS // dtype.bits)
        parts = [self._guarded_part(what, pointer, stride, range(k, k + width)) for k in range(0, self.lanes, width)]
        while len(parts) > 1:
            parts = [b.shuffle(x, y, range(2 * x.type.lanes)) for x, y in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    def _varies_in_lanes(self, guard: Guard) -> bool:
        vector = self.kernel.vector
        return vector >= 0 and self.kernel.extents[vector] > 1 and guard.strides[vector] != 0

    def _load_or_outside(self, what: Load, pointer: Val, stride: int) -> Val:
        """A load whose guards, of which there are some, hold in all lanes or in none: then it reads a constant instead, so that nothing is read outside of
        the buffer. A masked load that takes nothing would take a processor hundreds of cycles where the address lies on no page. Lanes lie `stride` apart, in
        either direction, and are known if that is neither 0 nor 1.
        """
        b, type = self.b, storage_type(what.dtype, self.lanes * abs(stride))
        assert what.outside is not None
        held, _ = self._holds(what.guards, range(self.lanes))
        assert held is not None
        number = str(const(what.outside.value, type))
        constant = b.module.add_global("outside." + re.sub(r"\W", "_", number), f"internal constant {number}, align 64")
        if stride < 0:  # from the first lane, which lies behind the others
            constant = b.gep(constant, type.lanes - 1, type.with_lanes(0))
        chosen = b.select(held, pointer, constant)
        if stride in (0, 1):
            return b.load_value(chosen, what.dtype, type.lanes, self.mask if stride else None)
        return load_strided(b, chosen, stride, what.dtype, self.count, self.lanes)

    def _guarded_part(self, what: Load, pointer: Val, stride: int, lanes: range) -> Val:
        """Some lanes of a guarded load whose first lane is at `pointer`."""
        b, element = self.b, storage_type(what.dtype)
        if 1 < abs(stride) <= SMALL_STRIDE and self._lanes_are_known() and masks_are_quick(what.dtype):
            return self._guarded_strided(what, displaced(b, pointer, lanes[0] * stride, element), stride, lanes)
        backwards = stride == -1 and self._lanes_are_known()
        order = lanes[::-1] if backwards else lanes  # as they lie in memory
        inside = self._mask_of(order)
        for holds in self._holds(what.guards, order):
            if holds is not None:
                inside = b.and_(inside, b.splat(holds, len(order)))
        first = displaced(b, pointer, order[0] * stride, element)
        if backwards or stride == 1:
            value = b.load_value(first, what.dtype, len(order), inside)
        else:
            steps = Val(f"<{', '.join(f'i64 {k * stride}' for k in range(len(order)))}>", LType("i64", len(order)))
            value = b.gather_value(b.gep_vector(first, steps, element), what.dtype, inside)
        value = b.select(inside, value, b.splat(self._outside(what), len(order)))
        return b.shuffle(value, value, range(len(order) - 1, -1, -1)) if backwards else value

    def _guarded_strided(self, what: Load, pointer: Val, stride: int, lanes: range) -> Val:
        """Some lanes of a guarded load, the first of them at `pointer`: vectors of all that lies between its elements, of which a mask takes those."""
        b, count = self.b, min(len(lanes), self.count - lanes[0])
        outside = b.splat(self._outside(what), len(lanes))

        def held(order: Sequence[int]) -> Val:
            return functools.reduce(b.and_, [b.splat(h, len(order)) for h in self._holds(what.guards, order) if h is not None])

        if count <= 0:
            return outside
        value = load_strided(b, pointer, stride, what.dtype, count, len(lanes), lambda order: held([lanes[k] for k in order]))
        return b.select(held(lanes), value, outside)

    def _guarded_element(self, what: Load, pointer: Val) -> Val:
        """A guarded load of one element for all lanes: the first of a masked vector, since a scalar load would read in any case."""
        b, few = self.b, min(self.lanes, _LEAST_BITS // what.dtype.bits)
        row_holds, lane_holds = self._holds(what.guards, range(self.lanes))
        first = constant_mask(1, few)
        value = b.extract(b.load_value(pointer, what.dtype, few, first if row_holds is None else b.and_(first, b.splat(row_holds, few))), 0)
        holds = row_holds if lane_holds is None else lane_holds if row_holds is None else b.and_(lane_holds, b.splat(row_holds, self.lanes))
        assert holds is not None
        lanes = holds.type.lanes
        return b.select(holds, b.splat(value, lanes), b.splat(self._outside(what), lanes))

    def _outside(self, what: Load) -> Val:
        assert what.outside is not None
        return const(what.outside.value, compute_type(what.dtype))

    def _mask_of(self, order: range) -> Val:
        """The mask of some lanes."""
        if self.mask is None:
            return const(True, LType("i1", len(order)))
        if self._lanes_are_known():
            bits = self.mask.text.strip("<>").split(", ")
            return Val(f"<{', '.join(bits[k] for k in order)}>", LType("i1", len(order)))
        return self.mask if len(order) == self.lanes else self.b.shuffle(self.mask, self.mask, order)

    def _holds(self, guards: Sequence[Guard], lanes: Sequence[int]) -> tuple[Val | None, Val | None]:
        """Whether the guards hold: those that are the same in all lanes, and the others, lane by lane."""
        b, vector = self.b, self.kernel.vector
        found: list[Val | None] = [None, None]
        for guard in guards:
            at = self._place(guard.strides, guard.offset)
            stride = guard.strides[vector] if self._varies_in_lanes(guard) else 0
            if stride:
                reach = abs(guard.offset) + sum(abs(s) * n for s, n in zip(guard.strides, self.kernel.extents, strict=True)) + abs(stride) * self.lanes
                kind = I32 if max(reach, guard.extent) < 1 << 31 else I64
                steps = Val(f"<{', '.join(f'{kind.kind} {k * stride}' for k in lanes)}>", LType(kind.kind, len(lanes)))
                at = b.add(b.splat(b.cast(at, kind), len(lanes)), steps)
            holds = b.icmp("ult", at, b.const(guard.extent, at))
            before = found[bool(stride)]
            found[bool(stride)] = holds if before is None else b.and_(before, holds)
        return found[0], found[1]

    def _gather(self, what: GatherLoad, s: Statement, scope: Scope) -> Val:
        """Loads at computed places, none of which leads outside of the buffer."""
        b, vector = self.b, self.kernel.vector
        stride = what.access.strides[vector] if vector >= 0 and self.kernel.extents[vector] > 1 else 0
        reach = sum(abs(step) * extent for step, extent in zip(what.steps, what.extents, strict=True)) + abs(stride) * self.lanes
        kind = I32 if max(reach, *what.extents) < 1 << 31 else I64
        steps: list[Val] = []
        for local, step, extent in zip(s.args, what.steps, what.extents, strict=True):
            index = scope.find(local)
            assert index is not None
            at = place(b, index, self.kernel.body[local].dtype, extent, kind)
            steps.append(b.mul(at, b.const(step, at)))
        lanes = max(x.type.lanes for x in steps)
        total = b.splat(steps[0], lanes)
        for x in steps[1:]:
            total = b.add(total, b.splat(x, lanes))
        pointer = self._pointer(what.access, what.dtype)
        if not lanes:
            pointer = b.gep(pointer, total, storage_type(what.dtype))
            if stride == 0:
                return b.load_value(pointer, what.dtype, 0)
            if stride == 1:
                return b.load_value(pointer, what.dtype, self.lanes, self.mask)
            total = self._lane_offsets(stride)
        elif stride:
            total = b.add(total, self._lane_offsets(stride, total.type.kind))
        if not b.module.avx512 and self._lanes_are_known():
            return b.gather_each(pointer, total, what.dtype, self.count)
        return b.gather_value(b.gep_vector(pointer, total, storage_type(what.dtype)), what.dtype, self._every_lane())

    def _index_value(self, what: Index, s: Statement) -> Val:
        b, vector = self.b, self.kernel.vector
        base = self._offset(what.strides, what.offset, range(len(what.strides)))
        if self._vectorised(s):
            stride = what.strides[vector]
            if self.vertical and self.slot:
                base = b.add(base, i64(self.slot * self.lanes * stride))
            reach = abs(what.offset) + sum(abs(step) * n for step, n in zip(what.strides, self.kernel.extents, strict=True))
            if reach + self.lanes * abs(stride) < 1 << 31:
                base = b.cast(base, LType("i32"))  # of which more fit into a register, and which becomes a float in one instruction
            base = b.add(b.splat(base, self.lanes), self._lane_offsets(stride, base.type.kind))
        return b.cast(base, compute_type(what.dtype, base.type.lanes))

    # -- stores and spills -------------------------------------------------------------------------------------------
    def _store_together(self, accesses: Sequence[Access], values: Sequence[Val]) -> None:
        """Writes a set of stores (see `kernel.interleaved`) at the current vector."""
        if len(accesses) > 1 and self.tile_stores is None and self._lanes_are_known():
            dtype = self.kernel.operands[accesses[0].operand]
            narrow = [self.b.narrow(self.b.splat(v, self.lanes), dtype) for v in values]
            store_interleaved(self.b, self._pointer(accesses[0], dtype), narrow, self.count)
            return
        for access, value in zip(accesses, values, strict=True):
            self._store_vector(access, value)

    def _store_vector(self, access: Access, value: Val) -> None:
        b, vector = self.b, self.kernel.vector
        if self.tile_stores is not None and is_tiled(access.strides, vector, self.kernel.tile):
            self.tile_stores.setdefault(access, []).append(b.splat(value, self.lanes))
            return
        dtype = self.kernel.operands[access.operand]
        stride = access.strides[vector] if vector >= 0 and self.kernel.extents[vector] > 1 else 0
        pointer = self._pointer(access, dtype)
        if stride == 0:
            if value.type.lanes:  # one element only: the first lane
                value = b.extract(value, 0)
            b.store(b.narrow(value, dtype), pointer)
            return
        value = b.narrow(b.splat(value, self.lanes), dtype)
        if stride == 1:
            if self.mask is not None:
                b.masked_store(value, pointer, self.mask)
            elif access.operand in self.kernel.past and value.type.bytes * value.type.lanes >= LEAST_PAST_BYTES:
                b.store_past_caches(value, pointer)
            else:
                b.store(value, pointer)
            return
        if b.module.avx512 and 1 < stride <= MASKED_STRIDE and masks_are_quick(dtype) and self._lanes_are_known():
            store_strided(b, pointer, stride, value, self.count)
            return
        b.scatter(value, b.gep_vector(pointer, self._lane_offsets(stride), storage_type(dtype)), self._every_lane())

    def _row_width(self) -> int:
        """Elements from one vector loop to the next of what is kept in a row buffer. Where tiles are done all other loops run at each vector, so each has
        room for the end of its last one."""
        width = self.kernel.extents[self.kernel.vector]
        return width if self.kernel.tile < 0 else -(-width // self.lanes) * self.lanes

    def _spill_place(self, local: int, buffer: Val) -> Val:
        """Where the current point of a spilled local lies in its row buffer."""
        k = self.kernel
        strides, step = [0] * len(k.extents), 1
        for d in reversed(range(k.outer, len(k.extents))):
            if d == k.vector:
                continue
            strides[d] = step
            step *= k.extents[d]
        element = compute_type(k.body[local].dtype)
        if self.vertical:
            lane = self.lanes * self.slots
            offset = self._offset([s * lane for s in strides], self.slot * self.lanes, range(len(k.extents)))
        else:
            strides = [s * self._row_width() for s in strides]
            strides[k.vector] = 1
            offset = self._offset(strides, 0, range(len(k.extents)))
        return self.b.gep(buffer, offset, element)

    def _store_spill(self, local: int, buffer: Val, value: Val) -> None:
        value = self.b.splat(value, self.lanes)
        place = self._spill_place(local, buffer)
        if value.type.kind == "i1":
            value = self.b.cast(value, value.type.with_kind("i8"))
        self.b.store(value, place)  # whole vectors: what lies behind a row is written again, or never read

    def _load_spill(self, local: int) -> Val:
        type = compute_type(self.kernel.body[local].dtype, self.lanes)
        place = self._spill_place(local, self.spilled[local])
        return self.b.load(place, type)
