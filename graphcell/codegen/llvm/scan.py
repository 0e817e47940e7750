"""Emits scans: element k along a dimension combines elements 0 to k.

Enters: a `ScanKernel`. Leaves: `void f(ptr source, ptr target, i64 begin, i64 end)`. A scan runs one element after another, so that
the bits are those of adding in order; independent scans lie in the lanes of vectors. Where each has its elements side by side, squares of several
are transposed in registers. Blocks are groups of independent scans.
"""

from __future__ import annotations

import math

from graphcell.codegen.llvm.body import BodyBuilder, compute_type, storage_type
from graphcell.codegen.llvm.columns import Columns, columns_of
from graphcell.codegen.llvm.combine import combine
from graphcell.codegen.llvm.contraction import LINE_BYTES
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.llvm.text import I64, PTR, Module, Val, const, i64
from graphcell.codegen.llvm.tiles import first_lanes, transpose_square
from graphcell.dtype import DType
from graphcell.ir.types import Shape
from graphcell.ops.base import neutral
from graphcell.records import dataclass

_FEWEST_WIDE_STEPS = 256
"""Of 64-bit elements, four of which a vector of AVX2 has: shorter scans overlap as they are."""
_SQUARES = 2
"""Squares of a row that are read at once, at most."""


@dataclass(frozen=True)
class ScanKernel:
    """The loops of a scan: `rows` times `steps` times `lanes` elements, contiguous. Steps run in order; the scans that lie side by
    side are `lanes` many.
    """

    kind: str
    dtype: DType
    rows: int
    steps: int
    lanes: int
    reverse: bool

    def __str__(self) -> str:
        order = " backwards" if self.reverse else ""
        return f"scan {self.kind} {self.dtype} ({self.rows} rows, {self.lanes} in lanes, {self.steps} steps{order})"

    def _most(self, target: Target) -> int:
        return target.lanes("double" if self.dtype.bits == 64 else "float")

    def width(self, target: Target) -> int:
        """Lanes of one vector; 0 for a single scan."""
        return self._most(target) if self.lanes > 1 else 0

    def rows_together(self, target: Target) -> int:
        """Of scans with their elements side by side: how many lie in the lanes of vectors; the last few run alone."""
        most = self._most(target)
        worth_it = self.rows >= most and self.steps >= (_FEWEST_WIDE_STEPS if self.dtype.bits == 64 else most)
        return most if self.lanes == 1 and worth_it else 1

    def columns(self, target: Target) -> Columns:
        """Scans that lie side by side."""
        return columns_of(self.lanes, self.dtype, target)

    def blocks(self, target: Target) -> int:
        if not self.points:
            return 0
        together = self.rows_together(target)
        return (self.rows // together + (self.rows % together if together > 1 else 0)) * self.columns(target).blocks

    @property
    def points(self) -> int:
        return self.rows * self.lanes * self.steps


def scan_kernel(kind: str, dtype: DType, shape: Shape, axis: int, reverse: bool) -> ScanKernel:
    """The scan of a contiguous array of `shape` along `axis`."""
    return ScanKernel(kind, dtype, math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]), reverse)


