"""The LLVM code of every elementwise primitive against its `eval`: all dtypes, scalars and vectors, special values."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell.codegen.llvm.body import BodyBuilder, compute_type, storage_type
from graphcell.codegen.llvm.text import FunctionBuilder, Val
from graphcell.dtype import DType
from graphcell.ir.op import Op, evaluate
from graphcell.ops import arithmetic, gelus, mathematics
from graphcell.ops.base import Elementwise
from tests.codegen.harness import build
from tests.ops.test_elementwise_matrix import CASES, INSTANCES, arity, operands_of, taken

Array = np.ndarray[Any, Any]

NATIVE = [(cls, op) for cls, op in INSTANCES if isinstance(op, Elementwise)]
FLOAT_POINTS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-3, 2.5, float("inf"), float("-inf"), float("nan")]
ABSOLUTE = (gelus.GeluTanh, gelus.GeluTanhSlope)  # whose error is: what 1 + tanh leaves far below 0 has few digits
ULPS = {"float16": 2, "bfloat16": 2, "float32": 16, "float64": 4096}  # the vector mathematics has tests of its own; float64 is less exact there


def emitter(op: Elementwise, dtypes: tuple[DType, ...], result: DType) -> Any:
    """`op.emit` as the harness wants it: operands widened before, the result narrowed after, as the compiler does."""

    def emit(b: FunctionBuilder, *operands: Val) -> Val:
        body = BodyBuilder.__new__(BodyBuilder)
        body.__dict__ = b.__dict__
        body.dtypes = dtypes
        wide = [body.cast(x, compute_type(d, x.type.lanes)) for x, d in zip(operands, dtypes, strict=True)]
        return body.cast(op.emit(body, *wide), storage_type(result, operands[0].type.lanes))

    return emit


def run_native(op: Elementwise, arrays: list[Array], lanes: int) -> Array:
    dtypes = tuple(dt.from_numpy(a.dtype) for a in arrays)
    result = op.result_dtype(*dtypes)
    kernel = build(emitter(op, dtypes, result), [d.llvm for d in dtypes], lanes)
    output = kernel(*arrays)
    assert isinstance(output, np.ndarray)
    return output.view(result.np_type) if output.dtype != result.np_type else output


def distance_in_ulps(x: Array, y: Array, least: float = 0.0) -> float:
    """The largest distance, in units of the last place at the larger of the two, or at `least` if that is larger; infinities and NaN must be alike."""
    a, b = x.astype(np.float64), y.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
    np.testing.assert_array_equal(np.where(np.isinf(a), a, 0), np.where(np.isinf(b), b, 0))
    finite = np.isfinite(a)
    info = dt.finfo(dt.from_numpy(x.dtype))
    unit = np.maximum(np.maximum(np.abs(a), np.abs(b)), max(least, float(info.tiny))) * float(info.eps)
    return float((np.abs(a[finite] - b[finite]) / unit[finite]).max(initial=0))


def compare(op: Op, arrays: list[Array], lanes: int, ulps: float) -> None:
    assert isinstance(op, Elementwise)
    (want,) = evaluate(op, tuple(arrays))
    got = run_native(op, arrays, lanes)
    assert got.dtype == want.dtype
    if dt.from_numpy(want.dtype).is_float:
        if isinstance(op, ABSOLUTE) and want.dtype == np.float32:
            assert distance_in_ulps(got, want, least=1.0) <= 1
        else:
            assert distance_in_ulps(got, want) <= ulps
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.slow
@pytest.mark.parametrize("cls, op", NATIVE, ids=[str(op) for _, op in NATIVE])
def test_native_agrees_with_eval(cls: type[Op], op: Elementwise) -> None:
    for dtype, lanes in itertools.product(taken(op), (0, 8)):
        arrays = operands_of(op, CASES[cls], dtype, (64,), seed=5)
        if dtype.is_integer and arity(op) == 2:
            limits = np.iinfo(dtype.np_type)
            corner = np.array(list(itertools.product((0, 1, limits.max, limits.min, 3, limits.max - 1, 7, limits.min + 1), repeat=2)), dtype.np_type)
            arrays = [np.concatenate([a, c]) for a, c in zip(arrays, corner.T, strict=True)]
        compare(op, arrays, lanes, ULPS.get(dtype.name, 0))


@pytest.mark.parametrize("cls, op", NATIVE, ids=[str(op) for _, op in NATIVE])
def test_native_special_values(cls: type[Op], op: Elementwise) -> None:
    if dt.float32 not in taken(op):
        return  # integers and Bool have no others than those above
    count = arity(op)
    points = np.array(list(itertools.product(FLOAT_POINTS, repeat=2)), np.float32).T
    points = np.concatenate([points, points[:, : -points.shape[1] % 8]], axis=1)
    arrays = [np.arange(points.shape[1]) % 3 == 0, *points] if isinstance(op, arithmetic.Select) else list(points[:count])
    compare(op, arrays, 8, 64 if isinstance(op, mathematics.Power) else 16)
