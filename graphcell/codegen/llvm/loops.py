"""Emits a `LoopKernel` as one LLVM function of explicit vectors.

Enters: a kernel (codegen/kernel.py). Leaves: a function `void f(ptr operand..., i64 begin, i64 end)` that works on blocks `begin <=
block < end`; blocks write disjoint memory, so that any split over threads gives the same bits.

Three shapes of code, by where the vector loop lies:

* no reductions: the vector loop is the only inner loop, the outer ones are rows; with no outer loop at all a block is a run of elements;
* *horizontal*: the vector loop is reduced. A block is a row; lanes are combined at the end of the row;
* *vertical*: the vector loop is an outer one. A block is a group of neighbouring rows in the lanes, each with its own reductions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphcell.codegen.kernel import Access, GatherLoad, Index, Load, LoopKernel, Splat, Statement, Store
from graphcell.codegen.llvm.body import BodyBuilder, compute_type, storage_type
from graphcell.codegen.llvm.combine import combine, horizontal, identity, place
from graphcell.codegen.llvm.target import Target
from graphcell.codegen.llvm.text import I64, PTR, LType, Module, Val, const, i64
from graphcell.dtype import DType
from graphcell.ops.base import Elementwise, Reduction

RUN = 4096
"""Elements of a block of a kernel that has no outer loop."""
ROW_SCRATCH_BYTES = 1 << 18
"""Rows up to this size may be kept on the stack between stages; longer ones are computed again."""
ACCUMULATORS = 4
"""Independent partial results of a reduction, to hide the latency of an addition."""


def lanes_of(kernel: LoopKernel, target: Target) -> int:
    """Lanes of the kernel's vectors: by the widest float that it computes with (integers take more registers instead)."""
    kinds = {compute_type(s.dtype).kind for s in kernel.body}
    floats = kinds & {"float", "double"}
    if floats:
        return target.lanes("double" if "double" in floats else "float")
    return target.lanes("i32" if kinds - {"i64", "i1"} or kinds == {"i1"} else "i64")


