"""The last stage of a contraction whose reduction was cut in parts: adds the partial results in order and
stores them.

Enters: a buffer `partial` of [splits][rows][columns] numbers of the accumulation kind. Leaves: the emitted
stage, in which the epilogue is applied. The order of the additions depends on the number of parts only, never
on threads.
"""

from __future__ import annotations

from collections.abc import Callable

from graphcell.codegen.llvm.contraction import Epilogue, Extra, KernelParams, Stage, ceil_div
from graphcell.codegen.llvm.packing import emit_transpose, load_as, store_finished
from graphcell.codegen.llvm.text import VOID, FunctionBuilder, LType, Module, Val, constant_mask, i64
from graphcell.records import dataclass

Locate = Callable[[FunctionBuilder, Val], tuple[Val, Val]]
"""(b, row) -> (element offset of the row in the output, batch index)."""


@dataclass(frozen=True, slots=True)
class PartialSum:
    """What is added: `splits` matrices of `rows` x `columns`, stored as `out_kind` in the buffer `output`."""

    rows: int
    columns: int
    splits: int
    kind: str
    out_kind: str
    lanes: int
    output: str

    @property
    def matrix(self) -> int:
        return self.rows * self.columns


def emit_row_sum(
    module: Module, name: str, spec: PartialSum, locate: Locate, epilogue: Epilogue | None, extra: Extra
) -> Stage:
    """Rows stay rows; a block is one of them."""
    params = KernelParams(("partial", spec.output), tuple(extra))
    b = FunctionBuilder(module, name, params.list, internal=False)
    with b.loop(b.args["begin"], b.args["end"], name="row") as loop:
        offset, batch = locate(b, loop.index)
        source = b.gep(b.args["partial"], b.mul(loop.index, i64(spec.columns)), LType(spec.kind))
        to = b.gep(b.args[spec.output], offset, LType(spec.out_kind))

        def piece(at: Val, mask: Val | None) -> None:
            total = _add_parts(b, spec, b.gep(source, at, LType(spec.kind)), mask)
            finished: Val | None = total
            if epilogue is not None:
                finished = epilogue(b, total, loop.index, at, mask, batch)
            store_finished(b, finished, b.gep(to, at, LType(spec.out_kind)), spec.out_kind, mask)

        full = spec.columns // spec.lanes * spec.lanes
        if full:
            with b.loop(0, full, spec.lanes, name="column", at_least_once=True) as column:
                piece(column.index, None)
        if spec.columns > full:
            piece(i64(full), constant_mask(spec.columns - full, spec.lanes))
    return Stage(
        b.finish(), params.buffers, tuple(n for n, _ in extra), spec.rows, spec.splits * spec.columns
    )


def emit_filter_sum(
    module: Module, name: str, spec: PartialSum, taps: int, epilogue: Epilogue | None, extra: Extra
) -> Stage:
    """From rows (tap, channel) and columns (filter) to the output [filter][channel][tap]; a block is a vector
    of filters.

    The epilogue sees the output as a matrix of `columns` rows (filters) and `rows` columns (channel * taps +
    tap).
    """
    params = KernelParams(("partial", spec.output), tuple(extra))
    b = FunctionBuilder(module, name, params.list, internal=False)
    lanes, channels = spec.lanes, spec.rows // taps

    transpose = emit_transpose(module, lanes, spec.kind, spec.kind)
    kind, vector = LType(spec.kind), LType(spec.kind, lanes)
    held, turned = b.alloca(kind, lanes * lanes), b.alloca(kind, lanes * lanes)

    def square(filters: Val, count: int, at: Val, width: int) -> None:
        """The sums of `count` filters at elements at .. at + width, transposed and stored."""
        mask = constant_mask(count, lanes) if count < lanes else None
        with b.loop(0, width, name="element", at_least_once=True) as r:
            element = b.add(at, r.index)
            tap, channel = b.rem(element, i64(taps), signed=False), b.div(element, i64(taps), signed=False)
            row = b.add(b.mul(tap, i64(channels)), channel)
            source = b.gep(b.gep(b.args["partial"], filters, kind), b.mul(row, i64(spec.columns)), kind)
            b.store(_add_parts(b, spec, source, mask), b.gep(held, b.mul(r.index, i64(lanes)), kind))
        b.call(transpose, VOID, held, i64(lanes), turned, i64(lanes))
        out_mask = constant_mask(width, lanes) if width < lanes else None
        with b.loop(0, count, name="filter", at_least_once=True) as f:
            value, row = (
                b.load(b.gep(turned, b.mul(f.index, i64(lanes)), kind), vector),
                b.add(filters, f.index),
            )
            finished: Val | None = value
            if epilogue is not None:
                finished = epilogue(b, value, row, at, out_mask, i64(0))
            to = b.gep(
                b.gep(b.args[spec.output], b.mul(row, i64(spec.rows)), LType(spec.out_kind)),
                at,
                LType(spec.out_kind),
            )
            store_finished(b, finished, to, spec.out_kind, out_mask)

    def filters(first: Val, count: int) -> None:
        full = spec.rows // lanes * lanes
        if full:
            with b.loop(0, full, lanes, name="element", at_least_once=True) as element:
                square(first, count, element.index, lanes)
        if spec.rows > full:
            square(first, count, i64(full), spec.rows - full)

    whole = spec.columns // lanes
    with b.loop(b.args["begin"], b.args["end"], name="filters") as loop:
        first = b.mul(loop.index, i64(lanes))
        if whole:
            with b.if_then(b.icmp("slt", loop.index, i64(whole))):
                filters(first, lanes)
        if spec.columns % lanes:
            with b.if_then(b.icmp("eq", loop.index, i64(whole))):
                filters(first, spec.columns % lanes)
    return Stage(
        b.finish(),
        params.buffers,
        tuple(n for n, _ in extra),
        ceil_div(spec.columns, lanes),
        spec.splits * spec.rows * lanes,
    )


def emit_weight_sum(
    module: Module, name: str, spec: PartialSum, layout: str, taps: int, epilogue: Epilogue | None, extra: Extra
) -> Stage:
    """The gradient of weights in their `layout` in memory ("OIHW" or "HWIO") from rows (tap, channel) and columns (filter)."""
    if layout == "OIHW":
        return emit_filter_sum(module, name, spec, taps, epilogue, extra)
    return emit_row_sum(module, name, spec, lambda b, row: (b.mul(row, i64(spec.columns)), i64(0)), epilogue, extra)


def _add_parts(b: FunctionBuilder, spec: PartialSum, at: Val, mask: Val | None) -> Val:
    """The sum over the parts, first to last, of the vector at `at` in the first part."""
    total = load_as(b, at, spec.kind, spec.kind, spec.lanes, mask)
    if spec.splits == 1:
        return total
    with b.loop(1, spec.splits, carried=[total], name="part", at_least_once=True) as loop:
        held = b.gep(at, b.mul(loop.index, i64(spec.matrix)), LType(spec.kind))
        loop.carry(b.add(loop.carried[0], load_as(b, held, spec.kind, spec.kind, spec.lanes, mask)))
    return loop.results[0]
