"""Items 54 to 60: Cells inside Cells. (58's printed classes: test_documents.py.)"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, nn


class MyCell(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, 1)
        self.conv2 = nn.Conv2d(4, 6, 3, 1)
        self.insert_child_to_cell("conv3", nn.Conv2d(6, 8, 3, 1))
        self.sequential_block = nn.SequentialCell(nn.ReLU(), nn.Conv2d(8, 5, 3, 1), nn.ReLU())

    def construct(self, x: Any) -> Any:
        x = self.conv1(x)
        x = self.conv2(x)
        x = self.conv3(x)
        x = self.sequential_block(x)
        return x


class Doubled(nn.Cell):
    def __init__(self, inner: nn.Cell | None, depth: int) -> None:
        super().__init__()
        self.inner = Doubled(inner, depth - 1) if depth else inner

    def construct(self, x: Any) -> Any:
        return self.inner(x) * 2.0


def test_item_054_any_depth(mode: int) -> None:
    net = Doubled(nn.Dense(1, 1, weight_init="ones", bias_init="zeros"), 11)
    assert net(Tensor([[1.0]])).tolist() == [[4096.0]]
    assert net.trainable_params()[0].name == "inner." * 12 + "weight"


def test_item_055_insert_child_to_cell() -> None:
    net = MyCell()
    assert isinstance(net.conv3, nn.Conv2d) and [name for name, _ in net.parameters_and_names()][2] == "conv3.weight"
    assert list(net.name_cells()) == ["conv1", "conv2", "conv3", "sequential_block"]


@pytest.mark.parametrize("form", ["varargs", "list", "names"])
def test_item_056_sequential_cells(mode: int, form: str) -> None:
    from collections import OrderedDict

    cells = [nn.Dense(2, 2, weight_init="ones", bias_init=-4.0), nn.ReLU(), nn.Flatten()]
    net = nn.SequentialCell(*cells) if form == "varargs" else nn.SequentialCell(cells if form == "list" else OrderedDict(zip("abc", cells)))
    assert net(Tensor([[1.0, 2.0], [3.0, 4.0]])).tolist() == [[0.0, 0.0], [3.0, 3.0]]
    assert [p.name for p in net.get_parameters()] == (["a.weight", "a.bias"] if form == "names" else ["0.weight", "0.bias"])


def test_item_057_cells_and_names_goes_depth_first() -> None:
    net = MyCell()
    found = list(net.cells_and_names())
    assert [name for name, _ in found] == [
        "", "conv1", "conv2", "conv3", "sequential_block", "sequential_block.0", "sequential_block.1", "sequential_block.2",
    ]  # fmt: skip
    assert found[0][1] is net and found[6][1] is net.sequential_block[1]


def test_item_058_classes_print_with_their_place() -> None:
    kinds = [str(type(cell)) for _, cell in MyCell().cells_and_names()]
    package = ms.__name__
    assert kinds[1:] == [
        *[f"<class '{package}.nn.layer.conv.Conv2d'>"] * 3,
        f"<class '{package}.nn.layer.container.SequentialCell'>",
        f"<class '{package}.nn.layer.activation.ReLU'>",
        f"<class '{package}.nn.layer.conv.Conv2d'>",
        f"<class '{package}.nn.layer.activation.ReLU'>",
    ]


def test_item_059_same_padding_keeps_height_and_width(mode: int) -> None:
    net = MyCell()
    x = Tensor(np.linspace(-1, 1, 2 * 7 * 9).reshape(2, 1, 7, 9), ms.float32)
    y = net(x)
    assert y.shape == (2, 5, 7, 9) and float(y.asnumpy().min()) >= 0.0
    np.testing.assert_allclose(net.sequential_block(net.conv3(net.conv2(net.conv1(x)))).asnumpy(), y.asnumpy(), rtol=1e-5, atol=1e-6)


def test_item_060_the_traversal_is_filtered_by_class() -> None:
    net = MyCell()
    assert [name for name, cell in net.cells_and_names() if isinstance(cell, nn.Conv2d)] == ["conv1", "conv2", "conv3", "sequential_block.1"]
    kinds = (nn.ReLU, nn.SequentialCell)
    assert sum(isinstance(cell, kinds) for _, cell in net.cells_and_names()) == 3
