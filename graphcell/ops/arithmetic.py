"""Elementwise primitives: arithmetic, extrema, selection, casts. Operands have one shape and (but for select and cast) one dtype.

Integer arithmetic is modulo 2**bits; a quotient or remainder by an integer zero is 0, never a trap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.dtype import DType
from graphcell.errors import DTypeError
from graphcell.ir.op import Array, frozen
from graphcell.ops.base import Elementwise, Emitter, Val
from graphcell.ops.dispatch import apply1

T = Any  # Tensor: this file stands below the operators that gradient rules use
Grads = tuple[Any, ...]


@frozen
class Add(Elementwise):
    """x + y; on Bool: logical or."""

    name = "add"

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        with np.errstate(over="ignore", invalid="ignore"):
            return x + y

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return cotangents[0], cotangents[0]

    def emit(self, b: Emitter, x: Val, y: Val) -> Val:
        return b.or_(x, y) if b.dtypes[0].is_bool else b.add(x, y)


@frozen
class Sub(Elementwise):
    """x - y."""

    takes = dt.NUMBERS
    name = "sub"

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        with np.errstate(over="ignore", invalid="ignore"):
            return x - y

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return cotangents[0], -cotangents[0]

    def emit(self, b: Emitter, x: Val, y: Val) -> Val:
        return b.sub(x, y)


@frozen
class Mul(Elementwise):
    """x * y; on Bool: logical and."""

    name = "mul"

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            return x * y

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        x, y = inputs
        g = cotangents[0]
        return g * y, g * x

    def emit(self, b: Emitter, x: Val, y: Val) -> Val:
        return b.and_(x, y) if b.dtypes[0].is_bool else b.mul(x, y)


@frozen
class Div(Elementwise):
    """x / y of floats; by IEEE rules at zero."""

    takes = dt.FLOATS
    name = "div"

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        with np.errstate(all="ignore"):
            return x / y

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        y, g = inputs[1], cotangents[0]
        gx = g / y
        return gx, -gx * outputs[0]

    def emit(self, b: Emitter, x: Val, y: Val) -> Val:
        return b.div(x, y)


@frozen
class Neg(Elementwise):
    """-x; of unsigned integers modulo 2**bits."""

    takes = dt.NUMBERS
    name = "neg"
    keeps_digits = True

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return np.negative(x)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return (-cotangents[0],)

    def emit(self, b: Emitter, x: Val) -> Val:
        return b.neg(x)


@frozen
class Abs(Elementwise):
    """|x|; the gradient at 0 is 0."""

    takes = dt.NUMBERS
    name = "abs"
    keeps_digits = True

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return np.abs(x)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return (cotangents[0] * apply1(Sign(), inputs[0]),)

    def emit(self, b: Emitter, x: Val) -> Val:
        if b.dtypes[0].is_float:
            return b.unary("fabs", x)
        if not b.dtypes[0].signed:
            return x
        return b.select(b.icmp("slt", x, b.const(0, x)), b.neg(x), x)


@frozen
class Sign(Elementwise):
    """-1, 0 or 1 by the sign of x; 0 for NaN."""

    takes = dt.NUMBERS
    name = "sign"

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        one = x.dtype.type(1)
        positive = np.where(x > 0, one, x.dtype.type(0))
        return np.where(x < 0, -one, positive) if x.dtype.kind != "u" else np.asarray(positive)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return (None,)

    def emit(self, b: Emitter, x: Val) -> Val:
        zero, one = b.const(0, x), b.const(1, x)
        dtype = b.dtypes[0]
        positive = b.select(_compare(b, "gt", x, zero), one, zero)
        return b.select(_compare(b, "lt", x, zero), b.const(-1, x), positive) if dtype.signed else positive


@frozen
class Relu(Elementwise):
    """max(x, 0); NaN stays NaN; the gradient at 0 is 0."""

    takes = dt.NUMBERS
    name = "relu"
    keeps_digits = True

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return np.where(x < 0, np.zeros((), x.dtype), x)  # keeps NaN and -0.0

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        from graphcell.ops.functional.common import select, zeros_like

        y, g = outputs[0], cotangents[0]
        return (select(y > zeros_like(y), g, zeros_like(g)),)

    def emit(self, b: Emitter, x: Val) -> Val:
        zero = b.const(0, x)
        return b.select(_compare(b, "gt", zero, x), zero, x) if b.dtypes[0].signed else x


@frozen
class Maximum(Elementwise):
    """The larger of x and y, NaN if either is; on Bool: logical or. Equal operands share the gradient."""

    name = "maximum"
    keeps_digits = True

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        return np.maximum(x, y)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        x, y = inputs
        return _share(x == y, x < y, x > y, cotangents[0])

    def emit(self, b: Emitter, x: Val, y: Val) -> Val:
        dtype = b.dtypes[0]
        return b.or_(x, y) if dtype.is_bool else b.maximum(x, y, dtype.signed)


@frozen
class Minimum(Elementwise):
    """The smaller of x and y, NaN if either is; on Bool: logical and. Equal operands share the gradient."""

    name = "minimum"
    keeps_digits = True

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        return np.minimum(x, y)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        x, y = inputs
        return _share(x == y, x > y, x < y, cotangents[0])

    def emit(self, b: Emitter, x: Val, y: Val) -> Val:
        dtype = b.dtypes[0]
        return b.and_(x, y) if dtype.is_bool else b.minimum(x, y, dtype.signed)


def _share(equal: T, not_x: T, not_y: T, g: T) -> Grads:
    from graphcell.ops.functional.common import select, zeros_like

    zero = zeros_like(g)
    if not g.dtype.is_float:  # which cannot be halved: x takes it
        return select(not_x, zero, g), select(not_y, zero, select(equal, zero, g))
    half = g * 0.5
    return select(equal, half, select(not_x, zero, g)), select(equal, half, select(not_y, zero, g))


def _compare(b: Emitter, relation: str, x: Val, y: Val) -> Val:
    """x `relation` y for relation lt or gt, by the operands' dtype; False where one is NaN."""
    if b.dtypes[0].is_float:
        return b.fcmp(f"o{relation}", x, y)
    return b.icmp(f"{'s' if b.dtypes[0].signed else 'u'}{relation}", x, y)


