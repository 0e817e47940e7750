"""Emits steps of gradient descent on a table of which few rows have a gradient: x + rate * (updates added up in zeros), in place, where
only rows that have updates are touched.

Enters: a `ScatterStepKernel`. Leaves two functions. `void link(ptr index..., ptr rate, ptr first, ptr next, …)` chains the updates of each row in their
order: `first[row]` is the number of the first one, `next[n]` that of the one after update n, or -1. `void step(ptr target, ptr index...,
ptr updates, ptr rate, ptr first, ptr next, i64 begin, i64 end)` adds up each chain where it begins, and changes the row once: the numbers
are those of adding in zeros first, half precision in float32. Blocks are groups of columns.

Rows without updates would become x + rate * 0, which is x unless the rate is infinite or NaN; only then they are visited, too. `first` is
written where there are updates only (everywhere, if the rate is such), so that memory of untouched rows is not touched in it either.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from graphcell.codegen.llvm.body import BodyBuilder, storage_type
from graphcell.codegen.llvm.columns import Columns, columns_of
from graphcell.codegen.llvm.combine import place
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.llvm.text import I32, I64, PTR, LType, Module, Val, const, i64
from graphcell.dtype import DType
from graphcell.records import dataclass

_NONE = const(-1, I32)


@dataclass(frozen=True)
class ScatterStepKernel:
    """The loops of a step.

    Attributes:
        updates: how many rows of updates there are; indices lie side by side in the same order.
        update_step: from one to the next, in elements.
        outer: loops over parts of rows that lie apart: extent, stride in the target, stride in the updates.
        columns: elements of a row that lie side by side.
        steps, extents: the target's stride and extent of each indexed dimension.
    """

    dtype: DType
    index_dtypes: tuple[DType, ...]
    updates: int
    update_step: int
    outer: tuple[tuple[int, int, int], ...]
    columns: int
    steps: tuple[int, ...]
    extents: tuple[int, ...]

    def __str__(self) -> str:
        return f"scatter step ({self.updates} updates of {self.rows} rows, {math.prod(n for n, *_ in self.outer) * self.columns} columns)"

    @property
    def rows(self) -> int:
        return math.prod(self.extents)

    @property
    def points(self) -> int:
        return self.updates * self.columns * math.prod(n for n, *_ in self.outer)

    @property
    def link_bytes(self) -> tuple[int, int]:
        """Of `first` and of `next`."""
        return 4 * self.rows, 4 * self.updates

    def blocks_of(self, target: Target) -> Columns:
        return columns_of(self.columns, self.dtype, target)

    def blocks(self, target: Target) -> int:
        return math.prod(n for n, *_ in self.outer) * self.blocks_of(target).blocks


class _Chains:
    """What both functions read: where updates go, the links between them, the rate."""

    def __init__(self, b: BodyBuilder, kernel: ScatterStepKernel):
        self.b, self.kernel = b, kernel

    def row(self, n: Val) -> tuple[Val, Val]:
        """Where update n goes: its row's number, and its first element in the target."""
        b, k = self.b, self.kernel
        number = at = i64(0)
        for position, (dtype, step, extent) in enumerate(zip(k.index_dtypes, k.steps, k.extents, strict=True)):
            kind = storage_type(dtype)
            where = place(b, b.load(b.gep(b.args[f"index{position}"], n, kind), kind), dtype, extent)
            number = b.add(b.mul(number, i64(extent)), where)
            at = b.add(at, b.mul(where, i64(step)))
        return number, at

    def slot(self, table: str, n: Val) -> Val:
        return self.b.gep(self.b.args[table], n, I32)

    def link(self, table: str, n: Val) -> Val:
        """An entry of `first` or `next`."""
        return self.b.load(self.slot(table, n), I32)

    def rate(self) -> Val:
        return self.b.load_value(self.b.args["rate"], self.kernel.dtype, 0)

    def if_not_finite(self, then: Callable[[], None]) -> None:
        b, rate = self.b, self.rate()
        with b.if_then(b.fcmp("une", b.sub(rate, rate), b.const(0, rate))):
            then()


def _indices(kernel: ScatterStepKernel) -> list[tuple[str, LType]]:
    return [(f"index{k}", PTR) for k in range(len(kernel.index_dtypes))]


def emit_link(module: Module, name: str, kernel: ScatterStepKernel) -> str:
    """Adds `link`, of which there is one block; returns its name."""
    params = [*_indices(kernel), ("rate", PTR), ("first", PTR), ("next", PTR), ("begin", I64), ("end", I64)]
    b = BodyBuilder(module, name, params)
    chains = _Chains(b, kernel)

    def clear() -> None:
        with b.loop(0, kernel.rows, name="row") as row:
            b.store(_NONE, chains.slot("first", row.index))

    chains.if_not_finite(clear)
    with b.loop(0, kernel.updates, name="clear") as update:
        b.store(_NONE, chains.slot("first", chains.row(update.index)[0]))
    with b.loop(0, kernel.updates, name="chain") as update:
        n = b.sub(i64(kernel.updates - 1), update.index)
        first = chains.slot("first", chains.row(n)[0])
        b.store(b.load(first, I32), chains.slot("next", n))
        b.store(b.cast(n, I32), first)
    return b.finish()


