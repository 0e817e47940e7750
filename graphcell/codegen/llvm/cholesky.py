"""Emits Cholesky factors of small symmetric positive definite matrices, one matrix after another, without a call of LAPACK.

Enters: a `CholeskyKernel`. Leaves: `void f(ptr a, ptr lower, ptr indefinite, i64 begin, i64 end)`. A 1 is written to `indefinite` (i32) where a
pivot is not positive and the matrix has no factor. Only the lower triangle of a is read. Blocks are matrices.

The factor is made in memory of the function's own, in float64, column by column, each taken off the columns after it.

Reference: G. H. Golub, C. F. Van Loan, "Matrix Computations", 4th edition, 4.2.5.
"""

from __future__ import annotations

from graphcell.codegen.llvm.body import BodyBuilder
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.llvm.text import F64, I32, I64, PTR, LType, Module, Val, const, i64
from graphcell.dtype import DType
from graphcell.records import dataclass

_MOST_ROWS = 56
"""Up to so many, a call of LAPACK with what it takes to get there is slower: measured on Zen 3."""


@dataclass(frozen=True)
class CholeskyKernel:
    """The factors of `matrices` matrices."""

    dtype: DType
    matrices: int
    rows: int

    may_fail = True

    def __str__(self) -> str:
        return f"cholesky ({self.matrices} x {self.rows}x{self.rows} {self.dtype})"

    @property
    def fits(self) -> bool:
        """Whether it is so small that this is quicker than LAPACK."""
        return 0 < self.rows <= _MOST_ROWS

    def blocks(self, target: Target) -> int:
        return self.matrices

    @property
    def cost(self) -> int:
        """In rough scalar instructions."""
        return self.matrices * self.rows**3


def emit_cholesky(module: Module, name: str, kernel: CholeskyKernel) -> str:
    """Adds the function of `kernel` to `module`; returns its name."""
    b = BodyBuilder(module, name, [("a", PTR), ("lower", PTR), ("indefinite", PTR), ("begin", I64), ("end", I64)])
    stored, n = LType(kernel.dtype.llvm), kernel.rows
    zero, work = const(0.0, F64), b.alloca(F64, n * n)

    def offset(row: Val, column: Val) -> Val:
        return b.add(b.mul(row, i64(n)), column)

    def at(row: Val, column: Val) -> Val:
        return b.gep(work, offset(row, column), F64)

    with b.loop(b.args["begin"], b.args["end"], name="matrix") as matrix:
        a, lower = (b.gep(b.args[which], b.mul(matrix.index, i64(n * n)), stored) for which in ("a", "lower"))
        with b.loop(0, n, name="row") as row, b.loop(0, n, name="column") as column:
            value = b.cast(b.load(b.gep(a, offset(row.index, column.index), stored), stored), F64)
            b.store(b.select(b.icmp("sle", column.index, row.index), value, zero), at(row.index, column.index))
        with b.loop(0, n, name="pivot") as step:
            k, after = step.index, b.add(step.index, i64(1))
            pivot = b.load(at(k, k), F64)
            with b.if_then(b.fcmp("ole", pivot, zero)):
                b.store(const(1, I32), b.args["indefinite"])
            root = b.unary("sqrt", pivot)
            b.store(root, at(k, k))
            with b.loop(after, n, name="scale") as row:
                b.store(b.div(b.load(at(row.index, k), F64), root), at(row.index, k))
            with b.loop(after, n, name="row") as row:
                factor = b.load(at(row.index, k), F64)
                with b.loop(after, b.add(row.index, i64(1)), name="column") as column:
                    part = b.mul(factor, b.load(at(column.index, k), F64))
                    b.store(b.sub(b.load(at(row.index, column.index), F64), part), at(row.index, column.index))
        with b.loop(0, n * n, name="give") as place:
            b.store(b.cast(b.load(b.gep(work, place.index, F64), F64), stored), b.gep(lower, place.index, stored))
    return b.finish()
