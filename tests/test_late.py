"""Names that are imported when they are first asked for."""

from __future__ import annotations

import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphcell import nn

PACKAGES = ("graphcell", "graphcell.nn", "graphcell.nn.layer", "graphcell.nn.optim", "graphcell.train", "graphcell.mint.nn")


def _run(program: str, **env: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ | env).stdout.strip()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_found_and_listed(package: str) -> None:
    module = importlib.import_module(package)
    names = module.__all__
    assert len(set(names)) == len(names)
    assert set(names) <= set(dir(module))
    for name in names:
        found = getattr(module, name)
        rooms = ("amp", "common", "communication", "context", "dataset", "dtype", "experimental", "functional", "mint", "nn", "ops", "train")
        assert not inspect.ismodule(found) or name in rooms


@pytest.mark.parametrize("package", ("graphcell.nn.layer", "graphcell.nn.optim", "graphcell.nn.loss", "graphcell.nn.wrap"))
def test_no_cell_of_a_room_is_forgotten(package: str) -> None:
    """Every public Cell that a module of layers, losses and optimizers defines is a name of `nn`."""
    folder = importlib.import_module(package)
    for file in Path(folder.__path__[0]).glob("*.py"):
        module = importlib.import_module(f"{package}.{file.stem}") if file.stem != "__init__" else folder
        for name, found in vars(module).items():
            if isinstance(found, type) and found.__module__ == module.__name__ and issubclass(found, nn.Cell) and name[0] != "_" and name not in ("AdamBase", "Updater"):
                assert getattr(nn, name, None) is found, f"{module.__name__}.{name}"


def test_import_leaves_out_what_most_programs_have_no_need_of() -> None:
    loaded = _run("import sys, graphcell; print(*(m for m in sys.modules if m.startswith('graphcell')))").split()
    for late in ("graphcell.train.model", "graphcell.nn.layer.conv", "graphcell.nn.optim.adam", "graphcell.ops.primitives", "graphcell.amp"):
        assert late not in loaded


def test_first_call_of_loops_leaves_out_other_code_generators() -> None:
    program = """
import sys
import numpy as np
import graphcell as ms
ms.jit(ms.nn.{})(ms.Tensor(np.ones((2, 3), np.float32)))
print(*(m.rpartition(".")[2] for m in sys.modules if m.startswith("graphcell.codegen.llvm.")))
"""
    rooms = {"matmul", "matmul_schedule", "matmul_spec", "convolution", "attention", "scan", "scatter", "scatter_step", "cholesky", "elimination", "triangular", "gamma", "philox", "trigonometry"}
    loops = set(_run(program.format("Softmax()"), GRAPHCELL_CACHE="0").split())
    assert "exponential" in loops and loops.isdisjoint(rooms), loops & rooms
    assert rooms & set(_run(program.format("Dense(3, 2)"), GRAPHCELL_CACHE="0").split()) == {"matmul", "matmul_schedule", "matmul_spec"}


def test_functions_are_not_hidden_by_modules_of_their_names() -> None:
    program = "import graphcell.train.data_sink, graphcell.nn.optim.thor, graphcell as ms; print(callable(ms.data_sink), callable(ms.nn.thor), callable({}))"
    assert _run(program.format("ms.train.data_sink")) == "True True True"


def test_modules_are_reached_as_attributes() -> None:
    assert _run("import graphcell as ms; print(ms.nn.layer.conv.Conv2d is ms.nn.Conv2d, ms.train.serialization.load_checkpoint is ms.load_checkpoint)") == "True True"


def test_star_import_of_ops_has_the_primitives() -> None:
    assert _run("from graphcell.ops import *; print(ReLU.__name__, relu.__name__)") == "ReLU relu"
    assert _run("import graphcell.ops as ops; print(hasattr(ops, 'Nope'), 'MatMul' in dir(ops), ops.MatMul.__name__)") == "False True MatMul"


def test_what_a_program_puts_in_place_of_a_primitive_stays() -> None:
    assert _run("from graphcell import ops; ops.ReLU = 7; ops.MatMul; hasattr(ops, 'Nope'); dir(ops); print(ops.ReLU)") == "7"
    program = "from graphcell import ops; ops.MatMul; ops.ReLU = 7; hasattr(ops, 'Nope'); exec('from graphcell.ops import *'); print(ops.ReLU, ReLU)"
    assert _run(program) == "7 7"


def test_layers_are_names_of_their_room() -> None:
    program = "import graphcell as ms; from graphcell.nn.layer import *; print(Dense is ms.nn.Dense is ms.nn.layer.Dense is ms.nn.layer.basic.Dense)"
    assert _run(program) == "True"


def test_functions_of_a_module_are_remembered() -> None:
    program = "from graphcell.codegen.llvm import math; exp = math.exp; print('exp' in vars(math), math.exp is exp, 'sin' in vars(math), 'sin' in dir(math))"
    assert _run(program) == "True True False True"
