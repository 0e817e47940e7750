"""Sequences that are sorted as many at once as a vector has lanes: what the ways to do so have in common.

Enters: a `SortKernel`. Leaves: the function that goes through groups of sequences, one a lane, and what becomes of the order that is found in each.
"""

from __future__ import annotations

from graphcell.codegen.llvm.contraction import ceil_div
from graphcell.codegen.llvm.sort_keys import SortKernel
from graphcell.codegen.llvm.text import I64, PTR, FunctionBuilder, LType, Module, Val, const, i64

_FEWEST_FULL = 0.75
"""How many of all lanes must have a sequence."""


def fills_lanes(sequences: int, lanes: int) -> bool:
    """Whether nearly all lanes of groups have a sequence."""
    return sequences >= _FEWEST_FULL * lanes * ceil_div(sequences, lanes)


class GroupEmitter:
    """Emits `void name(ptr a, ptr c, ptr c1, ptr scratch, i64 begin, i64 end)`, whose blocks are groups."""

    def __init__(self, module: Module, name: str, kernel: SortKernel, lanes: int, buffers: tuple[str, ...] = ("a", "c", "c1", "scratch")):
        params = [*((n, PTR) for n in buffers), ("begin", I64), ("end", I64)]
        self.kernel, self.lanes, self.element = kernel, lanes, LType(f"i{kernel.bits}")
        self.b = FunctionBuilder(module, name, params, internal=False)

    def emit(self) -> str:
        b, k = self.b, self.kernel
        with b.loop(b.args["begin"], b.args["end"], name="group") as loop:
            first = b.mul(loop.index, i64(self.lanes))
            sequences = [b.binary("smin", b.add(first, i64(lane)), i64(k.sequences - 1)) for lane in range(self.lanes)]  # the last one again where none is left
            sources = [b.gep(b.args["a"], self._begin(s, k.extent), self.element) for s in sequences]
            self.find(sources)
            to = [self._begin(s, k.count) for s in sequences]
            every, some = range(self.lanes), range(k.sequences % self.lanes)
            if not some:
                self.write(every, sources, to)
            else:
                whole = b.icmp("sle", b.add(first, i64(self.lanes)), i64(k.sequences))
                b.if_else(whole, lambda: self.write(every, sources, to), lambda: self.write(some, sources, to))
        return b.finish()

    def find(self, sources: list[Val]) -> None:
        """Finds the order of the sequences that begin at `sources`."""
        raise NotImplementedError

    def write(self, lanes: range, sources: list[Val], to: list[Val]) -> None:
        """Writes the first elements of the sequences in these lanes, from element `to` of the results on."""
        raise NotImplementedError

    def elements(self, sources: list[Val], index: Val) -> Val:
        """The bits of an element of all sequences."""
        b, at, bits = self.b, self.b.mul(index, i64(self.kernel.inner)), const(0, self.element.with_lanes(self.lanes))
        for lane, source in enumerate(sources):
            bits = b.insert(bits, b.load(b.gep(source, at, self.element), self.element), lane)
        return bits

    def put(self, source: Val, index: Val, to: Val, place: Val) -> None:
        """Writes the element `index` (i64) of a sequence as that in `place` of its results, which begin at element `to`."""
        b, inner = self.b, i64(self.kernel.inner)
        at = b.add(to, b.mul(place, inner))
        value = b.load(b.gep(source, b.mul(index, inner), self.element), self.element)
        b.store(value, b.gep(b.args["c"], at, self.element))
        b.store(index, b.gep(b.args["c1"], at, I64))

    def _begin(self, sequence: Val, count: int) -> Val:
        """Where a sequence begins in an array of `count` elements in each."""
        b, inner = self.b, self.kernel.inner
        if inner == 1:
            return b.mul(sequence, i64(count))
        row = b.div(sequence, i64(inner), signed=False)
        return b.add(b.mul(row, i64(count * inner)), b.rem(sequence, i64(inner), signed=False))
