"""The text emitter on every element type: conversions, arithmetic of short floats, Booleans, reductions and
masked memory.

The reference is numpy (with ml_dtypes for bfloat16), or Python integers; results are compared bit by bit,
NaNs as NaNs.
"""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import platform
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphcell.codegen.llvm import target
from graphcell.codegen.llvm.text import I64, PTR, FunctionBuilder, LType, Module, Val, const, constant_mask, i64

Array = np.ndarray[Any, Any]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
KINDS = {
    "bool": "i1", "int8": "i8", "uint8": "i8", "int16": "i16", "uint16": "i16", "int32": "i32",
    "uint32": "i32", "int64": "i64", "uint64": "i64", "float16": "half", "bfloat16": "bfloat",
    "float32": "float", "float64": "double",
}
FLOATS = ("float16", "bfloat16", "float32", "float64")
LANES = (0, 3, 8, 16)


@pytest.fixture(autouse=True)
def _quiet_numpy() -> Any:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def dtype_of(name: str) -> np.dtype[Any]:
    return BFLOAT16 if name == "bfloat16" else np.dtype(name)


def load(text: str) -> Any:
    return target.load_object(target.compile_object(text, target.host()))


def run(emit: Callable[..., Val], inputs: Sequence[Array], result: str, lanes: int) -> Array:
    """`emit(b, *values)` on each vector (0 lanes: element) of arrays of one length, a multiple of the
    lanes."""
    module = Module()
    names = [f"p{k}" for k in range(len(inputs))]
    params = [*((name, PTR) for name in names), ("out", PTR), ("n", I64)]
    b = FunctionBuilder(module, "f", params, internal=False)
    with b.loop(0, b.args["n"], max(lanes, 1)) as loop:
        values = []
        for name, array in zip(names, inputs, strict=True):
            type = LType(KINDS[array.dtype.name], lanes)
            values.append(b.load(b.gep(b.args[name], loop.index, type.with_lanes(0)), type))
        value = emit(b, *values)
        assert value.type == LType(KINDS[result], lanes)
        b.store(value, b.gep(b.args["out"], loop.index, value.type.with_lanes(0)))
    b.finish()
    code = load(str(module))
    n = inputs[0].size
    assert n % max(lanes, 1) == 0 and all(x.size == n and x.flags.c_contiguous for x in inputs)
    out = np.zeros(n, dtype_of(result))
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(inputs) + 1), ctypes.c_int64)(code.address("f"))(
        *(x.ctypes.data for x in inputs), out.ctypes.data, n)
    return out


def bits(x: Array) -> Array:
    return x.view(f"u{x.dtype.itemsize}")


def assert_same(found: Array, expected: Array) -> None:
    """Bit by bit, but one NaN is as good as another."""
    assert found.dtype == expected.dtype and found.shape == expected.shape
    equal = bits(found) == bits(expected)
    if expected.dtype.name in FLOATS:
        equal |= np.isnan(found) & np.isnan(expected)
    where = np.flatnonzero(~equal)[:5]
    assert not where.size, f"at {where}: {found[where]} where {expected[where]} is right"


