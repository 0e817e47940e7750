"""Primitives of Bessel functions, incomplete gamma and beta functions and zeta, which run through `eval` in compiled code too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphcell.ir.op import Array, frozen
from graphcell.ops import bessel, incomplete
from graphcell.ops.dispatch import apply1
from graphcell.ops.fallback import ElementwiseFallback
from graphcell.ops.mathematics import Exp, Lgamma, Log, Log1p
from graphcell.ops.special import widened

Grads = tuple[Any, ...]


def _widened(function: Callable[..., Array], *arrays: Array) -> Array:
    """As `widened`, of several arrays of one dtype."""
    wide = np.float64
    with np.errstate(all="ignore"):
        return np.asarray(function(*(x.astype(wide, copy=False) for x in arrays))).astype(arrays[0].dtype, copy=False)


@frozen
class Bessel(ElementwiseFallback):
    """The Bessel function of a kind ('i', 'j', 'k', 'y') and order (0 or 1); `scaled`: i times exp(-|x|), k times exp(x)."""

    kind: str
    order: int
    scaled: bool = False
    name = "bessel"

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return widened(getattr(bessel, f"{self.kind}{self.order}{'e' * self.scaled}"), x)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return (cotangents[0] * self._slope(inputs[0], outputs[0]),)

    def _slope(self, x: Any, y: Any) -> Any:
        other = apply1(Bessel(self.kind, 1 - self.order, self.scaled), x)
        rising = self.kind == "i"
        if self.order == 0:
            slope: Any = other if rising else -other
        else:
            zero = x == 0.0
            safe = x + zero.astype(x.dtype)  # at 0, i and j of order 1 have the slope 1 / 2
            slope = (-other if self.kind == "k" else other) - (y / safe if self.kind in "ky" else y / safe + 0.5 * zero.astype(x.dtype))
        if not self.scaled:
            return slope
        return slope + y if self.kind == "k" else slope - x.sign() * y


@frozen
class Igamma(ElementwiseFallback):
    """The lower incomplete gamma function of (a, x), divided by gamma(a); `upper`: 1 minus that."""

    upper: bool = False
    name = "igamma"

    def eval(self, a: Array, x: Array) -> Array:  # type: ignore[override]
        return _widened(incomplete.igammac if self.upper else incomplete.igamma, a, x)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        a, x = inputs
        by_x = apply1(Exp(), (a - 1.0) * apply1(Log(), x) - x - apply1(Lgamma(), a))
        by_a = apply1(IgammaByA(), a, x)
        cotangent: Any = -cotangents[0] if self.upper else cotangents[0]
        return cotangent * by_a, cotangent * by_x


@frozen
class IgammaByA(ElementwiseFallback):
    """The derivative of igamma with respect to a; it has no gradient itself."""

    name = "igamma_by_a"

    def eval(self, a: Array, x: Array) -> Array:  # type: ignore[override]
        return _widened(incomplete.igamma_by_a, a, x)


@frozen
class Betainc(ElementwiseFallback):
    """The incomplete beta function of (a, b, x), divided by beta(a, b). Gradients flow to x alone."""

    name = "betainc"

    def eval(self, a: Array, b: Array, x: Array) -> Array:  # type: ignore[override]
        return _widened(incomplete.betainc, a, b, x)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        a, b, x = inputs
        scale = apply1(Lgamma(), a + b) - apply1(Lgamma(), a) - apply1(Lgamma(), b)
        density = apply1(Exp(), (a - 1.0) * apply1(Log(), x) + (b - 1.0) * apply1(Log1p(), -x) + scale)
        return None, None, cotangents[0] * density


@frozen
class Zeta(ElementwiseFallback):
    """Hurwitz's zeta function of (x, q). Gradients flow to q alone."""

    name = "zeta"

    def eval(self, x: Array, q: Array) -> Array:  # type: ignore[override]
        return _widened(incomplete.zeta, x, q)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        x, q = inputs
        return None, -cotangents[0] * x * apply1(Zeta(), x + 1.0, q)
