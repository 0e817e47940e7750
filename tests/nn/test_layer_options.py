"""Options of layers against what MindSpore 2.10 printed, computed and refused (tests/programs/layer_options.json), eagerly and compiled."""

from __future__ import annotations

import pytest

from graphcell.context import GRAPH_MODE, PYNATIVE_MODE
from tests.recording import check, load

DIFFERENT = {f"nn.AvgPool{kind}(9) on ({shape},)": "shapes that do not fit are a ValueError here, as everywhere" for kind, shape in (("2d", (1, 1, 5, 4)), ("3d", (1, 1, 3, 4, 3)))}
PROGRAMS = [key for key in load("layer_options") if key not in DIFFERENT]


@pytest.mark.slow
@pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE], ids=["pynative", "graph"])
@pytest.mark.parametrize("key", PROGRAMS)
def test_options(key: str, mode: int) -> None:
    check("layer_options", key, mode, 1e-4)


@pytest.mark.parametrize("key", DIFFERENT)
def test_known_differences_are_differences(key: str) -> None:
    with pytest.raises(AssertionError):
        check("layer_options", key, PYNATIVE_MODE, 1e-4)