def samples(name: str, count: int = 480) -> Array:
    """Special values of a dtype, then random ones; a multiple of every lane count."""
    draw = np.random.default_rng(len(name))
    dtype = dtype_of(name)
    if name == "bool":
        return draw.random(count) < 0.5
    if name not in FLOATS:
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        whole = [low, low + 1, -129, -128, -1, 0, 1, 2, 127, 128, 255, 256, 257 << 23, (257 << 23) + 1,
                 65503, 65519, 65520, 2**24 + 1, high - 1, high]
        special = np.array([e for e in whole if low <= e <= high], dtype)
        rest = draw.integers(low, high, count - special.size, dtype, endpoint=True)
        return np.concatenate([special, rest])
    tie = 1 + 2.0**-11  # between two halves; with 2**-40 above it and below it
    edges = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 0.999, 1.5, 2.5, 127.5, 128.0, -128.5, 255.9, 256.0, 1e9, -1e9,
             2.0**31, 2.0**32, 2.0**63, -(2.0**63), 2.0**64, 65504.0, 65519.0, 65520.0, 1e-8, 6e-8, 2.0**-25,
             1e-40, 1e300, np.inf, -np.inf, np.nan, tie, tie + 2.0**-40, tie - 2.0**-40,
             1 + 2.0**-8 + 2.0**-20, 3e-320, 2.0**-14, 2.0**-24, 2.0**-126, 2.0**-133, 2.0**-149, 2.0**-1022,
             5e-324, 3.38e38, 3.4e38, 1.79e308]
    special = np.array(edges).astype(dtype)
    random = draw.integers(0, 256, (count - special.size) * dtype.itemsize, np.uint8).view(dtype)
    return np.concatenate([special, random])


# -- conversions ---------------------------------------------------------------------------------------------
def converted(x: Array, name: str) -> Array:
    """What `cast` promises."""
    to = dtype_of(name)
    if name == "bool":
        return np.asarray(x != 0)
    if x.dtype.name in FLOATS and name not in FLOATS:
        info = np.iinfo(to)
        values = [0 if np.isnan(v) else info.max if v == np.inf else info.min if v == -np.inf else int(v)
                  for v in x.astype(np.float64).tolist()]
        return np.array([min(max(v, int(info.min)), int(info.max)) for v in values], to)
    if name == "bfloat16" and x.dtype != np.float32:
        return x.astype(np.float32).astype(to)
    return x.astype(to)


@pytest.mark.slow
@pytest.mark.parametrize(("source", "to"), [
    (source, to) for source in KINDS for to in KINDS if KINDS[source] != KINDS[to] or source == to
])
def test_cast(source: str, to: str) -> None:
    x = samples(source)
    unsigned = (source if to in FLOATS or source not in FLOATS else to).startswith("u")
    expected = converted(x, to)
    for lanes in LANES:
        found = run(lambda b, v, n=lanes: b.cast(v, LType(KINDS[to], n), signed=not unsigned), [x], to, lanes)
        assert_same(found, expected)


def test_every_bfloat_and_every_half_widens() -> None:
    for name, to in itertools.product(("bfloat16", "float16"), ("float32", "float64")):
        x = np.arange(2**16, dtype=np.uint16).view(dtype_of(name))
        found = run(lambda b, v, to=to: b.cast(v, LType(KINDS[to], 16)), [x], to, 16)
        assert_same(found, x.astype(dtype_of(to)))


