"""Less common layers and losses against what MindSpore 2.10 printed, computed and refused (tests/programs/more_layers.json)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, nn
from graphcell.context import GRAPH_MODE, PYNATIVE_MODE
from tests.recording import check, differences, load, ramp, recorded, run

DIFFERENT = {
    "upsample bicubic": "MindSpore looks weights up in a table of 1024 entries",
    "clip by norm axis": "MindSpore takes the norm of other elements than those along the axis",
    "embedding lookup": "MindSpore gives the gradient of the rows that were looked up, not of the table",
    "sampled softmax": "MindSpore does not remove accidental hits",
    "fractional pool size": "MindSpore has no gradient of it on the CPU",
    "fractional pool ratio": "the same",
}
PROGRAMS = [key for key in load("more_layers") if key not in DIFFERENT]
COMPILED = [key for key in PROGRAMS if isinstance(recorded("more_layers")[key], dict) and "inference" in recorded("more_layers")[key]]


@pytest.mark.parametrize("key", PROGRAMS)
def test_eager(key: str) -> None:
    check("more_layers", key, PYNATIVE_MODE, 3e-4)


@pytest.mark.slow
@pytest.mark.parametrize("key", COMPILED)
def test_compiled(key: str) -> None:
    check("more_layers", key, GRAPH_MODE, 3e-4)


def outputs_only(key: str) -> Any:
    """What the layer gives, without gradients."""
    return {k: v for k, v in run(load("more_layers")[key], ms).items() if k != "training"}


@pytest.mark.parametrize("key", ["embedding lookup", "fractional pool size", "fractional pool ratio"])
def test_outputs_alone(key: str) -> None:
    want = {k: v for k, v in recorded("more_layers")[key].items() if k != "training"}
    for mode in (GRAPH_MODE, PYNATIVE_MODE):
        ms.set_context(mode=mode)
        assert not differences(want, outputs_only(key))


@pytest.mark.parametrize("key", DIFFERENT)
def test_known_differences_are_differences(key: str) -> None:
    with pytest.raises(AssertionError):
        check("more_layers", key, PYNATIVE_MODE, 3e-4)


@pytest.fixture(params=[GRAPH_MODE, PYNATIVE_MODE], ids=["graph", "pynative"])
def mode(request: pytest.FixtureRequest) -> int:
    ms.set_context(mode=request.param)
    return int(request.param)


def test_similarity_of_images(mode: int) -> None:
    """MindSpore computes these in graph mode only; the numbers are from there."""
    x, y = (Tensor(np.abs(ramp((2, 3, 4, 4), start)) / 2) for start in (0.0, 2.0))
    np.testing.assert_allclose(nn.PSNR()(x, y).asnumpy(), [5.1413293, 5.1645193], rtol=1e-5)
    x, y = (Tensor(np.abs(ramp((1, 3, 12, 12), start)) / 2) for start in (0.0, 2.0))
    np.testing.assert_allclose(nn.SSIM()(x, y).asnumpy(), [-0.2909822], rtol=1e-4)
    x, y = (Tensor(np.abs(ramp((2, 1, 6, 7), start)) * 100) for start in (0.0, 2.0))
    np.testing.assert_allclose(nn.SSIM(255.0, 5, 1.0, 0.02, 0.04)(x, y).asnumpy(), [-0.6063804, -0.61331636], rtol=1e-4)
    np.testing.assert_allclose(nn.SSIM()(*[Tensor(np.abs(ramp((1, 1, 12, 12))))] * 2).asnumpy(), [1.0], rtol=1e-5)
    x, y = (Tensor(np.abs(ramp((2, 2, 32, 32), start)) / 2) for start in (0.0, 0.3))
    np.testing.assert_allclose(nn.SSIM(filter_size=4)(x, y).asnumpy(), [0.793413, 0.7933645], rtol=1e-5)
    np.testing.assert_allclose(nn.MSSSIM(1.0, (0.3, 0.4, 0.3), filter_size=5)(x, y).asnumpy(), [0.6818768, 0.68135], rtol=5e-5)
    np.testing.assert_allclose(nn.MSSSIM(filter_size=2)(x, y).asnumpy(), [0.7681834, 0.7683321], rtol=5e-5)


@pytest.mark.parametrize("padding", ["valid", "same"])
def test_unfold_gives_windows(mode: int, padding: str) -> None:
    image = ramp((1, 2, 5, 6))
    got = nn.Unfold([1, 2, 3, 1], [1, 2, 2, 1], [1, 2, 1, 1], padding)(Tensor(image)).asnumpy()
    padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (0, 1))) if padding == "same" else image
    rows, columns = (3, 3) if padding == "same" else (2, 2)
    assert got.shape == (1, 12, rows, columns)
    for r in range(rows):
        for c in range(columns):
            window = padded[0, :, 2 * r : 2 * r + 3 : 2, 2 * c : 2 * c + 3]
            np.testing.assert_array_equal(got[0, :, r, c], window.transpose(1, 2, 0).ravel())


def test_multilabel_margin_loss_is_the_sum_over_pairs(mode: int) -> None:
    x, targets = ramp((3, 5)), [[1, 2, -1, 3, 0], [0, 4, 1, 2, -1], [-1, 0, 0, 0, 0]]
    want = []
    for row, target in zip(x, targets, strict=True):
        right = target[: target.index(-1)]
        wrong = [k for k in range(5) if k not in right]
        want.append(sum(max(0.0, 1 - (row[a] - row[b])) for a in right for b in wrong) / 5)
    labels = Tensor(np.array(targets, np.int32))
    np.testing.assert_allclose(nn.MultilabelMarginLoss("none")(Tensor(x), labels).asnumpy(), want, rtol=1e-5)
    np.testing.assert_allclose(nn.MultilabelMarginLoss()(Tensor(x[0]), labels[0]).asnumpy(), want[0], rtol=1e-5)
    assert nn.MultilabelMarginLoss("sum")(Tensor(x), labels).item() == pytest.approx(sum(want), rel=1e-5)


def test_sampled_softmax_removes_right_classes_from_the_sample(mode: int) -> None:
    """All classes are sampled: what is left is the full softmax."""
    weights, biases, labels, x = ramp((6, 4)), ramp((6,)), np.array([0, 3]), ramp((2, 4))
    scores = x @ weights.T + biases
    want = np.log(np.exp(scores).sum(1)) - scores[[0, 1], labels]
    for given in (labels, labels[:, None]):
        got = nn.SampledSoftmaxLoss(6, 6)(Tensor(weights), Tensor(biases), Tensor(given), Tensor(x))
        np.testing.assert_allclose(got.asnumpy(), want, rtol=1e-5)


def alignments(log_probs: Any, labels: list[int], blank: int) -> float:
    """-log of the chance of the labels, by going through all sequences of classes."""
    steps, classes = log_probs.shape
    total = 0.0
    for path in itertools.product(range(classes), repeat=steps):
        collapsed = [k for k, _ in itertools.groupby(path)]
        if [k for k in collapsed if k != blank] == labels:
            total += np.exp(sum(log_probs[t, k] for t, k in enumerate(path)))
    return float(-np.log(total)) if total else np.inf


def test_ctc_loss_is_the_chance_of_all_alignments(mode: int) -> None:
    x = ramp((5, 3, 3)).astype(np.float64)
    log_probs = x - np.log(np.exp(x).sum(2, keepdims=True))
    targets, labels, steps = [[1, 1, 2], [2, 1, 0], [1, 1, 1]], [3, 2, 3], [5, 4, 4]
    want = [alignments(log_probs[:t, n], targets[n][: labels[n]], 0) for n, t in enumerate(steps)]
    assert want[2] == np.inf  # three labels alike need two blanks between them
    arguments = (Tensor(log_probs), Tensor(targets, ms.int32), Tensor(steps, ms.int32), Tensor(labels, ms.int32))
    np.testing.assert_allclose(nn.CTCLoss(0, "none")(*arguments).asnumpy(), want, rtol=1e-9)
    np.testing.assert_allclose(nn.CTCLoss(0, "none", True)(*arguments).asnumpy(), [*want[:2], 0], rtol=1e-9)
    got = nn.CTCLoss(0, "mean", True)(*arguments)
    assert got.item() == pytest.approx((want[0] / 3 + want[1] / 2) / 3, rel=1e-9)


def test_ctc_gradient_of_what_is_impossible_is_zero(mode: int) -> None:
    loss = nn.CTCLoss(reduction="sum", zero_infinity=True)
    labels, steps, count = Tensor([[1, 1]], ms.int32), Tensor([2], ms.int32), Tensor([2], ms.int32)
    assert not ms.grad(lambda x: loss(x, labels, steps, count))(Tensor(ramp((4, 1, 3)))).asnumpy().any()


@pytest.mark.parametrize(("steps", "labels", "what"), [(5, 1, "input_lengths"), (4, 2, "target_lengths")])
def test_ctc_lengths_must_fit(mode: int, steps: int, labels: int, what: str) -> None:
    log_probs = Tensor(ramp((4, 1, 3)))
    with pytest.raises(RuntimeError, match=f"ctc_loss: {what}: .*out of range"):
        nn.CTCLoss()(log_probs, Tensor([[1]], ms.int32), Tensor([steps], ms.int32), Tensor([labels], ms.int32))


def test_fractional_pooling_draws_places_anew(mode: int) -> None:
    ms.set_seed(0)
    x = Tensor(ramp((1, 4, 20, 20)))
    layer = nn.FractionalMaxPool2d(2, output_ratio=0.6, return_indices=True)
    found = [layer(x) for _ in range(3)]
    for y, places in found:
        assert y.shape == (1, 4, 12, 12)
        np.testing.assert_array_equal(np.take_along_axis(x.asnumpy().reshape(4, 400), places.asnumpy().reshape(4, 144), 1), y.asnumpy().reshape(4, 144))
    assert any((a[1].asnumpy() != b[1].asnumpy()).any() for a, b in itertools.pairwise(found))


def test_tables_and_weights_start_as_documented() -> None:
    weight = nn.BiDense(64, 16, 8).weight.asnumpy()
    assert abs(weight).max() <= 1 / 8
    np.testing.assert_allclose(weight.std(), 1 / 8 / np.sqrt(3), rtol=0.05)
    np.testing.assert_allclose(nn.EmbeddingLookup(200, 64).embedding_table.asnumpy().std(), 0.01, rtol=0.05)


def test_rows_of_an_embedding_are_clipped(mode: int) -> None:
    table = Tensor([[3.0, 4.0], [0.3, 0.4]])
    got = nn.EmbeddingLookup(2, 2, table, max_norm=1.0)(Tensor([0, 1, 0]))
    np.testing.assert_allclose(got.asnumpy(), [[0.6, 0.8], [0.3, 0.4], [0.6, 0.8]], rtol=1e-6)


def test_matrices(mode: int) -> None:
    x = ramp((2, 3, 3))
    np.testing.assert_allclose(nn.MatDet()(Tensor(x)).asnumpy(), np.linalg.det(x.astype(np.float64)), rtol=1e-4)
    np.testing.assert_allclose(nn.MatInverse()(Tensor(x)).asnumpy(), np.linalg.inv(x.astype(np.float64)), rtol=1e-3, atol=1e-4)
    for shape in ((2, 3, 3), (2, 2, 4), (4, 2)):
        want, diagonal = ramp(shape), ramp((*shape[:-2], min(shape[-2:])), 9.0)
        got = nn.MatrixSetDiag()(Tensor(want), Tensor(diagonal)).asnumpy()
        k = np.arange(min(shape[-2:]))
        want[..., k, k] = diagonal
        np.testing.assert_array_equal(got, want)
    with pytest.raises(ValueError, match="does not fit"):
        nn.MatrixSetDiag()(Tensor(ramp((2, 3))), Tensor(ramp((3,))))


@pytest.mark.parametrize("name", ["Conv1d", "Conv1dTranspose"])
def test_weights_of_flat_convolutions_are_given_without_their_row(name: str) -> None:
    """As MindSpore takes them: three dimensions, kept as four."""
    weight = np.arange(24, dtype=np.float32).reshape((4, 2, 3) if name == "Conv1d" else (2, 4, 3))
    layer = getattr(nn, name)(2, 4, 3, pad_mode="pad", padding=1, weight_init=Tensor(weight))
    assert np.array_equal(layer.weight.asnumpy(), weight[:, :, None])
    first = layer(Tensor(np.ones((1, 2, 5), np.float32))).asnumpy().ravel()[:6]
    assert np.array_equal(first, [12, 15, 15, 15, 8, 36] if name == "Conv1d" else [26, 42, 42, 42, 30, 38])
    with pytest.raises(ValueError, match="must = 3, but got '4'"):
        getattr(nn, name)(2, 4, 3, weight_init=Tensor(weight[:, :, None]))
