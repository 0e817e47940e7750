"""What the tests of vector mathematics measure with: distances in units of the last place, against mpmath."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp  # type: ignore[import-untyped]
import numpy as np

from graphcell.codegen.llvm import math
from tests.codegen.harness import build

Array = np.ndarray[Any, Any]
PRECISION = 140  # bits of the reference
ULPS = 2.0
INF, NAN = float("inf"), float("nan")
LANES = (0, 4, 8, 16)


def gate_of_gelu(x: Any) -> Any:
    """What a GELU by tanh multiplies x with."""
    return (1 + mp.tanh(mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3))) / 2


def ulps(got: Array, want: list[Any]) -> Array:
    """The distance of each result from the exact value, in units of the last place of that value."""
    info = np.finfo(got.dtype)
    largest, tiny, digits = mp.mpf(float(info.max)), int(info.minexp) - int(info.nmant), int(info.nmant)
    past = mp.mpf(2) ** int(info.maxexp)  # inf stands for all numbers from here on
    result = np.empty(got.size)
    for k, (g, w) in enumerate(zip(got.tolist(), want, strict=True)):
        exponent = mp.frexp(min(abs(w), largest))[1] - 1 if w else tiny
        unit = mp.mpf(2) ** max(exponent - digits, tiny)
        value, w = (mp.mpf(g), w) if np.isfinite(g) else (mp.sign(g) * past, mp.sign(w) * min(abs(w), past))
        result[k] = INF if np.isnan(g) else float(min(abs(value - w) / unit, 1e9))
    return result


def compiled(name: str, kind: str, lanes: int, operands: int = 1) -> Callable[..., Any]:
    return build(getattr(math, name), [kind] * operands, lanes)


def same(got: Array, want: Array) -> bool:
    """Equal to the bit, but for the bits of a NaN."""
    nan = np.isnan(got) & np.isnan(want)
    return bool(np.all(nan | ((got == want) & (np.signbit(got) == np.signbit(want)))))


ENDS = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 2.5, -2.5, INF, -INF, NAN, 1e-40, -1e-40, 1e38,
    -1e38, 16777216.0,
]  # fmt: skip


def pairs_of_ends(dtype: Any) -> tuple[Array, Array]:
    x, y = (v.ravel().astype(dtype) for v in np.meshgrid(ENDS, ENDS))
    return x, y
