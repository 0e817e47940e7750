"""Unusual dtypes and shapes against what MindSpore 2.10 gave for them (tests/programs/dtypes.json), eagerly and compiled."""

from __future__ import annotations

import pytest

from graphcell.context import GRAPH_MODE, PYNATIVE_MODE
from tests.recording import check, load

DIFFERENT = {
    "ops.var(x) of float32[1]": "MindSpore's gradient is NaN",
    "ops.norm(x) of float32[1]": "the same",
    "[str(y.dtype) for y in ops.BatchNorm()(x, y, y, y, y * y)] of float64[2, 3], float64[3]": "MindSpore has no kernel for it",
    "ops.prod(x, 0) of float32[0, 3]": "a product of nothing is 1; MindSpore's has random elements",
}
PROGRAMS = [key for key in load("dtypes") if key not in DIFFERENT]


@pytest.mark.slow
@pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE], ids=["pynative", "graph"])
@pytest.mark.parametrize("key", PROGRAMS)
def test_dtypes(key: str, mode: int) -> None:
    check("dtypes", key, mode, 1e-4)


@pytest.mark.parametrize("key", DIFFERENT)
def test_known_differences_are_differences(key: str) -> None:
    with pytest.raises(AssertionError):
        check("dtypes", key, PYNATIVE_MODE, 1e-4)
