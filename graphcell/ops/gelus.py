"""GELU and its slope, by erf and by a tanh: primitives like those of mathematics. Each begins as its slope does: kernels with both compute that once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphcell.ir.op import Array, frozen
from graphcell.ops import special
from graphcell.ops.dispatch import apply1
from graphcell.ops.mathematics import Exp, Real, Sigmoid

T = Any  # Tensor: this file stands below the operators that gradient rules use

TANH_SLOPE = math.sqrt(2.0 / math.pi)
TANH_CUBE = 0.044715 * TANH_SLOPE
"""Of x and x**3 in the argument of the tanh in gelu_tanh."""


@frozen
class Gelu(Real):
    """x times the standard normal distribution function."""

    name = "gelu"
    eval_element_nanoseconds = 120.0
    at_least = np.float64

    @staticmethod
    def function(x: Array) -> Array:
        return np.asarray(x * 0.5 * special.erfc(x * -math.sqrt(0.5)))

    def slope(self, x: T, y: T) -> T:
        return apply1(GeluSlope(), x)


@frozen
class GeluSlope(Real):
    """The derivative of gelu: distribution function plus x times density; 0 at -inf and 1 at inf. Its error is absolute, not relative."""

    name = "gelu_slope"
    eval_element_nanoseconds = 120.0
    at_least = np.float64

    @staticmethod
    def function(x: Array) -> Array:
        x = np.clip(x, -40, 40)
        return np.asarray(0.5 * special.erfc(x * -math.sqrt(0.5)) + x * np.exp(x * x * -0.5) / math.sqrt(2 * math.pi))

    def slope(self, x: T, y: T) -> T:
        return apply1(Exp(), x * x * -0.5) * (x * x * -1.0 + 2.0) * (1.0 / math.sqrt(2 * math.pi))


def _gate_of_gelu(x: Array) -> tuple[Array, Array]:
    """(1 + tanh(u)) / 2 and its derivative by u, where u is that argument, without cancellation."""
    z = np.exp(np.abs(x) * (x * x * TANH_CUBE + TANH_SLOPE) * -2.0)
    rest = z / (1.0 + z)
    return np.where(x < 0, rest, 1.0 - rest), 2.0 * rest * (1.0 - rest)


@frozen
class GeluTanh(Real):
    """Gelu by a tanh: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x**3))). Its error is absolute, not relative."""

    name = "gelu_tanh"
    eval_element_nanoseconds = 40.0
    at_least = np.float64

    @staticmethod
    def function(x: Array) -> Array:
        return np.asarray(x * _gate_of_gelu(x)[0])

    def slope(self, x: T, y: T) -> T:
        return apply1(GeluTanhSlope(), x)


@frozen
class GeluTanhSlope(Real):
    """The derivative of gelu_tanh; 0 at -inf and 1 at inf. Its error is absolute, not relative."""

    name = "gelu_tanh_slope"
    eval_element_nanoseconds = 50.0
    at_least = np.float64

    @staticmethod
    def function(x: Array) -> Array:
        x = np.clip(x, -40, 40)
        gate, slope = _gate_of_gelu(x)
        return np.asarray(gate + x * (x * x * (3 * TANH_CUBE) + TANH_SLOPE) * slope)

    def slope(self, x: T, y: T) -> T:
        from graphcell.ops.functional.common import cast
        from graphcell.ops.functional.reductions import wide

        w = wide(x)
        square = w * w
        twice, inner = w * (square * TANH_CUBE + TANH_SLOPE) * 2.0, square * (3 * TANH_CUBE) + TANH_SLOPE
        p, q = apply1(Sigmoid(), twice), apply1(Sigmoid(), -twice)  # of the tanh t: p - q is t, and 4 p q is 1 - t**2
        return cast(p * q * 4.0 * (inner + w * (w * (3 * TANH_CUBE) - (p - q) * inner * inner)), x.dtype)