def block_count(kernel: LoopKernel, target: Target) -> int:
    """How many blocks the emitted function has."""
    if kernel.points == 0:
        return 0
    if kernel.vector < 0:
        return 1
    outer = kernel.extents[: kernel.outer]
    if kernel.vector < kernel.outer:
        wide = lanes_of(kernel, target) * _slots(kernel, target)
        return math.prod(outer) // kernel.extents[kernel.vector] * -(-kernel.extents[kernel.vector] // wide)
    if not outer and not _reduces(kernel):
        return -(-kernel.extents[kernel.vector] // RUN)
    return math.prod(outer)


def cost(kernel: LoopKernel) -> int:
    """Rough number of scalar instructions, to decide whether threads pay."""
    weight = sum(8 if s.is_slow else 1 for s in kernel.body) + len(kernel.stores)
    return kernel.points * weight


def _reduces(kernel: LoopKernel) -> bool:
    return any(s.is_reduction for s in kernel.body)


def _slots(kernel: LoopKernel, target: Target) -> int:
    """Vectors side by side: more where the body is light."""
    lanes = lanes_of(kernel, target)
    full = kernel.extents[kernel.vector] // lanes
    weight = sum(6 if s.is_slow else 1 for s in kernel.body)
    most = ACCUMULATORS if weight <= 12 else 2 if weight <= 40 else 1
    while most > 1 and full < most:
        most //= 2
    return max(1, most)


@dataclass
class _Scope:
    """Values known in one place of the code: local number -> value, for one vector slot."""

    known: dict[int, Val]
    parent: _Scope | None = None

    def find(self, local: int) -> Val | None:
        scope: _Scope | None = self
        while scope is not None:
            if local in scope.known:
                return scope.known[local]
            scope = scope.parent
        return None


class LoopEmitter:
    """Emits one kernel."""

    def __init__(self, module: Module, name: str, kernel: LoopKernel, target: Target):
        self.kernel, self.target = kernel, target
        params = [(f"p{k}", PTR) for k in range(len(kernel.operands))] + [("begin", I64), ("end", I64)]
        self.b = BodyBuilder(module, name, params)
        self.pointers = [self.b.args[f"p{k}"] for k in range(len(kernel.operands))]
        self.lanes = lanes_of(kernel, target)
        self.index: list[Val | None] = [None] * len(kernel.extents)
        self.vertical = 0 <= kernel.vector < kernel.outer
        self.slots = _slots(kernel, target) if kernel.vector >= 0 else 1
        self.mask: Val | None = None
        self.slot = 0
        self.uniform = _Scope({})
        self.row_scopes: list[_Scope] = []
        self.spilled: dict[int, Val] = {}
        self.inner = kernel.inner_mask

    # -- the whole function ------------------------------------------------------------------------------------------
    def emit(self) -> str:
        b, k = self.b, self.kernel
        if k.vector < 0:
            self._begin_row()
            self._row()
            return b.finish()
        if not k.outer and not _reduces(k):
            self._run_of_elements()
            return b.finish()
        self._uniform_values()
        with b.loop(b.args["begin"], b.args["end"], name="block") as block:
            if self.vertical:
                self._vertical_block(block.index)
            else:
                self._set_outer(block.index, list(range(k.outer)))
                self._begin_row()
                self._row()
        return b.finish()

    def _uniform_values(self) -> None:
        """Values that vary along no loop are computed once."""
        self.row_scopes = [self.uniform]
        for number, s in enumerate(self.kernel.body):
            if s.loops == 0 and s.stage == 0:
                self._value(number, self.uniform)

    def _set_outer(self, block: Val, loops: list[int]) -> None:
        """Decomposes a block number into the indices of `loops`."""
        b = self.b
        rest = block
        for d in reversed(loops):
            extent = self.kernel.extents[d]
            if extent == 1:
                self.index[d] = i64(0)
            elif d == loops[0]:
                self.index[d] = rest
            else:
                self.index[d] = b.rem(rest, i64(extent), signed=False)
                rest = b.div(rest, i64(extent), signed=False)

    def _begin_row(self) -> None:
        self.spilled = {}
        self.row_scopes = [_Scope({}, self.uniform) for _ in range(self.slots if self.vertical else 1)]

    # -- no outer loop: runs of elements -----------------------------------------------------------------------------
    def _run_of_elements(self) -> None:
        b, n = self.b, self.kernel.extents[0]
        self._uniform_values()
        self._begin_row()
        start = b.mul(b.args["begin"], i64(RUN))
        stop = b.binary("smin", b.mul(b.args["end"], i64(RUN)), i64(n))
        wide = self.lanes * self.slots

        def body(at: Val, count: int, mask: Val | None) -> None:
            self._inner_points(at, count, mask, range(len(self.kernel.stores)), [], [])

        steps = b.div(b.sub(stop, start), i64(wide))
        whole = b.add(start, b.mul(steps, i64(wide)))
        with b.loop(start, whole, wide, name="run") as loop:
            body(loop.index, self.slots, None)
        if self.slots > 1:
            rest = b.sub(stop, b.rem(b.sub(stop, whole), i64(self.lanes)))
            with b.loop(whole, rest, self.lanes, name="rest") as loop:
                body(loop.index, 1, None)
            whole = rest
        if n % self.lanes:
            with b.if_then(b.icmp("slt", whole, stop)):
                body(whole, 1, self._tail_mask(n % self.lanes))

    def _tail_mask(self, count: int) -> Val:
        bits = ", ".join(f"i1 {'true' if k < count else 'false'}" for k in range(self.lanes))
        return Val(f"<{bits}>", LType("i1", self.lanes))

    # -- vertical: the lanes are neighbouring rows -------------------------------------------------------------------
    def _vertical_block(self, block: Val) -> None:
        b, k = self.b, self.kernel
        wide = self.lanes * self.slots
        extent = k.extents[k.vector]
        groups = -(-extent // wide)
        others = [d for d in range(k.outer) if d != k.vector]
        group = b.rem(block, i64(groups), signed=False) if others and groups > 1 else i64(0) if groups == 1 else block
        if others:
            self._set_outer(b.div(block, i64(groups), signed=False) if groups > 1 else block, others)
        start = b.mul(group, i64(wide))
        left = extent % wide

        def whole() -> None:
            self.index[k.vector] = start
            self._begin_row()
            self._row()

        def partial() -> None:
            slots = self.slots
            for s in range(-(-left // self.lanes)):
                self.slots = 1
                self.index[k.vector] = b.add(start, i64(s * self.lanes))
                here = min(self.lanes, left - s * self.lanes)
                self.mask = self._tail_mask(here) if here < self.lanes else None
                self._begin_row()
                self._row()
            self.slots, self.mask = slots, None

        if not left:
            whole()
        elif extent < wide:
            partial()
        else:
            b.if_else(b.icmp("slt", group, i64(groups - 1)), whole, partial)

    # -- a row: stage by stage ---------------------------------------------------------------------------------------
    def _row(self) -> None:
        for stage in range(self.kernel.stages):
            self._stage(stage)

    def _stage(self, stage: int) -> None:
        body = self.kernel.body
        reductions = [n for n, s in enumerate(body) if s.is_reduction and s.stage == stage + 1]
        stores = [n for n, s in enumerate(self.kernel.stores) if body[s.local].stage == stage]
        in_row = [n for n in stores if not self._writes_inside(self.kernel.stores[n])]
        for n in in_row:
            self._store_row(self.kernel.stores[n])
        inside = [n for n in stores if n not in in_row]
        if not inside and not reductions:
            return
        self._prepare_row_values(stage, inside, reductions)
        spills = self._choose_spills(stage, inside, reductions)
        totals = self._inner_loops(inside, reductions, spills)
        for n, slots in zip(reductions, totals, strict=True):
            self._finish_reduction(n, slots)

    def _writes_inside(self, store: Store) -> bool:
        """True for a store in the inner loops, be it of a value that is the same for the whole row."""
        return self._is_inner(store.local) or any(store.access.strides[self.kernel.outer :])

    def _is_inner(self, local: int) -> bool:
        return bool(self.kernel.body[local].loops & self.inner)

    def _needed(self, roots: Sequence[int]) -> set[int]:
        """Locals inside the inner loops that `roots` need, spilled ones included but not what lies behind them."""
        found: set[int] = set()
        stack = list(roots)
        while stack:
            n = stack.pop()
            if n in found:
                continue
            found.add(n)
            if n not in self.spilled:
                stack.extend(self.kernel.body[n].args)
        return found

    def _stage_roots(self, stores: Sequence[int], reductions: Sequence[int]) -> list[int]:
        return [self.kernel.stores[n].local for n in stores] + [a for n in reductions for a in self.kernel.body[n].args]

    def _prepare_row_values(self, stage: int, stores: Sequence[int], reductions: Sequence[int]) -> None:
        """Computes what the coming inner loops need once a row, before they start."""
        for n in sorted(self._needed(self._stage_roots(stores, reductions))):
            if not self._is_inner(n) and not isinstance(self.kernel.body[n].what, Splat):
                for slot in range(len(self.row_scopes)):
                    self._row_value(slot, n)

    def _row_value(self, slot: int, local: int) -> Val:
        self.slot = slot
        return self._value(local, self.row_scopes[slot])

    def _choose_spills(self, stage: int, stores: Sequence[int], reductions: Sequence[int]) -> list[int]:
        """Slow inner values that a later stage needs again: kept in a row buffer on the stack."""
        body = self.kernel.body
        if self.kernel.stages <= stage + 1:
            return []
        now = self._needed(self._stage_roots(stores, reductions))
        later_roots = [s.local for s in self.kernel.stores if body[s.local].stage > stage]
        later_roots += [a for s in body if s.is_reduction and s.stage > stage + 1 for a in s.args]
        later = self._needed(later_roots)
        slow = self._slow_set()
        candidates = {n for n in now & later if n in slow and self._is_inner(n) and n not in self.spilled}
        behind = {a for m in candidates for a in body[m].args if body[a].stage == body[m].stage}
        elements = self._row_elements() * self.lanes * self.slots if self.vertical else self._row_elements() + self.lanes
        return sorted(n for n in candidates - behind if elements * compute_type(body[n].dtype).bytes <= ROW_SCRATCH_BYTES)

    def _slow_set(self) -> set[int]:
        """Locals that have a slow op behind them, within the same stage."""
        slow: set[int] = set()
        for n, s in enumerate(self.kernel.body):
            if s.is_slow or (not s.is_reduction and any(a in slow and self._is_inner(a) for a in s.args)):
                slow.add(n)
        return slow

    def _row_elements(self) -> int:
        return math.prod(self.kernel.extents[self.kernel.outer :])

    # -- inner loops -------------------------------------------------------------------------------------------------
    def _inner_loops(self, stores: Sequence[int], reductions: Sequence[int], spills: Sequence[int]) -> list[list[Val]]:
        """Runs the inner loops; returns the accumulators of each reduction, one a slot."""
        k = self.kernel
        buffers = {n: self._spill_buffer(n) for n in spills}
        initial = [self._identity(n) for n in reductions for _ in range(self.slots)]
        loops = list(range(k.outer, len(k.extents)))
        if k.vector in loops:
            loops.remove(k.vector)
        carried = self._nest(loops, initial, lambda acc: self._vector_loop(acc, stores, reductions, buffers))
        self.spilled.update(buffers)
        return [carried[j * self.slots : (j + 1) * self.slots] for j in range(len(reductions))]

    def _spill_buffer(self, local: int) -> Val:
        count = self._row_elements() * (self.lanes * self.slots if self.vertical else 1) + (0 if self.vertical else self.lanes)
        return self.b.alloca(compute_type(self.kernel.body[local].dtype), count)

    def _nest(self, loops: list[int], carried: list[Val], body: Callable[[list[Val]], list[Val]]) -> list[Val]:
        if not loops:
            return body(carried)
        d = loops[0]
        if self.kernel.extents[d] == 1:
            self.index[d] = i64(0)
            return self._nest(loops[1:], carried, body)
        with self.b.loop(0, self.kernel.extents[d], carried=carried, name=f"i{d}.", at_least_once=True) as loop:
            self.index[d] = loop.index
            loop.carry(*self._nest(loops[1:], list(loop.carried), body))
        return list(loop.results)

    def _vector_loop(self, acc: list[Val], stores: Sequence[int], reductions: Sequence[int], spills: dict[int, Val]) -> list[Val]:
        k, b = self.kernel, self.b
        if self.vertical:
            return self._inner_points(None, self.slots, self.mask, stores, reductions, acc, spills)
        n = k.extents[k.vector]
        wide = self.lanes * self.slots
        whole = n - n % wide
        if whole:
            if whole == wide:
                acc = self._inner_points(i64(0), self.slots, None, stores, reductions, acc, spills)
            else:
                with b.loop(0, whole, wide, carried=acc, name="vector", at_least_once=True) as loop:
                    loop.carry(*self._inner_points(loop.index, self.slots, None, stores, reductions, list(loop.carried), spills))
                acc = list(loop.results)
        at = whole
        while at + self.lanes <= n:
            acc = self._inner_points(i64(at), 1, None, stores, reductions, acc, spills)
            at += self.lanes
        if at < n:
            acc = self._inner_points(i64(at), 1, self._tail_mask(n - at), stores, reductions, acc, spills)
        return acc

    def _inner_points(self, at: Val | None, slots: int, mask: Val | None, stores: Sequence[int], reductions: Sequence[int],
                      acc: list[Val], spills: dict[int, Val] | None = None) -> list[Val]:
        """One step of the innermost loop: `slots` vectors from vector index `at` on (vertical: all slots of the block)."""
        b, k = self.b, self.kernel
        spills = spills or {}
        before_mask, self.mask = self.mask, mask
        acc = list(acc)
        base = self.index[k.vector] if self.vertical else at
        for slot in range(slots):
            assert base is not None
            self.slot = slot
            if not self.vertical:
                self.index[k.vector] = b.add(base, i64(slot * self.lanes)) if slot else base
            scope = _Scope({}, self.row_scopes[slot if self.vertical else 0])
            for n, buffer in spills.items():
                self._store_spill(n, buffer, self._value(n, scope))
            for n in stores[:-1]:  # all is read before anything is written: a store may go over what another one needs
                self._value(k.stores[n].local, scope)
            for n in reversed(stores):
                store = k.stores[n]
                self._store_vector(store, self._value(store.local, scope))
            for j, n in enumerate(reductions):
                position = j * self.slots + slot
                acc[position] = self._accumulate(n, acc[position], scope)
        self.index[k.vector] = base
        self.mask = before_mask
        return acc

    # -- reductions --------------------------------------------------------------------------------------------------
    def _vectorised(self, statement: Statement) -> bool:
        """Does the value fill the lanes (or is it one scalar)?"""
        return self.kernel.vector >= 0 and bool(statement.loops >> self.kernel.vector & 1)

    def _identity(self, local: int) -> Val:
        s = self.kernel.body[local]
        assert isinstance(s.what, Reduction)
        return const(identity(s.what.kind, s.dtype), compute_type(s.dtype, self.lanes))

    def _accumulate(self, local: int, acc: Val, scope: _Scope) -> Val:
        s = self.kernel.body[local]
        assert isinstance(s.what, Reduction)
        x = self.b.splat(self._value(s.args[0], scope), self.lanes)
        if self.mask is not None and not self.vertical:
            x = self.b.select(self.mask, x, const(identity(s.what.kind, s.dtype), x.type))
        return combine(self.b, s.what.kind, acc, x, s.dtype)

    def _finish_reduction(self, local: int, slots: list[Val]) -> None:
        s = self.kernel.body[local]
        assert isinstance(s.what, Reduction)
        if self.vertical:
            for scope, value in zip(self.row_scopes, slots, strict=True):
                scope.known[local] = value
            return
        while len(slots) > 1:
            half = len(slots) // 2
            slots = [combine(self.b, s.what.kind, x, y, s.dtype) for x, y in zip(slots[:half], slots[half:], strict=True)]
        self.row_scopes[0].known[local] = horizontal(self.b, s.what.kind, slots[0], s.dtype)

    # -- values ------------------------------------------------------------------------------------------------------
    def _value(self, local: int, scope: _Scope) -> Val:
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
            scope.known[n] = self._compute(n, scope)
        value = scope.find(local)
        assert value is not None
        return value

    def _compute(self, local: int, scope: _Scope) -> Val:
        s = self.kernel.body[local]
        if local in self.spilled:
            return self._load_spill(local)
        what = s.what
        if isinstance(what, Splat):
            return const(what.value, compute_type(what.dtype))
        if isinstance(what, Index):
            return self._index_value(what, s)
        if isinstance(what, Load):
            return self._load(what.access, what.dtype)
        if isinstance(what, GatherLoad):
            return self._gather(what, s, scope)
        assert isinstance(what, Elementwise)
        args = []
        for a in s.args:
            value = scope.find(a)
            assert value is not None
            args.append(value)
        lanes = max((x.type.lanes for x in args), default=0)
        self.b.dtypes = tuple(self.kernel.body[a].dtype for a in s.args)
        result: Val = what.emit(self.b, *(self.b.splat(x, lanes) for x in args))
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

    def _pointer(self, access: Access, dtype: DType) -> Val:
        """Address of the element at the current indices (first lane)."""
        count = len(self.kernel.extents)
        vector = self.kernel.vector
        offset = self._offset(access.strides, access.offset, range(count))
        if self.vertical and self.slot and access.strides[vector]:
            offset = self.b.add(offset, i64(self.slot * self.lanes * access.strides[vector]))
        return self.b.gep(self.pointers[access.operand], offset, storage_type(dtype))

    def _lane_offsets(self, stride: int) -> Val:
        return Val(f"<{', '.join(f'i64 {k * stride}' for k in range(self.lanes))}>", LType("i64", self.lanes))

    def _every_lane(self) -> Val:
        return self.mask if self.mask is not None else const(True, LType("i1", self.lanes))

    def _load(self, access: Access, dtype: DType) -> Val:
        stride = access.strides[self.kernel.vector] if self.kernel.vector >= 0 and self.kernel.extents[self.kernel.vector] > 1 else 0
        pointer = self._pointer(access, dtype)
        if stride == 0:
            return self.b.load_value(pointer, dtype, 0)
        if stride == 1:
            return self.b.load_value(pointer, dtype, self.lanes, self.mask)
        pointers = self.b.gep_vector(pointer, self._lane_offsets(stride), storage_type(dtype))
        return self.b.gather_value(pointers, dtype, self._every_lane())

    def _gather(self, what: GatherLoad, s: Statement, scope: _Scope) -> Val:
        """Loads at computed places, none of which leads outside of the buffer."""
        b, vector = self.b, self.kernel.vector
        steps: list[Val] = []
        for local, step, extent in zip(s.args, what.steps, what.extents, strict=True):
            index = scope.find(local)
            assert index is not None
            at = place(b, index, self.kernel.body[local].dtype, extent)
            steps.append(b.mul(at, b.const(step, at)))
        lanes = max(x.type.lanes for x in steps)
        total = b.splat(steps[0], lanes)
        for x in steps[1:]:
            total = b.add(total, b.splat(x, lanes))
        stride = what.access.strides[vector] if vector >= 0 and self.kernel.extents[vector] > 1 else 0
        pointer = self._pointer(what.access, what.dtype)
        if not lanes:
            pointer = b.gep(pointer, total, storage_type(what.dtype))
            if stride == 0:
                return b.load_value(pointer, what.dtype, 0)
            if stride == 1:
                return b.load_value(pointer, what.dtype, self.lanes, self.mask)
            total = self._lane_offsets(stride)
        elif stride:
            total = b.add(total, self._lane_offsets(stride))
        return b.gather_value(b.gep_vector(pointer, total, storage_type(what.dtype)), what.dtype, self._every_lane())

    def _index_value(self, what: Index, s: Statement) -> Val:
        b, vector = self.b, self.kernel.vector
        base = self._offset(what.strides, 0, range(len(what.strides)))
        if self._vectorised(s):
            stride = what.strides[vector]
            if self.vertical and self.slot:
                base = b.add(base, i64(self.slot * self.lanes * stride))
            base = b.add(b.splat(base, self.lanes), self._lane_offsets(stride))
        return b.cast(base, compute_type(what.dtype, base.type.lanes))

    # -- stores and spills -------------------------------------------------------------------------------------------
    def _store_row(self, store: Store) -> None:
        for slot in range(len(self.row_scopes)):
            self._store_vector(store, self._row_value(slot, store.local))

    def _store_vector(self, store: Store, value: Val) -> None:
        b, vector = self.b, self.kernel.vector
        dtype = self.kernel.operands[store.access.operand]
        stride = store.access.strides[vector] if vector >= 0 and self.kernel.extents[vector] > 1 else 0
        pointer = self._pointer(store.access, dtype)
        if stride == 0:
            if value.type.lanes:  # one element only: the first lane
                value = b.extract(value, 0)
            b.store(b.narrow(value, dtype), pointer)
            return
        value = b.narrow(b.splat(value, self.lanes), dtype)
        if stride == 1:
            if self.mask is None:
                b.store(value, pointer)
            else:
                b.masked_store(value, pointer, self.mask)
            return
        b.scatter(value, b.gep_vector(pointer, self._lane_offsets(stride), storage_type(dtype)), self._every_lane())

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
            width = k.extents[k.vector]
            strides = [s * width for s in strides]
            strides[k.vector] = 1
            offset = self._offset(strides, 0, range(len(k.extents)))
        return self.b.gep(buffer, offset, element)

    def _store_spill(self, local: int, buffer: Val, value: Val) -> None:
        value = self.b.splat(value, self.lanes)
        place = self._spill_place(local, buffer)
        if value.type.kind == "i1":
            value = self.b.cast(value, value.type.with_kind("i8"))
        if self.mask is None or self.vertical:
            self.b.store(value, place)
        else:
            self.b.masked_store(value, place, self.mask)

    def _load_spill(self, local: int) -> Val:
        type = compute_type(self.kernel.body[local].dtype, self.lanes)
        place = self._spill_place(local, self.spilled[local])
        if self.mask is None or self.vertical:
            return self.b.load(place, type)
        return self.b.masked_load(place, self.mask, type)


def emit_loops(module: Module, name: str, kernel: LoopKernel, target: Target) -> str:
    """Adds the function of `kernel` to `module`; returns its name."""
    return LoopEmitter(module, name, kernel, target).emit()
