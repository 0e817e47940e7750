"""Emits sorts of as many sequences at once as a vector has lanes, by comparisons whose order does not depend on what is compared.

Enters: a `SortKernel` with several sequences of some length. Leaves: a function of the module and the `Plan` to call it: buffers a (the array), c (values),
c1 (indices, i64). A block is a group of sequences, one a lane.

An element becomes a word, a key above its index, as in sorting.py; here words are signed, for of those vectors compare faster, and keys of 64 bits and
their indices are two words. No two elements have both the same, so equal keys stay in the order they came in.

Runs of eight elements are sorted in registers, then merged two by two: a bitonic merge compares elements at half the length, a quarter, and so on, all in one
direction, since the first comparison meets the second run from its end. Memory is read and written once for two or three of these steps. What lacks to a
power of two are words that are larger than any other; whole runs of them are left out.

References: K. E. Batcher, "Sorting networks and their applications" (1968); D. E. Knuth, "The Art of Computer Programming", volume 3, 5.3.4.
"""

from __future__ import annotations

from graphcell.codegen.llvm.contraction import Plan, Stage, ceil_div
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.llvm.sequence_groups import GroupEmitter, fills_lanes
from graphcell.codegen.llvm.sort_keys import SortKernel, keys_of
from graphcell.codegen.llvm.text import I64, PTR, FunctionBuilder, LType, Module, Val, const, i64

_SHORTEST, _LONGEST = 6, {1: 128, 2: 1024, 4: 8192, 8: 4096}
"""Elements of a sequence, the latter by their bytes, between which this takes less time than to insert them one by one or to sort byte by byte."""
_WALKED_FROM = 128, 2048
"""Elements of a row of which the first ones are found in one walk, if they are few, or some more."""
_FEWEST_LANES = 4
"""Of a vector that is long enough."""
_RUN = 8
"""Words that are sorted in registers."""
_FIRST_RUN = (
    ((0, 2), (1, 3), (4, 6), (5, 7)),
    ((0, 4), (1, 5), (2, 6), (3, 7)),
    ((0, 1), (2, 3), (4, 5), (6, 7)),
    ((2, 4), (3, 5)),
    ((1, 4), (3, 6)),
    ((1, 2), (3, 4), (5, 6)),
)
"""The nineteen comparisons that sort eight words, of which those of a line go beside each other."""
_LAST_STEPS = (((0, 4), (1, 5), (2, 6), (3, 7)), ((0, 2), (1, 3), (4, 6), (5, 7)), ((0, 1), (2, 3), (4, 5), (6, 7)))
"""The last steps of a merge, within eight words."""


