"""Every elementwise primitive, found through the op table: dtypes × shapes, values against float64 references, gradients to second order.

An op that this file does not know fails: give it operands in `CASES`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell.dtype import DType
from graphcell.errors import DTypeError, ShapeError
from graphcell.ir.op import Op, evaluate, infer_types
from graphcell.ir.types import TensorType
from graphcell.ops import arithmetic, comparison, fallback, gelus, mathematics
from graphcell.ops.dispatch import apply1
from graphcell.tensor import Tensor
from tests.codegen.accuracy import gate_of_gelu
from tests.helpers import check_gradients

Array = np.ndarray[Any, Any]
Reference = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """How to test one op: instances of it, the interval of its float operands, and its meaning in float64 (or on Python numbers)."""

    instances: tuple[Op, ...]
    reference: Reference
    low: float = -2.0
    high: float = 2.0
    ulps: float = 4.0
    differentiable: bool = True
    """False for stop_gradient, overwrite and casts, whose gradient is not the derivative; they have tests of their own."""


def exact(function: Callable[..., Any]) -> Reference:
    """A function of Python numbers or mpmath's, for arrays."""
    return np.vectorize(lambda *xs: float(function(*xs)), otypes=[np.float64])


def trunc_mod(x: Any, y: Any) -> Any:
    return np.where(y == 0, 0, np.fmod(x, np.where(y == 0, 1, y))) if x.dtype.kind in "iu" else np.fmod(x, y)


def floor_mod(x: Any, y: Any) -> Any:
    return np.where(y == 0, 0, np.mod(x, np.where(y == 0, 1, y))) if x.dtype.kind in "iu" else np.mod(x, y)


def divided(rounding: Callable[[Any], Any]) -> Reference:
    def reference(x: Any, y: Any) -> Any:
        return np.where(y == 0, 0, rounding(x / np.where(y == 0, 1, y))) if x.dtype.kind in "iu" else rounding(x / y)

    return reference


def power(x: Any, y: Any) -> Any:
    if x.dtype.kind not in "iu":
        return np.power(x, y)
    bits = x.dtype.itemsize * 8
    mask, half = (1 << bits) - 1, 1 << (bits - 1)

    def one(a: int, b: int) -> int:
        if b < 0:
            return 0 if a == 0 else int(float(a) ** b)
        wrapped = pow(a, b, 1 << bits) & mask
        return wrapped - (mask + 1) if x.dtype.kind == "i" and wrapped & half else wrapped

    return np.vectorize(lambda a, b: one(int(a), int(b)), otypes=[object])(x, y).astype(x.dtype) if x.size else x


def extremum(function: Any, logical: Any) -> Reference:
    return lambda x, y: logical(x, y) if x.dtype == np.bool_ else function(x, y)


def shift(left: bool) -> Reference:
    def reference(x: Any, y: Any) -> Any:
        bits = x.dtype.itemsize * 8

        def one(a: int, b: int) -> int:
            if left:
                value = (a << b) % (1 << bits) if 0 <= b < bits else 0
                return value - (1 << bits) if x.dtype.kind == "i" and value >= 1 << (bits - 1) else value
            return a >> b if 0 <= b < bits else (-1 if a < 0 else 0)

        return np.vectorize(lambda a, b: one(int(a), int(b)), otypes=[object])(x, y).astype(x.dtype) if x.size else x

    return reference


def cast_reference(target: DType) -> Reference:
    def reference(x: Any) -> Any:
        if target.is_bool:
            return x != 0
        if target.is_integer and x.dtype.kind not in "biu":
            info = np.iinfo(target.np_type)
            values = [0 if math.isnan(v) else max(info.min, min(info.max, int(v))) for v in np.clip(x.astype(np.float64), -1e30, 1e30).flat]
            return np.array(values, dtype=object).astype(target.np_type).reshape(x.shape)
        return x.astype(target.np_type)

    return reference


CASTS = tuple(arithmetic.Cast(d) for d in dt.ALL)