@pytest.mark.parametrize("to", ["float16", "bfloat16"])
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_narrowing_around_every_tie(source: str, to: str) -> None:
    """Each value that lies between two neighbours of the narrow type, and the values right beside it."""
    narrow = np.arange(2**16, dtype=np.uint16).view(dtype_of(to))
    narrow = narrow[np.isfinite(narrow)]
    half_step = 2.0**-11 if to == "float16" else 2.0**-8
    middle = (narrow.astype(np.float64) * (1 + half_step)).astype(dtype_of(source))
    beside = [np.nextafter(middle, dtype_of(source).type(side)) for side in (-np.inf, np.inf)]
    x = np.concatenate([narrow.astype(dtype_of(source)), middle, *beside])
    x = x[:x.size // 16 * 16]
    assert_same(run(lambda b, v: b.cast(v, LType(KINDS[to], 16)), [x], to, 16), converted(x, to))


def test_nan_becomes_a_quiet_bfloat_of_its_sign() -> None:
    patterns = [0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000, 0xFFC00000, 0x7F80FFFF,
                0x7F810000]
    x = np.array(patterns, np.uint32).view(np.float32)
    for lanes in (0, 8):
        found = run(lambda b, v, n=lanes: b.cast(v, LType("bfloat", n)), [x], "bfloat16", lanes)
        assert bits(found).tolist() == [0x7FC0, 0xFFC0, 0x7FFF, 0xFFFF, 0x7FC0, 0xFFC0, 0x7FC0, 0x7FC1]


@pytest.mark.parametrize("name", FLOATS)
def test_constants(name: str) -> None:
    values = [0.0, -0.0, 1.0, -2.5, 0.1, 1 / 3, 65504.0, 1e5, 3e38, 1e39, 1e-7, 1e-45, 5e-324, np.inf,
              -np.inf, np.nan]
    expected = np.array(values).astype(dtype_of(name))
    for value, right in zip(values, expected, strict=True):
        for lanes in (0, 8):
            def emit(b: FunctionBuilder, x: Val, value: float = value) -> Val:
                return b.const(value, x)
            found = run(emit, [np.zeros(8, dtype_of(name))], name, lanes)
            assert_same(found, np.full(8, right))


@pytest.mark.parametrize(("kind", "value", "stored"), [
    ("i1", True, 1), ("i1", 0, 0), ("i1", 2, 1), ("i8", -1, 255), ("i8", 255, 255),
    ("i32", 2**32 - 1, 2**32 - 1), ("i64", -(2**63), 2**63), ("i64", 2**64 - 1, 2**64 - 1),
])
def test_integer_constants(kind: str, value: int, stored: int) -> None:
    name = {"i1": "bool", "i8": "uint8", "i32": "uint32", "i64": "uint64"}[kind]
    for lanes in (0, 8):
        found = run(lambda b, x: b.const(value, x), [np.zeros(8, dtype_of(name))], name, lanes)
        assert found.astype(object).tolist() == [stored] * 8


# -- arithmetic ----------------------------------------------------------------------------------------------
def pairs(name: str) -> tuple[Array, Array]:
    x = samples(name)
    return x, np.random.default_rng(5).permutation(x)


def rounded(operation: Callable[..., Array], name: str) -> Callable[..., Array]:
    """16-bit floats: the operation in float32, rounded; innocuous for + - * / and sqrt, as 24 bits are
    enough."""
    if name not in ("float16", "bfloat16"):
        return operation
    return lambda *xs: operation(*(x.astype(np.float32) for x in xs)).astype(dtype_of(name))


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(("method", "operation"), [
    ("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide), ("rem", np.fmod),
])
def test_float_arithmetic(name: str, method: str, operation: Callable[..., Array]) -> None:
    x, y = pairs(name)
    expected = rounded(operation, name)(x, y)
    for lanes in LANES:
        assert_same(run(lambda b, p, q: getattr(b, method)(p, q), [x, y], name, lanes), expected)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(("intrinsic", "operation"), [
    ("sqrt", np.sqrt), ("fabs", np.abs), ("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc),
    ("roundeven", np.rint), ("neg", np.negative),
])
def test_float_unary(name: str, intrinsic: str, operation: Callable[..., Array]) -> None:
    x = samples(name)
    expected = rounded(operation, name)(x)
    for lanes in LANES:
        found = run(lambda b, p: b.neg(p) if intrinsic == "neg" else b.unary(intrinsic, p), [x], name, lanes)
        assert_same(found, expected)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(("intrinsic", "operation"), [
    ("minimum", np.minimum), ("maximum", np.maximum), ("minnum", np.fmin), ("maxnum", np.fmax),
    ("copysign", np.copysign),
])
def test_float_binary(name: str, intrinsic: str, operation: Callable[..., Array]) -> None:
    x, y = pairs(name)
    # which of the zeros minnum gives is not said; numpy's minimum does not say either
    zeros = (x == 0) & (y == 0)
    x, y = np.where(zeros, np.ones_like(x), x), y
    expected = rounded(operation, name)(x, y)
    for lanes in LANES:
        assert_same(run(lambda b, p, q: b.binary(intrinsic, p, q), [x, y], name, lanes), expected)


def test_fma_of_halves_is_rounded_once() -> None:
    """Against exact integers: all are multiples of 2**-48."""
    draw = np.random.default_rng(3)
    x, y, z = (draw.integers(0, 0x7C00, 4096).astype(np.uint16).view(np.float16) for _ in range(3))
    y = np.where(draw.random(4096) < 0.5, -y, y)

    def exact(p: float, q: float, r: float) -> float:
        total = int(p * 2**24) * int(q * 2**24) + int(r * 2**24) * 2**24
        size = abs(total)
        # np.float16 rounds a double once, and the sticky bit keeps what the double cannot hold
        drop = max(size.bit_length() - 40, 0)
        kept = (size >> drop) | (size & ((1 << drop) - 1) != 0)
        return float(np.copysign(np.float16(np.ldexp(float(kept), drop - 48)), total))

    expected = np.array([exact(*map(float, row)) for row in zip(x, y, z, strict=True)]).astype(np.float16)
    for lanes in (0, 16):
        found = run(lambda b, p, q, r: b.fma(p, q, r), [x, y, z], "float16", lanes)
        assert_same(np.abs(found), np.abs(expected))
        assert (np.signbit(found) == np.signbit(expected))[expected != 0].all()


def test_fma_of_bfloats() -> None:
    x, y = pairs("bfloat16")
    z = np.random.default_rng(7).permutation(x)
    wide = x.astype(np.float64) * y.astype(np.float64) + z.astype(np.float64)
    finite = np.isfinite(wide) & (np.abs(wide) < 1e38) & (np.abs(wide) > 1e-30)
    for lanes in (0, 8):
        found = run(lambda b, p, q, r: b.fma(p, q, r), [x, y, z], "bfloat16", lanes)
        assert finite.sum() > 100
        assert np.allclose(found[finite].astype(np.float64), wide[finite], rtol=2.0**-8 * 1.001, atol=0)


def test_comparison_and_selection() -> None:
    for name in FLOATS:
        x, y = pairs(name)
        for lanes in LANES:
            assert_same(run(lambda b, p, q: b.fcmp("olt", p, q), [x, y], "bool", lanes), x < y)
            assert_same(run(lambda b, p, q: b.fcmp("une", p, q), [x, y], "bool", lanes), x != y)
            found = run(lambda b, p, q: b.select(b.fcmp("oge", p, q), p, q), [x, y], name, lanes)
            assert_same(found, np.where(x >= y, x, y))


@pytest.mark.parametrize(("method", "operation"), [
    ("and_", np.logical_and), ("or_", np.logical_or), ("xor", np.logical_xor), ("add", np.logical_xor),
    ("mul", np.logical_and),
])
def test_boolean_operations(method: str, operation: Callable[..., Array]) -> None:
    x, y = pairs("bool")
    for lanes in LANES:
        assert_same(run(lambda b, p, q: getattr(b, method)(p, q), [x, y], "bool", lanes), operation(x, y))
        assert_same(run(lambda b, p, q: b.not_(p), [x, y], "bool", lanes), ~x)


def test_a_byte_that_is_not_0_or_1_is_a_true_boolean() -> None:
    x = np.array([0, 1, 2, 128, 254, 255, 0, 3], np.uint8)
    for lanes in (0, 8):
        found = run(lambda b, v: v, [x.view(np.bool_)], "bool", lanes)
        assert found.view(np.uint8).tolist() == [0, 1, 1, 1, 1, 1, 0, 1]


@pytest.mark.parametrize("name", [name for name in KINDS if name not in FLOATS and name != "bool"])
def test_integer_operations(name: str) -> None:
    x, y = pairs(name)
    signed = not name.startswith("u")
    width = 8 * x.dtype.itemsize
    usable = np.where((y == 0) | (y == -1 if signed else False), np.ones_like(y), y)
    shift = (bits(y) % width).astype(x.dtype)
    quotient = np.array([abs(int(p)) // abs(int(q)) * (1 if (p < 0) == (q < 0) else -1)
                         for p, q in zip(x, usable, strict=True)], object)
    remainder = np.array([int(p) for p in x], object) - quotient * np.array([int(q) for q in usable], object)
    minimum = "smin" if signed else "umin"
    cases: list[tuple[Callable[..., Val], Array, Array]] = [
        (lambda b, p, q: b.add(p, q), y, x + y), (lambda b, p, q: b.sub(p, q), y, x - y),
        (lambda b, p, q: b.mul(p, q), y, x * y), (lambda b, p, q: b.neg(p), y, 0 - x),
        (lambda b, p, q: b.div(p, q, signed=signed), usable, quotient.astype(x.dtype)),
        (lambda b, p, q: b.rem(p, q, signed=signed), usable, remainder.astype(x.dtype)),
        (lambda b, p, q: b.shl(p, q), shift, x << shift),
        (lambda b, p, q: b.shr(p, q, signed=signed), shift, x >> shift),
        (lambda b, p, q: b.not_(p), y, ~x), (lambda b, p, q: b.binary(minimum, p, q), y, np.minimum(x, y)),
    ]
    for lanes in (0, 8):
        for emit, second, expected in cases:
            assert_same(run(emit, [x, second], name, lanes), np.ascontiguousarray(expected))


# -- reductions ----------------------------------------------------------------------------------------------
def reduced(x: Array, kind: str, lanes: int) -> Array:
    """Every vector of `x` reduced, by the emitter."""
    name = x.dtype.name
    found = run(lambda b, v: b.splat(b.reduce(kind, v), lanes), [np.ascontiguousarray(x)], name, lanes)
    return found.reshape(-1, lanes)[:, 0]


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 5, 6, 7, 8, 12, 15, 16, 32])
def test_reduce_takes_every_lane_once(lanes: int) -> None:
    """Small integers, so that every order gives the same sum, in every float type and in i32."""
    for name in (*FLOATS, "int32"):
        x = (np.arange(4 * lanes) % 7 - 3).astype(dtype_of(name))
        table = x.reshape(-1, lanes).astype(np.float64)
        assert reduced(x, "add", lanes).astype(float).tolist() == table.sum(1).tolist()
        assert reduced(x, "min", lanes).astype(float).tolist() == table.min(1).tolist()
        assert reduced(x, "max", lanes).astype(float).tolist() == table.max(1).tolist()
        for at in range(lanes):
            one = np.ones(lanes, x.dtype)
            one[at] = 5
            assert reduced(one, "mul", lanes)[0] == 5


@pytest.mark.parametrize("lanes", [1, 2, 3, 8, 17])
def test_reduce_booleans(lanes: int) -> None:
    x = np.random.default_rng(lanes).random(60 * lanes) < 0.5
    x[:lanes], x[lanes:2 * lanes] = True, False
    table = x.reshape(-1, lanes)
    every, some = table.all(1), table.any(1)
    for kind, expected in (("and", every), ("or", some), ("min", every), ("max", some), ("umin", every),
                           ("umax", some), ("xor", table.sum(1) % 2 == 1)):
        assert reduced(x, kind, lanes).tolist() == expected.tolist()


@pytest.mark.parametrize("name", ["int8", "int64", "uint8", "uint32"])
def test_reduce_integers(name: str) -> None:
    x, lanes = samples(name), 8
    table = x.reshape(-1, lanes)
    prefix = "u" if name.startswith("u") else ""
    for kind, expected in ((prefix + "min", table.min(1)), (prefix + "max", table.max(1)),
                           ("add", table.sum(1, dtype=x.dtype)), ("mul", table.prod(1, dtype=x.dtype)),
                           ("and", np.bitwise_and.reduce(table, 1)), ("or", np.bitwise_or.reduce(table, 1)),
                           ("xor", np.bitwise_xor.reduce(table, 1))):
        assert reduced(x, kind, lanes).tolist() == expected.tolist()


@pytest.mark.parametrize("name", FLOATS)
def test_reduce_passes_nan_on(name: str) -> None:
    x = np.ones((8, 8), dtype_of(name))
    x[np.arange(8), np.arange(8)] = np.nan
    for kind in ("min", "max", "add", "mul"):
        assert np.isnan(reduced(x.ravel(), kind, 8)).all()


def test_reduce_adds_by_halves() -> None:
    """The order is part of the contract: every processor gives the same bits."""
    x = np.random.default_rng(0).standard_normal(64 * 16).astype(np.float32)
    table = x.reshape(-1, 16)
    while table.shape[1] > 1:
        half = table.shape[1] // 2
        table = table[:, :half] + table[:, half:]
    assert_same(reduced(x, "add", 16), table[:, 0].copy())


def test_reduce_of_a_scalar_is_itself() -> None:
    x = samples("float32")
    assert_same(run(lambda b, v: b.reduce("max", v), [x], "float32", 0), x)


# -- masked memory -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("lanes", [2, 8, 16])
@pytest.mark.parametrize("slow", [False, True])
def test_the_first_lanes_are_stored(name: str, lanes: int, slow: bool) -> None:
    """Where masked stores take long, in runs of powers of two; what lies behind them is left alone."""
    kind, dtype = KINDS[name], dtype_of(name)
    type, module = LType(kind, lanes), Module(avx2=True, slow_masks=slow)
    for count in range(1, lanes + 1):
        b = FunctionBuilder(module, f"f{count}", [("x", PTR), ("to", PTR)], internal=False)
        b.masked_store(b.load(b.args["x"], type), b.args["to"], constant_mask(count, lanes))
        b.finish()
    assert ("masked.store" in str(module)) != slow
    code, values = load(str(module)), samples(name)[:lanes].copy()
    for count in range(1, lanes + 1):
        stored = np.ones(lanes, dtype)
        ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2)(code.address(f"f{count}"))(values.ctypes.data, stored.ctypes.data)
        assert (bits(stored) == bits(np.where(np.arange(lanes) < count, values, np.ones(lanes, dtype)))).all()