@frozen
class FloorDiv(Elementwise):
    """floor(x / y)."""

    takes = dt.NUMBERS
    fast = False
    name = "floor_div"
    eval_element_nanoseconds = 10.0

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        with np.errstate(all="ignore"):
            return np.floor_divide(x, y) if x.dtype.kind in "iu" else _rounded_quotient(np.floor, x, y)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return None, None

    def emit(self, b: Emitter, x: Val, y: Val) -> Val:
        dtype = b.dtypes[0]
        return _exact_quotient(b, "floor", x, y) if dtype.is_float else b.floor_div(x, y, dtype.signed)


@frozen
class FloorMod(Elementwise):
    """x - floor(x / y) * y: the remainder with the sign of y, as Python's %."""

    takes = dt.NUMBERS
    fast = False
    name = "floor_mod"
    eval_element_nanoseconds = 10.0

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        with np.errstate(all="ignore"):
            return np.remainder(x, y)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        x, y = inputs
        g = cotangents[0]
        return g, -g * apply1(FloorDiv(), x, y)

    def emit(self, b: Emitter, x: Val, y: Val) -> Val:
        return b.floor_mod(x, y, b.dtypes[0].signed)


@frozen
class TruncDiv(Elementwise):
    """x / y rounded toward zero."""

    takes = dt.NUMBERS
    fast = False
    name = "trunc_div"
    eval_element_nanoseconds = 10.0

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        with np.errstate(all="ignore"):
            if x.dtype.kind not in "iu":
                return _rounded_quotient(np.trunc, x, y)
            quotient = np.floor_divide(x, y)
            inexact = (np.remainder(x, y) != 0) & ((x < 0) != (y < 0))
            return np.asarray(quotient + inexact).astype(x.dtype)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return None, None

    def emit(self, b: Emitter, x: Val, y: Val) -> Val:
        dtype = b.dtypes[0]
        return _exact_quotient(b, "trunc", x, y) if dtype.is_float else b.trunc_div(x, y, dtype.signed)


@frozen
class TruncMod(Elementwise):
    """x - trunc(x / y) * y: the remainder with the sign of x, as C's fmod."""

    takes = dt.NUMBERS
    fast = False
    name = "trunc_mod"
    eval_element_nanoseconds = 15.0

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        with np.errstate(all="ignore"):
            return np.fmod(x, y)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        x, y = inputs
        g = cotangents[0]
        return g, -g * apply1(TruncDiv(), x, y)

    def emit(self, b: Emitter, x: Val, y: Val) -> Val:
        return b.fmod(x, y, b.dtypes[0].signed)


