"""Mathematical functions as Cells."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell import ops
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError
from graphcell.nn.cell import Cell
from graphcell.tensor import Tensor


class ReduceLogSumExp(Cell):
    """log(sum(exp(x))) along `axis`, an int or several."""

    def __init__(self, axis: Any, keep_dims: bool = False):
        super().__init__()
        self.axis, self.keep_dims = axis, keep_dims

    def construct(self, x: Any) -> Any:
        return ops.logsumexp(x, self.axis, self.keep_dims)


class LGamma(Cell):
    """The logarithm of |gamma(x)|."""

    def construct(self, x: Any) -> Any:
        return ops.lgamma(x)


class DiGamma(Cell):
    """The derivative of the logarithm of gamma(x)."""

    def construct(self, x: Any) -> Any:
        return ops.digamma(x)


class LBeta(Cell):
    """The logarithm of gamma(x) gamma(y) / gamma(x + y)."""

    def __init__(self) -> None:
        super().__init__()
        self.lgamma = LGamma()

    def construct(self, x: Any, y: Any) -> Any:
        return self.lgamma(x) + self.lgamma(y) - self.lgamma(x + y)


class MatMul(Cell):
    """The matrix product as numpy has it, either factor transposed first in its last two dimensions.

    Raises:
        TypeError: a flag is no bool.
    """

    def __init__(self, transpose_x1: bool = False, transpose_x2: bool = False):
        super().__init__()
        for name, value in (("transpose_x1", transpose_x1), ("transpose_x2", transpose_x2)):
            if not isinstance(value, bool):
                raise ArgumentTypeError(f"For 'MatMul', the type of '{name}' should be 'bool', but got type '{type(value).__name__}'.")
        self.transpose_x1, self.transpose_x2 = transpose_x1, transpose_x2

    def construct(self, x1: Any, x2: Any) -> Any:
        x1 = x1.swapaxes(-1, -2) if self.transpose_x1 and x1.ndim > 1 else x1
        x2 = x2.swapaxes(-1, -2) if self.transpose_x2 and x2.ndim > 1 else x2
        return ops.matmul(x1, x2)


class MatDet(Cell):
    """The determinants of square matrices (*, n, n)."""

    def construct(self, a: Any) -> Any:
        return ops.det(a)


class MatInverse(Cell):
    """The inverses of square matrices (*, n, n)."""

    def __init__(self) -> None:
        super().__init__()
        self.matmul = MatMul()  # only printed, as in MindSpore

    def construct(self, a: Any) -> Any:
        return ops.inverse(a)


class Range(Cell):
    """Numbers from start (by default 0) below limit, in steps of delta: Int32, or Float32 if any of the three is a float.

    Raises:
        TypeError: no numbers. ValueError: delta is 0.
    """

    def __init__(self, start: Any, limit: Any = None, delta: Any = 1):
        super().__init__()
        given = [x.item() if isinstance(x, Tensor) else x for x in (start, limit, delta) if x is not None]
        if any(isinstance(x, bool) or not isinstance(x, (int, float)) for x in given):
            raise ArgumentTypeError(f"For 'Range', start, limit and delta must be numbers, but are {start!r}, {limit!r} and {delta!r}.")
        if given[-1] == 0:
            raise ArgumentValueError("For 'Range', the 'delta' can not be zero.")
        start, limit, delta = given if len(given) == 3 else (0, *given)
        is_float = any(isinstance(x, float) for x in given)
        self.result_tensor = Tensor(np.arange(start, limit, delta).astype(np.float32 if is_float else np.int32))

    def construct(self) -> Any:
        return self.result_tensor


class Moments(Cell):
    """(mean, variance) of floats along `axis`: None for all, an int, or several.

    Raises:
        TypeError: axis is no int or tuple, keep_dims no bool; the input is no Tensor of Float16 or Float32.
    """

    def __init__(self, axis: Any = None, keep_dims: bool | None = None):
        super().__init__()
        for name, value, kinds in (("axis", axis, (int, tuple)), ("keep_dims", keep_dims, (bool,))):
            if value is not None and (not isinstance(value, kinds) or (kinds != (bool,) and isinstance(value, bool))):
                wanted = "one of '['int', 'tuple']'" if name == "axis" else "'bool'"
                raise ArgumentTypeError(f"For 'Moments', the type of '{name}' should be {wanted}, but got type '{type(value).__name__}'.")
        self.axis, self.keep_dims = axis, bool(keep_dims)

    def construct(self, x: Any) -> Any:
        if x.dtype not in (dt.float16, dt.float32):
            raise DTypeError(f"For 'Moments', the 'input x' must be Float16 or Float32, but is {x.dtype}.")
        variance, mean = ops.var_mean(ops.cast(x, dt.float32), None if self.axis == () else self.axis, 0, self.keep_dims)
        return ops.cast(mean, x.dtype), ops.cast(variance, x.dtype)
