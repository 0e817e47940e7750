"""docs/compatibility.md says what is: the page is up to date, present names import, and the differences it claims are there."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import compatibility as c
from graphcell import ops

DOCS = Path(__file__).parent.parent / "docs"
NAN = float("nan")


def test_page_is_up_to_date() -> None:
    page = (DOCS / "compatibility.md").read_text()
    fresh = c.page(c.read_names())
    changed = set(page.splitlines()) ^ set(fresh.splitlines())
    assert page == fresh, f"run `python -m graphcell.compatibility > docs/compatibility.md`; {len(changed)} lines differ"


def test_present_names_import() -> None:
    """Every name that the page calls present, by an import statement where it is a module's, else as an attribute of the class."""
    section, checked = "", 0
    for paragraph in (DOCS / "compatibility.md").read_text().split("\n\n"):
        if paragraph.startswith("### "):
            section = paragraph.removeprefix("### ")
        if not paragraph.startswith("Present ("):
            continue
        for name in paragraph.partition(": ")[2].replace("\n", " ").split(", "):
            _import(section, name.strip())
            checked += 1
    assert checked > 1000


def _import(module: str, name: str) -> None:
    home = module.removesuffix("(m)").replace("mindspore.ops.primitive", "mindspore.ops").replace("mindspore", "graphcell", 1)
    if module.endswith("(m)") or module == "mindspore.Tensor":
        package, _, cls = home.rpartition(".")
        assert hasattr(getattr(importlib.import_module(package), cls), name), f"{module}.{name}"
        return
    *rooms, name = name.split(".")  # `nn.functional.relu` of mint
    scope: dict[str, Any] = {}
    exec(f"from {'.'.join([home, *rooms])} import {name}", scope)
    assert scope[name] is not None


def test_presence_minds_the_kind() -> None:
    def present(module: str, name: str, kind: str) -> bool:
        return c.is_present(c.Name(module, name, kind, "common"))

    assert present("mindspore.nn", "Dense", "class")
    assert not present("mindspore.nn", "Dens", "class")
    assert not present("mindspore.ops", "softmax", "class")  # a function
    assert not present("mindspore.ops", "methods", "function")  # a module
    assert present("mindspore", "tensor", "function")  # though a file has this name
    assert present("mindspore.Tensor", "type", "method") and present("mindspore.nn.Cell(m)", "set_train", "method")
    assert not present("mindspore.nowhere", "x", "function")


def test_names_of_a_table(tmp_path: Path) -> None:
    table = tmp_path / "api.tsv"
    table.write_text("module\tname\tkind\ttier\nmindspore\tTensor\tclass\tT0\nmindspore.ops\tabs\tfunction\tT3\n")
    names = tmp_path / "names.txt"
    names.write_text(c.names_of_table(table))
    assert c.read_names(names) == [c.Name("mindspore", "Tensor", "class", "essential"), c.Name("mindspore.ops", "abs", "function", "rare")]
    table.write_text("module\tname\nmindspore\tTensor\n")
    with pytest.raises(ValueError, match="columns"):
        c.names_of_table(table)


# -- the differences -----------------------------------------------------------------------------------------------------
def shows(run: Callable[[], Any], expected: Any) -> None:
    np.testing.assert_array_equal(np.asarray(run()), np.asarray(expected))


def test_nan_propagates() -> None:
    x = ms.Tensor([1.0, NAN, 3.0])
    shows(lambda: ops.clamp(x, 0.0, 2.0), [1.0, NAN, 2.0])
    shows(lambda: ops.relu(x), [1.0, NAN, 3.0])
    shows(x.max, NAN)
    shows(lambda: ops.argmax(x), 1)
    shows(lambda: ops.max_pool2d(ms.Tensor([[[[NAN, 1.0], [2.0, 3.0]]]]), 2), [[[[NAN]]]])
    shows(lambda: ops.sort(x)[0], [1.0, 3.0, NAN])


