"""Items 132 to 203 and 222 to 229, the reference page of `nn.Cell`: what MindSpore 2.10 gave (tests/programs/cell_reference.py, cell_states.py, cell_variants.py)."""

from __future__ import annotations

import pytest

from graphcell.context import GRAPH_MODE, PYNATIVE_MODE
from tests.recording import check, load

ITEMS = [(file, item) for file in ("cell_reference", "cell_states", "cell_variants") for item in load(file)]


@pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE])
@pytest.mark.parametrize(("file", "item"), ITEMS, ids=[item for _, item in ITEMS])
def test_as_mindspore(file: str, item: str, mode: int) -> None:
    check(file, item, mode)