CASES: dict[type[Op], Case] = {
    arithmetic.Add: Case((arithmetic.Add(),), np.add),
    arithmetic.Sub: Case((arithmetic.Sub(),), np.subtract),
    arithmetic.Mul: Case((arithmetic.Mul(),), np.multiply),
    arithmetic.Div: Case((arithmetic.Div(),), np.divide, 0.5, 2.0),
    arithmetic.Neg: Case((arithmetic.Neg(),), np.negative),
    arithmetic.Abs: Case((arithmetic.Abs(),), np.abs),
    arithmetic.Sign: Case((arithmetic.Sign(),), np.sign),
    arithmetic.Relu: Case((arithmetic.Relu(),), lambda x: np.where(x > 0, x, np.zeros((), x.dtype))),
    arithmetic.Maximum: Case((arithmetic.Maximum(),), extremum(np.maximum, np.logical_or)),
    arithmetic.Minimum: Case((arithmetic.Minimum(),), extremum(np.minimum, np.logical_and)),
    arithmetic.FloorDiv: Case((arithmetic.FloorDiv(),), divided(np.floor), 0.3, 2.0),
    arithmetic.FloorMod: Case((arithmetic.FloorMod(),), floor_mod, 0.3, 2.0),
    arithmetic.TruncDiv: Case((arithmetic.TruncDiv(),), divided(np.trunc), 0.3, 2.0),
    arithmetic.TruncMod: Case((arithmetic.TruncMod(),), trunc_mod, 0.3, 2.0),
    arithmetic.Select: Case((arithmetic.Select(),), np.where),
    arithmetic.Cast: Case(CASTS, cast_reference(dt.float32), differentiable=False),
    arithmetic.StopGradient: Case((arithmetic.StopGradient(),), np.copy, differentiable=False),
    arithmetic.Overwrite: Case((arithmetic.Overwrite(),), lambda old, new: new.copy(), differentiable=False),
    comparison.Equal: Case((comparison.Equal(),), np.equal),
    comparison.NotEqual: Case((comparison.NotEqual(),), np.not_equal),
    comparison.Less: Case((comparison.Less(),), np.less),
    comparison.LessEqual: Case((comparison.LessEqual(),), np.less_equal),
    comparison.Greater: Case((comparison.Greater(),), np.greater),
    comparison.GreaterEqual: Case((comparison.GreaterEqual(),), np.greater_equal),
    comparison.BitwiseAnd: Case((comparison.BitwiseAnd(),), np.bitwise_and),
    comparison.BitwiseOr: Case((comparison.BitwiseOr(),), np.bitwise_or),
    comparison.BitwiseXor: Case((comparison.BitwiseXor(),), np.bitwise_xor),
    comparison.BitwiseNot: Case((comparison.BitwiseNot(),), np.invert),
    comparison.LeftShift: Case((comparison.LeftShift(),), shift(True)),
    comparison.RightShift: Case((comparison.RightShift(),), shift(False)),
    comparison.IsNan: Case((comparison.IsNan(),), exact(math.isnan)),
    comparison.IsInf: Case((comparison.IsInf(),), exact(math.isinf)),
    comparison.IsFinite: Case((comparison.IsFinite(),), exact(math.isfinite)),
    comparison.SignBit: Case((comparison.SignBit(),), exact(lambda x: math.copysign(1.0, x) < 0)),
    mathematics.Exp: Case((mathematics.Exp(),), np.exp),
    mathematics.Exp2: Case((mathematics.Exp2(),), np.exp2),
    mathematics.Expm1: Case((mathematics.Expm1(),), np.expm1),
    mathematics.Log: Case((mathematics.Log(),), np.log, 0.3, 3.0),
    mathematics.Log1p: Case((mathematics.Log1p(),), np.log1p, -0.5, 3.0),
    mathematics.Log2: Case((mathematics.Log2(),), np.log2, 0.3, 3.0),
    mathematics.Log10: Case((mathematics.Log10(),), np.log10, 0.3, 3.0),
    mathematics.Sqrt: Case((mathematics.Sqrt(),), np.sqrt, 0.3, 3.0),
    mathematics.Rsqrt: Case((mathematics.Rsqrt(),), exact(lambda x: mpmath.rsqrt(x) if hasattr(mpmath, "rsqrt") else 1 / mpmath.sqrt(x)), 0.3, 3.0),
    mathematics.Tanh: Case((mathematics.Tanh(),), np.tanh),
    mathematics.Sigmoid: Case((mathematics.Sigmoid(),), exact(lambda x: 1 / (1 + mpmath.exp(-x)))),
    mathematics.TanhSoftplus: Case((mathematics.TanhSoftplus(),), exact(lambda x: mpmath.tanh(mpmath.log1p(mpmath.exp(x))))),
    mathematics.Softplus: Case((mathematics.Softplus(),), exact(lambda x: mpmath.log1p(mpmath.exp(x)))),
    mathematics.Erf: Case((mathematics.Erf(),), exact(math.erf)),
    mathematics.Erfc: Case((mathematics.Erfc(),), exact(math.erfc)),
    gelus.Gelu: Case((gelus.Gelu(),), exact(lambda x: x * mpmath.ncdf(x)), -0.9, 2.0, ulps=8.0),
    gelus.GeluSlope: Case((gelus.GeluSlope(),), exact(lambda x: mpmath.ncdf(x) + x * mpmath.npdf(x)), -0.3, 2.0, ulps=8.0),
    gelus.GeluTanh: Case((gelus.GeluTanh(),), exact(lambda x: x * gate_of_gelu(x)), -0.9, 2.0, ulps=8.0),
    gelus.GeluTanhSlope: Case((gelus.GeluTanhSlope(),), exact(lambda x: mpmath.diff(lambda z: z * gate_of_gelu(z), x)), -0.3, 2.0, ulps=8.0),
    mathematics.Erfinv: Case((mathematics.Erfinv(),), exact(mpmath.erfinv), -0.8, 0.8),
    mathematics.Sin: Case((mathematics.Sin(),), np.sin),
    mathematics.Cos: Case((mathematics.Cos(),), np.cos),
    mathematics.Tan: Case((mathematics.Tan(),), np.tan, -1.2, 1.2),
    mathematics.Asin: Case((mathematics.Asin(),), np.arcsin, -0.8, 0.8),
    mathematics.Acos: Case((mathematics.Acos(),), np.arccos, -0.8, 0.8),
    mathematics.Atan: Case((mathematics.Atan(),), np.arctan),
    mathematics.Sinh: Case((mathematics.Sinh(),), np.sinh),
    mathematics.Cosh: Case((mathematics.Cosh(),), np.cosh),
    mathematics.Asinh: Case((mathematics.Asinh(),), np.arcsinh),
    mathematics.Acosh: Case((mathematics.Acosh(),), np.arccosh, 1.3, 3.0),
    mathematics.Atanh: Case((mathematics.Atanh(),), np.arctanh, -0.8, 0.8),
    mathematics.Floor: Case((mathematics.Floor(),), np.floor),
    mathematics.Ceil: Case((mathematics.Ceil(),), np.ceil),
    mathematics.Trunc: Case((mathematics.Trunc(),), np.trunc),
    mathematics.Round: Case((mathematics.Round(),), np.round),
    mathematics.Pow: Case((mathematics.Pow(),), power, 0.3, 2.0),
    mathematics.Power: Case(tuple(map(mathematics.Power, (3.0, -2.0, 1.5, 7.0, 20.0))), np.power, 0.4, 1.6, ulps=12.0),
    mathematics.Atan2: Case((mathematics.Atan2(),), np.arctan2, 0.3, 2.0),
    mathematics.Hypot: Case((mathematics.Hypot(),), np.hypot, 0.3, 2.0),
    mathematics.Lgamma: Case((mathematics.Lgamma(),), exact(mpmath.loggamma), 0.3, 4.0),
    mathematics.Digamma: Case((mathematics.Digamma(),), exact(mpmath.digamma), 0.3, 1.2, ulps=60.0),
    fallback.Polygamma: Case((fallback.Polygamma(1), fallback.Polygamma(2)), exact(mpmath.digamma), 0.5, 3.0),
    fallback.Gcd: Case((fallback.Gcd(),), np.vectorize(lambda a, b: math.gcd(int(a), int(b)), otypes=[np.int64])),
    fallback.NextAfter: Case((fallback.NextAfter(),), np.nextafter),
}  # fmt: skip

