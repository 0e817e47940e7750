"""Primitive classes, and the functions of convolution, pooling, normalisation and losses, against what MindSpore 2.10 gave
(tests/programs/primitives.json), eagerly and compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, nn, ops
from graphcell.context import GRAPH_MODE, PYNATIVE_MODE
from tests.recording import check, load, ramp, recorded

PROGRAMS = list(load("primitives"))
COMPILED = [
    key for key in PROGRAMS if key == "in_cell" or (isinstance(recorded("primitives")[key], dict) and "gradients" in recorded("primitives")[key])
]


@pytest.mark.parametrize("key", PROGRAMS)
def test_eager(key: str) -> None:
    check("primitives", key, PYNATIVE_MODE)


@pytest.mark.slow
@pytest.mark.parametrize("key", COMPILED)
def test_gradients_compiled(key: str) -> None:
    check("primitives", key, GRAPH_MODE)


def test_old_homes_of_primitives_have_them() -> None:
    from graphcell.ops import composite, functional, operations
    from graphcell.ops.primitive import Primitive

    assert operations.ReLU is ops.ReLU and isinstance(operations.Add(), Primitive)
    assert functional.relu is ops.relu
    assert composite.GradOperation is ops.GradOperation


def test_a_primitive_without_definition_says_so() -> None:
    with pytest.raises(NotImplementedError, match="Strange"):
        ops.Primitive("Strange")(Tensor([1.0]))


def test_a_primitive_of_ones_own() -> None:
    class Scale(ops.PrimitiveWithInfer):
        @ops.prim_attr_register
        def __init__(self, by: float = 2.0):
            pass

        def construct(self, x: Any) -> Any:
            return x * self.by

    assert Scale(3.0)(Tensor([2.0])).asnumpy().tolist() == [6.0]
    assert repr(Scale()) == "Prim[Scale]<by=2.0>"


def test_place_and_shard_check_their_arguments() -> None:
    relu = ops.ReLU()
    assert relu.set_device("CPU") is relu
    relu.place("MS_WORKER", 0)
    with pytest.raises(ValueError, match="MS_WORKER"):
        relu.place("other", 0)
    with pytest.raises(TypeError):
        relu.place("MS_WORKER", "0")


def test_print_prints_when_a_graph_runs(capsys: Any) -> None:
    class Talk(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.print = ops.Print()

        def construct(self, x: Any) -> Any:
            self.print("value", x, (1, x * 2))
            return x

    ms.set_context(mode=GRAPH_MODE)
    net = Talk()
    for k in range(2):
        net(Tensor([k + 1.0, 2.0]))
    shown = "Tensor(shape=[2], dtype=Float32, value=[ {}  {}])"
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == ["value", shown.format("1.00000000e+00", "2.00000000e+00"), "1", shown.format("2.00000000e+00", "4.00000000e+00")]
    assert lines[5] == shown.format("2.00000000e+00", "2.00000000e+00")


@pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE])
def test_dropout_gives_what_its_mask_says(mode: int) -> None:
    class Both(nn.Cell):
        def construct(self, x: Any, image: Any) -> Any:
            return *ops.Dropout(0.6)(x), *ops.Dropout2D(0.6)(image)

    ms.set_context(mode=mode)
    ms.set_seed(3)
    x, image = Tensor(ramp((50, 40)) + 3), Tensor(ramp((20, 10, 2, 3)) + 3)
    y, mask, z, channels = (t.asnumpy() for t in Both()(x, image))
    assert abs(mask.mean() - 0.6) < 0.05 and set(np.unique(mask)) == {0.0, 1.0}
    np.testing.assert_allclose(y, x.asnumpy() * mask / 0.6, rtol=1e-6)
    assert channels.dtype == np.bool_ and (channels == channels[:, :, :1, :1]).all() and abs(channels.mean() - 0.6) < 0.1
    np.testing.assert_allclose(z, image.asnumpy() * channels / 0.6, rtol=1e-6)


def test_batch_norm_in_training_gives_and_moves_statistics() -> None:
    x = ramp((4, 2, 3, 3))
    mean, var = ms.Parameter(Tensor([0.0, 1.0]), name="m"), ms.Parameter(Tensor([1.0, 2.0]), name="v")
    y, m, v, _, _ = ops.BatchNorm(is_training=True, momentum=0.3)(Tensor(x), Tensor([1.0, 1.0]), Tensor([0.0, 0.0]), mean, var)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(m.asnumpy(), wide.mean((0, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(v.asnumpy(), wide.var((0, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(mean.asnumpy(), 0.7 * np.array([0.0, 1.0]) + 0.3 * wide.mean((0, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(var.asnumpy(), 0.7 * np.array([1.0, 2.0]) + 0.3 * wide.var((0, 2, 3), ddof=1), rtol=1e-5)
    np.testing.assert_allclose(y.asnumpy().mean((0, 2, 3)), 0, atol=1e-6)


def test_random_primitives_have_sequences_of_their_own() -> None:
    ms.set_seed(5)
    draw = ops.StandardNormal(seed=2)
    first, second = (draw((3,)).asnumpy().copy() for _ in range(2))
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(ops.StandardNormal(seed=2)((3,)).asnumpy(), first)
    ms.set_seed(5)
    np.testing.assert_array_equal(draw((3,)).asnumpy(), first)
    u = ops.UniformReal(seed=2)((1000,)).asnumpy()
    assert u.min() >= 0 and u.max() < 1 and abs(u.mean() - 0.5) < 0.05


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: ops.ReduceSum(keep_dims=1), TypeError),
        (lambda: ops.Dropout(2.0), ValueError),
        (lambda: ops.Dropout("x"), TypeError),
        (lambda: ops.Dropout2D(0.5)(Tensor([1.0])), ValueError),
        (lambda: ops.Conv2D(2, 3)(Tensor(ramp((1, 2, 4, 4))), Tensor(ramp((3, 2, 3, 3)))), ValueError),
        (lambda: ops.MaxPool(2)(Tensor(ramp((4, 4)))), ValueError),
        (lambda: ops.Pad(((1, 1),))(Tensor(ramp((2, 2)))), ValueError),
        (lambda: ops.Unstack(0, 3)(Tensor(ramp((2, 2)))), ValueError),
        (lambda: ops.Argmax(output_type=ms.float32), TypeError),
        (lambda: ops.BatchMatMul()(Tensor([1.0]), Tensor([1.0])), ValueError),
        (lambda: ops.CumSum()(Tensor([1.0]), 0.5), TypeError),
        (lambda: ops.Adam(use_nesterov=1), TypeError),
        (lambda: ops.SoftmaxCrossEntropyWithLogits()(Tensor(ramp((2, 3))), Tensor(ramp((2, 2)))), ValueError),
        (lambda: ops.SoftmaxCrossEntropyWithLogits()(Tensor(ramp((2,))), Tensor([1, 2])), TypeError),
        (lambda: ops.SparseSoftmaxCrossEntropyWithLogits()(Tensor(ramp((2, 3))), Tensor([1])), ValueError),
        (lambda: ops.InsertGradientOf(3), TypeError),
        (lambda: ops.Conv2D(0, 3), ValueError),
        (lambda: ops.Conv2D("a", 3), TypeError),
        (lambda: ops.Conv2D(4, 3, mode=2), ValueError),
        (lambda: ops.Conv3D(4, 3, group=0), ValueError),
        (lambda: ops.Conv2DTranspose(4, 3, mode=2), ValueError),
        (lambda: ops.TopK(3), TypeError),
        (lambda: ops.Sort("a"), TypeError),
        (lambda: ops.Sort(0, 1), TypeError),
        (lambda: ops.Squeeze("a"), TypeError),
        (lambda: ops.LpNorm("a"), TypeError),
        (lambda: ops.L2Normalize("a"), TypeError),
        (lambda: ops.BiasAdd("X"), ValueError),
        (lambda: ops.BatchNorm(data_format="X"), ValueError),
        (lambda: ops.KLDivLoss("x"), ValueError),
        (lambda: ops.NLLLoss("x"), ValueError),
        (lambda: ops.SmoothL1Loss("a"), TypeError),
        (lambda: ops.ReverseV2("a"), TypeError),
        (lambda: ops.BroadcastTo("a"), TypeError),
        (lambda: ops.AdaptiveAvgPool2D("a"), TypeError),
        (lambda: ops.Stack("a"), TypeError),
        (lambda: ops.MatMul()(Tensor(ramp((2, 3))), 3), TypeError),
        (lambda: ops.BatchMatMul()(3, Tensor(ramp((2, 3)))), TypeError),
        (lambda: ops.ReLU()(Tensor([1.0]), Tensor([1.0])), TypeError),
        (lambda: ops.Softplus()(Tensor([1.0]), Tensor([1.0])), TypeError),
    ],
)
def test_settings_are_checked(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        make()
