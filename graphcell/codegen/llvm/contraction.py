"""What the native contractions (matmul and the convolutions) have in common: plans, tile shapes, the loops
over tiles.

Enters: extents that are known at compile time and a description of the machine. Leaves: `Plan`, the printable
account of the functions that were emitted, which buffers they take and how much scratch memory they need;
`choose_tile` and `split_evenly`, which decide how an output is cut into register tiles; `tile_loops`, which
emits the loops over a range of tiles. Refuses: element kinds that are no floats (`TypeError`) and negative
extents (`ValueError`), with a message for a developer: users' shapes are checked long before.

The emitted functions are `void f(ptr buffer..., extra..., i64 begin, i64 end)`. They work on blocks `begin <=
block < end`; blocks of one stage write disjoint memory and never read what another block of the same stage
writes, so any split over threads gives the same bits. Stages of a plan run in order, with a barrier between
them.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from typing import Protocol

from graphcell.codegen.llvm.processor import is_amd
from graphcell.codegen.llvm.text import FLOAT_KINDS, I64, FunctionBuilder, LType, Val, i64
from graphcell.records import dataclass

Epilogue = Callable[[FunctionBuilder, Val, Val, Val, "Val | None", Val], "Val | None"]
"""`epilogue(b, value, row, column, mask, batch) -> value`, called once on each finished vector of the output
before it is stored. It returns what is to be stored, or None if nothing is: then it stores itself what there is.

`value` is a vector of the accumulation kind that holds the columns `column, column + 1, ...` of the output
row `row`, where the output is seen as a matrix (each emitter says which). Lanes whose `mask` is off do not
exist: never load for them. `mask` is None when all lanes exist. `batch` is the linear batch index of a matmul
and 0 elsewhere. Extra pointers are found in `b.args` under the names given in `extra`. The result is
converted to the element kind of the output. Extra buffers must not overlap an output that the plan `resumes`;
elsewhere each element may be read before it is written over.
"""

Extra = Sequence[tuple[str, LType]]


class ContractionTarget(Protocol):
    """What a contraction has to know of the machine."""

    @property
    def triple(self) -> str: ...

    @property
    def cpu(self) -> str: ...

    @property
    def features(self) -> str: ...

    @property
    def vector_bytes(self) -> int: ...

    @property
    def l1_bytes(self) -> int: ...

    @property
    def l2_bytes(self) -> int: ...

    @property
    def l3_bytes(self) -> int: ...

    @property
    def flushes(self) -> bool: ...

    def lanes(self, kind: str) -> int:
        """Elements of `kind` in one vector register."""
        ...

    def __hash__(self) -> int: ...


FEWEST_PAIRED_STEPS = 16
"""Bfloats along the reduction dimension from which they are multiplied in pairs."""


def multiplies_pairs(target: ContractionTarget) -> bool:
    """Whether the machine has an instruction that multiplies and adds pairs of bfloats, and vectors of the length that it pays for. Intel's take twice as
    long for it as for a multiply-add of floats: measured on Granite Rapids, the product of two matrices takes 1.75 times as long.
    """
    return target.vector_bytes >= 64 and is_amd(target.cpu) and "+avx512bf16" in target.features.split(",")


def multiplies_tiles(target: ContractionTarget) -> bool:
    """Whether programs may use the machine's registers for tiles of matrices of bfloats (llvm/tile_registers.py)."""
    return {"+amx-tile", "+amx-bf16", "+avx512bw"} <= set(target.features.split(","))


def vector_registers(target: ContractionTarget) -> int:
    """AVX-512 and NEON have 32 vector registers, AVX2 and SSE 16."""
    return 32 if target.vector_bytes == 64 or target.triple.startswith(("aarch64", "arm64")) else 16


def has_few_ways(target: ContractionTarget) -> bool:
    """Whether rows that lie pages or half pages apart, and so share a few sets of the nearest cache, displace each other there: it has room for no more than
    eight of one set, and vectors are parts of cache lines, which are read in several steps. Measured on Zen 3, and taken to hold for AMD's processors with
    AVX2; Zen 4 with vectors of whole lines does not mind.
    """
    return is_amd(target.cpu) and target.l1_bytes <= _FEW_WAYS * PAGE_BYTES and target.vector_bytes < LINE_BYTES


@dataclass(frozen=True, slots=True)
class Stage:
    """One emitted function. `buffers` are its leading pointer parameters in order; the extra ones, begin and
    end follow.
    """

    function: str
    buffers: tuple[str, ...]
    extra: tuple[str, ...]
    blocks: int
    flops: int  # of one block, roughly
    by_each: bool = False  # whether each thread may as well run it for itself, if what it fills is small: to fetch what others have written takes as long

    def renamed(self, names: dict[str, str]) -> Stage:
        """The same stage with other names for its buffers."""
        return replace(self, buffers=tuple(names.get(n, n) for n in self.buffers))

    def __str__(self) -> str:
        names = ", ".join((*self.buffers, *self.extra))
        return f"{self.function}({names}): {self.blocks} blocks of {self.flops} flops"


