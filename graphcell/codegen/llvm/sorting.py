"""Emits sorts, and selections of the first k of a sorted order, of the rows of an array.

Enters: a `SortKernel`. Leaves: a function of the module and the `Plan` to call it: buffers a (the array), c (values), c1 (indices, i64).

An element becomes a word: above, a key whose unsigned order is the order asked for; below, the element's index. NaN are one key, larger
than any number, and so are both zeros one. Words are sorted by their keys, byte by byte from the lowest (least significant digit first), in which equal keys
stay in the order they came in; bytes that all keys share are passed over, and few words are inserted one by one instead.

Several sequences are sorted side by side instead, where that takes less time: a few elements in registers (first_few.py), more by a network
(sorting_network.py).

A short row needs no words: the place of an element is the number of those before it, which vectors of keys are compared with each key to count. That
takes the square of its length, so how long it may be depends on what the other ways take, which was measured.

The first k of a long row are found by comparing vectors of keys with that of the k-th so far. What comes before it is inserted among the k
where they are few, else appended to a buffer, which is sorted again when it is full. Few begin with a bound: of some more groups than k of the first
elements, the first keys are found, lane by lane, and of these the k-th; so many elements at least do not come behind it. Then little more than k are
inserted, where k log(extent / k) would be.

Reference: D. E. Knuth, "The Art of Computer Programming", volume 3, 5.2 (sorting by counting), 5.2.5 (sorting by distribution).
"""

from __future__ import annotations

from collections.abc import Callable

from graphcell.codegen.llvm.contraction import Plan, Stage, ceil_div, round_up
from graphcell.codegen.llvm.first_few import emit_few, suits_few
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.llvm.sort_keys import INSERTED, SortKernel, keys_of
from graphcell.codegen.llvm.sorting_network import emit_network, suits_network
from graphcell.codegen.llvm.text import I1, I32, I64, PTR, FunctionBuilder, LType, Module, Val, const, constant_mask, i64

_DIGITS = 256
_MOST_BYTES = 1 << 30
"""Memory of a thread; longer rows are left to numpy, which says so if there is none."""
_STEPS_OF_AN_ELEMENT = 8  # rough instructions for each byte of a key
_GROUPS, _IN_GROUP, _LOOKED_AT = 1.5, 4, 64
"""Groups that give a bound, times k; elements of a group, at least; and elements that are looked at, times k, if there are so many. Measured on Zen 3."""


