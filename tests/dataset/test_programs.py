"""Data pipelines against what MindSpore 2.10 gave (tests/programs/dataset.json)."""

from __future__ import annotations

import pytest

from graphcell.context import PYNATIVE_MODE
from tests.recording import check, load


@pytest.mark.parametrize("key", list(load("dataset")))
def test_as_mindspore(key: str) -> None:
    check("dataset", key, PYNATIVE_MODE, tolerance=1e-6)
