"""`Model` and its callbacks against MindSpore 2.10.0 (tests/programs/training.json), and what differs from it on purpose."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import graphcell as ms
from tests.programs.training import NETWORKS
from tests.recording import check, load

MODES = [ms.GRAPH_MODE, ms.PYNATIVE_MODE]


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES, ids=["graph", "pynative"])
@pytest.mark.parametrize("key", list(load("training")))
def test_as_in_mindspore(key: str, mode: int) -> None:
    check("training", key, mode, 5e-3 if key.startswith("mixed") else 2e-4 if key in NETWORKS else 2e-5)


def test_the_program_in_the_docs(capsys: pytest.CaptureFixture[str]) -> None:
    """It prints what the page says, where the numbers are shortened."""
    page = (Path(__file__).parent.parent.parent / "docs" / "training.md").read_text()
    ((program, want),) = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", page, re.S)
    exec(program, {})
    got, number = capsys.readouterr().out, r"0\.\d+"
    assert re.sub(number, "#", got) == re.sub(number, "#", want)
    assert [float(n) for n in re.findall(number, got)] == pytest.approx([float(n) for n in re.findall(number, want)], abs=0.01)
