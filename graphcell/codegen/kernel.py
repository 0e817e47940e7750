"""Kernels: what stands between the graph and LLVM IR, as plain data that can be printed, hashed and compared.

A `LoopKernel` is a fused loop nest. Its values are *locals*, numbered; each varies along some of the loops. Outer loops run over
independent *rows*; the inner loops are those that reductions run along (or, without reductions, the vector loop alone). A reduction
finishes within its row, so that what uses it follows in the same row, one *stage* later. Two kernels that are equal share one function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace

from graphcell.dtype import DType
from graphcell.ir.op import Op
from graphcell.ops.base import Elementwise, Reduction
from graphcell.passes.costs import DIVISIONS
from graphcell.records import dataclass

Strides = tuple[int, ...]

STREAMED_BYTES = 1 << 15
"""Partial sums of a block that are read and written with each row: they stay in the L1 cache, or next to it."""
RUN = 4096
"""Elements of a block of a kernel that has no outer loop."""
MIN_BLOCKS = 16
"""Blocks that suffice for threads to share."""
FEWEST_PARTS, POINTS_OF_ONE_BLOCK = 4, 1 << 15
"""Blocks that are some for threads to share, and points up to which one suffices."""
_BYTES_OF_SUMS, _SHORT = 1 << 14, 512
"""Of what rows of one block add to in turn, and points of rows that are read ahead only where they lie side by side."""
_KEPT_POINTS, _KEPT_INSTRUCTIONS = 16, 400
"""Points of a row that lies in the lanes up to which all of them are kept from stage to stage, and rough instructions of all of these, where that takes two
tiles. Measured on Zen 3: rows of 16 with four sines each take 1.7 times as long so, and those of 16 doubles, which are four tiles, 1.5 times as long.
"""
_MOST_INTERLEAVED, _STAGES_OF_INTERLEAVED = 3, 3
"""Points of a tile up to which shuffles of as many vectors in memory take fewer instructions than squares; and stages of a kernel with such tiles: with more,
several vectors side by side wait less for each other. Measured on Zen 3: three RMS norms of 8192 rows of 2 take 1.15 times as long by shuffles.
"""
_MOST_TURNS = 8
"""Elements of memory that lie between those of neighbouring lanes, which shuffles bring to several vectors or from them if all are read or written."""
_LONG_FUNCTIONS = ("sin", "cos", "tan", "pow")
"""From whose arguments to the result it is more than twice as long as for exp, tanh or log, of those that were measured."""


def is_tiled(strides: tuple[int, ...], vector: int, tile: int) -> bool:
    """True for an access that is contiguous along the tile loop, but not along the vector loop."""
    return strides[tile] == 1 and strides[vector] not in (0, 1)


def is_interleaved(strides: tuple[int, ...], vector: int, tile: int, extent: int) -> bool:
    """True for a tiled access of so few iterations of the tile loop, which has `extent`, that their vectors together are some whole ones in memory."""
    return is_tiled(strides, vector, tile) and strides[vector] == extent <= _MOST_INTERLEAVED


def _affine(strides: Strides, offset: int) -> str:
    terms = [f"{s}*i{d}" if s != 1 else f"i{d}" for d, s in enumerate(strides) if s]
    if offset or not terms:
        terms.append(str(offset))
    return " + ".join(terms)


@dataclass(frozen=True, slots=True)
class Access:
    """Element `offset + sum(strides[d] * index[d])` of an operand buffer; strides count elements, one a loop."""

    operand: int
    strides: tuple[int, ...]
    offset: int = 0

    def __str__(self) -> str:
        return f"%{self.operand}[{_affine(self.strides, self.offset)}]"


@dataclass(frozen=True, slots=True)
class GatherLoad:
    """Reads one element at places that locals decide: `access` plus, for each index local, `steps[k]` times its place.

    An index i into `extents[k]` stands for the place `clamp(i < 0 ? i + extent : i, 0, extent - 1)`. The statement's args are the
    indices.
    """

    access: Access
    steps: tuple[int, ...]
    extents: tuple[int, ...]
    dtype: DType

    def __str__(self) -> str:
        return f"gather {self.access} + {' + '.join(f'{s}*place' for s in self.steps)}"


@dataclass(frozen=True, slots=True)
class Splat:
    """A number known while compiling."""

    value: bool | int | float
    dtype: DType

    def __str__(self) -> str:
        return f"splat {self.value!r}"

    def __hash__(self) -> int:
        return hash((repr(self.value), self.dtype))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Splat) and (repr(self.value), self.dtype) == (repr(other.value), other.dtype)


@dataclass(frozen=True, slots=True)
class Index:
    """A position: `offset + sum(strides[d] * index[d])`, as a number."""

    strides: tuple[int, ...]
    dtype: DType
    offset: int = 0

    def __str__(self) -> str:
        terms = [f"{s}*i{d}" for d, s in enumerate(self.strides) if s]
        return f"index {' + '.join([*terms, *([str(self.offset)] if self.offset or not terms else [])])}"


@dataclass(frozen=True, slots=True)
class MulAdd:
    """x * y + z, or z - x * y if `negated`, rounded once."""

    negated: bool

    def __str__(self) -> str:
        return "minus_mul_add" if self.negated else "mul_add"


@dataclass(frozen=True, slots=True)
class Inverse:
    """What takes the place of a divisor (quotients.py): the `scale` that brings it near 1; with it there, the float `below` its inverse; what that lacks,
    the `rest`, of the two."""

    part: str

    def __str__(self) -> str:
        return f"inverse_{self.part}"


@dataclass(frozen=True, slots=True)
class Guard:
    """True where `0 <= offset + sum(strides[d] * index[d]) < extent`; strides one a loop (in layout.py: one a dimension)."""

    strides: Strides
    offset: int
    extent: int

    def __str__(self) -> str:
        return f"{_affine(self.strides, self.offset)} < {self.extent}"


@dataclass(frozen=True, slots=True)
class Load:
    """Reads one element; where a guard is false it reads nothing and stands for the number `outside`."""

    access: Access
    dtype: DType
    guards: tuple[Guard, ...] = ()
    outside: Splat | None = None

    def __str__(self) -> str:
        outside = [f"else {self.outside.value!r}"] if self.outside is not None else []
        return " ".join([f"load {self.access}", *(f"where 0 <= {g}" for g in self.guards), *outside])


def held_in_tile(guards: tuple[Guard, ...], tile: int, extent: int) -> range | None:
    """The iterations of the tile loop at which all guards hold; None if they depend on another loop."""
    if any(stride for g in guards for d, stride in enumerate(g.strides) if d != tile):
        return None
    held = [at for at in range(extent) if all(0 <= g.offset + g.strides[tile] * at < g.extent for g in guards)]
    return range(held[0], held[-1] + 1) if held else range(0)


Source = Load | GatherLoad | Splat | Index | MulAdd | Inverse


@dataclass(frozen=True, slots=True)
class Statement:
    """Local number k (its place in the body): a source, or an op applied to earlier locals.

    `loops`: the loops along which it varies, as a bit mask. `stage`: the stage from which it is known.
    """

    what: Source | Op
    args: tuple[int, ...]
    dtype: DType
    loops: int
    stage: int

    @property
    def is_reduction(self) -> bool:
        return isinstance(self.what, Reduction)

    @property
    def is_slow(self) -> bool:
        """True where computing it again costs more than storing and loading it."""
        return isinstance(self.what, Elementwise) and not self.what.fast

    @property
    def instructions(self) -> int:
        """Rough vector instructions, divisions by their time, and with what rounds the result to 16 bits."""
        own = 12 if self.is_slow else 8 if isinstance(self.what, Op) and self.what.name in DIVISIONS else 1
        return own + (6 if self._rounds_to_half else 0)

    @property
    def latency(self) -> int:
        """Rough cycles from its arguments to its result."""
        if not isinstance(self.what, (Op, MulAdd, Inverse)):
            return 0
        name = self.what.name if isinstance(self.what, Op) else ""
        own = 130 if name in _LONG_FUNCTIONS else 48 if self.is_slow else 14 if name in DIVISIONS else 4
        return own + (14 if self._rounds_to_half else 0)

    @property
    def _rounds_to_half(self) -> bool:
        return self.dtype.is_float and self.dtype.bits == 16 and not isinstance(self.what, Load)


@dataclass(frozen=True, slots=True)
class Store:
    """Writes a local, or with `adds` its sum along the kernel's summed loops, along which the access stays in place."""

    local: int
    access: Access
    adds: bool = False