@pytest.mark.parametrize("on", [(1, 0, 1, 0, 0, 0, 0, 0), (0, 1, 1, 1, 1, 1, 1, 1), (1, 1, 0, 0, 1, 0, 0, 1)], ids=str)
def test_lanes_that_are_not_the_first_are_stored_by_masks(on: tuple[int, ...]) -> None:
    module, type = Module(avx2=True, slow_masks=True), LType("float", 8)
    b = FunctionBuilder(module, "f", [("x", PTR), ("to", PTR)], internal=False)
    mask = Val(f"<{', '.join(f'i1 {str(bool(k)).lower()}' for k in on)}>", LType("i1", 8))
    b.masked_store(b.load(b.args["x"], type), b.args["to"], mask)
    b.finish()
    assert "masked.store" in str(module)
    values, stored = np.arange(2, 10, dtype=np.float32), np.ones(8, np.float32)
    code = load(str(module))
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2)(code.address("f"))(values.ctypes.data, stored.ctypes.data)
    np.testing.assert_array_equal(stored, np.where(np.array(on, bool), values, 1))


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("lanes", [3, 8, 16])
def test_masked_and_gathered_memory(name: str, lanes: int) -> None:
    """Lanes that are off are zero when loaded, are not stored, and their addresses are not touched (page 0
    here)."""
    kind, dtype = KINDS[name], dtype_of(name)
    type, byte = LType(kind, lanes), LType("i8", lanes)
    module = Module()
    b = FunctionBuilder(module, "f", [("x", PTR), ("on", PTR), ("out", PTR), ("back", PTR)], internal=False)
    x, on, out, back = b.args.values()
    mask = b.icmp("ne", b.load(on, byte), b.const(0, byte))
    element = type.with_lanes(0)
    pointers = b.gep_vector(x, b.sub(b.const(lanes - 1, LType("i64", lanes)), b.iota(lanes)), element)
    nowhere = b.select(mask, pointers, b.const(0, LType("ptr", lanes)))
    begin = b.select(b.reduce("or", mask), x, const(0, PTR))
    b.store(b.masked_load(begin, mask, type), b.gep(out, 0, element))
    b.store(b.gather(nowhere, mask, type), b.gep(out, lanes, element))
    b.masked_store(b.load(x, type), back, mask)
    into = b.gep_vector(b.gep(back, lanes, element), b.iota(lanes), element)
    b.scatter(b.load(x, type), b.select(mask, into, b.const(0, LType("ptr", lanes))), mask)
    b.finish()
    code = load(str(module))
    f = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(code.address("f"))
    values = samples(name)[:lanes].copy()
    for seed in range(6):
        on_lanes = np.random.default_rng(seed).random(lanes) < 0.5 if seed else np.zeros(lanes, bool)
        loaded, stored = np.zeros((2, lanes), dtype), np.ones((2, lanes), dtype)
        switches = on_lanes.astype(np.uint8)
        f(values.ctypes.data, switches.ctypes.data, loaded.ctypes.data, stored.ctypes.data)
        zero = np.zeros(lanes, dtype)
        assert (bits(loaded[0]) == bits(np.where(on_lanes, values, zero))).all()
        assert (bits(loaded[1]) == bits(np.where(on_lanes, values[::-1], zero))).all()
        for row in stored:
            assert (bits(row) == bits(np.where(on_lanes, values, np.ones(lanes, dtype)))).all()


