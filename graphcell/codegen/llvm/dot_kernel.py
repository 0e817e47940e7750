"""The micro-kernel of few rows or few columns: a tile of dot products.

Enters: a static description of the tile. Leaves: an internal function of the module. Both operands are
contiguous along the reduction, the lanes run along it and are summed at the end, in an order that depends on
the description only.
"""

from __future__ import annotations

from graphcell.codegen.llvm.contraction import ContractionTarget, Epilogue, Extra, Segment, split_evenly, vector_registers
from graphcell.codegen.llvm.microkernel import INLINE_BELOW, Accumulators, batch_of
from graphcell.codegen.llvm.packing import load_as, store_finished, sum_columns, zeros
from graphcell.codegen.llvm.text import I64, PTR, FunctionBuilder, LType, Module, Val, constant_mask, i64
from graphcell.records import dataclass


@dataclass(frozen=True, slots=True)
class DotKernel:
    """A tile of `rows` x `columns` dot products of length `k`, both operands contiguous along k.

    The result of a row is a vector of `padded` lanes (the next power of two), of which `columns` are stored.
    """

    kind: str
    lanes: int
    rows: int
    columns: int
    k: int
    a_row: int
    b_column: int
    c_row: int
    a_kind: str
    b_kind: str
    c_kind: str
    batch_rows: int = 0

    @property
    def padded(self) -> int:
        return 1 << (self.columns - 1).bit_length()


def dot_tiles(m: int, n: int, kind: str, target: ContractionTarget) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
    """Tiles of `m` rows and `n` columns, so that accumulators and the rows' vectors stay in registers."""
    registers = vector_registers(target)
    wide = min(target.lanes(kind), 8 if registers >= 32 else 4, 1 << (n - 1).bit_length())
    tall = max(1, min((registers - 2) // (wide + 1), 8))
    full = n // wide
    columns = [Segment(0, full, 0, wide)] if full else []
    if n > full * wide:
        columns.append(Segment(full, 1, full * wide, n - full * wide))
    return split_evenly(m, tall), tuple(columns)


def emit_dot(module: Module, name: str, kernel: DotKernel, epilogue: Epilogue | None, extra: Extra) -> str:
    """Emits `void name(ptr a, ptr b, ptr c, row, column, extra...)`; returns the name."""
    params = [("a", PTR), ("b", PTR), ("c", PTR), ("row", I64), ("column", I64), *extra]
    small = kernel.rows * kernel.columns * ((kernel.k + kernel.lanes - 1) // kernel.lanes) < INLINE_BELOW
    b = FunctionBuilder(module, name, params, attributes="nounwind" if small else "nounwind noinline")
    b.keep_numbers()
    vector = LType(kernel.kind, kernel.lanes)
    total = [zeros(vector)] * (kernel.rows * kernel.columns)
    full = kernel.k // kernel.lanes
    unroll = max(1, min(full, 24 // len(total)))
    if full:
        with b.loop(
            0,
            full // unroll * unroll * kernel.lanes,
            unroll * kernel.lanes,
            carried=total,
            name="k",
            at_least_once=True,
        ) as loop:
            partial = list(loop.carried)
            for u in range(unroll):
                _dot_step(
                    b, kernel, b.add(loop.index, i64(u * kernel.lanes)) if u else loop.index, None, partial
                )
            loop.carry(*partial)
        total = list(loop.results)
        for u in range(full // unroll * unroll, full):
            _dot_step(b, kernel, i64(u * kernel.lanes), None, total)
    if kernel.k % kernel.lanes:
        _dot_step(
            b, kernel, i64(full * kernel.lanes), constant_mask(kernel.k % kernel.lanes, kernel.lanes), total
        )
    for i in range(kernel.rows):
        _dot_finish(b, kernel, i, total[i * kernel.columns : (i + 1) * kernel.columns], epilogue)
    return b.finish()


def _dot_step(b: FunctionBuilder, kernel: DotKernel, at: Val, mask: Val | None, total: Accumulators) -> None:
    left = [
        load_as(
            b,
            b.gep(b.gep(b.args["a"], i * kernel.a_row, LType(kernel.a_kind)), at, LType(kernel.a_kind)),
            kernel.a_kind,
            kernel.kind,
            kernel.lanes,
            mask,
        )
        for i in range(kernel.rows)
    ]
    for j in range(kernel.columns):
        pointer = b.gep(
            b.gep(b.args["b"], j * kernel.b_column, LType(kernel.b_kind)), at, LType(kernel.b_kind)
        )
        right = load_as(b, pointer, kernel.b_kind, kernel.kind, kernel.lanes, mask)
        for i in range(kernel.rows):
            index = i * kernel.columns + j
            total[index] = b.fma(left[i], right, total[index])


def _dot_finish(
    b: FunctionBuilder, kernel: DotKernel, i: int, sums: list[Val], epilogue: Epilogue | None
) -> None:
    padding = [zeros(sums[0].type)] * (kernel.padded - kernel.columns)
    value = sum_columns(b, [*sums, *padding])
    mask = None if not padding else constant_mask(kernel.columns, kernel.padded)
    finished: Val | None = value
    if epilogue is not None:
        row = b.add(b.args["row"], i64(i)) if i else b.args["row"]
        finished = epilogue(b, value, row, b.args["column"], mask, batch_of(b, row, kernel.batch_rows))
    store_finished(b, finished, b.gep(b.args["c"], i * kernel.c_row, LType(kernel.c_kind)), kernel.c_kind, mask)