@dataclass(frozen=True, slots=True)
class Plan:
    """The stages of a contraction and its scratch memory; every scratch buffer is aligned to 64 bytes.

    `shared` lists the buffers (name, bytes) which one stage fills for a later one and all threads see.
    `scratch_bytes` is the size of the buffer `scratch`, of which each thread has its own. `resumes` says that the output
    holds sums that are not finished between the passes over them. `first_rows`: of the output, for each block of the last stage of a
    team's product, if blocks are rows with all columns that follow each other. An empty output has no stages.
    """

    stages: tuple[Stage, ...]
    shared: tuple[tuple[str, int], ...] = ()
    scratch_bytes: int = 0
    note: str = ""
    resumes: bool = False
    first_rows: tuple[int, ...] = ()

    @property
    def flops(self) -> int:
        return sum(stage.blocks * stage.flops for stage in self.stages)

    def renamed(self, names: dict[str, str]) -> Plan:
        """The same plan with other names for its buffers."""
        return replace(self, stages=tuple(s.renamed(names) for s in self.stages))

    def __str__(self) -> str:
        shared = "".join(f"\n  shared {name}: {size} bytes" for name, size in self.shared)
        scratch = f"\n  scratch: {self.scratch_bytes} bytes a thread" if self.scratch_bytes else ""
        stages = "".join(f"\n  {stage}" for stage in self.stages)
        return f"plan [{self.note}]{stages}{shared}{scratch}"


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of `tiles` tiles of `size`; the first is tile number `first` and begins at element `start`."""

    first: int
    tiles: int
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class TileShape:
    """A register tile: `rows` scalars against `vectors` vectors of `lanes` lanes."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