def interleaved(accesses: Collection[Access], vector: int) -> list[tuple[Access, ...]]:
    """The accesses in sets: those that by turns touch every element along the vector loop, in the order of memory; each of the others alone."""
    sets: dict[object, list[Access]] = {}
    for access in dict.fromkeys(accesses):
        apart = vector >= 0 and 1 < access.strides[vector] <= _MOST_TURNS
        sets.setdefault((access.operand, access.strides) if apart else access, []).append(access)
    found: list[tuple[Access, ...]] = []
    for members in sets.values():
        members.sort(key=lambda access: access.offset)
        turns = members[0].strides[vector] if len(members) > 1 else 1
        if [access.offset - members[0].offset for access in members] == list(range(turns)):
            found.append(tuple(members))
        else:
            found += [(access,) for access in members]
    return found


@dataclass(frozen=True)
class LoopKernel:
    """A fused loop nest.

    Attributes:
        extents: trip count of each loop, in nesting order.
        outer: how many of them, from the left, are outer (rows); the others are inner.
        vector: the loop whose iterations lie in the lanes of a vector; -1 for a kernel without loops.
        tile: a loop of which as many iterations as a vector has lanes are done at once, so that what is contiguous along it, but not
            along the vector loop, is transposed in registers; -1 for none.
        group: an outer loop of which several rows, as many as a vector has lanes, go through each stage together, so that what is found once
            a row is found for all of them at once; -1 for none.
        body: the locals in an order in which they can be computed.
        stores: what is written.
        operands: dtype of each operand buffer.
        summed: the outer loops along which stores add (a bit mask): all their iterations belong to one block.
        last: how many iterations the first loop along which stores add has in the last iteration of the loop before; 0 if as many as always.
        past: operands that are written past the caches, since nobody reads them soon.
        run: elements of a block of a kernel that has no outer loop, or few and long rows.
    """

    extents: tuple[int, ...]
    outer: int
    vector: int
    body: tuple[Statement, ...]
    stores: tuple[Store, ...]
    operands: tuple[DType, ...]
    tile: int = -1
    group: int = -1
    summed: int = 0
    past: frozenset[int] = frozenset()
    last: int = 0
    run: int = RUN

    @property
    def inner_mask(self) -> int:
        return ((1 << len(self.extents)) - 1) & ~((1 << self.outer) - 1)

    @property
    def points(self) -> int:
        """Points of the iteration space, as if all parts had as many rows."""
        return math.prod(self.extents)

    @property
    def inner_points(self) -> int:
        """Points of a row: of the inner loops."""
        return math.prod(self.extents[self.outer :])

    @property
    def line(self) -> int:
        """Points along the vector loop."""
        return self.extents[self.vector] if self.vector >= 0 else 1

    @property
    def is_run(self) -> bool:
        """True without an outer loop and without reductions: its blocks are runs of elements."""
        return self.vector >= 0 and not self.outer and not self.reduces

    @property
    def runs_of_row(self) -> int:
        """The blocks of each row of a kernel without reductions, if its rows are few and long; else 0."""
        rows = math.prod(self.extents[: self.outer])
        is_along_memory = self.vector == self.outer == len(self.extents) - 1 and self.tile < 0
        if not is_along_memory or self.reduces or self.summed or not 1 < rows < MIN_BLOCKS or self.extents[-1] < 2 * self.run:
            return 0
        return -(-self.extents[-1] // self.run) if all(map(self.writes_inside, self.stores)) else 0

    @property
    def reduces(self) -> bool:
        return any(s.is_reduction for s in self.body)

    @property
    def stages(self) -> int:
        return 1 + max((s.stage for s in self.body), default=0)

    def writes_inside(self, store: Store) -> bool:
        """True for a store in the inner loops, be it of a value that is the same for the whole row."""
        return bool(self.body[store.local].loops & self.inner_mask) or any(store.access.strides[self.outer :])

    @property
    def first_summed(self) -> int:
        """The first loop along which stores add; if it is shorter at last, then in the last iteration of the loop right before it, which counts the parts."""
        return (self.summed & -self.summed).bit_length() - 1

    def trips_vary(self, d: int) -> bool:
        """Whether loop d is the one with `last` iterations at the end."""
        return self.last > 0 and d == self.first_summed

    def loops_of_blocks(self) -> list[int]:
        """Of the outer loops of a kernel with sums along some, those that are counted by blocks: those before the first along which stores add, so that
        rows are taken as they lie in memory. All others along which none does, if that left few blocks of long rows, or hardly any of much work, or sums that
        do not stay in the L1 cache.
        """
        others = [d for d in range(self.outer) if not self.summed >> d & 1]
        before = [d for d in others if d < self.first_summed]
        sums = sum(self.operands[s.access.operand].itemsize for s in self.stores if s.adds)
        sums *= self.inner_points * math.prod(self.extents[d] for d in others if d not in before)
        blocks = math.prod(self.extents[d] for d in before)
        few = blocks < MIN_BLOCKS if self.inner_points > _SHORT else blocks < FEWEST_PARTS and self.points > POINTS_OF_ONE_BLOCK
        return others if few or sums > _BYTES_OF_SUMS else before

    def __str__(self) -> str:
        roles = {self.vector: " vector", self.tile: " tile", self.group: " group"}
        for d in [d for d in range(self.outer) if self.summed >> d & 1]:
            roles[d] = f" summed{roles.get(d, '')}{f', at last {self.last}' if self.trips_vary(d) else ''}"
        loops = ", ".join(f"i{d}<{n}{roles.get(d, '')}{'' if d < self.outer else ' inner'}" for d, n in enumerate(self.extents))
        lines = [f"loops ({loops}) {{"]
        for k, s in enumerate(self.body):
            args = " ".join(f"t{a}" for a in s.args)
            lines.append(f"  t{k} = {s.what}{' ' + args if args else ''} : {s.dtype}" + (f"  stage {s.stage}" if s.stage else ""))
        for store in self.stores:
            past = " past the caches" if store.access.operand in self.past else ""
            lines.append(f"  {'add' if store.adds else 'store'} t{store.local} -> {store.access}{past}")
        return "\n".join([*lines, "}"])


def rebase(kernel: LoopKernel) -> tuple[LoopKernel, tuple[int, ...]]:
    """The kernel with the smallest offset into each operand taken out, and these offsets, in elements.

    Kernels that read or write different slices of equal shape are then one function.
    """
    accesses = [s.access for s in kernel.stores] + [s.what.access for s in kernel.body if isinstance(s.what, (Load, GatherLoad))]
    lowest: dict[int, int] = {}
    for a in accesses:
        at = max(a.offset, 0)  # guarded loads may begin before the buffer, or behind it
        lowest[a.operand] = min(at, lowest.get(a.operand, at))
    bases = tuple(lowest.get(k, 0) for k in range(len(kernel.operands)))
    if not any(bases):
        return kernel, bases

    def moved(a: Access) -> Access:
        return Access(a.operand, a.strides, a.offset - bases[a.operand])

    return with_accesses(kernel, moved), bases


def with_loops(
    kernel: LoopKernel, extents: tuple[int, ...], outer: int, strides: Callable[[Strides], Strides], loops: Callable[[int], int], first: Strides = ()
) -> LoopKernel:
    """The kernel over other loops, none of which is the vector loop: what becomes of strides, and of the masks that say along which
    loops a statement varies. `first`: from which iterations of its loops on.
    """

    def offset(v: Strides) -> int:
        return sum(step * n for step, n in zip(v, first, strict=False))

    def moved(a: Access) -> Access:
        return Access(a.operand, strides(a.strides), a.offset + offset(a.strides))

    def statement(s: Statement) -> Statement:
        what = s.what
        if isinstance(what, Index):
            what = replace(what, strides=strides(what.strides), offset=what.offset + offset(what.strides))
        elif isinstance(what, Load) and what.guards:
            what = replace(what, guards=tuple(Guard(strides(g.strides), g.offset + offset(g.strides), g.extent) for g in what.guards))
        return Statement(what, s.args, s.dtype, loops(s.loops), s.stage)

    body = tuple(map(statement, kernel.body))
    return with_accesses(LoopKernel(extents, outer, -1, body, kernel.stores, kernel.operands, summed=loops(kernel.summed), last=kernel.last), moved)


def with_accesses(kernel: LoopKernel, moved: Callable[[Access], Access]) -> LoopKernel:
    """The kernel with `moved(access)` for each access."""

    def statement(s: Statement) -> Statement:
        if isinstance(s.what, (Load, GatherLoad)):
            return Statement(replace(s.what, access=moved(s.what.access)), s.args, s.dtype, s.loops, s.stage)
        return s

    stores = tuple(replace(s, access=moved(s.access)) for s in kernel.stores)
    return replace(kernel, body=tuple(map(statement, kernel.body)), stores=stores)


def shuffles_are_quick(kernel: LoopKernel) -> bool:
    """Whether tiles of so few points take less time than what they spare; without reductions, short loops are unrolled instead (turns.py). Not of integers of
    64 bits: with the place of the largest of three unsigned ones in vectors of 16 bytes LLVM 22 does not come to an end.
    """
    wide = any(t.itemsize == 8 and not t.is_float for t in kernel.operands)
    return kernel.reduces and kernel.stages <= _STAGES_OF_INTERLEAVED and not wide


def keeps_points(kernel: LoopKernel, lanes: int) -> bool:
    """Whether all points of rows that lie in the lanes are kept from stage to stage, if the only inner loop is one of tiles."""
    points = kernel.inner_points
    if len(kernel.extents) != kernel.outer + 1 or points <= lanes:
        return len(kernel.extents) == kernel.outer + 1
    instructions = sum(s.instructions for s in kernel.body if s.loops & kernel.inner_mask)
    return points <= min(_KEPT_POINTS, 2 * lanes) and instructions * points <= _KEPT_INSTRUCTIONS
