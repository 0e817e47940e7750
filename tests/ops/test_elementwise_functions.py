"""Public elementwise functions against MindSpore 2.10: values, dtypes and shapes recorded from it (CPU, PyNative), and its error types."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from graphcell import dtype as ms
from graphcell import ops
from graphcell.ops.dispatch import Tape, recording
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor
from tests.helpers import check_gradients

inf, nan = float("inf"), float("nan")


def T(*numbers: float) -> Tensor:
    return Tensor(list(numbers), ms.float32)


def I(*numbers: int) -> Tensor:  # noqa: E743
    return Tensor(list(numbers), ms.int64)


NAMES: dict[str, Any] = {
    "ops": ops, "ms": ms, "np": np, "Tensor": Tensor, "Parameter": Parameter, "T": T, "I": I, "inf": inf, "nan": nan,
    "x": T(-5, -3, -1, -0.5, 0, 0.5, 1, 3, 5, 6), "y": T(nan, inf, -inf, 0, -0.0, 1.5), "i": I(6, -7, 3), "j": I(3, 2, -5),
    "b": Tensor([True, True, False, False]), "c": Tensor([True, False, True, False]),
}  # fmt: skip

# expression, dtype, shape, values
RESULTS: tuple[tuple[str, str, tuple[int, ...], Any], ...] = (
    ("ops.add(1, 2)", "Int64", (), 3),
    ("ops.add(T(1), 2)", "Float32", (1,), [3.0]),
    ("ops.add(2, T(1))", "Float32", (1,), [3.0]),
    ("ops.add(I(1), 2.5)", "Float32", (1,), [3.5]),
    ("ops.add(b, 1)", "Int64", (4,), [2, 2, 1, 1]),
    ("ops.sub(I(1), 2.5)", "Float32", (1,), [-1.5]),
    ("ops.subtract(T(5), T(2), alpha=2)", "Float32", (1,), [1.0]),
    ("ops.mul(b, c)", "Bool", (4,), [True, False, False, False]),
    ("ops.mul(T(2), I(3))", "Float32", (1,), [6.0]),
    ("ops.mul(Tensor([2], ms.float16), T(3))", "Float32", (1,), [6.0]),
    ("ops.mul(Tensor([2], ms.float16), 2.5)", "Float16", (1,), [5.0]),
    ("ops.mul(Tensor([2], ms.int8), Tensor([3], ms.uint8))", "Int16", (1,), [6]),
    ("ops.div(I(7, -7), 2)", "Float32", (2,), [3.5, -3.5]),
    ("ops.div(I(7, -7), 2, rounding_mode='floor')", "Int64", (2,), [3, -4]),
    ("ops.div(I(7, -7), 2, rounding_mode='trunc')", "Int64", (2,), [3, -3]),
    ("ops.div(T(7, -7), 2, rounding_mode='floor')", "Float32", (2,), [3.0, -4.0]),
    ("ops.div(T(7, -7), 2, rounding_mode='trunc')", "Float32", (2,), [3.0, -3.0]),
    ("ops.div(b, c)", "Float32", (4,), [1.0, inf, 0.0, nan]),
    ("ops.divide(I(7), 2)", "Float32", (1,), [3.5]),
    ("ops.true_divide(I(7), I(2))", "Float32", (1,), [3.5]),
    ("ops.floor_divide(T(7.5, -7.5), 2)", "Float32", (2,), [3.0, -4.0]),
    ("ops.floor_div(i, j)", "Int64", (3,), [2, -4, -1]),
    ("ops.floor_div(T(1, -1, 7, 1), T(inf, inf, -inf, .1))", "Float32", (4,), [0.0, -0.0, -0.0, 9.0]),
    ("ops.floor_div(T(1), 0)", "Float32", (1,), [inf]),
    ("ops.floor_mod(i, j)", "Int64", (3,), [0, 1, -2]),
    ("ops.floor_mod(T(-7, 7, 5.5), T(3, -3, 2))", "Float32", (3,), [2.0, -2.0, 1.5]),
    ("ops.remainder(I(-7, 7), 3)", "Int64", (2,), [2, 1]),
    ("ops.remainder(T(-7, 7), 3)", "Float32", (2,), [2.0, 1.0]),
    ("ops.fmod(T(-7, 7), 3)", "Float32", (2,), [-1.0, 1.0]),
    ("ops.fmod(I(-7, 7), 3)", "Int64", (2,), [-1, 1]),
    ("ops.truncate_div(i, j)", "Int64", (3,), [2, -3, 0]),
    ("ops.truncate_mod(Tensor([-7, 7], ms.int32), Tensor([3, -3], ms.int32))", "Int32", (2,), [-1, 1]),
    ("ops.neg(T(1))", "Float32", (1,), [-1.0]),
    ("ops.neg(Tensor([1], ms.uint8))", "UInt8", (1,), [255]),
    ("ops.negative(I(1))", "Int64", (1,), [-1]),
    ("ops.abs(i)", "Int64", (3,), [6, 7, 3]),
    ("ops.abs(b)", "Bool", (4,), [True, True, False, False]),
    ("ops.absolute(T(-1))", "Float32", (1,), [1.0]),
    ("ops.sign(y)", "Float32", (6,), [0.0, 1.0, -1.0, 0.0, 0.0, 1.0]),
    ("ops.sign(Tensor([-3, 0, 3], ms.int32))", "Int32", (3,), [-1, 0, 1]),
    ("ops.sgn(T(-2))", "Float32", (1,), [-1.0]),
    ("ops.square(I(3))", "Int64", (1,), [9]),
    ("ops.square(T(-3))", "Float32", (1,), [9.0]),
    ("ops.reciprocal(T(4, 0))", "Float32", (2,), [0.25, inf]),
    ("ops.reciprocal(I(4))", "Float32", (1,), [0.25]),
    ("ops.reciprocal(b)", "Float32", (4,), [1.0, 1.0, inf, inf]),
    ("ops.inv(I(4))", "Int64", (1,), [0]),
    ("ops.inv(T(4))", "Float32", (1,), [0.25]),
    ("ops.invert(Tensor([1, -2], ms.int32))", "Int32", (2,), [-2, 1]),
    ("ops.pow(T(2), 3)", "Float32", (1,), [8.0]),
    ("ops.pow(T(2, -2), 0)", "Float32", (2,), [1.0, 1.0]),
    ("ops.pow(I(2, -3), 3)", "Int64", (2,), [8, -27]),
    ("ops.pow(I(2, 1, -1), -1)", "Int64", (3,), [0, 1, -1]),
    ("ops.pow(I(2), 0.5)", "Float32", (1,), [1.414214]),
    ("ops.pow(2, T(3))", "Float32", (1,), [8.0]),
    ("ops.pow(T(-8), 1/3)", "Float32", (1,), [nan]),
    ("ops.pow(T(4), 0.5)", "Float32", (1,), [2.0]),
    ("ops.pow(T(4), -0.5)", "Float32", (1,), [0.5]),
    ("ops.pow(T(2, 3), T(3, 2))", "Float32", (2,), [8.0, 9.0]),
    ("ops.float_power(I(2, 3), 2)", "Float64", (2,), [4.0, 9.0]),
    ("ops.float_power(T(2), 0.5)", "Float64", (1,), [1.414214]),
    ("ops.maximum(I(1), 2.5)", "Float32", (1,), [2.5]),
    ("ops.maximum(b, c)", "Bool", (4,), [True, True, True, False]),
    ("ops.fmax(T(1, nan), T(nan, 2))", "Float32", (2,), [1.0, 2.0]),
    ("ops.clamp(x, -1, 1)", "Float32", (10,), [-1.0, -1.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.0, 1.0, 1.0]),
    ("ops.clamp(x, min=0)", "Float32", (10,), [0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 1.0, 3.0, 5.0, 6.0]),
    ("ops.clamp(x, max=0)", "Float32", (10,), [-5.0, -3.0, -1.0, -0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    ("ops.clamp(I(1, 5), 0, 3)", "Int64", (2,), [1, 3]),
    ("ops.clamp(I(1, 5), 0.5, 3.5)", "Float32", (2,), [1.0, 3.5]),
    ("ops.clamp(T(1, 5), 4, 2)", "Float32", (2,), [2.0, 2.0]),
    ("ops.clip(x, -1, 1)", "Float32", (10,), [-1.0, -1.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.0, 1.0, 1.0]),
    ("ops.clip_by_value(x, -1, 1)", "Float32", (10,), [-1.0, -1.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.0, 1.0, 1.0]),
    ("ops.clip_by_value(x, T(-1), T(1))", "Float32", (10,), [-1.0, -1.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.0, 1.0, 1.0]),
    ("ops.clamp(x, T(-1), T(1))", "Float32", (10,), [-1.0, -1.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.0, 1.0, 1.0]),
    ("ops.addcmul(T(1, 2), T(3, 4), T(5, 6), 0.5)", "Float32", (2,), [8.5, 14.0]),
    ("ops.addcmul(T(1, 2), T(3, 4), T(5, 6), value=Tensor(2.))", "Float32", (2,), [31.0, 50.0]),
    ("ops.addcdiv(T(1, 2), T(3, 4), T(5, 8), value=0.5)", "Float32", (2,), [1.3, 2.25]),
    ("ops.lerp(T(1, 2), T(3, 4), 0.5)", "Float32", (2,), [2.0, 3.0]),
    ("ops.lerp(T(1, 2), T(3, 4), T(0.5, .25))", "Float32", (2,), [2.0, 2.5]),
    ("ops.hypot(T(3, 1e30), T(4, 1e30))", "Float32", (2,), [5.0, 1.414214e+30]),
    ("ops.logaddexp(T(1, 1000), T(2, 1000))", "Float32", (2,), [2.313261, 1000.693]),
    ("ops.logaddexp2(T(1, 2000), T(2, 2000))", "Float32", (2,), [2.584962, 2001.0]),
    ("ops.xlogy(T(1, 2), T(2, nan))", "Float32", (2,), [0.6931472, nan]),
    ("ops.xlogy(2, T(3))", "Float32", (1,), [2.197225]),
    ("ops.xdivy(T(0, 1), T(0, 2))", "Float32", (2,), [0.0, 0.5]),
    ("ops.addn([T(1), T(2), T(3)])", "Float32", (1,), [6.0]),
    ("ops.heaviside(T(-1, 0, 2), T(.5))", "Float32", (3,), [0.0, 0.5, 1.0]),
    ("ops.copysign(T(1, 2), -1)", "Float32", (2,), [-1.0, -2.0]),
    ("ops.copysign(I(1, 2), I(-1, 1))", "Float32", (2,), [-1.0, 2.0]),
    ("ops.ldexp(T(1.5), I(3))", "Float32", (1,), [12.0]),
    ("ops.ldexp(I(3), I(2))", "Float32", (1,), [12.0]),
    ("ops.gcd(I(12, 0, -8), I(18, 5, 12))", "Int64", (3,), [6, 5, 4]),
    ("ops.lcm(I(4, 0, -6), I(6, 5, 4))", "Int64", (3,), [12, 0, 12]),
    ("ops.nan_to_num(T(nan, inf, -inf, 1))", "Float32", (4,), [0.0, 3.402823e+38, -3.402823e+38, 1.0]),
    ("ops.nan_to_num(T(nan, inf, -inf, 1), 1., 2., 3.)", "Float32", (4,), [1.0, 2.0, 3.0, 1.0]),
    ("ops.frac(T(1.5, -1.5))", "Float32", (2,), [0.5, -0.5]),
    ("ops.frac(I(3))", "Int64", (1,), [0]),
    ("ops.deg2rad(T(180))", "Float32", (1,), [3.141593]),
    ("ops.rad2deg(T(3.1415927))", "Float32", (1,), [180.0]),
    ("ops.logit(T(.25, 0, 1, 2))", "Float32", (4,), [-1.098612, -inf, inf, nan]),
    ("ops.sinc(T(0, .5))", "Float32", (2,), [1.0, 0.6366197]),
    ("ops.round(T(0.5, 1.5, 2.5, -0.5, 1.256))", "Float32", (5,), [0.0, 2.0, 2.0, -0.0, 1.0]),
    ("ops.round(Tensor([3], ms.int32))", "Int32", (1,), [3]),
    ("ops.floor(T(1.5, -1.5))", "Float32", (2,), [1.0, -2.0]),
    ("ops.ceil(T(1.5, -1.5))", "Float32", (2,), [2.0, -1.0]),
    ("ops.trunc(T(1.5, -1.5))", "Float32", (2,), [1.0, -1.0]),
    ("ops.trunc(I(3))", "Int64", (1,), [3]),
    ("ops.polygamma(Tensor(1), T(1, 2))", "Float32", (2,), [1.644934, 0.6449341]),
    ("ops.mvlgamma(T(3, 4), 2)", "Float32", (2,), [1.550195, 3.565098]),
    ("ops.eps(T(1., 2.))", "Float32", (2,), [1.192093e-07, 1.192093e-07]),
    ("ops.conj(T(1))", "Float32", (1,), [1.0]),
    ("ops.real(T(1))", "Float32", (1,), [1.0]),
    ("ops.imag(T(1, 2))", "Float32", (2,), [0.0, 0.0]),
    ("ops.isclose(T(1, nan, inf), T(1+1e-6, nan, inf))", "Bool", (3,), [True, False, True]),
    ("ops.isclose(T(1, nan), T(1, nan), equal_nan=True)", "Bool", (2,), [True, True]),
    ("ops.isclose(I(1), I(1))", "Bool", (1,), [True]),
    ("ops.isclose(T(1, 2), T(1.5, 2), rtol=0.5)", "Bool", (2,), [True, True]),
    ("ops.isreal(T(1))", "Bool", (1,), [True]),
    ("ops.where(T(1, 0)>0, T(1, 2), T(3, 4))", "Float32", (2,), [1.0, 4.0]),
    ("ops.where(T(1, 0)>0, 1, T(3, 4))", "Float32", (2,), [1.0, 4.0]),
    ("ops.where(T(1, 0)>0, 1, 2)", "Int64", (2,), [1, 2]),
    ("ops.where(T(1, 0)>0, 1.0, 2)", "Float32", (2,), [1.0, 2.0]),
    ("ops.select(T(1, 0)>0, T(1, 2), T(3, 4))", "Float32", (2,), [1.0, 4.0]),
    ("ops.select(T(1, 0)>0, 1, T(3, 4))", "Float32", (2,), [1.0, 4.0]),
    ("ops.select(T(1, 0)>0, T(1, 2), 2.0)", "Float32", (2,), [1.0, 2.0]),
    ("ops.select(T(1, 0)>0, 1, 2)", "Int64", (2,), [1, 2]),
    ("ops.select(T(1, 0)>0, T(1, 2), I(3, 4))", "Float32", (2,), [1.0, 4.0]),
    ("ops.select(T(1, 0)>0, I(1, 2), 2.5)", "Float32", (2,), [1.0, 2.5]),
    ("ops.select(T(1, 0)>0, T(1, 2), T(3))", "Float32", (2,), [1.0, 3.0]),
    ("ops.bitwise_left_shift(I(1, 2), 3)", "Int64", (2,), [8, 16]),
    ("ops.bitwise_right_shift(I(-8, 8), 1)", "Int64", (2,), [-4, 4]),
    ("ops.bitwise_and(I(6), 3)", "Int64", (1,), [2]),
    ("ops.bitwise_or(I(6), 3)", "Int64", (1,), [7]),
    ("ops.bitwise_xor(I(6), I(3))", "Int64", (1,), [5]),
    ("ops.bitwise_and(b, c)", "Bool", (4,), [True, False, False, False]),
    ("ops.logical_and(T(1, 0), b[:2])", "Bool", (2,), [True, False]),
    ("ops.logical_or(I(1, 0), I(0, 0))", "Bool", (2,), [True, False]),
    ("ops.logical_xor(b, c)", "Bool", (4,), [False, True, True, False]),
    ("ops.logical_not(I(0, 2))", "Bool", (2,), [True, False]),
    ("ops.logical_not(T(0, nan))", "Bool", (2,), [True, False]),
    ("ops.equal(T(1), 1)", "Bool", (1,), [True]),
    ("ops.equal(T(1, nan), T(1, nan))", "Bool", (2,), [True, False]),
    ("ops.not_equal(T(1, nan), T(1, nan))", "Bool", (2,), [False, True]),
    ("ops.less(T(1, 3), 2)", "Bool", (2,), [True, False]),
    ("ops.lt(I(1), T(1.5))", "Bool", (1,), [True]),
    ("ops.le(T(1), I(1))", "Bool", (1,), [True]),
    ("ops.ge(T(1), I(1))", "Bool", (1,), [True]),
    ("ops.gt(T(2), b[0])", "Bool", (1,), [True]),
    ("ops.greater(T(1, nan), 0)", "Bool", (2,), [True, False]),
    ("ops.greater_equal(b, c)", "Bool", (4,), [True, True, False, True]),
    ("ops.isnan(y)", "Bool", (6,), [True, False, False, False, False, False]),
    ("ops.isinf(y)", "Bool", (6,), [False, True, True, False, False, False]),
    ("ops.isfinite(y)", "Bool", (6,), [False, False, False, True, True, True]),
    ("ops.isposinf(y)", "Bool", (6,), [False, True, False, False, False, False]),
    ("ops.isneginf(y)", "Bool", (6,), [False, False, True, False, False, False]),
    ("ops.signbit(T(-1, 0, 1))", "Bool", (3,), [True, False, False]),
    ("ops.isnan(I(1))", "Bool", (1,), [False]),
    ("ops.isfinite(I(1))", "Bool", (1,), [True]),
    ("ops.atan2(T(1, -1, 0), T(1, -1, -1))", "Float32", (3,), [0.7853982, -2.356194, 3.141593]),
    ("ops.atan2(T(1), 2)", "Float32", (1,), [0.4636476]),
    ("ops.arange(5)", "Int64", (5,), [0, 1, 2, 3, 4]),
    ("ops.arange(2, 5)", "Int64", (3,), [2, 3, 4]),
    ("ops.arange(0, 1, 0.25)", "Float32", (4,), [0.0, 0.25, 0.5, 0.75]),
    ("ops.arange(5, 0, -2)", "Int64", (3,), [5, 3, 1]),
    ("ops.arange(5.0)", "Float32", (5,), [0.0, 1.0, 2.0, 3.0, 4.0]),
    ("ops.arange(5, dtype=ms.float16)", "Float16", (5,), [0.0, 1.0, 2.0, 3.0, 4.0]),
    ("ops.arange(Tensor(3))", "Int64", (3,), [0, 1, 2]),
    ("ops.arange(0)", "Int64", (0,), []),
    ("ops.arange(1, 2.5)", "Float32", (2,), [1.0, 2.0]),
    ("ops.range(0, 5, 2)", "Int64", (3,), [0, 2, 4]),
    ("ops.range(0., 1., .5)", "Float32", (2,), [0.0, 0.5]),
    ("ops.linspace(0, 1, 5)", "Float32", (5,), [0.0, 0.25, 0.5, 0.75, 1.0]),
    ("ops.linspace(0, 10, 1)", "Float32", (1,), [0.0]),
    ("ops.linspace(T(1)[0], T(2)[0], 3)", "Float32", (3,), [1.0, 1.5, 2.0]),
    ("ops.linspace(5, -5, 5)", "Float32", (5,), [5.0, 2.5, 0.0, -2.5, -5.0]),
    ("ops.eye(2)", "Float32", (2, 2), [[1.0, 0.0], [0.0, 1.0]]),
    ("ops.eye(2, 3)", "Float32", (2, 3), [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
    ("ops.eye(3, 2, ms.int32)", "Int32", (3, 2), [[1, 0], [0, 1], [0, 0]]),
    ("ops.fill(ms.float32, (2, 2), 1)", "Float32", (2, 2), [[1.0, 1.0], [1.0, 1.0]]),
    ("ops.fill(ms.int32, (2, ), 1.7)", "Int32", (2,), [1, 1]),
    ("ops.fill(ms.bool_, (2, ), 2)", "Bool", (2,), [True, True]),
    ("ops.full((2, ), 3)", "Int64", (2,), [3, 3]),
    ("ops.full((2, ), 3, dtype=ms.float16)", "Float16", (2,), [3.0, 3.0]),
    ("ops.full_like(T(1, 2), 3)", "Float32", (2,), [3.0, 3.0]),
    ("ops.full_like(I(1, 2), 3.5)", "Int64", (2,), [3, 3]),
    ("ops.full_like(T(1, 2), 3, dtype=ms.int32)", "Int32", (2,), [3, 3]),
    ("ops.zeros((2, ))", "Float32", (2,), [0.0, 0.0]),
    ("ops.zeros(2)", "Float32", (2,), [0.0, 0.0]),
    ("ops.zeros((2, ), ms.int32)", "Int32", (2,), [0, 0]),
    ("ops.zeros(I(2, 3))", "Float32", (2, 3), [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),
    ("ops.ones((2, 1))", "Float32", (2, 1), [[1.0], [1.0]]),
    ("ops.ones(2, ms.bool_)", "Bool", (2,), [True, True]),
    ("ops.ones_like(I(1, 2))", "Int64", (2,), [1, 1]),
    ("ops.zeros_like(T(1), dtype=ms.int8)", "Int8", (1,), [0]),
    ("ops.ones_like(T(1), dtype=ms.float64)", "Float64", (1,), [1.0]),
    ("ops.cast(T(1.7, -1.7), ms.int32)", "Int32", (2,), [1, -1]),
    ("ops.cast(1, ms.float32)", "Float32", (), 1.0),
    ("ops.cast(1.5, ms.int32)", "Int32", (), 1),
    ("ops.cast(True, ms.int32)", "Int32", (), 1),
    ("ops.cast(I(300, -1), ms.int8)", "Int8", (2,), [44, -1]),
    ("ops.cast(T(nan, 0., .5), ms.bool_)", "Bool", (3,), [True, False, True]),
    ("ops.cast(T(1.5), ms.bfloat16)", "BFloat16", (1,), [1.5]),
    ("ops.cast(I(1, 0), ms.bool_)", "Bool", (2,), [True, False]),
    ("ops.scalar_to_tensor(1)", "Float32", (), 1.0),
    ("ops.scalar_to_tensor(1, ms.int32)", "Int32", (), 1),
    ("ops.tuple_to_array((1, 2, 3))", "Int32", (3,), [1, 2, 3]),
    ("ops.tuple_to_array((1., 2.))", "Float32", (2,), [1.0, 2.0]),
    ("ops.stop_gradient(T(1))", "Float32", (1,), [1.0]),
    ("ops.deepcopy(T(1))", "Float32", (1,), [1.0]),
    ("ops.depend(T(1), T(2))", "Float32", (1,), [1.0]),
    ("ops.hamming_window(5)", "Float32", (5,), [0.08000001, 0.3978522, 0.9121478, 0.9121478, 0.3978522]),
    ("ops.hann_window(4)", "Float64", (4,), [0.0, 0.5, 1.0, 0.5]),
    ("ops.hann_window(4, False)", "Float64", (4,), [0.0, 0.75, 0.75, 0.0]),
    ("ops.hann_window(0)", "Float64", (0,), []),
    ("ops.hann_window(1)", "Float64", (1,), [1.0]),
    ("ops.assign(T(1, 2), T(3, 4))", "Float32", (2,), [3.0, 4.0]),
    ("ops.assign_add(Parameter(T(1, 2), name='a'), T(3, 4))", "Float32", (2,), [4.0, 6.0]),
    ("ops.assign_add(Parameter(T(1, 2), name='a'), I(3, 4))", "Float32", (2,), [4.0, 6.0]),
    ("ops.assign_sub(Parameter(T(1, 2), name='a'), T(3, 4))", "Float32", (2,), [-2.0, -2.0]),
    ("ops.relu(x)", "Float32", (10,), [0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 1.0, 3.0, 5.0, 6.0]),
    ("ops.relu(i)", "Int64", (3,), [6, 0, 3]),
    ("ops.relu6(x)", "Float32", (10,), [0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 1.0, 3.0, 5.0, 6.0]),
    ("ops.leaky_relu(x)", "Float32", (10,), [-1.0, -0.6, -0.2, -0.1, 0.0, 0.5, 1.0, 3.0, 5.0, 6.0]),
    ("ops.leaky_relu(x, 2.0)", "Float32", (10,), [-10.0, -6.0, -2.0, -1.0, 0.0, 0.5, 1.0, 3.0, 5.0, 6.0]),
    ("ops.leaky_relu(x, alpha=0.1)", "Float32", (10,), [-0.5, -0.3, -0.1, -0.05, 0.0, 0.5, 1.0, 3.0, 5.0, 6.0]),
    ("ops.elu(x)", "Float32", (10,), [-0.9932621, -0.950213, -0.6321212, -0.3934695, 0.0, 0.5, 1.0, 3.0, 5.0, 6.0]),
    ("ops.selu(x)", "Float32", (10,), [-1.746253, -1.670569, -1.111331, -0.6917582, 0.0, 0.5253505, 1.050701, 3.152103, 5.253505, 6.304206]),
    ("ops.celu(x, 2.0)", "Float32", (10,), [-1.83583, -1.55374, -0.7869387, -0.4423984, 0.0, 0.5, 1.0, 3.0, 5.0, 6.0]),
    ("ops.gelu(x)", "Float32", (10,), [-1.490116e-06, -0.004049689, -0.1586553, -0.1542688, 0.0, 0.3457312, 0.8413447, 2.99595, 4.999999, 6.0]),
    ("ops.gelu(x, 'tanh')", "Float32", (10,), [-2.980232e-07, -0.003637433, -0.158808, -0.154286, 0.0, 0.345714, 0.841192, 2.996363, 5.0, 6.0]),
    ("ops.fast_gelu(x)", "Float32", (10,),
     [-0.001007016, -0.01807131, -0.1542042, -0.1496116, 0.0, 0.3503884, 0.8457958, 2.981929, 4.998993, 5.99978]),
    ("ops.silu(x)", "Float32", (10,), [-0.03346421, -0.1422775, -0.2689416, -0.1887703, 0.0, 0.3112297, 0.7310589, 2.857722, 4.966536, 5.985165]),
    ("ops.mish(x)", "Float32", (10,), [-0.03357624, -0.1456474, -0.303401, -0.2207437, 0.0, 0.3752452, 0.8650982, 2.986535, 4.999552, 5.999927]),
    ("ops.softplus(x)", "Float32", (10,),
     [0.006715349, 0.04858733, 0.3132612, 0.4740768, 0.693147, 0.9740769, 1.313261, 3.048587, 5.006717, 6.002477]),
    ("ops.softplus(x, 2, 1)", "Float32", (10,), [2.270885e-05, 0.001237826, 0.06346397, 0.1566306, 0.3465735, 0.6566305, 1.0, 3.0, 5.0, 6.0]),
    ("ops.softsign(x)", "Float32", (10,), [-0.8333333, -0.75, -0.5, -0.3333333, 0.0, 0.3333333, 0.5, 0.75, 0.8333333, 0.8571429]),
    ("ops.hardswish(x)", "Float32", (10,), [0.0, 0.0, -0.3333333, -0.2083333, 0.0, 0.2916667, 0.6666667, 3.0, 5.0, 6.0]),
    ("ops.hardsigmoid(x)", "Float32", (10,), [0.0, 0.0, 0.3333333, 0.4166667, 0.5, 0.5833333, 0.6666667, 1.0, 1.0, 1.0]),
    ("ops.hardtanh(x)", "Float32", (10,), [-1.0, -1.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.0, 1.0, 1.0]),
    ("ops.hardtanh(x, -2, 0.5)", "Float32", (10,), [-2.0, -2.0, -1.0, -0.5, 0.0, 0.5, 0.5, 0.5, 0.5, 0.5]),
    ("ops.hardshrink(x)", "Float32", (10,), [-5.0, -3.0, -1.0, 0.0, 0.0, 0.0, 1.0, 3.0, 5.0, 6.0]),
    ("ops.hardshrink(x, 1.0)", "Float32", (10,), [-5.0, -3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 5.0, 6.0]),
    ("ops.softshrink(x)", "Float32", (10,), [-4.5, -2.5, -0.5, 0.0, 0.0, 0.0, 0.5, 2.5, 4.5, 5.5]),
    ("ops.softshrink(x, 1.0)", "Float32", (10,), [-4.0, -2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 4.0, 5.0]),
    ("ops.tanhshrink(x)", "Float32", (10,), [-3.99999, -2.004944, -0.2384058, -0.03788283, 0.0, 0.03788283, 0.2384058, 2.004944, 3.99999, 5.0]),
    ("ops.tanhshrink(i)", "Float32", (3,), [5.0, -6.0, 2.004944]),
    ("ops.logsigmoid(x)", "Float32", (10,),
     [-5.006715, -3.048587, -1.313261, -0.9740767, -0.693147, -0.4740767, -0.3132611, -0.0485872, -0.006715324, -0.002475641]),
    ("ops.threshold(x, 0.6, 20.)", "Float32", (10,), [20.0, 20.0, 20.0, 20.0, 20.0, 20.0, 1.0, 3.0, 5.0, 6.0]),
    ("ops.prelu(T(-1, 2), T(.5))", "Float32", (2,), [-0.5, 2.0]),
    ("ops.prelu(Tensor(np.arange(-6, 6).reshape(1, 3, 4).astype(np.float32)), T(.1, .2, .3))", "Float32", (1, 3, 4),
     [[[-0.6, -0.5, -0.4, -0.3], [-0.4, -0.2, 0.0, 1.0], [2.0, 3.0, 4.0, 5.0]]]),
    ("ops.prelu(Tensor(np.arange(-6, 6).reshape(3, 4).astype(np.float32)), T(.1))", "Float32", (3, 4),
     [[-0.6, -0.5, -0.4, -0.3], [-0.2, -0.1, 0.0, 1.0], [2.0, 3.0, 4.0, 5.0]]),
    ("ops.glu(Tensor(np.arange(8).reshape(2, 4).astype(np.float32)))", "Float32", (2, 2), [[0.0, 0.9525741], [3.99011, 4.995445]]),
    ("ops.glu(Tensor(np.arange(8).reshape(2, 4).astype(np.float32)), 0)", "Float32", (1, 4), [[0.0, 0.9933072, 1.995055, 2.997267]]),
    ("ops.exp(T(0, 1, -1))", "Float32", (3,), [1.0, 2.71828, 0.3678788]),
    ("ops.expm1(T(1e-6, 1))", "Float32", (2,), [9.536743e-07, 1.718282]),
    ("ops.exp2(T(3))", "Float32", (1,), [8.0]),
    ("ops.log(T(1, 2, 0, -1))", "Float32", (4,), [0.0, 0.693147, -inf, nan]),
    ("ops.log1p(T(1e-6, 1))", "Float32", (2,), [9.536739e-07, 0.6931472]),
    ("ops.log2(T(8, 0.5))", "Float32", (2,), [3.0, -1.0]),
    ("ops.log10(T(1000))", "Float32", (1,), [3.0]),
    ("ops.sqrt(T(4, -1, 0))", "Float32", (3,), [2.0, nan, 0.0]),
    ("ops.rsqrt(T(4, 0))", "Float32", (2,), [0.5, inf]),
    ("ops.sqrt(I(4))", "Float32", (1,), [2.0]),
    ("ops.tanh(T(0.5, -2))", "Float32", (2,), [0.4621172, -0.9640276]),
    ("ops.sigmoid(T(0.5, -2))", "Float32", (2,), [0.6224594, 0.1192029]),
    ("ops.erf(T(0.5, -2))", "Float32", (2,), [0.5204999, -0.9953223]),
    ("ops.erfc(T(0.5, -2, 3))", "Float32", (3,), [0.4795001, 1.995322, 2.20905e-05]),
    ("ops.erfinv(T(0.5, -0.9, 1, 2))", "Float32", (4,), [0.4769363, -1.163087, inf, nan]),
    ("ops.lgamma(T(0.5, 3, -1.5))", "Float32", (3,), [0.5723649, 0.6931472, 0.860047]),
    ("ops.digamma(T(0.5, 3, -1.5))", "Float32", (3,), [-1.963511, 0.9227842, 0.7031567]),
    ("ops.asin(T(0.5, 2))", "Float32", (2,), [0.5235988, nan]),
    ("ops.acosh(T(1.5, .5))", "Float32", (2,), [0.9624236, nan]),
    ("ops.atanh(T(.5, 1))", "Float32", (2,), [0.5493062, inf]),
    ("ops.clip_by_norm(T(3, 4), 1.0)", "Float32", (2,), [0.5999999, 0.7999998]),
    ("ops.clip_by_norm(T(3, 4), 10.)", "Float32", (2,), [3.0, 4.0]),
    ("ops.clip_by_norm(T(3, 4), 1.0, 1.0)", "Float32", (2,), [0.4285713, 0.5714285]),
    ("ops.clip_by_norm(T(3, 4), 1.0, inf)", "Float32", (2,), [0.7499998, 0.9999998]),
    ("ops.clip_by_norm(T(3, 4), T(1.))", "Float32", (2,), [0.5999999, 0.7999998]),
    ("ops.clip_by_norm(T(0, 0), 1.0)", "Float32", (2,), [0.0, 0.0]),
    ("ops.clip_by_norm(I(3, 4), 1.)", "Float32", (2,), [0.5999999, 0.7999998]),
    ("ops.clip_by_global_norm(T(3, 4), 1.0)", "Float32", (2,), [0.6, 0.8]),
    ("ops.bias_add(Tensor(np.zeros((2, 3), np.float32)), T(1, 2, 3))", "Float32", (2, 3), [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]),
    ("ops.bias_add(Tensor(np.zeros((1, 2, 2, 2), np.float32)), T(1, 2))", "Float32", (1, 2, 2, 2), [[[[1.0, 1.0], [1.0, 1.0]], [[2.0, 2.0], [2.0, 2.0]]]]),
    ("ops.augassign_add(T(1), 2)", "Float32", (1,), [3.0]),
    ("ops.tensor_gt(T(1), 0)", "Bool", (1,), [True]),
    ("ops.rrelu(T(-1, 2), 0.25, 0.25)", "Float32", (2,), [-0.25, 2.0]),
)  # fmt: skip

ERRORS: tuple[tuple[str, type[Exception]], ...] = (
    ("ops.add(T(1, 2), T(1, 2, 3))", ValueError),
    ("ops.add(T(1), None)", TypeError),
    ("ops.add(T(1), 'a')", TypeError),
    ("ops.div(I(7), 2, rounding_mode='x')", ValueError),
    ("ops.neg(b)", TypeError),
    ("ops.abs(1)", TypeError),
    ("ops.invert(T(1))", TypeError),
    ("ops.clamp(x)", ValueError),
    ("ops.lerp(I(1), I(2), 0.5)", TypeError),
    ("ops.logaddexp(1., T(2))", TypeError),
    ("ops.gcd(T(1), T(2))", TypeError),
    ("ops.deg2rad(I(180))", TypeError),
    ("ops.logit(I(1))", TypeError),
    ("ops.isclose(T(1), I(1))", TypeError),
    ("ops.isclose(T(1), 1.0)", TypeError),
    ("ops.is_nonzero(T(1, 2))", ValueError),
    ("ops.where(True, T(1, 2), I(3, 4))", TypeError),
    ("ops.bitwise_and(T(6), 3)", TypeError),
    ("ops.bitwise_or(T(6), I(3))", TypeError),
    ("ops.eq(T(1), 'a')", TypeError),
    ("ops.arange(0, 5, 0)", ValueError),
    ("ops.arange(5, 0, 1)", ValueError),
    ("ops.arange('a')", TypeError),
    ("ops.range(0, 5)", TypeError),
    ("ops.linspace(T(1, 2), T(2, 3), 3)", ValueError),
    ("ops.linspace(0, 1, 0)", ValueError),
    ("ops.linspace(0, 1, 2.5)", TypeError),
    ("ops.eye(-1)", ValueError),
    ("ops.full(2, 3)", TypeError),
    ("ops.full((-1, ), 3)", ValueError),
    ("ops.full_like(3, 3)", TypeError),
    ("ops.zeros((2.5, ))", TypeError),
    ("ops.zeros_like(T(1), ms.int8)", TypeError),
    ("ops.zeros(-1)", ValueError),
    ("ops.cast([1, 2], ms.float32)", TypeError),
    ("ops.scalar_to_tensor(T(1))", TypeError),
    ("ops.assign(Parameter(T(1, 2), name='a'), T(3))", ValueError),
    ("ops.assign(Parameter(I(1, 2), name='a'), T(3.5, 2.))", TypeError),
    ("ops.assign(Parameter(T(1, 2), name='a'), 3)", ValueError),
    ("ops.assign(3, T(1))", TypeError),
    ("ops.assign_add(Parameter(T(1, 2), name='a'), 1)", ValueError),
    ("ops.assign_add(Parameter(T(1, 2), name='a'), T(3, 2, 1))", ValueError),
    ("ops.relu6(I(1))", TypeError),
    ("ops.celu(x, 0.0)", ValueError),
    ("ops.gelu(x, approximate='x')", ValueError),
    ("ops.gelu(i)", TypeError),
    ("ops.softplus(x, 0, 20)", ValueError),
    ("ops.prelu(T(-1, 2), T(.5, .25))", ValueError),
    ("ops.glu(T(1, 2, 3))", ValueError),
    ("ops.exp('a')", TypeError),
    ("ops.exp(None)", TypeError),
    ("ops.tanh(1.0)", TypeError),
    ("ops.clip_by_norm(T(3, inf), 1.0, 2.0, True)", RuntimeError),
    ("ops.clip_by_global_norm([T(3), T(4)], 0.)", ValueError),
    ("ops.clip_by_global_norm([T(3), T(4)], 1.0, use_norm=T(1))", ValueError),
    ("ops.bias_add(T(1), T(1))", ValueError),
    ("ops.bias_add(Tensor(np.zeros((2, 3), np.float32)), T(1, 2))", ValueError),
    ("ops.bias_add(Tensor(np.zeros((2, 3), np.float32)), I(1, 2, 3))", TypeError),
    ("ops.bias_add(Tensor(np.zeros((2, 3), np.float32)), Tensor([[1., 2, 3]]))", ValueError),
    ("ops.bias_add(Tensor(np.zeros((2, 3), np.float32)), 3)", TypeError),
    ("ops.rrelu(T(-1, 2), 0.5, 0.1)", ValueError),
)  # fmt: skip


@pytest.mark.parametrize("expression, dtype, shape, values", RESULTS, ids=[r[0] for r in RESULTS])
def test_result(expression: str, dtype: str, shape: tuple[int, ...], values: Any) -> None:
    result = eval(expression, NAMES)
    assert type(result) is Tensor
    assert (str(result.dtype), result.shape) == (dtype, shape)
    tolerance = {"Float16": 1e-3, "BFloat16": 8e-3, "Float32": 3e-5, "Float64": 1e-6}.get(dtype, 0)
    np.testing.assert_allclose(np.asarray(result.tolist()), np.asarray(values), rtol=tolerance, atol=tolerance * 3e-3)


@pytest.mark.parametrize("expression, error", ERRORS, ids=[e[0] for e in ERRORS])
def test_error(expression: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        eval(expression, NAMES)


def test_python_results() -> None:
    assert ops.is_tensor(T(1)) is True and ops.is_tensor(1) is False
    assert ops.is_floating_point(T(1)) is True and ops.is_floating_point(I(1)) is False and ops.is_complex(T(1)) is False
    assert ops.is_nonzero(T(1)) is True and ops.is_nonzero(I(0)) is False
    assert ops.stop_gradient(1) == 1
    first, second = ops.stop_gradient((T(1), 2))
    assert first.tolist() == [1.0] and second == 2
    assert ops.dtype(T(1)) is ms.float32


def test_better_than_the_reference() -> None:
    """Where MindSpore's CPU kernels are missing or wrong: NaN is kept, a zero's sign counts, 0 * log(0) is 0, infinities add."""
    assert np.isnan(ops.maximum(T(1, nan), 2).asnumpy()).tolist() == [False, True]
    assert np.isnan(ops.minimum(nan, T(1)).asnumpy()).all() and np.isnan(ops.relu(T(nan)).asnumpy()).all()
    assert np.isnan(ops.clamp(T(nan), -1, 1).asnumpy()).all() and np.isnan(ops.hardtanh(T(nan)).asnumpy()).all()
    assert ops.copysign(T(1, 2), T(-1, -0.0)).tolist() == [-1.0, -2.0]
    assert ops.xlogy(T(0, 0), T(0, 2)).tolist() == [0.0, 0.0] and np.isnan(ops.xlogy(T(0), T(nan)).asnumpy()).all()
    assert ops.logaddexp(T(inf, -inf, inf), T(inf, -inf, 1)).tolist() == [inf, -inf, inf]
    assert ops.add(NAMES["b"], NAMES["c"]).tolist() == [True, True, True, False]
    assert ops.exp(I(0)).dtype is ms.float32 and ops.sigmoid(Tensor([0], ms.int8)).tolist() == [0.5]
    assert ops.exp(Tensor([1.0], ms.bfloat16)).dtype is ms.bfloat16
    np.testing.assert_allclose(ops.round(T(1.256, -2.345), decimals=2).asnumpy(), [1.26, -2.34], rtol=1e-6)
    assert ops.round(I(15, 25, -15), decimals=-1).tolist() == [20, 20, -20]


def test_integer_division_never_traps() -> None:
    least = np.iinfo(np.int32).min
    x, y = Tensor([7, -7, least, least, 0], ms.int32), Tensor([0, 0, -1, 0, 0], ms.int32)
    assert (x // y).tolist() == [0, 0, least, 0, 0]
    assert (x % y).tolist() == [0, 0, 0, 0, 0]
    assert ops.truncate_div(x, y).tolist() == [0, 0, least, 0, 0]
    assert ops.fmod(x, y).tolist() == [0, 0, 0, 0, 0]


def test_integer_division_against_python() -> None:
    values = list(range(-9, 10))
    pairs = [(a, b) for a in values for b in values if b]
    x, y = I(*(a for a, _ in pairs)), I(*(b for _, b in pairs))
    assert (x // y).tolist() == [a // b for a, b in pairs]
    assert (x % y).tolist() == [a % b for a, b in pairs]
    assert ops.truncate_div(x, y).tolist() == [int(a / b) for a, b in pairs]
    assert ops.fmod(x, y).tolist() == [a - int(a / b) * b for a, b in pairs]


@pytest.mark.parametrize("dtype", [ms.float32, ms.float64])
def test_float_division_rounds_the_exact_quotient(dtype: ms.DType) -> None:
    x, y = Tensor([1.0, 1.0, -1.0, 7.5, 6.0, 0.3, 1e5], dtype), Tensor([0.1, 0.2, 0.1, -2.5, 0.1, 0.1, 0.1], dtype)
    exact = [Fraction(a) / Fraction(b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    assert (x // y).tolist() == [math.floor(q) for q in exact]
    assert ops.truncate_div(x, y).tolist() == [math.trunc(q) for q in exact]
    remainder = [float((q - math.floor(q)) * Fraction(b)) for q, b in zip(exact, y.tolist(), strict=True)]
    np.testing.assert_allclose((x % y).asnumpy(), remainder, rtol=1e-6)


def test_float_fill_of_ramp_is_rounded_once() -> None:
    assert ops.arange(0, 1, 0.1).asnumpy().tolist() == (np.arange(10) * 0.1).astype(np.float32).tolist()
    big = ops.arange(2**53, 2**53 + 3)
    assert big.tolist() == [2**53, 2**53 + 1, 2**53 + 2]


def test_where_of_condition_alone() -> None:
    rows, columns = ops.where(Tensor([[1, 0], [0, 2]]))
    assert rows.tolist() == [0, 1] and columns.tolist() == [0, 1]
    with pytest.raises(TypeError):
        ops.where(T(1) > 0, T(1))


def test_identity_is_another_tensor() -> None:
    x = T(1, 2)
    for same in (ops.cast(x, ms.float32), ops.identity(x), ops.deepcopy(x), +x, x.astype(ms.float32), x.copy(), x.data):
        assert same is not x
        same[0] = 9
        assert x.tolist() == [1.0, 2.0] and same.tolist() == [9.0, 2.0]


def test_assign() -> None:
    p = Parameter(T(1, 2), name="p")
    before = p.value()
    assert ops.assign(p, I(3, 4)).tolist() == [3.0, 4.0] and p.tolist() == [3.0, 4.0] and before.tolist() == [1.0, 2.0]
    ops.assign_add(p, T(1, 1))
    ops.assign_sub(p, T(0, 4))
    assert p.tolist() == [4.0, 1.0] and p.dtype is ms.float32
    with pytest.raises(TypeError, match="does not fit a variable of Int64"):
        ops.assign(Parameter(I(1), name="q"), T(1))
    with pytest.raises(ValueError, match=r"must have the shape of variable, \(2,\), but has \(1,\)"):
        ops.assign(p, T(1))


def test_clipping_of_several() -> None:
    first, second = ops.clip_by_norm([T(3), T(4)], 1.0)
    np.testing.assert_allclose([first.item(), second.item()], [0.6, 0.8], rtol=1e-5)
    first, second = ops.clip_by_global_norm((T(3), Tensor([4.0], ms.float16)), 1.0)
    assert second.dtype is ms.float16
    np.testing.assert_allclose([first.item(), second.item()], [0.6, 0.8], rtol=1e-3)
    check_gradients(lambda x, y: ops.clip_by_global_norm([x, y], 1.0), np.array([3.0, 1.0]), np.array([-4.0]))
    check_gradients(lambda x: ops.clip_by_norm(x, 1.0, 3.0), np.array([3.0, 1.0, 0.5]))


def test_rrelu_draws_from_its_interval() -> None:
    y = ops.rrelu(Tensor(-np.ones(1000, np.float32)), 0.25, 0.75).asnumpy()
    assert -0.75 <= y.min() < -0.7 and -0.3 < y.max() <= -0.25


ACTIVATIONS = (
    "celu", "elu", "fast_gelu", "gelu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid",
    "mish", "relu", "relu6", "selu", "silu", "softplus", "softshrink", "softsign", "tanhshrink",
)  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradient_of_activations(name: str) -> None:
    check_gradients(getattr(ops, name), np.array([-4.2, -2.3, -0.7, -0.2, 0.3, 0.8, 2.4, 5.1, 7.3]))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradient_of_activations_is_finite_far_out(name: str) -> None:
    x = Tensor([-1000.0, -60.0, -1.0, 0.0, 1.0, 60.0, 1000.0], ms.float32)
    tape = Tape()
    tape.watch(x)
    with recording(tape):
        y = getattr(ops, name)(x)
    (gradient,) = tape.gradients([y], [ops.ones_like(y)], [x])
    assert np.isfinite(y.asnumpy()).all() and gradient is not None and np.isfinite(gradient.asnumpy()).all()


# gradients at points where the function has a corner or a tie, as MindSpore has them
CORNERS = (
    (lambda x, y: ops.maximum(x, y), [T(1, 2, 3), T(1, 3, 2)], [[0.5, 0.0, 1.0], [0.5, 1.0, 0.0]]),
    (lambda x, y: ops.minimum(x, y), [T(1, 2, 3), T(1, 3, 2)], [[0.5, 1.0, 0.0], [0.5, 0.0, 1.0]]),
    (ops.abs, [T(0, 1, -1)], [[0.0, 1.0, -1.0]]),
    (ops.sign, [T(0, 1, -1)], [[0.0, 0.0, 0.0]]),
    (ops.relu, [T(0, 1, -1)], [[0.0, 1.0, 0.0]]),
    (ops.relu6, [T(0, 6, -1, 3)], [[0.0, 1.0, 0.0, 1.0]]),
    (lambda x: ops.clamp(x, 0.0, 1.0), [T(-1, 0, 0.5, 1, 2)], [[0.0, 1.0, 1.0, 1.0, 0.0]]),
    (lambda x, lo, hi: ops.clamp(x, lo, hi), [T(-1, 0, 2), T(0, 0, 0), T(1, 1, 1)], [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]),
    (ops.hardsigmoid, [T(-3, 0, 3)], [[0.0, 1 / 6, 0.0]]),
    (ops.elu, [T(-1, 0, 1)], [[0.36787945, 1.0, 1.0]]),
    (ops.selu, [T(0)], [[1.7580993]]),
    (ops.hardshrink, [T(-1, 0, 1)], [[1.0, 0.0, 1.0]]),
    (ops.softshrink, [T(-1, 0, 1)], [[1.0, 0.0, 1.0]]),
    (lambda x: x**2, [T(0, -2, 3)], [[0.0, -4.0, 6.0]]),
    (lambda x: x**0.5, [T(0, 4)], [[inf, 0.25]]),
    (lambda x: x**0, [T(0, 4)], [[0.0, 0.0]]),
    (lambda x: 2**x, [T(0, 4)], [[0.6931472, 11.090355]]),
    (lambda x, y: x % y, [T(7, 5), T(2, 3)], [[1.0, 1.0], [-3.0, -1.0]]),
    (lambda x, y: x // y, [T(7, 5), T(2, 3)], [[0.0, 0.0], [0.0, 0.0]]),
    (ops.sqrt, [T(0, 4)], [[inf, 0.25]]),
    (ops.rsqrt, [T(0, 4)], [[-inf, -0.0625]]),
    (ops.log, [T(0, 4)], [[inf, 0.25]]),
    (ops.round, [T(1.5)], [[0.0]]),
    (ops.hypot, [T(3, 0), T(4, 0)], [[0.6, 0.0], [0.8, 0.0]]),
    (ops.pow, [T(0, 0, 2), T(0, 2, 3)], [[0.0, 0.0, 12.0], [0.0, 0.0, 5.545177]]),
    (ops.logaddexp, [T(1, 1000), T(1, 999)], [[0.5, 0.7310586], [0.5, 0.2689414]]),
    (ops.xlogy, [T(0, 2), T(0, 2)], [[0.0, 0.6931472], [0.0, 1.0]]),
    (ops.xlogy, [T(0, 2), T(3, 2)], [[1.0986123, 0.6931472], [0.0, 1.0]]),
    (lambda x: ops.where(x > 0, x, x * 2), [T(-1, 0, 1)], [[2.0, 2.0, 1.0]]),
)  # fmt: skip


@pytest.mark.parametrize("k", range(len(CORNERS)))
def test_gradient_at_corners(k: int) -> None:
    function, operands, want = CORNERS[k]
    tape = Tape()
    for x in operands:
        tape.watch(x)
    with recording(tape):
        y = function(*operands)
    found = tape.gradients([y], [ops.ones_like(y)], operands)
    got = [np.zeros(x.shape) if g is None else g.asnumpy() for x, g in zip(operands, found, strict=True)]
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5)
