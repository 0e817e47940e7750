"""Emits the solution of triangular systems of linear equations l x = b, or lᵀ x = b, where l is lower triangular.

Enters: a `TriangularKernel`. Leaves: `void f(ptr l, ptr b, ptr x, ptr singular, i64 begin, i64 end)`. A 1 is written to `singular` (i32) where
the diagonal holds a 0. Only the lower triangle of l is read. Blocks are groups of right sides of a matrix.

Forward or back substitution: a row of some right sides stays in registers while the rows before it are taken off. All is computed in the
dtype of the matrix, unlike the neighbours': what is long is better converted once. `ops.linear_algebra.solve_triangular` hands over float64.
"""

from __future__ import annotations

from graphcell.codegen.llvm.body import BodyBuilder
from graphcell.codegen.llvm.columns import Columns, columns_of
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.llvm.text import I32, I64, PTR, LType, Module, Val, const, i64
from graphcell.dtype import DType
from graphcell.records import dataclass

_MOST_VECTORS = 8


@dataclass(frozen=True)
class TriangularKernel:
    """`matrices` systems of `rows` equations with `sides` right sides each; `transposed`: lᵀ x = b."""

    dtype: DType
    matrices: int
    rows: int
    sides: int
    transposed: bool

    may_fail = True
    fits = True

    def __str__(self) -> str:
        turned = " transposed" if self.transposed else ""
        return f"triangular{turned} ({self.matrices} x {self.rows}x{self.rows} {self.dtype}, {self.sides} right sides)"

    def columns(self, target: Target) -> Columns:
        """The right sides."""
        return columns_of(self.sides, self.dtype, target, _MOST_VECTORS)

    def blocks(self, target: Target) -> int:
        return self.matrices * self.columns(target).blocks if self.rows else 0

    @property
    def cost(self) -> int:
        """In rough scalar instructions."""
        return self.matrices * self.rows * self.rows * self.sides // 2


class _Triangular:
    def __init__(self, module: Module, name: str, kernel: TriangularKernel, target: Target):
        self.b = BodyBuilder(module, name, [*((n, PTR) for n in ("l", "b", "x", "singular")), ("begin", I64), ("end", I64)])
        self.kernel, self.kind = kernel, LType(kernel.dtype.llvm)
        self.columns = kernel.columns(target)
        self.lanes = self.columns.lanes

    def emit(self) -> str:
        b, k = self.b, self.kernel

        def of_columns(matrix: Val, column: Val, masks: list[Val | None]) -> None:
            left = b.gep(b.args["l"], b.mul(matrix, i64(k.rows * k.rows)), self.kind)
            given, wanted = (b.gep(b.args[n], b.add(b.mul(matrix, i64(k.rows * k.sides)), column), self.kind) for n in ("b", "x"))
            with b.loop(0, k.rows, name="row") as step:
                row = b.sub(i64(k.rows - 1), step.index) if k.transposed else step.index
                self.substitute(row, left, given, wanted, masks)

        self.columns.emit(b, of_columns)
        return b.finish()

    def element(self, left: Val, row: Val, column: Val) -> Val:
        b = self.b
        return b.load(b.gep(left, b.add(b.mul(row, i64(self.kernel.rows)), column), self.kind), self.kind)

    def read(self, sides: Val, row: Val, masks: list[Val | None]) -> list[Val]:
        return [self.b.load_value(self.place(sides, row, v), self.kernel.dtype, self.lanes, mask) for v, mask in enumerate(masks)]

    def place(self, sides: Val, row: Val, v: int) -> Val:
        b = self.b
        return b.gep(sides, b.add(b.mul(row, i64(self.kernel.sides)), i64(v * self.lanes)), self.kind)

    def substitute(self, row: Val, left: Val, given: Val, wanted: Val, masks: list[Val | None]) -> None:
        """Finds a row of x from those that are known: those before it, or after it in a transposed system."""
        b, k = self.b, self.kernel
        begin, end = (b.add(row, i64(1)), i64(k.rows)) if k.transposed else (i64(0), row)
        with b.loop(begin, end, carried=self.read(given, row, masks), name="known") as known:
            factor = self.element(left, known.index, row) if k.transposed else self.element(left, row, known.index)
            minus = b.splat(b.neg(factor), self.lanes)
            known.carry(*(b.fma(minus, x, rest) for x, rest in zip(self.read(wanted, known.index, masks), known.carried, strict=True)))
        pivot = self.element(left, row, row)
        with b.if_then(b.fcmp("oeq", pivot, const(0.0, self.kind))):
            b.store(const(1, I32), b.args["singular"])
        wide = b.splat(pivot, self.lanes)
        for v, (rest, mask) in enumerate(zip(known.results, masks, strict=True)):
            b.store_value(b.div(rest, wide), self.place(wanted, row, v), k.dtype, mask)


def emit_triangular(module: Module, name: str, kernel: TriangularKernel, target: Target) -> str:
    """Adds the function of `kernel` to `module`; returns its name."""
    return _Triangular(module, name, kernel, target).emit()
