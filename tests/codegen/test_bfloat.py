"""Rounding to bfloat in integers: to nearest even, and NaN stays NaN, whether the code asks for it or knows that it will."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphcell.codegen.llvm import math
from graphcell.codegen.llvm.text import PTR, FunctionBuilder, LType, Module, Val
from tests.codegen.accuracy import Array, same
from tests.codegen.harness import build

BFLOAT = ml_dtypes.bfloat16
ALL = np.arange(1 << 16, dtype=np.uint16).view(BFLOAT)
"""Every bfloat there is."""
WIDE = LType("float", 8)


def _rounded(b: FunctionBuilder, x: Val) -> Val:
    return b.cast(x, x.type.with_kind("bfloat"))


def _wide(b: FunctionBuilder, x: Val) -> Val:
    return b.cast(x, x.type.with_kind("float"))


def _on_floats(function: Callable[..., Val]) -> Callable[..., Val]:
    return lambda b, *xs: _rounded(b, function(b, *(_wide(b, x) for x in xs)))


ARITHMETIC: dict[str, tuple[Callable[..., Val], Callable[..., Array]]] = {
    "add": (lambda b, x, y: b.add(x, y), lambda x, y: x + y),
    "sub": (lambda b, x, y: b.sub(x, y), lambda x, y: x - y),
    "mul": (lambda b, x, y: b.mul(x, y), lambda x, y: x * y),
    "div": (lambda b, x, y: b.div(x, y), lambda x, y: x / y),
    "fma": (lambda b, x, y: b.fma(x, y, b.const(1.5, x)), lambda x, y: (x.astype(np.float64) * y + 1.5).astype(np.float32)),
    "sqrt": (lambda b, x, y: b.unary("sqrt", b.mul(x, b.neg(y))), lambda x, y: np.sqrt(x * -y)),
    "select": (lambda b, x, y: b.mul(b.select(b.fcmp("olt", x, y), x, b.unary("fabs", y)), b.const(1.25, x)), lambda x, y: np.where(x < y, x, abs(y)) * np.float32(1.25)),
    "maximum": (lambda b, x, y: b.mul(b.binary("maximum", x, y), b.const(0.3, x)), lambda x, y: np.maximum(x, y) * np.float32(0.3)),
    "steps": (lambda b, x, y: b.add(_wide(b, _rounded(b, b.mul(x, y))), y), lambda x, y: (x * y).astype(BFLOAT).astype(np.float32) + y),
}  # fmt: skip


@pytest.mark.parametrize("lanes", [0, 8, 16])
@pytest.mark.parametrize("name", ARITHMETIC)
def test_results_of_all_bfloats_round_as_floats_do(name: str, lanes: int) -> None:
    emit, reference = ARITHMETIC[name]
    run = build(_on_floats(emit), ["bfloat", "bfloat"], lanes)
    rng = np.random.default_rng(0)
    for other in (rng.permutation(ALL), ALL[::-1].copy(), np.full_like(ALL, 1.0078125)):
        with np.errstate(all="ignore"):
            want = reference(ALL.astype(np.float32), other.astype(np.float32)).astype(BFLOAT)
        got = run(ALL, other)
        assert same(got.astype(np.float32), want.astype(np.float32))


@pytest.mark.parametrize("name", ["exp", "sigmoid", "tanh", "log", "softplus", "gelu", "sin", "erf"])
def test_functions_of_nan_are_nan(name: str) -> None:
    """Whatever its bits are."""
    emit = lambda b, x: _rounded(b, b.mul(getattr(math, name)(b, _wide(b, x)), b.const(1.5, x.type.with_kind("float"))))  # noqa: E731
    nan = np.isnan(ALL.astype(np.float32))
    for lanes in (0, 8, 16):
        got = build(emit, ["bfloat"], lanes)(ALL)
        assert np.isnan(got.astype(np.float32)[nan]).all()
        assert not np.isnan(got.astype(np.float32)[~nan & (abs(ALL.astype(np.float32)) < 10) & (ALL.astype(np.float32) > 0)]).any()


@pytest.mark.parametrize("lanes", [0, 8, 16])
def test_nan_of_floats_stays_nan_whatever_its_bits(lanes: int) -> None:
    """Adding in the last bits would carry some over to infinity, to 0, or to another number."""
    bits = np.uint32([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0xFF800001, 0x7FFF8000, 0xFFFFC000, 0x7FC00000, 0x7F80FFFF] * 2)
    x, y = bits.view(np.float32), ALL[:16].copy()
    for emit in (
        lambda b, x, y: _rounded(b, x),
        lambda b, x, y: _rounded(b, b.add(x, _wide(b, y))),
        lambda b, x, y: _rounded(b, b.select(b.fcmp("uno", x, x), x, _wide(b, y))),
        lambda b, x, y: _rounded(b, b.neg(b.unary("fabs", x))),
    ):
        assert np.isnan(build(emit, ["float", "bfloat"], lanes)(x, y).astype(np.float32)).all()
    double = build(lambda b, x: _rounded(b, b.cast(x, x.type.with_kind("float"))), ["double"], lanes)
    assert np.isnan(double(np.full(16, 0x7FFFFFFFFFFFFFFF, np.uint64).view(np.float64)).astype(np.float32)).all()
    half = build(lambda b, x: _rounded(b, b.add(_wide(b, x), b.const(1.0, x.type.with_kind("float")))), ["half"], lanes)
    assert np.isnan(half(np.full(16, 0x7FFF, np.uint16).view(np.float16)).astype(np.float32)).all()


@pytest.mark.parametrize("bits", [0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFE0000000, 0x7FF8000000000000])
def test_numbers_that_are_nan_may_have_any_bits(bits: int) -> None:
    number = struct.unpack("<d", struct.pack("<Q", bits))[0]
    for lanes in (0, 8, 16):
        for emit in (
            lambda b, x: _rounded(b, b.mul(_wide(b, x), b.const(number, x.type.with_kind("float")))),
            lambda b, x: _rounded(b, b.select(b.fcmp("oeq", x, x), b.const(number, x.type.with_kind("float")), _wide(b, x))),
        ):
            assert np.isnan(build(emit, ["bfloat"], lanes)(ALL).astype(np.float32)).all()


def test_only_what_may_have_long_nans_is_asked_for_them() -> None:
    def is_asked(make: Callable[[FunctionBuilder, Any], Val]) -> bool:
        b = FunctionBuilder(Module(), "f", [("p", PTR)])
        lines = len(b._lines)
        _rounded(b, make(b, lambda kind: b.load(b.args["p"], WIDE.with_kind(kind))))
        return any("fcmp uno" in line for line in b._lines[lines:])

    assert not is_asked(lambda b, load: b.mul(_wide(b, load("bfloat")), _wide(b, load("bfloat"))))
    assert not is_asked(lambda b, load: b.fma(_wide(b, load("bfloat")), b.const(0.1, WIDE), b.const(0.3, WIDE)))
    assert not is_asked(lambda b, load: math.exp(b, _wide(b, load("bfloat"))))
    assert is_asked(lambda b, load: load("float"))
    assert is_asked(lambda b, load: b.mul(_wide(b, load("bfloat")), load("float")))
    assert is_asked(lambda b, load: b.mul(_wide(b, load("half")), b.const(2.0, WIDE)))
    assert is_asked(lambda b, load: b.bitcast(load("i32"), WIDE))
