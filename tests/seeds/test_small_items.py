"""Items that are a line or two each: a sum's printed form, an update, where layers are declared, indices summed up, numpy's own error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, nn, ops


class _Sum(nn.Cell):
    def construct(self, x: Tensor, y: Tensor) -> Tensor:
        return ops.add(x, y)


def test_item_004_tensor_of_a_list_and_add(mode: int, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = Tensor([1, 2, 3], ms.float32), Tensor([4, 5, 6], ms.float32)
    print(_Sum()(x, y))
    assert capsys.readouterr().out == "[5. 7. 9.]\n"


def test_item_067_gradients_go_to_the_optimizer(mode: int) -> None:
    net = nn.Dense(2, 1, weight_init="ones", bias_init="zeros")
    optimizer = nn.SGD(net.trainable_params(), learning_rate=0.5)
    x = Tensor(np.array([[1.0, 2.0]], np.float32))
    gradients = ms.grad(lambda t: net(t).sum(), None, optimizer.parameters)(x)
    optimizer(gradients)
    assert net.weight.asnumpy().tolist() == [[0.5, 0.0]] and net.bias.asnumpy().tolist() == [-0.5]


def test_item_068_declared_in_init_and_used_in_construct(mode: int) -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.dense, self.relu = nn.Dense(2, 2, weight_init="ones", bias_init="zeros"), ops.ReLU()

        def construct(self, x: Tensor) -> Tensor:
            return self.relu(self.dense(x))

    assert Net()(Tensor(np.array([[1.0, -3.0], [1.0, 3.0]], np.float32))).asnumpy().tolist() == [[0, 0], [4, 4]]


def test_item_126_gradients_summed_at_their_places(mode: int) -> None:
    def at_places(gradients: Any, indices: Any) -> Any:
        return ops.stack([ops.UnsortedSegmentSum()(gradients[i], indices[i], 5) for i in range(2)])

    run = ms.jit(at_places) if mode == ms.GRAPH_MODE else at_places
    result = run(Tensor(np.ones((2, 3), np.float32)), Tensor(np.array([[3, 1, 3], [1, 4, 1]], np.int32)))
    assert result.asnumpy().tolist() == [[0, 1, 0, 2, 0], [0, 2, 0, 0, 1]]


def test_item_228_numpys_own_error_for_shapes_that_do_not_broadcast(mode: int) -> None:
    same, valid = (nn.Conv2d(3, 4, 4, pad_mode=pad_mode)(Tensor(np.ones((2, 3, 12, 12), np.float32))) for pad_mode in ("same", "valid"))
    with pytest.raises(ValueError, match=r"operands could not be broadcast together with shapes \(2,4,12,12\) \(2,4,9,9\)"):
        np.mean(same.asnumpy() - valid.asnumpy())
