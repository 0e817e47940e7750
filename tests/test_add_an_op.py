"""Keeps docs/add_an_op.md true: its code is run as it stands."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell.ir.op import Op
from graphcell.ir.text import parse, print_graph
from graphcell.ir.types import TensorType
from graphcell.runtime.executable import compile_graph
from tests.helpers import check_gradients, trace

WALK = Path(__file__).parent.parent / "docs" / "add_an_op.md"


@pytest.fixture(scope="module")
def walk() -> Any:
    """What the walk defines, and what its last block prints."""
    module = sys.modules["walk"] = types.ModuleType("walk")
    scope = module.__dict__
    blocks = re.findall(r"```python\n(.*?)```", WALK.read_text(), re.S)
    assert len(blocks) == 3
    for number, block in enumerate(blocks[:2]):
        exec(compile(block, f"{WALK.name}[{number}]", "exec"), scope)
    yield scope, blocks[2]
    Op.table.pop("squareplus")
    del sys.modules["walk"]


def reference(x: np.ndarray) -> np.ndarray:
    return (x + np.sqrt(x * x + 4.0)) / 2


def test_the_op_runs_eagerly_and_natively(walk: Any) -> None:
    scope, _ = walk
    x = np.linspace(-5, 5, 37).astype(np.float32)
    np.testing.assert_allclose(scope["squareplus"](ms.Tensor(x)).asnumpy(), reference(x.astype(np.float64)), rtol=1e-6, atol=1e-7)
    graph = trace(scope["squareplus"], TensorType(ms.float32, (37,)))
    executable = compile_graph(graph)
    assert not executable.compilation.program.host_calls
    np.testing.assert_allclose(executable([ms.Tensor(x)])[0].asnumpy(), reference(x.astype(np.float64)), rtol=1e-6, atol=1e-6)


def test_its_gradient_is_right_to_second_order(walk: Any) -> None:
    check_gradients(walk[0]["squareplus"], np.linspace(-2, 2, 5))


def test_its_text_form_reads_back(walk: Any) -> None:
    graph = trace(lambda x: walk[0]["squareplus"](x, 2.5), TensorType(ms.float32, (3,)))
    assert "squareplus[b=2.5]" in print_graph(graph)
    assert print_graph(parse(print_graph(graph))) == print_graph(graph)


def test_the_last_block_runs(walk: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    scope, block = walk
    script = tmp_path / "block.py"
    script.write_text(block)
    exec(compile(block, str(script), "exec"), scope)
    values, eager, compiled = capsys.readouterr().out.strip().splitlines()
    x = np.array([-2.0, 0.0, 2.0])
    slope = (1 + x / np.sqrt(x * x + 4)) / 2
    for line, want in ((values, reference(x)), (eager, slope), (compiled, slope)):
        np.testing.assert_allclose([float(v) for v in line.strip("[]").split()], want, rtol=1e-5)
