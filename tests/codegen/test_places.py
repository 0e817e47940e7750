"""Elements read and written at places that vectors of indices hold, also negative ones and such as lead outside, of all vector widths, on guarded memory,
against loops in Python.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphcell import ops
from graphcell.ops.dispatch import apply1
from graphcell.ops.indexing import Gather, GatherElements, Scatter, ScatterElements
from tests.codegen.test_loop_shapes import check, whole

RNG = np.random.default_rng(13)
COMBINED: dict[str, Any] = {"add": lambda x, u: x + u, "max": max, "update": lambda x, u: u}


def place(index: int, extent: int) -> int:
    return min(max(index + extent if index < 0 else index, 0), extent - 1)


def indices(extent: int, *shape: int, dtype: Any = np.int32) -> np.ndarray[Any, Any]:
    """Some before the beginning, some behind the end, if the type has such numbers."""
    low = -extent - 3 if np.issubdtype(dtype, np.signedinteger) else 0
    return RNG.integers(low, extent + 3, shape).astype(dtype)


@pytest.mark.parametrize("kind", COMBINED)
@pytest.mark.parametrize(("count", "dtype"), [(3, np.int32), (8, np.int64), (37, np.int8), (64, np.uint8), (133, np.int32)])
def test_scattered_elements(count: int, dtype: Any, kind: str) -> None:
    """In the order of the updates."""
    x, i, u = whole(np.float32, 29), indices(29, count, dtype=dtype), whole(np.float32, count)
    want = x.copy()
    for index, update in zip(i, u, strict=True):
        at = place(int(index), 29)
        want[at] = COMBINED[kind](want[at], update)
    check(lambda x, i, u: apply1(Scatter((0,), kind), x, i, u), [x, i, u], want)
    wide = np.tile(u, (3, 1))
    check(lambda x, i, u: apply1(ScatterElements(1, kind), x, i, u), [np.tile(x, (3, 1)), np.tile(i, (3, 1)), wide], np.tile(want, (3, 1)))


@pytest.mark.parametrize("count", [5, 19, 40])
def test_scattered_by_two_indices(count: int) -> None:
    x, i, j, u = whole(np.float64, 6, 11), indices(6, count), indices(11, count, dtype=np.int64), whole(np.float64, count)
    want = x.copy()
    for a, c, update in zip(i, j, u, strict=True):
        want[place(int(a), 6), place(int(c), 11)] += update
    check(lambda x, i, j, u: apply1(Scatter((0, 1), "add"), x, i, j, u), [x, i, j, u], want)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.int64, np.bool_])
@pytest.mark.parametrize("count", [3, 21])
def test_gathered_elements(count: int, dtype: Any) -> None:
    """Alone, along rows, and with something computed of them."""
    x, i = whole(dtype, 29), indices(29, count)
    at = np.array([place(int(k), 29) for k in i])
    check(lambda x, i: apply1(Gather((0,)), x, i), [x, i], x[at])
    rows = np.tile(x, (4, 1))
    check(lambda x, i: apply1(GatherElements(1), x, i), [rows, np.tile(i, (4, 1))], rows[:, at])
    same = (lambda y: ops.logical_not(y)) if dtype is np.bool_ else (lambda y: y + y)
    check(lambda x, i: same(apply1(Gather((0,)), x, i)), [x, i], ~x[at] if dtype is np.bool_ else (x + x)[at])
