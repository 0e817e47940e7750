"""Elementwise primitives that run through `eval` in compiled code too: long series and loops whose use is rare.

Derivatives of digamma, greatest common divisor, neighbouring floats.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from graphcell import dtype as dt
from graphcell.dtype import DType
from graphcell.errors import DTypeError, ShapeError
from graphcell.ir.op import Array, frozen
from graphcell.ir.types import TensorType
from graphcell.ops import special
from graphcell.ops.base import Fallback
from graphcell.ops.dispatch import apply1
from graphcell.ops.special import widened

Grads = tuple[Any, ...]


class ElementwiseFallback(Fallback):
    """Operands of one shape and one of the dtypes that are taken; the result is alike."""

    takes: ClassVar[tuple[DType, ...]] = dt.FLOATS

    def infer(self, *operands: TensorType) -> TensorType:
        first = operands[0]
        if any(t != first for t in operands):
            raise ShapeError(f"{self.name}: operands differ, {' and '.join(map(str, operands))}")
        if first.dtype not in self.takes:
            raise DTypeError(f"{self.name}: {first.dtype} is not supported; it takes {', '.join(map(str, self.takes))}")
        return first


@frozen
class Polygamma(ElementwiseFallback):
    """The derivative of digamma of the given order, 1 or more."""

    order: int
    name = "polygamma"

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return widened(lambda wide: special.polygamma(self.order, wide), x)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return (cotangents[0] * apply1(Polygamma(self.order + 1), inputs[0]),)


@frozen
class Gcd(ElementwiseFallback):
    """The greatest common divisor, never negative."""

    takes = dt.INTEGERS
    name = "gcd"

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        return np.gcd(x, y)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return None, None


@frozen
class NextAfter(ElementwiseFallback):
    """The float next to x on the way to y."""

    name = "nextafter"

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        return np.nextafter(x, y)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return cotangents[0], None