class _ScanEmitter:
    def __init__(self, module: Module, name: str, kernel: ScanKernel, target: Target):
        self.kernel = kernel
        self.b = BodyBuilder(module, name, [("source", PTR), ("target", PTR), ("begin", I64), ("end", I64)])
        self.width, self.columns, self.together = kernel.width(target), kernel.columns(target), kernel.rows_together(target)
        self.element = storage_type(kernel.dtype)

    def emit(self) -> str:
        b, k = self.b, self.kernel
        if self.together > 1:
            return self._emit_squares()
        if self.width:
            self.columns.emit(b, lambda row, column, masks: self._scan(b.add(b.mul(row, i64(k.steps * k.lanes)), column), masks))
            return b.finish()
        with b.loop(b.args["begin"], b.args["end"], name="block") as block:
            self._scan(b.mul(block.index, i64(k.steps)), [None])
        return b.finish()

    def _scan(self, start: Val, masks: list[Val | None]) -> None:
        b, k = self.b, self.kernel
        extent, stride = k.steps, -k.lanes if k.reverse else k.lanes
        at = b.add(start, i64((extent - 1) * k.lanes)) if k.reverse else start
        values = [self._load(at, v, mask) for v, mask in enumerate(masks)]
        for v, value in enumerate(values):
            self._store(value, at, v, masks[v])
        with b.loop(1, extent, carried=values, name="step") as loop:
            place = b.add(at, b.mul(loop.index, i64(stride)))
            following = [combine(b, k.kind, acc, self._load(place, v, masks[v]), k.dtype) for v, acc in enumerate(loop.carried)]
            for v, value in enumerate(following):
                self._store(value, place, v, masks[v])
            loop.carry(*following)

    # -- several rows at once ----------------------------------------------------------------------------------------
    def _emit_squares(self) -> str:
        b, k, most = self.b, self.kernel, self.together
        groups = k.rows // most
        with b.loop(b.args["begin"], b.args["end"], name="block") as block:
            first = b.mul(block.index, i64(most))
            if k.rows % most == 0:
                self._rows_in_lanes(first)
            else:
                alone = b.add(block.index, i64(groups * (most - 1)))
                b.if_else(
                    b.icmp("slt", block.index, i64(groups)),
                    lambda: self._rows_in_lanes(first),
                    lambda: self._scan(b.mul(alone, i64(k.steps)), [None]),
                )
        return b.finish()

    def _rows_in_lanes(self, first: Val) -> None:
        """The scans of as many rows as a vector has lanes, from row `first` on."""
        b, k, most = self.b, self.kernel, self.together
        starts = [b.mul(b.add(first, i64(r)), i64(k.steps)) for r in range(most)]
        acc = const(-0.0 if k.kind == "add" and k.dtype.is_float else neutral(k.kind, k.dtype), compute_type(k.dtype, most))
        done = 0
        for wide in (most * min(_SQUARES, LINE_BYTES // (most * self.element.bytes) or 1), most):
            whole = (k.steps - done) // wide * wide
            if whole:
                with b.loop(done, done + whole, wide, carried=[acc], name="square", at_least_once=True) as loop:
                    loop.carry(self._squares(starts, loop.index, wide, loop.carried[0]))
                acc, done = loop.results[0], done + whole
        if done < k.steps:
            self._squares(starts, i64(done), k.steps - done, acc)

    def _squares(self, starts: list[Val], done: Val, steps: int, acc: Val) -> Val:
        """`steps` elements of each row, whose scans have come to `acc` after as many as are `done`; what they come to. All is read before anything is
        written: rows may lie so far apart that a cache line would be gone before its second half is asked for."""
        b, k, most = self.b, self.kernel, self.together
        at = b.sub(i64(k.steps - steps), done) if k.reverse else done
        firsts = list(range(0, steps, most))
        masks = [first_lanes(min(most, steps - first), most) for first in firsts]
        rows = [[self._load_row(b.add(start, at), first, mask) for start in starts] for first, mask in zip(firsts, masks, strict=True)]
        squares = [transpose_square(b, loaded) for loaded in rows]
        results = [[acc] * most for _ in squares]
        for step in range(steps - 1, -1, -1) if k.reverse else range(steps):
            square, column = divmod(step, most)
            acc = results[square][column] = combine(b, k.kind, acc, squares[square][column], k.dtype)
        for first, mask, columns in zip(firsts, masks, results, strict=True):
            for value, start in zip(transpose_square(b, columns), starts, strict=True):
                target = b.gep(b.gep(b.args["target"], b.add(start, at), self.element), first, self.element)
                b.store_value(value, target, k.dtype, mask)
        return acc

    def _load_row(self, place: Val, first: int, mask: Val | None) -> Val:
        source = self.b.gep(self.b.gep(self.b.args["source"], place, self.element), first, self.element)
        return self.b.load_value(source, self.kernel.dtype, self.together, mask)

    def _place(self, buffer: str, at: Val, vector: int) -> Val:
        shift = vector * self.width
        return self.b.gep(self.b.args[buffer], self.b.add(at, i64(shift)) if shift else at, self.element)

    def _load(self, at: Val, vector: int, mask: Val | None) -> Val:
        return self.b.load_value(self._place("source", at, vector), self.kernel.dtype, self.width, mask)

    def _store(self, value: Val, at: Val, vector: int, mask: Val | None) -> None:
        self.b.store_value(value, self._place("target", at, vector), self.kernel.dtype, mask)


def emit_scan(module: Module, name: str, kernel: ScanKernel, target: Target) -> str:
    """Adds the function of `kernel` to `module`; returns its name."""
    return _ScanEmitter(module, name, kernel, target).emit()


__all__ = ["ScanKernel", "emit_scan", "scan_kernel"]
