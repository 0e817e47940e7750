"""The further primitive classes, and layers around them, against what MindSpore 2.10 gave (tests/programs/further_primitives.json), eagerly and
compiled; against finite differences and numpy where MindSpore has no gradient, or none that is right.
"""

from __future__ import annotations

import itertools
import math
import sys
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, nn, ops
from graphcell.context import GRAPH_MODE, PYNATIVE_MODE
from tests.helpers import numeric_gradient
from tests.recording import check, differences, encode, load, ramp, recorded

PROGRAMS = list(load("further_primitives"))
TABLE = recorded("further_primitives")
MODULE = sys.modules["programs_further_primitives"]
WITHOUT_GRADIENT = [(f, x) for f, x in MODULE.CALLS if x and list(TABLE[f"{f} of {', '.join(x)}"]) == ["result"]]


@pytest.mark.parametrize("key", PROGRAMS)
def test_eager(key: str) -> None:
    check("further_primitives", key, PYNATIVE_MODE)


@pytest.mark.slow
@pytest.mark.parametrize("key", [key for key in PROGRAMS if "gradients" in TABLE[key]])
def test_gradients_compiled(key: str) -> None:
    check("further_primitives", key, GRAPH_MODE)


@pytest.mark.slow
@pytest.mark.parametrize(("function", "inputs"), WITHOUT_GRADIENT)
def test_results_compiled(function: str, inputs: list[str]) -> None:
    names = MODULE.names_of(ms)
    target = eval(function, names)

    @ms.jit
    def compiled(*args: Any) -> Any:
        return target(*args)

    found = differences(TABLE[f"{function} of {', '.join(inputs)}"]["result"], encode(compiled(*[eval(x, names) for x in inputs])))
    assert not found, "\n".join(found)


# -- gradients that MindSpore lacks ------------------------------------------------------------------------------------------
X, Y = ramp((3, 3)).astype(np.float64) + 3 * np.eye(3), ramp((3, 2), 1.0).astype(np.float64)
DEFINITE = np.array([[4, 1, 0.5], [1, 3, 0.2], [0.5, 0.2, 2]])
BOXES, OTHERS = np.array([[0, 0, 10, 10], [5, 5, 12.5, 12.2]]), np.array([[1, 1, 8, 9], [4, 4, 12, 11]], float)
ROWS = Tensor([[5, 2], [8, 3]], ms.int32)


