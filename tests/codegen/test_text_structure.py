"""Control flow and stack storage of the text emitter: compiled, run, and compared with the same program in
Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from graphcell.codegen.llvm import target
from graphcell.codegen.llvm.text import (
    F32,
    F64,
    I1,
    I32,
    I64,
    PTR,
    FunctionBuilder,
    LType,
    Module,
    Val,
    const,
    i64,
)
from graphcell.errors import CodegenError


class Built:
    """One function of i64 arguments that is given an i64 array and returns an i64."""

    def __init__(self, count: int, emit: Callable[..., Val]):
        module = Module()
        names = [f"x{k}" for k in range(count)]
        params = [("out", PTR), *((name, I64) for name in names)]
        b = FunctionBuilder(module, "f", params, I64, internal=False)
        b.finish(emit(b, b.args["out"], *(b.args[name] for name in names)))
        self.text = str(module)
        self._code = target.load_object(target.compile_object(self.text, target.host()))
        self._call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * count)(
            self._code.address("f"))
        self.out = np.full(64, -1, np.int64)

    def __call__(self, *args: int) -> int:
        self.out[:] = -1
        return int(self._call(self.out.ctypes.data, *args))


RANGES = [
    (0, 0, 1), (0, 1, 1), (0, 7, 1), (3, 3, 1), (5, 3, 1), (-4, 5, 2), (0, 10, 3), (0, 9, 3), (2, 3, 100),
]
KINDS = ("i1", "i8", "i16", "i32", "i64", "half", "bfloat", "float", "double", "ptr")
big = 2**63


def wrap(value: int) -> int:
    return (value + big) % (2 * big) - big


# -- loop ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("start", "stop", "step"), RANGES)
def test_loop_visits_the_indices_of_range(start: int, stop: int, step: int) -> None:
    def emit(b: FunctionBuilder, out: Val, first: Val, last: Val, by: Val) -> Val:
        with b.loop(first, last, by, carried=[i64(0)]) as loop:
            b.store(loop.index, b.gep(out, loop.carried[0], I64))
            loop.carry(b.add(loop.carried[0], i64(1)))
        return loop.results[0]

    f = Built(3, emit)
    expected = list(range(start, stop, step))
    assert f(start, stop, step) == len(expected)
    assert f.out[:len(expected)].tolist() == expected
    assert (f.out[len(expected):] == -1).all()


@pytest.mark.parametrize(("start", "stop", "step"), [r for r in RANGES if r[0] < r[1]])
def test_loop_at_least_once(start: int, stop: int, step: int) -> None:
    def emit(b: FunctionBuilder, out: Val, first: Val, last: Val, by: Val) -> Val:
        with b.loop(first, last, by, carried=[i64(0), i64(1)], at_least_once=True) as loop:
            count, product = loop.carried
            b.store(loop.index, b.gep(out, count, I64))
            loop.carry(b.add(count, i64(1)), b.mul(product, b.add(loop.index, i64(10))))
        b.store(loop.results[1], b.gep(out, 60, I64))
        return loop.results[0]

    f = Built(3, emit)
    expected = list(range(start, stop, step))
    assert f(start, stop, step) == len(expected)
    assert f.out[:len(expected)].tolist() == expected
    assert f.out[60] == np.prod([x + 10 for x in expected])


@pytest.mark.parametrize("at_least_once", [False, True])
def test_loop_without_carry_passes_the_values_on(at_least_once: bool) -> None:
    def emit(b: FunctionBuilder, out: Val, n: Val) -> Val:
        with b.loop(0, n, carried=[n], at_least_once=at_least_once) as loop:
            b.store(loop.carried[0], b.gep(out, loop.index, I64))
        return loop.results[0]

    f = Built(1, emit)
    assert f(3) == 3 and f.out[:4].tolist() == [3, 3, 3, -1]


def test_loop_constant_bounds_and_zero_trips() -> None:
    def emit(b: FunctionBuilder, out: Val) -> Val:
        with b.loop(2, 11, 4, carried=[i64(0)]) as loop:
            loop.carry(b.add(loop.carried[0], loop.index))
        with b.loop(5, 5, carried=[loop.results[0]]) as none:
            none.carry(i64(99))
        return none.results[0]

    assert Built(0, emit)() == 2 + 6 + 10


@pytest.mark.parametrize("at_least_once", [False, True])
def test_loop_carries_that_swap(at_least_once: bool) -> None:
    """Fibonacci: the carried values change places, so they must be read at once."""
    def emit(b: FunctionBuilder, out: Val, n: Val) -> Val:
        with b.loop(0, n, carried=[i64(0), i64(1)], at_least_once=at_least_once) as loop:
            x, y = loop.carried
            loop.carry(y, b.add(x, y))
        return loop.results[0]

    f = Built(1, emit)
    assert [f(n) for n in (1, 2, 3, 10, 50)] == [1, 1, 2, 55, 12586269025]


@pytest.mark.parametrize("inner_once", [False, True])
@pytest.mark.parametrize("outer_once", [False, True])
def test_nested_loops_with_carried_values(outer_once: bool, inner_once: bool) -> None:
    """The end of the body is another block than its begin: the phis must name the block that jumps back."""
    def emit(b: FunctionBuilder, out: Val, n: Val, m: Val) -> Val:
        with b.loop(0, n, carried=[i64(7), i64(0)], at_least_once=outer_once) as outer:
            total, rounds = outer.carried
            with b.loop(0, m, 2, carried=[total], at_least_once=inner_once) as inner:
                product = b.mul(inner.carried[0], i64(3))
                inner.carry(b.add(product, b.xor(outer.index, inner.index)))
            with b.if_then(b.icmp("eq", b.and_(outer.index, i64(1)), i64(0))):
                b.store(inner.results[0], b.gep(out, outer.index, I64))
            outer.carry(inner.results[0], b.add(rounds, i64(1)))
        b.store(outer.results[1], b.gep(out, 63, I64))
        return outer.results[0]

    f = Built(2, emit)
    for n, m in ((1, 1), (4, 5), (5, 8)):
        total, seen = 7, np.full(64, -1, np.int64)
        for i in range(n):
            for j in range(0, m, 2):
                total = wrap(total * 3 + (i ^ j))
            if i % 2 == 0:
                seen[i] = total
        seen[63] = n
        assert f(n, m) == total
        assert f.out.tolist() == seen.tolist()


@pytest.mark.parametrize("at_least_once", [False, True])
def test_loop_body_that_ends_in_other_blocks(at_least_once: bool) -> None:
    """Collatz lengths: a while and an if inside a for, with a carried maximum."""
    def emit(b: FunctionBuilder, out: Val, n: Val) -> Val:
        value, steps = b.alloca(I64), b.alloca(I64)
        with b.loop(1, n, carried=[i64(0)], at_least_once=at_least_once) as loop:
            b.store(loop.index, value)
            b.store(i64(0), steps)

            def advance() -> None:
                x = b.load(value, I64)
                b.if_else(b.icmp("eq", b.and_(x, i64(1)), i64(0)),
                          lambda: b.store(b.shr(x, i64(1)), value),
                          lambda: b.store(b.add(b.mul(x, i64(3)), i64(1)), value))
                b.store(b.add(b.load(steps, I64), i64(1)), steps)

            b.while_loop(lambda: b.icmp("ne", b.load(value, I64), i64(1)), advance)
            loop.carry(b.binary("smax", loop.carried[0], b.load(steps, I64)))
        return loop.results[0]

    def length(x: int) -> int:
        return 0 if x == 1 else 1 + length(x // 2 if x % 2 == 0 else 3 * x + 1)

    f = Built(1, emit)
    for n in (2, 10, 30):
        assert f(n) == max(map(length, range(1, n)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lanes", [0, 1, 4, 16])
def test_loop_carries_every_type(kind: str, lanes: int) -> None:
    """Starting from a constant (a splat, for vectors): a value is carried through two loops unchanged."""
    type = LType(kind, lanes)

    def emit(b: FunctionBuilder, out: Val, n: Val) -> Val:
        start = const(0 if kind == "ptr" else 1, type)
        with b.loop(0, n, carried=[start, i64(0)]) as first:
            first.carry(first.carried[0], b.add(first.carried[1], i64(1)))
        with b.loop(0, n, carried=first.results, at_least_once=True) as second:
            second.carry(b.select(b.icmp("eq", n, second.index), start, second.carried[0]), second.carried[1])
        if kind != "ptr":
            b.store(second.results[0], out)
        return second.results[1]

    f = Built(1, emit)
    assert f(5) == 5
    if kind == "ptr":
        return
    stored = f.out.view(np.uint8)[:max(lanes, 1) * type.bytes]
    one = {"half": 0x3C00, "bfloat": 0x3F80, "float": 0x3F800000, "double": 0x3FF0000000000000}.get(kind, 1)
    assert stored.tobytes() == one.to_bytes(type.bytes, "little") * max(lanes, 1)
    assert (f.out.view(np.uint8)[stored.size:] == 255).all()


def test_loop_carry_refuses_other_types() -> None:
    b = FunctionBuilder(Module(), "f", [("n", I64)])
    with pytest.raises(TypeError, match="loop carries"), b.loop(0, b.args["n"], carried=[i64(0)]) as loop:
        loop.carry(const(0, I32))
    with pytest.raises(TypeError, match="loop carries"), b.loop(0, b.args["n"], carried=[i64(0)]) as loop:
        loop.carry(i64(0), i64(0))


@pytest.mark.parametrize("bound", [const(3, I32), const(3.0, F32), const(3, LType("i64", 4))])
def test_loop_bounds_are_i64(bound: Val) -> None:
    b = FunctionBuilder(Module(), "f", [])
    for bounds in ((bound, 5, 1), (0, bound, 1), (0, 5, bound), (bound, bound, bound)):
        with pytest.raises(TypeError, match="loop"), b.loop(*bounds):
            pass


def test_loop_far_from_zero() -> None:
    def emit(b: FunctionBuilder, out: Val, first: Val, last: Val) -> Val:
        with b.loop(first, last, carried=[i64(0)]) as loop:
            loop.carry(b.add(loop.carried[0], i64(1)))
        return loop.results[0]

    f = Built(2, emit)
    assert f(2**40, 2**40 + 5) == 5
    assert f(-big, -big + 3) == 3
    assert f(big - 4, big - 1) == 3


# -- if, while, return ---------------------------------------------------------------------------------------
def test_if_then_nested() -> None:
    def emit(b: FunctionBuilder, out: Val, x: Val, y: Val) -> Val:
        with b.if_then(b.icmp("sgt", x, i64(0))):
            b.store(i64(1), out)
            with b.if_then(b.icmp("sgt", y, i64(0))):
                b.store(i64(2), b.gep(out, 1, I64))
            b.store(i64(3), b.gep(out, 2, I64))
        return i64(9)

    f = Built(2, emit)
    assert f(1, 1) == 9 and f.out[:3].tolist() == [1, 2, 3]
    assert f(1, 0) == 9 and f.out[:3].tolist() == [1, -1, 3]
    assert f(0, 1) == 9 and f.out[:3].tolist() == [-1, -1, -1]


def test_if_else_chain_with_loops_in_the_branches() -> None:
    def emit(b: FunctionBuilder, out: Val, x: Val) -> Val:
        place = b.alloca(I64)

        def triangle() -> None:
            with b.loop(0, x, carried=[i64(0)]) as loop:
                loop.carry(b.add(loop.carried[0], loop.index))
            b.store(loop.results[0], place)

        def negative() -> None:
            b.if_else(b.icmp("eq", x, i64(-1)), lambda: b.store(i64(-100), place),
                      lambda: b.store(b.neg(x), place))

        b.if_else(b.icmp("sge", x, i64(0)), triangle, negative)
        return b.load(place, I64)

    f = Built(1, emit)
    assert [f(x) for x in (0, 1, 5, -1, -2, -7)] == [0, 0, 10, -100, 2, 7]


def test_while_loop_nested() -> None:
    """Greatest common divisors by subtraction, the outer loop counting down."""
    def emit(b: FunctionBuilder, out: Val, n: Val, m: Val) -> Val:
        left, x, y, total = (b.alloca(I64) for _ in range(4))
        b.store(n, left)
        b.store(i64(0), total)

        def subtract() -> None:
            p, q = b.load(x, I64), b.load(y, I64)
            b.if_else(b.icmp("sgt", p, q), lambda: b.store(b.sub(p, q), x), lambda: b.store(b.sub(q, p), y))

        def one() -> None:
            b.store(b.load(left, I64), x)
            b.store(m, y)
            b.while_loop(lambda: b.icmp("ne", b.load(x, I64), b.load(y, I64)), subtract)
            b.store(b.add(b.load(total, I64), b.load(x, I64)), total)
            b.store(b.sub(b.load(left, I64), i64(1)), left)

        b.while_loop(lambda: b.icmp("sgt", b.load(left, I64), i64(0)), one)
        return b.load(total, I64)

    f = Built(2, emit)
    for n, m in ((0, 5), (1, 1), (12, 18), (7, 30)):
        assert f(n, m) == sum(int(np.gcd(k, m)) for k in range(1, n + 1))


def test_while_condition_of_several_blocks() -> None:
    """The condition may itself hold a loop: the jump back goes to its first block."""
    def emit(b: FunctionBuilder, out: Val, n: Val) -> Val:
        k = b.alloca(I64)
        b.store(i64(0), k)

        def triangle_below_n() -> Val:
            with b.loop(0, b.add(b.load(k, I64), i64(1)), carried=[i64(0)]) as loop:
                loop.carry(b.add(loop.carried[0], loop.index))
            return b.icmp("slt", loop.results[0], n)

        b.while_loop(triangle_below_n, lambda: b.store(b.add(b.load(k, I64), i64(1)), k))
        return b.load(k, I64)

    f = Built(1, emit)
    assert [f(n) for n in (0, 1, 2, 10, 11)] == [0, 1, 2, 4, 5]


@pytest.mark.parametrize("at_least_once", [False, True])
def test_return_if_in_nested_loops(at_least_once: bool) -> None:
    def emit(b: FunctionBuilder, out: Val, n: Val, wanted: Val) -> Val:
        b.return_if(b.icmp("slt", wanted, i64(0)), i64(-2))
        with b.loop(1, n, carried=[i64(0)], at_least_once=at_least_once) as i:
            with b.loop(1, n, carried=[i.carried[0]], at_least_once=at_least_once) as j:
                found = b.icmp("eq", b.mul(i.index, j.index), wanted)
                b.return_if(found, b.add(b.mul(i.index, i64(100)), j.index))
                j.carry(b.add(j.carried[0], i64(1)))
            i.carry(j.results[0])
        b.store(i.results[0], out)
        return i64(-1)

    f = Built(2, emit)
    assert f(10, 35) == 507
    assert f(10, 1) == 101
    assert f(10, -5) == -2
    assert f(10, 97) == -1 and f.out[0] == 81


def test_return_if_without_a_value() -> None:
    module = Module()
    b = FunctionBuilder(module, "f", [("out", PTR), ("x", I64)], internal=False)
    b.return_if(b.icmp("eq", b.args["x"], i64(0)))
    b.store(b.args["x"], b.args["out"])
    assert b.finish() == "f"
    code = target.load_object(target.compile_object(str(module), target.host()))
    f = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address("f"))
    out = np.array([-1])
    f(out.ctypes.data, 0)
    assert out[0] == -1
    f(out.ctypes.data, 5)
    assert out[0] == 5


# -- alloca --------------------------------------------------------------------------------------------------
def test_alloca_in_a_loop_is_one_place() -> None:
    """Hoisted to the entry block: a million turns do not grow the stack, and each turn sees the last one's
    value."""
    def emit(b: FunctionBuilder, out: Val, n: Val) -> Val:
        with b.loop(0, n) as loop:
            place = b.alloca(I64, 64)
            with b.if_then(b.icmp("eq", loop.index, i64(0))):
                b.store(i64(0), place)
            b.store(b.add(b.load(place, I64), loop.index), place)
        return b.load(place, I64)

    assert Built(1, emit)(1_000_000) == 999_999 * 500_000


@pytest.mark.parametrize("lanes", [0, 1, 3, 8, 16, 64])
@pytest.mark.parametrize("kind", KINDS)
def test_alloca_holds_its_elements_and_no_more(kind: str, lanes: int) -> None:
    """Neighbouring places keep their values when all elements of one are stored: `alloca` and `store` agree
    on the size."""
    type = LType(kind, lanes)

    def emit(b: FunctionBuilder, out: Val) -> Val:
        before, place, after = b.alloca(I64, 8, 8), b.alloca(type, 3, 1), b.alloca(I64, 8, 8)
        for k in range(8):
            b.store(i64(1000 + k), b.gep(before, k, I64))
            b.store(i64(2000 + k), b.gep(after, k, I64))
        for k in range(3):
            b.store(b.const(0, type), b.gep(place, k, type), 1)
        escape(b, out, [before, place, after])
        total = i64(0)
        for k in range(8):
            total = b.add(total, b.add(b.load(b.gep(before, k, I64), I64), b.load(b.gep(after, k, I64), I64)))
        return total

    f = Built(0, emit)
    assert f() == sum(3000 + 2 * k for k in range(8))
    memory = type.with_kind("i8") if kind == "i1" else type
    assert f"alloca {memory}, i64 3, align 1" in f.text


def escape(b: FunctionBuilder, out: Val, places: Sequence[Val]) -> None:
    """Writes the addresses out, so that LLVM has to keep the places in memory."""
    for k, place in enumerate(places):
        b.store(place, b.gep(out, k, PTR))


@pytest.mark.parametrize("align", [8, 32, 64, 256])
def test_alloca_alignment(align: int) -> None:
    def emit(b: FunctionBuilder, out: Val) -> Val:
        places = [b.alloca(LType("i8"), 3, align) for _ in range(5)]
        escape(b, out, places)
        return i64(0)

    f = Built(0, emit)
    f()
    assert len(set(f.out[:5].tolist())) == 5
    assert not (f.out[:5] % align).any()


@pytest.mark.parametrize(("kind", "lanes", "stride"), [
    ("i1", 0, 1), ("i1", 8, 8), ("i8", 0, 1), ("i8", 8, 8), ("half", 0, 2), ("bfloat", 4, 8), ("float", 0, 4),
    ("float", 16, 64), ("double", 2, 16), ("i64", 0, 8), ("ptr", 0, 8), ("ptr", 2, 16),
])
def test_gep_steps_over_whole_elements(kind: str, lanes: int, stride: int) -> None:
    """By what the elements take in memory, where an i1 takes a byte, in a vector as alone."""
    def emit(b: FunctionBuilder, out: Val, n: Val) -> Val:
        type = LType(kind, lanes)
        here = b.raw(f"ptrtoint {out} to i64", I64)
        for k, pointer in enumerate([b.gep(out, n, type), b.gep(out, 5, type), b.gep(out, 0, type)]):
            b.store(b.sub(b.raw(f"ptrtoint {pointer} to i64", I64), here), b.gep(out, k, I64))
        pointers = b.gep_vector(out, b.iota(4), type)
        last = b.extract(pointers, 3)
        return b.sub(b.raw(f"ptrtoint {last} to i64", I64), here)

    f = Built(1, emit)
    assert f(-2) == 3 * stride
    assert f.out[:3].tolist() == [-2 * stride, 5 * stride, 0]


# -- calls ---------------------------------------------------------------------------------------------------
def test_atomic_memory() -> None:
    """One thread only; of several see tests/runtime/test_work_sharing.py."""

    def emit(b: FunctionBuilder, out: Val, expected: Val, wanted: Val) -> Val:
        b.store_atomic(i64(40), out, "release")
        narrow = b.gep(out, 1, I64)
        b.store_atomic(const(-7, I32), narrow, "monotonic")
        b.store(b.cast(b.add_atomic(narrow, const(9, I32), "monotonic"), I64), b.gep(out, 2, I64))
        b.store(b.add_atomic(out, i64(2), "seq_cst"), b.gep(out, 3, I64))
        exchanged = b.compare_exchange(out, expected, wanted, "seq_cst", "acquire")
        b.store(b.cast(b.load_atomic(narrow, I32, "acquire"), I64), b.gep(out, 4, I64))
        return b.cast(exchanged, I64)

    built = Built(2, emit)
    for expected, exchanged, left in ((42, 1, 5), (40, 0, 42)):
        assert built(expected, 5) == exchanged
        assert built.out[[0, 2, 3, 4, 5]].tolist() == [left, -7, 40, 2, -1]


def test_calls_by_name_and_by_pointer() -> None:
    def emit(b: FunctionBuilder, out: Val, x: Val) -> Val:
        g = FunctionBuilder(b.module, "g", [("a", I64), ("c", I1), ("d", F64)], I64)
        wide = g.cast(g.args["d"], I64)
        g.finish(g.add(g.select(g.args["c"], g.args["a"], i64(0)), wide))
        yes = b.call("g", I64, x, const(True, I1), const(2.5, F64))
        no = b.call_pointer(Val("@g", PTR), I64, x, const(False, I1), const(-2.5, F64))
        return b.sub(b.mul(yes, i64(1000)), no)

    assert Built(1, emit)(40) == 42_002


def test_mixed_types_are_refused_where_they_meet() -> None:
    b = FunctionBuilder(Module(), "f", [("x", F32), ("y", F64), ("n", I64), ("v", LType("float", 4))])
    x, y, n, v = b.args.values()
    wrong: list[Callable[[], Any]] = [
        lambda: b.add(x, y), lambda: b.mul(x, v), lambda: b.fma(x, x, y),
        lambda: b.icmp("eq", n, const(1, I32)), lambda: b.select(const(True, I1), x, y),
        lambda: b.cast(x, LType("double", 4)), lambda: b.splat(v, 8),
        lambda: b.cast(n, PTR), lambda: const(7, PTR), lambda: b.reduce("xor", v), lambda: b.reduce("sum", v),
        lambda: b.compare_exchange(const(0, PTR), n, const(1, I32), "seq_cst", "acquire"),
    ]
    for call in wrong:
        with pytest.raises(TypeError):
            call()


def test_text_that_llvm_refuses_is_an_error_of_ours() -> None:
    module = Module()
    b = FunctionBuilder(module, "f", [("x", I64)], I64)
    b.finish(b.raw("add i64 %x, %nowhere", I64))
    with pytest.raises(CodegenError):
        target.compile_object(str(module), target.host())
