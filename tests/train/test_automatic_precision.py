"""Level 'auto' of mixed precision, against MindSpore's dtypes and values, in both modes."""

from __future__ import annotations

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, nn, ops
from graphcell.ops import automatic
from tests.recording import check, load


@pytest.mark.filterwarnings("ignore:The network's auto mixed-precision level")
@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
@pytest.mark.parametrize("key", list(load("automatic_precision")))
def test_as_mindspore(key: str, mode: int) -> None:
    check("automatic_precision", key, mode, 2e-3)


def test_the_lists_name_functions() -> None:
    """All names of the lists are decorated functions, which come through `called`."""
    from graphcell.ops.functional import convolution, normalization

    of_layers = {"conv_transpose": convolution.conv_transpose, "normalize_batch": normalization.normalize_batch}
    for name in automatic.NARROW | automatic.NARROW_BUT_BIAS | automatic.WIDE | automatic.WIDE_BUT_MEAN | automatic.ALIKE | automatic.OPEN:
        assert hasattr(of_layers.get(name) or getattr(ops, name), "__wrapped__"), name


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
def test_bfloat16_and_float64(mode: int) -> None:
    ms.set_context(mode=mode)
    net = ms.amp.auto_mixed_precision(nn.Dense(3, 2, has_bias=False), "auto", ms.bfloat16)
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    assert net(Tensor(x)).dtype is ms.bfloat16
    exp = ms.amp.auto_mixed_precision(lambda x: (ops.matmul(x, x.T), ops.exp(x)), "auto")
    assert [y.dtype for y in exp(Tensor(x.astype(np.float64)))] == [ms.float16, ms.float32]  # as MindSpore's


def test_casts_end_with_the_call() -> None:
    net = ms.amp.auto_mixed_precision(nn.Dense(3, 2, has_bias=False), "auto")

    def raises(x: Tensor) -> Tensor:
        raise KeyError("mine")

    with pytest.raises(KeyError):
        ms.amp.auto_mixed_precision(raises, "auto")(Tensor([1.0]))
    assert not automatic.are_on()
    x = Tensor(np.ones((2, 3), np.float32))
    assert net(x).dtype is ms.float16 and ops.matmul(x, x.T).dtype is ms.float32 and not automatic.are_on()


def test_compiled_functions_inside_cast_too() -> None:
    """And what they compiled for calls outside stays."""
    x = Tensor(np.ones((2, 3), np.float32))

    @ms.jit
    def product(x: Tensor) -> Tensor:
        return ops.matmul(x, x.T)

    narrow = ms.amp.auto_mixed_precision(lambda x: product(x), "auto")
    for _ in range(3):
        assert product(x).dtype is ms.float32 and narrow(x).dtype is ms.float16
    inner = nn.Dense(3, 2, has_bias=False)
    for mode in (ms.GRAPH_MODE, ms.PYNATIVE_MODE):
        ms.set_context(mode=mode)
        assert [inner(x).dtype, ms.amp.auto_mixed_precision(lambda x: inner(x), "auto")(x).dtype, inner(x).dtype] == [ms.float32, ms.float16, ms.float32]


def test_a_compiled_cell_notices_the_level() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    net, x = nn.Dense(3, 2, has_bias=False), Tensor(np.ones((2, 3), np.float32))
    assert net(x).dtype is ms.float32
    ms.amp.auto_mixed_precision(net, "auto")
    assert net(x).dtype is ms.float16