class _Step:
    def __init__(self, module: Module, name: str, kernel: ScatterStepKernel, target: Target):
        names = ("updates", "rate", "first", "next")
        params = [("target", PTR), *_indices(kernel), *((n, PTR) for n in names), ("begin", I64), ("end", I64)]
        self.b = BodyBuilder(module, name, params)
        self.kernel, self.columns = kernel, kernel.blocks_of(target)
        self.lanes = self.columns.lanes
        self.chains = _Chains(self.b, kernel)

    def emit(self) -> str:
        b, k = self.b, self.kernel

        def of_columns(rest: Val, column: Val, masks: list[Val | None]) -> None:
            into = of = column
            for extent, to, source in reversed(k.outer):
                index = b.rem(rest, i64(extent), signed=False)
                rest = b.div(rest, i64(extent), signed=False)
                into, of = b.add(into, b.mul(index, i64(to))), b.add(of, b.mul(index, i64(source)))
            with b.loop(0, k.updates, name="update") as update:
                self.visit(update.index, into, of, masks)
            self.chains.if_not_finite(lambda: self.visit_others(into, masks))

        self.columns.emit(b, of_columns)
        return b.finish()

    def visit(self, n: Val, into: Val, of: Val, masks: list[Val | None]) -> None:
        """Changes the row of update n, if that is the row's first."""
        b = self.b
        number, at = self.chains.row(n)
        with b.if_then(b.icmp("eq", self.chains.link("first", number), b.cast(n, I32))):
            begin = self.update(n, of, masks)
            sums = [b.alloca(x.type) for x in begin]
            for slot, x in zip(sums, begin, strict=True):
                b.store(x, slot)
            more = b.alloca(I32)
            b.store(self.chains.link("next", n), more)

            def add() -> None:
                m = b.cast(b.load(more, I32), I64, signed=True)
                for slot, x in zip(sums, self.update(m, of, masks), strict=True):
                    b.store(b.add(b.load(slot, x.type), x), slot)
                b.store(self.chains.link("next", m), more)

            b.while_loop(lambda: b.icmp("sge", b.load(more, I32), const(0, I32)), add)
            self.change(b.add(at, into), [b.load(slot, x.type) for slot, x in zip(sums, begin, strict=True)], masks)

    def update(self, n: Val, of: Val, masks: list[Val | None]) -> list[Val]:
        b, k = self.b, self.kernel
        at = b.gep(b.args["updates"], b.add(b.mul(n, i64(k.update_step)), of), storage_type(k.dtype))
        return [self.read(at, v, mask) for v, mask in enumerate(masks)]

    def read(self, at: Val, v: int, mask: Val | None) -> Val:
        return self.b.load_value(self.vector(at, v), self.kernel.dtype, self.lanes, mask)

    def vector(self, at: Val, v: int) -> Val:
        return self.b.gep(at, v * self.lanes, storage_type(self.kernel.dtype))

    def change(self, at: Val, sums: list[Val], masks: list[Val | None]) -> None:
        """x + rate * sum, in the row's vectors at `at`."""
        b, k = self.b, self.kernel
        rate = b.splat(self.chains.rate(), self.lanes)
        row = b.gep(b.args["target"], at, storage_type(k.dtype))
        for v, (total, mask) in enumerate(zip(sums, masks, strict=True)):
            b.store_value(b.add(self.read(row, v, mask), b.mul(rate, total)), self.vector(row, v), k.dtype, mask)

    def visit_others(self, into: Val, masks: list[Val | None]) -> None:
        """Adds rate * 0 to all rows without updates."""
        b, k = self.b, self.kernel
        with b.loop(0, k.rows, name="row") as row, b.if_then(b.icmp("slt", self.chains.link("first", row.index), const(0, I32))):
            at, rest = into, row.index
            for step, extent in zip(reversed(k.steps), reversed(k.extents), strict=True):
                at = b.add(at, b.mul(b.rem(rest, i64(extent), signed=False), i64(step)))
                rest = b.div(rest, i64(extent), signed=False)
            zero = b.splat(b.const(0, self.chains.rate()), self.lanes)
            self.change(at, [zero] * len(masks), masks)


def emit_step(module: Module, name: str, kernel: ScatterStepKernel, target: Target) -> str:
    """Adds `step`; returns its name."""
    return _Step(module, name, kernel, target).emit()
