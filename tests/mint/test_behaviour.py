"""What tables of calls do not show: random numbers, what is written in place, how layers begin, errors, and training."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, mint, nn, ops
from graphcell.mint.nn import functional as F
from tests.recording import ramp

MODES = pytest.mark.parametrize("compiled", [False, True])


def run(function: Callable[..., Any], compiled: bool, *args: Any) -> Any:
    return (ms.jit(function) if compiled else function)(*args)


# -- random numbers ------------------------------------------------------------------------------------------------------
@MODES
def test_distributions(compiled: bool) -> None:
    def draw() -> Any:
        return mint.rand(100, 100), mint.randn((100, 100)), mint.randint(3, 7, (10000,)), mint.normal(2.0, 0.5, (100, 100))

    ms.set_seed(1)
    uniform, normal, integers, other = (x.asnumpy() for x in run(draw, compiled))
    assert 0 <= uniform.min() < 0.01 and 0.99 < uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.02
    assert abs(normal.mean()) < 0.05 and abs(normal.std() - 1) < 0.05
    assert sorted(set(integers.tolist())) == [3, 4, 5, 6] and abs((integers == 3).mean() - 0.25) < 0.03
    assert abs(other.mean() - 2) < 0.05 and abs(other.std() - 0.5) < 0.03


@MODES
def test_drawn_of_tensors(compiled: bool) -> None:
    p = Tensor(np.float32([0.1, 0.9]) * np.ones((5000, 1), np.float32))

    def draw(p: Tensor) -> Any:
        return mint.bernoulli(p), mint.normal(p, 0.0), mint.multinomial(p, 1), mint.randint_like(p, 5), mint.normal(0.0, p)

    ms.set_seed(1)
    coins, means, classes, integers, spread = (x.asnumpy() for x in run(draw, compiled, p))
    np.testing.assert_allclose(coins.mean(0), [0.1, 0.9], atol=0.02)
    np.testing.assert_allclose(means, p.asnumpy())
    assert classes.dtype == np.int64 and abs(classes.mean() - 0.9) < 0.02
    assert integers.dtype == np.float32 and set(integers.ravel().tolist()) == {0, 1, 2, 3, 4}
    np.testing.assert_allclose(spread.std(0), [0.1, 0.9], rtol=0.05)


def test_generators_are_sources() -> None:
    first, second = ms.Generator(), ms.Generator()
    for draw in (
        lambda g: mint.rand(4, generator=g), lambda g: mint.randn(4, generator=g), lambda g: mint.randint(9, (4,), generator=g),
        lambda g: mint.randperm(6, generator=g), lambda g: mint.normal(size=(4,), generator=g), lambda g: mint.bernoulli(Tensor([0.5] * 9), generator=g),
        lambda g: mint.multinomial(Tensor([0.5] * 9), 4, generator=g),
    ):  # fmt: skip
        first.manual_seed(3)
        second.manual_seed(3)
        a, b, c = draw(first), draw(second), draw(second)
        assert (a.asnumpy() == b.asnumpy()).all() and (b.asnumpy() != c.asnumpy()).any()


def test_orders() -> None:
    assert sorted(mint.randperm(6).asnumpy().tolist()) == list(range(6)) and mint.randperm(0).shape == (0,)
    assert (mint.randperm(200).asnumpy() != mint.randperm(200).asnumpy()).any()
    assert sorted(mint.multinomial(Tensor([0.5, 0.2, 0.3]), 3).asnumpy().tolist()) == [0, 1, 2]


@MODES
def test_dropout(compiled: bool) -> None:
    x = Tensor(np.ones((20, 50, 4, 5), np.float32))
    ms.set_seed(1)
    single, channels = (y.asnumpy() for y in run(lambda x: (F.dropout(x, 0.3), F.dropout2d(x, p=0.3)), compiled, x))
    for y in (single, channels):
        np.testing.assert_allclose(np.unique(y), [0, 1 / 0.7], rtol=1e-6)
    assert abs((single == 0).mean() - 0.3) < 0.02
    whole = channels.reshape(20, 50, 20)
    assert (whole == whole[..., :1]).all() and abs((whole == 0).mean() - 0.3) < 0.05
    for layer in (mint.nn.Dropout(0.3), mint.nn.Dropout2d(p=0.3)):
        layer.set_train(False)
        assert (layer(x).asnumpy() == 1).all()
        layer.set_train()
        assert abs((layer(x).asnumpy() == 0).mean() - 0.3) < 0.05


# -- in place --------------------------------------------------------------------------------------------------------------
IN_PLACE: list[tuple[Callable[[Any], Any], Callable[[np.ndarray], np.ndarray]]] = [
    (F.relu_, lambda x: np.maximum(x, 0)),
    (F.elu_, lambda x: np.where(x > 0, x, np.expm1(x))),
    (lambda x: F.hardtanh_(x, -0.5, 0.5), lambda x: np.clip(x, -0.5, 0.5)),
    (lambda x: F.threshold_(x, 0.1, 20.0), lambda x: np.where(x > 0.1, x, 20.0)),
    (lambda x: F.silu(x, inplace=True), lambda x: x / (1 + np.exp(-x))),
    (lambda x: F.relu6(x, True), lambda x: np.clip(x, 0, 6)),
    (lambda x: F.dropout(x, 0.0, inplace=True), lambda x: x),
    (lambda x: F.dropout2d(x, 1.0, inplace=True), np.zeros_like),
    (mint.nn.ELU(0.5, inplace=True), lambda x: np.where(x > 0, x, 0.5 * np.expm1(x))),
    (mint.nn.Threshold(0.1, 20.0, True), lambda x: np.where(x > 0.1, x, 20.0)),
]


@MODES
@pytest.mark.parametrize("case", range(len(IN_PLACE)))
def test_in_place(case: int, compiled: bool) -> None:
    function, expected = IN_PLACE[case]
    x = Tensor(ramp((2, 3)))
    found = run(lambda x: function(x), compiled, x)
    want = expected(ramp((2, 3)).astype(np.float64))
    for y in (x, found):
        np.testing.assert_allclose(y.asnumpy(), want, rtol=1e-5, atol=1e-6)


@MODES
def test_parts_of_real_numbers(compiled: bool) -> None:
    real, imaginary = run(lambda x: (mint.real(x), mint.imag(x)), compiled, Tensor(ramp((2, 3))))
    np.testing.assert_array_equal(real.asnumpy(), ramp((2, 3)))
    np.testing.assert_array_equal(imaginary.asnumpy(), np.zeros((2, 3)))


@MODES
def test_results_are_new(compiled: bool) -> None:
    x = Tensor(ramp((4, 3)))
    y = run(lambda x: mint.index_add(mint.clone(x), 0, Tensor([1, 1]), mint.ones((2, 3)), alpha=2), compiled, x)
    np.testing.assert_allclose(y.asnumpy() - ramp((4, 3)), [[0] * 3, [4] * 3, [0] * 3, [0] * 3], atol=1e-6)
    np.testing.assert_array_equal(x.asnumpy(), ramp((4, 3)))


# -- how layers begin ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("layer", "fan"),
    [
        (lambda: mint.nn.Conv1d(8, 200, 5), 40), (lambda: mint.nn.Conv2d(8, 200, 5, groups=2), 100), (lambda: mint.nn.Conv3d(4, 40, 5), 500),
        (lambda: mint.nn.ConvTranspose2d(8, 200, 5), 5000),
    ],
)  # fmt: skip
def test_convolutions_begin(layer: Callable[[], Any], fan: int) -> None:
    ms.set_seed(1)
    bound = 1 / math.sqrt(fan)
    for p in layer().get_parameters():
        assert np.abs(p.asnumpy()).max() <= bound and abs(p.asnumpy().std() - bound / math.sqrt(3)) < 0.1 * bound


def test_tables_begin() -> None:
    ms.set_seed(1)
    table = mint.nn.Embedding(200, 100, padding_idx=-1).weight.asnumpy()
    assert abs(table.std() - 1) < 0.05 and (table[-1] == 0).all()
    given = Tensor(ramp((4, 3)))
    layer = mint.nn.Embedding(4, 3, _weight=given, _freeze=True)
    np.testing.assert_array_equal(layer(Tensor([3, 0])).asnumpy(), ramp((4, 3))[[3, 0]])
    assert not layer.trainable_params()


@MODES
def test_a_limited_table_is_scaled(compiled: bool) -> None:
    """Rows that are used and too long are scaled in the table itself."""
    layer = mint.nn.Embedding(4, 3, max_norm=1.0, _weight=Tensor(ramp((4, 3))))
    found = run(layer, compiled, Tensor([2, 0])).asnumpy()
    lengths = np.linalg.norm(ramp((4, 3)), axis=1)
    want = ramp((4, 3)) / np.maximum(lengths, 1)[:, None]
    np.testing.assert_allclose(found, want[[2, 0]], rtol=1e-4)
    np.testing.assert_allclose(layer.weight.asnumpy()[[0, 2]], want[[0, 2]], rtol=1e-4)
    np.testing.assert_array_equal(layer.weight.asnumpy()[[1, 3]], ramp((4, 3))[[1, 3]])


@MODES
def test_transposed_convolutions_of_a_size(compiled: bool) -> None:
    layer, x = mint.nn.ConvTranspose2d(2, 3, 3, stride=2), Tensor(ramp((1, 2, 3, 3)))
    plain = layer(x)
    assert plain.shape == (1, 3, 7, 7)
    larger = run(lambda x: layer(x, (8, 7)), compiled, x)
    assert larger.shape == (1, 3, 8, 7)
    np.testing.assert_allclose(larger.asnumpy()[:, :, :7], plain.asnumpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="cannot become"):
        layer(x, (9, 7))


@MODES
def test_running_statistics_are_used(compiled: bool) -> None:
    x, mean, variance = ramp((2, 4, 5, 4)), ramp((4,)), np.abs(ramp((4,))) + 0.5
    found = run(lambda *t: F.batch_norm(*t, eps=0.1), compiled, Tensor(x), Tensor(mean), Tensor(variance), Tensor(ramp((4,), 1.0)), Tensor(ramp((4,), 2.0)))
    wide = (x.astype(np.float64) - mean[:, None, None]) / np.sqrt(variance[:, None, None] + 0.1)
    np.testing.assert_allclose(found.asnumpy(), wide * ramp((4,), 1.0)[:, None, None] + ramp((4,), 2.0)[:, None, None], rtol=1e-4, atol=1e-5)


# -- training --------------------------------------------------------------------------------------------------------------
class Classifier(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        n = mint.nn
        self.layers = nn.SequentialCell(
            n.Conv2d(1, 4, 3, padding=1), n.BatchNorm2d(4), n.GELU(), n.AvgPool2d(2), n.Conv2d(4, 8, 3, padding="same", padding_mode="reflect"),
            n.GroupNorm(2, 8), n.SiLU(), n.Dropout(0.0), n.AdaptiveAvgPool2d(1), n.Flatten(), n.Linear(8, 3),
        )  # fmt: skip
        self.loss = n.CrossEntropyLoss(label_smoothing=0.1)

    def construct(self, x: Tensor, classes: Tensor) -> Tensor:
        logits = self.layers(mint.unsqueeze(x, 1))
        first, second = mint.chunk(logits, 2, dim=0)
        return self.loss(mint.cat((first, second)), classes) + 1e-3 * mint.norm(logits)  # type: ignore[no-any-return]


def test_a_network_trains_alike_in_both_modes() -> None:
    x, classes = Tensor(ramp((6, 8, 8))), Tensor([0, 1, 2, 0, 1, 2])
    losses, statistics = [], []
    for compiled in (False, True):
        net = Classifier()
        net.set_train()
        for p in net.get_parameters():
            if p.requires_grad:
                p.set_data(Tensor(ramp(p.shape) * 0.3))
        optimizer = nn.SGD(net.trainable_params(), 0.1)
        forward = ms.value_and_grad(net, None, optimizer.parameters)

        def step(x: Tensor, classes: Tensor) -> Tensor:
            loss, gradients = forward(x, classes)
            return ops.depend(loss, optimizer(gradients))

        losses.append([float(run(step, compiled, x, classes)) for _ in range(5)])
        norm = net.layers[1]
        statistics.append([norm.running_mean.asnumpy(), norm.running_var.asnumpy(), norm.num_batches_tracked.asnumpy()])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    assert losses[0][-1] < losses[0][0]
    for a, b in zip(*statistics, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    assert statistics[0][2] == 5


# -- errors ----------------------------------------------------------------------------------------------------------------
X, IMAGE, I = Tensor(ramp((2, 3))), Tensor(ramp((1, 2, 4, 4))), Tensor([1, 0])
REFUSED: list[tuple[Callable[[], Any], type[Exception]]] = [
    (lambda: mint.chunk(X, 0), ValueError), (lambda: mint.chunk(X, 2, 5), ValueError), (lambda: mint.split(X, (1, 1), 1), ValueError),
    (lambda: mint.transpose(X, 0, 2), ValueError), (lambda: mint.transpose(X, 0.0, 1), TypeError), (lambda: mint.clamp(X), ValueError),
    (lambda: mint.pow("a", X), TypeError), (lambda: mint.reshape(X, (4,)), ValueError), (lambda: mint.squeeze(X, 3), ValueError),
    (lambda: mint.unsqueeze(X, 4), ValueError), (lambda: mint.narrow(X, 1, 2, 5), ValueError), (lambda: mint.select(X, 1, 3), ValueError),
    (lambda: mint.select(X, 1, 1.0), TypeError), (lambda: mint.kthvalue(X, 4), ValueError), (lambda: mint.kthvalue(X, 1.0), TypeError),
    (lambda: mint.median(X, keepdim=True), TypeError), (lambda: mint.broadcast_to(X, (4, 3)), ValueError), (lambda: mint.mul(X, "a"), TypeError),
    (lambda: mint.softmax(X, 2), ValueError), (lambda: mint.norm(X, "abc"), ValueError), (lambda: mint.topk(X, 5), ValueError),
    (lambda: mint.cumsum(X, 2), ValueError), (lambda: mint.equal(X, 1), TypeError), (lambda: mint.diag(IMAGE), ValueError),
    (lambda: mint.bincount(Tensor([-1, 2])), ValueError), (lambda: mint.index_add(X, 0, I, X[:1]), ValueError),
    (lambda: mint.repeat_interleave(X, 2, 0, output_size=3), ValueError), (lambda: mint.triangular_solve(X, X), ValueError),
    (lambda: mint.randint(3, 3, (2,)), ValueError), (lambda: mint.randint(3), TypeError), (lambda: mint.randperm(-1), ValueError),
    (lambda: mint.randperm(2.0), TypeError), (lambda: mint.normal(0.0, 1.0), TypeError), (lambda: mint.normal(X, 1.0, (2,)), TypeError),
    (lambda: mint.normal(0.0, -1.0, (2,)), ValueError), (lambda: mint.rand(2.5), TypeError), (lambda: mint.rand(2, device="GPU"), ValueError),
    (lambda: mint.randn(2, device="meta"), ValueError), (lambda: mint.rand(2, generator=3), TypeError), (lambda: mint.arange(0, 5, 0), ValueError),
    (lambda: mint.linspace(0, 1, 0), ValueError), (lambda: mint.full_like(X, "a"), TypeError), (lambda: mint.multinomial(X, 5), ValueError),
    (lambda: F.pad(X, (1,)), ValueError), (lambda: F.pad(X, (1, 1), "foo"), ValueError), (lambda: F.mse_loss(X, X, reduction="foo"), ValueError),
    (lambda: F.kl_div(X, X, "foo"), ValueError), (lambda: F.conv2d(IMAGE, IMAGE, padding="foo"), ValueError), (lambda: F.conv2d(X, IMAGE), ValueError),
    (lambda: F.conv2d(IMAGE, IMAGE, stride=2, padding="same"), ValueError), (lambda: F.conv1d("a", X), TypeError),
    (lambda: F.conv_transpose2d(IMAGE, IMAGE, output_padding=1), ValueError), (lambda: F.conv_transpose2d(IMAGE, X), ValueError),
    (lambda: F.interpolate(IMAGE, 2, 2), ValueError), (lambda: F.interpolate(IMAGE, 2, mode="foo"), ValueError), (lambda: F.dropout(X, 1.5), ValueError),
    (lambda: F.gelu(X, approximate="foo"), ValueError), (lambda: F.avg_pool2d(IMAGE, 2, divisor_override=0), ValueError),
    (lambda: F.batch_norm(IMAGE, None, None), ValueError), (lambda: F.embedding(X, X), TypeError), (lambda: F.pixel_shuffle(IMAGE, 3), ValueError),
    (lambda: mint.nn.Conv2d(3, 4, 3, groups=2), ValueError), (lambda: mint.nn.Conv2d(4, 4, 3, padding_mode="foo"), ValueError),
    (lambda: mint.nn.Conv2d(4, 4, 3, stride=2, padding="same"), ValueError), (lambda: mint.nn.Conv2d(4, 4, "3"), TypeError),
    (lambda: mint.nn.Conv2d(0, 4, 3), ValueError), (lambda: mint.nn.Conv2d(4, 4, 3, padding="foo"), ValueError),
    (lambda: mint.nn.ConvTranspose2d(4, 4, 3, padding_mode="reflect"), ValueError), (lambda: mint.nn.BatchNorm2d("3"), TypeError),
    (lambda: mint.nn.BatchNorm2d(2)(X), ValueError), (lambda: mint.nn.GroupNorm(3, 4), ValueError), (lambda: mint.nn.LayerNorm("a"), TypeError),
    (lambda: mint.nn.Dropout(1.5), ValueError), (lambda: mint.nn.Dropout("a"), TypeError), (lambda: mint.nn.Embedding(4, 3, padding_idx=5), ValueError),
    (lambda: mint.nn.Embedding(4, 3, sparse=True), ValueError), (lambda: mint.nn.Embedding(4, 3, _weight=X), ValueError),
    (lambda: mint.nn.MSELoss("foo"), ValueError), (lambda: mint.nn.PReLU(0), ValueError), (lambda: mint.nn.ELU(inplace=1), TypeError),
    (lambda: mint.nn.ZeroPad1d((1, 2, 3)), ValueError), (lambda: mint.nn.Softmax(dim=5)(X), ValueError), (lambda: mint.nn.Upsample(2, 2)(IMAGE), ValueError),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_refused(case: int) -> None:
    wrong, error = REFUSED[case]
    with pytest.raises(error):
        wrong()
