"""Gamma and Poisson numbers, classes and places drawn by chance, Tensors filled in place, op-level seeds: distributions against mpmath and formulas,
with fixed seeds, so that the bounds either hold or do not.
"""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import mpmath
import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, Tensor, nn, ops
from graphcell.context import GRAPH_MODE, PYNATIVE_MODE
from graphcell.jit import jit

MODES = [PYNATIVE_MODE, GRAPH_MODE]
COUNT = 40000


@pytest.fixture(params=MODES, ids=["pynative", "graph"])
def run(request: pytest.FixtureRequest) -> Any:
    """Calls a function eagerly, or compiled."""
    ms.set_seed(31)
    return (lambda f: f()) if request.param == PYNATIVE_MODE else (lambda f: jit(f)())


def check_shares(found: Any, share: dict[int, float]) -> None:
    """Counts of numbers against their probabilities, to five standard errors."""
    x = np.asarray(found).reshape(-1)
    for k, p in share.items():
        assert abs(float((x == k).mean()) - p) < 5 * math.sqrt(p * (1 - p) / x.size) + 1e-9, (k, p)


def check_cdf(found: Any, cdf: Any, points: Any) -> None:
    """The distribution function at some points, to five standard errors."""
    x = np.asarray(found, np.float64).reshape(-1)
    for at in points:
        p = float(cdf(at))
        assert abs(float((x <= at).mean()) - p) < 5 * math.sqrt(p * (1 - p) / x.size) + 1e-4, (at, p)


@pytest.mark.parametrize("alpha", [0.05, 0.5, 1.0, 2.5, 30.0, 1000.0])
def test_gamma(run: Any, alpha: float) -> None:
    x = run(lambda: ops.random_gamma(Tensor([COUNT]), Tensor([alpha], ms.float64))).asnumpy()
    assert x.shape == (COUNT, 1) and x.dtype == np.float64 and x.min() >= 0
    spread = math.sqrt(alpha)
    check_cdf(x, lambda v: mpmath.gammainc(alpha, 0, v, regularized=True), [max(alpha + k * spread, 0.01 * alpha) for k in (-2, -1, -0.3, 0, 0.5, 1, 2, 4)])
    assert abs(x.mean() - alpha) < 5 * spread / math.sqrt(COUNT)


def test_gamma_with_a_rate(run: Any) -> None:
    x = run(lambda: ops.gamma((COUNT, 2), Tensor([2.0, 5.0]), Tensor([0.5]), seed=3)).asnumpy()
    assert x.shape == (COUNT, 2) and x.dtype == np.float32
    np.testing.assert_allclose(x.mean(0), [4.0, 10.0], rtol=0.03)
    np.testing.assert_allclose(x.var(0), [8.0, 20.0], rtol=0.06)


@pytest.mark.parametrize("rate", [0.1, 1.0, 9.5, 10.5, 40.0, 3000.0])
def test_poisson(run: Any, rate: float) -> None:
    x = run(lambda: ops.random_poisson(Tensor([COUNT]), Tensor(rate), dtype=ms.int64)).asnumpy()
    assert x.shape == (COUNT,) and x.dtype == np.int64
    spread = math.sqrt(rate)
    points = sorted({max(0, math.floor(rate + k * spread)) for k in (-3, -2, -1, -0.5, 0, 0.5, 1, 2, 3)})
    check_cdf(x, lambda v: mpmath.gammainc(v + 1, rate, mpmath.inf, regularized=True), points)
    check_shares(x, {k: float(mpmath.exp(k * mpmath.log(rate) - rate - mpmath.loggamma(k + 1))) for k in points})


def test_parameters_outside_are_nan() -> None:
    assert np.isnan(ops.random_gamma(Tensor([2]), Tensor([0.0, -1.0])).asnumpy()).all()
    found = ops.random_poisson(Tensor([1]), Tensor([-1.0, 0.0, math.nan])).asnumpy()[0]
    np.testing.assert_array_equal(found, [math.nan, 0.0, math.nan])


