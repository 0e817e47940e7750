"""Rows of a loop nest, stage by stage: inner loops, reductions, tiles, and what is kept for later stages.

Enters: a kernel (codegen/kernel.py) and, from the blocks around (loops.py), the indices of the outer loops. Leaves: LLVM instructions.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from graphcell.codegen.kernel import FEWEST_PARTS, Access, Load, LoopKernel, Splat, Statement, Store, held_in_tile, interleaved, is_tiled, keeps_points
from graphcell.codegen.llvm.body import BodyBuilder, compute_type
from graphcell.codegen.llvm.combine import combine, horizontal
from graphcell.codegen.llvm.contraction import split_index
from graphcell.codegen.llvm.labels import element_at_label, label_of_row
from graphcell.codegen.llvm.points import Scope
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.llvm.ranges import ranges_of
from graphcell.codegen.llvm.spills import WorkOfLaterStages
from graphcell.codegen.llvm.text import I64, PTR, LType, Module, Val, const, constant_mask, i64
from graphcell.codegen.llvm.tile_points import TilePointEmitter
from graphcell.codegen.llvm.widths import lanes_of, register_lanes, registers_of
from graphcell.ops.base import Reduction, neutral

ROW_SCRATCH_BYTES, ALL_SCRATCH_BYTES = 1 << 18, 1 << 20
"""Row buffers up to this size may be kept on the stack between stages, and all of a kernel's together; what is longer is computed again."""
UNROLLED_POINTS = 16
"""Points of the inner loops, but for the vector loop, up to which they are unrolled."""
UNROLLED_INSTRUCTIONS = 512
"""Rough vector instructions that unrolled loops may have."""
_MOST_IN_UNROLLED_TILE = 400
"""Rough vector instructions of all points of a tile up to which they are unrolled; else the tile waits in memory."""
ACCUMULATORS = 4
"""Independent partial results of a reduction, to hide the latency of an addition."""
_CHAIN = 256
"""Additions of floats one after another, at least, before a partial sum begins anew: each rounds what all before it came to."""
_LIGHT, _MEDIUM = 12, 40
"""Weights of a body up to which so many are worth while, and two."""


def _weight(kernel: LoopKernel) -> int:
    """Rough vector instructions of one point."""
    return max(1, sum(12 if s.is_slow else 1 for s in kernel.body))


def slots_of(kernel: LoopKernel, target: Target) -> int:
    """Vectors side by side: more where the body is light."""
    if kernel.tile >= 0:
        return 1
    return _slots_of(kernel, target, kernel.body)


def _weight_side_by_side(body: Iterable[Statement]) -> int:
    return sum(6 if s.is_slow else 1 for s in body)