@pytest.mark.parametrize("lanes", [1, 3, 8, 16, 64])
def test_lane_mask(lanes: int) -> None:
    counts = [0, 1, 2, lanes - 1, lanes, lanes + 1, 2**31 - 1, 2**31, 2**32, 2**32 + 1, 2**63 - 1]
    module = Module()
    b = FunctionBuilder(module, "f", [("count", I64), ("out", PTR)], internal=False)
    b.store(b.lane_mask(b.args["count"], lanes), b.args["out"])
    b.finish()
    code = load(str(module))
    f = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(code.address("f"))
    for count in counts:
        out = np.full(lanes, 7, np.uint8)
        f(count, out.ctypes.data)
        assert out.tolist() == [int(k < count) for k in range(lanes)]


# -- lanes ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", KINDS)
def test_splat_insert_extract_shuffle(name: str) -> None:
    x = samples(name)[:64].copy()

    def emit(b: FunctionBuilder, v: Val) -> Val:
        turned = b.shuffle(v, v, [7, 6, 5, 4, 3, 2, 1, 0])
        first = b.extract(v, 0)
        assert first.type.lanes == 0
        turned = b.insert(turned, first, 3)
        last = b.splat(b.extract(v, i64(7)), 8)
        return b.shuffle(turned, last, [0, 1, 2, 3, 4, 5, 6, 15])

    table = x.reshape(-1, 8)
    expected = table[:, ::-1].copy()
    expected[:, 3], expected[:, 7] = table[:, 0], table[:, 7]
    found = run(emit, [x], name, 8)
    assert (bits(found) == bits(expected.ravel())).all()


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize(("name", "to"), [("float16", "float32"), ("float16", "float64"), ("float16", "float16"), ("bfloat16", "float32"), ("int16", "float32")])
def test_what_is_loaded_as_another_type_is_cast(name: str, to: str, lanes: int) -> None:
    x = samples(name)
    module = Module()
    b = FunctionBuilder(module, "f", [("p", PTR), ("out", PTR), ("n", I64)], internal=False)
    stored, wide = LType(KINDS[name], lanes), LType(KINDS[to], lanes)
    with b.loop(0, b.args["n"], max(lanes, 1)) as loop:
        value = b.load_as(b.gep(b.args["p"], loop.index, stored.with_lanes(0)), stored, wide)
        assert value.type == wide
        b.store(value, b.gep(b.args["out"], loop.index, wide.with_lanes(0)))
    b.finish()
    code, out = load(str(module)), np.zeros(x.size, dtype_of(to))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(code.address("f"))(x.ctypes.data, out.ctypes.data, x.size)
    assert_same(out, converted(x, to))


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="registers of x86 processors")
def test_a_single_half_waits_for_no_register() -> None:
    """One that is loaded into a part of a register waits for what that was to hold: in a loop, for the turn before."""
    module = Module()
    b = FunctionBuilder(module, "f", [("p", PTR), ("q", PTR), ("n", I64)], internal=False)
    with b.loop(0, b.args["n"], 16) as loop:
        half = b.load_as(b.args["q"], LType("half"), LType("float"))
        at = b.gep(b.args["p"], loop.index, LType("float"))
        b.store(b.mul(b.load(at, LType("float", 16)), b.splat(half, 16)), at)
    b.finish()
    processor = dataclasses.replace(target.host(), cpu="x86-64-v3", features="+avx2,+fma,+f16c")
    text = target.assembly(str(module), processor)
    assert "vcvtph2ps" in text and "pinsrw" not in text


