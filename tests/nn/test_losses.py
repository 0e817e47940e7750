"""What belongs to losses as Cells: their base class, their settings. Values are tested in tests/ops/test_loss.py."""

from __future__ import annotations

import numpy as np
import pytest

from graphcell import Tensor, nn
from tests.recording import ramp


def test_a_loss_must_define_construct() -> None:
    with pytest.raises(NotImplementedError):
        nn.LossBase()(Tensor([1.0]), Tensor([1.0]))


def test_dice_loss_refuses_other_shapes() -> None:
    with pytest.raises(ValueError, match="shapes"):
        nn.DiceLoss()(Tensor(ramp((2, 3))), Tensor(ramp((3,))))


def test_labels_of_softmax_cross_entropy_get_no_gradient() -> None:
    from graphcell import grad

    labels = Tensor(np.array([[0.5, 0.5], [1.0, 0.0]], np.float32))
    loss = nn.SoftmaxCrossEntropyWithLogits(reduction="sum")
    assert not grad(loss, 1)(Tensor(ramp((2, 2))), labels).asnumpy().any()
