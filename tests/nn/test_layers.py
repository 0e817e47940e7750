"""Layers against what MindSpore 2.10 printed, computed and refused (tests/programs/layers.json), eagerly and compiled."""

from __future__ import annotations

import pytest

from graphcell.context import GRAPH_MODE, PYNATIVE_MODE
from tests.recording import check, load, recorded

DIFFERENT = {
    "nn.Conv2d(3, 4, 3)(Tensor(ramp((1, 2, 4, 4))))": "a shape that does not fit is a ValueError here, as everywhere",
    "nn.Conv2dTranspose(3, 4, 3)(Tensor(ramp((1, 2, 4, 4))))": "the same; MindSpore's error comes from its library",
    "nn.AvgPool2d(5)(Tensor(ramp((1, 1, 4, 4))))": "the same",
    "nn.Conv2dTranspose(3, 4, 3, output_padding=1)": "MindSpore ignores an output_padding that pad_mode 'same' has no use for",
    "nn.AdaptiveAvgPool2d(0)(Tensor(ramp((1, 1, 4, 4))))": "MindSpore gives an empty image; an output of no windows is a mistake",
}
PROGRAMS = [key for key in load("layers") if key not in DIFFERENT]
COMPILED = [key for key in PROGRAMS if isinstance(recorded("layers")[key], dict) and "inference" in recorded("layers")[key]]


@pytest.mark.parametrize("key", PROGRAMS)
def test_eager(key: str) -> None:
    check("layers", key, PYNATIVE_MODE)


@pytest.mark.slow
@pytest.mark.parametrize("key", COMPILED)
def test_compiled(key: str) -> None:
    check("layers", key, GRAPH_MODE)


@pytest.mark.parametrize("key", DIFFERENT)
def test_known_differences_are_differences(key: str) -> None:
    with pytest.raises(AssertionError):
        check("layers", key, PYNATIVE_MODE)
