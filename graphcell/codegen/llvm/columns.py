"""Blocks of neighbouring columns: for kernels that go through rows one after another, each column by itself.

Enters: how many columns there are. Leaves: how many blocks they make, two at least where columns fill two cache lines, so that
threads may share a row; and loops over a range of blocks, in which few vectors are done at once: what all columns share, where an index leads, say, is found
once for all that a thread has.
"""

from __future__ import annotations

from collections.abc import Callable

from graphcell.codegen.llvm.body import BodyBuilder
from graphcell.codegen.llvm.contraction import LINE_BYTES
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.llvm.text import I64, Val, constant_mask, i64
from graphcell.dtype import DType
from graphcell.records import dataclass

_FEWEST_BLOCKS = 2
"""Of rows of as many cache lines. With more of them, a thread would take one after the other, and find anew for each what all columns share."""

Body = Callable[[Val, Val, "list[Val | None]"], None]
"""`body(outer, column, masks)`: the position of the row's block in what is outside of the columns, the first column, and for each vector from there on which
lanes are columns. A mask is None where every lane is one."""


@dataclass(frozen=True)
class Columns:
    """`count` columns, of which a vector has `lanes`, and a cache line `line` vectors. At most `most` vectors are done at once, of a block or of two, enough to
    hide the latency of combining."""

    count: int
    lanes: int
    line: int
    most: int

    @property
    def vectors(self) -> int:
        return -(-self.count // self.lanes)

    @property
    def each(self) -> int:
        """Vectors of a block."""
        lines = -(-self.vectors // (self.line * _FEWEST_BLOCKS))
        return min(self.vectors, self.most, lines * self.line)

    @property
    def blocks(self) -> int:
        return -(-self.vectors // self.each) if self.count else 0

    def emit(self, b: BodyBuilder, body: Body) -> None:
        """Does blocks `begin` to `end` (arguments of `b`); those of a row follow each other. Two that are all of a row are done at once, if few vectors."""
        pairs = self.blocks == 2 and 2 * self.each <= self.most
        at = b.alloca(I64)  # the next block
        b.store(b.args["begin"], at)

        def some() -> None:
            block = b.load(at, I64)
            outer, first = block, i64(0)
            if self.blocks > 1:
                outer, first = (f(block, i64(self.blocks), signed=False) for f in (b.div, b.rem))

            def group(size: int) -> None:
                self._masked(b, first, size, lambda masks: body(outer, b.mul(first, i64(self.each * self.lanes)), masks))
                b.store(b.add(block, i64(size)), at)

            if pairs:
                both = b.and_(b.icmp("eq", first, i64(0)), b.icmp("sgt", b.sub(b.args["end"], block), i64(1)))
                b.if_else(both, lambda: group(2), lambda: group(1))
            else:
                group(1)

        b.while_loop(lambda: b.icmp("slt", b.load(at, I64), b.args["end"]), some)

    def _masked(self, b: BodyBuilder, first: Val, size: int, body: Callable[[list[Val | None]], None]) -> None:
        """`body(masks)` for `size` blocks from `first` on. Where masked stores take long, the end of a row is code of its own: `body` is called twice, then
        with masks that are written as such (`Instructions.masked_store`)."""
        block = self.each * self.lanes
        vectors, last = size * self.each, self.blocks - size
        left = self.count - last * block
        whole: list[Val | None] = [None] * vectors

        def end() -> None:
            counts = [min(self.lanes, left - at) for at in range(0, left, self.lanes)]
            body([None if n == self.lanes else constant_mask(n, self.lanes) for n in counts])

        if left == vectors * self.lanes:
            body(whole)
        elif not last:
            end()
        elif b.module.slow_masks:
            b.if_else(b.icmp("slt", first, i64(last)), lambda: body(whole), end)
        else:
            rest = b.sub(i64(self.count), b.mul(first, i64(block)))
            body([b.icmp("slt", b.iota(self.lanes), b.splat(b.sub(rest, i64(v * self.lanes)), self.lanes)) for v in range(vectors)])


def columns_of(count: int, dtype: DType, target: Target, most: int = 4) -> Columns:
    """Those that are read and written as `dtype`, computed with at least 32 bits."""
    lanes = target.lanes("double" if dtype.bits == 64 else "float")
    return Columns(count, lanes, max(1, LINE_BYTES * 8 // (dtype.bits * lanes)), most)
