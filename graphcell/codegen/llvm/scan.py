"""Emits scans: element k along a dimension combines elements 0 to k.

Enters: a `ScanKernel`. Leaves: `void f(ptr source, ptr target, i64 begin, i64 end)`. A scan runs one element after another, so that
the bits are those of adding in order; independent scans lie in the lanes of vectors. Blocks are groups of independent scans.
"""

from __future__ import annotations

import math

from graphcell.codegen.llvm.body import BodyBuilder, storage_type
from graphcell.codegen.llvm.combine import combine
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.llvm.text import I64, PTR, Module, Val, i64
from graphcell.dtype import DType
from graphcell.ir.types import Shape
from graphcell.records import dataclass

_VECTORS = 4
"""Vectors side by side, to hide the latency of combining."""


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

    def width(self, target: Target) -> int:
        """Lanes of one vector; 0 for a single scan."""
        return target.lanes("double" if self.dtype.bits == 64 else "float") if self.lanes > 1 else 0

    def vectors(self, target: Target) -> int:
        """Vectors of a block."""
        return min(_VECTORS, -(-self.lanes // max(1, self.width(target))))

    def blocks(self, target: Target) -> int:
        wide = max(1, self.width(target)) * self.vectors(target)
        return self.rows * -(-self.lanes // wide) if self.points else 0

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
        self.width, self.vectors = kernel.width(target), kernel.vectors(target)
        self.element = storage_type(kernel.dtype)

    def emit(self) -> str:
        b, k = self.b, self.kernel
        wide = max(1, self.width) * self.vectors
        groups = -(-k.lanes // wide)
        with b.loop(b.args["begin"], b.args["end"], name="block") as block:
            row, group = block.index, i64(0)
            if groups > 1:
                group, row = b.rem(row, i64(groups), signed=False), b.div(row, i64(groups), signed=False)
            first = b.mul(group, i64(wide))
            start = b.add(b.mul(row, i64(k.steps * k.lanes)), first)
            partial = k.lanes % wide != 0
            self._scan(start, [self._mask(first, v) if partial else None for v in range(self.vectors)])
        return b.finish()

    def _mask(self, first: Val, vector: int) -> Val:
        left = self.b.sub(i64(self.kernel.lanes), self.b.add(first, i64(vector * self.width)))
        return self.b.lane_mask(self.b.binary("smax", left, i64(0)), self.width)

    def _scan(self, start: Val, masks: list[Val | None]) -> None:
        b, k = self.b, self.kernel
        extent, stride = k.steps, k.lanes
        at = b.add(start, i64((extent - 1) * stride)) if k.reverse else start
        values = [self._load(at, v, masks[v]) for v in range(self.vectors)]
        for v, value in enumerate(values):
            self._store(value, at, v, masks[v])
        with b.loop(1, extent, carried=values, name="step") as loop:
            step = b.mul(loop.index, i64(-stride if k.reverse else stride))
            place = b.add(at, step)
            following = [combine(b, k.kind, acc, self._load(place, v, masks[v]), k.dtype) for v, acc in enumerate(loop.carried)]
            for v, value in enumerate(following):
                self._store(value, place, v, masks[v])
            loop.carry(*following)

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