def _slots_of(kernel: LoopKernel, target: Target, body: Iterable[Statement]) -> int:
    extent, lanes = kernel.extents[kernel.vector], lanes_of(kernel, target)
    full = -(-extent // lanes) if target.avx512 and _has_blocks_without_lanes(kernel) else extent // lanes  # the last one may have a mask
    weight = _weight_side_by_side(body)
    most = (ACCUMULATORS if weight <= _LIGHT else 2 if weight <= _MEDIUM else 1) // registers_of(kernel, target)
    while most > 1 and full < most:
        most //= 2
    return max(1, most)


def _has_blocks_without_lanes(kernel: LoopKernel) -> bool:
    """Whether rows lie in the lanes, and enough blocks for threads are left if those of all lanes are one."""
    others = math.prod(n for d, n in enumerate(kernel.extents[: kernel.outer]) if d != kernel.vector)
    return kernel.vector < kernel.outer and others >= FEWEST_PARTS


class RowEmitter(TilePointEmitter):
    """Emits what happens in one row (or in as many as a vector has lanes): its stages, their inner loops, what they reduce and store."""

    def __init__(self, module: Module, name: str, kernel: LoopKernel, target: Target):
        params = [(f"p{k}", PTR) for k in range(len(kernel.operands))] + [("begin", I64), ("end", I64)]
        b = BodyBuilder(module, name, params)
        b.numbers_in_memory = any(s.is_slow for s in kernel.body)
        super().__init__(kernel, b, [b.args[f"p{k}"] for k in range(len(kernel.operands))], lanes_of(kernel, target))
        self.target = target
        self.slots = slots_of(kernel, target) if kernel.vector >= 0 else 1
        self.way, self.ways = 0, 1
        """Which of several partial results of a slot the current point adds to."""
        along = kernel.vector >= kernel.outer and kernel.tile < 0
        self.ranges = ranges_of(kernel, self.lanes) if along else []
        """Of the vector loop of a row."""
        self.uniform = Scope({})
        self.row_scopes: list[Scope] = []
        self.columns: dict[str, dict[int, Val]] = {}
        """What is the same in each row, by the first lane's index in the vector loop."""
        self.inner = kernel.inner_mask | (1 << kernel.tile if kernel.tile >= 0 else 0)
        self.unrolled_points = min(UNROLLED_POINTS, UNROLLED_INSTRUCTIONS // (_weight(kernel) * self.slots * registers_of(kernel, target)))
        self.keeps_points = self.vertical and self._row_is_unrolled()
        """True if all points of a row are emitted one by one: what is known at them stays known for later stages."""
        self.point: tuple[int, ...] | None = None
        self.point_scopes: dict[tuple[int, ...], Scope] = {}
        self.row_tiles: dict[tuple[int, str], list[Val]] = {}
        self.stage_work: tuple[Sequence[int], Sequence[int]] = ((), ())
        """The stores and reductions of the current stage."""
        self.label = label_of_row(kernel, register_lanes(kernel, target)) if along else None

    def _uniform_values(self) -> None:
        """Values that vary along no loop are computed once."""
        self.row_scopes = [self.uniform]
        for number, s in enumerate(self.kernel.body):
            if s.loops == 0 and s.stage == 0:
                self._value(number, self.uniform)

    def _set_outer(self, block: Val, loops: list[int]) -> None:
        """Decomposes a block number into the indices of `loops`."""
        for d, at in zip(loops, split_index(self.b, block, [self.kernel.extents[d] for d in loops]), strict=True):
            self.index[d] = at

    def _begin_row(self) -> None:
        self.spilled = {}
        self.point_scopes, self.row_tiles = {}, {}
        self.row_scopes = [Scope({}, self.uniform) for _ in range(self.slots if self.vertical else 1)]

    # -- stages ------------------------------------------------------------------------------------------------------
    def _row(self) -> None:
        for stage in range(self.kernel.stages):
            self._stage(stage)

    def _work_at(self, stage: int) -> tuple[list[int], list[int]]:
        """The stores and reductions of a stage."""
        body = self.kernel.body
        stores = [n for n, s in enumerate(self.kernel.stores) if body[s.local].stage == stage]
        return stores, [n for n, s in enumerate(body) if s.is_reduction and s.stage == stage + 1]

    def _stage(self, stage: int) -> None:
        self.stage = stage
        stores, reductions = self._work_at(stage)
        in_row = [self.kernel.stores[n] for n in stores if not self.kernel.writes_inside(self.kernel.stores[n])]
        for store in in_row:
            self._row_values(store.local)
        self._inside(stage, [n for n in stores if self.kernel.writes_inside(self.kernel.stores[n])], reductions)
        self._store_rows(in_row)  # when all is read: a store may go over what another one needs

    def _store_rows(self, stores: Sequence[Store]) -> None:
        for store in stores:
            for slot, value in enumerate(self._row_values(store.local)):
                self.slot = slot
                self._store_vector(store.access, value)

    def _inside(self, stage: int, stores: Sequence[int], reductions: Sequence[int]) -> None:
        """The inner loops of a stage."""
        if not stores and not reductions:
            return
        self._prepare_row_values(stage, stores, reductions)
        spills = self._choose_spills(stage, stores, reductions)
        slots_of_kernel = self.slots
        if self.kernel.vector >= self.kernel.outer and self.kernel.tile < 0:
            self.slots = self._slots_of_stage(stores, reductions)
        elif self.vertical:
            self.ways = self._ways_of_stage(stores, reductions)
        totals = self._inner_loops(stores, reductions, spills)
        self.slots = slots_of_kernel
        for n, slots in zip(reductions, totals, strict=True):
            self._finish_reduction(n, slots)

    def _slots_of_stage(self, stores: Sequence[int], reductions: Sequence[int]) -> int:
        """Vectors side by side in one stage of a horizontal kernel, whose stages may differ much in weight."""
        return _slots_of(self.kernel, self.target, self._work_of_stage(stores, reductions))

    def _ways_of_stage(self, stores: Sequence[int], reductions: Sequence[int]) -> int:
        """Partial results of each slot's reductions, of points in turn, in one stage of a vertical kernel."""
        if _weight_side_by_side(self._work_of_stage(stores, reductions)) > _LIGHT:
            return 1
        ways = ACCUMULATORS // self.slots
        while ways > self.kernel.extents[-1]:
            ways //= 2
        return ways

    def _work_of_stage(self, stores: Sequence[int], reductions: Sequence[int]) -> list[Statement]:
        return [self.kernel.body[n] for n in self._inner_of_stage(stores, reductions)]

    def _inner_of_stage(self, stores: Sequence[int], reductions: Sequence[int]) -> list[int]:
        """Locals that the inner loops of a stage compute."""
        return [n for n in self._needed(self._stage_roots(stores, reductions)) if self._is_inner(n) and n not in self.spilled]

    def _is_inner(self, local: int) -> bool:
        return bool(self.kernel.body[local].loops & self.inner)

    def _needed(self, roots: Sequence[int], kept: Sequence[int] = ()) -> set[int]:
        """Locals inside the inner loops that `roots` need, spilled ones, `kept` and reductions included but not what lies behind them."""
        found: set[int] = set()
        stack = list(roots)
        while stack:
            n = stack.pop()
            if n in found:
                continue
            found.add(n)
            if n not in self.spilled and n not in kept and not self.kernel.body[n].is_reduction:
                stack.extend(self.kernel.body[n].args)
        return found

    def _stage_roots(self, stores: Sequence[int], reductions: Sequence[int]) -> list[int]:
        return [self.kernel.stores[n].local for n in stores] + [a for n in reductions for a in self.kernel.body[n].args]

    def _prepare_row_values(self, stage: int, stores: Sequence[int], reductions: Sequence[int]) -> None:
        """Computes what the coming inner loops need once a row, before they start."""
        for n in sorted(self._needed(self._stage_roots(stores, reductions))):
            if not self._is_inner(n) and not isinstance(self.kernel.body[n].what, Splat):
                self._row_values(n)

    def _row_values(self, local: int) -> list[Val]:
        """A value that is the same for the whole row, in each slot."""
        found = []
        for slot, scope in enumerate(self.row_scopes):
            self.slot = slot
            found.append(self._value(local, scope))
        return found

    def _choose_spills(self, stage: int, stores: Sequence[int], reductions: Sequence[int]) -> list[int]:
        """Inner values that a later stage needs again and that are kept for it in row buffers on the stack."""
        body = self.kernel.body
        if self.kernel.stages <= stage + 1 or self.keeps_points:
            return []
        elements = self._spilled_elements()
        size = {n: elements * compute_type(s.dtype).bytes for n, s in enumerate(body)}
        inner = {n for n in self._inner_of_stage(stores, reductions) if not body[n].is_reduction and size[n] <= ROW_SCRATCH_BYTES}

        def computed(roots: Sequence[int], kept: Sequence[int]) -> set[int]:
            return {n for n in self._needed(roots, kept) if self._is_computed(n) and n not in kept}

        later = [self._stage_roots(*self._work_at(k)) for k in range(stage + 1, self.kernel.stages)]
        room = ALL_SCRATCH_BYTES - sum(size[n] for n in self.spilled)
        return WorkOfLaterStages(body, stage, later, computed).worth_keeping({n: size[n] for n in inner}, room)

    def _is_computed(self, local: int) -> bool:
        return self._is_inner(local) and local not in self.spilled and not self.kernel.body[local].is_reduction

    def _row_is_unrolled(self) -> bool:
        if self.kernel.tile >= 0:
            return keeps_points(self.kernel, self.lanes)
        return self.kernel.inner_points <= self.unrolled_points

    # -- inner loops -------------------------------------------------------------------------------------------------
    def _inner_loops(self, stores: Sequence[int], reductions: Sequence[int], spills: Sequence[int]) -> list[list[Val]]:
        """Runs the inner loops; returns the accumulators of each reduction, one a slot."""
        k = self.kernel
        buffers = {n: self._spill_buffer(n) for n in spills}
        accumulators = self.slots * self.ways
        initial = [self._identity(n) for n in reductions for _ in range(accumulators)]
        self.stage_work = stores, reductions
        loops = list(range(k.outer, len(k.extents)))
        if k.vector in loops:
            loops.remove(k.vector)
        if k.tile >= 0 and not self.vertical:
            loops.remove(k.tile)
        carried = self._nest(loops, initial, lambda acc: self._vector_loop(acc, stores, reductions, buffers))
        self.spilled.update(buffers)
        self.way = 0
        return [carried[j * accumulators : (j + 1) * accumulators] for j in range(len(reductions))]

    def _spill_buffer(self, local: int) -> Val:
        return self.b.alloca(compute_type(self.kernel.body[local].dtype), self._spilled_elements())

    def _spilled_elements(self) -> int:
        """What a row buffer has room for: the rows in all lanes, or one row and the rest of its last vector."""
        if self.vertical:
            return self.kernel.inner_points * self.lanes * self.slots
        return self.kernel.inner_points // self.kernel.extents[self.kernel.vector] * self._row_width() + self.lanes

    def _nest(self, loops: list[int], carried: list[Val], body: Callable[[list[Val]], list[Val]]) -> list[Val]:
        if not loops:
            return body(carried)
        d = loops[0]
        if d == self.kernel.tile:
            return self._tile_nest(d, carried, body)
        if self.kernel.tile < 0 and math.prod(self.kernel.extents[d] for d in loops) <= self.unrolled_points:
            before = self.point
            for k in range(self.kernel.extents[d]):
                self.way, self.index[d] = k % self.ways, i64(k)
                self.point = (*(before or ()), k) if self.keeps_points else None
                carried = self._nest(loops[1:], carried, body)
            self.point = before
            return carried
        step = self.ways if len(loops) == 1 else 1
        whole = self.kernel.extents[d] // step * step

        def steps(at: Val, carried: list[Val]) -> list[Val]:
            for k in range(step):
                self.way, self.index[d] = k, self.b.add(at, i64(k)) if k else at
                carried = self._nest(loops[1:], carried, body)
            return carried

        carried = self._in_chains(f"i{d}.", 0, whole, step, self._additions(loops[1:]), carried, steps)
        for k in range(whole, self.kernel.extents[d]):
            self.way, self.index[d] = k - whole, i64(k)
            carried = self._nest(loops[1:], carried, body)
        return carried

    def _additions(self, loops: list[int]) -> int:
        """How many additions wait for each other in these inner loops and the vector loop."""
        k = self.kernel
        vectors = -(-k.extents[k.vector] // (self.lanes * self.slots)) if k.vector >= k.outer and k.tile < 0 else 1
        return vectors * math.prod(k.extents[d] for d in loops)

    def _in_chains(
        self, name: str, start: int, stop: int, step: int, additions: int, carried: list[Val], body: Callable[[Val, list[Val]], list[Val]]
    ) -> list[Val]:
        """`body(index, carried)` at each step of a loop, with as many `additions` to each partial result. Where they are many, sums of floats are found
        chain by chain: what rounding loses then grows with the length of a chain and with their number, not with that of all elements.
        """
        b, reductions = self.b, self.stage_work[1]
        summed = [n for n in reductions if self._is_float_sum(n)]
        chain = max(_CHAIN, math.isqrt((stop - start) // step * additions)) // additions * step

        def run(first: Val | int, last: Val | int, carried: Sequence[Val]) -> list[Val]:
            with b.loop(first, last, step, carried=carried, name=name, at_least_once=True) as loop:
                loop.carry(*body(loop.index, list(loop.carried)))
            return list(loop.results)

        if not summed or chain < step or stop - start < 2 * chain:
            return run(start, stop, carried)
        each = len(carried) // len(reductions)
        sums = [n in summed for n in reductions for _ in range(each)]
        with b.loop(start, stop, chain, carried=carried, name="chain", at_least_once=True) as loop:
            fresh = [self._identity(n) if n in summed else loop.carried[j * each + k] for j, n in enumerate(reductions) for k in range(each)]
            last = b.binary("smin", b.add(loop.index, i64(chain)), i64(stop))
            found = run(loop.index, last, fresh)
            loop.carry(*(b.add(x, y) if is_sum else y for is_sum, x, y in zip(sums, loop.carried, found, strict=True)))
        return list(loop.results)

    def _is_float_sum(self, local: int) -> bool:
        s = self.kernel.body[local]
        return isinstance(s.what, Reduction) and s.what.kind == "add" and s.dtype.is_float

    def _tile_nest(self, d: int, carried: list[Val], body: Callable[[list[Val]], list[Val]]) -> list[Val]:
        """The inner tile loop, the last one, of rows that lie in the lanes."""
        extent = self.kernel.extents[d]
        whole = extent - extent % self.lanes
        if whole == self.lanes or self.keeps_points:
            for first in range(0, whole, self.lanes):
                carried = self._inner_tile(i64(first), self.lanes, carried, body)
        elif whole:
            carried = self._in_chains(
                "tile", 0, whole, self.lanes, max(1, self.lanes // self.ways), carried, lambda at, carried: self._inner_tile(at, self.lanes, carried, body)
            )
        return self._inner_tile(i64(whole), extent - whole, carried, body) if whole < extent else carried

    def _inner_tile(self, start: Val, points: int, carried: list[Val], body: Callable[[list[Val]], list[Val]]) -> list[Val]:
        return self._tile_points(start, points, carried, body, *self.stage_work)

    def _vector_loop(self, acc: list[Val], stores: Sequence[int], reductions: Sequence[int], spills: dict[int, Val]) -> list[Val]:
        k = self.kernel
        if self.vertical:
            return self._inner_points(None, self.slots, self.own_mask, stores, reductions, acc, spills)
        if k.tile >= 0:
            n = k.extents[k.vector]
            return self._tiled_vector_loop(n, acc, lambda at, mask, acc: self._inner_points(at, 1, mask, stores, reductions, acc, spills))
        with self._element_at_label(stores, reductions, spills):
            return self._along_row(acc, stores, reductions, spills)

    def _element_at_label(self, stores: Sequence[int], reductions: Sequence[int], spills: Collection[int]) -> contextlib.AbstractContextManager[None]:
        """Has the element at the row's label computed apart from the row's loop, if there is one that can be."""
        if self.label is None:
            return contextlib.nullcontext()
        others = [*spills, *(a for n in reductions for a in self.kernel.body[n].args)]
        apart = self.label.stores_apart(self.kernel, stores, self._inner_of_stage(stores, reductions), others)
        return element_at_label(self, self.row_scopes[0], self.label, apart) if apart else contextlib.nullcontext()

    def _along_row(self, acc: list[Val], stores: Sequence[int], reductions: Sequence[int], spills: dict[int, Val]) -> list[Val]:
        wide = self.lanes * self.slots
        for here in self.ranges:
            self.here, at = here, here.start
            whole = len(here) - len(here) % wide
            if whole == wide:
                acc = self._inner_points(i64(at), self.slots, None, stores, reductions, acc, spills)
            elif whole:
                acc = self._in_chains(
                    "vector", at, at + whole, wide, 1, acc, lambda at, acc: self._inner_points(at, self.slots, None, stores, reductions, acc, spills)
                )
            at += whole
            while at + self.lanes <= here.stop:
                acc = self._inner_points(i64(at), 1, None, stores, reductions, acc, spills)
                at += self.lanes
            if at < here.stop:
                acc = self._inner_points(i64(at), 1, constant_mask(here.stop - at, self.lanes), stores, reductions, acc, spills)
        self.here = None
        return acc

    def _tiled_vector_loop(self, extent: int, acc: list[Val], points: Callable[[Val, Val | None, list[Val]], list[Val]]) -> list[Val]:
        """Tiles at each vector: of the inner loops, the tile loop runs innermost."""
        k = self.kernel
        whole = extent - extent % self.lanes

        def tiles(at: Val, mask: Val | None, acc: list[Val]) -> list[Val]:
            self.index[k.vector], self.mask = at, mask
            acc = self._tile_nest(k.tile, acc, lambda acc: points(at, mask, acc))
            self.mask = None
            return acc

        if whole:
            acc = self._in_chains("vector", 0, whole, self.lanes, k.extents[k.tile], acc, lambda at, acc: tiles(at, None, acc))
        return tiles(i64(whole), constant_mask(extent - whole, self.lanes), acc) if whole < extent else acc

    def _inner_points(self, at: Val | None, slots: int, mask: Val | None, stores: Sequence[int], reductions: Sequence[int],
                      acc: list[Val], spills: dict[int, Val] | None = None) -> list[Val]:
        """One step of the innermost loop: `slots` vectors from vector index `at` on (vertical: all slots of the block)."""
        b, k = self.b, self.kernel
        spills = spills or {}
        before_mask, self.mask = self.own_mask, mask
        acc = list(acc)
        base = self.index[k.vector] if self.vertical else at
        for slot in range(slots):
            assert base is not None
            self.slot = slot
            if not self.vertical:
                self.index[k.vector] = b.add(base, i64(slot * self.lanes)) if slot else base
            scope = self._scope_of_point(slot)
            for n, buffer in spills.items():
                self._store_spill(n, buffer, self._value(n, scope))
            for n in self._stage_roots(stores, reductions) if stores else ():  # all is read before anything is written: a store may go over it
                self._value(n, scope)
            local = {k.stores[n].access: k.stores[n].local for n in stores if not k.stores[n].adds}
            for together in reversed(interleaved(local, k.vector)):
                self._store_together(together, [self._value(local[access], scope) for access in together])
            for n in stores:
                if k.stores[n].adds:
                    self._add_to_sum(k.stores[n].access, self._value(k.stores[n].local, scope))
            for j, n in enumerate(reductions):
                position = (j * self.ways + self.way) * self.slots + slot
                acc[position] = self._accumulate(n, acc[position], scope)
        self.index[k.vector] = base
        self.mask = before_mask
        return acc

    def _add_to_sum(self, access: Access, value: Val) -> None:
        """Adds to what earlier rows along the summed loops came to."""
        before = self._load(access, self.kernel.operands[access.operand])
        self._store_vector(access, self.b.add(before, self.b.splat(value, before.type.lanes) if before.type.lanes else value))

    # -- sums over rows ----------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def _summing(self, loops: Sequence[int]) -> Iterator[None]:
        """What follows is done at each iteration of `loops` that are not counted by blocks; what stores of the block add to is 0 before."""
        k, blocks = self.kernel, self.kernel.loops_of_blocks()
        with self._nested([d for d in range(len(k.extents)) if d not in (*blocks, k.vector) and not k.summed >> d & 1]):
            self._columns(self._clear_sums)
        with self._nested([d for d in loops if d not in blocks]):
            yield

    @contextlib.contextmanager
    def _nested(self, loops: Iterable[int]) -> Iterator[None]:
        """What follows is done at each iteration of `loops`."""
        with contextlib.ExitStack() as nest:
            for d in loops:
                self.index[d] = nest.enter_context(self.b.loop(0, self._trips(d), name=f"i{d}.", at_least_once=True)).index
            yield

    def _trips(self, d: int) -> Val:
        """How often loop d runs at the current indices of those before."""
        k, b = self.kernel, self.b
        if not k.trips_vary(d):
            return i64(k.extents[d])
        part = self.index[d - 1]
        assert part is not None
        return b.select(b.icmp("eq", part, i64(k.extents[d - 1] - 1)), i64(k.last), i64(k.extents[d]))

    def _clear_sums(self) -> None:
        for store in self.kernel.stores:
            if store.adds:
                self._store_vector(store.access, const(0, compute_type(self.kernel.operands[store.access.operand])))

    def _columns(self, body: Callable[[], None]) -> None:
        """`body` at each vector of the vector loop, the last one masked."""
        k = self.kernel
        extent = k.extents[k.vector]
        whole = extent - extent % self.lanes
        if whole:
            with self.b.loop(0, whole, self.lanes, name="columns", at_least_once=True) as loop:
                self.index[k.vector] = loop.index
                body()
        if whole < extent:
            self.index[k.vector], self.mask = i64(whole), constant_mask(extent - whole, self.lanes)
            body()
            self.mask = None

    def _scope_of_point(self, slot: int) -> Scope:
        row = self.row_scopes[slot if self.vertical else 0]
        at = None if self.kernel.vector < 0 else self.index[self.kernel.vector]
        if at is not None and at.text in self.columns:
            row = Scope(self.columns[at.text], row)
        if self.point is None:
            return Scope({}, row)
        return self.point_scopes.setdefault((slot, *self.point), Scope({}, row))

    # -- reductions --------------------------------------------------------------------------------------------------
    def _identity(self, local: int) -> Val:
        s = self.kernel.body[local]
        assert isinstance(s.what, Reduction)
        return const(neutral(s.what.kind, s.dtype), compute_type(s.dtype, self.lanes))

    def _accumulate(self, local: int, acc: Val, scope: Scope) -> Val:
        s = self.kernel.body[local]
        assert isinstance(s.what, Reduction)
        x = self.b.splat(self._value(s.args[0], scope), self.lanes)
        if len(s.args) == 2:  # adds products
            total = self.b.fma(x, self.b.splat(self._value(s.args[1], scope), self.lanes), acc)
            return total if self.mask is None or self.vertical else self.b.select(self.mask, total, acc)
        if self.mask is not None and not self.vertical:
            x = self.b.select(self.mask, x, const(neutral(s.what.kind, s.dtype), x.type))
        return combine(self.b, s.what.kind, acc, x, s.dtype)

    def _finish_reduction(self, local: int, slots: list[Val]) -> None:
        s = self.kernel.body[local]
        assert isinstance(s.what, Reduction)
        if self.vertical:
            for slot, scope in enumerate(self.row_scopes):
                scope.known[local] = self._as_used(local, self._joined(local, slots[slot :: self.slots]))
            return
        self.row_scopes[0].known[local] = self._as_used(local, horizontal(self.b, s.what.kind, self._joined(local, slots), s.dtype))

    def _joined(self, local: int, slots: list[Val]) -> Val:
        """The partial results of all slots, in one vector."""
        s = self.kernel.body[local]
        assert isinstance(s.what, Reduction)
        while len(slots) > 1:  # a power of two
            half = len(slots) // 2
            slots = [combine(self.b, s.what.kind, x, y, s.dtype) for x, y in zip(slots[:half], slots[half:], strict=True)]
        return slots[0]

    # -- tiles -------------------------------------------------------------------------------------------------------
    def _tile_points(
        self, start: Val, points: int, carried: list[Val], body: Callable[[list[Val]], list[Val]], stores: Sequence[int], reductions: Sequence[int]
    ) -> list[Val]:
        """Runs `body` at `points` iterations of the tile loop from `start` on, with the tiles that it reads and writes."""
        k = self.kernel
        self.index[k.tile] = start
        tiled = [n for n in sorted(self._needed(self._stage_roots(stores, reductions))) if self._is_tiled_load(n) and n not in self.spilled]
        tiles = {n: self.row_tiles.get((n, start.text)) or self._load_tile(n, points) for n in tiled}
        if self.keeps_points:
            self.row_tiles.update(((n, start.text), tile) for n, tile in tiles.items())
        if not self.keeps_points and points * _weight(k) > _MOST_IN_UNROLLED_TILE:
            return self._loop_over_tile(start, points, carried, body, stores, tiles)
        self.tile_stores = {}
        for point in range(points):
            self.point = (int(start.text) + point,) if self.keeps_points else None
            self.index[k.tile] = self.b.add(start, i64(point)) if point else start
            self.way = point % self.ways
            self.tile = {n: vectors[point] for n, vectors in tiles.items()}
            carried = body(carried)
        self.tile, self.point = {}, None
        self.index[k.tile] = start
        written, self.tile_stores = self.tile_stores, None
        for access, values in written.items():
            self._store_tile(access, values)
        return carried

    def _loop_over_tile(
        self, start: Val, points: int, carried: list[Val], body: Callable[[list[Val]], list[Val]], stores: Sequence[int], tiles: dict[int, list[Val]]
    ) -> list[Val]:
        """The same with the tiles in memory, so that the code of the points is there once."""
        b, k = self.b, self.kernel
        written = [k.stores[n].access for n in stores if is_tiled(k.stores[n].access.strides, k.vector, k.tile)]
        types = {access: compute_type(k.operands[access.operand], self.lanes) for access in written}
        room = {access: self._tile_buffer(type, points) for access, type in types.items()}
        held = {n: self._tile_buffer(vectors[0].type, points) for n, vectors in tiles.items()}
        for n, vectors in tiles.items():
            for number, value in enumerate(vectors):
                self._store_in_tile(held[n], i64(number), value)
        step = self.ways if points % self.ways == 0 else 1
        with b.loop(0, points, step, carried=carried, name="point", at_least_once=True) as loop:
            carried = list(loop.carried)
            for way in range(step):
                point = b.add(loop.index, i64(way)) if way else loop.index
                self.index[k.tile], self.way, self.tile_stores = b.add(start, point), way, {}
                self.tile = {n: b.load(self._in_tile(held[n], point, vectors[0].type), vectors[0].type) for n, vectors in tiles.items()}
                carried = body(carried)
                for access, (value,) in self.tile_stores.items():
                    self._store_in_tile(room[access], point, value)
            loop.carry(*carried)
        self.tile, self.tile_stores, self.index[k.tile] = {}, None, start
        for access, type in types.items():
            self._store_tile(access, [b.load(self._in_tile(room[access], i64(number), type), type) for number in range(points)])
        return list(loop.results)

    def _tile_buffer(self, type: LType, points: int) -> Val:
        return self.b.alloca(type.with_lanes(0), points * self.lanes)

    def _in_tile(self, buffer: Val, point: Val, type: LType) -> Val:
        return self.b.gep(buffer, self.b.mul(point, i64(self.lanes)), type.with_lanes(0))

    def _store_in_tile(self, buffer: Val, point: Val, value: Val) -> None:
        self.b.store(value, self._in_tile(buffer, point, value.type))

    def _is_tiled_load(self, local: int) -> bool:
        what = self.kernel.body[local].what
        if not isinstance(what, Load) or not is_tiled(what.access.strides, self.kernel.vector, self.kernel.tile):
            return False
        return not what.guards or (self.keeps_points and held_in_tile(what.guards, self.kernel.tile, self.kernel.inner_points) is not None)