def emit_sort(module: Module, name: str, kernel: SortKernel, target: Target) -> Plan | None:
    """Emits `void name(ptr a, ptr c, ptr c1, ptr scratch, i64 begin, i64 end)`, whose blocks are sequences; None if it would need too much memory."""
    buffers = ("a", "c", "c1", "scratch")
    if not kernel.sequences or not kernel.count:
        return Plan((), note="empty output")
    if suits_few(kernel, target):
        return emit_few(module, name, kernel, target)
    if suits_network(kernel, target):
        return emit_network(module, name, kernel, target)
    emitter = _SortEmitter(module, name, kernel, target)
    if emitter.scratch_bytes > _MOST_BYTES or kernel.extent >= 1 << 31:
        return None
    stage = Stage(emitter.emit(), buffers, (), kernel.sequences, kernel.extent * (kernel.bits // 8) * _STEPS_OF_AN_ELEMENT)
    return Plan((stage,), (), emitter.scratch_bytes, str(kernel))


class _SortEmitter:
    def __init__(self, module: Module, name: str, kernel: SortKernel, target: Target):
        self.module, self.name, self.kernel = module, name, kernel
        self.element = LType(f"i{kernel.bits}")
        self.lanes = target.lanes("double" if kernel.bits == 64 else "float") if kernel.inner == 1 else 1
        self.capacity = kernel.extent if kernel.counts else kernel.buffer(self.lanes)
        self.key_lanes = target.lanes("double" if kernel.bits == 64 else "float")
        self.group_vectors = ceil_div(int(_GROUPS * kernel.count), self.lanes) if kernel.count > 1 else 1
        """Of the groups of a bound, one a lane."""
        half = round_up(self.capacity * kernel.word.bytes, 64)
        self.counts_at = 2 * half
        self.other_at = half
        counts = round_up(kernel.extent, self.key_lanes) * kernel.key.bytes if kernel.counts else kernel.bits // 8 * _DIGITS * I32.bytes
        self.scratch_bytes = self.counts_at + counts

    def emit(self) -> str:
        k = self.kernel
        if not k.counts:
            self.sort = emit_sort_words(self.module, k.word, k.shift, k.bits // 8)
        params = [(n, PTR) for n in ("a", "c", "c1", "scratch")] + [("begin", I64), ("end", I64)]
        self.b = b = FunctionBuilder(self.module, self.name, params, internal=False)
        scratch = b.args["scratch"]
        self.words, self.left = scratch, b.alloca(I64)
        self.other, self.counts = (b.gep(scratch, at, LType("i8")) for at in (self.other_at, self.counts_at))
        with b.loop(b.args["begin"], b.args["end"], name="sequence") as loop:
            row, lane = loop.index, i64(0)
            if k.inner > 1:
                row, lane = b.div(loop.index, i64(k.inner), signed=False), b.rem(loop.index, i64(k.inner), signed=False)
            source = b.gep(b.args["a"], b.add(b.mul(row, i64(k.extent * k.inner)), lane), self.element)
            to = b.add(b.mul(row, i64(k.count * k.inner)), lane)
            if k.counts:
                self._fill_keys(source)
                self._place()
                self._write(source, to, self.words)
            elif self._has_bound():
                self._select_few(source)
                self._write(source, to, self.words)
            else:
                self._fill(source)
                self._write(source, to, self._first(source))
        return b.finish()

    def _first(self, source: Val) -> Val:
        """Where the first words lie, sorted."""
        if self.capacity == self.kernel.extent:
            return self._sorted(i64(self.capacity))
        return self._select(source)

    # -- keys --------------------------------------------------------------------------------------------------------
    def _word(self, key: Val, index: Val) -> Val:
        """Words, or a word, of keys and indices (i64)."""
        b, type = self.b, self.kernel.word.with_lanes(key.type.lanes)
        above = b.shl(b.cast(key, type, signed=False), b.const(self.kernel.shift, type))
        return b.or_(above, b.cast(index, type, signed=False))

    def _fill(self, source: Val) -> None:
        """Puts the words of the first elements into the buffer."""
        b, lanes = self.b, self.lanes
        whole = self.capacity // lanes * lanes
        with b.loop(0, whole, lanes, name="fill") as loop:
            self._put(source, loop.index, lanes)
        with b.loop(whole, self.capacity, name="fill.rest") as loop:
            self._put(source, loop.index, 1)

    def _put(self, source: Val, at: Val, lanes: int) -> None:
        b, wide = self.b, lanes if lanes > 1 else 0
        bits = b.load(b.gep(source, b.mul(at, i64(self.kernel.inner)), self.element), self.element.with_lanes(wide))
        index = b.add(b.splat(at, wide), b.iota(wide)) if wide else at
        b.store(self._word(keys_of(b, self.kernel, bits), index), b.gep(self.words, at, self.kernel.word), self.kernel.word.bytes)

    # -- counting ----------------------------------------------------------------------------------------------------
    def _fill_keys(self, source: Val) -> None:
        """Puts the keys of a row, as signed numbers, and the largest behind them up to whole vectors, into `counts`."""
        b, k, lanes = self.b, self.kernel, self.lanes

        def put(at: Val, lanes: int) -> None:
            bits = b.load(b.gep(source, b.mul(at, i64(k.inner)), self.element), self.element.with_lanes(lanes))
            keys = keys_of(b, k, bits)
            keys = b.cast(b.xor(keys, b.const(1 << (k.bits - 1), keys)), k.key.with_lanes(lanes))
            b.store(keys, b.gep(self.counts, at, k.key), k.key.bytes)

        whole = k.extent // lanes * lanes if lanes > 1 else 0
        with b.loop(0, whole, lanes, name="fill") as loop:
            put(loop.index, lanes)
        with b.loop(whole, k.extent, name="fill.rest") as loop:
            put(loop.index, 0)
        with b.loop(k.extent, round_up(k.extent, self.key_lanes), name="pad") as loop:
            b.store(const((1 << (8 * k.key.bytes - 1)) - 1, k.key), b.gep(self.counts, loop.index, k.key))

    def _place(self) -> None:
        """Puts the index of each element where it belongs among the words: behind as many as come before it."""
        b, k, lanes = self.b, self.kernel, self.key_lanes
        vector, places = k.key.with_lanes(lanes), self.other

        def key(at: Val) -> Val:
            return b.splat(b.load(b.gep(self.counts, at, k.key), k.key), lanes)

        def ones(condition: Val) -> Val:
            """1 where it holds, else 0."""
            return b.cast(condition, vector)

        with b.loop(0, k.extent, lanes, name="vector", at_least_once=True) as block:
            first = block.index
            own = b.load(b.gep(self.counts, first, k.key), vector, k.key.bytes)
            before = b.splat(b.cast(first, k.key), lanes)  # all elements ahead come before, but those that are larger
            with b.loop(0, first, carried=[before], name="ahead") as loop:
                loop.carry(b.sub(loop.carried[0], ones(b.icmp("sgt", key(loop.index), own))))
            before = loop.results[0]
            for lane in range(min(lanes, k.extent)):  # equal ones come before the lanes after them
                other = key(b.add(first, i64(lane)))
                after = b.not_(constant_mask(lane + 1, lanes))
                before = b.add(before, ones(b.or_(b.icmp("slt", other, own), b.and_(after, b.icmp("eq", other, own)))))
            with b.loop(b.add(first, i64(lanes)), k.extent, carried=[before], name="behind") as loop:
                loop.carry(b.add(loop.carried[0], ones(b.icmp("slt", key(loop.index), own))))
            b.store(loop.results[0], b.gep(places, first, k.key), k.key.bytes)
        with b.loop(0, k.extent, name="place", at_least_once=True) as loop:
            place = b.cast(b.load(b.gep(places, loop.index, k.key), k.key), I64)
            b.store(b.cast(loop.index, k.word), b.gep(self.words, place, k.word))

    # -- order -------------------------------------------------------------------------------------------------------
    def _sorted(self, count: Val) -> Val:
        return self.b.call(self.sort, PTR, self.words, self.other, self.counts, count)

    def _has_bound(self) -> bool:
        k = self.kernel
        return k.inserts and self.capacity < k.extent and k.extent >= _IN_GROUP * self.group_vectors * self.lanes

    def _bound(self, source: Val) -> Val:
        """A key which no fewer elements than are asked for do not come behind."""
        b, k, lanes, vectors = self.b, self.kernel, self.lanes, self.group_vectors
        step, type = lanes * vectors, self.element.with_lanes(lanes)
        looked_at = min(k.extent, max(_LOOKED_AT * k.count, _IN_GROUP * step)) // step * step
        with b.loop(0, looked_at, step, carried=[b.splat(const(-1, self.element), lanes)] * vectors, name="group", at_least_once=True) as loop:
            found = [self._keys(source, b.add(loop.index, i64(lanes * v)) if v else loop.index, lanes) for v in range(vectors)]
            loop.carry(*(b.binary("umin", x, y) for x, y in zip(loop.carried, found, strict=True)))
        firsts = list(loop.results)
        for v, x in enumerate(firsts):
            b.store(x, b.gep(self.counts, lanes * v, self.element), self.element.bytes)
        with b.loop(0, step, carried=[const(0, type)] * vectors, name="rank", at_least_once=True) as loop:
            other = b.splat(b.load(b.gep(self.counts, loop.index, self.element), self.element), lanes)
            loop.carry(*(b.add(rank, b.cast(b.icmp("ult", other, x), type, signed=False)) for rank, x in zip(loop.carried, firsts, strict=True)))
        last = const(0, type)
        for rank, x in zip(loop.results, firsts, strict=True):
            last = b.binary("umax", last, b.select(b.icmp("ult", rank, b.const(k.count, rank)), x, const(0, type)))
        return b.intrinsic(f"vector.reduce.umax.{type.suffix}", self.element, last)

    def _select_few(self, source: Val) -> None:
        """The first words of all, which are inserted one by one, from what does not come behind a bound."""
        b, k, lanes = self.b, self.kernel, self.lanes
        count, bound = b.alloca(I64), b.alloca(self.element)
        b.store(i64(0), count)
        b.store(b.intrinsic(f"uadd.sat.{self.element.suffix}", self.element, self._bound(source), const(1, self.element)), bound)

        def one(index: Val, key: Val) -> None:
            with b.if_then(b.icmp("ult", key, b.load(bound, self.element))):
                place = b.binary("smin", b.load(count, I64), i64(k.count - 1))
                _insert(b, self.words, self._word(key, index), place)
                b.store(b.add(place, i64(1)), count)
                with b.if_then(b.icmp("eq", place, i64(k.count - 1))):
                    self._note(bound)

        whole = k.extent // lanes * lanes
        with b.loop(0, whole, lanes, name="scan", at_least_once=True) as loop:
            self._each_before(source, loop.index, bound, one)
        with b.loop(whole, k.extent, name="scan.rest") as loop:
            one(loop.index, self._keys(source, loop.index, 0))

        with (
            b.if_then(b.icmp("slt", b.load(count, I64), i64(k.count))),  # the bound is the largest key of all: what has it comes last, in the order of the row
            b.loop(0, k.extent, name="last", at_least_once=True) as loop,
        ):
            key, place = self._keys(source, loop.index, 0), b.load(count, I64)
            with b.if_then(b.and_(b.icmp("eq", key, const(-1, self.element)), b.icmp("slt", place, i64(k.count)))):
                b.store(self._word(key, loop.index), b.gep(self.words, place, k.word))
                b.store(b.add(place, i64(1)), count)

    def _keys(self, source: Val, at: Val, lanes: int) -> Val:
        return keys_of(self.b, self.kernel, self.b.load(self.b.gep(source, at, self.element), self.element.with_lanes(lanes), self.element.bytes))

    def _each_before(self, source: Val, at: Val, bound: Val, one: Callable[[Val, Val], None]) -> None:
        """`one(index, key)` for each of a vector of elements whose key is below the bound, in order."""
        b, left = self.b, self.left
        before = b.icmp("ult", self._keys(source, at, self.lanes), b.splat(b.load(bound, self.element), self.lanes))
        b.store(b.cast(b.bitcast(before, LType(f"i{self.lanes}")), I64, signed=False), left)

        def first() -> None:
            mask = b.load(left, I64)
            b.store(b.and_(mask, b.sub(mask, i64(1))), left)
            index = b.add(at, b.intrinsic("cttz.i64", I64, mask, const(1, I1)))
            one(index, self._keys(source, index, 0))

        b.while_loop(lambda: b.icmp("ne", b.load(left, I64), i64(0)), first)

    def _select(self, source: Val) -> Val:
        """The first words of all, from those in the buffer and what comes before the last of them."""
        b, k = self.b, self.kernel
        count, bound = b.alloca(I64), b.alloca(self.element)
        self._keep(i64(self.capacity), count, bound)

        def one(index: Val, key: Val) -> None:
            if k.inserts:
                with b.if_then(b.icmp("ult", key, b.load(bound, self.element))):
                    _insert(b, self.words, self._word(key, index), i64(k.count - 1))
                    self._note(bound)
            else:
                place = b.load(count, I64)
                b.store(self._word(key, index), b.gep(self.words, place, k.word))
                b.store(b.add(place, i64(1)), count)

        with b.loop(self.capacity, k.extent, self.lanes, name="scan") as loop:
            self._each_before(source, loop.index, bound, one)
            if not k.inserts:
                with b.if_then(b.icmp("sgt", b.load(count, I64), i64(self.capacity - self.lanes))):
                    self._keep(b.load(count, I64), count, bound)
        return self.words if k.inserts else self._sorted(b.load(count, I64))

    def _keep(self, length: Val, count: Val, bound: Val) -> None:
        """Sorts the buffer and keeps its first words."""
        b, k = self.b, self.kernel
        ordered = self._sorted(length)
        with b.loop(0, k.count, name="keep", at_least_once=True) as loop:
            b.store(b.load(b.gep(ordered, loop.index, k.word), k.word), b.gep(self.words, loop.index, k.word))
        b.store(i64(k.count), count)
        self._note(bound)

    def _note(self, bound: Val) -> None:
        """Notes the key of the last of the first words."""
        b, k = self.b, self.kernel
        last = b.load(b.gep(self.words, k.count - 1, k.word), k.word)
        b.store(b.cast(b.shr(last, b.const(k.shift, last)), self.element), bound)

    def _write(self, source: Val, to: Val, ordered: Val) -> None:
        b, k = self.b, self.kernel
        with b.loop(0, k.count, name="write", at_least_once=True) as loop:
            word = b.load(b.gep(ordered, loop.index, k.word), k.word)
            index = b.cast(b.and_(word, b.const((1 << 32) - 1, word)), I64)
            place = b.add(to, b.mul(loop.index, i64(k.inner)))
            b.store(b.load(b.gep(source, b.mul(index, i64(k.inner)), self.element), self.element), b.gep(b.args["c"], place, self.element))
            b.store(index, b.gep(b.args["c1"], place, I64))


def emit_sort_words(module: Module, word: LType, shift: int, passes: int) -> str:
    """The function `ptr name(ptr words, ptr other, ptr counts, i64 count)` of a module, emitted once.

    Sorts words by the lowest `passes` bytes above `shift` and returns where they are then: `words` or `other`, which has as much room.
    `counts` has room for 256 i32 a pass. Before, indices of equal keys ascend; so they do after.
    """
    name = f"sort.{word}.{shift}.{passes}"
    if module.has_function(name):
        return name
    _emit_insert(module, word)
    _emit_count(module, word, shift, passes)
    _emit_distribute(module, word)
    b = FunctionBuilder(module, name, [("words", PTR), ("other", PTR), ("counts", PTR), ("count", I64)], PTR, attributes="nounwind noinline")
    words, other, counts, count = b.args.values()
    few = b.icmp("sle", count, i64(INSERTED))
    with b.if_then(few):
        b.call(f"insert.{word}", LType("void"), words, count)
    b.return_if(few, words)
    b.call(f"count.{word}.{shift}.{passes}", LType("void"), words, counts, count)
    here, there = b.alloca(PTR), b.alloca(PTR)
    b.store(words, here)
    b.store(other, there)
    for digit in range(passes):
        source, to, table = b.load(here, PTR), b.load(there, PTR), b.gep(counts, digit * _DIGITS, I32)
        first = _digit(b, b.load(source, word), shift + 8 * digit)
        shared = b.icmp("eq", b.cast(b.load(b.gep(table, first, I32), I32), I64, signed=False), count)
        with b.if_then(b.not_(shared)):
            b.call(f"distribute.{word}", LType("void"), source, to, table, count, i64(shift + 8 * digit))
            b.store(to, here)
            b.store(source, there)
    return b.finish(b.load(here, PTR))


def _digit(b: FunctionBuilder, word: Val, shift: int | Val) -> Val:
    amount = b.const(shift, word) if isinstance(shift, int) else b.cast(shift, word.type, signed=False)
    return b.and_(b.cast(b.shr(word, amount), I64), i64(_DIGITS - 1))


def _emit_insert(module: Module, word: LType) -> None:
    """`insert.*(ptr words, i64 count)`: sorts few words by insertion. Words differ, since indices do."""
    name = f"insert.{word}"
    if module.has_function(name):
        return
    b = FunctionBuilder(module, name, [("words", PTR), ("count", I64)])
    words = b.args["words"]
    with b.loop(1, b.args["count"], name="word") as loop:
        _insert(b, words, b.load(b.gep(words, loop.index, word), word), loop.index)
    b.finish()


def _insert(b: FunctionBuilder, words: Val, value: Val, place: Val) -> None:
    """Puts `value` where it belongs among the sorted words before `place`, which moves up those that are larger."""
    word, at = value.type, b.alloca(I64)
    b.store(place, at)

    def larger() -> Val:
        """Whether there is a word before the place that is larger."""
        here = b.load(at, I64)
        before = b.load(b.gep(words, b.binary("smax", b.sub(here, i64(1)), i64(0)), word), word)
        return b.and_(b.icmp("sgt", here, i64(0)), b.icmp("ult", value, before))

    def move() -> None:
        here = b.load(at, I64)
        b.store(b.load(b.gep(words, b.sub(here, i64(1)), word), word), b.gep(words, here, word))
        b.store(b.sub(here, i64(1)), at)

    b.while_loop(larger, move)
    b.store(value, b.gep(words, b.load(at, I64), word))


def _emit_count(module: Module, word: LType, shift: int, passes: int) -> None:
    """`count.*(ptr words, ptr counts, i64 count)`: how often each digit occurs, for each pass."""
    name = f"count.{word}.{shift}.{passes}"
    if module.has_function(name):
        return
    b = FunctionBuilder(module, name, [("words", PTR), ("counts", PTR), ("count", I64)])
    words, counts, count = b.args.values()
    lanes = LType("i32", 8)
    with b.loop(0, passes * _DIGITS, 8, name="clear", at_least_once=True) as loop:
        b.store(const(0, lanes), b.gep(counts, loop.index, I32), 4)
    with b.loop(0, count, name="word") as loop:
        value = b.load(b.gep(words, loop.index, word), word)
        for digit in range(passes):
            at = b.gep(counts, b.add(_digit(b, value, shift + 8 * digit), i64(digit * _DIGITS)), I32)
            b.store(b.add(b.load(at, I32), const(1, I32)), at)
    b.finish()


def _emit_distribute(module: Module, word: LType) -> None:
    """`distribute.*(ptr words, ptr to, ptr counts, i64 count, i64 shift)`: moves words to where their digit belongs, in order."""
    name = f"distribute.{word}"
    if module.has_function(name):
        return
    b = FunctionBuilder(module, name, [("words", PTR), ("to", PTR), ("counts", PTR), ("count", I64), ("shift", I64)])
    words, to, counts, count, shift = b.args.values()
    with b.loop(0, _DIGITS, carried=[const(0, I32)], name="sum", at_least_once=True) as loop:
        (before,) = loop.carried
        at = b.gep(counts, loop.index, I32)
        here = b.load(at, I32)
        b.store(before, at)
        loop.carry(b.add(before, here))
    with b.loop(0, count, name="word") as loop:
        value = b.load(b.gep(words, loop.index, word), word)
        at = b.gep(counts, _digit(b, value, shift), I32)
        place = b.load(at, I32)
        b.store(b.add(place, const(1, I32)), at)
        b.store(value, b.gep(to, b.cast(place, I64, signed=False), word))
    b.finish()