MODULES = (arithmetic, comparison, mathematics, gelus, fallback)
OPS = [cls for cls in Op.table.values() if cls.__module__ in {m.__name__ for m in MODULES}]
SHAPES = ((), (0,), (1,), (3, 1), (2, 0, 3), (17,), (2, 3, 5))


def instances() -> Iterator[tuple[type[Op], Op]]:
    for cls in OPS:
        for op in CASES[cls].instances if cls in CASES else ():
            yield cls, op


INSTANCES = list(instances())
IDS = [str(op) for _, op in INSTANCES]


def test_every_op_has_a_case() -> None:
    assert {cls.name for cls in OPS} == {cls.name for cls in CASES}


def arity(op: Op) -> int:
    return len(inspect.signature(op.eval).parameters)


def taken(op: Op) -> tuple[DType, ...]:
    return getattr(op, "takes", ()) or dt.ALL


def operands_of(op: Op, case: Case, dtype: DType, shape: tuple[int, ...], seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    arrays = []
    for k in range(arity(op)):
        own = dt.bool_ if isinstance(op, arithmetic.Select) and k == 0 else dtype
        if own.is_float:
            arrays.append(rng.uniform(case.low, case.high, shape).astype(own.np_type))
        elif own.is_bool:
            arrays.append(rng.integers(0, 2, shape).astype(np.bool_))
        else:
            arrays.append(rng.integers(-9 if own.signed else 0, 10, shape).astype(own.np_type))
    return arrays


def reference(op: Op, case: Case) -> Reference:
    if isinstance(op, arithmetic.Cast):
        return cast_reference(op.dtype)
    if isinstance(op, mathematics.Power):
        return lambda x: np.power(x, op.exponent)
    if isinstance(op, fallback.Polygamma):
        return exact(lambda x: mpmath.polygamma(op.order, x))
    return case.reference


@pytest.mark.parametrize("cls, op", INSTANCES, ids=IDS)
def test_infer_agrees_with_eval(cls: type[Op], op: Op) -> None:
    for dtype in taken(op):
        for shape in SHAPES:
            arrays = operands_of(op, CASES[cls], dtype, shape)
            (inferred,) = infer_types(op, tuple(TensorType(dt.from_numpy(a.dtype), a.shape) for a in arrays))
            (result,) = evaluate(op, tuple(arrays))
            assert (result.dtype, result.shape) == (inferred.dtype.np_type, inferred.shape), f"{dtype}{shape}"


@pytest.mark.parametrize("cls, op", INSTANCES, ids=IDS)
def test_values(cls: type[Op], op: Op) -> None:
    """Against the reference in float64, to a few units in the last place of the dtype."""
    for dtype in taken(op):
        arrays = operands_of(op, CASES[cls], dtype, (3, 41), seed=1)
        (result,) = evaluate(op, tuple(arrays))
        own = isinstance(op, (fallback.NextAfter, arithmetic.Cast))  # depend on the operand's dtype
        wide = [a.astype(np.float64) if dt.from_numpy(a.dtype).is_float and not own else a for a in arrays]
        with np.errstate(all="ignore"):
            want = np.asarray(reference(op, CASES[cls])(*wide))
        if not dt.from_numpy(result.dtype).is_float:
            np.testing.assert_array_equal(result, want.astype(result.dtype), err_msg=str(dtype))
            continue
        eps = float(ml_dtypes.finfo(result.dtype).eps)
        difference = np.abs(result.astype(np.float64) - want.astype(np.float64))
        worst = float((difference / (np.abs(want.astype(np.float64)) + 1e-3) / eps).max())
        assert worst <= CASES[cls].ulps, f"{dtype}: {worst} ulp"


@pytest.mark.parametrize("cls, op", INSTANCES, ids=IDS)
def test_views_give_the_same_as_copies(cls: type[Op], op: Op) -> None:
    dtype = next(d for d in (dt.float32, dt.int32, dt.bool_) if d in taken(op))
    arrays = operands_of(op, CASES[cls], dtype, (4, 6, 5), seed=2)
    for view in (lambda a: a[::2, ::-1].T, lambda a: np.broadcast_to(a[:1, :, :1], (4, 6, 5))):
        (from_views,) = evaluate(op, tuple(map(view, arrays)))
        (from_copies,) = evaluate(op, tuple(np.ascontiguousarray(view(a)) for a in arrays))
        np.testing.assert_array_equal(from_views, from_copies)


DIFFERENTIABLE = [(cls, op) for cls, op in INSTANCES if dt.float64 in taken(op) and CASES[cls].differentiable]


@pytest.mark.parametrize("cls, op", DIFFERENTIABLE, ids=[str(op) for _, op in DIFFERENTIABLE])
def test_gradient(cls: type[Op], op: Op) -> None:
    """By finite differences to second order, eagerly and as a graph. Ops with Bool or stepwise results have the gradient 0."""
    arrays = operands_of(op, CASES[cls], dt.float64, (2, 3), seed=3)
    wrt = (0,) if isinstance(op, fallback.NextAfter) else tuple(k for k, a in enumerate(arrays) if a.dtype == np.float64)
    check_gradients(lambda *xs: apply1(op, *xs), *arrays, wrt=wrt, rtol=1e-4, atol=1e-5)


def test_what_has_no_gradient_is_listed() -> None:
    without = {cls.name for cls, _ in INSTANCES} - {cls.name for cls, _ in DIFFERENTIABLE}
    integer_only = {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "left_shift", "right_shift", "gcd"}
    assert without == integer_only | {"cast", "overwrite", "stop_gradient"}


def test_gradient_of_broadcast_and_empty_operands() -> None:
    rng = np.random.default_rng(4)
    check_gradients(lambda x, y: x * y + x / (y + 3.0), rng.uniform(0.5, 1, (2, 1, 3)), rng.uniform(0.5, 1, (4, 1)))
    check_gradients(lambda x, y: (x - y) ** 2, np.float64(0.3), np.float64(0.7))
    check_gradients(lambda x: (x * 2.0).exp(), np.zeros((0, 3)))


def test_refuses_other_dtypes_and_shapes() -> None:
    for cls, op in INSTANCES:
        count = arity(op)
        refused = next((d for d in (dt.bool_, dt.int32, dt.float32) if d not in taken(op)), None)
        if refused is not None:
            with pytest.raises(DTypeError, match=f"{cls.name}: {refused} is not supported"):
                infer_types(op, (TensorType(refused, (2,)),) * count)
        if count == 1 or cls is arithmetic.Select:
            continue
        good = next(d for d in (dt.float32, dt.int32) if d in taken(op))
        other = next(d for d in (dt.float64, dt.int64) if d in taken(op))
        with pytest.raises(ShapeError):
            infer_types(op, (TensorType(good, (2,)), TensorType(good, (3,))))
        with pytest.raises((DTypeError, ShapeError)):
            infer_types(op, (TensorType(good, (2,)), TensorType(other, (2,))))


def test_select_refuses_numbers_as_condition() -> None:
    number = TensorType(dt.float32, (2,))
    with pytest.raises(DTypeError, match="condition must be Bool"):
        infer_types(arithmetic.Select(), (number, number, number))
    with pytest.raises(DTypeError, match="dtypes differ"):
        infer_types(arithmetic.Select(), (TensorType(dt.bool_, (2,)), number, TensorType(dt.float64, (2,))))


def test_stop_gradient() -> None:
    def only_first(x: Tensor) -> Tensor:
        return x * apply1(arithmetic.StopGradient(), x)

    from graphcell.ops.dispatch import Tape, recording

    x = Tensor([2.0, 3.0])
    tape = Tape()
    tape.watch(x)
    with recording(tape):
        y = only_first(x)
    (gradient,) = tape.gradients([y], [Tensor([1.0, 1.0])], [x])
    assert gradient is not None and gradient.tolist() == [2.0, 3.0]


def test_cast_gradient() -> None:
    def there_and_back(x: Tensor) -> Tensor:
        return apply1(arithmetic.Cast(dt.float64), apply1(arithmetic.Cast(dt.float32), x))

    check_gradients(there_and_back, np.array([0.5, -1.25]), step=1e-2, rtol=1e-2, atol=1e-2, order=1)
