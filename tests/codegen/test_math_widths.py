"""codegen/llvm/math.py for other vector registers than the processor's widest, with and without tables, and what it refuses."""

from __future__ import annotations

import ctypes

import mpmath as mp  # type: ignore[import-untyped]
import numpy as np
import pytest

from graphcell.codegen.llvm import math, processor, target
from graphcell.codegen.llvm.target import compile_object, host, load_object
from graphcell.codegen.llvm.text import PTR, FunctionBuilder, LType, Module, Val
from tests.codegen.accuracy import PRECISION, ULPS, compiled, same, ulps
from tests.codegen.harness import NUMPY_TYPES
from tests.codegen.test_math import ABSOLUTE, CASES, LESS_ACCURATE, arguments, exact, is_close_to_absolute, points_of_gelu

BY_TABLE = {
    "acosh", "asinh", "atanh", "erf", "erfc", "exp", "exp2", "log", "log10", "log1p", "log2", "log_sigmoid", "rsqrt", "sigmoid", "softplus", "tanh",
    "tanh_softplus",
}  # fmt: skip


def by_table(kind: str) -> set[str]:
    """Functions of a kind that look tables up on this processor."""
    if kind == "double":
        return BY_TABLE - {"rsqrt", "tanh"} if target.host().avx512 else set()
    return BY_TABLE if target.host().avx512 else {"erf"} if target.host().module().avx2 else set()


@pytest.mark.parametrize("width", ["16", "32"])
@pytest.mark.parametrize("name", ["exp", "tanh", "log", "erf", "sin", "sigmoid", "cbrt", "erfc", "lgamma", "digamma"])
def test_other_vector_registers_give_the_same_bits(
    name: str, width: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for functions that look tables up: those keep their accuracy."""
    for kind in ("float", "double", "bfloat"):
        x = arguments(CASES[name], "float" if kind == "bfloat" else kind)
        x = x.astype(NUMPY_TYPES[kind])
        want = compiled(name, kind, 8)(x)
        monkeypatch.setenv(processor.VECTOR_BYTES_VARIABLE, width)
        got = compiled(name, kind, 8)(x)
        monkeypatch.delenv(processor.VECTOR_BYTES_VARIABLE)
        if name not in by_table(kind) or (width == "32" and not target.host().avx512):
            assert same(got.astype(np.float64), want.astype(np.float64))
            continue
        assert np.array_equal(np.isnan(got), np.isnan(want))
        got, want = (v[np.isfinite(v)].astype(np.promote_types(v.dtype, np.float32)) for v in (got, want))
        np.testing.assert_array_max_ulp(got, want, 1 << 16 if kind == "bfloat" else 4)


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "log", "sin", "erf", "lgamma"])
def test_numbers_in_memory_are_the_same_numbers(name: str, kind: str) -> None:
    """Vectors of several registers read them there, where a processor has few registers."""
    wide = LType(kind, 128 // LType(kind).bytes)
    results = []
    for number_bytes in (0, 32):
        module = Module(number_bytes=number_bytes)
        b = FunctionBuilder(module, "kernel", [("x", PTR), ("y", PTR)], internal=False)
        b.numbers_in_memory = True
        b.store(getattr(math, name)(b, b.load(b.args["x"], wide)), b.args["y"])
        b.finish()
        assert ("@number." in str(module)) == bool(number_bytes)
        x = np.geomspace(1e-3, 60.0, wide.lanes).astype(NUMPY_TYPES[kind])
        y = np.empty_like(x)
        library = load_object(compile_object(str(module), host()))
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(library.address("kernel"))(x.ctypes.data, y.ctypes.data)
        results.append(y)
    assert same(*results)


@pytest.mark.parametrize("width", ["16", "32"])
@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("name", sorted(BY_TABLE))
def test_accuracy_without_tables(name: str, kind: str, width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a processor without AVX-512 computes: with AVX2 erf of floats looks up shorter tables."""
    monkeypatch.setenv(processor.VECTOR_BYTES_VARIABLE, width)
    x, want = exact(name, kind)
    got = compiled(name, kind, 8)(x)
    with mp.workprec(PRECISION):
        assert np.max(ulps(got, want)) <= LESS_ACCURATE.get((name, kind), ULPS)
    assert same(compiled(name, kind, 0)(x), got)


@pytest.mark.parametrize("width", ["16", "32"])
@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("name", ABSOLUTE)
def test_gelu_without_tables(name: str, kind: str, width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(processor.VECTOR_BYTES_VARIABLE, width)
    x = points_of_gelu(kind)
    assert is_close_to_absolute(name, x, compiled(name, kind, 8)(x))


def test_integers_and_mixed_types_are_refused() -> None:
    b = FunctionBuilder(
        Module(), "f", [("i", LType("i32", 4)), ("x", LType("float", 4)), ("y", LType("double", 4))]
    )
    i, x, y = b.args.values()
    for emit in (math.exp, math.log, math.tanh, math.sin, math.erf, math.cbrt, math.erfc, math.lgamma, math.digamma):
        with pytest.raises(TypeError, match="i32"):
            emit(b, i)
    for emit_two in (math.pow, math.atan2, math.fmod, math.minimum):
        with pytest.raises(TypeError, match="types differ"):
            emit_two(b, x, y)
    with pytest.raises(TypeError, match="expected floats, got <4 x i32>"):
        math.pow(b, i, i)


def test_no_function_of_float_calls_out() -> None:
    """Ordinary code is free of calls, but for the reduction of large angles, which lives in the module
    itself.
    """
    for name in CASES:
        module = Module()
        b = FunctionBuilder(module, "f", [("x", LType("float", 8))])
        result: Val = getattr(math, name)(b, b.args["x"])
        assert result.type == LType("float", 8)
        b.finish()
        external = [d for d in module.declarations if not d.startswith("llvm.")]
        assert external == []
        assert set(module.functions) - {"f"} <= {"graphcell.reduce_half_pi"}
