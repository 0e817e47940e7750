"""Random numbers: the generator against published vectors, distributions, seeds, eager and compiled code alike, dropout. All seeds are
fixed, so that the statistical bounds either hold or do not.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, nn, ops
from graphcell.context import GRAPH_MODE, PYNATIVE_MODE
from graphcell.jit import jit
from graphcell.ops.random import philox_words
from tests.recording import check, load, ramp

DIFFERENT = {
    "ops.randint(5, 5, (4,))": "an empty range is a ValueError, not a RuntimeError",
    "ops.uniform((3, 2), Tensor([1, 2], ms.int32), Tensor([3, 4], ms.int32), dtype=ms.int32)": "integer bounds may broadcast too",
    "ops.uniform((2,), 1.0, 2.0)": "bounds may be numbers",
}
PROGRAMS = [key for key in load("randomness") if key not in DIFFERENT]
COUNT = 40000
MODES = [PYNATIVE_MODE, GRAPH_MODE]


@pytest.mark.parametrize("key", PROGRAMS)
@pytest.mark.parametrize("mode", MODES)
def test_dtypes_shapes_errors_are_mindspores(key: str, mode: int) -> None:
    check("randomness", key, mode)


@pytest.mark.parametrize("key", DIFFERENT)
def test_known_differences_are_differences(key: str) -> None:
    with pytest.raises(AssertionError):
        check("randomness", key, PYNATIVE_MODE)


# -- the generator ---------------------------------------------------------------------------------------------------------
def signed(word: int) -> Any:
    return np.array([word], np.uint64).view(np.int64)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [  # the known answers of the Random123 library, philox4x32 with 10 rounds
        ((0, 0), 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((2**64 - 1, 2**64 - 1), 2**64 - 1, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ((0x85A308D3243F6A88, 0x0370734413198A2E), 0x299F31D0A4093822, "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_gives_the_published_words(counter: tuple[int, int], key: int, words: str) -> None:
    got = philox_words(signed(counter[0]), signed(key), signed(counter[1]))
    assert " ".join(f"{int(w[0]):08x}" for w in got) == words


def draws(ms: Any) -> list[Any]:
    """One of each kind."""
    return [
        ops.rand(7, 3),
        ops.randn(33),
        ops.rand(5, dtype=ms.float64),
        ops.randn(5, dtype=ms.float64),
        ops.rand(9, dtype=ms.float16),
        ops.randint(-5, 100, (17,)),
        ops.uniform((4, 2), Tensor([1.0, 2.0]), Tensor(3.0)),
        ops.normal((6,), 1.0, Tensor(2.0)),
        ops.laplace((6,), 1.0, 2.0),
        ops.bernoulli(Tensor(np.zeros(20, np.float32)), 0.3),
        ops.randperm(11),
        ops.shuffle(Tensor(ramp((5, 2)))),
        ops.multinomial(Tensor([0.1, 0.2, 0.7]), 9),
        ops.multinomial(Tensor([[0.1, 0.2, 0.7], [1.0, 1.0, 1.0]]), 2, False),
        ops.gumbel_softmax(Tensor(ramp((2, 3)))),
        ops.dropout(Tensor(ramp((5, 4))), 0.3),
        ops.dropout2d(Tensor(ramp((3, 4, 2, 2))), 0.3),
        ops.rand(4, seed=9),
        ops.rand(4, seed=9),
        ops.randn(4, seed=9),
    ]


def test_compiled_code_draws_the_same_numbers() -> None:
    ms.set_seed(42)
    eager = [[t.asnumpy().copy() for t in draws(ms)] for _ in range(2)]
    compiled = jit(draws)
    ms.set_seed(42)
    native = [[t.asnumpy().copy() for t in compiled(ms)] for _ in range(2)]
    for first, second in zip(eager, native):
        for a, b in zip(first, second):
            np.testing.assert_allclose(b, a, rtol=3e-6, atol=1e-6)
    assert not np.array_equal(eager[0][0], eager[1][0])


def test_eager_and_compiled_code_share_one_sequence() -> None:
    @jit
    def compiled() -> Any:
        return ops.rand(3)

    ms.set_seed(1)
    want = [ops.rand(3).asnumpy().tolist() for _ in range(4)]
    ms.set_seed(1)
    got = [f().asnumpy().tolist() for f in (compiled, lambda: ops.rand(3), compiled, lambda: ops.rand(3))]
    assert got == want


@pytest.mark.parametrize("mode", MODES)
def test_op_level_seeds_give_a_sequence_that_set_seed_repeats(mode: int) -> None:
    class Draw(nn.Cell):
        def construct(self) -> Any:
            return ops.uniform((3,), Tensor(0.0), Tensor(1.0), seed=7)

    ms.set_context(mode=mode)
    net = Draw()

    def sequence(seed: int) -> list[Any]:
        ms.set_seed(seed)
        return [net().asnumpy().tolist() for _ in range(3)]

    first, other, again = sequence(1), sequence(2), sequence(1)
    assert first == again and first != other
    assert first[0] != first[1] != first[2]
    assert ops.rand(3, seed=7).asnumpy().tolist() != first[0]  # another op has another sequence
    assert ops.uniform((3,), 0.0, 1.0, seed=8).asnumpy().tolist() not in first


def test_an_op_level_seed_does_not_move_the_global_sequence() -> None:
    ms.set_seed(3)
    want = ops.rand(3).asnumpy().tolist()
    ms.set_seed(3)
    ops.rand(3, seed=5)
    assert ops.rand(3).asnumpy().tolist() == want


def test_other_seeds_give_other_numbers() -> None:
    seen = set()
    for seed in range(50):
        ms.set_seed(seed)
        seen.add(tuple(ops.rand(2).asnumpy().tolist()))
    assert len(seen) == 50


def test_a_loop_in_a_graph_draws_anew_each_time() -> None:
    @jit
    def loop(n: Any) -> Any:
        total = ops.zeros(4)
        k = n * 0
        while k < n:
            total = total * 10 + ops.floor(ops.rand(4) * 10)
            k = k + 1
        return total

    ms.set_seed(5)
    want = np.zeros(4)
    for _ in range(3):
        want = want * 10 + np.floor(ops.rand(4).asnumpy() * 10)
    ms.set_seed(5)
    np.testing.assert_array_equal(loop(Tensor(3)).asnumpy(), want)


# -- distributions ---------------------------------------------------------------------------------------------------------
def check_distribution(sample: Any, cdf: Any) -> None:
    """The test of Kolmogorov and Smirnov at the level of 1 in 1000."""
    x = np.sort(np.asarray(sample, np.float64).reshape(-1))
    steps = np.arange(len(x) + 1) / len(x)
    at = np.array([cdf(v) for v in x])
    distance = max(np.abs(at - steps[:-1]).max(), np.abs(at - steps[1:]).max())
    assert distance < 1.95 / math.sqrt(len(x)), f"distance {distance}"


def normal_cdf(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


def laplace_cdf(x: float) -> float:
    return 0.5 * math.exp(x) if x < 0 else 1 - 0.5 * math.exp(-x)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform_and_normal(mode: int, dtype: str) -> None:
    ms.set_seed(11)
    pair = lambda: (ops.rand(COUNT, dtype=dtype), ops.randn(COUNT, dtype=dtype))  # noqa: E731
    u, z = (t.asnumpy().astype(np.float64) for t in (pair if mode == PYNATIVE_MODE else jit(pair))())
    assert u.min() >= 0.0 and u.max() < 1.0
    check_distribution(u, lambda v: v)
    check_distribution(z, normal_cdf)
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 4 / math.sqrt(COUNT)
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 4 / math.sqrt(COUNT)
    assert np.isfinite(z).all() and 3.5 < np.abs(z).max() < 7.0


def test_consecutive_calls_are_independent() -> None:
    ms.set_seed(12)
    a, b = (ops.rand(COUNT).asnumpy() for _ in range(2))
    assert abs(np.corrcoef(a, b)[0, 1]) < 4 / math.sqrt(COUNT)


def test_uniform_between_bounds() -> None:
    ms.set_seed(13)
    check_distribution(ops.uniform((COUNT,), -2.0, Tensor(6.0)).asnumpy(), lambda v: (v + 2) / 8)


def test_normal_with_mean_and_deviation() -> None:
    ms.set_seed(14)
    check_distribution(ops.normal((COUNT,), 3.0, 0.5).asnumpy(), lambda v: normal_cdf((v - 3) / 0.5))


def test_laplace_numbers() -> None:
    ms.set_seed(15)
    check_distribution(ops.standard_laplace((COUNT,)).asnumpy(), laplace_cdf)
    check_distribution(ops.laplace((COUNT,), 1.0, 2.0).asnumpy(), lambda v: laplace_cdf((v - 1) / 2))


def check_frequencies(values: Any, probabilities: Any) -> None:
    """Each count lies within 4.5 standard deviations of what is expected."""
    counts = np.bincount(values.reshape(-1), minlength=len(probabilities))
    n, p = counts.sum(), np.asarray(probabilities)
    assert len(counts) == len(p) and (counts[p == 0] == 0).all()
    assert (np.abs(counts - n * p) <= 4.5 * np.sqrt(n * p * (1 - p)) + 1e-9).all(), counts


@pytest.mark.parametrize("mode", MODES)
def test_integers(mode: int) -> None:
    ms.set_seed(16)
    draw = lambda: ops.randint(-3, 7, (COUNT,))  # noqa: E731
    check_frequencies((draw if mode == PYNATIVE_MODE else jit(draw))().asnumpy() + 3, [0.1] * 10)


def test_bernoulli_and_multinomial() -> None:
    ms.set_seed(17)
    check_frequencies(ops.bernoulli(Tensor(np.zeros(COUNT, np.int32)), 0.3).asnumpy(), [0.7, 0.3])
    check_frequencies(ops.multinomial(Tensor([2.0, 0.0, 1.0, 5.0]), COUNT).asnumpy(), [0.25, 0, 0.125, 0.625])
    rows = ops.multinomial(Tensor([[1.0, 3.0], [1.0, 1.0]]), COUNT).asnumpy()
    check_frequencies(rows[0], [0.25, 0.75])
    check_frequencies(rows[1], [0.5, 0.5])


def test_multinomial_without_replacement_draws_each_class_once() -> None:
    ms.set_seed(18)
    p = np.array([0.5, 0.3, 0.2], np.float32)
    drawn = ops.multinomial(Tensor(np.tile(p, (4000, 1))), 2, False).asnumpy()
    assert (drawn[:, 0] != drawn[:, 1]).all()
    check_frequencies(drawn[:, 0], p)
    second = sum(p[k] * p / (1 - p[k]) * (np.arange(3) != k) for k in range(3))
    check_frequencies(drawn[:, 1], second)


def test_random_orders_are_orders() -> None:
    ms.set_seed(19)
    first = np.array([ops.randperm(4).asnumpy() for _ in range(2000)])
    assert (np.sort(first, 1) == np.arange(4)).all()
    for place in range(4):
        check_frequencies(first[:, place], [0.25] * 4)
    x = ramp((50, 2))
    y = ops.shuffle(Tensor(x)).asnumpy()
    assert not np.array_equal(x, y) and sorted(map(tuple, y)) == sorted(map(tuple, x))


def test_gumbel_softmax() -> None:
    ms.set_seed(20)
    logits = np.log(np.array([0.2, 0.5, 0.3], np.float32))
    tiled = Tensor(np.tile(logits, (COUNT // 4, 1)))
    hard = ops.gumbel_softmax(tiled, 0.7, True).asnumpy()
    assert set(np.unique(hard.round(6))) == {0.0, 1.0}
    np.testing.assert_allclose(hard.sum(1), 1, rtol=1e-6)
    check_frequencies(hard.argmax(1), [0.2, 0.5, 0.3])
    ms.set_seed(21)
    soft_gradient = ms.grad(lambda x: (ops.gumbel_softmax(x, 0.7) * Tensor(ramp((3, 4)))).sum())(Tensor(ramp((3, 4))))
    ms.set_seed(21)
    hard_gradient = ms.grad(lambda x: (ops.gumbel_softmax(x, 0.7, True) * Tensor(ramp((3, 4)))).sum())(Tensor(ramp((3, 4))))
    np.testing.assert_allclose(hard_gradient.asnumpy(), soft_gradient.asnumpy(), rtol=1e-5, atol=1e-6)
    assert soft_gradient.asnumpy().any()
    columns = ops.gumbel_softmax(Tensor(ramp((3, 4))), 1.0, True, 0).asnumpy()
    np.testing.assert_allclose(columns.sum(0), 1, rtol=1e-6)


# -- dropout ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", MODES)
def test_dropout_keeps_its_mask_for_the_gradient(mode: int) -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.dropout = nn.Dropout(p=0.25)

        def construct(self, x: Any) -> Any:
            y = self.dropout(x)
            return (y * Tensor(ramp((200, 50)))).sum(), y

    ms.set_context(mode=mode)
    ms.set_seed(22)
    x = Tensor(np.abs(ramp((200, 50))) + 1)
    (_, y), gradient = ms.value_and_grad(Net().set_train(), has_aux=True)(x)
    kept = y.asnumpy() != 0
    assert abs(kept.mean() - 0.75) < 0.02
    np.testing.assert_allclose(y.asnumpy()[kept], x.asnumpy()[kept] / 0.75, rtol=1e-6)
    np.testing.assert_allclose(gradient.asnumpy(), np.where(kept, ramp((200, 50)) / 0.75, 0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("layer", "shape"), [(nn.Dropout1d, (40, 30, 5)), (nn.Dropout2d, (40, 30, 2, 3)), (nn.Dropout3d, (40, 30, 2, 2, 2))])
def test_channel_dropout_drops_whole_channels(layer: Any, shape: Any, mode: int) -> None:
    ms.set_context(mode=mode)
    ms.set_seed(23)
    y = layer(0.4).set_train()(Tensor(np.ones(shape, np.float32))).asnumpy()
    channels = y.reshape(*shape[:2], -1)
    assert (channels == channels[:, :, :1]).all()
    np.testing.assert_allclose(np.unique(y), [0.0, 1 / 0.6], rtol=1e-6)
    assert abs((channels[:, :, 0] > 0).mean() - 0.6) < 0.06


def test_dropout_of_everything_is_zero() -> None:
    assert not ops.dropout(Tensor(ramp((3, 4))), 1.0).asnumpy().any()


@pytest.mark.parametrize("mode", MODES)
def test_dropout_draws_anew_at_each_step(mode: int) -> None:
    ms.set_context(mode=mode)
    net = nn.Dropout(p=0.5).set_train()
    x = Tensor(np.ones(64, np.float32))
    assert len({tuple(net(x).asnumpy().tolist()) for _ in range(5)}) == 5


def test_relu_with_random_slopes() -> None:
    ms.set_seed(24)
    net, x = nn.RReLU(0.1, 0.3), Tensor(-np.ones(COUNT // 10, np.float32))
    for training in (False, True):  # there is no other rule outside of training
        y = -net.set_train(training)(x).asnumpy()
        assert y.min() >= 0.1 - 1e-6 and y.max() <= 0.3 + 1e-6
        check_distribution(y, lambda v: (v - 0.1) / 0.2)