def test_poisson_broadcasts(run: Any) -> None:
    x = run(lambda: ops.poisson((COUNT, 2), Tensor([1.0, 4.0]), seed=4)).asnumpy()
    assert x.dtype == np.int32
    np.testing.assert_allclose(x.mean(0), [1.0, 4.0], rtol=0.04)


def test_categorical(run: Any) -> None:
    shares = np.array([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]])
    x = run(lambda: ops.random_categorical(Tensor(np.log(shares)), COUNT)).asnumpy()
    for row, share in zip(x, shares):
        check_shares(row, dict(enumerate(share)))


def test_multinomial_with_replacement() -> None:
    weights = Tensor([0.0, 9.0, 4.0, 0.0])
    check_shares(ops.multinomial_with_replacement(weights, 2, 5, COUNT, True).asnumpy(), {0: 0.0, 1: 9 / 13, 2: 4 / 13, 3: 0.0})
    assert sorted(ops.multinomial_with_replacement(weights, 0, 0, 2).asnumpy().tolist()) == [1, 2]


@pytest.mark.slow
def test_places_of_a_mask(run: Any) -> None:
    mask = np.zeros((4, 5), bool)
    mask[1, 2:] = mask[3, 0] = mask[0, 4] = True
    there = {tuple(p) for p in np.argwhere(mask).tolist()}
    places, found = (t.asnumpy() for t in run(lambda: ops.choice_with_mask(Tensor(mask), 8)))
    assert {tuple(p) for p in places[:5].tolist()} == there and not places[5:].any()
    assert found.tolist() == [True] * 5 + [False] * 3
    counts: dict[Any, int] = {}
    for _ in range(600):
        places, found = (t.asnumpy() for t in ops.choice_with_mask(Tensor(mask), 2))
        assert found.all() and len({tuple(p) for p in places.tolist()}) == 2
        for p in places.tolist():
            counts[tuple(p)] = counts.get(tuple(p), 0) + 1
    assert set(counts) == there and all(abs(c / 600 - 0.4) < 5 * math.sqrt(0.24 / 600) for c in counts.values())


def test_candidates_drawn_alike(run: Any) -> None:
    true = Tensor([[1, 3], [0, 2]])
    drawn, of_true, of_drawn = (t.asnumpy() for t in run(lambda: ops.uniform_candidate_sampler(true, 2, COUNT, False, 4)))
    check_shares(drawn, dict.fromkeys(range(4), 0.25))
    assert (of_true == COUNT / 4).all() and (of_drawn == COUNT / 4).all() and of_true.shape == (2, 2)
    drawn, of_true, _ = (t.asnumpy() for t in run(lambda: ops.uniform_candidate_sampler(true, 2, 4, True, 4)))
    assert sorted(drawn.tolist()) == [0, 1, 2, 3] and (of_true <= 1).all() and (of_true >= 1 - 0.75**4 - 1e-6).all()


def test_candidates_in_proportion_to_logarithms(run: Any) -> None:
    share = {k: math.log((k + 2) / (k + 1)) / math.log(9) for k in range(8)}
    drawn, of_true, of_drawn = (t.asnumpy() for t in run(lambda: ops.log_uniform_candidate_sampler(Tensor([[1], [7]]), 1, COUNT, False, 8)))
    check_shares(drawn, share)
    np.testing.assert_allclose(of_true[:, 0], [share[1] * COUNT, share[7] * COUNT], rtol=1e-5)
    np.testing.assert_allclose(of_drawn[:5], [share[int(k)] * COUNT for k in drawn[:5]], rtol=1e-5)
    drawn, *_ = ops.log_uniform_candidate_sampler(Tensor([[1], [7]]), 1, 8, True, 8)
    assert sorted(drawn.asnumpy().tolist()) == list(range(8))