# -- processors ----------------------------------------------------------------------------------------------
@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="names x86 processors")
@pytest.mark.parametrize(("cpu", "features"), [
    ("haswell", "+avx2,+fma,+f16c"),
    ("cascadelake", "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx2,+fma,+f16c"),
])
def test_no_calls_of_compiler_rt(cpu: str, features: str) -> None:
    """Processors without instructions for bfloat: nothing may depend on functions that a process does not
    have."""
    processor = dataclasses.replace(target.host(), cpu=cpu, features=features)
    module = Module()
    for lanes, kind in itertools.product((0, 8), ("half", "bfloat")):
        type = LType(kind, lanes)
        b = FunctionBuilder(module, f"f_{kind}_{lanes}", [("p", PTR), ("q", PTR)], internal=False)
        p = b.args["p"]
        x, y = b.load(p, type), b.load(b.gep(p, 1, type), type)
        results = [b.add(x, y), b.sub(x, y), b.mul(x, y), b.div(x, y), b.fma(x, y, x), b.neg(x),
                   b.const(1.5, x), b.select(b.fcmp("olt", x, y), x, y),
                   *(b.unary(f, x) for f in ("sqrt", "floor", "roundeven")),
                   *(b.binary(f, x, y) for f in ("minimum", "maximum", "copysign"))]
        wide_x, wide_y = (b.cast(v, LType("float", lanes)) for v in (x, y))
        results += [b.cast(b.unary("floor", wide_x), type), b.cast(b.binary("minimum", wide_x, wide_y), type)]
        for other in ("i1", "i8", "i32", "i64", "half", "bfloat", "float", "double"):
            there = type.with_kind(other)
            results += [b.cast(x, there), b.cast(b.load(b.args["q"], there), type)]
        if lanes:
            mask = b.lane_mask(i64(5), lanes)
            results += [b.masked_load(p, mask, type), *(b.reduce(f, x) for f in ("add", "mul", "min", "max"))]
            b.masked_store(x, b.gep(p, 2, type), mask)
        for k, value in enumerate(results):
            b.store(value, b.gep(b.args["q"], 64 * k + 64, LType("i64")))
        b.finish()
    text = target.assembly(str(module), processor)
    called = re.findall(r"^\s+(?:call|callq|jmp)\s+\*?([\w.]+)", text, re.MULTILINE)
    assert not [name for name in called if name.startswith("__")]
