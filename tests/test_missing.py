"""Names that a module does not have: what the error says, and what must not notice."""

from __future__ import annotations

import copy
import doctest
import importlib
import inspect
import pickle
import pkgutil
import subprocess
import sys

import pytest

import graphcell as ms
from graphcell import common, dataset, mint, missing, nn, ops, train

HERE = "graphcell does not have it yet; `python -m graphcell.compatibility` lists what is there"


@pytest.mark.parametrize(
    ("module", "name", "expected"),
    [
        (ms, "export", f"MindSpore 2.10 has mindspore.export, {HERE}"),
        (ms, "numpy", f"MindSpore 2.10 has mindspore.numpy, {HERE}"),
        (ms, "profiler", f"MindSpore 2.10 has mindspore.profiler, {HERE}"),
        (ms.dtype, "complex64", f"MindSpore 2.10 has mindspore.complex64, {HERE}"),
        (ops, "csr_add", f"MindSpore 2.10 has mindspore.ops.csr_add, {HERE}"),
        (ops, "Cell", "there is graphcell.nn.Cell"),
        (mint, "polar", f"MindSpore 2.10 has mindspore.mint.polar, {HERE}"),
        (mint, "Dense", "there is graphcell.nn.Dense and graphcell.ops.Dense"),
        (dataset, "OBSMindDataset", f"MindSpore 2.10 has mindspore.dataset.OBSMindDataset, {HERE}"),
        (dataset.vision, "DecodeVideo", f"MindSpore 2.10 has mindspore.dataset.vision.DecodeVideo, {HERE}"),
        (ops, "sofmax", "near names: softmax, Softmax, fmax"),
        (ops.functional, "relue", "near names: relu, ReLU, rrelu"),
        (importlib.import_module("graphcell.ops.operations"), "ReLu6", "near names: relu6, ReLU6, relu"),
        (nn, "relu", "there is graphcell.ops.relu"),
        (nn, "ReLu", "near names: ReLU, RReLU, ReLU6"),
        (train, "Modle", "near names: Model"),
        (train.callback, "LossMonitr", "near names: LossMonitor"),
        (common, "Parameters", "near names: Parameter"),
        (ms, "Dense", "there is graphcell.nn.Dense and graphcell.ops.Dense"),
    ],
)
def test_text(module: object, name: str, expected: str) -> None:
    assert not hasattr(module, name)
    with pytest.raises(AttributeError) as error:
        getattr(module, name)
    assert str(error.value) == f"module '{module.__name__}' has no attribute '{name}'\n  hint: {expected}"  # type: ignore[attr-defined]
    assert error.value.name == name


def test_names_unlike_any_other_have_no_hint() -> None:
    for name in ("qqqqqqqq", "parse_print"):  # MindSpore 2.10 has lost the second
        with pytest.raises(AttributeError) as error:
            getattr(ms, name)
        assert str(error.value) == f"module 'graphcell' has no attribute '{name}'"


def test_import_statements() -> None:
    with pytest.raises(ImportError) as error:
        exec("from graphcell import export")
    assert str(error.value) == f"cannot import name 'export' from 'graphcell'\n  hint: MindSpore 2.10 has mindspore.export, {HERE}"
    with pytest.raises(ImportError, match="near names: Dense"):
        exec("from graphcell.nn import Densee")
    with pytest.raises(ImportError, match="near names: silu"):  # a module that is no package
        exec("from graphcell.mint.nn.functional import sillu")
    with pytest.raises(ImportError, match=r"cannot import name 'qqqqqqqq' from 'graphcell.ops' \("):  # Python's own text
        exec("from graphcell.ops import qqqqqqqq")
    scope: dict[str, object] = {}
    exec("from graphcell import alias\nfrom graphcell.ops import relu, GradOperation, linear_algebra\nfrom graphcell.nn import *", scope)
    assert scope["Dense"] is nn.Dense and inspect.ismodule(scope["linear_algebra"])


def test_a_submodule_that_is_not_loaded_yet_is_no_missing_name() -> None:
    """`from package import module` first asks the package for an attribute; 'dataset' also is a name of MindSpore's."""
    program = "import graphcell.ops\nfrom graphcell import dataset, compatibility\nfrom graphcell.dataset import vision\nprint(vision.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert done.stdout == "graphcell.dataset.vision\n", done.stderr


def test_the_list_is_not_read_to_say_no() -> None:
    program = """
import graphcell as ms
from graphcell import missing, nn
from pathlib import Path
missing.NAMES = Path("nowhere")
print([hasattr(m, n) for m in (ms, ms.ops, nn, ms.train) for n in ("export", "__wrapped__")], getattr(ms, "export", None))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert done.stdout == f"{[False] * 8} None\n", done.stderr


def test_python_s_tools_still_work_on_the_modules() -> None:
    for module in (ms, ops, nn, train, common, dataset):
        assert inspect.getdoc(module) and inspect.getmembers(module) and inspect.unwrap(module) is module  # type: ignore[arg-type]
        assert not doctest.DocTestFinder().find(module)[0].examples
        assert module.__name__ in [m.name for m in pkgutil.walk_packages(ms.__path__, "graphcell.")] + ["graphcell"]
        with pytest.raises(TypeError, match="pickle"):
            copy.deepcopy(module)
        assert pickle.loads(pickle.dumps(module.__name__)) == module.__name__
        with pytest.raises(AttributeError):
            getattr(module, "__no_such__")  # noqa: B009


def test_errors_of_missing_names_can_be_kept() -> None:
    with pytest.raises(AttributeError) as error:
        ops.sofmax  # noqa: B018
    again = pickle.loads(pickle.dumps(error.value))
    assert str(again) == str(error.value) == str(copy.copy(error.value)) and "softmax" in str(again)


def test_in_a_graph_the_line_is_shown() -> None:
    @ms.jit
    def f(x: ms.Tensor) -> ms.Tensor:
        return ops.sofmax(x)  # type: ignore[no-any-return]

    with pytest.raises(AttributeError, match=r"no attribute 'sofmax' \[GC206\](.|\n)*return ops.sofmax(.|\n)*hint: near names: softmax"):
        f(ms.Tensor([1.0]))


def test_paths() -> None:
    paths = missing.mindspore_paths()
    assert {"mindspore.mint", "mindspore.mint.nn", "mindspore.mint.nn.functional.relu", "mindspore.ops.Add", "mindspore.COOTensor"} <= set(paths)
    assert not any("(" in path for path in paths) and "mindspore.parse_print" not in paths
    assert missing.is_submodule("graphcell", "alias") and missing.is_submodule("graphcell", "nn") and not missing.is_submodule("graphcell", "export")
