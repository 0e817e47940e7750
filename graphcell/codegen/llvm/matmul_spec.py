"""What a matmul of known shape computes: extents, and how its operands lie in memory.

Enters: extents, element kinds and strides. Leaves: a `MatmulSpec`, and the same product in other terms: of weights that are packed ahead, of pairs of bfloats,
of batch dimensions that are rows. Refuses: extents and strides that make no sense (`ValueError`) and kinds that are no floats (`TypeError`).
"""

from __future__ import annotations

import math
from dataclasses import replace

from graphcell.codegen.llvm.contraction import (
    FEWEST_PAIRED_STEPS,
    LINE_BYTES,
    PAGE_BYTES,
    ContractionTarget,
    TileShape,
    accumulation_kind,
    multiplies_pairs,
)
from graphcell.codegen.llvm.processor import is_amd
from graphcell.codegen.llvm.text import LType
from graphcell.records import dataclass

PAIR = "i32"
"""The element kind of two neighbouring bfloats."""
BLOCKS_WANTED = 16
_FLOPS_PER_BLOCK = 200_000  # below this a block is not worth handing to a thread
_TEAM_FLOPS, _TEAM_BLOCKS = 20_000, 4  # the same of a step that a team goes through, and how many blocks it has for the team's sake at most
_LONG_FOR_TEAM = 2_500_000  # operations of a product that no team goes through, about `LONG` of sharing.py
_LEAST_PREPARED, _LEAST_TURNED = 4096, 512  # elements of a B that is worth packing ahead, and of one that blocks of a team would each turn again
_MOST_IN_PLACE = 1 << 20  # elements of a B of which the TLB knows all pages that are read in turn
_ROWS_IN_PLACE = range(3, 13)  # of prepared weights: with fewer, reading B is all; with more, packing it ahead pays
_FEWEST_STEPS = 8  # of a transposed A for which the rest of its cache lines need not be waited for
_BUSY, _BUSY_AMD = 12, 16  # multiply-adds of a reduction step that hide a read of part of a line; a tile of fewer has its lines copied


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix in memory: element kind and strides in elements; `batch` has one stride per batch dimension (0: broadcast). `pair` is nonzero where a reduction
    step takes two elements at this distance. `past`: of an output that is written past the caches."""

    kind: str
    row: int
    column: int
    batch: tuple[int, ...] = ()
    pair: int = 0
    past: bool = False


@dataclass(frozen=True, slots=True)
class MatmulSpec:
    """C = A . B. `a` is seen as m x k, `b` as k x n, `c` as m x n with unit column stride, whatever their
    strides.

    `share_b` packs B once in a stage of its own into a buffer all threads read; that stage depends on `b`
    alone, so a caller with constant weights runs it once. It is refused (`ValueError`) when B varies over the
    batch. `mirrored` says that B is A transposed, the same numbers in the same memory: half of C is computed, the rest is copied. `for_team`: it may be a step
    of a loop that a team of threads goes through.
    """

    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    c: Operand
    batch: tuple[int, ...] = ()
    share_b: bool = False
    mirrored: bool = False
    for_team: bool = False

    def __post_init__(self) -> None:
        if min(self.m, self.n, self.k, *self.batch, 0) < 0:
            raise ValueError(f"matmul: negative extent in {self}")
        if any(len(o.batch) != len(self.batch) for o in (self.a, self.b, self.c)):
            raise ValueError(f"matmul: every operand needs {len(self.batch)} batch strides: {self}")
        if self.c.column != 1 and self.n > 1:
            raise ValueError(f"matmul: the output needs unit column stride: {self}")
        if self.share_b and any(self.b.batch):
            raise ValueError(f"matmul: share_b with an operand that varies over the batch: {self}")
        accumulation_kind(*(() if self.paired else (self.a.kind, self.b.kind)), self.c.kind)

    @property
    def paired(self) -> bool:
        """Whether a reduction step multiplies and adds two bfloats at once (see `in_pairs`)."""
        return self.packed_kind == PAIR

    @property
    def packed_kind(self) -> str:
        """The element kind of packed operands."""
        return PAIR if self.b.pair or self.b.kind == PAIR else accumulation_kind(self.a.kind, self.b.kind, self.c.kind)

    @property
    def kind(self) -> str:
        """The kind in which products are summed."""
        return "float" if self.paired else self.packed_kind

    @property
    def a_aliases(self) -> bool:
        """Whether A is read in steps of one or two pages, which all fall on a few lines of the nearer caches and which no processor foresees."""
        return self.a.row == 1 and self.m > 1 and self.a.column * LType(self.kind).bytes in (4096, 8192)

    @property
    def a_rows_alias(self) -> bool:
        """Whether the rows of an A that lies row by row are a multiple of half a page apart, and so share a few sets of the caches."""
        return self.m > 1 and self.a.row > 0 and self.a.column == 1 and self.a.row * LType(self.kind).bytes % (PAGE_BYTES // 2) == 0

    @property
    def b_aliases(self) -> bool:
        """Whether the rows of B lie a multiple of half a page apart, and so share a few sets of the caches."""
        return self.b.row * LType(self.b.kind).bytes % (PAGE_BYTES // 2) == 0

    def reads_lines_in_parts(self, tile: TileShape, target: ContractionTarget) -> bool:
        """Whether a transposed A is read where it lies, a part of a cache line in each reduction step: the tiles that follow find the rest in the
        L2 cache, and the line beyond is asked for. Measured on Zen 4: as fast as to copy it, or up to 40 % faster where the output is narrow;
        with the smaller tiles of AVX2 on Emerald Rapids 10 to 40 % faster.
        """
        size = LType(self.kind).bytes
        in_lines = self.a.row == 1 and self.m * size > LINE_BYTES and self.k > _FEWEST_STEPS and self.a.kind == self.kind and not self.paired
        return in_lines and tile.rows * tile.vectors >= (_BUSY_AMD if is_amd(target.cpu) else _BUSY)

    @property
    def flops(self) -> int:
        return 2 * math.prod(self.batch) * self.m * self.n * self.k

    @property
    def _effort(self) -> int:
        """Operations on float32 that take as long."""
        return self.flops * max(4, LType(self.kind).bytes) // 4

    @property
    def is_short_in_loop(self) -> bool:
        """Whether a team may go through it."""
        return self.for_team and self._effort < _LONG_FOR_TEAM

    @property
    def blocks_by_flops(self) -> int:
        """How many blocks are worth handing to threads."""
        most = _TEAM_BLOCKS if self.is_short_in_loop else BLOCKS_WANTED
        return min(most, max(1, self._effort // _FLOPS_PER_BLOCK))

    @property
    def blocks_wanted(self) -> int:
        """Into how many blocks it should be divided for threads, be they of a team."""
        return max(self.blocks_by_flops, min(_TEAM_BLOCKS, self._effort // _TEAM_FLOPS) if self.for_team else 1)


def dense_matmul(
    m: int,
    n: int,
    k: int,
    kind: str = "float",
    *,
    batch: tuple[int, ...] = (),
    transpose_a: bool = False,
    transpose_b: bool = False,
    a_batch: tuple[int, ...] | None = None,
    b_batch: tuple[int, ...] | None = None,
    share_b: bool = False,
) -> MatmulSpec:
    """The spec for contiguous operands; `a_batch` and `b_batch` are batch strides in matrices, row-major by
    default, 0 to broadcast.
    """
    natural = tuple(math.prod(batch[d + 1 :]) for d in range(len(batch)))
    a = Operand(kind, 1, m) if transpose_a else Operand(kind, k, 1)
    b = Operand(kind, 1, k) if transpose_b else Operand(kind, n, 1)
    return MatmulSpec(
        m,
        n,
        k,
        replace(a, batch=tuple(s * m * k for s in (natural if a_batch is None else a_batch))),
        replace(b, batch=tuple(s * k * n for s in (natural if b_batch is None else b_batch))),
        Operand(kind, n, 1, tuple(s * m * n for s in natural)),
        batch,
        share_b,
    )


def with_prepared_weights(spec: MatmulSpec) -> MatmulSpec:
    """The same product where B does not change from run to run: B is packed ahead, if that is of use.

    Small matrices are as quick in place, and so is a vector, and what a few rows meet in a matrix that lies row by row. In loops that does not hold of a
    small one that would be turned in each step.
    """
    varies = any(stride and extent > 1 for stride, extent in zip(spec.b.batch, spec.batch, strict=True))
    least = _LEAST_TURNED if spec.for_team and spec.b.column != 1 and spec.m >= _ROWS_IN_PLACE.start else _LEAST_PREPARED
    if varies or spec.n == 1 or spec.k * spec.n < least:
        return spec
    in_place = spec.b.column == 1 and spec.b.kind == spec.kind and spec.k * spec.n <= _MOST_IN_PLACE
    if in_place and math.prod(spec.batch) * spec.m in _ROWS_IN_PLACE:
        return spec
    return replace(spec, b=replace(spec.b, batch=(0,) * len(spec.batch)), share_b=True)


def in_pairs(spec: MatmulSpec, target: ContractionTarget) -> MatmulSpec:
    """The same product of bfloats with two reduction steps as one, where the machine has an instruction for it.

    It sums in float as the other kernels do, but takes subnormal numbers for zero. An operand whose reduction dimension is contiguous
    is read as words of two elements; of the other kind, two rows are interleaved while packing.
    """
    wanted = spec.a.kind == spec.b.kind == "bfloat" and spec.c.kind != "double" and multiplies_pairs(target)
    if not wanted or spec.k % 2 or spec.k < FEWEST_PAIRED_STEPS or spec.n < 4 or spec.m < 4:
        return spec
    a, b = _pairs(spec.a, spec.a.column, spec.a.row), _pairs(spec.b, spec.b.row, spec.b.column)
    if a is None or b is None:
        return spec
    return replace(spec, k=spec.k // 2, a=a, b=Operand(b.kind, b.column, b.row, b.batch, b.pair))


def _pairs(operand: Operand, along: int, across: int) -> Operand | None:
    """`operand` with pairs along the reduction dimension, as (row: across, column: along)."""
    if along == 1 and across % 2 == 0 and not any(s % 2 for s in operand.batch):
        return Operand(PAIR, across // 2, 1, tuple(s // 2 for s in operand.batch))
    return Operand("bfloat", 1, 2 * along, operand.batch, along) if across == 1 else None


def merge_batch(spec: MatmulSpec) -> MatmulSpec:
    """Batch dimensions over which B does not vary become rows, where strides allow."""
    while spec.batch:
        extent = spec.batch[-1]
        a, b, c = spec.a, spec.b, spec.c
        in_step = spec.m == 1 or (a.batch[-1] == spec.m * a.row and c.batch[-1] == spec.m * c.row)
        regular = extent == 1 or (in_step and b.batch[-1] == 0)
        if not regular:
            break
        a, b, c = (replace(o, batch=o.batch[:-1]) for o in (a, b, c))
        if spec.m == 1 and extent > 1:  # the row stride of a single row may be anything
            a, c = replace(a, row=spec.a.batch[-1]), replace(c, row=spec.c.batch[-1])
        spec = replace(spec, m=spec.m * extent, batch=spec.batch[:-1], a=a, b=b, c=c)
    return spec
