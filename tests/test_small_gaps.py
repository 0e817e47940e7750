"""The programs of tests/programs/small_gaps.py, in both modes, and what the classes of data pipelines do not have."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, dataset
from tests.recording import check, load


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
@pytest.mark.parametrize("key", list(load("small_gaps")))
def test_as_mindspore(key: str, mode: int) -> None:
    check("small_gaps", key, mode)


def test_positions_are_errors_of_both_modes_of_mindspore() -> None:
    """IndexError in GRAPH_MODE there, RuntimeError in PYNATIVE_MODE."""
    for kind in (IndexError, RuntimeError):
        with pytest.raises(kind, match="'grad_position' 1 is out of range, the call has 1 arguments"):
            ms.grad(lambda x: x.sum(), (0, 1))(Tensor([1.0]))


def test_unsigned_targets_do_not_wrap() -> None:
    """MindSpore computes 1 - 2 as 255 there."""
    x, y = Tensor([[0.3, -0.5], [1.2, 0.7]]), np.array([[1, 0], [2, 1]])
    want = ms.ops.multilabel_soft_margin_loss(x, Tensor(y.astype(np.float32)))
    assert ms.ops.multilabel_soft_margin_loss(x, Tensor(y.astype(np.uint8))).asnumpy() == want.asnumpy()


def test_absent_members_of_datasets() -> None:
    rows = dataset.NumpySlicesDataset(np.arange(6), shuffle=False)
    for found in (rows, rows.batch(2), rows.map(lambda x: x)):
        with pytest.raises(AttributeError) as error:
            found.sync_wait("policy")
        name = type(found).__name__
        assert str(error.value) == (
            f"'{name}' object has no attribute 'sync_wait'\n  hint: MindSpore 2.10 has this member of {name}, graphcell does not have it yet"
        )
        with pytest.raises(AttributeError) as error:
            found.qqqq  # noqa: B018
        assert str(error.value) == f"'{name}' object has no attribute 'qqqq'"
        assert not hasattr(found, "build_vocab") and copy.copy(found).get_dataset_size() == found.get_dataset_size()