def _rounded_quotient(rounding: Callable[[Array], Array], x: Array, y: Array) -> Array:
    """`rounding` (floor or trunc) of the exact quotient x / y of floats: x / y rounded first may have reached the next integer."""
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    quotient = rounding(wide_x / wide_y)
    if x.dtype != np.float64:
        return quotient.astype(x.dtype)
    remainder = (np.remainder if rounding is np.floor else np.fmod)(x, y)
    whole = np.round((x - remainder) / y)
    return np.where(np.isfinite(whole) & np.isfinite(y), whole, quotient)


def _exact_quotient(b: Emitter, rounding: str, x: Val, y: Val) -> Val:
    """The same: a remainder, formed exactly, of the wrong sign shows that the quotient was rounded to the next integer."""
    quotient = b.unary(rounding, b.div(x, y))
    remainder = b.fma(b.neg(quotient), y, x)
    if rounding == "floor":
        return b.select(_signs_differ(b, remainder, y), b.sub(quotient, b.const(1, x)), quotient)
    toward_zero = b.sub(quotient, b.binary("copysign", b.const(1, x), quotient))
    return b.select(_signs_differ(b, remainder, x), toward_zero, quotient)


def _signs_differ(b: Emitter, remainder: Val, other: Val) -> Val:
    """True where a float remainder is not 0 and has the other sign than `other`; False for NaN."""
    zero = b.const(0.0, remainder)
    differ = b.xor(_compare(b, "lt", remainder, zero), _compare(b, "lt", other, zero))
    return b.and_(differ, b.fcmp("one", remainder, zero))


@frozen
class Select(Elementwise):
    """x where `condition` (Bool), else y."""

    name = "select"
    keeps_digits = True
    eval_element_nanoseconds = 4.0

    def result_dtype(self, *dtypes: DType) -> DType:
        condition, x, y = dtypes
        if not condition.is_bool:
            raise DTypeError(f"select: the condition must be Bool, but is {condition}")
        if x is not y:
            raise DTypeError(f"select: dtypes differ, {x} and {y}")
        return x

    def eval(self, condition: Array, x: Array, y: Array) -> Array:  # type: ignore[override]
        return np.where(condition, x, y)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        from graphcell.ops.functional.common import select, zeros_like

        condition, g = inputs[0], cotangents[0]
        zero = zeros_like(g)
        return None, select(condition, g, zero), select(condition, zero, g)

    def emit(self, b: Emitter, condition: Val, x: Val, y: Val) -> Val:
        return b.select(condition, x, y)


@frozen
class Cast(Elementwise):
    """x as `dtype`. Float to integer truncates and saturates (NaN gives 0); anything to Bool is `x != 0`."""

    dtype: DType
    name = "cast"
    rounds = True

    def result_dtype(self, *dtypes: DType) -> DType:
        return self.dtype

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        source, target = dt.from_numpy(x.dtype), self.dtype
        if target.is_integer and source.is_float:
            return _saturate(x, target)
        with np.errstate(over="ignore", invalid="ignore"):
            return x != 0 if target.is_bool else x.astype(target.np_type)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        from graphcell.ops.functional.common import cast

        source = inputs[0].dtype
        # integers have gradients only where the user differentiates with respect to an integer
        flows = self.dtype.is_float if source.is_float else source.is_integer and not self.dtype.is_bool
        return (cast(cotangents[0], source) if flows else None,)

    def emit(self, b: Emitter, x: Val) -> Val:
        return b.convert(x, b.dtypes[0], self.dtype)


def _saturate(x: Array, target: DType) -> Array:
    limits = np.iinfo(target.np_type)
    with np.errstate(invalid="ignore"):
        wide = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0.0, posinf=np.inf, neginf=-np.inf)
        inside = np.clip(wide, float(limits.min), float(limits.max))
        result = np.where(inside >= float(limits.max), 0, inside).astype(target.np_type)
    result = np.where(wide >= float(limits.max), limits.max, result)
    return np.where(wide <= float(limits.min), limits.min, result).astype(target.np_type)


@frozen
class StopGradient(Elementwise):
    """x, through which no gradient flows."""

    name = "stop_gradient"
    keeps_digits = True

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return x

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return (None,)

    def emit(self, b: Emitter, x: Val) -> Val:
        return x


@frozen
class Overwrite(Elementwise):
    """`new`, written into a Parameter whose value was `old`. A Parameter stays one variable, whatever is written into it: what reads it
    afterwards gives its gradient to the Parameter, none to what was written.
    """

    name = "overwrite"
    keeps_digits = True

    def eval(self, old: Array, new: Array) -> Array:  # type: ignore[override]
        return new

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return (cotangents[0], None)

    def emit(self, b: Emitter, old: Val, new: Val) -> Val:
        return new
