"""Straight-line code: one method for each instruction, on typed operands.

Enters: calls such as ``b.fma(x, y, z)``. Leaves: lines of text in the function that is being written. Refuses: operands whose types differ
(`TypeError`), at the call that mixes them. Blocks and loops are added by text.py.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence

from graphcell.codegen.llvm.values import I1, I32, PTR, VOID, LType, Module, Val, const, count_of_first_lanes, i64, number_in, rounded

_INTEGER_REDUCTIONS = {"add": "add", "mul": "mul", "min": "smin", "max": "smax", "umin": "umin",
                       "umax": "umax", "and": "and", "or": "or", "xor": "xor"}
_NUMBER = re.compile(r"splat \((?:float|double) 0x(?!0{16})\w+\)")
"""A number in all lanes but 0, which needs no memory."""
_REGISTERS = (16, 32, 64)  # bytes
_BOOL_REDUCTIONS = {**_INTEGER_REDUCTIONS, "min": "umin", "max": "umax"}


class Instructions:
    """Appends instructions to a text."""

    def __init__(self, module: Module):
        self.module = module
        self._lines: list[str] = ["entry:"]
        self._entry: list[str] = []  # allocas, placed at the top of the entry block
        self._count = 0
        self._digits: dict[str, str] = {}
        """Of floats (by name) that came of half precision, or were rounded to it: which kind, so that they are not rounded again."""
        self._short_nans: set[str] = set()
        """Floats (by name) that are NaN with nothing in their lower half, if they are: they came of bfloats, or are what arithmetic makes of such."""
        self._negated: dict[str, Val] = {}
        """Floats by name that are the negative of another value."""
        self._masked: set[str] = set()
        """What was loaded by masks that are not known (by name), where `shuffle` has to hide that from LLVM."""
        self._block = "entry"
        self._made: list[dict[object, tuple[Val, ...]]] = [{}]
        """What `once` made, in each of the loops and branches that the current place is in."""
        self.numbers_in_memory = False
        """Whether float arithmetic reads numbers from memory, if the module's processor is one where that helps (see `_operand`)."""

    def once(self, key: object, make: Callable[[], tuple[Val, ...]]) -> tuple[Val, ...]:
        """What `make()` emits, or what it emitted at a place from which every way leads here. `key` says what it is, and holds all it depends on."""
        for known in self._made:
            if key in known:
                return known[key]
        made = self._made[-1][key] = make()
        return made

    def _fresh(self) -> str:
        self._count += 1
        return f"%t{self._count}"

    def raw(self, text: str, type: LType) -> Val:
        """One instruction that yields a value, given as text."""
        name = self._fresh()
        self._lines.append(f"  {name} = {text}")
        return Val(name, type)

    def effect(self, text: str) -> None:
        """One instruction without a value."""
        self._lines.append(f"  {text}")

    def comment(self, text: str) -> None:
        self._lines.append(f"  ; {text}")

    # -- memory ------------------------------------------------------------------------------------------------------
    def alloca(self, type: LType, count: int = 1, align: int = 64) -> Val:
        """Stack storage for `count` elements as `load` and `store` see them, hoisted to the entry block."""
        place = Val(self._fresh(), PTR)
        self.reserve(place, type, count, align)
        return place

    def reserve(self, place: Val, type: LType, count: int, align: int = 64) -> None:
        """Gives a name that is in use already such storage: where its size shows only when the function is written."""
        self._entry.append(f"  {place.text} = alloca {_in_memory(type)}, i64 {count}, align {align}")

    def gep(self, pointer: Val, index: Val | int, element: LType) -> Val:
        """`pointer + index * sizeof(element)`; an i1 counts one byte."""
        index = i64(index) if isinstance(index, int) else index
        if index.text == "0":
            return pointer
        return self.raw(f"getelementptr inbounds {_in_memory(element)}, ptr {pointer.text}, {index}", PTR)

    def load(self, pointer: Val, type: LType, align: int | None = None) -> Val:
        """Loads a scalar or a vector; i1 elements are bytes in memory."""
        if type.kind == "i1":
            return self.icmp("ne", self.load(pointer, LType("i8", type.lanes), align), const(0, LType("i8", type.lanes)))
        return self.raw(f"load {type}, ptr {pointer.text}, align {align or type.bytes}", type)

    def load_as(self, pointer: Val, type: LType, to: LType) -> Val:
        """Loads a scalar or a vector and converts it.

        A single half comes by way of an integer: LLVM would load it into a part of whatever register there is, and wait for what that was to hold, such
        as the result of the turn before in a loop.
        """
        if str(type) != "half" or to.kind not in ("float", "double"):
            return self.cast(self.load(pointer, type), to)
        word = self.cast(self.load(pointer, LType("i16")), LType("i32"), signed=False)
        word = self.raw(f'call i32 asm "", "=r,0"({word})', word.type)  # else LLVM sees the half again
        lanes = self.bitcast(self.insert(const(0, LType("i32", 4)), word, 0), LType("half", 8))
        return self._with_digits(self.extract(self.cast(self.shuffle(lanes, lanes, range(4)), to.with_lanes(4)), 0), "half")

    def store(self, value: Val, pointer: Val, align: int | None = None) -> None:
        if value.type.kind == "i1":
            value = self.cast(value, LType("i8", value.type.lanes))
        self.effect(f"store {value}, ptr {pointer.text}, align {align or value.type.bytes}")

    # what several threads see; `order` is LLVM's word: monotonic, acquire, release, seq_cst
    def load_atomic(self, pointer: Val, type: LType, order: str) -> Val:
        return self.raw(f"load atomic {type}, ptr {pointer.text} {order}, align {type.bytes}", type)

    def store_atomic(self, value: Val, pointer: Val, order: str) -> None:
        self.effect(f"store atomic {value}, ptr {pointer.text} {order}, align {value.type.bytes}")

    def add_atomic(self, pointer: Val, amount: Val, order: str) -> Val:
        """Adds to an integer in memory; its value before."""
        return self.raw(f"atomicrmw add ptr {pointer.text}, {amount} {order}, align {amount.type.bytes}", amount.type)

    def compare_exchange(self, pointer: Val, expected: Val, wanted: Val, order: str, failing: str) -> Val:
        """Puts `wanted` in the place of `expected`; an i1, whether that was there. `failing` is the order of the load if not."""
        type = self._same("compare_exchange", expected, wanted)
        text = f"cmpxchg ptr {pointer.text}, {expected}, {wanted} {order} {failing}, align {type.bytes}"
        return self.raw(f"extractvalue {self.raw(text, LType(f'{{ {type}, i1 }}'))}, 1", I1)

    def masked_load(self, pointer: Val, mask: Val, type: LType) -> Val:
        """Lanes whose mask is off are zero and are not read.

        Of more than a register before AVX-512, LLVM 22 reads lanes that a mask known in part hides: see `PointEmitter._guarded_load`.
        """
        if type.kind == "i1":
            byte = LType("i8", type.lanes)
            return self.icmp("ne", self.masked_load(pointer, mask, byte), const(0, byte))
        if type.kind == "half":
            return self.bitcast(self.masked_load(pointer, mask, type.with_kind("i16")), type)
        zero = Val("zeroinitializer", type)
        value = self.intrinsic(f"masked.load.{type.suffix}.p0", type, aligned(pointer, type.bytes), mask, zero)
        if self.module.avx512 and not mask.text.startswith("<"):
            self._masked.add(value.text)
        return value

    def masked_store(self, value: Val, pointer: Val, mask: Val) -> None:
        if mask.text.startswith("<i1 true") and mask.text.count("true") == 1:
            # LLVM 22 stores the wide lane of a narrowed vector whose constant mask has one lane
            self.store(self.extract(value, 0), pointer)
            return
        value = self._bits_for_memory(value)
        count = count_of_first_lanes(mask) if self.module.slow_masks else 0
        if count:
            self._store_first(value, pointer, count)
            return
        self.intrinsic(f"masked.store.{value.type.suffix}.p0", VOID, value, aligned(pointer, value.type.bytes), mask)

    def _store_first(self, value: Val, pointer: Val, count: int) -> None:
        """Stores the first `count` lanes in runs of powers of two."""
        done = 0
        while done < count:
            part = 1 << ((count - done).bit_length() - 1)
            lanes = self.extract(value, done) if part == 1 else self.shuffle(value, value, range(done, done + part))
            self.store(lanes, self.gep(pointer, done, value.type.with_lanes(0)))
            done += part

    def gather(self, pointers: Val, mask: Val, type: LType) -> Val:
        """`pointers` is a vector of pointers; lanes whose mask is off are zero and are not read."""
        if type.kind == "i1":
            byte = LType("i8", type.lanes)
            return self.icmp("ne", self.gather(pointers, mask, byte), const(0, byte))
        if type.kind == "half":
            return self.bitcast(self.gather(pointers, mask, type.with_kind("i16")), type)
        zero = Val("zeroinitializer", type)
        name = f"masked.gather.{type.suffix}.v{type.lanes}p0"
        return self.intrinsic(name, type, aligned(pointers, type.bytes), mask, zero)

    def scatter(self, value: Val, pointers: Val, mask: Val) -> None:
        value = self._bits_for_memory(value)
        name = f"masked.scatter.{value.type.suffix}.v{value.type.lanes}p0"
        self.intrinsic(name, VOID, value, aligned(pointers, value.type.bytes), mask)

    def _bits_for_memory(self, value: Val) -> Val:
        """What a masked store writes: bytes for i1, integers for half, as LLVM may convert it one by one."""
        if value.type.kind == "i1":
            return self.cast(value, value.type.with_kind("i8"))
        return self.bitcast(value, value.type.with_kind("i16")) if value.type.kind == "half" else value

    def gep_vector(self, pointer: Val, indices: Val, element: LType) -> Val:
        """A vector of pointers `pointer + indices[l] * sizeof(element)`."""
        text = f"getelementptr {_in_memory(element)}, ptr {pointer.text}, {indices}"
        return self.raw(text, LType("ptr", indices.type.lanes))

    # -- calls -------------------------------------------------------------------------------------------------------
    def call(self, name: str, result: LType, *args: Val) -> Val:
        text = f"call {result} @{name}({', '.join(map(str, args))})"
        if result == VOID:
            self.effect(text)
            return Val("", VOID)
        return self.raw(text, result)

    def call_pointer(self, pointer: Val, result: LType, *args: Val) -> Val:
        text = f"call {result} {pointer.text}({', '.join(map(str, args))})"
        if result == VOID:
            self.effect(text)
            return Val("", VOID)
        return self.raw(text, result)

    def intrinsic(self, name: str, result: LType, *args: Val, attributes: str = "") -> Val:
        """Declares and calls `@llvm.<name>`; flags such as `contract` may stand before the name: not needed here."""
        self.module.declare(f"llvm.{name}", result, [a.type for a in args], attributes)
        return self.call(f"llvm.{name}", result, *args)

    # -- arithmetic --------------------------------------------------------------------------------------------------
    def _same(self, what: str, *xs: Val) -> LType:
        first = xs[0].type
        if any(x.type != first for x in xs):
            raise TypeError(f"{what}: operand types differ: {', '.join(str(x.type) for x in xs)}")
        return first

    def const(self, value: float | int | bool, like: LType | Val) -> Val:
        """A constant (splat, if vector) of the type of `like`."""
        return const(value, like.type if isinstance(like, Val) else like)

    def _operand(self, x: Val) -> Val:
        """`x`, or if it is a number of a vector of several registers, such a vector made of one that lies in memory, loaded once a block.

        LLVM takes a constant for cheaper than a register: where a function has more numbers than the processor has registers, each is broadcast
        anew for nearly every use. What is loaded is kept. AVX-512 has more registers, and broadcasts as operands.
        """
        lanes = self.module.number_bytes // x.type.bytes if self.numbers_in_memory else 0
        if not lanes or x.type.lanes <= lanes or x.type.lanes % lanes or not _NUMBER.fullmatch(x.text):
            return x
        return self.once(("number", self._block, x), lambda: (self._from_memory(x, x.type.with_lanes(lanes)),))[0]

    def _from_memory(self, number: Val, register: LType) -> Val:
        align = self.module.number_bytes
        place = self.module.add_global(f"number.{register.suffix}.{number.text[-17:-1]}", f"internal global {register} {number.text}, align {align}")
        one = self.load(place, register, align)
        return self.shuffle(one, one, [k % register.lanes for k in range(number.type.lanes)])

    def _in_float(self, operation: Callable[..., Val], *xs: Val) -> Val:
        """An operation on bfloat operands: computed in float, the result rounded."""
        result = operation(*(self.cast(x, x.type.with_kind("float")) for x in xs))
        return self.cast(result, result.type.with_kind("bfloat"))

    def add(self, x: Val, y: Val) -> Val:
        t = self._same("add", x, y)
        if t.kind == "bfloat":
            return self._in_float(self.add, x, y)
        return self._of_short_nans(self.raw(f"{'fadd' if t.is_float else 'add'} {t} {self._operand(x).text}, {self._operand(y).text}", t), x, y)

    def sub(self, x: Val, y: Val) -> Val:
        t = self._same("sub", x, y)
        if t.kind == "bfloat":
            return self._in_float(self.sub, x, y)
        return self._of_short_nans(self.raw(f"{'fsub' if t.is_float else 'sub'} {t} {self._operand(x).text}, {self._operand(y).text}", t), x, y)

    def mul(self, x: Val, y: Val) -> Val:
        t = self._same("mul", x, y)
        if t.kind == "bfloat":
            return self._in_float(self.mul, x, y)
        return self._of_short_nans(self.raw(f"{'fmul' if t.is_float else 'mul'} {t} {self._operand(x).text}, {self._operand(y).text}", t), x, y)

    def div(self, x: Val, y: Val, *, signed: bool = True) -> Val:
        """Float division, or integer division truncating toward zero (the caller guards zero divisors)."""
        t = self._same("div", x, y)
        if t.kind == "bfloat":
            return self._in_float(self.div, x, y)
        op = "fdiv" if t.is_float else "sdiv" if signed else "udiv"
        return self._of_short_nans(self.raw(f"{op} {t} {self._operand(x).text}, {self._operand(y).text}", t), x, y)

    def rem(self, x: Val, y: Val, *, signed: bool = True) -> Val:
        """Remainder with the sign of the dividend (the caller guards zero divisors)."""
        t = self._same("rem", x, y)
        if t.kind == "bfloat":
            return self._in_float(self.rem, x, y)
        return self.raw(f"{'frem' if t.is_float else 'srem' if signed else 'urem'} {t} {x.text}, {y.text}", t)

    def neg(self, x: Val) -> Val:
        if x.type.kind == "bfloat":
            bits = self.bitcast(x, x.type.with_kind("i16"))
            return self.bitcast(self.xor(bits, const(0x8000, bits.type)), x.type)
        if x.type.is_float:
            result = self._of_short_nans(self.raw(f"fneg {x}", x.type), x)
            self._negated[result.text] = x
            return result
        return self.sub(const(0, x.type), x)

    def without_minus(self, x: Val) -> Val:
        """x, or what x is the negative of: where the sign does not matter."""
        return self._negated.get(x.text, x)

    def fma(self, x: Val, y: Val, z: Val) -> Val:
        """x * y + z rounded once (bfloat: to float before)."""
        t = self._same("fma", x, y, z)
        if t.kind == "bfloat":
            return self._in_float(self.fma, x, y, z)
        if t.kind == "half":  # in double nothing is lost that could matter to a half
            return self.cast(self.fma(*(self.cast(v, t.with_kind("double")) for v in (x, y, z))), t)
        return self._of_short_nans(self.intrinsic(f"fma.{t.suffix}", t, *map(self._operand, (x, y, z))), x, y, z)

    def fma_in_place(self, x: Val, y: Val, total: Val) -> Val:
        """x * y + total, in the register of `total`. Where y is used but once, LLVM would take that of y; with AVX2's sixteen registers it then keeps
        some of the totals of a loop in memory.
        """
        result = self.fma(x, y, total)
        in_register = result.type.kind in ("float", "double") and result.type.lanes * result.type.bytes in (16, 32)
        if not (self.module.avx2 and in_register):
            return result
        return self.raw(f'call {result.type} asm "", "=x,0,x"({result}, {y})', result.type)  # so y is in use beyond

    def and_(self, x: Val, y: Val) -> Val:
        t = self._same("and", x, y)
        return self.raw(f"and {t} {x.text}, {y.text}", t)

    def or_(self, x: Val, y: Val) -> Val:
        t = self._same("or", x, y)
        return self.raw(f"or {t} {x.text}, {y.text}", t)

    def xor(self, x: Val, y: Val) -> Val:
        t = self._same("xor", x, y)
        return self.raw(f"xor {t} {x.text}, {y.text}", t)

    def not_(self, x: Val) -> Val:
        return self.xor(x, const(1 if x.type.kind == "i1" else -1, x.type))

    def shl(self, x: Val, y: Val) -> Val:
        t = self._same("shl", x, y)
        return self.raw(f"shl {t} {x.text}, {y.text}", t)

    def shr(self, x: Val, y: Val, *, signed: bool = False) -> Val:
        t = self._same("shr", x, y)
        return self.raw(f"{'ashr' if signed else 'lshr'} {t} {x.text}, {y.text}", t)

    # -- comparison and selection ------------------------------------------------------------------------------------
    def icmp(self, predicate: str, x: Val, y: Val) -> Val:
        """`predicate`: eq ne slt sle sgt sge ult ule ugt uge."""
        t = self._same("icmp", x, y)
        return self.raw(f"icmp {predicate} {t} {x.text}, {y.text}", LType("i1", t.lanes))

    def fcmp(self, predicate: str, x: Val, y: Val) -> Val:
        """`predicate`: oeq une olt ole ogt oge uno ord …"""
        t = self._same("fcmp", x, y)
        if t.kind == "bfloat":
            wide = t.with_kind("float")
            return self.fcmp(predicate, self.cast(x, wide), self.cast(y, wide))
        return self.raw(f"fcmp {predicate} {t} {x.text}, {y.text}", LType("i1", t.lanes))

    def select(self, condition: Val, x: Val, y: Val) -> Val:
        t = self._same("select", x, y)
        return self._of_short_nans(self.raw(f"select {condition}, {x}, {y}", t), x, y)

    def unary(self, intrinsic: str, x: Val) -> Val:
        """A one-operand float intrinsic: sqrt, fabs, floor, ceil, trunc, roundeven, …"""
        if x.type.kind == "bfloat":
            return self._in_float(lambda wide: self.unary(intrinsic, wide), x)
        return self._of_short_nans(self.intrinsic(f"{intrinsic}.{x.type.suffix}", x.type, x), x)

    def binary(self, intrinsic: str, x: Val, y: Val) -> Val:
        """A two-operand intrinsic: minnum, maxnum, minimum, maximum, copysign, smin, smax, umin, umax, …"""
        t = self._same(intrinsic, x, y)
        if t.kind == "bfloat":
            return self._in_float(lambda *wide: self.binary(intrinsic, *wide), x, y)
        return self._of_short_nans(self.intrinsic(f"{intrinsic}.{t.suffix}", t, x, y), x, y)

    # -- conversion and lanes ----------------------------------------------------------------------------------------
    def bitcast(self, x: Val, type: LType) -> Val:
        """The same bits as another type of as many bits."""
        if str(x.type) == str(type):
            return Val(x.text, type)
        result = self.raw(f"bitcast {x} to {type}", type)
        if x.text in self._masked:
            self._masked.add(result.text)
        return result

    def cast(self, x: Val, to: LType, *, signed: bool = True) -> Val:
        """Numeric conversion of a scalar, or of each lane.

        `signed` says how the integer side is read. To i1 is `x != 0` (NaN is true), an i1 counts as 0 or 1.
        Floats round to nearest, ties to even; double and integers reach bfloat by way of float. To integers
        floats truncate and saturate, NaN is 0; integers wrap.
        """
        source = x.type
        if source == to:
            return x
        if source.lanes != to.lanes or "ptr" in (source.kind, to.kind):
            raise TypeError(f"cast: no conversion of {source} to {to}")
        if to.kind == "i1":
            zero = const(0, source)
            return self.fcmp("une", x, zero) if source.is_float else self.icmp("ne", x, zero)
        if to.is_float:
            return self._cast_float(x, to) if source.is_float else self._cast_from_integer(x, to, signed)
        if source.kind == "bfloat":
            return self.cast(self.cast(x, source.with_kind("float")), to, signed=signed)
        if source.is_float and to.bits < 32:
            return self._cast_to_short(x, to, signed)
        if source.is_float and source.lanes:
            return self._cast_to_long(x, to, signed)
        if source.is_float:
            return self.intrinsic(f"fpto{'si' if signed else 'ui'}.sat.{to.suffix}.{source.suffix}", to, x)
        if source.bits > to.bits:
            return self.raw(f"trunc {x} to {to}", to)
        unsigned = source.kind == "i1" or not signed
        return self.raw(f"{'zext' if unsigned else 'sext'} {x} to {to}", to)

    def _cast_to_short(self, x: Val, to: LType, signed: bool) -> Val:
        """A float as an integer of 8 or 16 bits: clamped as a float, by way of i32 (LLVM's own saturating conversion goes element by element)."""
        if x.type.bits < 32:
            x = self.cast(x, x.type.with_kind("float"))
        if signed:
            x = self.select(self.fcmp("ord", x, x), x, self.const(0, x))
        low, high = (self.const(n, x) for n in ((-(1 << to.bits - 1), (1 << to.bits - 1) - 1) if signed else (0, (1 << to.bits) - 1)))
        x = self.select(self.fcmp("ogt", x, low), x, low)  # NaN is 0
        x = self.select(self.fcmp("olt", x, high), x, high)
        wide = to.with_kind("i32")
        return self.raw(f"trunc {self.raw(f'fptosi {x} to {wide}', wide)} to {to}", to)

    def _cast_to_long(self, x: Val, to: LType, signed: bool) -> Val:
        """Floats as integers of 32 or 64 bits: what these do not hold is selected apart (LLVM's own saturating conversion goes element by element)."""
        if x.type.bits < 32:
            x = self.cast(x, x.type.with_kind("float"))
        low, above = (-(2.0 ** (to.bits - 1)), 2.0 ** (to.bits - 1)) if signed else (0.0, 2.0**to.bits)
        fits = self.and_(self.fcmp("oge" if signed else "ogt", x, self.const(low, x)), self.fcmp("olt", x, self.const(above, x)))
        kept = self.select(fits, x, self.const(0, x))  # NaN is 0
        found = self.raw(f"{'fptosi' if signed else 'fptoui'} {kept} to {to}", to)
        if signed:
            found = self.select(self.fcmp("olt", x, self.const(low, x)), const(-(1 << to.bits - 1), to), found)
        return self.select(self.fcmp("oge", x, self.const(above, x)), const((1 << to.bits - 1) - 1 if signed else -1, to), found)

    def _cast_from_integer(self, x: Val, to: LType, signed: bool) -> Val:
        if to.bits == 16:  # exact where it matters for half: integers that float rounds are beyond its range
            return self.cast(self._cast_from_integer(x, to.with_kind("float"), signed), to)
        unsigned = x.type.kind == "i1" or not signed
        return self.raw(f"{'uitofp' if unsigned else 'sitofp'} {x} to {to}", to)

    def _cast_float(self, x: Val, to: LType) -> Val:
        """Between float types. What LLVM would leave to functions of compiler-rt is written out."""
        source, single = x.type, to.with_kind("float")
        if "bfloat" in (source.kind, to.kind) and "float" not in (source.kind, to.kind):
            return self.cast(self.cast(x, single), to)
        if to.kind == "bfloat":
            return self._round_to_bfloat(x)
        if source.kind == "bfloat":
            bits = self.cast(self.bitcast(x, to.with_kind("i16")), to.with_kind("i32"), signed=False)
            return self._with_digits(self.bitcast(self.shl(bits, const(16, bits.type)), to), "bfloat")
        if to.bits > source.bits:
            return self._with_digits(self.raw(f"fpext {x} to {to}", to), source.kind)
        if (source.kind, to.kind) == ("double", "half"):
            x = self._round_to_odd(x)
        return self.raw(f"fptrunc {x} to {to}", to)

    def _round_to_bfloat(self, x: Val) -> Val:
        """float to bfloat in integers: to nearest even, subnormals kept, a NaN made quiet."""
        bits = self._with_bits_of_bfloat(x)
        return self.bitcast(self.cast(self.shr(bits, const(16, bits.type)), x.type.with_kind("i16")), x.type.with_kind("bfloat"))

    def rounded_to(self, kind: str, x: Val) -> Val:
        """A float with the digits of half or bfloat, as a float."""
        if self._digits.get(x.text) == kind:
            return x
        if kind == "half":
            return self.cast(self.cast(x, x.type.with_kind(kind)), x.type)
        bits = self._with_bits_of_bfloat(x)
        return self._with_digits(self.bitcast(self.and_(bits, const(0xFFFF0000, bits.type)), x.type), kind)

    def _with_digits(self, x: Val, kind: str) -> Val:
        self._digits[x.text] = kind
        return self.with_short_nan(x) if kind == "bfloat" else x

    def with_short_nan(self, x: Val) -> Val:
        """x, of which the caller knows that its lower half is 0 if it is NaN."""
        self._short_nans.add(x.text)
        return x

    def _of_short_nans(self, x: Val, *operands: Val) -> Val:
        """x, which is no NaN but one of these operands or the processor's own: rounding to bfloat by adding keeps it if it keeps theirs."""
        if x.type.kind == "float" and all(v.text in self._short_nans or _is_number(v) for v in operands):
            self.with_short_nan(x)
        return x

    def keep_digits(self, x: Val, of: Sequence[Val]) -> None:
        """Says that x is one of these floats, but for its sign: it has no more digits than they. A number has those of any kind that holds it."""
        numbers = [n for v in of if (n := number_in(v)) is not None]
        kinds = {self._digits.get(v.text, "") for v in of if number_in(v) is None}
        if len(kinds) == 1 and "" not in kinds:
            (kind,) = kinds
            if all(rounded(n, kind) == n for n in numbers):
                self._with_digits(x, kind)

    def _with_bits_of_bfloat(self, x: Val) -> Val:
        """An i32 whose upper half is the float x as bfloat."""
        bits = self.bitcast(x, x.type.with_kind("i32"))
        if self._digits.get(x.text) == "bfloat":
            return bits
        if self.module.avx512 and x.type.lanes:
            odd = self.icmp("ne", self.and_(bits, const(0x10000, bits.type)), const(0, bits.type))
            down = self.add(bits, const(0x7FFF, bits.type))
            rounded = self.select(odd, self.add(down, const(1, bits.type)), down)
        else:
            half_way = self.add(self.and_(self.shr(bits, const(16, bits.type)), const(1, bits.type)), const(0x7FFF, bits.type))
            rounded = self.add(bits, half_way)
        if x.text in self._short_nans:
            return rounded
        return self.select(self.fcmp("uno", x, x), self.or_(bits, const(0x7FC00000, bits.type)), rounded)

    def _round_to_odd(self, x: Val) -> Val:
        """double to float such that rounding that to half gives what rounding the double would.

        An inexact result takes the neighbour whose last bit is set, which no tie has. Boldo and Melquiond,
        "When double rounding is odd", 2005.
        """
        single = self.raw(f"fptrunc {x} to {x.type.with_kind('float')}", x.type.with_kind("float"))
        back = self.cast(single, x.type)
        bits = self.bitcast(single, x.type.with_kind("i32"))
        even = self.icmp("eq", self.and_(bits, const(1, bits.type)), const(0, bits.type))
        farther = self.fcmp("ogt", self.unary("fabs", x), self.unary("fabs", back))
        odd = self.add(bits, self.select(farther, const(1, bits.type), const(-1, bits.type)))
        chosen = self.select(self.and_(even, self.fcmp("one", x, back)), odd, bits)
        return self.bitcast(chosen, single.type)

    def splat(self, x: Val, lanes: int) -> Val:
        """A scalar in every lane; a vector of that many lanes, or with 0 lanes asked for, stays as it is."""
        if lanes == 0 or x.type.lanes == lanes:
            return x
        if x.type.lanes:
            raise TypeError(f"splat: {x.type} is no scalar and has not {lanes} lanes")
        t = x.type.with_lanes(lanes)
        if not x.text.startswith(("%", "@")):
            return Val(f"splat ({x.type} {x.text})", t)
        one = self.raw(f"insertelement {t} poison, {x}, i64 0", t)
        result = self.raw(f"shufflevector {t} {one.text}, {t} poison, <{lanes} x i32> zeroinitializer", t)
        self.keep_digits(result, [x])
        return result

    def extract(self, x: Val, lane: int | Val) -> Val:
        index = i64(lane) if isinstance(lane, int) else lane
        return self.raw(f"extractelement {x}, {index}", x.type.with_lanes(0))

    def insert(self, x: Val, scalar: Val, lane: int | Val) -> Val:
        index = i64(lane) if isinstance(lane, int) else lane
        return self.raw(f"insertelement {x}, {scalar}, {index}", x.type)

    def shuffle(self, x: Val, y: Val, lanes: Sequence[int]) -> Val:
        """Some lanes of x and of y, which follow those of x.

        Where the result is then selected by the mask by which x was loaded, LLVM 22 makes one instruction of all three, which applies the mask to its
        result only, and reads all of x. An empty piece of assembly between load and shuffle keeps them apart.
        """
        kept = self._kept_apart(x) if x.text in self._masked else x
        x, y = kept, kept if y is x else self._kept_apart(y) if y.text in self._masked else y
        return self._shuffled(x, y, lanes)

    def _shuffled(self, x: Val, y: Val, lanes: Sequence[int]) -> Val:
        mask = ", ".join(f"i32 {k}" for k in lanes)
        return self.raw(f"shufflevector {x}, {y}, <{len(lanes)} x i32> <{mask}>", x.type.with_lanes(len(lanes)))

    def _kept_apart(self, x: Val) -> Val:
        """The same in registers of its own; what is smaller than one LLVM leaves apart in any case."""
        lanes, size = x.type.lanes, x.type.bytes * x.type.lanes
        if size > _REGISTERS[-1]:
            low, high = (self._kept_apart(self._shuffled(x, x, half)) for half in (range(lanes // 2), range(lanes // 2, lanes)))
            return self._shuffled(low, high, range(lanes))
        return self.raw(f'call {x.type} asm "", "=v,0"({x})', x.type) if size in _REGISTERS else x

    def iota(self, lanes: int, kind: str = "i64") -> Val:
        """<0, 1, 2, …>"""
        return Val(f"<{', '.join(f'{kind} {k}' for k in range(lanes))}>", LType(kind, lanes))

    def lane_mask(self, count: Val, lanes: int) -> Val:
        """The first `count` lanes on (count is an i64 scalar, not negative; it may exceed `lanes`)."""
        narrow = self.cast(self.binary("smin", count, i64(lanes)), I32)
        return self.icmp("slt", self.iota(lanes, "i32"), self.splat(narrow, lanes))

    def reduce(self, kind: str, x: Val) -> Val:
        """Horizontal reduction of a vector; a scalar is returned as it is.

        `kind` is add, mul, min or max; for integers also umin, umax, and, or, xor (min and max are signed, but
        an i1 is 0 or 1). Floats are added by halves, odd lanes last, and NaN wins for min and max.
        """
        t = x.type.with_lanes(0)
        if kind not in (("add", "mul", "min", "max") if t.is_float else _INTEGER_REDUCTIONS):
            raise TypeError(f"reduce: no {kind} of {x.type}")
        if not x.type.lanes:
            return x
        if not t.is_float:
            name = (_BOOL_REDUCTIONS if t.kind == "i1" else _INTEGER_REDUCTIONS)[kind]
            return self.intrinsic(f"vector.reduce.{name}.{x.type.suffix}", t, x)
        if kind in ("min", "max"):
            if t.kind == "bfloat":
                return self._in_float(lambda wide: self.reduce(kind, wide), x)
            return self.intrinsic(f"vector.reduce.f{kind}imum.{x.type.suffix}", t, x)
        combine = self.add if kind == "add" else self.mul
        odd: list[Val] = []
        while x.type.lanes > 1:  # halves: the order is ours, so that every target gives the same bits
            half = x.type.lanes // 2
            if x.type.lanes % 2:
                odd.append(self.extract(x, 2 * half))
            x = combine(self.shuffle(x, x, range(half)), self.shuffle(x, x, range(half, 2 * half)))
        return functools.reduce(combine, odd, self.extract(x, 0))


def _is_number(x: Val) -> bool:
    """Whether x is a constant, the same in all lanes, and not NaN."""
    number = None if x.text.startswith("%") else number_in(x)
    return number is not None and not math.isnan(number)


def _in_memory(type: LType) -> LType:
    """The type that `load` and `store` use for `type`: an i1 is a byte."""
    return type.with_kind("i8") if type.kind == "i1" else type


def aligned(pointer: Val, align: int) -> Val:
    """A pointer argument of a masked intrinsic, which carries its alignment as an attribute."""
    return Val(f"align {align} {pointer.text}", pointer.type)
