"""Emits what Gaussian elimination gives of small matrices a: the solution of a x = b, the inverse, the determinant; one matrix after another,
without a call of LAPACK, which would take longer than the work.

Enters: an `EliminationKernel`. Leaves: `void f(ptr a, ptr b, ptr results..., ptr singular, i64 begin, i64 end)`; only systems have a `b`, only
systems and inverses a `singular` (i32), to which a 1 is written where a pivot is 0 and the matrix has no result. Blocks are matrices.

Partial pivoting and back substitution as in LAPACK's getrf and gesv. A matrix and its right sides stand side by side in memory of the
function's own, each in whole vectors, so that a row operation is a few vector instructions without masks. What elimination leaves to the
left of the pivots is never read. All is computed in float64, so results of float32 are as good as the condition of the matrix lets them be.

Reference: G. H. Golub, C. F. Van Loan, "Matrix Computations", 4th edition, 3.4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from graphcell.codegen.llvm.body import BodyBuilder
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.llvm.text import F64, I32, I64, PTR, LType, Module, Val, const, i64
from graphcell.dtype import DType
from graphcell.records import dataclass

_MOST_ROWS, _MOST_COLUMNS = 64, 96
"""Up to so many, and with the columns on the right, a call of LAPACK with what it takes to get there is slower: measured on Zen 3."""


@dataclass(frozen=True)
class EliminationKernel:
    """`wanted` of `matrices` square matrices: solve (for `sides` right sides each), inverse, determinant or slogdet (its sign, and the
    logarithm of its absolute value)."""

    wanted: str
    dtype: DType
    matrices: int
    rows: int
    sides: int = 0

    def __str__(self) -> str:
        sides = f", {self.sides} right sides" if self.sides else ""
        return f"elimination ({self.wanted}, {self.matrices} x {self.rows}x{self.rows} {self.dtype}{sides})"

    @property
    def right(self) -> int:
        """Columns on the right."""
        return self.rows if self.wanted == "inverse" else self.sides

    @property
    def may_fail(self) -> bool:
        """Whether a singular matrix has no result."""
        return self.wanted in ("solve", "inverse")

    @property
    def fits(self) -> bool:
        """Whether it is so small that this is quicker than LAPACK."""
        return 0 < self.rows <= _MOST_ROWS and self.rows + self.right <= _MOST_COLUMNS

    def blocks(self, target: Target) -> int:
        return self.matrices

    @property
    def cost(self) -> int:
        """In rough scalar instructions."""
        return self.matrices * self.rows * self.rows * (self.rows + self.right)


class _Elimination:
    def __init__(self, module: Module, name: str, kernel: EliminationKernel, target: Target):
        results = ("sign", "log") if kernel.wanted == "slogdet" else ("x",)
        names = ("a", *(["b"] if kernel.wanted == "solve" else []), *results, *(["singular"] if kernel.may_fail else []))
        self.b = BodyBuilder(module, name, [*((n, PTR) for n in names), ("begin", I64), ("end", I64)])
        self.kernel, self.stored, self.kind = kernel, LType(kernel.dtype.llvm), F64
        self.lanes = target.lanes("double")
        left, right = (-(-n // self.lanes) * self.lanes for n in (kernel.rows, kernel.right))
        self.first_right, self.width = left, left + right
        self.work = self.b.alloca(self.kind, kernel.rows * self.width)
        self.sign = self.b.alloca(self.kind)
        """1, or -1 after an odd number of exchanges."""

    def emit(self) -> str:
        b, n = self.b, self.kernel.rows
        with b.loop(b.args["begin"], b.args["end"], name="matrix") as matrix:
            self.fill(matrix.index)
            b.store(self.number(1.0), self.sign)
            with b.loop(0, n, name="pivot") as step:
                found, largest = self.pivot(step.index)
                with b.if_then(b.fcmp("une", largest, self.number(0.0))):  # else there is nothing to eliminate
                    self.exchange(step.index, found)
                    self.eliminate(step.index)
            if self.kernel.may_fail:
                with b.loop(0, n, name="back") as step:
                    self.substitute(b.sub(i64(n - 1), step.index))
                self.give(matrix.index)
            else:
                self.give_determinant(matrix.index)
        return b.finish()

    def number(self, value: float) -> Val:
        return const(value, self.kind)

    # -- places --------------------------------------------------------------------------------------------------------
    def at(self, row: Val, column: Val | int) -> Val:
        b = self.b
        column = i64(column) if isinstance(column, int) else column
        return b.gep(self.work, b.add(b.mul(row, i64(self.width)), column), self.kind)

    @contextmanager
    def chunks(self, first: Val | int) -> Iterator[Val]:
        """For each vector of columns from that of column `first` on: where it begins."""
        b = self.b
        begin = first if isinstance(first, int) else b.mul(b.div(first, i64(self.lanes), signed=False), i64(self.lanes))
        with b.loop(begin, self.width, self.lanes, name="columns") as columns:
            yield columns.index

    def load(self, place: Val) -> Val:
        return self.b.load(place, self.kind.with_lanes(self.lanes))

    def copy(self, source: str, matrix: Val, columns: int, first: int) -> None:
        """Brings a matrix into the work space."""
        b, n = self.b, self.kernel.rows
        base = b.gep(b.args[source], b.mul(matrix, i64(n * columns)), self.stored)
        with b.loop(0, n, name="row") as row, b.loop(0, columns, name="column") as column:
            value = b.load(b.gep(base, b.add(b.mul(row.index, i64(columns)), column.index), self.stored), self.stored)
            b.store(b.cast(value, self.kind), b.gep(self.at(row.index, first), column.index, self.kind))

    # -- steps ---------------------------------------------------------------------------------------------------------
    def fill(self, matrix: Val) -> None:
        b, k = self.b, self.kernel
        with b.loop(0, k.rows * self.width, self.lanes, name="clear") as clear:
            b.store(const(0.0, self.kind.with_lanes(self.lanes)), b.gep(self.work, clear.index, self.kind))
        self.copy("a", matrix, k.rows, 0)
        if k.wanted == "solve":
            self.copy("b", matrix, k.sides, self.first_right)
        elif k.wanted == "inverse":
            with b.loop(0, k.rows, name="one") as row:
                b.store(self.number(1.0), b.gep(self.at(row.index, self.first_right), row.index, self.kind))

    def pivot(self, step: Val) -> tuple[Val, Val]:
        """The row, from `step` on, with the largest element in that column, and its absolute value."""
        b = self.b
        largest = b.unary("fabs", b.load(self.at(step, step), self.kind))
        with b.loop(b.add(step, i64(1)), self.kernel.rows, carried=(step, largest), name="search") as rows:
            found, best = rows.carried
            here = b.unary("fabs", b.load(self.at(rows.index, step), self.kind))
            larger = b.fcmp("ogt", here, best)
            rows.carry(b.select(larger, rows.index, found), b.select(larger, here, best))
        found, largest = rows.results
        if self.kernel.may_fail:
            with b.if_then(b.fcmp("oeq", largest, self.number(0.0))):
                b.store(const(1, I32), b.args["singular"])
        return found, largest

    def exchange(self, row: Val, other: Val) -> None:
        b = self.b
        with b.if_then(b.icmp("ne", row, other)):
            b.store(b.neg(b.load(self.sign, self.kind)), self.sign)
            with self.chunks(0) as column:
                places = self.at(row, column), self.at(other, column)
                x, y = map(self.load, places)
                b.store(y, places[0])
                b.store(x, places[1])

    def subtract(self, row: Val, factor: Val, other: Val, first: Val | int) -> None:
        """row - factor * other, from the vector of column `first` on."""
        b = self.b
        wide = b.splat(factor, self.lanes)
        with self.chunks(first) as column:
            place = self.at(row, column)
            b.store(b.sub(self.load(place), b.mul(wide, self.load(self.at(other, column)))), place)

    def eliminate(self, step: Val) -> None:
        b = self.b
        pivot = b.load(self.at(step, step), self.kind)
        with b.loop(b.add(step, i64(1)), self.kernel.rows, name="eliminate") as rows:
            self.subtract(rows.index, b.div(b.load(self.at(rows.index, step), self.kind), pivot), step, step)

    def substitute(self, row: Val) -> None:
        b = self.b
        with b.loop(b.add(row, i64(1)), self.kernel.rows, name="known") as rows:
            self.subtract(row, b.load(self.at(row, rows.index), self.kind), rows.index, self.first_right)
        pivot = b.splat(b.load(self.at(row, row), self.kind), self.lanes)
        with self.chunks(self.first_right) as column:
            b.store(b.div(self.load(self.at(row, column)), pivot), self.at(row, column))

    def give_determinant(self, matrix: Val) -> None:
        """The product of the pivots, or their signs' product and the sum of their logarithms. One that is 0 decides, as by LAPACK, even
        beside one that is not finite."""
        b, zero, one = self.b, self.number(0.0), self.number(1.0)
        begin = (b.load(self.sign, self.kind), zero, one)
        with b.loop(0, self.kernel.rows, carried=begin, name="product") as rows:
            product, log, regular = rows.carried
            pivot = b.load(self.at(rows.index, rows.index), self.kind)
            regular = b.select(b.fcmp("oeq", pivot, zero), zero, regular)
            if self.kernel.wanted == "slogdet":
                log = b.add(log, b.log(b.unary("fabs", pivot)))
                pivot = b.select(b.fcmp("olt", pivot, zero), self.number(-1.0), one)
            rows.carry(b.mul(product, pivot), log, regular)
        product, log, regular = rows.results
        singular = b.fcmp("oeq", regular, zero)
        results = {"sign": (product, 0.0), "log": (log, -math.inf)} if self.kernel.wanted == "slogdet" else {"x": (product, 0.0)}
        for name, (value, otherwise) in results.items():
            value = b.select(singular, self.number(otherwise), value)
            b.store(b.cast(value, self.stored), b.gep(b.args[name], matrix, self.stored))

    def give(self, matrix: Val) -> None:
        b, k = self.b, self.kernel
        base = b.gep(b.args["x"], b.mul(matrix, i64(k.rows * k.right)), self.stored)
        with b.loop(0, k.rows, name="row") as row, b.loop(0, k.right, name="column") as column:
            value = b.load(b.gep(self.at(row.index, self.first_right), column.index, self.kind), self.kind)
            b.store(b.cast(value, self.stored), b.gep(base, b.add(b.mul(row.index, i64(k.right)), column.index), self.stored))


def emit_elimination(module: Module, name: str, kernel: EliminationKernel, target: Target) -> str:
    """Adds the function of `kernel` to `module`; returns its name."""
    return _Elimination(module, name, kernel, target).emit()