@pytest.mark.parametrize("compiled", [False, True])
def test_integers_without_a_result(compiled: bool) -> None:
    def run(fn: Callable[..., Any], *data: Any) -> Any:
        return (ms.jit(fn) if compiled else fn)(*(ms.Tensor(np.array(d)) for d in data))

    shows(lambda: run(lambda x, y: x // y, [5, -5], [0, 0]), [0, 0])
    shows(lambda: run(lambda x, y: x % y, [5, -5], [0, 0]), [0, 0])
    shows(lambda: run(lambda x, y: ops.bitwise_left_shift(x, y), [1, 3], [64, 70]), [0, 0])
    shows(lambda: run(lambda x, y: ops.bitwise_right_shift(x, y), [8, -8], [64, 70]), [0, -1])
    shows(lambda: run(lambda x: x.astype(ms.int32), np.float32([NAN, 1e20, -1e20])), [0, 2**31 - 1, -(2**31)])


@pytest.mark.parametrize("compiled", [False, True])
def test_indices_out_of_range(compiled: bool) -> None:
    def gather(x: ms.Tensor, index: ms.Tensor) -> ms.Tensor:
        return ops.gather(x, index, 0)

    run = ms.jit(gather) if compiled else gather
    x = ms.Tensor([1, 2, 3])
    shows(lambda: run(x, ms.Tensor([2, -3])), [3, 1])
    with pytest.raises(IndexError, match="out of range") as error:
        run(x, ms.Tensor([5, -9]))
    assert isinstance(error.value, RuntimeError)
    with pytest.raises(IndexError):
        x[5]


class Scaled(ms.nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.k = 2
        self.offset = ms.Tensor([1.0])

    @ms.jit
    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return x * self.k + self.offset


def test_changes_are_noticed() -> None:
    net, x = Scaled(), ms.Tensor([1.0, 2.0])
    shows(lambda: net(x), [3.0, 5.0])
    net.k = 3
    shows(lambda: net(x), [4.0, 7.0])
    net.offset = ms.Tensor([10.0])
    shows(lambda: net(x), [13.0, 16.0])


def test_set_data_keeps_the_shape() -> None:
    p = ms.Parameter(ms.Tensor([1.0, 2.0]), name="p")
    with pytest.raises(ValueError, match="slice_shape"):
        p.set_data(ms.Tensor([1.0, 2.0, 3.0]))
    assert p.shape == (2,)
    p.set_data(ms.Tensor([1.0, 2.0, 3.0]), slice_shape=True)
    assert p.shape == (3,)


def tries(x: ms.Tensor) -> ms.Tensor:
    try:
        y = x + len({1, 2})
    except ValueError:
        y = x
    for _ in range(2):
        y = y * 2
    else:
        y = y + 1
    if (z := y + 1).shape[0] > 1:
        return z
    return y


def test_more_of_python_compiles() -> None:
    shows(lambda: ms.jit(tries)(ms.Tensor([1.0, 2.0])), [14.0, 18.0])
    shows(lambda: ms.jit(lambda x: x + 1)(ms.Tensor([1.0])), [2.0])


def test_uninitialised_tensors_compute() -> None:
    x = ms.common.initializer.initializer("ones", (2,), ms.float32)
    assert x.has_init
    shows(lambda: x + 1, [2.0, 2.0])


def test_random_state_goes_back() -> None:
    def draw() -> Any:
        return ops.rand(3).asnumpy()

    ms.set_seed(3)
    state = ms.get_rng_state()
    first, second = draw(), draw()
    assert (first != second).any()
    ms.set_rng_state(state)
    np.testing.assert_array_equal(draw(), first)
    np.testing.assert_array_equal(ms.jit(lambda: ops.rand(3))().asnumpy(), second)


def test_errors_appear_where_they_happen() -> None:
    with pytest.raises(ValueError):
        ops.matmul(ms.Tensor(np.ones((2, 3))), ms.Tensor(np.ones((2, 3))))


def test_only_the_cpu() -> None:
    with pytest.raises(RuntimeError):
        ms.set_context(device_target="GPU")
    with pytest.raises(TypeError):
        ms.Tensor([1j])


def test_classes_are_graphcells() -> None:
    assert str(ms.nn.Dense) == "<class 'graphcell.nn.layer.basic.Dense'>"
