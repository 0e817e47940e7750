"""Emits the selection of the first few elements of as many sequences at once as a vector has lanes.

Enters: a `SortKernel` that asks for few elements of many sequences: the experts of a token, the two nearest neighbours, the classes that come first. Leaves: a
function of the module and the `Plan` to call it: buffers a (the array), c (values), c1 (indices, i64). A block is a group of sequences, one a lane.

The first ones so far stay in registers, their keys (sort_keys.py) in order, with their indices. Each further element takes its place among them without a
branch: what it comes before moves up by one. Of equal keys the earlier one comes first. Rows are turned in squares of as many elements as there are lanes.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphcell.codegen.llvm.contraction import Plan, Stage, ceil_div
from graphcell.codegen.llvm.packing import transpose
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.llvm.sequence_groups import GroupEmitter, fills_lanes
from graphcell.codegen.llvm.sort_keys import SortKernel, keys_of
from graphcell.codegen.llvm.text import I64, LType, Module, Val, i64

_FEWEST_LANES = 4
_SHORT = 12
"""Elements of a sequence that is sorted so even if all are asked for. These bounds were measured on Zen 3, where they meet what the other ways take."""
_FEW, _LONG = 8, 16
"""Of columns, how many are few; up to twice as many, if a column is at least `_LONG` times as long. The registers of AVX2 hold the first four."""
_FEW_OF_ROW = ((4, 256), (8, 128))
"""Of rows: so many, of so many elements at most; of longer ones they are found in a walk."""
_STEPS_OF_A_PLACE = 6
"""Rough instructions for an element of all lanes and one of the first."""

First = list[tuple[Val, Val]]
"""The first keys so far and their indices, in order."""


def suits_few(kernel: SortKernel, target: Target) -> bool:
    """Whether this takes less time than the other ways."""
    lanes = _lanes(kernel, target)
    if lanes < _FEWEST_LANES or not fills_lanes(kernel.sequences, lanes) or kernel.extent >= 1 << 31:
        return False
    if kernel.extent <= _SHORT:
        return True
    if kernel.inner > 1:
        return kernel.count <= _FEW or (kernel.count <= 2 * _FEW and kernel.extent >= _LONG * kernel.count)
    return any(kernel.count <= count and kernel.extent <= extent for count, extent in _FEW_OF_ROW)


def emit_few(module: Module, name: str, kernel: SortKernel, target: Target) -> Plan:
    """Emits `void name(ptr a, ptr c, ptr c1, i64 begin, i64 end)`."""
    lanes = _lanes(kernel, target)
    stage = Stage(
        _FewEmitter(module, name, kernel, lanes).emit(),
        _FewEmitter.BUFFERS,
        (),
        ceil_div(kernel.sequences, lanes),
        kernel.extent * (kernel.count + 2) * _STEPS_OF_A_PLACE,
    )
    return Plan((stage,), note=f"{kernel}, {lanes} at once, in registers")


def _lanes(kernel: SortKernel, target: Target) -> int:
    return target.lanes("double" if kernel.bits == 64 else "float")


class _FewEmitter(GroupEmitter):
    BUFFERS = ("a", "c", "c1")

    def __init__(self, module: Module, name: str, kernel: SortKernel, lanes: int):
        super().__init__(module, name, kernel, lanes, self.BUFFERS)
        self.word = LType("i64" if kernel.bits == 64 else "i32", lanes)
        self.first: First = []

    def find(self, sources: list[Val]) -> None:
        b, k, lanes = self.b, self.kernel, self.lanes
        first: First = []
        for n in range(k.count):
            first = self._with(first, self._keys(self.elements(sources, i64(n))), b.const(n, self.word), grows=True)
        squares = (k.extent - k.count) // lanes * lanes if k.inner == 1 else 0
        with b.loop(k.count, k.count + squares, lanes, carried=[v for pair in first for v in pair], name="square") as loop:
            rows = [self._keys(b.load(b.gep(source, loop.index, self.element), self.element.with_lanes(lanes), self.element.bytes)) for source in sources]
            index, found = self._index(loop.index), _pairs(loop.carried)
            for n, keys in enumerate(transpose(b, rows)):
                found = self._with(found, keys, b.add(index, b.const(n, index)))
            loop.carry(*(v for pair in found for v in pair))
        with b.loop(k.count + squares, k.extent, carried=loop.results, name="element") as rest:
            found = self._with(_pairs(rest.carried), self._keys(self.elements(sources, rest.index)), self._index(rest.index))
            rest.carry(*(v for pair in found for v in pair))
        self.first = _pairs(rest.results)

    def write(self, lanes: range, sources: list[Val], to: list[Val]) -> None:
        b = self.b
        for lane in lanes:
            for place, (_, indices) in enumerate(self.first):
                self.put(sources[lane], b.cast(b.extract(indices, lane), I64, signed=False), to[lane], i64(place))

    def elements(self, sources: list[Val], index: Val) -> Val:
        b, inner = self.b, self.kernel.inner
        if inner % self.lanes:
            return super().elements(sources, index)
        return b.load(b.gep(sources[0], b.mul(index, i64(inner)), self.element), self.element.with_lanes(self.lanes), self.element.bytes)

    def _keys(self, bits: Val) -> Val:
        """Words whose signed order is that of the elements."""
        b, keys = self.b, keys_of(self.b, self.kernel, bits)
        if keys.type.bits == self.word.bits:
            keys = b.xor(keys, b.const(1 << (keys.type.bits - 1), keys))
        return b.cast(keys, self.word, signed=False)

    def _index(self, index: Val) -> Val:
        return self.b.splat(self.b.cast(index, self.word.with_lanes(0)), self.lanes)

    def _with(self, first: First, keys: Val, indices: Val, grows: bool = False) -> First:
        """The first ones, when further elements are among them."""
        b, before = self.b, [self.b.icmp("slt", keys, k) for k, _ in first]
        found: First = []
        for n, (key, index) in enumerate(first):
            key, index = b.select(before[n], keys, key), b.select(before[n], indices, index)
            if n:
                key, index = b.select(before[n - 1], first[n - 1][0], key), b.select(before[n - 1], first[n - 1][1], index)
            found.append((key, index))
        if grows:
            found.append((b.select(before[-1], first[-1][0], keys), b.select(before[-1], first[-1][1], indices)) if first else (keys, indices))
        return found


def _pairs(values: Sequence[Val]) -> First:
    return [*zip(values[::2], values[1::2], strict=True)]
