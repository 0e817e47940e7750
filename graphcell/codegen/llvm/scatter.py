"""Emits scatters: updates written, or combined with what is there, at places that index buffers hold.

Enters: a `ScatterKernel`. Leaves: `void f(ptr target, ptr index..., ptr updates, i64 begin, i64 end)`. Updates of one place are applied
in row-major order by one block, so that the result does not depend on threads. Places never lead outside of the target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphcell.codegen.llvm.body import BodyBuilder, storage_type
from graphcell.codegen.llvm.columns import Columns, columns_of
from graphcell.codegen.llvm.combine import combine, place
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.llvm.text import I32, I64, PTR, LType, Module, Val, i64
from graphcell.dtype import DType
from graphcell.records import dataclass

_SIDE_BY_SIDE, _FEWEST_BLOCKS = 32, 4
"""Elements that lie side by side, each with a place of its own, in one block at most; and blocks that they make for threads."""


@dataclass(frozen=True)
class ScatterKernel:
    """The loops of a scatter.

    `free` loops are independent of each other, `ordered` ones run in order within a block; for each loop: extent, and its strides (in
    elements) in target, updates and each index buffer. The last free loop is the vector loop if `vector`.
    `steps` and `extents`: the target's stride and extent of each indexed dimension.
    """

    kind: str
    dtype: DType
    index_dtypes: tuple[DType, ...]
    free: tuple[tuple[int, int, int, int], ...]
    ordered: tuple[tuple[int, int, int, int], ...]
    steps: tuple[int, ...]
    extents: tuple[int, ...]
    vector: bool

    def __str__(self) -> str:
        loops = ", ".join(f"{n} free" for n, *_ in self.free) + ", " + ", ".join(f"{n} ordered" for n, *_ in self.ordered)
        return f"scatter {self.kind} ({loops}{' vector' if self.vector else ''})"

    @property
    def side_by_side(self) -> bool:
        """Whether the last free loop goes within the ordered ones, since its elements lie side by side."""
        return not self.vector and bool(self.free and self.ordered) and self.free[-1][1:] == (1, 1, 1)

    @property
    def finds_places_together(self) -> bool:
        """Whether updates of the innermost ordered loop are single elements, whose indices lie side by side."""
        return bool(self.ordered) and self.ordered[-1][3] == 1 and not self.vector and not self.side_by_side

    @property
    def outer(self) -> tuple[tuple[int, int, int, int], ...]:
        """The free loops of which each iteration has blocks of its own."""
        return self.free[:-1] if self.vector or self.side_by_side else self.free

    @property
    def chunk(self) -> int:
        """Elements of the last free loop in one block, where these lie side by side."""
        return min(_SIDE_BY_SIDE, -(-self.free[-1][0] // _FEWEST_BLOCKS))

    def columns(self, target: Target) -> Columns:
        """Of the vector loop."""
        return columns_of(self.free[-1][0], self.dtype, target)

    def blocks(self, target: Target) -> int:
        each = self.columns(target).blocks if self.vector else -(-self.free[-1][0] // self.chunk) if self.side_by_side else 1
        return math.prod(n for n, *_ in self.outer) * each

    @property
    def points(self) -> int:
        return math.prod(n for n, *_ in (*self.free, *self.ordered))


class _ScatterEmitter:
    def __init__(self, module: Module, name: str, kernel: ScatterKernel, target: Target):
        self.kernel, self.target = kernel, target
        count = len(kernel.index_dtypes)
        params = [("target", PTR), *((f"index{k}", PTR) for k in range(count)), ("updates", PTR), ("begin", I64), ("end", I64)]
        self.b = BodyBuilder(module, name, params)
        self.lanes = target.lanes("double" if kernel.dtype.bits == 64 else "float")

    def emit(self) -> str:
        b, k = self.b, self.kernel
        if k.vector:
            k.columns(self.target).emit(b, self._block)
            return b.finish()
        with b.loop(b.args["begin"], b.args["end"], name="block") as block:
            rest, start = block.index, i64(0)
            if k.side_by_side:
                groups = i64(-(-k.free[-1][0] // k.chunk))
                rest, start = b.div(rest, groups, signed=False), b.mul(b.rem(rest, groups, signed=False), i64(k.chunk))
            self._block(rest, start, [])
        return b.finish()

    def _block(self, rest: Val, start: Val, masks: list[Val | None]) -> None:
        """All updates of the elements from `start` on, in the iteration of the outer loops that `rest` counts."""
        b, k = self.b, self.kernel
        at = [i64(0), i64(0), i64(0)]
        for extent, *strides in reversed(k.outer):
            index = b.rem(rest, i64(extent), signed=False)
            rest = b.div(rest, i64(extent), signed=False)
            at = self._advance(at, index, strides)
        self._ordered(list(k.ordered), at, start, masks)

    def _advance(self, at: list[Val], index: Val, strides: Sequence[int]) -> list[Val]:
        b = self.b
        return [b.add(a, b.mul(index, i64(s))) if s else a for a, s in zip(at, strides, strict=True)]

    def _ordered(self, loops: list[tuple[int, int, int, int]], at: list[Val], start: Val, masks: list[Val | None]) -> None:
        if not loops and self.kernel.side_by_side:
            end = self.b.binary("smin", self.b.add(start, i64(self.kernel.chunk)), i64(self.kernel.free[-1][0]))
            with self.b.loop(start, end, name="beside", at_least_once=True) as loop:
                self._update([self.b.add(a, loop.index) for a in at], start, masks)
            return
        if not loops:
            self._update(at, start, masks)
            return
        extent, *strides = loops[0]
        done = self._groups(extent, strides, at) if len(loops) == 1 and self.kernel.finds_places_together else 0
        with self.b.loop(done, extent, name="ordered") as loop:
            self._ordered(loops[1:], self._advance(at, loop.index, strides), start, masks)

    def _groups(self, extent: int, strides: Sequence[int], at: list[Val]) -> int:
        """As many updates as fill vectors of places, which are found together; how many these are."""
        b, k, lanes = self.b, self.kernel, self.target.lanes("i32")
        whole, element = extent - extent % lanes, storage_type(k.dtype)
        if not whole:
            return 0
        kind = I32 if sum(step * n for step, n in zip(k.steps, k.extents, strict=True)) < 1 << 31 else I64
        with b.loop(0, whole, lanes, name="group") as loop:
            target, update, index_at = self._advance(at, loop.index, strides)
            places = self._places(index_at, lanes, kind)
            for n in range(lanes):
                where = b.cast(b.extract(places, n), I64)
                to = b.gep(b.args["target"], b.add(b.add(target, i64(n * strides[0])), where), element)
                self._apply(to, b.gep(b.args["updates"], b.add(update, i64(n * strides[1])), element), 0, None)
        return whole

    def _places(self, index_at: Val, lanes: int = 0, kind: LType = I64) -> Val:
        """Where in the target an update goes, or each of several, which are lanes then and whose indices lie side by side."""
        b, k, total = self.b, self.kernel, i64(0)
        for number, (dtype, step, extent) in enumerate(zip(k.index_dtypes, k.steps, k.extents, strict=True)):
            type = storage_type(dtype, lanes)
            found = place(b, b.load(b.gep(b.args[f"index{number}"], index_at, storage_type(dtype)), type), dtype, extent, kind)
            found = b.mul(found, b.const(step, found))
            total = found if not number else b.add(total, found)
        return total

    def _update(self, at: list[Val], start: Val, masks: list[Val | None]) -> None:
        b, k = self.b, self.kernel
        target, update, index_at = at
        target, element = b.add(target, self._places(index_at)), storage_type(k.dtype)
        to, source = b.gep(b.args["target"], target, element), b.gep(b.args["updates"], update, element)
        if not k.vector:
            self._apply(to, source, 0, None)
            return
        for v, mask in enumerate(masks):
            first = b.add(start, i64(v * self.lanes))
            self._apply(b.gep(to, first, element), b.gep(source, first, element), self.lanes, mask)

    def _apply(self, to: Val, source: Val, lanes: int, mask: Val | None) -> None:
        b, k = self.b, self.kernel
        value = b.load_value(source, k.dtype, lanes, mask)
        if k.kind != "update":
            value = combine(b, k.kind, b.load_value(to, k.dtype, lanes, mask), value, k.dtype)
        b.store_value(value, to, k.dtype, mask)


def emit_scatter(module: Module, name: str, kernel: ScatterKernel, target: Target) -> str:
    """Adds the function of `kernel` to `module`; returns its name."""
    return _ScatterEmitter(module, name, kernel, target).emit()


__all__ = ["ScatterKernel", "emit_scatter"]
