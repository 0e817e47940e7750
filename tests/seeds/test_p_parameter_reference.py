"""`Parameter` and `ParameterTuple` in full (items 17 to 45, 203): what MindSpore 2.10 gave (tests/programs/parameter_reference.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, Tensor, nn
from graphcell.context import GRAPH_MODE, PYNATIVE_MODE
from tests.recording import check, load


@pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE])
@pytest.mark.parametrize("topic", list(load("parameter_reference")))
def test_as_mindspore(topic: str, mode: int) -> None:
    check("parameter_reference", topic, mode)


@pytest.mark.parametrize("data", [3, 2.5, Tensor([[1.0, 2.0]]), Tensor(1.0)])
def test_item_37_set_data_keeps_the_shape(data: Any) -> None:
    p = Parameter(Tensor([1.0, 2.0]), name="p")
    with pytest.raises(ValueError, match=r"p has shape \(2,\), but data has"):
        p.set_data(data)
    assert p.asnumpy().tolist() == [1.0, 2.0]


def test_arrays_handed_out_keep_their_values() -> None:
    p = Parameter(Tensor([1.0, 2.0]), name="p")
    before = p.asnumpy()
    p[0] = 9.0
    assert before.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE])
def test_writing_into_data_inside_construct(mode: int) -> None:
    class Count(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.w = Parameter(Tensor([1.0, 2.0]), name="w")

        def construct(self, x: Any) -> Any:
            shown = self.w.data
            shown[0] = 5.0
            return shown * x, self.w + 0

    ms.set_context(mode=mode)
    net = Count()
    shown, w = net(Tensor([1.0, 1.0]))
    assert shown.asnumpy().tolist() == w.asnumpy().tolist() == net.w.asnumpy().tolist() == [5.0, 2.0]


def test_numbers_of_numpy_are_numbers() -> None:
    assert str(Parameter(np.float32(3), name="n")) == "Parameter (name=n, shape=(), dtype=Float32, requires_grad=True)"
    assert Parameter(np.int64(3), name="n").dtype is ms.int32