@pytest.mark.parametrize("mode", [PYNATIVE_MODE, pytest.param(GRAPH_MODE, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("function", "arrays"),
    [
        (ops.MatrixInverse(adjoint=True), [X]),
        (lambda x: ops.Cholesky()(x @ x.T), [X]),
        (lambda x: ops.Cholesky(upper=True)(x @ x.T), [X]),
        (lambda x: ops.CholeskyInverse()(x.tril()), [X]),
        (lambda x: ops.CholeskyInverse(True)(x.triu()), [X]),
        (lambda b, x: ops.CholeskySolve()(b, x.tril()), [Y, X]),
        (lambda b, x: ops.CholeskySolve(True)(b, x.triu()), [Y, X]),
        (ops.Lstsq(), [np.eye(4, 3) + ramp((4, 3)), ramp((4, 2), 1.0).astype(np.float64)]),
        (lambda x: ops.Qr()(x)[1], [X]),
        (lambda x: ops.Cummax(0)(x)[0], [X]),
        (lambda x: ops.Cummin(1)(x)[0], [X]),
        (ops.FillDiagonal(9.0), [X]),
        (ops.ChannelShuffle(2), [ramp((1, 4, 2, 1)).astype(np.float64)]),
        (ops.InplaceAdd((0, 2)), [X, ramp((2, 3), 1.0).astype(np.float64)]),
        (ops.InplaceSub((0, 2)), [X, ramp((2, 3), 1.0).astype(np.float64)]),
        (lambda x, v: ops.InplaceUpdateV2()(x, (0, 2), v), [X, ramp((2, 3), 1.0).astype(np.float64)]),
        (lambda x: ops.EmbeddingLookup()(x, ROWS, 2), [ramp((4, 2)).astype(np.float64)]),
        (lambda x, p: ops.MatrixDiagV3()(x, Tensor([-1, 0]), Tensor(3), Tensor(3), p), [ramp((2, 3)).astype(np.float64), np.array(0.5)]),
        (lambda x, p: ops.MatrixDiagPartV3()(x, Tensor([-1, 1]), p), [X, np.array(0.5)]),
        (ops.IOU(), [BOXES, OTHERS]),
        (ops.IOU("iof"), [BOXES, OTHERS]),
        (ops.BoundingBoxEncode(), [BOXES, OTHERS]),
        (ops.BoundingBoxDecode((768, 1280), stds=(0.5, 1.0, 1.0, 2.0)), [OTHERS, np.array([[0.1, 0.2, 0.3, 0.4], [0.5, -1, 1, 0.9]])]),
        (lambda x, w: ops.MultiMarginLoss(2, 0.5, "sum")(x, Tensor([1, 0, 3]), w), [ramp((3, 4)).astype(np.float64), np.arange(1.0, 5.0)]),
        (nn.Norm(axis=1), [X]),
    ],
)  # fmt: skip
def test_gradients_are_finite_differences(function: Any, arrays: list[np.ndarray[Any, Any]], mode: int) -> None:
    ms.set_context(mode=mode)
    weights = Tensor(np.cos(np.arange(function(*map(Tensor, arrays)).size, dtype=np.float64)))

    def total(*args: Any) -> Any:
        return (function(*args).reshape(-1) * weights).sum()

    found = ms.grad(total, tuple(range(len(arrays))))(*map(Tensor, arrays))
    for k, g in enumerate(found if isinstance(found, tuple) else (found,)):
        want = numeric_gradient(lambda *args: float(total(*map(Tensor, args)).asnumpy()), arrays, k)
        np.testing.assert_allclose(g.asnumpy(), want, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [PYNATIVE_MODE, pytest.param(GRAPH_MODE, marks=pytest.mark.slow)])
def test_ctc_of_sequences_of_several_lengths(mode: int) -> None:
    """The chance is the sum over all ways to write the labels; the second output is the gradient of the first."""
    ms.set_context(mode=mode)
    x = ramp((4, 3, 4)).astype(np.float64)
    labels, steps, blank = [[1, 0], [2], [1, 1]], [4, 2, 3], 3
    places = Tensor([[n, k] for n, line in enumerate(labels) for k in range(len(line))], ms.int64)
    values = Tensor([c for line in labels for c in line], ms.int32)

    def losses(x: Any) -> Any:
        return ops.CTCLoss()(x, places, values, Tensor(steps, ms.int32))

    def chance(n: int, p: np.ndarray[Any, Any]) -> float:
        ways = itertools.product(range(4), repeat=steps[n])
        written = [(way, [c for k, c in enumerate(way) if c != blank and (k == 0 or way[k - 1] != c)]) for way in ways]
        return sum(math.prod(p[t, n, c] for t, c in enumerate(way)) for way, line in written if line == labels[n])

    p = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    loss, gradient = losses(Tensor(x))
    np.testing.assert_allclose(loss.asnumpy(), [-math.log(chance(n, p)) for n in range(3)], rtol=1e-9)
    want = numeric_gradient(lambda a: float(losses(Tensor(a))[0].asnumpy().sum()), [x], 0)
    np.testing.assert_allclose(gradient.asnumpy(), want, rtol=1e-6, atol=1e-8)
    found = ms.grad(lambda x: losses(x)[0].sum())(Tensor(x))
    np.testing.assert_allclose(found.asnumpy(), want, rtol=1e-6, atol=1e-8)


def test_ctc_ignores_labels_with_too_few_steps_if_asked_to() -> None:
    places, values, steps = Tensor([[0, 0], [0, 1], [1, 0]], ms.int64), Tensor([1, 2, 1], ms.int32), Tensor([1, 2], ms.int32)
    x = Tensor(ramp((2, 2, 5)))
    with pytest.raises(RuntimeError, match="fewer steps"):
        ops.CTCLoss()(x, places, values, steps)
    loss, gradient = ops.CTCLoss(ignore_longer_outputs_than_inputs=True)(x, places, values, steps)
    assert loss.asnumpy()[0] == 0 and loss.asnumpy()[1] > 0
    assert not gradient.asnumpy()[:, 0].any() and gradient.asnumpy()[:, 1].any()


# -- what MindSpore 2.10 has no right result for --------------------------------------------------------------------------------
def test_counts_of_what_is_not_zero() -> None:
    x = np.array([[0, 1, 2], [3, 0, 0]], np.float32)
    assert int(ops.CountNonZero()(Tensor(x))) == 3
    assert ops.CountNonZero(dims=[1])(Tensor(x)).asnumpy().tolist() == [2, 1]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_bits_are_counted_in_every_integer(dtype: Any) -> None:
    limits = np.iinfo(dtype)
    values = [limits.min, limits.max, 0, 1, limits.max // 3, limits.max - 5]
    width = limits.bits
    want = [bin(int(v) % (1 << width)).count("1") for v in values]
    assert ops.PopulationCount()(Tensor(np.array(values, dtype))).asnumpy().tolist() == want


def test_no_nan_primitives_give_zero_and_finite_gradients() -> None:
    x, y = Tensor([np.inf, np.nan, 3.0]), Tensor([0.0, 0.0, 2.0])
    assert ops.MulNoNan()(x, y).asnumpy().tolist() == [0, 0, 6]
    assert ops.DivNoNan()(Tensor([1.0, 0.0, 3.0]), y).asnumpy().tolist() == [0, 0, 1.5]
    grads = ms.grad(lambda x, y: ops.DivNoNan()(x, y).sum(), (0, 1))(Tensor([1.0, 0.0, 3.0]), y)
    assert [g.asnumpy().tolist() for g in grads] == [[0, 0, 0.5], [0, 0, -0.75]]


def test_a_padding_value_that_is_computed_in_a_graph() -> None:
    @ms.jit
    def padded(x: Any, value: Any) -> Any:
        return ops.PadV3()(x, [1, 2], value * 2)

    x = ramp((2, 3))
    np.testing.assert_array_equal(padded(Tensor(x), Tensor(1.5)).asnumpy(), np.pad(x, ((0, 0), (1, 2)), constant_values=3))


def test_a_graph_raises_for_a_sequence_longer_than_the_rows() -> None:
    reverse = ms.jit(lambda x, n: ops.ReverseSequence(1)(x, n))
    x = Tensor(ramp((2, 3)))
    np.testing.assert_array_equal(reverse(x, Tensor([2, 0])).asnumpy(), [x.asnumpy()[0, [1, 0, 2]], x.asnumpy()[1]])
    with pytest.raises(RuntimeError, match="seq_lengths"):
        reverse(x, Tensor([2, 4]))


def test_better_boxes_cross_out_worse_ones() -> None:
    generator = np.random.default_rng(7)
    corners = generator.uniform(0, 20, (30, 2))
    boxes = np.concatenate([corners, corners + generator.uniform(3, 15, (30, 2)), generator.permutation(30)[:, None] / 30], 1).astype(np.float32)
    ordered = boxes[np.argsort(-boxes[:, 4])].astype(np.float64)
    left: list[int] = []
    for k, b in enumerate(ordered):
        others = ordered[left]
        sides = np.minimum(others[:, 2:4], b[2:4]) - np.maximum(others[:, :2], b[:2])
        shared = np.maximum(sides, 0).prod(1)
        whole = (others[:, 2:4] - others[:, :2]).prod(1) + (b[2:4] - b[:2]).prod() - shared
        if not (shared > 0.3 * whole).any():
            left.append(k)
    for call in (ops.NMSWithMask(0.3), ms.jit(lambda x: ops.NMSWithMask(0.3)(x))):
        found, numbers, mask = call(Tensor(boxes))
        np.testing.assert_array_equal(found.asnumpy(), ordered.astype(np.float32))
        assert numbers.asnumpy().tolist() == list(range(30)) and np.flatnonzero(mask.asnumpy()).tolist() == left


# -- in Cells ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE])
def test_results_whose_shape_depends_on_values_in_cells(mode: int) -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.select, self.places, self.unique = ops.MaskedSelect(), ops.NonZero(), ops.Unique()

        def construct(self, x: Any) -> Any:
            return self.select(x, x > 0), self.places(x > 0), self.unique(x)

    ms.set_context(mode=mode)
    net = Net()
    for values in ([1.0, -1.0, 1.0], [2.0, 2.0, 3.0]):
        x = np.array(values, np.float32)
        taken, places, (different, numbers) = net(Tensor(x))
        np.testing.assert_array_equal(taken.asnumpy(), x[x > 0])
        np.testing.assert_array_equal(places.asnumpy(), np.argwhere(x > 0))
        np.testing.assert_array_equal(different.asnumpy()[numbers.asnumpy()], x)
        assert len(different) == len(set(values))


@pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE])
def test_layers_give_what_numpy_gives(mode: int) -> None:
    ms.set_context(mode=mode)
    x = ramp((3, 4, 2))
    mean, variance = nn.Moments((0, 2))(Tensor(x))
    np.testing.assert_allclose(mean.asnumpy(), x.astype(np.float64).mean((0, 2)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(variance.asnumpy(), x.astype(np.float64).var((0, 2)), rtol=1e-5)
    np.testing.assert_array_equal(nn.Tril()(Tensor(x[0]), -1).asnumpy(), np.tril(x[0], -1))
    np.testing.assert_array_equal(nn.Triu()(Tensor(x[0]), 1).asnumpy(), np.triu(x[0], 1))
    np.testing.assert_array_equal(nn.Range(10, 2, -3)().asnumpy(), np.arange(10, 2, -3))
    hot = nn.OneHot(0, 3, 2, 0.5, ms.float32)(Tensor([0, 1, 4]))
    np.testing.assert_array_equal(hot.asnumpy(), [[2, 0.5, 0.5], [0.5, 2, 0.5], [0.5, 0.5, 0.5]])
    assert [str(c) for c in (nn.Moments(), nn.Range(3), nn.Norm(), nn.OneHot(), nn.Tril())] == [
        "Moments()", "Range()", "Norm(axis=(), keep_dims=False)", "OneHot()", "Tril()",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: ops.Cross(dim="x"), TypeError),
        (lambda: ops.Cdist(p=-1.0), ValueError),
        (lambda: ops.Cdist(p="x"), TypeError),
        (lambda: ops.Pdist(-1.0), ValueError),
        (lambda: ops.AdaptiveMaxPool2D((2, 3, 4)), ValueError),
        (lambda: ops.UniqueConsecutive(1), TypeError),
        (lambda: ops.GLU(axis="x"), TypeError),
        (lambda: ops.Cummax("x"), TypeError),
        (lambda: ops.ReduceStd(unbiased=3), TypeError),
        (lambda: ops.MaskedSelect()(Tensor([1.0]), Tensor([1.0])), TypeError),
        (lambda: ops.CTCLoss(ctc_merge_repeated=False), NotImplementedError),
        (lambda: ops.LSTM(3, 2, 2, True, False, 0.0), NotImplementedError),
        (lambda: ops.LSTM(3, 2, 1, True, False, 0.0)(*(Tensor(ramp(s)) for s in ((4, 2, 3), (1, 2, 2), (1, 2, 2), (40, 1, 1)))), ValueError),
        (lambda: ops.MatrixDiagPartV3("x"), ValueError),
        (lambda: ops.MatrixDiagPartV3()(Tensor(ramp((2, 3))), Tensor(3), Tensor(0.0)), ValueError),
        (lambda: ops.MatrixDiagV3()(Tensor(ramp((2, 3))), Tensor(0), Tensor(2), Tensor(2), Tensor(0.0)), ValueError),
        (lambda: ops.UnravelIndex()(Tensor([6]), Tensor([2, 3])), ValueError),
        (lambda: ops.InvertPermutation()((0, 0)), ValueError),
        (lambda: ops.Conv3DTranspose(2, 3, 2, output_padding=1), ValueError),
        (lambda: ops.conv3d_transpose(Tensor(ramp((1, 2, 2, 2, 2))), Tensor(ramp((3, 2, 2, 2, 2)))), ValueError),
        (lambda: ops.UpsampleNearest3D()(Tensor(ramp((1, 1, 2, 2, 2)))), ValueError),
        (lambda: ops.NMSWithMask()(Tensor(ramp((2, 4)))), ValueError),
        (lambda: ops.PopulationCount()(Tensor([1.0])), TypeError),
        (lambda: ops.fftfreq(4, dtype=ms.int32), TypeError),
        (lambda: nn.Range(1, 5, 0), ValueError),
        (lambda: nn.Norm("x"), TypeError),
    ],
)
def test_settings_and_inputs_are_checked(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        make()
