"""Attaches operators and methods to `Tensor`.

tensor.py stands below the ops, so Tensor gets what is computed by ops here, from tables of name and function. A public function whose
first argument is the Tensor serves as the method; where MindSpore's method takes other arguments, a small function below adapts it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphcell.ops.functional import arithmetic, comparison
from graphcell.ops.functional.common import NUMBER_TYPES, cast
from graphcell.tensor import Tensor

Function = Callable[..., Any]
OPERANDS = (Tensor, *NUMBER_TYPES, list, tuple, np.ndarray)


def reflected(function: Function) -> Function:
    """The operator of a right operand: `__rsub__` from `sub`."""

    def operator(self: Tensor, other: Any) -> Any:
        return function(other, self)

    return operator


def _equal(self: Tensor, other: Any) -> Any:
    return comparison.equal(self, other) if isinstance(other, OPERANDS) else False


def _not_equal(self: Tensor, other: Any) -> Any:
    return comparison.not_equal(self, other) if isinstance(other, OPERANDS) else True


def _matmul(self: Tensor, other: Any) -> Any:
    from graphcell.ops import matmul

    return matmul(self, other)


def _rmatmul(self: Tensor, other: Any) -> Any:
    from graphcell.ops import matmul

    return matmul(other, self)


def _round(self: Tensor) -> Any:
    from graphcell.ops import round

    return round(self)


OPERATORS: tuple[tuple[str, Function], ...] = (
    ("__add__", arithmetic.add), ("__radd__", reflected(arithmetic.add)),
    ("__sub__", arithmetic.sub), ("__rsub__", reflected(arithmetic.sub)),
    ("__mul__", arithmetic.mul), ("__rmul__", reflected(arithmetic.mul)),
    ("__truediv__", arithmetic.div), ("__rtruediv__", reflected(arithmetic.div)),
    ("__floordiv__", arithmetic.floor_div), ("__rfloordiv__", reflected(arithmetic.floor_div)),
    ("__mod__", arithmetic.floor_mod), ("__rmod__", reflected(arithmetic.floor_mod)),
    ("__pow__", arithmetic.pow), ("__rpow__", reflected(arithmetic.pow)),
    ("__matmul__", _matmul), ("__rmatmul__", _rmatmul),
    ("__and__", comparison.bitwise_and), ("__rand__", reflected(comparison.bitwise_and)),
    ("__or__", comparison.bitwise_or), ("__ror__", reflected(comparison.bitwise_or)),
    ("__xor__", comparison.bitwise_xor), ("__rxor__", reflected(comparison.bitwise_xor)),
    ("__lshift__", comparison.bitwise_left_shift), ("__rlshift__", reflected(comparison.bitwise_left_shift)),
    ("__rshift__", comparison.bitwise_right_shift), ("__rrshift__", reflected(comparison.bitwise_right_shift)),
    ("__neg__", arithmetic.neg), ("__pos__", arithmetic.positive), ("__abs__", arithmetic.abs), ("__invert__", comparison.logical_not),
    ("__round__", _round), ("__eq__", _equal), ("__ne__", _not_equal), ("__lt__", comparison.less), ("__le__", comparison.less_equal),
    ("__gt__", comparison.greater), ("__ge__", comparison.greater_equal),
)  # fmt: skip

METHODS: tuple[tuple[str, Function], ...] = ()


def astype(self: Tensor, dtype: Any, copy: bool = True) -> Tensor:
    """The values converted to `dtype`."""
    return cast(self, dtype)


METHODS = (
    ("astype", astype), ("abs", arithmetic.abs), ("add", arithmetic.add), ("sub", arithmetic.sub), ("mul", arithmetic.mul),
    ("div", arithmetic.div), ("pow", arithmetic.pow), ("neg", arithmetic.neg), ("square", arithmetic.square),
)  # fmt: skip


def attach(table: tuple[tuple[str, Function], ...]) -> None:
    """Makes each function of `table` an attribute of Tensor."""
    for name, function in table:
        setattr(Tensor, name, function)


attach(OPERATORS)
attach(METHODS)