def test_truncated_and_log_normal_primitives() -> None:
    ms.set_seed(32)
    x = ops.TruncatedNormal()(Tensor([COUNT])).asnumpy()
    inside = math.erf(math.sqrt(2))
    assert np.abs(x).max() <= 2.0
    check_cdf(x, lambda v: (math.erf(v / math.sqrt(2)) + inside) / (2 * inside), [-1.5, -1, -0.2, 0, 0.4, 1, 1.8])
    y = np.log(ops.LogNormalReverse(1.0, 2.0)(Tensor(np.zeros(COUNT, np.float32))).asnumpy())
    check_cdf(y, lambda v: 0.5 * math.erfc(-(v - 1) / 2 / math.sqrt(2)), [-3, -1, 1, 2, 5])
    check_shares(ops.UniformInt()((COUNT,), Tensor(1, ms.int32), Tensor(5, ms.int32)).asnumpy(), {0: 0.0, **dict.fromkeys(range(1, 5), 0.25), 5: 0.0})


@pytest.mark.parametrize("arguments", [(), (0,), (-1,), (3,), (3, 1), (-1, 4)])
def test_orders(run: Any, arguments: Any) -> None:
    found = [run(lambda: ops.randperm(30, *arguments)).asnumpy().tolist() for _ in range(2)]
    assert sorted(found[0]) == sorted(found[1]) == list(range(30)) and found[0] != found[1]
    assert (ops.randperm(30, 3, 1).asnumpy() != ops.randperm(30, 3, 2).asnumpy()).any()


