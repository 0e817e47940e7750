"""What belongs to losses as Cells: their base class, their settings. Values are tested in tests/ops/test_loss.py."""

from __future__ import annotations

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, nn, ops
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


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
@pytest.mark.parametrize("wrong", [3, -1, -100])
def test_class_numbers_out_of_range_are_errors(mode: int, wrong: int) -> None:
    logits, labels = Tensor(ramp((4, 3))), Tensor([0, wrong, 2, 1], ms.int32)
    ms.set_context(mode=mode)
    sparse = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"), ops.SparseSoftmaxCrossEntropyWithLogits()
    for loss in (*sparse, nn.FocalLoss()):
        shaped = labels.expand_dims(1) if isinstance(loss, nn.FocalLoss) else labels
        with pytest.raises(IndexError, match="labels"):
            loss(logits, shaped).asnumpy()


def test_a_row_without_class_has_no_sparse_cross_entropy() -> None:
    logits = ramp((4, 3))
    losses = nn.SoftmaxCrossEntropyWithLogits(sparse=True)(Tensor(logits), Tensor([0, -1, 2, 3], ms.int32)).asnumpy()
    wide = logits.astype(np.float64)
    expected = np.log(np.exp(wide).sum(1)) - wide[np.arange(4), [0, 0, 2, 0]]
    np.testing.assert_allclose(losses, expected * [1, 0, 1, 0], rtol=1e-5)


def test_targets_may_be_integers() -> None:
    x, y = ramp((4, 3)), np.eye(4, 3, dtype=np.int32)
    wide = x.astype(np.float64)
    log_chance, log_other = -np.log1p(np.exp(-wide)), -np.log1p(np.exp(wide))
    cases = [
        (nn.PoissonNLLLoss(), (), np.exp(wide) - y * wide),
        (nn.GaussianNLLLoss(), (Tensor(np.full((4, 3), 2.0, np.float32)),), (np.log(2) + (wide - y) ** 2 / 2) / 2),
        (nn.MultiLabelSoftMarginLoss(), (), -(y * log_chance + (1 - y) * log_other)),
    ]
    for loss, others, expected in cases:
        np.testing.assert_allclose(loss(Tensor(x), Tensor(y), *others).asnumpy(), expected.mean(), rtol=1e-5)