@dataclass(frozen=True, slots=True)
class Columns:
    """A column tile: `vectors` vectors of which the last has `tail` lanes in use."""

    vectors: int
    tail: int
    lanes: int

    @property
    def padded(self) -> int:
        return self.vectors * self.lanes

    @property
    def used(self) -> int:
        return self.padded - self.lanes + self.tail

    def widths(self, kind: str) -> tuple[int, ...]:
        """The lanes that each vector is computed in: of the last one half as many where these do, if a vector is so long that processors join
        two units for it. Then that one takes half the time.
        """
        halved = 2 * self.tail <= self.lanes and self.lanes * LType(kind).bytes == LONG_VECTOR_BYTES
        return (*[self.lanes] * (self.vectors - 1), self.lanes // 2 if halved else self.lanes)

    def effort(self, kind: str) -> float:
        """Time of the vectors, in units of a whole one's."""
        return sum(self.widths(kind)) / self.lanes


LONG_VECTOR_BYTES = 64  # of a vector for which many processors join two units of half as many
PAGE_BYTES = 4096  # of memory; one way of the nearest cache
_FEW_WAYS = 8
LINE_BYTES = 64  # of a cache line; where they are longer, some are asked for twice
_RESERVED = frozenset(
    (
        "a",
        "b",
        "c",
        "x",
        "w",
        "y",
        "dx",
        "dw",
        "dy",
        "packed",
        "partial",
        "transformed",
        "cotangents",
        "products",
        "low",
        "high",
        "scratch",
        "begin",
        "end",
        "count",
        "resume",
        "last",
        "row",
        "column",
        "batch",
    )
)


def check_extra(what: str, extra: Extra) -> None:
    """Raises ValueError if an extra parameter has a name that the emitted functions use themselves."""
    taken = [name for name, _ in extra if name in _RESERVED]
    if taken:
        raise ValueError(f"{what}: reserved names for extra parameters: {', '.join(taken)}")


def ceil_div(x: int, y: int) -> int:
    return -(-x // y)


def round_up(x: int, multiple: int) -> int:
    return ceil_div(x, multiple) * multiple


def accumulation_kind(*kinds: str) -> str:
    """The kind in which products of these kinds are summed: double if one is double, else float."""
    for kind in kinds:
        if kind not in FLOAT_KINDS:
            raise TypeError(f"a contraction works on {', '.join(FLOAT_KINDS)}; got {kind}")
    return "double" if "double" in kinds else "float"


@functools.cache
def split_evenly(extent: int, size: int) -> tuple[Segment, ...]:
    """Cuts `extent` in as few tiles of at most `size` as possible, whose sizes differ by one at most (so two
    segments at most).
    """
    if extent <= 0:
        return ()
    tiles = ceil_div(extent, size)
    large = ceil_div(extent, tiles)
    count = extent - tiles * (large - 1)
    segments = (Segment(0, count, 0, large), Segment(count, tiles - count, count * large, large - 1))
    return tuple(s for s in segments if s.tiles)


def split_columns(columns: int, tile: TileShape) -> tuple[tuple[Segment, Columns], ...]:
    """Full column tiles first, then what is left of whole vectors and a masked one."""
    full = columns // tile.columns
    rest = columns - full * tile.columns
    segments = []
    if full:
        segments.append((Segment(0, full, 0, tile.columns), Columns(tile.vectors, tile.lanes, tile.lanes)))
    if rest:
        vectors = ceil_div(rest, tile.lanes)
        shape = Columns(vectors, rest - (vectors - 1) * tile.lanes, tile.lanes)
        segments.append((Segment(full, 1, full * tile.columns, shape.padded), shape))
    return tuple(segments)


class RegisterTiles:
    """The output of a contraction cut in register tiles: what every schedule says of it."""

    __slots__ = ()

    row_segments: tuple[Segment, ...]
    column_segments: tuple[tuple[Segment, Columns], ...]

    @property
    def row_tiles(self) -> int:
        return sum(s.tiles for s in self.row_segments)

    @property
    def column_tiles(self) -> int:
        return sum(s.tiles for s, _ in self.column_segments)

    @property
    def padded_columns(self) -> int:
        """Columns of all tiles, each in whole vectors."""
        segment, shape = self.column_segments[-1]
        return segment.start + segment.tiles * shape.padded


def lanes_for(columns: int, kind: str, target: ContractionTarget) -> int:
    """The vector width for an output of `columns` columns: no wider than the next power of two."""
    return min(target.lanes(kind), 1 << max(columns - 1, 0).bit_length())


def tile_cost(rows: int, vectors: float) -> float:
    """Relative time of one reduction step of a register tile: its multiply-adds, its loads, and the latency
    when it is small.
    """
    return max(rows * vectors + 0.08 * rows + 0.1 * vectors + 0.4, 4.5)


def choose_tile(
    rows: int, columns: int, kind: str, target: ContractionTarget, most_rows: int = 64, whole_lines: bool = False
) -> TileShape:
    """The register tile with the least estimated time for a `rows` x `columns` output, of at most `most_rows`
    rows. `whole_lines`: each of its rows is whole cache lines.
    """
    return choose_grid_tile((1, 1, rows), columns, kind, target, most_rows, whole_lines=whole_lines)[2]


@functools.cache
def choose_grid_tile(
    grid: tuple[int, int, int],
    columns: int,
    kind: str,
    target: ContractionTarget,
    most_rows: int = 64,
    heights: frozenset[int] | None = None,
    whole_lines: bool = False,
) -> tuple[float, tuple[int, int, int], TileShape]:
    """The register tile for an output of `columns` columns whose rows are a box (images, rows of pixels,
    pixels).

    Returns the estimated time of one reduction step of all tiles, the tile's extents in the box, and its
    shape. A tile spans images only if it has all their rows and pixels. `heights`: how many rows it may have, if not any number; the time is infinite if none
    fits. `whole_lines`: each of its rows is whole cache lines, unless one tile spans all columns.
    """
    lanes = lanes_for(columns, kind, target)
    all_vectors = ceil_div(columns, lanes)
    best, box, shape = math.inf, (1, 1, 1), TileShape(1, 1, lanes)
    for vectors in range(1, min(all_vectors, 8) + 1):
        if whole_lines and vectors < all_vectors and vectors * lanes * LType(kind).bytes % LINE_BYTES:
            continue
        limit = min(most_rows, (vector_registers(target) - 1 - vectors) // vectors)
        across = column_counts(columns, TileShape(1, vectors, lanes), kind)
        for extents in _boxes(grid, limit):
            if heights is not None and math.prod(extents) not in heights:
                continue
            parts = [split_evenly(extent, size) for extent, size in zip(grid, extents, strict=True)]
            cost = sum(
                tile_cost(s.size * t.size * u.size, v) * s.tiles * t.tiles * u.tiles * n
                for s in parts[0]
                for t in parts[1]
                for u in parts[2]
                for v, n in across
            )
            cost *= 1 + 0.001 * (math.prod(map(len, parts)) - 1)
            if cost < best - 1e-9:
                best, box, shape = cost, extents, TileShape(math.prod(extents), vectors, lanes)
    return best, box, shape


def column_counts(columns: int, tile: TileShape, kind: str) -> list[tuple[float, int]]:
    """(effort of a tile, number of such tiles) for the full column tiles and the rest."""
    return [(shape.effort(kind), segment.tiles) for segment, shape in split_columns(columns, tile)]


def _boxes(grid: tuple[int, int, int], limit: int) -> Iterator[tuple[int, int, int]]:
    """Boxes of at most `limit` points that `split_evenly` can produce."""

    def sizes(extent: int, most: int) -> Iterator[int]:
        return (
            size for size in range(1, min(extent, most) + 1) if split_evenly(extent, size)[0].size == size
        )

    for wide in sizes(grid[2], limit):
        for high in sizes(grid[1], limit // wide):
            if (high, wide) != grid[1:]:
                yield 1, high, wide
                continue
            yield from ((deep, high, wide) for deep in sizes(grid[0], limit // (wide * high)))


@contextlib.contextmanager
def tile_loop(
    b: FunctionBuilder, segment: Segment, low: Val, high: Val, name: str
) -> Iterator[tuple[Val, Val]]:
    """Loops over the tiles of `segment` within the tile range [low, high); yields (tile number, first
    element).
    """
    first, last = i64(segment.first), i64(segment.first + segment.tiles)
    start = low if segment.first == 0 else b.binary("smax", low, first)
    stop = b.binary("smin", high, last)
    with b.loop(start, stop, name=name) as loop:
        within = loop.index if segment.first == 0 else b.sub(loop.index, first)
        element = b.mul(within, i64(segment.size))
        yield loop.index, element if segment.start == 0 else b.add(element, i64(segment.start))


def split_index(b: FunctionBuilder, index: Val, extents: Sequence[int]) -> list[Val]:
    """The coordinates of a linear index in a box; the last varies fastest. An extent of one gives the constant 0."""
    coordinates: list[Val] = []
    first = next((d for d, n in enumerate(extents) if n > 1), len(extents))
    for d in reversed(range(len(extents))):
        if extents[d] == 1:
            coordinates.append(i64(0))
        elif d == first:
            coordinates.append(index)
        else:
            coordinates.append(b.rem(index, i64(extents[d]), signed=False))
            index = b.div(index, i64(extents[d]), signed=False)
    return coordinates[::-1]


def block_range(b: FunctionBuilder, block: Val, per_block: int, tiles: int) -> tuple[Val, Val]:
    """The tiles [low, high) of a block when each block takes `per_block` of `tiles`."""
    if per_block >= tiles:
        return i64(0), i64(tiles)
    low = b.mul(block, i64(per_block))
    return low, b.binary("smin", b.add(low, i64(per_block)), i64(tiles))


def even_range(b: FunctionBuilder, block: Val, per_block: int, tiles: int, past: Val | None = None) -> tuple[Val, Val]:
    """The tiles [low, high) of a block, or of that and all before block `past`: `tiles` dealt out evenly to as many blocks as `block_range` makes, so
    that equal numbers of blocks are equal work.
    """
    blocks = ceil_div(tiles, per_block)
    if blocks <= 1:
        return i64(0), i64(tiles)

    def start(number: Val) -> Val:  # rounded to nearest: the first half of the blocks gets as much as the second
        if tiles % blocks == 0:
            return b.mul(number, i64(tiles // blocks))
        return b.div(b.add(b.mul(number, i64(tiles)), i64(blocks // 2)), i64(blocks), signed=False)

    return start(block), start(b.add(block, i64(1)) if past is None else past)


def first_element(segments: Sequence[Segment], tile: int) -> int:
    """The first element of tile number `tile`, of those that `split_evenly` makes."""
    large = segments[0]
    return tile * large.size - max(0, tile - large.tiles)


def tile_start(b: FunctionBuilder, segments: Sequence[Segment], tile: Val) -> Val:
    """The first element of tile number `tile`; the number of tiles gives the extent."""
    large = segments[0]
    if len(segments) == 1:
        return affine(b, [(tile, large.size)])
    extra = b.binary("smin", tile, i64(large.tiles))
    return affine(b, [(tile, segments[1].size), (extra, large.size - segments[1].size)])


def affine(b: FunctionBuilder, terms: Sequence[tuple[Val, int]], base: int = 0) -> Val:
    """base + sum of value * factor, in i64; terms with factor 0 or value 0 vanish."""
    total: Val | None = None
    for value, factor in terms:
        if factor == 0 or value.text == "0":
            continue
        term = value if factor == 1 else b.mul(value, i64(factor))
        total = term if total is None else b.add(total, term)
    if total is None:
        return i64(base)
    return total if base == 0 else b.add(total, i64(base))


@dataclass(frozen=True, slots=True)
class KernelParams:
    """The parameters of an emitted stage: pointers, extra ones, and the block range."""

    buffers: tuple[str, ...]
    extra: tuple[tuple[str, LType], ...] = field(default=())

    @property
    def list(self) -> list[tuple[str, LType]]:
        return [*((name, LType("ptr")) for name in self.buffers), *self.extra, ("begin", I64), ("end", I64)]