# -- in place ------------------------------------------------------------------------------------------------------------
def normal_cdf(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


FILLED: Any = [
    ("normal_", (1.0, 2.0), lambda v: normal_cdf((v - 1) / 2), [-3, -1, 0, 1, 2, 5]),
    ("normal_", (), normal_cdf, [-2, -1, 0, 0.5, 1.5]),
    ("uniform_", (), lambda v: v, [0.1, 0.5, 0.9]),
    ("uniform_", (1.0, 3.0), lambda v: (v - 1) / 2, [1.2, 2.0, 2.9]),
    ("exponential_", (2.0,), lambda v: 1 - math.exp(-2 * v), [0.1, 0.3, 1.0, 2.0]),
    ("random_", (2, 6), lambda v: (v - 1) / 4, [2, 3, 4]),
    ("random_", (4,), lambda v: (v + 1) / 4, [0, 1, 2]),
    ("bernoulli_", (0.3,), lambda v: 0.7, [0]),
]


@pytest.mark.parametrize(("name", "arguments", "cdf", "points"), FILLED, ids=[f"{f[0]}{f[1]}" for f in FILLED])
def test_filling_in_place(run: Any, name: str, arguments: Any, cdf: Any, points: Any) -> None:
    x = Parameter(Tensor(np.full(COUNT, 7.0, np.float32)), name="x")
    y = run(lambda: getattr(x, name)(*arguments))
    np.testing.assert_array_equal(x.asnumpy(), y.asnumpy())
    assert x.dtype is ms.float32
    check_cdf(x.asnumpy(), cdf, points)


def test_filling_keeps_the_dtype_and_the_tensor() -> None:
    for dtype in (ms.float16, ms.bfloat16, ms.float64):
        x = Tensor(np.zeros(1000), dtype)
        assert ops.normal_(x) is x and x.dtype is dtype and 0.9 < float(x.astype(ms.float32).std()) < 1.1
    k = Tensor(np.zeros(1000), ms.int8)
    assert k.random_() is k and k.dtype is ms.int8 and k.asnumpy().min() >= 0 and k.asnumpy().max() > 100
    assert set(Tensor(np.zeros(100), ms.bool_).random_().asnumpy().tolist()) == {True, False}
    p = Tensor(np.array([0.0, 1.0, 0.0], np.float32))
    assert p.bernoulli().asnumpy().tolist() == [0.0, 1.0, 0.0] and p.uniform(3.0, 4.0).dtype is ms.float32


def test_a_generator_of_ones_own() -> None:
    generator = ms.Generator().manual_seed(5)
    first = Tensor(np.zeros(4, np.float32)).normal_(generator=generator).asnumpy().copy()
    before = ms.get_rng_state().asnumpy().copy()
    second = Tensor(np.zeros(4, np.float32)).normal_(generator=generator).asnumpy().copy()
    again = Tensor(np.zeros(4, np.float32)).normal_(generator=generator.manual_seed(5)).asnumpy()
    assert (first == again).all() and (first != second).all() and (ms.get_rng_state().asnumpy() == before).all()


@pytest.mark.parametrize(
    ("action", "error", "text"),
    [
        (lambda: Tensor([1, 2]).normal_(), TypeError, "Tensor of floats"),
        (lambda: Tensor([1.0]).uniform_(2, 1), ValueError, "must not be greater"),
        (lambda: Tensor([1.0]).random_(3, 3), ValueError, "less than to"),
        (lambda: Tensor([1.0]).exponential_(0), ValueError, "positive"),
        (lambda: Tensor([1.0]).bernoulli_(1.5), ValueError, r"in \[0, 1\]"),
        (lambda: Tensor([1.0]).normal_(generator=3), TypeError, "must be a Generator"),
        (lambda: ops.random_(3), TypeError, "must be a Tensor"),
        (lambda: ops.randperm(3, -2), ValueError, "must >= 0, but got '-2'"),
        (lambda: ops.randperm(3, 1.5), TypeError, "must be ints"),
        (lambda: ops.UniformReal(seed=1.5), TypeError, "the .seed. must be int"),
        (lambda: ops.uniform_candidate_sampler(Tensor([[1]]), 1, 2, True, 5, 0, True), NotImplementedError, "remove_accidental_hits"),
    ],
)
def test_what_is_refused(action: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        action()


# -- op-level seeds ------------------------------------------------------------------------------------------------------
SEEDED = """
import graphcell as ms
from graphcell import ops, Tensor
ms.set_context(mode={mode})
draw = ops.UniformReal(seed=2)
for _ in range(2):
    print(ops.uniform((1, 4), Tensor(1.0), Tensor(2.0), seed=1), draw((2,)), ops.random_gamma(Tensor([2]), Tensor([1.0]), seed=3))
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_new_run_repeats_what_op_level_seeds_gave(mode: int) -> None:
    """Two runs without any global seed print the same; the two lines of a run differ."""
    runs = [subprocess.run([sys.executable, "-c", SEEDED.format(mode=mode)], capture_output=True, text=True, timeout=600) for _ in range(2)]
    assert runs[0].returncode == 0, runs[0].stderr
    first, second = runs[0].stdout.splitlines()[0], runs[0].stdout.splitlines()[-1]
    assert runs[0].stdout == runs[1].stdout and first != second


@pytest.mark.parametrize("mode", MODES)
def test_a_primitive_with_a_seed_has_a_sequence_of_its_own(mode: int) -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.other = ops.UniformReal(2), ops.UniformReal(2), ops.UniformReal(2, 1)

        def construct(self) -> Any:
            return self.one((2,)), self.two((2,)), self.one((2,)), self.other((2,))

    def drawn() -> list[Any]:
        return [t.asnumpy().tolist() for t in net()]

    ms.set_context(mode=mode)
    ms.set_seed(1)
    net = Net()
    first, second = drawn(), drawn()
    assert first[0] == first[1] != first[2] != first[3] != first[0]
    assert second[1] == first[2] and second[0] not in first  # `two` has drawn once, `one` twice
    ms.set_seed(1)
    assert drawn() == first
    ms.set_seed(2)
    assert drawn()[0] != first[0]
