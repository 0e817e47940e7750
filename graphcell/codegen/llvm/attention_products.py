"""What the attention kernels are made of: their description, packed panels, and products of known size on them.

Enters: an `AttentionSpec`. Leaves: internal functions of the module. A `Product` is C[m, n] (+)= A[m, k] . B[k, n], where A and C are
read and written with constant strides and B was packed into panels; it is cut into the register tiles of microkernel.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field, replace

from graphcell.codegen.llvm.contraction import (
    LINE_BYTES,
    Columns,
    ContractionTarget,
    Segment,
    TileShape,
    affine,
    choose_tile,
    round_up,
    split_columns,
    split_evenly,
    split_index,
    tile_loop,
)
from graphcell.codegen.llvm.dot_kernel import DotKernel, dot_tiles, emit_dot
from graphcell.codegen.llvm.matmul_spec import Operand
from graphcell.codegen.llvm.microkernel import Level, MicroKernel, call_micro, emit_micro
from graphcell.codegen.llvm.packing import displaced, emit_pack_panel, load_strided, prefetch, zeros
from graphcell.codegen.llvm.text import I64, PTR, VOID, FunctionBuilder, LType, Module, Val, const, constant_mask, i64
from graphcell.records import dataclass

_FEW_TILES = 5  # of rows, up to which it is quicker to read a right operand in each of them where it lies than to pack it first
UNROLLED_VECTORS = 16  # of a row of scores, up to which the loop over it is unrolled
INFINITY = math.inf
@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """softmax(scale * q @ k^T, masked) @ v for `batch` pairs of (m, d), (n, d) and (n, e) matrices.

    `out` lies in memory like q but with e columns; its column stride is 1. A mask of kind i1 keeps scores where it is on and makes the
    others `fill`; another one is added. Weights where `keep` (of kind i1) is on are multiplied by `dropout`, the others are 0. Strides are
    in elements. `powers` is where exp(score - largest) of all scores is kept, if it is; forward with unit column stride.
    """

    m: int
    n: int
    d: int
    e: int
    batch: tuple[int, ...]
    scale: float
    q: Operand
    k: Operand
    v: Operand
    out: Operand
    mask: Operand | None = None
    fill: float = 0.0
    keep: Operand | None = None
    dropout: float = 0.0
    powers: Operand | None = None

    @property
    def masks(self) -> dict[str, Operand]:
        """The masks there are, in the order of the operands."""
        return {n: operand for n, operand in (("mask", self.mask), ("keep", self.keep)) if operand is not None}

    @property
    def kind(self) -> str:
        """The kind that scores are computed in."""
        return "double" if self.q.kind == "double" else "float"

    @property
    def size(self) -> int:
        """Bytes of one score."""
        return LType(self.kind).bytes

    @property
    def blocks(self) -> int:
        return math.prod(self.batch)

    @property
    def folds_scale(self) -> bool:
        """Whether the largest score is known before scaling, so that scores are scaled in the argument of the exponential."""
        return self.mask is None and 0 < self.scale < INFINITY


@dataclass(frozen=True, slots=True)
class Panels:
    """How a [depth, columns] matrix is packed: a panel for each column tile. With `lies` it is not packed: products read that where it lies."""

    depth: int
    columns: int
    tile: TileShape
    lies: Operand | None = None

    @property
    def segments(self) -> tuple[tuple[Segment, Columns], ...]:
        return split_columns(self.columns, self.tile)

    @property
    def room(self) -> int:
        """Reduction steps that a panel has room for."""
        return round_up(self.depth, self.tile.lanes)

    @property
    def elements(self) -> int:
        return 0 if self.lies is not None else sum(s.tiles * c.padded for s, c in self.segments) * self.room


@dataclass(frozen=True, slots=True)
class Seen:
    """What of a product counts, as run time tells.

    Of `"columns"` of the right operand, or of the `"depth"`, the first `seen`, a parameter; the depth is a multiple of `multiple`. Of the depth of each
    of the `"rows"`: from the first of `starts` on for which the number in the array `seen` is larger than the row; all before it is zeros.
    """

    of: str
    multiple: int = 1
    starts: tuple[int, ...] = ()

    @property
    def parameter(self) -> tuple[str, LType]:
        return "seen", PTR if self.of == "rows" else I64

    def steps(self, b: FunctionBuilder, row: Val, depth: int) -> tuple[Val, Val]:
        """The first reduction step that counts for the rows from `row` on, and how many do."""
        if self.of == "depth":
            return i64(0), b.args["seen"]
        first = i64(depth)
        for k, start in reversed(list(enumerate(self.starts))):
            counts = b.icmp("sgt", b.load(b.gep(b.args["seen"], k, I64), I64), row)
            first = b.select(counts, i64(start), first)
        return first, b.sub(i64(depth), first)


@dataclass
class Parts:
    """Emits the functions of one attention, each once."""

    module: Module
    name: str
    kind: str
    target: ContractionTarget
    made: dict[object, str] = field(default_factory=dict)
    tiles: dict[tuple[int, int], TileShape] = field(default_factory=dict)

    def fresh(self, key: object, what: str) -> tuple[str, bool]:
        """A name for what `key` describes, and whether it is to be emitted."""
        known = key in self.made
        return self.made.setdefault(key, f"{self.name}.{what}{len(self.made)}"), not known

    def panels(self, depth: int, columns: int, rows: int) -> Panels:
        """The panels of a right operand against `rows` rows."""
        if (rows, columns) not in self.tiles:
            self.tiles[rows, columns] = choose_tile(rows, columns, self.kind, self.target)
        return Panels(depth, columns, self.tiles[rows, columns])

    def right(self, depth: int, columns: int, rows: int, left: Operand, source: Operand, resumes: bool) -> Panels:
        """The panels of the right operand `source` of the left one `left`; few rows read it where it lies, if its steps allow that: sums along it do not
        resume."""
        panels = self.panels(depth, columns, rows)
        if source.column == 1:
            tiles = split_evenly(rows, panels.tile.rows)
        elif source.row == 1 and left.column == 1 and not resumes:
            tiles, _ = dot_tiles(rows, columns, self.kind, self.target)
        else:
            return panels
        return replace(panels, lies=source) if sum(t.tiles for t in tiles) <= _FEW_TILES else panels

    def pack(self, panels: Panels, source: Operand, seen: Seen | None = None) -> str:
        """`void f(ptr source, ptr panels[, i64 seen])` for a matrix with steps `source.row` along depth and `source.column` along columns."""
        name, new = self.fresh((panels, source.kind, source.row, source.column, seen), "pack")
        if not new:
            return name
        parts = []
        whole = panels.depth % panels.tile.lanes == 0
        for columns in (c for _, c in panels.segments):
            key = ("panel", columns, source.kind, source.row, source.column, whole)
            part, first = self.fresh(key, "panel")
            if first:
                emit_pack_panel(self.module, part, columns, source.row, source.column, source.kind, self.kind, whole)
            parts.append(part)
        params = [("source", PTR), ("panels", PTR), *([] if seen is None else [seen.parameter])]
        b = FunctionBuilder(self.module, name, params, attributes="nounwind noinline")
        few, depth = seen is not None and seen.of == "columns", i64(panels.depth) if seen is None or seen.of == "columns" else b.args["seen"]
        for part, (segment, _) in zip(parts, panels.segments, strict=True):
            with tile_loop(b, segment, i64(0), _tiles(b, segment, panels.tile.columns, few), "panel") as (_, column):
                at = b.gep(b.args["source"], affine(b, [(column, source.column)]), LType(source.kind))
                b.call(part, VOID, at, b.gep(b.args["panels"], affine(b, [(column, panels.room)]), LType(self.kind)), depth)
        b.finish()
        return name

    def product(self, m: int, panels: Panels, a: Operand, c: Operand, resumes: bool, seen: Seen | None = None) -> str:
        """`void f(ptr a, ptr panels, ptr c[, i64 resume][, seen])`: C = A . B, or C += A . B where `resume` is 1."""
        name, new = self.fresh((m, panels, a.kind, a.row, a.column, c.kind, c.row, resumes, seen), "product")
        if not new:
            return name
        params = [("a", PTR), ("panels", PTR), ("c", PTR), *([("resume", I64)] if resumes else []), *([] if seen is None else [seen.parameter])]
        b = FunctionBuilder(self.module, name, params, attributes="nounwind noinline")
        few = seen is not None and seen.of == "columns"
        if panels.lies is not None and panels.lies.column != 1:
            assert not resumes and (seen is None or few)
            self._dots(b, m, panels.depth, panels.columns, a, panels.lies, c, few)
            return b.finish()
        step = 1 if panels.lies is not None else panels.room
        right = LType(self.kind if panels.lies is None else panels.lies.kind)
        for segment, columns in panels.segments:
            with tile_loop(b, segment, i64(0), _tiles(b, segment, panels.tile.columns, few), "panel") as (_, column):
                panel = b.gep(b.args["panels"], affine(b, [(column, step)]), right)
                to = b.gep(b.args["c"], column, LType(c.kind))
                self._rows(b, m, panels, columns, a, c, resumes, panel, to, None if few else seen)
        return b.finish()

    def _rows(
        self, b: FunctionBuilder, m: int, panels: Panels, columns: Columns, a: Operand, c: Operand, resumes: bool, panel: Val, to: Val, seen: Seen | None
    ) -> None:
        lies = panels.lies
        step = columns.padded if lies is None else lies.row
        b_kind = self.kind if lies is None else lies.kind
        level = Level(panels.depth, a.column, step) if seen is None else Level("depth", a.column, step, seen.multiple)
        for rows in split_evenly(m, panels.tile.rows):
            steps = range(rows.size)
            offsets = tuple(a.row * s for s in steps), tuple(c.row * s for s in steps)
            kernel = MicroKernel(self.kind, columns, *offsets, tuple(steps), (level,), a.kind, b_kind, c.kind, b_packed=lies is None, resumes=resumes)
            micro, new = self.fresh(kernel, "micro")
            if new:
                emit_micro(self.module, micro, kernel, None, ())
            with tile_loop(b, rows, i64(0), i64(rows.first + rows.tiles), "rows") as (_, row):
                first, depth = (i64(0), i64(panels.depth)) if seen is None else seen.steps(b, row, panels.depth)
                left = b.gep(b.args["a"], affine(b, [(row, a.row), (first, a.column)]), LType(a.kind))
                right = b.gep(panel, affine(b, [(first, step)]), LType(b_kind))
                target = b.gep(to, affine(b, [(row, c.row)]), LType(c.kind))
                resume, last = (b.args["resume"], i64(1)) if resumes else (None, None)
                counts = {"depth": depth}
                call_micro(b, micro, kernel, left, right, target, counts=counts, resume=resume, last=last, row=i64(0), column=i64(0), extra=())

    def _dots(self, b: FunctionBuilder, m: int, k: int, n: int, a: Operand, right: Operand, c: Operand, few: bool) -> None:
        """A product whose operands are both contiguous along the reduction."""
        row_tiles, column_tiles = dot_tiles(m, n, self.kind, self.target)
        for columns in column_tiles:
            with tile_loop(b, columns, i64(0), _tiles(b, columns, column_tiles[-1].size, few), "columns") as (_, column):
                for rows in row_tiles:
                    lanes = self.target.lanes(self.kind)
                    kernel = DotKernel(self.kind, lanes, rows.size, columns.size, k, a.row, right.column, c.row, a.kind, right.kind, c.kind)
                    dot, new = self.fresh(kernel, "dot")
                    if new:
                        emit_dot(self.module, dot, kernel, None, ())
                    with tile_loop(b, rows, i64(0), i64(rows.first + rows.tiles), "rows") as (_, row):
                        left = b.gep(b.args["a"], affine(b, [(row, a.row)]), LType(a.kind))
                        at = b.gep(b.args["panels"], affine(b, [(column, right.column)]), LType(right.kind))
                        to = b.gep(b.args["c"], affine(b, [(row, c.row), (column, 1)]), LType(c.kind))
                        b.call(dot, VOID, left, at, to, i64(0), i64(0))


def _tiles(b: FunctionBuilder, segment: Segment, size: int, few: bool) -> Val:
    """The number of the first tile after those of `segment` that count, where tiles have at least `size` columns: with `few`, these hold the first `seen`."""
    past = i64(segment.first + segment.tiles)
    return b.binary("smin", past, b.div(b.add(b.args["seen"], i64(size - 1)), i64(size), signed=False)) if few else past


def batch_offset(b: FunctionBuilder, batch: list[Val], operand: Operand) -> Val:
    return affine(b, list(zip(batch, operand.batch, strict=True)))


def at_row(b: FunctionBuilder, pointer: Val, row: Val | int, operand: Operand) -> Val:
    row = i64(row) if isinstance(row, int) else row
    return b.gep(pointer, affine(b, [(row, operand.row)]), LType(operand.kind))


def split_batch(b: FunctionBuilder, index: Val, spec: AttentionSpec, inner: int) -> tuple[list[Val], Val]:
    """The batch coordinates of a block and its place among the `inner` blocks of one batch entry."""
    *batch, within = split_index(b, index, (*spec.batch, inner))
    return batch, within


@dataclass(frozen=True)
class Row:
    """A row of `count` scores in scratch memory, as vectors; the last one may be partly in use. Of these, as run time tells, the first `seen`, a multiple
    of two vectors."""

    count: int
    lanes: int
    seen: Val | None = None

    @property
    def vectors(self) -> int:
        return -(-self.count // self.lanes)

    @property
    def tail(self) -> Val | None:
        """The lanes of the last vector in use, None for all."""
        rest = self.count % self.lanes
        return constant_mask(rest, self.lanes) if rest else None


def ask_for_row(b: FunctionBuilder, pointer: Val, index: Val, operand: Operand, columns: int) -> None:
    """Asks for the cache lines of a row of a matrix that is needed later; where columns are apart, for no more than the first."""
    size = LType(operand.kind).bytes
    row = displaced(b, pointer, b.mul(index, i64(operand.row)), LType(operand.kind))
    for first in range(0, columns if operand.column == 1 else 1, max(1, LINE_BYTES // size)):
        prefetch(b, displaced(b, row, first, LType(operand.kind)))


def load_mask(b: FunctionBuilder, mask: Operand, at: Val, lanes: int, tail: Val | None) -> Val:
    """Lanes of a mask of kind i1."""
    return load_strided(b, at, mask.column, "i1", "i1", lanes, tail)


def masked_score(b: FunctionBuilder, spec: AttentionSpec, score: Val, at: Val | None, mask: Val | None) -> tuple[Val, Val | None]:
    """A vector of scores scaled and masked, and where the mask keeps them (None: everywhere). `at` points to the mask."""
    scaled = b.mul(score, b.const(spec.scale, score))
    if spec.mask is None or at is None:
        return scaled, None
    held = load_strided(b, at, spec.mask.column, spec.mask.kind, spec.kind, score.type.lanes, mask)
    if spec.mask.kind == "i1":
        return b.select(held, scaled, b.const(spec.fill, score)), held
    return b.add(scaled, held), None


def kept_weights(b: FunctionBuilder, spec: AttentionSpec, x: Val, at: Val, tail: Val | None, factor: float | None) -> Val:
    """A vector of weights after dropout; `at` points to the row of the mask of kept ones there. Without `factor` these stay as they are."""
    assert spec.keep is not None
    held = load_strided(b, at, spec.keep.column, "i1", spec.kind, x.type.lanes, tail)
    return b.select(held, x if factor is None else b.mul(x, b.const(factor, x)), const(0, x.type))


def at_column(b: FunctionBuilder, row: Val, column: Val, operand: Operand) -> Val:
    return b.gep(row, affine(b, [(column, operand.column)]), LType(operand.kind))


def largest(b: FunctionBuilder, x: Val, y: Val) -> Val:
    """The larger one of two that are not NaN."""
    return b.select(b.fcmp("ogt", x, y), x, y)


def largest_lane(b: FunctionBuilder, x: Val) -> Val:
    while x.type.lanes > 1:
        half = x.type.lanes // 2
        x = largest(b, b.shuffle(x, x, range(half)), b.shuffle(x, x, range(half, 2 * half)))
    return b.extract(x, 0)


Step = Callable[[Val, "Val | None", Val], Val]


def over_row(b: FunctionBuilder, row: Row, start: list[Val], step: Step, join: Callable[[FunctionBuilder, Val, Val], Val]) -> list[Val]:
    """`value = step(element, mask, value)` for the vectors of a row, dealt out in turn to as many values as `start` has, which `join`
    then makes one. Short rows are unrolled."""
    lanes, tail = row.lanes, None if row.seen is not None else row.tail
    full = row.vectors - (tail is not None)
    values = list(start)
    if row.seen is not None:
        with b.loop(0, row.seen, len(start) * lanes, carried=values, name="scores") as loop:
            loop.carry(*(step(b.add(loop.index, i64(w * lanes)), None, loop.carried[w]) for w in range(len(start))))
        values = list(loop.results)
    elif row.vectors <= UNROLLED_VECTORS:
        for v in range(full):
            values[v % len(values)] = step(i64(v * lanes), None, values[v % len(values)])
    else:
        ways = 4 if full % 4 == 0 else len(values)
        turns = full // ways * ways
        values = [start[k % len(start)] for k in range(ways)]
        with b.loop(0, turns * lanes, ways * lanes, carried=values, name="scores", at_least_once=True) as loop:
            loop.carry(*(step(b.add(loop.index, i64(w * lanes)), None, loop.carried[w]) for w in range(ways)))
        values = list(loop.results)
        for v in range(turns, full):
            values[v % ways] = step(i64(v * lanes), None, values[v % ways])
    if tail is not None:
        values[full % len(values)] = step(i64(full * lanes), tail, values[full % len(values)])
    while len(values) > 1:
        values = [join(b, x, y) for x, y in zip(values[::2], values[1::2], strict=True)]
    return values


def over_seen(b: FunctionBuilder, row: Row, seen: list[Val], each: Callable[[Row], None]) -> None:
    """Emits `each(row)` for as many scores of a row as `seen` says, if it says so; where the row is no multiple of two vectors, all of it is another case."""
    if not seen:
        each(row)
    elif row.count % (2 * row.lanes) == 0:
        each(replace(row, seen=seen[0]))
    else:
        whole = b.icmp("eq", seen[0], i64(row.count))
        b.if_else(whole, lambda: each(row), lambda: each(replace(row, seen=seen[0])))


def clear_after(b: FunctionBuilder, line: Val, row: Row, kind: str) -> None:
    """Zeros for the elements of a row that are not looked at."""
    assert row.seen is not None
    nothing, last = zeros(LType(kind, row.lanes)), row.count // row.lanes * row.lanes
    with b.loop(row.seen, i64(last), row.lanes, name="clear") as loop:
        b.store(nothing, b.gep(line, loop.index, LType(kind)))
    if row.tail is not None:
        b.masked_store(nothing, b.gep(line, last, LType(kind)), row.tail)