def suits_network(kernel: SortKernel, target: Target) -> bool:
    """Whether a network takes less time than what sorting.py does with one sequence after the other."""
    lanes = target.lanes("double")
    if lanes < _FEWEST_LANES or not _SHORTEST <= kernel.extent <= _LONGEST[kernel.bits // 8]:
        return False
    walks = kernel.inner == 1 and kernel.buffer(lanes) < kernel.extent and kernel.extent > _WALKED_FROM[not kernel.inserts]
    return not walks and fills_lanes(kernel.sequences, lanes)


def emit_network(module: Module, name: str, kernel: SortKernel, target: Target) -> Plan:
    """Emits `void name(ptr a, ptr c, ptr c1, ptr scratch, i64 begin, i64 end)`."""
    lanes = target.lanes("double")
    blocks, length = ceil_div(kernel.sequences, lanes), kernel.extent
    steps = length.bit_length() ** 2 // 4 + 8
    stage = Stage(_NetworkEmitter(module, name, kernel, lanes).emit(), ("a", "c", "c1", "scratch"), (), blocks, length * steps * 4)
    return Plan((stage,), (), _words(kernel) * _room(length) * lanes * 8, f"{kernel}, {lanes} at once")


def _room(length: int) -> int:
    """Words of a lane: a power of two."""
    return max(_RUN, 1 << (length - 1).bit_length())


def _words(kernel: SortKernel) -> int:
    """Of an element."""
    return 1 + (kernel.bits == 64)


class _NetworkEmitter(GroupEmitter):
    def __init__(self, module: Module, name: str, kernel: SortKernel, lanes: int):
        super().__init__(module, name, kernel, lanes)
        self.words = LType("i64", lanes)
        self.sort = _emit_bitonic(module, lanes, _words(kernel))
        self.indices_at = _room(kernel.extent) * lanes if _words(kernel) == 2 else 0
        """Where indices lie that are words of their own."""

    def find(self, sources: list[Val]) -> None:
        self._fill(sources)
        self.b.call(self.sort, LType("void"), self.b.args["scratch"], i64(self.kernel.extent), i64(_room(self.kernel.extent)))

    def write(self, lanes: range, sources: list[Val], to: list[Val]) -> None:
        b, k = self.b, self.kernel
        with b.loop(0, k.count, name="write", at_least_once=True) as loop:
            at = b.mul(loop.index, i64(self.lanes))
            words = [b.load(self._word(b.add(at, i64(self.indices_at + lane))), I64) for lane in lanes]
            for lane, word in zip(lanes, words, strict=True):
                self.put(sources[lane], word if self.indices_at else b.and_(word, i64((1 << k.shift) - 1)), to[lane], loop.index)

    def _fill(self, sources: list[Val]) -> None:
        """The words of all lanes, element by element."""
        b, k = self.b, self.kernel
        sign = const(-(1 << 63), self.words)
        with b.loop(0, k.extent, name="fill", at_least_once=True) as loop:
            keys = b.cast(keys_of(b, k, self.elements(sources, loop.index)), self.words, signed=False)
            place, index = b.mul(loop.index, i64(self.lanes)), b.splat(loop.index, self.lanes)
            if self.indices_at:
                b.store(b.xor(keys, sign), self._word(place))
                b.store(index, self._word(b.add(place, i64(self.indices_at))))
            else:
                b.store(b.or_(b.xor(b.shl(keys, const(k.shift, self.words)), sign), index), self._word(place))

    def _word(self, at: Val) -> Val:
        return self.b.gep(self.b.args["scratch"], at, I64)


def _emit_bitonic(module: Module, lanes: int, words: int) -> str:
    """The function `void name(ptr words, i64 count, i64 room)` of a module, emitted once: sorts `count` vectors of words, each lane for itself, by those that
    lie `room` vectors further on where they are equal and elements have two.
    """
    name = f"bitonic.{lanes}.{words}"
    if not module.has_function(name):
        _BitonicEmitter(module, name, lanes, words).emit()
    return name


class _BitonicEmitter:
    def __init__(self, module: Module, name: str, lanes: int, words: int):
        self.b = FunctionBuilder(module, name, [("words", PTR), ("count", I64), ("room", I64)], attributes="nounwind noinline")
        self.lanes, self.words, self.type = lanes, words, LType("i64", lanes)

    def emit(self) -> str:
        b, count, room = self.b, self.b.args["count"], self.b.args["room"]
        with b.loop(count, room, name="pad") as loop:
            for place in self._places(loop.index):
                b.store(const((1 << 63) - 1, self.type), place)
        with b.loop(0, count, _RUN, name="sort", at_least_once=True) as loop:
            self._exchange([b.add(loop.index, i64(k)) for k in range(_RUN)], *_FIRST_RUN)
        length = b.alloca(I64)
        b.store(i64(2 * _RUN), length)
        b.while_loop(lambda: b.icmp("sle", b.load(length, I64), room), lambda: self._merge(count, length))
        return b.finish()

    def _merge(self, count: Val, place: Val) -> None:
        """Merges runs to some of twice their length, which lies at `place` and is doubled then."""
        b = self.b
        length = b.load(place, I64)
        quarter = b.shr(length, i64(2))
        with b.loop(0, count, length, name="run", at_least_once=True) as run:
            begin, last = run.index, b.sub(b.add(run.index, length), i64(1))
            with b.loop(0, quarter, name="mirror", at_least_once=True) as loop:
                low, high = b.add(begin, loop.index), b.sub(last, loop.index)
                self._exchange([low, b.add(low, quarter), b.sub(high, quarter), high], ((0, 3), (1, 2)), ((0, 1), (2, 3)))
        apart = b.alloca(I64)
        b.store(b.shr(length, i64(3)), apart)
        b.while_loop(lambda: b.icmp("sge", b.load(apart, I64), i64(_RUN)), lambda: self._halve(count, apart))
        with b.loop(0, count, _RUN, name="end", at_least_once=True) as loop:
            self._exchange([b.add(loop.index, i64(k)) for k in range(_RUN)], *_LAST_STEPS)
        b.store(b.shl(length, i64(1)), place)

    def _halve(self, count: Val, place: Val) -> None:
        """The step whose distance lies at `place`, and the next one where that is within no eight words either."""
        b = self.b
        apart = b.load(place, I64)
        half = b.shr(apart, i64(1))

        def one() -> None:
            with b.loop(0, count, i64(2 * _RUN), name="pairs", at_least_once=True) as run, b.loop(0, _RUN, name="pair", at_least_once=True) as loop:
                low = b.add(run.index, loop.index)
                self._exchange([low, b.add(low, i64(_RUN))], ((0, 1),))
            b.store(half, place)

        def two() -> None:
            with b.loop(0, count, b.shl(apart, i64(1)), name="fours", at_least_once=True) as run, b.loop(0, half, name="four", at_least_once=True) as loop:
                low = b.add(run.index, loop.index)
                self._exchange([low, b.add(low, half), b.add(low, apart), b.add(b.add(low, apart), half)], ((0, 2), (1, 3)), ((0, 1), (2, 3)))
            b.store(b.shr(half, i64(1)), place)

        b.if_else(b.icmp("eq", apart, i64(_RUN)), one, two)

    def _exchange(self, at: list[Val], *steps: tuple[tuple[int, int], ...]) -> None:
        """Brings the words at these places in order, pair by pair: the smaller one to the first of each."""
        b, places = self.b, [self._places(k) for k in at]
        found = [tuple(b.load(p, self.type) for p in places_of_one) for places_of_one in places]
        for step in steps:
            for x, y in step:
                found[x], found[y] = self._ordered(found[x], found[y])
        for words, places_of_one in zip(found, places, strict=True):
            for word, place in zip(words, places_of_one, strict=True):
                b.store(word, place)

    def _ordered(self, x: tuple[Val, ...], y: tuple[Val, ...]) -> tuple[tuple[Val, ...], tuple[Val, ...]]:
        b = self.b
        if self.words == 1:
            return (b.binary("smin", *x, *y),), (b.binary("smax", *x, *y),)
        swap = b.or_(b.icmp("sgt", x[0], y[0]), b.and_(b.icmp("eq", x[0], y[0]), b.icmp("sgt", x[1], y[1])))
        return tuple(b.select(swap, v, u) for u, v in zip(x, y, strict=True)), tuple(b.select(swap, u, v) for u, v in zip(x, y, strict=True))

    def _places(self, at: Val) -> tuple[Val, ...]:
        """Of the words of an element, in all lanes."""
        b, first = self.b, self.b.mul(at, i64(self.lanes))
        places = [first, b.add(first, b.mul(b.args["room"], i64(self.lanes)))]
        return tuple(b.gep(b.args["words"], p, I64) for p in places[: self.words])
